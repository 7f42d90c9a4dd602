//! The progress and the contents of a close message.

use alloc::string::String;

use crate::channel::close_code::CloseCode;
use crate::connection::reliable_control::ReliableControl;
use slipgate_netcode::time::Instant;

/// The progress of closing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Closing {
    pub(super) control: ReliableControl,
    /// When the close message was sent first.
    pub(super) since: Option<Instant>,
    /// When it is sent next.
    pub(super) next_send: Instant,
}

/// The contents of the close message.
pub(super) struct CloseMessage {
    pub(super) code: CloseCode,
    pub(super) text: String,
}

impl Default for CloseMessage {
    fn default() -> Self {
        Self { code: CloseCode::KICKED, text: String::new() }
    }
}
