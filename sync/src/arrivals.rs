//! When states arrived in the last minute, and the delay that a timeline needs for the next ones (§6.6).

use alloc::vec::Vec;

/// The time over which arrivals are remembered.
const WINDOW: i64 = 60_000_000;
/// The most arrivals that are remembered: 60 s at 64 states a second.
const MAX_ARRIVALS: usize = 3840;
/// The time in which some states have the least delay that the path has at that time.
const RECENT: i64 = 1_000_000;
/// The most that the delay of a path is assumed to grow within [`RECENT`]: the timeline cannot follow more.
const MAX_GROWTH: i64 = RECENT / 20;
/// The share of lost states in ten thousand above which the delay covers one loss, and two losses in a row. The second
/// number is added to the losses of the first [`LEARNING_TIME`]: an unknown path would otherwise be one without losses.
/// Two losses in a row precede 0.4 % of the states at a random loss of 6.5 %. Longer runs are covered if states come
/// late.
const COVERED_LOSSES: [(i64, i64); 2] = [(40, 1), (650, 5)];
/// The time after the first arrival in which little is known of a path.
const LEARNING_TIME: i64 = 30_000_000;
/// The share of the time in which nothing new may be there to show, in thousandths.
const STARVED_PER_MILLE: i64 = 8;
/// The least delay, in hundredths of the time between two states.
const MIN_INTERVALS: i64 = 120;
/// The steps in which the delay is found. The result of fewer steps is a smaller delay.
const MAX_STEPS: usize = 8;

/// An arrival of a state that was newer than all before. All times are in microseconds.
#[derive(Clone, Copy, Debug)]
struct StateArrival {
    at: i64,
    /// Its arrival less its time at the server.
    delay: i64,
    /// The time at the server since the state before.
    spacing: i64,
    /// How long after its first message the last one of this state arrived.
    spread: i64,
    /// The least delays of [`RECENT`] before and after this arrival, with it.
    least_before: i64,
    least_after: i64,
    /// This state, and those that it overtook and that arrived later.
    states: i64,
    /// Whether it counts as arrived at the moment of the state before. It came later than that: both waited in the
    /// socket of a client that did not read it for a time.
    is_read_with_another: bool,
}

impl StateArrival {
    /// Returns the delay of the whole state beyond the least one of its time, or beyond that of now if it is less. The
    /// larger one of the least delays before and after is not affected by a step of the path's delay.
    fn excess(&self, current: i64) -> i64 {
        self.delay + self.spread - self.least_before.max(self.least_after).min(current)
    }
}

/// The arrivals of the last minute.
#[derive(Debug)]
pub(crate) struct StateArrivals {
    /// The first arrival.
    started: Option<i64>,
    kept: Vec<StateArrival>,
    /// The oldest entry, which is replaced next, once all are used.
    next: usize,
}

/// The delay of the path, by the arrivals of the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathDelay {
    /// The least delay of the window.
    pub(crate) quickest: i64,
    /// The delay that quick states have now.
    pub(crate) current: i64,
    /// How far behind states with the current delay a timeline is to be.
    pub(crate) needed: i64,
}

impl StateArrivals {
    pub(crate) fn new() -> Self {
        Self { started: None, kept: Vec::with_capacity(MAX_ARRIVALS), next: 0 }
    }

    /// Adds an arrival.
    pub(crate) fn add(&mut self, at: i64, delay: i64, spacing: i64) {
        self.started.get_or_insert(at);
        let is_read_with_another = self.newest_first().next().is_some_and(|before| before.at == at);
        let mut least_before = delay;
        for other in self.newest_first_mut().take_while(|other| at - other.at <= RECENT) {
            other.least_after = other.least_after.min(delay);
            least_before = least_before.min(other.delay);
        }
        let arrival = StateArrival {
            at,
            delay,
            spacing,
            spread: 0,
            least_before,
            least_after: delay,
            states: 1,
            is_read_with_another,
        };
        if self.kept.len() < MAX_ARRIVALS {
            self.kept.push(arrival);
        } else if let Some(oldest) = self.kept.get_mut(self.next) {
            *oldest = arrival;
            self.next = (self.next + 1) % MAX_ARRIVALS;
        }
    }

    /// Notes another message of the newest state. Returns whether it is the last one so far.
    pub(crate) fn add_part(&mut self, at: i64) -> bool {
        let Some(newest) = self.newest_first_mut().next().filter(|newest| at - newest.at > newest.spread) else {
            return false;
        };
        newest.spread = at - newest.at;
        true
    }

    /// Notes a state that a newer one overtook. It is not lost.
    pub(crate) fn add_overtaken(&mut self) {
        self.newest_first_mut().take(1).for_each(|newest| newest.states += 1);
    }

    /// Forgets all but this number of newest arrivals.
    pub(crate) fn keep_newest(&mut self, count: usize) {
        self.kept.rotate_left(self.next);
        self.kept.drain(..self.kept.len().saturating_sub(count));
        self.kept.iter_mut().for_each(|arrival| arrival.least_before = arrival.delay);
        self.next = 0;
    }

    /// Returns the delay of the path, with this time between two states. `None` if nothing is known of it.
    pub(crate) fn path_delay(&self, now: i64, interval: i64) -> Option<PathDelay> {
        let window = || self.newest_first().take_while(|arrival| now - arrival.at <= WINDOW);
        let oldest = window().last()?.at;
        let current = self.current_delay(now)?;
        let is_exact = |arrival: &&StateArrival| !arrival.is_read_with_another;
        let quickest = window().filter(is_exact).map(|arrival| arrival.delay).min().unwrap_or(current);
        let (mut count, mut excess, mut states, mut time) = (0, 0_i64, 0, 0);
        for arrival in window() {
            count += 1;
            excess = arrival.excess(current).saturating_add(excess);
            states += arrival.states;
            time += arrival.spacing;
        }
        let is_learning = self.started.is_some_and(|started| now - started < LEARNING_TIME);
        let covered = (1 + covered_losses(time / interval.max(1), states, is_learning)) * interval;
        let least = (interval * MIN_INTERVALS / 100).max(covered + excess / count);
        let budget = (now - oldest).max(LEARNING_TIME) * STARVED_PER_MILLE / 1000;
        let needs = window().map(|arrival| arrival.spacing + arrival.excess(current));
        Some(PathDelay { quickest, current, needed: affordable_delay(&needs, least, budget) })
    }

    /// Returns the delay that quick states have now: the least one of the newest states, and how much it has grown
    /// since.
    fn current_delay(&self, now: i64) -> Option<i64> {
        let is_recent = |arrival: &&StateArrival| now - arrival.at <= RECENT;
        let least = self.newest_first().take_while(is_recent).map(|arrival| arrival.delay).min();
        let growth = |arrival: &StateArrival| (arrival.least_after - arrival.least_before).clamp(0, MAX_GROWTH);
        let grown = self.newest_first().find(|arrival| !is_recent(arrival)).map_or(0, growth);
        Some(least? + grown)
    }

    fn newest_first(&self) -> impl Iterator<Item = &StateArrival> + Clone {
        let (newer, older) = self.kept.split_at(self.next);
        older.iter().chain(newer).rev()
    }

    fn newest_first_mut(&mut self) -> impl Iterator<Item = &mut StateArrival> {
        let (newer, older) = self.kept.split_at_mut(self.next);
        older.iter_mut().chain(newer).rev()
    }
}

/// Returns the losses in a row that a delay is to cover, if these states were sent and arrived.
fn covered_losses(sent: i64, arrived: i64, is_learning: bool) -> i64 {
    let lost = (sent - arrived).max(0);
    let is_covered = |(share, more): &&(i64, i64)| (lost + if is_learning { *more } else { 0 }) * 10_000 > share * sent;
    COVERED_LOSSES.iter().take_while(is_covered).count() as i64
}

/// Returns the smallest delay, at least `least`, with which the time by which needs exceed it is at most the budget.
fn affordable_delay(needs: &(impl Iterator<Item = i64> + Clone), least: i64, budget: i64) -> i64 {
    let mut delay = least;
    for _ in 0..MAX_STEPS {
        let (mut starved, mut count) = (0_i64, 0);
        for exceeding in needs.clone().map(|need| need - delay).filter(|exceeding| *exceeding > 0) {
            (starved, count) = (exceeding.saturating_add(starved), count + 1);
        }
        if starved <= budget {
            break;
        }
        // The starved time shrinks by at most `count` for each microsecond: this is never too far.
        delay += (starved - budget) / count + 1;
    }
    delay
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_states_without_a_loss_show_that_little_is_lost() {
        let covered = |states| covered_losses(states, states, true);
        assert_eq!([1, 76, 77, 249, 250, 500].map(covered), [2, 2, 1, 1, 0, 0]);
    }
}
