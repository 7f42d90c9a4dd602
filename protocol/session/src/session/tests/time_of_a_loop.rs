//! What a loop does with the time: it reads its socket late, flushes between its ticks, and its clock may go back.

use super::*;
use crate::channel::ChannelEvent;
use crate::channel::block::{self, Block, Event};
use crate::congestion::{Algorithm, BytesPerSecond};

const BLOCKS: ChannelId = ChannelId(2);

fn layout_with(slice_bytes: u16, chat_per_tick: Option<u32>) -> Arc<Layout> {
    let mut configs: Vec<_> =
        [Kind::ReliableOrdered, Kind::Unreliable, Kind::Blocks].into_iter().map(ChannelConfig::new).collect();
    configs[2].blocks = block::Config { slice_bytes, ..configs[2].blocks.clone() };
    if let Some(bytes) = chat_per_tick {
        configs[0].bytes_per_tick = Some(bytes);
    }
    Arc::new(Layout::new(configs).unwrap())
}

/// Hands a datagram over that lay unread for a frame.
fn give_late(pair: &mut Pair, to: usize, datagram: &[u8], unread: Duration) {
    let (end, mut scratch) = (&mut pair.ends[to], Vec::new());
    let Ok(Some(mut incoming)) = end.handle_late(datagram, unread, pair.now) else { return };
    while end.next(datagram, &mut incoming, &mut scratch, pair.now).is_some() {}
}

fn largest_slices(unread: Duration) -> Option<u64> {
    let mut config = Config { max_payload_bytes: MIN_PAYLOAD, ..Config::default() };
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e6));
    let mut pair = Pair::new();
    // The largest slices that the settings allow: 508 - 25.
    pair.ends = [(); 2].map(|()| connection(&config, layout_with(483, None)));
    pair.run(200);
    pair.ends[0].channels_mut().send_block(BLOCKS, Block::new(vec![7; 20_000]).unwrap(), 7).unwrap();
    for tick in 1..2000 {
        pair.pass(16);
        for end in 0..2 {
            let _ = pair.ends[end].send(STATE, &[1; 20], SendOptions::default(), pair.now);
        }
        let sent = [pair.turn(0), pair.turn(1)];
        for (from, datagrams) in sent.iter().enumerate() {
            datagrams.iter().for_each(|datagram| give_late(&mut pair, 1 - from, datagram, unread));
        }
        while let Some(event) = pair.ends[1].poll_event() {
            if let ChannelEvent::Block { event: Event::Received { .. }, .. } = event {
                return Some(tick * 16);
            }
        }
    }
    None
}

#[test]
fn largest_slices_travel_also_to_who_is_read_late() {
    assert!(largest_slices(Duration::ZERO).is_some());
    assert!(largest_slices(Duration::from_millis(16)).is_some(), "starves for 32 s");
    let config = Config { max_payload_bytes: MIN_PAYLOAD, ..Config::default() };
    assert!(Connection::new(&config, layout_with(484, None), None).is_err());
}

fn bytes_in_frames(gap: Duration, rate: f64) -> u64 {
    let mut config = Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(rate));
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, layout()));
    pair.run(200);
    pair.ends[0].channels_mut().send_block(BLOCKS, Block::new(vec![7; 60_000_000]).unwrap(), 7).unwrap();
    let mut bytes = 0;
    for _ in 0..300 {
        pair.now = pair.now.after(Duration::from_micros(16_667) - gap);
        pair.ends[0].tick(pair.now);
        pair.now = pair.now.after(gap);
        let mut sink = Datagrams::default();
        pair.ends[0].transmit(pair.now, &mut sink);
        bytes += sink.sent.iter().map(|datagram| datagram.len() as u64).sum::<u64>();
        for datagram in &sink.sent {
            pair.give(1, datagram).unwrap();
        }
        pair.turn(1).iter().for_each(|datagram| pair.give(0, datagram).unwrap());
        while pair.ends[1].poll_event().is_some() {}
    }
    bytes
}

#[test]
fn a_clock_that_is_read_between_tick_and_transmit_halves_no_rate() {
    for rate in [5e5, 2e6] {
        let (same, apart) = (bytes_in_frames(Duration::ZERO, rate), bytes_in_frames(Duration::from_micros(30), rate));
        assert!(apart * 10 >= same * 9, "rate {rate}: {same} bytes by one reading, {apart} by two");
    }
}

#[test]
fn a_budget_of_a_tick_is_not_granted_by_each_flush() {
    let mut config = Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e7));
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, layout_with(160, Some(100))));
    pair.run(200);
    for _ in 0..100 {
        pair.say(0, CHAT, &[1; 90]);
    }
    pair.pass(16);
    pair.ends[0].tick(pair.now);
    let mut sent = 0;
    for _ in 0..10 {
        let mut sink = Datagrams::default();
        pair.now = pair.now.after(Duration::from_micros(20));
        pair.ends[0].transmit(pair.now, &mut sink);
        sent += sink.sent.iter().map(Vec::len).sum::<usize>();
    }
    assert!(sent < 300, "{sent} bytes in one tick of 100");
}

#[test]
fn time_that_goes_back_panics_nowhere() {
    let mut pair = Pair::greeted();
    let mut state = 7_u64;
    for step in 0..20_000_u64 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let jump = (state >> 40) % if step % 500 == 0 { 20_000 } else { 30 };
        pair.now = if state & (1 << 33) == 0 {
            pair.now.after(Duration::from_millis(jump))
        } else {
            Instant::from_start(pair.now.since_start().saturating_sub(Duration::from_millis(jump)))
        };
        let _ = pair.ends[0].send(CHAT, &[1; 300], SendOptions::default(), pair.now);
        let _ = pair.ends[1].send(STATE, &[1; 300], SendOptions::default(), pair.now);
        if state.is_multiple_of(7) {
            let _ = pair.turn(0);
        }
        pair.exchange();
        pair.received.iter_mut().for_each(Vec::clear);
    }
}
