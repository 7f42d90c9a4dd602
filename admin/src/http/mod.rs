//! HTTP/1.1 on a thread of its own: a bounded number of connections, each with one request and a time limit.
//!
//! ```text
//!  accept ─▶ serve: number and time of connections ─▶ guard: time, body, Host, Origin, token ─▶ routes ─▶ close
//! ```

mod clients;
mod dashboard;
mod error;
mod guard;
mod paths;
mod routes;
mod serve;

pub use self::paths::ROUTES;
pub(crate) use self::serve::spawn;
