//! Packets with messages that are not read are not acknowledged; close messages are repeated.

use super::*;

/// A message frame on the first channel: its id is 0, its bytes are "x".
const MESSAGE: [u8; 4] = [1, 0, 1, b'x'];

fn bye() -> Vec<u8> {
    let mut buf = [0; 300];
    let bytes = control::write(&ControlMessage::Bye(Bye { code: CloseCode(300), text: "out" }), &mut buf);
    buf[..bytes].to_vec()
}

/// Returns whether the next packet of an end acknowledges packet 0.
fn acknowledges_first(end: &mut Connection) -> bool {
    let (mut sink, now) = (Datagrams::default(), Instant::from_start(Duration::from_millis(200)));
    end.tick(now);
    end.transmit(now, &mut sink);
    let (header, _) = ReliableHeader::parse(sink.sent.first().expect("a packet is due")).unwrap();
    header.acks.arrived().any(|sequence| sequence == Sequence(0))
}

#[test]
fn only_packets_whose_messages_are_read_are_acknowledged() {
    let other = || hello(|hello| hello.layout = other_layout().hash());
    let later = || hello(|hello| (hello.version, hello.oldest_version) = (9, 9));
    for (name, frames, expected) in [
        ("a hello and a message", [hello(|_| ()), MESSAGE.to_vec()].concat(), true),
        ("a hello alone", hello(|_| ()), true),
        ("a close message alone", [hello(|_| ()), bye()].concat(), true),
        ("a message behind a close message", [hello(|_| ()), bye(), MESSAGE.to_vec()].concat(), false),
        ("a message behind a close message before the hello", [bye(), hello(|_| ()), MESSAGE.to_vec()].concat(), false),
        ("a hello with another layout alone", other(), true),
        ("a message behind a hello with another layout", [other(), MESSAGE.to_vec()].concat(), false),
        ("a message behind a second hello", [hello(|_| ()), other(), MESSAGE.to_vec()].concat(), false),
        ("a message behind a hello of another version", [later(), MESSAGE.to_vec()].concat(), false),
        ("a message before any hello", MESSAGE.to_vec(), false),
    ] {
        let mut end = connection(&ConnectionConfig::default(), layout());
        let _ = end.handle(&datagram(0, &frames), Duration::ZERO, Instant::from_start(Duration::from_millis(100)));
        assert_eq!(acknowledges_first(&mut end), expected, "{name}");
    }
}

#[test]
fn a_message_to_a_closing_end_is_not_acknowledged() {
    for (frames, expected) in [(hello(|_| ()), true), ([hello(|_| ()), MESSAGE.to_vec()].concat(), false)] {
        let mut end = connection(&ConnectionConfig::default(), layout());
        end.close(CloseCode(300), "closing");
        let read = end.handle(&datagram(0, &frames), Duration::ZERO, Instant::default()).unwrap();
        assert!(read.is_none(), "no message is read");
        assert_eq!(acknowledges_first(&mut end), expected);
    }
}

#[test]
fn a_lost_close_message_is_repeated_until_it_arrives() {
    for lost in [0, 1, 5, 9] {
        let mut pair = Pair::connected();
        pair.ends[0].close(CloseCode(300), "good night");
        let (start, mut sent) = (pair.now, Vec::new());
        while !pair.ends[0].is_closed() {
            for datagram in pair.turn(0) {
                sent.push(pair.now.since(start).as_millis() as u64);
                if sent.len() > lost {
                    pair.deliver(1, &datagram).unwrap();
                }
            }
            for datagram in pair.turn(1) {
                if pair.ends[1].close_reason().is_some() {
                    pair.deliver(0, &datagram).unwrap();
                }
            }
            pair.pass(5);
        }
        assert_eq!(sent, (0..=lost as u64).map(|index| index * 100).collect::<Vec<_>>(), "{lost} lost");
        assert_eq!(pair.ends[1].close_reason().unwrap().text, "good night", "{lost} lost");
    }
    // The last one is sent 0.9 s after the first; then nothing is left to send.
    let mut pair = Pair::connected();
    pair.ends[0].close(CloseCode(300), "good night");
    let sent: usize = (0..600)
        .map(|_| {
            pair.pass(5);
            pair.turn(0).len()
        })
        .sum();
    assert_eq!((sent, pair.ends[0].is_closed()), (10, true));
}

#[test]
fn packets_are_refused_while_the_application_takes_no_messages() {
    let mut pair = Pair::connected();
    for (intake, expected) in [(Intake::Refused, Err(Reject::NotTaken)), (Intake::Open, Ok(()))] {
        pair.ends[1].set_intake(intake);
        pair.send(0, CHAT, b"hello");
        let sent = pair.turn(0);
        assert_eq!(pair.deliver(1, &sent[0]), expected, "{intake:?}");
        pair.run(100);
    }
}

#[test]
fn end_that_closes_before_it_took_all_messages_ends_at_once() {
    let mut pair = Pair::connected();
    pair.send(0, CHAT, b"hello");
    let sent = pair.turn(0);
    let mut incoming = pair.ends[1].handle(&sent[0], Duration::ZERO, pair.now).unwrap().expect("a message");
    let now = pair.now;
    assert!(pair.ends[1].may_deliver(0, now));
    pair.ends[1].set_intake(Intake::Refused);
    assert!(!pair.ends[1].may_deliver(0, now));
    pair.ends[1].set_intake(Intake::Open);
    pair.ends[1].close(CloseCode(300), "good night");
    assert!(pair.ends[1].next_message(&sent[0], &mut incoming, &mut Vec::new(), pair.now).is_none());
    pair.run(50);
    assert!(pair.ends[1].is_closed(), "the close message is acknowledged");
}
