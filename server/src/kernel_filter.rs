//! The kernel's packet filter of a server's sockets: whether it is installed, and how strict it is.

use std::io;

use slipgate_netcode::discard::{Discard, Discards};
use slipgate_udp::{OtherProtocol, SocketFilter, Sockets};
use tracing::warn;

/// The state of the kernel filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelFilter {
    /// No filter is installed: the system has none, or it was switched off.
    Off,
    /// The filter that was requested last is installed. It passes the first request for another protocol id, because
    /// that is usually an operator's mistake, and the log must be able to report it.
    On(SocketFilter),
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

    /// Drops requests for other protocol ids in the kernel once the server has seen one.
    pub(crate) fn tighten(&mut self, sockets: &Sockets, discards: &Discards) {
        if let Self::On(filter @ SocketFilter { other_protocols: OtherProtocol::Passes, .. }) = *self
            && discards[Discard::RequestProtocol] > 0
        {
            let strict = SocketFilter { other_protocols: OtherProtocol::Dropped, ..filter };
            if let Err(error) = self.change(sockets, Some(strict))
                && *self != Self::Off
            {
                warn!(%error, "the kernel filter is unchanged: requests for other protocol ids still wake the server");
                // Recorded as strict, so that the system is not asked again every turn.
                *self = Self::On(strict);
            }
        }
    }
}
