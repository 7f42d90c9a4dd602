//! Checks the simulator against the kernel: real datagrams through a bottleneck of `tc tbf`, with the real controller.
//!
//! The bounds are measured values with a margin; the figures are printed.

#![allow(clippy::print_stderr, reason = "figures and skipped tests are reported to the user")]

pub(crate) mod attempts;
pub(crate) mod bottleneck;
mod ends;
pub(crate) mod tcp;

use std::thread;
use std::time::Duration;

use self::attempts::{Attempt, bottleneck, is_left_out, once_in_three, skipped};
use self::bottleneck::Bottleneck;
use self::ends::{Arrival, Played, play};
use self::tcp::beside_tcp;
use slipgate_lab::source::{Game, Source};

/// Returns the share of a rate in bits per second that arrived between two seconds, and the median and the 95th
/// percentile of the latency in milliseconds.
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
fn lone_sender_fills_4_mbit_with_low_latency() {
    once_in_three(|| {
        let bottleneck = bottleneck("x", "4mbit", 125_000)?;
        let played = play(&bottleneck.sockets().unwrap(), Source::Bulk, Duration::from_secs(10)).unwrap();
        let (used, median, p95) = figures(&played.arrivals, 3.0, 10.0, 4e6);
        let dropped = bottleneck.dropped().unwrap();
        eprintln!(
            "alone on 4M: {:.1} % used, delay {median:.1} ms, 95 % {p95:.1} ms, {dropped} packets dropped",
            100.0 * used
        );
        Some(Attempt { within: used >= 0.97 && median <= 20.0 && p95 <= 20.0, kept_waiting: played.kept_waiting })
    });
}

#[test]
fn controller_follows_a_rate_drop_and_its_recovery() {
    if is_left_out() {
        return;
    }
    once_in_three(|| {
        let bottleneck = bottleneck("y", "4mbit", 250_000)?;
        let Played { arrivals, kept_waiting } = over_a_fall(&bottleneck);
        let during = arrivals.iter().filter(|arrival| (5.0..10.0).contains(&arrival.at.as_secs_f64()));
        let peak = during.map(|arrival| arrival.delay.as_millis()).max().unwrap();
        let (low, median, p95) = figures(&arrivals, 7.5, 10.0, 0.5e6);
        let (back, ..) = figures(&arrivals, 12.5, 15.0, 4e6);
        eprintln!(
            "4M, for 5 s 0.5M: peak {peak} ms, after 2.5 s {:.1} % used, delay {median:.1} ms, 95 % {p95:.1} ms; \
             2.5 s after the return {:.1} % used",
            100.0 * low,
            100.0 * back
        );
        let within = peak <= 900 && low >= 0.95 && median <= 40.0 && p95 <= 45.0 && back >= 0.88;
        Some(Attempt { within, kept_waiting })
    });
}

fn over_a_fall(bottleneck: &Bottleneck) -> Played {
    let sockets = bottleneck.sockets().unwrap();
    thread::scope(|scope| {
        let playing = scope.spawn(|| play(&sockets, Source::Bulk, Duration::from_secs(15)));
        thread::sleep(Duration::from_secs(5));
        bottleneck.set_rate("500kbit", 250_000).unwrap();
        thread::sleep(Duration::from_secs(5));
        bottleneck.set_rate("4mbit", 250_000).unwrap();
        playing.join().unwrap().unwrap()
    })
}

#[test]
fn game_keeps_its_rate_beside_kernel_cubic() {
    if is_left_out() {
        return;
    }
    once_in_three(|| beside("cubic", 0.95));
}

#[test]
fn game_keeps_its_rate_beside_kernel_bbr() {
    if is_left_out() {
        return;
    }
    once_in_three(|| beside("bbr", 0.85));
}

/// Runs a game of 1 Mbit/s, of which at least the share `min` must arrive, beside a TCP on 10 Mbit/s, if the kernel
/// has this TCP.
fn beside(control: &str, min: f64) -> Option<Attempt> {
    let bottleneck = bottleneck(&control[..1], "10mbit", 312_500)?;
    let sockets = bottleneck.sockets().unwrap();
    let playing = || play(&sockets, Source::Game(Game::of(1e6)), Duration::from_secs(12)).unwrap();
    let (played, received) = match beside_tcp(&bottleneck, control, playing) {
        Ok(played) => played,
        Err(reason) => {
            skipped(&format!("the kernel has no {control}: {reason}"));
            return None;
        }
    };
    let (served, median, p95) = figures(&played.arrivals, 4.0, 12.0, 1e6);
    eprintln!(
        "game of 1M against the kernel's {control} on 10M: {:.1} % served, delay {median:.1} ms, 95 % {p95:.1} ms; \
         {control} got {:.1} Mbit/s",
        100.0 * served,
        received as f64 * 8.0 / 12e6
    );
    Some(Attempt { within: served >= min, kept_waiting: played.kept_waiting })
}
