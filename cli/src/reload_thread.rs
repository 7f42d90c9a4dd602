//! Runs reloads on a thread of its own: a file system that hangs stops neither players nor the program.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use crate::reload::ReloadCause;

/// Requests that wait at most. Further ones are dropped: those that wait read the files later than they ask for.
const MAX_REQUESTS: usize = 8;

/// A thread that reads files again when it is asked to.
pub struct ReloadThread<T> {
    causes: SyncSender<ReloadCause>,
    results: Receiver<T>,
}

impl<T: Send + 'static> ReloadThread<T> {
    /// Starts the thread, which calls `read` for each request.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub fn start(mut read: impl FnMut(ReloadCause) -> Option<T> + Send + 'static) -> io::Result<Self> {
        let (causes, requests) = sync_channel(MAX_REQUESTS);
        let (send, results) = channel();
        let run = move || {
            for cause in requests {
                if read(cause).is_some_and(|result| send.send(result).is_err()) {
                    return;
                }
            }
        };
        // Nothing waits for its end: it may hang in a system call.
        thread::Builder::new().name("reload".to_owned()).spawn(run)?;
        Ok(Self { causes, results })
    }

    /// Requests a reload. Never waits.
    pub fn request(&self, cause: ReloadCause) {
        let _ = self.causes.try_send(cause);
    }

    /// Returns the oldest result that was not taken yet. Never waits.
    #[must_use]
    pub fn poll(&self) -> Option<T> {
        self.results.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use std::time::{Duration, Instant};

    use super::*;

    /// A reader that hangs for longer fails the test.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn reader_that_hangs_delays_neither_requests_nor_polls() {
        let ((started, starts), (release, released)) = (channel(), channel::<()>());
        let thread = ReloadThread::start(move |cause| {
            started.send(cause).ok()?;
            released.recv_timeout(2 * LONG).ok().map(|()| cause)
        })
        .unwrap();
        let start = Instant::now();
        thread.request(ReloadCause::Files);
        assert_eq!(starts.recv_timeout(LONG), Ok(ReloadCause::Files));
        for _ in 0..100 {
            thread.request(ReloadCause::Signal);
            assert_eq!(thread.poll(), None);
        }
        assert!(start.elapsed() < LONG, "requests and polls do not wait");
        assert!(starts.try_recv().is_err(), "one reload at a time");
        // The requests of the meantime are obeyed, as far as they differ in effect.
        (0..=MAX_REQUESTS).for_each(|_| release.send(()).unwrap());
        let mut results = Vec::new();
        while results.len() <= MAX_REQUESTS {
            assert!(start.elapsed() < 2 * LONG, "{results:?}");
            results.extend(thread.poll());
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(results[..2], [ReloadCause::Files, ReloadCause::Signal]);
        assert!(starts.recv_timeout(Duration::from_millis(1)).is_ok());
    }
}
