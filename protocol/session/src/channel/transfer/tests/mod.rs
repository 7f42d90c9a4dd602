//! Transfers between two ends, over paths of all kinds.

mod cost;
mod hostile;
mod path;
mod resume;
mod scenarios;

use std::vec::Vec;

use super::*;
use crate::channel::steps;

/// Returns pseudo-random bytes of a seed.
fn content(seed: u32, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

fn transfer(seed: u32, length: usize) -> Transfer {
    Transfer::new(content(seed, length)).expect("at most 64 MiB")
}

fn transfers(config: TransferConfig) -> Transfers {
    Transfers::new(config, None).expect("good settings")
}

/// Returns a channel with slices of which one fits into a packet.
fn default_transfers() -> Transfers {
    transfers(TransferConfig { slice_bytes: 1024, ..TransferConfig::default() })
}

/// Carries all frames of both ends without loss, until neither has any left.
fn talk(left: &mut Transfers, right: &mut Transfers) {
    while carry(left, right) + carry(right, left) > 0 {}
}

/// Carries the frames of one end. Returns how many there were.
fn carry(from: &mut Transfers, to: &mut Transfers) -> usize {
    let (mut buf, mut frames) = ([0; 1200], 0);
    while let Some((bytes, sent)) = from.write(&mut buf) {
        to.on_frame(&buf[..bytes]).expect("an honest peer");
        from.on_acked(sent);
        frames += 1;
    }
    frames
}

fn events(transfers: &mut Transfers) -> Vec<TransferEvent> {
    core::iter::from_fn(|| transfers.poll_event()).collect()
}
