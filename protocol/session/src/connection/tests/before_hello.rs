//! What may arrive before the peer's hello, and what shows that the peer runs no session.

use super::*;

/// Returns the kind of close after these datagrams arrived first.
fn close_after(datagrams: impl IntoIterator<Item = Vec<u8>>) -> Option<CloseKind> {
    let mut end = connection(&ConnectionConfig::default(), layout());
    for datagram in datagrams {
        let _ = end.handle(&datagram, Duration::ZERO, Instant::default());
    }
    end.close_reason().map(|reason| reason.kind)
}

#[test]
fn zeros_of_any_length_end_a_session_at_once() {
    for bytes in 1..=1200 {
        assert_eq!(close_after([vec![0; bytes]]), Some(CloseKind::NotASession), "{bytes}");
    }
}

#[test]
fn malformed_control_messages_end_as_violation_behind_a_hello() {
    let cut = [0, 1, 3, 1, 1];
    assert_eq!(close_after([datagram(0, &cut)]), Some(CloseKind::NotASession));
    let behind = datagram(0, &[&hello(|_| ())[..], &cut].concat());
    assert!(matches!(close_after([behind]), Some(CloseKind::Violation(_))));
    let later = [datagram(0, &hello(|_| ())), datagram(1, &cut)];
    assert!(matches!(close_after(later), Some(CloseKind::Violation(_))));
}

#[test]
fn acknowledgements_overtake_the_hello_of_an_honest_peer() {
    let mut pair = Pair::new();
    let delayed = pair.turn(0);
    for number in 0..400_u32 {
        pair.send(1, STATE, &number.to_le_bytes());
        for datagram in pair.turn(1) {
            pair.deliver(0, &datagram).unwrap();
        }
        pair.pass(25);
        // Packets with content carry the hello: only acknowledgements arrive.
        for datagram in pair.turn(0).iter().filter(|datagram| datagram.len() < 20) {
            pair.deliver(1, datagram).unwrap();
        }
        assert_eq!(pair.ends[1].close_reason(), None, "{number}");
    }
    assert!(pair.ends[1].stats(pair.now).endpoint.counters.received > 100);
    pair.deliver(1, &delayed[0]).unwrap();
    pair.send(0, CHAT, b"hi");
    pair.run(1000);
    assert_eq!(pair.received[1], [b"hi".to_vec()]);
}

#[test]
fn half_a_minute_of_acks_without_a_hello_ends_a_session() {
    let mut end = connection(&ConnectionConfig::default(), layout());
    for tenth in 0..301_u16 {
        assert_eq!(end.close_reason(), None, "{tenth}");
        // It acknowledges nothing, so that nothing else is wrong with it.
        let now = Instant::from_start(Duration::from_millis(100 * u64::from(tenth)));
        let _ = end.handle(&datagram(tenth, &[]), Duration::ZERO, now);
    }
    assert_eq!(end.close_reason().map(|reason| reason.kind), Some(CloseKind::NotASession));
}
