//! Two connections with channels in a simulated world.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::time::Instant;
use slipgate_session::channel::{ChannelEvent, ChannelId, Layout, SendOptions};
use slipgate_session::connection::{Connection, ConnectionConfig, Memory, Role, SendError};
use slipgate_sim::Conditions;

use crate::world::{End, PathSink, Program, World};

/// Two connections and the path between them.
pub type ConnectionWorld = World<ConnectionProgram>;

/// A connection, and what its application received.
pub struct ConnectionProgram {
    /// The connection under test.
    pub connection: Connection,
    /// Messages that arrived, in order.
    pub messages: Vec<(ChannelId, Vec<u8>)>,
    /// Events of the channels.
    pub events: Vec<ChannelEvent>,
    scratch: Vec<u8>,
}

impl ConnectionProgram {
    fn new(config: &ConnectionConfig, layout: &Arc<Layout>, memory: Option<&Memory>, seed: u64) -> Self {
        let mut numbers = [0; 32];
        numbers[..8].copy_from_slice(&seed.to_le_bytes());
        let connection = Connection::new(config, Arc::clone(layout), Role::Client, memory).expect("valid settings");
        let connection = connection.with_ack_checks(&Seed::from(numbers));
        Self { connection, messages: Vec::new(), events: Vec::new(), scratch: Vec::new() }
    }

    /// Returns the messages of one channel that arrived, in order.
    #[must_use]
    pub fn on(&self, channel: ChannelId) -> Vec<&[u8]> {
        self.messages.iter().filter(|(on, _)| *on == channel).map(|(_, bytes)| bytes.as_slice()).collect()
    }
}

impl Program for ConnectionProgram {
    fn receive(&mut self, datagram: &[u8], waited: Duration, now: Instant) {
        let Ok(Some(mut incoming)) = self.connection.handle(datagram, waited, now) else { return };
        while let Some(message) = self.connection.next_message(datagram, &mut incoming, &mut self.scratch, now) {
            self.messages.push((message.channel, message.span.bytes(datagram, &self.scratch).to_vec()));
        }
    }

    fn run(&mut self, sink: &mut PathSink<'_>, now: Instant) {
        let Self { connection, events, .. } = self;
        // The worst case: the layer below never times out, whatever the path does.
        connection.on_received(now);
        connection.tick(now);
        connection.transmit(now, sink);
        events.extend(std::iter::from_fn(|| connection.channels.poll_event()));
    }
}

impl ConnectionWorld {
    /// Creates two connections with the same channels. The seed determines all random decisions.
    #[must_use]
    pub fn new(seed: u64, conditions: Conditions, layout: &Arc<Layout>) -> Self {
        Self::with(seed, conditions, [layout, layout], &ConnectionConfig::default())
    }

    /// Creates two connections, each with its own layout.
    #[must_use]
    pub fn with(seed: u64, conditions: Conditions, layouts: [&Arc<Layout>; 2], config: &ConnectionConfig) -> Self {
        Self::of(layouts.map(|layout| ConnectionProgram::new(config, layout, None, seed)), conditions, seed)
    }

    /// Creates two connections with the same channels. The second one stores what must wait in `memory`.
    #[must_use]
    pub fn with_memory(seed: u64, conditions: Conditions, layout: &Arc<Layout>, memory: &Memory) -> Self {
        let config = ConnectionConfig::default();
        let sides = [None, Some(memory)].map(|memory| ConnectionProgram::new(&config, layout, memory, seed));
        Self::of(sides, conditions, seed)
    }

    /// Queues a message on a channel.
    ///
    /// # Errors
    /// Returns the error of the channel.
    pub fn send(&mut self, from: End, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let now = self.now();
        self.side(from).connection.send(channel, message, SendOptions::default(), now)
    }
}
