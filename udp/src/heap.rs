//! Freed memory that the allocator keeps.
//!
//! glibc returns freed memory to the system only from the end of its heap. A small allocation that lives on there keeps
//! everything before it, for example the memory of many received transfers.

/// Returns freed memory to the system whenever much of it has gathered. For glibc; other allocators do it themselves.
#[derive(Debug)]
pub struct HeapTrimmer {
    /// The minimum of [`unused_bytes`] since the last return.
    min_unused: u32,
}

/// The number of newly freed bytes that are worth a return: it takes milliseconds.
const MIN_FREED_BYTES: i32 = 8 << 20;

impl HeapTrimmer {
    /// Begins to observe. Returns `None` on systems where there is nothing to do.
    #[must_use]
    pub fn new() -> Option<Self> {
        unused_bytes().map(|min_unused| Self { min_unused })
    }

    /// Returns freed memory to the system if at least 8 MiB were freed since the last time. Returns whether it did.
    ///
    /// Call it about once per second, on a thread that may wait: it takes milliseconds for 100 MiB, and other threads
    /// that allocate meanwhile wait for it.
    pub fn trim(&mut self) -> bool {
        let Some(unused) = unused_bytes() else { return false };
        let freed = unused.wrapping_sub(self.min_unused).cast_signed();
        if freed < MIN_FREED_BYTES {
            if freed < 0 {
                self.min_unused = unused;
            }
            return false;
        }
        return_free_memory();
        // Pages that could not be returned do not count again.
        self.min_unused = unused_bytes().unwrap_or(unused);
        true
    }
}

/// Returns the process's memory that is in the machine's memory and not in use by the program, modulo 2^32. It includes
/// code and stacks. `None` if the system does not tell.
///
/// The allocator's own count of free bytes is not enough: it includes pages that were returned before. Memory that was
/// allocated there and freed between two looks would not count.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn unused_bytes() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = resident.trim().strip_suffix(" kB")?.parse().ok()?;
    // The allocator counts modulo 2^32, too.
    let resident = (kib << 10) as u32;
    Some(resident.wrapping_sub(super::syscalls::used_heap_bytes()))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn return_free_memory() {
    super::syscalls::return_free_heap();
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn unused_bytes() -> Option<u32> {
    None
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn return_free_memory() {}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_used_again_between_two_looks_is_returned() {
        let mut trimmer = HeapTrimmer::new().unwrap();
        // What lives on at the end of the heap keeps glibc from returning what was freed before it.
        let mut kept = Vec::new();
        for round in 0..4 {
            let mut blocks: Vec<_> = (0..8192).map(|_| vec![1_u8; 4096]).collect();
            kept.extend(blocks.pop());
            drop(blocks);
            assert!(trimmer.trim(), "round {round}");
            assert!(!trimmer.trim(), "round {round}: nothing was freed since");
        }
    }
}
