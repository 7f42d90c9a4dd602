//! A path that changes while a connection always has data to send: its rate falls, it fails, it grows longer, or a
//! machine at one end sleeps. The lab simulates the controller alone; these tests run it inside a connection.

use core::mem;

use super::*;

/// The normal rate of the path in bytes per millisecond: 4 Mbit/s.
const RATE: f64 = 500.0;
/// The size of the path's queue in milliseconds: datagrams that would wait longer are dropped.
const BUFFER: f64 = 500.0;
/// When the change begins, in milliseconds.
const BEGIN: u64 = 15_000;

/// Datagrams that waited are read in batches of this size, `READING` apart.
const BATCH: usize = 4;
const READING: Duration = Duration::from_micros(100);

/// The two ends of the path.
const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// A change of the path, or of a machine at one end.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// The rate is lower for this many milliseconds.
    Fall { rate: f64, lasts: u64 },
    /// Nothing gets through in either direction for this many milliseconds.
    Dark { lasts: u64 },
    /// After 300 ms each direction is 30 ms longer.
    Longer,
    /// Datagrams of both directions wait for this many milliseconds.
    Stall { lasts: u64 },
    /// The machine of one end sleeps for this many milliseconds.
    Sleep { end: usize, lasts: u64, clock: Clock, arrivals: Arrivals },
    /// The clock of one end jumps ahead by this many milliseconds.
    Jump { end: usize, by: u64 },
}

/// The clock of a machine that sleeps, which differs between systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clock {
    StandsStill,
    Runs,
}

/// The outcome of datagrams that arrive at a machine that sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrivals {
    WaitsInSocket,
    IsLost,
}

impl Change {
    fn is_on(self, at: u64) -> bool {
        match self {
            Self::Fall { lasts, .. } | Self::Dark { lasts } | Self::Stall { lasts } | Self::Sleep { lasts, .. } => {
                (BEGIN..BEGIN + lasts).contains(&at)
            }
            Self::Longer => at > 300,
            Self::Jump { .. } => at >= BEGIN,
        }
    }

    fn rate(self, at: u64) -> f64 {
        match self {
            Self::Fall { rate, .. } if self.is_on(at) => rate,
            _ => RATE,
        }
    }

    fn delay(self, at: u64) -> u64 {
        match self {
            Self::Longer if !self.is_on(at) => 5,
            Self::Longer => 35,
            _ => 25,
        }
    }

    fn is_dark(self, at: u64) -> bool {
        matches!(self, Self::Dark { .. }) && self.is_on(at)
    }

    /// Returns when the path accepts a datagram that was sent at this time.
    fn accepts_at(self, at: u64) -> u64 {
        match self {
            Self::Stall { lasts } if self.is_on(at) => BEGIN + lasts,
            _ => at,
        }
    }

    /// Returns the time of an end's clock.
    fn clock(self, end: usize, at: u64) -> u64 {
        match self {
            Self::Sleep { end: asleep, lasts, clock: Clock::StandsStill, .. } if asleep == end && at >= BEGIN => {
                BEGIN.max(at.saturating_sub(lasts))
            }
            Self::Jump { end: jumps, by } if jumps == end && self.is_on(at) => at + by,
            _ => at,
        }
    }

    fn sleeps(self, end: usize, at: u64) -> bool {
        matches!(self, Self::Sleep { end: asleep, .. } if asleep == end) && self.is_on(at)
    }

    fn loses_arrivals(self) -> bool {
        matches!(self, Self::Sleep { arrivals: Arrivals::IsLost, .. })
    }
}

/// The bytes that left in a tenth of a second, and the length of the path's queue at its end in milliseconds.
#[derive(Clone, Copy, Default)]
struct Tenth {
    bytes: f64,
    queue: f64,
    /// The sender's estimate of the queue.
    estimate: f64,
}

/// A simulation of a change, in loops of `turn` milliseconds and messages of `message` bytes.
struct Scenario {
    change: Change,
    turn: u64,
    message: usize,
}

impl Scenario {
    /// Runs until `end`; returns the tenths of a second.
    fn run_until(&self, end: u64) -> Vec<Tenth> {
        let (mut pair, mut tenths) = (Pair::new(), vec![Tenth::default(); (end / 100) as usize + 1]);
        let (start, mut free_at, mut in_flight) = (pair.now, 0.0, Vec::new());
        for at in (self.turn..end).step_by(self.turn as usize) {
            let tenth = &mut tenths[(at / 100) as usize];
            for from in 0..2 {
                let sender = from == SENDER;
                pair.now = start.after(Duration::from_millis(self.change.clock(from, at)));
                if self.change.sleeps(from, at) {
                    continue;
                }
                while sender
                    && pair.ends[SENDER].send(STATE, &vec![1; self.message], SendOptions::default(), pair.now).is_ok()
                {
                }
                for datagram in pair.turn(from) {
                    tenth.bytes += if sender { datagram.len() as f64 } else { 0.0 };
                    if let Some(arrives) = self.arrival(sender, datagram.len(), &mut free_at, at) {
                        in_flight.push((arrives, 1 - from, datagram));
                    }
                }
            }
            self.deliver(&mut pair, &mut in_flight, start, at);
            tenth.queue = (free_at - at as f64).max(0.0);
            let estimate = pair.ends[SENDER].stats(pair.now).congestion.queueing_delay;
            tenth.estimate = estimate.unwrap_or_default().as_secs_f64() * 1000.0;
        }
        tenths
    }

    /// Returns when a datagram arrives, `None` if it is dropped. The path back has no queue.
    fn arrival(&self, sender: bool, bytes: usize, free_at: &mut f64, at: u64) -> Option<u64> {
        if self.change.is_dark(at) || (sender && *free_at - at as f64 > BUFFER) {
            return None;
        }
        let leaves = if sender {
            *free_at = free_at.max(self.change.accepts_at(at) as f64) + bytes as f64 / self.change.rate(at);
            *free_at as u64
        } else {
            self.change.accepts_at(at)
        };
        Some(leaves + self.change.delay(at))
    }

    fn deliver(&self, pair: &mut Pair, in_flight: &mut Vec<(u64, usize, Vec<u8>)>, start: Instant, at: u64) {
        let (due, rest): (Vec<_>, Vec<_>) = mem::take(in_flight).into_iter().partition(|(arrives, to, _)| {
            *arrives <= at && (self.change.loses_arrivals() || !self.change.sleeps(*to, at))
        });
        *in_flight = rest;
        for (number, (_, to, datagram)) in due.into_iter().filter(|(_, to, _)| !self.change.sleeps(*to, at)).enumerate()
        {
            // Each batch is read at its own time.
            let reading = READING * (number / BATCH) as u32;
            pair.now = start.after(Duration::from_millis(self.change.clock(to, at)) + reading);
            let _ = pair.deliver(to, &datagram);
        }
    }
}

/// Returns the used share of the path's rate between two seconds, and the longest queue.
fn between(tenths: &[Tenth], from: usize, until: usize) -> (f64, f64) {
    let tenths = &tenths[10 * from..10 * until];
    let bytes: f64 = tenths.iter().map(|tenth| tenth.bytes).sum();
    let longest = tenths.iter().map(|tenth| tenth.queue).fold(0.0, f64::max);
    (bytes / (RATE * 100.0 * tenths.len() as f64), longest)
}

#[test]
fn after_a_deep_fall_of_the_rate_the_path_is_used_again() {
    for (rate, message, turn) in [8.0, 12.0, 16.0]
        .into_iter()
        .flat_map(|rate| [1000, 900, 400].map(|message| (rate, message)))
        .flat_map(|(rate, message)| [5, 16].map(|turn| (rate, message, turn)))
    {
        let scenario = Scenario { change: Change::Fall { rate, lasts: 20_000 }, turn, message };
        let tenths = scenario.run_until(80_000);
        let (used, longest) = between(&tenths, 55, 80);
        std::println!("{rate} bytes in a ms, {message} bytes, {turn} ms: {:.1} %, {longest:.0} ms", 100.0 * used);
        assert!((0.9..=1.02).contains(&used), "{rate} {message} {turn}: {used}");
        assert!(longest < 250.0, "{rate} {message} {turn}: {longest} ms");
    }
}

#[test]
fn a_dark_path_gets_the_floor_rate_and_is_used_again() {
    for (lasts, turn) in [(2000, 5), (6000, 5), (6000, 16)] {
        let tenths = Scenario { change: Change::Dark { lasts }, turn, message: 1000 }.run_until(BEGIN + lasts + 10_000);
        let (begin, end) = (BEGIN as usize / 100, (BEGIN + lasts) as usize / 100);
        let dark: f64 = tenths[begin + 10..end].iter().map(|tenth| tenth.bytes).sum();
        let seconds = (end - begin - 10) as f64 / 10.0;
        // Each second of silence has halved the rate.
        let (early, _) = between(&tenths, end / 10 + 1, end / 10 + 5);
        let (used, longest) = between(&tenths, end / 10 + 5, end / 10 + 10);
        std::println!(
            "{lasts} ms, turns of {turn} ms: {:.0} bytes a second, then {:.1} % and {:.1} %, {longest:.0} ms",
            dark / seconds,
            100.0 * early,
            100.0 * used
        );
        // The floor of 2,560 bytes per second, and one packet that was due.
        assert!(dark / seconds < 4000.0, "{lasts} {turn}: {dark}");
        assert!(early > 0.6 && (0.95..=1.02).contains(&used), "{lasts} {turn}: {early}, then {used}");
        assert!(longest < 100.0, "{lasts} {turn}: {longest} ms");
    }
}

#[test]
fn a_longer_path_is_used_once_it_is_no_longer_taken_for_a_queue() {
    for (message, turn) in [(1000, 5), (900, 5), (400, 5), (1000, 16), (900, 16), (400, 16)] {
        let tenths = Scenario { change: Change::Longer, turn, message }.run_until(40_000);
        let (used, _) = between(&tenths, 30, 40);
        std::println!("{message} bytes, {turn} ms: {:.1} %", 100.0 * used);
        assert!(used > 0.9, "{message} {turn}: {used}");
    }
}

#[test]
fn a_sleeping_machine_or_moved_clock_is_no_queue() {
    let sleep = |end, lasts, clock| Change::Sleep { end, lasts, clock, arrivals: Arrivals::WaitsInSocket };
    for end in [SENDER, RECEIVER] {
        for (change, turn) in [
            (sleep(end, 3000, Clock::StandsStill), 5),
            (sleep(end, 1000, Clock::StandsStill), 16),
            (sleep(end, 200, Clock::StandsStill), 5),
            (sleep(end, 3000, Clock::Runs), 5),
            (sleep(end, 1000, Clock::Runs), 16),
            (Change::Jump { end, by: 3000 }, 5),
            (Change::Jump { end, by: 300 }, 16),
            (Change::Jump { end, by: 20_000 }, 5),
            (sleep(end, 20_000, Clock::StandsStill), 5),
            (sleep(end, 20_000, Clock::Runs), 5),
        ] {
            a_moved_clock_is_no_queue(change, turn);
        }
    }
}

#[test]
fn a_machine_asleep_beyond_the_timestamp_wrap_recovers() {
    for end in [SENDER, RECEIVER] {
        for (lasts, turn) in [(9000, 5), (12_000, 5), (12_000, 16), (16_000, 5)] {
            let change = Change::Sleep { end, lasts, clock: Clock::StandsStill, arrivals: Arrivals::IsLost };
            // The new startup phase exceeds the path's rate for some ticks. They make jitter, which raises the target.
            a_moved_clock_makes_no_longer_queue(20.0 + 3.5 * turn as f64, change, turn);
        }
    }
}

#[test]
fn a_stall_both_ways_hides_no_queue() {
    for (lasts, turn) in [(110, 5), (150, 5), (150, 16), (250, 5), (400, 5)] {
        let tenths = Scenario { change: Change::Stall { lasts }, turn, message: 1000 }.run_until(BEGIN + 11_000);
        let after = (BEGIN + lasts) as usize / 100 + 4;
        let hidden = tenths[after..].iter().map(|tenth| tenth.queue - tenth.estimate).fold(0.0, f64::max);
        let longest = tenths[after + 10..].iter().map(|tenth| tenth.queue).fold(0.0, f64::max);
        let (used, _) = between(&tenths, BEGIN as usize / 1000 + 5, BEGIN as usize / 1000 + 10);
        std::println!("{lasts} ms, {turn} ms: {hidden:.0} ms hidden, {longest:.0} ms, {:.1} %", 100.0 * used);
        assert!((0.95..=1.02).contains(&used), "{lasts} {turn}: {used}");
        // The packets of a tick leave at once, and the smallest delay counts.
        assert!(hidden < 20.0 + turn as f64 && longest < 60.0, "{lasts} {turn}: {hidden} ms hidden, {longest} ms");
    }
}

fn a_moved_clock_is_no_queue(change: Change, turn: u64) {
    a_moved_clock_makes_no_longer_queue(60.0, change, turn);
}

fn a_moved_clock_makes_no_longer_queue(longest: f64, change: Change, turn: u64) {
    let lasts = if let Change::Sleep { lasts, .. } = change { lasts } else { 0 };
    let tenths = Scenario { change, turn, message: 1000 }.run_until(BEGIN + lasts + 11_000);
    let after = (BEGIN + lasts) as usize / 1000 + 1;
    let (early, _) = between(&tenths, after, after + 2);
    let (used, _) = between(&tenths, after + 5, after + 9);
    let (_, max_queue) = between(&tenths, after, after + 9);
    let estimate = tenths[10 * after..].iter().map(|tenth| tenth.estimate).fold(0.0, f64::max);
    std::println!(
        "{change:?}, {turn} ms: {:.1} %, then {:.1} %, {max_queue:.0} ms, estimated as {estimate:.0} ms",
        100.0 * early,
        100.0 * used
    );
    // After a long silence the startup phase begins again, from the reduced rate.
    assert!(early > 0.55 && (0.95..=1.02).contains(&used), "{change:?} {turn}: {early}, then {used}");
    assert!(estimate < 60.0 && max_queue < longest, "{change:?} {turn}: {max_queue} ms, estimated as {estimate} ms");
}
