//! A connection to one server with a token: whether it comes about, and whether payloads of each size return.

use std::time::{Duration, Instant};

use slipgate_client::probe::{Probe, ProbeConfig};
use slipgate_client::{Client, CloseReason, ConnectToken};

/// The maximum time of the handshake. A token's timeout is often shorter.
const HANDSHAKE_TIME: Duration = Duration::from_secs(8);
/// The time in which echoes are expected.
const ECHO_TIME: Duration = Duration::from_secs(2);
/// Payloads per second.
const RATE: u32 = 20;

/// The result of an attempt.
#[derive(Debug)]
pub(super) struct HandshakeResult {
    /// The time until the connection, `None` if there is none.
    pub(super) connected_after: Option<Duration>,
    /// Why there is none, or why it has ended.
    pub(super) ended: Option<CloseReason>,
    /// Payloads of this size that were sent, and their correct echoes.
    pub(super) sent: u64,
    pub(super) echoes: u64,
}

/// Connects with the token and sends payloads of this size.
///
/// # Errors
/// The text of what the system, or the token, refuses.
pub(super) fn attempt(token: ConnectToken, bytes: usize) -> Result<HandshakeResult, String> {
    let client = Client::new().map_err(|error| format!("no socket can be opened: {error}"))?;
    let mark = u64::from(std::process::id()) << 32 | bytes as u64;
    let config = ProbeConfig { rate: RATE, sizes: bytes..=bytes, mark };
    let mut probe = Probe::begin(client, token, config).map_err(|error| error.to_string())?;
    let start = Instant::now();
    let mut connected_after = None;
    loop {
        probe.turn(Duration::from_millis(20)).map_err(|error| error.to_string())?;
        let report = probe.report();
        if connected_after.is_none() && report.was_connected {
            connected_after = Some(start.elapsed());
        }
        let is_over = match connected_after {
            None => start.elapsed() > HANDSHAKE_TIME,
            Some(after) => start.elapsed() > after + ECHO_TIME,
        };
        if is_over || report.ended.is_some() {
            break;
        }
    }
    let report = probe.report().clone();
    let _ = probe.leave();
    Ok(HandshakeResult { connected_after, ended: report.ended, sent: report.sent, echoes: report.right })
}
