//! The game client.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::time::Duration;

use slipgate_client::packets::Sequence;
use slipgate_client::transfer::PartialTransfer;
use slipgate_client::{ChannelId, Client, Clock, CloseCode, ConnectError, ConnectToken, Event, Inbox};

use crate::boundary::{Guarded, free, put, run, some};
use crate::event::{CEvent, TakenEvent};
use crate::event_batch::EventCopies;
use crate::event_kinds::{SLIPGATE_CONNECTED, SLIPGATE_PACKET, SLIPGATE_PAYLOAD, SLIPGATE_REDIRECTED};
use crate::path::{CBudget, CCloseReason, CPath, CRemaining, close_code, close_kind, closed_by};
use crate::pointer;
use crate::send::{COutgoingMessage, CSendOptions, read_options, send_each};
use crate::status::{
    Outcome, SLIPGATE_DONE, SLIPGATE_ERROR_ARGUMENT, SLIPGATE_ERROR_BUSY, SLIPGATE_ERROR_GONE, SLIPGATE_ERROR_IO,
    SLIPGATE_ERROR_NO_SERVER, SLIPGATE_ERROR_PANIC, SLIPGATE_ERROR_TOKEN, SLIPGATE_ERROR_TOKEN_USED,
    SLIPGATE_ERROR_WRONG_TRAFFIC, SLIPGATE_NONE, sent,
};
use crate::traffic::{CTraffic, SettingError, read_traffic};
use crate::transfer::{CTransfer, TransferAction};

/// The maximum of partial transfers that wait for the next connection.
const MAX_KEPT: usize = 64;

/// A client: its sockets, its inbox, and what it lends to the game.
pub struct CClient(Guarded<ClientObject>);

struct ClientObject {
    client: Client,
    inbox: Inbox,
    clock: Clock,
    /// The content or text of the last event, if it does not lie in the inbox.
    held: Vec<u8>,
    /// The content of the last events, if several were taken at once.
    copies: EventCopies,
    /// The sentence of the last close reason.
    sentence: String,
    /// Received parts of transfers, for the next connection.
    kept: Vec<(ChannelId, PartialTransfer)>,
}

/// Runs a body with the client.
#[inline]
fn with(client: Option<&mut CClient>, body: impl FnOnce(&mut ClientObject) -> Outcome) -> i32 {
    client.map_or(SLIPGATE_ERROR_ARGUMENT, |client| client.0.run(body))
}

/// Creates a client that is not connected. `traffic` may be null. The text of an error is written to `error`, which may
/// be null, with a zero at its end.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_new(
    traffic: Option<&CTraffic>,
    out: Option<&mut *mut CClient>,
    error: *mut c_char,
    error_capacity: usize,
) -> i32 {
    run(|| {
        let out = some(out)?;
        *out = pointer::none();
        match create(traffic) {
            Ok(client) => *out = pointer::give(client),
            Err(reason) => return reason.report(error, error_capacity),
        }
        Ok(SLIPGATE_DONE)
    })
}

fn create(traffic: Option<&CTraffic>) -> Result<CClient, SettingError> {
    let traffic = read_traffic(traffic)?;
    let client =
        Client::new().map_err(SettingError::io("socket"))?.with_traffic(traffic).map_err(SettingError::config)?;
    let (inbox, clock) = (Inbox::default(), Clock::start());
    let (held, copies, sentence, kept) = (Vec::new(), EventCopies::default(), String::new(), Vec::new());
    Ok(CClient(Guarded::new(ClientObject { client, inbox, clock, held, copies, sentence, kept })))
}

/// Disconnects and frees a client. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_free(client: *mut CClient) {
    free(client);
}

/// Starts to connect with a connect token of 2048 bytes, to the first of its servers that has a free slot.
///
/// Errors: `TOKEN` if the bytes are no token, `TOKEN_USED` if this program has used it before, `NO_SERVER` if it lists
/// no address that this machine can reach, `BUSY` if the client is connecting or connected.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_connect(client: Option<&mut CClient>, token: *const u8, length: usize) -> i32 {
    with(client, |client| {
        let token = ConnectToken::from_bytes(pointer::bytes(token, length)?).map_err(|_| SLIPGATE_ERROR_TOKEN)?;
        let connected = client.client.connect(token, client.clock.now());
        connected.map(|()| SLIPGATE_DONE).map_err(|error| match error {
            ConnectError::TokenUsed => SLIPGATE_ERROR_TOKEN_USED,
            ConnectError::NoServer => SLIPGATE_ERROR_NO_SERVER,
            ConnectError::Busy => SLIPGATE_ERROR_BUSY,
            // Connections within a program, which C has none of, carry payloads only.
            _ => SLIPGATE_ERROR_WRONG_TRAFFIC,
        })
    })
}

/// Disconnects at once. The disconnect packets leave at the end of the turn.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_disconnect(client: Option<&mut CClient>) -> i32 {
    with(client, |client| {
        client.client.disconnect();
        Ok(SLIPGATE_DONE)
    })
}

/// Leaves with a code for the server's program, from 256 on, and a text of up to 256 bytes for people. Other codes
/// count as 0, and a longer text is cut. Continue with turns until the event `SLIPGATE_ENDED`, for at most a second.
///
/// Errors: `ARGUMENT` if the text is not UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_leave(
    client: Option<&mut CClient>,
    code: u16,
    text: *const c_char,
    length: usize,
) -> i32 {
    with(client, |client| {
        client.client.leave(CloseCode(code), pointer::text(text, length)?);
        Ok(SLIPGATE_DONE)
    })
}

/// Begins a turn. A turn is this call, events, sends, and `slipgate_client_end_turn`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_begin_turn(client: Option<&mut CClient>) -> i32 {
    with(client, |client| {
        client.client.begin_turn(client.clock.now());
        Ok(SLIPGATE_DONE)
    })
}

/// Ends a turn: runs timers and sends what is due.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_end_turn(client: Option<&mut CClient>) -> i32 {
    with(client, |client| {
        client.client.end_turn();
        Ok(SLIPGATE_DONE)
    })
}

/// Sends what is due without ending the turn. A loop that wakes on every datagram calls it on arrival, and
/// `slipgate_client_end_turn` once per tick.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_flush(client: Option<&mut CClient>) -> i32 {
    with(client, |client| {
        client.client.flush();
        Ok(SLIPGATE_DONE)
    })
}

/// Sleeps until a datagram arrives, a timer is due, or the time in microseconds is over. Games that draw frames need
/// no such call.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_wait(client: Option<&mut CClient>, microseconds: u32) -> i32 {
    with(client, |client| {
        let waited = client.client.wait(Duration::from_micros(microseconds.into()));
        waited.map(|()| SLIPGATE_DONE).map_err(|_| SLIPGATE_ERROR_IO)
    })
}

/// Takes the next event of this turn. `SLIPGATE_NONE` if there is none, and then the event is unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_next_event(
    client: Option<&mut CClient>,
    event: Option<&mut MaybeUninit<CEvent>>,
) -> i32 {
    with(client, |client| {
        let out = some(event)?;
        let Some(event) = client.next() else { return Ok(SLIPGATE_NONE) };
        out.write(event.into());
        Ok(SLIPGATE_DONE)
    })
}

/// Takes up to `capacity` events of this turn, at least 1, and writes their number to `count`: fewer calls for a game
/// that receives many messages. Continue until `SLIPGATE_NONE`, then `count` is 0. The bytes of all of them are lent
/// until the next call of this function, of `slipgate_client_next_event` or `slipgate_client_free`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_next_events(
    client: Option<&mut CClient>,
    events: *mut CEvent,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> i32 {
    with(client, |client| {
        let (events, count) = (pointer::buf(events, capacity)?, some(count)?);
        if events.is_empty() {
            return Err(SLIPGATE_ERROR_ARGUMENT);
        }
        let mut copies = std::mem::take(&mut client.copies);
        let filled = copies.fill(events, || client.next());
        client.copies = copies;
        count.write(filled);
        Ok(if filled > 0 { SLIPGATE_DONE } else { SLIPGATE_NONE })
    })
}

impl ClientObject {
    /// Returns the next event. Both callers get a copy of the common kinds: a call for each event takes longer than
    /// the rest.
    #[inline(always)]
    fn next(&mut self) -> Option<TakenEvent> {
        let Self { client, inbox, held, kept, .. } = self;
        Some(match inbox.next(client) {
            None => return None,
            Some(Event::Message { channel, bytes, .. }) => TakenEvent::message(0, channel, bytes),
            Some(Event::Payload { sequence, bytes, .. }) => TakenEvent::data(SLIPGATE_PAYLOAD, 0, sequence.0, bytes),
            Some(Event::Packet { sequence, bytes, .. }) => {
                TakenEvent::data(SLIPGATE_PACKET, 0, sequence.0.into(), bytes)
            }
            Some(other) => TakenEvent::Other(without_data(other, client, held, kept)),
        })
    }
}

/// Returns an event that carries no data of the server.
#[inline(never)]
fn without_data(
    event: Event<'_>,
    client: &mut Client,
    held: &mut Vec<u8>,
    kept: &mut Vec<(ChannelId, PartialTransfer)>,
) -> CEvent {
    match event {
        Event::Connected { client_index, max_clients } => {
            resume(client, kept);
            let label = max_clients.into();
            CEvent { label, ..CEvent::new(SLIPGATE_CONNECTED) }.number(client_index.0.into())
        }
        Event::Sent(event) => CEvent::of_packet(event),
        Event::Channel(event) => CEvent::of_channel(event, held),
        Event::Partial { channel, partial } => {
            let event = CEvent::of_partial(channel, &partial);
            if kept.len() < MAX_KEPT {
                kept.push((channel, partial));
            }
            event
        }
        Event::Ended { reason } => {
            *held = reason.to_string().into_bytes();
            CEvent::of_end(&reason).lend(held)
        }
        Event::Redirected { reason } => {
            *held = reason.to_string().into_bytes();
            CEvent { kind: SLIPGATE_REDIRECTED, ..CEvent::of_end(&reason) }.lend(held)
        }
        // An event of a later version.
        _ => CEvent::new(0),
    }
}

/// Gives a new connection the received parts of transfers of the last one.
fn resume(client: &mut Client, kept: &mut Vec<(ChannelId, PartialTransfer)>) {
    for (channel, partial) in kept.drain(..) {
        let connection = client.connection_mut();
        if let Some(transfers) = connection.and_then(|connection| connection.channels.transfers_mut(channel)) {
            // If no place is left for it, the whole content is sent again.
            drop(transfers.keep(partial));
        }
    }
}

/// Encrypts a payload of 1 to 1200 bytes for the server, with `SLIPGATE_PAYLOADS`.
///
/// Errors: `GONE`, `EMPTY`, `TOO_LARGE`, `WRONG_TRAFFIC`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_send(client: Option<&mut CClient>, bytes: *const u8, length: usize) -> i32 {
    with(client, |client| sent(client.client.send(pointer::bytes(bytes, length)?)).map(|()| SLIPGATE_DONE))
}

/// Sends an acknowledged packet of 1 byte to 16 KiB, with `SLIPGATE_PACKETS`. `sequence` receives its number and may be
/// null.
///
/// Errors: `GONE`, `EMPTY`, `TOO_LARGE`, `BACKLOGGED`, `WRONG_TRAFFIC`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_send_packet(
    client: Option<&mut CClient>,
    bytes: *const u8,
    length: usize,
    sequence: Option<&mut MaybeUninit<u16>>,
) -> i32 {
    with(client, |client| {
        let Sequence(number) = sent(client.client.send_packet(pointer::bytes(bytes, length)?))?;
        put(sequence, number);
        Ok(SLIPGATE_DONE)
    })
}

/// Queues a message on a channel, with `SLIPGATE_CHANNELS`. The bytes are copied. `options` may be null.
///
/// Errors: `GONE`, `TOO_LARGE`, `BACKLOGGED`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_send_message(
    client: Option<&mut CClient>,
    channel: u8,
    bytes: *const u8,
    length: usize,
    options: Option<&CSendOptions>,
) -> i32 {
    with(client, |client| {
        let message = pointer::bytes(bytes, length)?;
        send_message(client, ChannelId(channel), message, options).map(|()| SLIPGATE_DONE)
    })
}

/// Queues several messages in their order, like `slipgate_client_send_message`: one call for a game that sends many.
/// Each has its `status` afterwards; a refused one does not stop the ones behind it. On an ordered channel they arrive
/// without it.
///
/// Errors: `ARGUMENT` for null messages, otherwise the status of the first refused message.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_send_messages(
    client: Option<&mut CClient>,
    messages: *mut COutgoingMessage,
    count: usize,
) -> i32 {
    with(client, |client| {
        send_each(messages, count, |_, channel, message, options| send_message(client, channel, message, options))
    })
}

#[inline]
fn send_message(
    ClientObject { client, .. }: &mut ClientObject,
    channel: ChannelId,
    message: &[u8],
    options: Option<&CSendOptions>,
) -> Result<(), i32> {
    sent(match options {
        None => client.send_message(channel, message),
        options => client.send_message_with(channel, message, read_options(options)?),
    })
}

/// Starts a transfer on a channel of transfers. The server receives `label` with it. `id` may be null.
///
/// Errors: `GONE`, `BACKLOGGED`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_send_transfer(
    client: Option<&mut CClient>,
    channel: u8,
    transfer: Option<&CTransfer>,
    label: u64,
    id: Option<&mut MaybeUninit<u32>>,
) -> i32 {
    with(client, |client| {
        let transfer = some(transfer)?.0.clone();
        put(id, sent(client.client.send_transfer(ChannelId(channel), transfer, label))?.0.into());
        Ok(SLIPGATE_DONE)
    })
}

fn on_transfer(client: Option<&mut CClient>, channel: u8, id: u32, action: TransferAction) -> i32 {
    with(client, |client| action.run(client.client.connection_mut().ok_or(SLIPGATE_ERROR_GONE)?, channel, id))
}

/// Accepts an offered transfer. `GONE` if there is no such offer.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_accept_transfer(client: Option<&mut CClient>, channel: u8, id: u32) -> i32 {
    on_transfer(client, channel, id, TransferAction::Accept)
}

/// Refuses an offered transfer, or cancels one that is being received.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_refuse_transfer(client: Option<&mut CClient>, channel: u8, id: u32) -> i32 {
    on_transfer(client, channel, id, TransferAction::Refuse)
}

/// Cancels a transfer that is being sent. `GONE` if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_cancel_transfer(client: Option<&mut CClient>, channel: u8, id: u32) -> i32 {
    on_transfer(client, channel, id, TransferAction::Cancel)
}

/// Returns the state in the numbers of netcode 1.02: -6 to -1 are errors, 0 disconnected, 1 and 2 connecting, 3
/// connected. -99 for null, and after a panic.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_state(client: Option<&mut CClient>) -> i32 {
    client.map_or(SLIPGATE_ERROR_PANIC, |client| client.0.run(|client| Ok(client.client.state() as i32)))
}

/// Returns a stable word for a state, such as "connected": a static string that ends with zero.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_state_name(state: i32) -> *const c_char {
    let name: &CStr = match state {
        -6 => c"connect_token_expired",
        -5 => c"invalid_connect_token",
        -4 => c"connection_timed_out",
        -3 => c"connection_response_timed_out",
        -2 => c"connection_request_timed_out",
        -1 => c"connection_denied",
        0 => c"disconnected",
        1 => c"sending_connection_request",
        2 => c"sending_connection_response",
        3 => c"connected",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// Writes the state of the path. `SLIPGATE_NONE` while not connected, and with `SLIPGATE_PAYLOADS`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_path(client: Option<&mut CClient>, path: Option<&mut MaybeUninit<CPath>>) -> i32 {
    with(client, |client| {
        let out = some(path)?;
        let Some(path) = client.client.path() else { return Ok(SLIPGATE_NONE) };
        out.write(path.into());
        Ok(SLIPGATE_DONE)
    })
}

/// Writes how much may leave now. `SLIPGATE_NONE` while not connected, and with `SLIPGATE_PAYLOADS`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_budget(
    client: Option<&mut CClient>,
    budget: Option<&mut MaybeUninit<CBudget>>,
) -> i32 {
    with(client, |client| {
        let out = some(budget)?;
        let Some(budget) = client.client.budget() else { return Ok(SLIPGATE_NONE) };
        out.write(budget.into());
        Ok(SLIPGATE_DONE)
    })
}

/// Writes what a channel still takes: nothing where there is no such channel. `SLIPGATE_NONE` while not connected.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_remaining(
    client: Option<&mut CClient>,
    channel: u8,
    remaining: Option<&mut MaybeUninit<CRemaining>>,
) -> i32 {
    with(client, |client| {
        let out = some(remaining)?;
        let Some(connection) = client.client.connection() else { return Ok(SLIPGATE_NONE) };
        out.write(connection.channels.remaining(ChannelId(channel)).into());
        Ok(SLIPGATE_DONE)
    })
}

/// Writes why the last attempt or connection ended, until the next one starts. `SLIPGATE_NONE` before. The sentence is
/// lent until the next call of this function.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_close_reason(
    client: Option<&mut CClient>,
    reason: Option<&mut MaybeUninit<CCloseReason>>,
) -> i32 {
    with(client, |client| {
        let out = some(reason)?;
        let Some(reason) = client.client.close_reason() else { return Ok(SLIPGATE_NONE) };
        client.sentence = reason.to_string();
        out.write(CCloseReason {
            kind: close_kind(reason.kind),
            by: closed_by(reason.by),
            code: close_code(reason),
            reserved: 0,
            text: client.sentence.as_ptr(),
            text_length: client.sentence.len(),
        });
        Ok(SLIPGATE_DONE)
    })
}

/// Writes the number of datagrams that were dropped for a reason, from index 0 on. `SLIPGATE_NONE` behind the last one.
/// `name` receives a static string that ends with zero; it and `count` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_client_discards(
    client: Option<&mut CClient>,
    index: u32,
    count: Option<&mut MaybeUninit<u64>>,
    name: Option<&mut MaybeUninit<*const c_char>>,
) -> i32 {
    with(client, |client| crate::discards::write(client.client.discards(), index, count, name))
}

/// Panics inside of the boundary, for the tests.
#[cfg(test)]
pub(crate) fn panic_inside(client: Option<&mut CClient>) -> i32 {
    with(client, |_| panic!("a panic of the test"))
}
