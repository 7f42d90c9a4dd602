//! Sessions: frames as a second encoder wrote them from `specs/session-1.md`, and whole exchanges, byte for byte.
//!
//! Our own connections produce the exchanges with `SLIPGATE_WRITE_VECTORS=1`, and people review them before a commit: a
//! change of them is a change of the wire, or of the time when packets are sent.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::connection::CloseCode;
use slipgate_session::connection::{CloseKind, CloseReason, ClosedBy, Connection, ConnectionConfig, Role};
use slipgate_session::reliability::{self, Endpoint, PacketEvent};
use slipgate_session::wire::reliable::{Acks, ReliableHeader, Sequence};
use slipgate_session::wire::session_frame::{AckNonces, ArrivalEcho, SessionFrame, SessionFrameError, Timestamp};
use slipgate_tests::acknowledged::Datagrams;
use slipgate_tests::nonce_sum::{nonce_planes, nonce_sum};
use slipgate_tests::vectors::Vectors;

const FRAMES: &str = "session_frames.json";
const EXCHANGE: &str = "session_exchange.json";
/// How the file is written again.
const REWRITE: &str = "SLIPGATE_WRITE_VECTORS=1 cargo test -p slipgate-tests --test simulation vectors_session";

// Frames ------------------------------------------------------------------------------------------------------------

#[test]
fn session_frames_are_encoded_and_decoded_as_specified() {
    for case in Vectors::load(FRAMES).cases("valid_cases", 24) {
        let extended_acks = case.bytes("acks_behind_hex");
        let arrived = case.has("arrived_u16").then(|| {
            let late = u8::try_from(case.u16("late_u8")).unwrap();
            ArrivalEcho { at: Timestamp(case.u16("arrived_u16")), late }
        });
        let [own, sum] = ["nonce_u8", "nonce_sum_u8"].map(|name| u8::try_from(case.u16(name)).unwrap());
        let (sent, nonces) = (Timestamp(case.u16("sent_u16")), AckNonces { own, sum });
        let frame = SessionFrame { sent, nonces, arrived, extended_acks: &extended_acks };
        let mut buf = [0; 64];
        let mut writer = Writer::new(&mut buf);
        frame.emit(&mut writer);
        let written = writer.written().unwrap();
        assert_eq!(hex::encode(&buf[..written]), case.text("frame_hex"), "{case}");

        let rest = case.bytes("rest_hex");
        let payload = [case.bytes("frame_hex"), rest.clone()].concat();
        assert_eq!(SessionFrame::parse(&payload), Ok((frame, &rest[..])), "{case}");
        assert_eq!(acked_back(&extended_acks), case.u16s("acked_back_u16").into_iter().collect(), "{case}");
    }
}

/// Returns the distances of the acknowledged packets behind the ack of the header.
fn acked_back(extended_acks: &[u8]) -> BTreeSet<u16> {
    let (mut endpoint, mut sink, now) = (
        Endpoint::new(reliability::EndpointConfig::default(), None).unwrap(),
        Datagrams::default(),
        Instant::default(),
    );
    for _ in 0..300 {
        endpoint.send(b"packet", now, &mut sink).unwrap();
    }
    endpoint.on_extended_acks(Sequence(299), extended_acks, now);
    let acked =
        |event| if let PacketEvent::Acked { sequence, .. } = event { 299 - sequence.0 } else { panic!("{event:?}") };
    std::iter::from_fn(|| endpoint.poll_event()).map(acked).collect()
}

#[test]
fn invalid_session_frames_are_refused() {
    for case in Vectors::load(FRAMES).cases("invalid_cases", 18) {
        let reason = match case.text("reason") {
            "late without arrived" => SessionFrameError::Flags,
            "a late of 0" => SessionFrameError::Late,
            "a length of 0 or more than 28" => SessionFrameError::ExtendedAcks,
            "sent is cut" | "arrived is cut" | "no byte of late" | "no length" | "fewer bytes than length says" => {
                SessionFrameError::Cut
            }
            reason => panic!("{reason}"),
        };
        assert_eq!(SessionFrame::parse(&case.bytes("payload_hex")), Err(reason), "{case}");
    }
}

#[test]
fn nonce_sumes_are_those_of_the_document() {
    for case in Vectors::load(FRAMES).cases("nonce_sum_cases", 11) {
        let acks = Acks { ack: Sequence(1000), bits: case.u32("ack_bits_u32") };
        let nonces = HashMap::<_, _>::from_iter(case.u16s("acked_back_u16").into_iter().zip(case.u16s("nonces_u8")));
        let nonce = |number: u16| nonces[&(acks.ack.0.wrapping_sub(number))] as u8;
        let planes = nonce_planes(acks, &case.bytes("acks_behind_hex"), nonce);
        let sum = nonce_sum(case.u16("sequence_u16"), &planes);
        assert_eq!(u16::from(sum), case.u16("nonce_sum_u8"), "{case}");
    }
}

// Exchanges ---------------------------------------------------------------------------------------------------------

/// The action of one end at a time of the script.
enum Act {
    Send(u8, Vec<u8>),
    Leave(u16, &'static str),
}

struct Scenario {
    name: &'static str,
    note: &'static str,
    /// The channels of both ends.
    layouts: [&'static [Kind]; 2],
    /// How far the turns of each end are apart.
    turn_ms: [u64; 2],
    until_ms: u64,
    /// The time, the end (0 is a, 1 is b), and the action.
    script: Vec<(u64, usize, Act)>,
    /// Selects lost datagrams by the sending end and the number of its datagram.
    lost: fn(usize, usize) -> bool,
}

const LATENCY_MS: u64 = 30;
/// The clocks of the ends; the one of b wraps during each exchange.
const STARTS_MS: [u64; 2] = [100_000, 16_300];
const CHANNELS: &[Kind] = &[Kind::ReliableOrdered, Kind::Unreliable];

struct Side {
    connection: Connection,
    start: Instant,
    sent: usize,
    over: bool,
}

impl Side {
    fn new(end: usize, kinds: &[Kind]) -> Self {
        let layout =
            Arc::new(Layout::try_from(kinds.iter().copied().map(ChannelConfig::from).collect::<Vec<_>>()).unwrap());
        let mut config = ConnectionConfig::default();
        config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e6));
        let start = Instant::from_start(Duration::from_millis(STARTS_MS[end]));
        Self { connection: Connection::new(&config, layout, Role::Client, None).unwrap(), start, sent: 0, over: false }
    }

    fn now(&self, at_ms: u64) -> Instant {
        self.start.after(Duration::from_millis(at_ms))
    }

    fn act(&mut self, act: &Act, at_ms: u64) {
        let now = self.now(at_ms);
        match act {
            Act::Send(channel, message) => {
                self.connection.send(ChannelId(*channel), message, SendOptions::default(), now).unwrap();
            }
            Act::Leave(code, text) => self.connection.close(CloseCode(*code), text),
        }
    }

    /// Processes a datagram, and returns its messages.
    fn take(&mut self, datagram: &[u8], at_ms: u64) -> Vec<(u8, Vec<u8>)> {
        let (now, mut scratch, mut messages) = (self.now(at_ms), Vec::new(), Vec::new());
        let Some(mut incoming) = self.connection.handle(datagram, Duration::ZERO, now).unwrap() else {
            return messages;
        };
        while let Some(message) = self.connection.next_message(datagram, &mut incoming, &mut scratch, now) {
            messages.push((message.channel.0, message.span.bytes(datagram, &scratch).to_vec()));
        }
        messages
    }

    fn turn(&mut self, at_ms: u64) -> Vec<Vec<u8>> {
        let (now, mut sink) = (self.now(at_ms), Datagrams::default());
        self.connection.tick(now);
        self.connection.transmit(now, &mut sink);
        sink.sent
    }
}

/// Plays a scenario, millisecond by millisecond: arrivals, then the script, then the turns, a before b.
fn play(scenario: &Scenario) -> Value {
    let mut sides = [0, 1].map(|end| Side::new(end, scenario.layouts[end]));
    let (mut in_flight, mut events): (Vec<(u64, usize, Vec<u8>)>, _) = (Vec::new(), Vec::new());
    for at_ms in 0..=scenario.until_ms {
        for (_, to, datagram) in in_flight.extract_if(.., |(arrives, ..)| *arrives == at_ms) {
            for (channel, message) in sides[to].take(&datagram, at_ms) {
                let (at, message) = (NAMES[to], hex::encode(message));
                events.push(json!({
                    "event": "message", "time_ms_u32": at_ms, "at": at, "channel_u8": channel, "message_hex": message
                }));
            }
        }
        for (_, end, act) in scenario.script.iter().filter(|(time, ..)| *time == at_ms) {
            sides[*end].act(act, at_ms);
        }
        for (end, side) in sides.iter_mut().enumerate() {
            if at_ms % scenario.turn_ms[end] != 0 {
                continue;
            }
            for datagram in side.turn(at_ms) {
                let lost = (scenario.lost)(end, side.sent);
                side.sent += 1;
                events.push(json!({
                    "event": "datagram",
                    "time_ms_u32": at_ms,
                    "from": NAMES[end],
                    "delivered": !lost,
                    "datagram_hex": hex::encode(&datagram),
                }));
                if !lost {
                    in_flight.push((at_ms + LATENCY_MS, 1 - end, datagram));
                }
            }
            if side.connection.is_closed() && !side.over {
                side.over = true;
                let reason = reason_text(side.connection.close_reason().unwrap());
                events.push(json!({ "event": "over", "time_ms_u32": at_ms, "at": NAMES[end], "reason": reason }));
            }
        }
    }
    json!({
        "name": scenario.name,
        "note": scenario.note,
        "channels_of_a": scenario.layouts[0].iter().map(|kind| format!("{kind:?}")).collect::<Vec<_>>(),
        "channels_of_b": scenario.layouts[1].iter().map(|kind| format!("{kind:?}")).collect::<Vec<_>>(),
        "turn_of_a_ms_u32": scenario.turn_ms[0],
        "turn_of_b_ms_u32": scenario.turn_ms[1],
        "script": scenario.script.iter().map(script).collect::<Vec<_>>(),
        "events": events,
    })
}

/// Returns a close reason in the words of the vectors.
fn reason_text(reason: &CloseReason) -> String {
    match (reason.by, reason.kind) {
        (_, CloseKind::LayoutMismatch { local, remote: Some(remote), .. }) => {
            format!("the two sides have different channels: layout {local} here, {remote} there")
        }
        (ClosedBy::Local, CloseKind::Left) => "this side said goodbye".to_owned(),
        (ClosedBy::Remote, CloseKind::Kicked) if !reason.text.is_empty() => reason.text.clone(),
        _ => panic!("{reason:?}"),
    }
}

const NAMES: [&str; 2] = ["a", "b"];

fn script((time, end, act): &(u64, usize, Act)) -> Value {
    match act {
        Act::Send(channel, message) => {
            json!({
                "time_ms_u32": time,
                "end": NAMES[*end],
                "act": "send",
                "channel_u8": channel,
                "message_hex": hex::encode(message),
            })
        }
        Act::Leave(code, text) => {
            json!({ "time_ms_u32": time, "end": NAMES[*end], "act": "leave", "code_u16": code, "text": text })
        }
    }
}

fn send(time: u64, end: usize, channel: u8, message: &[u8]) -> (u64, usize, Act) {
    (time, end, Act::Send(channel, message.to_vec()))
}

fn scenarios() -> Vec<Scenario> {
    let plain = |name, note, script, lost| Scenario {
        name,
        note,
        layouts: [CHANNELS; 2],
        turn_ms: [5, 5],
        until_ms: 1500,
        script,
        lost,
    };
    let stream = |numbers: std::ops::Range<u64>| numbers.map(|at| send(200 + at, 0, 1, &(at as u16).to_le_bytes()));
    vec![
        plain(
            "greeting_messages_farewell",
            "both greet at once, a with messages behind it; b answers; both fall silent; a leaves",
            vec![
                send(0, 0, 0, b"good evening"),
                send(0, 0, 1, b"state 1"),
                send(100, 1, 0, b"and to you"),
                (400, 0, Act::Leave(300, "good night")),
            ],
            |_, _| false,
        ),
        plain(
            "the_first_datagrams_get_lost",
            "the greeting is in the packets that follow, and the lost message is sent anew",
            vec![send(0, 0, 0, b"one"), send(40, 0, 1, b"two"), send(80, 0, 1, b"three")],
            |end, number| end == 0 && number == 0 || end == 1 && number < 2,
        ),
        plain(
            "a_message_gets_lost",
            "three newer packets are acknowledged, time passes, and it leaves in another packet",
            vec![
                send(200, 0, 0, b"lost"),
                send(220, 0, 1, b"1"),
                send(240, 0, 1, b"2"),
                send(260, 0, 1, b"3"),
                send(280, 0, 1, b"4"),
            ],
            |end, number| end == 0 && number == 2,
        ),
        plain(
            "a_probe",
            "the only packet under way gets lost: nothing newer can tell, and the path's silence does",
            vec![send(200, 0, 0, b"lost")],
            |end, number| end == 0 && number == 2,
        ),
        Scenario {
            turn_ms: [1, 50],
            ..plain(
                "acknowledgements_behind_the_header",
                "b takes a turn only each 50 ms, so that more arrived than its header tells of twice; \
                 some datagrams get lost",
                stream(0..60).collect(),
                |end, number| end == 0 && number % 7 == 5,
            )
        },
        Scenario {
            turn_ms: [1, 600],
            ..plain(
                "more_than_a_frame_tells",
                "b takes a turn only each 600 ms; packets with an older ack report what lies more than 256 back",
                stream(0..300).collect(),
                |_, _| false,
            )
        },
        plain(
            "a_farewell_to_nobody",
            "b has fallen silent: the farewell is said each 100 ms for a second",
            vec![(200, 0, Act::Leave(0, ""))],
            |_, number| number > 1,
        ),
        Scenario {
            layouts: [CHANNELS, &[Kind::Sequenced]],
            ..plain(
                "layouts_differ",
                "both notice, and say why with their next packet",
                vec![send(0, 0, 0, b"never to be misread")],
                |_, _| false,
            )
        },
    ]
}

fn exchange() -> Value {
    json!({
        "format": "interop-vectors/1",
        "file": EXCHANGE,
        "set": "public",
        "subject": "Whole sessions: every datagram and message with its time",
        "reference": {
            "document": "specs/session-1.md",
            "written_by": REWRITE,
        },
        "encoding": {
            "_hex": "byte string, lowercase hexadecimal, in wire order, no separators",
            "_u8/_u16/_u32/_i32": "JSON number of that integer type",
        },
        "fields": {
            "channels_of_a": "kinds of channels, with the limits of vectors of channel_layouts' default",
            "turn_of_a_ms_u32": "packets leave at multiples of this time alone; datagrams are taken when they arrive",
            "script": "what the applications do, before the turn of that time",
            "events": "in order. datagram: it leaves, and arrives latency_ms_u32 later unless delivered is false; \
                message: it is handed to the application; over: the end is reached",
            "time_ms_u32": "since the start of the script",
        },
        "latency_ms_u32": LATENCY_MS,
        "clock_of_a_at_start_ms_u32": STARTS_MS[0],
        "clock_of_b_at_start_ms_u32": STARTS_MS[1],
        "scenarios": scenarios().iter().map(play).collect::<Vec<_>>(),
    })
}

#[test]
fn exchanges_match_the_vectors_byte_for_byte() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/vectors").join(EXCHANGE);
    let exchange = exchange();
    if std::env::var_os("SLIPGATE_WRITE_VECTORS").is_some() {
        let text = serde_json::to_string_pretty(&exchange).unwrap();
        std::fs::write(&path, text + "\n").unwrap();
    }
    let written: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let scenarios = |value: &Value| value["scenarios"].as_array().unwrap().clone();
    for (ours, theirs) in scenarios(&exchange).iter().zip(scenarios(&written)) {
        let events = |value: &Value| value["events"].as_array().unwrap().clone();
        for (ours, theirs) in events(ours).into_iter().zip(events(&theirs)) {
            assert_eq!(ours, theirs, "to accept the change: {REWRITE}");
        }
    }
    assert!(exchange == written, "something else than events differs, or their number does; {REWRITE}");
}

#[test]
fn exchanges_match_their_notes() {
    let file = Vectors::load(EXCHANGE);
    let all = file.cases("scenarios", 8);
    let frames_of = |name: &str, from: &str| -> Vec<(usize, usize)> {
        let scenario = all.iter().find(|case| case.name() == name).unwrap();
        let events = scenario.steps("events");
        let datagrams = events.iter().filter(|event| event.text("event") == "datagram" && event.text("from") == from);
        datagrams
            .map(|datagram| {
                let bytes = datagram.bytes("datagram_hex");
                let (_, payload) = ReliableHeader::parse(&bytes).unwrap();
                (payload.len(), SessionFrame::parse(payload).unwrap().0.extended_acks.len())
            })
            .collect()
    };
    assert!(frames_of("acknowledgements_behind_the_header", "b").iter().any(|(_, acks)| (3..28).contains(acks)));
    let far = frames_of("more_than_a_frame_tells", "b");
    assert!(far.iter().any(|(_, acks)| *acks == 28) && far.iter().any(|(payload, _)| *payload == 3), "{far:?}");
    assert_eq!(frames_of("a_farewell_to_nobody", "a").len(), 12, "a HELLO, an acknowledgement, ten BYE messages");
    let messages = |name: &str| {
        let scenario = all.iter().find(|case| case.name() == name).unwrap();
        scenario.steps("events").iter().filter(|event| event.text("event") == "message").count()
    };
    assert_eq!(["a_message_gets_lost", "a_probe", "more_than_a_frame_tells"].map(messages), [5, 1, 300]);
}
