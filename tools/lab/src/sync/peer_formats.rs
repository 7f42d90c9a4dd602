//! Sizes of states in the formats of other Rust libraries, for clients that only show the cubes.
//!
//! The libraries are not run: a state is written as they lay it out, on a path without losses. What they add for
//! acknowledgements and channels is left out, in their favour.

use slipgate_worlds::CubeState;

use super::cubes::CubeRecording;
use super::playout::WARM_UP;

/// Ticks between two states: 20 states a second.
const TICKS_OF_STATE: usize = 3;
const POSITION_BYTES: usize = 12;
const ROTATION_BYTES: usize = 16;
/// Bits of a position and of a rotation in steps as fine as those of `slipgate-sync`: 14 + 13 + 14, and 2 + 3 · 9.
const POSITION_BITS: usize = 41;
const ROTATION_BITS: usize = 29;

/// A format of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFormat {
    /// A list of all objects with numbers of 32 bits in bincode 1, as a game on renet writes it.
    AllFloats,
    /// The components that changed, in numbers of 32 bits, as lightyear and `bevy_replicon` send them.
    ChangedFloats,
    /// The fields that changed, in whole quantised numbers behind a bit for each field, as naia sends them.
    ChangedQuantised,
}

impl PeerFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::AllFloats, Self::ChangedFloats, Self::ChangedQuantised];

    /// Returns the name in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllFloats => "all objects, floats (a game on renet)",
            Self::ChangedFloats => "changed components, floats (lightyear, bevy_replicon)",
            Self::ChangedQuantised => "changed fields, quantised (naia)",
        }
    }

    /// Returns the bytes of a state. `before` is the one before it.
    fn bytes(self, before: &[CubeState], state: &[CubeState]) -> usize {
        let objects = || before.iter().zip(state).enumerate();
        match self {
            // Tick and count, and for each object its id and its pose.
            Self::AllFloats => 4 + 8 + state.len() * (4 + POSITION_BYTES + ROTATION_BYTES),
            // The tick; for each changed object its id, the size of its record, and the numbers of its components.
            Self::ChangedFloats => {
                let record = |(id, (before, state)): (usize, (&CubeState, &CubeState))| {
                    let [place, turn] = changes(before, state);
                    let components =
                        usize::from(place) * (1 + POSITION_BYTES) + usize::from(turn) * (1 + ROTATION_BYTES);
                    if components == 0 { 0 } else { number_bytes(id) + number_bytes(components) + components }
                };
                4 + objects().map(record).sum::<usize>()
            }
            // The tick of 16 bits; for each changed object a bit that there is one, its id, a bit for each field.
            Self::ChangedQuantised => {
                let record = |(id, (before, state)): (usize, (&CubeState, &CubeState))| {
                    let [place, turn] = quantised_changes(before, state);
                    let fields = usize::from(place) * POSITION_BITS + usize::from(turn) * ROTATION_BITS;
                    if fields == 0 { 0 } else { 1 + 8 * number_bytes(id) + 2 + fields }
                };
                (16 + 1 + objects().map(record).sum::<usize>()).div_ceil(8)
            }
        }
    }
}

/// Returns the bytes of a number with 7 bits in each byte.
fn number_bytes(number: usize) -> usize {
    (number.checked_ilog2().unwrap_or(0) as usize / 7) + 1
}

/// Returns whether the position and the rotation changed.
fn changes(before: &CubeState, state: &CubeState) -> [bool; 2] {
    [before.position != state.position, before.rotation != state.rotation]
}

/// Returns whether the steps of the position and of the rotation changed.
fn quantised_changes(before: &CubeState, state: &CubeState) -> [bool; 2] {
    let step = |value: f32, steps: f32| (value * steps).round() as i32;
    let place = |state: &CubeState| state.position.map(|part| step(part, 512.0));
    // A component is at most 1 / √2, in 510 steps.
    let turn = |state: &CubeState| state.rotation.map(|part| step(part, 255.0 * std::f32::consts::SQRT_2));
    [place(before) != place(state), turn(before) != turn(state)]
}

/// Returns the payload of a recorded world, in kbit/s, after the first half minute.
#[must_use]
pub fn payload(recording: &CubeRecording, format: PeerFormat) -> f64 {
    let ticks = (WARM_UP..recording.ticks()).step_by(TICKS_OF_STATE);
    let bytes: usize =
        ticks.map(|tick| format.bytes(recording.state(tick - TICKS_OF_STATE), recording.state(tick))).sum();
    bytes as f64 * 8.0 / 1000.0 * 60.0 / recording.ticks().saturating_sub(WARM_UP) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_formats() {
        let cube = |x: f32| CubeState {
            position: [x, 0.0, 0.0],
            rotation: [0.0, 0.0, 0.0, 1.0],
            velocity: [0.0; 3],
            spin: [0.0; 3],
            is_at_rest: false,
        };
        let (before, state) =
            (vec![cube(0.0); 200], [vec![cube(1.0)], vec![cube(0.0); 198], vec![cube(1e-6)]].concat());
        assert_eq!(PeerFormat::AllFloats.bytes(&before, &state), 12 + 200 * 32);
        // Ids of one and of two bytes, a size of one byte, and one component.
        assert_eq!(PeerFormat::ChangedFloats.bytes(&before, &state), 4 + (1 + 1 + 13) + (2 + 1 + 13));
        // The second cube moved less than a step.
        assert_eq!(PeerFormat::ChangedQuantised.bytes(&before, &state), (17 + 1 + 8 + 2 + 41_usize).div_ceil(8));
    }
}
