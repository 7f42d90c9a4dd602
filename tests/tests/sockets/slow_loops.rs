//! Blocks between loops that sleep for a frame.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::block::Block;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout};
use slipgate_sim::{Conditions, Preset};
use slipgate_tests::connected::{End, Pair};

const MAP: ChannelId = ChannelId(0);
const BLOCK_BYTES: usize = 1 << 20;

/// How long a block takes between two loops that sleep so long each time.
fn time_of_a_block(conditions: Conditions, nap: Duration, seed: u64) -> Duration {
    let layout = Arc::new(Layout::new(vec![ChannelConfig::new(Kind::Blocks)]).unwrap());
    let mut pair = Pair::new(seed, conditions, &layout);
    let block = Block::new(vec![7; BLOCK_BYTES]).unwrap();
    pair.side(End::A).connection.channels_mut().send_block(MAP, block, 1).unwrap();
    let begin = pair.now();
    while pair.side(End::B).events.is_empty() {
        pair.turn_after_sleep(nap);
        let took = pair.now().since(begin);
        assert!(took < Duration::from_secs(100), "{nap:?}");
    }
    pair.now().since(begin)
}

/// The same for several seeds, together.
fn time_of_blocks(conditions: Conditions, nap: u64) -> Duration {
    (0..6).map(|seed| time_of_a_block(conditions, Duration::from_millis(nap), seed)).sum()
}

#[test]
fn loops_that_sleep_for_a_frame_carry_a_block_about_as_fast_as_those_that_hardly_sleep() {
    for (name, conditions, most) in [
        ("wifi-bad", Preset::WifiBad.down(), 1.7),
        ("4g", Preset::FourG.down(), 1.5),
        // Where the path takes no time at all a round trip is two naps.
        ("none", Conditions::perfect(), 2.5),
    ] {
        let awake = time_of_blocks(conditions, 2);
        let asleep = time_of_blocks(conditions, 16);
        println!("{name}: {awake:?} and {asleep:?} for six blocks");
        assert!(asleep < awake.mul_f64(most), "{name}: {asleep:?} instead of {awake:?}");
    }
}
