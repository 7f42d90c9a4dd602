//! Ours against the official Rust port of netcode 1.02, `netcode-official` 1.0.0, on real sockets, IPv4 and IPv6.
//!
//! It follows the reference in C, so these stories stand for that one, too: its wire is ours, byte for byte, and every
//! story of [`stories`] holds in both directions under our defaults. Where it differs, and what that means:
//!
//! - Its tokens carry no mint time. A server of ours that has just started, without a history, refuses them until all
//!   that could have been minted before its start have expired (`Fence`).
//! - A client of its that is kicked goes on to the next server of its token; ours does not.
//! - A server of its lets 256 payloads of one client wait, and drops what is beyond: here eight are on their way.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use netcode::ServerEvent;
use slipgate_client::{ClientState, ConnectToken};
use slipgate_server::{Discard, DisconnectReason, Fence};
use slipgate_tests::live::{
    GameClient, GameServer, IPV4, IPV6, Order, OurClient, OurServer, PRIVATE_KEY, PROTOCOL_ID, ServerLog, Ticket, Turn,
    run_for, stories, until,
};

/// Makes a test of each story for a pair: everything that the standard promises holds with this peer.
macro_rules! all_stories {
    ($pair:ident: $server:ty, $client:ty, $ip:expr) => {
        slipgate_tests::stories!($pair: $server, $client, $ip, [
            payloads_of_every_size_arrive_each_way,
            a_word_of_welcome_arrives,
            a_kicked_client_knows_and_its_slot_is_free,
            a_server_knows_who_left_and_the_slot_is_free,
            a_full_server_denies,
            who_is_denied_tries_the_next_server,
            silence_times_out,
            an_expired_token_admits_nobody,
        ]);
    };
}

all_stories!(our_client_on_their_server_by_ipv4: TheirServer, OurClient, IPV4);
all_stories!(our_client_on_their_server_by_ipv6: TheirServer, OurClient, IPV6);
all_stories!(their_client_on_our_server_by_ipv4: OurServer, TheirClient, IPV4);
all_stories!(their_client_on_our_server_by_ipv6: OurServer, TheirClient, IPV6);

#[test]
fn tokens_of_their_issuer_lead_our_client_to_their_server() {
    for ip in [IPV4, IPV6] {
        let mut server = TheirServer::start(ip, 4);
        let ticket = their_ticket(&Order::new(stories::player(1), &[server.address()]));
        stories::talk::<TheirServer, OurClient>(&mut server, &ticket);
    }
}

#[test]
fn tokens_of_their_issuer_lead_their_client_and_ours_to_our_server_on_its_first_start() {
    for ip in [IPV4, IPV6] {
        let start = || OurServer::start_with(ip, 4, |config| config.fence = Fence::Open);
        let mut server = start();
        let ticket = their_ticket(&Order::new(stories::player(1), &[server.address()]));
        stories::talk::<OurServer, TheirClient>(&mut server, &ticket);

        let mut server = start();
        let ticket = their_ticket(&Order::new(stories::player(1), &[server.address()]));
        stories::talk::<OurServer, OurClient>(&mut server, &ticket);
    }
}

#[test]
fn a_token_of_their_issuer_waits_outside_the_fence_until_it_surely_is_from_after_the_start() {
    let mut server = OurServer::start(IPV4, 4);

    // Of 30 s, it may have been minted up to 15 s before now: our maximum is 45 s.
    let short = their_ticket(&Order::new(stories::player(1), &[server.address()]));
    let mut client = TheirClient::connect(&short);
    until(&mut (&mut server, &mut client), "the fence says no", |(server, _)| {
        server.server.discards().count(Discard::BeforeStart) > 1
    });
    assert_eq!(client.state(), ClientState::SendingRequest);
    assert_eq!(server.server.discards().total(), server.server.discards().count(Discard::BeforeStart));

    // Of the full 45 s, it was minted after the start as soon as another second has begun.
    run_for(&mut server, Duration::from_millis(1001));
    let order = Order { lifetime_seconds: 45, ..Order::new(stories::player(2), &[server.address()]) };
    let _: TheirClient = stories::admit_with(&mut server, &their_ticket(&order));
}

#[test]
fn whom_the_first_of_two_servers_kicks_goes_on_to_the_second_if_theirs_and_stays_out_if_ours() {
    assert_eq!(state_after_a_kick_by_the_first_of_two::<TheirClient>(), ClientState::Connected);
    assert_eq!(state_after_a_kick_by_the_first_of_two::<OurClient>(), ClientState::Disconnected);
}

fn state_after_a_kick_by_the_first_of_two<C: GameClient>() -> ClientState {
    let (mut first, mut second) = (OurServer::start(IPV4, 1), OurServer::start(IPV4, 1));
    let order = Order::new(stories::player(1), &[first.address(), second.address()]);
    let mut client: C = stories::admit_with(&mut first, &order.mint());
    first.kick(order.client_id);
    until(&mut (&mut first, &mut client), "word of the kick", |(_, client)| client.state() != ClientState::Connected);
    until(&mut (&mut first, &mut second, &mut client), "an end", |(_, _, client)| {
        !matches!(client.state(), ClientState::SendingRequest | ClientState::SendingResponse)
    });
    client.state()
}

/// Their server.
struct TheirServer {
    server: netcode::Server,
    start: Instant,
    log: ServerLog,
    /// Who has which slot: when a connection ends, it tells the slot alone.
    slots: Vec<u64>,
}

impl Turn for TheirServer {
    fn turn(&mut self) {
        self.server.update(self.start.elapsed().as_secs_f64());
        while let Some(event) = self.server.next_event() {
            self.note(event);
        }
        for slot in 0..self.slots.len() {
            while let Some((payload, _)) = self.server.receive_packet(slot) {
                self.log.payloads.push(payload);
            }
        }
    }

    fn describe(&self) -> String {
        let log = &self.log;
        let (connected, ended, payloads) = (log.connected.len(), &log.ended, log.payloads.len());
        format!("their server: {connected} came, {ended:?} went, {payloads} payloads")
    }
}

impl TheirServer {
    fn note(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::ClientConnected { client_index } => {
                let client_id = self.server.client_id(client_index);
                let user_data = self.server.client_user_data(client_index).expect("it is connected");
                self.slots[client_index] = client_id;
                self.log.connected.push((client_id, *user_data));
            }
            ServerEvent::ClientDisconnected { client_index, reason } => {
                let reason = match reason {
                    netcode::DisconnectReason::TimedOut => DisconnectReason::TimedOut,
                    netcode::DisconnectReason::ClientDisconnect => DisconnectReason::Left,
                    netcode::DisconnectReason::ServerDisconnect => DisconnectReason::Kicked,
                };
                self.log.ended.push((self.slots[client_index], Some(reason)));
            }
        }
    }

    fn slot(&self, client_id: u64) -> usize {
        let has_it = |slot: &usize| self.server.client_id(*slot) == client_id;
        (0..self.slots.len()).find(has_it).expect("the client is connected")
    }
}

impl GameServer for TheirServer {
    fn start(ip: IpAddr, slots: u32) -> Self {
        let address = SocketAddr::new(ip, 0);
        let mut server =
            netcode::Server::new(address, PROTOCOL_ID, &PRIVATE_KEY, 0.0).expect("the system has a free port");
        server.start(slots as usize).expect("so many slots are allowed");
        Self { server, start: Instant::now(), log: ServerLog::default(), slots: vec![0; slots as usize] }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn log(&self) -> &ServerLog {
        &self.log
    }

    fn connected(&self) -> usize {
        self.server.num_connected_clients()
    }

    fn send(&mut self, client_id: u64, payload: &[u8]) {
        self.server.send_packet(self.slot(client_id), payload).expect("1 to 1200 bytes");
    }

    fn kick(&mut self, client_id: u64) {
        self.server.disconnect_client(self.slot(client_id));
    }
}

/// Their client.
struct TheirClient {
    client: netcode::Client,
    start: Instant,
    received: Vec<Vec<u8>>,
}

impl Turn for TheirClient {
    fn turn(&mut self) {
        self.client.update(self.start.elapsed().as_secs_f64());
        while let Some((payload, _)) = self.client.receive_packet() {
            self.received.push(payload);
        }
    }

    fn describe(&self) -> String {
        format!("their client: {}, {} payloads", self.client.state(), self.received.len())
    }
}

impl GameClient for TheirClient {
    fn connect(ticket: &Ticket) -> Self {
        let server = ticket.token.facts().servers.as_slice()[0];
        let own = SocketAddr::new(if server.is_ipv4() { IPV4 } else { IPV6 }, 0);
        let mut client = netcode::Client::new(own, 0.0).expect("the system has a free port");
        client.connect(ticket.token.as_bytes()).expect("the token can be read");
        Self { client, start: Instant::now(), received: Vec::new() }
    }

    fn state(&self) -> ClientState {
        match self.client.state() {
            netcode::ClientState::ConnectTokenExpired => ClientState::TokenExpired,
            netcode::ClientState::InvalidConnectToken => ClientState::InvalidToken,
            netcode::ClientState::ConnectionTimedOut => ClientState::TimedOut,
            netcode::ClientState::ConnectionResponseTimedOut => ClientState::ResponseTimedOut,
            netcode::ClientState::ConnectionRequestTimedOut => ClientState::RequestTimedOut,
            netcode::ClientState::ConnectionDenied => ClientState::Denied,
            netcode::ClientState::Disconnected => ClientState::Disconnected,
            netcode::ClientState::SendingConnectionRequest => ClientState::SendingRequest,
            netcode::ClientState::SendingConnectionResponse => ClientState::SendingResponse,
            netcode::ClientState::Connected => ClientState::Connected,
        }
    }

    fn seat(&self) -> Option<(u32, u32)> {
        let is_connected = self.client.state() == netcode::ClientState::Connected;
        is_connected.then(|| (self.client.client_index() as u32, self.client.max_clients() as u32))
    }

    fn received(&self) -> &[Vec<u8>] {
        &self.received
    }

    fn send(&mut self, payload: &[u8]) {
        self.client.send_packet(payload).expect("1 to 1200 bytes");
    }

    fn leave(&mut self) {
        self.client.disconnect();
    }
}

/// A token of their issuer.
fn their_ticket(order: &Order) -> Ticket {
    let bytes = netcode::generate_connect_token(
        &order.servers,
        &order.servers,
        order.lifetime_seconds as i32,
        order.timeout_seconds,
        order.client_id,
        PROTOCOL_ID,
        &PRIVATE_KEY,
        &order.user_data(),
    )
    .expect("the order is sound");
    order.ticket(ConnectToken::from_bytes(&bytes).expect("we can read it"))
}
