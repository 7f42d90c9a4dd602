//! Freed memory that the allocator keeps.
//!
//! glibc returns freed memory to the system only from the end of its heap. A small allocation that lives on there keeps
//! everything before it, for example the memory of many received transfers.

/// Returns freed memory to the system whenever much of it has gathered. For glibc; other allocators do it themselves.
#[derive(Debug)]
pub struct HeapTrimmer {
    /// The minimum of free bytes since the last return, modulo 2^32.
    min_free: u32,
}

/// The number of newly freed bytes that are worth a return: it takes milliseconds.
const MIN_FREED_BYTES: u32 = 8 << 20;

impl HeapTrimmer {
    /// Begins to observe. Returns `None` on systems where there is nothing to do.
    #[must_use]
    pub fn new() -> Option<Self> {
        free_bytes().map(|min_free| Self { min_free })
    }

    /// Returns freed memory to the system if at least 8 MiB were freed since the last time. Returns whether it did.
    ///
    /// Call it about once per second, on a thread that may wait: it takes milliseconds for 100 MiB, and other threads
    /// that allocate meanwhile wait for it.
    pub fn trim(&mut self) -> bool {
        let Some(free) = free_bytes() else { return false };
        let freed = free.wrapping_sub(self.min_free).cast_signed();
        if freed < MIN_FREED_BYTES.cast_signed() {
            if freed < 0 {
                self.min_free = free;
            }
            return false;
        }
        // The returned pages still count as free, so only what is freed later counts again.
        self.min_free = free;
        return_free_memory();
        true
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn free_bytes() -> Option<u32> {
    Some(super::syscalls::free_heap_bytes())
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn return_free_memory() {
    super::syscalls::return_free_heap();
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn free_bytes() -> Option<u32> {
    None
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn return_free_memory() {}
