//! Two ends of a transfer channel, a path that loses, repeats and reorders, and frames of a malicious peer in between:
//! each content is delivered once, as it was sent, within the memory limits.

#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_session::channel::transfer::frame::TransferFrame;
use slipgate_session::channel::transfer::{
    PartialTransfer, SentTransferFrame, Transfer, TransferAdmission, TransferConfig, TransferEvent, TransferId,
    TransferReason, Transfers,
};
use slipgate_session::reliability::MemoryBudget;

const BUDGET: usize = 60_000;
const MAX_FRAME_BYTES: usize = 600;

/// Returns the content with this label.
fn content(label: u8) -> Vec<u8> {
    let length = [0, 1, 256, 5000, 4096, 20_000, 300, 9999][usize::from(label % 8)] + usize::from(label / 8);
    (0..length).map(|index| (index as u8).wrapping_mul(37) ^ (index >> 8) as u8 ^ label).collect()
}

struct End {
    transfers: Transfers,
    /// Packets that are neither acknowledged nor lost.
    in_flight: Vec<(Vec<u8>, SentTransferFrame)>,
    /// Labels of the received contents. Each label is sent once.
    delivered: BTreeSet<u64>,
    kept: Vec<PartialTransfer>,
    is_attacked: bool,
}

fn end(budget: &MemoryBudget, asks: bool) -> End {
    let admission = if asks { TransferAdmission::Ask } else { TransferAdmission::Automatic };
    let config = TransferConfig {
        slice_bytes: 256,
        max_transfer_bytes: 16_000,
        max_at_once: 3,
        max_bytes_at_once: 25_000,
        max_waiting: 4,
        admission,
    };
    let transfers = Transfers::new(config, Some(budget.clone())).expect("settings to run with");
    End { transfers, in_flight: Vec::new(), delivered: BTreeSet::new(), kept: Vec::new(), is_attacked: false }
}

impl End {
    fn write(&mut self, buf_bytes: usize) -> bool {
        let mut bytes = [0; MAX_FRAME_BYTES];
        let Some((length, part)) = self.transfers.write(&mut bytes[..buf_bytes.min(MAX_FRAME_BYTES)]) else {
            return false;
        };
        assert!(length <= buf_bytes);
        TransferFrame::parse(&bytes[..length]).expect("a written frame can be read");
        self.in_flight.push((bytes[..length].to_vec(), part));
        true
    }

    fn resolve(&mut self, which: usize, other: &mut Self, arrives: bool, acked: bool) {
        if self.in_flight.is_empty() {
            return;
        }
        let (bytes, part) = self.in_flight.swap_remove(which % self.in_flight.len());
        if arrives {
            let taken = other.transfers.on_frame(&bytes);
            assert!(
                taken.is_ok() || other.is_attacked || self.is_attacked,
                "an honest frame is a violation: {taken:?}"
            );
        }
        if !arrives || !acked {
            self.transfers.on_lost(part);
        }
        if arrives {
            self.transfers.on_acked(part);
        }
    }

    fn receive(&mut self, refuses: bool) {
        while let Some(event) = self.transfers.poll_event() {
            match event {
                TransferEvent::Offered(offer) if refuses => assert!(self.transfers.refuse(offer.id).is_none()),
                TransferEvent::Offered(offer) => {
                    self.transfers.accept(offer.id);
                }
                TransferEvent::Received { label, content: received, .. } => {
                    if !self.is_attacked {
                        assert!(self.delivered.insert(label), "{label} arrived twice");
                    }
                    assert!(self.is_attacked || received.into_vec() == content(label as u8));
                }
                TransferEvent::Broken { partial, .. } => self.kept.extend(partial),
                TransferEvent::Delivered { .. } | TransferEvent::Refused { .. } => {}
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
                // A label is one byte and is sent once, so there are at most 255.
                if label < 255 {
                    let transfer = Transfer::new(content(label)).expect("at most 64 MiB");
                    let _ = one.transfers.begin(transfer, label.into());
                }
            }
            2..=5 => while one.in_flight.len() < 64 && one.write(MAX_FRAME_BYTES) {},
            6 => {
                one.write(value.into());
            }
            7..=9 => (0..=value % 32).for_each(|_| one.resolve(0, other, true, true)),
            10 => one.resolve(value.into(), other, true, false),
            11 => one.resolve(value.into(), other, false, false),
            12 => one.receive(value & 1 != 0),
            13 => match value % 4 {
                0 => {
                    one.transfers.cancel(TransferId((value / 4).into()));
                }
                1 => one.kept.extend(one.transfers.refuse(TransferId((value / 4).into()))),
                2 => {
                    one.transfers.accept(TransferId((value / 4).into()));
                }
                _ => {
                    if let Some(partial) = one.kept.pop() {
                        one.kept.extend(one.transfers.keep(partial).err());
                    }
                }
            },
            // The connection ends, and another one starts.
            14 if value < 16 => {
                for side in [&mut ours, &mut theirs] {
                    let mut next = end(&budget, mode & 1 != 0);
                    (next.delivered, next.is_attacked) = (core::mem::take(&mut side.delivered), side.is_attacked);
                    let old = core::mem::replace(side, next);
                    side.kept.extend(old.kept.into_iter().chain(old.transfers.into_partials()));
                    side.kept.truncate(8);
                }
                assert_eq!(budget.left(), BUDGET, "memory is freed");
            }
            // A malicious peer with valid keys.
            _ => {
                one.is_attacked = true;
                other.is_attacked = true;
                let kind = value % 7;
                let reason = [0; 20].map(|_: u8| operations.u8());
                let frame = [&[kind, value / 7, 0], &reason[..usize::from(reason[0] % 20)]].concat();
                let _ = one.transfers.on_frame(&frame);
                let slice = vec![value; 256];
                let index = u32::from(reason[1]);
                let mut buf = [0; MAX_FRAME_BYTES];
                let id = TransferId((value / 7).into());
                let bytes = TransferFrame::Slice { id, index, bytes: &slice }.write(&mut buf).expect("it fits");
                let _ = one.transfers.on_frame(&buf[..bytes]);
                let withdraw = TransferFrame::Withdraw { id, reason: TransferReason::Other(value) }
                    .write(&mut buf)
                    .expect("it fits");
                if value & 8 != 0 {
                    let _ = one.transfers.on_frame(&buf[..withdraw]);
                }
            }
        }
        assert!(ours.transfers.receiving().count() <= 3 && theirs.transfers.receiving().count() <= 3);
    }
    drop((ours.transfers, theirs.transfers));
    assert_eq!(budget.left(), BUDGET, "memory is freed");
});
