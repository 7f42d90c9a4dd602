//! HTTP/1.1 on a thread of its own: a bounded number of connections, each with one request and a time limit.
//!
//! ```text
//!  accept ─▶ places: number ─▶ serve: time ─▶ guard: time, body, Host, Origin, token ─▶ routes ─▶ close
//! ```

mod clients;
mod dashboard;
mod error;
#[cfg(feature = "fuzzing")]
mod exchange;
mod guard;
mod paths;
mod places;
mod routes;
mod serve;
#[cfg(test)]
mod tests;

pub use self::paths::ROUTES;
pub(crate) use self::serve::spawn;
#[cfg(feature = "fuzzing")]
pub(crate) use self::{exchange::exchange, routes::router};
