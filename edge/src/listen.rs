//! Why an address cannot be listened on, in words that an operator can act on.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// The system refused an address.
#[derive(Debug)]
pub struct ListenError {
    address: SocketAddr,
    error: io::Error,
}

impl ListenError {
    /// The refusal of `address`.
    #[must_use]
    pub const fn new(address: SocketAddr, error: io::Error) -> Self {
        Self { address, error }
    }

    /// The address that was refused.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the system said.
    #[must_use]
    pub const fn error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: ", self.address)?;
        match self.error.kind() {
            io::ErrorKind::AddrInUse => f.write_str("another program listens there already"),
            io::ErrorKind::AddrNotAvailable => f.write_str("this machine has no such address"),
            io::ErrorKind::PermissionDenied => {
                f.write_str("this user may not take that port; ports from 1024 on are free")
            }
            _ => self.error.fmt(f),
        }
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Keeps the kind, and the words.
impl From<ListenError> for io::Error {
    fn from(error: ListenError) -> Self {
        Self::new(error.error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_it_cannot_listen_is_told_in_words_and_the_kind_is_kept() {
        let address = "192.0.2.1:80".parse().unwrap();
        let cases = [
            (io::ErrorKind::AddrInUse, "cannot listen on 192.0.2.1:80: another program listens there already"),
            (io::ErrorKind::AddrNotAvailable, "cannot listen on 192.0.2.1:80: this machine has no such address"),
            (
                io::ErrorKind::PermissionDenied,
                "cannot listen on 192.0.2.1:80: this user may not take that port; ports from 1024 on are free",
            ),
        ];
        for (kind, sentence) in cases {
            let error = io::Error::from(ListenError::new(address, kind.into()));
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, sentence));
        }
    }
}
