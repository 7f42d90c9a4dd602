//! The functions that concern one client of a server. A handle of a client that has left returns `SLIPGATE_ERROR_GONE`.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::net::IpAddr;

use slipgate_server::packets::Sequence;
use slipgate_server::{ChannelId, ClientRef, CloseCode};

use super::{CServer, ServerObject, handle_of, with};
use crate::boundary::{put, some};
use crate::path::{CBudget, CPath, CRemaining};
use crate::pointer;
use crate::send::{COutgoingMessage, CSendOptions, read_options, send_each};
use crate::status::{Outcome, SLIPGATE_DONE, SLIPGATE_ERROR_GONE, SLIPGATE_NONE, sent};
use crate::transfer::{CTransfer, TransferAction};

/// A client of a server.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CClientInfo {
    /// The client id of its token.
    pub client_id: u64,
    /// Its index, from 0; the client knows it by the same number.
    pub client_index: u32,
    /// 4 for IPv4, 6 for IPv6.
    pub address_family: u16,
    /// The port.
    pub port: u16,
    /// The address in network order: 4 bytes for IPv4, 16 for IPv6.
    pub address: [u8; 16],
    /// The time since it connected, in microseconds.
    pub connected_us: u64,
    /// The time since its last authentic packet, in microseconds.
    pub silent_us: u64,
    /// The bytes that were sent, with headers.
    pub bytes_sent: u64,
    /// The bytes that were received, with headers.
    pub bytes_received: u64,
    /// The 256 bytes that the backend wrote into its token.
    pub user_data: [u8; 256],
}

/// Runs a body with a client.
fn with_client(server: Option<&mut CServer>, client: u64, body: impl FnOnce(ClientRef<'_>) -> Outcome) -> i32 {
    with(server, |server| body(server.server.client(handle_of(client)).ok_or(SLIPGATE_ERROR_GONE)?))
}

/// Encrypts a payload of 1 to 1200 bytes for a client, with `SLIPGATE_PAYLOADS`.
///
/// Errors: `GONE`, `EMPTY`, `TOO_LARGE`, `WRONG_TRAFFIC`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_send(
    server: Option<&mut CServer>,
    client: u64,
    bytes: *const u8,
    length: usize,
) -> i32 {
    with_client(server, client, |mut client| sent(client.send(pointer::bytes(bytes, length)?)).map(|()| SLIPGATE_DONE))
}

/// Sends an acknowledged packet of 1 byte to 16 KiB, with `SLIPGATE_PACKETS`. `sequence` receives its number and may be
/// null.
///
/// Errors: `GONE`, `EMPTY`, `TOO_LARGE`, `BACKLOGGED`, `WRONG_TRAFFIC`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_send_packet(
    server: Option<&mut CServer>,
    client: u64,
    bytes: *const u8,
    length: usize,
    sequence: Option<&mut MaybeUninit<u16>>,
) -> i32 {
    with_client(server, client, |mut client| {
        let Sequence(number) = sent(client.send_packet(pointer::bytes(bytes, length)?))?;
        put(sequence, number);
        Ok(SLIPGATE_DONE)
    })
}

/// Queues a message on a client's channel, with `SLIPGATE_CHANNELS`. The bytes are copied. `options` may be null.
///
/// Errors: `GONE`, `TOO_LARGE`, `BACKLOGGED`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_send_message(
    server: Option<&mut CServer>,
    client: u64,
    channel: u8,
    bytes: *const u8,
    length: usize,
    options: Option<&CSendOptions>,
) -> i32 {
    with(server, |server| {
        let message = pointer::bytes(bytes, length)?;
        send_message(server, client, ChannelId(channel), message, options).map(|()| SLIPGATE_DONE)
    })
}

/// Queues several messages in their order, each to its `client`, like `slipgate_server_send_message`: one call for a
/// game that sends many. Each has its `status` afterwards; a refused one does not stop the ones behind it. On an
/// ordered channel they arrive without it.
///
/// Errors: `ARGUMENT` for null messages, otherwise the status of the first refused message.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_send_messages(
    server: Option<&mut CServer>,
    messages: *mut COutgoingMessage,
    count: usize,
) -> i32 {
    with(server, |server| {
        send_each(messages, count, |client, channel, message, options| {
            send_message(server, client, channel, message, options)
        })
    })
}

#[inline]
fn send_message(
    ServerObject { server, .. }: &mut ServerObject,
    client: u64,
    channel: ChannelId,
    message: &[u8],
    options: Option<&CSendOptions>,
) -> Result<(), i32> {
    sent(match options {
        None => server.send_message(handle_of(client), channel, message),
        options => {
            let mut client = server.client(handle_of(client)).ok_or(SLIPGATE_ERROR_GONE)?;
            client.send_message_with(channel, message, read_options(options)?)
        }
    })
}

/// Starts a transfer to a client. It receives `label` with it. `id` may be null.
///
/// Errors: `GONE`, `BACKLOGGED`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_send_transfer(
    server: Option<&mut CServer>,
    client: u64,
    channel: u8,
    transfer: Option<&CTransfer>,
    label: u64,
    id: Option<&mut MaybeUninit<u32>>,
) -> i32 {
    with_client(server, client, |mut client| {
        let transfer = some(transfer)?.0.clone();
        put(id, sent(client.send_transfer(ChannelId(channel), transfer, label))?.0.into());
        Ok(SLIPGATE_DONE)
    })
}

fn on_transfer(server: Option<&mut CServer>, client: u64, channel: u8, id: u32, action: TransferAction) -> i32 {
    with_client(server, client, |mut client| {
        action.run(client.connection_mut().ok_or(SLIPGATE_ERROR_GONE)?, channel, id)
    })
}

/// Accepts an offered transfer. `GONE` if there is no such offer.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_accept_transfer(
    server: Option<&mut CServer>,
    client: u64,
    channel: u8,
    id: u32,
) -> i32 {
    on_transfer(server, client, channel, id, TransferAction::Accept)
}

/// Refuses an offered transfer, or cancels one that is being received.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_refuse_transfer(
    server: Option<&mut CServer>,
    client: u64,
    channel: u8,
    id: u32,
) -> i32 {
    on_transfer(server, client, channel, id, TransferAction::Refuse)
}

/// Cancels a transfer that is being sent. `GONE` if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_cancel_transfer(
    server: Option<&mut CServer>,
    client: u64,
    channel: u8,
    id: u32,
) -> i32 {
    on_transfer(server, client, channel, id, TransferAction::Cancel)
}

/// Disconnects a client with a code for its program, from 256 on or 0, and a text of up to 256 bytes for the player.
/// Other codes count as 0, and a longer text is cut. Both are sent only with `SLIPGATE_CHANNELS`. The event
/// `SLIPGATE_ENDED` of the client follows.
///
/// Errors: `GONE`, `ARGUMENT` if the text is not UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_kick(
    server: Option<&mut CServer>,
    client: u64,
    code: u16,
    text: *const c_char,
    length: usize,
) -> i32 {
    with_client(server, client, |client| {
        sent(client.kick_with(CloseCode(code), pointer::text(text, length)?)).map(|()| SLIPGATE_DONE)
    })
}

/// Disconnects a client at once, without a text. It also frees the slot of a client that was kicked before.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_disconnect(server: Option<&mut CServer>, client: u64) -> i32 {
    with_client(server, client, |client| sent(client.disconnect()).map(|()| SLIPGATE_DONE))
}

/// Writes the address, ids and counters of a client.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_client_info(
    server: Option<&mut CServer>,
    client: u64,
    info: Option<&mut MaybeUninit<CClientInfo>>,
) -> i32 {
    with_client(server, client, |client| {
        some(info)?.write(info_of(&client));
        Ok(SLIPGATE_DONE)
    })
}

fn info_of(client: &ClientRef<'_>) -> CClientInfo {
    let (activity, mut address) = (client.activity(), [0; 16]);
    let (address_family, port) = client.address().map_or((0, 0), |from| match from.ip() {
        IpAddr::V4(ip) => {
            address.iter_mut().zip(ip.octets()).for_each(|(to, byte)| *to = byte);
            (4, from.port())
        }
        IpAddr::V6(ip) => {
            address = ip.octets();
            (6, from.port())
        }
    });
    let microseconds = |time: Option<std::time::Duration>| time.map_or(0, |time| time.as_micros() as u64);
    CClientInfo {
        client_id: client.client_id().0,
        client_index: client.client_index().0,
        address_family,
        port,
        address,
        connected_us: microseconds(activity.connected),
        silent_us: microseconds(activity.silent),
        bytes_sent: activity.bytes_sent,
        bytes_received: activity.bytes_received,
        user_data: client.user_data(),
    }
}

/// Writes the state of a client's path. `SLIPGATE_NONE` with `SLIPGATE_PAYLOADS`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_path(
    server: Option<&mut CServer>,
    client: u64,
    path: Option<&mut MaybeUninit<CPath>>,
) -> i32 {
    with_client(server, client, |client| {
        let out = some(path)?;
        let Some(path) = client.path() else { return Ok(SLIPGATE_NONE) };
        out.write(path.into());
        Ok(SLIPGATE_DONE)
    })
}

/// Writes how much may leave to a client now. `SLIPGATE_NONE` with `SLIPGATE_PAYLOADS`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_budget(
    server: Option<&mut CServer>,
    client: u64,
    budget: Option<&mut MaybeUninit<CBudget>>,
) -> i32 {
    with_client(server, client, |client| {
        let out = some(budget)?;
        let Some(budget) = client.budget() else { return Ok(SLIPGATE_NONE) };
        out.write(budget.into());
        Ok(SLIPGATE_DONE)
    })
}

/// Writes what a client's channel still takes: nothing where there is no such channel.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_remaining(
    server: Option<&mut CServer>,
    client: u64,
    channel: u8,
    remaining: Option<&mut MaybeUninit<CRemaining>>,
) -> i32 {
    with_client(server, client, |client| {
        some(remaining)?.write(client.remaining(ChannelId(channel)).into());
        Ok(SLIPGATE_DONE)
    })
}
