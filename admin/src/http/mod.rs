//! HTTP/1.1 on a thread of its own: a bounded number of connections, each with one request and a time limit.
//!
//! ```text
//!  accept ─▶ serve: number and time of connections ─▶ guard: time, body, Host, Origin ─▶ routes ─▶ response, close
//! ```

mod error;
mod guard;
mod routes;
mod serve;

pub use self::routes::ROUTES;
pub(crate) use self::serve::spawn;
