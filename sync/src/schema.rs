//! The fields of each kind of object, and how many bits they take.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::quantize::{self, Axis, COMPONENTS_OF_ROTATION};

/// The most kinds of a schema.
pub const MAX_KINDS: usize = 16;
/// The most fields of a kind.
pub const MAX_FIELDS: usize = 32;
/// The most numbers of a kind: a vector has three, a rotation four, any other field one.
pub const MAX_WORDS: usize = 32;
/// The number of the format of all messages (§6.2): 4 says which message of a state is the first one.
const FORMAT: u32 = 4;
const MIN_ROTATION_BITS: u32 = 4;
const MAX_ROTATION_BITS: u32 = 16;

/// A kind of object: its number in the [`Schema`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectKind(pub(crate) u8);

/// A field of a kind of object, with the range and the precision in which it is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Field(pub(crate) FieldShape);

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldShape {
    Bool,
    Integer { min: i32, max: i32 },
    Scalar(Axis),
    Vector([Axis; 3]),
    Rotation { bits: u32 },
    Rest,
    Velocity([Axis; 3]),
}

impl FieldShape {
    pub(crate) const fn words(&self) -> usize {
        match self {
            Self::Bool | Self::Rest | Self::Integer { .. } | Self::Scalar(_) => 1,
            Self::Vector(_) | Self::Velocity(_) => 3,
            Self::Rotation { .. } => COMPONENTS_OF_ROTATION,
        }
    }

    /// Returns whether the unit of the field is a length, or has one.
    pub(crate) const fn is_length(&self) -> bool {
        matches!(self, Self::Vector(_) | Self::Velocity(_))
    }

    /// Returns whether the field is zero and takes no bits while the object is at rest.
    pub(crate) const fn is_absent_at_rest(&self) -> bool {
        matches!(self, Self::Velocity(_))
    }
}

impl Field {
    /// Returns a field that is true or false.
    #[must_use]
    pub const fn boolean() -> Self {
        Self(FieldShape::Bool)
    }

    /// Returns a field with a whole number, from the first one to the last one, inclusive. They are less than 2^30
    /// apart: larger numbers, such as hashes, are two fields.
    #[must_use]
    pub const fn integer(min: i32, max: i32) -> Self {
        Self(FieldShape::Integer { min, max })
    }

    /// Returns a field with a number in a range, in `steps` steps for each unit, at most 2^24 in all. The end of the
    /// range is one step too far: it becomes `1 / steps` less. A game that needs it passes an end that is larger by
    /// `1 / steps`.
    #[must_use]
    pub const fn scalar(range: Range<f32>, steps: u32) -> Self {
        Self(FieldShape::Scalar(Axis { min: range.start, max: range.end, steps }))
    }

    /// Returns a field with three numbers that move, such as a position. Each has a range like that of a
    /// [`scalar`](Self::scalar), without its end. Its motion is predicted.
    #[must_use]
    pub fn vector(ranges: [Range<f32>; 3], steps: u32) -> Self {
        Self(FieldShape::Vector(ranges.map(|range| Axis { min: range.start, max: range.end, steps })))
    }

    /// Returns a field with a unit quaternion: its three smallest components, each in `bits` bits, from 4 to 16. Its
    /// motion is predicted.
    #[must_use]
    pub const fn rotation(bits: u32) -> Self {
        Self(FieldShape::Rotation { bits })
    }

    /// Returns a field that is true while the object is at rest. The fields of [`velocity`](Self::velocity) behind it
    /// are zero then and take no bits. A kind has at most one, in front of its velocities.
    #[must_use]
    pub const fn rest() -> Self {
        Self(FieldShape::Rest)
    }

    /// Returns a field with a linear or angular velocity, of which each component is between `-max` and
    /// `max - 1 / steps`: `max` itself is one step too far, as with a [`scalar`](Self::scalar). A game that needs it
    /// passes `max + 1 / steps`. A `max` between two steps is that of the next one, so that zero has a step of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use slipgate_sync::{Field, Schema};
    ///
    /// let mut schema = Schema::builder();
    /// let ball = schema.add(&[Field::velocity(6.0, 64), Field::velocity(6.0 + 1.0 / 64.0, 64)]);
    /// let schema = schema.build()?;
    /// assert_eq!(schema.snap_vector(ball, 0, [6.0, -6.0, 0.0]), Some([6.0 - 1.0 / 64.0, -6.0, 0.0]));
    /// assert_eq!(schema.snap_vector(ball, 1, [6.0, -6.0, 0.0]), Some([6.0, -6.0, 0.0]));
    /// # Ok::<(), slipgate_sync::SchemaError>(())
    /// ```
    #[must_use]
    pub fn velocity(max: f32, steps: u32) -> Self {
        let max = (libm::ceil(f64::from(max) * f64::from(steps)) / f64::from(steps)) as f32;
        Self(FieldShape::Velocity([(); 3].map(|()| Axis { min: -max, max, steps })))
    }

    fn is_valid(&self) -> bool {
        match &self.0 {
            FieldShape::Bool | FieldShape::Rest => true,
            // A difference of two values must fit into 31 bits.
            FieldShape::Integer { min, max } => min < max && i64::from(*max) - i64::from(*min) < 1 << 30,
            FieldShape::Scalar(axis) => axis.is_valid(),
            FieldShape::Vector(axes) | FieldShape::Velocity(axes) => axes.iter().all(Axis::is_valid),
            FieldShape::Rotation { bits } => (MIN_ROTATION_BITS..=MAX_ROTATION_BITS).contains(bits),
        }
    }

    /// Appends the largest value of each word.
    fn add_limits(&self, limits: &mut Vec<i32>) {
        match &self.0 {
            FieldShape::Bool | FieldShape::Rest => limits.push(1),
            FieldShape::Integer { min, max } => limits.push(max.saturating_sub(*min)),
            FieldShape::Scalar(axis) => limits.push(axis.last() as i32),
            FieldShape::Vector(axes) | FieldShape::Velocity(axes) => {
                limits.extend(axes.iter().map(|axis| axis.last() as i32));
            }
            FieldShape::Rotation { bits } => {
                let last = quantize::last_component(rotation_bits(*bits));
                limits.extend([3, last, last, last]);
            }
        }
    }

    /// Appends how wrong each word is if it differs.
    fn add_errors(&self, errors: &mut Vec<WordError>) {
        match &self.0 {
            FieldShape::Bool | FieldShape::Rest | FieldShape::Integer { .. } => errors.push(WordError::SWITCH),
            FieldShape::Scalar(axis) => errors.push(WordError::of_step(1.0 / axis.steps as f32)),
            FieldShape::Vector(axes) => {
                errors.extend(axes.iter().map(|axis| WordError::of_step(1.0 / axis.steps as f32)));
            }
            // A velocity that is wrong by 20 m/s is as bad as an error of a metre.
            FieldShape::Velocity(axes) => {
                errors.extend(axes.iter().map(|axis| WordError::of_step(0.05 / axis.steps as f32)));
            }
            FieldShape::Rotation { bits } => {
                let step = WordError::of_step(1.0 / quantize::last_component(rotation_bits(*bits)) as f32);
                errors.extend([WordError::SWITCH, step, step, step]);
            }
        }
    }
}

/// How wrong a word is: in units of its field, as a measure for priorities.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct WordError {
    /// The error of one step.
    pub(crate) step: f32,
    /// The largest error.
    pub(crate) max: f32,
}

impl WordError {
    /// A number without an order that means a distance, such as a switch, a count or an index: wrong is wrong, and as
    /// bad as an error of 10 cm.
    const SWITCH: Self = Self { step: 0.1, max: 0.1 };

    const fn of_step(step: f32) -> Self {
        Self { step, max: f32::INFINITY }
    }
}

/// The fields of a kind, laid out in words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KindLayout {
    pub(crate) fields: Vec<Field>,
    /// The first word of each field.
    pub(crate) starts: Vec<usize>,
    /// The largest value of each word; the smallest one is 0.
    pub(crate) limits: Vec<i32>,
    pub(crate) errors: Vec<WordError>,
    /// The word of the field that is 1 while the object is at rest.
    rest: Option<usize>,
    /// The words of velocities that are zero; 0 for all other words.
    zeros: Vec<i32>,
    /// The words of a new object.
    firsts: Vec<i32>,
    /// The bits of a whole state with all fields.
    bits: u32,
}

impl KindLayout {
    fn new(fields: &[Field]) -> Self {
        let (mut starts, mut limits, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        let (mut zeros, mut firsts, mut rest) = (Vec::<i32>::new(), Vec::new(), None);
        for field in fields {
            starts.push(limits.len());
            match &field.0 {
                FieldShape::Rest => rest = Some(limits.len()),
                FieldShape::Velocity(axes) => {
                    zeros.extend(axes.iter().map(zero_of));
                    firsts.extend(axes.iter().map(zero_of));
                }
                FieldShape::Rotation { bits } => firsts.extend(quantize::identity_words(rotation_bits(*bits))),
                _ => {}
            }
            field.add_limits(&mut limits);
            field.add_errors(&mut errors);
            zeros.resize(limits.len(), 0);
            firsts.resize(limits.len(), 0);
        }
        let bits = limits.iter().map(|limit| width(*limit)).sum();
        Self { fields: fields.to_vec(), starts, limits, errors, rest, zeros, firsts, bits }
    }

    /// Returns the bits of a whole state with all fields.
    pub(crate) const fn bits(&self) -> u32 {
        self.bits
    }

    /// Returns whether these words are those of an object at rest.
    pub(crate) fn is_at_rest(&self, words: &[i32]) -> bool {
        self.rest.is_some_and(|rest| words.get(rest) == Some(&1))
    }

    /// Returns the words of a new object.
    pub(crate) fn first_words(&self) -> &[i32] {
        &self.firsts
    }

    /// Returns the word of a velocity that is zero.
    pub(crate) fn zero(&self, word: usize) -> i32 {
        self.zeros.get(word).copied().unwrap_or(0)
    }

    /// Makes the velocities zero if the object is at rest, as clients will have them.
    pub(crate) fn stop_at_rest(&self, words: &mut [i32]) {
        if !self.is_at_rest(words) {
            return;
        }
        for (start, shape) in self.fields().filter(|(_, shape)| shape.is_absent_at_rest()) {
            let zeros = self.zeros.get(start..).unwrap_or(&[]);
            words.iter_mut().skip(start).zip(zeros).take(shape.words()).for_each(|(word, zero)| *word = *zero);
        }
    }

    /// Returns the index of a field that makes the order of the fields wrong: a second field of rest, or one behind a
    /// velocity.
    fn misplaced_rest(&self) -> Option<usize> {
        let is_before = |shape: &FieldShape| shape.is_absent_at_rest() || *shape == FieldShape::Rest;
        let first = self.fields.iter().position(|field| is_before(&field.0))?;
        let rest = |(_, field): &(usize, &Field)| field.0 == FieldShape::Rest;
        self.fields.iter().enumerate().skip(first + 1).find(rest).map(|(index, _)| index)
    }

    pub(crate) fn words(&self) -> usize {
        self.limits.len()
    }

    /// Returns the first word of a field, and its shape.
    pub(crate) fn field(&self, index: usize) -> Option<(usize, &FieldShape)> {
        Some((*self.starts.get(index)?, &self.fields.get(index)?.0))
    }

    /// Returns the fields with the first word of each one.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (usize, &FieldShape)> {
        self.starts.iter().copied().zip(self.fields.iter().map(|field| &field.0))
    }

    /// Returns the number of bits of a word that is sent as a whole.
    pub(crate) fn width(&self, word: usize) -> u32 {
        width(self.limits.get(word).copied().unwrap_or(0))
    }
}

/// Returns the number of bits of a word with this largest value.
const fn width(limit: i32) -> u32 {
    i32::BITS - limit.leading_zeros()
}

/// Returns the nearest number of bits that a rotation may have. The builder refuses others later.
fn rotation_bits(bits: u32) -> u32 {
    bits.clamp(MIN_ROTATION_BITS, MAX_ROTATION_BITS)
}

/// Returns the step of zero. The builder refuses a range that is not valid later.
fn zero_of(axis: &Axis) -> i32 {
    if axis.is_valid() { quantize::step(axis, 0.0) } else { 0 }
}

/// The reason why [`SchemaBuilder::build`] refuses a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SchemaError {
    /// There is no kind, or there are more than [`MAX_KINDS`].
    Kinds,
    /// This kind has no field, more than [`MAX_FIELDS`], or more than [`MAX_WORDS`] numbers.
    Fields(ObjectKind),
    /// This field of this kind has an empty range, integers that are 2^30 or more apart, more than 2^24 steps, or a
    /// rotation that does not have 4 to 16 bits.
    Range(ObjectKind, usize),
    /// This field of rest is the second one of this kind, or behind a velocity.
    Rest(ObjectKind, usize),
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kinds => write!(f, "a schema has 1 to {MAX_KINDS} kinds"),
            Self::Fields(kind) => {
                write!(f, "kind {} has no field, more than {MAX_FIELDS}, or more than {MAX_WORDS} numbers", kind.0)
            }
            Self::Range(kind, field) => write!(
                f,
                "field {field} of kind {} has an empty range, integers that are 2^30 or more apart, more than 2^24 \
                 steps, or a rotation that does not have {MIN_ROTATION_BITS} to {MAX_ROTATION_BITS} bits",
                kind.0
            ),
            Self::Rest(kind, field) => {
                write!(f, "field {field} of kind {} is a second field of rest, or behind a velocity", kind.0)
            }
        }
    }
}

impl core::error::Error for SchemaError {}

/// Collects the kinds of a [`Schema`].
#[derive(Clone, Debug, Default)]
pub struct SchemaBuilder {
    kinds: Vec<KindLayout>,
}

impl SchemaBuilder {
    /// Adds a kind of object. The order of kinds and fields is part of the format.
    pub fn add(&mut self, fields: &[Field]) -> ObjectKind {
        self.kinds.push(KindLayout::new(fields));
        ObjectKind((self.kinds.len() - 1) as u8)
    }

    /// Returns the schema.
    ///
    /// # Errors
    ///
    /// [`SchemaError`] if a limit of this module is exceeded, or if a field has a range that cannot be sent.
    pub fn build(self) -> Result<Schema, SchemaError> {
        if self.kinds.is_empty() || self.kinds.len() > MAX_KINDS {
            return Err(SchemaError::Kinds);
        }
        for (number, kind) in (0_u8..).zip(&self.kinds) {
            if kind.fields.is_empty() || kind.fields.len() > MAX_FIELDS || kind.words() > MAX_WORDS {
                return Err(SchemaError::Fields(ObjectKind(number)));
            }
            if let Some(wrong) = kind.fields.iter().position(|field| !field.is_valid()) {
                return Err(SchemaError::Range(ObjectKind(number), wrong));
            }
            if let Some(wrong) = kind.misplaced_rest() {
                return Err(SchemaError::Rest(ObjectKind(number), wrong));
            }
        }
        let max_words = self.kinds.iter().map(KindLayout::words).max().unwrap_or(0);
        Ok(Schema { kinds: self.kinds, max_words })
    }
}

/// The kinds of objects that a server sends. Server and client of a game build the same schema.
///
/// # Examples
///
/// ```
/// use slipgate_sync::{Field, Schema};
///
/// let mut schema = Schema::builder();
/// // 16 m around the origin in steps of 2 mm, a rotation in 29 bits, and whether the cube glows.
/// let area = || [-16.0..16.0, 0.0..16.0, -16.0..16.0];
/// let cube = schema.add(&[Field::vector(area(), 512), Field::rotation(9), Field::boolean()]);
/// let schema = schema.build()?;
/// assert_eq!(schema.whole_bits(cube), 14 + 13 + 14 + 2 + 3 * 9 + 1);
/// # Ok::<(), slipgate_sync::SchemaError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    kinds: Vec<KindLayout>,
    max_words: usize,
}

impl Schema {
    /// Returns a builder without kinds.
    #[must_use]
    pub fn builder() -> SchemaBuilder {
        SchemaBuilder::default()
    }

    /// Returns how many bits the fields of an object take that is sent as a whole; 0 for a kind of another schema.
    #[must_use]
    pub fn whole_bits(&self, kind: ObjectKind) -> u32 {
        self.layout(kind).map_or(0, KindLayout::bits)
    }

    /// Returns a hash of the format of messages and of all kinds and fields (§6.2).
    #[must_use]
    pub fn hash(&self) -> u32 {
        self.fnv().0
    }

    /// Returns a hash of the format, of all kinds and fields, and of the game's own version (§6.2), as the version of
    /// the channels' layout. A connection of peers with another format, schema or version of the game then ends with
    /// `LayoutMismatch`, after both got `Connected`.
    #[must_use]
    pub fn version(&self, game_version: u32) -> u32 {
        let mut hash = self.fnv();
        hash.add(game_version);
        hash.0
    }

    fn fnv(&self) -> Fnv {
        let mut hash = Fnv::default();
        hash.add(FORMAT);
        for kind in &self.kinds {
            hash.add(kind.fields.len() as u32);
            for field in &kind.fields {
                hash.add_field(&field.0);
            }
        }
        hash
    }

    /// Returns the kinds.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = &KindLayout> {
        self.kinds.iter()
    }

    pub(crate) fn layout(&self, kind: ObjectKind) -> Option<&KindLayout> {
        self.kinds.get(usize::from(kind.0))
    }

    /// Returns the most words of a kind.
    pub(crate) const fn max_words(&self) -> usize {
        self.max_words
    }
}

/// FNV-1a with 32 bits, over numbers of four bytes.
struct Fnv(u32);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Fnv {
    fn add(&mut self, value: u32) {
        for byte in value.to_le_bytes() {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
    }

    fn add_axis(&mut self, axis: &Axis) {
        for part in [axis.min.to_bits(), axis.max.to_bits(), axis.steps] {
            self.add(part);
        }
    }

    fn add_field(&mut self, field: &FieldShape) {
        match field {
            FieldShape::Bool => self.add(0),
            FieldShape::Integer { min, max } => {
                self.add(1);
                self.add(*min as u32);
                self.add(*max as u32);
            }
            FieldShape::Scalar(axis) => {
                self.add(2);
                self.add_axis(axis);
            }
            FieldShape::Vector(axes) => {
                self.add(3);
                axes.iter().for_each(|axis| self.add_axis(axis));
            }
            FieldShape::Rotation { bits } => {
                self.add(4);
                self.add(*bits);
            }
            FieldShape::Rest => self.add(5),
            FieldShape::Velocity(axes) => {
                self.add(6);
                axes.iter().for_each(|axis| self.add_axis(axis));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_cannot_be_sent_are_refused() {
        let wrong = [
            Field::integer(3, 3),
            Field::integer(i32::MIN, i32::MAX),
            Field::integer(0, 1 << 30),
            Field::scalar(1.0..1.0, 10),
            Field::scalar(0.0..1.0, 0),
            Field::scalar(0.0..f32::INFINITY, 1),
            Field::scalar(f32::NAN..1.0, 1),
            Field::scalar(0.0..20_000.0, 1000),
            Field::rotation(3),
            Field::rotation(17),
            Field::rotation(31),
            Field::rotation(u32::MAX),
            Field::velocity(0.0, 10),
            Field::velocity(f32::INFINITY, 10),
        ];
        for field in wrong {
            let mut schema = Schema::builder();
            let kind = schema.add(&[Field::boolean(), field.clone()]);
            assert_eq!(schema.build(), Err(SchemaError::Range(kind, 1)), "{field:?}");
        }
    }

    #[test]
    fn integers_of_less_than_2_to_the_30_are_sent() {
        let mut schema = Schema::builder();
        let kind = schema.add(&[Field::integer(0, (1 << 30) - 1), Field::integer(i32::MIN, i32::MIN + (1 << 30) - 1)]);
        let schema = schema.build().unwrap();
        assert_eq!(schema.whole_bits(kind), 60);
        let text = alloc::string::ToString::to_string(&SchemaError::Range(kind, 1));
        assert!(text.starts_with("field 1 of kind 0") && text.contains("2^30") && text.contains("2^24"), "{text}");
    }

    #[test]
    fn velocity_of_an_object_at_rest_is_zero() {
        for (max, steps) in [(7.5, 33), (2.5, 1), (15.0, 100), (0.1, 7), (50.0, 333)] {
            let FieldShape::Velocity([axis, ..]) = Field::velocity(max, steps).0 else { panic!("a velocity") };
            let zero = quantize::value(&axis, zero_of(&axis));
            assert!(zero.abs() <= 1e-6 * max && axis.max >= max, "{max}, {steps}: {zero}");
        }
    }

    #[test]
    fn numbers_of_kinds_and_fields_are_limited() {
        assert_eq!(Schema::builder().build(), Err(SchemaError::Kinds));
        let mut many = Schema::builder();
        for _ in 0..17 {
            many.add(&[Field::boolean()]);
        }
        assert_eq!(many.build(), Err(SchemaError::Kinds));
        for count in [0, 33] {
            let mut schema = Schema::builder();
            let kind = schema.add(&alloc::vec![Field::boolean(); count]);
            assert_eq!(schema.build(), Err(SchemaError::Fields(kind)));
        }
        let mut schema = Schema::builder();
        let kind = schema.add(&alloc::vec![Field::rotation(9); 9]);
        assert_eq!(schema.build(), Err(SchemaError::Fields(kind)), "36 words");
    }

    #[test]
    fn field_of_rest_is_single_and_in_front_of_velocities() {
        let (rest, velocity) = (Field::rest, || Field::velocity(32.0, 64));
        for (fields, wrong) in [([velocity(), rest()], 1), ([rest(), rest()], 1)] {
            let mut schema = Schema::builder();
            let kind = schema.add(&fields);
            assert_eq!(schema.build(), Err(SchemaError::Rest(kind, wrong)), "{fields:?}");
        }
        let mut schema = Schema::builder();
        schema.add(&[rest(), velocity(), velocity()]);
        schema.add(&[velocity()]);
        assert!(schema.build().is_ok());
    }

    #[test]
    fn each_change_of_a_schema_changes_its_hash() {
        let hash = |fields: &[Field]| {
            let mut schema = Schema::builder();
            schema.add(fields);
            schema.build().unwrap().hash()
        };
        let fields = [
            Field::boolean(),
            Field::integer(0, 5),
            Field::integer(0, 6),
            Field::scalar(0.0..5.0, 1),
            Field::scalar(0.0..5.0, 2),
            Field::rotation(9),
            Field::rotation(10),
            Field::rest(),
            Field::velocity(5.0, 1),
        ];
        let mut hashes: Vec<u32> = fields.iter().map(|field| hash(core::slice::from_ref(field))).collect();
        hashes.push(hash(&fields));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 10);
        let mut schema = Schema::builder();
        schema.add(&fields);
        let schema = schema.build().unwrap();
        assert_ne!(schema.version(1), schema.version(2));
    }
}
