//! Paths that lose, duplicate and reorder packets, with several transfers in flight in both directions.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// A packet's frames, and its outcome.
struct InFlight {
    arrives_at: u32,
    copies: u8,
    frames: Vec<Vec<u8>>,
    parts: Vec<SentTransferFrame>,
}

/// One direction of a path. It reports arrivals to the sender like acknowledgements: late, and not always correctly.
struct Direction {
    random: u64,
    flying: Vec<InFlight>,
    outcomes: Vec<(u32, bool, Vec<SentTransferFrame>)>,
}

#[derive(Clone, Copy, Debug)]
struct PathImpairments {
    loss: u64,
    duplication: u64,
    jitter: u64,
    /// Packets that arrive and are reported lost at first.
    false_alarms: u64,
}

impl Direction {
    fn new(random: u64) -> Self {
        Self { random, flying: Vec::new(), outcomes: Vec::new() }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound.max(1)
    }

    fn turn(&mut self, now: u32, from: &mut Transfers, to: &mut Transfers, impairments: PathImpairments) {
        for _ in 0..8 {
            let packet = self.pack(from, now, impairments);
            self.flying.extend(packet);
        }
        let (arrived, flying) =
            core::mem::take(&mut self.flying).into_iter().partition(|packet| packet.arrives_at <= now);
        self.flying = flying;
        for packet in arrived {
            let packet: InFlight = packet;
            if packet.copies > 0 {
                // The endpoint below drops duplicates: frames arrive once for each packet.
                for frame in &packet.frames {
                    to.on_frame(frame).expect("an honest peer");
                }
                if self.below(100) < impairments.false_alarms {
                    packet.parts.iter().for_each(|sent| from.on_lost(*sent));
                }
            }
            let late = now + self.below(5) as u32;
            self.outcomes.push((late, packet.copies > 0, packet.parts));
        }
        let outcomes = core::mem::take(&mut self.outcomes);
        for (at, arrived, parts) in outcomes {
            if at > now {
                self.outcomes.push((at, arrived, parts));
            } else {
                parts.iter().for_each(|sent| if arrived { from.on_acked(*sent) } else { from.on_lost(*sent) });
            }
        }
    }

    fn pack(&mut self, from: &mut Transfers, now: u32, impairments: PathImpairments) -> Option<InFlight> {
        let (mut buf, mut used) = ([0; 1150], 0);
        let (mut frames, mut parts) = (Vec::new(), Vec::new());
        while let Some((bytes, sent)) = from.write(&mut buf[used..]) {
            frames.push(buf[used..used + bytes].to_vec());
            parts.push(sent);
            used += bytes;
        }
        let copies = if self.below(100) < impairments.loss {
            0
        } else {
            1 + u8::from(self.below(100) < impairments.duplication)
        };
        let arrives_at = now + 2 + self.below(impairments.jitter + 1) as u32;
        (!frames.is_empty()).then_some(InFlight { arrives_at, copies, frames, parts })
    }
}

/// Sends these transfers in both directions. Returns what arrived, by direction and label.
fn play(lengths: &[usize], seed: u64, impairments: PathImpairments) {
    let config = TransferConfig { slice_bytes: 300, max_at_once: 3, ..TransferConfig::default() };
    let mut ends = [transfers(config.clone()), transfers(config)];
    let mut ways = [Direction::new(seed), Direction::new(!seed)];
    let mut expected = BTreeMap::new();
    for (label, length) in lengths.iter().enumerate() {
        for (end, transfers) in ends.iter_mut().enumerate() {
            let seed = (label * 2 + end) as u32;
            transfers.begin(transfer(seed, *length), label as u64).unwrap();
            expected.insert((1 - end, label as u64), content(seed, *length));
        }
    }
    let (mut delivered, mut now) = (0, 0);
    while delivered < 2 * lengths.len() || !expected.is_empty() {
        now += 1;
        assert!(now < 60_000, "seed {seed}: {} of {} are missing", expected.len(), 2 * lengths.len());
        let [left, right] = &mut ends;
        ways[0].turn(now, left, right, impairments);
        ways[1].turn(now, right, left, impairments);
        for (end, transfers) in ends.iter_mut().enumerate() {
            assert!(transfers.receiving().count() <= 3, "seed {seed}");
            for event in events(transfers) {
                match event {
                    TransferEvent::Received { label, content, .. } => {
                        let wanted = expected.remove(&(end, label)).expect("it comes once");
                        assert!(content.into_vec() == wanted, "seed {seed}: transfer {label} is damaged");
                    }
                    TransferEvent::Delivered { .. } => delivered += 1,
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
    }
    assert_eq!(delivered, 2 * lengths.len(), "seed {seed}");
}

#[test]
fn transfers_arrive_over_every_kind_of_path() {
    for loss in [0, 1, 5, 20, 60] {
        for (jitter, false_alarms) in [(0, 0), (30, 0), (30, 30)] {
            let impairments = PathImpairments { loss, duplication: 5, jitter, false_alarms };
            play(&[0, 1, 300, 301, 40_000, 99_999, 5000], loss * 31 + jitter, impairments);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn transfers_arrive_over_any_path(
        lengths in prop::collection::vec(0usize..30_000, 1..8),
        seed in any::<u64>(),
        impairments in (0u64..70, 0u64..50, 0u64..80, 0u64..80),
    ) {
        let (loss, duplication, jitter, false_alarms) = impairments;
        play(&lengths, seed, PathImpairments { loss, duplication, jitter, false_alarms });
    }
}
