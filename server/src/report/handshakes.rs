//! The lines of handshakes: each refused client with its reason, a full server, an issuer's clock that is wrong, and at
//! level DEBUG each step.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::NetcodeServer;
use slipgate_netcode::server::handshake::{HandshakeOutcome, HandshakeStep, OpenedToken};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use tracing::{debug, field, info, warn};

use super::issuer_clock::{ClockFault, IssuerClock};
use super::limit::{LineLimit, Repeated};
use crate::rounded::seconds;

/// The most lines of refused clients in a second. The others are summed up.
const MAX_REFUSALS_PER_SECOND: u32 = 10;
/// The most lines of steps in a second, at level DEBUG.
const MAX_STEPS_PER_SECOND: u32 = 50;
/// The time in which a client that repeats its request gets one line for one reason. A client tries for 5 s.
const SAME_REFUSAL: Duration = Duration::from_secs(10);
/// The most refusals that are remembered for that: all that had a line in this time.
const MAX_REMEMBERED: usize = MAX_REFUSALS_PER_SECOND as usize * (SAME_REFUSAL.as_secs() as usize + 1);
/// The interval of the warning of a full server.
const FULL_INTERVAL: Duration = Duration::from_secs(60);

/// The lines of handshakes.
pub(super) struct HandshakeLines {
    refusals: LineLimit,
    /// Refusals without a line, since the last sum.
    unlogged: u32,
    /// The latest refusals with a line.
    remembered: VecDeque<(ClientId, HandshakeOutcome, Instant)>,
    steps: LineLimit,
    clock: IssuerClock,
    warned_of_clock_ahead: Repeated,
    warned_of_clock_behind: Repeated,
    warned_of_lifetime: Repeated,
    warned_of_full: Repeated,
    last_opened: Option<Instant>,
    /// The last client id that had used its maximum of tokens.
    last_with_max_tokens: Option<ClientId>,
}

impl HandshakeLines {
    pub(super) fn new() -> Self {
        Self {
            refusals: LineLimit::new(MAX_REFUSALS_PER_SECOND),
            unlogged: 0,
            remembered: VecDeque::with_capacity(MAX_REMEMBERED),
            steps: LineLimit::new(MAX_STEPS_PER_SECOND),
            clock: IssuerClock::new(),
            warned_of_clock_ahead: Repeated::default(),
            warned_of_clock_behind: Repeated::default(),
            warned_of_lifetime: Repeated::default(),
            warned_of_full: Repeated::default(),
            last_opened: None,
            last_with_max_tokens: None,
        }
    }

    /// Returns when a token last opened with one of the server's keys.
    pub(super) const fn last_opened(&self) -> Option<Instant> {
        self.last_opened
    }

    /// Returns the last client id that was refused because it had used its maximum of tokens.
    pub(super) const fn last_with_max_tokens(&self) -> Option<ClientId> {
        self.last_with_max_tokens
    }

    /// Logs what an operator should know of the latest steps.
    pub(super) fn report(&mut self, server: &mut NetcodeServer, now: Now) {
        while let Some(step) = server.poll_handshake() {
            self.log_step(&step, now.monotonic);
            let HandshakeStep { address, token: Some(token), outcome } = step else { continue };
            self.last_opened = Some(now.monotonic);
            let fault = self.clock.observe(&token, now);
            self.warn_of_clock(fault, now.monotonic);
            match outcome {
                HandshakeOutcome::DeniedFull if self.warned_of_full.take_for(now.monotonic, FULL_INTERVAL) => {
                    warn!(slots = server.config().slots, "the server is full: further clients are denied");
                }
                HandshakeOutcome::Dropped(Discard::ClientIdTokens) => self.last_with_max_tokens = Some(token.client_id),
                HandshakeOutcome::Dropped(Discard::TokenLifetimeTooLong) if fault.is_none() => {
                    self.warn_of_lifetime(&token, server, now);
                }
                _ => {}
            }
            if let Some(reason) = refusal(outcome)
                && self.has_line(token.client_id, outcome, now.monotonic)
            {
                let takes_over = server.config().takeover_after.is_some();
                let waits = takes_over && outcome == HandshakeOutcome::Dropped(Discard::ClientIdConnected);
                log_refusal(address, &token, reason, waits, now.unix);
            }
        }
        self.sum_up(now.monotonic);
    }

    /// Logs a step at level DEBUG.
    fn log_step(&mut self, step: &HandshakeStep, now: Instant) {
        if !tracing::enabled!(tracing::Level::DEBUG) || !self.steps.take(now) {
            return;
        }
        let (address, client_id) = (step.address, step.token.map(|token| field::display(token.client_id)));
        match step.outcome {
            HandshakeOutcome::Challenged => {
                debug!(client_id, %address, "connection request accepted: a challenge is sent");
            }
            HandshakeOutcome::Connected => debug!(client_id, %address, "response accepted: the client gets a slot"),
            HandshakeOutcome::AwaitsHistory => {
                debug!(client_id, %address, "response accepted: the client waits for the history file");
            }
            HandshakeOutcome::Dropped(reason) => debug!(client_id, %address, %reason, "handshake packet dropped"),
            outcome => debug!(client_id, %address, reason = refusal(outcome).map(field::display), "client denied"),
        }
    }

    fn warn_of_clock(&mut self, fault: Option<ClockFault>, now: Instant) {
        match fault {
            Some(ClockFault::Ahead(by)) if self.warned_of_clock_ahead.take(now) => warn!(
                seconds = tenths(by),
                "the token issuer's clock is about {:.0} s ahead of this server's: a connect token was minted in the \
                 future. Set both clocks by the network (NTP)",
                by.as_secs_f64()
            ),
            Some(ClockFault::Behind(by)) if self.warned_of_clock_behind.take(now) => warn!(
                seconds = tenths(by),
                "the token issuer's clock is about {:.0} s behind this server's: the youngest of several connect \
                 tokens is that old. Set both clocks by the network (NTP); or the clients present their tokens late",
                by.as_secs_f64()
            ),
            _ => {}
        }
    }

    fn warn_of_lifetime(&mut self, token: &OpenedToken, server: &NetcodeServer, now: Now) {
        if !self.warned_of_lifetime.take(now.monotonic) {
            return;
        }
        warn!(
            lifetime_left_seconds = signed_seconds(token.expires.into(), now.unix),
            max_token_lifetime_seconds = server.config().max_token_lifetime.map(seconds),
            "a valid connect token was refused because it lives too long (token_lifetime_too_long): the issuer allows \
             longer lifetimes than this server, or its clock is ahead"
        );
    }

    /// Returns whether a refusal gets a line of its own.
    fn has_line(&mut self, client_id: ClientId, outcome: HandshakeOutcome, now: Instant) -> bool {
        while self.remembered.front().is_some_and(|(_, _, since)| now.reached(*since, SAME_REFUSAL)) {
            self.remembered.pop_front();
        }
        if self.remembered.iter().any(|(id, earlier, _)| (*id, *earlier) == (client_id, outcome)) {
            return false;
        }
        if !self.refusals.take(now) || self.remembered.len() >= MAX_REMEMBERED {
            self.unlogged += 1;
            return false;
        }
        self.remembered.push_back((client_id, outcome, now));
        true
    }

    fn sum_up(&mut self, now: Instant) {
        if self.refusals.is_over(now) {
            self.flush();
        }
    }

    /// Logs the sum of the refusals that got no line yet, at the end of the server.
    pub(super) fn flush(&mut self) {
        let refusals = std::mem::take(&mut self.unlogged);
        if refusals > 0 {
            info!(refusals, "further clients were refused within a second");
        }
    }
}

/// Returns the reason of an outcome that keeps a client out, as a stable word.
fn refusal(outcome: HandshakeOutcome) -> Option<&'static str> {
    match outcome {
        HandshakeOutcome::Dropped(reason) => Some(reason.name()),
        HandshakeOutcome::DeniedFull => Some("server_full"),
        HandshakeOutcome::DeniedClosed => Some("accepts_no_clients"),
        _ => None,
    }
}

/// Logs a refused client, or one that waits: it gets in when its predecessor has been silent for long enough.
fn log_refusal(address: Address, token: &OpenedToken, reason: &str, waits: bool, now: UnixMillis) {
    let message = if waits { "client waits" } else { "client refused" };
    info!(
        client_id = %token.client_id,
        %address,
        %reason,
        minted_seconds_ago = token.minted.map(|minted| -signed_seconds(minted, now)),
        expires_in_seconds = signed_seconds(token.expires.into(), now),
        "{message}"
    );
}

/// Returns the seconds from `now` to a moment, negative for the past, rounded to tenths.
fn signed_seconds(moment: UnixMillis, now: UnixMillis) -> f64 {
    (moment.0 as f64 - now.0 as f64).clamp(-1e12, 1e12).div_euclid(100.0) / 10.0
}

fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    const EXPIRED: HandshakeOutcome = HandshakeOutcome::Dropped(Discard::TokenExpired);

    #[test]
    fn refused_client_has_one_line_for_each_reason_in_ten_seconds() {
        let mut lines = HandshakeLines::new();
        let ten_times_a_second = (0..200).map(|number| number * 100);
        let with_line: Vec<_> =
            ten_times_a_second.filter(|millis| lines.has_line(ClientId(42), EXPIRED, at(*millis))).collect();
        assert_eq!(with_line, [0, 10_000]);
        assert!(lines.has_line(ClientId(42), HandshakeOutcome::DeniedFull, at(20_000)));
        assert!(lines.has_line(ClientId(43), HandshakeOutcome::DeniedFull, at(20_000)));
    }

    #[test]
    fn refusals_are_summed_above_ten_a_second() {
        let mut lines = HandshakeLines::new();
        let with_line = (0..5000).filter(|id| lines.has_line(ClientId(*id), EXPIRED, at(id / 5))).count();
        assert_eq!((with_line, lines.unlogged), (MAX_REFUSALS_PER_SECOND as usize, 4990));
        lines.sum_up(at(1000));
        assert_eq!(lines.unlogged, 0);
        for id in 0..100_000 {
            lines.has_line(ClientId(id), EXPIRED, at(2000 + id));
        }
        assert!(lines.remembered.len() <= MAX_REMEMBERED);
    }

    #[test]
    fn ten_clients_a_second_have_a_line_each() {
        let mut lines = HandshakeLines::new();
        // Five others repeat their requests all the time.
        let mut with_line = 0;
        for second in 0..20 {
            let repeated = (0..5).filter(|id| lines.has_line(ClientId(1000 + id), EXPIRED, at(second * 1000))).count();
            let new = (0..5).filter(|id| lines.has_line(ClientId(second * 5 + id), EXPIRED, at(second * 1000 + 1)));
            with_line += new.count();
            assert_eq!(repeated, if second % 10 == 0 { 5 } else { 0 }, "second {second}");
        }
        assert_eq!((with_line, lines.unlogged), (100, 0));
    }
}
