use super::*;
use std::vec::Vec;

const DEADLINE: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Instant {
    Instant::from_start(Duration::from_millis(millis))
}

fn on_packet_sent(sent: &mut SendWindow, count: u64, now: Instant) {
    for _ in 0..count {
        sent.on_packet_sent(SessionPacketKind::AckEliciting, 100, now);
    }
}

fn events(sent: &mut SendWindow) -> Vec<PacketEvent> {
    core::iter::from_fn(|| sent.poll()).collect()
}

fn lost(sequences: impl IntoIterator<Item = u16>) -> Vec<PacketEvent> {
    sequences.into_iter().map(|sequence| PacketEvent::Lost { sequence: Sequence(sequence) }).collect()
}

#[test]
fn acks_of_unsent_packets_are_detected_across_the_wrap() {
    for (total, names_unsent, nothing) in [
        (0, &[0, 1, 32_767, 32_768, 65_535][..], &[][..]),
        (1, &[1, 2, 32_768, 65_535], &[]),
        (100, &[100, 65_535, 40_000], &[0, 83]),
        (50_000, &[50_000, 65_535, 60_000, 33_599], &[33_600, 49_983]),
        (70_000, &[4464, 4465, 37_000, 53_599], &[4447, 65_535, 60_000, 53_600]),
    ] {
        let mut sent = SendWindow::new(16);
        for turn in 1..=total {
            on_packet_sent(&mut sent, 1, at(0));
            // The peer acknowledges its newest packet now and then.
            if turn % 10_000 == 0 {
                sent.on_ack(Sequence((turn - 16) as u16), ArrivalOrder::Newest, at(0));
            }
        }
        for sequence in names_unsent {
            let outcome = sent.on_ack(Sequence(*sequence), ArrivalOrder::Newest, at(1));
            assert_eq!(outcome, AckOutcome::NeverSent, "{sequence} of {total}");
        }
        for sequence in nothing {
            let outcome = sent.on_ack(Sequence(*sequence), ArrivalOrder::Newest, at(1));
            assert_eq!(outcome, AckOutcome::AlreadyKnown, "{sequence} of {total}");
        }
    }
}

#[test]
fn overtaken_ack_may_name_any_old_packet() {
    let mut sent = SendWindow::new(16);
    on_packet_sent(&mut sent, 40_000, at(0));
    sent.on_ack(Sequence(39_999), ArrivalOrder::Newest, at(1));
    assert_eq!(sent.on_ack(Sequence(7), ArrivalOrder::Overtaken, at(1)), AckOutcome::AlreadyKnown);
    assert_eq!(sent.on_ack(Sequence(7), ArrivalOrder::Newest, at(1)), AckOutcome::NeverSent);
    assert_eq!(sent.on_ack(Sequence(40_000), ArrivalOrder::Overtaken, at(1)), AckOutcome::NeverSent, "it never was");
}

#[test]
fn starved_peer_may_repeat_its_last_ack_for_ever() {
    let mut sent = SendWindow::new(16);
    on_packet_sent(&mut sent, 100, at(0));
    for _ in 0..3 * SEQUENCE_SPACE {
        sent.on_ack(Sequence(90), ArrivalOrder::Newest, at(1));
        let outcome = sent.on_ack(Sequence(90), ArrivalOrder::Newest, at(1));
        assert_eq!(outcome, AckOutcome::AlreadyKnown, "{} sent", sent.total);
        on_packet_sent(&mut sent, 1, at(1));
    }
}

#[test]
fn packet_is_newly_acked_once() {
    let mut sent = SendWindow::new(16);
    on_packet_sent(&mut sent, 2, at(5));
    let news = AckedPacket { bytes: 100, age: Duration::from_millis(20), late: false };
    assert_eq!(sent.on_ack(Sequence(1), ArrivalOrder::Newest, at(25)), AckOutcome::NewlyAcked(news));
    assert_eq!(sent.on_ack(Sequence(1), ArrivalOrder::Newest, at(30)), AckOutcome::AlreadyKnown);
    assert_eq!(events(&mut sent), [PacketEvent::Acked { sequence: Sequence(1), rtt: news.age }]);
}

#[test]
fn ack_only_packets_are_neither_newly_acked_nor_lost() {
    let mut sent = SendWindow::new(16);
    sent.on_packet_sent(SessionPacketKind::AckOnly, 28, at(0));
    sent.on_packet_sent(SessionPacketKind::AckOnly, 28, at(0));
    assert_eq!(sent.on_ack(Sequence(0), ArrivalOrder::Newest, at(10)), AckOutcome::AlreadyKnown);
    assert!(!sent.declare_overdue_lost(DEADLINE, at(5000)));
    assert_eq!(events(&mut sent), []);
}

#[test]
fn displaced_packets_are_lost_and_resolved_only_once() {
    let mut sent = SendWindow::new(16);
    on_packet_sent(&mut sent, 16, at(0));
    sent.on_ack(Sequence(1), ArrivalOrder::Newest, at(1));
    assert!(!sent.declare_overdue_lost(DEADLINE, at(999)));
    let displaced: Vec<bool> =
        (0..3).map(|_| sent.on_packet_sent(SessionPacketKind::AckEliciting, 100, at(999))).collect();
    assert_eq!(displaced, [true, false, true]);
    assert_eq!(events(&mut sent)[1..], lost([0, 2]));
    while sent.declare_overdue_lost(DEADLINE, at(1000)) {}
    assert_eq!(events(&mut sent), lost(3..16));
    assert_eq!(sent.oldest_unacked_sent_at(), Some(at(999)));
}

#[test]
fn unpolled_events_keep_the_newest_and_count_the_dropped() {
    let mut sent = SendWindow::new(16);
    on_packet_sent(&mut sent, 16, at(0));
    while sent.declare_overdue_lost(DEADLINE, at(1000)) {}
    // Sixteen events wait: none was polled.
    on_packet_sent(&mut sent, 4, at(1000));
    assert_eq!(sent.dropped_events(), 0);
    assert!(matches!(sent.on_ack(Sequence(16), ArrivalOrder::Newest, at(1001)), AckOutcome::NewlyAcked(_)));
    while sent.declare_overdue_lost(DEADLINE, at(3000)) {}
    assert_eq!(sent.dropped_events(), 4);
    let events = events(&mut sent);
    assert_eq!(events[..12], lost(4..16));
    assert!(matches!(events[12], PacketEvent::Acked { sequence: Sequence(16), .. }));
    assert_eq!(events[13..], lost(17..20));
}

#[test]
fn steady_stream_remembers_packets_in_flight_only() {
    let mut sent = SendWindow::new(1024);
    for number in 0..100_000_u64 {
        let now = at(number * 16);
        sent.on_packet_sent(
            if number % 3 == 0 { SessionPacketKind::AckOnly } else { SessionPacketKind::AckEliciting },
            100,
            now,
        );
        sent.on_ack(Sequence(number.wrapping_sub(6) as u16), ArrivalOrder::Newest, now);
        assert!(events(&mut sent).len() <= 1);
        assert!(sent.packets.len() <= 7, "{} after {number}", sent.packets.len());
    }
    assert!(sent.packets.capacity() <= 16, "{}", sent.packets.capacity());
}

#[test]
fn lost_packet_can_be_acked_for_four_seconds() {
    for (millis, late) in [(1500, true), (3999, true), (4000, false)] {
        let mut sent = SendWindow::new(1024);
        on_packet_sent(&mut sent, 2, at(0));
        sent.on_ack(Sequence(1), ArrivalOrder::Newest, at(30));
        assert!(sent.declare_overdue_lost(DEADLINE, at(1000)));
        // Packets sent in between make no difference while the window has room.
        for _ in 0..500 {
            sent.on_packet_sent(SessionPacketKind::AckOnly, 28, at(millis));
        }
        let outcome = sent.on_ack(Sequence(0), ArrivalOrder::Newest, at(millis));
        assert_eq!(
            matches!(outcome, AckOutcome::NewlyAcked(AckedPacket { late: true, .. })),
            late,
            "after {millis} ms: {outcome:?}"
        );
    }
}

#[test]
fn window_bounds_the_remembered_packets() {
    let mut sent = SendWindow::new(64);
    on_packet_sent(&mut sent, 1000, at(0));
    assert_eq!((sent.packets.len(), sent.packets.capacity()), (64, 64));
    assert_eq!((events(&mut sent), sent.dropped_events()), (lost(872..936), 872), "as many events as the window holds");
    assert!(matches!(sent.on_ack(Sequence(936), ArrivalOrder::Newest, at(1)), AckOutcome::NewlyAcked(_)));
    assert_eq!(sent.on_ack(Sequence(935), ArrivalOrder::Newest, at(1)), AckOutcome::AlreadyKnown);
    sent.reset();
    assert_eq!((sent.packets.len(), sent.events.capacity()), (0, 0));
    assert_eq!(sent.packets.capacity(), 0);
}

/// A peer that names its newest packets only in datagrams which it seems to have sent earlier.
#[test]
fn lie_is_found_after_a_number_space_of_overtaken_acks() {
    for order in [ArrivalOrder::Newest, ArrivalOrder::Overtaken] {
        let mut sent = SendWindow::new(16);
        for _ in 0..100_000 {
            on_packet_sent(&mut sent, 1, at(0));
            sent.on_ack(sent.next() - 1, ArrivalOrder::Overtaken, at(1));
        }
        sent.skip(at(1));
        on_packet_sent(&mut sent, 1, at(1));
        let skipped = sent.next() - 2;
        assert_eq!(sent.on_ack(skipped, order, at(2)), AckOutcome::Skipped, "{order:?}");
    }
}

/// A peer that received nothing for a whole number space may mean an old packet with the same number.
#[test]
fn old_number_is_no_lie_after_a_number_space_of_silence() {
    for (unheard, expected) in [(49_000, AckOutcome::Skipped), (65_537, AckOutcome::AlreadyKnown)] {
        let mut sent = SendWindow::new(16);
        on_packet_sent(&mut sent, 40_000, at(0));
        sent.on_ack(Sequence(39_999), ArrivalOrder::Newest, at(1));
        on_packet_sent(&mut sent, unheard, at(2));
        sent.skip(at(2));
        // The window is full of packets, which make room for no number that is skipped.
        sent.declare_overdue_lost(DEADLINE, at(1002));
        sent.skip(at(2));
        let skipped = sent.next() - 1;
        assert_eq!(sent.on_ack(skipped, ArrivalOrder::Newest, at(2)), expected, "{unheard}");
    }
}
