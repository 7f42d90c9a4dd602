//! Which tokens of refused requests are opened for the log alone, so that it can name the client.
//!
//! Strangers can send requests that look like those of players until their token is opened. So the first ones to arrive
//! must not get all opens: in a flood each request has the same chance, and a source of forgeries gets few opens.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use core::time::Duration;

use crate::address::Address;
use crate::crypto::key::Seed;
use crate::crypto::keyed::HashKey;
use crate::time::Instant;
use crate::token::history::TokenTag;

/// The interval in which requests are counted.
const WINDOW: Duration = Duration::from_millis(100);
/// The number of requests that are chosen on average in a window with more of them.
const CHOSEN_PER_WINDOW: u64 = 20;
/// The most tokens that are opened in a window.
const MAX_PER_WINDOW: u32 = 40;
/// The time in which a token is opened once, and in which the failed opens of a source count.
const SECOND: Duration = Duration::from_secs(1);
/// The most opened tokens that are remembered.
const MAX_RECENT: usize = 32;
/// The most failed opens of a source in a second.
const MAX_FAILED: u8 = 4;
/// The number of entries for sources. A keyed hash maps each source to one, so an attacker cannot aim at another
/// source's entry. They have room for more failures than all windows of a second, so no flood fills all of them.
const SOURCES: usize = 256;

/// The failed opens of a source.
#[derive(Clone, Copy, Default)]
struct FailedOpens {
    since: Instant,
    count: u8,
}

/// The budget of opens for the log alone. The budgets of players are not used for it.
pub(super) struct LogOpens {
    window_end: Instant,
    /// The requests in the present window, and in the one before.
    requests: u32,
    requests_before: u32,
    opened: u32,
    /// The number of the request, so that a repeated one is drawn again.
    number: u64,
    sources: Box<[FailedOpens]>,
    recent: VecDeque<(TokenTag, Instant)>,
    hash: HashKey,
}

impl LogOpens {
    pub(super) fn new(seed: &Seed) -> Self {
        Self {
            window_end: Instant::default(),
            requests: 0,
            requests_before: 0,
            opened: 0,
            number: 0,
            sources: vec![FailedOpens::default(); SOURCES].into_boxed_slice(),
            recent: VecDeque::with_capacity(MAX_RECENT),
            hash: HashKey::derive(seed, "opens for the log"),
        }
    }

    /// Returns whether the token of a refused request may be opened now, and counts it.
    pub(super) fn may_open(&mut self, from: Address, tag: &TokenTag, now: Instant) -> bool {
        let is_recent = self.recent.iter().any(|(opened, at)| opened == tag && !now.reached(*at, SECOND));
        let source = self.source(from);
        let has_failed = source.is_some_and(|source| source.count >= MAX_FAILED && !now.reached(source.since, SECOND));
        if is_recent || has_failed {
            return false;
        }
        if now >= self.window_end {
            let follows = !now.reached(self.window_end, WINDOW);
            self.requests_before = if follows { self.requests } else { 0 };
            (self.requests, self.opened, self.window_end) = (0, 0, now.after(WINDOW));
        }
        self.requests = self.requests.saturating_add(1);
        self.number = self.number.wrapping_add(1);
        let draw = self.hash.hash(&(*tag, self.number)) % u64::from(self.requests_before.max(1));
        let may = draw < CHOSEN_PER_WINDOW && self.opened < MAX_PER_WINDOW;
        self.opened += u32::from(may);
        may
    }

    /// Records that a token was opened.
    pub(super) fn on_opened(&mut self, tag: TokenTag, now: Instant) {
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((tag, now));
    }

    /// Records that the token of a request from this address did not open.
    pub(super) fn on_failed(&mut self, from: Address, now: Instant) {
        let Some(source) = self.source(from) else { return };
        if now.reached(source.since, SECOND) {
            *source = FailedOpens { since: now, count: 0 };
        }
        source.count = source.count.saturating_add(1);
    }

    fn source(&mut self, from: Address) -> Option<&mut FailedOpens> {
        let index = self.hash.hash(&from.network()) as usize % SOURCES;
        self.sources.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opens() -> LogOpens {
        LogOpens::new(&Seed::from([7; 32]))
    }

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    fn source(number: u32) -> Address {
        core::net::SocketAddr::from((core::net::Ipv4Addr::from_bits(0x0a00_0000 + number), 1000)).into()
    }

    fn tag(number: u32) -> TokenTag {
        let mut tag = [0; 16];
        tag[..4].copy_from_slice(&number.to_le_bytes());
        TokenTag(tag)
    }

    #[test]
    fn opens_for_the_log_are_limited_in_each_window() {
        let mut opens = opens();
        for window in 0..20 {
            let first = 10_000 * window;
            let opened = (first..first + 10_000)
                .filter(|number| opens.may_open(source(*number), &tag(*number), at(u64::from(100 * window))))
                .count();
            let expected = if window == 0 { 40..=40 } else { 5..=40 };
            assert!(expected.contains(&opened), "{opened} in window {window}");
        }
    }

    #[test]
    fn twenty_of_twenty_one_requests_are_opened_on_average() {
        let mut opens = opens();
        let opened = (0..50 * 21)
            .filter(|number| opens.may_open(source(*number), &tag(*number), at(u64::from(100 * (number / 21)))))
            .count();
        assert!((980..=1020).contains(&opened), "{opened} of 1050");
    }

    #[test]
    fn the_latest_32_opened_tokens_are_remembered() {
        let mut opens = opens();
        (0..40).for_each(|number| opens.on_opened(tag(number), at(0)));
        let refused: vec::Vec<_> = (0..40).filter(|number| !opens.may_open(source(1), &tag(*number), at(1))).collect();
        assert_eq!(refused, (8..40).collect::<vec::Vec<_>>());
    }

    #[test]
    fn one_token_is_opened_once_in_a_second() {
        let mut opens = opens();
        let opened: vec::Vec<_> = (0..30)
            .map(|number| 100 * number)
            .filter(|millis| {
                let may = opens.may_open(source(1), &tag(1), at(*millis));
                if may {
                    opens.on_opened(tag(1), at(*millis));
                }
                may
            })
            .collect();
        assert_eq!(opened, [0, 1000, 2000]);
        assert!((2..1000).all(|number| {
            opens.on_opened(tag(number), at(3000));
            opens.recent.len() <= MAX_RECENT
        }));
    }

    #[test]
    fn one_source_has_four_failed_opens_in_a_second() {
        let mut opens = opens();
        let failed = (0..3000)
            .filter(|millis| {
                let may = opens.may_open(source(1), &tag(*millis), at(u64::from(*millis)));
                if may {
                    opens.on_failed(source(1), at(u64::from(*millis)));
                }
                may
            })
            .count();
        assert_eq!(failed, 12);
        assert!(opens.may_open(source(2), &tag(5000), at(2999)), "another source");
    }
}
