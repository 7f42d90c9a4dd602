//! Paths with much jitter or loss: the delay of a timeline stays near what they need, for 20 minutes.

use alloc::collections::BTreeSet;
use core::time::Duration;

use crate::{PlayoutClock, TickRate};

/// The time of a run, and that of a frame, in microseconds.
const RUN: u64 = 20 * 60 * 1_000_000;
const FRAME: u64 = 16_667;
/// The time after which the delay has settled.
const SETTLED: u64 = 60_000_000;
/// The delay of the quickest messages.
const PATH: u64 = 50_000;

/// A path, and what a timeline on it may do.
struct Path {
    rate: TickRate,
    /// The most that a message is late, in milliseconds. All delays up to it are equally likely.
    jitter: u64,
    /// Lost messages in a hundred.
    loss: u64,
    /// The most that the timeline may be behind the quickest messages, in milliseconds.
    max_delay: u64,
    /// The most frames that may starve, in a thousand.
    max_starved: usize,
}

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What a timeline did after its delay had settled.
struct Run {
    jumps: u32,
    /// The least and the largest delay in milliseconds.
    delays: [u64; 2],
    starved: usize,
    frames: usize,
}

fn run(path: &Path) -> Run {
    let TickRate { per_second, between_states } = path.rate;
    let (mut clock, mut random) = (PlayoutClock::new(path.rate), Random(u64::from(per_second) << 8 | path.jitter));
    let time_of = |tick: u32| u64::from(tick) * 1_000_000 / u64::from(per_second);
    let (mut on_path, mut next) = (BTreeSet::new(), between_states);
    let mut run = Run { jumps: 0, delays: [u64::MAX, 0], starved: 0, frames: 0 };
    for now in (0..RUN).step_by(FRAME as usize) {
        while time_of(next) <= now {
            let arrives = time_of(next) + PATH + random.below(path.jitter * 1000 + 1);
            if random.below(100) >= path.loss {
                on_path.insert((arrives, next));
            }
            next += between_states;
        }
        while let Some((arrives, tick)) = on_path.first().copied().filter(|(arrives, _)| *arrives <= now) {
            on_path.pop_first();
            clock.on_state(tick, Duration::from_micros(arrives));
        }
        let Some(tick) = clock.advance(Duration::from_micros(now)).filter(|_| now > SETTLED) else { continue };
        let delay = (now as f64 - PATH as f64 - tick * 1e6 / f64::from(per_second)) / 1000.0;
        let [least, most] = run.delays;
        run.delays = [least.min(delay as u64), most.max(delay as u64)];
        (run.starved, run.frames) = (run.starved + usize::from(clock.is_starved()), run.frames + 1);
    }
    Run { jumps: clock.jumps(), ..run }
}

fn path(states: (u32, u32), jitter: u64, loss: u64, max_delay: u64) -> Path {
    let (per_second, between_states) = states;
    Path { rate: TickRate { per_second, between_states }, jitter, loss, max_delay, max_starved: 8 }
}

/// Jitter of several intervals, and losses of more than half of the states, make states overdue most of the time. The
/// delay may be what the jitter takes, or the runs of losses that starve for 0.8 % of the time, and some intervals.
#[test]
fn delay_stays_near_what_jitter_and_loss_need() {
    let paths = [
        path((60, 1), 100, 0, 140),
        path((60, 1), 100, 13, 150),
        path((60, 2), 200, 0, 290),
        path((60, 3), 300, 0, 430),
        path((128, 1), 50, 0, 70),
        path((60, 1), 0, 65, 265),
        // Pauses of more than 500 ms count as outages, and are not covered.
        Path { max_starved: 20, ..path((60, 3), 0, 58, 500) },
    ];
    for path in &paths {
        let Path { rate, jitter, loss, max_delay, max_starved } = path;
        let Run { jumps, delays: [least, most], starved, frames } = run(path);
        let of = std::format!("{rate:?}, {jitter} ms, {loss} %: {least} to {most} ms, {starved} of {frames} starved");
        assert_eq!(jumps, 0, "{of}");
        assert!(most <= *max_delay && most - least < 150, "{of}");
        assert!(starved * 1000 <= max_starved * frames, "{of}");
    }
}
