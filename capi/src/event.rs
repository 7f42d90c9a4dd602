//! Events of a client or server, as one structure.

use std::ptr;

use slipgate_session::channel::transfer::{PartialTransfer, TransferEvent, TransferReason, TransferSide};
use slipgate_session::channel::{ChannelEvent, ChannelId, DeliveryStatus};
use slipgate_session::connection::CloseReason;
use slipgate_session::reliability::PacketEvent;

use crate::event_kinds::*;
use crate::path::{SLIPGATE_BY_LOCAL, SLIPGATE_BY_REMOTE, close_code, close_kind, closed_by};

/// Something that happened since the last event. The meaning of the fields depends on `kind`; others are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CEvent {
    /// `SLIPGATE_CONNECTED` to `SLIPGATE_REDIRECTED`. Ignore unknown ones: later versions have more.
    pub kind: u32,
    /// The channel.
    pub channel: u32,
    /// A status, a kind or a reason, see the kinds of events.
    pub reason: i32,
    /// `SLIPGATE_BY_LOCAL`, `SLIPGATE_BY_REMOTE` or `SLIPGATE_BY_NETCODE`.
    pub by: u32,
    /// The client at a server; 0 at a client.
    pub client: u64,
    /// A sequence number, an id or a tag, see the kinds of events.
    pub number: u64,
    /// The label of a transfer, and more, see the kinds of events.
    pub label: u64,
    /// The bytes of a transfer.
    pub size: u64,
    /// The content, lent until the next event or turn of this object; null if there is none.
    pub bytes: *const u8,
    /// The bytes of the content.
    pub length: usize,
}

/// An event before it is written where the program wants it. Data has few fields, which stay in registers.
#[derive(Clone, Copy)]
pub(crate) enum TakenEvent {
    /// Bytes that the peer has sent.
    Data { kind: u32, channel: u32, client: u64, number: u64, bytes: *const u8, length: usize },
    /// An event of another kind.
    Other(CEvent),
}

impl TakenEvent {
    #[inline]
    pub(crate) const fn data(kind: u32, client: u64, number: u64, bytes: &[u8]) -> Self {
        Self::Data { kind, channel: 0, client, number, bytes: bytes.as_ptr(), length: bytes.len() }
    }

    #[inline]
    pub(crate) const fn message(client: u64, channel: ChannelId, bytes: &[u8]) -> Self {
        let (kind, channel) = (SLIPGATE_MESSAGE, channel.0 as u32);
        Self::Data { kind, channel, client, number: 0, bytes: bytes.as_ptr(), length: bytes.len() }
    }

    #[inline]
    pub(crate) const fn content(&self) -> (*const u8, usize) {
        match self {
            Self::Data { bytes, length, .. } | Self::Other(CEvent { bytes, length, .. }) => (*bytes, *length),
        }
    }
}

impl From<TakenEvent> for CEvent {
    #[inline]
    fn from(event: TakenEvent) -> Self {
        match event {
            TakenEvent::Data { kind, channel, client, number, bytes, length } => {
                Self { channel, client, number, bytes, length, ..Self::new(kind) }
            }
            TakenEvent::Other(event) => event,
        }
    }
}

impl CEvent {
    pub(crate) const fn new(kind: u32) -> Self {
        let (channel, reason, by, client, number, label, size) = (0, 0, 0, 0, 0, 0, 0);
        Self { kind, channel, reason, by, client, number, label, size, bytes: ptr::null(), length: 0 }
    }

    /// Lends bytes, which must outlive the event: they lie in the inbox or in the object.
    pub(crate) const fn lend(mut self, bytes: &[u8]) -> Self {
        (self.bytes, self.length) = (bytes.as_ptr(), bytes.len());
        self
    }

    pub(crate) fn on(self, channel: ChannelId) -> Self {
        Self { channel: channel.0.into(), ..self }
    }

    pub(crate) const fn number(self, number: u64) -> Self {
        Self { number, ..self }
    }

    #[cfg(feature = "server")]
    pub(crate) const fn of_client(self, client: u64) -> Self {
        Self { client, ..self }
    }

    /// Describes a change of a packet that this side sent.
    pub(crate) fn of_packet(event: PacketEvent) -> Self {
        match event {
            PacketEvent::Acked { sequence, rtt } => {
                let label = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX);
                Self { number: sequence.0.into(), label, ..Self::new(SLIPGATE_PACKET_ACKED) }
            }
            PacketEvent::Lost { sequence } => Self::new(SLIPGATE_PACKET_LOST).number(sequence.0.into()),
        }
    }

    /// Describes an event of channels. The content of a transfer goes into `held`.
    pub(crate) fn of_channel(event: ChannelEvent, held: &mut Vec<u8>) -> Self {
        match event {
            ChannelEvent::Transfer { channel, event } => Self::of_transfer(event, held).on(channel),
            ChannelEvent::Receipt { channel, tag, status } => {
                Self { reason: status_of(status), number: tag, ..Self::new(SLIPGATE_RECEIPT) }.on(channel)
            }
            // A kind of a later version.
            _ => Self::new(0),
        }
    }

    fn of_transfer(event: TransferEvent, held: &mut Vec<u8>) -> Self {
        match event {
            TransferEvent::Offered(offer) => Self {
                number: offer.id.0.into(),
                label: offer.label,
                size: offer.length.into(),
                ..Self::new(SLIPGATE_TRANSFER_OFFERED)
            },
            TransferEvent::Received { id, label, content } => {
                *held = content.into_vec();
                let size = held.len() as u64;
                Self { number: id.0.into(), label, size, ..Self::new(SLIPGATE_TRANSFER_RECEIVED) }.lend(held)
            }
            TransferEvent::Broken { id, label, by, reason, .. } => {
                let by = if by == TransferSide::Us { SLIPGATE_BY_LOCAL } else { SLIPGATE_BY_REMOTE };
                let reason = reason_of(reason);
                Self { number: id.0.into(), label, by, reason, ..Self::new(SLIPGATE_TRANSFER_BROKEN) }
            }
            TransferEvent::Delivered { id } => Self::new(SLIPGATE_TRANSFER_DELIVERED).number(id.0.into()),
            TransferEvent::Refused { id, reason } => {
                Self { number: id.0.into(), reason: reason_of(reason), ..Self::new(SLIPGATE_TRANSFER_REFUSED) }
            }
        }
    }

    /// Describes the received part of a transfer at the end of its connection.
    pub(crate) fn of_partial(channel: ChannelId, partial: &PartialTransfer) -> Self {
        Self { size: partial.progress().bytes.into(), ..Self::new(SLIPGATE_TRANSFER_KEPT) }.on(channel)
    }

    /// Describes the end of a connection, without its text.
    pub(crate) fn of_end(reason: &CloseReason) -> Self {
        Self {
            reason: close_kind(reason.kind),
            by: closed_by(reason.by),
            label: close_code(reason).into(),
            ..Self::new(SLIPGATE_ENDED)
        }
    }
}

const fn status_of(status: DeliveryStatus) -> i32 {
    match status {
        DeliveryStatus::Arrived => SLIPGATE_ARRIVED,
        DeliveryStatus::Expired => SLIPGATE_EXPIRED,
        DeliveryStatus::Superseded => SLIPGATE_SUPERSEDED,
        DeliveryStatus::ArrivedLate => SLIPGATE_ARRIVED_LATE,
        _ => SLIPGATE_LOST,
    }
}

const fn reason_of(reason: TransferReason) -> i32 {
    match reason {
        TransferReason::Cancelled => SLIPGATE_TRANSFER_REASON_CANCELLED,
        TransferReason::Declined => SLIPGATE_TRANSFER_REASON_DECLINED,
        TransferReason::TooLarge => SLIPGATE_TRANSFER_REASON_TOO_LARGE,
        TransferReason::Busy => SLIPGATE_TRANSFER_REASON_BUSY,
        TransferReason::NoMemory => SLIPGATE_TRANSFER_REASON_NO_MEMORY,
        TransferReason::WrongDigest => SLIPGATE_TRANSFER_REASON_WRONG_DIGEST,
        TransferReason::Other(code) => code as i32,
    }
}
