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
/// let (seen, tick) = (rewind.at(ObjectId(1), 94.0, 100), 94.0);
/// assert!(seen.is_some_and(|pose| (pose.position[0] - tick).abs() < 1e-4));
/// // A client cannot claim to have seen the distant past.
/// assert!(rewind.at(ObjectId(1), 3.0, 110).is_some_and(|pose| (pose.position[0] - 95.0).abs() < 1e-4));
/// ```
#[derive(Debug)]
pub struct Rewind {
    samples: PlayoutSamples,
    rate: TickRate,
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

    /// Forgets an object that is gone.
    pub fn remove(&mut self, id: ObjectId) {
        self.samples.remove(id, 0);
    }

    /// Returns the pose of an object that a client saw, which showed the tick `seen`, with its fraction, when it acted.
    /// `now` is the server's tick: a client that claims more than 250 ms, or a tick of the future, gets the nearest
    /// tick that is allowed. `None` if the object is not known.
    #[must_use]
    pub fn at(&self, id: ObjectId, seen: f64, now: u32) -> Option<Pose> {
        let most = micros(MAX_REWIND) as f64 / 1e6 * f64::from(self.rate.per_second);
        let now = f64::from(now);
        let seen = if seen.is_finite() { seen.clamp((now - most).max(0.0), now) } else { now };
        self.samples.shown(id, seen, u32::MAX).map(|(pose, _)| pose)
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
            assert_eq!((server.at(ID, seen, 90), how), (Some(shown), ShownBy::Samples), "tick {seen}");
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
        assert_eq!(server.at(ID, seen, 1000), client.shown(ID, seen, 1000).map(|(pose, _)| pose));
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
