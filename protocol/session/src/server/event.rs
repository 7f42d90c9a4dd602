//! Events and datagrams of a server's clients.

use core::time::Duration;

use crate::channel::transfer::PartialTransfer;
use crate::channel::{ChannelEvent, ChannelId};
use crate::connection::{CloseReason, PathStats, ReceivedDatagram};
use crate::reliability::PacketEvent;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::ClientHandle;

/// Something that happened to a client. Its messages come from
/// [`SessionServer::next_message`](super::SessionServer::next_message).
#[derive(Debug)]
pub enum SessionEvent {
    /// A client has a slot, and where used tokens are recorded, its token is durable. The server may send to it,
    /// unless its `Disconnected` follows.
    Connected {
        /// The client's handle.
        client: ClientHandle,
        /// The client id of its token.
        client_id: ClientId,
    },
    /// An acknowledged packet arrived at the client, or was lost.
    Packet {
        /// The receiver of the packet.
        client: ClientHandle,
        /// The outcome.
        event: PacketEvent,
    },
    /// An event of a client's channels.
    Channel {
        /// The client.
        client: ClientHandle,
        /// What happened.
        event: ChannelEvent,
    },
    /// The part of a transfer that had arrived when the client's connection ended, to resume it in the next one. It
    /// comes before `Disconnected`.
    Partial {
        /// The client.
        client: ClientHandle,
        /// The transfer's channel.
        channel: ChannelId,
        /// The part that had arrived.
        partial: PartialTransfer,
    },
    /// A client's connection has ended. Its handle is invalid from now on.
    Disconnected {
        /// The handle that it had.
        client: ClientHandle,
        /// The client id of its token.
        client_id: ClientId,
        /// The cause, the side that ended it, and its code and text.
        reason: CloseReason,
        /// What the connection carried.
        totals: ConnectionTotals,
    },
}

/// What a connection carried until it ended, for logs and metrics.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ConnectionTotals {
    /// The bytes of payloads and packets that were sent, with the headers of IPv4, UDP and netcode.
    pub bytes_sent: u64,
    /// The same for received ones.
    pub bytes_received: u64,
    /// The payloads and packets that were sent; each fragment counts.
    pub packets_sent: u64,
    /// The same for received ones.
    pub packets_received: u64,
    /// The smoothed round trip at the end; `None` for plain payloads, and before the first acknowledgement.
    pub round_trip: Option<Duration>,
    /// The share of lost packets among those with a known outcome, 0 to 1; `None` where there are none.
    pub loss: Option<f64>,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ConnectionStats {
    /// The bytes and packets so far, without the measurements of the path.
    pub totals: ConnectionTotals,
    /// The measurements of the path; `None` for plain payloads.
    pub path: Option<PathStats>,
}

impl ConnectionTotals {
    /// Counts sent packets and their bytes on the path.
    #[inline]
    pub(super) const fn on_sent(&mut self, packets: u64, bytes: u64) {
        self.packets_sent += packets;
        self.bytes_sent += bytes;
    }

    /// Counts a received packet and its bytes on the path.
    #[inline]
    pub(super) const fn on_received(&mut self, bytes: u64) {
        self.packets_received += 1;
        self.bytes_received += bytes;
    }

    /// Adds the measurements of the path.
    pub(super) fn with_path(self, path: &PathStats) -> Self {
        let counters = &path.endpoint.counters;
        // A packet that was acknowledged late was not lost.
        let lost = counters.lost.saturating_sub(counters.late_acks);
        let known = counters.acked + lost;
        let loss = (known > 0).then(|| lost as f64 / known as f64);
        Self { round_trip: path.congestion.round_trip, loss, ..self }
    }
}

/// A processed datagram of a client.
#[derive(Clone, Debug)]
pub struct ClientDatagram {
    /// The sender.
    pub client: ClientHandle,
    /// Its messages that are still to be taken.
    pub received: ReceivedDatagram,
}
