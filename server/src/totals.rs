//! The counters of a server, or of all its shards together.

use std::ops::AddAssign;

use slipgate_netcode::discard::Discards;
use slipgate_netcode::server::NetcodeStats;
use slipgate_udp::SocketStats;

use crate::disconnect_counts::DisconnectCounts;

/// The counters of a server since its start; those of shards can be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerTotals {
    /// The number of connected clients.
    pub connected: u32,
    /// The number of pending clients: they have shown a valid token, and have not answered their challenge.
    pub pending_clients: usize,
    /// The number of used, unexpired tokens in the history. All shards have one history.
    pub used_tokens: usize,
    /// Whether the history cannot record used tokens now, so that no client gets a slot: its disk hangs or is full, or
    /// its lock was lost. Shards have one history.
    pub is_history_unavailable: bool,
    /// The bytes that messages may still take, of the memory of all clients together. Shards may share it.
    pub message_memory_left: usize,
    /// The same for transfers.
    pub transfer_memory_left: usize,
    /// The counters of the protocol.
    pub stats: NetcodeStats,
    /// Ends of connections by reason, counted when the game takes their `Disconnected` event.
    pub disconnect_reasons: DisconnectCounts,
    /// Turns that ended before the sockets were empty, because of the [read limits](crate::ReadLimits). If it grows,
    /// more arrives than the server or its game can handle.
    pub turns_cut_short: u64,
    /// How many times the server had no turn for more than a second; each shard counts its own. If it grows, the
    /// machine is suspended or short of CPU, or the game takes too long in a turn.
    pub stalls: u64,
    /// The largest number of events that the game took in one turn; of shards, the largest of all.
    pub max_events_per_turn: u32,
    /// Packets that were refused because their client had used up its [work budget](crate::config::WorkLimits), and
    /// datagrams of blocked clients that had passed the kernel. If it grows, a client floods the server, or the limits
    /// are too low for the game.
    pub packets_over_budget: u64,
    /// Packets that were refused because their client had used up its share of the queue from its shard to the game. If
    /// it grows, a client floods the server, or the game takes events too slowly.
    pub packets_not_taken: u64,
    /// Dropped datagrams by reason.
    pub discards: Discards,
    /// The counters of the sockets. The sum has a number of datagrams dropped by the system only if every shard has
    /// one; [`Overflow`](crate::sockets::Overflow) of the first shard returns an upper bound on the overflow among
    /// them.
    pub sockets: SocketStats,
}

impl ServerTotals {
    /// Returns the sum over several shards.
    #[must_use]
    pub fn sum<'a>(shards: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut shards = shards.into_iter().copied();
        // Starting from the default would turn `dropped_by_system` into an unknown number.
        let Some(mut sum) = shards.next() else { return Self::default() };
        shards.for_each(|shard| sum += shard);
        sum
    }
}

impl AddAssign for ServerTotals {
    fn add_assign(&mut self, other: Self) {
        self.connected += other.connected;
        self.pending_clients += other.pending_clients;
        self.used_tokens = self.used_tokens.max(other.used_tokens);
        self.is_history_unavailable |= other.is_history_unavailable;
        self.message_memory_left = self.message_memory_left.min(other.message_memory_left);
        self.transfer_memory_left = self.transfer_memory_left.min(other.transfer_memory_left);
        self.stats += &other.stats;
        self.disconnect_reasons += &other.disconnect_reasons;
        self.turns_cut_short += other.turns_cut_short;
        self.stalls += other.stalls;
        self.max_events_per_turn = self.max_events_per_turn.max(other.max_events_per_turn);
        self.packets_over_budget += other.packets_over_budget;
        self.packets_not_taken += other.packets_not_taken;
        self.discards += &other.discards;
        self.sockets.add_all(&other.sockets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CloseKind;

    #[test]
    fn ends_of_all_shards_are_in_the_sum() {
        let shards = [CloseKind::Left, CloseKind::Kicked, CloseKind::Left].map(|kind| {
            let mut shard = ServerTotals::default();
            shard.disconnect_reasons += kind;
            shard
        });
        let sum = ServerTotals::sum(&shards).disconnect_reasons;
        assert_eq!(sum.iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [("left", 2), ("kicked", 1)]);
    }
}
