//! Whole sessions of the reference: every datagram is parsed, our client replays the recorded ones, and our client and
//! our server play the same scripts with each other.
//!
//! The reference replies in its next 10 Hz slot and our code at once, so the times differ. States, deliveries and
//! refusals are the same, except for the entries of `DECIDED_OTHERWISE`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::{Key, KeyRing, Seed};
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::crypto::sealed_token::open_challenge;
use slipgate_netcode::server::{DisconnectReason, NetcodeEvent, NetcodeServer, ServerConfig, TokenCutoff};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::redeem::redeem;
use slipgate_netcode::wire::packet::{Challenge, KeepAlive, PacketHeader, PacketKind, REQUEST_PREFIX, Request};
use slipgate_tests::netcode_world::VecOutbox;
use slipgate_tests::vectors::{Case, Judge, Vectors};

const FILE: &str = "netcode_sessions.json";
const SCENARIOS: usize = 18;
/// The UNIX second of the start of the scripts: their tokens expire 30 s later.
const START: u64 = 4_102_444_770;
const TICK: Duration = Duration::from_micros(15_625);
/// Our timeouts expire on time, those of the reference in the tick after it; so for each server.
const SLACK: Duration = Duration::from_micros(4 * 15_625);

fn instant(time: Duration) -> Instant {
    Instant::from_start(time)
}

fn now(time: Duration) -> Now {
    Now { monotonic: instant(time), unix: UnixMillis(START * 1000 + time.as_millis() as u64) }
}

fn token(scenario: &Case<'_>, name: &str) -> ConnectToken {
    let tokens = scenario.steps("tokens");
    let token = tokens.iter().find(|token| token.name() == name).unwrap_or_else(|| panic!("{scenario}: {name}"));
    ConnectToken::from_bytes(&token.bytes("token_hex")).unwrap_or_else(|error| panic!("{scenario}: {error}"))
}

fn is(event: &Case<'_>, name: &str) -> bool {
    event.text("event") == name
}

/// Returns a list as one line, in the form of the tables of outcomes.
fn line<T: ToString>(list: &[T]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

// Parsing ------------------------------------------------------------------------------------------------------------

/// The keys and tokens that open the datagrams of a scenario.
struct Reader<'a> {
    scenario: Case<'a>,
    protocol_id: u64,
    cipher: PacketCipher,
    challenges: Vec<Challenge>,
    payloads: Vec<Vec<u8>>,
}

#[test]
fn every_session_datagram_decodes_as_recorded() {
    let mut datagrams = 0;
    for scenario in Vectors::load(FILE).cases("scenarios", SCENARIOS) {
        let protocol_id = scenario.u64("protocol_id_u64");
        let cipher = PacketCipher::new(protocol_id);
        let mut reader = Reader { scenario, protocol_id, cipher, challenges: Vec::new(), payloads: Vec::new() };
        for event in scenario.steps("events") {
            if is(&event, "client_send_called") || is(&event, "server_send_called") {
                reader.payloads.push(event.bytes("payload_hex"));
            } else if is(&event, "datagram") || is(&event, "datagram_injected") {
                reader.read(&event);
                datagrams += 1;
            }
        }
    }
    assert_eq!(datagrams, 671);
}

impl Reader<'_> {
    fn read(&mut self, event: &Case<'_>) {
        let datagram = event.bytes("wire_hex");
        if datagram.first() == Some(&REQUEST_PREFIX) {
            assert_eq!(event.text("packet_type"), "connection_request", "{}", self.scenario);
            return self.read_request(event, &datagram);
        }
        let servers = self.scenario.steps("servers");
        let to_client = servers.iter().any(|server| server.text("address") == event.text("sender"));
        let accepted = if to_client { PacketKind::TO_CLIENT } else { PacketKind::TO_SERVER };
        let header =
            PacketHeader::parse(&datagram, accepted).unwrap_or_else(|discard| panic!("{}: {discard}", self.scenario));
        assert_eq!(name(header.kind), event.text("packet_type"), "{}", self.scenario);
        if is(event, "datagram") {
            assert_eq!(header.sequence, event.u64("sequence_u64"), "{}", self.scenario);
        }
        let content = self.open(&header, &datagram, to_client);
        self.check_content(event, &header, &content, to_client);
    }

    fn open(&self, header: &PacketHeader, datagram: &[u8], to_client: bool) -> Vec<u8> {
        let key = if to_client { "server_to_client_key_hex" } else { "client_to_server_key_hex" };
        let open = |token: Case<'_>| {
            let mut datagram = datagram.to_vec();
            let content = self.cipher.open(&Key::from(token.array(key)), header, &mut datagram).ok()?;
            Some(content.to_vec())
        };
        let opened: Vec<_> = self.scenario.steps("tokens").into_iter().filter_map(open).collect();
        assert_eq!(opened.len(), 1, "{}: under the key of exactly one token", self.scenario);
        opened.concat()
    }

    fn check_content(&mut self, event: &Case<'_>, header: &PacketHeader, content: &[u8], to_client: bool) {
        let scenario = self.scenario;
        match header.kind {
            PacketKind::Denied | PacketKind::Disconnect => assert!(content.is_empty(), "{scenario}"),
            PacketKind::Challenge => {
                let challenge = Challenge::parse(content).expect("the content of a challenge");
                self.check_challenge(event, challenge);
                self.challenges.push(challenge);
            }
            PacketKind::Response => {
                let returned = Challenge::parse(content).expect("the content of a response");
                assert!(self.challenges.contains(&returned), "{scenario}: a challenge was returned unchanged");
            }
            PacketKind::KeepAlive if to_client => {
                let keep_alive = KeepAlive::parse(content).expect("the content of a keep-alive");
                let server = self.server(event.text("sender")).expect("its server");
                assert_eq!(keep_alive.max_clients, server.u32("max_clients_u32"), "{scenario}");
                assert!(keep_alive.client_index.0 < keep_alive.max_clients, "{scenario}");
            }
            PacketKind::KeepAlive => assert_eq!(KeepAlive::parse(content), Some(KeepAlive::default()), "{scenario}"),
            PacketKind::Payload => assert!(self.payloads.iter().any(|payload| payload == content), "{scenario}"),
        }
    }

    /// Checks that the challenge token names the client of a token of the scenario, and holds its user data.
    fn check_challenge(&self, event: &Case<'_>, mut challenge: Challenge) {
        let server = self.server(event.text("sender")).expect("its server");
        let key = Key::from(server.array("challenge_key_hex"));
        let plain =
            open_challenge(&key, challenge.sequence, &mut challenge.sealed).expect("it opens under the forced key");
        let names = |token: &Case<'_>| {
            plain[..8] == token.u64("client_id_u64").to_le_bytes() && plain[8..264] == token.bytes("user_data_hex")
        };
        assert!(self.scenario.steps("tokens").iter().any(names), "{}", self.scenario);
        assert!(plain[264..].iter().all(|byte| *byte == 0), "{}: zeros, in place of our digest", self.scenario);
    }

    fn read_request(&self, event: &Case<'_>, datagram: &[u8]) {
        let scenario = self.scenario;
        let request =
            Request::parse(datagram, self.protocol_id).unwrap_or_else(|discard| panic!("{scenario}: {discard}"));
        let sealed = |token: &Case<'_>| &token.bytes("token_hex")[61..1085] == request.sealed;
        let tokens = scenario.steps("tokens");
        let token = tokens.iter().find(|token| sealed(token)).unwrap_or_else(|| panic!("{scenario}: its token"));
        assert_eq!(request.expires.0, token.u64("expire_timestamp_u64"), "{scenario}");
        let Some(server) = self.server(event.text("receiver")) else { return };
        let keys = KeyRing::from(Key::from(server.array("private_key_hex")));
        let redeemed = redeem(&request, self.protocol_id, &keys).unwrap_or_else(|error| panic!("{scenario}: {error}"));
        assert_eq!(redeemed.client_id.0, token.u64("client_id_u64"), "{scenario}");
        assert_eq!(redeemed.timeout_seconds, token.i32("timeout_seconds_i32"), "{scenario}");
        assert_eq!(redeemed.user_data.to_vec(), token.bytes("user_data_hex"), "{scenario}");
        assert_eq!(redeemed.client_to_server.expose(), &token.array("client_to_server_key_hex"), "{scenario}");
        assert_eq!(redeemed.server_to_client.expose(), &token.array("server_to_client_key_hex"), "{scenario}");
        assert!(redeemed.server_index(&[server.address("address").into()]).is_some() && redeemed.minted.is_none());
        let listed: Vec<_> = redeemed.servers.iter().map(ToString::to_string).collect();
        assert_eq!(listed, token.texts("server_addresses"), "{scenario}");
    }

    fn server(&self, address: &str) -> Option<Case<'_>> {
        self.scenario.steps("servers").into_iter().find(|server| server.text("address") == address)
    }
}

fn name(kind: PacketKind) -> &'static str {
    match kind {
        PacketKind::Denied => "connection_denied",
        PacketKind::Challenge => "connection_challenge",
        PacketKind::Response => "connection_response",
        PacketKind::KeepAlive => "connection_keep_alive",
        PacketKind::Payload => "connection_payload",
        PacketKind::Disconnect => "connection_disconnect",
    }
}

// The states of a client ---------------------------------------------------------------------------------------------

/// A client of ours and its outcomes.
struct Player {
    core: NetcodeClient,
    address: Address,
    /// Each new state with its time; an attempt at a further server is a new state.
    states: Vec<(Duration, ClientState)>,
    received: Vec<(u64, Vec<u8>)>,
    last: (ClientState, Option<Address>),
}

impl Player {
    fn new(address: Address) -> Self {
        Self {
            core: NetcodeClient::new(TimeoutPolicy::Clamped),
            address,
            states: Vec::new(),
            received: Vec::new(),
            last: (ClientState::Disconnected, None),
        }
    }

    fn connect(&mut self, token: ConnectToken, time: Duration) {
        // A refusal is a state as well.
        let _ = self.core.connect(token, instant(time), |_| true);
        self.note(time);
    }

    fn handle(&mut self, from: Address, datagram: &[u8], time: Duration) {
        let mut datagram = datagram.to_vec();
        if let Ok(Some(payload)) = self.core.handle(from, &mut datagram, instant(time)) {
            self.received.push((payload.sequence.0, payload.bytes.to_vec()));
        }
        self.note(time);
    }

    /// Runs one update of the reference: after all arrivals, timeouts and pending packets.
    fn update(&mut self, time: Duration) -> VecDeque<(Address, Vec<u8>)> {
        self.core.tick(instant(time));
        self.note(time);
        let mut outbox = VecOutbox::default();
        self.core.transmit(instant(time), &mut outbox);
        outbox.datagrams
    }

    fn note(&mut self, time: Duration) {
        let state = self.core.state();
        let server = self.core.server().filter(|_| state == ClientState::SendingRequest);
        if (state, server) != self.last {
            self.last = (state, server);
            self.states.push((time, state));
        }
    }

    fn states(&self) -> String {
        line(&self.states.iter().map(|(_, state)| state.name()).collect::<Vec<_>>())
    }

    fn payloads(&self) -> String {
        line(&self.received.iter().map(|(_, bytes)| hex::encode(bytes)).collect::<Vec<_>>())
    }
}

/// Returns every address with a client in a scenario.
fn clients(scenario: &Case<'_>) -> Vec<Address> {
    let called = scenario.steps("events").into_iter().filter(|event| is(event, "client_connect_called"));
    let mut addresses: Vec<Address> = called.map(|event| event.address("client").into()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Returns the records of one client in the file: every state, or every payload that it received.
fn recorded<'a>(scenario: &Case<'a>, client: Address, event: &str) -> Vec<Case<'a>> {
    let events = scenario.steps("events").into_iter();
    events.filter(|e| is(e, event) && Address::from(e.address("client")) == client).collect()
}

fn recorded_states(scenario: &Case<'_>, client: Address) -> String {
    let states = recorded(scenario, client, "client_state");
    line(&states.iter().map(|event| event.text("to_state")).collect::<Vec<_>>())
}

fn recorded_payloads(scenario: &Case<'_>, client: Address) -> String {
    let payloads = recorded(scenario, client, "client_received_payload");
    line(&payloads.iter().map(|event| event.text("payload_hex")).collect::<Vec<_>>())
}

fn last_time(scenario: &Case<'_>) -> Duration {
    scenario.steps("events").last().map_or(Duration::ZERO, |event| event.seconds("time_s"))
}

#[test]
fn our_client_replays_recorded_sessions_like_the_reference() {
    let mut judge = Judge::new(FILE, |what| what.starts_with("replayed "));
    for scenario in Vectors::load(FILE).cases("scenarios", SCENARIOS) {
        for address in clients(&scenario) {
            let player = replay(&scenario, address);
            let what = format!("replayed states of {address}");
            judge.compare(&scenario, &what, &recorded_states(&scenario, address), &player.states());
            let what = format!("replayed payloads to {address}");
            judge.compare(&scenario, &what, &recorded_payloads(&scenario, address), &player.payloads());
            assert_times(&scenario, &player);
        }
    }
    judge.all_entries_were_needed();
}

/// Delivers to a client all datagrams to its address, each in the update after it was sent.
fn replay(scenario: &Case<'_>, address: Address) -> Player {
    let mut player = Player::new(address);
    let events = scenario.steps("events");
    let (mut time, mut next) = (Duration::ZERO, 0);
    let mut on_the_way: Vec<(Address, Vec<u8>)> = Vec::new();
    while time <= last_time(scenario) {
        for (from, datagram) in std::mem::take(&mut on_the_way) {
            player.handle(from, &datagram, time);
        }
        player.update(time);
        while let Some(event) = events.get(next).filter(|event| event.seconds("time_s") <= time) {
            next += 1;
            let arrives = is(event, "datagram_injected") || (is(event, "datagram") && event.flag("delivered"));
            if arrives && Address::from(event.address("receiver")) == address {
                on_the_way.push((event.address("sender").into(), event.bytes("wire_hex")));
            } else if event.has("client") && Address::from(event.address("client")) == address {
                call(&mut player, scenario, event, time);
            }
        }
        time += TICK;
    }
    player
}

/// Runs the action of the script's application on a client; returns the datagrams that it sends at once.
fn call(player: &mut Player, scenario: &Case<'_>, event: &Case<'_>, time: Duration) -> VecDeque<(Address, Vec<u8>)> {
    let mut outbox = VecOutbox::default();
    match event.text("event") {
        "client_connect_called" => player.connect(token(scenario, event.text("token")), time),
        "client_disconnect_called" => {
            player.core.disconnect();
            player.note(time);
            player.core.transmit(instant(time), &mut outbox);
        }
        "client_send_called" => {
            // It fails where our client is not connected; then the comparison detects the missing payload.
            let _ = player.core.send(&event.bytes("payload_hex"), instant(time), &mut outbox);
        }
        _ => {}
    }
    outbox.datagrams
}

/// Asserts that equal states come at the same time.
fn assert_times(scenario: &Case<'_>, player: &Player) {
    if recorded_states(scenario, player.address) != player.states() {
        return;
    }
    let recorded = recorded(scenario, player.address, "client_state");
    for ((ours, state), theirs) in player.states.iter().zip(recorded) {
        let theirs = theirs.seconds("time_s");
        assert!(ours.abs_diff(theirs) <= SLACK, "{scenario}: {state:?} at {ours:?}, the reference at {theirs:?}");
    }
}

// The same scripts between our client and our server ----------------------------------------------------------------

/// A server of ours, and its events in the form of the file.
struct Host {
    core: NetcodeServer,
    address: Address,
    log: Vec<String>,
    received: Vec<String>,
}

/// Returns whether the network of the script loses a datagram, besides all while it is cut.
fn is_lost(scenario: &Case<'_>, to_client: bool, datagram: &[u8], seen: &mut BTreeMap<&'static str, usize>) -> bool {
    let kind = datagram.first().map_or(0, |prefix| prefix & 0x0f);
    match scenario.name() {
        "responses_lost" => !to_client && kind == PacketKind::Response as u8,
        "payload_before_client_is_confirmed" if to_client && kind == PacketKind::KeepAlive as u8 => {
            let count = seen.entry("keep-alives").or_default();
            *count += 1;
            *count == 1
        }
        _ => false,
    }
}

struct AttackWorld<'a> {
    scenario: Case<'a>,
    players: Vec<Player>,
    hosts: Vec<Host>,
    to_players: Vec<(Address, Address, Vec<u8>)>,
    to_hosts: Vec<(Address, Address, Vec<u8>)>,
    sent: Vec<(Address, Address, Vec<u8>)>,
    seen: BTreeMap<&'static str, usize>,
    is_cut: bool,
}

#[test]
fn our_client_and_server_replay_the_scripts_identically() {
    let mut judge = Judge::new(FILE, |what| what.starts_with("live "));
    for scenario in Vectors::load(FILE).cases("scenarios", SCENARIOS) {
        let attack = AttackWorld::play(scenario);
        for player in &attack.players {
            let address = player.address;
            let what = format!("live states of {address}");
            judge.compare(&scenario, &what, &recorded_states(&scenario, address), &player.states());
            let what = format!("live payloads to {address}");
            judge.compare(&scenario, &what, &recorded_payloads(&scenario, address), &player.payloads());
        }
        for host in &attack.hosts {
            let what = format!("live clients of {}", host.address);
            judge.compare(&scenario, &what, &recorded_clients(&scenario, host.address), &line(&host.log));
            let what = format!("live payloads to {}", host.address);
            let theirs: Vec<&str> = at_host(&scenario, host.address, "server_received_payload")
                .iter()
                .map(|event| event.text("payload_hex"))
                .collect();
            judge.compare(&scenario, &what, &line(&theirs), &line(&host.received));
        }
        attack.assert_requests_are_the_recorded_ones();
    }
    judge.all_entries_were_needed();
}

fn at_host<'a>(scenario: &Case<'a>, host: Address, event: &str) -> Vec<Case<'a>> {
    let events = scenario.steps("events").into_iter();
    events.filter(|e| is(e, event) && Address::from(e.address("server")) == host).collect()
}

/// Returns the connects and disconnects of a server, in the terms of the file.
fn recorded_clients(scenario: &Case<'_>, host: Address) -> String {
    let mut log = Vec::new();
    for event in scenario.steps("events") {
        if !event.has("server") || Address::from(event.address("server")) != host {
            continue;
        }
        match event.text("event") {
            "server_client_connected" => log.push(format!("{} in {}", event.u64("client_id_u64"), event.u32("slot"))),
            "server_client_disconnected" => log.push(format!("{} from {}", event.text("reason"), event.u32("slot"))),
            _ => {}
        }
    }
    line(&log)
}

impl<'a> AttackWorld<'a> {
    fn play(scenario: Case<'a>) -> Self {
        let mut attack = Self {
            scenario,
            players: clients(&scenario).into_iter().map(Player::new).collect(),
            hosts: scenario.steps("servers").iter().map(Host::new).collect(),
            to_players: Vec::new(),
            to_hosts: Vec::new(),
            sent: Vec::new(),
            seen: BTreeMap::new(),
            is_cut: false,
        };
        let events = scenario.steps("events");
        let (mut time, mut next) = (Duration::ZERO, 0);
        while time <= last_time(&scenario) {
            attack.update(time);
            while let Some(event) = events.get(next).filter(|event| event.seconds("time_s") <= time) {
                next += 1;
                attack.act(event, time);
            }
            time += TICK;
        }
        attack
    }

    /// Updates all clients, then all servers: a datagram is available to the next update of its receiver.
    fn update(&mut self, time: Duration) {
        for (from, to, datagram) in std::mem::take(&mut self.to_players) {
            if let Some(player) = self.players.iter_mut().find(|player| player.address == to) {
                player.handle(from, &datagram, time);
            }
        }
        for index in 0..self.players.len() {
            let (from, sent) = (self.players[index].address, self.players[index].update(time));
            self.carry(from, sent);
        }
        for (from, to, datagram) in std::mem::take(&mut self.to_hosts) {
            if let Some(host) = self.hosts.iter_mut().find(|host| host.address == to) {
                host.handle(from, datagram, time);
            }
        }
        for index in 0..self.hosts.len() {
            let (from, sent) = (self.hosts[index].address, self.hosts[index].update(time));
            self.carry(from, sent);
        }
    }

    fn carry(&mut self, from: Address, datagrams: VecDeque<(Address, Vec<u8>)>) {
        let to_client = self.hosts.iter().any(|host| host.address == from);
        for (to, datagram) in datagrams {
            self.sent.push((from, to, datagram.clone()));
            if self.is_cut || is_lost(&self.scenario, to_client, &datagram, &mut self.seen) {
                continue;
            }
            let queue = if to_client { &mut self.to_players } else { &mut self.to_hosts };
            queue.push((from, to, datagram));
        }
    }

    fn act(&mut self, event: &Case<'_>, time: Duration) {
        let name = event.text("event");
        match name {
            "network_cut" => self.is_cut = true,
            "network_restored" => self.is_cut = false,
            // Everything so far a second time: our own datagrams instead of the recorded ones.
            "datagram_injected" if event.text("why") == "replay of datagram 0" => {
                for (from, to, datagram) in self.sent.clone() {
                    let to_client = self.hosts.iter().any(|host| host.address == from);
                    let queue = if to_client { &mut self.to_players } else { &mut self.to_hosts };
                    queue.push((from, to, datagram));
                }
            }
            _ if name.starts_with("client_") && name.ends_with("_called") => {
                let address = Address::from(event.address("client"));
                let index = self.players.iter().position(|player| player.address == address).expect("a client");
                let sent = call(&mut self.players[index], &self.scenario, event, time);
                self.carry(address, sent);
            }
            _ if name.starts_with("server_") && name.ends_with("_called") => {
                let address = Address::from(event.address("server"));
                let index = self.hosts.iter().position(|host| host.address == address).expect("a server");
                let sent = self.hosts[index].call(event, time);
                self.carry(address, sent);
            }
            _ => {}
        }
    }

    /// Asserts that each connection request equals that of the reference, byte for byte: it is a reordering of the
    /// bytes of the token.
    fn assert_requests_are_the_recorded_ones(&self) {
        let is_request = |datagram: &[u8]| datagram.first() == Some(&REQUEST_PREFIX);
        let events = self.scenario.steps("events");
        let recorded: Vec<Vec<u8>> = events
            .iter()
            .filter(|event| is(event, "datagram") && event.text("packet_type") == "connection_request")
            .map(|event| event.bytes("wire_hex"))
            .collect();
        let ours: Vec<_> = self.sent.iter().filter(|(.., datagram)| is_request(datagram)).collect();
        assert!(!ours.is_empty(), "{}", self.scenario);
        for (.., request) in ours {
            assert!(recorded.contains(request), "{}", self.scenario);
        }
    }
}

impl Host {
    fn new(given: &Case<'_>) -> Self {
        let address: Address = given.address("address").into();
        let mut config =
            ServerConfig::new(given.u64("protocol_id_u64"), given.u32("max_clients_u32"), &[address.socket_addr()]);
        config.token_cutoff = TokenCutoff::None;
        let keys = Key::from(given.array("private_key_hex")).into();
        let seed = Seed::from([address.socket_addr().port() as u8; 32]);
        let core = NetcodeServer::new(config, keys, &seed, now(Duration::ZERO)).expect("settings");
        Self { core, address, log: Vec::new(), received: Vec::new() }
    }

    fn handle(&mut self, from: Address, mut datagram: Vec<u8>, time: Duration) {
        if let Ok(Some((_, payload))) = self.core.handle(from, &mut datagram, now(time)) {
            self.received.push(hex::encode(payload.bytes));
        }
        self.note();
    }

    fn update(&mut self, time: Duration) -> VecDeque<(Address, Vec<u8>)> {
        self.core.tick(now(time));
        self.note();
        let mut outbox = VecOutbox::default();
        self.core.transmit(now(time), &mut outbox);
        outbox.datagrams
    }

    fn call(&mut self, event: &Case<'_>, time: Duration) -> VecDeque<(Address, Vec<u8>)> {
        let mut outbox = VecOutbox::default();
        let client = self.core.clients().find(|client| client.slot().0 == event.u32("slot"));
        let Some(client) = client else { return outbox.datagrams };
        if is(event, "server_disconnect_called") {
            self.core.disconnect(client);
            self.core.transmit(now(time), &mut outbox);
        } else {
            self.core
                .send(client, &event.bytes("payload_hex"), now(time), &mut outbox)
                .expect("the outbox is large enough");
        }
        self.note();
        outbox.datagrams
    }

    fn note(&mut self) {
        while let Some(event) = self.core.poll_event() {
            self.log.push(match event {
                NetcodeEvent::Connected { client, client_id } => format!("{client_id} in {}", client.slot().0),
                NetcodeEvent::Disconnected { client, reason, .. } => {
                    let reason = match reason {
                        DisconnectReason::Left => "client_disconnect".to_owned(),
                        DisconnectReason::Kicked => "server_disconnect".to_owned(),
                        DisconnectReason::TimedOut => "timed_out".to_owned(),
                        other => other.to_string(),
                    };
                    format!("{reason} from {}", client.slot().0)
                }
            });
        }
    }
}
