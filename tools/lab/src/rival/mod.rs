//! Other algorithms of congestion avoidance, for comparison and to share a path with. None of them leaves the lab.

mod aimd;
mod bbr;
mod cubic;
mod gcc;
mod nada;
mod path;
#[cfg(test)]
mod tests;

pub use aimd::Aimd;
pub use bbr::Bbr;
pub use cubic::Cubic;
pub use gcc::Gcc;
pub use nada::Nada;
use path::RoundTrip;
use slipgate_session::congestion::BytesPerSecond;

/// The largest packet, in bytes.
const MTU: f64 = crate::source::LARGEST_PACKET as f64;
/// The window at the start: ten packets (RFC 6928).
const FIRST_WINDOW: f64 = 10.0 * MTU;
/// No window is smaller.
const LEAST_WINDOW: f64 = 2.0 * MTU;
/// The rate at the start, in bytes per second, before a round trip was measured.
const FIRST_RATE: f64 = 40_000.0;
/// No rate is lower, in bytes per second.
const LEAST_RATE: f64 = 2560.0;

/// The rate that spreads a window over a round trip, with a reserve, as Linux paces TCP.
fn paced(window: f64, slow_start: bool, path: &RoundTrip) -> BytesPerSecond {
    let gain = if slow_start { 2.0 } else { 1.25 };
    BytesPerSecond(if path.smoothed > 0.0 { gain * window / path.smoothed } else { 10.0 * FIRST_RATE })
}
