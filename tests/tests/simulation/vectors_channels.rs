//! The vectors of channels: a second encoder wrote them from `specs/channels-1.md`.

use std::sync::Arc;

use slipgate_netcode::time::Instant;
use slipgate_session::channel::control::{self, Bye, ControlMessage, Hello, RedirectPart};
use slipgate_session::channel::transfer;
use slipgate_session::channel::{
    ChannelConfig, ChannelId, ChannelViolation, Channels, FrameCursor, Kind, Layout, LayoutHash, ReceivedMessage,
    SendOptions,
};
use slipgate_session::connection::CloseCode;
use slipgate_session::wire::reliable::Sequence;
use slipgate_tests::vectors::{Case, Vectors};

fn layout_of(channels: &[Case<'_>]) -> Arc<Layout> {
    Arc::new(Layout::try_from(channels.iter().map(channel).collect::<Vec<_>>()).unwrap())
}

fn channel(case: &Case<'_>) -> ChannelConfig {
    let kind = match case.text("kind") {
        "unreliable" => Kind::Unreliable,
        "sequenced" => Kind::Sequenced,
        "reliable_unordered" => Kind::ReliableUnordered,
        "reliable_ordered" => Kind::ReliableOrdered,
        // The vectors use the name of the first version of the document.
        "blocks" => {
            let max_at_once = case.u32("max_at_once_u8") as u8;
            let transfers = transfer::TransferConfig { max_at_once, ..transfer::TransferConfig::default() };
            return ChannelConfig { transfers, ..ChannelConfig::from(Kind::Transfers) };
        }
        kind => panic!("{kind}"),
    };
    ChannelConfig {
        max_message_bytes: case.u32("max_message_bytes_u32"),
        queue_bytes: case.u32("queue_bytes_u32"),
        queue_messages: case.u16("queue_messages_u16"),
        ..ChannelConfig::from(kind)
    }
}

fn messages(case: &Case<'_>, field: &str) -> Vec<(ChannelId, Vec<u8>)> {
    let message = |case: &Case<'_>| (ChannelId(case.u32("channel_u8") as u8), case.bytes("message_hex"));
    case.steps(field).iter().map(message).collect()
}

fn packets(case: &Case<'_>) -> Vec<Vec<u8>> {
    case.texts("packets_hex").into_iter().map(|packet| hex::decode(packet).unwrap()).collect()
}

/// Reads packets, and returns the messages in the order of arrival.
fn read(layout: &Arc<Layout>, packets: &[Vec<u8>]) -> Result<Vec<(ChannelId, Vec<u8>)>, ChannelViolation> {
    let mut channels = Channels::new(Arc::clone(layout), None);
    let (mut scratch, mut messages) = (Vec::new(), Vec::new());
    for frames in packets {
        let mut at = FrameCursor::default();
        while let Some(arrival) = channels.next(frames, &mut at, &mut scratch, Instant::default())? {
            let ReceivedMessage { channel, span } = arrival;
            messages.push((channel, span.bytes(frames, &scratch).to_vec()));
        }
    }
    Ok(messages)
}

fn write(layout: &Arc<Layout>, messages: &[(ChannelId, Vec<u8>)], buf: usize) -> Vec<Vec<u8>> {
    let mut channels = Channels::new(Arc::clone(layout), None);
    for (channel, message) in messages {
        channels.send(*channel, message, SendOptions::default(), Instant::default()).unwrap();
    }
    let packet = |number| {
        let mut packet = vec![0xee; buf];
        let bytes = channels.write(Sequence(number), Instant::default(), &mut packet);
        packet.truncate(bytes);
        (bytes > 0).then_some(packet)
    };
    (0..).map_while(packet).collect()
}

fn by_channel(mut messages: Vec<(ChannelId, Vec<u8>)>) -> Vec<(ChannelId, Vec<u8>)> {
    messages.sort_by_key(|(channel, _)| *channel);
    messages
}

#[test]
fn channel_frames_are_encoded_and_decoded_as_specified() {
    let vectors = Vectors::load("channel_frames.json");
    let layout = layout_of(&vectors.cases("layout", 4));
    for case in vectors.cases("written_cases", 16) {
        let sends = messages(&case, "sends");
        assert_eq!(write(&layout, &sends, case.u16("room_u16").into()), packets(&case), "{case}");
        let delivered = read(&layout, &packets(&case)).unwrap();
        assert_eq!(by_channel(delivered), by_channel(sends), "{case}");
    }
    for case in vectors.cases("read_cases", 17) {
        assert_eq!(read(&layout, &packets(&case)).unwrap(), messages(&case, "delivers"), "{case}");
    }
}

#[test]
fn invalid_channel_frames_are_violations_with_a_reason() {
    let vectors = Vectors::load("channel_frames.json");
    let layout = layout_of(&vectors.cases("layout", 4));
    for case in vectors.cases("invalid_cases", 26) {
        let violation = read(&layout, &[case.bytes("packet_hex")]).unwrap_err();
        let name = format!("{violation:?}");
        assert_eq!(name.split('(').next(), Some(case.text("violation")), "{case}");
    }
}

#[test]
fn control_messages_are_encoded_and_decoded_as_specified() {
    let vectors = Vectors::load("channel_control.json");
    for case in vectors.cases("valid_cases", 8) {
        let (wire, mut buf) = (case.bytes("wire_hex"), [0; 512]);
        let bytes = if case.has("bytes_hex") { case.bytes("bytes_hex") } else { Vec::new() };
        let control = match case.text("type") {
            "hello" => ControlMessage::Hello(Hello {
                version: case.u32("version_u8") as u8,
                oldest_version: case.u32("oldest_version_u8") as u8,
                layout: LayoutHash(case.array("layout_hex")),
                payload_bytes: case.u16("payload_bytes_u16"),
                abilities: case.u16("abilities_u16"),
            }),
            "bye" => ControlMessage::Bye(Bye { code: CloseCode(case.u16("code_u16")), text: case.text("text") }),
            _ => ControlMessage::Redirect(RedirectPart {
                token_bytes: case.u16("token_bytes_u16"),
                index: case.u32("index_u8") as u8,
                bytes: &bytes,
            }),
        };
        let written = control::write(&control, &mut buf);
        assert_eq!(buf[..written], wire, "{case}");
        assert_eq!(control::read(&wire), Ok(Some((control, wire.len()))), "{case}");
    }
    for case in vectors.cases("tolerated_cases", 5) {
        let wire = case.bytes("wire_hex");
        let (control, bytes) = control::read(&wire).unwrap().unwrap();
        let kind = match control {
            ControlMessage::Hello(_) => "hello",
            ControlMessage::Redirect(_) => "redirect",
            _ => "unknown",
        };
        assert_eq!((kind, bytes), (case.text("type"), wire.len()), "{case}");
    }
    for case in vectors.cases("invalid_cases", 13) {
        let violation = control::read(&case.bytes("wire_hex")).unwrap_err();
        assert_eq!(format!("{violation:?}"), case.text("violation"), "{case}");
    }
}

#[test]
fn layouts_have_the_specified_hashes() {
    let vectors = Vectors::load("channel_layouts.json");
    for case in vectors.cases("cases", 6) {
        let layout = layout_of(&case.steps("channels"));
        assert_eq!(layout.hash(), LayoutHash(case.array("hash_hex")), "{case}");
    }
}
