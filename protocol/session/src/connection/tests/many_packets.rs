//! More packets than the window of packets in flight holds.

use super::*;
use crate::channel::{MAX_PACKETS, MAX_QUEUE_BYTES};
use crate::congestion::{Algorithm, BytesPerSecond};
use crate::connection::WorkLimits;

/// Returns a pair on an unlimited path, with this many messages of one packet each queued at the first end.
fn with_messages(messages: u16, bytes: usize) -> Pair {
    // 3,000 packets at one time are more work than the budget allows.
    let mut config = ConnectionConfig { work: WorkLimits::UNLIMITED, ..ConnectionConfig::default() };
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e10));
    let channel = ChannelConfig {
        queue_messages: messages,
        queue_bytes: MAX_QUEUE_BYTES,
        ..ChannelConfig::from(Kind::ReliableUnordered)
    };
    let layout = Arc::new(Layout::try_from(vec![channel]).unwrap());
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, Arc::clone(&layout)));
    pair.run(200);
    for number in 0..messages {
        let mut message = vec![0; bytes];
        message[..2].copy_from_slice(&number.to_le_bytes());
        pair.send(0, CHAT, &message);
    }
    pair
}

#[test]
fn a_full_window_stops_sending_and_displaces_nothing() {
    let mut pair = with_messages(3000, 1100);
    let mut sent = 0;
    while pair.received[1].len() < 3000 {
        pair.pass(5);
        let datagrams = pair.turn(0);
        assert!(datagrams.len() <= usize::from(MAX_PACKETS), "{}", datagrams.len());
        // A second tick before any acknowledgement arrives.
        assert_eq!(pair.turn(0).len(), 0);
        sent += datagrams.len();
        for datagram in datagrams {
            pair.deliver(1, &datagram).unwrap();
        }
        for answer in pair.turn(1) {
            pair.deliver(0, &answer).unwrap();
        }
    }
    assert_eq!((sent, pair.ends[0].stats(pair.now).endpoint.counters.displaced), (3000, 0));
}

#[test]
fn a_full_window_continues_when_its_packets_are_lost() {
    let mut pair = with_messages(3000, 1100);
    pair.pass(5);
    let lost = pair.turn(0).len();
    assert!((800..=usize::from(MAX_PACKETS)).contains(&lost));
    let deadlines = pair.deadlines(0);
    assert!((1..40).contains(&deadlines), "{deadlines} deadlines in a second");
    pair.run(3000);
    let mut received = core::mem::take(&mut pair.received[1]);
    received.sort();
    received.dedup();
    assert_eq!(received.len(), 3000);
}
