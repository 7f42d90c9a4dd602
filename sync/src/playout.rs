//! The timeline of a client: how far behind the newest state it plays, so that the next one is there in time (§6.6).

use core::time::Duration;

use crate::arrivals::StateArrivals;
use crate::header::StateHeader;
use crate::pose::TickRate;

/// The delay at the first state, in hundredths of the time between two states: it covers two losses in a row before any
/// loss is known.
const START_INTERVALS: i64 = 320;
/// The time since the newest arrival after which the next state is overdue, in hundredths of the time between two
/// states. The timeline then runs as slowly as it may, so that it starves later.
const OVERDUE_INTERVALS: i64 = 102;
/// How far behind its target the timeline may get while states are overdue, in hundredths of the time between two
/// states. On a path with much jitter or loss states are overdue most of the time: the delay would grow without end.
const MAX_RESERVE_INTERVALS: i64 = 100;
/// The most that the timeline deviates from the speed of time, in thousandths.
const MAX_DILATION_PER_MILLE: i64 = 50;
/// The times in which a deviation is corrected, as far as the limit allows: the timeline is quick to slow down, so that
/// it follows a delay that grows, and takes its time to speed up.
const SLOW_DOWN_TIME: i64 = 50_000;
const SPEED_UP_TIME: i64 = 1_000_000;
/// The deviation above which the timeline jumps.
const MAX_DEVIATION: i64 = 500_000;
/// A longer pause of arrivals counts as an outage if it also has more than this many intervals between two states: it
/// says nothing of the next ones.
const OUTAGE: i64 = 500_000;
const INTERVALS_OF_OUTAGE: i64 = 4;
/// A state that is quicker than all of the window by this time contradicts their schedule: a clock lost time.
const QUICKER: i64 = 250_000;
/// The states in a row, and their time, that show that there is a new schedule.
const STATES_OF_SCHEDULE: usize = 4;
const TIME_OF_SCHEDULE: i64 = 200_000;
/// The deviation from a new schedule above which the timeline jumps; 5 % correct a smaller one in 2 s.
const MAX_NEW_DEVIATION: i64 = 100_000;

/// States in a row that contradict the schedule in one direction.
#[derive(Clone, Copy, Debug)]
struct Contradiction {
    /// Whether they came too late to be shown, rather than much too early.
    is_late: bool,
    since: i64,
    states: usize,
}

/// The position of a client in the server's time. All times are since one moment that the game chooses.
///
/// The timeline runs at 95 to 105 % of real time. It jumps only at the first state, beyond 500 ms, and to a new
/// schedule: the server or the client lost time, or the path is another one. That is known after 200 ms in which all
/// states came too late to be shown, or more than 250 ms quicker than before.
///
/// It starts 3.2 intervals between states behind the first one, so that two lost states in a row leave no gap. It is
/// less than that, and at least 1.2 intervals, once the path has shown that it loses little: after 77 states without a
/// loss one lost state still leaves no gap, and after 250 the delay is the least one.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use slipgate_sync::{PlayoutClock, StateHeader, TickRate};
///
/// let mut clock = PlayoutClock::new(TickRate { per_second: 60, between_states: 3 });
/// let mut now = Duration::ZERO;
/// for state in 1..=300_u32 {
///     now = Duration::from_millis(50) * state + Duration::from_millis(80);
///     clock.on_message(StateHeader { tick: 3 * state, report: None, is_first: true }, now);
///     clock.advance(now);
/// }
/// // 1.2 times the interval of 50 ms: the longer delay of the first seconds is over.
/// assert!(clock.delay() >= Duration::from_millis(60) && clock.delay() <= Duration::from_millis(70));
/// assert!(clock.tick().is_some_and(|tick| tick > 894.0 && tick < 900.0));
/// ```
#[derive(Debug)]
pub struct PlayoutClock {
    rate: TickRate,
    arrivals: StateArrivals,
    newest: Option<(u32, i64)>,
    /// Which of the 64 ticks before the newest one had a state that arrived: the lowest bit is the tick before it.
    seen: u64,
    /// How far the timeline shall be behind the clock, in microseconds; the server's time has another origin.
    target: i64,
    /// The least delay in the window: of the quickest schedule.
    quickest: i64,
    /// The position in the server's time, and when it was there.
    position: Option<(i64, i64)>,
    contradiction: Option<Contradiction>,
    /// Whether a new schedule started since the last [`advance`](Self::advance).
    has_new_schedule: bool,
    /// Whether states arrive that waited during an outage of this client.
    is_after_outage: bool,
    jumps: u32,
}

impl PlayoutClock {
    /// Returns a clock without a position.
    #[must_use]
    pub fn new(rate: TickRate) -> Self {
        Self {
            rate,
            arrivals: StateArrivals::new(),
            newest: None,
            seen: 0,
            target: 0,
            quickest: 0,
            position: None,
            contradiction: None,
            has_new_schedule: false,
            is_after_outage: false,
            jumps: 0,
        }
    }

    /// Notes that a message with this header arrived at `now`: `times.arrived` of the client's `Event::Message`, the
    /// earliest moment at which it may have arrived. With the time of reading, a hitch of the game looks like jitter of
    /// the path, and the delay is longer for the next minute.
    ///
    /// A state counts as arrived with its first message, so that states get lost as often as messages do, however many
    /// a state has. The others of the newest state say how much later they come. Messages of older states are ignored,
    /// and so is a first message that comes twice.
    pub fn on_message(&mut self, header: StateHeader, now: Duration) {
        if header.is_first {
            return self.on_state(header.tick, now);
        }
        let now = micros(now);
        let is_counted = |(tick, arrived)| tick == header.tick && now - arrived <= self.outage();
        if self.newest.is_some_and(is_counted) && !self.is_after_outage && self.arrivals.add_part(now) {
            self.update_target(now);
        }
    }

    /// Notes that a state of the server's tick arrived at `now`. States that come late or twice are ignored.
    pub(crate) fn on_state(&mut self, tick: u32, now: Duration) {
        let now = micros(now);
        let Some((before, arrived)) = self.newest else {
            self.newest = Some((tick, now));
            self.quickest = now - self.time_of(tick);
            self.target = self.quickest + self.interval() * START_INTERVALS / 100;
            return;
        };
        if tick <= before {
            let back = (before - tick).checked_sub(1);
            let bit = back.and_then(|back| 1_u64.checked_shl(back)).unwrap_or(0);
            if bit & !self.seen != 0 {
                self.arrivals.add_overtaken();
                self.seen |= bit;
            }
            return;
        }
        let ahead = tick - before;
        self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1_u64.checked_shl(ahead - 1).unwrap_or(0);
        self.newest = Some((tick, now));
        let delay = now - self.time_of(tick);
        // An outage, and a server that stopped sending, say nothing of the next states. The same holds for states that
        // waited: they arrive at once.
        let spacing = self.time_of(tick) - self.time_of(before);
        self.is_after_outage = now - arrived > self.outage() || self.is_after_outage && now - arrived < spacing / 2;
        if self.is_after_outage {
            return;
        }
        self.arrivals.add(now, delay, spacing);
        self.contradiction = self.contradiction_of(tick, delay, now);
        let Some(Contradiction { since, states, .. }) = self.contradiction else { return self.update_target(now) };
        if states >= STATES_OF_SCHEDULE && now - since >= TIME_OF_SCHEDULE {
            self.start_schedule(states);
            self.update_target(now);
        }
    }

    /// Returns whether a state contradicts the schedule, and the ones before it did, too.
    fn contradiction_of(&self, tick: u32, delay: i64, now: i64) -> Option<Contradiction> {
        let timeline = self.position.map(|(position, at)| position + (now - at).max(0));
        let is_late = timeline.is_some_and(|timeline| timeline > self.time_of(tick));
        if !is_late && delay >= self.quickest - QUICKER {
            return None;
        }
        let before = self.contradiction.filter(|before| before.is_late == is_late);
        let (since, states) = before.map_or((now, 0), |before| (before.since, before.states));
        Some(Contradiction { is_late, since, states: states + 1 })
    }

    /// Forgets all arrivals but those of a schedule with this number of states, and its first one: that came after a
    /// state of the schedule before, so the time between both says nothing of the next ones.
    fn start_schedule(&mut self, states: usize) {
        self.arrivals.keep_newest(states.saturating_sub(1));
        (self.contradiction, self.has_new_schedule) = (None, true);
    }

    /// Moves the timeline on. Returns the tick, with its fraction, that is to be shown now; `None` before the first
    /// state.
    pub fn advance(&mut self, now: Duration) -> Option<f64> {
        let now = micros(now);
        self.newest?;
        let target = now - self.target;
        let (position, at) = self.position.unwrap_or((target, now));
        let passed = (now - at).max(0);
        let deviation = target - (position + passed);
        let has_new_schedule = core::mem::take(&mut self.has_new_schedule);
        let most = if has_new_schedule { MAX_NEW_DEVIATION } else { MAX_DEVIATION };
        let next = if deviation.abs() > most {
            self.jumps += 1;
            target
        } else {
            let most = passed * MAX_DILATION_PER_MILLE / 1000;
            let time = if deviation < 0 { SLOW_DOWN_TIME } else { SPEED_UP_TIME };
            let correction = (deviation * passed.min(time) / time).clamp(-most, most);
            position + passed + if self.is_overdue(now) && deviation < self.max_reserve() { -most } else { correction }
        };
        self.position = Some((next, now));
        self.tick()
    }

    /// Returns the tick of the last [`advance`](Self::advance), with its fraction.
    #[must_use]
    pub fn tick(&self) -> Option<f64> {
        self.position.map(|(position, _)| position as f64 * f64::from(self.rate.per_second) / 1e6)
    }

    /// Returns the newest tick of which the first message arrived. That of any message is
    /// [`Replica::newest_tick`](crate::Replica::newest_tick).
    #[must_use]
    pub fn newest_tick(&self) -> Option<u32> {
        self.newest.map(|(tick, _)| tick)
    }

    /// Returns whether the timeline is beyond the newest state of which the first message arrived: nothing new can be
    /// shown.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let newest = self.newest_tick().map_or(0.0, f64::from);
        self.tick().is_some_and(|tick| tick > newest)
    }

    /// Returns how far the timeline is behind the quickest arrivals of the last 60 s. After a hitch of the game it may
    /// be longer than that for 60 s, by the time from the hitch's start to the arrival of the first state that was read
    /// after it: `times.arrived` says that this one came earlier.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let behind = self.position.map_or(0, |(position, at)| at - self.quickest - position);
        Duration::from_micros(behind.max(0) as u64)
    }

    /// Returns how often the timeline jumped.
    #[must_use]
    pub const fn jumps(&self) -> u32 {
        self.jumps
    }

    fn time_of(&self, tick: u32) -> i64 {
        i64::from(tick) * 1_000_000 / i64::from(self.rate.per_second.max(1))
    }

    fn interval(&self) -> i64 {
        self.time_of(self.rate.between_states)
    }

    fn is_overdue(&self, now: i64) -> bool {
        let overdue = self.interval() * OVERDUE_INTERVALS / 100 + 1..=self.outage();
        self.newest.is_some_and(|(_, arrived)| overdue.contains(&(now - arrived)))
    }

    /// Returns how far behind its target the timeline may get while states are overdue.
    fn max_reserve(&self) -> i64 {
        self.interval() * MAX_RESERVE_INTERVALS / 100
    }

    /// Returns the longest pause of arrivals that is no outage.
    fn outage(&self) -> i64 {
        OUTAGE.max(self.interval() * INTERVALS_OF_OUTAGE)
    }

    fn update_target(&mut self, now: i64) {
        let Some(path) = self.arrivals.path_delay(now, self.interval()) else { return };
        (self.quickest, self.target) = (path.quickest, path.current + path.needed);
    }
}

/// The longest time, in microseconds: 285 years. Products and sums of times do not overflow.
const MAX_MICROS: i64 = 1 << 53;

/// Returns a time in microseconds. Times beyond 285 years are cut.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).map_or(MAX_MICROS, |micros| micros.min(MAX_MICROS))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Runs 60 s over a path with this delay at each millisecond. Returns the clock, and the milliseconds in which it
    /// left 95 to 105 % of the speed of time.
    fn run_over(delay: impl Fn(u64) -> u64) -> (PlayoutClock, Vec<u64>) {
        let (mut clock, mut arrivals) = (PlayoutClock::new(RATE), Vec::new());
        for state in 1..1200_u32 {
            let sent = u64::from(state) * 50;
            arrivals.push((sent + delay(sent), 3 * state));
        }
        arrivals.sort_unstable();
        let (mut next, mut before, mut beyond) = (0, None, Vec::new());
        for millis in 0..60_000 {
            while let Some((_, tick)) = arrivals.get(next).filter(|(arrival, _)| *arrival <= millis) {
                clock.on_state(*tick, at(millis));
                next += 1;
            }
            let Some(tick) = clock.advance(at(millis)) else { continue };
            let speed: f64 = before.map_or(1.0, |before| (tick - before) / 0.06);
            if !(0.949..=1.051).contains(&speed) {
                beyond.push(millis);
            }
            before = Some(tick);
        }
        (clock, beyond)
    }

    #[test]
    fn timeline_deviates_by_at_most_5_percent() {
        // 70 ms at once, and 200 ms in 5 s.
        let slower: [fn(u64) -> u64; 2] = [
            |millis| if millis < 40_000 { 50 } else { 120 },
            |millis| 50 + (millis.clamp(40_000, 45_000) - 40_000) / 25,
        ];
        for delay in slower {
            let (clock, beyond) = run_over(delay);
            assert_eq!((clock.jumps(), beyond), (0, Vec::new()));
        }
    }

    #[test]
    fn path_that_is_slower_by_40_ms_makes_the_delay_longer_by_40_ms() {
        // One loss is covered at this time, so that no state comes late.
        let (clock, _) = run_over(|millis| if millis < 8000 { 50 } else { 90 });
        // The delay is that behind the quickest states, which were those before.
        assert!((at(99)..at(103)).contains(&clock.delay()), "{:?}", clock.delay());
    }

    #[test]
    fn overtaken_states_are_not_lost() {
        // Each tenth state is overtaken by the next one.
        let (clock, _) = run_over(|millis| if millis % 500 == 0 { 115 } else { 50 });
        assert!(clock.delay() < at(105), "{:?}", clock.delay());
    }

    #[test]
    fn several_messages_of_a_state_are_one_state() {
        let mut clock = PlayoutClock::new(RATE);
        for state in (1..=1200_u32).filter(|state| state % 10 != 0) {
            let now = at(u64::from(state) * 50);
            (0..3).for_each(|_| clock.on_state(3 * state, now));
            clock.advance(now);
        }
        // 10 % are lost, so that two losses in a row are covered.
        assert!((at(149)..at(155)).contains(&clock.delay()), "{:?}", clock.delay());
    }

    #[test]
    fn repeated_states_are_one_state() {
        let mut clock = PlayoutClock::new(RATE);
        for state in (4..=1200_u32).filter(|state| state % 10 != 0) {
            let now = at(u64::from(state) * 50);
            // Those before come again, behind this one and each other.
            [0, 2, 1, 3, 2].into_iter().for_each(|back| clock.on_state(3 * (state - back), now));
            clock.advance(now);
        }
        // 10 % come late: the states that were left out come behind the next one, and once each.
        let late = clock.delay();
        let mut clock = PlayoutClock::new(RATE);
        for state in (4..=1200_u32).filter(|state| state % 10 != 0) {
            let now = at(u64::from(state) * 50);
            let kept = [0, 2, 1, 3, 2].into_iter().map(|back| state - back).filter(|state| state % 10 != 0);
            kept.for_each(|state| clock.on_state(3 * state, now));
            clock.advance(now);
        }
        assert!(late < at(105) && (at(149)..at(155)).contains(&clock.delay()), "{late:?}, {:?}", clock.delay());
    }

    #[test]
    fn path_that_is_slower_by_200_ms_at_once_is_one_jump() {
        let (clock, beyond) = run_over(|millis| if millis < 40_000 { 50 } else { 250 });
        assert_eq!((clock.jumps(), beyond.len()), (1, 1), "{beyond:?}");
        // The fifth late state shows that it is a schedule.
        assert!((40_250..40_500).contains(&beyond[0]), "{beyond:?}");
        assert!(clock.delay() < at(65), "{:?}", clock.delay());
    }

    #[test]
    fn states_that_waited_on_the_path_are_no_new_schedule() {
        // Nothing arrives for 400 ms, and then all at once.
        let wait = |millis: u64| if (10_000..10_400).contains(&millis) { 10_400 - millis + 50 } else { 50 };
        let (clock, beyond) = run_over(wait);
        assert_eq!((clock.jumps(), beyond), (0, Vec::new()));
    }

    #[test]
    fn outage_is_no_reason_for_a_longer_delay() {
        let mut clock = PlayoutClock::new(RATE);
        for state in (1..400_u32).filter(|state| !(200..240).contains(state)) {
            clock.on_state(3 * state, at(u64::from(state) * 50 + 30));
            clock.advance(at(u64::from(state) * 50 + 30));
        }
        assert!(clock.delay() < at(80), "{:?}", clock.delay());
        assert_eq!(clock.jumps(), 0);
    }

    #[test]
    fn delay_leaves_eight_thousandths_of_the_time_starved() {
        let mut clock = PlayoutClock::new(RATE);
        for millis in 0..120_000_u64 {
            let state = millis / 50;
            // Of 100 states, two pairs are lost; of 1,000 also five in a row.
            let is_lost = matches!(state % 50, 10 | 11) || (30..35).contains(&(state % 1000));
            if millis % 50 == 0 && state > 0 && !is_lost {
                clock.on_state(3 * state as u32, at(millis + 30));
            }
            clock.advance(at(millis + 30));
        }
        // 4.5 % are lost: that covers one loss. 480 ms of a minute may starve: 24 pairs for 12 ms each, and one run of
        // five for 162 ms. The timeline slows down in each of them.
        assert!((at(136)..at(146)).contains(&clock.delay()), "{:?}", clock.delay());
    }

    #[test]
    fn timeline_follows_a_path_that_gets_slower_by_10_ms_a_second() {
        // The delay grows for 40 s, from the beginning or later.
        for start in [0, 10_000] {
            let (mut clock, mut next, mut starved) = (PlayoutClock::new(RATE), 1_u32, 0);
            for millis in 0..50_000_u64 {
                let sent = u64::from(next) * 50;
                let jitter = u64::from(next * 7 % 10);
                if sent + 50 + jitter + sent.saturating_sub(start) / 100 <= millis {
                    clock.on_state(3 * next, at(millis));
                    next += 1;
                }
                clock.advance(at(millis));
                starved += u64::from(clock.is_starved());
            }
            assert!(starved < 250 && clock.jumps() == 0, "{starved} of 50,000 ms starved, {} jumps", clock.jumps());
            let behind = clock.tick().map(|tick| at(50_000).as_secs_f64() - tick / 60.0);
            let path = 0.05 + f64::from(50_000 - start as u32) / 1e5;
            assert!(behind.is_some_and(|behind| behind < path + 0.065), "{behind:?} s behind, the path takes {path} s");
        }
    }

    #[test]
    fn two_losses_in_a_row_leave_no_gap_where_a_fifteenth_is_lost() {
        let (mut clock, mut starved) = (PlayoutClock::new(RATE), 0);
        for millis in 0..120_000_u64 {
            let state = millis / 50;
            // Four single losses and a pair in 86 states: 7 %. Pairs alone are too rare to starve for 0.8 % of the
            // time.
            let is_lost = matches!(state % 86, 10 | 25 | 40 | 55 | 70 | 71);
            if millis % 50 == 0 && state > 0 && !is_lost {
                clock.on_state(3 * state as u32, at(millis + 30));
            }
            clock.advance(at(millis + 30));
            starved += u64::from(clock.is_starved());
        }
        assert_eq!(starved, 0, "ms starved");
    }

    #[test]
    fn timeline_slows_down_while_a_state_is_overdue() {
        let mut clock = PlayoutClock::new(RATE);
        for millis in (0..10_000_u64).step_by(10) {
            if millis % 50 == 0 {
                clock.on_state((millis / 50 * 3) as u32 + 3, at(millis));
            }
            clock.advance(at(millis));
        }
        let before = clock.advance(at(10_040)).unwrap();
        let after = clock.advance(at(10_140)).unwrap();
        assert!((after - before - 5.7).abs() < 1e-3, "95 % of 6 ticks, not {}", after - before);
    }

    #[test]
    fn clock_of_any_time_and_state_of_any_tick_do_not_overflow() {
        let times = [Duration::ZERO, Duration::MAX, at(1), Duration::from_secs(3_000_000_000), Duration::from_secs(1)];
        let ticks = [1, 2, 3, 1000, u32::MAX - 4000];
        for (per_second, between_states) in [(60, 3), (1, 1), (0, 0), (1, u32::MAX), (u32::MAX, u32::MAX)] {
            for shift in 0..times.len() {
                let mut clock = PlayoutClock::new(TickRate { per_second, between_states });
                // Many states at one time, and then many times.
                let many = (u32::MAX - 4000..=u32::MAX).map(|tick| (tick, Duration::MAX));
                let each = ticks.iter().copied().zip(times.iter().cycle().skip(shift).copied());
                for (number, (tick, now)) in each.chain(many).enumerate() {
                    (0..2).for_each(|_| clock.on_state(tick, now));
                    clock.advance(times[number % times.len()]);
                    clock.advance(now);
                }
                assert!(clock.tick().is_some_and(f64::is_finite));
            }
        }
        assert_eq!(micros(Duration::MAX), MAX_MICROS);
    }

    #[test]
    fn slow_frames_do_not_correct_more_than_the_deviation() {
        let mut clock = PlayoutClock::new(RATE);
        for state in 1..=400_u32 {
            clock.on_state(3 * state, at(u64::from(state) * 50));
            clock.advance(at(u64::from(state) * 50));
        }
        clock.on_state(1224, at(20_400));
        // The timeline is 2 ms ahead of its target. 95 % of a frame of 400 ms are 20 ms less than it.
        clock.position = Some((20_000_000 - clock.target + 2000, 20_000_000));
        clock.advance(at(20_400));
        let deviation = clock.position.map(|(position, at)| at - clock.target - position);
        assert_eq!(deviation, Some(0));
    }

    #[test]
    fn clock_of_another_origin_makes_no_difference() {
        let run = |origin: u64| {
            let mut clock = PlayoutClock::new(RATE);
            for state in 1..100_u32 {
                clock.on_state(9000 + 3 * state, at(origin + u64::from(state) * 50));
                clock.advance(at(origin + u64::from(state) * 50));
            }
            clock.tick().unwrap()
        };
        assert!((run(0) - run(1_000_000)).abs() < 1e-3);
    }

    #[test]
    fn three_late_states_are_no_new_schedule_and_four_are() {
        let rate = TickRate { per_second: 60, between_states: 6 };
        for (late, jumps) in [(1, 0), (3, 0), (4, 1), (8, 1)] {
            let mut clock = PlayoutClock::new(rate);
            for state in 1..=400 + late {
                let now = at(u64::from(state) * 100 + if state > 400 { 250 } else { 50 });
                clock.on_state(6 * state, now);
                clock.advance(now);
            }
            assert_eq!(clock.jumps(), jumps, "{late} late states");
        }
    }

    #[test]
    fn late_states_and_a_quick_one_are_no_new_schedule() {
        let mut clock = PlayoutClock::new(RATE);
        // Four states are 300 ms late, and the fifth one is 300 ms quicker than before: it jumped over some others.
        let usual = (1..=400).map(|state| (state, 400));
        let contradicting = (401..=404).map(|state| (state, 700)).chain([(417, 100)]);
        for (state, delay) in usual.chain(contradicting) {
            let now = at(state * 50 + delay);
            clock.on_state(3 * state as u32, now);
            clock.advance(now);
        }
        assert_eq!(clock.jumps(), 0);
    }

    #[test]
    fn new_schedule_after_minutes_forgets_all_of_the_old_one() {
        let mut clock = PlayoutClock::new(RATE);
        for state in 1..=5000_u64 {
            let now = at(state * 50 + if state > 4900 { 250 } else { 50 });
            clock.on_state(3 * state as u32, now);
            clock.advance(now);
        }
        assert_eq!(clock.jumps(), 1);
        assert!(clock.delay() < at(65), "{:?}", clock.delay());
    }

    /// The states of the hitch count as arrived when the socket was read before it, which is the earliest moment.
    #[test]
    fn delay_after_a_hitch_of_the_game_is_nearly_that_of_before() {
        let (mut clock, mut next, mut last_read, mut before) = (PlayoutClock::new(RATE), 1, 0, at(0));
        for now in (0..60_000_u64).step_by(10).filter(|now| !(40_000..40_300).contains(now)) {
            while next * 50 + 35 <= now {
                clock.on_state(3 * next as u32, at(last_read));
                next += 1;
            }
            last_read = now;
            clock.advance(at(now));
            if now < 40_000 {
                before = clock.delay();
            }
        }
        let after = clock.delay();
        assert!(after.abs_diff(before) <= at(50), "{before:?} before, {after:?} after");
        assert_eq!(clock.jumps(), 0);
    }
}
