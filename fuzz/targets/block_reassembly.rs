//! Two ends of a channel of blocks, a path that loses, repeats and reorders, and frames of a liar in between: what is
//! delivered is what was sent, once, within the memory that was given.

#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_session::channel::block::frame::Frame;
use slipgate_session::channel::block::{Admission, Block, BlockId, Blocks, Config, Event, Part, PartialBlock, Reason};
use slipgate_session::reliability::MemoryBudget;

const BUDGET: usize = 60_000;
const ROOM: usize = 600;

/// The content with this label.
fn content(label: u8) -> Vec<u8> {
    let length = [0, 1, 256, 5000, 4096, 20_000, 300, 9999][usize::from(label % 8)] + usize::from(label / 8);
    (0..length).map(|place| (place as u8).wrapping_mul(37) ^ (place >> 8) as u8 ^ label).collect()
}

struct End {
    blocks: Blocks,
    /// What it wrote and whose fate it does not know.
    flying: Vec<(Vec<u8>, Part)>,
    /// Labels of the contents that came to it; a label is sent once.
    delivered: BTreeSet<u64>,
    kept: Vec<PartialBlock>,
    lied_to: bool,
}

fn end(budget: &MemoryBudget, ask: bool) -> End {
    let admission = if ask { Admission::Ask } else { Admission::Automatic };
    let config = Config {
        slice_bytes: 256,
        max_block_bytes: 16_000,
        max_at_once: 3,
        max_bytes_at_once: 25_000,
        max_waiting: 4,
        admission,
    };
    let blocks = Blocks::new(config, Some(budget.clone())).expect("settings to run with");
    End { blocks, flying: Vec::new(), delivered: BTreeSet::new(), kept: Vec::new(), lied_to: false }
}

impl End {
    fn write(&mut self, room: usize) -> bool {
        let mut bytes = [0; ROOM];
        let wanted = self.blocks.wants_room();
        let Some((length, part)) = self.blocks.write(&mut bytes[..room.min(ROOM)]) else { return false };
        assert!(wanted && length <= room);
        Frame::parse(&bytes[..length]).expect("what is written can be read");
        self.flying.push((bytes[..length].to_vec(), part));
        true
    }

    fn settle(&mut self, which: usize, other: &mut Self, arrives: bool, told: bool) {
        if self.flying.is_empty() {
            return;
        }
        let (bytes, part) = self.flying.swap_remove(which % self.flying.len());
        if arrives {
            let taken = other.blocks.on_frame(&bytes);
            assert!(taken.is_ok() || other.lied_to || self.lied_to, "an honest frame is a violation: {taken:?}");
        }
        if !arrives || !told {
            self.blocks.on_lost(part);
        }
        if arrives {
            self.blocks.on_acked(part);
        }
    }

    fn hear(&mut self, refuses: bool) {
        while let Some(event) = self.blocks.poll_event() {
            match event {
                Event::Offered(offer) if refuses => assert!(self.blocks.refuse(offer.id).is_none()),
                Event::Offered(offer) => {
                    self.blocks.accept(offer.id);
                }
                Event::Received { label, content: came, .. } => {
                    if !self.lied_to {
                        assert!(self.delivered.insert(label), "{label} came twice");
                    }
                    assert!(self.lied_to || came.into_vec() == content(label as u8));
                }
                Event::Broken { partial, .. } => self.kept.extend(partial),
                Event::Delivered { .. } | Event::Refused { .. } => {}
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut operations = Input::new(input);
    let budget = MemoryBudget::new(BUDGET);
    let mode = operations.u8();
    let (mut ours, mut theirs) = (end(&budget, mode & 1 != 0), end(&budget, mode & 2 != 0));
    let mut label = 0u8;
    while let Some(operation) = operations.operation() {
        let value = operations.u8();
        let (one, other) = if operation & 1 == 0 { (&mut ours, &mut theirs) } else { (&mut theirs, &mut ours) };
        match operation >> 1 & 15 {
            0 | 1 => {
                label = label.wrapping_add(1);
                // 255 labels and then no more: each is sent once.
                if label < 255 {
                    let block = Block::new(content(label)).expect("at most 64 MiB");
                    let _ = one.blocks.begin(block, label.into());
                }
            }
            2..=5 => while one.flying.len() < 64 && one.write(ROOM) {},
            6 => {
                one.write(value.into());
            }
            7..=9 => (0..=value % 32).for_each(|_| one.settle(0, other, true, true)),
            10 => one.settle(value.into(), other, true, false),
            11 => one.settle(value.into(), other, false, false),
            12 => one.hear(value & 1 != 0),
            13 => match value % 4 {
                0 => {
                    one.blocks.cancel(BlockId((value / 4).into()));
                }
                1 => one.kept.extend(one.blocks.refuse(BlockId((value / 4).into()))),
                2 => {
                    one.blocks.accept(BlockId((value / 4).into()));
                }
                _ => {
                    if let Some(partial) = one.kept.pop() {
                        one.kept.extend(one.blocks.keep(partial).err());
                    }
                }
            },
            // The connection ends, and another one begins.
            14 if value < 16 => {
                for side in [&mut ours, &mut theirs] {
                    let mut next = end(&budget, mode & 1 != 0);
                    (next.delivered, next.lied_to) = (core::mem::take(&mut side.delivered), side.lied_to);
                    let old = core::mem::replace(side, next);
                    side.kept.extend(old.kept.into_iter().chain(old.blocks.into_partials()));
                    side.kept.truncate(8);
                }
                assert_eq!(budget.left(), BUDGET, "memory is given back");
            }
            // A liar with valid keys.
            _ => {
                one.lied_to = true;
                other.lied_to = true;
                let kind = value % 7;
                let reason = [0; 20].map(|_: u8| operations.u8());
                let frame = [&[kind, value / 7, 0], &reason[..usize::from(reason[0] % 20)]].concat();
                let _ = one.blocks.on_frame(&frame);
                let slice = vec![value; 256];
                let index = u32::from(reason[1]);
                let mut room = [0; ROOM];
                let id = BlockId((value / 7).into());
                let bytes = Frame::Slice { id, index, bytes: &slice }.write(&mut room).expect("it fits");
                let _ = one.blocks.on_frame(&room[..bytes]);
                let withdraw = Frame::Withdraw { id, reason: Reason::Other(value) }.write(&mut room).expect("it fits");
                if value & 8 != 0 {
                    let _ = one.blocks.on_frame(&room[..withdraw]);
                }
            }
        }
        assert!(ours.blocks.receiving().count() <= 3 && theirs.blocks.receiving().count() <= 3);
    }
    drop((ours.blocks, theirs.blocks));
    assert_eq!(budget.left(), BUDGET, "memory is given back");
});
