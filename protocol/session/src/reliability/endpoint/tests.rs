use core::time::Duration;
use std::vec;
use std::vec::Vec;

use slipgate_netcode::time::Instant;

use super::Endpoint;
use crate::congestion::SessionPacketKind::AckOnly;
use crate::reliability::{Acceptance, AckPolicy, EndpointConfig, PacketEvent, PacketEvents, Sink};
use crate::wire::reliable::Sequence;

/// Keeps the datagrams in the order of sending.
#[derive(Default)]
struct Datagrams {
    buf: Vec<u8>,
    sent: Vec<Vec<u8>>,
}

impl Sink for Datagrams {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        self.buf = vec![0; 1 << 16];
        Some(&mut self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        self.sent.push(self.buf[..bytes].to_vec());
    }
}

#[test]
fn ack_only_packet_is_not_acked_but_is_processed() {
    let config = EndpointConfig { acks: Some(AckPolicy::default()), ..EndpointConfig::default() };
    let (mut alice, mut bob) = (Endpoint::new(config.clone(), None).unwrap(), Endpoint::new(config, None).unwrap());
    let (mut wire, now) = (Datagrams::default(), Instant::default());
    let fill = |buf: &mut [u8]| {
        buf[0] = 7;
        1
    };
    let mut none = PacketEvents::new(0);
    let header = alice.next_header();
    alice.core.send_framed(header, AckOnly, now, &mut wire, &mut none, fill).unwrap();
    bob.handle_if(&wire.sent[0], now, |_| Acceptance::TakeAckOnly).unwrap();
    let later = Instant::from_start(Duration::from_secs(3));
    let mut ack_only = Datagrams::default();
    bob.transmit(later, &mut ack_only);
    assert!(ack_only.sent.is_empty(), "no acknowledgement is pending");
    alice.tick(later);
    assert_eq!(alice.poll_event(), None, "it is not declared lost");

    for _ in 0..100 {
        alice.send(b"data", later, &mut wire).unwrap();
    }
    for datagram in &wire.sent[1..] {
        bob.handle(datagram, later).unwrap();
    }
    let mut bits = [0; 28];
    let bytes = bob.core.tracker.extended_acks(&mut bits);
    let ack = bob.next_header().acks.ack;
    let mut back = Datagrams::default();
    let header = bob.next_header();
    bob.core.send_framed(header, AckOnly, later, &mut back, &mut none, fill).unwrap();
    bob.core.tracker.extended_acks_sent(bytes);
    let mut ack_only = Datagrams::default();
    bob.transmit(Instant::from_start(Duration::from_secs(9)), &mut ack_only);
    assert!(ack_only.sent.is_empty(), "one packet acknowledged all");
    alice.handle(&back.sent[0], later).unwrap();
    alice.on_extended_acks(ack, &bits[..bytes], later);
    let acked =
        std::iter::from_fn(|| alice.poll_event()).filter(|event| matches!(event, PacketEvent::Acked { .. })).count();
    assert_eq!(acked, 100);
    alice.on_extended_acks(Sequence(5000), &[0xff; 28], later);
    assert_eq!(alice.stats(later).counters.acks_of_unsent, 1, "invalid acknowledgements are counted");
}
