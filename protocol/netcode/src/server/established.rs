//! The room behind the doors: packets of clients that have a slot (§1.13).

use super::{ClientHandle, DisconnectReason, Server};
use crate::Payload;
use crate::discard::Discard;
use crate::time::Instant;
use crate::wire::packet::{Header, PacketKind};

/// Packets under one client's address that a turn opens in vain, while all together have not spent their budget.
const FORGERIES_PER_TURN: u32 = 1024;

/// Packets under one client's address that a turn opens in vain even when all together have spent theirs: whoever writes
/// under many players' addresses silences those alone. What it costs in excess is this for each connected client.
const SPARED_FORGERIES: u32 = 4;

impl Server {
    /// Handles a packet from the address of a slot, in the client's own budget.
    pub(super) fn established<'d>(
        &mut self,
        slot: u32,
        datagram: &'d mut [u8],
        now: Instant,
    ) -> Result<Option<(ClientHandle, Payload<'d>)>, Discard> {
        let turn = self.turn as u32;
        let link = self.slots.link(slot).ok_or(Discard::UnknownSender)?;
        if link.turn != turn {
            (link.turn, link.turn_packets, link.turn_forgeries) = (turn, 0, 0);
        }
        if link.turn_packets >= self.config.budgets.packets_per_client_and_turn {
            return Err(Discard::ClientBudget);
        }
        let header = Header::parse(datagram, PacketKind::TO_SERVER)?;
        // Whoever writes under a player's address must not be able to use up what the player may send: only what opens
        // counts for the client. What does not counts for those who write under this address, and for all forgers together,
        // so that their work is bounded. A client under whose address nobody else writes loses nothing by them.
        let most = if self.ledger.has_forgeries() { FORGERIES_PER_TURN } else { SPARED_FORGERIES };
        if link.turn_forgeries >= most {
            return Err(Discard::ForgeryBudget);
        }
        let keys = link.keys.as_ref().ok_or(Discard::UnknownSender)?;
        let opened = self.cipher.open_fresh(&keys.client_to_server, &mut link.window, &header, datagram);
        match &opened {
            Err(Discard::NotAuthentic) => {
                link.turn_forgeries += 1;
                self.ledger.note_forgery();
            }
            // Nothing was decrypted.
            Err(Discard::Replayed) => {}
            // Of the wrong size too: it was opened, and its sender holds the key.
            Ok(_) | Err(_) => link.turn_packets += 1,
        }
        let content = opened?;
        if header.kind == PacketKind::Disconnect {
            self.end(slot, DisconnectReason::Left, 0);
            return Ok(None);
        }
        link.confirmed = true;
        self.slots.heard(slot, now);
        // One of whom nobody knows yet has nobody to talk to. It has the keys, and may try.
        if header.kind != PacketKind::Payload || !self.slots.is_announced(slot) {
            return Ok(None);
        }
        self.stats.payloads_received += 1;
        let payload = Payload { sequence: header.sequence, bytes: content };
        Ok(self.slots.handle(slot).map(|client| (client, payload)))
    }
}
