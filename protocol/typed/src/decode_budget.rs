//! The budget of a message: memory, allocations, values and depth. Each is charged before the value is made.

use core::cell::Cell;
use core::ops::Deref;

use super::error::TypedErrorKind;

/// Bytes of memory that a value may take for each byte of its message.
pub const MEMORY_PER_BYTE: usize = 64;
/// Bytes of memory that any value may take.
pub const MEMORY_BASE: usize = 64 * 1024;
/// The number of values without a byte of their own that a message may hold for each of its bytes: units, and the
/// structs, tuples and wrappers around other values. Values with bytes are limited by the number of bytes.
pub const VALUES_PER_BYTE: usize = 2;
/// The number of values without a byte of their own that any message may hold. Each takes some nanoseconds, so those of
/// a message of 32 KiB take less than a millisecond.
pub const VALUES_BASE: usize = 16 * 1024;
/// The number of allocations that a message's value may make.
///
/// Each box, string, collection, enum and empty option counts once if its type can own memory, whether it does or not.
/// Each element of a list, tree or hash table counts, and each growth of a vector. These take at least ten times as
/// long as other values. Numbers and structs of numbers do not count. The meter cannot distinguish a box from a box in
/// a box, so nested boxes count again for each level.
pub const MAX_ALLOCATIONS: usize = 4096;
/// The depth to which values may be nested. It bounds the recursion that decodes and drops them.
pub const MAX_DEPTH: usize = 128;

/// Bytes of the memory budget that are reserved for the text of a codec's error, which is not charged.
const UNCHARGED: usize = 256;

/// Slots that an element takes in a collection, at most. Growth by doubling keeps old and new memory for a moment, and
/// hash tables fill at most 7 of 8 slots, so n elements take up to 3 · 8/7 · n slots. Trees take 2.6 · n.
const SLOTS_PER_ELEMENT: usize = 4;
/// The most bytes that an element takes beside its own: two pointers of a list, a control byte of a hash table, links
/// of a tree, and padding.
const BYTES_PER_ELEMENT: usize = 20;
/// Slots that a collection allocates for its first element. A node of a tree has 11.
const FIRST_SLOTS: usize = 12;
/// Bytes that the first allocation takes beside the elements: a control group of a hash table.
const FIRST_BYTES: usize = 24;

/// The number of values as which an element without bytes and without size counts. A linked list allocates a node even
/// for it, which takes ten times as long as a value.
const VALUES_PER_EMPTY_ELEMENT: usize = 12;

/// The rest of a message's budget.
pub(super) struct DecodeBudget {
    memory: Cell<usize>,
    values: Cell<usize>,
    allocations: Cell<usize>,
    broken: Cell<Option<TypedErrorKind>>,
}

/// An element of a collection: its size and alignment.
#[derive(Clone, Copy)]
pub(super) struct Element {
    bytes: usize,
    align: usize,
}

impl Element {
    pub(super) const fn of<T>() -> Self {
        Self { bytes: size_of::<T>(), align: align_of::<T>() }
    }

    /// Returns whether the element is as small as a number. Collections have many of those, so they are charged
    /// together.
    pub(super) const fn is_small(self) -> bool {
        0 < self.bytes && self.bytes <= size_of::<u64>()
    }

    /// Returns the capacity that a vector allocates for its first element.
    const fn first_capacity(self) -> usize {
        match self.bytes {
            0..=1 => 8,
            2..=1024 => 4,
            _ => 1,
        }
    }

    /// Returns the element that holds both: an entry of a map.
    pub(super) fn and(self, other: Self) -> Self {
        let align = self.align.max(other.align);
        Self { bytes: (self.bytes + other.bytes).next_multiple_of(align), align }
    }
}

/// The way in which a collection allocates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// It doubles its capacity, as vectors do.
    Doubling,
    /// It allocates for each element, or takes as long as if it did, as hash tables do.
    Each,
}

/// The budget at one depth of the value.
#[derive(Clone, Copy)]
pub(super) struct Level<'b> {
    budget: &'b DecodeBudget,
    depth: usize,
}

impl Level<'_> {
    /// Returns the level of a value's parts.
    #[inline]
    pub(super) fn inside(self) -> Result<Self, Broken> {
        match self.depth {
            MAX_DEPTH.. => Err(self.refuse(TypedErrorKind::TooDeep)),
            depth => Ok(Self { depth: depth + 1, ..self }),
        }
    }
}

impl Deref for Level<'_> {
    type Target = DecodeBudget;

    #[inline]
    fn deref(&self) -> &DecodeBudget {
        self.budget
    }
}

/// A limit was exceeded. The budget records which one.
pub(super) struct Broken;

impl DecodeBudget {
    /// Returns the budget of a message of this size in bytes.
    pub(super) fn of_message(bytes: usize) -> Self {
        let memory = bytes.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_BASE - UNCHARGED);
        let values = bytes.saturating_mul(VALUES_PER_BYTE).saturating_add(VALUES_BASE);
        Self {
            memory: Cell::new(memory),
            values: Cell::new(values),
            allocations: Cell::new(MAX_ALLOCATIONS),
            broken: Cell::new(None),
        }
    }

    /// Returns the limit that was exceeded first.
    pub(super) const fn broken(&self) -> Option<TypedErrorKind> {
        self.broken.get()
    }

    /// Charges memory.
    #[inline]
    pub(super) fn take(&self, bytes: usize) -> Result<(), Broken> {
        let left = self.memory.get().checked_sub(bytes).ok_or_else(|| self.refuse(TypedErrorKind::Expands))?;
        self.memory.set(left);
        Ok(())
    }

    /// Charges the allocation of a collection that has `before` elements and gets another one. Returns the number of
    /// elements at which it allocates again.
    #[cold]
    pub(super) fn grow(&self, element: Element, growth: Growth, before: usize) -> Result<usize, Broken> {
        let each = element.bytes.saturating_mul(SLOTS_PER_ELEMENT).saturating_add(BYTES_PER_ELEMENT);
        let first = element.bytes.saturating_mul(FIRST_SLOTS).saturating_add(FIRST_BYTES);
        // A collection has counted once before its first element.
        let (calls, bytes, next) = match (growth, before) {
            (Growth::Doubling, _) if element.bytes == 0 => (0, 0, usize::MAX),
            (Growth::Doubling, 0) => (0, first, element.first_capacity()),
            // The elements since the last growth are half of all, and were not charged one by one.
            (Growth::Doubling, _) if element.is_small() => {
                (1, each.saturating_mul(before / 2), before.saturating_mul(2))
            }
            (Growth::Doubling, _) => (1, 0, before.saturating_mul(2)),
            (Growth::Each, 0) => (1, first, 1),
            (Growth::Each, _) => (1, 0, before.saturating_add(1)),
        };
        self.allocate(calls)?;
        self.take(bytes)?;
        Ok(next)
    }

    /// Charges the memory of an element that is not small.
    #[inline]
    pub(super) fn take_element(&self, element: Element) -> Result<(), Broken> {
        if element.bytes == 0 {
            // The value itself is charged where it is decoded.
            self.count(VALUES_PER_EMPTY_ELEMENT - 1)?;
        }
        self.take(element.bytes.saturating_mul(SLOTS_PER_ELEMENT).saturating_add(BYTES_PER_ELEMENT))
    }

    /// Charges this number of allocations.
    #[inline]
    pub(super) fn allocate(&self, calls: usize) -> Result<(), Broken> {
        let left = self.allocations.get().checked_sub(calls);
        self.allocations.set(left.ok_or_else(|| self.refuse(TypedErrorKind::TooManyAllocations))?);
        Ok(())
    }

    /// Charges a value that has no byte of its own.
    #[inline]
    pub(super) fn take_byteless(&self) -> Result<(), Broken> {
        self.count(1)
    }

    #[inline]
    fn count(&self, values: usize) -> Result<(), Broken> {
        let left = self.values.get().checked_sub(values).ok_or_else(|| self.refuse(TypedErrorKind::TooManyValues))?;
        self.values.set(left);
        Ok(())
    }

    /// Returns the level of the outermost value.
    pub(super) const fn outside(&self) -> Level<'_> {
        Level { budget: self, depth: 0 }
    }

    #[cold]
    fn refuse(&self, kind: TypedErrorKind) -> Broken {
        // The first limit is the cause: a codec may go on after an error and exceed others.
        if self.broken.get().is_none() {
            self.broken.set(Some(kind));
        }
        Broken
    }
}

impl Broken {
    /// Returns the codec's error. Its text is unused, because the budget holds the reason.
    #[cold]
    #[inline(never)]
    pub(super) fn into_error<E: serde::de::Error>(self) -> E {
        E::custom("a limit of typed messages")
    }
}
