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
//! Socket errors never stop a server or client: a router that reports one host as unreachable must not end a game.
//! Errors are counted by kind, and the datagrams they concern are lost.

// Only `syscalls` and `syscalls_windows` may use `unsafe`, for calls without a safe wrapper in the standard library.
#![deny(unsafe_code)]

mod address_family;
mod batch;
#[cfg(target_os = "linux")]
mod batched;
mod batching;
mod bound_socket;
mod coalesce;
mod dscp;
mod filter;
#[cfg(target_os = "linux")]
mod gso;
mod heap;
mod overflow;
mod poll;
mod portable;
#[cfg(target_os = "linux")]
mod refusal;
#[cfg(target_os = "linux")]
mod sending;
mod shards;
mod stats;
#[cfg(target_os = "linux")]
mod syscalls;
#[cfg(windows)]
mod syscalls_windows;
mod time_slice;
mod waker;

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};
use slipgate_netcode::address::Address;

use self::address_family::AddressFamily;
use self::bound_socket::{BoundSocket, PortSharing};
use self::coalesce::WakeupCoalescer;
use self::waker::WAKER;
use slipgate_os::listen::ListenError;

#[cfg(target_os = "linux")]
use self::batched::BatchedDatapath as Datapath;
#[cfg(not(target_os = "linux"))]
use self::portable::PortableDatapath as Datapath;

pub use self::batch::{BATCH_SIZE, DatagramMut, ReceiveBatch, SendBatch};
pub use self::batching::Batching;
pub use self::bound_socket::{
    MIN_SOCKET_BUFFER_BYTES, SOCKET_BUFFER_BYTES, SocketBuffers, read_drops, request_large_buffers,
};
pub use self::coalesce::WakePolicy;
pub use self::dscp::{Dscp, Marking, ParseDscpError};
pub use self::filter::{
    BlockResults, BlockedSender, BpfInstruction, NEXT_SEQUENCES, OtherProtocol, Passing, SocketFilter, code,
    sequence_of,
};
pub use self::heap::HeapTrimmer;
pub use self::overflow::Overflow;
pub use self::poll::{Wakeup, poll_coalesced};
pub use self::shards::Steering;
pub use self::stats::{SocketErrorKind, SocketStats};
pub use self::time_slice::{shorten_time_slice, time_slice};
pub use self::waker::Waker;

/// The number of reads after which the kernel's drop counters are read, because they count modulo 2^32. A wrap is
/// missed only above 600 million drops per second at ten reads per second; faster loops read the counters more often.
const READS_PER_DROP_UPDATE: u64 = 64;

/// UDP sockets: one for each address family in use.
///
/// # Examples
/// ```no_run
/// use slipgate_udp::Sockets;
///
/// # fn main() -> std::io::Result<()> {
/// // Port 0: the system chooses one for each address family.
/// let sockets = Sockets::bind(&["127.0.0.1:0".parse().expect("an address")])?;
/// println!("listening on {:?}", sockets.local_addresses());
/// # Ok(())
/// # }
/// ```
pub struct Sockets {
    v4: Option<BoundSocket>,
    v6: Option<BoundSocket>,
    datapath: Datapath,
    poll: Poll,
    events: Events,
    waker: Option<Waker>,
    coalescer: WakeupCoalescer,
    /// Whether the sockets are known to be empty, so that polling reports the next arrival.
    drained: bool,
    stats: SocketStats,
    overflow: Overflow,
    /// The kernel filter of all sockets.
    filter: Mutex<Option<SocketFilter>>,
}

impl Sockets {
    /// Binds at most one IPv4 and one IPv6 address. Port 0 lets the system choose. IPv6 sockets do not accept IPv4.
    ///
    /// # Errors
    /// `InvalidInput` for two addresses of one family or for none; otherwise a [`ListenError`] with the kind of the
    /// system's error: `AddrInUse`, `AddrNotAvailable` or `PermissionDenied`, for example.
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        Self::bind_sharing(addresses, PortSharing::Alone)
    }

    fn bind_sharing(addresses: &[SocketAddr], sharing: PortSharing) -> io::Result<Self> {
        let mut sockets = Self {
            v4: None,
            v6: None,
            datapath: Datapath::default(),
            poll: Poll::new()?,
            events: Events::with_capacity(8),
            waker: None,
            coalescer: WakeupCoalescer::default(),
            drained: true,
            stats: SocketStats::default(),
            overflow: Overflow::begin(),
            filter: Mutex::default(),
        };
        for address in addresses {
            let family = if address.is_ipv4() { &mut sockets.v4 } else { &mut sockets.v6 };
            if family.is_some() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "at most one IPv4 and one IPv6 address"));
            }
            let mut port = BoundSocket::open(*address, sharing).map_err(|error| ListenError::new(*address, error))?;
            let token = Token(usize::from(address.is_ipv6()));
            sockets.poll.registry().register(&mut port.socket, token, Interest::READABLE)?;
            *family = Some(port);
        }
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an address to bind is needed"));
        }
        Ok(sockets)
    }

    /// Returns the bound addresses, with the ports that the system chose.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.bound().filter_map(|(_, port)| port.socket.local_addr().ok()).collect()
    }

    /// Returns the counters. Reads the kernel's drop counters, where the system has them, by one system call for each
    /// socket.
    #[must_use]
    pub fn stats(&self) -> SocketStats {
        SocketStats { dropped_by_system: self.bound().map(|(_, port)| port.dropped()).sum(), ..self.stats }
    }

    /// Returns an upper bound of the datagrams in [`SocketStats::dropped_by_system`] that were dropped because a
    /// receive buffer was full, and not by the kernel filter; see [`Overflow`]. `None` on systems other than Linux. It
    /// reads two files if anything was dropped, so call it rarely.
    #[must_use]
    pub fn overflow_at_most(&self) -> Option<u64> {
        self.overflow.at_most(&self.stats())
    }

    /// Returns the baseline for the overflow since these sockets were bound. It also serves the summed counters of
    /// several shards.
    #[must_use]
    pub const fn overflow(&self) -> Overflow {
        self.overflow
    }

    /// Returns the buffer sizes that the system granted, the smaller ones if there are two sockets; `None` if the
    /// system does not report them.
    #[must_use]
    pub fn buffers(&self) -> Option<SocketBuffers> {
        let given = self.bound().filter_map(|(_, port)| port.buffers().ok());
        given.reduce(|one, other| SocketBuffers {
            receive: one.receive.min(other.receive),
            send: one.send.min(other.send),
        })
    }

    /// Sets the DSCP of all datagrams that leave from now on; it is [`Dscp::DEFAULT`] initially. Returns whether the
    /// system supports the mark for each family.
    ///
    /// Windows ignores the mark for IPv4 unless a policy permits it, and does not support it for IPv6.
    ///
    /// # Errors
    /// The error of the system if it supports the mark and refuses this value.
    pub fn set_dscp(&self, dscp: Dscp) -> io::Result<Marking> {
        self.bound().try_fold(Marking::All, |so_far, (family, port)| {
            Ok(so_far.max(Marking::from_result(dscp.mark(&port.options(), family))?))
        })
    }

    /// Sets how soon waits end after a datagram has arrived.
    pub fn set_wake_policy(&mut self, policy: WakePolicy) {
        self.coalescer.set_policy(policy);
    }

    /// Returns how soon waits end after a datagram has arrived.
    #[must_use]
    pub const fn wake_policy(&self) -> WakePolicy {
        self.coalescer.policy()
    }

    /// Counts datagrams that were read and dropped. They do not delay waits as those of clients do, see
    /// [`WakePolicy::Adaptive`]. While more than 4.5 of them arrive per millisecond, waits that are not delayed end at
    /// least 0.5 ms after the last one.
    pub fn count_dropped(&mut self, datagrams: usize) {
        self.coalescer.on_dropped(datagrams);
    }

    /// Excludes datagrams that were read from the rate that delays waits, see [`WakePolicy::Adaptive`]: those of a
    /// client that sends far more often than others. The number of clients should cause delays, and not one of them.
    pub fn exclude_from_rate(&mut self, datagrams: usize) {
        self.coalescer.on_excluded(datagrams);
    }

    /// Returns how many datagrams one system call carries. It starts at the maximum of this kind of system and is
    /// reduced if the system or its network card supports less.
    #[must_use]
    pub const fn batching(&self) -> Batching {
        self.datapath.batching()
    }

    /// Limits how many datagrams one system call carries from now on: for measurements, or where the batched calls of a
    /// system are suspected of a fault.
    pub fn limit_batching(&mut self, max: Batching) {
        self.datapath.limit(max);
    }

    /// Installs, replaces or removes the kernel filter. The kernel drops what the filter refuses without waking the
    /// thread. Datagrams that wait in the sockets have passed and are read regardless of the new filter. A socket
    /// always has either the old or the new filter.
    ///
    /// # Errors
    /// `Unsupported` on systems without such filters, all but Linux and Android; otherwise the error of the system if
    /// it refuses the filter. The old filter then stays. If the system also refuses to restore it, no filter remains:
    /// see [`filter`](Self::filter).
    pub fn set_filter(&self, filter: Option<&SocketFilter>) -> io::Result<()> {
        let mut present = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = 0;
        let set =
            self.bound().try_for_each(|(_, port)| filter::set(&port.options(), filter, &[]).inspect(|()| changed += 1));
        if set.is_ok() {
            *present = filter.copied();
            return set;
        }
        let mut to_restore = self.bound().take(changed);
        if to_restore.any(|(_, port)| filter::set(&port.options(), present.as_ref(), &[]).is_err()) {
            // A filter on one socket of two is removed, because it would be reported as none.
            self.bound().for_each(|(_, port)| drop(filter::set(&port.options(), None, &[])));
            *present = None;
        }
        set
    }

    /// Lets the installed kernel filter drop datagrams of these senders, instead of those that were blocked before.
    /// Datagrams that wait in the sockets are read regardless. It does nothing without a filter;
    /// [`set_filter`](Self::set_filter) ends all blocks.
    ///
    /// A result is the error of the system if it refuses the program of this address family, whose old one then stays.
    pub fn block_senders(&self, senders: &[BlockedSender]) -> BlockResults {
        let mut results = BlockResults { v4: Ok(()), v6: Ok(()) };
        let Some(filter) = self.filter() else { return results };
        for (family, port) in self.bound() {
            let of_family: Vec<_> =
                senders.iter().copied().filter(|sender| AddressFamily::of(&sender.address) == family).collect();
            let result = filter::set(&port.options(), Some(&filter), &of_family);
            match family {
                AddressFamily::V4 => results.v4 = result,
                AddressFamily::V6 => results.v6 = result,
            }
        }
        results
    }

    /// Returns the installed filter.
    #[must_use]
    pub fn filter(&self) -> Option<SocketFilter> {
        *self.filter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a socket of this address family is bound.
    #[must_use]
    #[inline]
    pub fn can_reach(&self, address: Address) -> bool {
        if address.socket_addr().is_ipv4() { self.v4.is_some() } else { self.v6.is_some() }
    }

    /// Fills the batch with waiting datagrams; it is empty if there are none.
    ///
    /// The two families alternate in being read first, so that a flood on one does not starve the other.
    pub fn receive(&mut self, batch: &mut ReceiveBatch) {
        batch.clear();
        self.stats.turns = self.stats.turns.wrapping_add(1);
        let v4_first = self.stats.turns.is_multiple_of(2);
        if self.stats.turns.is_multiple_of(READS_PER_DROP_UPDATE) {
            [&mut self.v4, &mut self.v6].into_iter().flatten().for_each(BoundSocket::update_drops);
        }
        let order = if v4_first { [&self.v4, &self.v6] } else { [&self.v6, &self.v4] };
        let both = self.v4.is_some() && self.v6.is_some();
        self.drained = true;
        for (index, port) in order.into_iter().flatten().enumerate() {
            let max = if both && index == 0 { BATCH_SIZE / 2 } else { BATCH_SIZE };
            self.drained &= self.datapath.receive(&port.socket, batch, max, &mut self.stats);
        }
        self.coalescer.on_read(batch.len());
    }

    /// Returns whether the sockets were empty after the last receive.
    #[must_use]
    #[inline]
    pub const fn is_drained(&self) -> bool {
        self.drained
    }

    /// Sends the batch and empties it. Datagrams that the system refuses are lost and counted.
    pub fn send(&mut self, batch: &mut SendBatch) {
        for (family, port) in [(AddressFamily::V4, &self.v4), (AddressFamily::V6, &self.v6)] {
            if let Some(port) = port {
                self.datapath.send(&port.socket, family, batch, &mut self.stats);
            } else {
                let unsent = batch.iter().filter(|(to, _)| AddressFamily::of(to) == family);
                unsent.for_each(|_| self.stats.count_error(SocketErrorKind::NoSocket));
            }
        }
        batch.clear();
    }

    /// Waits until a datagram arrives or the timeout ends. Returns at once while datagrams wait.
    ///
    /// # Errors
    /// The error of the system's poll. A signal ends the wait early and is not an error.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = if self.drained { timeout } else { Duration::ZERO };
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        self.drained &= self.events.iter().all(|event| event.token() == WAKER);
        Ok(())
    }

    /// Returns a handle that ends a wait from another thread.
    ///
    /// # Errors
    /// The error of the system if it has no file descriptor left.
    pub fn waker(&mut self) -> io::Result<Waker> {
        if let Some(waker) = &self.waker {
            return Ok(waker.clone());
        }
        let waker = Waker::of(&self.poll)?;
        Ok(self.waker.insert(waker).clone())
    }

    fn bound(&self) -> impl Iterator<Item = (AddressFamily, &BoundSocket)> {
        let sockets = [(AddressFamily::V4, &self.v4), (AddressFamily::V6, &self.v6)];
        sockets.into_iter().filter_map(|(family, port)| Some((family, port.as_ref()?)))
    }
}

#[cfg(test)]
mod tests;
