//! Transfers: up to 64 MiB in slices, delivered once and whole, or not at all.
//!
//! ```text
//!  sender                                   receiver
//!    │ Begin: digest, length, slice size       │
//!    │────────────────────────────────────────▶│ within its limits? perhaps the application is asked
//!    │   Accept: which slices it already has   │
//!    │◀────────────────────────────────────────│ (those of a PartialTransfer of an earlier connection)
//!    │ Slice, Slice … in any order             │
//!    │────────────────────────────────────────▶│ chunks of 16 slices, hashed when complete
//!    │                     Done: digest right  │
//!    │◀────────────────────────────────────────│ the application has the content
//! ```
//!
//! Either end may abort at any time, the sender by `Withdraw`, the receiver by `Refuse`, both with a reason.
//!
//! [`Transfers::write`] writes one frame into a packet and returns a [`SentTransferFrame`]. The channel passes that to
//! [`Transfers::on_acked`] or [`Transfers::on_lost`] later. A lost frame is written again in another packet. There are
//! no timers here.
//!
//! Sections §4.x in this module are those of `specs/transfers-1.md`.

mod event;
pub mod frame;
mod incoming;
mod receiver;
mod sender;
mod store;
mod transfers;

use alloc::sync::Arc;
use core::fmt;

use sha2::{Digest as _, Sha256};

pub use self::event::TransferEvent;
pub use self::receiver::{PartialTransfer, TransferContent};
pub(crate) use self::store::HashingGrant;
pub use self::transfers::Transfers;

/// The maximum bytes of a transfer: 64 MiB (§4.1).
pub const MAX_TRANSFER_BYTES: u32 = 64 << 20;
/// The minimum bytes of a slice (§4.1): it fits into the smallest packet, of 256 bytes on the path, in every
/// encapsulation.
pub const MIN_SLICE_BYTES: u16 = 128;
/// The maximum bytes of a slice (§4.1): with its header it fits into the largest packet.
pub const MAX_SLICE_BYTES: u16 = 1152;

/// The number of a transfer, assigned by its sender. Each direction has its own numbers. 0 follows 65,535.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct TransferId(pub u16);

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The SHA-256 digest of a transfer's content (FIPS 180-4). It identifies and verifies the content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest(pub [u8; 32]);

impl ContentDigest {
    /// Returns the digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The content of a transfer. Clones share the bytes, so that a map is stored once for a hundred clients.
///
/// Creating one hashes its bytes, 300 MB to 2 GB per second: a server does that in advance, not in its tick.
///
/// # Examples
///
/// ```
/// use slipgate_session::channel::transfer::Transfer;
///
/// let map = Transfer::new(vec![7; 100_000]).expect("at most 64 MiB");
/// assert_eq!(map.bytes().len(), 100_000);
/// ```
#[derive(Clone)]
pub struct Transfer {
    bytes: Arc<[u8]>,
    length: u32,
    digest: ContentDigest,
}

impl Transfer {
    /// Creates a transfer with this content. `None` if it is larger than [`MAX_TRANSFER_BYTES`].
    #[must_use]
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MAX_TRANSFER_BYTES)?;
        let digest = ContentDigest::of(&bytes);
        Some(Self { bytes, length, digest })
    }

    /// Returns the content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the content's digest.
    #[must_use]
    pub const fn digest(&self) -> ContentDigest {
        self.digest
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer").field("bytes", &self.length).field("digest", &self.digest).finish()
    }
}

/// The progress of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransferProgress {
    /// Bytes that have arrived: at the receiver those that it has, at the sender those that were acked.
    pub bytes: u32,
    /// Bytes of the whole transfer.
    pub of: u32,
}

/// A frame that was written into a packet. The channel keeps it until the packet is acked or lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SentTransferFrame {
    /// A `Begin`.
    Begin(TransferId),
    /// A `Slice` frame with consecutive slices.
    Slices {
        /// The transfer.
        transfer: TransferId,
        /// The number of the first slice.
        first: u32,
        /// The number of slices.
        count: u16,
    },
    /// A `Withdraw`.
    Withdraw(TransferId),
    /// An `Accept` for the slices from `first` to the one before `end`.
    Accept {
        /// The transfer.
        transfer: TransferId,
        /// The first slice.
        first: u32,
        /// One past the last slice.
        end: u32,
    },
    /// A `Done` or a `Refuse`.
    Close(TransferId),
}

/// The delivery state of a frame that must arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ControlState {
    /// The frame must be written.
    Queued,
    /// The frame is in flight.
    InFlight,
    /// The frame was acked.
    Acked,
}

impl ControlState {
    /// Handles the loss of a packet with the frame. A copy in another packet may have arrived.
    fn on_lost(&mut self) {
        if *self == Self::InFlight {
            *self = Self::Queued;
        }
    }
}

/// The effect of a received frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reception {
    /// The frame changed the state.
    New,
    /// The frame is a duplicate or too late. Nothing changed.
    Ignored,
}

/// The default bytes of a slice: seven fill a packet of 1,186 or 1,200 bytes, three one of 508 or 548, and one fits
/// into the smallest packet that congestion avoidance grants, of 256 bytes on the path.
const SLICE_BYTES: u16 = 160;

/// The settings of transfers, for both directions.
///
/// # Examples
/// ```
/// use slipgate_session::channel::transfer::{TransferAdmission, TransferConfig};
/// use slipgate_session::channel::{Channel, Layout};
///
/// // Replays of at most 4 MiB, which the program accepts or refuses one by one.
/// let mut replays = Channel::transfers("replays");
/// replays.transfers =
///     TransferConfig { max_transfer_bytes: 4 << 20, admission: TransferAdmission::Ask, ..TransferConfig::default() };
/// let mut layout = Layout::builder();
/// layout.add(replays);
/// assert!(layout.build().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct TransferConfig {
    /// Bytes of each slice that this end sends, 128 to 1,152; 160 by default. One frame carries as many slices as fit
    /// into the packet. A larger slice waits while more urgent messages use all that a thin path carries. A slice that
    /// does not fit into the payloads of the peer is sent in larger ones all the same: where peers have different
    /// payload sizes, choose slices for the smallest.
    pub slice_bytes: u16,
    /// The largest transfer that this end accepts, 64 MiB by default.
    pub max_transfer_bytes: u32,
    /// How many transfers are in progress at once in each direction, 1 to 64; 4 by default. Both ends must have the
    /// same value: the sender respects its own, and the receiver refuses transfers beyond its own.
    pub max_at_once: u8,
    /// The maximum bytes of all transfers that are received at once, by their announced lengths; 128 MiB by default. A
    /// transfer beyond it waits until others are complete.
    pub max_bytes_at_once: u64,
    /// How many transfers may wait to be sent, 64 by default.
    pub max_waiting: usize,
    /// Whether transfers within these limits are accepted.
    pub admission: TransferAdmission,
}

/// Whether a transfer that the peer offers is accepted, if it is within the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransferAdmission {
    /// Accept transfers of a server, refuse those of a client. This is the default, so that no client uploads unasked.
    #[default]
    FromServer,
    /// Accept all transfers. A server that accepts uploads should also lower
    /// [`max_transfer_bytes`](TransferConfig::max_transfer_bytes).
    Automatic,
    /// Refuse all transfers.
    Never,
    /// Ask the application with [`TransferEvent::Offered`], which accepts or refuses at any later time.
    Ask,
}

impl Default for TransferConfig {
    fn default() -> Self {
        Self::standard()
    }
}

impl TransferConfig {
    /// Returns the defaults.
    pub(crate) const fn standard() -> Self {
        Self {
            slice_bytes: SLICE_BYTES,
            max_transfer_bytes: MAX_TRANSFER_BYTES,
            max_at_once: 4,
            max_bytes_at_once: 2 * MAX_TRANSFER_BYTES as u64,
            max_waiting: 64,
            admission: TransferAdmission::FromServer,
        }
    }

    /// Returns the settings for a server's end of the channel.
    pub(crate) fn for_server(self) -> Self {
        let admission = match self.admission {
            TransferAdmission::FromServer => TransferAdmission::Never,
            other => other,
        };
        Self { admission, ..self }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// - `SliceBytes`: `slice_bytes` is not within 128 to 1,152.
    /// - `TransferBytes`: `max_transfer_bytes` exceeds 64 MiB or `max_bytes_at_once`.
    /// - `AtOnce`: `max_at_once` is not within 1 to 64.
    pub(crate) fn check(&self) -> Result<(), TransferConfigError> {
        if !(MIN_SLICE_BYTES..=MAX_SLICE_BYTES).contains(&self.slice_bytes) {
            return Err(TransferConfigError::SliceBytes);
        }
        if self.max_transfer_bytes > MAX_TRANSFER_BYTES || self.max_bytes_at_once < self.max_transfer_bytes.into() {
            return Err(TransferConfigError::TransferBytes);
        }
        if !(1..=64).contains(&self.max_at_once) {
            return Err(TransferConfigError::AtOnce);
        }
        Ok(())
    }
}

/// A setting of transfers that is out of its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TransferConfigError {
    /// `slice_bytes` is not within 128 to 1,152.
    SliceBytes,
    /// `max_transfer_bytes` exceeds 64 MiB or `max_bytes_at_once`.
    TransferBytes,
    /// `max_at_once` is not within 1 to 64.
    AtOnce,
}

impl fmt::Display for TransferConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SliceBytes => "slice_bytes must be within 128 to 1,152",
            Self::TransferBytes => "max_transfer_bytes must not exceed 64 MiB or max_bytes_at_once",
            Self::AtOnce => "max_at_once must be within 1 to 64",
        })
    }
}

impl core::error::Error for TransferConfigError {}

/// A transfer that the peer offers.
///
/// # Examples
/// ```
/// use slipgate_session::channel::transfer::{TransferEvent, Transfers};
///
/// /// Accepts maps, which have label 7, and refuses the rest.
/// fn decide(transfers: &mut Transfers, event: &TransferEvent) {
///     match event {
///         TransferEvent::Offered(offer) if offer.label == 7 => _ = transfers.accept(offer.id),
///         TransferEvent::Offered(offer) => _ = transfers.refuse(offer.id),
///         _ => {}
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferOffer {
    /// The transfer.
    pub id: TransferId,
    /// The peer's label for it.
    pub label: u64,
    /// The bytes of its content.
    pub length: u32,
    /// The digest of its content as announced. It is verified before the content is delivered.
    pub digest: ContentDigest,
}

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TransferSide {
    /// This end.
    Us,
    /// The other end.
    Peer,
}

/// Frames of transfers that no conforming peer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum TransferViolation {
    /// The frame has no known type, is truncated or too long, or is not in canonical form.
    Malformed,
    /// The transfer is larger than [`MAX_TRANSFER_BYTES`].
    TransferTooLong,
    /// The slices are smaller than [`MIN_SLICE_BYTES`] or larger than [`MAX_SLICE_BYTES`].
    SliceBytes,
    /// A second `Begin` of a transfer differs from the first.
    BeginDiffers,
    /// A slice of a transfer that was never started or not accepted.
    NotAccepted,
    /// A slice number that is not below the number of slices.
    SliceIndex,
    /// Slices of a length that does not follow from the announcement.
    SliceLength,
    /// A reply to a transfer that was never started.
    NeverStarted,
    /// An `Accept` of slices that the transfer does not have.
    Range,
}

impl fmt::Display for TransferViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a transfer frame is malformed",
            Self::TransferTooLong => "a transfer is larger than 64 MiB",
            Self::SliceBytes => "slices are smaller than 128 or larger than 1,152 bytes",
            Self::BeginDiffers => "a transfer was started twice with different announcements",
            Self::NotAccepted => "a slice belongs to a transfer that was not accepted",
            Self::SliceIndex => "a slice lies beyond the end of its transfer",
            Self::SliceLength => "a slice has another length than announced",
            Self::NeverStarted => "a reply refers to a transfer that was never started",
            Self::Range => "a reply refers to slices that the transfer does not have",
        })
    }
}

impl core::error::Error for TransferViolation {}

/// How many transfer ids are remembered (§4.1). A sender begins no transfer this far ahead of its oldest one in
/// progress.
pub(super) const WINDOW: u16 = 1024;

/// Why a transfer was refused or aborted (§4.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum TransferReason {
    /// The application cancelled it.
    Cancelled,
    /// The application declined it.
    Declined,
    /// The transfer is larger than the receiver allows.
    TooLarge,
    /// More transfers are in progress than the receiver allows.
    Busy,
    /// The receiver has no memory for it.
    NoMemory,
    /// All bytes arrived, and their digest is not the announced one.
    WrongDigest,
    /// A reason of a later version.
    Other(u8),
}

impl TransferReason {
    const fn code(self) -> u8 {
        match self {
            Self::Cancelled => 0,
            Self::Declined => 1,
            Self::TooLarge => 2,
            Self::Busy => 3,
            Self::NoMemory => 4,
            Self::WrongDigest => 5,
            Self::Other(code) => code,
        }
    }

    const fn of(code: u8) -> Self {
        match code {
            0 => Self::Cancelled,
            1 => Self::Declined,
            2 => Self::TooLarge,
            3 => Self::Busy,
            4 => Self::NoMemory,
            5 => Self::WrongDigest,
            code => Self::Other(code),
        }
    }
}

#[cfg(test)]
mod tests;
