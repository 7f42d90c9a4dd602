//! Packets of clients that have a slot (§1.13).

use super::budget::TurnBudgets;
use super::slots::SlotLink;
use super::{ClientHandle, DisconnectReason, NetcodeServer};
use crate::Payload;
use crate::discard::Discard;
use crate::ids::{PacketNumber, SlotIndex};
use crate::time::Instant;
use crate::wire::packet::{PacketHeader, PacketKind};

/// The maximum of packets under one client's address that fail to decrypt in a turn, while the common budget lasts.
const MAX_FORGERIES_PER_TURN: u32 = 1024;

/// The maximum of packets under one client's address that fail to decrypt in a turn, when the common budget is used up.
/// An attacker that forges many addresses then silences only those clients, at the cost of this number for each client.
const MIN_FORGERIES_PER_TURN: u32 = 4;

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
        if link.turn_packets >= self.config.budgets.packets_per_client_and_turn {
            return Err(Discard::ClientBudget);
        }
        let header = PacketHeader::parse(datagram, PacketKind::TO_SERVER)?;
        link.check_forgeries(&self.turn_budgets)?;
        let keys = link.keys.as_ref().ok_or(Discard::UnknownSender)?;
        let opened = self.cipher.open_fresh(&keys.client_to_server, &mut link.window, &header, datagram);
        link.count_packet(opened.as_ref().err().copied(), &mut self.turn_budgets);
        let content = opened?;
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

impl SlotLink {
    /// Restores the client's budgets with its first packet of a turn.
    #[inline]
    fn start_turn(&mut self, turn: u32) {
        if self.turn != turn {
            (self.turn, self.turn_packets, self.turn_forgeries) = (turn, 0, 0);
        }
    }

    /// Checks that another packet under the client's address may be decrypted in this turn.
    #[inline]
    fn check_forgeries(&self, budgets: &TurnBudgets) -> Result<(), Discard> {
        // Packets that decrypt count against the client. Others count against this address and against all forgeries
        // together. An attacker that spoofs the address therefore cannot use up the client's own budget, and the work
        // for forgeries stays bounded.
        let max = if budgets.has_forgeries_left() { MAX_FORGERIES_PER_TURN } else { MIN_FORGERIES_PER_TURN };
        if self.turn_forgeries >= max { Err(Discard::ForgeryBudget) } else { Ok(()) }
    }

    /// Counts a packet by the result of its decryption.
    #[inline]
    fn count_packet(&mut self, refused: Option<Discard>, budgets: &mut TurnBudgets) {
        match refused {
            Some(Discard::NotAuthentic) => {
                self.turn_forgeries += 1;
                budgets.count_forgery();
            }
            // The replay window refused it before the decryption, so it cost almost nothing.
            Some(Discard::Replayed) => {}
            // A wrong content size counts, too: the packet was decrypted, and its sender has the key.
            None | Some(_) => self.turn_packets += 1,
        }
    }
}
