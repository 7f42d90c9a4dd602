//! The reports of a server to its application: events, the data of clients, counters.

use core::fmt;
use core::ops::AddAssign;

use super::ClientHandle;
#[cfg(doc)]
use super::NetcodeServer;
use crate::address::Address;
use crate::ids::{ClientId, ClientIndex};
use crate::wire::UserData;

/// An event of a client. Payloads come from [`NetcodeServer::handle`] instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetcodeEvent {
    /// A client has a slot, and with a journal its token's record is durable. [`NetcodeServer::client`] has its user
    /// data.
    Connected {
        /// The handle of the connection.
        client: ClientHandle,
        /// The client id in its token.
        client_id: ClientId,
    },
    /// A client's connection has ended. Its handle is invalid.
    Disconnected {
        /// The handle that the connection had.
        client: ClientHandle,
        /// The client id in its token.
        client_id: ClientId,
        /// The reason of the end.
        reason: DisconnectReason,
    },
}

/// Why a client's connection ended. [`EndReason`](crate::client::EndReason) lists the reasons at the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The client disconnected.
    Left,
    /// No authentic packet arrived for the token's timeout.
    TimedOut,
    /// The application disconnected the client.
    Kicked,
    /// The server stopped.
    ServerStopped,
    /// The same player connected again with a newer token, after a silence.
    TakenOver,
    /// All 2^40 sequence numbers of the connection are used.
    SequencesUsedUp,
}

impl fmt::Display for DisconnectReason {
    /// Writes the reason as a stable `snake_case` word, for metrics and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "left",
            Self::TimedOut => "timed_out",
            Self::Kicked => "kicked",
            Self::ServerStopped => "server_stopped",
            Self::TakenOver => "taken_over",
            Self::SequencesUsedUp => "sequences_used_up",
        })
    }
}

/// The data of a connected client.
#[derive(Clone, Copy)]
pub struct ClientInfo<'a> {
    /// The client's index over all shards, which the client learns from its first keep-alive.
    pub index: ClientIndex,
    /// The client id in its token.
    pub client_id: ClientId,
    /// The client's address, `None` for a client in the same process.
    pub address: Option<Address>,
    /// The backend's data in its token.
    pub user_data: &'a UserData,
    /// Whether an authentic packet arrived from the client in its slot.
    pub confirmed: bool,
    /// Whether the client's `Connected` event was queued. A journal delays the event until the token's record is
    /// durable. Before that, payloads cannot be sent to the client, and no event reports its end.
    pub durable: bool,
    /// The sequence number after the newest one that was received. A filter in front of the server can let the packets
    /// pass that the client sends next.
    pub next_sequence: u64,
}

/// The counters of a server since its start. They are never reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetcodeStats {
    /// Clients that got a slot, and whose token's record is durable.
    pub connects: u64,
    /// Connections that ended for any reason; each of them was counted in `connects`.
    pub disconnects: u64,
    /// Payloads received from connected clients.
    pub payloads_received: u64,
    /// Payloads sealed for connected clients.
    pub payloads_sent: u64,
    /// Challenges sent.
    pub challenges_sent: u64,
    /// Denials sent.
    pub denials_sent: u64,
    /// Failed writes and flushes of the journal.
    pub journal_failures: u64,
}

impl AddAssign<&Self> for NetcodeStats {
    /// Adds the counters of another shard.
    fn add_assign(&mut self, other: &Self) {
        self.connects += other.connects;
        self.disconnects += other.disconnects;
        self.payloads_received += other.payloads_received;
        self.payloads_sent += other.payloads_sent;
        self.challenges_sent += other.challenges_sent;
        self.denials_sent += other.denials_sent;
        self.journal_failures += other.journal_failures;
    }
}

/// The number of entries in the tables of handshakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableUsage {
    /// Pending clients of this shard.
    pub pending: usize,
    /// Used, unexpired tokens in the history of all shards.
    pub used_tokens: usize,
    /// Whether packets are due. A stopped server should call `transmit` until this is false.
    pub has_due_packets: bool,
    /// Whether no client gets a slot because the [journal](crate::token::history::Journal) of used tokens is busy.
    pub is_journal_busy: bool,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn counters_of_another_shard_are_added_one_by_one() {
        let counters = |unit: u64| NetcodeStats {
            connects: unit,
            disconnects: 2 * unit,
            payloads_received: 3 * unit,
            payloads_sent: 4 * unit,
            challenges_sent: 5 * unit,
            denials_sent: 6 * unit,
            journal_failures: 7 * unit,
        };
        let mut total = counters(1);
        total += &counters(100);
        assert_eq!(total, counters(101));
    }

    #[test]
    fn each_reason_has_a_word_of_its_own() {
        use DisconnectReason::{Kicked, Left, SequencesUsedUp, ServerStopped, TakenOver, TimedOut};
        let words =
            [Left, TimedOut, Kicked, ServerStopped, TakenOver, SequencesUsedUp].map(|reason| reason.to_string());
        assert_eq!(words, ["left", "timed_out", "kicked", "server_stopped", "taken_over", "sequences_used_up"]);
    }
}
