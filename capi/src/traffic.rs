//! What connections carry: payloads, packets, or messages on channels.

use std::borrow::Cow;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::transfer::{TransferAdmission, TransferConfig};
use slipgate_session::channel::{Channel, Kind, Layout};
use slipgate_session::connection::{ConnectionConfig, Traffic};

use crate::boundary::{run, some};
use crate::pointer;
use crate::status::{Outcome, SLIPGATE_DONE, SLIPGATE_ERROR_ARGUMENT, SLIPGATE_ERROR_CONFIG};

/// Plain payloads of 1 to 1200 bytes, for peers of plain netcode. The default.
pub const SLIPGATE_PAYLOADS: u32 = 0;
/// Acknowledged packets of 1 byte to 16 KiB, for peers of netcode and reliable 1.0.
pub const SLIPGATE_PACKETS: u32 = 1;
/// Messages on channels, and transfers.
pub const SLIPGATE_CHANNELS: u32 = 2;

/// Each message arrives once or not at all, in any order.
pub const SLIPGATE_UNRELIABLE: u32 = 0;
/// Each message arrives once or not at all, and never after a newer one.
pub const SLIPGATE_SEQUENCED: u32 = 1;
/// Every message arrives once, as soon as possible.
pub const SLIPGATE_RELIABLE_UNORDERED: u32 = 2;
/// Every message arrives once, in the order in which the messages were sent.
pub const SLIPGATE_RELIABLE_ORDERED: u32 = 3;
/// Transfers of up to 64 MiB arrive once and whole.
pub const SLIPGATE_TRANSFERS: u32 = 4;

/// A flag of a channel: only the newest message counts. Older ones of earlier turns are discarded when it waits.
pub const SLIPGATE_NEWEST_ONLY: u32 = 1;

/// Accept the transfers of a server, refuse those of a client. The default.
pub const SLIPGATE_ADMIT_FROM_SERVER: u32 = 0;
/// Accept all transfers within the limits.
pub const SLIPGATE_ADMIT_ALL: u32 = 1;
/// Refuse all transfers.
pub const SLIPGATE_ADMIT_NONE: u32 = 2;
/// Ask the game by an event `SLIPGATE_TRANSFER_OFFERED`.
pub const SLIPGATE_ADMIT_ASK: u32 = 3;

/// The settings of a channel; `slipgate_channel_init` sets the defaults of its kind. Both ends need the same channels
/// in the same order: name, kind, queue, `max_message_bytes` and `max_transfers_at_once` must be equal, and so must the
/// version of the traffic.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CChannel {
    /// The size of this structure, set by `slipgate_channel_init`.
    pub size: u32,
    /// `SLIPGATE_UNRELIABLE` to `SLIPGATE_TRANSFERS`.
    pub kind: u32,
    /// The name, at most 64 bytes and unique, ending with zero; null for none. It is copied with the layout.
    pub name: *const c_char,
    /// While a channel of a higher class has data to send, lower ones wait: 0 for transfers, 1 for messages by default.
    pub priority: u8,
    /// How many transfers are in progress at once, 1 to 64; 4 by default.
    pub max_transfers_at_once: u8,
    /// The share among the channels of the same class, at least 1.
    pub weight: u16,
    /// The maximum bytes of a message, 1 to 65,536; 16,384 by default.
    pub max_message_bytes: u32,
    /// The maximum bytes of messages that wait or are not acknowledged, up to 16 MiB; 65,536 by default.
    pub queue_bytes: u32,
    /// The maximum number of such messages, 1 to 16,384; 256 by default.
    pub queue_messages: u32,
    /// How long a message may wait to be sent, in milliseconds; 0 for as long as needed.
    pub deadline_ms: u32,
    /// `SLIPGATE_NEWEST_ONLY`, or 0.
    pub flags: u32,
    /// The maximum bytes of a transfer that this end accepts; 64 MiB by default.
    pub max_transfer_bytes: u32,
    /// `SLIPGATE_ADMIT_FROM_SERVER` to `SLIPGATE_ADMIT_ASK`.
    pub admission: u32,
}

/// What the connections of a client or server carry. A null pointer means payloads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CTraffic {
    /// The size of this structure: `sizeof(slipgate_traffic)`.
    pub size: u32,
    /// `SLIPGATE_PAYLOADS`, `SLIPGATE_PACKETS` or `SLIPGATE_CHANNELS`.
    pub kind: u32,
    /// The channels. Their indices, from 0, are their ids.
    pub channels: *const CChannel,
    /// The number of channels, at most 62.
    pub count: usize,
    /// The version of the game's messages. Clients with another one are refused. 0 for none.
    pub version: u32,
    /// The maximum payload of a datagram in bytes, 508 to 1,200; 0 for 1,200.
    pub max_payload_bytes: u32,
}

/// Sets the default settings of a kind of channel. `name` is not copied: it must live as long as `channel` is used.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_channel_init(
    channel: Option<&mut MaybeUninit<CChannel>>,
    kind: u32,
    name: *const c_char,
) -> i32 {
    run(|| {
        let defaults = Channel::from(kind_of(kind)?);
        some(channel)?.write(CChannel {
            size: size_of::<CChannel>() as u32,
            kind,
            name,
            priority: defaults.priority,
            max_transfers_at_once: defaults.transfers.max_at_once,
            weight: defaults.weight,
            max_message_bytes: defaults.max_message_bytes,
            queue_bytes: defaults.queue_bytes,
            queue_messages: defaults.queue_messages.into(),
            deadline_ms: defaults.deadline.map_or(0, |deadline| deadline.as_millis() as u32),
            flags: 0,
            max_transfer_bytes: defaults.transfers.max_transfer_bytes,
            admission: SLIPGATE_ADMIT_FROM_SERVER,
        });
        Ok(SLIPGATE_DONE)
    })
}

const fn kind_of(kind: u32) -> Result<Kind, i32> {
    Ok(match kind {
        SLIPGATE_UNRELIABLE => Kind::Unreliable,
        SLIPGATE_SEQUENCED => Kind::Sequenced,
        SLIPGATE_RELIABLE_UNORDERED => Kind::ReliableUnordered,
        SLIPGATE_RELIABLE_ORDERED => Kind::ReliableOrdered,
        SLIPGATE_TRANSFERS => Kind::Transfers,
        _ => return Err(SLIPGATE_ERROR_ARGUMENT),
    })
}

/// An error of a setting, with a text for the programmer.
pub(crate) struct SettingError {
    pub(crate) status: i32,
    pub(crate) text: String,
}

impl SettingError {
    pub(crate) fn config(error: impl std::fmt::Display) -> Self {
        Self { status: SLIPGATE_ERROR_CONFIG, text: error.to_string() }
    }

    /// Returns the error of a system call for a setting, which its text names.
    pub(crate) fn io<E: std::fmt::Display>(setting: &str) -> impl FnOnce(E) -> Self {
        let setting = setting.to_owned();
        move |error| Self { status: crate::status::SLIPGATE_ERROR_IO, text: format!("{setting}: {error}") }
    }

    pub(crate) fn argument(text: &str) -> impl FnOnce(i32) -> Self {
        let text = text.to_owned();
        |status| Self { status, text }
    }

    /// Writes the text for the caller, and returns the status.
    pub(crate) fn report(self, text: *mut c_char, capacity: usize) -> Outcome {
        pointer::write_text(&self.text, text, capacity);
        Err(self.status)
    }
}

/// Checks the size of a structure: a caller with another one was compiled with another header.
pub(crate) fn check_size<T>(size: u32, name: &str) -> Result<(), SettingError> {
    if size as usize == size_of::<T>() {
        return Ok(());
    }
    let text = format!("the size of {name} is {size}, but must be {}", size_of::<T>());
    Err(SettingError { status: SLIPGATE_ERROR_ARGUMENT, text })
}

/// Returns the traffic of a client or server.
pub(crate) fn read_traffic(traffic: Option<&CTraffic>) -> Result<Traffic, SettingError> {
    let Some(traffic) = traffic else { return Ok(Traffic::Payloads) };
    check_size::<CTraffic>(traffic.size, "slipgate_traffic")?;
    let mut config = ConnectionConfig::default();
    if traffic.max_payload_bytes > 0 {
        config.max_payload_bytes = traffic.max_payload_bytes as usize;
    }
    match traffic.kind {
        SLIPGATE_PAYLOADS => Ok(Traffic::Payloads),
        SLIPGATE_PACKETS => Ok(Traffic::Packets(config)),
        SLIPGATE_CHANNELS => Ok(Traffic::Channels(Arc::new(read_layout(traffic)?), config)),
        kind => Err(SettingError::argument(&format!("there is no traffic {kind}"))(SLIPGATE_ERROR_ARGUMENT)),
    }
}

fn read_layout(traffic: &CTraffic) -> Result<Layout, SettingError> {
    let channels =
        pointer::array(traffic.channels, traffic.count).map_err(SettingError::argument("channels is null"))?;
    let mut layout = Layout::builder();
    layout.version = traffic.version;
    for channel in channels {
        check_size::<CChannel>(channel.size, "slipgate_channel")?;
        layout.add(read_channel(channel).map_err(SettingError::argument("a channel has no such kind, name or flag"))?);
    }
    layout.build().map_err(SettingError::config)
}

fn read_channel(channel: &CChannel) -> Result<Channel, i32> {
    let name = pointer::c_text(channel.name)?.to_owned();
    let defaults = Channel::from(kind_of(channel.kind)?);
    let admission = match channel.admission {
        SLIPGATE_ADMIT_FROM_SERVER => TransferAdmission::FromServer,
        SLIPGATE_ADMIT_ALL => TransferAdmission::Automatic,
        SLIPGATE_ADMIT_NONE => TransferAdmission::Never,
        SLIPGATE_ADMIT_ASK => TransferAdmission::Ask,
        _ => return Err(SLIPGATE_ERROR_ARGUMENT),
    };
    if channel.flags & !SLIPGATE_NEWEST_ONLY != 0 {
        return Err(SLIPGATE_ERROR_ARGUMENT);
    }
    Ok(Channel {
        name: Cow::Owned(name),
        priority: channel.priority,
        weight: channel.weight,
        max_message_bytes: channel.max_message_bytes,
        queue_bytes: channel.queue_bytes,
        // A number beyond 16 bits is beyond the bounds, which the layout checks.
        queue_messages: u16::try_from(channel.queue_messages).unwrap_or(u16::MAX),
        deadline: (channel.deadline_ms > 0).then(|| Duration::from_millis(channel.deadline_ms.into())),
        newest_only: channel.flags & SLIPGATE_NEWEST_ONLY != 0,
        transfers: TransferConfig {
            max_transfer_bytes: channel.max_transfer_bytes,
            max_at_once: channel.max_transfers_at_once,
            admission,
            ..defaults.transfers
        },
        ..defaults
    })
}
