//! The path of a connection, what may leave now, and why it ended.

use slipgate_session::channel::Remaining;
use slipgate_session::connection::{Budget, CloseKind, CloseReason, ClosedBy, PathStats};

/// The state of the path. A time of -1 is not known yet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CPath {
    /// The smoothed round trip in milliseconds.
    pub round_trip_ms: f64,
    /// The smoothed deviation of a round trip, in milliseconds (RFC 6298).
    pub jitter_ms: f64,
    /// The minimum round trip of the last 20 s, in milliseconds.
    pub base_round_trip_ms: f64,
    /// The queueing delay at the bottleneck, in milliseconds.
    pub queueing_ms: f64,
    /// The share of lost packets among about the last hundred, 0 to 1.
    pub loss: f64,
    /// The rate at which this end may send, in bytes per second with headers.
    pub bytes_per_second: f64,
}

/// The bytes that may leave up to the next tick of the game, and the size and number of messages that suit the path.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CBudget {
    /// Bytes of payload that may leave up to the next tick.
    pub bytes: u64,
    /// The largest message that leaves whole up to the next tick, in bytes.
    pub max_message_bytes: u64,
    /// How many packets a second the game should send.
    pub packets_per_second: f64,
    /// How many bytes of payload each of them should have.
    pub payload_bytes: u64,
}

/// The room of a channel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CRemaining {
    /// Bytes.
    pub bytes: u32,
    /// Messages.
    pub messages: u32,
    /// Receipts.
    pub receipts: u32,
}

fn milliseconds(time: Option<std::time::Duration>) -> f64 {
    time.map_or(-1.0, |time| time.as_secs_f64() * 1000.0)
}

impl From<PathStats> for CPath {
    fn from(stats: PathStats) -> Self {
        let path = stats.congestion;
        Self {
            round_trip_ms: milliseconds(path.round_trip),
            jitter_ms: milliseconds(path.round_trip_variation),
            base_round_trip_ms: milliseconds(path.base_round_trip),
            queueing_ms: milliseconds(path.queueing_delay),
            loss: path.loss,
            bytes_per_second: path.rate.0,
        }
    }
}

impl From<Budget> for CBudget {
    fn from(budget: Budget) -> Self {
        Self {
            bytes: budget.bytes as u64,
            max_message_bytes: budget.max_message_bytes() as u64,
            packets_per_second: budget.suggestion.packets_per_second,
            payload_bytes: budget.suggestion.payload_bytes.into(),
        }
    }
}

impl From<Remaining> for CRemaining {
    fn from(remaining: Remaining) -> Self {
        let Remaining { bytes, messages, receipts } = remaining;
        Self { bytes, messages: messages.into(), receipts: receipts.into() }
    }
}

/// A connection was closed by this side.
pub const SLIPGATE_BY_LOCAL: u32 = 0;
/// A connection was closed by the peer.
pub const SLIPGATE_BY_REMOTE: u32 = 1;
/// A connection was closed by no side: a timeout, an expired token, a takeover.
pub const SLIPGATE_BY_NETCODE: u32 = 2;

/// The code of a close reason for which no side gave a code.
pub const SLIPGATE_NO_CODE: u32 = 65536;

/// The client left.
pub const SLIPGATE_CLOSE_LEFT: i32 = 1;
/// The server's application disconnected the client.
pub const SLIPGATE_CLOSE_KICKED: i32 = 2;
/// The server stops.
pub const SLIPGATE_CLOSE_SERVER_STOPPED: i32 = 3;
/// The server disconnected this client without a reason.
pub const SLIPGATE_CLOSE_DISCONNECTED_BY_SERVER: i32 = 4;
/// Nothing authentic arrived for the token's timeout.
pub const SLIPGATE_CLOSE_TIMED_OUT: i32 = 5;
/// The server sent a challenge but gave no slot in time. Request a new token.
pub const SLIPGATE_CLOSE_RESPONSE_TIMED_OUT: i32 = 6;
/// No server replied to the connection request. Request a new token.
pub const SLIPGATE_CLOSE_REQUEST_TIMED_OUT: i32 = 7;
/// Every server is full or admits no new clients.
pub const SLIPGATE_CLOSE_DENIED: i32 = 8;
/// The attempt outlasted the token's lifetime. Request a new token.
pub const SLIPGATE_CLOSE_TOKEN_EXPIRED: i32 = 9;
/// The token was used before, or lists no usable address. Request a new token.
pub const SLIPGATE_CLOSE_INVALID_TOKEN: i32 = 10;
/// The same player connected again, with a newer token.
pub const SLIPGATE_CLOSE_TAKEN_OVER: i32 = 11;
/// No sequence number is left.
pub const SLIPGATE_CLOSE_SEQUENCES_USED_UP: i32 = 12;
/// The two ends have different channels.
pub const SLIPGATE_CLOSE_LAYOUT_MISMATCH: i32 = 13;
/// The two ends share no version of the session layer.
pub const SLIPGATE_CLOSE_VERSION_MISMATCH: i32 = 14;
/// The peer does not implement the session layer.
pub const SLIPGATE_CLOSE_NOT_A_SESSION: i32 = 15;
/// The peer broke the protocol.
pub const SLIPGATE_CLOSE_VIOLATION: i32 = 16;
/// The peer reports that this end broke the protocol.
pub const SLIPGATE_CLOSE_ACCUSED: i32 = 17;
/// A reason of a later version.
pub const SLIPGATE_CLOSE_OTHER: i32 = 0;

/// Why a connection, or an attempt to connect, ended.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CCloseReason {
    /// `SLIPGATE_CLOSE_LEFT` to `SLIPGATE_CLOSE_ACCUSED`.
    pub kind: i32,
    /// `SLIPGATE_BY_LOCAL`, `SLIPGATE_BY_REMOTE` or `SLIPGATE_BY_NETCODE`.
    pub by: u32,
    /// The code that came with it, or `SLIPGATE_NO_CODE`.
    pub code: u32,
    /// 0.
    pub reserved: u32,
    /// A sentence for the player in UTF-8, without a zero at its end.
    pub text: *const u8,
    /// The bytes of the sentence.
    pub text_length: usize,
}

/// Returns the number of a close kind.
pub(crate) const fn close_kind(kind: CloseKind) -> i32 {
    match kind {
        CloseKind::Left => SLIPGATE_CLOSE_LEFT,
        CloseKind::Kicked => SLIPGATE_CLOSE_KICKED,
        CloseKind::ServerStopped => SLIPGATE_CLOSE_SERVER_STOPPED,
        CloseKind::DisconnectedByServer => SLIPGATE_CLOSE_DISCONNECTED_BY_SERVER,
        CloseKind::TimedOut => SLIPGATE_CLOSE_TIMED_OUT,
        CloseKind::ResponseTimedOut => SLIPGATE_CLOSE_RESPONSE_TIMED_OUT,
        CloseKind::RequestTimedOut => SLIPGATE_CLOSE_REQUEST_TIMED_OUT,
        CloseKind::Denied => SLIPGATE_CLOSE_DENIED,
        CloseKind::TokenExpired => SLIPGATE_CLOSE_TOKEN_EXPIRED,
        CloseKind::InvalidToken => SLIPGATE_CLOSE_INVALID_TOKEN,
        CloseKind::TakenOver => SLIPGATE_CLOSE_TAKEN_OVER,
        CloseKind::SequencesUsedUp => SLIPGATE_CLOSE_SEQUENCES_USED_UP,
        CloseKind::LayoutMismatch { .. } => SLIPGATE_CLOSE_LAYOUT_MISMATCH,
        CloseKind::VersionMismatch => SLIPGATE_CLOSE_VERSION_MISMATCH,
        CloseKind::NotASession => SLIPGATE_CLOSE_NOT_A_SESSION,
        CloseKind::Violation(_) => SLIPGATE_CLOSE_VIOLATION,
        CloseKind::Accused => SLIPGATE_CLOSE_ACCUSED,
        _ => SLIPGATE_CLOSE_OTHER,
    }
}

pub(crate) const fn closed_by(by: ClosedBy) -> u32 {
    match by {
        ClosedBy::Local => SLIPGATE_BY_LOCAL,
        ClosedBy::Remote => SLIPGATE_BY_REMOTE,
        ClosedBy::Netcode => SLIPGATE_BY_NETCODE,
    }
}

pub(crate) fn close_code(reason: &CloseReason) -> u32 {
    reason.code.map_or(SLIPGATE_NO_CODE, |code| code.0.into())
}
