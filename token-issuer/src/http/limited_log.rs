//! A limit of log lines of one kind, and a line with the sum of the other events when their interval is over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The most lines of a kind of request in a second. A client that sends requests in a loop fills no disk.
const MAX_LINES_PER_SECOND: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The log of one kind of event. A sum shows `T` of its latest event.
pub(super) struct LimitedLog<T> {
    max_lines: u32,
    interval: Duration,
    write_sum: fn(u64, &T),
    lines: Mutex<Lines<T>>,
}

/// The lines of the present interval.
struct Lines<T> {
    since: Option<Instant>,
    written: u32,
    /// The number of events without a line, and the latest of them.
    unlogged: Option<(u64, T)>,
}

impl<T: Send + 'static> LimitedLog<T> {
    /// Creates a log with at most 20 lines a second.
    pub(super) fn per_second(write_sum: fn(u64, &T)) -> Arc<Self> {
        Self::new(MAX_LINES_PER_SECOND, SECOND, write_sum)
    }

    /// Creates a log with one line a minute.
    pub(super) fn per_minute(write_sum: fn(u64, &T)) -> Arc<Self> {
        Self::new(1, MINUTE, write_sum)
    }

    fn new(max_lines: u32, interval: Duration, write_sum: fn(u64, &T)) -> Arc<Self> {
        let lines = Mutex::new(Lines { since: None, written: 0, unlogged: None });
        Arc::new(Self { max_lines, interval, write_sum, lines })
    }

    /// Counts an event. Returns it if it gets a line of its own. Otherwise it is part of the sum, which is written when
    /// the interval is over, by a task of tokio: at most one waits for each interval.
    pub(super) fn count(self: &Arc<Self>, event: T) -> Option<T> {
        let now = Instant::now();
        self.write_if_over(now);
        let mut lines = self.lock();
        let since = *lines.since.get_or_insert(now);
        if lines.written < self.max_lines {
            lines.written += 1;
            return Some(event);
        }
        let earlier = lines.unlogged.take().map_or(0, |(count, _)| count);
        lines.unlogged = Some((earlier + 1, event));
        drop(lines);
        if earlier == 0 {
            let (log, end) = (Arc::clone(self), since + self.interval);
            tokio::spawn(async move {
                sleep_until(end).await;
                log.write_if_over(Instant::now());
            });
        }
        None
    }

    /// Writes the sum of the events that have no line yet, at the end of the service.
    pub(super) fn flush(&self) {
        let unlogged = self.lock().unlogged.take();
        self.write(unlogged);
    }

    /// Writes the sum of an interval that is over, and begins the next one.
    fn write_if_over(&self, now: Instant) {
        let mut lines = self.lock();
        if lines.since.is_none_or(|since| now.duration_since(since) < self.interval) {
            return;
        }
        (lines.since, lines.written) = (None, 0);
        let unlogged = lines.unlogged.take();
        // The log may be slow, and others count meanwhile.
        drop(lines);
        self.write(unlogged);
    }

    fn write(&self, unlogged: Option<(u64, T)>) {
        if let Some((count, latest)) = unlogged {
            (self.write_sum)(count, &latest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lines<T>> {
        // Poisoning is harmless: the critical sections only count.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tokio::time::{advance, sleep};

    use super::*;

    /// The number of events, and the last of them.
    type Sum = (u64, u32);
    /// An event has a number, and knows where the sum goes.
    type Event = (u32, Sender<Sum>);

    fn log(max_lines: u32, interval: Duration) -> (Arc<LimitedLog<Event>>, Sender<Sum>, Receiver<Sum>) {
        let (sender, sums) = channel();
        let log = LimitedLog::new(max_lines, interval, |count, (number, sums): &Event| {
            sums.send((count, *number)).unwrap();
        });
        (log, sender, sums)
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_summed_above_20_lines_a_second() {
        let (log, sender, sums) = log(MAX_LINES_PER_SECOND, SECOND);
        let mut with_line = 0;
        for number in 0..1000 {
            with_line += u32::from(log.count((number, sender.clone())).is_some());
            advance(Duration::from_millis(1)).await;
        }
        assert!(log.count((1000, sender.clone())).is_some());
        assert_eq!((with_line, sums.try_iter().collect::<Vec<_>>()), (20, vec![(980, 999)]));
    }

    #[tokio::test(start_paused = true)]
    async fn sum_is_written_after_its_interval_without_an_event() {
        let (log, sender, sums) = log(1, SECOND);
        let count = |number| log.count((number, sender.clone())).is_some();
        assert_eq!([count(1), count(2), count(3)], [true, false, false]);
        sleep(Duration::from_millis(999)).await;
        assert!(sums.try_recv().is_err(), "the interval is not over");
        sleep(Duration::from_millis(2)).await;
        assert_eq!(sums.try_iter().collect::<Vec<_>>(), [(2, 3)]);
        sleep(MINUTE).await;
        assert_eq!([count(4), count(5)], [true, false]);
        assert!(sums.try_recv().is_err(), "a timer of an earlier interval writes nothing");
        sleep(2 * SECOND).await;
        assert_eq!(sums.try_iter().collect::<Vec<_>>(), [(1, 5)]);
    }

    #[tokio::test(start_paused = true)]
    async fn sum_is_written_at_the_end_of_the_service() {
        let (log, sender, sums) = log(1, MINUTE);
        (1..=3).for_each(|number| _ = log.count((number, sender.clone())));
        log.flush();
        log.flush();
        assert_eq!(sums.try_iter().collect::<Vec<_>>(), [(2, 3)]);
    }
}
