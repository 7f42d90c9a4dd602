//! Measures the cost of the acknowledged-packet endpoint, beside the crate `reliable`: `cargo bench -p slipgate-tests
//! --bench acknowledged`.
//!
//! `-- ours` and `-- theirs` run the comparison for one of them, for a profiler.
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

/// Packets that each end sends in a tick of the comparison.
const PACKETS: u32 = 32;
const PAYLOAD: [u8; 100] = [1; 100];

/// Both ends send 32 packets in each tick. Returns the time of a packet that is sent, received and acknowledged.
fn measure_ours(ticks: u32) -> Duration {
    let end = || Endpoint::new(EndpointConfig::default(), None).unwrap();
    let mut ends = [end(), end()];
    let mut paths = [(); 2].map(|()| Path { datagrams: vec![(vec![0; 1200], 0); PACKETS as usize * 2], used: 0 });
    let (start, mut acked) = (Clock::now(), 0);
    for tick in 0..ticks {
        let now = Instant::from_start(FRAME * tick);
        for (end, path) in ends.iter_mut().zip(&mut paths) {
            for _ in 0..PACKETS {
                end.send(&PAYLOAD, now, path).unwrap();
            }
        }
        for (path, index) in paths.iter_mut().zip([1, 0]) {
            path.deliver(&mut ends[index], now);
        }
        for end in &mut ends {
            end.tick(now);
            while black_box(end.poll_event()).is_some() {
                acked += 1;
            }
        }
    }
    // The first end sees the packets of the other one only after it has sent its own.
    assert!(acked + 2 * PACKETS >= 2 * PACKETS * ticks, "{acked}");
    start.elapsed() / (2 * PACKETS * ticks)
}

/// The same with the crate `reliable`.
fn measure_theirs(ticks: u32) -> Duration {
    let end = || reliable::Endpoint::new(reliable::Config::default(), 0.0);
    let mut ends = [end(), end()];
    let mut paths = [(); 2].map(|()| Path { datagrams: vec![(vec![0; 1200], 0); PACKETS as usize * 2], used: 0 });
    let (start, mut acked) = (Clock::now(), 0);
    for tick in 0..ticks {
        let now = (FRAME * tick).as_secs_f64();
        for (end, path) in ends.iter_mut().zip(&mut paths) {
            for _ in 0..PACKETS {
                end.send_packet(&PAYLOAD, |_, datagram| {
                    path.next_buf().unwrap()[..datagram.len()].copy_from_slice(datagram);
                    path.commit(datagram.len());
                });
            }
        }
        for (path, index) in paths.iter_mut().zip([1, 0]) {
            for (bytes, length) in &path.datagrams[..path.used] {
                ends[index].receive_packet(&bytes[..*length], |_, payload| !black_box(payload).is_empty());
            }
            path.used = 0;
        }
        for end in &mut ends {
            end.update(now);
            acked += end.drain_acks().map(black_box).count() as u32;
        }
    }
    assert!(acked + 2 * PACKETS >= 2 * PACKETS * ticks, "{acked}");
    start.elapsed() / (2 * PACKETS * ticks)
}

/// Measures both in turns. The ratio is the median of the ratios.
fn compare() {
    let mut rounds: Vec<[f64; 2]> =
        (0..15).map(|_| [measure_ours(2000), measure_theirs(2000)].map(|cost| cost.as_secs_f64() * 1e9)).collect();
    rounds.sort_by(|a, b| f64::total_cmp(&(a[0] / a[1]), &(b[0] / b[1])));
    let [ours, theirs] = rounds[rounds.len() / 2];
    say(&format!("{:<60} {ours:>9.1} ns", "  a packet sent and acknowledged, 32 a tick"));
    say(&format!("{:<60} {theirs:>9.1} ns  ({:.2}x)", "  the same with the crate reliable", ours / theirs));
}

fn main() {
    let includes = |name: &str| std::env::args().any(|argument| argument == name);
    if includes("ours") || includes("theirs") {
        let cost = if includes("ours") { measure_ours(500) } else { measure_theirs(500) };
        return say(&format!("{cost:?}"));
    }
    compare();
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
