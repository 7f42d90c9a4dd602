//! The HTTP service, over loopback.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

mod api;
mod common;
mod hostile;
mod specs;
