//! Wakeup coalescing: under load the thread wakes once for several datagrams instead of once for each.
//!
//! ```text
//!             enough datagrams         as many arrive             fewer arrive, or 2 s later
//!  Immediate ──────────────────▶ Trial ────────────────▶ Delayed ────────────────────────────▶ Checking
//!      ▲                           │                        ▲                                    │   │
//!      ├── fewer arrive ───────────┘                        └── as many arrive as before ────────┘   │
//!      └── more arrive with the shorter delays ──────────────────────────────────────────────────────┘
//! ```

use std::time::{Duration, Instant};

/// How soon a wait ends after a datagram has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum WakePolicy {
    /// At once. Each datagram wakes the thread, unless several have arrived.
    Immediate,
    /// At once under light load. When more than 4.5 datagrams arrive per millisecond, as from 75 clients at 60 Hz, a
    /// wait first sleeps for at most 1.8 ms, so that one wakeup handles several datagrams. It does not sleep if that
    /// slows the clients, because they wait for replies. A `Server` counts at most 320 datagrams a second of a client.
    #[default]
    Adaptive,
}

impl WakePolicy {
    /// Returns the name as a stable word for logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::Adaptive => "adaptive",
        }
    }
}

/// The length of the window in which arrivals are counted: three ticks at 60 Hz, because the clients of a game may all
/// send at the same moment of a tick.
const WINDOW: Duration = Duration::from_millis(50);
/// A window of this length includes a pause in which the program did not wait. Its rate says nothing.
const PAUSE: Duration = Duration::from_millis(200);
/// Datagrams per millisecond that start delays. The longest delay then collects seven.
const START_RATE: f64 = 4.5;
/// Datagrams per millisecond below which delays end.
const STOP_RATE: f64 = 3.0;
/// The number of datagrams that a delay collects at most, about: half of what the smallest usual receive buffer holds.
const MAX_DATAGRAMS: f64 = 256.0;
/// The longest delay.
const MAX_DELAY: Duration = Duration::from_micros(1800);
/// The longest median delay of a reply. A datagram arrives in the middle of a delay and a handling, on the median, and
/// its reply leaves at the end of the next handling.
const MAX_MEDIAN: Duration = Duration::from_micros(1000);
/// The shortest delay: a sleep costs as much as ten datagrams.
const MIN_DELAY: Duration = Duration::from_micros(250);
/// The share of the rate that must remain with a delay. Clients that wait for replies send fewer.
const MIN_SHARE: f64 = 0.7;
/// This many delays in a row that each found datagrams, but fewer than this share of the rate before, end delays before
/// the window is over: the clients had all sent, and waited.
const FUTILE_DELAYS: u32 = 4;
const FUTILE_SHARE: f64 = 0.5;
/// A wait that lasts this much longer than its delay has waited for a datagram.
const BLOCKED: Duration = Duration::from_micros(500);
/// How much shorter the delays of a check are.
const CHECK_DIVISOR: u32 = 4;
/// The time from one check to the next.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// How long a wait looks for datagrams before it sleeps, if most waits are short: a sleep takes as much CPU time, and
/// longer until it ends.
const SPIN: Duration = Duration::from_micros(20);
/// A sleep of this length would have been spared, because most of it is the wakeup.
const SHORT_SLEEP: Duration = Duration::from_micros(50);
/// The minimum of the time between two wakeups during a flood. One that is blocked in part still delivers tens of
/// thousands of datagrams a second. If each of them wakes the thread, it uses up its share of a core, and the system
/// lets other threads run first: the datagrams of all clients then wait for some milliseconds.
const MIN_WAKE_INTERVAL: Duration = Duration::from_micros(500);
/// The dropped datagrams of a window that are a flood: 4.5 per millisecond.
const FLOOD_DATAGRAMS: usize = 225;
/// The shortest sleep that keeps this interval. A shorter one takes longer than it should.
const MIN_SLEEP: Duration = Duration::from_micros(30);
/// How long waits are not delayed after delays have slowed the clients; twice as long each time, up to 4 s.
const FIRST_BACK_OFF: Duration = Duration::from_millis(250);
const MAX_BACK_OFF: Duration = Duration::from_secs(4);

/// Decides by how much a wait is delayed.
///
/// A thread that wakes for each datagram pays for a wakeup, a read and a turn each time, which costs several times as
/// much as the datagram. During a delay the arriving datagrams form one batch. Clients that wait for a reply before
/// they send again are only slowed by it. Delays are therefore a trial: they stay if as many datagrams arrive as
/// before, and shorter ones check that from time to time.
#[derive(Debug, Default)]
pub(super) struct WakeupCoalescer {
    policy: WakePolicy,
    state: CoalesceState,
    window: Option<RateWindow>,
    /// Datagrams per millisecond in the last window.
    rate: f64,
    /// The delays in a row that found datagrams.
    row: Option<DelayRow>,
    back_off: Option<Duration>,
    /// Whether many datagrams of the last window were dropped.
    is_flooded: bool,
    /// When the last wait ended.
    woken_at: Option<Instant>,
    /// How long the last datagrams were handled.
    handling: Duration,
    /// The share of the last waits that were short: their mean, each weighted 7/8 of the next.
    short_waits: f32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum CoalesceState {
    Immediate {
        /// The end of the back-off.
        until: Option<Instant>,
    },
    /// The first window with delays.
    Trial,
    Delayed {
        check_at: Instant,
    },
    /// The delays of one window are shorter.
    Checking,
}

impl Default for CoalesceState {
    fn default() -> Self {
        Self::Immediate { until: None }
    }
}

/// The datagrams since a moment.
#[derive(Clone, Copy, Debug)]
struct RateWindow {
    began_at: Instant,
    read: usize,
    /// Those that were dropped. Their number must not delay what clients send.
    dropped: usize,
    /// Those of clients that send very often.
    excluded: usize,
}

impl RateWindow {
    const fn new(began_at: Instant) -> Self {
        Self { began_at, read: 0, dropped: 0, excluded: 0 }
    }

    /// Returns the datagrams per millisecond, without those that were dropped.
    fn rate(&self, now: Instant) -> f64 {
        self.per_millisecond(self.read.saturating_sub(self.dropped), now)
    }

    /// Returns the datagrams per millisecond, without those that were dropped or excluded.
    fn rate_without_excluded(&self, now: Instant) -> f64 {
        self.per_millisecond(self.read.saturating_sub(self.dropped + self.excluded), now)
    }

    fn per_millisecond(&self, datagrams: usize, now: Instant) -> f64 {
        let elapsed = now.saturating_duration_since(self.began_at).max(MIN_DELAY);
        datagrams as f64 / elapsed.as_secs_f64() / 1000.0
    }

    /// Returns whether as many datagrams were dropped as would delay waits if clients had sent them.
    const fn is_flooded(&self) -> bool {
        self.dropped >= FLOOD_DATAGRAMS
    }
}

#[derive(Clone, Copy, Debug)]
struct DelayRow {
    window: RateWindow,
    delays: u32,
    last_at: Instant,
}

impl WakeupCoalescer {
    /// Sets the policy of all later waits.
    pub(super) fn set_policy(&mut self, policy: WakePolicy) {
        *self = Self { policy, ..Self::default() };
    }

    pub(super) const fn policy(&self) -> WakePolicy {
        self.policy
    }

    /// Counts datagrams that were read.
    pub(super) fn on_read(&mut self, datagrams: usize) {
        let windows = self.window.iter_mut().chain(self.row.as_mut().map(|row| &mut row.window));
        windows.for_each(|window| window.read = window.read.saturating_add(datagrams));
    }

    /// Counts datagrams that were read and dropped.
    pub(super) fn on_dropped(&mut self, datagrams: usize) {
        let windows = self.window.iter_mut().chain(self.row.as_mut().map(|row| &mut row.window));
        windows.for_each(|window| window.dropped = window.dropped.saturating_add(datagrams));
    }

    /// Counts datagrams that were read and do not delay waits.
    pub(super) fn on_excluded(&mut self, datagrams: usize) {
        let windows = self.window.iter_mut().chain(self.row.as_mut().map(|row| &mut row.window));
        windows.for_each(|window| window.excluded = window.excluded.saturating_add(datagrams));
    }

    /// Records the end of a wait.
    pub(super) const fn on_wake(&mut self, now: Instant) {
        self.woken_at = Some(now);
    }

    /// Starts a wait. Returns by how much to delay it.
    pub(super) fn begin(&mut self, now: Instant) -> Duration {
        if self.policy == WakePolicy::Immediate {
            return Duration::ZERO;
        }
        self.handling = self.woken_at.map_or(Duration::ZERO, |woken_at| now.saturating_duration_since(woken_at));
        let window = *self.window.get_or_insert(RateWindow::new(now));
        let elapsed = now.saturating_duration_since(window.began_at);
        let is_over = if elapsed >= PAUSE {
            true
        } else if elapsed >= WINDOW {
            self.state = self.next_state(&window, now);
            true
        } else {
            self.end_futile_delays(now)
        };
        if is_over {
            self.is_flooded = window.is_flooded();
            self.window = Some(RateWindow::new(now));
        }
        match self.state {
            CoalesceState::Immediate { .. } => self.rest_of_interval(now),
            CoalesceState::Trial | CoalesceState::Delayed { .. } => self.delay(),
            CoalesceState::Checking => self.delay() / CHECK_DIVISOR,
        }
    }

    /// Returns for how long a wait that is not delayed looks for datagrams before it sleeps.
    pub(super) fn spin(&self) -> Duration {
        if self.short_waits > 0.5 { SPIN } else { Duration::ZERO }
    }

    /// Counts a wait that was not delayed: whether it slept, and how long it took until a datagram arrived.
    pub(super) fn on_wait(&mut self, has_slept: bool, waited: Duration) {
        let limit = if !has_slept {
            SPIN
        } else if self.spin().is_zero() {
            SHORT_SLEEP
        } else {
            // The search has found nothing.
            Duration::ZERO
        };
        self.short_waits += (f32::from(u8::from(waited <= limit)) - self.short_waits) / 8.0;
    }

    fn delay(&self) -> Duration {
        let millis = MAX_DATAGRAMS / self.rate.max(STOP_RATE);
        let max = (MAX_MEDIAN * 2).saturating_sub(self.handling * 3).clamp(MIN_DELAY, MAX_DELAY);
        Duration::from_secs_f64(millis / 1000.0).clamp(MIN_DELAY, max)
    }

    /// Returns the rest of the shortest time between two wakeups, which is zero without a flood.
    fn rest_of_interval(&self, now: Instant) -> Duration {
        let is_flooded = self.is_flooded || self.window.is_some_and(|window| window.is_flooded());
        let Some(woken_at) = self.woken_at.filter(|_| is_flooded) else { return Duration::ZERO };
        let rest = MIN_WAKE_INTERVAL.saturating_sub(now.saturating_duration_since(woken_at));
        if rest < MIN_SLEEP { Duration::ZERO } else { rest }
    }

    /// Returns the state after a window. Datagrams that were excluded neither start delays nor keep them. They count
    /// where rates are compared: a `Server` excludes those in the last part of its own window, and otherwise the
    /// clients would seem to have stopped.
    fn next_state(&mut self, window: &RateWindow, now: Instant) -> CoalesceState {
        let (rate, of_many) = (window.rate(now), window.rate_without_excluded(now));
        let before = std::mem::replace(&mut self.rate, rate);
        let has_fallen = rate < before * MIN_SHARE;
        match self.state {
            CoalesceState::Immediate { until } => {
                let starts = of_many >= START_RATE && until.is_none_or(|until| now >= until);
                if starts { CoalesceState::Trial } else { self.state }
            }
            _ if of_many < STOP_RATE => CoalesceState::default(),
            CoalesceState::Trial if has_fallen => self.back_off(now),
            CoalesceState::Delayed { check_at } if has_fallen || now >= check_at => CoalesceState::Checking,
            CoalesceState::Checking if before < rate * MIN_SHARE => self.back_off(now),
            CoalesceState::Trial | CoalesceState::Checking => {
                self.back_off = None;
                CoalesceState::Delayed { check_at: now + CHECK_INTERVAL }
            }
            CoalesceState::Delayed { .. } => self.state,
        }
    }

    /// Counts a delay. Ends delays if some in a row have found what clients sent that then waited; returns whether it
    /// did.
    fn end_futile_delays(&mut self, now: Instant) -> bool {
        if !matches!(self.state, CoalesceState::Trial | CoalesceState::Delayed { .. }) {
            self.row = None;
            return false;
        }
        let limit = MAX_DELAY + self.handling + BLOCKED;
        let continues = self.row.filter(|row| now.saturating_duration_since(row.last_at) < limit);
        let Some(row) = continues else {
            self.row = Some(DelayRow { window: RateWindow::new(now), delays: 0, last_at: now });
            return false;
        };
        let row = DelayRow { delays: row.delays + 1, last_at: now, ..row };
        let is_over = row.delays >= FUTILE_DELAYS;
        self.row = if is_over { None } else { Some(row) };
        let is_futile = is_over && row.window.rate(now) < self.rate * FUTILE_SHARE;
        if is_futile {
            self.state = self.back_off(now);
        }
        is_futile
    }

    /// Ends delays for a while, longer each time.
    fn back_off(&mut self, now: Instant) -> CoalesceState {
        let back_off = self.back_off.map_or(FIRST_BACK_OFF, |last| (last * 2).min(MAX_BACK_OFF));
        self.back_off = Some(back_off);
        CoalesceState::Immediate { until: Some(now + back_off) }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use super::*;

    const TICK: Duration = Duration::from_micros(16_667);
    const SECOND: Duration = Duration::from_secs(1);

    /// A server in virtual time: a wakeup takes 20 us and a datagram 5 us.
    struct Simulation {
        coalescer: WakeupCoalescer,
        start: Instant,
        now: Duration,
        /// Whether all datagrams are dropped.
        is_junk: bool,
        /// Whether those of the second half of each 50 ms are excluded, as clients have sent too many by then.
        has_frequent_clients: bool,
        /// When each client sends next. It sends once a tick, or 20 us after a reply if it waits for replies.
        next: BinaryHeap<Reverse<(Duration, Option<Duration>)>>,
    }

    /// What happened in some time.
    #[derive(Default)]
    struct Outcome {
        datagrams: usize,
        wakeups: usize,
        delays: Vec<Duration>,
    }

    impl Outcome {
        fn p50(&mut self) -> Duration {
            self.delays.sort();
            self.delays[self.delays.len() / 2]
        }
    }

    impl Simulation {
        fn new() -> Self {
            let start = Instant::now();
            let (coalescer, next) = (WakeupCoalescer::default(), BinaryHeap::new());
            Self { coalescer, start, now: Duration::ZERO, is_junk: false, has_frequent_clients: false, next }
        }

        /// Adds clients that send once in each `period`, all of them within `spread`.
        fn add_clients(&mut self, clients: u32, spread: Duration, period: Option<Duration>) {
            let first = |client| Reverse((self.now + spread / clients * client, period));
            self.next.extend((0..clients).map(first));
        }

        fn run(&mut self, time: Duration) -> Outcome {
            let (mut outcome, end) = (Outcome::default(), self.now + time);
            while self.now < end {
                self.now += self.coalescer.begin(self.start + self.now);
                let first = self.next.peek().map_or(Duration::MAX, |Reverse((first, _))| *first);
                self.now = self.now.max(first.min(self.now + TICK)) + Duration::from_micros(20);
                self.coalescer.on_wake(self.start + self.now);
                let mut batch = Vec::new();
                while self.next.peek().is_some_and(|Reverse((at, _))| *at <= self.now) {
                    batch.extend(self.next.pop());
                }
                self.now += Duration::from_micros(5) * batch.len() as u32;
                for Reverse((at, period)) in &batch {
                    outcome.delays.push(self.now - *at);
                    let next = period.map_or(self.now + Duration::from_micros(20), |period| *at + period);
                    self.next.push(Reverse((next, *period)));
                }
                self.coalescer.on_read(batch.len());
                if self.is_junk {
                    self.coalescer.on_dropped(batch.len());
                }
                if self.has_frequent_clients && self.now.as_millis() % 50 >= 25 {
                    self.coalescer.on_excluded(batch.len());
                }
                outcome.datagrams += batch.len();
                outcome.wakeups += 1;
            }
            outcome
        }
    }

    #[test]
    fn many_clients_are_served_in_batches_with_short_delays() {
        for (clients, least) in [(100, 6), (256, 16), (1000, 25)] {
            let mut simulation = Simulation::new();
            simulation.add_clients(clients, TICK, Some(TICK));
            simulation.run(SECOND / 10);
            let mut outcome = simulation.run(SECOND * 5);
            let each = outcome.datagrams / outcome.wakeups;
            assert!(each >= least, "{each} in a batch of {clients} clients");
            assert!(outcome.p50() < Duration::from_millis(1), "{:?} of {clients} clients", outcome.p50());
            assert!(outcome.delays.last() < Some(&Duration::from_micros(2500)), "{clients} clients");
        }
    }

    #[test]
    fn sixty_clients_at_60_hz_are_never_delayed() {
        let mut simulation = Simulation::new();
        simulation.add_clients(60, TICK, Some(TICK));
        let outcome = simulation.run(SECOND * 10);
        assert!(outcome.delays.iter().all(|delay| *delay < Duration::from_micros(40)));
    }

    #[test]
    fn clients_that_send_in_the_same_part_of_a_tick_are_batched() {
        let mut simulation = Simulation::new();
        simulation.add_clients(256, TICK / 4, Some(TICK));
        simulation.run(SECOND / 10);
        let outcome = simulation.run(SECOND * 10);
        let each = outcome.datagrams / outcome.wakeups;
        assert!(each >= 25, "{each} in a batch");
    }

    #[test]
    fn clients_that_wait_for_replies_are_not_slowed() {
        for clients in [8, 16, 32] {
            let [mut simulation, mut immediate] = [(); 2].map(|()| Simulation::new());
            immediate.coalescer.set_policy(WakePolicy::Immediate);
            for (seconds, share) in [(1, 0.9), (20, 0.98)] {
                let [with, without] = [&mut simulation, &mut immediate].map(|simulation| {
                    simulation.next.clear();
                    simulation.add_clients(clients, TICK, None);
                    simulation.run(SECOND * seconds).datagrams as f64
                });
                assert!(with >= without * share, "{clients} clients in {seconds} s: {with} of {without}");
            }
        }
    }

    #[test]
    fn delays_end_when_clients_begin_to_wait_for_replies() {
        // 24 clients send as much with delays as 256 at 60 Hz.
        for (clients, millis) in [(8, 60), (24, 2200)] {
            let mut simulation = Simulation::new();
            simulation.add_clients(256, TICK, Some(TICK));
            simulation.run(SECOND);
            simulation.next.clear();
            simulation.add_clients(clients, TICK, None);
            simulation.run(Duration::from_millis(millis));
            assert_eq!(simulation.coalescer.begin(simulation.start + simulation.now), Duration::ZERO, "{clients}");
        }
    }

    #[test]
    fn delays_return_after_a_pause() {
        let mut simulation = Simulation::new();
        for round in 0..20 {
            simulation.add_clients(256, TICK, Some(TICK));
            simulation.run(SECOND / 4);
            let delayed = simulation.coalescer.begin(simulation.start + simulation.now);
            assert!(delayed >= MIN_DELAY, "{delayed:?} in round {round}");
            simulation.next.clear();
            // The clients pause, or the program.
            if round % 2 == 0 {
                simulation.run(SECOND / 10);
            } else {
                simulation.now += SECOND;
            }
        }
    }

    #[test]
    fn delays_remain_when_clients_leave() {
        let mut simulation = Simulation::new();
        for clients in [1000, 400, 200, 120, 90] {
            simulation.next.clear();
            simulation.add_clients(clients, TICK, Some(TICK));
            simulation.run(SECOND);
            let mut outcome = simulation.run(SECOND);
            assert!(outcome.p50() > Duration::from_micros(120), "{:?} of {clients} clients", outcome.p50());
        }
    }

    #[test]
    fn short_waits_are_searched_before_they_sleep() {
        let mut coalescer = WakeupCoalescer::default();
        let mut waits = |has_slept, micros, count| {
            (0..count).for_each(|_| coalescer.on_wait(has_slept, Duration::from_micros(micros)));
            coalescer.spin()
        };
        assert_eq!(waits(true, 100, 100), Duration::ZERO, "the next datagram is far");
        assert_eq!(waits(true, 40, 6), SPIN, "most of a sleep is the wakeup");
        assert_eq!(waits(false, 10, 100), SPIN, "the search finds datagrams");
        assert_eq!(waits(true, 40, 6), Duration::ZERO, "the search has found nothing");
    }

    #[test]
    fn dropped_datagrams_wake_the_thread_at_short_intervals() {
        let mut simulation = Simulation::new();
        simulation.is_junk = true;
        // A flood of which 25,000 datagrams a second pass.
        simulation.add_clients(25, Duration::from_millis(1), Some(Duration::from_millis(1)));
        simulation.run(SECOND / 10);
        let mut outcome = simulation.run(SECOND);
        assert!(outcome.wakeups <= 2000, "{} wakeups", outcome.wakeups);
        assert!(outcome.p50() < Duration::from_micros(350), "{:?}", outcome.p50());
        assert!(outcome.delays.last() < Some(&Duration::from_micros(600)), "{:?}", outcome.delays.last());
        // The end of the flood ends the intervals.
        simulation.next.clear();
        simulation.add_clients(1, TICK / 8, Some(TICK / 8));
        simulation.run(SECOND / 10);
        let now = simulation.start + simulation.now;
        simulation.coalescer.on_wake(now);
        assert_eq!(simulation.coalescer.begin(now), Duration::ZERO);
    }

    #[test]
    fn a_flood_does_not_end_the_delays_under_load() {
        let mut simulation = Simulation::new();
        simulation.add_clients(256, TICK, Some(TICK));
        simulation.run(SECOND);
        for _ in 0..100 {
            simulation.coalescer.on_read(1000);
            simulation.coalescer.on_dropped(1000);
            simulation.run(SECOND / 100);
            assert!(simulation.coalescer.begin(simulation.start + simulation.now) >= MIN_DELAY);
        }
    }

    #[test]
    fn excluded_datagrams_do_not_delay() {
        let mut simulation = Simulation::new();
        simulation.add_clients(60, TICK, Some(TICK));
        for _ in 0..100 {
            simulation.coalescer.on_read(1000);
            simulation.coalescer.on_excluded(1000);
            let outcome = simulation.run(SECOND / 100);
            assert!(outcome.delays.iter().all(|delay| *delay < Duration::from_micros(40)), "{:?}", outcome.delays);
        }
    }

    #[test]
    fn many_clients_that_send_often_are_served_in_batches() {
        let mut simulation = Simulation::new();
        simulation.has_frequent_clients = true;
        simulation.add_clients(256, TICK, Some(TICK));
        simulation.run(SECOND / 10);
        let outcome = simulation.run(SECOND * 5);
        let each = outcome.datagrams / outcome.wakeups;
        assert!(each >= 16, "{each} in a batch");
    }

    #[test]
    fn immediate_policy_never_delays() {
        let mut simulation = Simulation::new();
        simulation.coalescer.set_policy(WakePolicy::Immediate);
        simulation.add_clients(1000, TICK, Some(TICK));
        let mut outcome = simulation.run(SECOND);
        assert!(outcome.p50() < Duration::from_micros(100));
    }
}
