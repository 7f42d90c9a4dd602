//! How much memory an acknowledged-packet endpoint takes, and that it asks for none after warm-up.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::reliability::{Config, Endpoint, ReferenceSmoothing, Sink, Statistics};
use slipgate_tests::counting::{allocations, held};

/// A path that holds a few datagrams, and is as large as it will ever be from the start.
struct Path {
    datagrams: Vec<([u8; MAX_PAYLOAD_BYTES], usize)>,
    used: usize,
}

impl Path {
    fn new() -> Self {
        Self { datagrams: vec![([0; MAX_PAYLOAD_BYTES], 0); 64], used: 0 }
    }

    fn deliver(&mut self, to: &mut Endpoint, turn: u64, now: Instant) {
        for (place, (bytes, length)) in self.datagrams[..self.used].iter().enumerate() {
            // Some are lost, some come twice.
            for _ in 0..[1, 1, 1, 2, 1, 0, 1][(turn as usize * 3 + place) % 7] {
                let _ = to.handle(&bytes[..*length], now);
            }
        }
        self.used = 0;
    }
}

impl Sink for Path {
    fn rooms(&self) -> usize {
        self.datagrams.len() - self.used
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.datagrams.get_mut(self.used).map(|(bytes, _)| &mut bytes[..])
    }

    fn commit(&mut self, bytes: usize) {
        self.datagrams[self.used].1 = bytes;
        self.used += 1;
    }
}

/// Sends, in each turn, small packets one way and a large one the other way, so that all code is reached.
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
        let fill = |room: &mut [u8]| {
            room[..50].fill(7);
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
fn after_warm_up_nothing_is_allocated() {
    for statistics in [Statistics::Seed, Statistics::Reference(ReferenceSmoothing::default())] {
        let config = Config { statistics, ..Config::default() };
        let mut ends = [Endpoint::new(config.clone()).unwrap(), Endpoint::new(config).unwrap()];
        let mut paths = [Path::new(), Path::new()];
        talk(&mut ends, &mut paths, 0..500);
        let mut news = 0;
        assert_eq!(allocations(|| news = talk(&mut ends, &mut paths, 500..20_000)), 0, "{statistics:?}");
        assert!(news > 50_000, "only {news} verdicts");
    }
}

#[test]
fn an_endpoint_takes_little_memory_for_itself_and_more_as_packets_are_under_way() {
    let (mut one, idle) = held(|| Endpoint::new(Config::default()).unwrap());
    let idle = idle as usize + size_of::<Endpoint>();
    println!("idle: {idle} bytes, {} of them in place", size_of::<Endpoint>());
    assert!(idle <= 2048, "{idle} bytes");

    // A game's stream for ten minutes: 60 packets a second each way, acknowledged after a tenth of a second.
    let mut other = Endpoint::new(Config::default()).unwrap();
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
    println!("two in a steady stream: {steady} bytes more");
    assert!(steady <= 2 * 4096, "{steady} bytes");
}
