//! What a message may take: memory, values, depth. Everything is charged before it is made.

use core::cell::Cell;

use super::TypedErrorKind;

/// Bytes of memory that a value may take for each byte of its message.
pub const MEMORY_PER_BYTE: usize = 64;
/// Bytes of memory that any value may take.
pub const MEMORY_BASE: usize = 64 * 1024;
/// Values without a byte of their own that a message may hold for each of its bytes: units, and the structs, tuples and
/// wrappers around what has bytes. A value that has a byte is paid for by it, so there are no more of those than bytes.
pub const VALUES_PER_BYTE: usize = 2;
/// Values without a byte of their own that any message may hold. At some nanoseconds for each, what a message of up to
/// 64 KiB makes of nothing takes less than a millisecond.
pub const VALUES_BASE: usize = 16 * 1024;
/// How deep values may be nested, and with them the calls that decode and drop them.
pub const MAX_DEPTH: usize = 128;

/// What any message may take of the memory for things that no charge sees: the text of a codec's error.
const UNSEEN: usize = 256;

/// An element of a collection, how it lies there: growth by doubling keeps old and new memory for a moment, and hash
/// tables fill 7 of 8 places at most, so that n elements take up to 3 · 8/7 · n places; trees take 2.6 · n.
const PLACES_PER_ELEMENT: usize = 4;
/// What an element takes beside its own bytes, at most: a list's two pointers, a hash table's control byte, a tree's
/// links, and what alignment adds.
const BYTES_PER_ELEMENT: usize = 20;
/// Places that a collection takes for its first element: a node of a tree has 11.
const FIRST_PLACES: usize = 12;
/// The same beside the elements' own bytes: a hash table's control group.
const FIRST_BYTES: usize = 24;

/// As how many values an element counts that has neither bytes nor a size: a linked list asks for memory for it all the
/// same, which takes ten times as long as a value.
const VALUES_PER_EMPTY_ELEMENT: usize = 12;

/// What is left for a message's value.
pub(super) struct Budget {
    memory: Cell<usize>,
    values: Cell<usize>,
    depth: Cell<usize>,
    broken: Cell<Option<TypedErrorKind>>,
}

/// What is put into a collection: a size and an alignment.
#[derive(Clone, Copy)]
pub(super) struct Element {
    bytes: usize,
    align: usize,
}

impl Element {
    pub(super) const fn of<T>() -> Self {
        Self { bytes: size_of::<T>(), align: align_of::<T>() }
    }

    const fn is_empty(self) -> bool {
        self.bytes == 0
    }

    /// Both together, as a map's entry.
    pub(super) fn and(self, other: Self) -> Self {
        let align = self.align.max(other.align);
        Self { bytes: (self.bytes + other.bytes).next_multiple_of(align), align }
    }
}

/// A limit was passed; the budget remembers which one.
pub(super) struct Broken;

impl Budget {
    /// What a message of so many bytes may take.
    pub(super) fn of_message(bytes: usize) -> Self {
        let memory = bytes.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_BASE - UNSEEN);
        let values = bytes.saturating_mul(VALUES_PER_BYTE).saturating_add(VALUES_BASE);
        Self { memory: Cell::new(memory), values: Cell::new(values), depth: Cell::new(0), broken: Cell::new(None) }
    }

    /// Which limit was passed.
    pub(super) const fn broken(&self) -> Option<TypedErrorKind> {
        self.broken.get()
    }

    /// Charges memory.
    pub(super) fn take(&self, bytes: usize) -> Result<(), Broken> {
        let left = self.memory.get().checked_sub(bytes).ok_or_else(|| self.refuse(TypedErrorKind::Expands))?;
        self.memory.set(left);
        Ok(())
    }

    /// Charges an element of a collection, the first or another.
    pub(super) fn take_element(&self, element: Element, is_first: &mut bool) -> Result<(), Broken> {
        let (places, bytes) = match core::mem::take(is_first) {
            true => (FIRST_PLACES, FIRST_BYTES),
            false => (PLACES_PER_ELEMENT, BYTES_PER_ELEMENT),
        };
        if element.is_empty() {
            // Its own value is charged beside it.
            self.count(VALUES_PER_EMPTY_ELEMENT - 1)?;
        }
        self.take(element.bytes.saturating_mul(places).saturating_add(bytes))
    }

    /// Charges a value that has a byte of its own: what it takes as a value, for it may be put into a box.
    pub(super) fn take_value<T>(&self) -> Result<(), Broken> {
        self.take(size_of::<T>())
    }

    /// Charges a value that has no byte of its own: one of the count, too.
    pub(super) fn take_byteless<T>(&self) -> Result<(), Broken> {
        self.count(1)?;
        self.take(size_of::<T>())
    }

    fn count(&self, values: usize) -> Result<(), Broken> {
        let left = self.values.get().checked_sub(values).ok_or_else(|| self.refuse(TypedErrorKind::TooManyValues))?;
        self.values.set(left);
        Ok(())
    }

    /// A value that holds others begins.
    pub(super) fn enter(&self) -> Result<(), Broken> {
        if self.depth.get() >= MAX_DEPTH {
            return Err(self.refuse(TypedErrorKind::TooDeep));
        }
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    /// It ends.
    pub(super) fn leave(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    fn refuse(&self, kind: TypedErrorKind) -> Broken {
        if self.broken.get().is_none() {
            self.broken.set(Some(kind));
        }
        Broken
    }
}

impl Broken {
    /// As an error of the codec; what it was stands in the budget.
    pub(super) fn into_error<E: serde::de::Error>(self) -> E {
        E::custom("a limit of typed messages")
    }
}
