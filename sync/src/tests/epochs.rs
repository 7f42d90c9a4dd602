//! Inputs that a client makes again after a jump back of its clock: the server plays those, whatever is lost or late.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::{InputBuffer, InputLog, InputReport, Keys, MAX_INPUT_BYTES, TickKeys};

/// How far the client is ahead of the server, in ticks: messages that are not late take 2 to 6.
const LEAD: u32 = 8;
/// Between two jumps, in ticks.
const BETWEEN_JUMPS: u32 = 150;

fn message(log: &InputLog) -> Vec<u8> {
    let mut buf = [0; MAX_INPUT_BYTES];
    let length = log.write(None, &mut buf);
    buf[..length].to_vec()
}

const fn taken(keys: Keys) -> TickKeys {
    TickKeys { keys, is_missing: false }
}

/// A message of inputs on its way, with its jump and the tick of its newest input.
struct Sent {
    arrives: u32,
    jumps: u32,
    newest: u32,
    bytes: Vec<u8>,
}

struct World {
    random: u64,
    loss: u64,
    log: InputLog,
    buffer: InputBuffer,
    up: Vec<Sent>,
    down: Vec<(u32, InputReport)>,
    /// The server's tick, which is also the time.
    now: u32,
    /// The jumps of the client, and the newest of them of which a message has arrived.
    jumps: u32,
    arrived_jumps: u32,
    /// The keys of each tick with the jumps before them, the newest ones.
    made: BTreeMap<u32, (u32, Keys)>,
    /// The ticks of the present epoch whose input has arrived.
    arrived: BTreeSet<u32>,
    missing: u32,
}

impl World {
    fn new(seed: u64, loss: u64) -> Self {
        Self {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            loss,
            log: InputLog::new(),
            buffer: InputBuffer::new(0),
            up: Vec::new(),
            down: Vec::new(),
            now: 1000,
            jumps: 0,
            arrived_jumps: 0,
            made: BTreeMap::new(),
            arrived: BTreeSet::new(),
            missing: 0,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// Makes and sends the inputs up to a tick.
    fn make(&mut self, first: u32, newest: u32) {
        for tick in first..=newest {
            let keys = self.random(4) as Keys | self.jumps << 8;
            self.log.push(tick, keys, None);
            self.made.insert(tick, (self.jumps, keys));
        }
        // Some messages come much later, and some twice.
        for _ in 0..=u32::from(self.random(20) == 0) {
            let late = if self.random(20) == 0 { 60 } else { 5 };
            let arrives = self.now + 2 + self.random(late) as u32;
            if self.random(100) >= self.loss {
                self.up.push(Sent { arrives, jumps: self.jumps, newest, bytes: message(&self.log) });
            }
        }
    }

    fn receive(&mut self) {
        let (come, later) = self.up.drain(..).partition(|sent| sent.arrives <= self.now);
        self.up = later;
        for sent in Vec::<Sent>::into_iter(come) {
            assert_eq!(self.buffer.read(&sent.bytes, f64::from(self.now)), Ok(None));
            self.arrived_jumps = self.arrived_jumps.max(sent.jumps);
            if sent.jumps == self.jumps {
                self.arrived.insert(sent.newest);
            }
        }
    }

    /// Plays a tick, and reports each third one.
    fn serve(&mut self) {
        let played = self.buffer.keys(self.now);
        let made = self.made.get(&self.now).copied();
        if let Some((jumps, keys)) = made.filter(|(jumps, _)| *jumps <= self.arrived_jumps && !played.is_missing) {
            assert_eq!(played.keys, keys, "tick {} after jump {jumps}", self.now);
        }
        assert!(!(self.arrived.contains(&self.now) && played.is_missing), "the input of tick {} arrived", self.now);
        self.missing += u32::from(played.is_missing);
        if self.now.is_multiple_of(3) {
            let arrives = self.now + 2 + self.random(30) as u32;
            let report = self.buffer.report().filter(|_| self.random(100) >= self.loss);
            self.down.extend(report.map(|report| (arrives, report)));
        }
    }

    /// Takes the reports that are due: none confirms an input that has not arrived.
    fn take_reports(&mut self) {
        let now = self.now;
        let (due, later) = self.down.drain(..).partition(|(arrives, _)| *arrives <= now);
        self.down = later;
        for (_, report) in Vec::<(u32, InputReport)>::into_iter(due) {
            // A report with a margin beyond what it can say confirms nothing.
            if self.log.on_report(report) && !report.is_beyond() {
                let (buffer, own) = (&self.buffer, self.made.range(now + 1..));
                for (tick, (_, keys)) in
                    own.filter(|(tick, (jumps, _))| *jumps == self.jumps && **tick <= report.newest)
                {
                    assert_eq!(buffer.clone().keys(*tick), taken(*keys), "tick {tick} is confirmed at {now}");
                }
            }
        }
    }

    fn run(&mut self, jump: u32, jumps: u32) {
        // The clock is ahead by the jump, jumps back, and is ahead again after some time.
        let mut newest = self.now + LEAD + jump;
        self.make(newest, newest);
        for step in 1..=BETWEEN_JUMPS * jumps {
            (self.now, newest) = (self.now + 1, newest + 1);
            self.receive();
            self.serve();
            self.take_reports();
            match step % BETWEEN_JUMPS {
                50 => {
                    newest -= jump + 1;
                    (self.jumps, self.arrived) = (self.jumps + 1, BTreeSet::new());
                    // The inputs of later ticks are never made in this epoch before their time.
                    self.made.split_off(&newest);
                    self.make(newest, newest);
                }
                0 => {
                    newest += jump + 1;
                    // Inputs before a gap are not repeated.
                    self.made.clear();
                    self.make(newest, newest);
                }
                _ => self.make(newest, newest),
            }
        }
    }
}

#[test]
fn inputs_after_a_jump_back_replace_the_ones_before() {
    for jump in [1, 2, 7, 15, 16, 30, 39, 60, 200] {
        for (seed, loss) in (1..=40).zip([0, 5, 20, 40].into_iter().cycle()) {
            let mut world = World::new(seed, loss);
            // More jumps than there are epochs.
            world.run(jump, 20);
            assert!(loss > 0 || world.missing <= 20 * (jump + LEAD), "jump {jump}, seed {seed}: {}", world.missing);
        }
    }
}
