//! The timeline of a client: how far behind the newest state it plays, so that the next one is there in time (§6.6).

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::pose::TickRate;

/// The time over which arrivals are remembered.
const WINDOW: i64 = 60_000_000;
/// The most arrivals that are remembered: 60 s at 64 states a second.
const KEPT_ARRIVALS: usize = 3840;
/// The share of arrivals that may be too late, in thousandths. At a random loss of 13 %, 1.7 % of the arrivals are
/// after two losses in a row and 0.2 % after three. A share between both makes a delay that changes little from minute
/// to minute. No arrival may be too late while there are fewer than 125.
const LATE_PER_MILLE: i64 = 8;
/// The delay beyond the least one with which a timeline starts, in hundredths of the time between two states: it covers
/// two losses in a row before any loss is known.
const START_INTERVALS: i64 = 200;
/// The time in which the delay of the start shrinks to nothing.
const START_TIME: i64 = 4_000_000;
/// The least delay, in hundredths of the time between two states.
const LEAST_INTERVALS: i64 = 120;
/// The time that is added to the delay, because the timeline follows it with a deviation.
const MARGIN: i64 = 500;
/// The time since the newest arrival after which the next state is overdue, in hundredths of the time between two
/// states. The timeline then runs as slowly as it may, so that it starves later.
const OVERDUE_INTERVALS: i64 = 102;
/// The most that the timeline deviates from the speed of time, in thousandths.
const MAX_DILATION_PER_MILLE: i64 = 50;
/// The time in which a deviation is corrected, as far as the limit allows.
const CORRECTION_TIME: i64 = 1_000_000;
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

/// An arrival: when, and how late the state before it was replaced.
#[derive(Clone, Copy, Debug)]
struct StateArrival {
    at: i64,
    /// The delay of this state: its arrival less its time at the server.
    delay: i64,
    /// The delay that a timeline needs to have to show the state before until this one arrived.
    need: i64,
}

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
/// It starts 3.2 intervals between states behind the first one, so that two lost states in a row leave no gap. That
/// shrinks within 4 s to what the path needs, at least 1.2 intervals.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use slipgate_sync::{PlayoutClock, TickRate};
///
/// let mut clock = PlayoutClock::new(TickRate { per_second: 60, between_states: 3 });
/// let mut now = Duration::ZERO;
/// for state in 1..=200_u32 {
///     now = Duration::from_millis(50) * state + Duration::from_millis(80);
///     clock.on_state(3 * state, now);
///     clock.advance(now);
/// }
/// // 1.2 times the interval of 50 ms, and 0.5 ms: the longer delay of the first seconds is over.
/// assert!(clock.delay() >= Duration::from_millis(60) && clock.delay() <= Duration::from_millis(70));
/// assert!(clock.tick().is_some_and(|tick| tick > 594.0 && tick < 600.0));
/// ```
#[derive(Debug)]
pub struct PlayoutClock {
    rate: TickRate,
    arrivals: Vec<StateArrival>,
    /// The oldest entry of `arrivals`, which is replaced next, once all are used.
    next: usize,
    sorted: Vec<i64>,
    newest: Option<(u32, i64)>,
    /// When the first state arrived.
    started: i64,
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
            arrivals: Vec::with_capacity(KEPT_ARRIVALS),
            next: 0,
            sorted: vec![0; KEPT_ARRIVALS],
            newest: None,
            started: 0,
            target: 0,
            quickest: 0,
            position: None,
            contradiction: None,
            has_new_schedule: false,
            is_after_outage: false,
            jumps: 0,
        }
    }

    /// Notes that a state of the server's tick arrived at `now`. States that come late or twice are ignored.
    pub fn on_state(&mut self, tick: u32, now: Duration) {
        let now = micros(now);
        let Some((before, arrived)) = self.newest else {
            self.newest = Some((tick, now));
            (self.started, self.quickest) = (now, now - self.time_of(tick));
            self.target = self.quickest + self.least_delay(now) + MARGIN;
            return;
        };
        if tick <= before {
            return;
        }
        self.newest = Some((tick, now));
        let (delay, need) = (now - self.time_of(tick), now - self.time_of(before));
        // The needs of an outage, and of a server that stopped sending, say nothing of the next states. The same
        // holds for states that waited: they arrive at once.
        let spacing = self.time_of(tick) - self.time_of(before);
        self.is_after_outage = now - arrived > self.outage() || self.is_after_outage && now - arrived < spacing / 2;
        if self.is_after_outage {
            return;
        }
        self.remember(StateArrival { at: now, delay, need });
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
    /// state of the schedule before, so its need says nothing of the next ones.
    fn start_schedule(&mut self, states: usize) {
        self.arrivals.rotate_left(self.next);
        self.arrivals.drain(..self.arrivals.len().saturating_sub(states.saturating_sub(1)));
        (self.next, self.contradiction, self.has_new_schedule) = (0, None, true);
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
            let correction = (deviation * passed / CORRECTION_TIME).clamp(-most, most);
            position + passed + if self.is_overdue(now) { -most } else { correction }
        };
        self.position = Some((next, now));
        self.tick()
    }

    /// Returns the tick of the last [`advance`](Self::advance), with its fraction.
    #[must_use]
    pub fn tick(&self) -> Option<f64> {
        self.position.map(|(position, _)| position as f64 * f64::from(self.rate.per_second) / 1e6)
    }

    /// Returns the newest tick that arrived.
    #[must_use]
    pub fn newest_tick(&self) -> Option<u32> {
        self.newest.map(|(tick, _)| tick)
    }

    /// Returns whether the timeline is beyond the newest state: nothing new can be shown.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let newest = self.newest_tick().map_or(0.0, f64::from);
        self.tick().is_some_and(|tick| tick > newest)
    }

    /// Returns how far the timeline is behind the quickest arrivals of the last 60 s.
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

    fn is_overdue(&self, now: i64) -> bool {
        let interval = self.time_of(self.rate.between_states);
        let overdue = interval * OVERDUE_INTERVALS / 100 + 1..=self.outage();
        self.newest.is_some_and(|(_, arrived)| overdue.contains(&(now - arrived)))
    }

    /// Returns the longest pause of arrivals that is no outage.
    fn outage(&self) -> i64 {
        OUTAGE.max(self.time_of(self.rate.between_states) * INTERVALS_OF_OUTAGE)
    }

    /// Returns the least delay at this time. It shrinks from the one of the start.
    fn least_delay(&self, now: i64) -> i64 {
        let remaining = (START_TIME - (now - self.started)).clamp(0, START_TIME);
        let intervals = LEAST_INTERVALS + START_INTERVALS * remaining / START_TIME;
        self.time_of(self.rate.between_states) * intervals / 100
    }

    fn remember(&mut self, arrival: StateArrival) {
        if self.arrivals.len() < KEPT_ARRIVALS {
            self.arrivals.push(arrival);
        } else if let Some(oldest) = self.arrivals.get_mut(self.next) {
            *oldest = arrival;
            self.next = (self.next + 1) % KEPT_ARRIVALS;
        }
    }

    fn update_target(&mut self, now: i64) {
        let recent = self.arrivals.iter().filter(|arrival| now - arrival.at <= WINDOW);
        let mut count = 0;
        for (slot, arrival) in self.sorted.iter_mut().zip(recent.clone()) {
            *slot = arrival.need;
            count += 1;
        }
        let Some(quickest) = recent.map(|arrival| arrival.delay).min() else { return };
        self.quickest = quickest;
        let (interval, least) = (self.time_of(self.rate.between_states), quickest + self.least_delay(now));
        let late = (count as i64 * LATE_PER_MILLE / 1000) as usize;
        let needs = self.sorted.get_mut(..count).unwrap_or(&mut []);
        self.target = typical_need(needs, late, interval / 2).max(least) + MARGIN;
    }
}

/// Returns the need that this number of others exceed, as the mean of all needs that differ from it by at most `near`.
/// Needs come in groups, one for each number of losses in a row; the mean of a group is steadier than one of its needs.
fn typical_need(needs: &mut [i64], exceeding: usize, near: i64) -> i64 {
    let Some(last) = needs.len().checked_sub(1) else { return 0 };
    let (_, need, _) = needs.select_nth_unstable_by(exceeding.min(last), |one, two| two.cmp(one));
    let need = *need;
    let (mut sum, mut count) = (0, 0);
    for difference in needs.iter().map(|other| other - need).filter(|difference| difference.abs() <= near) {
        (sum, count) = (sum + difference, count + 1);
    }
    need + sum / count.max(1)
}

/// Returns a time in microseconds. Times beyond 292,000 years are cut.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Runs 20 s over a path with this delay at each millisecond. Returns the clock, and the milliseconds in which it
    /// left 95 to 105 % of the speed of time.
    fn run_over(delay: impl Fn(u64) -> u64) -> (PlayoutClock, Vec<u64>) {
        let (mut clock, mut arrivals) = (PlayoutClock::new(RATE), Vec::new());
        for state in 1..400_u32 {
            let sent = u64::from(state) * 50;
            arrivals.push((sent + delay(sent), 3 * state));
        }
        arrivals.sort_unstable();
        let (mut next, mut before, mut beyond) = (0, None, Vec::new());
        for millis in 0..20_000 {
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
        let slower: [fn(u64) -> u64; 2] =
            [|millis| if millis < 10_000 { 50 } else { 120 }, |millis| 50 + (millis.clamp(5000, 10_000) - 5000) / 25];
        for delay in slower {
            let (clock, beyond) = run_over(delay);
            assert_eq!((clock.jumps(), beyond), (0, Vec::new()));
        }
    }

    #[test]
    fn path_that_is_slower_by_200_ms_at_once_is_one_jump() {
        let (clock, beyond) = run_over(|millis| if millis < 10_000 { 50 } else { 250 });
        assert_eq!((clock.jumps(), beyond.len()), (1, 1), "{beyond:?}");
        // The fifth late state shows that it is a schedule.
        assert!((10_250..10_500).contains(&beyond[0]), "{beyond:?}");
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
    fn delay_covers_two_losses_in_a_row_but_no_rare_longer_runs() {
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
        assert!((at(150)..at(156)).contains(&clock.delay()), "{:?}", clock.delay());
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
            for state in 1..=50 + late {
                let now = at(u64::from(state) * 100 + if state > 50 { 250 } else { 50 });
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
}
