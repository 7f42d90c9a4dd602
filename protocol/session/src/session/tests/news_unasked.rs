//! Packets whose fate nobody asks for.

use super::*;
use crate::reliability::Event;
use crate::session::Packets;

/// Four packets in each sixtieth of a second, for 20 seconds; answers how many arrived in the last five, the news that the
/// sender was told in the end, and its counters.
fn traffic(polls: bool) -> (u64, Vec<Event>, PathStats) {
    let [mut one, mut other] = [(); 2].map(|()| Packets::new(&Config::default(), None).unwrap());
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
            let came = other.handle(&datagram, &mut scratch, now).unwrap().is_some();
            arrived += u64::from(came && turn >= 900);
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
fn news_that_nobody_asks_for_does_not_change_the_rate() {
    let ((asked, ..), (unasked, news, stats)) = (traffic(true), traffic(false));
    assert!(asked >= 1190, "{asked}");
    assert_eq!(unasked, asked);
    assert_eq!(stats.endpoint.counters.lost, 0);
    // The newest news is kept, and the rest counted.
    let told = news.len() as u64;
    assert_eq!(told, 2048);
    assert_eq!(told + stats.endpoint.counters.untold_events, stats.endpoint.counters.acked);
}
