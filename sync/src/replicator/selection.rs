//! The records of the next messages: as many as fit, the most urgent ones first, with ascending ids.

use alloc::vec;
use alloc::vec::Vec;

use super::encodings::{BaselineAges, EncodedBody};
use crate::bits::number_bits;
use crate::object_set::ObjectSet;
use crate::record::GAP_ORDER;

/// The bits of the common baseline, behind the header of a message (§6.3).
pub(super) const BASE_BITS: usize = 8;
/// The most bits of the number in front of the first id of a message.
pub(super) const MAX_GAP_BITS: usize = number_bits(u16::MAX as u32, GAP_ORDER) as usize;
/// The most bits in front of the fields of a difference (§6.4).
const MAX_DELTA_BITS: usize = RecordForm::Delta { age: 1 }.bits(0);
/// How many objects that do not fit are passed over before a message counts as full. Those that do not even fit an
/// empty message are not counted, because others would wait for them for ever.
const MAX_MISFITS: u32 = 16;
/// The most objects that are sorted at once.
const SORTED: usize = 32;

/// How an object is described.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RecordForm {
    /// As the difference to a state of `age` ticks ago.
    Delta { age: u8 },
    /// Without reference to another state.
    #[default]
    Whole,
    /// It no longer exists, or must not be seen.
    Gone { is_despawned: bool },
}

impl RecordForm {
    /// The most bits of a form.
    pub(super) const MAX_BITS: usize = Self::Whole.bits(0);

    pub(super) const fn bits(self, base: u8) -> usize {
        match self {
            Self::Delta { age } if age == base => 1,
            Self::Delta { .. } => 2 + 8,
            Self::Whole => 3 + 4 + 4,
            Self::Gone { .. } => 3 + 1,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlannedRecord {
    pub(super) form: RecordForm,
    pub(super) baseline: BaselineAges,
    /// The encoded fields; `None` until their length is needed.
    pub(super) body: Option<EncodedBody>,
}

impl PlannedRecord {
    pub(super) fn bits(&self, base: u8) -> usize {
        self.form.bits(base) + self.body.map_or(0, |body| usize::from(body.bits))
    }
}

#[derive(Clone, Copy, Debug)]
struct DueObject {
    priority: f32,
    object: u16,
}

/// The messages that may be sent now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) messages: usize,
    pub(super) bytes_each: usize,
    /// The bits of the longest header.
    pub(super) header_bits: usize,
    pub(super) max_objects: usize,
    /// The mean bits of the records of the client's last choice, with their gaps; 0 if there was none. It only saves
    /// work: of the candidates, not many more are encoded than fit.
    pub(super) record_bits: usize,
}

impl Room {
    /// Returns the bits that records can have in all, if they are spread over the messages in the order of their ids.
    fn bits(self, max_record_bits: usize) -> usize {
        let bits = self.message_bits();
        if self.messages == 1 {
            return bits;
        }
        // At the end of each message there is no room for the next record, and the next one starts with a larger gap.
        // A budget without a limit is `usize::MAX` bytes.
        self.messages.saturating_mul(bits.saturating_sub(MAX_GAP_BITS + max_record_bits))
    }

    /// Returns the bits that the records of one message can have.
    const fn message_bits(self) -> usize {
        self.bytes_each.saturating_mul(8).saturating_sub(self.header_bits + BASE_BITS)
    }

    /// Returns whether a message has room for a record with fields of this length, whatever its id is.
    pub(super) const fn fits_alone(self, body_bits: u16) -> bool {
        MAX_GAP_BITS + MAX_DELTA_BITS + body_bits as usize <= self.message_bits()
    }
}

/// What the chosen records take.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    bits: usize,
    /// The bits of the largest record.
    largest: usize,
    objects: usize,
}

impl Used {
    fn add(self, bits: usize, largest: usize, objects: usize) -> Self {
        let largest = self.largest.max(largest);
        Self { bits: self.bits + bits, largest, objects: self.objects + objects }
    }

    fn fits(self, room: Room) -> bool {
        let is_alone = self.objects == 1 && self.bits <= room.message_bits();
        self.objects <= room.max_objects && (is_alone || self.bits <= room.bits(self.largest))
    }

    /// Returns about how many more objects fit.
    fn remaining(self, room: Room) -> usize {
        let mean = self.bits.checked_div(self.objects).unwrap_or(room.record_bits);
        let objects = room.max_objects.saturating_sub(self.objects);
        objects.min(room.bits(self.largest).saturating_sub(self.bits) / mean.max(1))
    }
}

/// The candidates for messages, and those that fit.
#[derive(Debug)]
pub(super) struct Selection {
    candidates: Vec<DueObject>,
    planned: Vec<PlannedRecord>,
    ages: [u16; 256],
    chosen: ObjectSet,
    /// The chosen objects in the order of their ids, of which the first ones are written.
    order: Vec<u16>,
    written: usize,
    base: u8,
    /// The mean bits of the records of the newest choice, with their gaps.
    record_bits: usize,
}

impl Selection {
    pub(super) fn new(objects: usize) -> Self {
        Self {
            candidates: Vec::with_capacity(objects),
            planned: vec![PlannedRecord::default(); objects],
            ages: [0; 256],
            chosen: ObjectSet::new(objects),
            order: Vec::with_capacity(objects),
            written: 0,
            base: 0,
            record_bits: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.candidates.clear();
        self.ages.fill(0);
        self.order.clear();
        self.written = 0;
    }

    pub(super) fn add(&mut self, object: u16, priority: f32, record: PlannedRecord) {
        self.candidates.push(DueObject { priority, object });
        if let RecordForm::Delta { age } = record.form
            && let Some(count) = self.ages.get_mut(usize::from(age))
        {
            *count += 1;
        }
        if let Some(planned) = self.planned.get_mut(usize::from(object)) {
            *planned = record;
        }
    }

    /// Finds the most common age of a baseline, which is 0 if there is none. All candidates are known.
    pub(super) fn set_base(&mut self) {
        let most = (0..=u8::MAX).zip(&self.ages).max_by_key(|(age, count)| (**count, u8::MAX - age));
        self.base = most.filter(|(_, count)| **count > 0).map_or(0, |(age, _)| age);
    }

    /// Returns the age in ticks of the common baseline.
    pub(super) const fn base(&self) -> u8 {
        self.base
    }

    /// Returns the mean bits of the records of the newest choice, with their gaps; 0 if it chose none.
    pub(super) const fn record_bits(&self) -> usize {
        self.record_bits
    }

    /// Returns whether all candidates fit, which takes less time to find out than to choose. Does not encode them if
    /// there are many more than fit.
    pub(super) fn all_fit(&mut self, room: Room, encode: &mut impl FnMut(u16, PlannedRecord) -> PlannedRecord) -> bool {
        let count = self.candidates.len();
        if count > room.max_objects || count * room.record_bits > room.bits(room.record_bits).saturating_mul(5) / 4 {
            return false;
        }
        let (mut used, mut next) = (Used::default(), 0);
        // The candidates are in the order of their ids before the first choice.
        for index in 0..count {
            let Some(object) = self.candidates.get(index).map(|candidate| candidate.object) else { break };
            let own = self.encoded_bits(object, encode);
            let gap = number_bits(u32::from(object).saturating_sub(next), GAP_ORDER) as usize;
            (used, next) = (used.add(own + gap, own, 1), u32::from(object) + 1);
            if !used.fits(room) {
                return false;
            }
        }
        self.record_bits = used.bits / count.max(1);
        true
    }

    /// Returns the bits of a record. Encodes it, if that was not done before.
    fn encoded_bits(&mut self, object: u16, encode: &mut impl FnMut(u16, PlannedRecord) -> PlannedRecord) -> usize {
        let base = self.base;
        let Some(record) = self.planned.get_mut(usize::from(object)) else { return 0 };
        if record.body.is_none() && !matches!(record.form, RecordForm::Gone { .. }) {
            *record = encode(object, *record);
        }
        record.bits(base)
    }

    /// Chooses all candidates.
    pub(super) fn choose_all(&mut self) {
        self.written = 0;
        self.order.clear();
        self.order.extend(self.candidates.drain(..).map(|candidate| candidate.object));
    }

    /// Adds to the priorities of all candidates.
    pub(super) fn raise(&mut self, mut growth: impl FnMut(u16) -> f32) {
        self.candidates.iter_mut().for_each(|candidate| candidate.priority += growth(candidate.object));
    }

    /// Chooses the most urgent candidates that fit. The others are the candidates for the next choice.
    pub(super) fn choose(&mut self, room: Room, encode: &mut impl FnMut(u16, PlannedRecord) -> PlannedRecord) {
        self.chosen.clear();
        let count = self.count_surely_fitting(room, encode);
        let mut used = Used::default();
        for index in 0..count {
            used = self.choose_at(index, used);
        }
        used = self.fill_up(room, used, encode);
        self.record_bits = used.bits / used.objects.max(1);
        let chosen = &self.chosen;
        self.candidates.retain(|candidate| !chosen.contains(usize::from(candidate.object)));
        self.written = 0;
        self.order.clear();
        self.order.extend(self.chosen.iter().map(|object| object as u16));
    }

    /// Moves the most urgent candidates to the front and returns how many of them fit, whatever their ids are. Encodes
    /// about as many as fit.
    fn count_surely_fitting(
        &mut self,
        room: Room,
        encode: &mut impl FnMut(u16, PlannedRecord) -> PlannedRecord,
    ) -> usize {
        let (mut high, mut used) = (self.candidates.len(), Used::default());
        while high - used.objects > SORTED {
            let low = used.objects;
            // 7/8 of the estimate, which is seldom exact: what is encoded beyond the room is not sent.
            let step = (used.remaining(room).saturating_mul(7) / 8).min((high - low) / 2);
            let Some(part) = self.candidates.get_mut(low..high).filter(|_| step > SORTED / 2) else { break };
            part.select_nth_unstable_by(step, |a, b| b.priority.total_cmp(&a.priority));
            let mut more = used;
            for index in low..low + step {
                let object = self.candidates.get(index).map_or(0, |candidate| candidate.object);
                let bits = self.encoded_bits(object, encode);
                more = more.add(bits, bits, 1);
            }
            let gaps = self.most_gap_bits(more.objects);
            if more.add(gaps, 0, 0).fits(room) {
                used = more;
            } else {
                high = low + step;
            }
        }
        used.objects
    }

    /// Returns at most how many bits the gaps between this many ids take. Equal gaps take most, because the length of a
    /// number is a concave function.
    fn most_gap_bits(&self, count: usize) -> usize {
        let gap = self.planned.len() / count.max(1);
        count * (2 * (gap + 2).ilog2() as usize + 2)
    }

    /// Chooses candidates in their order while there is room, exactly counted, behind those that are chosen. Returns
    /// what all of them take.
    fn fill_up(
        &mut self,
        room: Room,
        mut used: Used,
        encode: &mut impl FnMut(u16, PlannedRecord) -> PlannedRecord,
    ) -> Used {
        let (first, mut misfits) = (used.objects, 0);
        for index in first..self.candidates.len() {
            if misfits >= MAX_MISFITS || used.objects >= room.max_objects {
                break;
            }
            if (index - first).is_multiple_of(SORTED) {
                self.sort_next(index);
            }
            let Some(object) = self.candidates.get(index).map(|candidate| candidate.object) else { break };
            let own = self.encoded_bits(object, encode);
            let bits = self.cost(object);
            if used.add(bits, own, 1).fits(room) {
                used = self.choose_at(index, used);
            } else {
                misfits += u32::from(Used::default().add(bits, own, 1).fits(room));
            }
        }
        used
    }

    /// Sorts the most urgent of the candidates from this index on to the front of them.
    fn sort_next(&mut self, first: usize) {
        let Some(rest) = self.candidates.get_mut(first..) else { return };
        if rest.len() > SORTED {
            rest.select_nth_unstable_by(SORTED, |a, b| b.priority.total_cmp(&a.priority));
        }
        if let Some(part) = rest.get_mut(..SORTED.min(rest.len())) {
            part.sort_unstable_by(|a, b| b.priority.total_cmp(&a.priority));
        }
    }

    /// Chooses a candidate. Returns what is used then.
    fn choose_at(&mut self, index: usize, used: Used) -> Used {
        let Some(object) = self.candidates.get(index).map(|candidate| candidate.object) else { return used };
        let (bits, own) = (self.cost(object), self.record(object).bits(self.base));
        self.chosen.insert(usize::from(object));
        used.add(bits, own, 1)
    }

    /// Returns how many more bits are used if this object is chosen too.
    fn cost(&self, object: u16) -> usize {
        let id = usize::from(object);
        let own = self.record(object).bits(self.base);
        let start = self.chosen.before(id).map_or(0, |before| before + 1);
        let gap = number_bits((id - start) as u32, GAP_ORDER) as usize;
        let Some(after) = self.chosen.after(id) else { return own + gap };
        // Two numbers never take fewer bits than one for the gap between both neighbours.
        let behind = number_bits((after - id - 1) as u32, GAP_ORDER) as usize;
        let before = number_bits((after - start) as u32, GAP_ORDER) as usize;
        own + (gap + behind).saturating_sub(before)
    }

    /// Returns whether all chosen objects are written.
    pub(super) fn is_written(&self) -> bool {
        self.written == self.order.len()
    }

    /// Returns the chosen objects that are not written yet, in the order of their ids.
    pub(super) fn unwritten(&self) -> &[u16] {
        self.order.get(self.written..).unwrap_or(&[])
    }

    /// Takes the next chosen objects out, because they are written.
    pub(super) const fn take(&mut self, count: usize) {
        self.written += count;
    }

    pub(super) fn record(&self, object: u16) -> PlannedRecord {
        self.planned.get(usize::from(object)).copied().unwrap_or_default()
    }
}
