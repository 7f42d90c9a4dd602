//! What clients get of a value: both ends of a game that simulates round their worlds to it.

use crate::quantize::{self, Axis};
use crate::schema::{FieldShape, ObjectKind, Schema};

impl Schema {
    /// Returns what clients get of the value of a scalar field. A game in which both ends simulate rounds its world
    /// so at each tick, at both ends: the same state then continues in the same way. `None` if the field has another
    /// type.
    #[must_use]
    pub fn snap_scalar(&self, kind: ObjectKind, field: usize, value: f32) -> Option<f32> {
        match self.layout(kind)?.field(field)?.1 {
            FieldShape::Scalar(axis) => Some(snap(axis, value)),
            _ => None,
        }
    }

    /// Returns what clients get of the value of a vector or velocity field, like [`snap_scalar`](Self::snap_scalar).
    #[must_use]
    pub fn snap_vector(&self, kind: ObjectKind, field: usize, [x, y, z]: [f32; 3]) -> Option<[f32; 3]> {
        match self.layout(kind)?.field(field)?.1 {
            FieldShape::Vector([x_axis, y_axis, z_axis]) | FieldShape::Velocity([x_axis, y_axis, z_axis]) => {
                Some([snap(x_axis, x), snap(y_axis, y), snap(z_axis, z)])
            }
            _ => None,
        }
    }

    /// Returns what clients get of the unit quaternion `[x, y, z, w]` of a rotation field, like
    /// [`snap_scalar`](Self::snap_scalar). A result with two components that are equally large can move by a few
    /// steps if it is rounded again.
    #[must_use]
    pub fn snap_rotation(&self, kind: ObjectKind, field: usize, quaternion: [f32; 4]) -> Option<[f32; 4]> {
        match self.layout(kind)?.field(field)?.1 {
            FieldShape::Rotation { bits } => {
                Some(quantize::rotation(&quantize::rotation_words(quaternion, *bits), *bits))
            }
            _ => None,
        }
    }
}

/// Returns the value of the nearest step.
fn snap(axis: &Axis, value: f32) -> f32 {
    quantize::value(axis, quantize::step(axis, value))
}
