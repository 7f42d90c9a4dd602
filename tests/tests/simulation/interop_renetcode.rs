//! Our code against `renetcode` 2.0.0 on real sockets.
//!
//! It implements netcode 1.02 with mistakes. Sessions over IPv4 work in both directions, under our defaults and with
//! tokens of either issuer. These are the limits. Each is a mistake of the peer, and a test here covers all but the
//! last:
//!
//! - **No sequence byte for sequence 0** (prefix `0t`, which the standard forbids and the reference refuses, as we do).
//!   Its server starts both counters at 0: its first challenge and the first keep-alive of every slot are lost. Our
//!   client repeats the request after 0.1 s, and accepts the keep-alive that follows after 0.25 s of silence. A game
//!   that sends to new clients without such a pause never admits a conforming client, and all its payloads before that
//!   are lost.
//! - These counters run under the same key: its challenges and its slot packets repeat nonces.
//! - **IPv6 in network byte order**: tokens of other issuers do not lead to its servers over IPv6, nor its tokens to
//!   other servers.
//! - Its client ends on a denial, even if its token lists further servers.
//! - It sends payloads of 0 and of more than 1200 bytes (up to 1300), which are dropped here.
//! - Its public token is malformed: the client id comes first, and the zeros up to 2048 bytes are missing.
//! - Its tokens carry no mint time: a freshly started server of ours refuses them (`TokenCutoff`).
//! - It sends one disconnect packet, where the standard requires ten; its server gives no reason when a client
//!   disconnects, and its client does not report its slot.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use renetcode::{
    ClientAuthentication, NETCODE_MAX_PACKET_BYTES, NetcodeClient, NetcodeServer, ServerAuthentication, ServerConfig,
    ServerResult,
};
use slipgate_client::token::TokenLayoutError;
use slipgate_client::{ClientState, CloseKind, ConnectToken};
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_netcode::wire::{CONNECT_TOKEN_BYTES, MAX_PAYLOAD_BYTES};
use slipgate_server::config::TokenCutoff;
use slipgate_server::counters::Discard;
use slipgate_tests::live::{
    GameClient, GameServer, IPV4, IPV6, MintedToken, OurClient, OurServer, PRIVATE_KEY, PROTOCOL_ID, ServerLog,
    TokenOrder, Turn, run_for, scenarios, until,
};

slipgate_tests::scenarios!(our_client_on_their_server: TheirServer, OurClient, IPV4, [
    payloads_of_every_size_arrive_both_ways,
    kicked_client_knows_and_its_slot_is_free,
    leaving_client_frees_its_slot,
    full_server_denies_a_client,
    denied_client_tries_the_next_server,
    silent_peer_times_out,
    expired_token_admits_no_client,
]);

slipgate_tests::scenarios!(their_client_on_our_server: OurServer, TheirClient, IPV4, [
    payloads_of_every_size_arrive_both_ways,
    payload_sent_on_connect_arrives,
    kicked_client_knows_and_its_slot_is_free,
    leaving_client_frees_its_slot,
    full_server_denies_a_client,
    silent_peer_times_out,
    expired_token_admits_no_client,
]);

#[test]
fn peer_token_connects_our_client_to_the_peer_server() {
    let mut server = TheirServer::start(IPV4, 4);
    let minted = their_ticket(&TokenOrder::new(scenarios::player(1), &[server.address()]));
    scenarios::talk::<TheirServer, OurClient>(&mut server, &minted);
}

#[test]
fn peer_token_connects_both_clients_to_our_first_start() {
    let start = || OurServer::start_with(IPV4, 4, |config| config.token_cutoff = TokenCutoff::None);
    let mut server = start();
    let minted = their_ticket(&TokenOrder::new(scenarios::player(1), &[server.address()]));
    scenarios::talk::<OurServer, TheirClient>(&mut server, &minted);

    let mut server = start();
    let minted = their_ticket(&TokenOrder::new(scenarios::player(1), &[server.address()]));
    scenarios::talk::<OurServer, OurClient>(&mut server, &minted);
}

#[test]
fn peer_token_is_refused_by_our_freshly_started_server() {
    let mut server = OurServer::start(IPV4, 4);
    let mut client = TheirClient::connect(&their_ticket(&TokenOrder::new(scenarios::player(1), &[server.address()])));
    until(&mut (&mut server, &mut client), "the token cutoff refuses the token", |(server, _)| {
        server.server.discards()[Discard::BeforeStart] > 1
    });
    assert_eq!(client.state(), ClientState::SendingRequest);
}

#[test]
fn peer_drops_sequence_0_and_reuses_a_nonce_under_one_key() {
    let mut server = TheirServer::start(IPV4, 4);
    let client: OurClient = scenarios::admit(&mut server, 1);
    let lost = [(PacketKind::Challenge as u8, 0), (PacketKind::KeepAlive as u8, 0)];
    assert!(lost.iter().all(|packet| server.sealed.contains(packet)), "{:?}", server.sealed);
    let discards = client.client.discards();
    assert_eq!((discards[Discard::SequenceLength], discards.total()), (2, 2), "{discards:?}");

    let sequences: BTreeSet<u64> = server.sealed.iter().map(|(_, sequence)| *sequence).collect();
    assert!(sequences.len() < server.sealed.len(), "no nonce was used twice: {:?}", server.sealed);
}

#[test]
fn constantly_sending_peer_server_never_admits_our_client() {
    let mut server = TheirServer::start(IPV4, 4);
    server.talks_without_a_pause = true;
    let order = TokenOrder { timeout_seconds: 1, ..TokenOrder::new(scenarios::player(1), &[server.address()]) };
    let mut client = OurClient::connect(&order.mint());
    until(&mut (&mut server, &mut client), "the client ends", |(_, client)| !client.state().is_active());
    assert_eq!(client.state(), ClientState::ResponseTimedOut);
    assert_eq!(server.log().connected.len(), 1, "the server considers the client connected");
    assert!(client.client.discards()[Discard::WrongState] > 0, "payloads before the keep-alive are lost");
}

#[test]
fn denied_peer_client_does_not_try_other_servers() {
    let (mut full, mut next) = (OurServer::start(IPV4, 1), OurServer::start(IPV4, 1));
    let _first: OurClient = scenarios::admit(&mut full, 1);
    let mut client =
        TheirClient::connect(&TokenOrder::new(scenarios::player(2), &[full.address(), next.address()]).mint());
    until(&mut (&mut full, &mut next, &mut client), "the attempt ends", |(_, _, client)| !client.state().is_active());
    assert_eq!(client.state(), ClientState::Denied);
    assert_eq!((next.connected(), next.server.discards().total()), (0, 0));
}

#[test]
fn forbidden_payloads_are_dropped_without_effect() {
    let mut server = OurServer::start(IPV4, 1);
    // The kernel filter drops such lengths, where there is one: without it the server reports why it drops them.
    if server.server.sockets().filter().is_some() {
        server.server.set_kernel_filter(false).unwrap();
    }
    let mut client: TheirClient = scenarios::admit(&mut server, 1);
    // A payload that is slightly too long is detected after decryption; a datagram above the maximum is not decrypted.
    for (bytes, reason) in [
        (0, Discard::ContentSize),
        (MAX_PAYLOAD_BYTES + 1, Discard::ContentSize),
        (MAX_PAYLOAD_BYTES + 100, Discard::TooLong),
    ] {
        let before = server.server.discards()[reason];
        client.send(&vec![7; bytes]);
        until(&mut (&mut server, &mut client), "the server drops the payload", |(server, _)| {
            server.server.discards()[reason] == before + 1
        });
    }
    client.send(b"allowed");
    until(&mut (&mut server, &mut client), "a payload", |(server, _)| !server.log().payloads.is_empty());
    assert_eq!(server.log().payloads, [b"allowed"]);
}

#[test]
fn peer_public_token_equals_ours_without_client_id_and_padding() {
    let order = TokenOrder::new(scenarios::player(1), &["192.0.2.1:40000".parse().unwrap()]);
    let mut theirs = Vec::new();
    their_token(&order).write(&mut theirs).unwrap();
    assert_eq!(theirs[..8], order.client_id.to_le_bytes());
    assert_eq!(ConnectToken::from_bytes(&theirs).unwrap_err(), TokenLayoutError::Length);
    assert_eq!(their_ticket(&order).token.facts().servers[..], order.servers);
}

#[test]
fn peer_tokens_encode_ipv6_addresses_differently() {
    let order = TokenOrder::new(scenarios::player(1), &["[2001:db8::1]:40000".parse().unwrap()]);
    let read: SocketAddr = "[120:b80d::100]:40000".parse().unwrap();
    assert_eq!(their_ticket(&order).token.facts().servers[..], [read]);

    let mut server = OurServer::start_with(IPV6, 1, |config| config.token_cutoff = TokenCutoff::None);
    let order = TokenOrder::new(scenarios::player(1), &[server.address()]);
    let mut client = TheirClient::on(their_token(&order), IPV6);
    until(&mut (&mut server, &mut client), "a refusal", |(server, _)| {
        server.server.discards()[Discard::AddressNotListed] > 1
    });

    let mut server = TheirServer::start(IPV6, 1);
    let mut client = OurClient::connect(&TokenOrder::new(scenarios::player(1), &[server.address()]).mint());
    run_for(&mut (&mut server, &mut client), Duration::from_millis(500));
    assert_eq!((client.state(), server.sealed.len()), (ClientState::SendingRequest, 0), "no request got a reply");
}

/// The peer's server, which has no socket of its own: the code around it is that of its example.
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
        format!("their server: {connected} connected, {ended:?} disconnected, {payloads} payloads")
    }
}

/// Sends the packet of a result, and records its event.
fn note(result: ServerResult<'_, '_>, socket: &UdpSocket, log: &mut ServerLog, sealed: &mut Vec<(u8, u64)>) {
    let mut post = |datagram: &[u8], to| {
        sealed.push(header(datagram));
        socket.send_to(datagram, to).expect("the loopback interface accepts a datagram");
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
            public_addresses: vec![socket.local_addr().expect("the socket is bound")],
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
        let (to, datagram) = self.server.generate_payload_packet(client_id, payload).expect("the client is connected");
        self.sealed.push(header(datagram));
        self.socket.send_to(datagram, to).expect("the loopback interface accepts a datagram");
    }

    fn kick(&mut self, client_id: u64) {
        let result = self.server.disconnect(client_id);
        note(result, &self.socket, &mut self.log, &mut self.sealed);
    }
}

/// The peer's client, which has no socket either.
struct TheirClient {
    client: NetcodeClient,
    socket: UdpSocket,
    last_turn: Instant,
    received: Vec<Vec<u8>>,
    /// The client does not distinguish the two stages of connecting: an arrived challenge does.
    request_challenge: bool,
}

impl TheirClient {
    fn on(token: renetcode::ConnectToken, ip: IpAddr) -> Self {
        let authentication = ClientAuthentication::Secure { connect_token: token };
        let client = NetcodeClient::new(wall_clock(), authentication).expect("the token lists a server");
        Self { client, socket: bind(ip), last_turn: Instant::now(), received: Vec::new(), request_challenge: false }
    }
}

impl Turn for TheirClient {
    fn turn(&mut self) {
        let mut buffer = [0; NETCODE_MAX_PACKET_BYTES];
        while let Some((bytes, from)) = receive(&self.socket, &mut buffer) {
            if from != self.client.server_addr() {
                continue;
            }
            self.request_challenge |= header(&buffer[..bytes]).0 == PacketKind::Challenge as u8;
            if let Some(payload) = self.client.process_packet(&mut buffer[..bytes]) {
                self.received.push(payload.to_vec());
            }
        }
        if let Some((datagram, to)) = self.client.update(since(&mut self.last_turn)) {
            self.socket.send_to(datagram, to).expect("the loopback interface accepts a datagram");
        }
    }

    fn describe(&self) -> String {
        format!("their client: {}, {} payloads", self.state().name(), self.received.len())
    }
}

impl GameClient for TheirClient {
    fn connect(minted: &MintedToken) -> Self {
        // The inverse of `their_ticket`.
        let bytes = [&minted.client_id.to_le_bytes(), minted.token.as_bytes().as_slice()].concat();
        let token = renetcode::ConnectToken::read(&mut Cursor::new(bytes)).expect("the peer can parse it");
        Self::on(token, IPV4)
    }

    fn state(&self) -> ClientState {
        match self.end() {
            Some(CloseKind::TokenExpired) => ClientState::TokenExpired,
            Some(CloseKind::TimedOut) => ClientState::TimedOut,
            Some(CloseKind::ResponseTimedOut) => ClientState::ResponseTimedOut,
            Some(CloseKind::RequestTimedOut) => ClientState::RequestTimedOut,
            Some(CloseKind::Denied) => ClientState::Denied,
            Some(_) => ClientState::Disconnected,
            None if self.client.is_connected() => ClientState::Connected,
            None if self.request_challenge => ClientState::SendingResponse,
            None => ClientState::SendingRequest,
        }
    }

    fn end(&self) -> Option<CloseKind> {
        use renetcode::DisconnectReason as Reason;
        self.client.disconnect_reason().map(|reason| match reason {
            Reason::ConnectTokenExpired => CloseKind::TokenExpired,
            Reason::ConnectionTimedOut => CloseKind::TimedOut,
            Reason::ConnectionResponseTimedOut => CloseKind::ResponseTimedOut,
            Reason::ConnectionRequestTimedOut => CloseKind::RequestTimedOut,
            Reason::ConnectionDenied => CloseKind::Denied,
            Reason::DisconnectedByClient => CloseKind::Left,
            Reason::DisconnectedByServer => CloseKind::DisconnectedByServer,
        })
    }

    fn slot_info(&self) -> Option<(u32, u32)> {
        None
    }

    fn received(&self) -> &[Vec<u8>] {
        &self.received
    }

    fn send(&mut self, payload: &[u8]) {
        let (to, datagram) = self.client.generate_payload_packet(payload).expect("the client is connected");
        self.socket.send_to(datagram, to).expect("the loopback interface accepts a datagram");
    }

    fn leave(&mut self) {
        let (to, datagram) = self.client.disconnect().expect("the packet can be sealed");
        self.socket.send_to(datagram, to).expect("the loopback interface accepts a datagram");
    }
}

/// Mints a token of the peer's issuer.
fn their_token(order: &TokenOrder) -> renetcode::ConnectToken {
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
    .expect("valid claims")
}

/// Mints a token of the peer's issuer, in the format of the standard: without the client id in front, and with zeros up
/// to 2048 bytes.
fn their_ticket(order: &TokenOrder) -> MintedToken {
    let mut bytes = Vec::new();
    their_token(order).write(&mut bytes).expect("a vector accepts all bytes");
    bytes.drain(..8);
    bytes.resize(CONNECT_TOKEN_BYTES, 0);
    order.minted(ConnectToken::from_bytes(&bytes).expect("our code can parse it"))
}

fn bind(ip: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).expect("the system has a free port");
    socket.set_nonblocking(true).expect("the socket supports non-blocking reads");
    socket
}

/// Returns the next queued datagram. An error reports an earlier datagram that was lost, and is not the end.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    socket.recv_from(buffer).ok()
}

/// Returns the type and the sequence number of a sealed packet of this peer: sequence 0 may have no byte.
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
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970")
}
