//! The poses of a client's objects over the last states, and what is shown of them at a moment (§6.6).

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::object::ObjectId;
use crate::pose::{self, Pose, PoseSample, TickRate};

/// The least and most samples of each object. Between them half a second is kept, twice as much as a server rewinds.
const MIN_SAMPLES: u32 = 32;
const MAX_SAMPLES: u32 = 1024;
/// The objects of an id that are gone and still shown, because the timeline is behind.
const MAX_REMOVED: usize = 4;
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
///     let sample = PoseSample { tick, pose, velocity: None, is_at_rest: false, teleports: 0 };
///     samples.add(ObjectId(4), sample);
/// }
/// let (pose, _) = samples.shown(ObjectId(4), 31.0, 33).ok_or("it has samples")?;
/// assert!((pose.position[0] - 0.2).abs() < 1e-6);
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug)]
pub struct PlayoutSamples {
    rate: TickRate,
    /// The samples of each object.
    kept: usize,
    samples: Vec<PoseSample>,
    tracks: Vec<PoseTrack>,
    /// The tick of the first sample of any object. The timeline starts before it: what exists then is shown at once.
    started: Option<u32>,
}

/// An object that had an id and is gone.
#[derive(Clone, Copy, Debug)]
struct RemovedObject {
    /// The least tick of all its samples, also of those that made room; `u32::MAX` without a sample.
    first: u32,
    /// The first tick at which it was gone: samples of it and later ones are of another object.
    gone_at: u32,
}

impl RemovedObject {
    const NONE: Self = Self { first: u32::MAX, gone_at: 0 };
}

/// What is used of the samples of an id, which are sorted by tick.
#[derive(Clone, Copy, Debug)]
struct PoseTrack {
    count: usize,
    /// The newest objects that had the id and are gone, the newest one at the end; the others are `NONE`.
    removed: [RemovedObject; MAX_REMOVED],
    /// As [`RemovedObject::first`], of the present object.
    first: u32,
}

impl PoseTrack {
    const EMPTY: Self = Self { count: 0, removed: [RemovedObject::NONE; MAX_REMOVED], first: u32::MAX };

    /// Returns the first tick of the present object, if there is one.
    const fn gone_at(&self) -> u32 {
        let [.., newest] = self.removed;
        newest.gone_at
    }

    /// Notes that there is a sample of this tick.
    fn note(&mut self, tick: u32) {
        let removed = self.removed.iter_mut().find(|removed| tick < removed.gone_at);
        let first = removed.map_or(&mut self.first, |removed| &mut removed.first);
        *first = tick.min(*first);
    }

    /// Returns the ticks of the samples of the object that had the id at a tick, and the first one of them.
    fn object_at(&self, tick: f64) -> (Range<u32>, u32) {
        let mut start = 0;
        for removed in &self.removed {
            if tick.max(0.0) < f64::from(removed.gone_at) {
                return (start..removed.gone_at, removed.first);
            }
            start = removed.gone_at;
        }
        (start..u32::MAX, self.first)
    }

    /// Notes that the present object is gone from a tick on. A removal at this tick or later is forgotten. Returns the
    /// ticks of the samples that are kept.
    fn remove(&mut self, tick: u32) -> Range<u32> {
        self.removed.iter_mut().filter(|removed| removed.gone_at >= tick).for_each(|removed| removed.gone_at = 0);
        self.removed.sort_unstable_by_key(|removed| removed.gone_at);
        let start = self.removed.first().map_or(0, |oldest| oldest.gone_at);
        self.removed.rotate_left(1);
        if let Some(newest) = self.removed.last_mut() {
            *newest = RemovedObject { first: if self.first < tick { self.first } else { u32::MAX }, gone_at: tick };
        }
        self.first = u32::MAX;
        start..tick
    }
}

impl PlayoutSamples {
    /// Returns samples for ids below `max_objects`: half a second of each one, at least 32 samples and at most 1,024.
    /// That is 2 KiB for each id at up to 60 states a second.
    #[must_use]
    pub fn new(max_objects: u16, rate: TickRate) -> Self {
        let empty = PoseSample { tick: 0, pose: Pose::ORIGIN, velocity: None, is_at_rest: true, teleports: 0 };
        let half_a_second = (rate.per_second / 2).div_ceil(rate.between_states.max(1));
        let kept = half_a_second.saturating_add(2).clamp(MIN_SAMPLES, MAX_SAMPLES) as usize;
        let objects = usize::from(max_objects);
        let (samples, tracks) = (vec![empty; objects * kept], vec![PoseTrack::EMPTY; objects]);
        Self { rate, kept, samples, tracks, started: None }
    }

    /// Adds a sample. Samples may come in any order; the oldest one makes room. A second sample of a tick, and one with
    /// numbers that are not finite, is ignored.
    pub fn add(&mut self, id: ObjectId, sample: PoseSample) {
        let (index, kept) = (usize::from(id.0), self.kept);
        let numbers = sample.pose.position.iter().chain(&sample.pose.rotation).chain(sample.velocity.iter().flatten());
        if numbers.copied().any(|number| !number.is_finite()) {
            return;
        }
        let Some(track) = self.tracks.get_mut(index) else { return };
        let Some(kept) = self.samples.get_mut(index * kept..(index + 1) * kept) else { return };
        self.started.get_or_insert(sample.tick);
        track.note(sample.tick);
        let used = track.count;
        let place = kept.get(..used).unwrap_or(&[]).partition_point(|other| other.tick < sample.tick);
        if kept.get(place).is_some_and(|other| place < used && other.tick == sample.tick) {
            return;
        }
        if used < kept.len() {
            track.count += 1;
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

    /// Notes that an object is gone from a tick on, that of [`ReplicaChange::Gone`](crate::ReplicaChange::Gone). It is
    /// shown up to there. Samples of this tick and later ones are of another object with the same id. Up to four
    /// objects of an id that are gone are kept, as far as their samples have not made room.
    pub fn remove(&mut self, id: ObjectId, tick: u32) {
        let (index, kept) = (usize::from(id.0), self.kept);
        let Some(track) = self.tracks.get_mut(index) else { return };
        let Some(kept) = self.samples.get_mut(index * kept..(index + 1) * kept) else { return };
        let used = within(kept.get(..track.count).unwrap_or(&[]), track.remove(tick));
        track.count = used.len();
        kept.copy_within(used, 0);
    }

    /// Forgets all objects, for another connection or a server that has started again.
    pub fn clear(&mut self) {
        self.tracks.fill(PoseTrack::EMPTY);
        self.started = None;
    }

    /// Returns all objects that are to be shown at a tick, by ascending id, as [`shown`](Self::shown) does: also those
    /// that are gone by now, and were not at that tick.
    pub fn all_shown(&self, at: f64, newest: u32) -> impl Iterator<Item = (ObjectId, Pose)> {
        let ids = (0..=u16::MAX).take(self.tracks.len()).map(ObjectId);
        ids.filter_map(move |id| self.shown(id, at, newest).map(|(pose, _)| (id, pose)))
    }

    /// Returns what is to be shown of an object at a tick, with its fraction, of
    /// [`PlayoutClock::advance`](crate::PlayoutClock::advance). `None` if the object has no sample, is gone at this
    /// tick, or has its first sample later.
    ///
    /// `newest` is the newest tick of any message that arrived. An object without a sample of it has not moved, or its
    /// message was lost or waits, if the state has several. Without a velocity it is held where it was in both cases.
    ///
    /// Objects of the first tick of all, such as that of a connection, are shown before it, too: the timeline starts
    /// there.
    #[must_use]
    pub fn shown(&self, id: ObjectId, at: f64, newest: u32) -> Option<(Pose, ShownBy)> {
        let (samples, track) = (self.of(id), self.tracks.get(usize::from(id.0))?);
        let (ticks, first) = track.object_at(at);
        let samples = samples.get(within(samples, ticks)).unwrap_or(&[]);
        if at < f64::from(first) && self.started.is_none_or(|started| started < first) {
            return None;
        }
        let next = samples.partition_point(|sample| f64::from(sample.tick) < at);
        let Some(to) = samples.get(next) else { return self.beyond(samples, at, newest) };
        let Some(from) = next.checked_sub(1).and_then(|before| samples.get(before)) else {
            return Some((to.pose, ShownBy::Samples));
        };
        Some((pose::between(from, to, at, self.rate), ShownBy::Samples))
    }

    /// Returns whether an object has been removed since this tick.
    pub(crate) fn is_of_removed(&self, id: ObjectId, at: f64) -> bool {
        self.tracks.get(usize::from(id.0)).is_some_and(|track| at.max(0.0) < f64::from(track.gone_at()))
    }

    /// Returns the newest sample of an object.
    #[must_use]
    pub fn newest(&self, id: ObjectId) -> Option<&PoseSample> {
        self.of(id).last()
    }

    fn of(&self, id: ObjectId) -> &[PoseSample] {
        let start = usize::from(id.0) * self.kept;
        let used = self.tracks.get(usize::from(id.0)).map_or(0, |track| track.count);
        self.samples.get(start..start + used).unwrap_or(&[])
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
        if last.teleports != before.teleports || before.is_at_rest {
            return None;
        }
        let seconds = self.rate.seconds(f64::from(last.tick) - f64::from(before.tick));
        let mut velocity = last.pose.position;
        velocity.iter_mut().zip(before.pose.position).for_each(|(part, before)| *part = (*part - before) / seconds);
        Some(velocity)
    }
}

/// Returns which of these samples have such ticks.
fn within(samples: &[PoseSample], ticks: Range<u32>) -> Range<usize> {
    let [start, end] = [ticks.start, ticks.end].map(|tick| samples.partition_point(|sample| sample.tick < tick));
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };
    const ID: ObjectId = ObjectId(2);

    fn sample(tick: u32, x: f32) -> PoseSample {
        let pose = Pose { position: [x, 0.0, 0.0], ..Pose::ORIGIN };
        PoseSample { tick, pose, velocity: None, is_at_rest: false, teleports: 0 }
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
        assert_eq!(x(&samples, -2.5, 36), (0.0, ShownBy::Samples), "the timeline starts before the first tick");
    }

    #[test]
    fn object_at_rest_is_not_moved_on() {
        let mut samples = PlayoutSamples::new(3, RATE);
        samples.add(ID, sample(30, 0.0));
        samples.add(ID, PoseSample { is_at_rest: true, velocity: Some([9.0; 3]), ..sample(33, 1.0) });
        assert_eq!(x(&samples, 36.0, 33), (1.0, ShownBy::Hold));
        // Also without a velocity; and if it has just started to move, nothing is known of its speed.
        for rests in [[false, true], [true, false]] {
            let mut samples = PlayoutSamples::new(3, RATE);
            for (is_at_rest, (tick, x)) in rests.into_iter().zip([(30, 0.0), (33, 1.0)]) {
                samples.add(ID, PoseSample { is_at_rest, ..sample(tick, x) });
            }
            assert_eq!(x(&samples, 36.0, 33), (1.0, ShownBy::Hold), "{rests:?}");
        }
    }

    #[test]
    fn object_is_shown_until_the_tick_at_which_it_is_gone() {
        let mut samples = PlayoutSamples::new(3, RATE);
        samples.add(ID, sample(30, 0.0));
        samples.add(ID, sample(33, 1.0));
        samples.remove(ID, 36);
        // Another object takes over the id.
        samples.add(ID, sample(39, 9.0));
        samples.add(ID, sample(42, 9.5));
        assert_eq!(x(&samples, 31.5, 42).0, 0.5);
        assert_eq!(x(&samples, 35.9, 42), (1.0, ShownBy::Hold), "nothing is between two objects");
        assert_eq!(samples.shown(ID, 36.0, 42), None, "the other one does not exist yet");
        assert_eq!(x(&samples, 39.0, 42).0, 9.0);
        assert_eq!(x(&samples, 42.0, 42).0, 9.5);
        samples.remove(ID, 45);
        assert_eq!(samples.all_shown(44.9, 45).map(|(id, _)| id).collect::<Vec<_>>(), [ID]);
        assert_eq!(samples.all_shown(45.0, 45).count(), 0);
        assert_eq!(x(&samples, 33.0, 45).0, 1.0, "the first one was there at this tick");
        samples.remove(ID, 36);
        assert_eq!(samples.all_shown(44.0, 45).count(), 0, "a removal of a tick before others forgets what came later");
    }

    #[test]
    fn object_is_shown_from_the_tick_of_its_first_sample_on() {
        const NEW: ObjectId = ObjectId(1);
        let mut samples = PlayoutSamples::new(3, RATE);
        // The timeline of a connection starts before its first state, which came before an older one.
        samples.add(ID, sample(33, 0.0));
        samples.add(ID, sample(30, 0.0));
        assert_eq!(x(&samples, 21.0, 33), (0.0, ShownBy::Samples));
        samples.add(NEW, sample(39, 5.0));
        samples.add(NEW, sample(42, 6.0));
        let ticks = [21.0, 30.0, 38.9, 39.0, 42.0];
        let is_shown = |samples: &PlayoutSamples| ticks.map(|at| samples.shown(NEW, at, 42).is_some());
        assert_eq!(is_shown(&samples), [false, false, false, true, true]);
        assert_eq!(samples.all_shown(38.0, 42).map(|(id, _)| id).collect::<Vec<_>>(), [ID]);
        // A state before the first one comes late.
        samples.add(NEW, sample(36, 4.0));
        assert_eq!(is_shown(&samples), [false, false, true, true, true]);
        // It has existed all the time, though the samples of its first second have made room.
        (45..300).step_by(3).for_each(|tick| samples.add(NEW, sample(tick, 0.0)));
        assert_eq!(is_shown(&samples), [false, false, true, true, true]);
        samples.remove(NEW, 300);
        assert_eq!(is_shown(&samples), [false, false, true, true, true]);
        samples.clear();
        samples.add(NEW, sample(400, 0.0));
        assert!(samples.shown(NEW, 390.0, 400).is_some(), "another connection");
    }

    #[test]
    fn half_a_second_is_kept_at_each_rate() {
        for (per_second, between_states, kept) in
            [(60, 3, 32), (60, 1, 32), (128, 1, 66), (128, 2, 34), (60_000, 1, 1024)]
        {
            let mut samples = PlayoutSamples::new(3, TickRate { per_second, between_states });
            (0..2000).for_each(|tick| samples.add(ID, sample(tick * between_states, 0.0)));
            assert_eq!(samples.of(ID).len(), kept, "{per_second} ticks a second");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_ignored() {
        let mut samples = PlayoutSamples::new(3, RATE);
        samples.add(ID, sample(3, f32::NAN));
        samples.add(ID, PoseSample { velocity: Some([f32::INFINITY, 0.0, 0.0]), ..sample(4, 0.0) });
        assert_eq!(samples.shown(ID, 3.0, 3), None);
    }

    #[test]
    fn object_that_has_just_jumped_does_not_move_on() {
        let mut samples = PlayoutSamples::new(3, RATE);
        samples.add(ID, sample(30, 0.0));
        samples.add(ID, PoseSample { teleports: 1, ..sample(33, 9.0) });
        assert_eq!(x(&samples, 34.0, 33), (9.0, ShownBy::Hold));
    }
}
