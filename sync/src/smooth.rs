//! Smooth corrections: a simulated object that is set to another state is shown where it was, and slides there (§6.8).

use alloc::vec;
use alloc::vec::Vec;

use crate::object::ObjectId;
use crate::pose::{self, Pose};

/// How quickly the difference between what is shown and what is simulated goes away: the seconds in which it falls to
/// 37 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothingDecay {
    /// For a difference up to 25 cm.
    pub small: f32,
    /// For a difference up to 1 m.
    pub medium: f32,
    /// For a larger difference.
    pub large: f32,
}

impl SmoothingDecay {
    /// Returns the factors 0.90, 0.85 and 0.80 for each frame at 60 frames a second, of an article on state
    /// synchronisation (Glenn Fiedler, 2015).
    #[must_use]
    pub const fn per_frame() -> Self {
        Self { small: 0.158, medium: 0.103, large: 0.075 }
    }
}

impl Default for SmoothingDecay {
    /// Returns the decay that makes what is shown least wrong with jumps of at most 7 cm (`specs/sync-table.md`).
    fn default() -> Self {
        Self { small: 0.04, medium: 0.03, large: 0.025 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Offset {
    position: [f32; 3],
    rotation: [f32; 4],
}

const NO_OFFSET: Offset = Offset { position: [0.0; 3], rotation: Pose::ORIGIN.rotation };

/// The differences between shown and simulated poses.
///
/// # Examples
///
/// ```
/// use slipgate_sync::{ObjectId, Pose, Smoothing, SmoothingDecay};
///
/// let mut smoothing = Smoothing::new(1, SmoothingDecay::default());
/// let at = |x: f32| Pose { position: [x, 0.0, 0.0], ..Pose::ORIGIN };
/// // A state of the server moves the simulated object by 20 cm. It is still shown where it was.
/// smoothing.on_correction(ObjectId(0), at(1.0), at(1.2));
/// assert!((smoothing.shown(ObjectId(0), at(1.2)).position[0] - 1.0).abs() < 1e-6);
/// // Each frame it is shown nearer to its place.
/// smoothing.advance(1.0 / 60.0);
/// assert!((1.06..1.08).contains(&smoothing.shown(ObjectId(0), at(1.2)).position[0]));
/// smoothing.advance(1.0);
/// assert_eq!(smoothing.shown(ObjectId(0), at(1.2)), at(1.2));
/// ```
#[derive(Debug)]
pub struct Smoothing {
    decay: SmoothingDecay,
    offsets: Vec<Offset>,
}

impl Smoothing {
    /// Returns no differences for ids below `max_objects`.
    #[must_use]
    pub fn new(max_objects: u16, decay: SmoothingDecay) -> Self {
        Self { decay, offsets: vec![NO_OFFSET; usize::from(max_objects)] }
    }

    /// Notes that an object was set from one simulated pose to another one: it is still shown where it was. A
    /// difference that is not finite is forgotten.
    pub fn on_correction(&mut self, id: ObjectId, before: Pose, after: Pose) {
        let shown = self.shown(id, before);
        let Some(offset) = self.offsets.get_mut(usize::from(id.0)) else { return };
        for ((part, shown), after) in offset.position.iter_mut().zip(shown.position).zip(after.position) {
            *part = shown - after;
        }
        let [x, y, z, w] = after.rotation;
        offset.rotation = pose::normalized(pose::multiply(shown.rotation, [-x, -y, -z, w]));
        if offset.position.iter().chain(&offset.rotation).any(|part| !part.is_finite()) {
            *offset = NO_OFFSET;
        }
    }

    /// Forgets the difference of an object, after a teleport.
    pub fn clear(&mut self, id: ObjectId) {
        if let Some(offset) = self.offsets.get_mut(usize::from(id.0)) {
            *offset = NO_OFFSET;
        }
    }

    /// Lets all differences decay by a time in seconds, at least 0.
    pub fn advance(&mut self, seconds: f32) {
        let seconds = seconds.max(0.0);
        for offset in &mut self.offsets {
            let squares: f32 = offset.position.iter().map(|part| part * part).sum();
            // The square of half the angle in radians, if it is small.
            let [x, y, z, _] = offset.rotation;
            let turn = x * x + y * y + z * z;
            if squares == 0.0 && turn == 0.0 {
                continue;
            }
            let time = match squares {
                ..=0.0625 => self.decay.small,
                ..=1.0 => self.decay.medium,
                _ => self.decay.large,
            };
            let kept = if time > 0.0 { libm::expf(-seconds / time) } else { 0.0 };
            // Less than 10 um and 20 microradians.
            if squares.max(turn) * kept * kept < 1e-10 {
                *offset = NO_OFFSET;
                continue;
            }
            offset.position = offset.position.map(|part| part * kept);
            offset.rotation = pose::slerp(Pose::ORIGIN.rotation, offset.rotation, kept);
        }
    }

    /// Returns the pose that is to be shown for a simulated one.
    #[must_use]
    pub fn shown(&self, id: ObjectId, simulated: Pose) -> Pose {
        let Some(offset) = self.offsets.get(usize::from(id.0)) else { return simulated };
        let mut position = simulated.position;
        position.iter_mut().zip(offset.position).for_each(|(part, offset)| *part += offset);
        Pose { position, rotation: pose::normalized(pose::multiply(offset.rotation, simulated.rotation)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ObjectId = ObjectId(1);

    fn at(x: f32) -> Pose {
        Pose { position: [x, 0.0, 0.0], ..Pose::ORIGIN }
    }

    #[test]
    fn corrected_object_is_shown_where_it_was_and_slides_there() {
        let mut smoothing = Smoothing::new(2, SmoothingDecay::default());
        smoothing.on_correction(ID, at(1.0), at(1.2));
        assert!((smoothing.shown(ID, at(1.2)).position[0] - 1.0).abs() < 1e-6);
        let mut before = 1.0;
        for _ in 0..60 {
            smoothing.advance(1.0 / 60.0);
            let x = smoothing.shown(ID, at(1.2)).position[0];
            assert!(x >= before && x <= 1.2, "{x}");
            before = x;
        }
        assert!(1.2 - before < 0.001);
    }

    #[test]
    fn difference_that_is_not_finite_is_forgotten() {
        for x in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX] {
            let mut smoothing = Smoothing::new(2, SmoothingDecay::default());
            smoothing.on_correction(ID, at(x), at(-1.0));
            smoothing.on_correction(ID, at(-1.0), at(x));
            smoothing.advance(-1.0);
            (0..60).for_each(|_| smoothing.advance(1.0));
            assert_eq!(smoothing.shown(ID, at(2.0)), at(2.0), "{x}");
        }
    }

    #[test]
    fn rotation_without_a_usable_length_is_no_difference() {
        for part in [0.0, 1e20, f32::MAX] {
            let mut smoothing = Smoothing::new(2, SmoothingDecay::default());
            smoothing.on_correction(ID, at(0.0), Pose { rotation: [part; 4], ..at(0.0) });
            (0..1000).for_each(|_| smoothing.advance(1.0));
            let after = Pose { rotation: [0.0, 1.0, 0.0, 0.0], ..at(0.0) };
            assert_eq!(smoothing.shown(ID, after), after, "{part}");
        }
    }

    #[test]
    fn differences_beyond_25_cm_and_1_m_decay_faster() {
        let decay = SmoothingDecay { small: 0.04, medium: 0.03, large: 0.02 };
        for (difference, time) in [(0.24_f32, 0.04), (0.26, 0.03), (0.99, 0.03), (1.01, 0.02)] {
            let mut smoothing = Smoothing::new(2, decay);
            smoothing.on_correction(ID, at(difference), at(0.0));
            smoothing.advance(time);
            let left = smoothing.shown(ID, at(0.0)).position[0] / difference;
            assert!((left - 0.368).abs() < 0.001, "{left} of {difference} m after {time} s");
        }
    }

    #[test]
    fn turned_object_is_shown_turned_back() {
        let half = core::f32::consts::FRAC_1_SQRT_2;
        let (before, after) = (at(0.0), Pose { rotation: [0.0, half, 0.0, half], ..at(0.0) });
        let mut smoothing = Smoothing::new(2, SmoothingDecay::default());
        smoothing.on_correction(ID, before, after);
        let shown = smoothing.shown(ID, after).rotation;
        assert!(shown.iter().zip(before.rotation).all(|(a, b)| (a - b).abs() < 1e-5), "{shown:?}");
        // It turns to its place, also where its position is as simulated, or nearly.
        for x in [0.0, 5e-6, 2e-5, 0.1] {
            smoothing.clear(ID);
            smoothing.on_correction(ID, before, Pose { position: [x, 0.0, 0.0], ..after });
            let mut angles = [0.0; 60];
            for angle in &mut angles {
                smoothing.advance(1.0 / 60.0);
                let [_, y, _, w] = smoothing.shown(ID, after).rotation;
                *angle = 2.0 * libm::atan2f(y, w);
            }
            // After 17 ms 66 % of the 90 degrees are left.
            assert!((angles[0] - 0.341 * core::f32::consts::FRAC_PI_2).abs() < 0.01, "{x} m: {}", angles[0]);
            assert!(angles.is_sorted() && angles[59] > 1.5705, "{x} m: {angles:?}");
        }
        smoothing.clear(ID);
        let shown = smoothing.shown(ID, after).rotation;
        assert!(shown.iter().zip(after.rotation).all(|(a, b)| (a - b).abs() < 1e-5), "{shown:?}");
    }
}
