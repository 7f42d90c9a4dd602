//! The kernel's filter before a server's sockets: when it is there, and how much it drops.

use std::io;

use slipgate_edge::udp::{Filter, Foreign, Sockets};
use slipgate_protocol::discard::{Discard, Discards};

/// The filter of a server's sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filtering {
    /// There is none: the system has none to give, or it was switched off.
    Off,
    /// There is one. The first request for another protocol id passes it, for that is an operator's mistake more often than
    /// a stranger's, and the log must be able to tell of it.
    On(Filter),
}

impl Filtering {
    /// Puts the filter before the sockets, if the system has filters.
    pub(crate) fn begin(sockets: &Sockets, protocol_id: u64) -> Self {
        Self::on(sockets, protocol_id).unwrap_or(Self::Off)
    }

    /// Puts it there.
    pub(crate) fn on(sockets: &Sockets, protocol_id: u64) -> io::Result<Self> {
        let filter = Filter { protocol_id, foreign: Foreign::Passes };
        sockets.set_filter(Some(&filter))?;
        Ok(Self::On(filter))
    }

    /// Takes it away.
    pub(crate) fn off(sockets: &Sockets) -> io::Result<Self> {
        sockets.set_filter(None)?;
        Ok(Self::Off)
    }

    /// Lets requests for other protocol ids pass no more, once one was seen.
    pub(crate) fn tighten(&mut self, sockets: &Sockets, discards: &Discards) {
        if let Self::On(filter @ Filter { foreign: Foreign::Passes, .. }) = self
            && discards.count(Discard::RequestProtocol) > 0
        {
            // Where the system refuses it, the filter stays as it was, and is not asked for again.
            filter.foreign = Foreign::Dropped;
            let _ = sockets.set_filter(Some(filter));
        }
    }
}
