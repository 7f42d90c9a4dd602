//! How many datagrams one system call carries.

/// How many datagrams one system call carries, in increasing order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Batching {
    /// One datagram.
    Off,
    /// Up to 64 datagrams (Linux: `recvmmsg`, `sendmmsg`).
    Messages,
    /// Up to 64 datagrams. Datagrams to one receiver pass through most of the kernel as one message (Linux:
    /// `UDP_SEGMENT`).
    Segments,
}

impl Batching {
    /// Returns the name as a stable word for logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Messages => "messages",
            Self::Segments => "segments",
        }
    }
}
