//! The server of a small game of tag: players move on a grid, and the player that is "it" tags another one by stepping
//! on its field.
//!
//! ```console
//! $ cargo run --example tag_server                     # and in other terminals:
//! $ cargo run --example tag_client -- 1 Ann
//! $ cargo run --example tag_client -- 2 Bob
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

mod tag;

use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use slipgate::server::keys::Key;
use slipgate::server::transfer::Transfer;
use slipgate::server::{ClientHandle, Clock, Event, Inbox, Pace, Server, ServerConfig, Sockets, decode};
use tag::{Channels, DEVELOPMENT_KEY, Map, PROTOCOL_ID, Position, Step, World, channels};

const SLOTS: u32 = 16;
const TICK: Duration = Duration::from_millis(50);
/// A new "it" waits for 2 s.
const PAUSE_TICKS: u32 = 40;

fn main() -> ExitCode {
    // Without a subscriber the library's warnings are not seen.
    tracing_subscriber::fmt::init();
    // `Display` of an error is for people; a `Result` from `main` would print `Debug`.
    let Err(error) = run() else { return ExitCode::SUCCESS };
    println!("{error}");
    ExitCode::FAILURE
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut game = Game::start("127.0.0.1:40000".parse()?)?;
    println!("the server listens on {:?}", game.addresses());
    loop {
        game.turn();
    }
}

struct Player {
    client: ClientHandle,
    name: String,
    position: Position,
    /// The last step that the client asked for; it is done at the next tick.
    step: Option<Step>,
}

pub(crate) struct Game {
    server: Server,
    inbox: Inbox,
    clock: Clock,
    pace: Pace,
    channels: Channels,
    map: Map,
    /// The content of the map for new players. Its clones share the memory.
    transfer: Transfer,
    players: Vec<Player>,
    /// The id of the player that is "it".
    it: u64,
    /// Ticks until this player may tag another one, so that the others can flee.
    pause: u32,
}

impl Game {
    pub(crate) fn start(address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let sockets = Sockets::bind(&[address])?;
        let (clock, (channels, traffic)) = (Clock::start(), channels()?);
        let mut config = ServerConfig::new(PROTOCOL_ID, SLOTS, &sockets.local_addresses());
        // After a crash a player can join again within 2 s, before the old connection has timed out.
        config.takeover_after = Some(Duration::from_secs(2));
        let keys = Key::from(DEVELOPMENT_KEY).into();
        let server = Server::new(sockets, config, keys, clock.now())?.with_traffic(traffic)?;
        let (inbox, pace) = (Inbox::default(), Pace::new(clock, TICK));
        let map = pillars();
        let transfer = Transfer::new(map.0.clone()).ok_or("the map is too large")?;
        Ok(Self { server, inbox, clock, pace, channels, map, transfer, players: Vec::new(), it: 0, pause: 0 })
    }

    /// Returns the addresses that are bound.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.server.sockets().local_addresses()
    }

    /// Handles what has arrived, advances the game if a tick is due, and sleeps until more happens.
    pub(crate) fn turn(&mut self) {
        let now = self.clock.now();
        self.server.begin_turn(now);
        while let Some(event) = self.inbox.next(&mut self.server) {
            match event {
                Event::Connected { client, client_id } => {
                    let Some(mut info) = self.server.client(client) else { continue };
                    // The queue of a new connection has room.
                    let _ = info.send_transfer(self.channels.maps, self.transfer.clone(), 0);
                    // The user data of the token: the backend has written the player's name into it.
                    let name = String::from_utf8_lossy(&info.user_data()).trim_end_matches('\0').to_owned();
                    let position = Position { id: client_id.0, x: client.slot().0 as i8 % Map::GRID, y: 0 };
                    announce(&mut self.server, self.channels, &format!("{name} has joined"));
                    self.players.push(Player { client, name, position, step: None });
                }
                Event::Message { client, channel, bytes, .. } if channel == self.channels.steps => {
                    let player = self.players.iter_mut().find(|player| player.client == client);
                    match (player, decode::<Step>(channel, bytes)) {
                        (Some(player), Ok(step)) => player.step = Some(step),
                        // The message does not have the expected type: the client is broken, or malicious.
                        _ => drop(self.server.kick(client, "Your game sent invalid data.")),
                    }
                }
                // Chat lines go to everyone but their author. A full queue means that a client is far behind: it misses
                // the line.
                Event::Message { client, channel, bytes, .. } if channel == self.channels.chat => {
                    let _ = self.server.broadcast_except(channel, client, bytes);
                }
                Event::Disconnected { client, reason, .. } => {
                    let Some(index) = self.players.iter().position(|player| player.client == client) else { continue };
                    let player = self.players.swap_remove(index);
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
        for player in &mut self.players {
            // Never trust a client: a step is one field at most, and leads neither into a wall nor off the grid.
            let Some(Step { dx, dy }) = player.step.take() else { continue };
            let (x, y) = (player.position.x + dx.clamp(-1, 1), player.position.y + dy.clamp(-1, 1));
            if self.map.is_free(x, y) {
                (player.position.x, player.position.y) = (x, y);
            }
        }
        self.tag();
        let players = self.players.iter().map(|player| player.position).collect();
        let world = World { it: self.it, players };
        self.server.for_each_client(|mut client| {
            // A state that is refused is not missed: the next one is newer.
            let _ = client.send_typed(self.channels.state, &world);
        });
    }

    fn tag(&mut self) {
        let Some(it) = self.players.iter().find(|player| player.position.id == self.it).map(|player| player.position)
        else {
            // The player that was "it" has left.
            self.it = self.players.first().map_or(0, |player| player.position.id);
            return;
        };
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let is_tagged =
            |player: &&Player| player.position.id != it.id && (player.position.x, player.position.y) == (it.x, it.y);
        if let Some(tagged) = self.players.iter().find(is_tagged) {
            (self.it, self.pause) = (tagged.position.id, PAUSE_TICKS);
            announce(&mut self.server, self.channels, &format!("{} is it", tagged.name));
        }
    }
}

/// Returns a map with four pillars.
fn pillars() -> Map {
    let is_pillar = |line: i8| line == 4 || line == 11;
    let fields = (0..Map::GRID).flat_map(|y| (0..Map::GRID).map(move |x| u8::from(is_pillar(x) && is_pillar(y))));
    Map(fields.collect())
}

fn announce(server: &mut Server, channels: Channels, line: &str) {
    println!("{line}");
    let _ = server.broadcast(channels.chat, line.as_bytes());
}
