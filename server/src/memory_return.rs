//! The thread that returns the memory of large transfers to the system.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use slipgate_session::connection::Memory;
use slipgate_udp::HeapTrimmer;

/// Transfers that take less than this do not start the thread.
const MIN_TRANSFER_BYTES: usize = 16 << 20;
/// The interval at which the thread looks for freed memory. The application may free it long after the transfer.
const INTERVAL: Duration = Duration::from_secs(1);

/// Whether this process has the thread, or must not start it: the heap is one for all servers.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Starts the thread once transfers take much memory.
#[derive(Debug)]
pub(crate) struct MemoryReturn {
    /// The memory for transfers before the first one.
    total: usize,
}

impl MemoryReturn {
    pub(crate) fn new(memory: &Memory) -> Self {
        Self { total: memory.transfers.left() }
    }

    /// Starts the thread, once in the life of the process, if transfers take much memory now.
    pub(crate) fn watch(&self, memory: &Memory) {
        if self.is_due(memory) && !IS_RUNNING.load(Ordering::Relaxed) && !IS_RUNNING.swap(true, Ordering::Relaxed) {
            start();
        }
    }

    /// Returns whether transfers take much memory now.
    fn is_due(&self, memory: &Memory) -> bool {
        self.total.saturating_sub(memory.transfers.left()) >= MIN_TRANSFER_BYTES
    }
}

/// Prevents that this process starts the thread `slipgate-memory`, which returns the memory of large transfers to the
/// system within seconds; call it before the first server starts. Without the thread the allocator keeps freed memory
/// for later use, and the application may return it itself, for example by `malloc_trim`. The library for C calls it.
pub fn leave_freed_memory() {
    IS_RUNNING.store(true, Ordering::Relaxed);
}

fn start() {
    let Some(mut trimmer) = HeapTrimmer::new() else { return };
    let run = move || {
        loop {
            thread::sleep(INTERVAL);
            let begin = std::time::Instant::now();
            if trimmer.trim() {
                tracing::debug!(took = ?begin.elapsed(), "returned freed memory to the system");
            }
        }
    };
    // Without the thread the process only keeps the memory.
    let _ = thread::Builder::new().name("slipgate-memory".to_owned()).spawn(run);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the memory of a server whose transfers take this many bytes of 64 MiB.
    fn memory_with(taken: usize) -> Memory {
        Memory::new(0, (64 << 20) - taken)
    }

    #[test]
    fn transfers_of_16_mib_make_a_thread_due() {
        let memory_return = MemoryReturn::new(&memory_with(0));
        for (taken, expected) in [(0, false), (MIN_TRANSFER_BYTES - 1, false), (16 << 20, true), (64 << 20, true)] {
            assert_eq!(memory_return.is_due(&memory_with(taken)), expected, "{taken} bytes");
        }
    }

    /// Returns the number of threads that return memory.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn threads() -> usize {
        let names = std::fs::read_dir("/proc/self/task").unwrap();
        let name =
            |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
        names.filter_map(name).filter(|name| name.trim() == "slipgate-memory").count()
    }

    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn one_thread_serves_all_servers_of_a_process() {
        let servers = [(); 2].map(|()| MemoryReturn::new(&memory_with(0)));
        servers.iter().for_each(|server| server.watch(&memory_with(MIN_TRANSFER_BYTES - 1)));
        assert_eq!(threads(), 0);
        let start = std::time::Instant::now();
        while threads() == 0 {
            // A new thread has its name a moment after its start.
            servers.iter().for_each(|server| server.watch(&memory_with(MIN_TRANSFER_BYTES)));
            assert!(start.elapsed() < Duration::from_secs(60), "no thread has started");
        }
        servers.iter().for_each(|server| server.watch(&memory_with(MIN_TRANSFER_BYTES)));
        thread::sleep(Duration::from_millis(50));
        assert_eq!(threads(), 1);
    }
}
