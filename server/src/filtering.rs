//! The kernel's filter before a server's sockets: when it is there, and how much it drops.

use std::io;

use slipgate_netcode::discard::{Discard, Discards};
use slipgate_udp::{Filter, Foreign, Sockets};
use tracing::warn;

/// The filter of a server's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filtering {
    /// There is none: the system has none to give, or it was switched off.
    Off,
    /// There is one, and this is what was asked for last. The first request for another protocol id passes it, for that is
    /// an operator's mistake more often than a stranger's, and the log must be able to tell of it.
    On(Filter),
}

impl Filtering {
    /// Puts the filter before the sockets, if the system has filters.
    pub(crate) fn begin(sockets: &Sockets, protocol_id: u64) -> Self {
        let mut filtering = Self::Off;
        let _ = filtering.switch_on(sockets, protocol_id);
        filtering
    }

    /// Puts it there; where the system refuses it, what was there stays.
    pub(crate) fn switch_on(&mut self, sockets: &Sockets, protocol_id: u64) -> io::Result<()> {
        self.change(sockets, Some(Filter { protocol_id, foreign: Foreign::Passes }))
    }

    /// Takes it away; where the system refuses that, it stays.
    pub(crate) fn switch_off(&mut self, sockets: &Sockets) -> io::Result<()> {
        self.change(sockets, None)
    }

    fn change(&mut self, sockets: &Sockets, filter: Option<Filter>) -> io::Result<()> {
        let changed = sockets.set_filter(filter.as_ref());
        let had_one = *self != Self::Off;
        *self = sockets.filter().map_or(Self::Off, Self::On);
        if let Err(error) = &changed
            && had_one
            && *self == Self::Off
        {
            warn!(%error, "the kernel filter is gone: the system neither replaced it nor put it back");
        }
        changed
    }

    /// Lets requests for other protocol ids pass no more, once one was seen.
    pub(crate) fn tighten(&mut self, sockets: &Sockets, discards: &Discards) {
        if let Self::On(filter @ Filter { foreign: Foreign::Passes, .. }) = *self
            && discards.count(Discard::RequestProtocol) > 0
        {
            let strict = Filter { foreign: Foreign::Dropped, ..filter };
            if let Err(error) = self.change(sockets, Some(strict))
                && *self != Self::Off
            {
                warn!(%error, "requests for other protocol ids go on to wake the server: the kernel filter stays as it was");
                // It is not asked again.
                *self = Self::On(strict);
            }
        }
    }
}
