//! The options of a message.

use std::time::Duration;

use slipgate_session::channel::SendOptions;

use crate::status::SLIPGATE_ERROR_ARGUMENT;

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
