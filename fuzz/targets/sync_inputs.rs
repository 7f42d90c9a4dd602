//! Messages of inputs and reports: arbitrary ones for a server's buffer and a client's clock, and those of a log on a
//! path that loses, delays and repeats them. Reading takes no memory.

#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_sync::{InputBuffer, InputClock, InputLog, InputReport, Keys, MAX_INPUT_BYTES, MAX_INPUTS, ResyncRequest};

#[path = "../../tests/src/counting.rs"]
#[allow(dead_code, unreachable_pub)] // Shared with the tests, which use more of it.
mod counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// An input may be ahead of the server by this many ticks.
const MAX_AHEAD: f64 = 48.0;
/// The longest message of this target: longer than any valid one.
const MAX_BYTES: usize = MAX_INPUT_BYTES + 8;
/// The keys that a missing input does not repeat.
const ONCE: Keys = 0b100;

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    match input.u8() & 1 {
        0 => invented(&mut input),
        _ => Exchange::new(input.u8()).run(&mut input),
    }
});

/// Feeds arbitrary messages at arbitrary moments to a buffer, and arbitrary reports to a clock.
fn invented(input: &mut Input<'_>) {
    let (mut buffer, mut clock) = (InputBuffer::new(ONCE), InputClock::new(60));
    let (mut now, mut real, mut missed, mut latest) = (0.0_f64, Duration::ZERO, 0_u64, 0.0_f64);
    while let Some(operation) = input.operation() {
        match operation % 8 {
            0 => now = f64::from_bits(input.u64()),
            1 => now = f64::from(u32::from_le_bytes(input.array())),
            2 => now += f64::from(input.u8()) / 4.0,
            3 => {
                let keys = buffer.keys(u32::from_le_bytes(input.array()));
                missed += u64::from(keys.is_missing);
                assert!(!keys.is_missing || keys.keys & ONCE == 0, "a missing input repeats no key that acts once");
            }
            4 => {
                // Margins beyond a report are also those of inputs that were dropped.
                let report = buffer.report().filter(|report| !matches!(report.margin_quarters, i8::MIN | i8::MAX));
                let newest = report.map_or(0, |report| report.newest);
                assert!(f64::from(newest) <= latest, "{newest} is later than any input may be: {latest}");
                assert_eq!(buffer.report(), None, "each input is reported once");
            }
            5 => {
                real = real.saturating_add(Duration::from_millis(u64::from(u16::from_le_bytes(input.array()))));
                clock.set(u32::from_le_bytes(input.array()), Duration::from_millis(100), Duration::ZERO, real);
                clock.advance(real);
            }
            6 => {
                let newest = u32::from_le_bytes(input.array());
                clock.on_report(InputReport { newest, margin_quarters: input.u8() as i8, epoch: 0 });
            }
            _ => {
                latest = latest.max(now + MAX_AHEAD);
                read_invented(&mut buffer, input, now);
            }
        }
        assert_eq!(buffer.missed(), missed, "only a tick that is played can be missed");
        assert!(clock.tick().is_none_or(f64::is_finite), "the clock shows a time");
    }
}

/// Reads an arbitrary message. A refused one changes nothing, and none takes memory.
fn read_invented(buffer: &mut InputBuffer, input: &mut Input<'_>, now: f64) {
    let mut message = [0; MAX_BYTES];
    let length = usize::from(input.u8()) % MAX_BYTES;
    message[..length].iter_mut().for_each(|byte| *byte = input.u8());
    let before = buffer.clone();
    let allocations = counting::allocation_count();
    let is_read = buffer.read(&message[..length], now).is_ok();
    assert_eq!(counting::allocation_count(), allocations, "reading takes no memory");
    if !is_read {
        check_same(before, buffer.clone());
    }
}

/// Checks that two buffers report and play the same from here on.
fn check_same(mut one: InputBuffer, mut two: InputBuffer) {
    let reports = [one.report(), two.report()];
    assert_eq!(reports[0], reports[1], "a refused message changes nothing");
    let newest = reports[0].map_or(0, |report| report.newest);
    for tick in newest.saturating_sub(MAX_INPUTS as u32)..=newest.saturating_add(4) {
        assert_eq!(one.keys(tick), two.keys(tick), "a refused message changes nothing");
        assert!((one.shown(tick) - two.shown(tick)).abs() < f64::EPSILON, "a refused message changes nothing");
    }
}

/// A message on its way, the tick of its newest input, and what it has beside its inputs.
struct SentInputs {
    bytes: Vec<u8>,
    newest: u32,
    shown: Option<f64>,
    resync: Option<ResyncRequest>,
}

/// A client's log, the server's buffer, and the messages between them.
struct Exchange {
    log: InputLog,
    buffer: InputBuffer,
    /// The server's tick.
    now: u32,
    /// The tick of the newest input, and the tick that the client showed when it made it.
    made: u32,
    shown: Option<f64>,
    /// The keys of all ticks.
    truth: BTreeMap<u32, Keys>,
    /// The ticks with a message that arrived in time to be kept.
    arrived: BTreeSet<u32>,
    late: Vec<SentInputs>,
}

impl Exchange {
    fn new(start: u8) -> Self {
        // Around the wraps of the 16 bits in a message.
        let start = [100, 65_500, 131_030, 4_000_000_000][usize::from(start % 4)] + u32::from(start / 4);
        let (truth, arrived) = (BTreeMap::new(), BTreeSet::new());
        let (log, buffer) = (InputLog::new(), InputBuffer::new(ONCE));
        Self { log, buffer, now: start, made: start, shown: None, truth, arrived, late: Vec::new() }
    }

    fn run(&mut self, input: &mut Input<'_>) {
        while let Some(operation) = input.operation() {
            match operation % 8 {
                0 | 1 => self.make(1, u32::from(input.u8()), input.u8()),
                2 => self.make(1 + u32::from(input.u8()) % 8, u32::from(input.u8() % 8) << 20, input.u8()),
                3 | 4 => self.send(input.u8()),
                5 => self.play(1 + u32::from(input.u8()) % 40),
                6 => self.report(input.u8() % 4 != 0),
                _ if self.late.is_empty() => {}
                _ => {
                    let sent = self.late.remove(usize::from(input.u8()) % self.late.len());
                    self.deliver(&sent);
                }
            }
        }
        self.settle();
    }

    /// Makes the input of the tick after the newest one, or of a later one after a gap.
    fn make(&mut self, ticks: u32, keys: Keys, behind: u8) {
        self.made += ticks;
        self.shown = (behind & 64 != 0).then(|| f64::from(self.made) - f64::from(behind) / 4.0);
        self.log.push(self.made, keys, self.shown);
        self.truth.insert(self.made, keys);
    }

    /// Sends what is not confirmed. It arrives, arrives twice, comes late, or gets lost.
    fn send(&mut self, way: u8) {
        let mut buf = [0; MAX_INPUT_BYTES];
        let resync = (way & 128 != 0).then_some(ResyncRequest(way % 16));
        let length = self.log.write(resync, &mut buf);
        assert_eq!(length == 0, self.truth.is_empty(), "there is a message as soon as there is an input");
        if length == 0 {
            return;
        }
        let sent = SentInputs { bytes: buf[..length].to_vec(), newest: self.made, shown: self.shown, resync };
        match way % 4 {
            0 => self.deliver(&sent),
            1 => {
                self.deliver(&sent);
                self.deliver(&sent);
            }
            2 => self.late.push(sent),
            _ => {}
        }
    }

    fn deliver(&mut self, sent: &SentInputs) {
        let request = self.buffer.read(&sent.bytes, f64::from(self.now)).expect("a message of the log");
        assert_eq!(request, sent.resync, "the client's request");
        let margin = f64::from(sent.newest) - f64::from(self.now);
        if (0.0..=MAX_AHEAD).contains(&margin) {
            self.arrived.insert(sent.newest);
            let shown = self.buffer.shown(sent.newest);
            assert!(sent.shown.is_none_or(|sent| (shown - sent).abs() < f64::EPSILON), "what the client showed");
        }
    }

    /// Plays ticks at the server: what arrived is played as it was made.
    fn play(&mut self, ticks: u32) {
        for _ in 0..ticks {
            let played = self.buffer.keys(self.now);
            if played.is_missing {
                assert!(!self.arrived.contains(&self.now), "tick {} arrived", self.now);
                assert_eq!(played.keys & ONCE, 0, "a missing input repeats no key that acts once");
            } else {
                assert_eq!(Some(&played.keys), self.truth.get(&self.now), "tick {}", self.now);
            }
            self.now += 1;
        }
    }

    fn report(&mut self, has_arrived: bool) {
        let Some(report) = self.buffer.report() else { return };
        assert!(report.newest <= self.made, "the client made no input of tick {}", report.newest);
        if has_arrived {
            assert!(self.log.on_report(report), "the client never jumped back");
        }
    }

    /// Checks that all inputs arrive in time without losses, and that nothing is repeated.
    fn settle(&mut self) {
        for sent in std::mem::take(&mut self.late) {
            self.deliver(&sent);
        }
        (self.now, self.made) = (self.now.max(self.made), self.now.max(self.made) + 2);
        for round in 0..100 {
            self.make(1, round, 0);
            self.send(0);
            self.report(true);
            let missed = self.buffer.missed();
            self.play(1);
            assert!(round < 3 || self.buffer.missed() == missed, "an input in time is missing");
        }
        let mut buf = [0; MAX_INPUT_BYTES];
        assert_eq!(self.log.write(None, &mut buf), 7, "only the newest input is left");
    }
}
