//! A peer with valid keys can only make a server with channels, or a client, disconnect it for a reason.
//!
//! Honest players beside it are not affected.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::client::{ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::server::{ClientHandle, NetcodeServer, ServerConfig, TokenCutoff};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_session::channel::control::VERSION;
use slipgate_session::channel::transfer::frame::{TransferBegin, TransferFrame};
use slipgate_session::channel::transfer::{self, ContentDigest, MAX_TRANSFER_BYTES, TransferAdmission, TransferId};
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, LayoutHash};
use slipgate_session::client::{self, SessionClient};
use slipgate_session::connection::CloseCode;
use slipgate_session::connection::{CloseKind, ConnectionConfig, Memory, Traffic};
use slipgate_session::wire::reliable::{Acks, Sequence};
use slipgate_session::wire::session_frame::{AckNonces, ArrivalEcho, SessionFrame};
use slipgate_sim::Conditions;
use slipgate_tests::counting::peak;
use slipgate_tests::malicious_peer::{
    MaliciousPeer, PeerPacket, bye, hello, number, received_close_code, redirect_part, slice, stamp, transfer, whole,
};
use slipgate_tests::netcode_world::{NetcodeWorld, PROTOCOL_ID, VecOutbox, address};
use slipgate_tests::nonce_sum::{nonce_planes, nonce_sum};
use slipgate_tests::raw_client::RawClient;
use slipgate_tests::session_world::{SessionWorld, TURN, receive_datagram};

const UNRELIABLE: u8 = 0;
const SEQUENCED: u8 = 1;
const UNORDERED: u8 = 2;
const ORDERED: u8 = 3;
const TRANSFERS: u8 = 4;
/// Messages of a queue, and so of a window.
const WINDOW: u16 = 64;
const MESSAGE_BYTES: u32 = 2000;
const QUEUE_BYTES: u32 = 16 * 1024;
/// Turns of an attack.
const ATTACK_TURNS: u64 = 150;

fn layout() -> Arc<Layout> {
    let kinds = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered, Kind::Transfers];
    let channel = |kind| ChannelConfig {
        max_message_bytes: MESSAGE_BYTES,
        queue_bytes: QUEUE_BYTES,
        queue_messages: WINDOW,
        // A server refuses all offers by default.
        transfers: transfer::TransferConfig {
            admission: TransferAdmission::Automatic,
            ..transfer::TransferConfig::default()
        },
        ..ChannelConfig::from(kind)
    };
    Arc::new(Layout::try_from(kinds.map(channel).to_vec()).unwrap())
}

// Attacks -----------------------------------------------------------------------------------------------------------

/// The expected outcome of an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    /// No effect.
    Nothing,
    /// A disconnect with this reason.
    End(&'static str),
    /// A disconnect with any reason.
    AnyEnd,
}

/// The payloads of a malicious peer in each turn, and the expected outcome.
struct Attack {
    name: &'static str,
    expected: Expected,
    compose: Box<Compose>,
}

/// Returns the payloads of a turn.
type Compose = dyn Fn(&mut MaliciousPeer, &mut StdRng, u64) -> Vec<Vec<u8>>;

fn attack(
    name: &'static str,
    expected: Expected,
    compose: impl Fn(&mut MaliciousPeer, &mut StdRng, u64) -> Vec<Vec<u8>> + 'static,
) -> Attack {
    Attack { name, expected, compose: Box::new(compose) }
}

fn hash() -> LayoutHash {
    layout().hash()
}

/// Returns an attack in the frames of messages, the same in every turn.
fn frames(name: &'static str, expected: Expected, frames: impl Fn(u64) -> Vec<u8> + 'static) -> Attack {
    let hash = hash();
    attack(name, expected, move |peer, _, turn| vec![peer.packet(PeerPacket::frames(hash, &frames(turn)))])
}

/// Returns an attack in the payload behind the header.
fn payload(name: &'static str, expected: Expected, payload: &'static [u8]) -> Attack {
    attack(name, expected, move |peer, _, _| vec![peer.header(Acks::NONE, payload)])
}

fn acks(name: &'static str, expected: Expected, acks: impl Fn(&mut StdRng, u64) -> Acks + 'static) -> Attack {
    let hash = hash();
    attack(name, expected, move |peer, chance, turn| {
        let message = whole(UNRELIABLE, None, b"believe me");
        let mut packet = PeerPacket { acks: acks(chance, turn), ..PeerPacket::frames(hash, &message) };
        // Numbers that were never used have nonces of 0.
        packet.frame.nonces.sum = nonce_sum(peer.next_number(), &nonce_planes(packet.acks, &[], |_| 0));
        vec![peer.packet(packet)]
    })
}

fn attacks() -> Vec<Attack> {
    [ack_attacks(), header_attacks(), control_attacks(), message_attacks(), transfer_attacks()]
        .into_iter()
        .flatten()
        .collect()
}

fn ack_attacks() -> Vec<Attack> {
    let hash = hash();
    vec![
        acks("acks of packets that were never sent", Expected::End("violation"), |chance, _| Acks {
            ack: Sequence(chance.random()),
            bits: chance.random(),
        }),
        acks("acks of everything ahead", Expected::End("violation"), |_, turn| Acks {
            ack: Sequence(turn as u16 * 3 + 40),
            bits: u32::MAX,
        }),
        acks("a few acks of unsent packets", Expected::Nothing, |_, turn| Acks {
            ack: Sequence(60_000),
            bits: u32::from(turn % 10 == 0),
        }),
        // This lasts a limited time; a test below covers unlimited time.
        acks("no acks", Expected::Nothing, |_, _| Acks::NONE),
        attack(
            "random extended acks, with random timestamps",
            Expected::End("violation"),
            move |peer, chance, turn| {
                let (mut behind, bits) = ([0; 28], chance.random());
                chance.fill(&mut behind);
                let sent = stamp(chance.random_range(0..20_000));
                let arrived = Some(ArrivalEcho { at: stamp(chance.random_range(0..20_000)), late: chance.random() });
                let message = whole(UNRELIABLE, None, b"believe me");
                let acks = Acks { ack: Sequence((turn * 2) as u16), bits };
                let frame = SessionFrame { sent, nonces: AckNonces::default(), arrived, extended_acks: &behind };
                vec![peer.packet(PeerPacket { acks, frame, hello: Some(hash), frames: &message })]
            },
        ),
        // A server takes at most 256 packets of a client in a turn; `client_floods` has more.
        attack("200 ack-eliciting packets per turn", Expected::Nothing, move |peer, _, _| {
            let message = whole(UNRELIABLE, None, b"");
            (0..200).map(|_| peer.packet(PeerPacket::frames(hash, &message))).collect()
        }),
    ]
}

fn header_attacks() -> Vec<Attack> {
    let hash = hash();
    let fragment =
        |name, bytes: &'static [u8]| attack(name, Expected::End("not_a_session"), move |_, _, _| vec![bytes.to_vec()]);
    vec![
        fragment("an empty fragment", &[1]),
        fragment("a fragment beyond the last", &[1, 0, 0, 9, 2, 7, 7, 7]),
        fragment("a first fragment without a header", &[1, 0, 0, 0, 255, 0]),
        fragment("a valid fragment", &[1, 0, 0, 1, 1, 7, 7, 7]),
        fragment("an unknown prefix similar to a fragment", &[0xff; 40]),
        payload("a frame with a false nonce sum", Expected::End("not_a_session"), &[0x80, 0, 0]),
        payload("a truncated frame", Expected::End("not_a_session"), &[1, 0, 0, 0]),
        payload("extended acks without bytes", Expected::End("not_a_session"), &[2, 0, 0, 0]),
        payload("too many extended acks", Expected::End("not_a_session"), &[2, 0, 0, 29, 0, 0]),
        attack("packet numbers that jump ahead and back", Expected::Nothing, move |peer, chance, _| {
            let message = whole(UNRELIABLE, None, b"jump");
            (0..20)
                .map(|_| {
                    peer.skip(chance.random());
                    peer.packet(PeerPacket::frames(hash, &message))
                })
                .collect()
        }),
        attack("random bytes", Expected::AnyEnd, |_, chance, _| {
            let mut bytes = vec![0; chance.random_range(1..1200)];
            chance.fill(&mut bytes[..]);
            vec![bytes]
        }),
        attack("random bytes behind a header", Expected::AnyEnd, |peer, chance, _| {
            let mut bytes = vec![0; chance.random_range(1..1190)];
            chance.fill(&mut bytes[..]);
            vec![peer.header(Acks::NONE, &bytes)]
        }),
        attack("random bytes behind a HELLO", Expected::AnyEnd, move |peer, chance, _| {
            let mut bytes = vec![0; chance.random_range(20..1100)];
            chance.fill(&mut bytes[..]);
            vec![peer.packet(PeerPacket::frames(hash, &bytes))]
        }),
    ]
}

fn control_attacks() -> Vec<Attack> {
    let (right, wrong) = (hash(), LayoutHash([7; 8]));
    let control_attack = |name, expected, control: Vec<u8>| {
        attack(name, expected, move |peer, _, _| {
            vec![peer.packet(PeerPacket { hello: None, ..PeerPacket::frames(right, &control) })]
        })
    };
    vec![
        control_attack("another layout", Expected::End("layout_mismatch"), hello(VERSION, wrong)),
        control_attack("another version", Expected::End("version_mismatch"), hello(VERSION + 1, right)),
        control_attack("messages without a HELLO", Expected::End("not_a_session"), whole(UNRELIABLE, None, b"hi")),
        control_attack("packets without a HELLO and without messages", Expected::Nothing, Vec::new()),
        control_attack("a truncated HELLO", Expected::End("not_a_session"), vec![0, 1, 3, 1, 1, 0]),
        control_attack("a BYE with invalid text", Expected::End("not_a_session"), vec![0, 2, 3, 0, 0, 0xff]),
        control_attack(
            "a BYE that reports a violation",
            Expected::End("accused"),
            bye(CloseCode::VIOLATION, "protocol violation"),
        ),
        attack("endless BYE messages", Expected::End("left"), move |peer, _, _| {
            let byes = bye(CloseCode(77), &"bye ".repeat(64)).repeat(4);
            (0..50).map(|_| peer.packet(PeerPacket::frames(right, &byes))).collect()
        }),
        frames("a truncated HELLO behind a HELLO", Expected::End("violation"), |_| vec![0, 1, 3, 1, 1, 0]),
        frames("a BYE with invalid text behind a HELLO", Expected::End("violation"), |_| vec![0, 2, 3, 0, 0, 0xff]),
        frames("redirects of a server", Expected::Nothing, |turn| {
            (0..2).flat_map(|part| redirect_part(2048 - (turn % 400) as u16, part, &[7; 400])).collect()
        }),
        frames("a truncated redirect", Expected::End("violation"), |_| redirect_part(2048, 0, &[7; 399])),
        frames("hundreds of unknown control messages", Expected::Nothing, |_| [0, 99, 0].repeat(390)),
        frames("dozens of HELLO messages", Expected::Nothing, move |_| hello(VERSION, right).repeat(60)),
        frames("a control message behind messages", Expected::End("violation"), |_| {
            [whole(UNRELIABLE, None, b"hi"), vec![0, 99, 0]].concat()
        }),
    ]
}

fn message_attacks() -> Vec<Attack> {
    let hash = hash();
    let violation = Expected::End("violation");
    vec![
        frames("a message on an unknown channel", violation, |_| whole(9, Some(0), b"hi")),
        frames("a message on the reserved channel", violation, |_| vec![63, 0, 0, 0]),
        frames("a message beyond the end of the packet", violation, |_| vec![ORDERED + 1, 0, 100, 1]),
        frames("a message over the size limit", violation, |_| slice(ORDERED, 0, MESSAGE_BYTES + 1, 0, &[0; 128])),
        frames("slices of partial chunks", violation, |_| slice(ORDERED, 0, 1000, 0, &[0; 100])),
        frames("a slice beyond its message", violation, |_| slice(ORDERED, 0, 300, 3, &[0; 44])),
        frames("contradictory slices", violation, |_| {
            [slice(ORDERED, 1, 300, 0, &[0; 128]), slice(ORDERED, 0, 301, 1, &[0; 128])].concat()
        }),
        frames("messages beyond the window", violation, |_| whole(ORDERED, Some(WINDOW.into()), b"far")),
        frames("messages that are too old", Expected::Nothing, |_| whole(ORDERED, Some(1_900_000), b"old")),
        frames("more bytes in the window than the queue holds", violation, |turn| {
            slice(UNORDERED, (1 + turn % 60) as u32, MESSAGE_BYTES, 0, &[0; 128])
        }),
        frames("withdrawals of messages that were never sent", Expected::Nothing, |turn| {
            let id = number((1 + turn % 60) as u32);
            [&[(ORDERED + 1) | 0x40][..], &id, &[0]].concat()
        }),
        frames("endless first slices", Expected::Nothing, |turn| {
            let of = |channel, at: u64| slice(channel, (turn * 8 + at) as u32, MESSAGE_BYTES, 0, &[0; 128]);
            (0..4).flat_map(|at| [of(UNRELIABLE, at), of(SEQUENCED, at)].concat()).collect()
        }),
        attack("a full window in order without the first message", Expected::Nothing, move |peer, _, turn| {
            let message = whole(ORDERED, Some((1 + turn % 60) as u32), &[0; 250]);
            vec![peer.packet(PeerPacket::frames(hash, &message))]
        }),
    ]
}

fn transfer_attacks() -> Vec<Attack> {
    let begin = |id, length, slice_bytes| {
        let digest = ContentDigest([3; 32]);
        transfer(
            TRANSFERS,
            &TransferFrame::Begin(TransferBegin { id: TransferId(id), slice_bytes, length, label: 1, digest }),
        )
    };
    let one = |id, index, bytes: &[u8]| transfer(TRANSFERS, &TransferFrame::Slice { id: TransferId(id), index, bytes });
    let violation = Expected::End("violation");
    vec![
        frames("large transfers without data", Expected::Nothing, move |turn| {
            (0..16).flat_map(|at| begin((turn * 16 + at) as u16, MAX_TRANSFER_BYTES, 256)).collect()
        }),
        frames("large transfers with one distant slice", Expected::Nothing, move |turn| {
            let at = (turn as u32 * 1009) % (MAX_TRANSFER_BYTES / 256);
            // The server accepts two transfers of 64 MiB at once.
            [begin((turn % 2) as u16, MAX_TRANSFER_BYTES, 256), one((turn % 2) as u16, at, &[0; 256])].concat()
        }),
        frames("a slice of a queued transfer", violation, move |_| {
            let begins = (0..3).flat_map(|id| begin(id, MAX_TRANSFER_BYTES, 256));
            begins.chain(one(2, 0, &[0; 256])).collect()
        }),
        frames("a transfer over 64 MiB", violation, move |_| begin(0, MAX_TRANSFER_BYTES + 1, 1024)),
        frames("a transfer in slices of one byte", violation, move |_| begin(0, 1000, 1)),
        frames("a slice of an unknown transfer", violation, move |_| one(5, 0, &[0; 256])),
        frames("a slice beyond its transfer", violation, move |_| [begin(0, 1000, 256), one(0, 9, &[0; 256])].concat()),
        frames("a transfer started in two ways", violation, move |_| {
            [begin(0, 1000, 256), begin(0, 1001, 256)].concat()
        }),
        frames("an answer to an unknown transfer", violation, |_| {
            transfer(TRANSFERS, &TransferFrame::Done { id: TransferId(3) })
        }),
        frames("a message slice on a channel of transfers", violation, |_| slice(TRANSFERS, 0, 1000, 0, &[0; 128])),
    ]
}

// Against a server --------------------------------------------------------------------------------------------------

const PLAYERS: u64 = 4;
/// The one-way latency of a path.
const LATENCY: Duration = Duration::from_millis(20);

struct AttackWorld {
    world: SessionWorld,
    handles: Vec<ClientHandle>,
    /// Messages of players and server on each channel.
    sent: u64,
}

impl AttackWorld {
    fn new() -> Self {
        let mut world = SessionWorld::new(8, &layout(), &ConnectionConfig::default(), Memory::default());
        let path = Conditions { latency: LATENCY, ..Conditions::perfect() };
        let handles = (0..PLAYERS).map(|_| world.join(path)).collect();
        let mut scene = Self { world, handles, sent: 0 };
        (0..60).for_each(|_| scene.turn());
        scene
    }

    /// Runs a turn in which the honest players exchange messages.
    fn turn(&mut self) {
        let number = self.sent.to_le_bytes();
        for (id, client) in (1..).zip(self.handles.clone()) {
            for channel in [UNRELIABLE, ORDERED].map(ChannelId) {
                self.world.send_to_server(id, channel, &number).unwrap();
                self.world.send_to_client(client, channel, &number).unwrap();
            }
        }
        self.sent += 1;
        self.world.turn();
    }

    /// Asserts that the honest players were not affected.
    fn assert_unaffected(&mut self, what: &str) {
        for id in 1..=PLAYERS {
            for channel in [UNRELIABLE, ORDERED].map(ChannelId) {
                let up = self.world.messages.iter().filter(|(from, on, _)| (*from, *on) == (id, channel)).count();
                let down = self.world.player(id).messages.iter().filter(|(on, _)| *on == channel).count();
                // Messages still in flight have not arrived.
                let min = (self.sent as f64 * 0.95) as usize - 5;
                assert!(up >= min && down >= min, "{what}: {up} and {down} of {}", self.sent);
            }
            let now = self.world.now();
            let rtt = self
                .world
                .server
                .connection_stats(self.handles[id as usize - 1], now)
                .unwrap()
                .path
                .unwrap()
                .congestion
                .round_trip
                .unwrap();
            assert!(rtt >= 2 * LATENCY && rtt <= 2 * LATENCY + 5 * TURN, "{what}: {rtt:?}");
            assert!(self.world.player(id).core.netcode.state() == ClientState::Connected, "{what}");
        }
        assert!(self.world.disconnects().iter().all(|(id, _)| *id > PLAYERS), "{what}: {:?}", self.world.disconnects());
    }
}

/// Runs the handshake of a raw client.
fn admit_raw(world: &mut SessionWorld, id: u64) -> (RawClient, ClientHandle) {
    let (mut raw_client, from) = (RawClient::new(&world.token(id)), attacker_address(id));
    world.present(from, raw_client.request());
    world.turn();
    let challenge = world.replies.iter().find_map(|(_, reply)| raw_client.challenge(reply)).expect("a challenge");
    world.replies.clear();
    world.present(from, raw_client.response(&challenge));
    world.turn();
    (raw_client, world.handle(id).expect("a slot"))
}

fn attacker_address(id: u64) -> slipgate_netcode::address::Address {
    address(&format!("10.9.9.9:{id}"))
}

/// Runs an attack on the server for this number of turns; returns the reason of the disconnect, and the close code that
/// the peer got.
fn attack_server(
    scene: &mut AttackWorld,
    id: u64,
    attack: &Attack,
    turns: u64,
) -> (Option<CloseKind>, Option<CloseCode>) {
    let (mut raw_client, handle) = admit_raw(&mut scene.world, id);
    let (mut peer, mut chance) = (MaliciousPeer::default(), StdRng::seed_from_u64(id));
    let mut close_code = None;
    for turn in 0..turns {
        for payload in (attack.compose)(&mut peer, &mut chance, turn) {
            let datagram = raw_client.seal(PacketKind::Payload, &payload);
            scene.world.present(attacker_address(id), datagram);
        }
        if scene.world.server.connection(handle).is_some_and(|connection| connection.close_reason().is_none()) {
            // The server sends to it as to all clients; unacknowledged messages fill only its queue.
            for channel in [UNRELIABLE, ORDERED].map(ChannelId) {
                let _ = scene.world.send_to_client(handle, channel, &[5; 100]);
            }
        }
        scene.turn();
        for (_, reply) in std::mem::take(&mut scene.world.replies) {
            let payload = raw_client.open(&reply).filter(|opened| opened.kind == PacketKind::Payload);
            close_code = close_code.or_else(|| payload.and_then(|opened| received_close_code(&opened.content)));
        }
    }
    let end = scene.world.disconnects().into_iter().find(|(who, _)| *who == id).map(|(_, reason)| reason);
    let _ = scene.world.server.disconnect(handle);
    scene.turn();
    (end, close_code)
}

fn check(attack: &Attack, end: Option<&'static str>) {
    match attack.expected {
        Expected::Nothing => assert_eq!(end, None, "{}", attack.name),
        Expected::End(reason) => assert_eq!(end, Some(reason), "{}", attack.name),
        Expected::AnyEnd => assert!(end.is_some(), "{}", attack.name),
    }
}

#[test]
fn malicious_client_messages_affect_no_other_client() {
    for (id, attack) in (100..).zip(attacks()) {
        let mut scene = AttackWorld::new();
        let ((end, close_code), bytes) = peak(|| attack_server(&mut scene, id, &attack, ATTACK_TURNS));
        println!("{}: {end:?}, close code {close_code:?}, {bytes} bytes", attack.name);
        check(&attack, end.map(CloseKind::name));
        // A detected attack gets a close code; a peer that left or reported a violation gets none.
        let is_answered = end.is_some_and(|end| !matches!(end, CloseKind::Left | CloseKind::Accused));
        assert_eq!(close_code.is_some(), is_answered, "{}: {close_code:?}", attack.name);
        assert!(bytes < 2 << 20, "{}: {bytes} bytes", attack.name);
        scene.assert_unaffected(attack.name);
    }
}

/// Returns the turns in this number of seconds.
fn turns(seconds: u128) -> u64 {
    (seconds * 1000 / TURN.as_millis()) as u64
}

/// Returns the outcome for a peer that acknowledges nothing for longer.
fn never_acks() -> Attack {
    acks("no acks for ever", Expected::End("violation"), |_, _| Acks::NONE)
}

#[test]
fn client_without_acks_is_disconnected_and_affects_no_other() {
    let (mut scene, attack) = (AttackWorld::new(), never_acks());
    assert_eq!(attack_server(&mut scene, 100, &attack, turns(29)), (None, None));
    let (end, close_code) = attack_server(&mut scene, 101, &attack, turns(45));
    check(&attack, end.map(CloseKind::name));
    assert_eq!(close_code, Some(CloseCode::VIOLATION));
    scene.assert_unaffected(attack.name);
}

#[test]
fn all_malicious_clients_at_once_affect_no_other_client() {
    let mut scene = AttackWorld::new();
    let mut peers: Vec<_> = (100..)
        .zip(attacks())
        .filter(|(_, attack)| attack.expected == Expected::Nothing)
        .take(4)
        .map(|(id, attack)| {
            (id, admit_raw(&mut scene.world, id).0, MaliciousPeer::default(), StdRng::seed_from_u64(id), attack)
        })
        .collect();
    let ((), bytes) = peak(|| {
        for turn in 0..ATTACK_TURNS {
            for (id, raw_client, peer, chance, attack) in &mut peers {
                for payload in (attack.compose)(peer, chance, turn) {
                    scene.world.present(attacker_address(*id), raw_client.seal(PacketKind::Payload, &payload));
                }
            }
            scene.turn();
        }
    });
    assert!(bytes < 8 << 20, "{bytes} bytes");
    scene.assert_unaffected("all attacks at once");
}

#[test]
fn thousands_of_repeated_transfer_replies_have_no_effect() {
    const REPEATS: usize = 80;
    let mut scene = AttackWorld::new();
    let (mut raw_client, client) = admit_raw(&mut scene.world, 100);
    let (mut peer, hash) = (MaliciousPeer::default(), hash());
    let mut compose = |scene: &mut AttackWorld, packets: usize, frames: &[u8]| {
        for _ in 0..packets {
            let datagram = raw_client.seal(PacketKind::Payload, &peer.packet(PeerPacket::frames(hash, frames)));
            scene.world.present(attacker_address(100), datagram);
        }
        scene.turn();
    };
    compose(&mut scene, 1, &[]);
    let much = transfer::Transfer::new(vec![7; 16 << 20]).unwrap();
    let id = scene
        .world
        .server
        .connection_mut(client)
        .unwrap()
        .channels
        .send_transfer(ChannelId(TRANSFERS), much, 1)
        .unwrap();
    (0..20).for_each(|_| compose(&mut scene, 1, &[]));
    // Eleven bytes report that all slices are missing, again and again.
    let slices = (16u32 << 20).div_ceil(transfer::TransferConfig::default().slice_bytes.into());
    let accept = [&[4][..], &id.0.to_le_bytes(), &0u32.to_le_bytes(), &slices.to_le_bytes()].concat();
    let repeated = whole(TRANSFERS, None, &accept).repeat(REPEATS);
    (0..ATTACK_TURNS).for_each(|_| compose(&mut scene, 25, &repeated));
    let connection = scene.world.server.connection(client).expect("the peer broke no rule");
    assert!(connection.close_reason().is_none(), "the peer broke no rule");
    let ignored = connection.channels.stats(ChannelId(TRANSFERS)).unwrap().dropped;
    assert_eq!(ignored, ATTACK_TURNS * 25 * REPEATS as u64 - 1, "all but the first one");
    scene.assert_unaffected("repeated transfer replies");
}

// Against a client ---------------------------------------------------------------------------------------------------

/// Runs an attack of a server on its client for at most this number of turns; returns the reason of the end, and the
/// memory of the client in bytes.
fn attack_client(seed: u64, attack: &Attack, max_turns: u64) -> (Option<CloseKind>, i64) {
    let mut mint = NetcodeWorld::perfect(1);
    let server_address = address("10.0.0.1:40000");
    let mut settings = ServerConfig::new(PROTOCOL_ID, 4, &[server_address.socket_addr()]);
    settings.token_cutoff = TokenCutoff::None;
    let keys = mint.private_key.clone().into();
    let mut server = NetcodeServer::new(settings, keys, &Seed::from([2; 32]), mint.now()).unwrap();
    let spec = slipgate_tests::netcode_world::TokenSpec {
        client_id: 1,
        servers: vec![server_address],
        lifetime: 45,
        timeout: 5,
        user_data: [0; 256],
    };
    let token = mint.mint(&spec);
    let mut core = SessionClient::new(NetcodeClient::new(TimeoutPolicy::Clamped), &Seed::from([9; 32]));
    core.set_traffic(Traffic::Channels(layout(), ConnectionConfig::default())).unwrap();
    core.netcode.connect(token, mint.now().monotonic, |_| true).unwrap();
    let away = address("10.1.0.1:5000");
    let (mut peer, mut chance) = (MaliciousPeer::default(), StdRng::seed_from_u64(seed));
    let (mut scratch, mut messages, mut end, mut turns) = (Vec::new(), Vec::new(), None, 0);
    let ((), bytes) = peak(|| {
        while turns < max_turns {
            mint.turn();
            let now = mint.now();
            let (mut up, mut down) = (VecOutbox::default(), VecOutbox::default());
            core.tick(now.monotonic);
            core.transmit(now.monotonic, &mut up);
            for (_, mut datagram) in up.datagrams {
                let _ = server.handle(away, &mut datagram, now);
            }
            while server.poll_event().is_some() {}
            server.tick(now);
            server.transmit(now, &mut down);
            if let Some(handle) = server.find(1) {
                for payload in (attack.compose)(&mut peer, &mut chance, turns) {
                    let _ = server.send(handle, &payload, now, &mut down);
                }
                turns += 1;
            } else if end.is_some() {
                break;
            }
            for (_, mut datagram) in down.datagrams {
                receive_datagram(&mut core, server_address, &mut datagram, &mut scratch, &mut messages, now.monotonic);
            }
            messages.clear();
            while let Some(event) = core.poll_event() {
                if let client::ClientSessionEvent::Ended { reason } = event {
                    end = Some(reason.kind);
                }
            }
        }
    });
    (end, bytes)
}

#[test]
fn malicious_server_messages_end_the_client_with_a_reason() {
    for (seed, attack) in (0..).zip(attacks()) {
        let (end, bytes) = attack_client(seed, &attack, ATTACK_TURNS);
        println!("{}: {end:?}, {bytes} bytes", attack.name);
        // A BYE of the server counts as a kick.
        let end = end.map(CloseKind::name).map(|name| if name == "kicked" { "left" } else { name });
        check(&attack, end);
        assert!(bytes < 4 << 20, "{}: {bytes} bytes", attack.name);
    }
}

#[test]
fn client_leaves_a_server_that_never_acks() {
    let attack = never_acks();
    assert_eq!(attack_client(1, &attack, turns(29)).0, None);
    check(&attack, attack_client(1, &attack, turns(70)).0.map(CloseKind::name));
}
