//! Messages, delivery receipts and events of transfers, as the application gets them.

use super::transfer::TransferEvent;
use crate::channel::config::ChannelId;
use crate::wire::PayloadSpan;

/// A message that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedMessage {
    /// The channel.
    pub channel: ChannelId,
    /// The position of the bytes in the packet's frames.
    pub span: PayloadSpan,
}

/// An event of a channel that is not a message.
///
/// # Examples
/// ```
/// use slipgate_session::channel::{ChannelEvent, DeliveryStatus};
///
/// /// Returns the tick of a snapshot that the peer has now: its message had the tick as the tag of its receipt.
/// fn confirmed_tick(event: &ChannelEvent) -> Option<u64> {
///     match event {
///         ChannelEvent::Receipt { tag, status: DeliveryStatus::Arrived, .. } => Some(*tag),
///         _ => None,
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ChannelEvent {
    /// A transfer changed its state.
    Transfer {
        /// The channel.
        channel: ChannelId,
        /// What happened.
        event: TransferEvent,
    },
    /// The delivery status of a message that requested a receipt. Reported once, but for
    /// [`DeliveryStatus::ArrivedLate`], which may follow [`DeliveryStatus::Lost`]. Receipts that are open when the
    /// connection ends are not reported.
    Receipt {
        /// The channel.
        channel: ChannelId,
        /// The tag from [`SendOptions::receipt`](super::SendOptions::receipt).
        tag: u64,
        /// The delivery status of the message.
        status: DeliveryStatus,
    },
}

/// The delivery status of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum DeliveryStatus {
    /// The peer has all of the message and hands it to its application; on an ordered channel, all messages before it
    /// as well.
    ///
    /// The newest message that arrived on a sequenced channel counts, once all events are polled: the peer drops those
    /// that arrive behind it. The peer discards a message in slices on an unreliable channel if these arrive too far
    /// apart (§3.8). A message that fits into one packet is certain.
    ///
    /// A message that arrives after the peer has disconnected is not acked, and so never reported as arrived. An
    /// application that disconnects on one message of a packet does not read those behind it in the same packet.
    Arrived,
    /// A packet with a part of the message counts as lost, and the channel does not send it again. The decision follows
    /// from newer packets that arrived or from time (RFC 9002), so the message may have arrived all the same.
    Lost,
    /// The deadline passed first. A message that was already sent may have arrived.
    Expired,
    /// A newer message with the same key replaced it, or a newer one without a key on a channel with
    /// [`newest_only`](super::ChannelConfig::newest_only). A message that was already sent may have arrived.
    Superseded,
    /// The message was reported as [`Lost`](Self::Lost), and the peer acked all of it afterwards. Reported at most
    /// once, for acknowledgements of the last 128 packets and for at most 256 lost messages at a time.
    ArrivedLate,
}
