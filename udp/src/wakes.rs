//! Under load, waking by the moment instead of by the datagram.

use std::time::{Duration, Instant};

/// Wakes are counted for this long.
const WINDOW: Duration = Duration::from_millis(1);
/// With so many in a window it is time to let datagrams gather: 8,000 a second, 130 clients at 60 Hz that come one by one.
const RAPID: u32 = 8;
/// How long datagrams gather. A wake and a read cost several times what a datagram costs, and a game waits for its next
/// tick anyway.
pub(super) const GATHER: Duration = Duration::from_micros(500);
/// A moment that gathers fewer is not worth its delay: as many in [`GATHER`] as are rapid in [`WINDOW`].
const WORTHWHILE: usize = 4;
/// After one that was not, datagrams wake at once for so long. One who answers each answer at once would otherwise be held
/// up again and again.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often a loop was woken of late.
///
/// Whoever is woken for each datagram pays a wake, a read and a turn for each, and under a flood does nothing else. So
/// after a window with many wakes each wait begins with a short sleep, from which no datagram wakes it; what came
/// meanwhile is one batch. When such a sleep brings little, each datagram wakes again.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    window: Option<Instant>,
    count: u32,
    state: State,
    /// Datagrams that were read since the last wait.
    read: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Calm,
    /// The next wait is the first one that begins with a sleep.
    Begins,
    Gathers,
    /// It was not worth it.
    Rests {
        until: Instant,
    },
}

impl Wakes {
    /// A wait begins: whether datagrams should gather first.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let read = std::mem::take(&mut self.read);
        self.state = match self.state {
            State::Begins => State::Gathers,
            State::Gathers if read < WORTHWHILE => State::Rests { until: now + PATIENCE },
            State::Rests { until } if now >= until => State::Calm,
            state => state,
        };
        self.state == State::Gathers
    }

    /// Datagrams were read.
    pub(super) const fn note_read(&mut self, datagrams: usize) {
        self.read = self.read.saturating_add(datagrams);
    }

    /// A datagram has ended a wait.
    pub(super) fn note_wake(&mut self, now: Instant) {
        self.count += 1;
        if self.window.is_none_or(|start| now.duration_since(start) >= WINDOW) {
            (self.window, self.count) = (Some(now), 1);
        }
        if self.state == State::Calm && self.count >= RAPID {
            self.state = State::Begins;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits that end by `datagrams` each, `apart` from each other; how many of them began with a sleep.
    fn slept(wakes: &mut Wakes, start: Instant, waits: u32, apart: Duration, datagrams: usize) -> usize {
        let wait = |wait: u32| {
            let now = start + apart * wait;
            let gathers = wakes.begin(now);
            wakes.note_wake(now);
            wakes.note_read(datagrams);
            gathers
        };
        (0..waits).map(wait).filter(|gathers| *gathers).count()
    }

    #[test]
    fn datagrams_gather_after_many_wakes_in_a_moment_and_as_long_as_it_is_worth_it() {
        let (mut wakes, start) = (Wakes::default(), Instant::now());
        assert_eq!(slept(&mut wakes, start, RAPID, Duration::from_micros(20), 1), 0);
        let flood = start + WINDOW;
        assert_eq!(slept(&mut wakes, flood, 1000, GATHER, 30), 1000);
        // A quiet evening: one sleep too many, and each datagram wakes.
        let evening = flood + Duration::from_secs(1);
        assert_eq!(slept(&mut wakes, evening, 1000, Duration::from_millis(100), 1), 1);
    }

    #[test]
    fn who_answers_each_answer_at_once_is_held_up_ten_times_a_second_at_most() {
        let (mut wakes, start) = (Wakes::default(), Instant::now());
        let held_up = slept(&mut wakes, start, 100_000, Duration::from_micros(30), 1);
        assert!((25..=30).contains(&held_up), "{held_up} in 3 s");
    }

    #[test]
    fn a_game_of_sixty_clients_is_woken_for_each() {
        let mut wakes = Wakes::default();
        assert_eq!(slept(&mut wakes, Instant::now(), 100_000, Duration::from_nanos(1_000_000_000 / 3600), 1), 0);
    }
}
