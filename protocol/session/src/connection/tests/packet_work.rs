//! The work that the packets of a peer are charged (§5.11).

use super::*;
use crate::channel::transfer::frame::{TransferBegin, TransferFrame};
use crate::channel::transfer::{ContentDigest, TransferAdmission, TransferConfig, TransferId};
use crate::channel::{MAX_QUEUE_MESSAGES, steps};
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
    SessionFrame { sent: Timestamp(7), nonces: AckNonces::default(), arrived: None, extended_acks: &extended_acks }
        .emit(&mut writer);
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
    let datagram = datagram(0, &[]);
    let refused = |over_budget, not_taken| RefusedPackets { over_budget, not_taken };

    end.handle(&datagram, Duration::ZERO, now).unwrap();
    assert_eq!(end.take_refused(), refused(0, 0), "the budget is not used up yet");
    for _ in 0..3 {
        assert_eq!(end.handle(&datagram, Duration::ZERO, now).unwrap_err(), Reject::OverBudget);
    }
    end.set_intake(Intake::Refused);
    for _ in 0..2 {
        assert_eq!(end.handle(&datagram, Duration::ZERO, now).unwrap_err(), Reject::NotTaken);
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

#[test]
fn events_of_transfers_are_charged_as_messages() {
    let transfers = TransferConfig { admission: TransferAdmission::Ask, ..TransferConfig::default() };
    let channel = ChannelConfig { transfers, ..ChannelConfig::from(Kind::Transfers) };
    let layout = Arc::new(Layout::try_from(vec![channel]).unwrap());
    let limits = WorkLimits { per_message: Duration::from_nanos(700), ..WorkLimits::default() };
    let config = ConnectionConfig { work: limits, ..ConnectionConfig::default() };
    let mut end = connection(&config, Arc::clone(&layout));
    let begin = |id| {
        let digest = ContentDigest([3; 32]);
        TransferFrame::Begin(TransferBegin { id: TransferId(id), slice_bytes: 512, length: 9000, label: 1, digest })
    };
    let frames = [0, 1, 2].map(|id| {
        let mut buf = [0; 100];
        let bytes = begin(id).write(&mut buf).unwrap();
        [&[1, bytes as u8][..], &buf[..bytes]].concat()
    });
    let datagram = datagram(0, &[hello(|hello| hello.layout = layout.hash()), frames.concat()].concat());
    let mut cursor = end.handle(&datagram, Duration::ZERO, Instant::default()).unwrap().unwrap();
    assert_eq!(end.next_message(&datagram, &mut cursor, &mut Vec::new(), Instant::default()), None);
    let _ = end.take_work_done();
    let events = core::iter::from_fn(|| end.poll_event()).count() as u64;
    assert_eq!((events, end.take_work_done()), (3, 3 * (MESSAGE_WORK + 700)));
    // Polls without a change visit none of the transfers.
    assert_eq!(steps::of(|| assert!((0..100).all(|_| end.poll_event().is_none()))), 0);
}

/// The ids of two windows that stay missing: the oldest one, and one between the others.
const MISSING: [u32; 2] = [0, 8000];
/// The ids that are missing at the end of both windows.
const AT_THE_END: u32 = 50;

/// Returns frames of messages without content on a channel.
fn empty_messages(channel: u8, ids: impl Iterator<Item = u32>) -> Vec<u8> {
    let (mut frames, mut last) = (Vec::new(), 0);
    for id in ids {
        let delta = id - core::mem::replace(&mut last, id);
        let number: &[u8] = if delta < 0x80 { &[delta as u8] } else { &[0x80 | delta as u8, (delta >> 7) as u8] };
        frames.extend([&[channel + 1], number, &[0]].concat());
    }
    frames
}

/// Returns an end with two ordered windows of 16,384 messages, all complete but those above. Their lists take all of
/// the shared memory, and the 16 KiB of the connection's own. Returns the number of the next packet, too.
fn with_full_windows() -> (Connection, u16, Arc<Layout>) {
    let config = ChannelConfig { queue_messages: MAX_QUEUE_MESSAGES, ..ChannelConfig::from(Kind::ReliableOrdered) };
    let layout = Arc::new(Layout::try_from(vec![config; 2]).unwrap());
    let memory = Memory { messages: MemoryBudget::new(2 * 16 * (16_384 - 16) - (16 << 10)), ..Memory::default() };
    let config = ConnectionConfig { work: WorkLimits::UNLIMITED, ..ConnectionConfig::default() };
    let mut end = Connection::new(&config, Arc::clone(&layout), Role::Server, Some(&memory)).unwrap();
    let hello = hello(|hello| hello.layout = layout.hash());
    let ids: Vec<_> = (0..16_384 - AT_THE_END).filter(|id| !MISSING.contains(id)).collect();
    let mut sequence = 0;
    for (channel, ids) in (0..2).flat_map(|channel| ids.chunks(300).map(move |ids| (channel, ids))) {
        let datagram = datagram(sequence, &[&hello[..], &empty_messages(channel, ids.iter().copied())].concat());
        let mut cursor = end.handle(&datagram, Duration::ZERO, Instant::default()).unwrap().unwrap();
        assert_eq!(end.next_message(&datagram, &mut cursor, &mut Vec::new(), Instant::default()), None);
        sequence += 1;
    }
    assert_eq!((end.close_reason(), memory.messages.left()), (None, 0));
    (end, sequence, layout)
}

#[test]
fn packets_before_full_windows_cost_no_more_than_their_charge() {
    let (mut end, first, layout) = with_full_windows();
    let hello = hello(|hello| hello.layout = layout.hash());
    // Each packet settles both windows, and needs more memory than there is.
    let needs_memory = [&[1, 0x80 | 80, 127, 1, b'x'][..], &[1, 1, 1, b'x'].repeat(40)].concat();
    let settling = [0, 1].map(|channel| empty_messages(channel, MISSING.into_iter())).concat();
    let behind = [&hello[..], &needs_memory, &settling].concat();
    for (reject, is_fresh) in [(Reject::Duplicate, false), (Reject::Refused, true)] {
        let (_, mut expected) = (end.take_work_done(), 0);
        // Neither the control messages of a refused packet are read, nor the frames of a duplicate.
        let of_content = if is_fresh { 45 * FRAME_WORK } else { hello.len() as u64 * CONTROL_BYTE_WORK };
        let taken = steps::of(|| {
            for number in 0..1000 {
                let datagram = datagram(if is_fresh { first + number } else { 0 }, &behind);
                expected += PACKET_WORK + datagram.len() as u64 * BYTE_WORK + of_content;
                let handled = end.handle(&datagram, Duration::ZERO, Instant::default());
                assert_eq!(handled.map(|_| ()), Err(reject));
            }
        });
        let work = end.take_work_done();
        assert_eq!(work, expected, "{reject:?}");
        assert!(taken as u64 * 20 <= work, "{taken} steps for {work} ns ({reject:?})");
    }
}
