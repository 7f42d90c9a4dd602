//! Single bits in messages: fixed widths and Exp-Golomb numbers, least significant bit first (§6.1).

use crate::read_error::StateReadError;

/// The most bits of an Exp-Golomb prefix. Larger numbers than 32 bits do not occur.
const MAX_PREFIX: u32 = 32;

/// Writes bits into a buffer.
pub(crate) struct BitWriter<'b> {
    buf: &'b mut [u8],
    bits: usize,
}

impl<'b> BitWriter<'b> {
    pub(crate) const fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, bits: 0 }
    }

    /// Continues behind `bits` bits that an earlier writer wrote.
    pub(crate) const fn resume(buf: &'b mut [u8], bits: usize) -> Self {
        Self { buf, bits }
    }

    /// Returns the number of bits written so far, also of those that found no room.
    pub(crate) const fn bits(&self) -> usize {
        self.bits
    }

    /// Writes the lowest `count` bits of a value. Bits behind the end of the buffer are counted and dropped.
    pub(crate) fn write(&mut self, mut value: u32, mut count: u32) {
        while count > 0 {
            let offset = (self.bits % 8) as u32;
            let taken = (8 - offset).min(count);
            let part = (value & ((1 << taken) - 1)) << offset;
            if let Some(byte) = self.buf.get_mut(self.bits / 8) {
                // The first bit of a byte clears the rest, so that a buffer may hold anything before.
                *byte = if offset == 0 { part as u8 } else { *byte | part as u8 };
            }
            value >>= taken;
            count -= taken;
            self.bits += taken as usize;
        }
    }

    /// Writes an Exp-Golomb number of order `k`: zeros, then the number plus 2^k from its highest bit.
    pub(crate) fn write_number(&mut self, value: u32, k: u32) {
        let shifted = u64::from(value) + (1 << k);
        let width = u64::BITS - shifted.leading_zeros();
        self.write_zeros(width - 1 - k);
        self.write(1, 1);
        let low = shifted & !(1 << (width - 1));
        self.write(low as u32, (width - 1).min(32));
    }

    fn write_zeros(&mut self, count: u32) {
        self.write(0, count);
    }

    /// Copies `count` bits that start at bit `start` of another buffer.
    pub(crate) fn copy(&mut self, from: &[u8], start: usize, count: usize) {
        let mut reader = BitReader { bytes: from, pos: start };
        let mut left = count;
        while left > 0 {
            let width = left.min(32);
            // The copied bits were written before, so they are there.
            let Ok(value) = reader.read(width as u32) else { return };
            self.write(value, width as u32);
            left -= width;
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
        self.bytes.len() * 8 - self.pos
    }

    /// Reads `count` bits, at most 32.
    pub(crate) fn read(&mut self, count: u32) -> Result<u32, StateReadError> {
        if self.remaining() < count as usize {
            return Err(StateReadError::Cut);
        }
        let (mut value, mut have) = (0_u32, 0);
        while have < count {
            let byte = u32::from(self.bytes.get(self.pos / 8).copied().unwrap_or(0));
            let offset = (self.pos % 8) as u32;
            let taken = (8 - offset).min(count - have);
            value |= ((byte >> offset) & ((1 << taken) - 1)) << have;
            have += taken;
            self.pos += taken as usize;
        }
        Ok(value)
    }

    pub(crate) fn read_bit(&mut self) -> Result<bool, StateReadError> {
        Ok(self.read(1)? == 1)
    }

    /// Reads an Exp-Golomb number of order `k`.
    pub(crate) fn read_number(&mut self, k: u32) -> Result<u32, StateReadError> {
        let mut zeros = 0;
        while !self.read_bit()? {
            zeros += 1;
            if zeros > MAX_PREFIX {
                return Err(StateReadError::OutOfRange);
            }
        }
        let width = zeros + k;
        if width > 32 {
            return Err(StateReadError::OutOfRange);
        }
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
        fn copies_are_equal_bit_by_bit(bytes in any::<[u8; 20]>(), start in 0..60_usize, count in 0..90_usize) {
            let mut buf = [0; 20];
            let mut writer = BitWriter::new(&mut buf);
            writer.write(5, 3);
            writer.copy(&bytes, start, count);
            let bit = |bytes: &[u8], index: usize| bytes[index / 8] >> (index % 8) & 1;
            for index in 0..count {
                prop_assert_eq!(bit(&buf, 3 + index), bit(&bytes, start + index));
            }
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
