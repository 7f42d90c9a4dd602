//! An allocator that counts, for tests that insist on how often memory is asked for, and how much of it is in use.
//!
//! A test file installs it: `#[global_allocator] static ALLOCATOR: Counting = Counting;`

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counts for each thread.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes asked for and not given back; below zero in a thread that gives back what another asked for.
    static IN_USE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

// Threads that are ending have no counters any more; they are not the ones that are measured.

fn taken(bytes: usize) {
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
    let in_use = IN_USE.try_with(|in_use| {
        in_use.set(in_use.get() + bytes as isize);
        in_use.get()
    });
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(in_use.unwrap_or(0))));
}

fn given(bytes: usize) {
    let _ = IN_USE.try_with(|in_use| in_use.set(in_use.get() - bytes as isize));
}

// SAFETY: every call is handed to the system's allocator unchanged; counting touches cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller's promise is the one that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new memory are both in use while it is copied.
        taken(size);
        given(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        given(layout.size());
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

/// How many bytes more than at its start were in use at most while `work` ran, and what it made of them.
#[must_use]
pub fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = IN_USE.get();
    PEAK.set(before);
    let result = work();
    (PEAK.get().saturating_sub(before).max(0) as usize, result)
}
