//! Transfers beside messages that use the whole rate, where packets are small.

use super::*;
use crate::channel::ChannelEvent;
use crate::channel::transfer::{Transfer, TransferEvent};
use crate::congestion::{Algorithm, BinaryConfig, BytesPerSecond, FLOOR_PACKET_BYTES, Threshold};

const TRANSFERS: ChannelId = ChannelId(2);
const TICK: u64 = 16;

fn pair_with(algorithm: Algorithm, max_payload_bytes: usize) -> Pair {
    let mut config = ConnectionConfig { max_payload_bytes, ..ConnectionConfig::default() };
    config.congestion.algorithm = algorithm;
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, layout()));
    pair.run(200);
    pair
}

/// Sends a transfer, and messages of `message_bytes` in every tick. Returns the milliseconds until the transfer
/// arrived, and the longest time without a message.
fn race(
    pair: &mut Pair,
    transfer: &[u8],
    message_bytes: usize,
    mut transmit: impl FnMut(&mut Connection, Instant, &mut Datagrams),
) -> (u64, u64) {
    pair.ends[0].channels.send_transfer(TRANSFERS, Transfer::new(transfer).unwrap(), 7).unwrap();
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
        let received = pair.received[1].len();
        sink.sent.iter().for_each(|datagram| pair.deliver(1, datagram).unwrap());
        pair.turn(1).iter().for_each(|datagram| pair.deliver(0, datagram).unwrap());
        silence = if pair.received[1].len() > received { 0 } else { silence + TICK };
        longest = longest.max(silence);
        if let Some(ChannelEvent::Transfer { event: TransferEvent::Received { content, .. }, .. }) =
            pair.ends[1].channels.poll_event()
        {
            assert!(content.into_vec() == transfer);
            return (tick * TICK, longest);
        }
    }
    panic!("the transfer starves");
}

#[test]
fn a_transfer_arrives_in_small_packets_beside_messages() {
    let bad_always = BinaryConfig { threshold: Threshold::Absolute(Duration::ZERO), ..BinaryConfig::default() };
    let mut pair = pair_with(Algorithm::Binary(bad_always), 1200);
    assert_eq!(pair.ends[0].stats(pair.now).congestion.rate, BytesPerSecond(2560.0));
    let (mut turns, mut largest) = (0, 0);
    let (took, silence) = race(&mut pair, &[7; 4000], 60, |end, now, sink| {
        end.transmit(now, sink);
        // The initial credit is used up by then.
        turns += 1;
        largest = largest.max(sink.sent.iter().filter(|_| turns > 100).map(Vec::len).max().unwrap_or(0));
    });
    assert!((100..300).contains(&largest), "{largest} bytes");
    // One or two slices every half second.
    assert!((2000..10_000).contains(&took) && silence <= 250, "{took} ms, and {silence} ms of silence");
}

#[test]
fn a_transfer_arrives_in_the_smallest_payloads() {
    let mut pair = pair_with(Algorithm::Fixed(BytesPerSecond(30_000.0)), MIN_PAYLOAD);
    let (took, silence) = race(&mut pair, &[7; 20_000], 400, |end, now, sink| {
        end.transmit(now, sink);
        assert!(sink.sent.iter().all(|datagram| datagram.len() <= MIN_PAYLOAD));
    });
    assert!(took < 30_000 && silence <= 100, "{took} ms, and {silence} ms of silence");
}

#[test]
fn a_transfer_arrives_over_an_uplink_with_small_grants() {
    let mut pair = pair_with(Algorithm::Fixed(BytesPerSecond(1e6)), 1200);
    let mut granted = 0;
    let (took, _) = race(&mut pair, &[7; 4000], 60, |end, now, sink| {
        granted += 50;
        granted -= end.transmit_within(granted, now, sink);
        assert!(granted < u64::from(FLOOR_PACKET_BYTES), "the grant is used");
    });
    assert!(took < 20_000, "{took} ms");
}
