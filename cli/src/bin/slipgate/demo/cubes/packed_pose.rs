//! A pose in ten bytes: for the thesis's snapshots, and for the page.

/// The bytes of a pose.
pub(super) const POSE_BYTES: usize = 10;
/// Positions are within this many metres of the origin.
const RANGE: f32 = 16.0;
/// The largest of the three small components of a rotation.
const MAX_SMALL: f32 = core::f32::consts::FRAC_1_SQRT_2;
/// The largest number of ten bits.
const MAX_STEP: u32 = 1023;

/// A position of three times 16 bits, and a rotation of 2 + 3 x 10 bits: the index of its largest component, and the
/// other three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PackedPose(pub(super) [u8; POSE_BYTES]);

impl PackedPose {
    pub(super) fn new(position: [f32; 3], rotation: [f32; 4]) -> Self {
        let steps = position.map(|part| ((part / RANGE + 1.0) / 2.0 * f32::from(u16::MAX)).round() as u16);
        let [[a, b], [c, d], [e, f]] = steps.map(u16::to_le_bytes);
        let [g, h, i, j] = packed_rotation(rotation).to_le_bytes();
        Self([a, b, c, d, e, f, g, h, i, j])
    }

    pub(super) fn position(self) -> [f32; 3] {
        let [a, b, c, d, e, f, ..] = self.0;
        [[a, b], [c, d], [e, f]]
            .map(|bytes| (f32::from(u16::from_le_bytes(bytes)) / f32::from(u16::MAX) * 2.0 - 1.0) * RANGE)
    }

    pub(super) fn rotation(self) -> [f32; 4] {
        let [.., g, h, i, j] = self.0;
        let word = u32::from_le_bytes([g, h, i, j]);
        let largest = (word & 3) as usize;
        let mut rotation = [0.0; 4];
        for (place, part) in
            rotation.iter_mut().enumerate().filter(|(index, _)| *index != largest).map(|(_, part)| part).enumerate()
        {
            let step = word >> (2 + 10 * place) & MAX_STEP;
            *part = (step as f32 / MAX_STEP as f32 * 2.0 - 1.0) * MAX_SMALL;
        }
        let squares: f32 = rotation.iter().map(|part| part * part).sum();
        rotation.get_mut(largest).into_iter().for_each(|part| *part = (1.0 - squares).max(0.0).sqrt());
        rotation
    }
}

fn packed_rotation(rotation: [f32; 4]) -> u32 {
    let magnitude = |index: &usize| rotation.get(*index).map_or(0.0, |part| part.abs());
    let largest = (0..4).max_by(|one, two| magnitude(one).total_cmp(&magnitude(two))).unwrap_or(3);
    let sign = if rotation.get(largest).is_some_and(|part| *part < 0.0) { -1.0 } else { 1.0 };
    let small = rotation.iter().enumerate().filter(|(index, _)| *index != largest).map(|(_, part)| part * sign);
    small.enumerate().fold(largest as u32, |word, (place, part)| {
        let step = ((part / MAX_SMALL + 1.0) / 2.0 * MAX_STEP as f32).round() as u32;
        word | step.min(MAX_STEP) << (2 + 10 * place)
    })
}

#[cfg(test)]
mod tests {
    use slipgate_sim::Random;

    use super::*;

    #[test]
    fn poses_come_back_with_little_error() {
        let mut random = Random::new(1, 0);
        for _ in 0..10_000 {
            let position = [(); 3].map(|()| random.between(-16.0, 16.0) as f32);
            let parts = [(); 4].map(|()| random.between(-1.0, 1.0) as f32);
            let length = parts.iter().map(|part| part * part).sum::<f32>().sqrt();
            let rotation = parts.map(|part| part / length);
            let pose = PackedPose::new(position, rotation);
            let distance = position.iter().zip(pose.position()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(distance < 0.000_3, "{distance}");
            let dot: f32 = rotation.iter().zip(pose.rotation()).map(|(a, b)| a * b).sum();
            assert!(dot.abs() > 0.999_99, "{rotation:?} {:?}", pose.rotation());
        }
    }
}
