//! The first door: a connection request, checked from cheap to dear (§1.8, §1.11).
//!
//! Until the token is decrypted nothing is believed and nothing is kept; what is refused gets no answer.

use core::time::Duration;

use super::config::Fence;
use super::pending::{Presented, Reply};
use super::register::Presence;
use super::slots::State;
use super::{Discard, Server};
use crate::address::Address;
use crate::crypto::digest::Digest;
use crate::time::{Instant, Now, UnixMillis, UnixSeconds};
use crate::token::history::TokenTag;
use crate::token::redeem::{Age, redeem};
use crate::wire::packet::Request;

/// How a client comes to a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// By one that is free, if there is one.
    Free,
    /// By that of its predecessor, who is silent.
    TakesOver(u32),
    /// By that of its predecessor on another shard, who is silent and must be ended there first.
    Elsewhere,
    /// By that of its predecessor, which has ended.
    Kept,
}

impl Server {
    /// Handles a connection request: at best its sender becomes pending and is owed a challenge.
    pub(super) fn request(&mut self, from: Address, datagram: &[u8], now: Now) -> Result<(), Discard> {
        let request = Request::parse(datagram, self.config.protocol_id)?;
        // What is no request of this game is seen at a glance, and costs nobody's budget.
        self.ledger.take_request()?;
        self.check_expiry(request.expires, now)?;
        let tag = TokenTag::of(request.sealed);
        let keys = self.keys.keys().len() as u32;
        self.common.with(Err(Discard::TokenUsed), |register| {
            if register.is_consumed(&tag) {
                return Err(Discard::TokenUsed);
            }
            register.take_decrypt(from, keys, now.monotonic)
        })?;
        let redeemed = redeem(&request, self.config.protocol_id, &self.keys)?;

        let Some(server_index) = redeemed.server_index(&self.config.advertised) else {
            self.misdirected = Some(redeemed.servers);
            return Err(Discard::AddressNotListed);
        };
        self.check_fence(redeemed.minted, redeemed.expires, now)?;
        let token = Presented { tag, name: self.names.digest(&[&tag.0]) };
        let way = self.check_occupants(from, redeemed.client_id, redeemed.age(), &token.name, now.monotonic)?;
        let has_free_slot = self.common.with(Err(Discard::HistoryFull), |register| {
            if register.is_full_of_tokens() {
                return Err(Discard::HistoryFull);
            }
            Ok(register.has_room(now.monotonic))
        })?;

        let lifetime = self.pending_lifetime(redeemed.timeout_seconds);
        let place = self.pending.admit(token, &redeemed, server_index, from, now.monotonic, lifetime)?;
        let has_room = self.admitting && (way != Way::Free || has_free_slot);
        self.pending.owe(place, if has_room { Reply::Challenge } else { Reply::Denied });
        Ok(())
    }

    /// The token is in time: not expired, not from further off than tokens may live, and not one that may have been
    /// used and forgotten.
    fn check_expiry(&self, expires: UnixSeconds, now: Now) -> Result<(), Discard> {
        let today = now.unix.seconds();
        if expires <= today || self.common.ask(true, |register| register.may_have_forgotten(expires)) {
            return Err(Discard::TokenExpired);
        }
        match self.config.max_token_lifetime {
            Some(most) if expires.0 - today.0 > most.as_secs() => Err(Discard::TokenTooLong),
            _ => Ok(()),
        }
    }

    /// The token was surely minted after this server started or its journal began, if that matters.
    ///
    /// Ours say when they were minted. Others were minted at the earliest one maximum lifetime before they expire.
    fn check_fence(&self, minted: Option<UnixMillis>, expires: UnixSeconds, now: Now) -> Result<(), Discard> {
        let since = match self.config.fence {
            Fence::Open => return Ok(()),
            Fence::Since(moment) => moment,
            Fence::Closed => self.started(now),
        };
        let most = self.config.max_token_lifetime;
        let earliest = minted.or_else(|| most.map(|most| earliest_mint(expires, most)));
        if earliest.is_some_and(|earliest| earliest >= since) { Ok(()) } else { Err(Discard::BeforeStart) }
    }

    /// When this server started, by the wall clock: as it was read then or as it tells now, whichever is later.
    ///
    /// A machine may start with a clock that is years behind and set it when its network is up. What the clock said at
    /// the start would let every old token pass then.
    fn started(&self, now: Now) -> UnixMillis {
        // Rounded up: the wall clock's milliseconds are cut, and two clocks that go alike must not move the start.
        let running = now.monotonic.since(self.started.monotonic).as_nanos().div_ceil(1_000_000) as u64;
        self.started.unix.max(UnixMillis(now.unix.0.saturating_sub(running)))
    }

    /// Neither address nor client id has a slot on any shard, unless it is one that this token may take over.
    pub(super) fn check_occupants(
        &mut self,
        from: Address,
        client_id: u64,
        age: Age,
        token: &Digest,
        now: Instant,
    ) -> Result<Way, Discard> {
        let at_address = self.slots.at_address(&from);
        let of_client = self.slots.of_client(client_id);
        if let Some(slot) = at_address
            && of_client != Some(slot)
        {
            return Err(Discard::AddressConnected);
        }
        let Some(slot) = of_client else { return self.check_other_shards(client_id, age, token, now) };
        if self.may_take_over(slot, age, now) {
            return Ok(Way::TakesOver(slot));
        }
        Err(if at_address.is_some() { Discard::AddressConnected } else { Discard::ClientIdConnected })
    }

    fn check_other_shards(&mut self, client_id: u64, age: Age, token: &Digest, now: Instant) -> Result<Way, Discard> {
        let grace = self.config.takeover_after;
        let presence = self
            .common
            .with(Err(Discard::ClientIdConnected), |register| register.presence(client_id, age, token, grace, now));
        presence.map(|presence| match presence {
            Presence::Absent => Way::Free,
            Presence::Kept => Way::Kept,
            Presence::SilentElsewhere => Way::Elsewhere,
        })
    }

    /// A slot may be taken over by a newer token for its client id, after the configured silence.
    fn may_take_over(&mut self, slot: u32, age: Age, now: Instant) -> bool {
        let Some(grace) = self.config.takeover_after else { return false };
        let is_newer = self
            .slots
            .profile(slot)
            .and_then(|profile| profile.age)
            .is_some_and(|occupant| age.is_newer_than(occupant));
        let is_silent = self
            .slots
            .link(slot)
            .filter(|link| link.state == State::Connected)
            .is_some_and(|link| now.reached(link.last_receive.max(self.unread_at), grace));
        is_newer && is_silent
    }

    /// How long a client may be pending: a few seconds, or its token's time-out if that is shorter (§1.10).
    fn pending_lifetime(&self, timeout_seconds: i32) -> Duration {
        let timeout = self.config.timeouts.apply(timeout_seconds);
        timeout.map_or(self.config.pending_lifetime, |timeout| timeout.min(self.config.pending_lifetime))
    }
}

/// The earliest moment at which a token that lives no longer than `most` was minted.
fn earliest_mint(expires: UnixSeconds, most: Duration) -> UnixMillis {
    UnixMillis::from(UnixSeconds(expires.0.saturating_sub(most.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::key::{Key, Seed};
    use crate::server::Config;

    /// Both clocks, at `micros` of the wall clock, which is what their edge cuts to milliseconds.
    fn at(micros: u64) -> Now {
        Now { monotonic: Instant::from_start(Duration::from_micros(micros)), unix: UnixMillis(micros / 1000) }
    }

    #[test]
    fn clocks_that_go_alike_never_move_the_start_not_even_by_a_millisecond() {
        let advertised = core::net::SocketAddr::from(([192, 0, 2, 1], 40_000));
        let config = Config::new(1, 1, [advertised.into()].into());
        for start in (1_000_000..1_002_000).step_by(73) {
            let keys = Key::from_bytes([1; 32]).into();
            let server = Server::new(config.clone(), keys, &Seed::from_bytes([2; 32]), at(start)).unwrap();
            for later in (start..start + 3000).step_by(101) {
                assert_eq!(server.started(at(later)), at(start).unix, "{start} us, asked at {later} us");
            }
        }
    }
}
