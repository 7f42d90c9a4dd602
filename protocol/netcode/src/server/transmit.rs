//! Sending: due keep-alives, disconnects, challenges and denials, and payloads of the application (§1.12, §1.13).

use super::pending::{HandshakeReply, PendingIndex};
use super::slots::{DuePackets, SlotState, Slots};
use super::{ClientHandle, DisconnectReason, NetcodeServer};
use crate::crypto::packet::PacketCipher;
use crate::ids::SlotIndex;
use crate::time::{Instant, Now};
use crate::timing::SEND_INTERVAL;
use crate::token::history::JournalError;
use crate::wire::packet::{KeepAlive, PacketKind};
use crate::{Outbox, PayloadError, SealError, SealHalf, check_payload};

impl NetcodeServer {
    /// Seals a payload of 1 to 1200 bytes for a client into the outbox.
    ///
    /// The keep-alive that accepts a client leaves before its first payload. Until a packet has arrived from the
    /// client, each payload is preceded by another keep-alive. A client ignores payloads before it knows that it is
    /// connected.
    ///
    /// # Errors
    /// - `Gone` when the connection has ended, or its sequence numbers are exhausted.
    /// - `Empty` and `TooLarge` unless the payload has 1 to 1200 bytes.
    /// - `Backlogged` when the outbox is full, or the client's token is not durable yet.
    #[inline]
    pub fn send(
        &mut self,
        client: ClientHandle,
        payload: &[u8],
        now: Now,
        outbox: &mut impl Outbox,
    ) -> Result<(), PayloadError> {
        check_payload(payload)?;
        let (slot, link) = self.slots.get(client).ok_or(PayloadError::Gone)?;
        // A client in the same process has a queue instead of packets.
        if link.state == SlotState::Loopback {
            return self.send_loopback(slot, payload);
        }
        if !link.durable {
            self.make_durable();
        }
        match self.slots.send_payload(slot, &self.cipher, payload, now.monotonic, outbox) {
            Ok(()) => {
                self.stats.payloads_sent += 1;
                Ok(())
            }
            Err(SealError::OutboxFull) => Err(PayloadError::Backlogged),
            // A sequence number must never repeat under one key, so the connection ends here.
            Err(SealError::LaneExhausted) => {
                self.end(slot, DisconnectReason::SequencesUsedUp, 0);
                Err(PayloadError::Gone)
            }
        }
    }

    /// Sends due packets until none is left or the outbox is full. The rest stays due for the next turn.
    ///
    /// Connected clients come before pending ones.
    pub fn transmit(&mut self, now: Now, outbox: &mut impl Outbox) {
        self.make_durable();
        // Each slot gets at most one visit, because a slot is queued again if its packets did not fit.
        for _ in self.slots.used() {
            let Some((slot, due)) = self.slots.next_due() else { break };
            if let Err(SealError::OutboxFull) = self.send_due(slot, due, now.monotonic, outbox) {
                break;
            }
        }
        // Each reply needs at most one packet, and a reply that does not fit ends the loop.
        while let Some((index, reply)) = self.pending.next_due() {
            if self.send_reply(index, reply, now.monotonic, outbox).is_none() {
                self.pending.set_due(index, reply);
                break;
            }
        }
    }

    /// Flushes the journal, and emits the events of clients with durable records. Before that, no packet
    /// may reveal a slot to its client, and no event may reveal the client to the application.
    fn make_durable(&mut self) {
        if self.durable < self.recorded
            && let Some(journal) = &mut self.journal
        {
            match journal.flush() {
                Ok(durable) => self.durable = durable,
                // The clients stay queued. The next turn tries again.
                Err(JournalError) => self.stats.journal_failures += 1,
            }
        }
        self.on_durable();
    }

    fn send_due(
        &mut self,
        slot: SlotIndex,
        due: DuePackets,
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<(), SealError> {
        let state = self.slots.link(slot).state;
        if state == SlotState::Closing {
            return self.send_disconnects(slot, due, now, outbox);
        }
        // The slot may have been vacated since the packets became due.
        if !due.keep_alive || state != SlotState::Connected {
            return Ok(());
        }
        match self.slots.send_keep_alive(slot, &self.cipher, now, outbox) {
            Err(SealError::OutboxFull) => {
                self.slots.add_due(slot, due);
                Err(SealError::OutboxFull)
            }
            Err(SealError::LaneExhausted) => {
                self.end(slot, DisconnectReason::SequencesUsedUp, 0);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Sends the last packets of a connection, then frees its slot.
    ///
    /// A client that does not know of its slot gets a keep-alive first. Without it the client would ignore the
    /// disconnects.
    fn send_disconnects(
        &mut self,
        slot: SlotIndex,
        mut due: DuePackets,
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<(), SealError> {
        while due != DuePackets::default() {
            let sent = if due.keep_alive {
                self.slots.send_keep_alive(slot, &self.cipher, now, outbox)
            } else {
                self.slots.send(slot, &self.cipher, PacketKind::Disconnect, &[], now, outbox)
            };
            if sent == Err(SealError::OutboxFull) {
                self.slots.add_due(slot, due);
                return sent;
            }
            due = due.after_one();
        }
        self.vacate(slot);
        Ok(())
    }

    /// Sends a challenge or a denial. Returns `None` if the outbox is full.
    fn send_reply(
        &mut self,
        index: PendingIndex,
        reply: HandshakeReply,
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Option<()> {
        let Some(pending) = self.pending.get(index) else { return Some(()) };
        // Handshake packets use a lane of their own, so that they never share a number with the slot (§1.12).
        let mut half = SealHalf {
            cipher: &self.cipher,
            key: &pending.server_to_client,
            lane: &mut self.handshake,
            to: pending.bound.address,
        };
        let sent = match reply {
            HandshakeReply::Denied => half.send(PacketKind::Denied, &[], outbox),
            HandshakeReply::Challenge => {
                let challenge = self.challenger.challenge(&pending.bound, &pending.user_data, now)?;
                half.send(PacketKind::Challenge, &challenge.to_bytes(), outbox)
            }
        };
        match (sent, reply) {
            (Err(SealError::OutboxFull), _) => return None,
            // After 2^62 handshakes no fresh sequence number is left for another reply.
            (Err(SealError::LaneExhausted), _) => {}
            (Ok(()), HandshakeReply::Denied) => self.stats.denials_sent += 1,
            (Ok(()), HandshakeReply::Challenge) => self.stats.challenges_sent += 1,
        }
        self.pending.on_replied(index, reply);
        Some(())
    }
}

impl Slots {
    /// Seals a payload for a slot, after a keep-alive if its client has not confirmed the slot.
    #[inline]
    fn send_payload(
        &mut self,
        slot: SlotIndex,
        cipher: &PacketCipher,
        payload: &[u8],
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<(), SealError> {
        let link = self.link(slot);
        if !link.durable {
            // The token's record is not durable yet: try again in the next turn, as with a full outbox.
            return Err(SealError::OutboxFull);
        }
        if !link.confirmed {
            // The keep-alive that accepts the client comes first, as in the reference. Each payload has another one of
            // its own, so a single loss costs no payload.
            if !self.has_sent(slot) {
                self.send_keep_alive(slot, cipher, now, outbox)?;
                self.clear_due_keep_alive(slot);
            }
            self.send_keep_alive(slot, cipher, now, outbox)?;
        }
        self.send(slot, cipher, PacketKind::Payload, payload, now, outbox)
    }

    /// Seals one packet for a slot. Every packet postpones the slot's next keep-alive.
    #[inline]
    fn send(
        &mut self,
        slot: SlotIndex,
        cipher: &PacketCipher,
        kind: PacketKind,
        content: &[u8],
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<(), SealError> {
        let link = self.link_mut(slot);
        // Only a client in the same process has neither address nor keys, and it gets no packets.
        let (Some(to), Some(keys)) = (link.address, &link.keys) else { return Ok(()) };
        SealHalf { cipher, key: &keys.server_to_client, lane: &mut link.lane, to }.send(kind, content, outbox)?;
        if link.state == SlotState::Connected {
            self.on_sent(slot, now.after(SEND_INTERVAL));
        }
        Ok(())
    }

    fn send_keep_alive(
        &mut self,
        slot: SlotIndex,
        cipher: &PacketCipher,
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<(), SealError> {
        let client_index = self.link(slot).index;
        let content = KeepAlive { client_index, max_clients: self.count() }.to_bytes();
        self.send(slot, cipher, PacketKind::KeepAlive, &content, now, outbox)
    }
}
