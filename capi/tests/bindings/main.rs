//! The C interface, as programs in other languages see it: the header, the library's symbols, compiled programs.

#![allow(
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::duplicate_mod,
    reason = "tests fail by panics, and both examples have the channels of the game"
)]

mod c_and_cpp;
mod csharp;
mod header;
mod tag;
#[allow(dead_code, unreachable_pub, reason = "an example with a main function")]
#[path = "../../../examples/tag_client.rs"]
mod tag_client;
#[allow(dead_code, unreachable_pub, reason = "an example with a main function")]
#[path = "../../../examples/tag_server.rs"]
mod tag_server;
mod toolchain;
