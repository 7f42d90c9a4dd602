//! Why an address cannot be listened on, in words that an operator can act on.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Why the system refused an address, in words.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    let told = error.get_ref().and_then(|inner| inner.downcast_ref::<ListenError>());
    let words = match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there already",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address",
        io::ErrorKind::PermissionDenied => "this user may not take that port; ports from 1024 on are free",
        _ => return told.map_or_else(|| error.to_string(), |told| told.error.to_string()),
    };
    words.to_owned()
}

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
        write!(f, "cannot listen on {}: {}", self.address, reason(&self.error))
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
        let other = io::Error::from(ListenError::new(address, io::ErrorKind::Unsupported.into()));
        assert_eq!(reason(&other), io::Error::from(io::ErrorKind::Unsupported).to_string());
    }
}
