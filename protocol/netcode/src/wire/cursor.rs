//! Reading and writing a sequence of little-endian fields, with every bound checked.
//!
//! Received bytes are never indexed. A [`Reader`] returns `None` past the end, and a [`Writer`] records an overflow.

/// A cursor that reads fields from the front of a byte slice.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Returns a reader at the start of `bytes`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that were not read yet.
    #[inline]
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads the next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        // `?` leaves `rest` unchanged, so a failed read consumes nothing.
        let (head, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(head)
    }

    /// Reads the next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| *byte)
    }

    /// Reads the next two bytes as a number.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(|bytes| u16::from_le_bytes(*bytes))
    }

    /// Reads the next four bytes as a number.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// Reads the next four bytes as a signed number (two's complement).
    #[inline]
    pub fn i32(&mut self) -> Option<i32> {
        self.array().map(|bytes| i32::from_le_bytes(*bytes))
    }

    /// Reads the next eight bytes as a number.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// A cursor that writes fields into a buffer one after another.
///
/// A field that does not fit is not written, and [`Writer::written`] returns `None` from then on.
pub struct Writer<'a> {
    buf: &'a mut [u8],
    pos: usize,
    overflowed: bool,
}

impl<'a> Writer<'a> {
    /// Returns a writer at the start of `buf`.
    #[inline]
    pub const fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, pos: 0, overflowed: false }
    }

    /// Writes bytes unchanged.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        let Some(field) = self.pos.checked_add(bytes.len()).and_then(|end| self.buf.get_mut(self.pos..end)) else {
            // Recorded instead of returned: the caller checks once at the end, not after every field.
            self.overflowed = true;
            return;
        };
        field.copy_from_slice(bytes);
        self.pos += bytes.len();
    }

    /// Writes a byte.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    /// Writes two bytes.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes four bytes.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes four bytes, two's complement.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Writes eight bytes.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Fills the rest of the buffer with zeros.
    pub(crate) fn zeros(&mut self) {
        if let Some(rest) = self.buf.get_mut(self.pos..) {
            rest.fill(0);
            self.pos = self.buf.len();
        }
    }

    /// Returns the number of bytes written, or `None` if a field did not fit.
    #[inline]
    #[must_use]
    pub const fn written(&self) -> Option<usize> {
        if self.overflowed { None } else { Some(self.pos) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_read_consumes_nothing() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u16(), Some(0x0201));
        assert_eq!(reader.u64(), None);
        assert_eq!(reader.u8(), Some(3));
        assert_eq!(reader.u8(), None);
    }

    #[test]
    fn overflowed_writer_returns_none() {
        let mut buf = [9; 3];
        let mut writer = Writer::new(&mut buf);
        writer.u16(0x0201);
        assert_eq!(writer.written(), Some(2));
        writer.u16(0x0403);
        assert_eq!(writer.written(), None);
        assert_eq!(buf, [1, 2, 9]);
    }
}
