//! Shots with lag compensation: how far the place that the server looks up is from the one on the screen, at rates of
//! frames above and below that of ticks.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    InputBuffer, InputLog, MAX_INPUT_BYTES, ObjectId, PlayoutClock, PlayoutSamples, Pose, PoseSample, Rewind, TickRate,
};

const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };
const TARGET: ObjectId = ObjectId(0);
/// All times are in microseconds.
const STEP: u64 = 250;
const PATH: u64 = 10_000;
/// How far inputs are ahead of the server.
const AHEAD: u64 = 45_000;
/// The delay of the client has settled by then.
const WARM_UP: u64 = 15_000_000;
const END: u64 = 25_000_000;

/// The target runs in a circle of 3 m at 6 m/s: 10 cm in a tick.
fn target(tick: u32) -> PoseSample {
    let turn = tick as f32 * 0.1 / 3.0;
    let pose = Pose { position: [3.0 * libm::cosf(turn), 0.0, 3.0 * libm::sinf(turn)], ..Pose::ORIGIN };
    PoseSample { tick, pose, velocity: None, is_at_rest: false, teleports: 0 }
}

fn ticks_of(micros: u64) -> f64 {
    micros as f64 * f64::from(RATE.per_second) / 1e6
}

/// A client with this number of frames in a second. It shoots in each tick at what is on its screen.
struct Shooter {
    frames: u64,
    frame: u64,
    clock: PlayoutClock,
    samples: PlayoutSamples,
    log: InputLog,
    made: u32,
    /// The tick on the screen, and the target's place there.
    screen: Option<(f64, [f32; 3])>,
    /// The place that was on the screen at each shot.
    aimed: BTreeMap<u32, [f32; 3]>,
}

impl Shooter {
    fn new(frames: u64) -> Self {
        let (clock, samples) = (PlayoutClock::new(RATE), PlayoutSamples::new(1, RATE));
        let (log, aimed) = (InputLog::new(), BTreeMap::new());
        Self { frames, frame: 0, clock, samples, log, made: 0, screen: None, aimed }
    }

    /// Returns the message of a frame, if one is due.
    fn turn(&mut self, now: u64) -> Option<Vec<u8>> {
        if now * self.frames < self.frame * 1_000_000 {
            return None;
        }
        self.frame += 1;
        let newest = ticks_of(now + AHEAD) as u32;
        let shown = self.screen.map(|(tick, _)| tick);
        for tick in self.made.max(newest.saturating_sub(8)) + 1..=newest {
            self.log.push(tick, 1, shown);
            self.screen.into_iter().for_each(|(_, place)| _ = self.aimed.insert(tick, place));
        }
        self.made = newest;
        let at = self.clock.advance(Duration::from_micros(now))?;
        let pose = self.samples.shown(TARGET, at, self.clock.newest_tick().unwrap_or(0));
        self.screen = pose.map(|(pose, _)| (at, pose.position));
        let mut buf = [0; MAX_INPUT_BYTES];
        let length = self.log.write(None, &mut buf);
        Some(buf[..length].to_vec())
    }
}

/// Returns the errors of all shots of ten seconds, in centimetres.
fn errors(frames: u64, lost_percent: u32) -> Vec<f32> {
    let (mut shooter, mut buffer, mut rewind) = (Shooter::new(frames), InputBuffer::new(0), Rewind::new(1, RATE));
    let (mut states, mut inputs) = (VecDeque::<(u64, u32)>::new(), VecDeque::<(u64, Vec<u8>)>::new());
    let (mut tick, mut random, mut errors) = (0_u32, 1_u32, Vec::new());
    for now in (0..END).step_by(STEP as usize) {
        while let Some((_, bytes)) = inputs.pop_front_if(|(at, _)| *at <= now) {
            buffer.read(&bytes, ticks_of(now)).unwrap();
        }
        while let Some((_, state)) = states.pop_front_if(|(at, _)| *at <= now) {
            shooter.samples.add(TARGET, target(state));
            shooter.clock.on_state(state, Duration::from_micros(now));
        }
        if let Some(message) = shooter.turn(now) {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if (random >> 8) % 100 >= lost_percent {
                inputs.push_back((now + PATH, message));
            }
        }
        if ticks_of(now) < f64::from(tick + 1) {
            continue;
        }
        tick += 1;
        if tick.is_multiple_of(RATE.between_states) {
            rewind.add(TARGET, target(tick));
            states.push_back((now + PATH, tick));
        }
        if now >= WARM_UP {
            let (found, aimed) = (rewind.at(TARGET, buffer.shown(tick), tick).unwrap(), shooter.aimed[&tick]);
            let square: f32 = found.pose.position.iter().zip(aimed).map(|(one, two)| (one - two) * (one - two)).sum();
            errors.push(libm::sqrtf(square) * 100.0);
        }
    }
    errors
}

#[test]
fn shots_hit_what_is_on_the_screen_at_any_frame_rate() {
    for frames in [144, 60, 30] {
        let errors = errors(frames, 0);
        let worst = errors.iter().copied().fold(0.0, f32::max);
        // Half of a 64th of a tick is 0.08 cm. A shot with the view of the next tick would be wrong by 10 cm.
        assert!(errors.len() > 590 && worst < 0.2, "{worst} cm at {frames} frames a second");
    }
}

/// If all messages of a frame get lost, its shots have the view of the nearest one.
#[test]
fn shots_of_lost_frames_are_wrong_by_less_than_a_frame() {
    for frames in [144, 60, 30] {
        let mut errors = errors(frames, 5);
        errors.sort_by(f32::total_cmp);
        let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
        let wrong = errors.iter().filter(|error| **error > 0.2).count() as f32 / errors.len() as f32;
        let frame = 600.0 / frames as f32;
        assert!(median < 0.2 && wrong < 0.08, "{median} cm, {wrong} of the shots at {frames} frames a second");
        assert!(worst < frame.max(10.0) + 0.5, "{worst} cm at {frames} frames a second");
    }
}
