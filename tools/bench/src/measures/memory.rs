//! How much memory a server holds for each connected client: all that it holds, divided by the clients.

use std::io;

use crate::arena::Arena;
use crate::measures::{no_such_thing, row};
use crate::row::{Against, Limit, Row};

/// Why there is no figure in a program whose allocator does not count.
pub const UNCOUNTED: &str = "memory is counted by `cargo bench` alone";

/// The row of so many clients.
#[must_use]
pub fn measure(arena: &mut Arena, clients: usize) -> Row {
    let cells = arena.once(|corner| {
        if !corner.contestant.is_netcode() {
            return Err(no_such_thing());
        }
        let bytes = corner.stage.bytes().ok_or_else(|| io::Error::other(UNCOUNTED))?;
        Ok(bytes as f64 / clients as f64)
    });
    let row = row(format!("memory, {clients} clients connected"), "bytes/client", cells);
    // Among few clients what a server has for itself counts for much: tables for strangers, batches.
    if clients == 10_000 { row.judged(Against::Itself, Limit::AtMost(4096.0)) } else { row }
}
