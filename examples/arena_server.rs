//! The server of the arena: figures run and shoot. It simulates all of them by the inputs of their players, sends their
//! states, and decides hits by what the player that shot has seen.
//!
//! ```console
//! $ cargo run --features sync --example arena_server          # and in other terminals:
//! $ cargo run --features sync --example arena_client -- 1
//! $ cargo run --features sync --example arena_client -- 2
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

#[allow(dead_code, reason = "each end uses a part of it")]
pub(crate) mod arena;

use std::error::Error;
use std::net::SocketAddr;

use arena::{
    ADDRESS, Channels, DEVELOPMENT_KEY, FIRE, Figure, PROTOCOL_ID, RATE, SLOTS, TICK, channels, figures, log_filter,
    sample, set,
};
use slipgate::server::keys::Key;
use slipgate::server::{
    ChannelEvent, ClientHandle, Clock, DeliveryStatus, Event, Inbox, Instant, Pace, SendOptions, Server, ServerConfig,
    Sockets,
};
use slipgate::sync::{InputBuffer, ObjectId, ObjectKind, Replicator, Rewind, ViewerId};

/// A message of this length leaves in one datagram.
const MESSAGE_BYTES: usize = 1000;
/// The least room for a message: the states of a few figures, also on a path that carries little.
const MIN_MESSAGE_BYTES: usize = 100;
fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter(log_filter()).init();
    let mut game = Game::start(ADDRESS.parse()?)?;
    loop {
        game.turn();
    }
}

struct Player {
    client: ClientHandle,
    viewer: ViewerId,
    inputs: InputBuffer,
    figure: Figure,
    /// The figure in the state before.
    sent: Figure,
}

impl Player {
    fn object(&self) -> ObjectId {
        ObjectId(self.client.slot().0 as u16)
    }
}

pub(crate) struct Game {
    pub(crate) server: Server,
    inbox: Inbox,
    pub(crate) clock: Clock,
    pace: Pace,
    channels: Channels,
    kind: ObjectKind,
    replicator: Replicator,
    rewind: Rewind,
    players: Vec<Player>,
    tick: u32,
    ticked_at: Instant,
}

impl Game {
    pub(crate) fn start(address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let sockets = Sockets::bind(&[address])?;
        let addresses = sockets.local_addresses();
        Self::with_addresses(sockets, &addresses)
    }

    /// Starts with the addresses that clients dial, if these are others: those of a proxy, for example.
    pub(crate) fn with_addresses(sockets: Sockets, addresses: &[SocketAddr]) -> Result<Self, Box<dyn Error>> {
        let (clock, (channels, traffic), (schema, kind)) = (Clock::start(), channels()?, figures());
        let config = ServerConfig::new(PROTOCOL_ID, SLOTS.into(), addresses);
        let keys = Key::from(DEVELOPMENT_KEY).into();
        Ok(Self {
            server: Server::new(sockets, config, keys, clock.now())?.with_traffic(traffic)?,
            inbox: Inbox::default(),
            clock,
            pace: Pace::new(clock, TICK),
            channels,
            kind,
            replicator: Replicator::new(schema, SLOTS, SLOTS, RATE.per_second),
            rewind: Rewind::new(SLOTS, RATE),
            players: Vec::new(),
            tick: 0,
            ticked_at: clock.monotonic(),
        })
    }

    /// Handles what has arrived, advances the game if a tick is due, and sleeps until more happens.
    pub(crate) fn turn(&mut self) {
        let now = self.clock.now();
        self.server.begin_turn(now);
        // The tick of this moment with its fraction, by which inputs are early or late.
        let passed = now.monotonic.since(self.ticked_at).as_secs_f64() * f64::from(RATE.per_second);
        let present = f64::from(self.tick) + passed.min(1.0);
        while let Some(event) = self.inbox.next(&mut self.server) {
            match event {
                Event::Connected { client, .. } => join(&mut self.replicator, &mut self.players, client, self.kind),
                Event::Disconnected { client, .. } => {
                    self.leave(client);
                }
                Event::Message { client, channel, bytes, .. } if channel == self.channels.inputs => {
                    let Some(player) = self.players.iter_mut().find(|player| player.client == client) else { continue };
                    // A client is hostile until proven otherwise: a bad message has no effect.
                    if let Ok(Some(request)) = player.inputs.read(bytes, present) {
                        self.replicator.resync(player.viewer, request);
                    }
                }
                Event::Channel { client, event: ChannelEvent::Receipt { tag, status, .. } } => {
                    let Some(player) = self.players.iter().find(|player| player.client == client) else { continue };
                    match status {
                        DeliveryStatus::Arrived | DeliveryStatus::ArrivedLate => {
                            self.replicator.on_acknowledged(player.viewer, tag);
                        }
                        _ => self.replicator.on_lost(player.viewer, tag),
                    }
                }
                _ => {}
            }
        }
        if self.pace.is_tick(now.monotonic) {
            self.ticked_at = now.monotonic;
            self.advance();
            self.server.end_turn();
        } else {
            self.server.flush();
        }
        self.pace.rest(&mut self.server);
    }

    fn leave(&mut self, client: ClientHandle) {
        let Some(index) = self.players.iter().position(|player| player.client == client) else { return };
        let player = self.players.swap_remove(index);
        self.replicator.despawn(player.object());
        self.replicator.remove_viewer(player.viewer);
        // Clients see the figure up to the next state.
        self.rewind.remove(player.object(), (self.tick / RATE.between_states + 1) * RATE.between_states);
        println!("player {} leaves", player.object().0);
    }

    fn advance(&mut self) {
        self.tick += 1;
        let mut shots = Vec::new();
        for player in &mut self.players {
            let keys = player.inputs.keys(self.tick).keys;
            player.figure.step(keys);
            if keys & FIRE != 0 {
                shots.push((player.object(), player.figure, player.inputs.shown(self.tick)));
            }
        }
        shots.into_iter().for_each(|(shooter, figure, seen)| self.shoot(shooter, figure, seen));
        if self.tick.is_multiple_of(RATE.between_states) {
            self.send();
        }
    }

    /// Decides a shot by what its player saw: each other figure is put back to where it was on that screen.
    fn shoot(&mut self, shooter: ObjectId, figure: Figure, seen: f64) {
        let (rewind, now) = (&self.rewind, self.tick);
        // A figure that has left may have had the slot of another one.
        let is_hit = |target: ObjectId| {
            let seen = rewind.at(target, seen, now).filter(|seen| !seen.is_removed);
            seen.is_some_and(|seen| figure.hits(seen.pose.position))
        };
        let targets = self.players.iter_mut().filter(|player| player.object() != shooter);
        let Some(target) = targets.into_iter().find(|player| is_hit(player.object())) else { return };
        let Figure { score, lives, .. } = target.figure;
        target.figure = Figure::start(target.object().0, score, lives + 1);
        let (hit, own) = (target.object().0, self.players.iter_mut().find(|player| player.object() == shooter));
        own.into_iter().for_each(|player| player.figure.score += 1);
        println!("player {} hits player {hit}", shooter.0);
    }

    /// Sends each client what it lacks of the state of this tick.
    fn send(&mut self) {
        for player in &mut self.players {
            let (id, figure) = (player.object(), player.figure);
            let is_at_rest = figure.place == player.sent.place;
            if let Some(object) = self.replicator.object(id) {
                set(object, &figure, is_at_rest).expect("the fields of a figure");
            }
            self.rewind.add(id, sample(self.tick, &figure, is_at_rest));
            player.sent = figure;
        }
        self.replicator.commit(self.tick).expect("ticks increase");
        for player in &mut self.players {
            let Some(mut client) = self.server.client(player.client) else { continue };
            self.replicator.set_report(player.viewer, player.inputs.report());
            let mut buf = [0; MESSAGE_BYTES];
            // What the path carries up to the next tick. The figures of a full arena fit into one message.
            let room = client.budget().map_or(0, |budget| budget.max_message_bytes());
            let room = room.clamp(MIN_MESSAGE_BYTES, MESSAGE_BYTES);
            let written = buf.get_mut(..room).and_then(|buf| self.replicator.write(player.viewer, buf));
            let Some(message) = written else { continue };
            let (bytes, options) = (buf.get(..message.bytes), SendOptions::default().receipt(message.tag));
            if client.send_message_with(self.channels.state, bytes.unwrap_or(&[]), options).is_err() {
                self.replicator.on_lost(player.viewer, message.tag);
            }
        }
    }
}

fn join(replicator: &mut Replicator, players: &mut Vec<Player>, client: ClientHandle, kind: ObjectKind) {
    let viewer = replicator.add_viewer().expect("as many as the server has slots");
    let slot = client.slot().0 as u16;
    let figure = Figure::start(slot, 0, 0);
    replicator.spawn(ObjectId(slot), kind).map(drop).expect("the slot was free");
    players.push(Player { client, viewer, inputs: InputBuffer::new(FIRE), figure, sent: figure });
    println!("player {slot} joins");
}
