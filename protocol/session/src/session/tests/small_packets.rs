//! Blocks beside messages that want all that there is, where packets are small.

use super::*;
use crate::channel::block::{Block, Event};
use crate::channel::{ChannelEvent, SendError};
use crate::congestion::{Algorithm, BinaryConfig, BytesPerSecond, FLOOR_PACKET_BYTES, Threshold};

const BLOCKS: ChannelId = ChannelId(2);
const TICK: u64 = 16;

fn ruled_by(algorithm: Algorithm, max_payload_bytes: usize) -> Pair {
    let mut config = Config { max_payload_bytes, ..Config::default() };
    config.congestion.algorithm = algorithm;
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, layout()));
    pair.run(200);
    pair
}

/// A block sets out, and messages of so many bytes in every tick. Answers the milliseconds until it has arrived, and the
/// longest time in which no message did.
fn race(
    pair: &mut Pair,
    block: &[u8],
    message_bytes: usize,
    mut transmit: impl FnMut(&mut Connection, Instant, &mut Datagrams),
) -> (u64, u64) {
    pair.ends[0].channels_mut().send_block(BLOCKS, Block::new(block).unwrap(), 7).unwrap();
    let (mut silence, mut longest) = (0, 0);
    for tick in 1..4000 {
        pair.pass(TICK);
        for channel in [CHAT, STATE] {
            let sent = pair.ends[0].send(channel, &vec![1; message_bytes], SendOptions::default(), pair.now);
            assert!(matches!(sent, Ok(()) | Err(SendError::Backlogged)));
        }
        let mut sink = Datagrams::default();
        pair.ends[0].tick(pair.now);
        transmit(&mut pair.ends[0], pair.now, &mut sink);
        let heard = pair.received[1].len();
        sink.sent.iter().for_each(|datagram| pair.give(1, datagram).unwrap());
        pair.turn(1).iter().for_each(|datagram| pair.give(0, datagram).unwrap());
        silence = if pair.received[1].len() > heard { 0 } else { silence + TICK };
        longest = longest.max(silence);
        if let Some(ChannelEvent::Block { event: Event::Received { content, .. }, .. }) = pair.ends[1].poll_event() {
            assert!(content.into_vec() == block);
            return (tick * TICK, longest);
        }
    }
    panic!("the block starves");
}

#[test]
fn a_block_arrives_in_the_small_packets_of_a_bad_path_and_silences_nobody() {
    let bad_always = BinaryConfig { threshold: Threshold::Absolute(Duration::ZERO), ..BinaryConfig::default() };
    let mut pair = ruled_by(Algorithm::Binary(bad_always), 1200);
    assert_eq!(pair.ends[0].stats(pair.now).congestion.rate, BytesPerSecond(2560.0));
    let (mut turns, mut largest) = (0, 0);
    let (took, silence) = race(&mut pair, &[7; 4000], 60, |end, now, sink| {
        end.transmit(now, sink);
        // What was saved up before is used up by then.
        turns += 1;
        largest = largest.max(sink.sent.iter().filter(|_| turns > 100).map(Vec::len).max().unwrap_or(0));
    });
    assert!((100..300).contains(&largest), "{largest} bytes");
    // A slice or two every half second.
    assert!((2000..10_000).contains(&took) && silence <= 250, "{took} ms, and {silence} ms of silence");
}

#[test]
fn a_block_arrives_beside_messages_in_the_smallest_payloads() {
    let mut pair = ruled_by(Algorithm::Fixed(BytesPerSecond(30_000.0)), MIN_PAYLOAD);
    let (took, silence) = race(&mut pair, &[7; 20_000], 400, |end, now, sink| {
        end.transmit(now, sink);
        assert!(sink.sent.iter().all(|datagram| datagram.len() <= MIN_PAYLOAD));
    });
    assert!(took < 30_000 && silence <= 100, "{took} ms, and {silence} ms of silence");
}

#[test]
fn a_block_arrives_though_an_uplink_grants_little_at_a_time() {
    let mut pair = ruled_by(Algorithm::Fixed(BytesPerSecond(1e6)), 1200);
    let mut granted = 0;
    let (took, _) = race(&mut pair, &[7; 4000], 60, |end, now, sink| {
        granted += 50;
        granted -= end.transmit_within(granted, now, sink);
        assert!(granted < u64::from(FLOOR_PACKET_BYTES), "what is granted is used");
    });
    assert!(took < 20_000, "{took} ms");
}
