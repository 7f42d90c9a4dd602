//! The actions of a frame that every client receives, as in lock-step games.
//!
//! The action of one client is sent to all, so its burst costs the uplink once per client. A limit per client alone
//! would let one client's recovery starve all others: Factorio's mega packet ("Factorio, Friday Facts 302"). The
//! limit here applies to the frame: what the uplink carries to every client in a tick. Sources enter it in turn, each
//! with its oldest action first. An action is delayed, but never lost or reordered within its source.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use crate::congestion::BytesPerSecond;

/// The share of the uplink that frames may fill; the rest is for acknowledgements, joins and retransmissions.
const FRAME_SHARE: f64 = 0.80;
/// Another client may join while the mean frame is at most this share of the limit with that client.
const JOIN_SHARE: f64 = 0.60;

/// Returns the maximum bytes of a frame that is sent to `clients` clients each `tick`, all headers included.
#[must_use]
pub fn frame_limit(uplink: BytesPerSecond, clients: usize, tick: Duration) -> u64 {
    (FRAME_SHARE * uplink.0 * tick.as_secs_f64() / clients.max(1) as f64) as u64
}

/// Returns whether the uplink carries frames of this mean size to one more client.
#[must_use]
pub fn can_join(mean_frame: u64, uplink: BytesPerSecond, clients: usize, tick: Duration) -> bool {
    mean_frame as f64 <= JOIN_SHARE * frame_limit(uplink, clients + 1, tick) as f64
}

/// The result of a source's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameTurn {
    /// Its oldest action, of this many bytes, is in the frame.
    Took(u32),
    /// Its oldest action, of this many bytes, does not fit.
    TooLarge(u32),
    /// It has no action left.
    Empty,
}

/// The order of the sources of a frame. A frame costs a step per action, and allocates nothing.
#[derive(Clone, Debug)]
pub struct JoinLimit {
    turns: VecDeque<usize>,
    is_waiting: Vec<bool>,
}

impl JoinLimit {
    /// Creates the order for `sources` client slots.
    #[must_use]
    pub fn new(sources: usize) -> Self {
        Self { turns: VecDeque::with_capacity(sources), is_waiting: alloc::vec![false; sources] }
    }

    /// Records that a source has an action; repeated calls are allowed.
    pub fn add_source(&mut self, source: usize) {
        if let Some(is_waiting) = self.is_waiting.get_mut(source)
            && !*is_waiting
        {
            *is_waiting = true;
            self.turns.push_back(source);
        }
    }

    /// Fills a frame of at most `limit` bytes. `take_action` moves the oldest action of a source into the frame if it
    /// fits into the remaining bytes. Returns the bytes of the frame.
    ///
    /// If an action does not fit, its source is the first of the next frame. An action larger than a whole frame is
    /// skipped until the limit is higher.
    pub fn fill_frame(&mut self, limit: u64, mut take_action: impl FnMut(usize, u64) -> FrameTurn) -> u64 {
        let (mut remaining, mut skipped) = (limit, 0);
        // Stop once every waiting source was skipped in a row.
        while skipped < self.turns.len()
            && let Some(source) = self.turns.pop_front()
        {
            match take_action(source, remaining) {
                FrameTurn::Took(bytes) => {
                    debug_assert!(u64::from(bytes) <= remaining, "source {source} took {bytes} of {remaining} bytes");
                    (remaining, skipped) = (remaining.saturating_sub(bytes.into()), 0);
                    self.turns.push_back(source);
                }
                // It does not fit into any frame of this limit: let the others go first.
                FrameTurn::TooLarge(bytes) if u64::from(bytes) > limit => {
                    skipped += 1;
                    self.turns.push_back(source);
                }
                // It fits into an empty frame, so it is the first of the next one.
                FrameTurn::TooLarge(_) => {
                    self.turns.push_front(source);
                    break;
                }
                FrameTurn::Empty => {
                    if let Some(is_waiting) = self.is_waiting.get_mut(source) {
                        *is_waiting = false;
                    }
                }
            }
        }
        limit - remaining
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    const TICK: Duration = Duration::from_micros(16_667);
    const ACTION: u32 = 8;

    /// A lock-step server: each client acts once a tick; actions wait here until a frame takes them.
    struct LockStep {
        join_limit: JoinLimit,
        /// The ticks since which the actions of each client wait.
        waiting: Vec<VecDeque<u32>>,
        limit: u64,
        tick: u32,
        /// The longest that an action waited for its frame, for each client, in ticks.
        worst: Vec<u32>,
    }

    impl LockStep {
        /// The uplink carries `headroom` times what the clients need when none is late.
        fn new(clients: usize, headroom: f64) -> Self {
            let take_request = (clients * clients) as f64 * f64::from(ACTION) / TICK.as_secs_f64();
            Self {
                join_limit: JoinLimit::new(clients),
                waiting: std::vec![VecDeque::new(); clients],
                limit: frame_limit(BytesPerSecond(headroom * take_request), clients, TICK),
                tick: 0,
                worst: std::vec![0; clients],
            }
        }

        fn act(&mut self, client: usize, actions: u32) {
            for _ in 0..actions {
                self.waiting[client].push_back(self.tick);
            }
            self.join_limit.add_source(client);
        }

        fn frame(&mut self) -> u64 {
            let (waiting, worst, tick) = (&mut self.waiting, &mut self.worst, self.tick);
            let bytes = self.join_limit.fill_frame(self.limit, |client, room| {
                if room < u64::from(ACTION) {
                    return FrameTurn::TooLarge(ACTION);
                }
                let Some(since) = waiting[client].pop_front() else { return FrameTurn::Empty };
                worst[client] = worst[client].max(tick - since);
                FrameTurn::Took(ACTION)
            });
            self.tick += 1;
            bytes
        }

        fn backlog(&self) -> usize {
            self.waiting.iter().map(VecDeque::len).sum()
        }
    }

    #[test]
    fn recovering_client_delays_only_itself() {
        for (clients, recovering) in [(200, 1), (200, 5), (1000, 20)] {
            let mut server = LockStep::new(clients, 1.5);
            for client in 0..recovering {
                server.act(client, 400);
            }
            let mut backlog = usize::MAX;
            for tick in 0..1000 {
                (0..clients).for_each(|client| server.act(client, 1));
                assert!(server.frame() <= server.limit, "tick {tick}");
                assert!(server.backlog() < backlog || server.backlog() == 0, "tick {tick}: {}", server.backlog());
                backlog = server.backlog();
            }
            assert_eq!(server.backlog(), 0, "of {clients} clients");
            assert_eq!(server.worst[recovering..].iter().max(), Some(&0), "of {clients} clients");
        }
    }

    #[test]
    fn unfitting_action_is_first_of_the_next_frame() {
        let mut join_limit = JoinLimit::new(2);
        join_limit.add_source(0);
        join_limit.add_source(1);
        let mut large = true;
        let mut frame = |join_limit: &mut JoinLimit, small: u32| {
            let mut left = small;
            join_limit.fill_frame(100, |source, room| match source {
                0 if left > 0 => {
                    left -= 1;
                    if room >= 20 { FrameTurn::Took(20) } else { FrameTurn::TooLarge(20) }
                }
                1 if large && room >= 90 => {
                    large = false;
                    FrameTurn::Took(90)
                }
                1 if large => FrameTurn::TooLarge(90),
                _ => FrameTurn::Empty,
            })
        };
        assert_eq!(frame(&mut join_limit, 10), 20);
        assert_eq!(frame(&mut join_limit, 10), 90);
    }

    #[test]
    fn oversized_action_stops_no_other_source() {
        let mut join_limit = JoinLimit::new(2);
        join_limit.add_source(0);
        join_limit.add_source(1);
        let frame = |join_limit: &mut JoinLimit| {
            let mut left = 3;
            join_limit.fill_frame(100, |source, _| match source {
                0 => FrameTurn::TooLarge(101),
                _ if left > 0 => {
                    left -= 1;
                    FrameTurn::Took(10)
                }
                _ => FrameTurn::Empty,
            })
        };
        for _ in 0..3 {
            join_limit.add_source(1);
            assert_eq!(frame(&mut join_limit), 30);
        }
    }

    #[test]
    fn join_needs_spare_bandwidth() {
        let uplink = BytesPerSecond(1e6);
        let limit = frame_limit(uplink, 101, TICK);
        assert_eq!(limit, 132);
        assert!(can_join(79, uplink, 100, TICK) && !can_join(80, uplink, 100, TICK));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn random_outages_never_overload_the_uplink(
            outages in prop::collection::vec((0..20_u32, 1..200_u32), 0..6),
        ) {
            // Client 0 has the first of them, and so on; the other clients are never out.
            let mut server = LockStep::new(20, 1.5);
            let mut missed = [0; 20];
            for tick in 0..1000 {
                for (client, missed) in missed.iter_mut().enumerate() {
                    let is_out = outages.get(client).is_some_and(|(from, long)| (*from..from + long).contains(&tick));
                    *missed += 1;
                    if !is_out {
                        server.act(client, core::mem::take(missed));
                    }
                }
                prop_assert!(server.frame() <= server.limit);
                prop_assert_eq!(server.worst[outages.len()..].iter().max(), Some(&0), "in tick {}", tick);
            }
            prop_assert_eq!(server.backlog(), 0);
        }
    }
}
