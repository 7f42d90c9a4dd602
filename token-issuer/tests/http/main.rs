//! The HTTP service, over loopback.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

mod api;
mod bad_input;
mod client_limit;
mod common;
mod connections;
mod hostile;
#[cfg(feature = "player-jwt")]
mod players;
mod probes;
mod replace;
mod servers;
mod specs;
#[cfg(all(unix, feature = "redis", feature = "registry-file"))]
mod stores;
#[cfg(all(unix, feature = "tls"))]
mod transports;
