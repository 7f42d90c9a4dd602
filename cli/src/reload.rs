//! Reads of files while a program runs: why, and which of them are worth a log line.

use std::fmt;

/// Why files are read again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReloadCause {
    /// SIGHUP.
    Signal,
    /// A file has changed, or the last read has failed some seconds ago.
    Files,
    /// An issuer seals with another key from now on.
    NewKey,
}

impl fmt::Display for ReloadCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signal => "SIGHUP",
            Self::Files => "a file has changed",
            Self::NewKey => "a new key seals",
        })
    }
}

/// The outcome of the last read of some files. After a failed read, further attempts have a log line only if their
/// outcome is another one.
#[derive(Debug, Default)]
pub struct LastRead {
    error: Option<String>,
}

impl LastRead {
    /// Returns whether the last read has failed.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// Records the outcome of a read. Returns whether it is worth a log line.
    pub fn record(&mut self, is_retry: bool, error: Option<String>) -> bool {
        let is_new = !is_retry || self.error != error;
        self.error = error;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_attempts_are_logged_if_their_outcome_is_new() {
        let mut last = LastRead::default();
        let error = |text: &str| Some(text.to_owned());
        assert!(last.record(false, None) && !last.has_failed());
        assert!(last.record(false, error("mode 0644")) && last.has_failed());
        assert!(!last.record(true, error("mode 0644")));
        assert!(last.record(false, error("mode 0644")), "an operator asks");
        assert!(last.record(true, error("not a key")));
        assert!(last.record(true, None) && !last.has_failed());
        assert!(!last.record(true, None), "other files have failed");
    }
}
