//! A counting allocator, for tests that limit the number of allocations and the bytes held.
//!
//! A test binary installs it: `#[global_allocator] static ALLOCATOR: Counting = Counting;`

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system allocator with counters for each thread.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes held; negative in a thread that frees the memory of another thread.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// The maximum of the bytes held since a measurement started.
    static PEAK: Cell<i64> = const { Cell::new(0) };
    /// The size of blocks that must be wiped when they are freed; 0 for none.
    static WIPED_SIZE: Cell<usize> = const { Cell::new(0) };
    /// The freed blocks of that size, and those of them that were not wiped.
    static FREED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Counts `allocation_count` allocations, and a change of the held bytes by `bytes`.
fn count(allocation_count: u64, bytes: i64) {
    // Threads that are ending no longer have counters; no measurement concerns them.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + allocation_count));
    let held = BYTES.try_with(|held| held.replace(held.get() + bytes) + bytes);
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.unwrap_or(0))));
}

// SAFETY: every call passes to the system allocator unchanged; counting touches only cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the contract of the caller is the contract of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // The old and the new memory are both held during the copy.
        count(1, size as i64);
        count(0, -(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        if layout.size() > 0 && WIPED_SIZE.try_with(Cell::get) == Ok(layout.size()) {
            // SAFETY: the block is still allocated, and all blocks of this size are initialised: see `freed`.
            let is_wiped = unsafe { core::slice::from_raw_parts(block, layout.size()) }.iter().all(|byte| *byte == 0);
            FREED.set((FREED.get().0 + 1, FREED.get().1 + u64::from(!is_wiped)));
        }
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Returns the number of allocations of `work`.
#[must_use]
pub fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Returns the number of blocks of `size` bytes that `work` frees, and how many of them have a byte that is not zero.
///
/// # Safety
/// `work` must initialise all blocks of this size that it frees.
pub unsafe fn freed(size: usize, work: impl FnOnce()) -> (u64, u64) {
    FREED.set((0, 0));
    WIPED_SIZE.set(size);
    work();
    WIPED_SIZE.set(0);
    FREED.get()
}

/// Returns the number of allocations of this thread.
#[must_use]
pub fn allocation_count() -> u64 {
    ALLOCATIONS.get()
}

/// Returns the bytes that this thread holds: allocated minus freed, including memory of other threads that it freed.
#[must_use]
pub fn bytes() -> i64 {
    BYTES.get()
}

/// Returns the result of `work`, and the heap bytes that the result holds.
#[must_use]
pub fn held<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = BYTES.get();
    let made = work();
    (made, BYTES.get() - before)
}

/// Returns the result of `work`, and the maximum of additional bytes held while it ran.
#[must_use]
pub fn peak<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = BYTES.get();
    PEAK.set(before);
    let made = work();
    (made, PEAK.get() - before)
}
