//! The size of long tests: a quick part by default, and all of it on request.
//!
//! `SLIPGATE_TESTS=all cargo test --workspace` runs every seed and every message, as CI does. The quick part
//! covers every world and every property, with fewer seeds or messages.

/// Returns `all` if the environment variable `SLIPGATE_TESTS` is `all`, and `quick` otherwise.
#[must_use]
pub fn pick<T>(quick: T, all: T) -> T {
    let is_all = std::env::var_os("SLIPGATE_TESTS").is_some_and(|value| value == "all");
    if is_all { all } else { quick }
}
