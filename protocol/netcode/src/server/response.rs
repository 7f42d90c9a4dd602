//! The second door: a returned challenge proves the address, and its sender gets a slot (§1.12).

use super::pending::Reply;
use super::register::{Claim, Refused, Using};
use super::request::Way;
use super::slots::{LinkKeys, Newcomer};
use super::{DisconnectReason, Server, Unannounced};
use crate::address::Address;
use crate::crypto::lane::Lane;
use crate::discard::Discard;
use crate::time::Now;
use crate::token::history::UsedToken;
use crate::wire::TAG_BYTES;
use crate::wire::packet::{Challenge, Header, PacketKind};

/// Whether a packet with this prefix claims to be a response.
pub(super) const fn is_response(prefix: u8) -> bool {
    prefix & 0x0f == PacketKind::Response as u8
}

impl Server {
    /// Handles an encrypted packet from an address without a slot, or a response from any: at best its sender gets a
    /// slot and is owed a keep-alive.
    pub(super) fn response(
        &mut self,
        from: Address,
        connected: bool,
        datagram: &mut [u8],
        now: Now,
    ) -> Result<(), Discard> {
        let Some(place) = self.pending.at_address(&from, now.monotonic) else {
            // Two lookups: what is known by now costs requests nothing of their budget.
            return Err(if connected { Discard::AddressConnected } else { Discard::UnknownSender });
        };
        // What is no response is seen at a glance, and costs nobody's budget.
        let header = Header::parse(datagram, PacketKind::TO_SERVER)?;
        if header.kind != PacketKind::Response {
            return Err(Discard::WrongState);
        }
        if !header.kind.allows_content(datagram.len() - header.bytes - TAG_BYTES) {
            return Err(Discard::ContentSize);
        }
        self.ledger.take_response(self.pending.next_try(place, self.turn).ok_or(Discard::PendingBudget)?)?;
        self.pending.note_try(place, self.turn);
        let Some(pending) = self.pending.get(place) else { return Err(Discard::UnknownSender) };
        let content = self.cipher.open(&pending.client_to_server, &header, datagram)?;
        let challenge = Challenge::parse(content).ok_or(Discard::ContentSize)?;
        self.challenger.verify(challenge, &pending.bound, now.monotonic, self.config.challenge_lifetime)?;
        let (bound, age, tag) = (pending.bound, pending.age, pending.tag);
        let (is_used, has_free_slot) =
            self.common.with((true, false), |register| (register.is_consumed(&tag), register.has_room(now.monotonic)));
        if is_used {
            return Err(Discard::TokenUsed);
        }
        let way = self.check_occupants(from, bound.client_id, age, &bound.token, now.monotonic)?;
        if way == Way::Elsewhere {
            // Its shard ends it in its next turn, and this client will have said this again by then.
            self.common.with((), |register| register.want(bound.client_id, bound.token));
            return Err(Discard::ClientIdConnected);
        }
        if !self.admitting || (way == Way::Free && !has_free_slot) {
            self.pending.owe(place, Reply::Denied);
            return Ok(());
        }
        let takes_over = if let Way::TakesOver(slot) = way { Some(slot) } else { None };
        self.admit(place, takes_over, now)
    }

    /// Consumes the token and gives its holder a slot. From here on the token admits nobody else, from anywhere.
    fn admit(&mut self, place: u32, takes_over: Option<u32>, now: Now) -> Result<(), Discard> {
        if !self.has_room_for_events() {
            return Err(Discard::EventsFull);
        }
        if self.journal.as_ref().is_some_and(|journal| journal.is_busy()) {
            return Err(Discard::HistoryUnavailable);
        }
        let Some(pending) = self.pending.get(place) else { return Err(Discard::UnknownSender) };
        let used = UsedToken { name: pending.bound.token, expires: pending.expires };
        let using = Using { tag: pending.tag, used };
        let (client_id, age) = (pending.bound.client_id, pending.age);
        let claim = Claim { shard: self.shard, client_id, age: Some(age), token: Some(using) };
        let mut newcomer = Newcomer {
            index: 0,
            client_id,
            user_data: pending.user_data,
            age: Some(age),
            address: Some(pending.bound.address),
            keys: Some(LinkKeys {
                client_to_server: pending.client_to_server.clone().into(),
                server_to_client: pending.server_to_client.clone().into(),
            }),
            lane: Lane::slot(pending.server_index),
            timeout: self.config.timeouts.apply(pending.timeout_seconds),
        };
        newcomer.index = match self.claim(&claim, takes_over, now) {
            Ok(index) => index,
            Err(Refused::Discard(reason)) => return Err(reason),
            // Another shard was quicker.
            Err(Refused::Full) => {
                self.pending.owe(place, Reply::Denied);
                return Ok(());
            }
        };
        if let Err(reason) = self.record(used) {
            self.take_back(&claim, takes_over.is_none().then_some(newcomer.index));
            return Err(reason);
        }
        self.pending.remove_client(client_id);
        self.seat(newcomer, takes_over, now);
        Ok(())
    }

    /// Uses the token, for a client index that is free or that of the client whom the newcomer takes over.
    fn claim(&mut self, claim: &Claim, takes_over: Option<u32>, now: Now) -> Result<u32, Refused> {
        let refused = Refused::Discard(Discard::HistoryFull);
        let Some(index) = takes_over.and_then(|slot| self.slots.link(slot)).map(|link| link.index) else {
            return self.common.with(Err(refused), |register| register.claim(claim, now));
        };
        let used = self.common.with(Err(Discard::HistoryFull), |register| {
            claim.token.map_or(Ok(()), |using| register.consume(&using, now))
        });
        used.map(|()| index).map_err(Refused::Discard)
    }

    /// Gives back what was claimed: the token could not be written down.
    pub(super) fn take_back(&mut self, claim: &Claim, index: Option<u32>) {
        self.common.with((), |register| {
            if let Some(using) = &claim.token {
                register.retract(&using.tag);
            }
            if let Some(index) = index {
                register.leave(claim.shard, claim.client_id);
                register.release(claim.shard, index);
            }
        });
    }

    /// Writes down that a token was used, where there is a journal.
    fn record(&mut self, used: UsedToken) -> Result<(), Discard> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        if journal.record(used).is_err() {
            self.stats.journal_failures += 1;
            return Err(Discard::HistoryUnavailable);
        }
        self.recorded += 1;
        Ok(())
    }

    fn seat(&mut self, newcomer: Newcomer, takes_over: Option<u32>, now: Now) {
        let client_id = newcomer.client_id;
        let seat = match takes_over {
            None => self.slots.assign(newcomer, now.monotonic),
            Some(slot) => {
                if let Some(client) = self.slots.handle(slot) {
                    self.tell_end(client, client_id, DisconnectReason::TakenOver);
                }
                if let Some(age) = newcomer.age {
                    self.common.with((), |register| register.renew(client_id, age));
                }
                self.slots.replace(slot, newcomer, now.monotonic)
            }
        };
        debug_assert!(seat.is_some(), "there are as many slots as indices");
        if let Some(client) = seat {
            self.stats.connects += 1;
            self.unannounced.push_back(Unannounced { client, record: self.recorded });
            self.announce();
        }
    }
}
