//! Packets of clients that have a slot (§1.13).

use core::time::Duration;

use super::slots::SlotLink;
use super::turn_budgets::TurnBudgets;
use super::{ClientHandle, DisconnectReason, NetcodeServer};
use crate::Payload;
use crate::discard::Discard;
use crate::ids::{PacketNumber, SlotIndex};
use crate::time::Instant;
use crate::wire::packet::{PacketHeader, PacketKind};

/// The maximum of packets under one client's address that fail to decrypt in a turn, while the common budget lasts.
const MAX_FORGERIES_PER_TURN: u32 = 1024;

/// The same for packets with the next sequence numbers, which only an attacker that knows them approximately can forge:
/// 500,000 a second, so that the client's own packets are among those that are decrypted.
const MAX_NEAR_FORGERIES_PER_TURN: u32 = 8192;

/// How far a sequence number may be ahead of the newest one to be among the next ones: the packets of four turns.
const NEAR: u64 = 1024;

/// The maximum of packets under one client's address that fail to decrypt in a turn, when the common budget is used up.
/// An attacker that forges many addresses then silences only those clients, at the cost of this number for each client.
const MIN_FORGERIES_PER_TURN: u32 = 4;

/// The packets beyond a client's budget that are opened in a turn. A forged packet is thereby not mistaken for the
/// client's excess. A client with more than these is blocked already.
const MAX_OPENED_EXCESS: u32 = 1024;

/// The duration of a turn at 60 ticks per second, in milliseconds, for which a client's budget is meant.
const TURN_MILLIS: u64 = 16;

/// The maximum of such turns whose budgets a client may use at once: those of a second.
const MAX_TURNS: u64 = 60;

impl NetcodeServer {
    /// Handles a packet from the address of a slot, within the client's own budget.
    #[inline]
    pub(super) fn on_established<'d>(
        &mut self,
        slot: SlotIndex,
        datagram: &'d mut [u8],
        now: Instant,
    ) -> Result<Option<(ClientHandle, Payload<'d>)>, Discard> {
        let link = self.slots.link_mut(slot);
        link.start_turn(self.turn as u32);
        let budget = self.config.budgets.packets_per_client_and_turn;
        let is_excess = link.has_used_up(budget, now.since(self.last_tick))?;
        let header = PacketHeader::parse(datagram, PacketKind::TO_SERVER)?;
        let is_near = link.is_near(header.sequence);
        link.check_forgeries(is_near, &self.turn_budgets)?;
        let keys = link.keys.as_ref().ok_or(Discard::UnknownSender)?;
        let opened = self.cipher.open_fresh(&keys.client_to_server, &mut link.window, &header, datagram);
        let is_authentic = link.count_packet(is_near, opened.as_ref().err().copied(), &mut self.turn_budgets);
        if is_excess && is_authentic {
            return Err(Discard::ClientBudget);
        }
        let content = opened?;
        // A packet that is dropped neither confirms the slot nor resets its timeout, so checks go above (§1.1).
        if header.kind == PacketKind::Disconnect {
            self.end(slot, DisconnectReason::Left, 0);
            return Ok(None);
        }
        link.confirmed = true;
        let is_durable = link.durable;
        match self.asleep_since {
            None => self.slots.on_received(slot, now),
            Some(asleep_since) => self.slots.on_received_late(slot, asleep_since),
        }
        // The application does not know the client before its token is durable, so payloads are dropped until then. The
        // client could send one early, because it has the keys.
        if header.kind != PacketKind::Payload || !is_durable {
            return Ok(None);
        }
        self.stats.payloads_received += 1;
        let payload = Payload { sequence: PacketNumber(header.sequence), bytes: content };
        Ok(Some((self.slots.handle_for(slot), payload)))
    }
}

/// Returns the budget of a client after this time since the last tick: packets of a slow loop arrive all at once.
fn scaled_budget(budget: u32, elapsed: Duration) -> u32 {
    let turns = (elapsed.as_millis() as u64 / TURN_MILLIS).clamp(1, MAX_TURNS);
    budget.saturating_mul(turns as u32)
}

impl SlotLink {
    /// Restores the client's budgets with its first packet of a turn.
    #[inline]
    fn start_turn(&mut self, turn: u32) {
        if self.turn != turn {
            (self.turn, self.turn_packets, self.turn_forgeries) = (turn, 0, [0; 2]);
        }
    }

    /// Returns whether the client has used up its budget. Whether the next packet is its own is known when it is open.
    ///
    /// # Errors
    /// `ClientBudget` when the client is so far beyond its budget that no more packets are opened.
    #[inline]
    fn has_used_up(&self, budget: u32, elapsed: Duration) -> Result<bool, Discard> {
        // The division is for the few clients that have used up the budget of a short turn.
        if self.turn_packets < budget {
            return Ok(false);
        }
        let budget = scaled_budget(budget, elapsed);
        if self.turn_packets >= budget.saturating_add(MAX_OPENED_EXCESS) {
            return Err(Discard::ClientBudget);
        }
        Ok(self.turn_packets >= budget)
    }

    /// Returns whether an unread sequence number is one of the next, or of those before.
    #[inline]
    fn is_near(&self, sequence: u64) -> bool {
        sequence.saturating_sub(self.window.newest().unwrap_or(0)) <= NEAR
    }

    /// Checks that another packet under the client's address may be decrypted in this turn.
    #[inline]
    fn check_forgeries(&self, is_near: bool, budgets: &TurnBudgets) -> Result<(), Discard> {
        // Packets that decrypt count against the client. Others count against this address and against all forgeries
        // together. An attacker that spoofs the address therefore cannot use up the client's own budget, and the work
        // for forgeries stays bounded. Random sequence numbers have a smaller budget of their own: they do not use up
        // that of the numbers which the client sends next.
        let max = match (budgets.has_forgeries_left(), is_near) {
            (false, _) => MIN_FORGERIES_PER_TURN,
            (true, false) => MAX_FORGERIES_PER_TURN,
            (true, true) => MAX_NEAR_FORGERIES_PER_TURN,
        };
        let [far, near] = self.turn_forgeries;
        if (if is_near { near } else { far }) >= max { Err(Discard::ForgeryBudget) } else { Ok(()) }
    }

    /// Counts a packet by the result of its decryption. Returns whether it was authentic.
    #[inline]
    fn count_packet(&mut self, is_near: bool, refused: Option<Discard>, budgets: &mut TurnBudgets) -> bool {
        match refused {
            Some(Discard::NotAuthentic) => {
                let [far, near] = &mut self.turn_forgeries;
                *(if is_near { near } else { far }) += 1;
                budgets.count_forgery();
                false
            }
            // The replay window refused it before the decryption, so it cost almost nothing.
            Some(Discard::Replayed) => false,
            // A wrong content size counts, too: the packet was decrypted, and its sender has the key.
            None | Some(_) => {
                self.turn_packets += 1;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Budgets;

    #[test]
    fn packets_under_an_address_have_limits_in_a_turn() {
        let mut link = SlotLink::vacant(0);
        let budgets = TurnBudgets::new(Budgets::default());
        let mut spent = TurnBudgets::new(Budgets { forgeries_per_turn: 1, ..Budgets::default() });
        spent.count_forgery();
        for (is_near, budgets, max) in
            [(false, &budgets, 1024), (true, &budgets, 8192), (false, &spent, 4), (true, &spent, 4)]
        {
            link.turn_forgeries = [max - 1; 2];
            assert_eq!(link.check_forgeries(is_near, budgets), Ok(()));
            link.turn_forgeries = [max; 2];
            assert_eq!(link.check_forgeries(is_near, budgets), Err(Discard::ForgeryBudget), "{max}");
        }
        for (packets, expected) in
            [(255, Ok(false)), (256, Ok(true)), (256 + 1023, Ok(true)), (256 + 1024, Err(Discard::ClientBudget))]
        {
            link.turn_packets = packets;
            assert_eq!(link.has_used_up(256, Duration::ZERO), expected, "{packets} packets");
        }
    }

    #[test]
    fn slow_loop_takes_as_many_packets_per_second_as_a_fast_one() {
        for (millis, turns) in [(0, 1), (1, 1), (16, 1), (17, 1), (31, 1), (50, 3), (100, 6), (200, 12), (9999, 60)] {
            assert_eq!(scaled_budget(256, Duration::from_millis(millis)), 256 * turns, "{millis} ms");
        }
        assert_eq!(scaled_budget(u32::MAX, Duration::from_secs(1)), u32::MAX);
    }
}
