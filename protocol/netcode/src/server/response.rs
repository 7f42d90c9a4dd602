//! Responses: a returned challenge proves the client's address, and the client gets a slot (§1.12).

use super::handshake::{HandshakeOutcome, OpenedToken};
use super::pending::{HandshakeReply, Pending, PendingIndex};
use super::registry::{ClaimError, IndexClaim, Presence, TokenUse};
use super::request::Admission;
use super::slots::{LinkKeys, NewClient};
use super::{AwaitingDurability, DisconnectReason, NetcodeServer};
use crate::address::Address;
use crate::crypto::lane::Lane;
use crate::discard::Discard;
use crate::ids::{ClientIndex, SlotIndex};
use crate::time::{Instant, Now};
use crate::timing::TimeoutPolicy;
use crate::token::challenge::Binding;
use crate::token::history::{TokenTag, UsedToken};
use crate::token::redeem::TokenAge;
use crate::wire::TAG_BYTES;
use crate::wire::packet::{Challenge, PacketHeader, PacketKind};

/// Returns whether a packet with this prefix claims to be a response.
#[inline]
pub(super) const fn is_response(prefix: u8) -> bool {
    prefix & 0x0f == PacketKind::Response as u8
}

/// Parses the header of a response, and checks the size of its content.
fn parse_response_header(datagram: &[u8]) -> Result<PacketHeader, Discard> {
    let header = PacketHeader::parse(datagram, PacketKind::TO_SERVER)?;
    if header.kind != PacketKind::Response {
        return Err(Discard::WrongState);
    }
    // The header's parser has checked that header and tag fit, so the subtraction cannot overflow.
    if !header.kind.allows_content(datagram.len() - header.bytes - TAG_BYTES) {
        return Err(Discard::ContentSize);
    }
    Ok(header)
}

/// Returns whether a response is dropped for this reason before it is known to be the client's own.
const fn precedes_opening(reason: Discard) -> bool {
    matches!(
        reason,
        Discard::TooShort
            | Discard::UnknownType
            | Discard::UnexpectedType
            | Discard::SequenceLength
            | Discard::WrongState
            | Discard::ContentSize
            | Discard::UnknownSender
            | Discard::PendingBudget
            | Discard::StrangerBudget
            | Discard::NotAuthentic
    )
}

impl Pending {
    /// Returns the client for the slot. Its index is set when one is claimed.
    fn new_client(&self, timeouts: TimeoutPolicy) -> NewClient {
        NewClient {
            index: ClientIndex(0),
            client_id: self.bound.client_id,
            user_data: self.user_data,
            age: Some(self.age),
            address: Some(self.bound.address),
            // Prepared only now: most pending clients of an attack never get here.
            keys: Some(LinkKeys {
                client_to_server: self.client_to_server.clone().into(),
                server_to_client: self.server_to_client.clone().into(),
            }),
            lane: Lane::slot(self.server_index),
            timeout: timeouts.apply(self.timeout_seconds),
        }
    }
}

impl NetcodeServer {
    /// Handles an encrypted packet from an address without a slot, or a response from any address. If all checks pass,
    /// its sender gets a slot, and a keep-alive is due. Returns `unknown` if no client is pending at the address.
    pub(super) fn on_response(
        &mut self,
        from: Address,
        unknown: Discard,
        datagram: &mut [u8],
        now: Now,
    ) -> Result<(), Discard> {
        let Some(index) = self.pending.at_address(&from, now.monotonic) else {
            // Only two lookups were made so far, so packets of unknown senders use up no budget.
            return Err(unknown);
        };
        let token = self.pending.get(index).map(OpenedToken::of_pending);
        let result = self.admit_response(index, datagram, now);
        let outcome = result.unwrap_or_else(HandshakeOutcome::Dropped);
        match (token, result) {
            (Some(token), Ok(_)) => self.handshakes.add_opened(from, token, outcome),
            (Some(token), Err(reason)) if !precedes_opening(reason) => {
                self.handshakes.add_opened(from, token, outcome);
            }
            (_, Err(reason)) => self.handshakes.add_unopened(from, reason),
            (None, Ok(_)) => {}
        }
        result.map(drop)
    }

    /// Gives the pending client a slot if its response proves its address.
    fn admit_response(
        &mut self,
        index: PendingIndex,
        datagram: &mut [u8],
        now: Now,
    ) -> Result<HandshakeOutcome, Discard> {
        // Checks without decryption come before the budget: malformed packets cost almost nothing and must not use it
        // up.
        let header = parse_response_header(datagram)?;
        let attempt = self.pending.next_attempt(index, self.turn).ok_or(Discard::PendingBudget)?;
        self.turn_budgets.take_response(attempt)?;
        // Counted before the decryption, so that forged responses count as well.
        self.pending.count_attempt(index, self.turn);
        let Some(pending) = self.pending.get(index) else { return Err(Discard::UnknownSender) };
        let content = self.cipher.open(&pending.client_to_server, &header, datagram)?;
        let challenge = Challenge::parse(content).ok_or(Discard::ContentSize)?;
        self.challenger.verify(challenge, &pending.bound, now.monotonic, self.config.challenge_lifetime)?;
        let (bound, age, tag) = (pending.bound, pending.age, pending.tag);
        let (admission, has_free_index) = self.check_proven(&bound, age, &tag, now.monotonic)?;
        if admission == Admission::RemoteTakeover {
            // The client repeats its response 10 times per second. The predecessor's shard ends it before the next one.
            return Err(Discard::ClientIdConnected);
        }
        if !self.accepts_clients || (admission == Admission::NewSlot && !has_free_index) {
            self.pending.set_due(index, HandshakeReply::Denied);
            return Ok(self.denial());
        }
        // A reserved index is claimed like a free one.
        let takeover = if let Admission::Takeover(slot) = admission { Some(slot) } else { None };
        self.admit(index, takeover, now)
    }

    /// Checks a client with a proven address: its token must be unused, and its client id free or ready for a takeover.
    /// Returns the way to a slot, and whether a client index is free.
    fn check_proven(
        &mut self,
        bound: &Binding,
        age: TokenAge,
        tag: &TokenTag,
        now: Instant,
    ) -> Result<(Admission, bool), Discard> {
        let takeover_after = self.config.takeover_time();
        // The local slots are checked first, so the guard covers only the questions to the registry. It ends with this
        // function: another shard may use the token or the client id before `claim_index`, which checks them again.
        let local = self.check_local_occupants(bound.address, bound.client_id, age, now);
        let mut registry = self.registry.lock();
        let has_free_index = registry.has_free_index(now);
        if registry.is_consumed(tag) {
            return Err(Discard::TokenUsed);
        }
        if let Some(slot) = local? {
            return Ok((Admission::Takeover(slot), has_free_index));
        }
        let admission = match registry.presence(bound.client_id, age, &bound.token, takeover_after, now)? {
            Presence::Absent => Admission::NewSlot,
            Presence::Reserved => Admission::Reserved,
            Presence::SilentElsewhere => {
                registry.request_takeover(bound.client_id, bound.token);
                Admission::RemoteTakeover
            }
        };
        Ok((admission, has_free_index))
    }

    /// Uses the token and gives its client a slot. Afterwards the token admits no other client.
    fn admit(
        &mut self,
        index: PendingIndex,
        takeover: Option<SlotIndex>,
        now: Now,
    ) -> Result<HandshakeOutcome, Discard> {
        if !self.has_event_capacity() {
            return Err(Discard::EventsFull);
        }
        if self.is_journal_busy() {
            return Err(Discard::HistoryUnavailable);
        }
        let Some(pending) = self.pending.get(index) else { return Err(Discard::UnknownSender) };
        let used = UsedToken { name: pending.bound.token, expires: pending.expires };
        let token = TokenUse { tag: pending.tag, used };
        let (client_id, age) = (pending.bound.client_id, pending.age);
        let claim = IndexClaim { shard: self.shard, client_id, age: Some(age), token: Some(token) };
        let mut client = pending.new_client(self.config.timeouts);
        client.index = match self.claim_index(&claim, takeover, now) {
            Ok(index) => index,
            Err(ClaimError::Discard(reason)) => return Err(reason),
            // Another shard took the last index since the check.
            Err(ClaimError::Full) => {
                self.pending.set_due(index, HandshakeReply::Denied);
                return Ok(HandshakeOutcome::DeniedFull);
            }
        };
        // The record is written without the registry's lock, because a journal may be slow.
        if let Err(reason) = self.record(used) {
            self.revert_claim(&claim, takeover.is_none().then_some(client.index));
            return Err(reason);
        }
        self.pending.remove_client(client_id);
        self.occupy_slot(client, takeover, now);
        let waits = self.slots.of_client(client_id).is_some_and(|slot| !self.slots.is_durable(slot));
        Ok(if waits { HandshakeOutcome::AwaitsHistory } else { HandshakeOutcome::Connected })
    }

    /// Uses the token and returns a client index: a new one, or the present one of the client that is taken over.
    fn claim_index(
        &mut self,
        claim: &IndexClaim,
        takeover: Option<SlotIndex>,
        now: Now,
    ) -> Result<ClientIndex, ClaimError> {
        let mut registry = self.registry.lock();
        // A takeover on the same shard keeps the client index, so it needs only the token.
        let Some(slot) = takeover else { return registry.claim(claim, now) };
        if let Some(token) = &claim.token {
            registry.consume(token, claim.client_id, now).map_err(ClaimError::Discard)?;
        }
        Ok(self.slots.link(slot).index)
    }

    /// Reverts a claim when its token could not be recorded, or its client got no slot.
    pub(super) fn revert_claim(&mut self, claim: &IndexClaim, index: Option<ClientIndex>) {
        let mut registry = self.registry.lock();
        if let Some(token) = &claim.token {
            registry.retract(&token.tag);
        }
        if let Some(index) = index {
            registry.leave(claim.shard, claim.client_id);
            registry.release(claim.shard, index);
        }
    }

    /// Records a used token in the journal, if there is one.
    fn record(&mut self, used: UsedToken) -> Result<(), Discard> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        if journal.record(used).is_err() {
            self.stats.journal_failures += 1;
            return Err(Discard::HistoryUnavailable);
        }
        self.recorded += 1;
        Ok(())
    }

    fn occupy_slot(&mut self, client: NewClient, takeover: Option<SlotIndex>, now: Now) {
        let client_id = client.client_id;
        let handle = match takeover {
            None => self.slots.assign(client, now.monotonic),
            Some(slot) => {
                // The predecessor's event comes before that of the new client with the same id.
                self.emit_disconnected(self.slots.handle_for(slot), client_id, DisconnectReason::TakenOver);
                if let Some(age) = client.age {
                    self.registry.lock().renew(client_id, age);
                }
                Some(self.slots.replace(slot, client, now.monotonic))
            }
        };
        debug_assert!(handle.is_some(), "there are as many slots as client indices");
        if let Some(client) = handle {
            self.awaiting_durability.push_back(AwaitingDurability { client, record: self.recorded });
            self.on_durable();
        }
    }
}
