//! Slipgate for games in C, C++ and C#: the functions of `slipgate.h`.
//!
//! ```text
//!   game in C, C++, C# ──▶ slipgate.h ──▶ boundary: null pointers, panics ──▶ slipgate-client, slipgate-server
//! ```
//!
//! Each function checks its pointers, runs inside of [`std::panic::catch_unwind`], and returns a status. The header
//! states the rules for callers. `cbindgen` generates it from this crate, and a test compares it. Games in Rust use the
//! crate `slipgate` instead: the functions here trust the pointers of their callers.

// Exported names are `unsafe` attributes, so the lint `unsafe_code` is off. Blocks with `unsafe` are in `pointer` only,
// which a test of the project checks.

#[cfg(panic = "abort")]
compile_error!("a panic must not end the game: build with panic = \"unwind\"");

mod boundary;
#[cfg(feature = "client")]
mod client;
mod discards;
mod event;
mod event_batch;
mod event_kinds;
mod library;
mod log;
mod path;
mod pointer;
mod send;
#[cfg(feature = "server")]
mod server;
mod status;
#[cfg(all(test, feature = "client", feature = "server"))]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests fail by panics")]
mod tests;
#[cfg(feature = "server")]
mod token;
mod traffic;
mod transfer;
#[cfg(feature = "server")]
mod waker;

#[cfg(feature = "client")]
pub use self::client::*;
pub use self::event::*;
pub use self::event_kinds::*;
pub use self::library::*;
pub use self::log::*;
pub use self::path::*;
pub use self::send::*;
#[cfg(feature = "server")]
pub use self::server::*;
pub use self::status::*;
#[cfg(feature = "server")]
pub use self::token::*;
pub use self::traffic::*;
pub use self::transfer::*;
#[cfg(feature = "server")]
pub use self::waker::*;
