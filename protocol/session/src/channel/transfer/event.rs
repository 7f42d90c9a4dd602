//! The events of transfers.

use super::TransferReason;
use super::receiver::{PartialTransfer, TransferContent};
use super::{TransferId, TransferOffer, TransferSide};

/// An event of a transfer. `Offered`, `Received` and `Broken` concern transfers of the peer, the others those of this
/// end.
///
/// # Examples
/// ```
/// use slipgate_session::channel::transfer::TransferEvent;
///
/// /// Returns the map, when all of it has arrived.
/// fn map(event: TransferEvent) -> Option<Vec<u8>> {
///     match event {
///         TransferEvent::Received { content, .. } => Some(content.into_vec()),
///         _ => None,
///     }
/// }
/// ```
#[derive(Debug)]
pub enum TransferEvent {
    /// The peer offers a transfer, and [`TransferAdmission::Ask`](super::TransferAdmission::Ask) is set: accept or
    /// refuse it.
    Offered(TransferOffer),
    /// A transfer has arrived completely. Reported once.
    Received {
        /// The transfer.
        id: TransferId,
        /// The peer's label for it.
        label: u64,
        /// The content.
        content: TransferContent,
    },
    /// A transfer of the peer that was offered or accepted will not arrive.
    Broken {
        /// The transfer.
        id: TransferId,
        /// The peer's label for it.
        label: u64,
        /// The end that aborted it.
        by: TransferSide,
        /// The reason.
        reason: TransferReason,
        /// The part that had arrived, to resume it later. `None` if nothing arrived or the digest was wrong.
        partial: Option<PartialTransfer>,
    },
    /// The peer has received a transfer of this end completely.
    Delivered {
        /// The transfer.
        id: TransferId,
    },
    /// The peer refused or aborted a transfer of this end.
    Refused {
        /// The transfer.
        id: TransferId,
        /// The reason.
        reason: TransferReason,
    },
}
