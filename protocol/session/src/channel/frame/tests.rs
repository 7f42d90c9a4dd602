//! What the pen writes is what a frame reads.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::channel::layout::ChannelConfig;
use crate::channel::pen::{Pen, Prefix};

const KINDS: [Kind; 4] = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];

/// A frame to write, where there is room for it.
#[derive(Clone, Debug)]
enum Wish {
    Whole { channel: u8, id: u32, bytes: usize },
    Slice { channel: u8, id: u32, bytes: u32, first: u16 },
    Withdrawn { channel: u8, id: u32 },
}

/// Ids that lie close together, around the wrap too, and any others.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![0..4_u32, (1_u32 << 21) - 4..1_u32 << 21, any::<u32>()]
}

fn wish() -> impl Strategy<Value = Wish> {
    let bytes = prop_oneof![0..4_usize, 120..135_usize, 0..1200_usize];
    prop_oneof![
        (0..4_u8, id(), bytes).prop_map(|(channel, id, bytes)| Wish::Whole { channel, id, bytes }),
        (0..4_u8, id(), 129..=16_384_u32, any::<u16>()).prop_map(|(channel, id, bytes, first)| {
            Wish::Slice { channel, id, bytes, first: first % pieces_of(bytes) }
        }),
        (2..4_u8, id()).prop_map(|(channel, id)| Wish::Withdrawn { channel, id }),
    ]
}

fn layout() -> Layout {
    Layout::new(KINDS.map(ChannelConfig::new).into()).unwrap()
}

/// Writes a frame and answers what must be read: everything but the data's place.
fn write(pen: &mut Pen<'_>, wish: &Wish) -> Option<(ChannelId, Body, usize)> {
    match *wish {
        Wish::Whole { channel, id, bytes } => {
            let id = MessageId::new(if channel == 0 { 0 } else { id });
            let prefix = Prefix::Whole((channel > 0).then_some(id));
            pen.fits(ChannelId(channel), prefix, bytes)
                .then(|| pen.begin(ChannelId(channel), prefix, bytes).fill(7))?;
            Some((ChannelId(channel), Body::Whole { id, data: 0..0 }, bytes))
        }
        Wish::Slice { channel, id, bytes, first } => {
            let id = MessageId::new(id);
            let prefix = Prefix::Slice { id, bytes, first };
            let data =
                pen.pieces_that_fit(ChannelId(channel), prefix, bytes as usize - usize::from(first) * PIECE_BYTES);
            (data > 0).then(|| pen.begin(ChannelId(channel), prefix, data).fill(7))?;
            Some((ChannelId(channel), Body::Slice { id, bytes, first, data: 0..0 }, data))
        }
        Wish::Withdrawn { channel, id } => {
            let (channel, id) = (ChannelId(channel), MessageId::new(id));
            pen.withdraw(channel, id).then_some((channel, Body::Withdrawn { id }, 0))
        }
    }
}

fn without_place(body: Body) -> (Body, usize) {
    match body {
        Body::Whole { id, data } => (Body::Whole { id, data: 0..0 }, data.len()),
        Body::Slice { id, bytes, first, data } => (Body::Slice { id, bytes, first, data: 0..0 }, data.len()),
        Body::Withdrawn { .. } | Body::Block { .. } => (body, 0),
    }
}

proptest! {
    #[test]
    fn what_the_pen_writes_is_read_back(room in 0..1300_usize, wishes in prop::collection::vec(wish(), 0..20)) {
        let mut packet = vec![0xee; room];
        let mut pen = Pen::new(&mut packet);
        let written: Vec<_> = wishes.iter().filter_map(|wish| write(&mut pen, wish)).collect();
        let bytes = pen.finish();
        let (mut at, layout) = (ReadAt::default(), layout());
        for (channel, body, length) in written {
            let frame = Frame::read(&packet[..bytes], &mut at, &layout).unwrap();
            prop_assert_eq!(frame.channel, channel);
            prop_assert_eq!(without_place(frame.body), (body, length));
        }
        prop_assert_eq!(at.bytes, bytes, "and nothing else");
    }

    #[test]
    fn any_bytes_are_frames_or_a_violation(packet in prop::collection::vec(any::<u8>(), 0..200)) {
        let (mut at, layout) = (ReadAt::default(), layout());
        while at.bytes < packet.len() {
            let start = at.bytes;
            let Ok(frame) = Frame::read(&packet, &mut at, &layout) else { break };
            prop_assert!(at.bytes > start && at.bytes <= packet.len());
            if let Body::Whole { data, .. } | Body::Slice { data, .. } = frame.body {
                prop_assert!(data.start > start && data.end == at.bytes);
            }
        }
    }
}
