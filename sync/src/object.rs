//! Objects as a game sees them: values are set and read by the index of their field.

use core::fmt;

use crate::quantize;
use crate::schema::{FieldShape, KindLayout, ObjectKind};

/// An object's number, which the game chooses. Small numbers are cheap: tables have an entry for each number up to the
/// limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u16);

/// The field has another type, or the kind has no field with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrongField {
    /// The index of the field.
    pub field: usize,
}

impl fmt::Display for WrongField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field {} has another type, or does not exist", self.field)
    }
}

impl core::error::Error for WrongField {}

/// An object of the server's game, to be changed. Each setter rounds to the precision of the field, and each getter
/// returns the rounded value, or `None` if the field has another type.
#[derive(Debug)]
pub struct ObjectMut<'s> {
    pub(crate) layout: &'s KindLayout,
    pub(crate) words: &'s mut [i32],
}

impl ObjectMut<'_> {
    /// Sets a field of [`Field::boolean`](crate::Field::boolean) or [`Field::rest`](crate::Field::rest).
    ///
    /// # Errors
    ///
    /// [`WrongField`] if the field has another type.
    pub fn set_bool(&mut self, field: usize, value: bool) -> Result<&mut Self, WrongField> {
        match self.layout.field(field) {
            Some((start, FieldShape::Bool | FieldShape::Rest)) => Ok(self.store(start, &[i32::from(value)])),
            _ => Err(WrongField { field }),
        }
    }

    /// Sets a field of [`Field::integer`](crate::Field::integer). A number outside of the range becomes the nearest
    /// one.
    ///
    /// # Errors
    ///
    /// [`WrongField`] if the field has another type.
    pub fn set_integer(&mut self, field: usize, value: i32) -> Result<&mut Self, WrongField> {
        match self.layout.field(field) {
            Some((start, FieldShape::Integer { min, max })) => Ok(self.store(start, &[value.clamp(*min, *max) - min])),
            _ => Err(WrongField { field }),
        }
    }

    /// Sets a field of [`Field::scalar`](crate::Field::scalar). A number outside of the range becomes the nearest one,
    /// and NaN the smallest one.
    ///
    /// # Errors
    ///
    /// [`WrongField`] if the field has another type.
    pub fn set_scalar(&mut self, field: usize, value: f32) -> Result<&mut Self, WrongField> {
        match self.layout.field(field) {
            Some((start, FieldShape::Scalar(axis))) => Ok(self.store(start, &[quantize::step(axis, value)])),
            _ => Err(WrongField { field }),
        }
    }

    /// Sets a field of [`Field::vector`](crate::Field::vector) or [`Field::velocity`](crate::Field::velocity). Numbers
    /// outside of the ranges become the nearest ones, and NaN the smallest one. The velocities of an object at rest
    /// become zero at the next [`Replicator::commit`](crate::Replicator::commit).
    ///
    /// # Errors
    ///
    /// [`WrongField`] if the field has another type.
    pub fn set_vector(&mut self, field: usize, [x, y, z]: [f32; 3]) -> Result<&mut Self, WrongField> {
        match self.layout.field(field) {
            Some((
                start,
                FieldShape::Vector([x_axis, y_axis, z_axis]) | FieldShape::Velocity([x_axis, y_axis, z_axis]),
            )) => {
                let words = [quantize::step(x_axis, x), quantize::step(y_axis, y), quantize::step(z_axis, z)];
                Ok(self.store(start, &words))
            }
            _ => Err(WrongField { field }),
        }
    }

    /// Sets a field of [`Field::rotation`](crate::Field::rotation) to a unit quaternion `[x, y, z, w]`. One with a
    /// NaN becomes no rotation, `[0, 0, 0, 1]`.
    ///
    /// # Errors
    ///
    /// [`WrongField`] if the field has another type.
    pub fn set_rotation(&mut self, field: usize, quaternion: [f32; 4]) -> Result<&mut Self, WrongField> {
        match self.layout.field(field) {
            Some((start, FieldShape::Rotation { bits })) => {
                Ok(self.store(start, &quantize::rotation_words(quaternion, *bits)))
            }
            _ => Err(WrongField { field }),
        }
    }

    /// Returns the value of a boolean field, or of a field of rest, as all clients will have it.
    #[must_use]
    pub fn bool(&self, field: usize) -> Option<bool> {
        self.values().bool(field)
    }

    /// Returns the value of an integer field, as all clients will have it.
    #[must_use]
    pub fn integer(&self, field: usize) -> Option<i32> {
        self.values().integer(field)
    }

    /// Returns the value of a scalar field, as all clients will have it.
    #[must_use]
    pub fn scalar(&self, field: usize) -> Option<f32> {
        self.values().scalar(field)
    }

    /// Returns the value of a vector or velocity field, as all clients will have it.
    #[must_use]
    pub fn vector(&self, field: usize) -> Option<[f32; 3]> {
        self.values().vector(field)
    }

    /// Returns the unit quaternion `[x, y, z, w]` of a rotation field, as all clients will have it.
    #[must_use]
    pub fn rotation(&self, field: usize) -> Option<[f32; 4]> {
        self.values().rotation(field)
    }

    const fn values(&self) -> FieldValues<'_> {
        FieldValues { layout: self.layout, words: self.words }
    }

    fn store(&mut self, start: usize, values: &[i32]) -> &mut Self {
        for (word, value) in self.words.iter_mut().skip(start).zip(values) {
            *word = *value;
        }
        self
    }
}

/// An object as a client knows it. A getter returns `None` if the field has another type.
#[derive(Clone, Copy, Debug)]
pub struct ObjectRef<'r> {
    pub(crate) layout: &'r KindLayout,
    pub(crate) words: &'r [i32],
    pub(crate) id: ObjectId,
    pub(crate) kind: ObjectKind,
    pub(crate) tick: u32,
}

impl ObjectRef<'_> {
    /// Returns the number of the object.
    #[must_use]
    pub const fn id(&self) -> ObjectId {
        self.id
    }

    /// Returns the kind of the object.
    #[must_use]
    pub const fn kind(&self) -> ObjectKind {
        self.kind
    }

    /// Returns the server's tick of this state.
    #[must_use]
    pub const fn tick(&self) -> u32 {
        self.tick
    }

    /// Returns the value of a boolean field, or of a field of rest.
    #[must_use]
    pub fn bool(&self, field: usize) -> Option<bool> {
        self.values().bool(field)
    }

    /// Returns the value of an integer field.
    #[must_use]
    pub fn integer(&self, field: usize) -> Option<i32> {
        self.values().integer(field)
    }

    /// Returns the value of a scalar field.
    #[must_use]
    pub fn scalar(&self, field: usize) -> Option<f32> {
        self.values().scalar(field)
    }

    /// Returns the value of a vector or velocity field.
    #[must_use]
    pub fn vector(&self, field: usize) -> Option<[f32; 3]> {
        self.values().vector(field)
    }

    /// Returns the unit quaternion `[x, y, z, w]` of a rotation field.
    #[must_use]
    pub fn rotation(&self, field: usize) -> Option<[f32; 4]> {
        self.values().rotation(field)
    }

    const fn values(&self) -> FieldValues<'_> {
        FieldValues { layout: self.layout, words: self.words }
    }
}

/// The values of the words of an object.
#[derive(Clone, Copy, Debug)]
struct FieldValues<'w> {
    layout: &'w KindLayout,
    words: &'w [i32],
}

impl FieldValues<'_> {
    fn bool(self, field: usize) -> Option<bool> {
        match self.layout.field(field)? {
            (start, FieldShape::Bool | FieldShape::Rest) => Some(self.word(start) == 1),
            _ => None,
        }
    }

    fn integer(self, field: usize) -> Option<i32> {
        match self.layout.field(field)? {
            (start, FieldShape::Integer { min, .. }) => Some(self.word(start).saturating_add(*min)),
            _ => None,
        }
    }

    fn scalar(self, field: usize) -> Option<f32> {
        match self.layout.field(field)? {
            (start, FieldShape::Scalar(axis)) => Some(quantize::value(axis, self.word(start))),
            _ => None,
        }
    }

    fn vector(self, field: usize) -> Option<[f32; 3]> {
        match self.layout.field(field)? {
            (start, FieldShape::Vector([x, y, z]) | FieldShape::Velocity([x, y, z])) => Some([
                quantize::value(x, self.word(start)),
                quantize::value(y, self.word(start + 1)),
                quantize::value(z, self.word(start + 2)),
            ]),
            _ => None,
        }
    }

    fn rotation(self, field: usize) -> Option<[f32; 4]> {
        match self.layout.field(field)? {
            (start, FieldShape::Rotation { bits }) => Some(quantize::rotation(self.words.get(start..)?, *bits)),
            _ => None,
        }
    }

    fn word(self, index: usize) -> i32 {
        self.words.get(index).copied().unwrap_or(0)
    }
}
