//! The memory of a server for each connected client: all that it has allocated, divided by the clients.

use std::io;

use crate::measures::{not_applicable, row};
use crate::row::{Baseline, BenchRow, FigureLimit};
use crate::runner::Runner;

/// The reason for a blank cell in a program without an allocation counter.
pub const UNCOUNTED: &str = "only `cargo bench` counts memory";

/// Returns the row with this number of clients.
#[must_use]
pub fn measure(runner: &mut Runner, clients: usize) -> BenchRow {
    let cells = runner.once(|test_bed| {
        if !test_bed.subject.is_netcode() {
            return Err(not_applicable());
        }
        let bytes = test_bed.server_thread.bytes().ok_or_else(|| io::Error::other(UNCOUNTED))?;
        Ok(bytes as f64 / clients as f64)
    });
    let row = row(format!("memory, {clients} clients connected"), "bytes/client", cells);
    // The fixed memory of a server dominates with few clients: tables for unknown addresses, batches.
    if clients < 10_000 {
        return row;
    }
    row.with_target(Baseline::Itself, FigureLimit::AtMost(4096.0))
        .with_target(Baseline::Channels, FigureLimit::AtMost(16_384.0))
}
