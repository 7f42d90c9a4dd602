//! Timing of the application's loop: late reads, flushes between ticks, and a clock that goes back.

use super::*;
use crate::channel::ChannelEvent;
use crate::channel::transfer::{self, Transfer, TransferEvent};
use crate::congestion::{Algorithm, BytesPerSecond};

const TRANSFERS: ChannelId = ChannelId(2);

fn layout_with(slice_bytes: u16, chat_per_tick: Option<u32>) -> Arc<Layout> {
    let mut configs: Vec<_> =
        [Kind::ReliableOrdered, Kind::Unreliable, Kind::Transfers].into_iter().map(ChannelConfig::from).collect();
    configs[2].transfers = transfer::TransferConfig { slice_bytes, ..configs[2].transfers.clone() };
    if let Some(bytes) = chat_per_tick {
        configs[0].bytes_per_tick = Some(bytes);
    }
    Arc::new(Layout::try_from(configs).unwrap())
}

/// Delivers a datagram that waited in the socket for a frame.
fn deliver_late(pair: &mut Pair, to: usize, datagram: &[u8], unread: Duration) {
    let (end, mut scratch) = (&mut pair.ends[to], Vec::new());
    let Ok(Some(mut incoming)) = end.handle(datagram, unread, pair.now) else { return };
    while end.next_message(datagram, &mut incoming, &mut scratch, pair.now).is_some() {}
}

fn largest_slices(unread: Duration) -> Option<u64> {
    let mut config = ConnectionConfig { max_payload_bytes: MIN_PAYLOAD, ..ConnectionConfig::default() };
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e6));
    let mut pair = Pair::new();
    // The settings allow slices of at most 508 - 25 bytes.
    pair.ends = [(); 2].map(|()| connection(&config, layout_with(483, None)));
    pair.run(200);
    pair.ends[0].channels.send_transfer(TRANSFERS, Transfer::new(vec![7; 20_000]).unwrap(), 7).unwrap();
    for tick in 1..2000 {
        pair.pass(16);
        for end in 0..2 {
            let _ = pair.ends[end].send(STATE, &[1; 20], SendOptions::default(), pair.now);
        }
        let sent = [pair.turn(0), pair.turn(1)];
        for (from, datagrams) in sent.iter().enumerate() {
            datagrams.iter().for_each(|datagram| deliver_late(&mut pair, 1 - from, datagram, unread));
        }
        while let Some(event) = pair.ends[1].channels.poll_event() {
            if let ChannelEvent::Transfer { event: TransferEvent::Received { .. }, .. } = event {
                return Some(tick * 16);
            }
        }
    }
    None
}

#[test]
fn the_largest_slices_arrive_at_a_loop_that_reads_late() {
    assert!(largest_slices(Duration::ZERO).is_some());
    assert!(largest_slices(Duration::from_millis(16)).is_some(), "starves for 32 s");
    let config = ConnectionConfig { max_payload_bytes: MIN_PAYLOAD, ..ConnectionConfig::default() };
    assert!(Connection::new(&config, layout_with(484, None), Role::Client, None).is_err());
}

fn bytes_in_frames(gap: Duration, rate: f64) -> u64 {
    let mut config = ConnectionConfig::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(rate));
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, layout()));
    pair.run(200);
    pair.ends[0].channels.send_transfer(TRANSFERS, Transfer::new(vec![7; 60_000_000]).unwrap(), 7).unwrap();
    let mut bytes = 0;
    for _ in 0..300 {
        pair.now = pair.now.after(Duration::from_micros(16_667) - gap);
        pair.ends[0].tick(pair.now);
        pair.now = pair.now.after(gap);
        let mut sink = Datagrams::default();
        pair.ends[0].transmit(pair.now, &mut sink);
        bytes += sink.sent.iter().map(|datagram| datagram.len() as u64).sum::<u64>();
        for datagram in &sink.sent {
            pair.deliver(1, datagram).unwrap();
        }
        pair.turn(1).iter().for_each(|datagram| pair.deliver(0, datagram).unwrap());
        while pair.ends[1].channels.poll_event().is_some() {}
    }
    bytes
}

#[test]
fn a_clock_read_between_tick_and_transmit_keeps_the_rate() {
    for rate in [5e5, 2e6] {
        let (same, apart) = (bytes_in_frames(Duration::ZERO, rate), bytes_in_frames(Duration::from_micros(30), rate));
        assert!(apart * 10 >= same * 9, "rate {rate}: {same} bytes by one reading, {apart} by two");
    }
}

#[test]
fn a_flush_grants_no_new_tick_budget() {
    let mut config = ConnectionConfig::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e7));
    let mut pair = Pair::new();
    pair.ends = [(); 2].map(|()| connection(&config, layout_with(160, Some(100))));
    pair.run(200);
    for _ in 0..100 {
        pair.send(0, CHAT, &[1; 90]);
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
fn a_clock_that_goes_back_does_not_panic() {
    let mut pair = Pair::connected();
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
