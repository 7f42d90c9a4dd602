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

/// Whether this process has the thread: the heap is one for all servers.
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
        let is_large = self.total.saturating_sub(memory.transfers.left()) >= MIN_TRANSFER_BYTES;
        if is_large && !IS_RUNNING.load(Ordering::Relaxed) && !IS_RUNNING.swap(true, Ordering::Relaxed) {
            start();
        }
    }
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
