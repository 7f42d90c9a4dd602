//! What a peer with valid keys can do to a server with channels, or to a client: be disconnected for a reason, or nothing.
//!
//! Honest players play beside it, and notice nothing.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::client::{Client as NetcodeClient, ClientState, EndReason};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::server::{ClientHandle, Config as NetcodeConfig, DisconnectReason, Fence, Server};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_session::channel::block::frame::{Begin, Frame as BlockFrame};
use slipgate_session::channel::block::{self as blocks, Admission, BlockId, ContentDigest, MAX_BLOCK_BYTES};
use slipgate_session::channel::control::{ByeCode, VERSION};
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, LayoutHash};
use slipgate_session::client::{self, Client};
use slipgate_session::session::{Config, Memory, Traffic};
use slipgate_session::wire::reliable::{Acks, Sequence};
use slipgate_session::wire::session::{Arrived, Frame};
use slipgate_sim::Conditions;
use slipgate_tests::counting::peak;
use slipgate_tests::hall::{Hall, TURN, hear};
use slipgate_tests::holder::Holder;
use slipgate_tests::liar::{Liar, Says, block, bye, farewell, hello, number, slice, stamp, whole};
use slipgate_tests::world::{Collected, PROTOCOL_ID, World, address};

const UNRELIABLE: u8 = 0;
const SEQUENCED: u8 = 1;
const UNORDERED: u8 = 2;
const ORDERED: u8 = 3;
const BLOCKS: u8 = 4;
/// Messages of a queue, and so of a window.
const WINDOW: u16 = 64;
const MESSAGE_BYTES: u32 = 2000;
const QUEUE_BYTES: u32 = 16 * 1024;
/// Turns for which a liar lies.
const LIES: u64 = 150;

fn layout() -> Arc<Layout> {
    let kinds = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered, Kind::Blocks];
    let channel = |kind| ChannelConfig {
        max_message_bytes: MESSAGE_BYTES,
        queue_bytes: QUEUE_BYTES,
        queue_messages: WINDOW,
        // By default a server would refuse whatever is offered.
        blocks: blocks::Config { admission: Admission::Automatic, ..blocks::Config::default() },
        ..ChannelConfig::new(kind)
    };
    Arc::new(Layout::new(kinds.map(channel).to_vec()).unwrap())
}

// Lies --------------------------------------------------------------------------------------------------------------

/// What should come of a lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    /// Nothing at all.
    Nothing,
    /// The end, for this reason.
    End(&'static str),
    /// The end, for whichever reason.
    AnyEnd,
}

/// What a liar sends in each turn, and what is due to it.
struct Lie {
    name: &'static str,
    due: Due,
    tell: Box<Tell>,
}

/// The payloads of a turn.
type Tell = dyn Fn(&mut Liar, &mut StdRng, u64) -> Vec<Vec<u8>>;

fn lie(name: &'static str, due: Due, tell: impl Fn(&mut Liar, &mut StdRng, u64) -> Vec<Vec<u8>> + 'static) -> Lie {
    Lie { name, due, tell: Box::new(tell) }
}

fn hash() -> LayoutHash {
    layout().hash()
}

/// A lie in the frames of messages, the same in every turn.
fn frames(name: &'static str, due: Due, frames: impl Fn(u64) -> Vec<u8> + 'static) -> Lie {
    let hash = hash();
    lie(name, due, move |liar, _, turn| vec![liar.packet(Says::frames(hash, &frames(turn)))])
}

/// A lie in the payload behind the header.
fn payload(name: &'static str, due: Due, payload: &'static [u8]) -> Lie {
    lie(name, due, move |liar, _, _| vec![liar.header(Acks::NONE, payload)])
}

fn acks(name: &'static str, due: Due, acks: impl Fn(&mut StdRng, u64) -> Acks + 'static) -> Lie {
    let hash = hash();
    lie(name, due, move |liar, chance, turn| {
        let message = whole(UNRELIABLE, None, b"believe me");
        vec![liar.packet(Says { acks: acks(chance, turn), ..Says::frames(hash, &message) })]
    })
}

fn lies() -> Vec<Lie> {
    [lies_about_acknowledgements(), lies_in_headers(), lies_in_control(), lies_in_messages(), lies_about_blocks()]
        .into_iter()
        .flatten()
        .collect()
}

fn lies_about_acknowledgements() -> Vec<Lie> {
    let hash = hash();
    vec![
        acks("acknowledges packets that were never sent", Due::End("violation"), |chance, _| Acks {
            ack: Sequence(chance.random()),
            bits: chance.random(),
        }),
        acks("acknowledges everything ahead", Due::End("violation"), |_, turn| Acks {
            ack: Sequence(turn as u16 * 3 + 40),
            bits: u32::MAX,
        }),
        acks("acknowledges what was never sent, a few times", Due::Nothing, |_, turn| Acks {
            ack: Sequence(60_000),
            bits: u32::from(turn % 10 == 0),
        }),
        // For a while: who does it for longer is told of below.
        acks("acknowledges nothing", Due::Nothing, |_, _| Acks::NONE),
        lie(
            "acknowledges by noise behind the header, with stamps of all times",
            Due::End("violation"),
            move |liar, chance, turn| {
                let (mut behind, bits) = ([0; 28], chance.random());
                chance.fill(&mut behind);
                let sent = stamp(chance.random_range(0..20_000));
                let arrived = Some(Arrived { at: stamp(chance.random_range(0..20_000)), late: chance.random() });
                let message = whole(UNRELIABLE, None, b"believe me");
                let acks = Acks { ack: Sequence((turn * 2) as u16), bits };
                let frame = Frame { sent, arrived, acks_behind: &behind };
                vec![liar.packet(Says { acks, frame, greets: Some(hash), frames: &message })]
            },
        ),
        lie("sends 300 packets in a turn that want to be acknowledged", Due::Nothing, move |liar, _, _| {
            let message = whole(UNRELIABLE, None, b"");
            (0..300).map(|_| liar.packet(Says::frames(hash, &message))).collect()
        }),
    ]
}

fn lies_in_headers() -> Vec<Lie> {
    let hash = hash();
    let fragment =
        |name, bytes: &'static [u8]| lie(name, Due::End("not_a_session"), move |_, _, _| vec![bytes.to_vec()]);
    vec![
        fragment("a fragment of nothing", &[1]),
        fragment("a fragment beyond the last", &[1, 0, 0, 9, 2, 7, 7, 7]),
        fragment("a first fragment without its header", &[1, 0, 0, 0, 255, 0]),
        fragment("a fragment as it should be", &[1, 0, 0, 1, 1, 7, 7, 7]),
        fragment("a prefix of no known meaning that looks like a fragment's", &[0xff; 40]),
        payload("a frame with flags of no known meaning", Due::End("not_a_session"), &[0x80, 0, 0]),
        payload("a frame that is cut", Due::End("not_a_session"), &[1, 0, 0, 0]),
        payload("acknowledgements behind the header without bytes", Due::End("not_a_session"), &[2, 0, 0, 0]),
        payload("too many bytes of acknowledgements", Due::End("not_a_session"), &[2, 0, 0, 29, 0, 0]),
        lie("random bytes", Due::AnyEnd, |_, chance, _| {
            let mut bytes = vec![0; chance.random_range(1..1200)];
            chance.fill(&mut bytes[..]);
            vec![bytes]
        }),
        lie("random bytes behind a header", Due::AnyEnd, |liar, chance, _| {
            let mut bytes = vec![0; chance.random_range(1..1190)];
            chance.fill(&mut bytes[..]);
            vec![liar.header(Acks::NONE, &bytes)]
        }),
        lie("random bytes behind a greeting", Due::AnyEnd, move |liar, chance, _| {
            let mut bytes = vec![0; chance.random_range(20..1100)];
            chance.fill(&mut bytes[..]);
            vec![liar.packet(Says::frames(hash, &bytes))]
        }),
    ]
}

fn lies_in_control() -> Vec<Lie> {
    let (right, wrong) = (hash(), LayoutHash([7; 8]));
    let said = |name, due, control: Vec<u8>| {
        lie(name, due, move |liar, _, _| vec![liar.packet(Says { greets: None, ..Says::frames(right, &control) })])
    };
    vec![
        said("another layout", Due::End("layout_mismatch"), hello(VERSION, wrong)),
        said("another version", Due::End("version_mismatch"), hello(VERSION + 1, right)),
        said("messages without a greeting", Due::End("not_a_session"), whole(UNRELIABLE, None, b"hi")),
        said("packets without a greeting and without messages", Due::Nothing, Vec::new()),
        said("a greeting that is cut", Due::End("violation"), vec![0, 1, 3, 1, 1, 0]),
        said("a farewell that is no text", Due::End("violation"), vec![0, 2, 3, 0, 0, 0xff]),
        said("an accusation", Due::End("accused"), bye(ByeCode::VIOLATION, "you lie")),
        lie("farewells without end", Due::End("left"), move |liar, _, _| {
            let farewell = bye(ByeCode(77), &"bye ".repeat(64)).repeat(4);
            (0..50).map(|_| liar.packet(Says::frames(right, &farewell))).collect()
        }),
        frames("control messages of no known meaning, by the hundred", Due::Nothing, |_| [0, 99, 0].repeat(390)),
        frames("greetings by the dozen", Due::Nothing, move |_| hello(VERSION, right).repeat(60)),
        frames("a control message behind messages", Due::End("violation"), |_| {
            [whole(UNRELIABLE, None, b"hi"), vec![0, 99, 0]].concat()
        }),
    ]
}

fn lies_in_messages() -> Vec<Lie> {
    let hash = hash();
    let violation = Due::End("violation");
    vec![
        frames("a message of a channel that there is not", violation, |_| whole(9, Some(0), b"hi")),
        frames("a message of the channel that is kept for later", violation, |_| vec![63, 0, 0, 0]),
        frames("a message beyond the packet's end", violation, |_| vec![ORDERED + 1, 0, 100, 1]),
        frames("a message beyond its bounds", violation, |_| slice(ORDERED, 0, MESSAGE_BYTES + 1, 0, &[0; 128])),
        frames("slices of other than whole pieces", violation, |_| slice(ORDERED, 0, 1000, 0, &[0; 100])),
        frames("a slice beyond its message", violation, |_| slice(ORDERED, 0, 300, 3, &[0; 44])),
        frames("slices that disagree", violation, |_| {
            [slice(ORDERED, 1, 300, 0, &[0; 128]), slice(ORDERED, 0, 301, 1, &[0; 128])].concat()
        }),
        frames("messages beyond the window", violation, |_| whole(ORDERED, Some(WINDOW.into()), b"far")),
        frames("messages that are old already", Due::Nothing, |_| whole(ORDERED, Some(1_900_000), b"old")),
        frames("more bytes in the window than the queue has", violation, |turn| {
            slice(UNORDERED, (1 + turn % 60) as u32, MESSAGE_BYTES, 0, &[0; 128])
        }),
        frames("withdrawals of messages that nobody sent", Due::Nothing, |turn| {
            let id = number((1 + turn % 60) as u32);
            [&[(ORDERED + 1) | 0x40][..], &id, &[0]].concat()
        }),
        frames("first slices without end", Due::Nothing, |turn| {
            let of = |channel, at: u64| slice(channel, (turn * 8 + at) as u32, MESSAGE_BYTES, 0, &[0; 128]);
            (0..4).flat_map(|at| [of(UNRELIABLE, at), of(SEQUENCED, at)].concat()).collect()
        }),
        lie("fills a window in order, but for the first message", Due::Nothing, move |liar, _, turn| {
            let message = whole(ORDERED, Some((1 + turn % 60) as u32), &[0; 250]);
            vec![liar.packet(Says::frames(hash, &message))]
        }),
    ]
}

fn lies_about_blocks() -> Vec<Lie> {
    let begin = |id, length, slice_bytes| {
        let digest = ContentDigest([3; 32]);
        block(BLOCKS, &BlockFrame::Begin(Begin { id: BlockId(id), slice_bytes, length, label: 1, digest }))
    };
    let one = |id, index, bytes: &[u8]| block(BLOCKS, &BlockFrame::Slice { id: BlockId(id), index, bytes });
    let violation = Due::End("violation");
    vec![
        frames("block bombs", Due::Nothing, move |turn| {
            (0..16).flat_map(|at| begin((turn * 16 + at) as u16, MAX_BLOCK_BYTES, 256)).collect()
        }),
        frames("block bombs of which one slice far apart comes", Due::Nothing, move |turn| {
            let at = (turn as u32 * 1009) % (MAX_BLOCK_BYTES / 256);
            // Two of 64 MiB are taken at once.
            [begin((turn % 2) as u16, MAX_BLOCK_BYTES, 256), one((turn % 2) as u16, at, &[0; 256])].concat()
        }),
        frames("a slice of a block that must wait", violation, move |_| {
            let begins = (0..3).flat_map(|id| begin(id, MAX_BLOCK_BYTES, 256));
            begins.chain(one(2, 0, &[0; 256])).collect()
        }),
        frames("a block of more than 64 MiB", violation, move |_| begin(0, MAX_BLOCK_BYTES + 1, 1024)),
        frames("a block in slices of one byte", violation, move |_| begin(0, 1000, 1)),
        frames("a slice of no block", violation, move |_| one(5, 0, &[0; 256])),
        frames("a slice beyond its block", violation, move |_| [begin(0, 1000, 256), one(0, 9, &[0; 256])].concat()),
        frames("a block begun in two ways", violation, move |_| [begin(0, 1000, 256), begin(0, 1001, 256)].concat()),
        frames("an answer to no block", violation, |_| block(BLOCKS, &BlockFrame::Done { id: BlockId(3) })),
        frames("a block's slice bit", violation, |_| slice(BLOCKS, 0, 1000, 0, &[0; 128])),
    ]
}

// Against a server --------------------------------------------------------------------------------------------------

const PLAYERS: u64 = 4;
/// A path's way, there or back.
const LATENCY: Duration = Duration::from_millis(20);

struct Stage {
    hall: Hall,
    handles: Vec<ClientHandle>,
    /// Messages that players and server sent each other on each channel.
    sent: u64,
}

impl Stage {
    fn new() -> Self {
        let mut hall = Hall::new(8, &layout(), &Config::default(), Memory::default());
        let path = Conditions { latency: LATENCY, ..Conditions::perfect() };
        let handles = (0..PLAYERS).map(|_| hall.join(path)).collect();
        let mut stage = Self { hall, handles, sent: 0 };
        (0..60).for_each(|_| stage.turn());
        stage
    }

    /// The players play.
    fn turn(&mut self) {
        let number = self.sent.to_le_bytes();
        for (id, client) in (1..).zip(self.handles.clone()) {
            for channel in [UNRELIABLE, ORDERED].map(ChannelId) {
                self.hall.say(id, channel, &number).unwrap();
                self.hall.tell(client, channel, &number).unwrap();
            }
        }
        self.sent += 1;
        self.hall.turn();
    }

    /// The players noticed nothing.
    fn assert_unharmed(&mut self, what: &str) {
        for id in 1..=PLAYERS {
            for channel in [UNRELIABLE, ORDERED].map(ChannelId) {
                let up = self.hall.messages.iter().filter(|(from, on, _)| (*from, *on) == (id, channel)).count();
                let down = self.hall.player(id).messages.iter().filter(|(on, _)| *on == channel).count();
                // What is still on its way did not arrive.
                let least = (self.sent as f64 * 0.95) as usize - 5;
                assert!(up >= least && down >= least, "{what}: {up} and {down} of {}", self.sent);
            }
            let now = self.hall.now();
            let rtt = self.hall.server.path(self.handles[id as usize - 1], now).unwrap().congestion.round_trip.unwrap();
            assert!(rtt >= 2 * LATENCY && rtt <= 2 * LATENCY + 5 * TURN, "{what}: {rtt:?}");
            assert!(self.hall.player(id).core.netcode().state() == ClientState::Connected, "{what}");
        }
        assert!(self.hall.ends().iter().all(|(id, _)| *id > PLAYERS), "{what}: {:?}", self.hall.ends());
    }
}

/// A holder of a token gets a slot.
fn admitted(hall: &mut Hall, id: u64) -> (Holder, ClientHandle) {
    let (mut holder, from) = (Holder::of(&hall.token(id)), liars_address(id));
    hall.present(from, holder.request());
    hall.turn();
    let challenge = hall.replies.iter().find_map(|(_, reply)| holder.challenge(reply)).expect("a challenge");
    hall.replies.clear();
    hall.present(from, holder.response(&challenge));
    hall.turn();
    (holder, hall.handle(id).expect("a slot"))
}

fn liars_address(id: u64) -> slipgate_netcode::address::Address {
    address(&format!("10.9.9.9:{id}"))
}

/// A liar lies for so many turns; answers why it was disconnected, and which farewell it was told.
fn lies_to_server(stage: &mut Stage, id: u64, lie: &Lie, turns: u64) -> (Option<DisconnectReason>, Option<ByeCode>) {
    let (mut holder, handle) = admitted(&mut stage.hall, id);
    let (mut liar, mut chance) = (Liar::default(), StdRng::seed_from_u64(id));
    let mut told = None;
    for turn in 0..turns {
        for payload in (lie.tell)(&mut liar, &mut chance, turn) {
            let datagram = holder.seal(PacketKind::Payload, &payload);
            stage.hall.present(liars_address(id), datagram);
        }
        if stage.hall.server.connection(handle).is_some_and(|connection| connection.end().is_none()) {
            // The server speaks to it as to everybody; what it does not acknowledge fills the queue and no more.
            for channel in [UNRELIABLE, ORDERED].map(ChannelId) {
                let _ = stage.hall.tell(handle, channel, &[5; 100]);
            }
        }
        stage.turn();
        for (_, reply) in std::mem::take(&mut stage.hall.replies) {
            let payload = holder.open(&reply).filter(|opened| opened.kind == PacketKind::Payload);
            told = told.or_else(|| payload.and_then(|opened| farewell(&opened.content)));
        }
    }
    let end = stage.hall.ends().into_iter().find(|(who, _)| *who == id).map(|(_, reason)| reason);
    stage.hall.server.disconnect(handle);
    stage.turn();
    (end, told)
}

fn check(lie: &Lie, end: Option<&'static str>) {
    match lie.due {
        Due::Nothing => assert_eq!(end, None, "{}", lie.name),
        Due::End(reason) => assert_eq!(end, Some(reason), "{}", lie.name),
        Due::AnyEnd => assert!(end.is_some(), "{}", lie.name),
    }
}

#[test]
fn whatever_a_client_says_the_server_ends_it_for_a_reason_or_not_at_all_and_nobody_else_notices() {
    for (id, lie) in (100..).zip(lies()) {
        let mut stage = Stage::new();
        let ((end, told), bytes) = peak(|| lies_to_server(&mut stage, id, &lie, LIES));
        println!("{}: {end:?}, told {told:?}, {bytes} bytes", lie.name);
        check(&lie, end.map(DisconnectReason::name));
        // Whose lie is found out is told so; who left or accused needs no answer.
        let answered = end.is_some_and(|end| !matches!(end, DisconnectReason::Left | DisconnectReason::Accused));
        assert_eq!(told.is_some(), answered, "{}: {told:?}", lie.name);
        assert!(bytes < 2 << 20, "{}: {bytes} bytes", lie.name);
        stage.assert_unharmed(lie.name);
    }
}

/// The turns of so many seconds, here and in a world.
fn turns(seconds: u128) -> u64 {
    (seconds * 1000 / TURN.as_millis()) as u64
}

/// What is due to a peer that acknowledges nothing for longer.
fn deaf() -> Lie {
    acks("acknowledges nothing for ever", Due::End("violation"), |_, _| Acks::NONE)
}

#[test]
fn a_client_that_never_acknowledges_is_disconnected_in_the_end_and_nobody_else_notices() {
    let (mut stage, lie) = (Stage::new(), deaf());
    assert_eq!(lies_to_server(&mut stage, 100, &lie, turns(29)), (None, None));
    let (end, told) = lies_to_server(&mut stage, 101, &lie, turns(45));
    check(&lie, end.map(DisconnectReason::name));
    assert_eq!(told, Some(ByeCode::VIOLATION));
    stage.assert_unharmed(lie.name);
}

#[test]
fn liars_of_every_kind_at_once_are_no_worse() {
    let mut stage = Stage::new();
    let mut liars: Vec<_> = (100..)
        .zip(lies())
        .filter(|(_, lie)| lie.due == Due::Nothing)
        .take(4)
        .map(|(id, lie)| (id, admitted(&mut stage.hall, id).0, Liar::default(), StdRng::seed_from_u64(id), lie))
        .collect();
    let ((), bytes) = peak(|| {
        for turn in 0..LIES {
            for (id, holder, liar, chance, lie) in &mut liars {
                for payload in (lie.tell)(liar, chance, turn) {
                    stage.hall.present(liars_address(*id), holder.seal(PacketKind::Payload, &payload));
                }
            }
            stage.turn();
        }
    });
    assert!(bytes < 8 << 20, "{bytes} bytes");
    stage.assert_unharmed("all at once");
}

#[test]
fn answers_about_a_block_that_are_repeated_by_the_thousand_bring_nothing_and_nobody_else_notices() {
    const REPEATS: usize = 80;
    let mut stage = Stage::new();
    let (mut holder, client) = admitted(&mut stage.hall, 100);
    let (mut liar, hash) = (Liar::default(), hash());
    let mut tell = |stage: &mut Stage, packets: usize, frames: &[u8]| {
        for _ in 0..packets {
            let datagram = holder.seal(PacketKind::Payload, &liar.packet(Says::frames(hash, frames)));
            stage.hall.present(liars_address(100), datagram);
        }
        stage.turn();
    };
    tell(&mut stage, 1, &[]);
    let much = blocks::Block::new(vec![7; 16 << 20]).unwrap();
    let id = stage.hall.server.send_block(client, ChannelId(BLOCKS), much, 1).unwrap();
    (0..20).for_each(|_| tell(&mut stage, 1, &[]));
    // Eleven bytes speak of all of it: "I have none of these", again and again.
    let slices = (16u32 << 20).div_ceil(blocks::Config::default().slice_bytes.into());
    let accept = [&[4][..], &id.0.to_le_bytes(), &0u32.to_le_bytes(), &slices.to_le_bytes()].concat();
    let repeated = whole(BLOCKS, None, &accept).repeat(REPEATS);
    (0..LIES).for_each(|_| tell(&mut stage, 25, &repeated));
    let connection = stage.hall.server.connection(client).expect("it broke no rule");
    assert!(connection.end().is_none(), "it broke no rule");
    let ignored = connection.channels().stats(ChannelId(BLOCKS)).unwrap().dropped;
    assert_eq!(ignored, LIES * 25 * REPEATS as u64 - 1, "all but the first one");
    stage.assert_unharmed("repeated answers");
}

// Against a client --------------------------------------------------------------------------------------------------

/// A client of a server that lies for so many turns; answers why it ended, and how many bytes it took.
fn lies_to_client(seed: u64, lie: &Lie, most: u64) -> (Option<EndReason>, i64) {
    let mut mint = World::perfect(1);
    let home = address("10.0.0.1:40000");
    let mut settings = NetcodeConfig::new(PROTOCOL_ID, 4, vec![home]);
    settings.fence = Fence::Open;
    let keys = mint.private_key.clone().into();
    let mut server = Server::new(settings, keys, &Seed::from_bytes([2; 32]), mint.now()).unwrap();
    let spec = slipgate_tests::world::TokenSpec {
        client_id: 1,
        servers: vec![home],
        lifetime: 45,
        timeout: 5,
        user_data: [0; 256],
    };
    let token = mint.mint(&spec);
    let mut core = Client::new(NetcodeClient::new(TimeoutPolicy::Clamped));
    core.set_traffic(Traffic::Channels(layout(), Config::default())).unwrap();
    core.netcode_mut().connect(token, mint.now().monotonic).unwrap();
    let away = address("10.1.0.1:5000");
    let (mut liar, mut chance) = (Liar::default(), StdRng::seed_from_u64(seed));
    let (mut scratch, mut messages, mut end, mut turns) = (Vec::new(), Vec::new(), None, 0);
    let ((), bytes) = peak(|| {
        while turns < most {
            mint.turn();
            let now = mint.now();
            let (mut up, mut down) = (Collected::default(), Collected::default());
            core.tick(now.monotonic);
            core.transmit(now.monotonic, &mut up);
            for (_, mut datagram) in up.datagrams {
                let _ = server.handle(away, &mut datagram, now);
            }
            while server.poll_event().is_some() {}
            server.tick(now);
            server.transmit(now, &mut down);
            if let Some(handle) = server.find(1) {
                for payload in (lie.tell)(&mut liar, &mut chance, turns) {
                    let _ = server.send(handle, &payload, now, &mut down);
                }
                turns += 1;
            } else if end.is_some() {
                break;
            }
            for (_, mut datagram) in down.datagrams {
                hear(&mut core, home, &mut datagram, &mut scratch, &mut messages, now.monotonic);
            }
            messages.clear();
            while let Some(event) = core.poll_event() {
                if let client::Event::Ended { reason } = event {
                    end = Some(reason);
                }
            }
        }
    });
    (end, bytes)
}

#[test]
fn whatever_a_server_says_the_client_ends_it_for_a_reason_or_not_at_all() {
    for (seed, lie) in (0..).zip(lies()) {
        let (end, bytes) = lies_to_client(seed, &lie, LIES);
        println!("{}: {end:?}, {bytes} bytes", lie.name);
        // Who leaves is kicked, if it is the server that says so.
        let end = end.map(EndReason::name).map(|name| if name == "kicked" { "left" } else { name });
        check(&lie, end);
        assert!(bytes < 4 << 20, "{}: {bytes} bytes", lie.name);
    }
}

#[test]
fn a_server_that_never_acknowledges_is_left_in_the_end() {
    let lie = deaf();
    assert_eq!(lies_to_client(1, &lie, turns(29)).0, None);
    check(&lie, lies_to_client(1, &lie, turns(70)).0.map(EndReason::name));
}
