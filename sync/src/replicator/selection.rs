//! The records of one message: as many as fit, the most urgent ones first, with ascending ids.

use alloc::vec;
use alloc::vec::Vec;

use super::encodings::EncodedBody;
use crate::bits::number_bits;
use crate::commits::CommitNumber;

/// The order of the numbers that say how many ids are left out.
pub(super) const GAP_ORDER: u32 = 1;
/// The bits of a message before its records.
pub(super) const HEADER_BITS: usize = 24;
/// How many objects that do not fit are passed over before the message counts as full.
const MAX_MISFITS: u32 = 16;

/// How an object is described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RecordForm {
    /// As the difference to the state of this commit, which was `age` ticks ago.
    Delta { age: u8, coded_on: CommitNumber },
    /// Without reference to another state.
    #[default]
    Whole,
    /// It no longer exists, or must not be seen.
    Gone { is_despawned: bool },
}

impl RecordForm {
    pub(super) fn bits(self, base: u8) -> usize {
        match self {
            Self::Delta { age, .. } if age == base => 1,
            Self::Delta { .. } => 2 + 8,
            Self::Whole => 3 + 4 + 4,
            Self::Gone { .. } => 3 + 1,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlannedRecord {
    pub(super) form: RecordForm,
    pub(super) body: EncodedBody,
}

/// The candidates for a message, and those that fit.
#[derive(Debug)]
pub(super) struct Selection {
    /// Candidates: the bits of the priority, then the id.
    candidates: Vec<u64>,
    planned: Vec<PlannedRecord>,
    chosen: Vec<u64>,
    ages: [u16; 256],
}

impl Selection {
    pub(super) fn new(objects: usize) -> Self {
        Self {
            candidates: Vec::with_capacity(objects),
            planned: vec![PlannedRecord::default(); objects],
            chosen: vec![0; objects.div_ceil(64)],
            ages: [0; 256],
        }
    }

    pub(super) fn clear(&mut self) {
        self.candidates.clear();
        self.chosen.fill(0);
        self.ages.fill(0);
    }

    pub(super) fn add(&mut self, object: usize, priority: f32, record: PlannedRecord) {
        // The bits of positive floats are ordered as the floats are.
        self.candidates.push(u64::from(priority.max(0.0).to_bits()) << 32 | object as u64);
        if let RecordForm::Delta { age, .. } = record.form
            && let Some(count) = self.ages.get_mut(usize::from(age))
        {
            *count += 1;
        }
        if let Some(planned) = self.planned.get_mut(object) {
            *planned = record;
        }
    }

    /// Returns the most common age of a baseline; 0 if there is none.
    pub(super) fn base(&self) -> u8 {
        let most = (0..=u8::MAX).zip(&self.ages).max_by_key(|(age, count)| (**count, u8::MAX - age));
        most.filter(|(_, count)| **count > 0).map_or(0, |(age, _)| age)
    }

    /// Chooses the most urgent records that fit into `bits` bits, at most `max_objects`.
    pub(super) fn choose(&mut self, bits: usize, max_objects: usize) {
        let base = self.base();
        let mut used = HEADER_BITS;
        if self.candidates.len() > max_objects || self.cost_of_all(base) + HEADER_BITS > bits {
            self.candidates.sort_unstable_by(|a, b| b.cmp(a));
        }
        let (mut count, mut misfits) = (0, 0);
        for index in 0..self.candidates.len() {
            let object = self.candidates.get(index).map_or(0, |key| *key as u32 as usize);
            let record = self.planned.get(object).copied().unwrap_or_default();
            let cost = record.form.bits(base) + record.body.bits as usize + self.gap_cost(object);
            if used + cost > bits {
                misfits += 1;
                if misfits == MAX_MISFITS {
                    break;
                }
                continue;
            }
            used += cost;
            if let Some(word) = self.chosen.get_mut(object / 64) {
                *word |= 1 << (object % 64);
            }
            count += 1;
            if count == max_objects {
                break;
            }
        }
    }

    /// Returns at most how many bits the records of all candidates take.
    fn cost_of_all(&self, base: u8) -> usize {
        let (mut cost, mut next) = (0, 0);
        // The candidates are in the order of their ids.
        for object in self.candidates.iter().map(|key| *key as u32) {
            let record = self.planned.get(object as usize).copied().unwrap_or_default();
            cost += record.form.bits(base) + record.body.bits as usize;
            cost += number_bits(object - next, GAP_ORDER) as usize;
            next = object + 1;
        }
        cost
    }

    /// Returns how many more bits the gaps between ids take if this object is chosen too. May be negative in theory
    /// only: two numbers never take fewer bits than their sum.
    fn gap_cost(&self, object: usize) -> usize {
        let start = self.chosen_before(object).map_or(0, |before| before + 1);
        let own = number_bits((object - start) as u32, GAP_ORDER) as usize;
        let Some(after) = self.chosen_after(object) else { return own };
        let behind = number_bits((after - object - 1) as u32, GAP_ORDER) as usize;
        let before = number_bits((after - start) as u32, GAP_ORDER) as usize;
        (own + behind).saturating_sub(before)
    }

    fn chosen_before(&self, object: usize) -> Option<usize> {
        let (mut index, mut mask) = (object / 64, (1_u64 << (object % 64)) - 1);
        loop {
            let word = self.chosen.get(index)? & mask;
            if word != 0 {
                return Some(index * 64 + 63 - word.leading_zeros() as usize);
            }
            (index, mask) = (index.checked_sub(1)?, u64::MAX);
        }
    }

    fn chosen_after(&self, object: usize) -> Option<usize> {
        let (mut index, mut mask) = (object / 64, !((1_u64 << (object % 64)) - 1) & !(1 << (object % 64)));
        loop {
            let word = self.chosen.get(index)? & mask;
            if word != 0 {
                return Some(index * 64 + word.trailing_zeros() as usize);
            }
            (index, mask) = (index + 1, u64::MAX);
        }
    }

    /// Returns the chosen objects in the order of their ids.
    pub(super) fn chosen(&self) -> impl Iterator<Item = (usize, PlannedRecord)> {
        let set_bits = |(index, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| index * 64 + bit)
        };
        let objects = self.chosen.iter().enumerate().filter(|(_, word)| **word != 0).flat_map(set_bits);
        objects.map(|object| (object, self.planned.get(object).copied().unwrap_or_default()))
    }
}
