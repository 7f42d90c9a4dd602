//! A peer that acknowledges packets which were never sent.

use super::*;
use crate::channel::Violation;

/// A packet of acknowledgements alone.
fn acknowledging(sequence: u16, ack: u16, bits: u32, behind: &[u8]) -> Vec<u8> {
    let mut room = [0; 100];
    let mut writer = Writer::new(&mut room);
    Header { sequence: Sequence(sequence), acks: Acks { ack: Sequence(ack), bits } }.emit(&mut writer);
    Frame { sent: Stamp(7), arrived: None, acks_behind: behind }.emit(&mut writer);
    let bytes = writer.written().unwrap();
    room[..bytes].to_vec()
}

#[test]
fn sixteen_acknowledgements_of_what_was_never_sent_end_it_with_a_reason() {
    for (ack, bits, behind) in [(40_000, 1, &[][..]), (65_535, u32::MAX, &[]), (20, 0, &[0xff])] {
        let mut end = connection(&Config::default(), layout());
        for sequence in 0..16 {
            assert_eq!(end.end(), None, "{ack}: {sequence}");
            end.handle(&acknowledging(sequence, ack, bits, behind), Instant::default()).unwrap();
        }
        assert_eq!(end.end(), Some(&End::Violation(Violation::AcksOfUnsent)), "{ack}");
        let mut sink = Datagrams::default();
        end.transmit(Instant::default(), &mut sink);
        let (_, payload) = Header::parse(&sink.sent[0]).unwrap();
        let (_, rest) = Frame::parse(payload).unwrap();
        let said = [ByeCode::VIOLATION.0 as u8, 0];
        assert!(rest.windows(2).any(|pair| pair == said), "{rest:?}");
    }
}
