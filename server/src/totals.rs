//! What a server has counted, or all shards of one together.

use std::ops::AddAssign;

use slipgate_netcode::discard::Discards;
use slipgate_netcode::server::Stats;
use slipgate_udp::SocketStats;

use crate::Server;

/// What a server has counted since its start; shards add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// How many clients are connected.
    pub connected: u32,
    /// What the protocol has counted.
    pub stats: Stats,
    /// Turns that ended before all was read that waited.
    pub turns_cut_short: u64,
    /// How many datagrams were dropped, by reason.
    pub discards: Discards,
    /// What the sockets have counted. What the system dropped is told if it is of all shards; how much of that was
    /// overflow at most, the first shard's [`Overflow`](crate::Overflow) tells.
    pub sockets: SocketStats,
}

impl Totals {
    /// Of one server. Where the system counts as well, this asks it.
    #[must_use]
    pub fn of(server: &Server) -> Self {
        Self {
            connected: server.connected(),
            stats: *server.stats(),
            turns_cut_short: server.turns_cut_short(),
            discards: *server.discards(),
            sockets: server.socket_stats(),
        }
    }

    /// Of several shards.
    #[must_use]
    pub fn sum<'a>(shards: impl IntoIterator<Item = &'a Self>) -> Self {
        shards
            .into_iter()
            .copied()
            .reduce(|mut sum, shard| {
                sum += shard;
                sum
            })
            .unwrap_or_default()
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.connected += other.connected;
        self.stats.add_all(&other.stats);
        self.turns_cut_short += other.turns_cut_short;
        self.discards.add_all(&other.discards);
        self.sockets.add_all(&other.sockets);
    }
}
