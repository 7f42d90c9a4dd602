//! What a message may take: memory and calls for it, values, depth. Everything is charged before it is made.

use core::cell::Cell;
use core::ops::Deref;

use super::TypedErrorKind;

/// Bytes of memory that a value may take for each byte of its message.
pub const MEMORY_PER_BYTE: usize = 64;
/// Bytes of memory that any value may take.
pub const MEMORY_BASE: usize = 64 * 1024;
/// Values without a byte of their own that a message may hold for each of its bytes: units, and the structs, tuples and
/// wrappers around what has bytes. A value that has a byte is paid for by it, so there are no more of those than bytes.
pub const VALUES_PER_BYTE: usize = 2;
/// Values without a byte of their own that any message may hold. At some nanoseconds for each, what a message of up to
/// 32 KiB makes of nothing takes less than a millisecond.
pub const VALUES_BASE: usize = 16 * 1024;
/// How often a message's value may ask for memory.
///
/// Each box, string, collection, enum and empty option whose type can hold memory counts once, used or not. So does each
/// element of a list, tree or hash table, and each time that a vector grows. They take ten times as long as other values,
/// or longer. Numbers, and what is made of numbers alone, are not among them; a box right in another one is not told from
/// it, so that a type with boxes in boxes asks as often again for each.
pub const MAX_ALLOCATIONS: usize = 4096;
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
    allocations: Cell<usize>,
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

    /// Whether it is a number's size: of those there are many, so they are charged together.
    pub(super) const fn is_small(self) -> bool {
        0 < self.bytes && self.bytes <= size_of::<u64>()
    }

    /// How many a vector makes room for when the first comes.
    const fn first_room(self) -> usize {
        match self.bytes {
            0..=1 => 8,
            2..=1024 => 4,
            _ => 1,
        }
    }

    /// Both together, as a map's entry.
    pub(super) fn and(self, other: Self) -> Self {
        let align = self.align.max(other.align);
        Self { bytes: (self.bytes + other.bytes).next_multiple_of(align), align }
    }
}

/// How a collection asks for memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// For twice as many places as before, as vectors do.
    Doubling,
    /// For each element; or it takes as long for each as if it did, as hash tables do.
    Each,
}

/// The budget, and how deep in the value one is.
#[derive(Clone, Copy)]
pub(super) struct Level<'b> {
    budget: &'b Budget,
    depth: usize,
}

impl Level<'_> {
    /// That of the parts of a value.
    #[inline]
    pub(super) fn inside(self) -> Result<Self, Broken> {
        match self.depth {
            MAX_DEPTH.. => Err(self.refuse(TypedErrorKind::TooDeep)),
            depth => Ok(Self { depth: depth + 1, ..self }),
        }
    }
}

impl Deref for Level<'_> {
    type Target = Budget;

    #[inline]
    fn deref(&self) -> &Budget {
        self.budget
    }
}

/// A limit was passed; the budget remembers which one.
pub(super) struct Broken;

impl Budget {
    /// What a message of so many bytes may take.
    pub(super) fn of_message(bytes: usize) -> Self {
        let memory = bytes.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_BASE - UNSEEN);
        let values = bytes.saturating_mul(VALUES_PER_BYTE).saturating_add(VALUES_BASE);
        Self {
            memory: Cell::new(memory),
            values: Cell::new(values),
            allocations: Cell::new(MAX_ALLOCATIONS),
            broken: Cell::new(None),
        }
    }

    /// Which limit was passed.
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

    /// Charges what a collection of so many elements asks for when another comes. Answers at how many it asks again.
    #[cold]
    pub(super) fn grow(&self, element: Element, growth: Growth, before: usize) -> Result<usize, Broken> {
        let each = element.bytes.saturating_mul(PLACES_PER_ELEMENT).saturating_add(BYTES_PER_ELEMENT);
        let first = element.bytes.saturating_mul(FIRST_PLACES).saturating_add(FIRST_BYTES);
        // A collection has counted once before its first element.
        let (calls, bytes, next) = match (growth, before) {
            (Growth::Doubling, _) if element.bytes == 0 => (0, 0, usize::MAX),
            (Growth::Doubling, 0) => (0, first, element.first_room()),
            // For those that came since it asked before; they are half of all.
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

    /// Charges what an element takes that is not small.
    #[inline]
    pub(super) fn take_element(&self, element: Element) -> Result<(), Broken> {
        if element.bytes == 0 {
            // Its own value is charged beside it.
            self.count(VALUES_PER_EMPTY_ELEMENT - 1)?;
        }
        self.take(element.bytes.saturating_mul(PLACES_PER_ELEMENT).saturating_add(BYTES_PER_ELEMENT))
    }

    /// Charges so many calls for memory.
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

    /// The outermost value's.
    pub(super) const fn outside(&self) -> Level<'_> {
        Level { budget: self, depth: 0 }
    }

    #[cold]
    fn refuse(&self, kind: TypedErrorKind) -> Broken {
        if self.broken.get().is_none() {
            self.broken.set(Some(kind));
        }
        Broken
    }
}

impl Broken {
    /// As an error of the codec; what it was stands in the budget.
    #[cold]
    #[inline(never)]
    pub(super) fn into_error<E: serde::de::Error>(self) -> E {
        E::custom("a limit of typed messages")
    }
}
