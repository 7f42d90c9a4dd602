//! The decisions of a server on requests and responses, step by step as in the reference.
//!
//! The responses of the reference hold challenge tokens under its own key. Ours also carry a digest, so each response
//! is made again from our own challenge, with the same alterations as in the script.

use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{NetcodeEvent, NetcodeServer, ServerConfig, TokenCutoff};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::wire::MAX_DATAGRAM_BYTES;
use slipgate_netcode::wire::packet::{Challenge, PacketHeader, PacketKind, REQUEST_PREFIX};
use slipgate_tests::netcode_world::VecOutbox;
use slipgate_tests::vectors::{Case, Judge, Vectors};

const FILE: &str = "netcode_server_decisions.json";
/// The UNIX second of the start of the scripts: their tokens expire 30 s later.
const START: u64 = 4_102_444_770;

/// A challenge of the reference, and ours that replaces it.
struct Earned {
    reference: Challenge,
    ours: Option<Challenge>,
}

/// The keys of a token of a scenario.
#[derive(Clone)]
struct TokenKeys {
    client_to_server: Key,
    server_to_client: Key,
}

/// A running scenario.
struct Script<'a> {
    scenario: Case<'a>,
    cipher: PacketCipher,
    server: NetcodeServer,
    tokens: Vec<TokenKeys>,
    earned: Vec<Earned>,
}

#[test]
fn server_decisions_match_the_reference_or_the_listed_ones() {
    let vectors = Vectors::load(FILE);
    let mut judge = Judge::new(FILE, |_| true);
    for scenario in vectors.cases("scenarios", 11) {
        let mut script = Script::new(scenario);
        for step in scenario.steps("steps") {
            script.run(&step, &mut judge);
        }
    }
    judge.all_entries_were_needed();
}

fn now(step: &Case<'_>) -> Now {
    let time = step.seconds("time_s");
    Now { monotonic: Instant::from_start(time), unix: UnixMillis(START * 1000 + time.as_millis() as u64) }
}

impl<'a> Script<'a> {
    fn new(scenario: Case<'a>) -> Self {
        let given = scenario.part("server");
        let server_address: Address = given.address("address").into();
        let mut config = ServerConfig::new(
            given.u64("protocol_id_u64"),
            given.u32("max_clients_u32"),
            &[server_address.socket_addr()],
        );
        config.token_cutoff = TokenCutoff::None;
        let keys = Key::from(given.array("private_key_hex")).into();
        let start = Now { monotonic: Instant::default(), unix: UnixMillis(START * 1000) };
        let server = NetcodeServer::new(config, keys, &Seed::from([1; 32]), start);
        let with_tokens = scenario.steps("steps").into_iter().filter(|step| step.has("request_token"));
        let tokens = with_tokens.map(|step| TokenKeys::of(&step.part("request_token")));
        Self {
            cipher: PacketCipher::new(given.u64("protocol_id_u64")),
            server: server.unwrap_or_else(|error| panic!("{scenario}: {error}")),
            tokens: tokens.collect(),
            earned: Vec::new(),
            scenario,
        }
    }

    fn run(&mut self, step: &Case<'_>, judge: &mut Judge) {
        let now = now(step);
        self.server.tick(now);
        if step.has("action") {
            let client = self.server.clients().find(|client| client.slot().0 == step.u32("slot_u32"));
            assert!(self.server.disconnect(client.expect("a client is in the slot")), "{}", self.scenario);
            self.server.transmit(now, &mut VecOutbox::default());
            while self.server.poll_event().is_some() {}
            return;
        }
        let (sender, description) = (Address::from(step.address("sender")), step.text("description"));
        let mut datagram = step.bytes("datagram_hex");
        if datagram.first() != Some(&REQUEST_PREFIX) {
            datagram = self.translated(&datagram);
        }
        let handled = self.server.handle(sender, &mut datagram, now).map(|_| ());
        let mut outbox = VecOutbox::default();
        self.server.transmit(now, &mut outbox);
        assert!(outbox.datagrams.len() <= 1, "{}: {description}: at most one reply", self.scenario);
        let reply = outbox.datagrams.pop_front().map(|(to, reply)| {
            assert_eq!(to, sender, "{}: {description}", self.scenario);
            reply
        });
        let decision = self.decision(step, reply.as_deref());
        judge.compare(&self.scenario, description, step.text("expected"), &decision);
        if decision == "ignored" && step.text("expected") == "ignored" {
            assert_reason(&self.scenario, step, handled);
        }
    }

    /// Returns the reply in the terms of the file, after a check of its content.
    fn decision(&mut self, step: &Case<'_>, reply: Option<&[u8]>) -> String {
        let scenario = self.scenario;
        let event = self.server.poll_event();
        let reference = step.has("reference_reply_hex").then(|| step.bytes("reference_reply_hex"));
        if step.text("expected") == "challenge" {
            let reference = self.open(reference.as_deref().expect("a reply"));
            let ours = reply.map(|reply| self.open(reply)).filter(|(header, _)| header.kind == PacketKind::Challenge);
            let read = |content: &[u8]| Challenge::parse(content).expect("the content of a challenge");
            self.earned.push(Earned { reference: read(&reference.1), ours: ours.map(|(_, content)| read(&content)) });
        }
        let Some(reply) = reply else {
            assert_eq!(event, None, "{scenario}");
            return "ignored".into();
        };
        let (header, content) = self.open(reply);
        match header.kind {
            PacketKind::Challenge => "challenge".into(),
            PacketKind::Denied => "denied".into(),
            PacketKind::KeepAlive => {
                let Some(NetcodeEvent::Connected { client, .. }) = event else { panic!("{scenario}: no event") };
                if step.has("slot_u32") {
                    assert_eq!(client.slot().0, step.u32("slot_u32"), "{scenario}");
                    assert_eq!(step.texts("events"), ["connected"], "{scenario}");
                    assert_eq!(header.sequence, step.u64("reference_reply_sequence_u64"), "{scenario}");
                    assert_eq!(Some(reply), reference.as_deref(), "{scenario}: the keep-alive, byte for byte");
                }
                assert_eq!(content.len(), 8, "{scenario}");
                "keep_alive_and_connected".into()
            }
            other => panic!("{scenario}: a server never sends {other:?}"),
        }
    }

    /// Opens a packet of the server with the keys of its token.
    fn open(&self, datagram: &[u8]) -> (PacketHeader, Vec<u8>) {
        let header = PacketHeader::parse(datagram, PacketKind::TO_CLIENT).expect("a packet");
        let open = |token: &TokenKeys| {
            let mut datagram = datagram.to_vec();
            self.cipher.open(&token.server_to_client, &header, &mut datagram).map(|content| content.to_vec()).ok()
        };
        let content = self.tokens.iter().find_map(open);
        (header, content.unwrap_or_else(|| panic!("{}: a reply under the key of one of its tokens", self.scenario)))
    }

    /// Returns a response to our challenges that corresponds to the response to the challenges of the reference.
    fn translated(&self, response: &[u8]) -> Vec<u8> {
        let header = PacketHeader::parse(response, PacketKind::TO_SERVER).expect("a response");
        let (key, content) = self.sealed_with(&header, response);
        let theirs = Challenge::parse(&content).expect("the content of a response");
        let differing =
            |earned: &&Earned| theirs.sealed.iter().zip(earned.reference.sealed).filter(|(a, b)| *a != b).count();
        let earned = self.earned.iter().min_by_key(differing).expect("a challenge before a response");
        let stated = self.earned.iter().find(|earned| earned.reference.sequence == theirs.sequence);
        let (Some(ours), Some(stated)) = (earned.ours, stated.and_then(|stated| stated.ours)) else {
            // It responds to a challenge that our server did not make.
            return response.to_vec();
        };
        let mut sealed = ours.sealed;
        for ((byte, theirs), reference) in sealed.iter_mut().zip(theirs.sealed).zip(earned.reference.sealed) {
            *byte ^= theirs ^ reference;
        }
        let content = Challenge { sequence: stated.sequence, sealed }.to_bytes();
        let mut datagram = [0; MAX_DATAGRAM_BYTES];
        let length =
            self.cipher.seal(&key, header.kind, header.sequence, &content, &mut datagram).expect("the packet fits");
        datagram[..length].to_vec()
    }

    /// Returns the key under which a response was sealed, even if it is the wrong one, and the content.
    fn sealed_with(&self, header: &PacketHeader, response: &[u8]) -> (Key, Vec<u8>) {
        let keys = self.tokens.iter().flat_map(|token| [&token.client_to_server, &token.server_to_client]);
        let opened = keys.filter_map(|key| {
            let mut response = response.to_vec();
            self.cipher.open(key, header, &mut response).ok().map(|content| (key.clone(), content.to_vec()))
        });
        opened.into_iter().next().unwrap_or_else(|| panic!("{}: sealed under a key of its tokens", self.scenario))
    }
}

impl TokenKeys {
    fn of(token: &Case<'_>) -> Self {
        Self {
            client_to_server: Key::from(token.array("client_to_server_key_hex")),
            server_to_client: Key::from(token.array("server_to_client_key_hex")),
        }
    }
}

/// Asserts that our check is the one that the reference names, or one that comes earlier in our order.
fn assert_reason(scenario: &Case<'_>, step: &Case<'_>, handled: Result<(), Discard>) {
    if !step.has("reason") {
        return;
    }
    let allowed: &[Discard] = match step.text("reason") {
        "size_wrong" => &[Discard::RequestLength],
        "version_wrong" => &[Discard::RequestVersion],
        "protocol_wrong" => &[Discard::RequestProtocol],
        "expired" => &[Discard::TokenExpired],
        "private_part_fails" => &[Discard::TokenNotAuthentic],
        "private_token_content_invalid" => &[Discard::TokenMalformed],
        "server_address_not_listed" => &[Discard::AddressNotListed],
        // The tag identifies a used token before its client is known.
        "sender_address_already_connected" => &[Discard::AddressConnected, Discard::TokenUsed],
        // A client with a refused challenge has no pending entry either.
        "client_id_already_connected" => &[Discard::ClientIdConnected, Discard::TokenUsed, Discard::UnknownSender],
        other => panic!("{scenario}: an unknown reason {other}"),
    };
    let description = step.text("description");
    assert!(allowed.contains(&handled.expect_err("ignored")), "{scenario}: {description}: {handled:?}");
}
