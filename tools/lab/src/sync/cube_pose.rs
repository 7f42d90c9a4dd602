//! Where an object is.

/// The position and the rotation of a cube or a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubePose {
    /// In metres.
    pub position: [f32; 3],
    /// A unit quaternion.
    pub rotation: [f32; 4],
}
