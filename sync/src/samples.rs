//! The poses of a client's objects over the last states, and what is shown of them at a moment (§6.6).

use alloc::vec;
use alloc::vec::Vec;

use crate::object::ObjectId;
use crate::pose::{self, Pose, PoseSample, TickRate};

/// The samples of each object: half a second at 60 states a second.
const KEPT_SAMPLES: usize = 32;
/// The longest motion beyond the newest sample, in seconds.
const MAX_EXTRAPOLATION: f64 = 0.1;

/// How a shown pose was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownBy {
    /// Between two samples, or exactly at one.
    Samples,
    /// The newest sample, moved on for up to 100 ms.
    Extrapolation,
    /// The newest sample, because the object rests, nothing is known of its motion, or it was moved on for long enough.
    Hold,
}

/// The samples of all objects of a client. Nothing is allocated after [`PlayoutSamples::new`].
///
/// # Examples
///
/// ```
/// use slipgate_sync::{ObjectId, PlayoutSamples, Pose, PoseSample, TickRate};
///
/// let mut samples = PlayoutSamples::new(10, TickRate { per_second: 60, between_states: 3 });
/// for (tick, x) in [(30, 0.0), (33, 0.6)] {
///     let pose = Pose { position: [x, 0.0, 0.0], ..Pose::ORIGIN };
///     let sample = PoseSample { tick, pose, velocity: None, is_at_rest: false, is_teleport: false };
///     samples.add(ObjectId(4), sample);
/// }
/// let (pose, _) = samples.shown(ObjectId(4), 31.0, 33).ok_or("it has samples")?;
/// assert!((pose.position[0] - 0.2).abs() < 1e-6);
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug)]
pub struct PlayoutSamples {
    rate: TickRate,
    samples: Vec<PoseSample>,
    /// The used samples of each object, sorted by tick.
    counts: Vec<u8>,
}

impl PlayoutSamples {
    /// Returns samples for ids below `max_objects`: 2 KiB for each one.
    #[must_use]
    pub fn new(max_objects: u16, rate: TickRate) -> Self {
        let empty = PoseSample { tick: 0, pose: Pose::ORIGIN, velocity: None, is_at_rest: true, is_teleport: false };
        let objects = usize::from(max_objects);
        Self { rate, samples: vec![empty; objects * KEPT_SAMPLES], counts: vec![0; objects] }
    }

    /// Adds a sample. Samples may come in any order; the oldest one makes room. A second sample of a tick, and one with
    /// numbers that are not finite, is ignored.
    pub fn add(&mut self, id: ObjectId, sample: PoseSample) {
        let index = usize::from(id.0);
        let numbers = sample.pose.position.iter().chain(&sample.pose.rotation).chain(sample.velocity.iter().flatten());
        if numbers.copied().any(|number| !number.is_finite()) {
            return;
        }
        let Some(count) = self.counts.get_mut(index) else { return };
        let Some(kept) = self.samples.get_mut(index * KEPT_SAMPLES..(index + 1) * KEPT_SAMPLES) else { return };
        let used = usize::from(*count);
        let place = kept.get(..used).unwrap_or(&[]).partition_point(|other| other.tick < sample.tick);
        if kept.get(place).is_some_and(|other| place < used && other.tick == sample.tick) {
            return;
        }
        if used < KEPT_SAMPLES {
            *count += 1;
            if let Some(behind) = kept.get_mut(place..=used) {
                behind.rotate_right(1);
            }
            kept.get_mut(place).into_iter().for_each(|kept| *kept = sample);
        } else if let Some(before) = place.checked_sub(1) {
            if let Some(older) = kept.get_mut(..=before) {
                older.rotate_left(1);
            }
            kept.get_mut(before).into_iter().for_each(|kept| *kept = sample);
        }
    }

    /// Forgets an object, which is gone or became another one.
    pub fn remove(&mut self, id: ObjectId) {
        if let Some(count) = self.counts.get_mut(usize::from(id.0)) {
            *count = 0;
        }
    }

    /// Returns what is to be shown of an object at a tick, with its fraction, of
    /// [`PlayoutClock::advance`](crate::PlayoutClock::advance). `newest` is the newest tick of any state that arrived:
    /// an object that it does not mention has not moved. `None` if the object has no sample.
    #[must_use]
    pub fn shown(&self, id: ObjectId, at: f64, newest: u32) -> Option<(Pose, ShownBy)> {
        let samples = self.of(id);
        let next = samples.partition_point(|sample| f64::from(sample.tick) < at);
        let Some(to) = samples.get(next) else { return self.beyond(samples, at, newest) };
        let Some(from) = next.checked_sub(1).and_then(|before| samples.get(before)) else {
            return Some((to.pose, ShownBy::Samples));
        };
        Some((pose::between(from, to, at, self.rate), ShownBy::Samples))
    }

    /// Returns the newest sample of an object.
    #[must_use]
    pub fn newest(&self, id: ObjectId) -> Option<&PoseSample> {
        self.of(id).last()
    }

    fn of(&self, id: ObjectId) -> &[PoseSample] {
        let index = usize::from(id.0);
        let used = self.counts.get(index).copied().map_or(0, usize::from);
        self.samples.get(index * KEPT_SAMPLES..index * KEPT_SAMPLES + used).unwrap_or(&[])
    }

    /// Moves the newest sample on.
    fn beyond(&self, samples: &[PoseSample], at: f64, newest: u32) -> Option<(Pose, ShownBy)> {
        let last = samples.last()?;
        let velocity = last.velocity.or_else(|| self.measured_velocity(samples).filter(|_| newest <= last.tick));
        let (Some(velocity), false) = (velocity, last.is_at_rest) else { return Some((last.pose, ShownBy::Hold)) };
        let most = MAX_EXTRAPOLATION * f64::from(self.rate.per_second);
        let ticks = at - f64::from(last.tick);
        let how = if ticks <= most { ShownBy::Extrapolation } else { ShownBy::Hold };
        Some((pose::beyond(last, velocity, ticks.clamp(0.0, most), self.rate), how))
    }

    /// Returns the velocity between the last two samples.
    fn measured_velocity(&self, samples: &[PoseSample]) -> Option<[f32; 3]> {
        let [.., before, last] = samples else { return None };
        if last.is_teleport || before.is_at_rest {
            return None;
        }
        let seconds = self.rate.seconds(f64::from(last.tick) - f64::from(before.tick));
        let mut velocity = last.pose.position;
        velocity.iter_mut().zip(before.pose.position).for_each(|(part, before)| *part = (*part - before) / seconds);
        Some(velocity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };
    const ID: ObjectId = ObjectId(2);

    fn sample(tick: u32, x: f32) -> PoseSample {
        let pose = Pose { position: [x, 0.0, 0.0], ..Pose::ORIGIN };
        PoseSample { tick, pose, velocity: None, is_at_rest: false, is_teleport: false }
    }

    fn x(samples: &PlayoutSamples, at: f64, newest: u32) -> (f32, ShownBy) {
        let (pose, how) = samples.shown(ID, at, newest).unwrap();
        (pose.position[0], how)
    }

    #[test]
    fn samples_are_sorted_and_the_oldest_make_room() {
        let mut samples = PlayoutSamples::new(3, RATE);
        for tick in (0..200_u32).map(|number| number * 7 % 100) {
            samples.add(ID, sample(tick, tick as f32));
        }
        let ticks: Vec<u32> = samples.of(ID).iter().map(|sample| sample.tick).collect();
        assert_eq!(ticks, (68..100).collect::<Vec<u32>>());
        assert!(samples.of(ObjectId(1)).is_empty() && samples.of(ObjectId(3)).is_empty());
    }

    #[test]
    fn motion_goes_on_for_100_ms_and_then_holds() {
        let mut samples = PlayoutSamples::new(3, RATE);
        samples.add(ID, sample(30, 0.0));
        samples.add(ID, sample(33, 1.0));
        assert_eq!(x(&samples, 36.0, 33), (2.0, ShownBy::Extrapolation));
        assert_eq!(x(&samples, 39.0, 33), (3.0, ShownBy::Extrapolation));
        assert_eq!(x(&samples, 60.0, 33), (3.0, ShownBy::Hold));
        assert_eq!(x(&samples, 36.0, 36), (1.0, ShownBy::Hold), "a newer state does not mention it");
    }

    #[test]
    fn object_at_rest_is_not_moved_on() {
        let mut samples = PlayoutSamples::new(3, RATE);
        samples.add(ID, sample(30, 0.0));
        samples.add(ID, PoseSample { is_at_rest: true, velocity: Some([9.0; 3]), ..sample(33, 1.0) });
        assert_eq!(x(&samples, 36.0, 33), (1.0, ShownBy::Hold));
    }

    #[test]
    fn numbers_that_are_not_finite_are_ignored() {
        let mut samples = PlayoutSamples::new(3, RATE);
        samples.add(ID, sample(3, f32::NAN));
        samples.add(ID, PoseSample { velocity: Some([f32::INFINITY, 0.0, 0.0]), ..sample(4, 0.0) });
        assert_eq!(samples.shown(ID, 3.0, 3), None);
    }
}
