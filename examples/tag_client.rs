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
use std::process::ExitCode;
use std::time::Duration;

use slipgate::client::transfer::TransferEvent;
use slipgate::client::{ChannelEvent, Client, Clock, ConnectToken, Event, Inbox, Pace, decode};
use slipgate_token_issuer::{Issuer, Key, Limits, TokenRequest, system_entropy, wall_clock};
use tag::{Channels, DEVELOPMENT_KEY, Map, PROTOCOL_ID, Position, Step, World, channels};

const TICK: Duration = Duration::from_millis(50);

fn main() -> ExitCode {
    // Without a subscriber the library's warnings are not seen.
    tracing_subscriber::fmt::init();
    // `Display` of an error is for people; a `Result` from `main` would print `Debug`.
    let Err(error) = run() else { return ExitCode::SUCCESS };
    println!("{error}");
    ExitCode::FAILURE
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [id, name] = arguments.as_slice() else { return Err("usage: tag_client ID NAME".into()) };
    let mut player = Player::join("127.0.0.1:40000".parse()?, id.parse()?, name)?;
    loop {
        player.turn();
        if let Some(reason) = player.ended.take() {
            return Err(reason.into());
        }
    }
}

/// Mints a connect token, which the backend of a real game does: it knows the player, and the key must not be in the
/// client.
fn mint(server: SocketAddr, id: u64, name: &str) -> Result<ConnectToken, Box<dyn Error>> {
    let issuer = Issuer::new(PROTOCOL_ID, Key::from(DEVELOPMENT_KEY).into(), &[server], Limits::default())?;
    let request = TokenRequest { user_data: name.into(), ..TokenRequest::new(id) };
    Ok(issuer.mint(&request, wall_clock(), &mut system_entropy()?)?.token)
}

pub(crate) struct Player {
    client: Client,
    inbox: Inbox,
    clock: Clock,
    pace: Pace,
    channels: Channels,
    id: u64,
    /// The newest state of the game.
    pub(crate) world: World,
    /// The map, once its transfer has arrived.
    pub(crate) map: Option<Map>,
    /// The chat lines so far.
    pub(crate) chat: Vec<String>,
    /// Why the connection ended.
    pub(crate) ended: Option<String>,
}

impl Player {
    pub(crate) fn join(server: SocketAddr, id: u64, name: &str) -> Result<Self, Box<dyn Error>> {
        let (clock, (channels, traffic)) = (Clock::start(), channels()?);
        let mut client = Client::new()?.with_traffic(traffic)?;
        client.connect(mint(server, id, name)?, clock.now())?;
        let (inbox, pace) = (Inbox::default(), Pace::new(clock, TICK));
        let (world, map, chat, ended) = (World::default(), None, Vec::new(), None);
        Ok(Self { client, inbox, clock, pace, channels, id, world, map, chat, ended })
    }

    /// Handles what has arrived, sends a step if a tick is due, and sleeps until more happens.
    pub(crate) fn turn(&mut self) {
        let now = self.clock.now();
        self.client.begin_turn(now);
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { .. } => {
                    // The queue of a new connection has room.
                    let _ = self.client.send_message(self.channels.chat, b"hello, all");
                }
                Event::Message { channel, bytes, .. } if channel == self.channels.state => {
                    match decode(channel, bytes) {
                        Ok(world) => self.world = world,
                        Err(error) => println!("{error}"),
                    }
                }
                Event::Message { channel, bytes, .. } if channel == self.channels.chat => {
                    let line = String::from_utf8_lossy(bytes).into_owned();
                    println!("{line}");
                    self.chat.push(line);
                }
                Event::Channel(ChannelEvent::Transfer { channel, event: TransferEvent::Received { content, .. } })
                    if channel == self.channels.maps =>
                {
                    self.map = Some(Map(content.into_vec()));
                    println!("the map has arrived");
                }
                Event::Ended { reason } => self.ended = Some(reason.to_string()),
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
        let World { it, players } = &self.world;
        let me = players.iter().find(|player| player.id == self.id)?;
        let others = players.iter().filter(|player| player.id != self.id);
        let distance = |other: &&Position| (other.x - me.x).abs().max((other.y - me.y).abs());
        let (target, sign) = if *it == self.id {
            (others.min_by_key(distance)?, 1)
        } else {
            (players.iter().find(|player| player.id == *it)?, -1)
        };
        let (dx, dy) = (sign * (target.x - me.x).signum(), sign * (target.y - me.y).signum());
        // A player that cannot step straight on steps along the wall; only the one that chases goes around a pillar.
        let steps = [(dx, dy), (dx, 0), (0, dy), (dy, dx)];
        let steps = if sign > 0 { &steps[..] } else { &steps[..3] };
        let map = self.map.as_ref()?;
        let &(dx, dy) = steps.iter().find(|(x, y)| (*x, *y) != (0, 0) && map.is_free(me.x + x, me.y + y))?;
        Some(Step { dx, dy })
    }
}
