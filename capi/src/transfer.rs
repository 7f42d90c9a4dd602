//! The content of transfers: hashed once, and shared by all clients that get it.

use slipgate_session::channel::ChannelId;
use slipgate_session::channel::transfer::{MAX_TRANSFER_BYTES, Transfer, TransferId};
use slipgate_session::connection::Connection;

use crate::boundary::{free, run, some};
use crate::pointer;
use crate::status::{Outcome, SLIPGATE_DONE, SLIPGATE_ERROR_GONE, SLIPGATE_ERROR_NO_CHANNEL, SLIPGATE_ERROR_TOO_LARGE};

/// The content of a transfer.
#[derive(Debug)]
pub struct CTransfer(pub(crate) Transfer);

/// Creates the content of a transfer, up to 64 MiB, and copies and hashes the bytes: about a second for a gigabyte. A
/// server creates it in advance, not in its tick. `SLIPGATE_ERROR_TOO_LARGE` for more bytes.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_transfer_new(bytes: *const u8, length: usize, out: Option<&mut *mut CTransfer>) -> i32 {
    run(|| {
        let out = some(out)?;
        *out = pointer::none();
        // Checked before the bytes are copied.
        if length > MAX_TRANSFER_BYTES as usize {
            return Err(SLIPGATE_ERROR_TOO_LARGE);
        }
        let transfer = Transfer::new(pointer::bytes(bytes, length)?).ok_or(SLIPGATE_ERROR_TOO_LARGE)?;
        *out = pointer::give(CTransfer(transfer));
        Ok(SLIPGATE_DONE)
    })
}

/// Frees the content. Transfers that are being sent continue. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_transfer_free(transfer: *mut CTransfer) {
    free(transfer);
}

/// What to do with a transfer.
#[derive(Clone, Copy)]
pub(crate) enum TransferAction {
    Accept,
    Refuse,
    Cancel,
}

impl TransferAction {
    /// Does it. The status is `SLIPGATE_ERROR_GONE` if there is no such transfer.
    pub(crate) fn run(self, connection: &mut Connection, channel: u8, id: u32) -> Outcome {
        let id = TransferId(u16::try_from(id).map_err(|_| SLIPGATE_ERROR_GONE)?);
        let transfers = connection.channels.transfers_mut(ChannelId(channel)).ok_or(SLIPGATE_ERROR_NO_CHANNEL)?;
        let is_done = match self {
            Self::Accept => transfers.accept(id),
            Self::Refuse => {
                // What has arrived of it is dropped.
                drop(transfers.refuse(id));
                true
            }
            Self::Cancel => transfers.cancel(id),
        };
        if is_done { Ok(SLIPGATE_DONE) } else { Err(SLIPGATE_ERROR_GONE) }
    }
}
