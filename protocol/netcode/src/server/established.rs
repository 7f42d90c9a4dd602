//! Packets of clients that have a slot (§1.13).

use super::{ClientHandle, DisconnectReason, NetcodeServer};
use crate::Payload;
use crate::discard::Discard;
use crate::ids::SlotIndex;
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
        let turn = self.turn as u32;
        let link = self.slots.link_mut(slot);
        if link.turn != turn {
            (link.turn, link.turn_packets, link.turn_forgeries) = (turn, 0, 0);
        }
        if link.turn_packets >= self.config.budgets.packets_per_client_and_turn {
            return Err(Discard::ClientBudget);
        }
        let header = PacketHeader::parse(datagram, PacketKind::TO_SERVER)?;
        // Packets that decrypt count against the client. Others count against this address and against all forgeries
        // together. An attacker that spoofs the address therefore cannot use up the client's own budget, and the work
        // for forgeries stays bounded.
        let max_forgeries =
            if self.turn_budgets.has_forgeries_left() { MAX_FORGERIES_PER_TURN } else { MIN_FORGERIES_PER_TURN };
        if link.turn_forgeries >= max_forgeries {
            return Err(Discard::ForgeryBudget);
        }
        let keys = link.keys.as_ref().ok_or(Discard::UnknownSender)?;
        let opened = self.cipher.open_fresh(&keys.client_to_server, &mut link.window, &header, datagram);
        match &opened {
            Err(Discard::NotAuthentic) => {
                link.turn_forgeries += 1;
                self.turn_budgets.count_forgery();
            }
            // The replay window refused it before the decryption, so it cost almost nothing.
            Err(Discard::Replayed) => {}
            // A wrong content size counts, too: the packet was decrypted, and its sender has the key.
            Ok(_) | Err(_) => link.turn_packets += 1,
        }
        let content = opened?;
        if header.kind == PacketKind::Disconnect {
            self.end(slot, DisconnectReason::Left, 0);
            return Ok(None);
        }
        link.confirmed = true;
        let is_durable = link.durable;
        self.slots.on_received(slot, now);
        // The application does not know the client before its token is durable, so payloads are dropped until then. The
        // client could send one early, because it has the keys.
        if header.kind != PacketKind::Payload || !is_durable {
            return Ok(None);
        }
        self.stats.payloads_received += 1;
        let payload = Payload { sequence: header.sequence, bytes: content };
        Ok(Some((self.slots.handle_for(slot), payload)))
    }
}
