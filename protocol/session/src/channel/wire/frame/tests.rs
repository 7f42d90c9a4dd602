//! The parser reads back what the writer writes.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::channel::config::ChannelConfig;
use crate::channel::wire::frame_writer::{FrameHeader, FrameWriter};

const KINDS: [Kind; 4] = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];

/// A frame to write, if it fits.
#[derive(Clone, Debug)]
enum FrameSpec {
    Whole { channel: u8, id: u32, bytes: usize },
    Slice { channel: u8, id: u32, bytes: u32, first: u16 },
    Withdrawn { channel: u8, id: u32 },
}

/// Returns ids that lie close together, across the wrap too, and any others.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![0..4_u32, (1_u32 << 21) - 4..1_u32 << 21, any::<u32>()]
}

fn frame_spec() -> impl Strategy<Value = FrameSpec> {
    let bytes = prop_oneof![0..4_usize, 120..135_usize, 0..1200_usize];
    prop_oneof![
        (0..4_u8, id(), bytes).prop_map(|(channel, id, bytes)| FrameSpec::Whole { channel, id, bytes }),
        (0..4_u8, id(), 129..=16_384_u32, any::<u16>()).prop_map(|(channel, id, bytes, first)| {
            FrameSpec::Slice { channel, id, bytes, first: first % pieces_of(bytes) }
        }),
        (2..4_u8, id()).prop_map(|(channel, id)| FrameSpec::Withdrawn { channel, id }),
    ]
}

fn layout() -> Layout {
    Layout::try_from(KINDS.map(ChannelConfig::from).to_vec()).unwrap()
}

/// Writes a frame. Returns the expected result of parsing it, without the position of its data.
fn write(writer: &mut FrameWriter<'_>, frame_spec: &FrameSpec) -> Option<(ChannelId, FrameBody, usize)> {
    match *frame_spec {
        FrameSpec::Whole { channel, id, bytes } => {
            let id = MessageId::new(if channel == 0 { 0 } else { id });
            let header = FrameHeader::Whole((channel > 0).then_some(id));
            writer
                .fits(ChannelId(channel), header, bytes)
                .then(|| writer.begin(ChannelId(channel), header, bytes).fill(7))?;
            Some((ChannelId(channel), FrameBody::Whole { id, data: 0..0 }, bytes))
        }
        FrameSpec::Slice { channel, id, bytes, first } => {
            let id = MessageId::new(id);
            let header = FrameHeader::Slice { id, bytes, first };
            let data =
                writer.pieces_that_fit(ChannelId(channel), header, bytes as usize - usize::from(first) * PIECE_BYTES);
            (data > 0).then(|| writer.begin(ChannelId(channel), header, data).fill(7))?;
            Some((ChannelId(channel), FrameBody::Slice { id, bytes, first, data: 0..0 }, data))
        }
        FrameSpec::Withdrawn { channel, id } => {
            let (channel, id) = (ChannelId(channel), MessageId::new(id));
            writer.withdraw(channel, id).then_some((channel, FrameBody::Withdrawn { id }, 0))
        }
    }
}

fn without_position(body: FrameBody) -> (FrameBody, usize) {
    match body {
        FrameBody::Whole { id, data } => (FrameBody::Whole { id, data: 0..0 }, data.len()),
        FrameBody::Slice { id, bytes, first, data } => (FrameBody::Slice { id, bytes, first, data: 0..0 }, data.len()),
        FrameBody::Withdrawn { .. } | FrameBody::Transfer { .. } => (body, 0),
    }
}

proptest! {
    #[test]
    fn written_frames_are_parsed_back(
        bytes_available in 0..1300_usize,
        specs in prop::collection::vec(frame_spec(), 0..20),
    ) {
        let mut packet = vec![0xee; bytes_available];
        let mut writer = FrameWriter::new(&mut packet);
        let written: Vec<_> = specs.iter().filter_map(|frame_spec| write(&mut writer, frame_spec)).collect();
        let bytes = writer.finish();
        let (mut at, layout) = (FrameCursor::default(), layout());
        for (channel, body, length) in written {
            let (frame, _) = MessageFrame::read(&packet[..bytes], &mut at, &layout).unwrap();
            prop_assert_eq!(frame.channel, channel);
            prop_assert_eq!(without_position(frame.body), (body, length));
        }
        prop_assert_eq!(at.bytes, bytes, "and nothing else");
    }

    #[test]
    fn any_bytes_are_frames_or_a_violation(packet in prop::collection::vec(any::<u8>(), 0..200)) {
        let (mut at, layout) = (FrameCursor::default(), layout());
        while at.bytes < packet.len() {
            let start = at.bytes;
            let Ok((frame, _)) = MessageFrame::read(&packet, &mut at, &layout) else { break };
            prop_assert!(at.bytes > start && at.bytes <= packet.len());
            if let FrameBody::Whole { data, .. } | FrameBody::Slice { data, .. } = frame.body {
                prop_assert!(data.start > start && data.end == at.bytes);
            }
        }
    }
}
