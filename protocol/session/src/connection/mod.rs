//! One connection over a payload channel: endpoint, congestion avoidance and, between peers of ours, channels.
//!
//! ```text
//!   payloads in                                        payloads out
//!       │                                                   ▲
//!       ▼                                                   │
//!     handle ──▶ path: number, acknowledge, measure ◀── transmit ◀── budget of the path
//!       │            │                                      ▲
//!       │            └──▶ acked and lost packets ──▶ channels ┘
//!       ▼                                              ▲
//!     next_message: one at a time                    send
//! ```
//!
//! [`Connection`] carries messages on channels between two peers of ours (`specs/session-1.md`). A packet connection
//! carries acknowledged packets, as every peer of reliable 1.0 does. Both are sans-IO and independent of encryption.

mod ack_watchdog;
mod budget;
mod clock;
mod close_reason;
mod config;
mod messages;
mod packets;
mod path;
mod path_stats;
mod peer_session;
mod plain_text;
mod received_datagram;
mod redirect;
mod reliable_control;
mod sealing_sink;
#[cfg(test)]
mod tests;
mod traffic;
pub(crate) mod work_budget;

pub use self::budget::Budget;
pub use self::close_reason::{CloseKind, CloseReason, ClosedBy, Role};
pub use self::config::{ConnectionConfig, ConnectionConfigError, MIN_PAYLOAD, MakeController, Memory};
pub use self::messages::{ChannelMessage, Connection, MessageCursor};
pub use self::path::PacketTimes;
pub use self::path_stats::PathStats;
pub use self::plain_text::plain_text;
pub use self::received_datagram::{ReceivedDatagram, SessionMessage};
pub(crate) use self::sealing_sink::{HEADER_BYTES, SealingSink};
pub(crate) use self::traffic::ClientProtocol;
pub use self::traffic::Traffic;
pub use self::work_budget::{Delivery, Intake, WorkLimits};
pub use crate::channel::close_code::CloseCode;
pub use crate::send_error::SendError;
