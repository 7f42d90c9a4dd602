//! More packets than one can wait for.

use super::*;
use crate::channel::{MAX_PACKETS, MAX_QUEUE_BYTES};
use crate::congestion::{Algorithm, BytesPerSecond};

/// Two ends on a path that carries whatever one sends, with so many messages of a packet each waiting at the first.
fn with_messages(messages: u16, bytes: usize) -> Pair {
    let mut config = Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e10));
    let channel = ChannelConfig {
        queue_messages: messages,
        queue_bytes: MAX_QUEUE_BYTES,
        ..ChannelConfig::new(Kind::ReliableUnordered)
    };
    let layout = Arc::new(Layout::new(vec![channel]).unwrap());
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, Arc::clone(&layout)));
    pair.run(200);
    for number in 0..messages {
        let mut message = vec![0; bytes];
        message[..2].copy_from_slice(&number.to_le_bytes());
        pair.say(0, CHAT, &message);
    }
    pair
}

#[test]
fn no_more_packets_leave_than_one_can_wait_for_and_none_is_taken_for_lost() {
    let mut pair = with_messages(3000, 1100);
    let mut sent = 0;
    while pair.received[1].len() < 3000 {
        pair.pass(5);
        let datagrams = pair.turn(0);
        assert!(datagrams.len() <= usize::from(MAX_PACKETS), "{}", datagrams.len());
        // Another turn, before anything is heard of them.
        assert_eq!(pair.turn(0).len(), 0);
        sent += datagrams.len();
        for datagram in datagrams {
            pair.give(1, &datagram).unwrap();
        }
        for answer in pair.turn(1) {
            pair.give(0, &answer).unwrap();
        }
    }
    assert_eq!((sent, pair.ends[0].stats(pair.now).endpoint.counters.displaced), (3000, 0));
}

#[test]
fn who_waits_for_as_many_packets_as_it_can_sleeps_and_goes_on_when_they_are_lost() {
    let mut pair = with_messages(3000, 1100);
    pair.pass(5);
    let lost = pair.turn(0).len();
    assert!((800..=usize::from(MAX_PACKETS)).contains(&lost));
    let wakes = pair.wakes(0);
    assert!((1..40).contains(&wakes), "{wakes} times in a second");
    pair.run(3000);
    let mut received = core::mem::take(&mut pair.received[1]);
    received.sort();
    received.dedup();
    assert_eq!(received.len(), 3000);
}
