//! Paying what is owed: farewells, keep-alives, challenges, denials; and sealing payloads (§1.12, §1.13).

use super::pending::Reply;
use super::slots::{Owes, Slots, State};
use super::{ClientHandle, DisconnectReason, Server};
use crate::crypto::packet::PacketCipher;
use crate::time::{Instant, Now};
use crate::timing::SEND_INTERVAL;
use crate::token::history::JournalError;
use crate::wire::packet::{KeepAlive, PacketKind};
use crate::{Outbox, PayloadError, SealHalf, Unsent, check_payload};

impl Server {
    /// Seals a payload of 1 to 1200 bytes for a client, into the outbox.
    ///
    /// Until something has arrived from the client, each payload is preceded by a keep-alive, because it ignores
    /// payloads before it knows that it is connected.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, or `Backlogged` when the outbox is full.
    pub fn send(
        &mut self,
        client: ClientHandle,
        payload: &[u8],
        now: Now,
        outbox: &mut impl Outbox,
    ) -> Result<(), PayloadError> {
        check_payload(payload)?;
        let (slot, link) = self.slots.live(client).ok_or(PayloadError::Gone)?;
        if link.state == State::Loopback {
            return self.send_loopback(slot, payload);
        }
        let confirmed = link.confirmed;
        if !link.announced {
            self.make_durable();
        }
        let sent = if self.slots.is_announced(slot) {
            let introduced =
                if confirmed { Ok(()) } else { self.slots.send_keep_alive(slot, &self.cipher, now.monotonic, outbox) };
            introduced
                .and_then(|()| self.slots.send(slot, &self.cipher, PacketKind::Payload, payload, now.monotonic, outbox))
        } else {
            Err(Unsent::NoRoom)
        };
        match sent {
            Ok(()) => {
                self.stats.payloads_sent += 1;
                Ok(())
            }
            Err(Unsent::NoRoom) => Err(PayloadError::Backlogged),
            Err(Unsent::LaneUsedUp) => {
                self.end(slot, DisconnectReason::SequencesUsedUp, 0);
                Err(PayloadError::Gone)
            }
        }
    }

    /// Pays what is owed until nothing is or the outbox is full; the rest is paid in the next turn.
    ///
    /// Connected clients come before strangers.
    pub fn transmit(&mut self, now: Now, outbox: &mut impl Outbox) {
        self.make_durable();
        for _ in 0..self.slots.used() {
            let Some((slot, owes)) = self.slots.next_debt() else { break };
            if let Err(Unsent::NoRoom) = self.pay(slot, owes, now.monotonic, outbox) {
                break;
            }
        }
        while let Some((place, reply)) = self.pending.next_debt() {
            if self.reply(place, reply, now.monotonic, outbox).is_none() {
                self.pending.owe(place, reply);
                break;
            }
        }
    }

    /// Has used tokens made durable, and tells of those newcomers whose are. No packet may tell a client of its slot before,
    /// and no event the application, which could not answer it.
    fn make_durable(&mut self) {
        if self.durable < self.recorded
            && let Some(journal) = &mut self.journal
        {
            match journal.flush() {
                Ok(durable) => self.durable = durable,
                Err(JournalError) => self.stats.journal_failures += 1,
            }
        }
        self.announce();
    }

    fn pay(&mut self, slot: u32, owes: Owes, now: Instant, outbox: &mut impl Outbox) -> Result<(), Unsent> {
        let Some(link) = self.slots.link(slot) else { return Ok(()) };
        if link.state == State::Closing {
            return self.say_farewell(slot, owes, now, outbox);
        }
        if !owes.keep_alive || link.state != State::Connected {
            return Ok(());
        }
        match self.slots.send_keep_alive(slot, &self.cipher, now, outbox) {
            Err(Unsent::NoRoom) => {
                self.slots.owe(slot, owes);
                Err(Unsent::NoRoom)
            }
            Err(Unsent::LaneUsedUp) => {
                self.end(slot, DisconnectReason::SequencesUsedUp, 0);
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Sends the last packets of a connection; then its slot is free.
    ///
    /// A client that does not know of its slot yet is told first, or it would ignore the rest.
    fn say_farewell(
        &mut self,
        slot: u32,
        mut owes: Owes,
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<(), Unsent> {
        while owes != Owes::default() {
            let sent = if owes.keep_alive {
                self.slots.send_keep_alive(slot, &self.cipher, now, outbox)
            } else {
                self.slots.send(slot, &self.cipher, PacketKind::Disconnect, &[], now, outbox)
            };
            if sent == Err(Unsent::NoRoom) {
                self.slots.owe(slot, owes);
                return sent;
            }
            owes = owes.less_one();
        }
        self.vacate(slot);
        Ok(())
    }

    /// Sends a challenge or a denial; `None` if the outbox is full.
    fn reply(&mut self, place: u32, reply: Reply, now: Instant, outbox: &mut impl Outbox) -> Option<()> {
        let Some(pending) = self.pending.get(place) else { return Some(()) };
        let mut half = SealHalf {
            cipher: &self.cipher,
            key: &pending.server_to_client,
            lane: &mut self.handshake,
            to: pending.bound.address,
        };
        let sent = match reply {
            Reply::Denied => half.send(PacketKind::Denied, &[], outbox),
            Reply::Challenge => {
                let challenge = self.challenger.challenge(&pending.bound, &pending.user_data, now)?;
                half.send(PacketKind::Challenge, &challenge.to_bytes(), outbox)
            }
        };
        match (sent, reply) {
            (Err(Unsent::NoRoom), _) => return None,
            // 2^62 handshakes are behind us: nobody new can be answered under fresh numbers.
            (Err(Unsent::LaneUsedUp), _) => {}
            (Ok(()), Reply::Denied) => self.stats.denials_sent += 1,
            (Ok(()), Reply::Challenge) => self.stats.challenges_sent += 1,
        }
        self.pending.note_replied(place, reply);
        Some(())
    }
}

impl Slots {
    /// Seals one packet for a slot; any packet puts its next keep-alive off.
    fn send(
        &mut self,
        slot: u32,
        cipher: &PacketCipher,
        kind: PacketKind,
        content: &[u8],
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<(), Unsent> {
        let Some(link) = self.link(slot) else { return Ok(()) };
        let (Some(to), Some(keys)) = (link.address, &link.keys) else { return Ok(()) };
        SealHalf { cipher, key: &keys.server_to_client, lane: &mut link.lane, to }.send(kind, content, outbox)?;
        if link.state == State::Connected {
            self.spoke(slot, now.after(SEND_INTERVAL));
        }
        Ok(())
    }

    fn send_keep_alive(
        &mut self,
        slot: u32,
        cipher: &PacketCipher,
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<(), Unsent> {
        let Some(client_index) = self.link(slot).map(|link| link.index) else { return Ok(()) };
        let content = KeepAlive { client_index, max_clients: self.count() }.to_bytes();
        self.send(slot, cipher, PacketKind::KeepAlive, &content, now, outbox)
    }
}
