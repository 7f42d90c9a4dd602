//! Long and fast paths: more than a thousand packets are under way, and the path is used all the same.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::session::Config;
use slipgate_sim::{Buffer, Conditions, Rate, RateLimit};
use slipgate_tests::connected::{End, Pair};

const BULK: ChannelId = ChannelId(0);
const QUEUE_BYTES: u32 = 8 << 20;

/// The share of a path that a connection uses which always has something to send, between the 15th and the 25th second.
fn use_of(mbit: u32, round_trip: Duration) -> f64 {
    let channel =
        ChannelConfig { queue_bytes: QUEUE_BYTES, queue_messages: 8000, ..ChannelConfig::new(Kind::ReliableUnordered) };
    let layout = Arc::new(Layout::new(vec![channel]).unwrap());
    let conditions = Conditions {
        latency: round_trip / 2,
        rate: Some(RateLimit { rate: Rate::kbit(1000 * mbit), buffer: Buffer::Time(Duration::from_millis(250)) }),
        ..Conditions::perfect()
    };
    let mut pair = Pair::with(3, conditions, [&layout, &layout], &Config::default());
    let mut before = 0;
    for milli in 0..25_000 {
        let now = pair.now();
        let sender = &mut pair.side(End::A).connection;
        while sender.send(BULK, &[7; 1150], SendOptions::default(), now).is_ok() {}
        pair.turn(Duration::from_millis(1));
        if milli == 15_000 {
            before = pair.link.up.stats().delivered_bytes;
        }
    }
    let carried = pair.link.up.stats().delivered_bytes - before;
    carried as f64 / f64::from(mbit * 125_000 * 10)
}

#[test]
fn a_fast_path_of_a_long_round_trip_is_used() {
    for (mbit, millis) in [(50, 60), (50, 300), (25, 540), (25, 600)] {
        let share = use_of(mbit, Duration::from_millis(millis));
        println!("{mbit} Mbit/s, {millis} ms: {:.1} %", 100.0 * share);
        // UDP's and IP's headers, 28 bytes of each packet, are not among what the path of these worlds carries.
        assert!(share > 0.93, "{mbit} Mbit/s, {millis} ms: {share}");
    }
}
