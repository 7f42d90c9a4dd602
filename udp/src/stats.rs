//! The counters of the sockets: traffic, and errors by kind.

use std::io;

#[cfg(unix)]
use libc as raw;

/// The kind of a socket error. None of them stops a server or client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SocketErrorKind {
    /// The send buffer is full (EAGAIN, ENOBUFS). The datagram is lost.
    BufferFull,
    /// The datagram is larger than the path or the system allows (EMSGSIZE).
    TooLarge,
    /// The network or the host is unreachable, or the network is down.
    Unreachable,
    /// The port of the peer is closed (ECONNREFUSED, ECONNRESET).
    Refused,
    /// A firewall or a policy of the system forbids it (EPERM, EACCES).
    Forbidden,
    /// No socket of this address family is bound.
    NoSocket,
    /// Anything else.
    Other,
}

impl SocketErrorKind {
    /// All kinds, in the order of the counters.
    pub const ALL: [Self; 7] = [
        Self::BufferFull,
        Self::TooLarge,
        Self::Unreachable,
        Self::Refused,
        Self::Forbidden,
        Self::NoSocket,
        Self::Other,
    ];

    /// Returns the kind as a stable `snake_case` word for metrics and logs.
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

    /// Returns the kind of an error of the system.
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

    /// Returns the kind of an error without an `io::ErrorKind` of its own.
    fn of_raw(code: Option<i32>) -> Self {
        match code {
            Some(code) if code == raw::EMSGSIZE => Self::TooLarge,
            Some(code) if code == raw::ENOBUFS => Self::BufferFull,
            _ => Self::Other,
        }
    }
}

/// The codes of Winsock's documentation.
#[cfg(windows)]
mod raw {
    pub(super) const EMSGSIZE: i32 = 10040;
    pub(super) const ENOBUFS: i32 = 10055;
}

/// The counters of the sockets since they were bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketStats {
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Bytes of datagrams received, without headers.
    pub bytes_received: u64,
    /// Datagrams that the system accepted for sending.
    pub datagrams_sent: u64,
    /// Bytes of datagrams sent, without headers.
    pub bytes_sent: u64,
    /// Receiving system calls. A batched call receives up to 64 datagrams.
    pub receive_calls: u64,
    /// Sending system calls. A batched call sends up to 64 datagrams.
    pub send_calls: u64,
    /// Datagrams that the system dropped on arrival; `None` where it does not report them.
    ///
    /// Linux reports (by `SO_MEMINFO`) the datagrams dropped by full receive buffers, by the kernel filter and for
    /// wrong checksums together. [`Overflow`](super::Overflow) bounds the share of the first.
    pub dropped_by_system: Option<u64>,
    pub(super) error_counts: [u64; SocketErrorKind::ALL.len()],
    pub(super) turns: u64,
}

impl SocketStats {
    /// Returns how often an error of this kind occurred, in sends and receives together.
    #[must_use]
    pub fn errors(&self, kind: SocketErrorKind) -> u64 {
        self.error_counts.get(kind as usize).copied().unwrap_or(0)
    }

    /// Adds the counters of other sockets. The drops stay known only if both report them.
    pub fn add_all(&mut self, other: &Self) {
        self.datagrams_received += other.datagrams_received;
        self.bytes_received += other.bytes_received;
        self.datagrams_sent += other.datagrams_sent;
        self.bytes_sent += other.bytes_sent;
        self.receive_calls += other.receive_calls;
        self.send_calls += other.send_calls;
        let both = self.dropped_by_system.zip(other.dropped_by_system);
        self.dropped_by_system = both.map(|(ours, theirs)| ours + theirs);
        self.error_counts.iter_mut().zip(other.error_counts).for_each(|(count, more)| *count += more);
        self.turns = self.turns.wrapping_add(other.turns);
    }

    pub(super) fn count_received(&mut self, bytes: usize) {
        self.datagrams_received += 1;
        self.bytes_received += bytes as u64;
    }

    /// Counts sent datagrams and their total size in bytes.
    pub(super) fn count_sent(&mut self, datagrams: usize, bytes: usize) {
        self.datagrams_sent += datagrams as u64;
        self.bytes_sent += bytes as u64;
    }

    pub(super) fn count_send_result(&mut self, result: io::Result<usize>, bytes: usize) {
        match result {
            Ok(_) => self.count_sent(1, bytes),
            Err(error) => self.count_error(SocketErrorKind::of(&error)),
        }
    }

    pub(super) fn count_error(&mut self, kind: SocketErrorKind) {
        self.count_errors(kind, 1);
    }

    pub(super) fn count_errors(&mut self, kind: SocketErrorKind, times: u64) {
        if let Some(count) = self.error_counts.get_mut(kind as usize) {
            *count += times;
        }
    }
}
