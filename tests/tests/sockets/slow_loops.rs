//! Transfers between loops that sleep for a frame.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::transfer::Transfer;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout};
use slipgate_sim::{Conditions, Preset};
use slipgate_tests::connection_world::ConnectionWorld;
use slipgate_tests::world::End;

const MAP: ChannelId = ChannelId(0);
const TRANSFER_BYTES: usize = 1 << 20;

/// Returns the duration of a transfer between two loops that sleep for `pause` each time.
fn transfer_time(conditions: Conditions, pause: Duration, seed: u64) -> Duration {
    let layout = Arc::new(Layout::try_from(vec![ChannelConfig::from(Kind::Transfers)]).unwrap());
    let mut pair = ConnectionWorld::new(seed, conditions, &layout);
    let transfer = Transfer::new(vec![7; TRANSFER_BYTES]).unwrap();
    pair.side(End::A).connection.channels.send_transfer(MAP, transfer, 1).unwrap();
    let begin = pair.now();
    while pair.side(End::B).events.is_empty() {
        pair.turn_after_sleep(pause);
        let took = pair.now().since(begin);
        assert!(took < Duration::from_secs(100), "{pause:?}");
    }
    pair.now().since(begin)
}

/// Returns the total for several seeds.
fn total_transfer_time(conditions: Conditions, pause: u64) -> Duration {
    (0..6).map(|seed| transfer_time(conditions, Duration::from_millis(pause), seed)).sum()
}

#[test]
fn frame_paced_loops_transfer_about_as_fast_as_busy_ones() {
    for (name, conditions, max) in [
        ("wifi-bad", Preset::WifiBad.down(), 1.7),
        ("4g", Preset::FourG.down(), 1.5),
        // A round trip is two sleeps where the path adds no latency.
        ("none", Conditions::perfect(), 2.5),
    ] {
        let awake = total_transfer_time(conditions, 2);
        let asleep = total_transfer_time(conditions, 16);
        println!("{name}: {awake:?} and {asleep:?} for six transfers");
        assert!(asleep < awake.mul_f64(max), "{name}: {asleep:?} instead of {awake:?}");
    }
}
