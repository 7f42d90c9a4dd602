//! Peers that live and acknowledge nothing, and honest ones that seem to.

use super::*;
use crate::channel::Violation;
use crate::reliability::MemoryBudget;

const SECOND: u64 = 1000;

/// What an end does while nothing of the session reaches it and its peer lives, for so long at most: when it ended, in
/// milliseconds from now, and how many datagrams it sent until then.
fn deafened(end: &mut Connection, start: Instant, most: u64) -> (Option<u64>, usize) {
    let (mut now, mut sink) = (start, Datagrams::default());
    while now < start.after(Duration::from_millis(most)) {
        // Netcode has a packet every 100 ms; in between, the end wakes when it wants to.
        let tenth = now.after(Duration::from_millis(100));
        let deadline = end.next_deadline(now).map_or(tenth, |deadline| deadline.min(tenth));
        now = deadline.max(now.after(Duration::from_millis(1)));
        end.heard(now);
        end.tick(now);
        end.transmit(now, &mut sink);
        if end.end().is_some() {
            return (Some(now.since(start).as_millis() as u64), sink.sent.len());
        }
    }
    (None, sink.sent.len())
}

#[test]
fn a_peer_without_channels_that_says_nothing_is_found_out() {
    let mut end = connection(&Config::default(), layout());
    let (ended, sent) = deafened(&mut end, Instant::default(), 120 * SECOND);
    assert_eq!(end.end(), Some(&End::NotASession));
    let ended = ended.unwrap();
    assert!((30 * SECOND..65 * SECOND).contains(&ended), "{ended} ms");
    assert!(sent < 70, "{sent} greetings");
}

#[test]
fn a_peer_that_acknowledges_no_more_is_told_that_it_breaks_the_rules() {
    let mut pair = Pair::greeted();
    let (mut ended, mut told) = (None, false);
    for turn in 0..10_000 {
        pair.pass(10);
        if pair.ends[0].end().is_none() {
            pair.say(0, STATE, b"do you hear me?");
            pair.say(1, STATE, b"what?");
        }
        for datagram in pair.turn(1) {
            pair.give(0, &datagram).unwrap();
        }
        for datagram in pair.turn(0) {
            // Nothing of it arrives, but for the last word.
            if pair.ends[0].end().is_some() {
                ended = ended.or(Some(turn * 10));
                told = true;
                let _ = pair.give(1, &datagram);
            }
        }
    }
    assert_eq!(pair.ends[0].end(), Some(&End::Violation(Violation::AcknowledgesNothing)));
    let ended = ended.unwrap();
    assert!((30 * SECOND..33 * SECOND).contains(&ended), "{ended} ms");
    assert!(told);
    assert_eq!(pair.ends[1].end(), Some(&End::Accused));
}

#[test]
fn a_path_that_is_dead_one_way_for_less_time_than_that_ends_nothing() {
    let mut pair = Pair::greeted();
    for dead in [10, 20, 25, 28] {
        for turn in 0..dead * SECOND / 10 + 200 {
            pair.pass(10);
            let _ = pair.ends[0].send(CHAT, b"do you hear me?", SendOptions::default(), pair.now);
            for datagram in pair.turn(1) {
                pair.give(0, &datagram).unwrap();
            }
            pair.ends[0].heard(pair.now);
            for datagram in pair.turn(0) {
                if turn * 10 >= dead * SECOND {
                    pair.give(1, &datagram).unwrap();
                }
            }
        }
        pair.run(2000);
        assert_eq!(pair.ends.each_ref().map(Connection::end), [None; 2], "{dead} s");
    }
}

#[test]
fn one_message_that_was_lost_is_not_held_against_a_peer_to_whom_nothing_more_is_said() {
    let mut pair = Pair::greeted();
    pair.say(0, STATE, b"lost on its way");
    pair.turn(0);
    let now = pair.now;
    assert_eq!(deafened(&mut pair.ends[0], now, 600 * SECOND), (None, 0));
    assert_eq!(pair.ends[0].next_deadline(now.after(Duration::from_secs(600))), None);
}

#[test]
fn what_could_not_be_read_for_want_of_memory_is_not_held_against_the_peer() {
    let memory = Memory { messages: MemoryBudget::new(0), ..Memory::default() };
    let mut end = Connection::new(&Config::default(), layout(), Some(&memory)).unwrap();
    let (mut now, mut refused) = (Instant::default(), 0);
    for sequence in 0..4500 {
        now = now.after(Duration::from_millis(10));
        // Slices of messages of which the first never comes: they fill what the end has for itself.
        let id = [0x80 | (sequence % 100) as u8, 1];
        let frame = [&hello(|_| ())[..], &[0xc1], &id, &[0xac, 2, 0], &[7; 128]].concat();
        let datagram = datagram(sequence, &frame);
        match end.handle(&datagram, now) {
            Ok(Some(mut incoming)) => while end.next(&datagram, &mut incoming, &mut Vec::new(), now).is_some() {},
            other => refused += usize::from(other.err() == Some(Reject::Refused)),
        }
        end.tick(now);
        end.transmit(now, &mut Datagrams::default());
        assert_eq!(end.end(), None, "{sequence}");
    }
    assert!(refused > 1000, "{refused}");
}
