//! The second door: a returned challenge proves the address, and its sender gets a slot (§1.12).

use super::pending::Reply;
use super::slots::{Newcomer, Owes};
use super::{DisconnectReason, Event, Server};
use crate::address::Address;
use crate::crypto::lane::Lane;
use crate::discard::Discard;
use crate::time::Now;
use crate::token::history::{TokenTag, UsedToken};
use crate::wire::packet::{Challenge, Header, PacketKind};

/// Whether a packet with this prefix claims to be a response.
pub(super) const fn is_response(prefix: u8) -> bool {
    prefix & 0x0f == PacketKind::Response as u8
}

impl Server {
    /// Handles an encrypted packet from an address without a slot, or a response from any: at best its sender gets a
    /// slot and is owed a keep-alive.
    pub(super) fn response(&mut self, from: Address, datagram: &mut [u8], now: Now) -> Result<(), Discard> {
        self.ledger.take_stranger()?;
        let Some((place, pending)) = self.pending.at_address(&from, now.monotonic) else {
            let connected = self.slots.at_address(&from).is_some();
            return Err(if connected { Discard::AddressConnected } else { Discard::UnknownSender });
        };
        let header = Header::parse(datagram, PacketKind::TO_SERVER)?;
        if header.kind != PacketKind::Response {
            return Err(Discard::WrongState);
        }
        let content = self.cipher.open(&pending.client_to_server, &header, datagram)?;
        let challenge = Challenge::parse(content).ok_or(Discard::ContentSize)?;
        self.challenger.verify(challenge, &pending.bound, now.monotonic, self.config.challenge_lifetime)?;
        let (bound, age) = (pending.bound, pending.age);
        if self.history.is_consumed(&pending.tag) {
            return Err(Discard::TokenUsed);
        }
        let takes_over = self.check_occupants(from, bound.client_id, age, now.monotonic)?;
        if !self.admitting || (takes_over.is_none() && !self.slots.has_room()) {
            self.pending.owe(place, Reply::Denied);
            return Ok(());
        }
        self.admit(place, takes_over, now)
    }

    /// Consumes the token and gives its holder a slot. From here on the token admits nobody else, from anywhere.
    fn admit(&mut self, place: u32, takes_over: Option<u32>, now: Now) -> Result<(), Discard> {
        if self.events.len() >= 2 * self.slots.count() as usize {
            return Err(Discard::EventsFull);
        }
        let Some(pending) = self.pending.get(place) else { return Err(Discard::UnknownSender) };
        let tag = pending.tag;
        let used = UsedToken { name: pending.bound.token, expires: pending.expires };
        let newcomer = Newcomer {
            client_id: pending.bound.client_id,
            user_data: pending.user_data,
            age: Some(pending.age),
            address: Some(pending.bound.address),
            client_to_server: pending.client_to_server.clone(),
            server_to_client: pending.server_to_client.clone(),
            lane: Lane::slot(pending.server_index),
            timeout: self.config.timeouts.apply(pending.timeout_seconds),
        };
        self.consume(tag, used, now)?;
        self.pending.remove_client(newcomer.client_id);
        self.seat(newcomer, takes_over, now);
        Ok(())
    }

    fn consume(&mut self, tag: TokenTag, used: UsedToken, now: Now) -> Result<(), Discard> {
        if self.history.is_full() {
            return Err(Discard::HistoryFull);
        }
        if let Some(journal) = &mut self.journal {
            if journal.record(used).is_err() {
                self.stats.journal_failures += 1;
                return Err(Discard::HistoryUnavailable);
            }
            self.unflushed = true;
        }
        self.history.consume(tag, used.expires, now)
    }

    fn seat(&mut self, newcomer: Newcomer, takes_over: Option<u32>, now: Now) {
        let client_id = newcomer.client_id;
        let seat = match takes_over {
            None => self.slots.assign(newcomer, now.monotonic),
            Some(slot) => {
                if let Some(client) = self.slots.handle(slot) {
                    let reason = DisconnectReason::TakenOver;
                    self.events.push_back(Event::Disconnected { client, client_id, reason });
                    self.stats.disconnects += 1;
                }
                self.slots.replace(slot, newcomer, now.monotonic)
            }
        };
        debug_assert!(seat.is_some(), "there was room a moment ago");
        if let Some(client) = seat {
            self.stats.connects += 1;
            self.events.push_back(Event::Connected { client, client_id });
            self.slots.owe(client.slot(), Owes { keep_alive: true, disconnects: 0 });
        }
    }
}
