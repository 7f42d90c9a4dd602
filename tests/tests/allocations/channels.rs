//! Channels do not allocate after warm-up, with any messages, and few messages are enough to warm up.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::channel::transfer::Transfer;
use slipgate_session::channel::{
    ChannelConfig, ChannelEvent, ChannelId, Channels, DeliveryStatus, FrameCursor, Kind, Layout, MAX_QUEUE_MESSAGES,
    ReceivedMessage, SendOptions,
};
use slipgate_session::wire::reliable::Sequence;
use slipgate_tests::counting::{allocations, bytes};

const KINDS: [Kind; 4] = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];
const BUF_BYTES: usize = 1180;
const PACKETS: usize = 256;

/// Packets in flight, in memory that exists from the start.
struct Path {
    packets: Vec<(Sequence, [u8; BUF_BYTES], usize)>,
    used: usize,
}

/// Two ends and the paths between them.
struct Talk {
    ends: [Channels; 2],
    paths: [Path; 2],
    sequences: [Sequence; 2],
    scratch: Vec<u8>,
    delivered: u64,
    delivered_bytes: u64,
    /// Receipts, and those that report an arrival.
    receipts: [u64; 2],
}

impl Talk {
    fn new(layout: &Arc<Layout>) -> Self {
        let path = || Path { packets: vec![(Sequence(0), [0; BUF_BYTES], 0); PACKETS], used: 0 };
        Self {
            ends: [0; 2].map(|_| Channels::new(Arc::clone(layout), None)),
            paths: [path(), path()],
            sequences: [Sequence(0), Sequence(60_000)],
            scratch: Vec::new(),
            delivered: 0,
            delivered_bytes: 0,
            receipts: [0; 2],
        }
    }

    fn tick(&mut self, tick: u64) {
        let now = Instant::from_start(Duration::from_millis(tick * 10));
        let message = [0x5a; 5000];
        for (end, channels) in self.ends.iter_mut().enumerate() {
            channels.begin_tick(now);
            for id in 0..KINDS.len() as u8 {
                for (bytes, every) in [(40, 1), (700, 3), (5000, 16)] {
                    if (tick + u64::from(id)).is_multiple_of(every) {
                        let key = (bytes == 40 && tick.is_multiple_of(5)).then_some(tick % 3);
                        let options = SendOptions { key, receipt: Some(tick), ..SendOptions::default() };
                        let _ = channels.send(ChannelId(id), &message[..bytes], options, now);
                    }
                }
            }
            let path = &mut self.paths[end];
            while path.used < PACKETS {
                let (packet, buf, length) = &mut path.packets[path.used];
                *packet = self.sequences[end];
                *length = channels.write(*packet, now, buf);
                if *length == 0 {
                    break;
                }
                self.sequences[end] = *packet + 1;
                path.used += 1;
            }
        }
        self.deliver(tick, now);
    }

    /// Some packets are lost, and those of each tick arrive in the wrong order.
    fn deliver(&mut self, tick: u64, now: Instant) {
        for from in 0..2 {
            let path = &mut self.paths[from];
            let used = std::mem::take(&mut path.used);
            for (index, (packet, frames, length)) in path.packets[..used].iter().enumerate().rev() {
                if (tick * 5 + index as u64).is_multiple_of(9) {
                    self.ends[from].on_lost(*packet);
                    continue;
                }
                let (frames, mut at) = (&frames[..*length], FrameCursor::default());
                let receiver = &mut self.ends[1 - from];
                while let Some(arrival) = receiver.next(frames, &mut at, &mut self.scratch, now).unwrap() {
                    let ReceivedMessage { span, .. } = arrival;
                    self.delivered += 1;
                    self.delivered_bytes += span.bytes(frames, &self.scratch).len() as u64;
                }
                self.ends[from].on_acked(*packet);
            }
            while let Some(event) = self.ends[from].poll_event() {
                let ChannelEvent::Receipt { status, .. } = event else { continue };
                self.receipts[0] += 1;
                self.receipts[1] += u64::from(status == DeliveryStatus::Arrived);
            }
        }
    }
}

#[test]
fn no_allocation_after_warm_up() {
    let layout = Arc::new(Layout::try_from(KINDS.map(ChannelConfig::from).to_vec()).unwrap());
    let mut talk = Talk::new(&layout);
    for tick in 0..1500 {
        talk.tick(tick);
    }
    let before = (talk.delivered, talk.delivered_bytes, talk.receipts);
    let count = allocations(|| (1500..6000).for_each(|tick| talk.tick(tick)));
    let (delivered, bytes) = (talk.delivered - before.0, talk.delivered_bytes - before.1);
    let [receipts, arrived] = [0, 1].map(|which| talk.receipts[which] - before.2[which]);
    println!("{delivered} messages, {bytes} bytes, {receipts} receipts, {arrived} arrivals");
    assert!(receipts > 40_000 && arrived > receipts / 2, "{receipts} receipts, {arrived} arrivals");
    assert_eq!(count, 0);
    assert!(delivered > 40_000 && bytes > 10_000_000, "only {delivered} messages");
}

/// Sends under this number of keys in turn, with most messages queued and some in flight; returns the duration.
fn keyed_sends(keys: u64, sends: u64) -> Duration {
    let config = ChannelConfig {
        queue_messages: MAX_QUEUE_MESSAGES,
        queue_bytes: 1 << 20,
        ..ChannelConfig::from(Kind::ReliableOrdered)
    };
    let mut channels = Channels::new(Arc::new(Layout::try_from(vec![config]).unwrap()), None);
    let (now, mut buf, mut packet) = (Instant::default(), [0; BUF_BYTES], Sequence(0));
    let mut round = |sends: u64| {
        for send in 0..sends {
            let options = SendOptions { key: Some(send % keys * 0x9e37_79b9), ..SendOptions::default() };
            channels.send(ChannelId(0), &send.to_le_bytes(), options, now).unwrap();
            // The message of each seventh key is sent, and in flight for two packets.
            if send.is_multiple_of(7 * keys.min(100)) {
                assert!(channels.write(packet, now, &mut buf) > 0);
                channels.on_acked(packet - 2);
                packet = packet + 1;
            }
        }
    };
    round(20_000.max(4 * keys));
    let start = std::time::Instant::now();
    assert_eq!(allocations(|| round(sends)), 0, "{keys} keys");
    start.elapsed()
}

#[test]
fn keyed_message_costs_no_allocation_with_any_key_count() {
    // A search through all keys takes two hundred times as long, in each attempt. A machine that pauses slows one.
    let is_near = (0..10).any(|_| {
        let (few, many) = (keyed_sends(16, 100_000), keyed_sends(12_000, 100_000));
        println!("{few:?} with 16 keys, {many:?} with 12,000");
        many < few * 20
    });
    assert!(is_near, "many keys make messages expensive");
}

#[test]
fn sending_a_transfer_slice_does_not_allocate() {
    let transfers = ChannelConfig::from(Kind::Transfers);
    let layout = Arc::new(Layout::try_from(vec![ChannelConfig::from(Kind::Unreliable), transfers]).unwrap());
    let [mut one, mut other] = [0; 2].map(|_| Channels::new(Arc::clone(&layout), None));
    one.send_transfer(ChannelId(1), Transfer::new(vec![7; 4 << 20]).unwrap(), 0).unwrap();
    let mut scratch = Vec::new();
    let mut pass = |number: u16, from: &mut Channels, to: &mut Channels| {
        let (now, mut buf, mut length) = (Instant::default(), [0; BUF_BYTES], 0);
        let count = allocations(|| {
            length = from.write(Sequence(number), now, &mut buf);
            from.on_acked(Sequence(number.wrapping_sub(3)));
        });
        assert!(to.next(&buf[..length], &mut FrameCursor::default(), &mut scratch, now).unwrap().is_none());
        (count, length)
    };
    let mut sent = 0;
    for number in 0..1000 {
        let (count, length) = pass(number, &mut one, &mut other);
        pass(number, &mut other, &mut one);
        assert!(number < 100 || count == 0, "packet {number}");
        sent += length;
    }
    assert!(sent > 1_000_000, "{sent} bytes");
}

#[test]
fn idle_channels_take_little_memory() {
    let layout = Arc::new(Layout::try_from(KINDS.map(ChannelConfig::from).to_vec()).unwrap());
    let mut channels = None;
    let count = allocations(|| channels = Some(Channels::new(Arc::clone(&layout), None)));
    assert!(count <= 6, "{count} allocations");
    assert_eq!(channels.unwrap().memory_bytes(), 0);
}

/// A game that replies to everything keeps the replies to a client that reads none, up to the limits of the queue.
#[test]
fn small_message_that_waits_takes_at_most_256_bytes() {
    for kind in KINDS {
        let config = ChannelConfig { queue_messages: MAX_QUEUE_MESSAGES, ..ChannelConfig::from(kind) };
        let mut channels = Channels::new(Arc::new(Layout::try_from(vec![config]).unwrap()), None);
        let before = bytes();
        for _ in 0..MAX_QUEUE_MESSAGES {
            channels.send(ChannelId(0), &[7], SendOptions::default(), Instant::default()).unwrap();
        }
        assert!(channels.send(ChannelId(0), &[7], SendOptions::default(), Instant::default()).is_err(), "{kind:?}");
        let each = (bytes() - before) as f64 / f64::from(MAX_QUEUE_MESSAGES);
        println!("{kind:?}: {each:.0} bytes for each of {MAX_QUEUE_MESSAGES} waiting messages of a byte");
        assert!(each <= 256.0, "{kind:?}: {each}");
    }
}
