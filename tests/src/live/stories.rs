//! What every pair of a server and a client must live through, whoever wrote them.
//!
//! Each story runs under the defaults of our server and our client, with tokens of our issuer unless one is given.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use slipgate_client::{ClientState, EndReason};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_server::{Discard, DisconnectReason};

use super::{GameClient, GameServer, Order, Ticket, until};

/// Payloads that go each way.
pub const PAYLOADS: usize = 600;
/// Payloads on their way at a time, each way. Eight of the largest take a tenth of the smallest usual socket buffer
/// (208 KiB, as the system counts), so the system has no reason to lose one, and all must arrive.
const IN_FLIGHT: usize = 8;
/// The time-out of sessions that are to time out: more than a busy machine keeps a test waiting between two turns.
const SHORT_TIMEOUT: i32 = 2;

/// A client id that uses all its bytes; `number` tells players apart.
#[must_use]
pub const fn player(number: u64) -> u64 {
    0xf00d_0000_cafe_0000 | number
}

/// 600 payloads of 1 to 1200 bytes go each way, and each arrives once, with its bytes.
pub fn payloads_of_every_size_arrive_each_way<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 4);
    let ticket = ticket(1, &server);
    talk::<S, C>(&mut server, &ticket);
}

/// A session from its beginning to 600 payloads each way.
pub fn talk<S: GameServer, C: GameClient>(server: &mut S, ticket: &Ticket) {
    let mut client: C = admit_with(server, ticket);
    if let Some(seat) = client.seat() {
        assert_eq!(seat, (0, 4), "the first slot of four");
    }
    assert_eq!(server.log().connected, [(ticket.client_id, ticket.user_data)], "the token's user data arrives");

    let (up, down) = (payloads(0x11), payloads(0x77));
    let mut sent = 0;
    for (up, down) in up.chunks(IN_FLIGHT).zip(down.chunks(IN_FLIGHT)) {
        up.iter().for_each(|payload| client.send(payload));
        down.iter().for_each(|payload| server.send(ticket.client_id, payload));
        sent += up.len();
        until(&mut (&mut *server, &mut client), "the payloads arrive", |(server, client)| {
            server.log().payloads.len() >= sent && client.received().len() >= sent
        });
    }
    assert_same(&server.log().payloads, &up);
    assert_same(client.received(), &down);
    assert_eq!(client.state(), ClientState::Connected);
    assert!(server.log().ended.is_empty());
}

/// What a server says as soon as it knows a client arrives: the client hears of its slot first.
pub fn a_word_of_welcome_arrives<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 4);
    let ticket = ticket(1, &server);
    let mut client = C::connect(&ticket);
    until(&mut (&mut client, &mut server), "the client has a slot", |(_, server)| server.connected() == 1);
    assert_ne!(client.state(), ClientState::Connected, "it has had no turn since");
    server.send(ticket.client_id, b"welcome");
    until(&mut (&mut client, &mut server), "the word arrives", |(client, _)| !client.received().is_empty());
    assert_eq!(client.received(), [b"welcome"]);
}

/// A client that the server disconnects knows it, and somebody else gets its slot.
pub fn a_kicked_client_knows_and_its_slot_is_free<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let mut client: C = admit(&mut server, 1);
    server.kick(player(1));
    until(&mut (&mut server, &mut client), "both ends know", |(server, client)| {
        !client.state().is_active() && !server.log().ended.is_empty()
    });
    assert_eq!(client.state(), ClientState::Disconnected);
    assert!(client.end().is_none_or(|end| end == EndReason::DisconnectedByServer), "{:?}", client.end());
    assert_ended(&server, player(1), DisconnectReason::Kicked);
    let _: C = admit(&mut server, 2);
}

/// A server knows at once of a client that disconnects, and somebody else gets its slot.
pub fn a_server_knows_who_left_and_the_slot_is_free<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let mut client: C = admit(&mut server, 1);
    client.leave();
    assert_eq!(client.state(), ClientState::Disconnected);
    until(&mut (&mut server, &mut client), "the server knows", |(server, _)| !server.log().ended.is_empty());
    assert!(client.end().is_none_or(|end| end == EndReason::Left), "{:?}", client.end());
    assert_ended(&server, player(1), DisconnectReason::Left);
    let _: C = admit(&mut server, 2);
}

/// A full server says so, and who is in stays in.
pub fn a_full_server_denies<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let mut first: C = admit(&mut server, 1);
    let mut second = C::connect(&ticket(2, &server));
    until(&mut (&mut server, &mut first, &mut second), "an answer", |(_, _, second)| !second.state().is_active());
    assert_eq!(second.state(), ClientState::Denied);
    assert_eq!(first.state(), ClientState::Connected);
    assert_eq!(server.connected(), 1);
}

/// Whom the first server of a token denies gets a slot on the second.
pub fn who_is_denied_tries_the_next_server<S: GameServer, C: GameClient>(ip: IpAddr) {
    let (mut full, mut next) = (S::start(ip, 1), S::start(ip, 1));
    let _first: C = admit(&mut full, 1);
    let mut second = C::connect(&Order::new(player(2), &[full.address(), next.address()]).mint());
    until(&mut (&mut full, &mut next, &mut second), "a slot", |(_, _, second)| {
        second.state() == ClientState::Connected
    });
    assert_eq!(full.log().connected.len(), 1);
    assert_eq!(next.log().connected, [(player(2), Order::new(player(2), &[]).user_data())]);
}

/// Whoever's peer just stops finds out: the server once, the client at each stage in the standard's words for it.
pub fn silence_times_out<S: GameServer, C: GameClient>(ip: IpAddr) {
    thread::scope(|scope| {
        scope.spawn(|| a_silent_client_times_out::<S, C>(ip));
        for (stage, end) in [
            (ClientState::SendingRequest, ClientState::RequestTimedOut),
            (ClientState::SendingResponse, ClientState::ResponseTimedOut),
            (ClientState::Connected, ClientState::TimedOut),
        ] {
            scope.spawn(move || a_server_that_is_silent_from::<S, C>(ip, stage, end));
        }
    });
}

fn a_silent_client_times_out<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let order = Order { timeout_seconds: SHORT_TIMEOUT, ..Order::new(player(1), &[server.address()]) };
    let _silent: C = admit_with(&mut server, &order.mint());
    until(&mut server, "the server gives the client up", |server| !server.log().ended.is_empty());
    assert_ended(&server, player(1), DisconnectReason::TimedOut);
}

fn a_server_that_is_silent_from<S: GameServer, C: GameClient>(ip: IpAddr, stage: ClientState, end: ClientState) {
    let mut server = S::start(ip, 1);
    let order = Order { timeout_seconds: SHORT_TIMEOUT, ..Order::new(player(1), &[server.address()]) };
    let mut client = C::connect(&order.mint());
    until(&mut (&mut server, &mut client), "the stage is reached", |(_, client)| client.state() == stage);
    until(&mut client, "the client gives the server up", |client| !client.state().is_active());
    assert_eq!(client.state(), end);
}

/// A token that has expired admits nobody, and its holder says why.
pub fn an_expired_token_admits_nobody<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let order = Order { lifetime_seconds: 1, ..Order::new(player(1), &[server.address()]) };
    let mut client = C::connect(&order.mint_ago(Duration::from_secs(5)));
    until(&mut (&mut server, &mut client), "the end", |(_, client)| !client.state().is_active());
    assert_eq!(client.state(), ClientState::TokenExpired);
    assert!(server.log().connected.is_empty());
    if let Some(discards) = server.discards() {
        assert!(discards.count(Discard::TokenExpired) > 0 && discards.iter().count() == 1, "{discards:?}");
    }
}

/// A token of our issuer for a player and a server.
fn ticket(number: u64, server: &impl GameServer) -> Ticket {
    Order::new(player(number), &[server.address()]).mint()
}

/// Connects a player, until both ends know of each other.
pub fn admit<S: GameServer, C: GameClient>(server: &mut S, number: u64) -> C {
    let ticket = ticket(number, server);
    admit_with(server, &ticket)
}

/// Connects the holder of a ticket, until both ends know of each other.
pub fn admit_with<S: GameServer, C: GameClient>(server: &mut S, ticket: &Ticket) -> C {
    let mut client = C::connect(ticket);
    until(&mut (&mut *server, &mut client), "the client is connected", |(server, client)| {
        let last = server.log().connected.last();
        client.state() == ClientState::Connected && last.is_some_and(|(client_id, _)| *client_id == ticket.client_id)
    });
    client
}

/// The end of the one connection that has ended.
fn assert_ended(server: &impl GameServer, client_id: u64, reason: DisconnectReason) {
    let [(who, why)] = server.log().ended.as_slice() else { panic!("one end, not {:?}", server.log().ended) };
    assert_eq!(*who, client_id);
    assert!(why.is_none_or(|why| why == reason), "{why:?}, not {reason}");
    assert_eq!(server.connected(), 0);
}

/// Sizes from 1 to 1200 bytes, no two the same, in a mixed order.
fn payloads(direction: u8) -> Vec<Vec<u8>> {
    let size = |number: usize| 1 + number * (MAX_PAYLOAD_BYTES - 1) / (PAYLOADS - 1);
    // 257 and 600 have no common divisor, so every number comes once.
    let mixed = (0..PAYLOADS).map(|number| number * 257 % PAYLOADS);
    mixed.map(|number| (0..size(number)).map(|place| direction ^ (place * 31 + number) as u8).collect()).collect()
}

/// Every payload arrived once, with its bytes; datagrams promise no order.
fn assert_same(arrived: &[Vec<u8>], sent: &[Vec<u8>]) {
    let in_order = |payloads: &[Vec<u8>]| {
        let mut payloads = payloads.to_vec();
        payloads.sort();
        payloads
    };
    assert_eq!(arrived.len(), sent.len());
    assert!(in_order(arrived) == in_order(sent), "a payload came twice, or with other bytes");
}
