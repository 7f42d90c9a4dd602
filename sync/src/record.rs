//! The fields of one object as bits: whole, or as the difference to a prediction from an earlier state (§6.4).

use crate::bits::{BitReader, BitWriter, unzigzag, zigzag};
use crate::read_error::StateReadError;
use crate::schema::{FieldShape, KindLayout, MAX_WORDS, WordError};

/// The oldest state, in ticks before the record, from which a baseline's motion is continued. Both ends have it then.
pub(crate) const MAX_MOTION_TICKS: u32 = 63;

/// The order of the numbers that say how many ids are left out (§6.3).
pub(crate) const GAP_ORDER: u32 = 1;

/// The order of the numbers that correct a prediction, by the number of bits of the predicted motion (§6.4).
const ORDERS: [u32; 8] = [0, 2, 2, 3, 4, 4, 5, 6];
/// The order for longer motions.
const MAX_ORDER: u32 = 7;

/// The words of an object; those behind its kind's words are zero.
pub(crate) type WordBuf = [i32; MAX_WORDS];

/// A state that both ends have, and the state on which that one was coded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownState<'w> {
    pub(crate) words: &'w [i32],
    pub(crate) tick: u32,
    pub(crate) before: Option<(&'w [i32], u32)>,
}

/// A prediction of a word, and the order of the numbers that correct it.
#[derive(Clone, Copy)]
struct Prediction {
    value: i32,
    order: u32,
}

impl KnownState<'_> {
    /// Predicts a word at `tick`: the motion from the state before goes on.
    fn predict(&self, word: usize, limit: i32, tick: u32) -> Prediction {
        let last = self.words.get(word).copied().unwrap_or(0);
        let Some((before, before_tick)) = self.before else { return Prediction { value: last, order: 0 } };
        let change = i64::from(last) - i64::from(before.get(word).copied().unwrap_or(0));
        let moved = change * i64::from(tick.saturating_sub(self.tick))
            / i64::from(self.tick.saturating_sub(before_tick).max(1));
        let value = (i64::from(last) + moved).clamp(0, i64::from(limit)) as i32;
        // Fast words change their speed by more.
        let order = ORDERS.get((u64::BITS - moved.unsigned_abs().leading_zeros()) as usize).unwrap_or(&MAX_ORDER);
        Prediction { value, order: *order }
    }

    /// Predicts a word that does not move: it stays.
    fn hold(&self, word: usize) -> Prediction {
        Prediction { value: self.words.get(word).copied().unwrap_or(0), order: 0 }
    }

    /// Returns the state without its motion, if the rotation at `start` has another component left out than before.
    fn without_flips(self, start: usize) -> Self {
        let before = self.before.filter(|(before, _)| before.get(start) == self.words.get(start));
        Self { before, ..self }
    }

    /// Returns the state without its motion, if it is at rest.
    fn without_motion_at_rest(self, layout: &KindLayout) -> Self {
        if layout.is_at_rest(self.words) { Self { before: None, ..self } } else { self }
    }
}

pub(crate) fn write_whole(writer: &mut BitWriter<'_>, layout: &KindLayout, words: &[i32]) {
    let is_at_rest = layout.is_at_rest(words);
    for (start, shape) in layout.fields().filter(|(_, shape)| !(is_at_rest && shape.is_absent_at_rest())) {
        for (word, value) in (start..).zip(words.get(start..start + shape.words()).unwrap_or(&[])) {
            writer.write(*value as u32, layout.width(word));
        }
    }
}

pub(crate) fn read_whole(reader: &mut BitReader<'_>, layout: &KindLayout) -> Result<WordBuf, StateReadError> {
    let mut words = [0; MAX_WORDS];
    for (start, shape) in layout.fields() {
        let is_absent = shape.is_absent_at_rest() && layout.is_at_rest(&words);
        for (word, value) in (start..).zip(words.iter_mut().skip(start).take(shape.words())) {
            *value = if is_absent { layout.zero(word) } else { read_word(reader, layout, word)? };
        }
    }
    Ok(words)
}

fn read_word(reader: &mut BitReader<'_>, layout: &KindLayout, word: usize) -> Result<i32, StateReadError> {
    in_range(layout, word, i64::from(reader.read(layout.width(word))?))
}

fn in_range(layout: &KindLayout, word: usize, value: i64) -> Result<i32, StateReadError> {
    let limit = layout.limits.get(word).copied().unwrap_or(0);
    if (0..=i64::from(limit)).contains(&value) { Ok(value as i32) } else { Err(StateReadError::OutOfRange) }
}

/// Returns the predictions of a field's words; those behind its last word are unused.
fn predictions(
    shape: &FieldShape,
    start: usize,
    layout: &KindLayout,
    known: KnownState<'_>,
    tick: u32,
) -> [Prediction; 4] {
    let limit = |word: usize| layout.limits.get(word).copied().unwrap_or(0);
    let words = [start, start + 1, start + 2, start + 3];
    match shape {
        FieldShape::Vector(_) => {
            let [x, y, z] = [start, start + 1, start + 2].map(|word| known.predict(word, limit(word), tick));
            [x, y, z, known.hold(start)]
        }
        FieldShape::Rotation { .. } => {
            let known = known.without_flips(start);
            let [a, b, c] = [start + 1, start + 2, start + 3].map(|word| known.predict(word, limit(word), tick));
            [known.hold(start), a, b, c]
        }
        FieldShape::Bool
        | FieldShape::Rest
        | FieldShape::Integer { .. }
        | FieldShape::Scalar(_)
        | FieldShape::Velocity(_) => words.map(|word| known.hold(word)),
    }
}

/// Writes the difference of `words` to what the known state predicts for `tick`.
pub(crate) fn write_delta(
    writer: &mut BitWriter<'_>,
    layout: &KindLayout,
    words: &[i32],
    known: KnownState<'_>,
    tick: u32,
) {
    let known = known.without_motion_at_rest(layout);
    let is_at_rest = layout.is_at_rest(words);
    for (start, shape) in layout.fields().filter(|(_, shape)| !(is_at_rest && shape.is_absent_at_rest())) {
        let predicted = predictions(shape, start, layout, known, tick);
        let own = words.get(start..start + shape.words()).unwrap_or(&[]);
        let is_as_predicted = own.iter().zip(&predicted).all(|(word, predicted)| *word == predicted.value);
        writer.write(u32::from(!is_as_predicted), 1);
        if is_as_predicted {
            continue;
        }
        match shape {
            // The flag says it all: the other value.
            FieldShape::Bool | FieldShape::Rest => {}
            FieldShape::Rotation { .. } if own.first() != Some(&predicted[0].value) => {
                writer.write(1, 1);
                (start..).zip(own).for_each(|(word, value)| writer.write(*value as u32, layout.width(word)));
            }
            FieldShape::Rotation { .. } => {
                writer.write(0, 1);
                write_corrections(writer, own.get(1..).unwrap_or(&[]), &predicted[1..]);
            }
            _ => write_corrections(writer, own, &predicted),
        }
    }
}

fn write_corrections(writer: &mut BitWriter<'_>, words: &[i32], predicted: &[Prediction]) {
    for (word, predicted) in words.iter().zip(predicted) {
        writer.write_number(zigzag(word - predicted.value), predicted.order);
    }
}

/// Reads what [`write_delta`] wrote.
pub(crate) fn read_delta(
    reader: &mut BitReader<'_>,
    layout: &KindLayout,
    known: KnownState<'_>,
    tick: u32,
) -> Result<WordBuf, StateReadError> {
    let known = known.without_motion_at_rest(layout);
    let mut words = [0; MAX_WORDS];
    for (start, shape) in layout.fields() {
        let is_absent = shape.is_absent_at_rest() && layout.is_at_rest(&words);
        let own = words.get_mut(start..start + shape.words()).unwrap_or(&mut []);
        if is_absent {
            (start..).zip(own).for_each(|(index, word)| *word = layout.zero(index));
            continue;
        }
        let predicted = predictions(shape, start, layout, known, tick);
        own.iter_mut().zip(&predicted).for_each(|(word, predicted)| *word = predicted.value);
        if !reader.read_bit()? {
            continue;
        }
        match shape {
            FieldShape::Bool | FieldShape::Rest => own.iter_mut().for_each(|word| *word = 1 - *word),
            FieldShape::Rotation { .. } if reader.read_bit()? => {
                for (word, value) in (start..).zip(own) {
                    *value = read_word(reader, layout, word)?;
                }
            }
            FieldShape::Rotation { .. } => {
                let own = own.get_mut(1..).unwrap_or(&mut []);
                read_corrections(reader, layout, start + 1, own, &predicted[1..])?;
            }
            _ => read_corrections(reader, layout, start, own, &predicted)?,
        }
    }
    Ok(words)
}

fn read_corrections(
    reader: &mut BitReader<'_>,
    layout: &KindLayout,
    start: usize,
    words: &mut [i32],
    predicted: &[Prediction],
) -> Result<(), StateReadError> {
    for ((index, word), predicted) in (start..).zip(words).zip(predicted) {
        let correction = unzigzag(reader.read_number(predicted.order)?);
        *word = in_range(layout, index, i64::from(predicted.value) + i64::from(correction))?;
    }
    Ok(())
}

/// How errors are measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ErrorScale {
    /// Metres of a unit of vectors and velocities.
    pub(crate) metres_per_unit: f32,
    /// How many ticks a client moves an object on that it has no newer state of.
    pub(crate) max_moved_ticks: u32,
}

/// Returns the distance between a state and what a client shows, in metres. The client shows an earlier state. Its
/// vectors have moved on since, at the speed between it and the state before it.
pub(crate) fn error_between(
    layout: &KindLayout,
    words: &[i32],
    shown: KnownState<'_>,
    tick: u32,
    scale: ErrorScale,
) -> f32 {
    let moved_ticks = (tick - shown.tick).min(scale.max_moved_ticks) as f32;
    let mut error = 0.0;
    for (start, shape) in layout.fields() {
        let per_unit = if shape.is_length() { scale.metres_per_unit } else { 1.0 };
        for word in start..start + shape.words() {
            let at = |words: &[i32]| words.get(word).copied().unwrap_or(0);
            let mut missing = (at(words) - at(shown.words)) as f32;
            if let (FieldShape::Vector(_), Some((before, before_tick))) = (shape, shown.before) {
                let ticks = shown.tick.saturating_sub(before_tick).max(1) as f32;
                missing -= (at(shown.words) - at(before)) as f32 * moved_ticks / ticks;
            }
            let WordError { step, max } = layout.errors.get(word).copied().unwrap_or_default();
            error += (missing.abs() * step).min(max) * per_unit;
        }
    }
    error
}
