//! Reading and writing little-endian fields in a row, with every bound checked.
//!
//! Outside bytes are never indexed: a [`Reader`] answers `None` past the end, a [`Writer`] notes that it overflowed.

/// Takes fields off the front of a byte string.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What has not been read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (head, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(head)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| *byte)
    }

    /// The next two bytes as a number.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| u16::from_le_bytes(*bytes))
    }

    /// The next four bytes as a number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// The next four bytes as a signed number (two's complement).
    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(|bytes| i32::from_le_bytes(*bytes))
    }

    /// The next eight bytes as a number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Puts fields into a buffer one behind the other.
///
/// Past the end nothing is written and [`Writer::written`] answers `None`; a layout whose sizes are constants cannot
/// get there.
pub struct Writer<'a> {
    buffer: &'a mut [u8],
    at: usize,
    overflowed: bool,
}

impl<'a> Writer<'a> {
    /// A writer at the start of `buffer`.
    pub const fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, at: 0, overflowed: false }
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let Some(room) = self.at.checked_add(bytes.len()).and_then(|end| self.buffer.get_mut(self.at..end)) else {
            self.overflowed = true;
            return;
        };
        room.copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Writes a byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Writes two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes four bytes, two's complement.
    pub fn i32(&mut self, value: i32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Fills the rest of the buffer with zeros.
    pub fn zeros(&mut self) {
        if let Some(rest) = self.buffer.get_mut(self.at..) {
            rest.fill(0);
            self.at = self.buffer.len();
        }
    }

    /// How many bytes were written, or `None` if something did not fit.
    #[must_use]
    pub const fn written(&self) -> Option<usize> {
        if self.overflowed { None } else { Some(self.at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_stops_at_the_end_and_keeps_what_it_could_not_read() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u16(), Some(0x0201));
        assert_eq!(reader.u64(), None);
        assert_eq!(reader.u8(), Some(3));
        assert_eq!(reader.u8(), None);
    }

    #[test]
    fn a_writer_that_overflowed_says_so() {
        let mut buffer = [9; 3];
        let mut writer = Writer::new(&mut buffer);
        writer.u16(0x0201);
        assert_eq!(writer.written(), Some(2));
        writer.u16(0x0403);
        assert_eq!(writer.written(), None);
        assert_eq!(buffer, [1, 2, 9]);
    }
}
