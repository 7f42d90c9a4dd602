//! The life cycle of the server for systemd: units of `Type=notify`. It does nothing without the variable
//! `NOTIFY_SOCKET`, which systemd sets.
//!
//! ```text
//!  starting ─▶ READY=1 ─▶ STOPPING=1 (drain) ─▶ ended
//! ```

#[cfg(target_os = "linux")]
use sd_notify::NotifyState;

/// Reports that the sockets are bound and clients may connect.
pub(crate) fn notify_ready() {
    #[cfg(target_os = "linux")]
    notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// Reports that the server admits no new clients, and ends.
pub(crate) fn notify_draining() {
    #[cfg(target_os = "linux")]
    notify(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

/// Sends one message. The server runs on if systemd does not take it.
#[cfg(target_os = "linux")]
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "systemd cannot be notified");
    }
}
