//! The schedule of a timeline: when it starts a new one, how fast it runs, and how much delay it needs for jitter.

use alloc::vec::Vec;
use core::time::Duration;

use super::jitter::Random;
use crate::{PlayoutClock, StateHeader, TickRate};

/// A path: the delay of each state by its number, in milliseconds. `None` for a state that is lost.
type Delay<'a> = &'a dyn Fn(u32) -> Option<u64>;

/// Runs a timeline with a state each 50 or 100 ms, up to this millisecond. Returns it, the first millisecond in which
/// it has jumped, and the speed in each millisecond: 1.0 is that of time.
fn run(interval: u32, until: u64, delay: Delay<'_>) -> (PlayoutClock, Option<u64>, Vec<f64>) {
    let mut clock = PlayoutClock::new(TickRate { per_second: 60, between_states: interval * 60 / 1000 });
    let arrival = |state: u32| delay(state).map(|delay| (u64::from(state * interval) + delay, state));
    let mut arrivals: Vec<_> = (1..=until as u32 / interval).filter_map(arrival).collect();
    arrivals.sort_unstable();
    let (mut arrivals, mut jumped, mut speeds, mut before) = (arrivals.into_iter().peekable(), None, Vec::new(), None);
    for millis in 0..until {
        let now = Duration::from_millis(millis);
        while let Some((_, state)) = arrivals.next_if(|(arrival, _)| *arrival <= millis) {
            clock.on_state(state * interval * 60 / 1000, now);
        }
        let tick = clock.advance(now);
        speeds.push(before.zip(tick).map_or(1.0, |(before, tick): (f64, f64)| (tick - before) / 0.06));
        before = tick;
        jumped = jumped.or((clock.jumps() > 0).then_some(millis));
    }
    (clock, jumped, speeds)
}

fn delay_of(clock: &PlayoutClock) -> u128 {
    clock.delay().as_millis()
}

/// The time decides at 50 ms, and the number of states at 100 ms.
#[test]
fn timeline_jumps_after_200_ms_and_four_late_states() {
    for (interval, states) in [(50, 5), (100, 4)] {
        let first = 5000 / interval;
        let starved = first + states - 1;
        let (_, jumped, _) = run(interval, 10_000, &|state| Some(if state < first { 50 } else { 400 }));
        assert_eq!(jumped, Some(u64::from(starved * interval + 400)), "a state each {interval} ms");
        // One state less is no schedule.
        let is_late = |state: u32| (first..starved).contains(&state);
        let (_, jumped, _) = run(interval, 10_000, &|state| {
            // What comes after them is on time, and not yet there when they arrive.
            let is_gap = (starved..starved + 400 / interval).contains(&state);
            (!is_gap).then(|| if is_late(state) { 400 } else { 50 })
        });
        assert_eq!(jumped, None, "a state each {interval} ms");
    }
}

#[test]
fn new_schedule_within_100_ms_is_reached_without_a_jump() {
    for (slower, jumps) in [(85, false), (130, true)] {
        let (clock, jumped, speeds) = run(50, 60_000, &|state| Some(if state < 800 { 50 } else { 50 + slower }));
        assert_eq!(jumped.is_some(), jumps, "{slower} ms slower");
        assert!(jumps || speeds.iter().all(|speed| (0.9499..=1.0501).contains(speed)));
        // Nothing of the schedule before is left.
        assert!((59..=62).contains(&delay_of(&clock)), "{:?}", clock.delay());
    }
}

#[test]
fn states_quicker_by_more_than_250_ms_are_a_new_schedule() {
    for (quicker, jumps) in [(245, false), (255, true)] {
        let (_, jumped, _) = run(50, 6000, &|state| Some(if state < 100 { 300 } else { 300 - quicker }));
        assert_eq!(jumped.is_some(), jumps, "{quicker} ms quicker");
    }
}

#[test]
fn timeline_corrects_a_deviation_at_5_percent() {
    // The first state is slower than all others by 200 ms, and the ones before its arrival are lost.
    let (clock, jumped, speeds) = run(50, 20_000, &|state| match state {
        1 => Some(250),
        2..=5 => None,
        _ => Some(50),
    });
    assert_eq!(jumped, None);
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    assert!((1.0499..=1.0501).contains(&fastest), "{fastest}");
    // The delay shrinks from 360 ms to the 150 ms that cover two losses in a row: all but the last 50 ms at 5 %, and
    // the rest ever slower, within a second for each 63 %. One loss remains covered, because four of 400 states are
    // lost.
    let at_limit = speeds.iter().filter(|speed| **speed > 1.0499).count();
    assert!((3100..3400).contains(&at_limit), "{at_limit} ms");
    assert!((99..=102).contains(&delay_of(&clock)), "{:?}", clock.delay());
}

#[test]
fn timeline_is_slow_while_a_state_is_overdue() {
    let (_, _, speeds) = run(50, 7000, &|state| (state < 100).then_some(50));
    // The last state arrives at 5000 ms.
    let is_slow: Vec<_> = (0..).zip(&speeds).filter(|(_, speed)| (0.9499..=0.9501).contains(*speed)).collect();
    let (first, last) = (is_slow[0].0, is_slow[is_slow.len() - 1].0);
    assert!((5051..=5053).contains(&first) && (5499..=5501).contains(&last), "from {first} to {last} ms");
    assert_eq!(is_slow.len(), last - first + 1, "all the time between");
    assert!(speeds[last + 2] > 1.0, "after 500 ms it is an outage");
}

/// The timeline may starve for 0.8 % of the last 60 s, which are 480 ms: 16 times for 30 ms each, and 60 times for 8
/// ms.
#[test]
fn delay_covers_jitter_that_starves_for_more_than_0_8_percent() {
    // States that are 40 ms late, once a second, and the time of the look, in seconds.
    let cases = [
        (16, 62, 60),
        (60, 62, 82),
        // 60 s later they are forgotten.
        (60, 90, 75),
        (60, 115, 60),
    ];
    for (number, seconds, expected) in cases {
        let is_late = |state: u32| state.is_multiple_of(20) && state / 20 <= number;
        let (clock, jumped, _) = run(50, seconds * 1000, &|state| Some(if is_late(state) { 90 } else { 50 }));
        assert_eq!(jumped, None);
        let delay = delay_of(&clock);
        assert!((expected - 3..=expected + 3).contains(&delay), "{number} after {seconds} s: {delay} ms");
    }
}

#[test]
fn delay_of_the_start_shrinks_as_nothing_is_lost() {
    for interval in [50, 100] {
        let delay_after = |states: u32| delay_of(&run(interval, u64::from(interval * states), &|_| Some(50)).0);
        // At the first state 3.2 intervals. From the 77th on one loss is covered, and from the 250th on none.
        for (states, intervals) in [(3, 3.2), (75, 3.0), (200, 2.0), (400, 1.2)] {
            let (delay, expected) = (delay_after(states) as f64, intervals * f64::from(interval));
            assert!((expected - 3.0..=expected + 3.0).contains(&delay), "{delay} ms after {states} states");
        }
    }
}

/// After 30 s without a loss, the start's 3.2 intervals become 1.2: 2 intervals at once, of which one may have followed
/// after 77 states.
#[test]
fn deviation_of_more_than_500_ms_is_a_jump() {
    for (interval, jumps) in [(200, false), (400, true), (1000, true)] {
        let (_, jumped, _) = run(interval, 60_000, &|_| Some(50));
        assert_eq!(jumped.is_some(), jumps, "a state each {interval} ms");
    }
}

/// The delay of the path is assumed to grow by 50 ms more, and not by 400 ms: the timeline would jump.
#[test]
fn path_that_is_slower_by_400_ms_once_makes_no_jump() {
    // Each seventh state is lost, so that the delay of 600 ms covers the step.
    let delay = |state: u32| (!state.is_multiple_of(7)).then_some(if state < 300 { 50 } else { 450 });
    let (clock, jumped, _) = run(200, 100_000, &delay);
    assert_eq!(jumped, None);
    assert!(delay_of(&clock) > 900, "{:?}", clock.delay());
}

/// Each object lacks a tenth of its states, whether they have one message or eight. Those of a state arrive within some
/// milliseconds.
#[test]
fn delay_covers_losses_and_the_last_messages_of_states() {
    for (messages, spread, least, most) in [(1, 0, 150, 165), (8, 0, 150, 165), (8, 28, 175, 193), (4, 40, 186, 205)] {
        let (mut clock, mut random) = (PlayoutClock::new(TickRate { per_second: 60, between_states: 3 }), Random(1));
        for millis in 0..100_000_u32 {
            let (state, now) = (millis / 50, Duration::from_millis(u64::from(millis)));
            for number in 0..messages {
                let is_due = millis % 50 == number * spread / (messages - 1).max(1);
                if is_due && state > 0 && random.below(10) > 0 {
                    let header = StateHeader { tick: state * 3, report: None, is_first: number == 0 };
                    clock.on_message(header, now);
                }
            }
            clock.advance(now);
        }
        let delay = delay_of(&clock);
        assert!((least..=most).contains(&delay), "{messages} messages in {spread} ms: {delay} ms");
    }
}

/// The path stops between the two messages of a state.
#[test]
fn pause_inside_of_a_state_makes_no_delay() {
    for pause in [600, 1000, 3000, 20_000] {
        let mut clock = PlayoutClock::new(TickRate { per_second: 60, between_states: 3 });
        let (start, mut worst) = (20_005, 0);
        for millis in 0..60_000_u64 {
            // What is sent during the pause arrives at its end.
            let sent = (1..1200_u64).flat_map(|state| [(state, 0), (state, 10)]);
            let arrives = |at: u64| if (start..start + pause).contains(&at) { start + pause } else { at };
            let is_near = |(state, _): &(u64, u64)| state * 50 <= millis && state * 50 + pause + 60 > millis;
            for (state, number) in sent.filter(is_near).filter(|(state, number)| arrives(state * 50 + number) == millis)
            {
                let header = StateHeader { tick: 3 * state as u32, report: None, is_first: number == 0 };
                clock.on_message(header, Duration::from_millis(millis));
            }
            clock.advance(Duration::from_millis(millis));
            worst = if millis > start + pause + 1000 { delay_of(&clock).max(worst) } else { worst };
        }
        assert!(clock.jumps() == 0 && worst < 90, "{pause} ms: {worst} ms, {} jumps", clock.jumps());
    }
}

#[test]
fn playout_adapts_at_one_state_a_second() {
    for interval in [1000, 500, 200] {
        let (clock, ..) = run(interval, 120_000, &|_| Some(50));
        let least = u128::from(interval) * 6 / 5;
        assert!((least..=least + 2).contains(&delay_of(&clock)), "{} ms at {interval} ms", delay_of(&clock));
    }
}

#[test]
fn two_lost_states_at_the_start_leave_no_gap() {
    let mut clock = PlayoutClock::new(TickRate { per_second: 60, between_states: 3 });
    for millis in 0..5000_u64 {
        let (now, state) = (Duration::from_millis(millis + 50), millis / 50);
        if millis % 50 == 0 && state > 0 && !matches!(state, 3 | 4 | 20 | 21) {
            clock.on_state(3 * state as u32, now);
        }
        clock.advance(now);
        assert!(!clock.is_starved(), "after {millis} ms");
    }
}
