//! A peer that acknowledges packets which were never sent.

use super::*;
use crate::channel::ChannelViolation;

/// Returns a packet of acknowledgements alone.
fn acknowledging(sequence: u16, ack: u16, bits: u32, extended_acks: &[u8]) -> Vec<u8> {
    let mut buf = [0; 100];
    let mut writer = Writer::new(&mut buf);
    ReliableHeader { sequence: Sequence(sequence), acks: Acks { ack: Sequence(ack), bits } }.emit(&mut writer);
    SessionFrame { sent: Timestamp(7), nonces: AckNonces::default(), arrived: None, extended_acks }.emit(&mut writer);
    let bytes = writer.written().unwrap();
    buf[..bytes].to_vec()
}

#[test]
fn sixteen_acks_of_unsent_packets_close_with_a_reason() {
    for (ack, bits, extended_acks) in [(40_000, 1, &[][..]), (65_535, u32::MAX, &[]), (20, 0, &[0xff])] {
        let kind = CloseKind::Violation(ChannelViolation::AcksOfUnsent);
        let expected = CloseReason::from_session(ClosedBy::Local, kind, CloseCode::VIOLATION);
        let mut end = connection(&ConnectionConfig::default(), layout());
        end.handle(&datagram(0, &hello(|_| ())), Duration::ZERO, Instant::default()).unwrap();
        for sequence in 1..17 {
            assert_eq!(end.close_reason(), None, "{ack}: {sequence}");
            end.handle(&acknowledging(sequence, ack, bits, extended_acks), Duration::ZERO, Instant::default()).unwrap();
        }
        assert_eq!(end.close_reason(), Some(&expected), "{ack}");
        let mut sink = Datagrams::default();
        end.transmit(Instant::default(), &mut sink);
        let (_, payload) = ReliableHeader::parse(&sink.sent[0]).unwrap();
        let (_, rest) = SessionFrame::parse(payload).unwrap();
        let code = [CloseCode::VIOLATION.0 as u8, 0];
        assert!(rest.windows(2).any(|pair| pair == code), "{rest:?}");
    }
}
