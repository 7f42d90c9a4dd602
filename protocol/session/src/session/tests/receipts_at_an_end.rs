//! A message of which its sender hears that it arrived was read, however the connection ends.

use super::*;
use crate::channel::{ChannelEvent, Fate};

impl Pair {
    fn ask(&mut self, from: usize, channel: ChannelId, tag: u64) {
        let options = SendOptions { receipt: Some(tag), ..SendOptions::default() };
        self.ends[from].send(channel, &tag.to_le_bytes(), options, self.now).unwrap();
    }

    /// The tags of messages that arrived, as their sender is told.
    fn told_arrived(&mut self, end: usize) -> Vec<u64> {
        let events = core::iter::from_fn(|| self.ends[end].poll_event());
        let arrived = events.filter_map(|event| match event {
            ChannelEvent::Receipt { tag, fate: Fate::Arrived, .. } => Some(tag),
            _ => None,
        });
        arrived.collect()
    }
}

#[test]
fn nobody_is_told_that_a_message_arrived_which_came_behind_the_end() {
    for channel in [CHAT, STATE] {
        let mut pair = Pair::greeted();
        pair.ask(1, channel, 1);
        pair.run(100);
        assert_eq!((pair.told_arrived(1), pair.received[0].len()), (vec![1], 1));
        pair.ends[0].leave(ByeCode(300), "good night");
        for tag in 2..6 {
            pair.pass(100);
            pair.ask(1, channel, tag);
            for datagram in pair.turn(1) {
                pair.give(0, &datagram).unwrap();
            }
            let farewells = pair.turn(0);
            assert!(!farewells.is_empty());
            // Only the last of them is not lost.
            for farewell in farewells.iter().filter(|_| tag == 5) {
                pair.give(1, farewell).unwrap();
            }
        }
        pair.run(20);
        assert!(pair.ends.iter().all(Connection::is_over), "the farewell itself was acknowledged");
        assert_eq!((pair.told_arrived(1), pair.received[0].len()), (vec![], 1));
    }
}

#[test]
fn nobody_is_told_that_a_message_arrived_at_a_peer_with_other_channels() {
    let mut pair = Pair::with(layout(), other_layout());
    pair.ask(0, CHAT, 1);
    pair.ask(1, CHAT, 2);
    pair.run(200);
    assert!(pair.ends.iter().all(Connection::is_over));
    assert_eq!((pair.told_arrived(0), pair.told_arrived(1)), (vec![], vec![]));
    assert!(pair.received.iter().all(Vec::is_empty));
}

#[test]
fn messages_before_a_greeting_are_not_acknowledged() {
    let message = [0x81, 0, 0, b'x'];
    for (behind_frame, acknowledged) in [(message.to_vec(), 0), ([hello(|_| ()), message.to_vec()].concat(), 1)] {
        let mut pair = Pair::new();
        let _ = pair.give(0, &datagram(0, &behind_frame));
        pair.pass(50);
        let sent = pair.turn(0);
        let (header, _) = Header::parse(&sent[0]).unwrap();
        assert_eq!(header.acks.arrived().count(), acknowledged, "{behind_frame:?}");
    }
}
