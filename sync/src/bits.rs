//! Single bits in messages: fixed widths and Exp-Golomb numbers, least significant bit first (§6.1).

use crate::read_error::StateReadError;

/// The most bits of an Exp-Golomb prefix. Larger numbers than 32 bits do not occur.
const MAX_PREFIX: u32 = 32;

/// Writes bits into a buffer. Bits behind the end of the buffer are counted and dropped, so that a writer without a
/// buffer measures.
pub(crate) struct BitWriter<'b> {
    buf: &'b mut [u8],
    /// Bits that are in whole bytes of the buffer.
    flushed: usize,
    /// The bits behind them.
    pending: u64,
    /// How many bits are pending: fewer than 32 between two calls.
    pending_bits: u32,
}

impl<'b> BitWriter<'b> {
    pub(crate) const fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, flushed: 0, pending: 0, pending_bits: 0 }
    }

    /// Returns the number of bits written so far, also of those that found no room.
    pub(crate) const fn bits(&self) -> usize {
        self.flushed + self.pending_bits as usize
    }

    /// Writes the lowest `count` bits of a value, at most 32.
    pub(crate) fn write(&mut self, value: u32, count: u32) {
        debug_assert!(count <= 32, "a value has 32 bits");
        let value = u64::from(value) & ((1 << count) - 1);
        self.pending |= value << self.pending_bits;
        self.pending_bits += count;
        if self.pending_bits >= 32 {
            self.flush(4);
        }
    }

    /// Moves pending bits into the next `count` bytes of the buffer.
    fn flush(&mut self, count: usize) {
        let start = self.flushed / 8;
        let bytes = self.pending.to_le_bytes();
        if let (Some(to), Some(from)) = (self.buf.get_mut(start..start + count), bytes.get(..count)) {
            to.copy_from_slice(from);
        } else if let Some(to) = self.buf.get_mut(start..) {
            to.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        }
        self.flushed += count * 8;
        self.pending = self.pending.checked_shr(count as u32 * 8).unwrap_or(0);
        self.pending_bits = self.pending_bits.saturating_sub(count as u32 * 8);
    }

    /// Writes the last bits, and zeros up to the end of their byte. Returns the number of bits without these zeros.
    pub(crate) fn finish(mut self) -> usize {
        let bits = self.bits();
        self.flush((self.pending_bits as usize).div_ceil(8));
        bits
    }

    /// Writes an Exp-Golomb number of order `k`: zeros, then the number plus 2^k from its highest bit.
    pub(crate) fn write_number(&mut self, value: u32, k: u32) {
        let shifted = u64::from(value) + (1 << k);
        let low_bits = u64::BITS - 1 - shifted.leading_zeros();
        self.write(0, low_bits - k);
        self.write(1, 1);
        self.write((shifted & !(1 << low_bits)) as u32, low_bits.min(32));
    }

    /// Copies `count` bits from the start of other bytes.
    pub(crate) fn copy(&mut self, from: &[u8], count: usize) {
        let mut left = count as u32;
        for word in from.chunks(4) {
            if left == 0 {
                return;
            }
            let mut bytes = [0; 4];
            bytes.iter_mut().zip(word).for_each(|(to, from)| *to = *from);
            self.write(u32::from_le_bytes(bytes), left.min(32));
            left -= left.min(32);
        }
    }
}

/// Returns how many bits [`BitWriter::write_number`] takes.
pub(crate) const fn number_bits(value: u32, k: u32) -> u32 {
    let width = u64::BITS - (value as u64 + (1 << k)).leading_zeros();
    2 * width - 1 - k
}

/// Maps signed numbers to unsigned ones, small ones to small ones.
pub(crate) const fn zigzag(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

pub(crate) const fn unzigzag(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

/// Reads bits from the bytes of a message.
pub(crate) struct BitReader<'b> {
    bytes: &'b [u8],
    pos: usize,
}

impl<'b> BitReader<'b> {
    pub(crate) const fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, pos: 0 }
    }

    const fn remaining(&self) -> usize {
        self.bytes.len().saturating_mul(8).saturating_sub(self.pos)
    }

    /// Returns the next bits, at least 57 of them; those behind the end are zero.
    fn peek(&self) -> u64 {
        let start = self.pos / 8;
        let mut window = [0; 8];
        match self.bytes.get(start..start + 8) {
            Some(bytes) => window.copy_from_slice(bytes),
            None => {
                let rest = self.bytes.get(start..).unwrap_or(&[]);
                window.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            }
        }
        u64::from_le_bytes(window) >> (self.pos % 8)
    }

    /// Reads `count` bits, at most 32.
    pub(crate) fn read(&mut self, count: u32) -> Result<u32, StateReadError> {
        if self.remaining() < count as usize {
            return Err(StateReadError::Cut);
        }
        let value = self.peek() & ((1 << count) - 1);
        self.pos += count as usize;
        Ok(value as u32)
    }

    pub(crate) fn read_bit(&mut self) -> Result<bool, StateReadError> {
        Ok(self.read(1)? == 1)
    }

    /// Reads an Exp-Golomb number of order `k`.
    pub(crate) fn read_number(&mut self, k: u32) -> Result<u32, StateReadError> {
        let zeros = self.peek().trailing_zeros();
        let width = zeros + k;
        if zeros as usize >= self.remaining() && self.remaining() <= MAX_PREFIX as usize {
            return Err(StateReadError::Cut);
        }
        if width > 32 {
            return Err(StateReadError::OutOfRange);
        }
        self.pos += zeros as usize + 1;
        let low = u64::from(self.read(width)?);
        let value = (low | 1 << width) - (1 << k);
        u32::try_from(value).map_err(|_| StateReadError::OutOfRange)
    }

    /// Returns whether only padding is left: fewer than eight bits, all of them zero.
    pub(crate) fn is_at_padding(&self) -> bool {
        let left = self.remaining();
        let last = self.bytes.last().copied().unwrap_or(0);
        left < 8 && (left == 0 || last >> (8 - left) == 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back_as_they_were_written(values in prop::collection::vec((any::<u32>(), 0..24_u32), 0..40)) {
            let mut buf = [0xff; 600];
            let mut writer = BitWriter::new(&mut buf);
            let mut expected = 0;
            for (value, k) in &values {
                writer.write_number(*value, *k);
                expected += number_bits(*value, *k) as usize;
            }
            prop_assert_eq!(writer.bits(), expected);
            prop_assert_eq!(writer.finish(), expected);
            let mut reader = BitReader::new(&buf);
            for (value, k) in values {
                prop_assert_eq!(reader.read_number(k), Ok(value));
            }
        }

        #[test]
        fn signs_come_back(value in -0x4000_0000..0x4000_0000_i32) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }

        #[test]
        fn copies_are_equal_bit_by_bit(bytes in any::<[u8; 20]>(), offset in 0..32_u32, count in 0..160_usize) {
            let mut buf = [0xff; 24];
            let mut writer = BitWriter::new(&mut buf);
            writer.write(u32::MAX, offset);
            writer.copy(&bytes, count);
            prop_assert_eq!(writer.finish(), offset as usize + count);
            let bit = |bytes: &[u8], index: usize| bytes[index / 8] >> (index % 8) & 1;
            for index in 0..count {
                prop_assert_eq!(bit(&buf, offset as usize + index), bit(&bytes, index));
            }
        }

        #[test]
        fn writer_drops_and_counts_what_finds_no_room(values in prop::collection::vec(any::<u32>(), 0..9)) {
            let (mut buf, mut large) = ([0; 5], [0; 36]);
            for buf in [&mut buf[..], &mut large[..]] {
                let mut writer = BitWriter::new(buf);
                values.iter().for_each(|value| writer.write(*value, 29));
                prop_assert_eq!(writer.finish(), values.len() * 29);
            }
            prop_assert_eq!(&buf[..], &large[..5]);
        }
    }

    #[test]
    fn long_prefix_is_refused() {
        assert_eq!(BitReader::new(&[0; 9]).read_number(0), Err(StateReadError::OutOfRange));
        assert_eq!(BitReader::new(&[0; 2]).read_number(0), Err(StateReadError::Cut));
    }

    #[test]
    fn padding_is_less_than_a_byte_of_zeros() {
        let mut reader = BitReader::new(&[0b1000_0000, 0]);
        assert!(!reader.is_at_padding());
        assert_eq!(reader.read(9), Ok(0b1000_0000));
        assert!(reader.is_at_padding());
        let mut reader = BitReader::new(&[0b1000_0000]);
        assert_eq!(reader.read(3), Ok(0));
        assert!(!reader.is_at_padding());
    }
}
