//! Packet events that the application does not poll.

use super::*;
use crate::connection::packets::PacketConnection;
use crate::reliability::PacketEvent;

/// Sends four packets per tick of 1/60 s, for 20 s. Returns how many arrived in the last 5 s, the events that the
/// sender has in the end, and its statistics.
fn traffic(polls: bool) -> (u64, Vec<PacketEvent>, PathStats) {
    let [mut one, mut other] = [(); 2].map(|()| PacketConnection::new(&ConnectionConfig::default(), None).unwrap());
    let [mut up, mut down] = [(); 2].map(|()| Datagrams::default());
    let (mut scratch, mut arrived, mut now) = (Vec::new(), 0, Instant::default());
    for turn in 0..1200 {
        now = now.after(Duration::from_micros(16_667));
        for datagram in core::mem::take(&mut down.sent) {
            one.handle(&datagram, &mut scratch, now).unwrap();
        }
        one.tick(now);
        for _ in 0..4 {
            let _ = one.send(&[7; 800], now, &mut up);
        }
        for datagram in core::mem::take(&mut up.sent) {
            let has_arrived = other.handle(&datagram, &mut scratch, now).unwrap().is_some();
            arrived += u64::from(has_arrived && turn >= 900);
        }
        other.tick(now);
        while other.poll_event().is_some() {}
        other.transmit(now, &mut down);
        while polls && one.poll_event().is_some() {}
    }
    let stats = one.stats(now);
    (arrived, core::iter::from_fn(|| one.poll_event()).collect(), stats)
}

#[test]
fn unpolled_events_do_not_change_the_rate() {
    let ((polled, ..), (unpolled, events, stats)) = (traffic(true), traffic(false));
    assert!(polled >= 1190, "{polled}");
    assert_eq!(unpolled, polled);
    assert_eq!(stats.endpoint.counters.lost, 0);
    // The newest events are kept, and the others counted.
    let kept = events.len() as u64;
    assert_eq!(kept, 2048);
    assert_eq!(kept + stats.endpoint.counters.dropped_events, stats.endpoint.counters.acked);
}
