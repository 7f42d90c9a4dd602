//! Client and server that stall, and clocks that jump: the player plays on within a second, and what is shown does too.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;
use std::eprintln;

use crate::{InputBuffer, InputClock, InputLog, InputReport, MAX_INPUT_BYTES, PlayoutClock, TickRate};

const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };
/// A tick in microseconds.
const TICK: i64 = 16_667;
/// The start of the fault, in milliseconds.
const FAULT_START: u64 = 30_000;

/// A fault in a run.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    /// The client does nothing for this time, in milliseconds; its clock goes on.
    Client(u64),
    /// The server does nothing for this time and goes on where it was.
    Server(u64),
    /// The server does nothing for this time and plays all missed ticks then.
    ServerCatchesUp(u64),
    /// The client's clock jumps by this time.
    Clock(i64),
    /// The inputs take longer than the client assumes, by this time.
    LongPath(u64),
}

/// One end's messages, each with the millisecond at which it arrives.
type Path<M> = VecDeque<(u64, M)>;

struct World {
    fault: Fault,
    state: u64,
    up: Path<Vec<u8>>,
    down: Path<(u32, Option<InputReport>)>,
    inputs: InputClock,
    log: InputLog,
    playout: PlayoutClock,
    buffer: InputBuffer,
    made: Option<u32>,
    tick: u32,
    /// The server's time of its next tick, in microseconds.
    due: i64,
    /// The milliseconds in which a tick had no input, and in which nothing new could be shown.
    missing: Vec<u64>,
    starved: Vec<u64>,
}

impl World {
    fn new(fault: Fault, seed: u64) -> Self {
        Self {
            fault,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            up: Path::new(),
            down: Path::new(),
            inputs: InputClock::new(RATE.per_second),
            log: InputLog::new(),
            playout: PlayoutClock::new(RATE),
            buffer: InputBuffer::new(0),
            made: None,
            tick: 1000,
            due: 0,
            missing: Vec::new(),
            starved: Vec::new(),
        }
    }

    /// Returns when a message arrives that is sent now: after 50 to 60 ms, or `None` for one in 50.
    fn arrival(&mut self, now: u64) -> Option<u64> {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = self.state >> 33;
        (!number.is_multiple_of(50)).then_some(now + 50 + number % 11)
    }

    fn run(&mut self) {
        for now in 0..60_000 {
            let is_in = |length: u64| (FAULT_START..FAULT_START + length).contains(&now);
            match self.fault {
                Fault::Server(length) if is_in(length) => self.due += 1000,
                Fault::ServerCatchesUp(length) if is_in(length) => {}
                _ => self.serve(now),
            }
            match self.fault {
                Fault::Client(length) if is_in(length) => {}
                _ => self.play(now),
            }
        }
    }

    fn serve(&mut self, now: u64) {
        let passed = 1.0 - ((self.due - now as i64 * 1000) as f64 / TICK as f64).clamp(0.0, 1.0);
        while self.up.front().is_some_and(|(at, _)| *at <= now) {
            let (_, message) = self.up.pop_front().unwrap();
            self.buffer.read(&message, f64::from(self.tick) + passed).unwrap();
        }
        while self.due <= now as i64 * 1000 {
            (self.due, self.tick) = (self.due + TICK, self.tick + 1);
            if self.buffer.keys(self.tick).is_missing {
                self.missing.push(now);
            }
            if self.tick.is_multiple_of(RATE.between_states) {
                let report = self.buffer.report();
                let arrival = self.arrival(now);
                self.down.extend(arrival.map(|at| (at, (self.tick, report))));
            }
        }
    }

    fn play(&mut self, now: u64) {
        let own = match self.fault {
            Fault::Clock(jump) if now >= FAULT_START => (now + 10_000).saturating_add_signed(jump),
            _ => now + 10_000,
        };
        let own = Duration::from_millis(own);
        while self.down.front().is_some_and(|(at, _)| *at <= now) {
            let (_, (tick, report)) = self.down.pop_front().unwrap();
            self.inputs.set(tick, Duration::from_millis(100), Duration::from_millis(20), own);
            if let Some(report) = report.filter(|report| self.log.on_report(*report)) {
                self.inputs.on_report(report);
            }
            self.playout.on_state(tick, own);
        }
        if !now.is_multiple_of(16) {
            return;
        }
        if self.playout.advance(own).is_some() && self.playout.is_starved() {
            self.starved.push(now);
        }
        let Some(newest) = self.inputs.advance(own) else { return };
        let made = self.made.filter(|made| *made <= newest).unwrap_or(newest - 1).max(newest - 30);
        for tick in made + 1..=newest {
            self.log.push(tick, tick, None);
            let mut buf = [0; MAX_INPUT_BYTES];
            let length = self.log.write(None, &mut buf);
            let longer = if let Fault::LongPath(longer) = self.fault { longer } else { 0 };
            let arrival = self.arrival(now);
            self.up.extend(arrival.map(|at| (at + longer, buf[..length].to_vec())));
        }
        self.made = Some(newest);
    }
}

fn count(times: &[u64], from: u64, to: u64) -> usize {
    times.iter().filter(|time| (from..to).contains(*time)).count()
}

#[test]
fn players_play_on_within_a_second_of_a_stall() {
    let stalls = [500, 1000, 2500, 5000];
    let client = stalls.map(|length| (Fault::Client(length), FAULT_START + length));
    let server = stalls.map(|length| (Fault::Server(length), FAULT_START + length));
    let catching = stalls.map(|length| (Fault::ServerCatchesUp(length), FAULT_START + length));
    let short = [300, 450].map(|length| (Fault::Server(length), FAULT_START + length));
    let clocks = [-400, 400, -600, -2000, 2000].map(|jump| (Fault::Clock(jump), FAULT_START));
    // The client learns in 4 s that its path is longer than assumed by 600 ms.
    let long = [(Fault::LongPath(600), 3000)];
    let all = client.into_iter().chain(server).chain(catching).chain(short).chain(clocks).chain(long);
    for (fault, end) in all {
        for seed in 1..=8 {
            let mut world = World::new(fault, seed);
            world.run();
            let later = (count(&world.missing, end + 1000, 60_000), count(&world.starved, end + 1000, 60_000));
            eprintln!("{fault:?}, seed {seed}: {later:?}, delay {:?}", world.playout.delay());
            // 1 % of the ticks and 2 % of the frames, as in a run without a fault.
            let seconds = (59_000 - end) as usize / 1000;
            assert!(later.0 * 100 <= seconds * 60, "{fault:?}, seed {seed}: {} ticks without input", later.0);
            assert!(later.1 * 50 <= seconds * 60, "{fault:?}, seed {seed}: {} frames starved", later.1);
            // Within the first second, too, it plays on.
            let second =
                count(&world.missing, end + 1000, end + 2000).max(count(&world.starved, end + 1000, end + 2000));
            assert!(second <= 12, "{fault:?}, seed {seed}: {second} in the second after");
            // As without a fault: nothing of the schedule before is left.
            let delay = world.playout.delay();
            assert!(delay < Duration::from_millis(130), "{fault:?}, seed {seed}: {delay:?}");
        }
    }
}

#[test]
fn no_clock_jumps_without_a_stall() {
    for seed in 1..=8 {
        let mut world = World::new(Fault::None, seed);
        world.run();
        assert_eq!((world.inputs.jumps(), world.playout.jumps()), (0, 0), "seed {seed}");
    }
}
