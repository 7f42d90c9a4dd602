//! The HTTP service, over loopback.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics when something is wrong")]

mod api;
mod common;
mod hostile;
mod specs;
