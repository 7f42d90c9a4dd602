//! Ranges of slices that a receiver has: how many are missing, how many are there, and so on (§4.6).

/// Bytes of the longest number: 32 bits, 7 in each byte.
const MAX_NUMBER_BYTES: usize = 5;

/// Ranges as they stand on the wire. They are checked when they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ranges<'a>(&'a [u8]);

impl<'a> Ranges<'a> {
    /// Checks that these are ranges in their one form, and none reaches beyond `span` slices.
    pub(super) fn check(bytes: &'a [u8], span: u32) -> Option<Self> {
        let (mut rest, mut at) = (bytes, 0u32);
        while !rest.is_empty() {
            let (missing, there) = pair(&mut rest)?;
            let touches = missing == 0 && at > 0;
            if touches || there == 0 {
                return None;
            }
            at = at.checked_add(missing)?.checked_add(there)?;
        }
        (at <= span).then_some(Self(bytes))
    }

    /// As they stand on the wire.
    pub(super) const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Each range: its first slice, counted from the first one that is spoken of, and one behind its last.
    pub fn iter(self) -> impl Iterator<Item = core::ops::Range<u32>> {
        let (mut rest, mut at) = (self.0, 0u32);
        core::iter::from_fn(move || {
            let (missing, there) = pair(&mut rest)?;
            let from = at.checked_add(missing)?;
            at = from.checked_add(there)?;
            Some(from..at)
        })
    }
}

fn pair(rest: &mut &[u8]) -> Option<(u32, u32)> {
    Some((number(rest)?, number(rest)?))
}

/// Reads a number in its shortest form: 7 bits in each byte, the lowest first, bit 7 says that another follows.
fn number(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for place in 0..MAX_NUMBER_BYTES {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        let bits = u32::from(byte & 0x7f);
        let shifted = bits << (7 * place);
        if shifted >> (7 * place) != bits {
            return None;
        }
        value |= shifted;
        if byte & 0x80 == 0 {
            let is_shortest = *byte != 0 || place == 0;
            return is_shortest.then_some(value);
        }
    }
    None
}

/// Writes ranges into what room there is.
pub struct RangesWriter<'a> {
    room: &'a mut [u8],
    at: usize,
    /// One behind the last range.
    written_to: u32,
}

impl<'a> RangesWriter<'a> {
    /// A writer at the start of `room`.
    pub const fn new(room: &'a mut [u8]) -> Self {
        Self { room, at: 0, written_to: 0 }
    }

    /// Writes a range behind the others, counted from the first slice spoken of; answers false, and writes nothing,
    /// if there is no room.
    pub fn push(&mut self, range: core::ops::Range<u32>) -> bool {
        let mut bytes = [0; 2 * MAX_NUMBER_BYTES];
        let missing = put(&mut bytes, range.start - self.written_to);
        let there = put(bytes.get_mut(missing..).unwrap_or_default(), range.end - range.start);
        let (Some(bytes), Some(room)) =
            (bytes.get(..missing + there), self.room.get_mut(self.at..self.at + missing + there))
        else {
            return false;
        };
        room.copy_from_slice(bytes);
        self.at += bytes.len();
        self.written_to = range.end;
        true
    }

    /// How many bytes were written.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.at
    }
}

fn put(room: &mut [u8], mut value: u32) -> usize {
    for (place, byte) in room.iter_mut().enumerate() {
        *byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return place + 1;
        }
        *byte |= 0x80;
    }
    debug_assert!(false, "a number has at most five bytes");
    0
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(pairs in prop::collection::vec((1u32..1 << 24, 1u32..1 << 24), 0..20)) {
            let mut at = 0;
            let ranges: Vec<_> = pairs.iter().map(|(gap, length)| { at += gap + length; at - length..at }).collect();
            let mut room = [0; 200];
            let mut writer = RangesWriter::new(&mut room);
            prop_assert!(ranges.iter().all(|range| writer.push(range.clone())));
            let bytes = writer.bytes();
            prop_assert_eq!(Ranges::check(&room[..bytes], at).unwrap().iter().collect::<Vec<_>>(), ranges);
            if at > 0 {
                prop_assert!(Ranges::check(&room[..bytes], at - 1).is_none());
            }
        }
    }

    #[test]
    fn a_range_that_has_no_room_leaves_the_others_as_they_are() {
        let mut room = [9; 5];
        let mut writer = RangesWriter::new(&mut room);
        assert!(writer.push(0..2) && writer.push(300..301));
        assert!(!writer.push(400..500));
        assert_eq!(writer.bytes(), 5);
        assert_eq!(room, [0, 2, 0xaa, 0x02, 1]);
    }

    #[test]
    fn other_forms_than_the_shortest_are_no_ranges() {
        let none: [&[u8]; 8] = [
            &[0],                                  // half a pair
            &[1, 0],                               // nothing there
            &[0, 1, 0, 1],                         // two that touch
            &[0x81, 0, 1],                         // not the shortest form
            &[0x80],                               // cut off
            &[0xff, 0xff, 0xff, 0xff, 0x1f, 1],    // 33 bits
            &[0xff, 0xff, 0xff, 0xff, 0x8f, 0, 1], // six bytes
            &[0xff, 0xff, 0xff, 0xff, 0x0f, 1],    // beyond all numbers
        ];
        for bytes in none {
            assert!(Ranges::check(bytes, u32::MAX).is_none(), "{bytes:?}");
        }
        assert!(Ranges::check(&[0, 3], 2).is_none(), "beyond what is spoken of");
    }
}
