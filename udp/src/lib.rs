//! UDP sockets, one for IPv4 and one for IPv6, and batches of datagrams.
//!
//! ```text
//!                      Linux                                     elsewhere
//!  ReceiveBatch  ◀──  one recvmmsg for 64                       recv_from for each
//!  SendBatch     ──▶  one sendmmsg for 64, in which datagrams   send_to for each
//!                     to one receiver are one message that
//!                     the kernel cuts (UDP_SEGMENT)
//! ```
//!
//! No error of a socket ends anything: a game goes on when a router says that one host is unreachable. Errors are
//! counted by kind, and the datagrams they concern are lost, as datagrams may be.

// Only `system` may call what the standard library has no name for.
#![deny(unsafe_code)]

mod batch;
#[cfg(target_os = "linux")]
mod batched;
mod dscp;
mod filter;
mod nap;
mod overflow;
mod port;
mod portable;
#[cfg(target_os = "linux")]
mod runs;
#[cfg(target_os = "linux")]
mod sending;
mod shards;
mod stats;
#[cfg(target_os = "linux")]
mod system;
mod waker;
mod wakes;

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};
use slipgate_netcode::address::Address;

use self::port::{Port, Sharing};
use self::wakes::Wakes;
use slipgate_os::listen::ListenError;

#[cfg(target_os = "linux")]
use self::batched::Datapath;
#[cfg(not(target_os = "linux"))]
use self::portable::Datapath;

pub use self::batch::{BATCH, ReceiveBatch, Received, SendBatch};
pub use self::dscp::{Dscp, Marking, NotADscp};
pub use self::filter::{Filter, Foreign, Instruction, code};
pub use self::nap::{Woke, nap};
pub use self::overflow::Overflow;
pub use self::port::{Buffers, MIN_SOCKET_BUFFER_BYTES, SOCKET_BUFFER_BYTES};
pub use self::shards::Steering;
pub use self::stats::{SocketStats, Trouble};
pub use self::waker::Waker;

/// Reads after which what the system dropped is noted, because it counts modulo 2^32. Nothing drops so much between two
/// notes: in a loop that reads ten times a second it would take 600 million datagrams a second, and a quicker one notes
/// more often.
const READS_PER_NOTE: u64 = 64;

/// By which polling tells that the sockets' thread was woken.
const WAKER: Token = Token(2);

/// What one system call carries, from the least on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Batching {
    /// One datagram.
    Off,
    /// Up to 64 datagrams (Linux: `recvmmsg`, `sendmmsg`).
    Messages,
    /// Up to 64 datagrams, of which those to one receiver pass through most of the kernel as one (Linux: `UDP_SEGMENT`).
    Segments,
}

impl Batching {
    /// As a stable word, for logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Messages => "messages",
            Self::Segments => "segments",
        }
    }
}

/// The families of addresses, each with a socket of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn of(address: &SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// One socket for each family that is in use.
pub struct Sockets {
    v4: Option<Port>,
    v6: Option<Port>,
    datapath: Datapath,
    poll: Poll,
    events: Events,
    waker: Option<Waker>,
    wakes: Wakes,
    /// Nothing waits in the sockets, as far as we know: then polling tells of the next arrival.
    drained: bool,
    stats: SocketStats,
    overflow: Overflow,
    /// What is before all sockets.
    filter: Mutex<Option<Filter>>,
}

impl Sockets {
    /// Binds at most one IPv4 and one IPv6 address; port 0 lets the system choose. IPv6 sockets do not take IPv4.
    ///
    /// # Errors
    /// An address is in use, not of this machine, or not permitted; two addresses of one family, or none.
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        Self::bind_sharing(addresses, Sharing::Alone)
    }

    fn bind_sharing(addresses: &[SocketAddr], sharing: Sharing) -> io::Result<Self> {
        let mut sockets = Self {
            v4: None,
            v6: None,
            datapath: Datapath::default(),
            poll: Poll::new()?,
            events: Events::with_capacity(8),
            waker: None,
            wakes: Wakes::default(),
            drained: true,
            stats: SocketStats::default(),
            overflow: Overflow::begin(),
            filter: Mutex::default(),
        };
        for address in addresses {
            let home = if address.is_ipv4() { &mut sockets.v4 } else { &mut sockets.v6 };
            if home.is_some() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "at most one IPv4 and one IPv6 address"));
            }
            let mut port = Port::open(*address, sharing).map_err(|error| ListenError::new(*address, error))?;
            let token = Token(usize::from(address.is_ipv6()));
            sockets.poll.registry().register(&mut port.socket, token, Interest::READABLE)?;
            *home = Some(port);
        }
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an address to bind is needed"));
        }
        Ok(sockets)
    }

    /// The addresses that are bound, with the ports that the system chose.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.ports().filter_map(|(_, port)| port.socket.local_addr().ok()).collect()
    }

    /// What the sockets have counted. Where the system counts as well, this asks it.
    #[must_use]
    pub fn stats(&self) -> SocketStats {
        SocketStats { dropped_by_system: self.ports().map(|(_, port)| port.dropped()).sum(), ..self.stats }
    }

    /// The most of [`SocketStats::dropped_by_system`] for which a receive buffer had no room, and which the kernel
    /// filter did not refuse; see [`Overflow`]. Linux alone tells; it reads two files if anything was dropped, so once
    /// in a while is often enough.
    #[must_use]
    pub fn overflow_at_most(&self) -> Option<u64> {
        self.overflow.at_most(&self.stats())
    }

    /// What tells the overflow since these sockets were bound, of several shards' stats together, too.
    #[must_use]
    pub const fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// The buffers that the system gave, the smallest ones if there are two sockets; `None` if it does not tell.
    #[must_use]
    pub fn buffers(&self) -> Option<Buffers> {
        let given = self.ports().filter_map(|(_, port)| port.buffers().ok());
        given.reduce(|one, other| Buffers { receive: one.receive.min(other.receive), send: one.send.min(other.send) })
    }

    /// Marks everything that leaves from now on with a DSCP; without it, it is [`Dscp::DEFAULT`]. Answers whether the
    /// system has such a mark for each family.
    ///
    /// Windows takes the mark and ignores it for IPv4, unless its policies say otherwise, and has none for IPv6.
    ///
    /// # Errors
    /// When the system has the mark and refuses it.
    pub fn set_dscp(&self, dscp: Dscp) -> io::Result<Marking> {
        self.ports().try_fold(Marking::All, |so_far, (family, port)| {
            Ok(so_far.max(Marking::settle(dscp.mark(&port.options(), family))?))
        })
    }

    /// What one system call carries. It begins with the most that this kind of system has, and becomes less when this
    /// system, or its network card, turns out to have less.
    #[must_use]
    pub const fn batching(&self) -> Batching {
        self.datapath.batching()
    }

    /// Lets one system call carry this at most, from now on: for measurements, and where a system's batches are suspected.
    pub fn limit_batching(&mut self, most: Batching) {
        self.datapath.limit(most);
    }

    /// Puts a filter before the sockets, in the place of the one that was there, or takes it away: the kernel drops what it
    /// refuses, and nobody wakes for it. What waits in the sockets has passed, and is read whatever the new filter is. At no
    /// moment is a socket without the old one and the new one.
    ///
    /// # Errors
    /// `Unsupported` where systems have no such filter, all but Linux; when the system refuses it. Then the old one
    /// stays, or there is none if the system refuses that as well: [`filter`](Self::filter) tells.
    pub fn set_filter(&self, filter: Option<&Filter>) -> io::Result<()> {
        let mut present = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = 0;
        let set =
            self.ports().try_for_each(|(_, port)| filter::set(&port.options(), filter).inspect(|()| changed += 1));
        if set.is_ok() {
            *present = filter.copied();
            return set;
        }
        let mut back = self.ports().take(changed);
        if back.any(|(_, port)| filter::set(&port.options(), present.as_ref()).is_err()) {
            // Half a filter would be told as none.
            self.ports().for_each(|(_, port)| drop(filter::set(&port.options(), None)));
            *present = None;
        }
        set
    }

    /// The filter that is before the sockets.
    #[must_use]
    pub fn filter(&self) -> Option<Filter> {
        *self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a datagram to this address has a socket to leave by.
    #[must_use]
    pub fn reaches(&self, address: Address) -> bool {
        if address.socket_addr().is_ipv4() { self.v4.is_some() } else { self.v6.is_some() }
    }

    /// Fills the batch with datagrams that wait; it is empty when none do.
    ///
    /// Both families take turns in being first, so that a flood on one does not starve the other.
    pub fn receive(&mut self, batch: &mut ReceiveBatch) {
        batch.clear();
        self.stats.turns = self.stats.turns.wrapping_add(1);
        let v4_first = self.stats.turns.is_multiple_of(2);
        if self.stats.turns.is_multiple_of(READS_PER_NOTE) {
            [&mut self.v4, &mut self.v6].into_iter().flatten().for_each(Port::note_dropped);
        }
        let order = if v4_first { [&self.v4, &self.v6] } else { [&self.v6, &self.v4] };
        let both = self.v4.is_some() && self.v6.is_some();
        self.drained = true;
        for (place, port) in order.into_iter().flatten().enumerate() {
            let room = if both && place == 0 { BATCH / 2 } else { BATCH };
            self.drained &= self.datapath.receive(&port.socket, batch, room, &mut self.stats);
        }
        self.wakes.note_read(batch.len());
    }

    /// Whether nothing more waited when the last batch was received.
    #[must_use]
    pub const fn is_drained(&self) -> bool {
        self.drained
    }

    /// Sends the batch and empties it. What the system does not take is lost, and counted.
    pub fn send(&mut self, batch: &mut SendBatch) {
        for (family, port) in [(Family::V4, &self.v4), (Family::V6, &self.v6)] {
            if let Some(port) = port {
                self.datapath.send(&port.socket, family, batch, &mut self.stats);
            } else {
                let homeless = batch.iter().filter(|(to, _)| Family::of(to) == family);
                homeless.for_each(|_| self.stats.note_trouble(Trouble::NoSocket));
            }
        }
        batch.clear();
    }

    /// Sleeps until a datagram has arrived or the time is over. It does not sleep while datagrams wait.
    ///
    /// # Errors
    /// When the system cannot wait. A signal ends the wait early and is no error.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = if self.drained { timeout } else { Duration::ZERO };
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        self.drained &= self.events.iter().all(|event| event.token() == WAKER);
        Ok(())
    }

    /// What ends a wait from another thread.
    ///
    /// # Errors
    /// When the system has no handle left for it.
    pub fn waker(&mut self) -> io::Result<Waker> {
        if let Some(waker) = &self.waker {
            return Ok(waker.clone());
        }
        let waker = Waker::of(&self.poll)?;
        Ok(self.waker.insert(waker).clone())
    }

    fn ports(&self) -> impl Iterator<Item = (Family, &Port)> {
        let ports = [(Family::V4, &self.v4), (Family::V6, &self.v6)];
        ports.into_iter().filter_map(|(family, port)| Some((family, port.as_ref()?)))
    }
}

#[cfg(test)]
mod tests;
