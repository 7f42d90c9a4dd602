//! Peers that are alive and acknowledge nothing, and honest peers that seem to.

use super::*;
use crate::channel::ChannelViolation;
use crate::reliability::MemoryBudget;

const SECOND: u64 = 1000;

/// The reason of a close that this end decided on.
fn session(kind: CloseKind) -> CloseReason {
    CloseReason::from_session(ClosedBy::Local, kind, CloseCode::VIOLATION)
}

/// Runs an end which receives keep-alives only, for at most `max_millis`. Returns after how many milliseconds it
/// closed, and how many datagrams it sent before.
fn run_without_acks(end: &mut Connection, start: Instant, max_millis: u64) -> (Option<u64>, usize) {
    let (mut now, mut sink) = (start, Datagrams::default());
    while now < start.after(Duration::from_millis(max_millis)) {
        // Netcode receives a keep-alive every 100 ms; in between, the end wakes at its own deadlines.
        let tenth = now.after(Duration::from_millis(100));
        let deadline = end.next_deadline(now).map_or(tenth, |deadline| deadline.min(tenth));
        now = deadline.max(now.after(Duration::from_millis(1)));
        end.on_received(now);
        end.tick(now);
        end.transmit(now, &mut sink);
        if end.close_reason().is_some() {
            return (Some(now.since(start).as_millis() as u64), sink.sent.len());
        }
    }
    (None, sink.sent.len())
}

#[test]
fn a_silent_peer_without_channels_is_detected() {
    let mut end = connection(&ConnectionConfig::default(), layout());
    let (ended, sent) = run_without_acks(&mut end, Instant::default(), 120 * SECOND);
    assert_eq!(end.close_reason(), Some(&session(CloseKind::NotASession)));
    let ended = ended.unwrap();
    assert!((30 * SECOND..65 * SECOND).contains(&ended), "{ended} ms");
    assert!(sent < 70, "{sent} hellos");
}

#[test]
fn a_peer_that_stops_acknowledging_is_accused() {
    let mut pair = Pair::connected();
    let (mut ended, mut was_sent) = (None, false);
    for turn in 0..10_000 {
        pair.pass(10);
        if pair.ends[0].close_reason().is_none() {
            pair.send(0, STATE, b"ping");
            pair.send(1, STATE, b"pong");
        }
        for datagram in pair.turn(1) {
            pair.deliver(0, &datagram).unwrap();
        }
        for datagram in pair.turn(0) {
            // Only the close message arrives.
            if pair.ends[0].close_reason().is_some() {
                ended = ended.or(Some(turn * 10));
                was_sent = true;
                let _ = pair.deliver(1, &datagram);
            }
        }
    }
    let expected = session(CloseKind::Violation(ChannelViolation::AcknowledgesNothing));
    assert_eq!(pair.ends[0].close_reason(), Some(&expected));
    let ended = ended.unwrap();
    assert!((30 * SECOND..33 * SECOND).contains(&ended), "{ended} ms");
    assert!(was_sent);
    let accused = CloseReason { by: ClosedBy::Remote, ..session(CloseKind::Accused) };
    assert_eq!(pair.ends[1].close_reason(), Some(&accused));
}

#[test]
fn a_one_way_outage_below_30_s_closes_nothing() {
    let mut pair = Pair::connected();
    for dead in [10, 20, 25, 28] {
        for turn in 0..dead * SECOND / 10 + 200 {
            pair.pass(10);
            let _ = pair.ends[0].send(CHAT, b"ping", SendOptions::default(), pair.now);
            for datagram in pair.turn(1) {
                pair.deliver(0, &datagram).unwrap();
            }
            pair.ends[0].on_received(pair.now);
            for datagram in pair.turn(0) {
                if turn * 10 >= dead * SECOND {
                    pair.deliver(1, &datagram).unwrap();
                }
            }
        }
        pair.run(2000);
        assert_eq!(pair.ends.each_ref().map(Connection::close_reason), [None; 2], "{dead} s");
    }
}

#[test]
fn one_lost_message_followed_by_silence_closes_nothing() {
    let mut pair = Pair::connected();
    pair.send(0, STATE, b"lost");
    pair.turn(0);
    let now = pair.now;
    assert_eq!(run_without_acks(&mut pair.ends[0], now, 600 * SECOND), (None, 0));
    assert_eq!(pair.ends[0].next_deadline(now.after(Duration::from_secs(600))), None);
}

#[test]
fn acks_that_the_application_does_not_take_end_nothing() {
    let mut pair = Pair::connected();
    pair.ends[1].set_intake(Intake::Refused);
    let mut refused = 0;
    for turn in 0..90 * SECOND / 10 {
        pair.pass(10);
        if turn % 10 == 0 {
            pair.send(1, STATE, b"news");
        }
        for datagram in pair.turn(1) {
            pair.deliver(0, &datagram).unwrap();
        }
        for datagram in pair.turn(0) {
            assert_eq!(pair.deliver(1, &datagram), Err(Reject::NotTaken));
            refused += 1;
        }
    }
    assert!(refused > 100, "{refused} acknowledgements");
    assert_eq!(pair.ends.each_ref().map(Connection::close_reason), [None; 2]);
}

#[test]
fn datagrams_refused_for_memory_are_not_counted_as_unacked() {
    let memory = Memory { messages: MemoryBudget::new(0), ..Memory::default() };
    let mut end = Connection::new(&ConnectionConfig::default(), layout(), Role::Server, Some(&memory)).unwrap();
    let (mut now, mut refused) = (Instant::default(), 0);
    for sequence in 0..4500 {
        now = now.after(Duration::from_millis(10));
        // The first slice of each message is missing, so the slices fill the reserve of the connection.
        let id = [0x80 | (sequence % 100) as u8, 1];
        let frame = [&hello(|_| ())[..], &[0xc1], &id, &[0xac, 2, 0], &[7; 128]].concat();
        let datagram = datagram(sequence, &frame);
        match end.handle(&datagram, Duration::ZERO, now) {
            Ok(Some(mut incoming)) => {
                while end.next_message(&datagram, &mut incoming, &mut Vec::new(), now).is_some() {}
            }
            other => refused += usize::from(other.err() == Some(Reject::Refused)),
        }
        end.tick(now);
        end.transmit(now, &mut Datagrams::default());
        assert_eq!(end.close_reason(), None, "{sequence}");
    }
    assert!(refused > 1000, "{refused}");
}
