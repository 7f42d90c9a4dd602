//! Warnings of mistakes that strangers can imitate: another private key, another protocol id.
//!
//! A single forged datagram must not use up such a warning: it needs [`MIN_DROPS`] drops within [`WINDOW`], which one
//! misconfigured client causes, and it is given again after some minutes. A flood of forgeries can cause it falsely, so
//! the warning that no token opens is given again after one minute: forgeries hide a real mistake for no longer.

use std::time::Duration;

use slipgate_netcode::discard::{Discard, Discards};
use slipgate_netcode::time::Instant;
use tracing::warn;

use super::limit::{REPEAT_INTERVAL, Repeated};

/// The drops within [`WINDOW`] that cause a warning: a client repeats its request ten times a second.
const MIN_DROPS: u64 = 10;
/// The time in which drops are counted together.
const WINDOW: Duration = Duration::from_secs(10);
/// The time without an opened token after which the keys count as different.
const OPENED_LATELY: Duration = Duration::from_secs(60);
/// The interval of the warning that no token opens. Ten forged requests cause it on a server that no player joins, so a
/// longer one would let forgeries silence it when the keys do differ. The summary has the same interval.
const OTHER_KEY_INTERVAL: Duration = Duration::from_secs(60);

/// A likely mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Suspicion {
    /// No token opens with the server's keys.
    OtherKey,
    /// Some tokens open and others do not.
    SomeForged,
    /// Requests have another protocol id than the server.
    OtherProtocol,
}

/// The warnings of a server.
#[derive(Default)]
pub(super) struct StrangerWarnings {
    window_end: Instant,
    /// The counts before the window.
    not_authentic: u64,
    other_protocol: u64,
    /// The counts of the last report.
    last: (u64, u64),
    warned_of_key: Repeated,
    warned_of_forged: Repeated,
    warned_of_protocol: Repeated,
}

impl StrangerWarnings {
    /// Logs the warnings that are due. `last_opened` is when a token last opened.
    pub(super) fn report(&mut self, discards: &Discards, last_opened: Option<Instant>, now: Instant) {
        for suspicion in self.due(discards, last_opened, now).into_iter().flatten() {
            match suspicion {
                Suspicion::OtherKey => warn!(
                    "connect tokens do not open with any of this server's private keys, and none has opened lately \
                     (token_not_authentic): the token issuer may have another key, or they are forged and no player \
                     has joined in the last minute"
                ),
                Suspicion::SomeForged => warn!(
                    "some connect tokens do not open with any of this server's private keys, while others do \
                     (token_not_authentic): they may be forged, or one of several issuers has another key, or the \
                     issuer since lately: compare their keys (`slipgate keys list FILE`)"
                ),
                Suspicion::OtherProtocol => warn!(
                    "connection requests for another protocol id were dropped (request_protocol, or \
                     dropped_by_system when the kernel filter drops them first): the token issuer may have another \
                     protocol id"
                ),
            }
        }
    }

    /// Forgets the warnings of keys, because the keys were replaced.
    pub(super) fn on_new_keys(&mut self) {
        (self.warned_of_key, self.warned_of_forged) = (Repeated::default(), Repeated::default());
        self.window_end = Instant::default();
    }

    /// Returns whether the present window has enough requests for another protocol id for the warning.
    pub(super) const fn has_other_protocol(&self) -> bool {
        self.last.1 - self.other_protocol >= MIN_DROPS
    }

    fn due(&mut self, discards: &Discards, last_opened: Option<Instant>, now: Instant) -> [Option<Suspicion>; 2] {
        let (not_authentic, other) = (discards[Discard::TokenNotAuthentic], discards[Discard::RequestProtocol]);
        if now >= self.window_end {
            self.window_end = now.after(WINDOW);
            // The drops of the turn that begins the window are a part of it.
            (self.not_authentic, self.other_protocol) = self.last;
        }
        self.last = (not_authentic, other);
        let opens_lately = last_opened.is_some_and(|last| !now.reached(last, OPENED_LATELY));
        let (suspicion, warned, interval) = if opens_lately {
            (Suspicion::SomeForged, &mut self.warned_of_forged, REPEAT_INTERVAL)
        } else {
            (Suspicion::OtherKey, &mut self.warned_of_key, OTHER_KEY_INTERVAL)
        };
        let has_many = not_authentic - self.not_authentic >= MIN_DROPS;
        let key = (has_many && warned.take_for(now, interval)).then_some(suspicion);
        let protocol =
            (self.has_other_protocol() && self.warned_of_protocol.take(now)).then_some(Suspicion::OtherProtocol);
        [key, protocol]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that is warned of in virtual time.
    #[derive(Default)]
    struct World {
        warnings: StrangerWarnings,
        discards: Discards,
        last_opened: Option<Instant>,
    }

    impl World {
        /// Lets `count` datagrams be dropped at this second, and returns the warnings.
        fn drop_at(&mut self, second: u64, count: u32, reason: Discard) -> Vec<Suspicion> {
            let now = Instant::from_start(Duration::from_secs(second));
            // The turn before, without them.
            let earlier = self.warnings.due(&self.discards, self.last_opened, now);
            (0..count).for_each(|_| self.discards += reason);
            let due = self.warnings.due(&self.discards, self.last_opened, now);
            earlier.into_iter().chain(due).flatten().collect()
        }
    }

    #[test]
    fn one_forged_datagram_does_not_spend_the_warning() {
        let mut world = World::default();
        for minute in 0..10 {
            assert_eq!(world.drop_at(60 * minute, 1, Discard::TokenNotAuthentic), []);
            assert_eq!(world.drop_at(60 * minute, 1, Discard::RequestProtocol), []);
        }
        assert_eq!(world.drop_at(601, 20, Discard::TokenNotAuthentic), [Suspicion::OtherKey]);
        assert_eq!(world.drop_at(602, 20, Discard::RequestProtocol), [Suspicion::OtherProtocol]);
    }

    #[test]
    fn forgeries_beside_players_leave_the_warning_of_other_keys() {
        let mut world = World { last_opened: Some(Instant::from_start(Duration::from_secs(1))), ..World::default() };
        assert_eq!(world.drop_at(2, 1000, Discard::TokenNotAuthentic), [Suspicion::SomeForged]);
        // From now on no token opens: the issuer has got another key.
        assert_eq!(world.drop_at(70, 20, Discard::TokenNotAuthentic), [Suspicion::OtherKey]);
    }

    /// Ten forged requests cause the warning on a server that no player joins. A change of the issuer's key is reported
    /// within a minute nevertheless. Beside players the other warning is given once in this time.
    #[test]
    fn forgeries_on_a_quiet_server_hide_no_key_for_long() {
        for forged_at in 0..60 {
            let mut world = World::default();
            assert_eq!(world.drop_at(forged_at, 10, Discard::TokenNotAuthentic), [Suspicion::OtherKey]);
            // From second 60 on a client with a token of another key sends ten requests a second.
            let mut is_warned_at = |second| !world.drop_at(second, 10, Discard::TokenNotAuthentic).is_empty();
            let warned = (60..200).find(|second| is_warned_at(*second));
            assert!(warned.is_some_and(|second| second <= 120), "forged at {forged_at}: {warned:?}");
        }
        let last_opened = Some(Instant::from_start(Duration::from_secs(599)));
        let mut world = World { last_opened, ..World::default() };
        let warned: Vec<_> =
            (600..=658).filter(|second| !world.drop_at(*second, 20, Discard::TokenNotAuthentic).is_empty()).collect();
        assert_eq!(warned, [600]);
    }

    #[test]
    fn warnings_are_given_again_after_minutes_and_after_new_keys() {
        let mut world = World::default();
        let warned: Vec<_> =
            (0..=600).filter(|second| !world.drop_at(*second, 20, Discard::TokenNotAuthentic).is_empty()).collect();
        assert_eq!(warned, (0..=10).map(|minute| 60 * minute).collect::<Vec<_>>());
        world.warnings.on_new_keys();
        assert_eq!(world.drop_at(610, 20, Discard::TokenNotAuthentic), [Suspicion::OtherKey]);
    }
}
