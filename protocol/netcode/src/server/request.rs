//! Connection requests, with checks in the order of their cost (§1.8, §1.11).
//!
//! Before the token is decrypted, the server believes nothing and stores nothing. A refused request gets no reply.

use core::time::Duration;

use super::NetcodeServer;
use super::config::TokenCutoff;
use super::handshake::{HandshakeOutcome, OpenedToken};
use super::pending::{HandshakeReply, PresentedToken};
use super::registry::Presence;
use super::slots::SlotState;
use crate::address::Address;
use crate::discard::Discard;
use crate::ids::{ClientId, SlotIndex};
use crate::time::{Instant, Now, UnixMillis, UnixSeconds};
use crate::token::epochs::CLOCK_STEP_MILLIS;
use crate::token::history::TokenTag;
use crate::token::redeem::{Redeemed, TokenAge, redeem};
use crate::wire::packet::Request;

/// The way in which a client gets a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admission {
    /// It gets a new slot, if one is free.
    NewSlot,
    /// It takes over the slot of its silent predecessor.
    Takeover(SlotIndex),
    /// Its silent predecessor is connected to another shard, which must end it first.
    RemoteTakeover,
    /// Its predecessor has ended, and the index is reserved.
    Reserved,
}

impl NetcodeServer {
    /// Handles a connection request. If all checks pass, its sender becomes pending, and a challenge or denial is due.
    pub(super) fn on_request(&mut self, from: Address, datagram: &[u8], now: Now) -> Result<(), Discard> {
        let request = Request::parse(datagram, self.config.protocol_id)?;
        // Counted after the parse: datagrams of other protocols cost almost nothing and must not use up the budget.
        self.turn_budgets.take_request()?;
        let tag = TokenTag::of(request.sealed);
        let checked = self.check_before_decrypt(from, &tag, request.expires, now).map_err(|reason| match reason {
            // The client repeats its request while the record of its token is not durable.
            Discard::TokenUsed => self.slots.at_address(&from).map_or(reason, |slot| self.occupied(slot, reason)),
            _ => reason,
        });
        checked.inspect_err(|reason| self.log_unopened(from, &request, tag, *reason, now))?;
        let redeemed = redeem(&request, self.config.protocol_id, &self.keys)
            .inspect_err(|reason| self.handshakes.add_unopened(from, *reason))?;
        let reply = self.admit_request(from, tag, &redeemed, now);
        self.log_opened(from, &redeemed, reply);
        reply.map(drop)
    }

    /// Makes the sender of an opened token pending. Returns the reply that is due.
    fn admit_request(
        &mut self,
        from: Address,
        tag: TokenTag,
        redeemed: &Redeemed,
        now: Now,
    ) -> Result<HandshakeReply, Discard> {
        let Some(server_index) = redeemed.server_index(&self.advertised) else {
            // Stored for the log: a wrong advertised address is the most frequent mistake in a deployment.
            self.misdirected = Some(redeemed.servers.clone());
            return Err(Discard::AddressNotListed);
        };
        self.check_cutoff(redeemed.minted, redeemed.expires, now)?;
        let token = PresentedToken { tag, name: self.names.digest(&[&tag.0]) };
        let has_slot = self.check_admission(from, redeemed, &token, now.monotonic)?;

        // Even a client that is denied becomes pending: the reply needs its address and key.
        let lifetime = self.pending_lifetime(redeemed.timeout_seconds);
        let pending = self.pending.admit(token, redeemed, server_index, from, now.monotonic, lifetime)?;
        let is_welcome = self.accepts_clients && has_slot;
        let reply = if is_welcome { HandshakeReply::Challenge } else { HandshakeReply::Denied };
        self.pending.set_due(pending, reply);
        Ok(reply)
    }

    /// Adds the outcome of a request with an opened token to the log of handshakes.
    fn log_opened(&mut self, from: Address, redeemed: &Redeemed, reply: Result<HandshakeReply, Discard>) {
        let at_address = self.slots.at_address(&from);
        let outcome = match reply {
            // A repeated request that arrives late: its client is connected.
            Err(_) if at_address.is_some() && at_address == self.slots.of_client(redeemed.client_id) => return,
            Ok(HandshakeReply::Challenge) => HandshakeOutcome::Challenged,
            Ok(HandshakeReply::Denied) => self.denial(),
            Err(reason) => HandshakeOutcome::Dropped(reason),
        };
        self.handshakes.add_opened(from, OpenedToken::of(redeemed), outcome);
    }

    /// Adds a request that was dropped before its token was opened to the log of handshakes. Opens the token for its
    /// client id, within the budget of [`LogOpens`](super::log_opens::LogOpens).
    fn log_unopened(&mut self, from: Address, request: &Request<'_>, tag: TokenTag, reason: Discard, now: Now) {
        // A budget that is used up is not used further. A late repetition is of no interest.
        if matches!(reason, Discard::SourceBudget | Discard::GlobalBudget) || self.slots.at_address(&from).is_some() {
            return;
        }
        let may_open = self.log_opens.may_open(from, &tag, now.monotonic);
        match may_open.then(|| redeem(request, self.config.protocol_id, &self.keys)) {
            Some(Ok(redeemed)) => {
                self.log_opens.on_opened(tag, now.monotonic);
                let outcome = HandshakeOutcome::Dropped(reason);
                self.handshakes.add_opened(from, OpenedToken::of(&redeemed), outcome);
            }
            Some(Err(_)) => {
                self.log_opens.on_failed(from, now.monotonic);
                self.handshakes.add_unopened(from, reason);
            }
            None => self.handshakes.add_unopened(from, reason),
        }
    }

    /// Returns why a client with a valid token is denied.
    pub(super) const fn denial(&self) -> HandshakeOutcome {
        if self.accepts_clients { HandshakeOutcome::DeniedFull } else { HandshakeOutcome::DeniedClosed }
    }

    /// Checks that a token is in time and not used, and takes budget for its decryption.
    fn check_before_decrypt(
        &mut self,
        from: Address,
        tag: &TokenTag,
        expires: UnixSeconds,
        now: Now,
    ) -> Result<(), Discard> {
        let today = UnixSeconds::from(now.unix);
        if expires <= today {
            return Err(Discard::TokenExpired);
        }
        // The guard ends with this function: other shards do not wait while the token is decrypted.
        let mut registry = self.registry.lock();
        registry.check_not_forgotten(expires, now)?;
        if self.config.max_token_lifetime.is_some_and(|max| expires.0 - today.0 > max.as_secs()) {
            return Err(Discard::TokenLifetimeTooLong);
        }
        if registry.is_consumed(tag) {
            return Err(Discard::TokenUsed);
        }
        registry.take_decrypt(from, self.keys.len() as u32, now.monotonic)
    }

    /// Checks that the client may be admitted, and returns whether there is a slot for it.
    fn check_admission(
        &mut self,
        from: Address,
        redeemed: &Redeemed,
        token: &PresentedToken,
        now: Instant,
    ) -> Result<bool, Discard> {
        // Local slots first: they need no lock.
        let takeover = self.check_local_occupants(from, redeemed.client_id, redeemed.age(), now)?;
        let takeover_after = self.config.takeover_time();
        let mut registry = self.registry.lock();
        let needs_free_index = match takeover {
            Some(_) => false,
            None => {
                let client_id = redeemed.client_id;
                let presence = registry.presence(client_id, redeemed.age(), &token.name, takeover_after, now)?;
                presence == Presence::Absent
            }
        };
        registry.check_token_capacity(redeemed.client_id)?;
        Ok(registry.has_free_index(now) || !needs_free_index)
    }

    /// Checks that the token was minted after the cutoff.
    ///
    /// Slipgate's tokens contain their mint time. Other tokens were minted at the earliest one maximum lifetime before
    /// they expire.
    fn check_cutoff(&self, minted: Option<UnixMillis>, expires: UnixSeconds, now: Now) -> Result<(), Discard> {
        let cutoff = match self.config.token_cutoff {
            TokenCutoff::None => return Ok(()),
            TokenCutoff::At(moment) => moment,
            TokenCutoff::AtStart => self.started(now),
        };
        let max_lifetime = self.config.max_token_lifetime;
        let earliest = minted.or_else(|| max_lifetime.map(|max| earliest_mint(expires, max)));
        if earliest.is_some_and(|earliest| earliest >= cutoff) { Ok(()) } else { Err(Discard::BeforeStart) }
    }

    /// Returns when this server started by the wall clock: the later one of its reading at the start, and of the start
    /// as the clock shows it now.
    ///
    /// A machine may start with a clock that is years behind and set it when its network is up. The first reading would
    /// then let every old token pass. A machine may also start with a clock that is ahead: after a step back only the
    /// present reading counts, or fresh tokens would be refused for as long as the clock was ahead.
    fn started(&self, now: Now) -> UnixMillis {
        // Rounded up: the wall clock is truncated to milliseconds, and equally fast clocks must not move the start.
        let running = now.monotonic.since(self.started.monotonic).as_nanos().div_ceil(1_000_000) as u64;
        let (then, today) = (self.started.unix, UnixMillis(now.unix.0.saturating_sub(running)));
        let was_ahead = then.0.saturating_sub(today.0) > CLOCK_STEP_MILLIS;
        if was_ahead { today } else { then.max(today) }
    }

    /// Checks that neither the address nor the client id has a slot on this shard. Returns the slot that the token may
    /// take over, if there is one.
    pub(super) fn check_local_occupants(
        &self,
        from: Address,
        client_id: ClientId,
        age: TokenAge,
        now: Instant,
    ) -> Result<Option<SlotIndex>, Discard> {
        let at_address = self.slots.at_address(&from);
        let of_client = self.slots.of_client(client_id);
        let refuse = |slot, reason| Err(self.occupied(slot, reason));
        // A client may take over its own address, but never that of another client.
        if let Some(slot) = at_address
            && of_client != Some(slot)
        {
            return refuse(slot, Discard::AddressConnected);
        }
        let Some(slot) = of_client else { return Ok(None) };
        if self.may_take_over(slot, age, now) {
            return Ok(Some(slot));
        }
        refuse(slot, if at_address.is_some() { Discard::AddressConnected } else { Discard::ClientIdConnected })
    }

    /// Returns the reason for refusing a client whose address, client id or token has a slot: `reason`, or
    /// `HistoryUnavailable` while the record of the slot's token is not durable, because nobody is connected there.
    pub(super) fn occupied(&self, slot: SlotIndex, reason: Discard) -> Discard {
        if self.slots.is_durable(slot) { reason } else { Discard::HistoryUnavailable }
    }

    /// Returns whether a token of this age may take over a slot: it is newer, and the slot's client is silent.
    fn may_take_over(&self, slot: SlotIndex, age: TokenAge, now: Instant) -> bool {
        let Some(takeover_after) = self.config.takeover_time() else { return false };
        let is_newer = self.slots.profile(slot).age.is_some_and(|present| age.is_newer_than(present));
        let link = self.slots.link(slot);
        // Packets that were not read yet could break the silence, so it counts only after the last backlog.
        let last_receive = link.last_receive.max(self.backlog_until);
        is_newer && link.state == SlotState::Connected && now.reached(last_receive, takeover_after)
    }

    /// Returns how long a client may be pending: the configured time, or its token's timeout if that is shorter
    /// (§1.10).
    fn pending_lifetime(&self, timeout_seconds: i32) -> Duration {
        let timeout = self.config.timeouts.apply(timeout_seconds);
        timeout.map_or(self.config.pending_lifetime, |timeout| timeout.min(self.config.pending_lifetime))
    }
}

/// Returns the earliest moment at which a token with this expiry and at most this lifetime was minted.
fn earliest_mint(expires: UnixSeconds, max_lifetime: Duration) -> UnixMillis {
    UnixMillis::from(UnixSeconds(expires.0.saturating_sub(max_lifetime.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::key::{Key, Seed};
    use crate::server::ServerConfig;

    /// Returns both clocks, with the wall clock truncated to milliseconds like by its reader.
    fn at(micros: u64) -> Now {
        Now { monotonic: Instant::from_start(Duration::from_micros(micros)), unix: UnixMillis(micros / 1000) }
    }

    #[test]
    fn equally_fast_clocks_never_move_the_start() {
        let advertised = core::net::SocketAddr::from(([192, 0, 2, 1], 40_000));
        let config = ServerConfig::new(1, 1, &[advertised]);
        for start in (1_000_000..1_002_000).step_by(73) {
            let keys = Key::from([1; 32]).into();
            let server = NetcodeServer::new(config.clone(), keys, &Seed::from([2; 32]), at(start)).unwrap();
            for later in (start..start + 3000).step_by(101) {
                assert_eq!(server.started(at(later)), at(start).unix, "started at {start} us, read at {later} us");
            }
        }
    }
}
