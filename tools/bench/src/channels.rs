//! Our server with a channel, beside itself without: what acknowledgements, congestion avoidance and messages add.

use std::sync::Arc;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_server::{ChannelConfig, Kind, Layout, Traffic};
use slipgate_session::channel::{Arrival, SendOptions};
use slipgate_session::reliability::Sink;
use slipgate_session::session::{Config, Connection};

use crate::contestant::{Contestant, Speech, Voice};
use crate::ours::{CHANNEL, Ours};
use crate::row::Role;

/// Our server with its defaults, and one channel of unreliable messages.
pub const CHANNELS: Contestant = Contestant {
    name: "slipgate channel",
    role: Role::Channels,
    limit: None,
    speech: Speech::Netcode(|| Box::new(Words::new())),
    start: |slots| Ok(Box::new(Ours::start(slots, Traffic::channels(layout()))?)),
};

#[allow(clippy::expect_used, reason = "a layout of one channel is sound")]
fn layout() -> Layout {
    Layout::new(vec![ChannelConfig::new(Kind::Unreliable)]).expect("one channel with default settings")
}

/// What a client says and hears: its end of the connection.
struct Words {
    connection: Connection,
    scratch: Vec<u8>,
}

impl Words {
    #[allow(clippy::expect_used, reason = "the default settings are sound")]
    fn new() -> Self {
        let connection = Connection::new(&Config::default(), Arc::new(layout()), None).expect("default settings");
        Self { connection, scratch: Vec::new() }
    }
}

/// The packets of one turn.
struct Packets {
    left: Vec<Vec<u8>>,
    room: [u8; MAX_PAYLOAD_BYTES],
}

impl Sink for Packets {
    fn rooms(&self) -> usize {
        usize::MAX
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn commit(&mut self, bytes: usize) {
        self.left.push(self.room.get(..bytes).unwrap_or_default().to_vec());
    }
}

impl Voice for Words {
    fn say(&mut self, message: &[u8], copies: u32, now: Instant) -> Vec<Vec<u8>> {
        self.connection.tick(now);
        for _ in 0..copies {
            // What the path does not carry now is missed by the server, and is seen there.
            let _ = self.connection.send(CHANNEL, message, SendOptions::default(), now);
        }
        let mut packets = Packets { left: Vec::new(), room: [0; MAX_PAYLOAD_BYTES] };
        self.connection.transmit(now, &mut packets);
        packets.left
    }

    fn hear(&mut self, packet: &[u8], now: Instant) -> u64 {
        let Ok(Some(mut incoming)) = self.connection.handle(packet, now) else { return 0 };
        let mut messages = 0;
        while let Some(arrival) = self.connection.next(packet, &mut incoming, &mut self.scratch, now) {
            messages += u64::from(matches!(arrival, Arrival::Message { .. }));
        }
        while self.connection.poll_event().is_some() {}
        messages
    }
}
