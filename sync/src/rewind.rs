//! Lag compensation: where an object was for a client that acted, by the code that the client shows it with (§6.9).

use crate::object::ObjectId;
use crate::playout::micros;
use crate::pose::{Pose, PoseSample, TickRate};
use crate::samples::PlayoutSamples;

use core::time::Duration;

/// The most that a server rewinds. A client that is further behind has to aim ahead.
pub const MAX_REWIND: Duration = Duration::from_millis(250);

/// The poses of the last states that a server sent.
///
/// # Examples
///
/// ```
/// use slipgate_sync::{ObjectId, Pose, PoseSample, Rewind, TickRate};
///
/// let mut rewind = Rewind::new(10, TickRate { per_second: 60, between_states: 3 });
/// for tick in [90, 93, 96, 99] {
///     let pose = Pose { position: [tick as f32, 0.0, 0.0], ..Pose::ORIGIN };
///     let sample = PoseSample { tick, pose, velocity: None, is_at_rest: false, teleports: 0 };
///     rewind.add(ObjectId(1), sample);
/// }
/// let is_at = |seen: f64, now, x: f32| {
///     rewind.at(ObjectId(1), seen, now).is_some_and(|seen| (seen.pose.position[0] - x).abs() < 1e-4)
/// };
/// assert!(is_at(94.0, 100, 94.0));
/// // A client cannot claim to have seen the distant past.
/// assert!(is_at(3.0, 110, 95.0));
/// ```
#[derive(Debug)]
pub struct Rewind {
    samples: PlayoutSamples,
    rate: TickRate,
}

/// What a client saw of an id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RewoundPose {
    /// Where it saw the object.
    pub pose: Pose,
    /// Whether this object has been removed since then. A hit is not one of the object that has the id now.
    pub is_removed: bool,
}

impl Rewind {
    /// Returns a history for ids below `max_objects`, of the same length as
    /// [`PlayoutSamples::new`](crate::PlayoutSamples::new).
    #[must_use]
    pub fn new(max_objects: u16, rate: TickRate) -> Self {
        Self { samples: PlayoutSamples::new(max_objects, rate), rate }
    }

    /// Adds the state of an object that is sent to clients, with the precision in which it is sent.
    pub fn add(&mut self, id: ObjectId, sample: PoseSample) {
        self.samples.add(id, sample);
    }

    /// Notes that an object is gone from a tick on, that of the next
    /// [`Replicator::commit`](crate::Replicator::commit), as clients learn it. What a client saw before is still found.
    /// States of this tick and later ones are of another object with the same id.
    pub fn remove(&mut self, id: ObjectId, tick: u32) {
        self.samples.remove(id, tick);
    }

    /// Returns the pose of an object that a client saw, which showed the tick `seen`, with its fraction, when it acted.
    /// `now` is the server's tick: a client that claims more than 250 ms, or a tick of the future, gets the nearest
    /// tick that is allowed. `None` if the object is not known, or was gone or did not exist yet at this tick.
    /// The result says whether the object that was seen has been removed since: another one may have its id by now.
    #[must_use]
    pub fn at(&self, id: ObjectId, seen: f64, now: u32) -> Option<RewoundPose> {
        let most = micros(MAX_REWIND) as f64 / 1e6 * f64::from(self.rate.per_second);
        let now = f64::from(now);
        let seen = if seen.is_finite() { seen.clamp((now - most).max(0.0), now) } else { now };
        let (pose, _) = self.samples.shown(id, seen, u32::MAX)?;
        Some(RewoundPose { pose, is_removed: self.samples.is_of_removed(id, seen) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::ShownBy;

    const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };
    const ID: ObjectId = ObjectId(0);

    fn sample(tick: u32) -> PoseSample {
        let x = libm::sinf(tick as f32 / 10.0);
        let pose = Pose { position: [x, x * x, 0.0], ..Pose::ORIGIN };
        PoseSample { tick, pose, velocity: Some([6.0 * x, 0.0, 1.0]), is_at_rest: false, teleports: tick / 60 }
    }

    #[test]
    fn server_sees_what_the_client_was_shown() {
        let (mut client, mut server) = (PlayoutSamples::new(1, RATE), Rewind::new(1, RATE));
        for tick in (30..=90).step_by(3) {
            client.add(ID, sample(tick));
            server.add(ID, sample(tick));
        }
        for quarter in 320..=359 {
            let seen = f64::from(quarter) / 4.0;
            let (shown, how) = client.shown(ID, seen, 90).unwrap();
            let expected = RewoundPose { pose: shown, is_removed: false };
            assert_eq!((server.at(ID, seen, 90), how), (Some(expected), ShownBy::Samples), "tick {seen}");
        }
    }

    #[test]
    fn states_of_250_ms_are_kept_at_128_ticks_a_second() {
        let rate = TickRate { per_second: 128, between_states: 1 };
        let (mut server, mut client) = (Rewind::new(1, rate), PlayoutSamples::new(1, rate));
        for tick in 1..=1000 {
            server.add(ID, sample(tick));
            if tick <= 970 {
                client.add(ID, sample(tick));
            }
        }
        let seen = 1000.0 - 31.5;
        let found = server.at(ID, seen, 1000).map(|found| found.pose);
        assert_eq!(found, client.shown(ID, seen, 1000).map(|(pose, _)| pose));
    }

    /// Two objects with the same id: a shot finds the one that its client saw.
    #[test]
    fn shot_at_an_id_hits_the_object_that_had_it() {
        let (mut client, mut server) = (PlayoutSamples::new(1, RATE), Rewind::new(1, RATE));
        let next = |tick: u32| {
            let pose = Pose { position: [50.0, 0.0, 0.0], ..Pose::ORIGIN };
            PoseSample { tick, pose, velocity: None, is_at_rest: true, teleports: 0 }
        };
        for tick in (60..=84).step_by(3) {
            client.add(ID, sample(tick));
            server.add(ID, sample(tick));
        }
        client.remove(ID, 87);
        server.remove(ID, 87);
        assert_eq!(server.at(ID, 87.0, 90), None, "it is gone");
        for tick in [90, 93] {
            client.add(ID, next(tick));
            server.add(ID, next(tick));
        }
        let is_removed = |seen: f64| server.at(ID, seen, 93).map(|found| found.is_removed);
        let expected = [Some(true), Some(true), Some(true), None, None, Some(false), Some(false)];
        assert_eq!([80.0, 83.5, 86.9, 87.0, 89.9, 90.0, 92.0].map(is_removed), expected);
        for quarter in 320..=372 {
            let seen = f64::from(quarter) / 4.0;
            let found = server.at(ID, seen, 93).map(|found| found.pose);
            assert_eq!(found, client.shown(ID, seen, 93).map(|(pose, _)| pose), "tick {seen}");
        }
    }

    /// A new object is gone before the timeline has shown the last one to its end.
    #[test]
    fn objects_of_an_id_are_found_until_each_was_gone() {
        let (mut client, mut server) = (PlayoutSamples::new(1, RATE), Rewind::new(1, RATE));
        let mut add = |tick| {
            client.add(ID, sample(tick));
            server.add(ID, sample(tick));
        };
        (70..100).for_each(&mut add);
        add(101);
        for (gone_at, next) in [(101, 101), (103, 104), (106, 106), (108, 110)] {
            client.remove(ID, gone_at);
            server.remove(ID, gone_at);
            client.add(ID, sample(next));
            server.add(ID, sample(next));
        }
        let seen = [95.0, 100.9, 101.0, 102.9, 103.0, 104.0, 105.9, 106.0, 107.9, 108.0, 109.9, 110.0];
        let found = seen.map(|seen| server.at(ID, seen, 110).map(|found| found.is_removed));
        let (gone, old, new) = (None, Some(true), Some(false));
        assert_eq!(found, [old, old, old, old, gone, old, old, old, old, gone, gone, new]);
        for seen in seen {
            let found = server.at(ID, seen, 110).map(|found| found.pose);
            assert_eq!(found, client.shown(ID, seen, 110).map(|(pose, _)| pose), "tick {seen}");
        }
        // The fifth removal takes the place of the first one.
        server.remove(ID, 112);
        let found = [100.9, 101.0, 110.0, 112.0].map(|seen| server.at(ID, seen, 112).map(|found| found.is_removed));
        assert_eq!(found, [gone, old, old, gone]);
        // A removal before all others forgets all.
        server.remove(ID, 0);
        assert_eq!([95.0, 104.0, 110.0].map(|seen| server.at(ID, seen, 112)), [None; 3]);
    }

    #[test]
    fn object_cannot_be_hit_before_it_exists() {
        let mut server = Rewind::new(2, RATE);
        (3..=60).step_by(3).for_each(|tick| server.add(ObjectId(1), sample(tick)));
        server.add(ID, sample(60));
        assert_eq!([48.0, 59.9].map(|seen| server.at(ID, seen, 60)), [None; 2]);
        assert!(server.at(ID, 60.0, 60).is_some_and(|found| !found.is_removed));
        // The same holds once it is gone.
        server.remove(ID, 63);
        assert_eq!(server.at(ID, 59.9, 66), None);
        assert!(server.at(ID, 61.0, 66).is_some_and(|found| found.is_removed));
    }

    #[test]
    fn claims_beyond_250_ms_and_of_the_future_are_cut() {
        let mut server = Rewind::new(1, RATE);
        (30..=90).step_by(3).for_each(|tick| server.add(ID, sample(tick)));
        assert_eq!(server.at(ID, 0.0, 90), server.at(ID, 75.0, 90));
        assert_eq!(server.at(ID, 1e30, 90), server.at(ID, 90.0, 90));
        assert_eq!(server.at(ID, f64::NAN, 90), server.at(ID, 90.0, 90));
        assert_eq!(server.at(ObjectId(5), 80.0, 90), None);
    }
}
