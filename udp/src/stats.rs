//! What the sockets have counted: traffic, and trouble by kind.

use std::io;

#[cfg(unix)]
use libc as raw;

/// A kind of trouble that a socket reports. None of it ends anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Trouble {
    /// The send buffer is full (EAGAIN, ENOBUFS): the datagram is lost.
    BufferFull,
    /// The datagram is larger than the path or the system allows (EMSGSIZE).
    TooLarge,
    /// Network or host cannot be reached, or the network is down.
    Unreachable,
    /// The other side's port is closed (ECONNREFUSED, ECONNRESET).
    Refused,
    /// A firewall or the system's policy forbids it (EPERM, EACCES).
    Forbidden,
    /// No socket of this address family is bound.
    NoSocket,
    /// Anything else.
    Other,
}

impl Trouble {
    /// Every kind, in the order of the counters.
    pub const ALL: [Self; 7] = [
        Self::BufferFull,
        Self::TooLarge,
        Self::Unreachable,
        Self::Refused,
        Self::Forbidden,
        Self::NoSocket,
        Self::Other,
    ];

    /// The kind as a stable `snake_case` word, for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BufferFull => "buffer_full",
            Self::TooLarge => "too_large",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Forbidden => "forbidden",
            Self::NoSocket => "no_socket",
            Self::Other => "other",
        }
    }

    /// The kind of an error of the system.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::WouldBlock | Kind::OutOfMemory => Self::BufferFull,
            Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::NetworkDown | Kind::AddrNotAvailable => {
                Self::Unreachable
            }
            Kind::ConnectionRefused | Kind::ConnectionReset => Self::Refused,
            Kind::PermissionDenied => Self::Forbidden,
            _ => Self::of_raw(error.raw_os_error()),
        }
    }

    /// Errors to which the standard library gives no name of its own.
    fn of_raw(code: Option<i32>) -> Self {
        match code {
            Some(code) if code == raw::EMSGSIZE => Self::TooLarge,
            Some(code) if code == raw::ENOBUFS => Self::BufferFull,
            _ => Self::Other,
        }
    }
}

/// As Winsock's documentation has them.
#[cfg(windows)]
mod raw {
    pub(super) const EMSGSIZE: i32 = 10040;
    pub(super) const ENOBUFS: i32 = 10055;
}

/// What the sockets have counted since they were bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketStats {
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Bytes of datagrams received, without headers.
    pub bytes_received: u64,
    /// Datagrams that the system took for sending.
    pub datagrams_sent: u64,
    /// Bytes of datagrams sent, without headers.
    pub bytes_sent: u64,
    /// System calls that received: with batches one brings up to 64 datagrams.
    pub receive_calls: u64,
    /// System calls that sent: with batches one takes up to 64 datagrams.
    pub send_calls: u64,
    /// Datagrams that arrived and that the system dropped before they could be read; `None` where it does not tell.
    ///
    /// Linux tells (by `SO_MEMINFO`) how many the receive buffer had no room for, together with those that the kernel
    /// filter refused, if there is one, and those whose checksum was wrong. How many of them the former were at most,
    /// [`Overflow`](super::Overflow) tells.
    pub dropped_by_system: Option<u64>,
    pub(super) troubles: [u64; Trouble::ALL.len()],
    pub(super) turns: u64,
}

impl SocketStats {
    /// How often a kind of trouble was reported, sending and receiving together.
    #[must_use]
    pub fn trouble(&self, kind: Trouble) -> u64 {
        self.troubles.get(kind as usize).copied().unwrap_or(0)
    }

    /// Counts what other sockets have counted; what the system dropped is known if it is of both.
    pub fn add_all(&mut self, other: &Self) {
        self.datagrams_received += other.datagrams_received;
        self.bytes_received += other.bytes_received;
        self.datagrams_sent += other.datagrams_sent;
        self.bytes_sent += other.bytes_sent;
        self.receive_calls += other.receive_calls;
        self.send_calls += other.send_calls;
        let both = self.dropped_by_system.zip(other.dropped_by_system);
        self.dropped_by_system = both.map(|(ours, theirs)| ours + theirs);
        self.troubles.iter_mut().zip(other.troubles).for_each(|(count, more)| *count += more);
        self.turns = self.turns.wrapping_add(other.turns);
    }

    pub(super) fn note_received(&mut self, bytes: usize) {
        self.datagrams_received += 1;
        self.bytes_received += bytes as u64;
    }

    /// Datagrams left, of so many bytes together.
    pub(super) fn note_left(&mut self, datagrams: usize, bytes: usize) {
        self.datagrams_sent += datagrams as u64;
        self.bytes_sent += bytes as u64;
    }

    pub(super) fn note_sent(&mut self, result: io::Result<usize>, bytes: usize) {
        match result {
            Ok(_) => self.note_left(1, bytes),
            Err(error) => self.note_trouble(Trouble::of(&error)),
        }
    }

    pub(super) fn note_trouble(&mut self, kind: Trouble) {
        self.note_troubles(kind, 1);
    }

    pub(super) fn note_troubles(&mut self, kind: Trouble, times: u64) {
        if let Some(count) = self.troubles.get_mut(kind as usize) {
            *count += times;
        }
    }
}
