//! The options of a message, and several messages with one call.

use std::time::Duration;

use slipgate_session::channel::{ChannelId, SendOptions};

use crate::pointer;
use crate::status::{Outcome, SLIPGATE_DONE, SLIPGATE_ERROR_ARGUMENT, SLIPGATE_ERROR_NO_CHANNEL};

/// `deadline_us` is set.
pub const SLIPGATE_HAS_DEADLINE: u32 = 1;
/// `key` is set.
pub const SLIPGATE_HAS_KEY: u32 = 2;
/// `receipt` is set.
pub const SLIPGATE_HAS_RECEIPT: u32 = 4;

/// Options of one message. A null pointer means none.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CSendOptions {
    /// The size of this structure: `sizeof(slipgate_send_options)`.
    pub size: u32,
    /// Which of the following fields are set: `SLIPGATE_HAS_DEADLINE`, `SLIPGATE_HAS_KEY`, `SLIPGATE_HAS_RECEIPT`.
    pub flags: u32,
    /// How long the message may wait to be sent or sent again, in microseconds.
    pub deadline_us: u64,
    /// A newer message with the same key replaces an older one.
    pub key: u64,
    /// The tag under which an event `SLIPGATE_RECEIPT` reports the delivery status.
    pub receipt: u64,
}

pub(crate) fn read_options(options: Option<&CSendOptions>) -> Result<SendOptions, i32> {
    let Some(options) = options else { return Ok(SendOptions::default()) };
    let known = SLIPGATE_HAS_DEADLINE | SLIPGATE_HAS_KEY | SLIPGATE_HAS_RECEIPT;
    if options.size as usize != size_of::<CSendOptions>() || options.flags & !known != 0 {
        return Err(SLIPGATE_ERROR_ARGUMENT);
    }
    let has = |flag| options.flags & flag != 0;
    Ok(SendOptions {
        deadline: has(SLIPGATE_HAS_DEADLINE).then(|| Duration::from_micros(options.deadline_us)),
        key: has(SLIPGATE_HAS_KEY).then_some(options.key),
        receipt: has(SLIPGATE_HAS_RECEIPT).then_some(options.receipt),
    })
}

/// One of several messages that are sent with one call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct COutgoingMessage {
    /// The client that gets it. A client ignores it.
    pub client: u64,
    /// The content, which the call copies. May be null without bytes.
    pub bytes: *const u8,
    /// The length of the content in bytes.
    pub length: usize,
    /// May be null.
    pub options: *const CSendOptions,
    /// The channel's id.
    pub channel: u32,
    /// Written by the call: `SLIPGATE_DONE`, or why the message was refused. Unchanged if the call returns before the
    /// message: null arguments, `SLIPGATE_ERROR_PANIC`.
    pub status: i32,
}

/// Sends each message with `send`, writes its status, and returns the first error, or `SLIPGATE_DONE`.
#[inline]
pub(crate) fn send_each(
    messages: *mut COutgoingMessage,
    count: usize,
    mut send: impl FnMut(u64, ChannelId, &[u8], Option<&CSendOptions>) -> Result<(), i32>,
) -> Outcome {
    let mut first = Ok(SLIPGATE_DONE);
    for message in pointer::array_mut(messages, count)? {
        let sent = u8::try_from(message.channel).map_err(|_| SLIPGATE_ERROR_NO_CHANNEL).and_then(|channel| {
            let bytes = pointer::bytes(message.bytes, message.length)?;
            send(message.client, ChannelId(channel), bytes, pointer::optional(message.options)?)
        });
        message.status = sent.err().unwrap_or(SLIPGATE_DONE);
        first = first.and(sent.map(|()| SLIPGATE_DONE));
    }
    first
}
