//! The scenarios that every pair of a server and a client must pass, whichever library each of them comes from.
//!
//! Each scenario runs with the defaults of our server and our client, and with tokens of our issuer unless another one
//! is given.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use slipgate_client::{ClientState, CloseKind};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_server::counters::Discard;

use super::ends::{GameClient, GameServer, MintedToken, TokenOrder, until};

/// Payloads in each direction.
pub const PAYLOADS: usize = 600;
/// Payloads in flight in each direction. Eight payloads of maximum size take a tenth of the smallest usual socket
/// buffer (208 KiB by the accounting of the system), so the system has no reason to drop any, and all must arrive.
const IN_FLIGHT: usize = 8;
/// The timeout of sessions that must time out, in seconds: longer than a busy machine delays a turn of the test.
const SHORT_TIMEOUT: i32 = 2;

/// Returns a client id that uses all its bytes; `number` distinguishes players.
#[must_use]
pub const fn player(number: u64) -> u64 {
    0xf00d_0000_cafe_0000 | number
}

/// Exchanges 600 payloads of 1 to 1200 bytes in each direction. Each arrives once and unchanged.
pub fn payloads_of_every_size_arrive_both_ways<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 4);
    let minted = minted(1, &server);
    talk::<S, C>(&mut server, &minted);
}

/// Runs a session from its start to 600 payloads in each direction.
pub fn talk<S: GameServer, C: GameClient>(server: &mut S, minted: &MintedToken) {
    let mut client: C = admit_with(server, minted);
    if let Some(slot_info) = client.slot_info() {
        assert_eq!(slot_info, (0, 4), "the first slot of four");
    }
    assert_eq!(server.log().connected, [(minted.client_id, minted.user_data)], "the token's user data arrives");

    let (up, down) = (payloads(0x11), payloads(0x77));
    let mut sent = 0;
    for (up, down) in up.chunks(IN_FLIGHT).zip(down.chunks(IN_FLIGHT)) {
        up.iter().for_each(|payload| client.send(payload));
        down.iter().for_each(|payload| server.send(minted.client_id, payload));
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

/// A payload that a server sends as soon as it knows a client arrives: the client learns its slot first.
pub fn payload_sent_on_connect_arrives<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 4);
    let minted = minted(1, &server);
    let mut client = C::connect(&minted);
    until(&mut (&mut client, &mut server), "the client has a slot", |(_, server)| server.connected() == 1);
    assert_ne!(client.state(), ClientState::Connected, "the client has had no turn since");
    server.send(minted.client_id, b"welcome");
    until(&mut (&mut client, &mut server), "the payload arrives", |(client, _)| !client.received().is_empty());
    assert_eq!(client.received(), [b"welcome"]);
}

/// A client that the server kicks knows it, and its slot goes to the next client.
pub fn kicked_client_knows_and_its_slot_is_free<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let mut client: C = admit(&mut server, 1);
    server.kick(player(1));
    until(&mut (&mut server, &mut client), "both ends know the end", |(server, client)| {
        !client.state().is_active() && !server.log().ended.is_empty()
    });
    assert_eq!(client.state(), ClientState::Disconnected);
    assert!(client.end().is_none_or(|end| end == CloseKind::DisconnectedByServer), "{:?}", client.end());
    assert_ended(&server, player(1), CloseKind::Kicked);
    let _: C = admit(&mut server, 2);
}

/// A server learns of a disconnecting client at once, and its slot goes to the next client.
pub fn leaving_client_frees_its_slot<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let mut client: C = admit(&mut server, 1);
    client.leave();
    assert_eq!(client.state(), ClientState::Disconnected);
    until(&mut (&mut server, &mut client), "the server knows the end", |(server, _)| !server.log().ended.is_empty());
    assert!(client.end().is_none_or(|end| end == CloseKind::Left), "{:?}", client.end());
    assert_ended(&server, player(1), CloseKind::Left);
    let _: C = admit(&mut server, 2);
}

/// A full server denies a new client and keeps the connected one.
pub fn full_server_denies_a_client<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let mut first: C = admit(&mut server, 1);
    let mut second = C::connect(&minted(2, &server));
    until(&mut (&mut server, &mut first, &mut second), "the second client gets a reply", |(_, _, second)| {
        !second.state().is_active()
    });
    assert_eq!(second.state(), ClientState::Denied);
    assert_eq!(first.state(), ClientState::Connected);
    assert_eq!(server.connected(), 1);
}

/// A client that the first server of its token denies gets a slot on the second.
pub fn denied_client_tries_the_next_server<S: GameServer, C: GameClient>(ip: IpAddr) {
    let (mut full, mut next) = (S::start(ip, 1), S::start(ip, 1));
    let _first: C = admit(&mut full, 1);
    let mut second = C::connect(&TokenOrder::new(player(2), &[full.address(), next.address()]).mint());
    until(&mut (&mut full, &mut next, &mut second), "a slot", |(_, _, second)| {
        second.state() == ClientState::Connected
    });
    assert_eq!(full.log().connected.len(), 1);
    assert_eq!(next.log().connected, [(player(2), TokenOrder::new(player(2), &[]).user_data())]);
}

/// A peer that stops without a word is noticed: by the server once, by the client at each stage with the state of the
/// standard.
pub fn silent_peer_times_out<S: GameServer, C: GameClient>(ip: IpAddr) {
    thread::scope(|scope| {
        scope.spawn(|| silent_client_times_out::<S, C>(ip));
        for (attack, end) in [
            (ClientState::SendingRequest, ClientState::RequestTimedOut),
            (ClientState::SendingResponse, ClientState::ResponseTimedOut),
            (ClientState::Connected, ClientState::TimedOut),
        ] {
            scope.spawn(move || silent_server_times_out_from::<S, C>(ip, attack, end));
        }
    });
}

fn silent_client_times_out<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let order = TokenOrder { timeout_seconds: SHORT_TIMEOUT, ..TokenOrder::new(player(1), &[server.address()]) };
    let _silent: C = admit_with(&mut server, &order.mint());
    until(&mut server, "the server times the client out", |server| !server.log().ended.is_empty());
    assert_ended(&server, player(1), CloseKind::TimedOut);
}

fn silent_server_times_out_from<S: GameServer, C: GameClient>(ip: IpAddr, attack: ClientState, end: ClientState) {
    let mut server = S::start(ip, 1);
    let order = TokenOrder { timeout_seconds: SHORT_TIMEOUT, ..TokenOrder::new(player(1), &[server.address()]) };
    let mut client = C::connect(&order.mint());
    until(&mut (&mut server, &mut client), "the stage is reached", |(_, client)| client.state() == attack);
    until(&mut client, "the client times the server out", |client| !client.state().is_active());
    assert_eq!(client.state(), end);
}

/// An expired token admits no client, and the client reports the reason.
pub fn expired_token_admits_no_client<S: GameServer, C: GameClient>(ip: IpAddr) {
    let mut server = S::start(ip, 1);
    let order = TokenOrder { lifetime_seconds: 1, ..TokenOrder::new(player(1), &[server.address()]) };
    let mut client = C::connect(&order.mint_ago(Duration::from_secs(5)));
    until(&mut (&mut server, &mut client), "the client ends", |(_, client)| !client.state().is_active());
    assert_eq!(client.state(), ClientState::TokenExpired);
    assert!(server.log().connected.is_empty());
    if let Some(discards) = server.discards() {
        assert!(discards[Discard::TokenExpired] > 0 && discards.iter().count() == 1, "{discards:?}");
    }
}

/// Mints a token of our issuer for a player and a server.
fn minted(number: u64, server: &impl GameServer) -> MintedToken {
    TokenOrder::new(player(number), &[server.address()]).mint()
}

/// Connects a player, and waits until both ends know of each other.
pub fn admit<S: GameServer, C: GameClient>(server: &mut S, number: u64) -> C {
    let minted = minted(number, server);
    admit_with(server, &minted)
}

/// Connects with a minted token, and waits until both ends know of each other.
pub fn admit_with<S: GameServer, C: GameClient>(server: &mut S, minted: &MintedToken) -> C {
    let mut client = C::connect(minted);
    until(&mut (&mut *server, &mut client), "the client is connected", |(server, client)| {
        let last = server.log().connected.last();
        client.state() == ClientState::Connected && last.is_some_and(|(client_id, _)| *client_id == minted.client_id)
    });
    client
}

/// Asserts the reason of the only disconnect.
fn assert_ended(server: &impl GameServer, client_id: u64, reason: CloseKind) {
    let [(id, cause)] = server.log().ended.as_slice() else {
        panic!("one disconnect is expected, not {:?}", server.log().ended)
    };
    assert_eq!(*id, client_id);
    assert!(cause.is_none_or(|cause| cause == reason), "{cause:?}, not {reason}");
    assert_eq!(server.connected(), 0);
}

/// Returns payloads of distinct sizes from 1 to 1200 bytes, in a mixed order.
fn payloads(direction: u8) -> Vec<Vec<u8>> {
    let size = |number: usize| 1 + number * (MAX_PAYLOAD_BYTES - 1) / (PAYLOADS - 1);
    // 257 and 600 are coprime, so every number occurs once.
    let mixed = (0..PAYLOADS).map(|number| number * 257 % PAYLOADS);
    mixed.map(|number| (0..size(number)).map(|index| direction ^ (index * 31 + number) as u8).collect()).collect()
}

/// Asserts that every payload arrived once and unchanged. Datagrams may arrive in any order.
fn assert_same(arrived: &[Vec<u8>], sent: &[Vec<u8>]) {
    let in_order = |payloads: &[Vec<u8>]| {
        let mut payloads = payloads.to_vec();
        payloads.sort();
        payloads
    };
    assert_eq!(arrived.len(), sent.len());
    assert!(in_order(arrived) == in_order(sent), "a payload arrived twice or was changed");
}
