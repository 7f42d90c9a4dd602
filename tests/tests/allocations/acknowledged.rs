//! The memory of an acknowledged-packet endpoint, and no allocation after warm-up.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::reliability::{Endpoint, EndpointConfig, Sink};
use slipgate_tests::counting::{allocations, held};

/// A path with capacity for a few datagrams, at its final size from the start.
struct Path {
    datagrams: Vec<([u8; MAX_PAYLOAD_BYTES], usize)>,
    used: usize,
}

impl Path {
    fn new() -> Self {
        Self { datagrams: vec![([0; MAX_PAYLOAD_BYTES], 0); 64], used: 0 }
    }

    fn deliver(&mut self, to: &mut Endpoint, turn: u64, now: Instant) {
        for (index, (bytes, length)) in self.datagrams[..self.used].iter().enumerate() {
            // Some are lost, some arrive twice.
            for _ in 0..[1, 1, 1, 2, 1, 0, 1][(turn as usize * 3 + index) % 7] {
                let _ = to.handle(&bytes[..*length], now);
            }
        }
        self.used = 0;
    }
}

impl Sink for Path {
    fn remaining(&self) -> usize {
        self.datagrams.len() - self.used
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        self.datagrams.get_mut(self.used).map(|(bytes, _)| &mut bytes[..])
    }

    fn commit(&mut self, bytes: usize) {
        self.datagrams[self.used].1 = bytes;
        self.used += 1;
    }
}

/// Sends small packets one way and a large one the other way in each turn, so that all code runs.
fn talk(ends: &mut [Endpoint; 2], paths: &mut [Path; 2], turns: std::ops::Range<u64>) -> u64 {
    let payload = [0x5a; 8000];
    let mut news = 0;
    for turn in turns {
        let now = Instant::from_start(Duration::from_millis(turn * 10));
        let [one, other] = ends;
        let [there, back] = paths;
        for _ in 0..1 + turn % 5 {
            one.send(&payload[..100], now, there).unwrap();
        }
        let fill = |buf: &mut [u8]| {
            buf[..50].fill(7);
            50
        };
        one.send_with(now, there, fill).unwrap();
        if turn % 4 == 0 {
            other.send(&payload, now, back).unwrap();
        }
        for (end, path) in [(&mut *one, &mut *there), (&mut *other, &mut *back)] {
            end.tick(now);
            end.transmit(now, path);
            while end.poll_event().is_some() {
                news += 1;
            }
            std::hint::black_box(end.stats(now));
        }
        there.deliver(other, turn, now);
        back.deliver(one, turn, now);
    }
    news
}

#[test]
fn no_allocation_after_warm_up() {
    let config = EndpointConfig::default();
    let mut ends = [Endpoint::new(config.clone(), None).unwrap(), Endpoint::new(config, None).unwrap()];
    let mut paths = [Path::new(), Path::new()];
    talk(&mut ends, &mut paths, 0..500);
    let mut news = 0;
    assert_eq!(allocations(|| news = talk(&mut ends, &mut paths, 500..20_000)), 0);
    assert!(news > 50_000, "only {news} events");
}

#[test]
fn endpoint_memory_grows_with_packets_in_flight() {
    let (mut one, idle) = held(|| Endpoint::new(EndpointConfig::default(), None).unwrap());
    let idle = idle as usize + size_of::<Endpoint>();
    println!("idle: {idle} bytes, {} of them inline", size_of::<Endpoint>());
    assert!(idle <= 2048, "{idle} bytes");

    // The stream of a game for ten minutes: 60 packets per second in both directions, acknowledged after a tenth of a
    // second.
    let mut other = Endpoint::new(EndpointConfig::default(), None).unwrap();
    let mut paths = [Path::new(), Path::new()];
    let ((), steady) = held(|| {
        for turn in 0..36_000_u64 {
            let now = Instant::from_start(Duration::from_micros(turn * 16_667));
            let (path, way_back) = (&mut paths[0], turn % 6 == 5);
            one.send(&[1; 100], now, path).unwrap();
            path.deliver(&mut other, 0, now);
            if way_back {
                other.send(&[2; 100], now, path).unwrap();
                path.deliver(&mut one, 0, now);
            }
            for end in [&mut one, &mut other] {
                end.tick(now);
                while end.poll_event().is_some() {}
            }
        }
    });
    println!("two endpoints in a steady stream: {steady} additional bytes");
    assert!(steady <= 2 * 4096, "{steady} bytes");
}
