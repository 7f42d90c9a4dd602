//! Blocks between two ends, over paths of all kinds.

mod cost;
mod hostile;
mod path;
mod resume;
mod stories;

use std::vec::Vec;

use super::*;

/// Bytes that look like no others.
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

fn block(seed: u32, length: usize) -> Block {
    Block::new(content(seed, length)).expect("at most 64 MiB")
}

fn blocks(config: Config) -> Blocks {
    Blocks::new(config, None).expect("good settings")
}

/// A channel with slices of which a packet holds one.
fn default_blocks() -> Blocks {
    blocks(Config { slice_bytes: 1024, ..Config::default() })
}

/// Carries everything that both ends have to say, without loss, until they are silent.
fn talk(left: &mut Blocks, right: &mut Blocks) {
    while carry(left, right) + carry(right, left) > 0 {}
}

/// Carries what one end has to say; answers how many frames that were.
fn carry(from: &mut Blocks, to: &mut Blocks) -> usize {
    let (mut room, mut frames) = ([0; 1200], 0);
    while let Some((bytes, part)) = from.write(&mut room) {
        to.on_frame(&room[..bytes]).expect("an honest peer");
        from.on_acked(part);
        frames += 1;
    }
    frames
}

fn events(blocks: &mut Blocks) -> Vec<Event> {
    core::iter::from_fn(|| blocks.poll_event()).collect()
}
