//! An allocator that counts, for tests that insist on how often memory is asked for, and how much of it is held.
//!
//! A test file installs it: `#[global_allocator] static ALLOCATOR: Counting = Counting;`

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with a count for each thread.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that are held; below zero in a thread that gives back what another asked for.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// The most that were held since a measurement began.
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Counts a call that asks for memory, and by how many bytes it changes what is held.
fn count(asked: u64, bytes: i64) {
    // Threads that are ending have no counters any more; they are not the ones that are measured.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + asked));
    let held = BYTES.try_with(|held| held.replace(held.get() + bytes) + bytes);
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.unwrap_or(0))));
}

// SAFETY: every call is handed to the system's allocator unchanged; counting touches cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promise is the one that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new memory are both held while one is copied to the other.
        count(1, size as i64);
        count(0, -(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// How often `work` asks for memory.
#[must_use]
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// How often this thread has asked for memory.
#[must_use]
pub fn asked() -> u64 {
    ALLOCATIONS.get()
}

/// Bytes that this thread has asked for and that were not given back; those of another's making count against it.
#[must_use]
pub fn bytes() -> i64 {
    BYTES.get()
}

/// What `work` made, and how many bytes of memory it holds beside its own size.
#[must_use]
pub fn held<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = BYTES.get();
    let made = work();
    (made, BYTES.get() - before)
}

/// What `work` made, and how many bytes more than before it were held at most while it ran.
#[must_use]
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = BYTES.get();
    PEAK.set(before);
    let made = work();
    (made, PEAK.get() - before)
}
