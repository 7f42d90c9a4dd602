//! Values of games to whole numbers and back: each word counts steps from the smallest value.

/// The words of a rotation: the number of the component that is left out, and the other three.
pub(crate) const COMPONENTS_OF_ROTATION: usize = 4;
/// The most that a component can be that is not the largest of a unit quaternion: 1 / √2.
const MAX_COMPONENT: f32 = core::f32::consts::FRAC_1_SQRT_2;
/// The most bits of a scalar, or of a component of a vector.
const MAX_SCALAR_BITS: u32 = 24;

/// The range of a number, and its steps for each unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    pub(crate) min: f32,
    pub(crate) max: f32,
    pub(crate) steps: u32,
}

impl Axis {
    /// Returns the number of the last step: the end of the range is not part of it.
    pub(crate) fn last(&self) -> f64 {
        libm::ceil((f64::from(self.max) - f64::from(self.min)) * f64::from(self.steps)) - 1.0
    }

    pub(crate) fn is_valid(&self) -> bool {
        let is_range = self.min.is_finite() && self.max.is_finite() && self.min < self.max;
        is_range && (1.0..f64::from(1 << MAX_SCALAR_BITS)).contains(&self.last())
    }
}

/// Returns the step of a value. Values outside of the range become the nearest one, and NaN becomes the smallest.
pub(crate) fn step(axis: &Axis, value: f32) -> i32 {
    let steps = (f64::from(value) - f64::from(axis.min)) * f64::from(axis.steps);
    // The cast cuts a positive number, and turns NaN into 0.
    (steps + 0.5).clamp(0.0, axis.last()) as i32
}

pub(crate) fn value(axis: &Axis, step: i32) -> f32 {
    (f64::from(axis.min) + f64::from(step) / f64::from(axis.steps)) as f32
}

/// Returns the last step of a component: an even number, so that zero has a step of its own.
pub(crate) const fn last_component(bits: u32) -> i32 {
    (1 << bits) - 2
}

/// Returns the words of no rotation.
pub(crate) const fn identity_words(bits: u32) -> [i32; COMPONENTS_OF_ROTATION] {
    let zero = last_component(bits) / 2;
    [3, zero, zero, zero]
}

/// Returns the words of a unit quaternion. The largest component is left out and made positive. A quaternion with a NaN
/// becomes no rotation.
pub(crate) fn rotation_words(quaternion: [f32; 4], bits: u32) -> [i32; COMPONENTS_OF_ROTATION] {
    if quaternion.iter().any(|component| component.is_nan()) {
        return identity_words(bits);
    }
    let (mut largest, mut magnitude) = (3, 0.0);
    for (index, component) in quaternion.iter().enumerate() {
        if component.abs() > magnitude {
            (largest, magnitude) = (index, component.abs());
        }
    }
    let sign = if quaternion.get(largest).is_some_and(|component| *component < 0.0) { -1.0 } else { 1.0 };
    let last = last_component(bits) as f32;
    let others = quaternion.iter().enumerate().filter(|(index, _)| *index != largest);
    let mut words = [largest as i32, 0, 0, 0];
    for (word, (_, component)) in words.iter_mut().skip(1).zip(others) {
        let share = (sign * component / MAX_COMPONENT + 1.0) / 2.0;
        *word = (share * last + 0.5).clamp(0.0, last) as i32;
    }
    words
}

/// Returns the unit quaternion of its words.
pub(crate) fn rotation(words: &[i32], bits: u32) -> [f32; 4] {
    let last = last_component(bits) as f32;
    let largest = words.first().map_or(3, |index| *index as usize);
    let mut rest = words.iter().skip(1).map(|word| (*word as f32 / last * 2.0 - 1.0) * MAX_COMPONENT);
    let mut quaternion = [0.0; 4];
    let mut squares = 0.0;
    for (index, component) in quaternion.iter_mut().enumerate() {
        if index != largest {
            *component = rest.next().unwrap_or(0.0);
            squares += *component * *component;
        }
    }
    // Three components at their limits exceed a unit: the result is normalised then.
    let left_out = libm::sqrtf((1.0 - squares).max(0.0));
    let scale = 1.0 / libm::sqrtf(squares + left_out * left_out);
    if let Some(component) = quaternion.get_mut(largest) {
        *component = left_out;
    }
    quaternion.map(|component| component * scale)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rotations_come_back_within_a_step(parts in prop::array::uniform4(-1.0..1.0_f32), bits in 4..=16_u32) {
            let length = parts.iter().map(|part| part * part).sum::<f32>().sqrt();
            prop_assume!(length > 0.1);
            let unit = parts.map(|part| part / length);
            let back = rotation(&rotation_words(unit, bits), bits);
            let dot: f32 = unit.iter().zip(back).map(|(a, b)| a * b).sum();
            // Half a step in each of three components, and what follows for the largest one.
            let step = 2.0 * MAX_COMPONENT / last_component(bits) as f32;
            prop_assert!(2.0 * dot.abs().min(1.0).acos() <= 4.0 * step + 2e-3, "{dot} at {bits} bits");
        }

        #[test]
        fn numbers_come_back_within_half_a_step(number in -20.0..20.0_f32, steps in 1..2000_u32) {
            let axis = Axis { min: -16.0, max: 16.0, steps };
            let back = value(&axis, step(&axis, number));
            let nearest = number.clamp(-16.0, 16.0 - 1.0 / steps as f32);
            prop_assert!((back - nearest).abs() <= 0.5 / steps as f32 + 1e-5);
        }
    }

    #[test]
    fn values_outside_of_the_range_become_the_nearest_one() {
        let axis = Axis { min: -1.0, max: 1.0, steps: 100 };
        let inputs = [f32::NEG_INFINITY, -2.0, 0.0, 2.0, f32::INFINITY, f32::NAN];
        assert_eq!(inputs.map(|input| step(&axis, input)), [0, 0, 100, 199, 199, 0]);
    }

    #[test]
    fn no_rotation_comes_back_exactly() {
        assert_eq!(rotation(&rotation_words([0.0, 0.0, 0.0, 1.0], 9), 9), [0.0, 0.0, 0.0, 1.0]);
        assert_eq!(rotation(&rotation_words([0.0, 0.0, 0.0, -1.0], 9), 9), [0.0, 0.0, 0.0, 1.0]);
        for bits in 4..=16 {
            assert_eq!(rotation(&identity_words(bits), bits), [0.0, 0.0, 0.0, 1.0], "{bits} bits");
            for wrong in [[f32::NAN; 4], [f32::NAN, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, f32::NAN], [0.0; 4]] {
                assert_eq!(rotation_words(wrong, bits), identity_words(bits), "{wrong:?}");
            }
        }
    }
}
