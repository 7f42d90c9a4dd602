//! The counters of the proxy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::stats::DirectionStats;

/// What the proxy has done since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProxyStats {
    /// Current clients.
    pub clients: usize,
    /// Clients that joined.
    pub joined: u64,
    /// Clients that were removed after the idle time.
    pub left: u64,
    /// Datagrams from further clients, beyond the maximum.
    pub refused: u64,
    /// How often a client got another address.
    pub rebindings: u64,
    /// All clients' datagrams to the server.
    pub up: DirectionStats,
    /// The server's datagrams to all clients.
    pub down: DirectionStats,
    /// Errors of sockets.
    pub socket_errors: SocketErrors,
    /// Datagrams that the system dropped because a socket of the proxy was full: the machine, not the path, lost them.
    /// `None` if the system does not report them.
    pub dropped_by_system: Option<u64>,
}

/// The class of a socket error. None of them stops the proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SocketErrorClass {
    /// The port at the other end is closed (ECONNREFUSED, ECONNRESET).
    Closed,
    /// The send buffer of the system is full (EAGAIN). The machine, not the path, loses the datagram.
    Full,
    /// Anything else.
    Other,
}

impl SocketErrorClass {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::Closed,
            io::ErrorKind::WouldBlock => Self::Full,
            _ => Self::Other,
        }
    }
}

/// Socket errors by class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketErrors {
    /// The port at the other end was closed.
    pub closed: u64,
    /// Datagrams for which the send buffer had no space.
    pub full: u64,
    /// All other errors.
    pub other: u64,
}

impl SocketErrors {
    pub(super) const fn count(&mut self, class: SocketErrorClass) {
        match class {
            SocketErrorClass::Closed => self.closed += 1,
            SocketErrorClass::Full => self.full += 1,
            SocketErrorClass::Other => self.other += 1,
        }
    }
}

/// The state of a current client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProxyClientReport {
    /// Its address.
    pub address: SocketAddr,
    /// The address of the client as the server sees it.
    pub upstream: Option<SocketAddr>,
    /// How often that address changed.
    pub rebindings: u64,
    /// Its datagrams to the server.
    pub up: DirectionStats,
    /// The server's datagrams to it.
    pub down: DirectionStats,
    /// How long a datagram to the server would wait for the link now.
    pub up_queue: Duration,
    /// How long a datagram from the server would wait for the link now.
    pub down_queue: Duration,
}
