//! Measures the cost of the acknowledged-packet endpoint: `cargo bench -p slipgate-tests --bench acknowledged`.
//!
//! With `--json`, which `cargo bench -p slipgate-tests -- --json` passes to every benchmark, the lines go to stderr:
//! stdout holds only the JSON document of the datapath benchmark.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program for developers"
)]

use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use slipgate_netcode::time::Instant;
use slipgate_session::reliability::{Endpoint, EndpointConfig, Sink};

const FRAME: Duration = Duration::from_micros(16_667);

/// Buffers for the datagrams of one packet.
struct Path {
    datagrams: Vec<(Vec<u8>, usize)>,
    used: usize,
}

impl Path {
    fn new() -> Self {
        Self { datagrams: vec![(vec![0; 1200], 0); 16], used: 0 }
    }

    fn deliver(&mut self, to: &mut Endpoint, now: Instant) {
        for (bytes, length) in &self.datagrams[..self.used] {
            let _ = black_box(to.handle(&bytes[..*length], now));
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

fn say(line: &str) {
    if std::env::args().any(|argument| argument == "--json") {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}

fn measure(what: &str, times: u32, mut act: impl FnMut(Instant)) {
    for round in [times / 10, times] {
        let began = Clock::now();
        for time in 0..round {
            act(Instant::from_start(FRAME * time));
        }
        if round == times {
            say(&format!("{what:<60} {:>9.1} ns", began.elapsed().as_secs_f64() * 1e9 / f64::from(times)));
        }
    }
}

fn talk(one: &mut Endpoint, other: &mut Endpoint, path: &mut Path, payload: &[u8], now: Instant) {
    one.send(payload, now, path).unwrap();
    path.deliver(other, now);
    other.send(&payload[..100], now, path).unwrap();
    path.deliver(one, now);
    for end in [one, other] {
        end.tick(now);
        while black_box(end.poll_event()).is_some() {}
    }
}

fn main() {
    let config = EndpointConfig { sent_window: 256, received_window: 256, ..EndpointConfig::default() };
    let mut one = Endpoint::new(config.clone(), None).unwrap();
    let mut other = Endpoint::new(config, None).unwrap();
    let mut path = Path::new();
    measure("  a packet of 100 bytes there and one back, all included", 200_000, |now| {
        talk(&mut one, &mut other, &mut path, &[1; 100], now);
    });
    measure("  the same with 16,000 bytes in 16 fragments there", 50_000, |now| {
        talk(&mut one, &mut other, &mut path, &[1; 16_000], now);
    });
    let later = Instant::from_start(FRAME * 300_000);
    one.tick(later);
    measure("  an idle endpoint's tick", 1_000_000, |_| black_box(&mut one).tick(black_box(later)));
    measure("  an idle endpoint's turn: tick, transmit, poll_event", 1_000_000, |_| {
        let one = black_box(&mut one);
        one.tick(later);
        one.transmit(later, &mut path);
        black_box(one.poll_event());
    });
    measure("  stats", 100_000, |_| {
        black_box(black_box(&one).stats(later));
    });
}
