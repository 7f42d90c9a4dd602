//! The work that the packets of a peer are charged (§5.11).

use super::*;
use crate::connection::work_budget::{
    BYTE_WORK, CONTROL_BYTE_WORK, FRAME_WORK, MESSAGE_WORK, PACKET_WORK, RefusedPackets,
};
use crate::reliability::MemoryBudget;

#[test]
fn packets_are_charged_for_bytes_control_frames_and_messages() {
    let limits = WorkLimits { per_message: Duration::from_nanos(700), ..WorkLimits::default() };
    let config = ConnectionConfig { work: limits, ..ConnectionConfig::default() };
    let (mut end, mut scratch) = (connection(&config, layout()), Vec::new());
    let now = Instant::from_start(Duration::from_millis(100));
    let control = hello(|_| ());
    let message = [1, 0, 1, b'x'];
    let extended_acks = [0, 0, 1];
    let mut buf = [0; 1200];
    let mut writer = Writer::new(&mut buf);
    ReliableHeader { sequence: Sequence(0), acks: Acks { ack: Sequence(65_535), bits: 0 } }.emit(&mut writer);
    SessionFrame { sent: Timestamp(7), arrived: None, extended_acks: &extended_acks }.emit(&mut writer);
    writer.bytes(&control);
    writer.bytes(&message);
    let bytes = writer.written().unwrap();
    let datagram = &buf[..bytes];

    let mut incoming = end.handle(datagram, Duration::ZERO, now).unwrap().expect("there is a message");
    let control_bytes = (control.len() + extended_acks.len()) as u64;
    let packet = PACKET_WORK + bytes as u64 * BYTE_WORK + control_bytes * CONTROL_BYTE_WORK;
    assert_eq!(end.take_work_done(), packet, "the packet");
    assert!(end.next_message(datagram, &mut incoming, &mut scratch, now).is_some());
    assert_eq!(end.take_work_done(), FRAME_WORK + MESSAGE_WORK + 700, "the message");
    assert!(end.next_message(datagram, &mut incoming, &mut scratch, now).is_none());
    assert_eq!(end.take_work_done(), 0, "there is no other message");
}

#[test]
fn refused_packets_are_counted_once_by_their_cause() {
    let limits = WorkLimits { per_second: Duration::ZERO, burst: Duration::from_nanos(1), ..WorkLimits::default() };
    let config = ConnectionConfig { work: limits, ..ConnectionConfig::default() };
    let mut end = connection(&config, layout());
    let now = Instant::from_start(Duration::from_millis(100));
    let mut buf = [0; 64];
    let mut writer = Writer::new(&mut buf);
    ReliableHeader { sequence: Sequence(0), acks: Acks { ack: Sequence(65_535), bits: 0 } }.emit(&mut writer);
    let datagram = writer.written().unwrap();
    let refused = |over_budget, not_taken| RefusedPackets { over_budget, not_taken };

    end.handle(&buf[..datagram], Duration::ZERO, now).unwrap();
    assert_eq!(end.take_refused(), refused(0, 0), "the budget is not used up yet");
    for _ in 0..3 {
        assert_eq!(end.handle(&buf[..datagram], Duration::ZERO, now).unwrap_err(), Reject::OverBudget);
    }
    end.set_intake(Intake::Refused);
    for _ in 0..2 {
        assert_eq!(end.handle(&buf[..datagram], Duration::ZERO, now).unwrap_err(), Reject::NotTaken);
    }
    assert_eq!(end.take_refused(), refused(3, 2));
    assert_eq!(end.take_refused(), refused(0, 0));
}

#[test]
fn frames_that_are_parsed_before_a_refusal_are_charged() {
    let memory = Memory { messages: MemoryBudget::new(0), ..Memory::default() };
    let mut end = Connection::new(&ConnectionConfig::default(), layout(), Role::Server, Some(&memory)).unwrap();
    for sequence in 0..200 {
        let now = Instant::from_start(Duration::from_millis(10 * u64::from(sequence)));
        // A slice without the first one of its message fills the reserve of the connection.
        let slice = [&[0xc1, 0x80 | (sequence % 100) as u8, 1, 0xac, 2, 0][..], &[7; 128]].concat();
        let datagram = datagram(sequence, &[hello(|_| ()), slice].concat());
        let _ = end.take_work_done();
        match end.handle(&datagram, Duration::ZERO, now) {
            Ok(Some(mut incoming)) => {
                while end.next_message(&datagram, &mut incoming, &mut Vec::new(), now).is_some() {}
            }
            Ok(None) => panic!("it has a frame"),
            Err(reject) => {
                assert_eq!(reject, Reject::Refused);
                let packet = PACKET_WORK + datagram.len() as u64 * BYTE_WORK;
                return assert_eq!(end.take_work_done(), packet + FRAME_WORK);
            }
        }
    }
    panic!("no packet was refused");
}
