//! Reading and writing a sequence of little-endian fields, with every bound checked.
//!
//! Received bytes are never indexed. A [`Reader`] returns `None` past the end, and a [`Writer`] records an overflow.

/// An unsigned number of the wire format, little-endian.
///
/// Signed numbers are missing on purpose: a literal without a type is an `i32`, so a forgotten width does not compile.
pub trait WireInt: Copy {
    /// Reads the number from the front of a reader.
    fn read_from(reader: &mut Reader<'_>) -> Option<Self>;

    /// Writes the number's bytes.
    fn write_to(self, writer: &mut Writer<'_>);
}

macro_rules! wire_ints {
    ($($int:ty),+) => {
        $(impl WireInt for $int {
            #[inline]
            fn read_from(reader: &mut Reader<'_>) -> Option<Self> {
                reader.array().map(|bytes| Self::from_le_bytes(*bytes))
            }

            #[inline]
            fn write_to(self, writer: &mut Writer<'_>) {
                writer.bytes(&self.to_le_bytes());
            }
        })+
    };
}

wire_ints!(u8, u16, u32, u64);

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

    /// Reads the next number.
    #[inline]
    pub fn read<T: WireInt>(&mut self) -> Option<T> {
        T::read_from(self)
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

    /// Writes a number. Callers name its type, because its width is part of the format.
    #[inline]
    pub fn write<T: WireInt>(&mut self, value: T) {
        value.write_to(self);
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
        // A buffer that lost a field must never be sent.
        if self.overflowed { None } else { Some(self.pos) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_read_consumes_nothing() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.read::<u16>(), Some(0x0201));
        assert_eq!(reader.read::<u64>(), None);
        assert_eq!(reader.read::<u8>(), Some(3));
        assert_eq!(reader.read::<u8>(), None);
    }

    #[test]
    fn overflowed_writer_returns_none() {
        let mut buf = [9; 3];
        let mut writer = Writer::new(&mut buf);
        writer.write::<u16>(0x0201);
        assert_eq!(writer.written(), Some(2));
        writer.write::<u16>(0x0403);
        assert_eq!(writer.written(), None);
        assert_eq!(buf, [1, 2, 9]);
    }
}
