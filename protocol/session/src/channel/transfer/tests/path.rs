//! Paths that lose, duplicate and reorder packets, with several transfers in flight in both directions.

use std::collections::BTreeMap;
use std::vec::Vec;

use core::time::Duration;
use proptest::prelude::*;
use slipgate_netcode::time::Instant;
use slipgate_sim::{Conditions, Loss, Order, Path, Random, Share};

use super::*;

const LATENCY_TURNS: u32 = 2;

/// A packet's frames.
struct InFlight {
    sent_at: u32,
    frames: Vec<Vec<u8>>,
    parts: Vec<SentTransferFrame>,
}

/// One direction of a path. It reports arrivals to the sender like acknowledgements: late, and not always correctly.
struct Direction {
    /// Carries the numbers of packets.
    path: Path<u64>,
    random: Random,
    impairments: PathImpairments,
    next_number: u64,
    in_flight: BTreeMap<u64, InFlight>,
    outcomes: Vec<(u32, bool, Vec<SentTransferFrame>)>,
}

/// Shares in percent, the jitter in turns.
#[derive(Clone, Copy, Debug)]
struct PathImpairments {
    loss: u32,
    duplication: u32,
    jitter: u32,
    /// Packets that arrive and are reported lost at first.
    false_alarms: u32,
}

impl PathImpairments {
    fn conditions(self) -> Conditions {
        Conditions {
            latency: turns(LATENCY_TURNS),
            jitter: turns(self.jitter),
            order: Order::Free,
            loss: Loss::Random(Share::percent(self.loss.into())),
            duplication: Share::percent(self.duplication.into()),
            ..Conditions::perfect()
        }
    }
}

/// Returns the time that this number of turns takes on the path.
fn turns(count: u32) -> Duration {
    Duration::from_millis(count.into())
}

impl Direction {
    fn new(seed: u64, impairments: PathImpairments) -> Self {
        let (path, random) = (Path::new(impairments.conditions(), seed), Random::new(seed, 0));
        Self { path, random, impairments, next_number: 0, in_flight: BTreeMap::new(), outcomes: Vec::new() }
    }

    fn turn(&mut self, now: u32, from: &mut Transfers, to: &mut Transfers) {
        for _ in 0..8 {
            self.send(from, now);
        }
        let time = Instant::from_start(turns(now));
        while let Some(number) = self.path.pop_due(time).map(|arrival| arrival.tag) {
            // The endpoint below drops duplicates: frames arrive once for each packet.
            let Some(packet) = self.in_flight.remove(&number) else { continue };
            for frame in &packet.frames {
                to.on_frame(frame).expect("an honest peer");
            }
            if self.random.hits(Share::percent(self.impairments.false_alarms.into())) {
                packet.parts.iter().for_each(|sent| from.on_lost(*sent));
            }
            self.report_later(now, true, packet.parts);
        }
        let max_turns = LATENCY_TURNS + self.impairments.jitter;
        let is_lost = |packet: &InFlight| packet.sent_at + max_turns < now;
        while self.in_flight.first_key_value().is_some_and(|(_, packet)| is_lost(packet)) {
            let (_, packet) = self.in_flight.pop_first().expect("it is there");
            self.report_later(now, false, packet.parts);
        }
        self.report(now, from);
    }

    fn report_later(&mut self, now: u32, arrived: bool, parts: Vec<SentTransferFrame>) {
        self.outcomes.push((now + self.random.below(5) as u32, arrived, parts));
    }

    fn report(&mut self, now: u32, from: &mut Transfers) {
        for (at, arrived, parts) in core::mem::take(&mut self.outcomes) {
            if at > now {
                self.outcomes.push((at, arrived, parts));
            } else {
                parts.iter().for_each(|sent| if arrived { from.on_acked(*sent) } else { from.on_lost(*sent) });
            }
        }
    }

    fn send(&mut self, from: &mut Transfers, now: u32) {
        let (mut buf, mut used) = ([0; 1150], 0);
        let (mut frames, mut parts) = (Vec::new(), Vec::new());
        while let Some((bytes, sent)) = from.write(&mut buf[used..]) {
            frames.push(buf[used..used + bytes].to_vec());
            parts.push(sent);
            used += bytes;
        }
        if frames.is_empty() {
            return;
        }
        self.path.push_tagged(self.next_number, &[], Instant::from_start(turns(now)));
        self.in_flight.insert(self.next_number, InFlight { sent_at: now, frames, parts });
        self.next_number += 1;
    }
}

/// Sends these transfers in both directions. Returns what arrived, by direction and label.
fn play(lengths: &[usize], seed: u64, impairments: PathImpairments) {
    let config = TransferConfig { slice_bytes: 300, max_at_once: 3, ..TransferConfig::default() };
    let mut ends = [transfers(config.clone()), transfers(config)];
    let mut ways = [seed, !seed].map(|seed| Direction::new(seed, impairments));
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
        ways[0].turn(now, left, right);
        ways[1].turn(now, right, left);
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
            play(&[0, 1, 300, 301, 40_000, 99_999, 5000], u64::from(loss * 31 + jitter), impairments);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn transfers_arrive_over_any_path(
        lengths in prop::collection::vec(0usize..30_000, 1..8),
        seed in any::<u64>(),
        impairments in (0u32..70, 0u32..50, 0u32..80, 0u32..80),
    ) {
        let (loss, duplication, jitter, false_alarms) = impairments;
        play(&lengths, seed, PathImpairments { loss, duplication, jitter, false_alarms });
    }
}
