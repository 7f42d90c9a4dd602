use super::*;
use core::time::Duration;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

/// §2.4 as a slow model: each slot remembers which number it holds.
struct Model {
    next: u16,
    size: u16,
    slots: BTreeMap<u16, u16>,
}

impl Model {
    fn check(&self, sequence: u16) -> Result<(), Reject> {
        if Sequence(sequence).is_older_than(Sequence(self.next.wrapping_sub(self.size))) {
            return Err(Reject::Stale);
        }
        if self.has(sequence) { Err(Reject::Duplicate) } else { Ok(()) }
    }

    fn has(&self, sequence: u16) -> bool {
        self.slots.get(&(sequence % self.size)) == Some(&sequence)
    }

    fn mark(&mut self, sequence: u16) {
        if Sequence(sequence.wrapping_add(1)).is_newer_than(Sequence(self.next)) {
            while self.next != sequence.wrapping_add(1) {
                self.slots.remove(&(self.next % self.size));
                self.next = self.next.wrapping_add(1);
            }
        }
        self.slots.insert(sequence % self.size, sequence);
    }

    fn acks(&self) -> Acks {
        let ack = self.next.wrapping_sub(1);
        let bits = (0..32).filter(|back| self.has(ack.wrapping_sub(*back)));
        Acks { ack: Sequence(ack), bits: bits.fold(0, |bits, back| bits | 1 << back) }
    }
}

/// Numbers near each other and near the wrap, with jumps of every size.
fn sequences() -> impl Strategy<Value = Vec<u16>> {
    let start = prop_oneof![Just(0), Just(65_500), any::<u16>()];
    let step = prop_oneof![8 => 0..4_u16, 4 => 0..40_u16, 2 => 10..300_u16, 1 => any::<u16>()];
    (start, prop::collection::vec((step, any::<bool>()), 1..300)).prop_map(|(start, steps)| {
        let mut at: u16 = start;
        let go = |(step, forward): (u16, bool)| {
            at = if forward { at.wrapping_add(step) } else { at.wrapping_sub(step) };
            at
        };
        steps.into_iter().map(go).collect()
    })
}

fn received(size: u16, arrivals: impl IntoIterator<Item = u16>) -> ReceiveWindow {
    let mut received = ReceiveWindow::new(size);
    for sequence in arrivals.into_iter().map(Sequence) {
        received.mark(sequence);
        received.require_ack(sequence, Instant::default());
    }
    received
}

/// Sends headers until none is due. Returns the reported arrivals and the number of headers.
fn send_due_acks(received: &mut ReceiveWindow, policy: AckPolicy, now: Instant) -> (Vec<u16>, usize) {
    let (mut reported, mut headers) = (Vec::new(), 0);
    while let Some(acks) = received.due_acks(policy, now) {
        reported.extend(acks.arrived().map(|sequence| sequence.0));
        received.on_acks_sent(acks);
        headers += 1;
    }
    reported.sort_unstable();
    reported.dedup();
    (reported, headers)
}

#[test]
fn only_packets_older_than_the_newest_are_overtaken() {
    let mut received = received(64, 0..10);
    let orders = [5, 9, 10, 12].map(|sequence| received.arrival_order(Sequence(sequence)));
    use ArrivalOrder::{Newest, Overtaken};
    assert_eq!(orders, [Overtaken, Newest, Newest, Newest]);
    // As the first fragment of packet 12 does.
    received.advance(Sequence(12));
    assert_eq!([11, 12].map(|sequence| received.arrival_order(Sequence(sequence))), [Overtaken, Newest]);
}

proptest! {
    #[test]
    fn window_accepts_and_reports_as_the_model(
        log in prop_oneof![8 => 4..10_u32, 1 => Just(14)],
        sequences in sequences()) {
        let size = 1 << log;
        let mut received = ReceiveWindow::new(size);
        let mut model = Model { next: 0, size, slots: BTreeMap::new() };
        for sequence in sequences {
            let checked = received.check(Sequence(sequence));
            prop_assert_eq!(checked, model.check(sequence), "{}", sequence);
            if checked.is_ok() {
                received.mark(Sequence(sequence));
                model.mark(sequence);
            }
            prop_assert_eq!(received.has(Sequence(sequence)), model.has(sequence), "{}", sequence);
            prop_assert_eq!(received.acks(), model.acks(), "{}", sequence);
        }
    }

    #[test]
    fn every_arrival_in_the_window_is_reported(
        sequences in sequences(),
        after_packets in 1..=32_u16,
    ) {
        let policy = AckPolicy { after_packets, ..AckPolicy::default() };
        let mut received = ReceiveWindow::new(1024);
        for sequence in sequences.iter().copied().map(Sequence) {
            if received.check(sequence).is_ok() {
                received.mark(sequence);
                received.require_ack(sequence, Instant::default());
            }
        }
        let in_window = |sequence: &u16| received.has(Sequence(*sequence));
        let mut arrived: Vec<u16> = sequences.iter().copied().filter(in_window).collect();
        arrived.sort_unstable();
        arrived.dedup();
        let later = Instant::from_start(Duration::from_secs(1));
        let (reported, headers) = send_due_acks(&mut received, policy, later);
        prop_assert_eq!(&reported, &arrived);
        prop_assert!(headers <= arrived.len(), "no more packets leave than came");
        prop_assert_eq!(received.unacked_count, 0);
    }
}

#[test]
fn burst_is_reported_every_sixteen_packets_or_after_25_ms() {
    let after = |millis| Instant::from_start(Duration::from_millis(millis));
    for (burst, headers) in [(15, 0), (16, 1), (31, 1), (32, 2), (33, 2), (48, 3), (256, 16), (1000, 62)] {
        let mut received = received(1024, 0..burst);
        let (reported, sent) = send_due_acks(&mut received, AckPolicy::default(), after(0));
        assert_eq!((sent, reported.len()), (headers, 16 * headers), "{burst} packets");
        assert_eq!(send_due_acks(&mut received, AckPolicy::default(), after(24)).1, 0, "{burst} packets");
        let rest = usize::from(burst % 16 > 0);
        assert_eq!(send_due_acks(&mut received, AckPolicy::default(), after(25)).1, rest, "{burst} packets");
        assert_eq!(received.unacked_count, 0, "{burst} packets");
    }
}

#[test]
fn each_arrival_of_one_sided_stream_is_in_two_headers() {
    for burst in 1..=200_u16 {
        let mut received = ReceiveWindow::new(1024);
        let mut reported = std::vec![0; usize::from(burst) * 60];
        let (mut next, mut headers) = (0, 0);
        for turn in 0..60 {
            let now = Instant::from_start(Duration::from_millis(turn * 16));
            for sequence in (next..next + burst).map(Sequence) {
                received.mark(sequence);
                received.require_ack(sequence, now);
            }
            next += burst;
            while let Some(acks) = received.due_acks(AckPolicy::default(), now) {
                acks.arrived().for_each(|sequence| reported[usize::from(sequence.0)] += 1);
                received.on_acks_sent(acks);
                headers += 1;
            }
        }
        // The last ones have headers to come.
        let settled = &reported[..reported.len() - usize::from(burst) - 32];
        assert!(settled.iter().all(|count| *count >= 2), "bursts of {burst}: {settled:?}");
        assert!(headers <= (usize::from(burst) * 60).div_ceil(16) + 60, "bursts of {burst}: {headers} headers");
    }
}

#[test]
fn rest_of_burst_waits_25_ms_from_its_own_arrival() {
    let at = |millis| Instant::from_start(Duration::from_millis(millis));
    let mut received = ReceiveWindow::new(1024);
    for number in 0..18 {
        received.mark(Sequence(number));
        received.require_ack(Sequence(number), at(if number < 6 { 0 } else { 24 }));
    }
    let policy = AckPolicy::default();
    assert_eq!(send_due_acks(&mut received, policy, at(24)).1, 1);
    assert_eq!(received.ack_deadline(policy), at(49));
    assert_eq!(send_due_acks(&mut received, policy, at(48)).1, 0);
    assert_eq!(send_due_acks(&mut received, policy, at(49)), ((0..18).collect(), 1));
}

#[test]
fn unacked_packets_that_leave_the_window_are_not_counted() {
    let mut received = received(64, 0..200);
    assert_eq!(received.unacked_count, 64);
    received.mark(Sequence(260));
    assert_eq!(received.unacked_count, 3, "packets 197 to 199");
}

#[test]
fn arrivals_reported_with_data_need_no_ack_only_packet() {
    let mut received = received(1024, 0..31);
    received.on_acks_sent(received.acks());
    assert_eq!(received.due_acks(AckPolicy::default(), Instant::NEVER), None);
}

#[test]
fn extended_acks_cover_twice_the_unreported_span() {
    let now = Instant::default();
    let mut received = ReceiveWindow::new(1024);
    let arrive = |received: &mut ReceiveWindow, numbers: core::ops::Range<u16>| {
        for number in numbers.filter(|number| number % 3 != 0) {
            received.mark(Sequence(65_500) + number);
            received.require_ack(Sequence(65_500) + number, now);
        }
    };
    let mut bits = [0; 28];
    for number in [20_000, 40_000, 60_000, 65_499] {
        received.mark(Sequence(number));
    }
    arrive(&mut received, 0..25);
    assert_eq!(received.extended_acks(&mut bits), 0, "a header says it all");
    arrive(&mut received, 25..101);
    let bytes = received.extended_acks(&mut bits);
    assert_eq!(bytes, 21, "twice the 100 from the first that arrived; 32 are in the header");
    for back in 32..100_u16 {
        let slot = usize::from(back - 32);
        assert_eq!(bits[slot / 8] >> (slot % 8) & 1 != 0, (100 - back) % 3 != 0, "{back} back");
    }
    received.on_acks_sent(received.acks());
    received.extended_acks_sent(bytes);
    assert_eq!((received.extended_acks(&mut bits), received.unacked_count), (0, 0));

    arrive(&mut received, 101..601);
    assert_eq!(received.extended_acks(&mut bits), 28, "no more than there is buf for");
}

#[test]
fn extended_acks_report_nothing_from_before_the_window() {
    let mut window = received(64, 0..200);
    (136..200).for_each(|sequence| window.require_ack(Sequence(sequence), Instant::default()));
    let mut bits = [0xaa; 12];
    assert_eq!(window.extended_acks(&mut bits), 12);
    assert_eq!(bits, [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0], "64 packets, 32 of them in the header");
}
