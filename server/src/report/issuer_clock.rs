//! Finds an issuer's clock that differs from this server's, by the mint times of tokens that open.
//!
//! A token from the future proves a clock that is ahead: only the issuer writes mint times. Old tokens prove little, as
//! a client can present one late. But if none of several tokens is fresh, the issuer's clock is behind.

use std::time::Duration;

use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::handshake::OpenedToken;
use slipgate_netcode::time::{Instant, Now, UnixMillis};

/// How far a mint time may lie in the future, for clocks that are set by the network.
const MAX_AHEAD: Duration = Duration::from_secs(2);
/// The minimum age of all tokens at which the issuer's clock counts as behind. A client presents its token at once.
const MIN_BEHIND: Duration = Duration::from_secs(5);
/// The different tokens that are needed for that.
const MIN_TOKENS: usize = 3;
/// The time after which tokens are forgotten, and the comparison starts again.
const WINDOW: Duration = Duration::from_secs(60);

/// How the issuer's clock differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClockFault {
    /// The issuer's clock is ahead of this server's.
    Ahead(Duration),
    /// The issuer's clock is behind this server's.
    Behind(Duration),
}

/// The ages of the latest tokens.
pub(super) struct IssuerClock {
    until: Instant,
    /// Different tokens of this window: client id, and mint time or else expiry.
    tokens: Vec<(ClientId, u64)>,
    /// The age of the youngest token of this window.
    youngest: Duration,
}

impl IssuerClock {
    pub(super) fn new() -> Self {
        let tokens = Vec::with_capacity(MIN_TOKENS);
        Self { until: Instant::default(), tokens, youngest: Duration::MAX }
    }

    /// Records an opened token. Returns the difference that it proves.
    pub(super) fn observe(&mut self, token: &OpenedToken, now: Now) -> Option<ClockFault> {
        if now.monotonic >= self.until {
            self.until = now.monotonic.after(WINDOW);
            self.tokens.clear();
            self.youngest = Duration::MAX;
        }
        if let Some(ahead) = token.minted.map(|minted| between(now.unix, minted))
            && ahead > MAX_AHEAD
        {
            // Old tokens that a client presents beside it prove nothing.
            self.youngest = Duration::ZERO;
            return Some(ClockFault::Ahead(ahead));
        }
        // A token without a mint time was minted before its expiry.
        let oldest_mint = token.minted.unwrap_or_else(|| UnixMillis::from(token.expires));
        self.youngest = self.youngest.min(between(oldest_mint, now.unix));
        let name = (token.client_id, oldest_mint.0);
        if self.tokens.len() < MIN_TOKENS && !self.tokens.contains(&name) {
            self.tokens.push(name);
        }
        let is_behind = self.tokens.len() >= MIN_TOKENS && self.youngest >= MIN_BEHIND;
        is_behind.then_some(ClockFault::Behind(self.youngest))
    }
}

/// Returns the time from one moment to a later one, and zero if it is not later.
fn between(from: UnixMillis, to: UnixMillis) -> Duration {
    Duration::from_millis(to.0.saturating_sub(from.0))
}

#[cfg(test)]
mod tests {
    use slipgate_netcode::time::UnixSeconds;

    use super::*;

    fn now(second: u64) -> Now {
        Now { monotonic: Instant::from_start(Duration::from_secs(second)), unix: UnixMillis((1000 + second) * 1000) }
    }

    /// Returns a token of 30 s that was minted at this second of the server's clock.
    fn token(client_id: u64, minted: i64) -> OpenedToken {
        let minted = (1000 + minted) as u64;
        let (minted, expires) = (Some(UnixMillis(minted * 1000)), UnixSeconds(minted + 30));
        OpenedToken { client_id: ClientId(client_id), minted, expires }
    }

    #[test]
    fn clock_that_is_behind_shows_in_the_third_token() {
        let mut clock = IssuerClock::new();
        assert_eq!(clock.observe(&token(1, -120), now(0)), None);
        // A client repeats its request ten times a second.
        assert_eq!(clock.observe(&token(1, -120), now(1)), None);
        assert_eq!(clock.observe(&token(2, -118), now(2)), None);
        let behind = ClockFault::Behind(Duration::from_secs(120));
        assert_eq!(clock.observe(&token(1, -116), now(4)), Some(behind));
    }

    #[test]
    fn late_tokens_beside_a_fresh_one_are_no_clock_fault() {
        let mut clock = IssuerClock::new();
        assert_eq!(clock.observe(&token(1, 0), now(1)), None);
        for id in 2..100 {
            assert_eq!(clock.observe(&token(id, -40), now(2)), None);
        }
        // The fresh token is forgotten after a while.
        for id in 1..3 {
            assert_eq!(clock.observe(&token(id, -40), now(90)), None);
        }
        assert!(matches!(clock.observe(&token(3, -40), now(90)), Some(ClockFault::Behind(_))));
    }

    #[test]
    fn one_token_from_the_future_proves_a_clock_that_is_ahead() {
        let mut clock = IssuerClock::new();
        assert_eq!(clock.observe(&token(1, 2), now(0)), None, "clocks differ a little");
        let ahead = ClockFault::Ahead(Duration::from_secs(10));
        assert_eq!(clock.observe(&token(2, 11), now(1)), Some(ahead));
        for id in 10..15 {
            assert_eq!(clock.observe(&token(id, -60), now(2)), None, "old tokens do not show the opposite");
        }
    }

    #[test]
    fn tokens_without_a_mint_time_count_by_their_expiry() {
        let mut clock = IssuerClock::new();
        let foreign = |id, minted| OpenedToken { minted: None, ..token(id, minted) };
        assert_eq!([1, 2].map(|id| clock.observe(&foreign(id, -60), now(0))), [None; 2]);
        let behind = ClockFault::Behind(Duration::from_secs(30));
        assert_eq!(clock.observe(&foreign(3, -60), now(0)), Some(behind));
        let mut clock = IssuerClock::new();
        for id in 0..10 {
            assert_eq!(clock.observe(&foreign(id, -20), now(0)), None, "not expired, so it may be fresh");
        }
    }
}
