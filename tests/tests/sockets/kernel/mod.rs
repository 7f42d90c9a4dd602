//! The kernel's word on the simulator's: real datagrams through a bottleneck of `tc tbf`, with the real controller.
//!
//! The bounds are what is measured, with a margin; the figures are printed.

#![allow(clippy::print_stderr, reason = "figures, and why a test was skipped, are for whoever runs it")]

pub(crate) mod attempts;
mod ends;
pub(crate) mod place;
pub(crate) mod tcp;

use std::thread;
use std::time::Duration;

use self::attempts::{Attempt, once_in_three, place, skipped};
use self::ends::{Arrival, Played, play};
use self::place::Place;
use self::tcp::beside_tcp;
use slipgate_lab::source::{Game, Source};

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
    once_in_three(|| {
        let place = place("x", "4mbit", 125_000)?;
        let played = play(&place.sockets().unwrap(), Source::Bulk, Duration::from_secs(10)).unwrap();
        let (used, median, p95) = figures(&played.arrivals, 3.0, 10.0, 4e6);
        let dropped = place.dropped().unwrap();
        eprintln!(
            "alone on 4M: {:.1} % used, delay {median:.1} ms, 95 % {p95:.1} ms, {dropped} packets dropped",
            100.0 * used
        );
        Some(Attempt { within: used >= 0.97 && median <= 20.0 && p95 <= 20.0, kept_waiting: played.kept_waiting })
    });
}

#[test]
fn a_fall_of_the_rate_is_followed_and_its_return_too() {
    once_in_three(|| {
        let place = place("y", "4mbit", 250_000)?;
        let Played { arrivals, kept_waiting } = over_a_fall(&place);
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

fn over_a_fall(place: &Place) -> Played {
    let sockets = place.sockets().unwrap();
    thread::scope(|scope| {
        let playing = scope.spawn(|| play(&sockets, Source::Bulk, Duration::from_secs(15)));
        thread::sleep(Duration::from_secs(5));
        place.set_rate("500kbit", 250_000).unwrap();
        thread::sleep(Duration::from_secs(5));
        place.set_rate("4mbit", 250_000).unwrap();
        playing.join().unwrap().unwrap()
    })
}

#[test]
fn a_game_keeps_its_rate_beside_the_kernels_cubic() {
    once_in_three(|| beside("cubic", 0.95));
}

#[test]
fn a_game_keeps_its_rate_beside_the_kernels_bbr() {
    once_in_three(|| beside("bbr", 0.85));
}

/// A game of 1 Mbit/s, of which so much must be served, beside a TCP on 10 Mbit/s, if there is such a TCP.
fn beside(control: &str, least: f64) -> Option<Attempt> {
    let place = place(&control[..1], "10mbit", 312_500)?;
    let sockets = place.sockets().unwrap();
    let playing = || play(&sockets, Source::Game(Game::of(1e6)), Duration::from_secs(12)).unwrap();
    let (played, received) = match beside_tcp(&place, control, playing) {
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
    Some(Attempt { within: served >= least, kept_waiting: played.kept_waiting })
}
