//! Ours against `renetcode` 2.0.0 on real sockets.
//!
//! It writes netcode 1.02 with mistakes. Sessions by IPv4 hold in both directions, under our defaults and with tokens
//! of our issuer or its own; these are the limits, each of them the peer's, and all but the last held by a test here:
//!
//! - **No sequence byte for sequence 0** (prefix `0t`, which the standard forbids and the reference refuses, as we do).
//!   Its server starts both its counters at 0: the first challenge of its life and the first keep-alive of every slot
//!   are lost. Our client asks again after 0.1 s, and takes the keep-alive that follows after 0.25 s of silence. A game
//!   that sends to newcomers without such a pause never lets a conforming client in, and all that it says before
//!   is lost.
//! - Those counters run under the same key: its challenges and its slot packets repeat nonces.
//! - **IPv6 in network byte order**: nobody else's tokens lead to its servers by IPv6, nor its tokens to anybody else's.
//! - Its client is not sent on by a denial: it ends, whatever servers its token still lists.
//! - It sends payloads of no and of more than 1200 bytes (to 1300), which are dropped here.
//! - Its public token is none: the client id comes first, and the zeros to 2048 bytes are missing.
//! - Its tokens carry no mint time: a server of ours that has just started refuses them (`Fence`).
//! - It sends one disconnect packet, where the standard has ten; its server gives no reason when a client is gone, and
//!   its client does not tell its slot.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use renetcode::{
    ClientAuthentication, NETCODE_MAX_PACKET_BYTES, NetcodeClient, NetcodeServer, ServerAuthentication, ServerConfig,
    ServerResult,
};
use slipgate_client::{ClientState, ConnectToken, EndReason, LayoutError};
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_netcode::wire::{CONNECT_TOKEN_BYTES, MAX_PAYLOAD_BYTES};
use slipgate_server::{Discard, Fence};
use slipgate_tests::live::{
    GameClient, GameServer, IPV4, IPV6, Order, OurClient, OurServer, PRIVATE_KEY, PROTOCOL_ID, ServerLog, Ticket, Turn,
    run_for, stories, until,
};

slipgate_tests::stories!(our_client_on_their_server: TheirServer, OurClient, IPV4, [
    payloads_of_every_size_arrive_each_way,
    a_kicked_client_knows_and_its_slot_is_free,
    a_server_knows_who_left_and_the_slot_is_free,
    a_full_server_denies,
    who_is_denied_tries_the_next_server,
    silence_times_out,
    an_expired_token_admits_nobody,
]);

slipgate_tests::stories!(their_client_on_our_server: OurServer, TheirClient, IPV4, [
    payloads_of_every_size_arrive_each_way,
    a_word_of_welcome_arrives,
    a_kicked_client_knows_and_its_slot_is_free,
    a_server_knows_who_left_and_the_slot_is_free,
    a_full_server_denies,
    silence_times_out,
    an_expired_token_admits_nobody,
]);

#[test]
fn tokens_of_their_issuer_lead_our_client_to_their_server() {
    let mut server = TheirServer::start(IPV4, 4);
    let ticket = their_ticket(&Order::new(stories::player(1), &[server.address()]));
    stories::talk::<TheirServer, OurClient>(&mut server, &ticket);
}

#[test]
fn tokens_of_their_issuer_lead_their_client_and_ours_to_our_server_on_its_first_start() {
    let start = || OurServer::start_with(IPV4, 4, |config| config.fence = Fence::Open);
    let mut server = start();
    let ticket = their_ticket(&Order::new(stories::player(1), &[server.address()]));
    stories::talk::<OurServer, TheirClient>(&mut server, &ticket);

    let mut server = start();
    let ticket = their_ticket(&Order::new(stories::player(1), &[server.address()]));
    stories::talk::<OurServer, OurClient>(&mut server, &ticket);
}

#[test]
fn a_token_of_their_issuer_is_refused_by_a_server_of_ours_that_has_just_started() {
    let mut server = OurServer::start(IPV4, 4);
    let mut client = TheirClient::connect(&their_ticket(&Order::new(stories::player(1), &[server.address()])));
    until(&mut (&mut server, &mut client), "the fence says no", |(server, _)| {
        server.server.discards().count(Discard::BeforeStart) > 1
    });
    assert_eq!(client.state(), ClientState::SendingRequest);
}

#[test]
fn their_packets_of_sequence_0_are_lost_and_their_counters_meet_under_one_key() {
    let mut server = TheirServer::start(IPV4, 4);
    let client: OurClient = stories::admit(&mut server, 1);
    let lost = [(PacketKind::Challenge as u8, 0), (PacketKind::KeepAlive as u8, 0)];
    assert!(lost.iter().all(|packet| server.sealed.contains(packet)), "{:?}", server.sealed);
    let discards = client.client.discards();
    assert_eq!((discards.count(Discard::SequenceLength), discards.total()), (2, 2), "{discards:?}");

    let sequences: BTreeSet<u64> = server.sealed.iter().map(|(_, sequence)| *sequence).collect();
    assert!(sequences.len() < server.sealed.len(), "no nonce came twice: {:?}", server.sealed);
}

#[test]
fn their_server_that_talks_without_a_pause_never_lets_a_conforming_client_in() {
    let mut server = TheirServer::start(IPV4, 4);
    server.talks_without_a_pause = true;
    let order = Order { timeout_seconds: 1, ..Order::new(stories::player(1), &[server.address()]) };
    let mut client = OurClient::connect(&order.mint());
    until(&mut (&mut server, &mut client), "the end", |(_, client)| !client.state().is_active());
    assert_eq!(client.state(), ClientState::ResponseTimedOut);
    assert_eq!(server.log().connected.len(), 1, "the server thinks that it is in");
    assert!(client.client.discards().count(Discard::WrongState) > 0, "payloads before the keep-alive are lost");
}

#[test]
fn a_denial_ends_their_client_whatever_servers_its_token_still_lists() {
    let (mut full, mut next) = (OurServer::start(IPV4, 1), OurServer::start(IPV4, 1));
    let _first: OurClient = stories::admit(&mut full, 1);
    let mut client = TheirClient::connect(&Order::new(stories::player(2), &[full.address(), next.address()]).mint());
    until(&mut (&mut full, &mut next, &mut client), "an end", |(_, _, client)| !client.state().is_active());
    assert_eq!(client.state(), ClientState::Denied);
    assert_eq!((next.connected(), next.server.discards().total()), (0, 0));
}

#[test]
fn payloads_that_the_standard_forbids_are_dropped_and_hurt_nobody() {
    let mut server = OurServer::start(IPV4, 1);
    // Such lengths do not pass the kernel's filter, where there is one: without it the server says why it drops them.
    if server.server.has_kernel_filter() {
        server.server.set_kernel_filter(false).unwrap();
    }
    let mut client: TheirClient = stories::admit(&mut server, 1);
    // One that is a little too long is opened before it shows; more than the largest packet is not even opened.
    for (bytes, reason) in [
        (0, Discard::ContentSize),
        (MAX_PAYLOAD_BYTES + 1, Discard::ContentSize),
        (MAX_PAYLOAD_BYTES + 100, Discard::TooLong),
    ] {
        let before = server.server.discards().count(reason);
        client.send(&vec![7; bytes]);
        until(&mut (&mut server, &mut client), "the drop", |(server, _)| {
            server.server.discards().count(reason) == before + 1
        });
    }
    client.send(b"allowed");
    until(&mut (&mut server, &mut client), "a payload", |(server, _)| !server.log().payloads.is_empty());
    assert_eq!(server.log().payloads, [b"allowed"]);
}

#[test]
fn their_public_token_is_ours_behind_the_client_id_and_without_the_padding() {
    let order = Order::new(stories::player(1), &["192.0.2.1:40000".parse().unwrap()]);
    let mut theirs = Vec::new();
    their_token(&order).write(&mut theirs).unwrap();
    assert_eq!(theirs[..8], order.client_id.to_le_bytes());
    assert_eq!(ConnectToken::from_bytes(&theirs).unwrap_err(), LayoutError::Length);
    assert_eq!(their_ticket(&order).token.facts().servers.as_slice(), order.servers);
}

#[test]
fn ipv6_addresses_are_not_the_same_in_their_tokens() {
    let order = Order::new(stories::player(1), &["[2001:db8::1]:40000".parse().unwrap()]);
    let read: SocketAddr = "[120:b80d::100]:40000".parse().unwrap();
    assert_eq!(their_ticket(&order).token.facts().servers.as_slice(), [read]);

    let mut server = OurServer::start_with(IPV6, 1, |config| config.fence = Fence::Open);
    let order = Order::new(stories::player(1), &[server.address()]);
    let mut client = TheirClient::on(their_token(&order), IPV6);
    until(&mut (&mut server, &mut client), "a refusal", |(server, _)| {
        server.server.discards().count(Discard::AddressNotListed) > 1
    });

    let mut server = TheirServer::start(IPV6, 1);
    let mut client = OurClient::connect(&Order::new(stories::player(1), &[server.address()]).mint());
    run_for(&mut (&mut server, &mut client), Duration::from_millis(500));
    assert_eq!((client.state(), server.sealed.len()), (ClientState::SendingRequest, 0), "no request was answered");
}

/// Their server, which brings no socket: ours are the lines that their example has.
struct TheirServer {
    server: NetcodeServer,
    socket: UdpSocket,
    last_turn: Instant,
    log: ServerLog,
    /// Type and sequence number of every packet that it sealed.
    sealed: Vec<(u8, u64)>,
    talks_without_a_pause: bool,
}

impl Turn for TheirServer {
    fn turn(&mut self) {
        self.server.update(since(&mut self.last_turn));
        let mut buffer = [0; NETCODE_MAX_PACKET_BYTES];
        while let Some((bytes, from)) = receive(&self.socket, &mut buffer) {
            let result = self.server.process_packet(from, &mut buffer[..bytes]);
            note(result, &self.socket, &mut self.log, &mut self.sealed);
        }
        for client_id in self.server.clients_id() {
            if self.talks_without_a_pause {
                self.send(client_id, b"talk");
            }
            let result = self.server.update_client(client_id);
            note(result, &self.socket, &mut self.log, &mut self.sealed);
        }
    }

    fn describe(&self) -> String {
        let log = &self.log;
        let (connected, ended, payloads) = (log.connected.len(), &log.ended, log.payloads.len());
        format!("their server: {connected} came, {ended:?} went, {payloads} payloads")
    }
}

/// Sends what a result asks for, and writes down what it tells.
fn note(result: ServerResult<'_, '_>, socket: &UdpSocket, log: &mut ServerLog, sealed: &mut Vec<(u8, u64)>) {
    let mut post = |datagram: &[u8], to| {
        sealed.push(header(datagram));
        socket.send_to(datagram, to).expect("loopback takes a datagram");
    };
    match result {
        ServerResult::None => {}
        ServerResult::PacketToSend { addr, payload } => post(payload, addr),
        ServerResult::Payload { payload, .. } => log.payloads.push(payload.to_vec()),
        ServerResult::ClientConnected { client_id, addr, user_data, payload } => {
            log.connected.push((client_id, *user_data));
            post(payload, addr);
        }
        ServerResult::ClientDisconnected { client_id, addr, payload } => {
            log.ended.push((client_id, None));
            if let Some(payload) = payload {
                post(payload, addr);
            }
        }
    }
}

impl GameServer for TheirServer {
    fn start(ip: IpAddr, slots: u32) -> Self {
        let socket = bind(ip);
        let server = NetcodeServer::new(ServerConfig {
            current_time: wall_clock(),
            max_clients: slots as usize,
            protocol_id: PROTOCOL_ID,
            public_addresses: vec![socket.local_addr().expect("it is bound")],
            authentication: ServerAuthentication::Secure { private_key: PRIVATE_KEY },
        });
        let (last_turn, log, sealed) = (Instant::now(), ServerLog::default(), Vec::new());
        Self { server, socket, last_turn, log, sealed, talks_without_a_pause: false }
    }

    fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    fn log(&self) -> &ServerLog {
        &self.log
    }

    fn connected(&self) -> usize {
        self.server.connected_clients()
    }

    fn send(&mut self, client_id: u64, payload: &[u8]) {
        let (to, datagram) = self.server.generate_payload_packet(client_id, payload).expect("it is connected");
        self.sealed.push(header(datagram));
        self.socket.send_to(datagram, to).expect("loopback takes a datagram");
    }

    fn kick(&mut self, client_id: u64) {
        let result = self.server.disconnect(client_id);
        note(result, &self.socket, &mut self.log, &mut self.sealed);
    }
}

/// Their client, which brings no socket either.
struct TheirClient {
    client: NetcodeClient,
    socket: UdpSocket,
    last_turn: Instant,
    received: Vec<Vec<u8>>,
    /// It does not tell the two stages of connecting apart: a challenge that arrived does.
    challenged: bool,
}

impl TheirClient {
    fn on(token: renetcode::ConnectToken, ip: IpAddr) -> Self {
        let authentication = ClientAuthentication::Secure { connect_token: token };
        let client = NetcodeClient::new(wall_clock(), authentication).expect("the token lists a server");
        Self { client, socket: bind(ip), last_turn: Instant::now(), received: Vec::new(), challenged: false }
    }
}

impl Turn for TheirClient {
    fn turn(&mut self) {
        let mut buffer = [0; NETCODE_MAX_PACKET_BYTES];
        while let Some((bytes, from)) = receive(&self.socket, &mut buffer) {
            if from != self.client.server_addr() {
                continue;
            }
            self.challenged |= header(&buffer[..bytes]).0 == PacketKind::Challenge as u8;
            if let Some(payload) = self.client.process_packet(&mut buffer[..bytes]) {
                self.received.push(payload.to_vec());
            }
        }
        if let Some((datagram, to)) = self.client.update(since(&mut self.last_turn)) {
            self.socket.send_to(datagram, to).expect("loopback takes a datagram");
        }
    }

    fn describe(&self) -> String {
        format!("their client: {}, {} payloads", self.state().name(), self.received.len())
    }
}

impl GameClient for TheirClient {
    fn connect(ticket: &Ticket) -> Self {
        // The inverse of `their_ticket`.
        let bytes = [&ticket.client_id.to_le_bytes(), ticket.token.as_bytes().as_slice()].concat();
        let token = renetcode::ConnectToken::read(&mut Cursor::new(bytes)).expect("they can read it");
        Self::on(token, IPV4)
    }

    fn state(&self) -> ClientState {
        match self.end() {
            Some(end) => end.state(),
            None if self.client.is_connected() => ClientState::Connected,
            None if self.challenged => ClientState::SendingResponse,
            None => ClientState::SendingRequest,
        }
    }

    fn end(&self) -> Option<EndReason> {
        use renetcode::DisconnectReason as Reason;
        self.client.disconnect_reason().map(|reason| match reason {
            Reason::ConnectTokenExpired => EndReason::TokenExpired,
            Reason::ConnectionTimedOut => EndReason::TimedOut,
            Reason::ConnectionResponseTimedOut => EndReason::ResponseTimedOut,
            Reason::ConnectionRequestTimedOut => EndReason::RequestTimedOut,
            Reason::ConnectionDenied => EndReason::Denied,
            Reason::DisconnectedByClient => EndReason::Left,
            Reason::DisconnectedByServer => EndReason::DisconnectedByServer,
        })
    }

    fn seat(&self) -> Option<(u32, u32)> {
        None
    }

    fn received(&self) -> &[Vec<u8>] {
        &self.received
    }

    fn send(&mut self, payload: &[u8]) {
        let (to, datagram) = self.client.generate_payload_packet(payload).expect("it is connected");
        self.socket.send_to(datagram, to).expect("loopback takes a datagram");
    }

    fn leave(&mut self) {
        let (to, datagram) = self.client.disconnect().expect("it can be sealed");
        self.socket.send_to(datagram, to).expect("loopback takes a datagram");
    }
}

/// A token of their issuer.
fn their_token(order: &Order) -> renetcode::ConnectToken {
    renetcode::ConnectToken::generate(
        wall_clock(),
        PROTOCOL_ID,
        order.lifetime_seconds.into(),
        order.client_id,
        order.timeout_seconds,
        order.servers.clone(),
        Some(&order.user_data()),
        &PRIVATE_KEY,
    )
    .expect("the order is sound")
}

/// A token of their issuer, as the standard has it: without the client id in front, with zeros to 2048 bytes.
fn their_ticket(order: &Order) -> Ticket {
    let mut bytes = Vec::new();
    their_token(order).write(&mut bytes).expect("a vector takes it");
    bytes.drain(..8);
    bytes.resize(CONNECT_TOKEN_BYTES, 0);
    order.ticket(ConnectToken::from_bytes(&bytes).expect("we can read it"))
}

fn bind(ip: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).expect("the system has a free port");
    socket.set_nonblocking(true).expect("a socket can be asked without waiting");
    socket
}

/// The next datagram that waits. An error tells of an earlier one that was lost, and is no end.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    socket.recv_from(buffer).ok()
}

/// Type and sequence number of a sealed packet, as this peer writes them: sequence 0 may have no byte.
fn header(datagram: &[u8]) -> (u8, u64) {
    let (prefix, rest) = datagram.split_first().expect("no datagram is empty");
    let sequence = rest.iter().take(usize::from(prefix >> 4)).rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    (prefix & 0x0f, sequence)
}

fn since(last: &mut Instant) -> Duration {
    let now = Instant::now();
    now - std::mem::replace(last, now)
}

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970")
}
