//! The options of a message, and the remaining room of a queue.

use core::time::Duration;

/// Options of one message: by default without key and receipt, with the channel's deadline.
///
/// # Examples
///
/// ```
/// use core::time::Duration;
/// use slipgate_session::channel::SendOptions;
///
/// let options = SendOptions::default().key(7).deadline(Duration::from_millis(100)).receipt(1);
/// assert_eq!(options.key, Some(7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendOptions {
    /// How long the message may wait to be sent or sent again. `None` uses the channel's default.
    pub deadline: Option<Duration>,
    /// A newer message with the same key replaces an older one that was not sent or not acked. A message that is being
    /// sent in several packets is not replaced: it is sent to its end.
    ///
    /// The older message makes room in a full queue if the newer one's bytes fit. A message in flight is given up: it
    /// is not sent again, its receipt reports [`Superseded`](super::DeliveryStatus::Superseded), and the newer one
    /// waits until the receiver's window has room for it.
    ///
    /// Keys belong to one channel. Finding the older message takes constant time.
    pub key: Option<u64>,
    /// A tag of the application for a delivery receipt: [`ChannelEvent::Receipt`](super::ChannelEvent::Receipt) reports
    /// the message's delivery status under it. `None` requests no receipt and keeps no state.
    pub receipt: Option<u64>,
}

impl SendOptions {
    /// Sets the key: a newer message with the same key replaces this one.
    #[must_use]
    pub const fn key(self, key: u64) -> Self {
        Self { key: Some(key), ..self }
    }

    /// Sets how long the message may wait to be sent or sent again.
    #[must_use]
    pub const fn deadline(self, deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..self }
    }

    /// Requests a delivery receipt under this tag.
    #[must_use]
    pub const fn receipt(self, tag: u64) -> Self {
        Self { receipt: Some(tag), ..self }
    }
}

/// The remaining capacity of a channel's queue for messages without keys, and of its connection for receipts.
///
/// A message with a key that replaces another one needs less. A message with a key needs more on a channel
/// with [`newest_only`](super::ChannelConfig::newest_only), because it does not replace messages
/// as a new one without a key does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remaining {
    /// Bytes of messages.
    pub bytes: u32,
    /// Messages.
    pub messages: u16,
    /// Receipts, on all channels of the connection together, of [`MAX_RECEIPTS`](super::MAX_RECEIPTS).
    pub receipts: u16,
}
