//! A client of the game of tag, see `tag_server.rs`: a bot that chases the nearest player when it is "it", and
//! otherwise flees.
//!
//! ```console
//! $ cargo run --example tag_client -- 1 Ann
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

mod tag;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use slipgate::client::{Client, Clock, ConnectToken, Event, Inbox, Pace, decode};
use slipgate_token_issuer::{Issuer, Key, Limits, TokenRequest, system_entropy, wall_clock};
use tag::{ADDRESS, Channels, DEVELOPMENT_KEY, Field, PROTOCOL_ID, Step, TICK, World, channels, log_filter, printable};

fn main() -> Result<(), Box<dyn Error>> {
    // Without a subscriber the library's warnings are not seen.
    tracing_subscriber::fmt().with_env_filter(log_filter()).init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [id, name] = arguments.as_slice() else { return Err("usage: tag_client ID NAME".into()) };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let mut player = Player::join(ADDRESS.parse()?, id.parse()?, name)?;
    while !stop.load(Ordering::Relaxed) {
        player.turn();
        if let Some(reason) = player.client.close_reason() {
            println!("{reason}");
            return Ok(());
        }
    }
    // The server frees the slot at once.
    player.client.disconnect();
    player.client.end_turn();
    Ok(())
}

/// Mints a connect token, which the backend of a real game does: it knows the player, and the key must not be in the
/// client.
fn mint(server: SocketAddr, id: u64, name: &str) -> Result<ConnectToken, Box<dyn Error>> {
    let issuer = Issuer::new(PROTOCOL_ID, Key::from(DEVELOPMENT_KEY).into(), &[server], Limits::default())?;
    let request = TokenRequest { user_data: name.into(), ..TokenRequest::new(id) };
    Ok(issuer.mint(&request, wall_clock(), &mut system_entropy()?)?.token)
}

pub(crate) struct Player {
    pub(crate) client: Client,
    inbox: Inbox,
    clock: Clock,
    pace: Pace,
    pub(crate) channels: Channels,
    pub(crate) id: u64,
    /// The newest state of the game.
    pub(crate) world: World,
    /// The lines that the player reads.
    pub(crate) news: Vec<String>,
}

impl Player {
    pub(crate) fn join(server: SocketAddr, id: u64, name: &str) -> Result<Self, Box<dyn Error>> {
        let (clock, (channels, traffic)) = (Clock::start(), channels()?);
        let mut client = Client::new()?.with_traffic(traffic)?;
        client.connect(mint(server, id, name)?, clock.now())?;
        let (inbox, pace, world) = (Inbox::default(), Pace::new(clock, TICK), World::default());
        Ok(Self { client, inbox, clock, pace, channels, id, world, news: Vec::new() })
    }

    /// Handles what has arrived, sends a step if a tick is due, and sleeps until more happens.
    pub(crate) fn turn(&mut self) {
        let now = self.clock.now();
        self.client.begin_turn(now);
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Message { channel, bytes, .. } if channel == self.channels.state => match decode(channel, bytes)
                {
                    Ok(world) => self.world = world,
                    Err(error) => println!("{error}"),
                },
                Event::Message { channel, bytes, .. } if channel == self.channels.news => {
                    // Never trust a server either: its line may come from a player.
                    let line = printable(&String::from_utf8_lossy(bytes));
                    println!("{line}");
                    self.news.push(line);
                }
                _ => {}
            }
        }
        if self.pace.is_tick(now.monotonic) {
            if let Some(step) = self.step() {
                // If it is refused, the next step is newer.
                let _ = self.client.send_typed(self.channels.steps, &step);
            }
            self.client.end_turn();
        } else {
            self.client.flush();
        }
        self.pace.rest(&mut self.client);
    }

    /// Chases the nearest player when this one is "it", and otherwise flees from the player that is.
    fn step(&self) -> Option<Step> {
        let World { it, fields } = &self.world;
        let (x, y) = *fields.get(&self.id)?;
        let is_it = *it == self.id;
        let others = fields.iter().filter(|(id, _)| if is_it { **id != self.id } else { *id == it });
        let distance = |field: &Field| (field.0 - x).abs().max((field.1 - y).abs());
        let (to_x, to_y) = others.map(|(_, field)| *field).min_by_key(distance)?;
        // A player that flees tries to move even on the same row, column or field. A wall may stop it.
        let step = |from: i8, to: i8| if is_it { (to - from).signum() } else { 1 - 2 * i8::from(to > from) };
        Some(Step(step(x, to_x), step(y, to_y)))
    }
}
