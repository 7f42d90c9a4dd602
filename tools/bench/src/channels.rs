//! The Slipgate server with a channel, compared with itself without: the cost of acknowledgements, congestion control
//! and messages.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_server::{ChannelConfig, Kind, Layout, Traffic};
use slipgate_session::channel::SendOptions;
use slipgate_session::connection::{Connection, ConnectionConfig, Role};
use slipgate_session::reliability::Sink;

use crate::row::ColumnRole;
use crate::slipgate::{CHANNEL, SlipgateServer};
use crate::subject::{LoadProtocol, PayloadLayer, Subject};

/// The Slipgate server with default settings and one unreliable channel.
pub const CHANNELS: Subject = Subject {
    name: "slipgate channel",
    role: ColumnRole::Channels,
    limit: None,
    protocol: LoadProtocol::Netcode(|| Box::new(Words::new())),
    start: |slots| Ok(Box::new(SlipgateServer::start(slots, Traffic::channels(layout()))?)),
};

#[allow(clippy::expect_used, reason = "a layout of one channel is sound")]
fn layout() -> Layout {
    Layout::try_from(vec![ChannelConfig::from(Kind::Unreliable)]).expect("one channel with default settings")
}

/// The client's end of the connection.
struct Words {
    connection: Connection,
    scratch: Vec<u8>,
}

impl Words {
    #[allow(clippy::expect_used, reason = "the default settings are sound")]
    fn new() -> Self {
        let connection = Connection::new(&ConnectionConfig::default(), Arc::new(layout()), Role::Client, None)
            .expect("default settings");
        Self { connection, scratch: Vec::new() }
    }
}

/// The packets of one turn.
struct Packets {
    left: Vec<Vec<u8>>,
    room: [u8; MAX_PAYLOAD_BYTES],
}

impl Sink for Packets {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn commit(&mut self, bytes: usize) {
        self.left.push(self.room.get(..bytes).unwrap_or_default().to_vec());
    }
}

impl PayloadLayer for Words {
    fn encode(&mut self, message: &[u8], copies: u32, now: Instant) -> Vec<Vec<u8>> {
        self.connection.tick(now);
        for _ in 0..copies {
            // Messages that exceed the congestion budget are not sent; the server's count then shows them as missing.
            let _ = self.connection.send(CHANNEL, message, SendOptions::default(), now);
        }
        let mut packets = Packets { left: Vec::new(), room: [0; MAX_PAYLOAD_BYTES] };
        self.connection.transmit(now, &mut packets);
        packets.left
    }

    fn decode(&mut self, packet: &[u8], now: Instant) -> u64 {
        let Ok(Some(mut incoming)) = self.connection.handle(packet, Duration::ZERO, now) else { return 0 };
        let mut messages = 0;
        while self.connection.next_message(packet, &mut incoming, &mut self.scratch, now).is_some() {
            messages += 1;
        }
        while self.connection.channels.poll_event().is_some() {}
        messages
    }
}
