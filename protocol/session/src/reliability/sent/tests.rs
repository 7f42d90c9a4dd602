use super::*;
use std::vec::Vec;

const DEADLINE: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Instant {
    Instant::from_start(Duration::from_millis(millis))
}

fn depart(sent: &mut Sent, count: u64, now: Instant) {
    for _ in 0..count {
        sent.depart(Cargo::Data, 100, now);
    }
}

fn events(sent: &mut Sent) -> Vec<Event> {
    core::iter::from_fn(|| sent.poll()).collect()
}

fn lost(sequences: impl IntoIterator<Item = u16>) -> Vec<Event> {
    sequences.into_iter().map(|sequence| Event::Lost { sequence: Sequence(sequence) }).collect()
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_nonsense_before_and_after_the_wrap() {
    for (total, nonsense, nothing) in [
        (0, &[0, 1, 32_767, 32_768, 65_535][..], &[][..]),
        (1, &[1, 2, 32_768, 65_535], &[]),
        (100, &[100, 65_535, 40_000], &[0, 83]),
        (50_000, &[50_000, 65_535, 60_000, 33_599], &[33_600, 49_983]),
        (70_000, &[4464, 4465, 37_000, 53_599], &[4447, 65_535, 60_000, 53_600]),
    ] {
        let mut sent = Sent::new(16, Remember::Needed);
        for turn in 1..=total {
            depart(&mut sent, 1, at(0));
            // Now and then the peer tells of what it has.
            if turn % 10_000 == 0 {
                sent.acknowledge(Sequence((turn - 16) as u16), Word::Newest, at(0));
            }
        }
        for sequence in nonsense {
            let heard = sent.acknowledge(Sequence(*sequence), Word::Newest, at(1));
            assert_eq!(heard, Heard::Nonsense, "{sequence} of {total}");
        }
        for sequence in nothing {
            let heard = sent.acknowledge(Sequence(*sequence), Word::Newest, at(1));
            assert_eq!(heard, Heard::Nothing, "{sequence} of {total}");
        }
    }
}

#[test]
fn a_word_that_was_overtaken_may_be_of_long_ago() {
    let mut sent = Sent::new(16, Remember::Needed);
    depart(&mut sent, 40_000, at(0));
    sent.acknowledge(Sequence(39_999), Word::Newest, at(1));
    assert_eq!(sent.acknowledge(Sequence(7), Word::Overtaken, at(1)), Heard::Nothing);
    assert_eq!(sent.acknowledge(Sequence(7), Word::Newest, at(1)), Heard::Nonsense);
    assert_eq!(sent.acknowledge(Sequence(40_000), Word::Overtaken, at(1)), Heard::Nonsense, "it never was");
}

#[test]
fn a_peer_that_has_long_received_nothing_may_tell_of_the_last_it_has_for_ever() {
    let mut sent = Sent::new(16, Remember::Needed);
    depart(&mut sent, 100, at(0));
    for _ in 0..3 * NUMBERS {
        sent.acknowledge(Sequence(90), Word::Newest, at(1));
        let heard = sent.acknowledge(Sequence(90), Word::Newest, at(1));
        assert_eq!(heard, Heard::Nothing, "{} sent", sent.total);
        depart(&mut sent, 1, at(1));
    }
}

#[test]
fn an_acknowledgement_is_news_once() {
    let mut sent = Sent::new(16, Remember::Needed);
    depart(&mut sent, 2, at(5));
    let news = News { bytes: 100, age: Duration::from_millis(20), late: false };
    assert_eq!(sent.acknowledge(Sequence(1), Word::Newest, at(25)), Heard::News(news));
    assert_eq!(sent.acknowledge(Sequence(1), Word::Newest, at(30)), Heard::Nothing);
    assert_eq!(events(&mut sent), [Event::Acked { sequence: Sequence(1), rtt: news.age }]);
}

#[test]
fn packets_of_acknowledgements_alone_are_neither_news_nor_lost() {
    let mut sent = Sent::new(16, Remember::Needed);
    sent.depart(Cargo::AcksAlone, 28, at(0));
    sent.depart(Cargo::AcksAlone, 28, at(0));
    assert_eq!(sent.acknowledge(Sequence(0), Word::Newest, at(10)), Heard::Nothing);
    assert!(!sent.give_up_overdue(DEADLINE, at(5000)));
    assert_eq!(events(&mut sent), []);
}

#[test]
fn what_is_pushed_out_of_the_window_is_lost_and_what_was_judged_is_not_judged_again() {
    let mut sent = Sent::new(16, Remember::Needed);
    depart(&mut sent, 16, at(0));
    sent.acknowledge(Sequence(1), Word::Newest, at(1));
    assert!(!sent.give_up_overdue(DEADLINE, at(999)));
    let displaced: Vec<bool> = (0..3).map(|_| sent.depart(Cargo::Data, 100, at(999))).collect();
    assert_eq!(displaced, [true, false, true]);
    assert_eq!(events(&mut sent)[1..], lost([0, 2]));
    while sent.give_up_overdue(DEADLINE, at(1000)) {}
    assert_eq!(events(&mut sent), lost(3..16));
    assert_eq!(sent.awaited_since(), Some(at(999)));
}

#[test]
fn who_does_not_ask_is_told_of_the_newest_and_how_many_they_missed() {
    let mut sent = Sent::new(16, Remember::Needed);
    depart(&mut sent, 16, at(0));
    while sent.give_up_overdue(DEADLINE, at(1000)) {}
    // Sixteen verdicts wait: nobody asked.
    depart(&mut sent, 4, at(1000));
    assert_eq!(sent.untold(), 0);
    assert!(matches!(sent.acknowledge(Sequence(16), Word::Newest, at(1001)), Heard::News(_)));
    while sent.give_up_overdue(DEADLINE, at(3000)) {}
    assert_eq!(sent.untold(), 4);
    let events = events(&mut sent);
    assert_eq!(events[..12], lost(4..16));
    assert!(matches!(events[12], Event::Acked { sequence: Sequence(16), .. }));
    assert_eq!(events[13..], lost(17..20));
}

#[test]
fn a_steady_stream_remembers_what_is_under_way_and_no_window() {
    let mut sent = Sent::new(1024, Remember::Needed);
    for number in 0..100_000_u64 {
        let now = at(number * 16);
        sent.depart(if number % 3 == 0 { Cargo::AcksAlone } else { Cargo::Data }, 100, now);
        sent.acknowledge(Sequence(number.wrapping_sub(6) as u16), Word::Newest, now);
        assert!(events(&mut sent).len() <= 1);
        assert!(sent.departures.len() <= 7, "{} after {number}", sent.departures.len());
    }
    assert!(sent.departures.capacity() <= 16, "{}", sent.departures.capacity());
}

#[test]
fn a_lost_packet_can_be_acknowledged_late_for_four_seconds_and_is_forgotten_then() {
    for (millis, late) in [(1500, true), (3999, true), (4000, false)] {
        let mut sent = Sent::new(1024, Remember::Needed);
        depart(&mut sent, 2, at(0));
        sent.acknowledge(Sequence(1), Word::Newest, at(30));
        assert!(sent.give_up_overdue(DEADLINE, at(1000)));
        // What is sent in between makes no difference, as long as the window has room.
        for _ in 0..500 {
            sent.depart(Cargo::AcksAlone, 28, at(millis));
        }
        let heard = sent.acknowledge(Sequence(0), Word::Newest, at(millis));
        assert_eq!(matches!(heard, Heard::News(News { late: true, .. })), late, "after {millis} ms: {heard:?}");
    }
}

#[test]
fn the_window_bounds_what_is_remembered_whatever_is_awaited() {
    for remember in [Remember::Needed, Remember::All] {
        let mut sent = Sent::new(64, remember);
        depart(&mut sent, 1000, at(0));
        assert_eq!((sent.departures.len(), sent.departures.capacity()), (64, 64), "{remember:?}");
        assert_eq!(
            (events(&mut sent), sent.untold()),
            (lost(872..936), 872),
            "{remember:?}: as many verdicts as the window holds"
        );
        assert!(matches!(sent.acknowledge(Sequence(936), Word::Newest, at(1)), Heard::News(_)), "{remember:?}");
        assert_eq!(sent.acknowledge(Sequence(935), Word::Newest, at(1)), Heard::Nothing, "{remember:?}");
        sent.reset();
        assert_eq!((sent.departures.len(), sent.verdicts.capacity()), (0, 0), "{remember:?}");
        assert!(sent.departures.capacity() == 0 || remember == Remember::All);
    }
}

#[test]
fn the_older_half_of_the_window_is_what_lies_behind_half_a_window() {
    let mut sent = Sent::new(16, Remember::All);
    for total in 0..100_u64 {
        let expected: Vec<u64> = (total.saturating_sub(16)..total.saturating_sub(8)).collect();
        let half: Vec<u64> = sent.older_half().map(|departure| departure.bytes.into()).collect();
        assert_eq!(half, expected, "{total} sent");
        sent.depart(Cargo::Data, total as u32, at(total));
    }
}
