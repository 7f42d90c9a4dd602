//! What the proxy has counted.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::stats::PathStats;

/// What the proxy has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProxyStats {
    /// Clients at present.
    pub clients: usize,
    /// Clients that came.
    pub joined: u64,
    /// Clients that were silent for too long, and are forgotten.
    pub left: u64,
    /// Datagrams of clients for whom there was no place.
    pub refused: u64,
    /// How often a client was given another address.
    pub rebindings: u64,
    /// All clients' datagrams to the server.
    pub up: PathStats,
    /// The server's datagrams to all clients.
    pub down: PathStats,
    /// What sockets reported.
    pub troubles: SocketTroubles,
}

/// A kind of trouble that a socket reports. None of it ends anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SocketTrouble {
    /// Nobody listens at the other end (ECONNREFUSED, ECONNRESET).
    Closed,
    /// The system's own buffer is full (EAGAIN): the datagram is lost by the machine, not by the path.
    Full,
    /// Anything else.
    Other,
}

impl SocketTrouble {
    pub(super) fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Self::Closed,
            io::ErrorKind::WouldBlock => Self::Full,
            _ => Self::Other,
        }
    }
}

/// Counters of troubles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketTroubles {
    /// Nobody listened at the other end.
    pub closed: u64,
    /// Datagrams for which the system had no room.
    pub full: u64,
    /// All others.
    pub other: u64,
}

impl SocketTroubles {
    pub(super) const fn note(&mut self, trouble: SocketTrouble) {
        match trouble {
            SocketTrouble::Closed => self.closed += 1,
            SocketTrouble::Full => self.full += 1,
            SocketTrouble::Other => self.other += 1,
        }
    }
}

/// A client of the present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientReport {
    /// Its address.
    pub address: SocketAddr,
    /// The address by which the server knows it.
    pub upstream: Option<SocketAddr>,
    /// How often that one changed.
    pub rebindings: u64,
    /// Its datagrams to the server.
    pub up: PathStats,
    /// The server's datagrams to it.
    pub down: PathStats,
    /// How long a datagram to the server would wait now.
    pub up_queue: Duration,
    /// How long a datagram from the server would wait now.
    pub down_queue: Duration,
}
