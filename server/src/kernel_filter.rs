//! The kernel's packet filter of a server's sockets: whether it is installed, and how strict it is.
//!
//! ```text
//!   Off ──▶ On: other protocol ids pass ──▶ Strict: the kernel drops them
//!             ▲        the warning was due        │
//!             └────────── after 5 minutes ────────┘
//! ```

use std::io;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_udp::{OtherProtocol, SocketFilter, Sockets};
use tracing::warn;

/// How long the filter is strict: as long as the warning of other protocol ids is not repeated.
const STRICT_TIME: Duration = Duration::from_secs(300);

/// The state of the kernel filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelFilter {
    /// No filter is installed: the system has none, or it was switched off.
    Off,
    /// The filter that was requested last is installed. It passes requests for another protocol id, because they are
    /// usually an operator's mistake, and the log must be able to report it.
    On(SocketFilter),
    /// The filter drops requests for other protocol ids until this moment.
    Strict(SocketFilter, Instant),
}

impl KernelFilter {
    /// Installs the filter if the system supports filters.
    pub(crate) fn install(sockets: &Sockets, protocol_id: u64) -> Self {
        let mut filter = Self::Off;
        // A server without a filter works: it wakes for junk and drops it itself.
        let _ = filter.switch_on(sockets, protocol_id);
        filter
    }

    /// Installs the filter. If the system refuses it, the previous state remains.
    pub(crate) fn switch_on(&mut self, sockets: &Sockets, protocol_id: u64) -> io::Result<()> {
        self.change(sockets, Some(SocketFilter { protocol_id, other_protocols: OtherProtocol::Passes }))
    }

    /// Removes the filter. If the system refuses that, the filter remains.
    pub(crate) fn switch_off(&mut self, sockets: &Sockets) -> io::Result<()> {
        self.change(sockets, None)
    }

    fn change(&mut self, sockets: &Sockets, filter: Option<SocketFilter>) -> io::Result<()> {
        let changed = sockets.set_filter(filter.as_ref());
        let was_on = *self != Self::Off;
        *self = sockets.filter().map_or(Self::Off, Self::On);
        if let Err(error) = &changed
            && was_on
            && *self == Self::Off
        {
            warn!(%error, "the kernel filter is gone: the system neither replaced nor restored it");
        }
        changed
    }

    /// Drops requests for other protocol ids in the kernel once the log has reported them (`is_reported`), and lets
    /// them pass again after [`STRICT_TIME`], so that the log can report the next ones. Returns whether it replaced the
    /// filter, which ends all blocks.
    pub(crate) fn adjust(&mut self, sockets: &Sockets, is_reported: bool, now: Instant) -> bool {
        let (filter, other_protocols) = match *self {
            Self::On(filter) if is_reported => (filter, OtherProtocol::Dropped),
            Self::Strict(filter, until) if now >= until => (filter, OtherProtocol::Passes),
            _ => return false,
        };
        let refused = self.change(sockets, Some(SocketFilter { other_protocols, ..filter })).err();
        if let Some(error) = &refused
            && *self != Self::Off
        {
            warn!(%error, "the kernel filter is unchanged: the system refuses another one");
        }
        // A refused change counts as strict, too, so that the system is not asked again every turn.
        if let Self::On(filter) = *self
            && (refused.is_some() || other_protocols == OtherProtocol::Dropped)
        {
            *self = Self::Strict(filter, now.after(STRICT_TIME));
        }
        refused.is_none()
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_strict_for_five_minutes_after_each_report() {
        let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let mut filter = KernelFilter::install(&sockets, 7);
        let mut strict_at = |second: u64, is_reported| {
            let _ = filter.adjust(&sockets, is_reported, Instant::from_start(Duration::from_secs(second)));
            sockets.filter().unwrap().other_protocols == OtherProtocol::Dropped
        };
        assert!(!strict_at(0, false) && !strict_at(1000, false), "nothing was reported");
        assert!(strict_at(1001, true) && strict_at(1001, true) && strict_at(1300, false));
        assert!(!strict_at(1301, false), "the next requests can be reported");
        assert!(!strict_at(5000, false) && strict_at(5001, true) && !strict_at(5301, true));
    }
}
