//! What goes into a frame that every client receives, as in lock-step games.
//!
//! An action of one client is sent to all, so a burst of one costs the uplink as often as there are clients. With limits
//! on what each client receives alone, one client's recovery starves everybody: Factorio's mega packet ("Factorio,
//! Friday Facts 302"). So the frame itself is limited to what the uplink carries to everybody in a tick, and sources are
//! admitted by turns, the oldest action of each first. An action is never lost, only delayed, and never overtakes another
//! of its source.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::BytesPerSecond;

/// The share of the uplink that frames may fill; the rest is for acknowledgements, joins and messages sent anew.
const FRAME_SHARE: f64 = 0.80;
/// Another client may join while the mean frame is at most this share of what would then be the limit.
const JOIN_SHARE: f64 = 0.60;

/// The most bytes of a frame that goes to so many clients each `tick`, in packets of all headers told.
#[must_use]
pub fn frame_limit(uplink: BytesPerSecond, clients: usize, tick: Duration) -> u64 {
    (FRAME_SHARE * uplink.0 * tick.as_secs_f64() / clients.max(1) as f64) as u64
}

/// Whether the uplink carries frames of this mean size to one client more than now.
#[must_use]
pub fn may_join(mean_frame: u64, uplink: BytesPerSecond, clients: usize, tick: Duration) -> bool {
    mean_frame as f64 <= JOIN_SHARE * frame_limit(uplink, clients + 1, tick) as f64
}

/// What a source put into the frame when it was its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Its oldest action, of so many bytes.
    Took(u32),
    /// Nothing: its oldest action, of so many bytes, needs more room than there is.
    TooLarge(u32),
    /// It has nothing any more.
    Empty,
}

/// Whose turn it is. A frame costs a step for each action in it, and asks for no memory.
#[derive(Clone, Debug)]
pub struct Admission {
    turns: VecDeque<usize>,
    waits: Vec<bool>,
}

impl Admission {
    /// For so many client slots.
    #[must_use]
    pub fn new(sources: usize) -> Self {
        Self { turns: VecDeque::with_capacity(sources), waits: alloc::vec![false; sources] }
    }

    /// A source has an action for the frame; to be told again as often as one likes.
    pub fn wait(&mut self, source: usize) {
        if let Some(waits) = self.waits.get_mut(source)
            && !*waits
        {
            *waits = true;
            self.turns.push_back(source);
        }
    }

    /// Fills a frame of at most `limit` bytes by turns: `take` moves a source's oldest action into the frame, if it fits
    /// into the room that is left. Answers the bytes of the frame.
    ///
    /// Whose action does not fit is the first in the next frame. An action larger than a whole frame is passed over until
    /// the limit is higher, and stops nobody.
    pub fn admit(&mut self, limit: u64, mut take: impl FnMut(usize, u64) -> Turn) -> u64 {
        let (mut room, mut passed_over) = (limit, 0);
        while passed_over < self.turns.len()
            && let Some(source) = self.turns.pop_front()
        {
            match take(source, room) {
                Turn::Took(bytes) => {
                    debug_assert!(u64::from(bytes) <= room, "source {source} took {bytes} of {room} bytes");
                    (room, passed_over) = (room.saturating_sub(bytes.into()), 0);
                    self.turns.push_back(source);
                }
                Turn::TooLarge(bytes) if u64::from(bytes) > limit => {
                    passed_over += 1;
                    self.turns.push_back(source);
                }
                Turn::TooLarge(_) => {
                    self.turns.push_front(source);
                    break;
                }
                Turn::Empty => {
                    if let Some(waits) = self.waits.get_mut(source) {
                        *waits = false;
                    }
                }
            }
        }
        limit - room
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    const TICK: Duration = Duration::from_micros(16_667);
    const ACTION: u32 = 8;

    /// A lock-step server: each client acts once a tick; actions wait here until a frame admits them.
    struct LockStep {
        admission: Admission,
        /// For each client, since which ticks its actions wait.
        waiting: Vec<VecDeque<u32>>,
        limit: u64,
        tick: u32,
        /// The longest that an action waited for its frame, for each client, in ticks.
        worst: Vec<u32>,
    }

    impl LockStep {
        /// The uplink carries `headroom` times what the clients need when nobody is late.
        fn new(clients: usize, headroom: f64) -> Self {
            let need = (clients * clients) as f64 * f64::from(ACTION) / TICK.as_secs_f64();
            Self {
                admission: Admission::new(clients),
                waiting: std::vec![VecDeque::new(); clients],
                limit: frame_limit(BytesPerSecond(headroom * need), clients, TICK),
                tick: 0,
                worst: std::vec![0; clients],
            }
        }

        fn act(&mut self, client: usize, actions: u32) {
            for _ in 0..actions {
                self.waiting[client].push_back(self.tick);
            }
            self.admission.wait(client);
        }

        fn frame(&mut self) -> u64 {
            let (waiting, worst, tick) = (&mut self.waiting, &mut self.worst, self.tick);
            let bytes = self.admission.admit(self.limit, |client, room| {
                if room < u64::from(ACTION) {
                    return Turn::TooLarge(ACTION);
                }
                let Some(since) = waiting[client].pop_front() else { return Turn::Empty };
                worst[client] = worst[client].max(tick - since);
                Turn::Took(ACTION)
            });
            self.tick += 1;
            bytes
        }

        fn backlog(&self) -> usize {
            self.waiting.iter().map(VecDeque::len).sum()
        }
    }

    #[test]
    fn a_recovering_client_delays_nobody_but_itself() {
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
    fn an_action_that_did_not_fit_is_the_first_of_the_next_frame() {
        let mut admission = Admission::new(2);
        admission.wait(0);
        admission.wait(1);
        let mut large = true;
        let mut frame = |admission: &mut Admission, small: u32| {
            let mut left = small;
            admission.admit(100, |source, room| match source {
                0 if left > 0 => {
                    left -= 1;
                    if room >= 20 { Turn::Took(20) } else { Turn::TooLarge(20) }
                }
                1 if large && room >= 90 => {
                    large = false;
                    Turn::Took(90)
                }
                1 if large => Turn::TooLarge(90),
                _ => Turn::Empty,
            })
        };
        assert_eq!(frame(&mut admission, 10), 20);
        assert_eq!(frame(&mut admission, 10), 90);
    }

    #[test]
    fn an_action_that_never_fits_stops_nobody() {
        let mut admission = Admission::new(2);
        admission.wait(0);
        admission.wait(1);
        let frame = |admission: &mut Admission| {
            let mut left = 3;
            admission.admit(100, |source, _| match source {
                0 => Turn::TooLarge(101),
                _ if left > 0 => {
                    left -= 1;
                    Turn::Took(10)
                }
                _ => Turn::Empty,
            })
        };
        for _ in 0..3 {
            admission.wait(1);
            assert_eq!(frame(&mut admission), 30);
        }
    }

    #[test]
    fn a_join_needs_room_to_spare() {
        let uplink = BytesPerSecond(1e6);
        let limit = frame_limit(uplink, 101, TICK);
        assert_eq!(limit, 132);
        assert!(may_join(79, uplink, 100, TICK) && !may_join(80, uplink, 100, TICK));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn random_outages_never_overload_the_uplink_and_always_drain(
            outages in prop::collection::vec((0..20_u32, 1..200_u32), 0..6),
        ) {
            // Client 0 has the first of them, and so on; the others are never out.
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
