//! A message that is reported as arrived was read, however the connection ends.

use super::*;
use crate::channel::{ChannelEvent, DeliveryStatus};

impl Pair {
    fn send_with_receipt(&mut self, from: usize, channel: ChannelId, tag: u64) {
        let options = SendOptions { receipt: Some(tag), ..SendOptions::default() };
        self.ends[from].send(channel, &tag.to_le_bytes(), options, self.now).unwrap();
    }

    /// Returns the tags of messages that an end reports as arrived.
    fn arrived_receipts(&mut self, end: usize) -> Vec<u64> {
        let events = core::iter::from_fn(|| self.ends[end].channels.poll_event());
        let arrived = events.filter_map(|event| match event {
            ChannelEvent::Receipt { tag, status: DeliveryStatus::Arrived, .. } => Some(tag),
            _ => None,
        });
        arrived.collect()
    }
}

#[test]
fn messages_behind_the_close_are_not_reported_as_arrived() {
    for channel in [CHAT, STATE] {
        let mut pair = Pair::connected();
        pair.send_with_receipt(1, channel, 1);
        pair.run(100);
        assert_eq!((pair.arrived_receipts(1), pair.received[0].len()), (vec![1], 1));
        pair.ends[0].close(CloseCode(300), "good night");
        for tag in 2..6 {
            pair.pass(100);
            pair.send_with_receipt(1, channel, tag);
            for datagram in pair.turn(1) {
                pair.deliver(0, &datagram).unwrap();
            }
            let closes = pair.turn(0);
            assert!(!closes.is_empty());
            // All but the last close message are lost.
            for close in closes.iter().filter(|_| tag == 5) {
                pair.deliver(1, close).unwrap();
            }
        }
        pair.run(20);
        assert!(pair.ends.iter().all(Connection::is_closed), "the close message was acknowledged");
        assert_eq!((pair.arrived_receipts(1), pair.received[0].len()), (vec![], 1));
    }
}

#[test]
fn messages_to_another_layout_are_not_reported_as_arrived() {
    let mut pair = Pair::with(layout(), other_layout());
    pair.send_with_receipt(0, CHAT, 1);
    pair.send_with_receipt(1, CHAT, 2);
    pair.run(200);
    assert!(pair.ends.iter().all(Connection::is_closed));
    assert_eq!((pair.arrived_receipts(0), pair.arrived_receipts(1)), (vec![], vec![]));
    assert!(pair.received.iter().all(Vec::is_empty));
}

#[test]
fn messages_before_a_hello_are_not_acknowledged() {
    let message = [0x81, 0, 0, b'x'];
    for (behind_frame, acknowledged) in [(message.to_vec(), 0), ([hello(|_| ()), message.to_vec()].concat(), 1)] {
        let mut pair = Pair::new();
        let _ = pair.deliver(0, &datagram(0, &behind_frame));
        pair.pass(50);
        let sent = pair.turn(0);
        let (header, _) = ReliableHeader::parse(&sent[0]).unwrap();
        assert_eq!(header.acks.arrived().count(), acknowledged, "{behind_frame:?}");
    }
}
