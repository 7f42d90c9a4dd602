//! Positions and rotations between two states: one code for what a client shows, and for what a server looks up later.

/// A position and a rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pose {
    /// The place in units of the game, such as metres.
    pub position: [f32; 3],
    /// A unit quaternion `[x, y, z, w]`.
    pub rotation: [f32; 4],
}

impl Pose {
    /// The origin, without rotation.
    pub const ORIGIN: Self = Self { position: [0.0; 3], rotation: [0.0, 0.0, 0.0, 1.0] };
}

/// The pose of an object at a tick of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoseSample {
    /// The server's tick.
    pub tick: u32,
    /// The pose at this tick.
    pub pose: Pose,
    /// The velocity in units per second, if the game sends it. Without it the motion between two samples is even.
    /// It is that of the motion that happened in the last tick, and not what the keys or the physics ask for: zero
    /// where a wall stops the object. Pressed against it, the object does not change and gets no newer sample, so that
    /// a velocity into the wall shows it up to 100 ms ahead as long as it stays there.
    pub velocity: Option<[f32; 3]>,
    /// Whether the object does not move from here on, until the state before the next sample. Also set it for an
    /// object that only stands still, and does not sleep yet: it is not sent, and the way to the next sample would be
    /// shown as a slow motion over the whole time.
    pub is_at_rest: bool,
    /// How often the object has jumped so far: nothing is between two samples with different numbers. A game sends
    /// this number, and not a flag in the state of a jump: the message of that state may get lost.
    pub teleports: u32,
}

/// How many ticks a second has, and how many ticks are between two states that a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickRate {
    /// Ticks in a second, at least 1.
    pub per_second: u32,
    /// Ticks between two states, at least 1.
    pub between_states: u32,
}

impl TickRate {
    pub(crate) fn seconds(self, ticks: f64) -> f32 {
        (ticks / f64::from(self.per_second.max(1))) as f32
    }
}

/// Returns the pose between two samples at a tick with a fraction. `Hermite` where both velocities are known, else
/// even motion; rotations by the shortest way. An object at rest starts when the next velocity says, if it is known.
pub(crate) fn between(from: &PoseSample, to: &PoseSample, at: f64, rate: TickRate) -> Pose {
    if to.teleports != from.teleports {
        return if at < f64::from(to.tick) { from.pose } else { to.pose };
    }
    // An object at rest starts to move after the last state in which it rested.
    let starts = if from.is_at_rest { to.tick.saturating_sub(rate.between_states).max(from.tick) } else { from.tick };
    let length = f64::from(to.tick) - f64::from(starts);
    if length <= 0.0 || at <= f64::from(starts) {
        return if at < f64::from(to.tick) { from.pose } else { to.pose };
    }
    let seconds = rate.seconds(length);
    let curve = match (from.velocity, to.velocity) {
        (_, Some(velocity)) if from.is_at_rest && !to.is_at_rest => Some(start_of_motion(from, to, velocity, seconds)),
        (Some(one), Some(two)) if !from.is_at_rest => Some(([one, two], 1.0)),
        _ => None,
    };
    let moving = curve.map_or(length, |(_, part)| length * f64::from(part));
    let left = f64::from(to.tick) - at;
    // Without a way the object only turns.
    let moving = if moving > 0.0 { moving } else { length };
    let share = if left < moving { ((moving - left) / moving).min(1.0) as f32 } else { 0.0 };
    let position = match curve {
        Some((velocities, part)) => hermite(from, to, velocities, share, seconds * part),
        None => lerp(from.pose.position, to.pose.position, share),
    };
    Pose { position, rotation: slerp(from.pose.rotation, to.pose.rotation, share) }
}

/// Returns the velocities at both ends of an even acceleration that ends at a sample with this velocity, and the part
/// of the time that it takes, at the end. It starts from rest, or from a push if the way is too long for that.
fn start_of_motion(from: &PoseSample, to: &PoseSample, velocity: [f32; 3], seconds: f32) -> ([[f32; 3]; 2], f32) {
    let mut way = to.pose.position;
    way.iter_mut().zip(from.pose.position).for_each(|(part, from)| *part -= from);
    let [way_length, speed] = [way, velocity].map(|vector| libm::sqrtf(vector.iter().map(|part| part * part).sum()));
    if 2.0 * way_length < speed * seconds {
        return ([[0.0; 3], velocity], 2.0 * way_length / (speed * seconds));
    }
    let mut pushed = way;
    pushed.iter_mut().zip(velocity).for_each(|(part, velocity)| *part = 2.0 * *part / seconds - velocity);
    ([pushed, velocity], 1.0)
}

/// Returns the pose some ticks after the newest sample, moved on with a velocity.
pub(crate) fn beyond(newest: &PoseSample, velocity: [f32; 3], ticks: f64, rate: TickRate) -> Pose {
    let time = rate.seconds(ticks);
    let mut pose = newest.pose;
    for (part, speed) in pose.position.iter_mut().zip(velocity) {
        *part += speed * time;
    }
    pose
}

fn lerp<const N: usize>(from: [f32; N], to: [f32; N], share: f32) -> [f32; N] {
    let mut between = from;
    between.iter_mut().zip(to).for_each(|(part, to)| *part += (to - *part) * share);
    between
}

/// Returns a point of the cubic curve with these end points and velocities.
fn hermite(from: &PoseSample, to: &PoseSample, velocities: [[f32; 3]; 2], share: f32, seconds: f32) -> [f32; 3] {
    let (square, cube) = (share * share, share * share * share);
    let weights = [
        2.0 * cube - 3.0 * square + 1.0,
        (cube - 2.0 * square + share) * seconds,
        3.0 * square - 2.0 * cube,
        (cube - square) * seconds,
    ];
    let [start_velocity, end_velocity] = velocities;
    let mut point = [0.0; 3];
    for (vector, weight) in [from.pose.position, start_velocity, to.pose.position, end_velocity].iter().zip(weights) {
        point.iter_mut().zip(vector).for_each(|(sum, part)| *sum += part * weight);
    }
    point
}

/// Returns the rotation between two unit quaternions, by the shorter way.
pub(crate) fn slerp(from: [f32; 4], to: [f32; 4], share: f32) -> [f32; 4] {
    let dot: f32 = from.iter().zip(to).map(|(a, b)| a * b).sum();
    let to = if dot < 0.0 { to.map(|part| -part) } else { to };
    let cosine = dot.abs().min(1.0);
    // Nearly equal rotations have no axis to turn about.
    let (one, two) = if cosine > 0.9995 {
        (1.0 - share, share)
    } else {
        let angle = libm::acosf(cosine);
        let sine = libm::sinf(angle);
        (libm::sinf((1.0 - share) * angle) / sine, libm::sinf(share * angle) / sine)
    };
    let mut between = from;
    between.iter_mut().zip(to).for_each(|(part, to)| *part = *part * one + to * two);
    normalized(between)
}

/// Returns the quaternion with length 1; no rotation if it has no length, or one that is not finite.
pub(crate) fn normalized(quaternion: [f32; 4]) -> [f32; 4] {
    let length = libm::sqrtf(quaternion.iter().map(|part| part * part).sum());
    if length > 1e-6 && length.is_finite() { quaternion.map(|part| part / length) } else { Pose::ORIGIN.rotation }
}

/// Returns the rotation that `first` makes after `second`.
pub(crate) fn multiply(first: [f32; 4], second: [f32; 4]) -> [f32; 4] {
    let ([ax, ay, az, aw], [bx, by, bz, bw]) = (first, second);
    [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };

    fn sample(tick: u32, x: f32) -> PoseSample {
        let pose = Pose { position: [x, 0.0, 0.0], ..Pose::ORIGIN };
        PoseSample { tick, pose, velocity: None, is_at_rest: false, teleports: 0 }
    }

    #[test]
    fn even_motion_is_half_way_at_half_time() {
        let pose = between(&sample(10, 1.0), &sample(20, 3.0), 15.0, RATE);
        assert_eq!(pose.position, [2.0, 0.0, 0.0]);
    }

    #[test]
    fn curve_meets_a_thrown_object_exactly() {
        // x = 3 t, y = 5 t - 5 t²: a parabola is within the cubic curves.
        let at = |seconds: f32| [3.0 * seconds, 5.0 * seconds - 5.0 * seconds * seconds, 0.0];
        let thrown = |tick: u32| {
            let seconds = tick as f32 / 60.0;
            let pose = Pose { position: at(seconds), ..Pose::ORIGIN };
            PoseSample { pose, velocity: Some([3.0, 5.0 - 10.0 * seconds, 0.0]), ..sample(tick, 0.0) }
        };
        let pose = between(&thrown(0), &thrown(30), 15.0, RATE);
        for (part, expected) in pose.position.iter().zip(at(0.25)) {
            assert!((part - expected).abs() < 1e-5, "{pose:?}");
        }
    }

    #[test]
    fn nothing_is_between_a_teleport_and_the_sample_before() {
        // The state of the teleport itself was lost.
        let to = PoseSample { teleports: 1, ..sample(20, 9.0) };
        assert_eq!(between(&sample(10, 1.0), &to, 19.9, RATE).position[0], 1.0);
        assert_eq!(between(&sample(10, 1.0), &to, 20.0, RATE).position[0], 9.0);
        let after = PoseSample { teleports: 1, ..sample(30, 10.0) };
        assert_eq!(between(&to, &after, 25.0, RATE).position[0], 9.5);
    }

    #[test]
    fn object_at_rest_starts_with_the_last_interval() {
        let from = PoseSample { is_at_rest: true, ..sample(10, 0.0) };
        assert_eq!(between(&from, &sample(40, 3.0), 37.0, RATE).position[0], 0.0);
        assert_eq!(between(&from, &sample(40, 3.0), 38.0, RATE).position[0], 1.0);
    }

    #[test]
    fn object_at_rest_starts_when_its_next_velocity_says() {
        let from = PoseSample { is_at_rest: true, velocity: Some([0.0; 3]), ..sample(10, 0.0) };
        let x = |speed: f32, at| {
            let to = PoseSample { velocity: Some([speed, 0.0, 0.0]), ..sample(40, 1.0) };
            between(&from, &to, at, RATE).position[0]
        };
        // It takes two ticks from 0 to 60 on a way of 1: the last two of the interval.
        for (speed, at, expected) in [(60.0, 38.0, 0.0), (60.0, 39.0, 0.25), (60.0, 39.5, 0.5625), (60.0, 40.0, 1.0)] {
            assert!((x(speed, at) - expected).abs() < 1e-5, "{speed} at {at}: {}", x(speed, at));
        }
        // A push of 30 that is 10 at the end takes the whole interval, as does even motion.
        for (speed, at, expected) in [(10.0, 37.0, 0.0), (10.0, 38.5, 0.625), (20.0, 38.0, 1.0 / 3.0)] {
            assert!((x(speed, at) - expected).abs() < 1e-5, "{speed} at {at}: {}", x(speed, at));
        }
        // Nothing moves without a way, and the motion of an object that rests again is even.
        let same = PoseSample { velocity: Some([9.0, 0.0, 0.0]), ..sample(40, 0.0) };
        assert_eq!(between(&from, &same, 39.0, RATE).position[0], 0.0);
        let turned = PoseSample { pose: Pose { rotation: [0.0, 1.0, 0.0, 0.0], ..same.pose }, ..same };
        assert_eq!([37.0, 40.0].map(|at| between(&from, &turned, at, RATE).rotation[1]), [0.0, 1.0]);
        assert!((between(&from, &turned, 38.5, RATE).rotation[1] - 0.707).abs() < 0.001);
        let rests = PoseSample { is_at_rest: true, velocity: Some([0.0; 3]), ..sample(40, 3.0) };
        assert_eq!(between(&from, &rests, 38.0, RATE).position[0], 1.0);
    }

    #[test]
    fn rotations_take_the_shorter_way() {
        let half = core::f32::consts::FRAC_1_SQRT_2;
        let quarter = [0.0, half, 0.0, half];
        let eighth = slerp(Pose::ORIGIN.rotation, quarter, 0.5);
        let other_sign = slerp(Pose::ORIGIN.rotation, quarter.map(|part| -part), 0.5);
        assert!((eighth[1] - libm::sinf(core::f32::consts::FRAC_PI_8)).abs() < 1e-6, "{eighth:?}");
        assert_eq!(eighth, other_sign);
    }
}
