//! The kernel's word on the simulator's: real datagrams through a bottleneck of `tc tbf`, with the real controller.
//!
//! The bounds are generous, because a busy machine delays datagrams as a path does; the figures are printed.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics when something is wrong")]
#![allow(clippy::print_stderr, reason = "figures, and why a test was skipped, are for whoever runs it")]

mod ends;
mod place;

use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ends::{Arrival, play};
use place::Place;
use slipgate_lab::source::{Game, Source};

/// One at a time: they would measure each other.
static ONE: Mutex<()> = Mutex::new(());

/// Says so past libtest, which keeps what passing tests print to itself.
fn skipped(reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED, the kernel's word on congestion avoidance: {reason}");
}

/// The place, or the reason why there is none.
fn place(name: &str, rate: &str, buffer: u32) -> Option<Place> {
    match Place::new(name, rate, buffer) {
        Ok(place) => Some(place),
        Err(reason) => {
            skipped(&format!("no network namespaces with a bottleneck: {reason}"));
            None
        }
    }
}

/// The share of a rate in bits per second that arrived between two seconds, and the delays' median and 95 %, in
/// milliseconds.
fn figures(arrivals: &[Arrival], from: f64, until: f64, rate: f64) -> (f64, f64, f64) {
    let within = |arrival: &&Arrival| (from..until).contains(&arrival.at.as_secs_f64());
    let bits: f64 = arrivals.iter().filter(within).map(|arrival| f64::from(arrival.bytes) * 8.0).sum();
    let mut delays: Vec<f64> =
        arrivals.iter().filter(within).map(|arrival| arrival.delay.as_secs_f64() * 1000.0).collect();
    delays.sort_by(f64::total_cmp);
    let at = |share: f64| delays.get((delays.len() as f64 * share) as usize).copied().unwrap_or(f64::INFINITY);
    (bits / (until - from) / rate, at(0.5), at(0.95))
}

#[test]
fn alone_on_four_megabits_the_path_is_used_and_quick() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(place) = place("x", "4mbit", 125_000) else { return };
    let arrivals = play(&place.sockets().unwrap(), Source::Bulk, Duration::from_secs(10)).unwrap();
    let (used, median, p95) = figures(&arrivals, 3.0, 10.0, 4e6);
    eprintln!("alone on 4M: {:.1} % used, delay {median:.1} ms, 95 % {p95:.1} ms", 100.0 * used);
    assert!(used > 0.8 && median < 60.0);
}

#[test]
fn a_fall_of_the_rate_is_followed_and_its_return_too() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(place) = place("y", "4mbit", 250_000) else { return };
    let sockets = place.sockets().unwrap();
    let arrivals = thread::scope(|scope| {
        let playing = scope.spawn(|| play(&sockets, Source::Bulk, Duration::from_secs(15)));
        thread::sleep(Duration::from_secs(5));
        place.set_rate("500kbit", 250_000).unwrap();
        thread::sleep(Duration::from_secs(5));
        place.set_rate("4mbit", 250_000).unwrap();
        playing.join().unwrap().unwrap()
    });
    let during = |from: f64, until: f64| arrivals.iter().filter(move |a| (from..until).contains(&a.at.as_secs_f64()));
    let peak = during(5.0, 10.0).map(|arrival| arrival.delay.as_millis()).max().unwrap();
    let (low, median, p95) = figures(&arrivals, 7.5, 10.0, 0.5e6);
    let (back, ..) = figures(&arrivals, 12.5, 15.0, 4e6);
    eprintln!(
        "4M, for 5 s 0.5M: peak {peak} ms, after 2.5 s {:.1} % used, delay {median:.1} ms, 95 % {p95:.1} ms; \
         2.5 s after the return {:.1} % used",
        100.0 * low,
        100.0 * back
    );
    assert!(low > 0.5 && median < 250.0 && back > 0.4);
}

#[test]
fn a_game_keeps_its_rate_beside_the_kernels_tcp() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for control in ["cubic", "bbr"] {
        let Some(place) = place(&control[..1], "10mbit", 312_500) else { return };
        let streams = match place.stream(control) {
            Ok(streams) => streams,
            Err(reason) => {
                skipped(&format!("the kernel has no {control}: {reason}"));
                continue;
            }
        };
        beside(control, &place, streams);
    }
}

fn beside(control: &str, place: &Place, (upload, download): (TcpStream, TcpStream)) {
    let sockets = place.sockets().unwrap();
    let done = AtomicBool::new(false);
    let (arrivals, received) = thread::scope(|scope| {
        let sink = scope.spawn(|| drain(download));
        scope.spawn(|| fill(upload, &done));
        let arrivals = play(&sockets, Source::Game(Game::of(1e6)), Duration::from_secs(12));
        done.store(true, Ordering::Relaxed);
        (arrivals.unwrap(), sink.join().unwrap())
    });
    let (served, median, p95) = figures(&arrivals, 4.0, 12.0, 1e6);
    eprintln!(
        "game of 1M against the kernel's {control} on 10M: {:.1} % served, delay {median:.1} ms, 95 % {p95:.1} ms; \
         {control} got {:.1} Mbit/s",
        100.0 * served,
        received as f64 * 8.0 / 12e6
    );
    assert!(served > 0.5);
}

fn fill(mut stream: TcpStream, done: &AtomicBool) {
    // A full path makes a write wait; it must not wait for ever.
    let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
    while !done.load(Ordering::Relaxed) {
        let _ = stream.write(&[0; 16 * 1024]);
    }
}

fn drain(mut stream: TcpStream) -> usize {
    let mut bytes = vec![0; 64 * 1024];
    let mut total = 0;
    while let Result::Ok(length @ 1..) = stream.read(&mut bytes) {
        total += length;
    }
    total
}
