//! Whether the server is registered, for the log and for metrics: one line when it is, and while it is not, the cause
//! each minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::http::CallResponse;
use crate::issuer_link::IssuerReply;

/// The time after which the line of a failure that goes on is repeated.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
/// The code of the error of a server that was replaced.
const REPLACED: &str = "server_replaced";

/// Whether the issuer has taken the last heartbeat of a server. A clone is a handle to the same state.
#[derive(Clone, Debug, Default)]
pub struct RegistrationState(Arc<AtomicBool>);

impl RegistrationState {
    /// Returns whether the issuer has taken the last heartbeat. Before the first one it is false.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, is_registered: bool) {
        self.0.store(is_registered, Ordering::Relaxed);
    }
}

/// A failure that is in the log.
struct LoggedFailure {
    cause: String,
    repeat_at: Instant,
}

/// The lines of one server.
pub(crate) struct RegistrationLog {
    server: String,
    group: String,
    state: RegistrationState,
    /// Whether a heartbeat was ever taken.
    has_registered: bool,
    failure: Option<LoggedFailure>,
}

impl RegistrationLog {
    pub(crate) fn new(server: &str, group: &str, state: RegistrationState) -> Self {
        Self { server: server.to_owned(), group: group.to_owned(), state, has_registered: false, failure: None }
    }

    /// Logs the first heartbeat that was taken, and the first one after a failure.
    pub(crate) fn on_taken(&mut self, url: &str) {
        self.state.set(true);
        let (server, group) = (&self.server, &self.group);
        let has_failed = self.failure.take().is_some();
        if !std::mem::replace(&mut self.has_registered, true) {
            info!(server, group, url, "the server is registered");
        } else if has_failed {
            info!(server, group, url, "the issuer takes heartbeats again");
        }
    }

    /// Logs why a heartbeat was not taken: at once if the cause is new, otherwise once a minute.
    pub(crate) fn on_failed(&mut self, reply: &IssuerReply, now: Instant) {
        self.state.set(false);
        let (code, reason) = (reply.error("code"), reply.error("message"));
        let cause = match &reply.result {
            Ok(response) => format!("{} {}", response.status, code.unwrap_or_default()),
            Err(error) => error.clone(),
        };
        if !self.is_due(cause, now) {
            return;
        }
        let (server, group, url) = (&self.server, &self.group, &reply.url);
        let (service, call) = ("issuer", "heartbeat");
        match &reply.result {
            Ok(CallResponse { status: 409, .. }) if code == Some(REPLACED) => {
                warn!(server, group, url, reason, "two servers have one id, and tokens lead to the other one");
            }
            Ok(CallResponse { status, .. }) => {
                warn!(service, call, server, group, url, status, reason, "a call was refused");
            }
            Err(error) => warn!(service, call, server, group, url, error, "a call failed"),
        }
    }

    /// Returns whether the line of a failure is due, and counts it as logged then.
    fn is_due(&mut self, cause: String, now: Instant) -> bool {
        let logged = self.failure.as_ref();
        let is_due = logged.is_none_or(|logged| logged.cause != cause || now >= logged.repeat_at);
        if is_due {
            self.failure = Some(LoggedFailure { cause, repeat_at: now + REPEAT_INTERVAL });
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_logged_each_minute_and_when_its_cause_changes() {
        let (mut log, start) = (RegistrationLog::new("a", "red", RegistrationState::default()), Instant::now());
        for (cause, seconds, is_due) in [
            ("401 unauthorized", 0, true),
            ("401 unauthorized", 59, false),
            ("401 unauthorized", 60, true),
            ("UnknownIssuer", 61, true),
            ("UnknownIssuer", 120, false),
            ("UnknownIssuer", 121, true),
            ("401 unauthorized", 122, true),
        ] {
            assert_eq!(
                log.is_due(cause.into(), start + Duration::from_secs(seconds)),
                is_due,
                "{cause} at {seconds} s"
            );
        }
        log.on_taken("http://127.0.0.1");
        assert!(log.state.is_registered() && log.is_due("401 unauthorized".into(), start));
    }
}
