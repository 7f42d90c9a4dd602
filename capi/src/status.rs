//! The numeric statuses that functions return, and their texts. A number never changes its meaning.

use std::ffi::{CStr, c_char};

use slipgate_session::connection::SendError;

/// The call has done what it was asked for.
pub const SLIPGATE_DONE: i32 = 0;
/// There is none: no further event, no such counter, no path yet.
pub const SLIPGATE_NONE: i32 = 1;
/// An argument is invalid: a null pointer, a text that is not UTF-8, a structure without its size.
pub const SLIPGATE_ERROR_ARGUMENT: i32 = -1;
/// The operating system refused: no socket, no entropy, no file.
pub const SLIPGATE_ERROR_IO: i32 = -2;
/// The connect token is not one.
pub const SLIPGATE_ERROR_TOKEN: i32 = -3;
/// This program has used the connect token before. Request a new one.
pub const SLIPGATE_ERROR_TOKEN_USED: i32 = -4;
/// The client is connecting or connected. Disconnect it first.
pub const SLIPGATE_ERROR_BUSY: i32 = -5;
/// There is no such connection: it has not started, or it has ended.
pub const SLIPGATE_ERROR_GONE: i32 = -6;
/// A payload or packet has at least 1 byte.
pub const SLIPGATE_ERROR_EMPTY: i32 = -7;
/// There are too many bytes for the payload, packet, message, transfer or buffer.
pub const SLIPGATE_ERROR_TOO_LARGE: i32 = -8;
/// The queue is full, or no more can leave now. Try again later, or drop the message.
pub const SLIPGATE_ERROR_BACKLOGGED: i32 = -9;
/// There is no such channel.
pub const SLIPGATE_ERROR_NO_CHANNEL: i32 = -10;
/// A message was given to a channel of transfers, or a transfer to a channel of messages.
pub const SLIPGATE_ERROR_WRONG_KIND: i32 = -11;
/// The connection carries other traffic: payloads, packets, or messages on channels.
pub const SLIPGATE_ERROR_WRONG_TRAFFIC: i32 = -12;
/// A setting is out of its bounds. The text of the error names it.
pub const SLIPGATE_ERROR_CONFIG: i32 = -13;
/// The connect token lists no server that this machine can reach.
pub const SLIPGATE_ERROR_NO_SERVER: i32 = -14;
/// A mistake in the library. The object is out of order: every call returns this, and it can only be freed.
pub const SLIPGATE_ERROR_PANIC: i32 = -99;

/// The result of a body: a status that is no error, or an error.
pub(crate) type Outcome = Result<i32, i32>;

pub(crate) const fn of_send_error(error: SendError) -> i32 {
    match error {
        SendError::Gone => SLIPGATE_ERROR_GONE,
        SendError::Empty => SLIPGATE_ERROR_EMPTY,
        SendError::TooLarge { .. } => SLIPGATE_ERROR_TOO_LARGE,
        SendError::NoChannel { .. } => SLIPGATE_ERROR_NO_CHANNEL,
        SendError::WrongKind => SLIPGATE_ERROR_WRONG_KIND,
        SendError::WrongTraffic => SLIPGATE_ERROR_WRONG_TRAFFIC,
        // Later versions of the enum may refuse for other reasons, which callers handle like a full queue.
        _ => SLIPGATE_ERROR_BACKLOGGED,
    }
}

/// Returns the outcome of a call that sends.
pub(crate) fn sent<T>(result: Result<T, SendError>) -> Result<T, i32> {
    result.map_err(of_send_error)
}

/// Returns a sentence about a status, for logs: a static string that ends with zero.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_status_text(status: i32) -> *const c_char {
    text_of(status).as_ptr()
}

const fn text_of(status: i32) -> &'static CStr {
    match status {
        SLIPGATE_DONE => c"done",
        SLIPGATE_NONE => c"there is none",
        SLIPGATE_ERROR_ARGUMENT => c"an argument is invalid",
        SLIPGATE_ERROR_IO => c"the operating system refused",
        SLIPGATE_ERROR_TOKEN => c"the connect token is invalid",
        SLIPGATE_ERROR_TOKEN_USED => c"this program has used the connect token before; request a new one",
        SLIPGATE_ERROR_BUSY => c"the client is connecting or connected; disconnect it first",
        SLIPGATE_ERROR_GONE => c"there is no such connection",
        SLIPGATE_ERROR_EMPTY => c"there is no byte to send",
        SLIPGATE_ERROR_TOO_LARGE => c"there are too many bytes",
        SLIPGATE_ERROR_BACKLOGGED => c"the queue is full, or no more can leave now",
        SLIPGATE_ERROR_NO_CHANNEL => c"there is no such channel",
        SLIPGATE_ERROR_WRONG_KIND => c"the channel carries messages instead of transfers, or the reverse",
        SLIPGATE_ERROR_WRONG_TRAFFIC => c"the connection carries other traffic",
        SLIPGATE_ERROR_CONFIG => c"a setting is out of its bounds",
        SLIPGATE_ERROR_NO_SERVER => c"the connect token lists no server that this machine can reach",
        SLIPGATE_ERROR_PANIC => c"a mistake in the library; free the object",
        _ => c"an unknown status",
    }
}
