//! Other congestion controllers, for comparison and as competing flows. The laboratory alone uses them.

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
use path::RttEstimate;
use slipgate_session::congestion::BytesPerSecond;

/// The largest packet, in bytes.
const MTU: f64 = crate::source::MAX_PACKET_BYTES as f64;
/// The initial window: ten packets (RFC 6928).
const FIRST_WINDOW: f64 = 10.0 * MTU;
/// The minimum window.
const MIN_WINDOW: f64 = 2.0 * MTU;
/// The initial rate in bytes per second, before a round trip was measured.
const FIRST_RATE: f64 = 40_000.0;
/// The minimum rate, in bytes per second.
const MIN_RATE: f64 = 2560.0;

/// Returns the rate that sends a window in a round trip, with a reserve, as Linux paces TCP.
fn paced(window: f64, slow_start: bool, path: &RttEstimate) -> BytesPerSecond {
    let gain = if slow_start { 2.0 } else { 1.25 };
    BytesPerSecond(if path.smoothed > 0.0 { gain * window / path.smoothed } else { 10.0 * FIRST_RATE })
}
