//! The work that the packets of a peer are charged (§5.11).

use super::*;
use crate::connection::work_budget::{BYTE_WORK, CONTROL_BYTE_WORK, FRAME_WORK, MESSAGE_WORK, PACKET_WORK};

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
