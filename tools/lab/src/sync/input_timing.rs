//! Inputs of a client with a clock that drifts, over a path with jitter and losses, and how many are late.

use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{InputBuffer, InputClock, InputLog, InputReport, MAX_INPUT_BYTES};

use super::lossy::{LossyPath, MessageLoss};

const TICKS: u32 = 60;
/// The server's tick at the start.
const FIRST_TICK: f64 = 100.0;
const DELAY: Duration = Duration::from_millis(50);
/// Ticks between two states, which carry the report.
const TICKS_OF_STATE: u32 = 3;
/// Seconds before the measurement starts.
const WARM_UP: u32 = 30;

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InputFigures {
    /// Ticks that the server played without the client's input, in percent.
    pub late: f64,
    /// Jumps of the client's clock.
    pub jumps: u32,
    /// How far the inputs are ahead of their tick when they are made, less the delay of the path, in milliseconds.
    pub lead: f64,
}

/// Server, client and the path between them. Server ticks start at [`FIRST_TICK`].
struct InputWorld {
    up: LossyPath<Vec<u8>>,
    down: LossyPath<(u32, Option<InputReport>)>,
    clock: InputClock,
    log: InputLog,
    buffer: InputBuffer,
    /// The newest tick with an input.
    made: Option<u32>,
    lead: f64,
}

/// Runs a client for some minutes. Its clock is quicker than the server's by `drift` millionths.
#[must_use]
pub fn run(minutes: u32, loss: f64, jitter: Duration, drift: i32, seed: u64) -> InputFigures {
    let random = |stream| Random::new(seed, stream);
    let mut world = InputWorld {
        up: LossyPath::new(MessageLoss::Random(loss), DELAY, jitter, random(0x49_55)),
        down: LossyPath::new(MessageLoss::Random(loss), DELAY, jitter, random(0x49_44)),
        clock: InputClock::new(TICKS),
        log: InputLog::new(),
        buffer: InputBuffer::new(0),
        made: None,
        lead: 0.0,
    };
    let mut late_before = 0;
    // Each millisecond, so that nothing is aligned with the ticks by chance.
    for millis in 0..u64::from(minutes) * 60_000 {
        if millis == u64::from(WARM_UP) * 1000 {
            late_before = world.buffer.missed();
        }
        let now = Duration::from_millis(millis);
        world.serve(now);
        world.play(now, now.mul_f64(1.0 + f64::from(drift) / 1e6), jitter);
    }
    let ticks = f64::from(minutes * 60 * TICKS);
    let late = (world.buffer.missed() - late_before) as f64 * 100.0 / (ticks - f64::from(WARM_UP * TICKS));
    InputFigures { late, jumps: world.clock.jumps(), lead: world.lead / ticks }
}

/// Returns the server's tick at a moment, with its fraction.
fn server_tick(now: Duration) -> f64 {
    now.as_secs_f64() * f64::from(TICKS) + FIRST_TICK
}

impl InputWorld {
    /// Reads inputs, plays the tick that starts in this millisecond, and sends a state every third tick.
    fn serve(&mut self, now: Duration) {
        while let Some((at, message)) = self.up.pop(now) {
            let result = self.buffer.read(&message, server_tick(at));
            debug_assert_eq!(result, Ok(None), "inputs of the client");
        }
        let tick = server_tick(now);
        if tick.fract() >= f64::from(TICKS) / 1000.0 {
            return;
        }
        self.buffer.keys(tick as u32);
        if (tick as u32).is_multiple_of(TICKS_OF_STATE) {
            self.down.push((tick as u32, self.buffer.report()), now);
        }
    }

    /// Reads reports, and makes and sends the inputs that are due by the client's own clock.
    fn play(&mut self, now: Duration, own: Duration, jitter: Duration) {
        while let Some((_, (tick, report))) = self.down.pop(now) {
            self.clock.set(tick, 2 * DELAY, jitter, own);
            if let Some(report) = report.filter(|report| self.log.on_report(*report)) {
                self.clock.on_report(report);
            }
        }
        let Some(newest) = self.clock.advance(own) else { return };
        for tick in self.made.map_or(newest, |made| made + 1)..=newest {
            self.log.push(tick, tick % 7, None);
            let mut buf = [0; MAX_INPUT_BYTES];
            let length = self.log.write(None, &mut buf);
            self.up.push(buf.get(..length).unwrap_or(&[]).to_vec(), now);
            let ahead = (f64::from(tick) - server_tick(now)) / f64::from(TICKS);
            self.lead += (ahead - DELAY.as_secs_f64()) * 1000.0;
            self.made = Some(tick);
        }
    }
}
