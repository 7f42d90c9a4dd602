//! The clock of a client's inputs by single reports: how it starts, how fast it corrects, and when and where it jumps.

use core::time::Duration;

use crate::{InputClock, InputReport};

/// The moment of the first state: clocks do not start at zero.
const START: u64 = 5000;

fn at(millis: u64) -> Duration {
    Duration::from_millis(START + millis)
}

/// Returns a clock that starts at the tick 1001.
fn clock(ticks_per_second: u32) -> InputClock {
    let mut clock = InputClock::new(ticks_per_second);
    clock.set(1000, Duration::ZERO, Duration::ZERO, at(0));
    clock
}

fn report(newest: u32, margin_quarters: i8) -> InputReport {
    InputReport { newest, margin_quarters, epoch: 0 }
}

/// Advances a clock and gives it reports, one each 200 ms, of its newest input at this moment. Returns the difference
/// between its tick after another 200 ms and that of real time, without a jump by reports.
fn lead_after(clock: &mut InputClock, ticks_per_second: u32, margins: &[i8]) -> f64 {
    let mut now = 0;
    for margin in margins {
        now += 200;
        let newest = clock.advance(at(now)).unwrap();
        clock.on_report(report(newest, *margin));
    }
    clock.advance(at(now + 200));
    clock.tick().unwrap() - 1001.0 - (now + 200) as f64 / 1000.0 * f64::from(ticks_per_second)
}

#[test]
fn clock_starts_ahead_by_the_round_trip_the_jitter_and_a_tick() {
    for (round_trip, jitter, tick) in [(100, 20, 1008.2), (0, 0, 1001.0), (5000, 20, 1061.0)] {
        let mut clock = InputClock::new(60);
        let (round_trip, jitter) = (Duration::from_millis(round_trip), Duration::from_millis(jitter));
        clock.set(1000, round_trip, jitter, at(0));
        assert!((clock.tick().unwrap() - tick).abs() < 1e-9, "{:?} instead of {tick}", clock.tick());
        // Without reports later states change nothing.
        clock.set(5000, round_trip, jitter, at(500));
        clock.advance(at(1000));
        assert!((clock.tick().unwrap() - tick - 60.0).abs() < 1e-6 && clock.jumps() == 0, "{:?}", clock.tick());
        // A clock of the system that goes back stops it.
        clock.advance(at(900));
        assert!((clock.tick().unwrap() - tick - 60.0).abs() < 1e-6, "{:?}", clock.tick());
    }
    let mut slow = clock(0);
    slow.advance(at(2000));
    assert!((slow.tick().unwrap() - 1003.0).abs() < 1e-6, "a tick a second");
}

/// The goal is a margin of half a tick.
#[test]
fn deviation_is_corrected_in_a_second_and_by_5_percent_at_most() {
    // A tick too late: a fifth of it is corrected in 200 ms. Ten ticks: 5 % of 12 ticks.
    for (margin, expected) in [(2, 0.0), (-2, 0.2), (6, -0.2), (-38, 0.6), (42, -0.6)] {
        let lead = lead_after(&mut clock(60), 60, &[margin]);
        assert!((lead - expected).abs() < 1e-6, "{lead} after a margin of {margin} quarters");
    }
}

#[test]
fn clock_jumps_beyond_250_ms_and_two_and_a_half_ticks() {
    // 250 ms are 15 ticks of 60 Hz; at 5 Hz two and a half ticks are more.
    for (rate, margin, jumps) in
        [(60, -57, 0), (60, -59, 1), (60, 61, 0), (60, 63, 1), (5, -7, 0), (5, -9, 1), (5, 11, 0), (5, 13, 1)]
    {
        let mut clock = clock(rate);
        lead_after(&mut clock, rate, &[margin; 4]);
        assert_eq!(clock.jumps(), jumps, "{margin} quarters at {rate} ticks a second");
    }
}

/// Four reports contradict the clock, by different times: the least of them is certain.
#[test]
fn clock_jumps_by_the_nearest_of_four_reports() {
    for (margins, expected) in [([-80, -90, -70, -100], 18.0), ([110, 100, 120, 104], -24.5)] {
        let mut clock = clock(60);
        let lead = lead_after(&mut clock, 60, &margins);
        assert!((lead - expected).abs() < 1e-6, "{lead} instead of {expected}");
        assert_eq!(clock.jumps(), 1);
    }
}

/// A report has a range of 32 ticks. A state of the server has none.
#[test]
fn clock_jumps_to_the_state_of_the_server_beyond_32_ticks() {
    // The server is this number of ticks ahead of the first state, by its newest one.
    for (ahead, margin, expected) in
        [(500, i8::MIN, 500.0), (0, i8::MIN, 32.5), (-500, i8::MAX, -500.0), (0, i8::MAX, -31.25)]
    {
        let mut clock = clock(60);
        clock.set((1060 + ahead) as u32, Duration::ZERO, Duration::ZERO, at(1000));
        let lead = lead_after(&mut clock, 60, &[margin; 4]);
        assert!((lead - expected).abs() < 1e-6, "{lead} instead of {expected}");
    }
}

#[test]
fn report_of_a_tick_of_which_nothing_is_known_is_ignored() {
    // The lead of 256 ticks is remembered.
    for (ago, jumps) in [(200, 1), (255, 1), (256, 0), (300, 0)] {
        let mut clock = clock(60);
        (0..=600).for_each(|frame| _ = clock.advance(at(frame * 10)));
        let newest = clock.advance(at(6000)).unwrap();
        (0..4).for_each(|_| clock.on_report(report(newest - ago, -100)));
        clock.advance(at(6010));
        assert_eq!(clock.jumps(), jumps, "{ago} ticks ago");
    }
}

/// Of 400 reports, the three latest inputs count; then they are forgotten.
#[test]
fn late_inputs_are_remembered_for_400_reports() {
    for (reports, is_known) in [(250, true), (400, true), (403, false), (900, false)] {
        let mut clock = clock(60);
        for number in 1..=reports {
            let newest = clock.advance(at(number * 50)).unwrap();
            let path = if number <= 3 { 9.0 } else { 5.0 };
            let margin = clock.tick().unwrap() - (1000.0 + 3.0 * number as f64) - path;
            clock.on_report(report(newest, (margin * 4.0).floor() as i8));
        }
        (1..=400).for_each(|number| _ = clock.advance(at((reports + number) * 50)));
        let lead = clock.tick().unwrap() - (1000.0 + 3.0 * (reports + 400) as f64);
        let expected = if is_known { 9.4..10.0 } else { 5.4..6.0 };
        assert!(expected.contains(&lead), "{lead} after {reports} reports");
    }
}
