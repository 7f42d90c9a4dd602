//! The server of a small game of tag: players move on a grid, and the player that is "it" tags another one by stepping
//! on its field.
//!
//! ```console
//! $ cargo run --example tag_server                     # and in other terminals:
//! $ cargo run --example tag_client -- 1 Ann
//! $ cargo run --example tag_client -- 2 Bob
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

pub(crate) mod tag;

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use slipgate::server::keys::Key;
use slipgate::server::{ClientHandle, Clock, Event, Inbox, Pace, Server, ServerConfig, Sockets, decode};
use tag::{ADDRESS, Channels, DEVELOPMENT_KEY, Field, PROTOCOL_ID, Step, TICK, World, channels, log_filter, printable};

const SLOTS: u32 = 16;
const GRID: i8 = 16;
/// How long the end of the game may take.
const MAX_END: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    // Without a subscriber the library's warnings are not seen.
    tracing_subscriber::fmt().with_env_filter(log_filter()).init();
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let mut game = Game::start(ADDRESS.parse()?)?;
    while !stop.load(Ordering::Relaxed) {
        game.turn();
    }
    game.end();
    Ok(())
}

struct Player {
    id: u64,
    name: String,
    field: Field,
    /// The last step that the client asked for; it is done at the next tick.
    step: Step,
}

pub(crate) struct Game {
    pub(crate) server: Server,
    inbox: Inbox,
    clock: Clock,
    pace: Pace,
    channels: Channels,
    players: BTreeMap<ClientHandle, Player>,
    /// The id of the player that is "it".
    it: u64,
}

impl Game {
    pub(crate) fn start(address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let sockets = Sockets::bind(&[address])?;
        let (clock, (channels, traffic)) = (Clock::start(), channels()?);
        // The addresses that clients dial, which connect tokens name. 0.0.0.0 cannot stand in tokens: a server that is
        // bound to it gives the address of its machine here.
        let config = ServerConfig::new(PROTOCOL_ID, SLOTS, &sockets.local_addresses());
        let keys = Key::from(DEVELOPMENT_KEY).into();
        let server = Server::new(sockets, config, keys, clock.now())?.with_traffic(traffic)?;
        let (inbox, pace) = (Inbox::default(), Pace::new(clock, TICK));
        Ok(Self { server, inbox, clock, pace, channels, players: BTreeMap::new(), it: 0 })
    }

    /// Handles what has arrived, advances the game if a tick is due, and sleeps until more happens.
    pub(crate) fn turn(&mut self) {
        let now = self.clock.now();
        self.server.begin_turn(now);
        while let Some(event) = self.inbox.next(&mut self.server) {
            match event {
                Event::Connected { client, client_id } => {
                    let Some(info) = self.server.client(client) else { continue };
                    // The user data of the token: the backend has written the player's name into it.
                    let name = printable(&String::from_utf8_lossy(&info.user_data()));
                    announce(&mut self.server, self.channels, &format!("{name} has joined"));
                    let player = Player { id: client_id.0, name, field: start(client), step: Step::default() };
                    self.players.insert(client, player);
                }
                Event::Message { client, channel, bytes, .. } if channel == self.channels.steps => {
                    match (self.players.get_mut(&client), decode(channel, bytes)) {
                        (Some(player), Ok(step)) => player.step = step,
                        // The message does not have the expected type: the client is broken, or malicious.
                        _ => drop(self.server.kick(client, "Your game sent invalid data.")),
                    }
                }
                Event::Disconnected { client, reason, .. } => {
                    let Some(player) = self.players.remove(&client) else { continue };
                    announce(&mut self.server, self.channels, &format!("{} has left ({})", player.name, reason.kind));
                }
                _ => {}
            }
        }
        if self.pace.is_tick(now.monotonic) {
            self.tick();
            self.server.end_turn();
        } else {
            self.server.flush();
        }
        self.pace.rest(&mut self.server);
    }

    fn tick(&mut self) {
        for Player { field: (x, y), step, .. } in self.players.values_mut() {
            // Never trust a client: a step leads to the next field, and never off the grid.
            let Step(dx, dy) = std::mem::take(step);
            (*x, *y) = ((*x + dx.clamp(-1, 1)).clamp(0, GRID - 1), (*y + dy.clamp(-1, 1)).clamp(0, GRID - 1));
        }
        self.tag();
        let fields = self.players.values().map(|player| (player.id, player.field)).collect();
        let world = World { it: self.it, fields };
        // A client with a full queue misses this state. The next one is newer.
        let _ = self.server.broadcast_typed(self.channels.state, &world);
    }

    fn tag(&mut self) {
        let it = self.players.values().find(|player| player.id == self.it);
        let Some(field) = it.map(|it| it.field) else {
            // The player that was "it" has left.
            self.it = self.players.values().next().map_or(0, |player| player.id);
            return;
        };
        let mut others = self.players.iter_mut().filter(|(_, player)| player.id != self.it);
        let Some((client, player)) = others.find(|(_, player)| player.field == field) else { return };
        announce(&mut self.server, self.channels, &format!("{} is it", player.name));
        // It starts again, so that the others can flee.
        (self.it, player.field) = (player.id, start(*client));
    }

    /// Ends the game. The players read this text; without it they would wait for a timeout.
    pub(crate) fn end(mut self) {
        self.server.stop("The game is over. Thank you for playing.");
        let start = Instant::now();
        while self.server.connected_count() > 0 && start.elapsed() < MAX_END {
            self.turn();
        }
        // The last clients' events are in the next turn.
        self.turn();
    }
}

fn start(client: ClientHandle) -> Field {
    (client.slot().0 as i8 % GRID, 0)
}

fn announce(server: &mut Server, channels: Channels, line: &str) {
    println!("{line}");
    // A full queue means that a client is far behind: it misses the line.
    let _ = server.broadcast(channels.news, line.as_bytes());
}
