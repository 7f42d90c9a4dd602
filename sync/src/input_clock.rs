//! The tick of a client's own inputs: ahead of the server by as much as the path needs (§6.7).

use core::time::Duration;

use crate::inputs::InputReport;
use crate::playout::micros;

/// The most that the clock deviates from the speed of time.
const MAX_DILATION: f64 = 0.05;
/// A deviation beyond which the clock jumps, in seconds and in ticks: the larger one counts. A fix is wrong by a tick
/// and more even if nothing is lost, and reports are rounded, so that 250 ms are too few where a tick has 200 ms.
const MAX_DEVIATION: f64 = 0.25;
const MAX_DEVIATION_TICKS: f64 = 2.5;
/// The time in which a deviation is corrected, as far as the limit allows, in seconds.
const CORRECTION_TIME: f64 = 1.0;
/// The margin that the latest inputs shall have, in ticks.
const GOAL_MARGIN: f64 = 0.5;
/// The reports that are remembered: 20 s at 20 states a second.
const KEPT_REPORTS: usize = 400;
/// How many reports in a thousand may have less than the goal.
const LATE_PER_MILLE: usize = 5;
/// The clock jumps when this number of reports in a row contradicted it. A client that stalled makes one or two, with
/// the inputs of the stall.
const CONTRADICTIONS: u32 = 4;
/// The ticks of which the lead is remembered.
const KEPT_LEADS: usize = 256;

/// The client's clock of inputs. The server's reports rule it: each says how early the inputs arrived. The clock runs
/// at 95 to 105 % of real time. It jumps only at its first fix, and if four reports in a row differ from it by more
/// than 250 ms and 2.5 ticks in one direction: after a pause in which the server or the client lost time. After a jump
/// back, [`advance`](Self::advance) returns earlier ticks than before, whose inputs are to be made again.
/// [`InputLog`](crate::InputLog) starts an epoch with the first of them, and the server plays the inputs of this
/// epoch.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use slipgate_sync::{InputClock, InputReport};
///
/// let (mut clock, at) = (InputClock::new(60), Duration::from_millis);
/// assert_eq!(clock.advance(at(0)), None, "no state has arrived");
/// // The state of tick 1000 arrives. Tick 1007 is the first one in time: 100 ms are 6 ticks, and one more.
/// clock.set(1000, at(100), at(0), at(0));
/// assert_eq!(clock.advance(at(0)), Some(1007));
/// assert_eq!(clock.advance(at(50)), Some(1010));
/// // The input came two ticks too late. The clock runs faster, by 5 % at most.
/// clock.on_report(InputReport { newest: 1010, margin_quarters: -8, epoch: 0 });
/// assert_eq!(clock.advance(at(1050)), Some(1072));
/// ```
#[derive(Debug)]
pub struct InputClock {
    ticks_per_second: f64,
    /// The tick of this moment, with its fraction, and the moment in seconds.
    position: Option<(f64, f64)>,
    /// The lead that the clock shall have: its tick less the ticks of real time.
    goal: f64,
    /// The lead at each of the last ticks, with its tick.
    leads: [(u32, f64); KEPT_LEADS],
    /// The margins without the lead at their ticks.
    bases: [f64; KEPT_REPORTS],
    reports: usize,
    /// The goal by the newest state of the server, without any report.
    assumed_goal: f64,
    /// How many reports in a row differ too much, and by how much the nearest of them: positive if the clock is slow.
    contradictions: (u32, f64),
    /// How many reports in a row had a margin that is far from the goal's: positive if inputs are late.
    far_margins: i32,
    /// Whether enough reports contradicted the clock: the next advance may jump.
    may_jump: bool,
    jumps: u32,
}

impl InputClock {
    /// Returns a clock without a fix.
    #[must_use]
    pub fn new(ticks_per_second: u32) -> Self {
        Self {
            ticks_per_second: f64::from(ticks_per_second.max(1)),
            position: None,
            goal: 0.0,
            leads: [(0, 0.0); KEPT_LEADS],
            bases: [0.0; KEPT_REPORTS],
            reports: 0,
            assumed_goal: 0.0,
            contradictions: (0, 0.0),
            far_margins: 0,
            may_jump: false,
            jumps: 0,
        }
    }

    /// Sets the clock by a state of the server: its tick plus the round trip, the jitter and a tick. Call it for each
    /// state. Later calls have an effect only if reports tell that the clock is wrong by more than they can say.
    ///
    /// The round trip is the measured one: `Client::path` has it, as `congestion.round_trip`. It is `None` for about a
    /// round trip after the connection, in which the first states come: wait with the first call until it is there, a
    /// second at most. The clock starts with what the first call assumes, and corrects at most 5 % of the time that
    /// passes: if the path takes 200 ms more, inputs are late for some seconds.
    pub fn set(&mut self, server_tick: u32, round_trip: Duration, jitter: Duration, now: Duration) {
        let now = seconds(now);
        let ahead = round_trip.saturating_add(jitter).as_secs_f64().min(1.0) * self.ticks_per_second + 1.0;
        let tick = f64::from(server_tick) + ahead;
        self.assumed_goal = tick - now * self.ticks_per_second;
        if self.position.is_none() {
            self.position = Some((tick, now));
            self.goal = self.assumed_goal;
        }
    }

    /// Moves the clock on. Returns the newest tick that needs its input; `None` before the first fix. The game
    /// makes an input for each tick since the last call.
    pub fn advance(&mut self, now: Duration) -> Option<u32> {
        let (position, at) = self.position?;
        let now = seconds(now);
        let passed = (now - at).max(0.0);
        let deviation = (now * self.ticks_per_second + self.goal - position) / self.ticks_per_second - passed;
        let may_jump = core::mem::take(&mut self.may_jump);
        let next = if may_jump && libm::fabs(deviation) > self.max_deviation() {
            self.jumps += 1;
            now * self.ticks_per_second + self.goal
        } else {
            let most = passed * MAX_DILATION;
            let correction = (deviation * passed / CORRECTION_TIME).clamp(-most, most);
            position + (passed + correction) * self.ticks_per_second
        };
        self.position = Some((next, now));
        let lead = next - now * self.ticks_per_second;
        for tick in (position as u32).max((next as u32).saturating_sub(KEPT_LEADS as u32 - 1))..=next as u32 {
            if let Some(kept) = self.leads.get_mut(tick as usize % KEPT_LEADS) {
                *kept = (tick, lead);
            }
        }
        Some(next as u32)
    }

    /// Notes a report of the server, if [`InputLog::on_report`](crate::InputLog::on_report) has returned `true` for it.
    pub fn on_report(&mut self, report: InputReport) {
        let lead = self.leads.get(report.newest as usize % KEPT_LEADS);
        let Some((_, lead)) = lead.filter(|(tick, _)| *tick == report.newest && report.newest > 0).copied() else {
            return;
        };
        // The report rounds down to quarters.
        let margin = f64::from(report.margin_quarters) / 4.0;
        self.count_far_margin(GOAL_MARGIN - margin);
        let base = margin - lead;
        let deviation = GOAL_MARGIN - base - self.goal;
        if report.is_beyond() || libm::fabs(deviation) > self.max_deviation() * self.ticks_per_second {
            self.on_contradiction(report, deviation);
            return;
        }
        self.contradictions = (0, 0.0);
        self.remember(base);
    }

    /// Counts margins in a row that are too far from the goal's, in ticks. After some of them the clock may jump to its
    /// goal, which reports may have moved step by step: it would follow too slowly.
    fn count_far_margin(&mut self, late: f64) {
        let direction = if late > 0.0 { 1 } else { -1 };
        let is_far = libm::fabs(late) > self.max_deviation() * self.ticks_per_second;
        self.far_margins = match self.far_margins {
            _ if !is_far => 0,
            count if count.signum() == direction => count + direction,
            _ => direction,
        };
        if self.far_margins.unsigned_abs() >= CONTRADICTIONS {
            (self.far_margins, self.may_jump) = (0, true);
        }
    }

    /// Notes a report that differs too much from the goal. Some in a row change the goal at once, and what was
    /// remembered is forgotten.
    fn on_contradiction(&mut self, report: InputReport, deviation: f64) {
        let (count, nearest) = self.contradictions;
        let (count, nearest) = match count {
            0 => (1, deviation),
            _ if (nearest > 0.0) != (deviation > 0.0) => (1, deviation),
            _ if deviation > 0.0 => (count + 1, nearest.min(deviation)),
            _ => (count + 1, nearest.max(deviation)),
        };
        self.contradictions = (count, nearest);
        if count < CONTRADICTIONS {
            return;
        }
        (self.contradictions, self.reports, self.may_jump) = ((0, 0.0), 0, true);
        let reported = self.goal + nearest;
        // A report cannot tell more than 32 ticks. The newest state does, but not how long inputs take.
        self.goal = match report.margin_quarters {
            i8::MIN => reported.max(self.assumed_goal),
            i8::MAX => reported.min(self.assumed_goal),
            _ => reported,
        };
    }

    fn remember(&mut self, base: f64) {
        if let Some(kept) = self.bases.get_mut(self.reports % KEPT_REPORTS) {
            *kept = base;
        }
        self.reports += 1;
        let mut sorted = self.bases;
        let bases = sorted.get_mut(..self.reports.min(KEPT_REPORTS)).unwrap_or(&mut []);
        let rank = bases.len() * LATE_PER_MILLE / 1000;
        let latest = *bases.select_nth_unstable_by(rank, f64::total_cmp).1;
        self.goal = GOAL_MARGIN - latest;
    }

    /// Returns the deviation beyond which the clock jumps, in seconds.
    fn max_deviation(&self) -> f64 {
        MAX_DEVIATION.max(MAX_DEVIATION_TICKS / self.ticks_per_second)
    }

    /// Returns the tick of the last [`advance`](Self::advance), with its fraction.
    #[must_use]
    pub fn tick(&self) -> Option<f64> {
        self.position.map(|(tick, _)| tick)
    }

    /// Returns how often the clock jumped after its first fix.
    #[must_use]
    pub const fn jumps(&self) -> u32 {
        self.jumps
    }
}

fn seconds(time: Duration) -> f64 {
    micros(time) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_without_a_fix_has_no_tick() {
        let mut clock = InputClock::new(60);
        assert_eq!(clock.advance(Duration::from_secs(1)), None);
        clock.on_report(InputReport { newest: 0, margin_quarters: 0, epoch: 0 });
        assert_eq!(clock.tick(), None);
    }

    #[test]
    fn last_ticks_of_a_server_are_no_overflow() {
        let mut clock = InputClock::new(60);
        clock.set(u32::MAX, Duration::from_millis(100), Duration::ZERO, Duration::ZERO);
        assert_eq!(clock.advance(Duration::from_secs(60)), Some(u32::MAX));
    }

    #[test]
    fn reports_of_late_inputs_speed_the_clock_up_to_5_percent() {
        let mut clock = InputClock::new(60);
        let at = Duration::from_millis;
        clock.set(1000, at(100), at(0), at(0));
        let mut before = 0.0;
        for frame in 1..600_u64 {
            let newest = clock.advance(at(frame * 10)).unwrap();
            let tick = clock.tick().unwrap();
            // The server is at 1000 + 60 t, and an input takes 200 ms, longer than was assumed.
            let margin = tick - (1000.0 + 0.6 * frame as f64) - 12.0;
            if frame % 5 == 0 {
                clock.on_report(InputReport { newest, margin_quarters: (margin * 4.0).floor() as i8, epoch: 0 });
            }
            let speed = (tick - before) / 0.6;
            assert!(frame == 1 || (0.949..1.051).contains(&speed), "{speed}");
            before = tick;
        }
        let margin = before - (1000.0 + 0.6 * 599.0) - 12.0;
        assert!((0.4..1.2).contains(&margin), "{margin}");
        assert_eq!(clock.jumps(), 0);
    }

    #[test]
    fn reports_that_differ_by_less_than_3_ticks_of_5_hz_are_no_jump() {
        let (mut clock, at) = (InputClock::new(5), Duration::from_millis);
        clock.set(1000, at(300), at(20), at(0));
        for second in 1..=20 {
            let newest = clock.advance(at(second * 1000)).unwrap();
            // Inputs are early by 2 ticks, 1.5 more than the goal: 300 ms.
            clock.on_report(InputReport { newest, margin_quarters: 8, epoch: 0 });
        }
        assert_eq!(clock.jumps(), 0);
    }

    /// Returns the lead of a clock, in ticks, after 20 s in which each of 400 inputs took 5 ticks, and some of them 9.
    fn lead_with_late_inputs(is_late: impl Fn(u64) -> bool) -> f64 {
        let (mut clock, at) = (InputClock::new(60), Duration::from_millis);
        clock.set(1000, at(0), at(0), at(0));
        for report in 1..=400 {
            let newest = clock.advance(at(report * 50)).unwrap();
            let path = if is_late(report) { 9.0 } else { 5.0 };
            let margin = clock.tick().unwrap() - (1000.0 + 3.0 * report as f64) - path;
            let margin_quarters = (margin * 4.0).floor() as i8;
            clock.on_report(InputReport { newest, margin_quarters, epoch: 0 });
        }
        // The goal of the last report is reached.
        (401..=800).for_each(|report| _ = clock.advance(at(report * 50)));
        clock.tick().unwrap() - (1000.0 + 3.0 * 800.0)
    }

    #[test]
    fn lead_covers_all_inputs_but_5_of_1000() {
        let few = lead_with_late_inputs(|report| report % 200 == 100);
        assert!((5.4..6.0).contains(&few), "2 of 400 inputs are late: {few}");
        let many = lead_with_late_inputs(|report| report % 130 == 100);
        assert!((9.4..10.0).contains(&many), "3 of 400 inputs are late: {many}");
    }

    #[test]
    fn late_reports_without_a_contradiction_are_no_jump() {
        let (mut clock, at) = (InputClock::new(60), |report: u64| Duration::from_millis(report * 50));
        clock.set(1000, at(2), at(0), at(0));
        // Inputs take 5 ticks. Those of two reports take 10 and 18 ticks longer: each is within 250 ms of the goal
        // before it, and both together are not.
        for report in 1..=600_u64 {
            let before = clock.tick().unwrap();
            let newest = clock.advance(at(report)).unwrap();
            let speed = (clock.tick().unwrap() - before) / 3.0;
            assert!((0.949..1.051).contains(&speed), "report {report}: {speed}");
            let late =
                [(100, 10.0), (105, 18.0)].iter().find(|(late, _)| *late == report).map_or(0.0, |(_, ticks)| *ticks);
            let margin = clock.tick().unwrap() - (1000.0 + 3.0 * report as f64) - 5.0 - late;
            clock.on_report(InputReport { newest, margin_quarters: (margin * 4.0).floor() as i8, epoch: 0 });
        }
        assert_eq!(clock.jumps(), 0);
    }

    /// Returns for how long inputs are late on a path that takes this many ticks at a time in seconds, in reports of
    /// 50 ms.
    fn late_reports_on(path: impl Fn(f64) -> f64) -> usize {
        let (mut clock, at) = (InputClock::new(60), |report: u64| Duration::from_millis(report * 50));
        clock.set(1000, at(2), at(0), at(0));
        let mut margin_of = |report: u64| {
            let newest = clock.advance(at(report)).unwrap();
            let margin = clock.tick().unwrap() - (1000.0 + 3.0 * report as f64) - path(report as f64 / 20.0);
            let margin_quarters = (margin * 4.0).floor().clamp(-128.0, 127.0) as i8;
            clock.on_report(InputReport { newest, margin_quarters, epoch: 0 });
            margin
        };
        (1..=1000).filter(|report| margin_of(*report) < 0.0).count()
    }

    #[test]
    fn path_that_gets_slower_makes_inputs_late_for_seconds_at_most() {
        // 233 ms at 10 s, and as much 200 ms later.
        let steps = |time: f64| 5.0 + [10.0, 10.2].iter().filter(|at| time >= **at).count() as f64 * 14.0;
        assert!(late_reports_on(steps) < 20, "{}", late_reports_on(steps));
        // 500 ms within a second.
        let ramp = |time: f64| 5.0 + 30.0 * (time - 10.0).clamp(0.0, 1.0);
        assert!(late_reports_on(ramp) < 100, "{}", late_reports_on(ramp));
    }

    #[test]
    fn fourth_contradiction_in_a_row_is_a_jump() {
        // In quarters of a tick: 20 ticks late, 25 ticks early, and as they shall be.
        let (late, early, good) = (-80, 100, 2);
        let cases: [(&[i8], u32); 6] = [
            (&[late], 0),
            (&[late, late, late], 0),
            (&[late, late, late, good, late, late, late], 0),
            (&[late, late, early, early, late, late, late], 0),
            (&[late, late, late, late], 1),
            (&[early, early, early, early], 1),
        ];
        for (margins, jumps) in cases {
            let (mut clock, at) = (InputClock::new(60), Duration::from_millis);
            clock.set(1000, at(100), at(0), at(0));
            for (report, margin_quarters) in (1..).zip(margins) {
                let newest = clock.advance(at(report * 50)).unwrap();
                clock.on_report(InputReport { newest, margin_quarters: *margin_quarters, epoch: 0 });
            }
            clock.advance(at(margins.len() as u64 * 50 + 50));
            assert_eq!(clock.jumps(), jumps, "{margins:?}");
        }
    }
}
