//! Under load, waking by the moment instead of by the datagram.

use std::time::{Duration, Instant};

/// Wakes are counted for this long.
const WINDOW: Duration = Duration::from_millis(1);
/// With so many in a window it is time to let datagrams gather: 8,000 a second, 130 clients at 60 Hz that come one by one.
const RAPID: u32 = 8;
/// How long datagrams gather. A wake and a read cost several times what a datagram costs, and a game waits for its next
/// tick anyway.
pub(super) const GATHER: Duration = Duration::from_micros(500);

/// How often a loop was woken of late.
///
/// Whoever is woken for each datagram pays a wake, a read and a turn for each, and under a flood does nothing else. So
/// after a window with many wakes each wait begins with a short sleep, from which no datagram wakes it; what came
/// meanwhile is one batch. When a sleep brings nothing, the next datagram wakes at once again.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    window: Option<Instant>,
    count: u32,
    gathers: bool,
}

impl Wakes {
    /// Whether datagrams should gather before one waits for them.
    pub(super) const fn should_gather(&self) -> bool {
        self.gathers
    }

    /// A wait is over, at `now`; something had come, or the time was over.
    pub(super) fn note(&mut self, something_came: bool, now: Instant) {
        if !something_came {
            *self = Self::default();
            return;
        }
        self.count += 1;
        if self.window.is_none_or(|start| now.duration_since(start) >= WINDOW) {
            (self.window, self.count) = (Some(now), 1);
        }
        self.gathers |= self.count >= RAPID;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wakes that are `apart` from each other.
    fn woken(wakes: &mut Wakes, times: u32, apart: Duration) {
        let start = Instant::now();
        (0..times).for_each(|time| wakes.note(true, start + apart * time));
    }

    #[test]
    fn datagrams_gather_after_many_wakes_in_a_moment_and_until_nothing_comes() {
        let mut wakes = Wakes::default();
        woken(&mut wakes, RAPID - 1, Duration::from_micros(20));
        assert!(!wakes.should_gather());
        woken(&mut wakes, RAPID, Duration::from_micros(20));
        assert!(wakes.should_gather());
        // While it goes on, even though there are fewer wakes now.
        woken(&mut wakes, 20, GATHER);
        assert!(wakes.should_gather());
        wakes.note(false, Instant::now());
        assert!(!wakes.should_gather());
    }

    #[test]
    fn a_game_of_sixty_clients_is_woken_for_each() {
        let mut wakes = Wakes::default();
        woken(&mut wakes, 100_000, Duration::from_nanos(1_000_000_000 / 3600));
        assert!(!wakes.should_gather());
    }
}
