//! The game server: settings, the turn, events and what concerns all clients. `clients` has the rest.

mod clients;
mod config;

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use slipgate_server::congestion::BytesPerSecond;
use slipgate_server::{ChannelId, ClientHandle, Clock, Event, Inbox, Server};

pub use self::clients::*;
pub use self::config::*;

use crate::boundary::{Guarded, free, put, some};
use crate::event::{CEvent, TakenEvent};
use crate::event_batch::EventCopies;
use crate::event_kinds::{SLIPGATE_CONNECTED, SLIPGATE_PACKET, SLIPGATE_PAYLOAD};
use crate::pointer;
use crate::status::{
    Outcome, SLIPGATE_DONE, SLIPGATE_ERROR_ARGUMENT, SLIPGATE_ERROR_IO, SLIPGATE_ERROR_TOO_LARGE, SLIPGATE_NONE, sent,
};

/// The maximum that a channel may allow for a message, as the setting `max_message_bytes` says.
const MAX_MESSAGE_BYTES: usize = 65_536;

/// A server: its sockets, its inbox, and what it lends to the game.
pub struct CServer(Guarded<ServerObject>);

struct ServerObject {
    server: Server,
    inbox: Inbox,
    clock: Clock,
    /// The content or text of the last event, if it does not lie in the inbox.
    held: Vec<u8>,
    /// The content of the last events, if several were taken at once.
    copies: EventCopies,
}

/// Runs a body with the server.
#[inline]
fn with(server: Option<&mut CServer>, body: impl FnOnce(&mut ServerObject) -> Outcome) -> i32 {
    server.map_or(SLIPGATE_ERROR_ARGUMENT, |server| server.0.run(body))
}

/// Returns a handle as a number of C programs: never 0.
const fn number_of(client: ClientHandle) -> u64 {
    client.to_bits().wrapping_add(1)
}

/// Returns the handle of a number. An invented number is the handle of no client.
const fn handle_of(client: u64) -> ClientHandle {
    ClientHandle::from_bits(client.wrapping_sub(1))
}

/// Stops and frees a server: its clients learn of it. Null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_free(server: *mut CServer) {
    free(server);
}

/// Begins a turn. A turn is this call, events, sends, and `slipgate_server_end_turn`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_begin_turn(server: Option<&mut CServer>) -> i32 {
    with(server, |server| {
        server.server.begin_turn(server.clock.now());
        Ok(SLIPGATE_DONE)
    })
}

/// Ends a turn: runs timers, sends what is due, and counts timeouts.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_end_turn(server: Option<&mut CServer>) -> i32 {
    with(server, |server| {
        server.server.end_turn();
        Ok(SLIPGATE_DONE)
    })
}

/// Sends what is due without ending the turn. A loop that wakes on every datagram calls it on arrival, and
/// `slipgate_server_end_turn` once per tick.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_flush(server: Option<&mut CServer>) -> i32 {
    with(server, |server| {
        server.server.flush();
        Ok(SLIPGATE_DONE)
    })
}

/// Sleeps until a datagram arrives, the server is woken, or the time in microseconds is over.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_wait(server: Option<&mut CServer>, microseconds: u32) -> i32 {
    with(server, |server| {
        let waited = server.server.wait(Duration::from_micros(microseconds.into()));
        waited.map(|()| SLIPGATE_DONE).map_err(|_| SLIPGATE_ERROR_IO)
    })
}

/// Takes the next event of this turn. `SLIPGATE_NONE` if there is none, and then the event is unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_next_event(
    server: Option<&mut CServer>,
    event: Option<&mut MaybeUninit<CEvent>>,
) -> i32 {
    with(server, |server| {
        let out = some(event)?;
        let Some(event) = server.next() else { return Ok(SLIPGATE_NONE) };
        out.write(event.into());
        Ok(SLIPGATE_DONE)
    })
}

/// Takes up to `capacity` events of this turn, at least 1, and writes their number to `count`: fewer calls for a game
/// that receives many messages. Continue until `SLIPGATE_NONE`, then `count` is 0. The bytes of all of them are lent
/// until the next call of this function, of `slipgate_server_next_event` or `slipgate_server_free`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_next_events(
    server: Option<&mut CServer>,
    events: *mut CEvent,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> i32 {
    with(server, |server| {
        let (events, count) = (pointer::buf(events, capacity)?, some(count)?);
        if events.is_empty() {
            return Err(SLIPGATE_ERROR_ARGUMENT);
        }
        let mut copies = std::mem::take(&mut server.copies);
        let filled = copies.fill(events, || server.next());
        server.copies = copies;
        count.write(filled);
        Ok(if filled > 0 { SLIPGATE_DONE } else { SLIPGATE_NONE })
    })
}

impl ServerObject {
    /// Returns the next event. Both callers get a copy of the common kinds: a call for each event takes longer than
    /// the rest.
    #[inline(always)]
    fn next(&mut self) -> Option<TakenEvent> {
        let Self { server, inbox, held, .. } = self;
        Some(match inbox.next(server) {
            None => return None,
            Some(Event::Message { client, channel, bytes, .. }) => {
                TakenEvent::message(number_of(client), channel, bytes)
            }
            Some(Event::Payload { client, sequence, bytes, .. }) => {
                TakenEvent::data(SLIPGATE_PAYLOAD, number_of(client), sequence.0, bytes)
            }
            Some(Event::Packet { client, sequence, bytes, .. }) => {
                TakenEvent::data(SLIPGATE_PACKET, number_of(client), sequence.0.into(), bytes)
            }
            Some(other) => TakenEvent::Other(without_data(other, held)),
        })
    }
}

/// Returns an event that carries no data of a client.
#[inline(never)]
fn without_data(event: Event<'_>, held: &mut Vec<u8>) -> CEvent {
    let (client, event) = match event {
        Event::Connected { client, client_id } => (client, CEvent::new(SLIPGATE_CONNECTED).number(client_id.0)),
        Event::Sent { client, event } => (client, CEvent::of_packet(event)),
        Event::Channel { client, event } => (client, CEvent::of_channel(event, held)),
        // A server keeps no parts of uploads: its clients send them again.
        Event::Partial { client, channel, partial } => (client, CEvent::of_partial(channel, &partial)),
        Event::Disconnected { client, client_id, reason } => {
            *held = reason.text.clone().into_bytes();
            (client, CEvent::of_end(&reason).number(client_id.0).lend(held))
        }
        // An event of a later version, or of a server with shards.
        _ => return CEvent::new(0),
    };
    event.of_client(number_of(client))
}

/// Queues a message on this channel of every client, except `except` if it is not 0. `queued` and `refused` receive how
/// many clients get it and how many have a full queue; both may be null.
///
/// Errors: `TOO_LARGE`, `NO_CHANNEL`, `WRONG_KIND`, `WRONG_TRAFFIC`.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_broadcast(
    server: Option<&mut CServer>,
    channel: u8,
    except: u64,
    bytes: *const u8,
    length: usize,
    queued: Option<&mut MaybeUninit<u32>>,
    refused: Option<&mut MaybeUninit<u32>>,
) -> i32 {
    with(server, |server| {
        // The message is copied before its channel's limit is known.
        if length > MAX_MESSAGE_BYTES {
            return Err(SLIPGATE_ERROR_TOO_LARGE);
        }
        let (channel, message) = (ChannelId(channel), pointer::bytes(bytes, length)?);
        let report = sent(match except {
            0 => server.server.broadcast(channel, message),
            except => server.server.broadcast_except(channel, handle_of(except), message),
        })?;
        put(queued, report.queued);
        put(refused, report.refused);
        Ok(SLIPGATE_DONE)
    })
}

/// Disconnects every client with a text of up to 256 bytes for the players, and accepts no new ones. Continue with
/// turns until `slipgate_server_connected` is 0, for some seconds at most.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_stop(server: Option<&mut CServer>, text: *const c_char, length: usize) -> i32 {
    with(server, |server| {
        server.server.stop(pointer::text(text, length)?);
        Ok(SLIPGATE_DONE)
    })
}

/// Writes the handles of the connected clients in the order of their slots, at most `capacity`, and their number to
/// `count`. `TOO_LARGE` if there are more than `capacity`; `count` has the number then, too.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_clients(
    server: Option<&mut CServer>,
    clients: *mut u64,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> i32 {
    with(server, |server| {
        let (out, mut found) = (pointer::buf(clients, capacity)?, 0);
        for client in server.server.clients() {
            if let Some(out) = out.get_mut(found) {
                out.write(number_of(client));
            }
            found += 1;
        }
        put(count, found);
        if found > capacity { Err(SLIPGATE_ERROR_TOO_LARGE) } else { Ok(SLIPGATE_DONE) }
    })
}

/// Writes the number of used slots. A client that was kicked keeps its slot until it has acknowledged the reason.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_connected(server: Option<&mut CServer>, count: Option<&mut MaybeUninit<u32>>) -> i32 {
    with(server, |server| {
        some(count)?.write(server.server.connected_count());
        Ok(SLIPGATE_DONE)
    })
}

/// Writes the handle of a client id while it is connected. `SLIPGATE_NONE` if it is not.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_find(
    server: Option<&mut CServer>,
    client_id: u64,
    client: Option<&mut MaybeUninit<u64>>,
) -> i32 {
    with(server, |server| {
        let out = some(client)?;
        let Some(client) = server.server.find(client_id) else { return Ok(SLIPGATE_NONE) };
        out.write(number_of(client));
        Ok(SLIPGATE_DONE)
    })
}

/// Sets whether new clients get a slot: 1 at first, 0 denies them as on a full server.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_accept_new_clients(server: Option<&mut CServer>, accept: u32) -> i32 {
    with(server, |server| {
        server.server.accept_new_clients(accept != 0);
        Ok(SLIPGATE_DONE)
    })
}

/// Limits what the server sends to all clients together, in bytes each second; 0, the first value, is no limit. Then
/// transfers may fill the uplink, and the other clients' messages wait behind them.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_set_uplink(server: Option<&mut CServer>, bytes_per_second: u64) -> i32 {
    with(server, |server| {
        server.server.set_uplink((bytes_per_second > 0).then_some(BytesPerSecond(bytes_per_second as f64)));
        Ok(SLIPGATE_DONE)
    })
}

/// Replaces the private keys: 1 to 3 keys of 32 bytes each, newest first. Connected clients are not affected.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_set_keys(server: Option<&mut CServer>, keys: *const u8, length: usize) -> i32 {
    with(server, |server| {
        server.server.set_keys(read_keys(keys, length)?);
        Ok(SLIPGATE_DONE)
    })
}

/// Writes a bound address as a text such as "127.0.0.1:40000" with a zero at its end, from index 0 on. `SLIPGATE_NONE`
/// behind the last one, `TOO_LARGE` if it does not fit; 64 bytes are enough.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_address(
    server: Option<&mut CServer>,
    index: u32,
    text: *mut c_char,
    capacity: usize,
) -> i32 {
    with(server, |server| {
        let addresses = server.server.sockets().local_addresses();
        let Some(address) = addresses.get(index as usize) else { return Ok(SLIPGATE_NONE) };
        let address = address.to_string();
        if text.is_null() {
            return Err(SLIPGATE_ERROR_ARGUMENT);
        }
        if address.len() >= capacity {
            return Err(SLIPGATE_ERROR_TOO_LARGE);
        }
        pointer::write_text(&address, text, capacity);
        Ok(SLIPGATE_DONE)
    })
}

/// Writes the number of datagrams that were dropped for a reason, from index 0 on. `SLIPGATE_NONE` behind the last one.
/// `name` receives a static string that ends with zero; it and `count` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_discards(
    server: Option<&mut CServer>,
    index: u32,
    count: Option<&mut MaybeUninit<u64>>,
    name: Option<&mut MaybeUninit<*const c_char>>,
) -> i32 {
    with(server, |server| crate::discards::write(server.server.discards(), index, count, name))
}

/// Returns a handle that wakes the server.
pub(crate) fn waker_of(server: Option<&mut CServer>, give: impl FnOnce(slipgate_server::sockets::Waker)) -> i32 {
    with(server, |server| {
        give(server.server.waker().map_err(|_| SLIPGATE_ERROR_IO)?);
        Ok(SLIPGATE_DONE)
    })
}
