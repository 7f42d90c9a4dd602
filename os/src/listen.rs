//! Listen errors, with texts that an operator can act on.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Returns the reason why the system refused an address, as text.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    let listen_error = error.get_ref().and_then(|inner| inner.downcast_ref::<ListenError>());
    let text = match error.kind() {
        io::ErrorKind::AddrInUse => "another program listens there already",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address",
        io::ErrorKind::PermissionDenied => "this port needs privileges; ports from 1024 on do not",
        _ => return listen_error.map_or_else(|| error.to_string(), |listen_error| listen_error.error.to_string()),
    };
    text.to_owned()
}

/// The error of the system for an address that cannot be bound.
pub struct ListenError {
    address: SocketAddr,
    error: io::Error,
}

impl ListenError {
    /// Creates the error for `address`.
    #[must_use]
    pub const fn new(address: SocketAddr, error: io::Error) -> Self {
        Self { address, error }
    }

    /// Returns the refused address.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the error of the system.
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

/// Writes the sentence of `Display`: a `main` that returns the error prints this form.
impl fmt::Debug for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ListenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Keeps the kind and the text.
impl From<ListenError> for io::Error {
    fn from(error: ListenError) -> Self {
        Self::new(error.error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_error_explains_and_keeps_its_kind() {
        let address = "192.0.2.1:80".parse().unwrap();
        let cases = [
            (io::ErrorKind::AddrInUse, "cannot listen on 192.0.2.1:80: another program listens there already"),
            (io::ErrorKind::AddrNotAvailable, "cannot listen on 192.0.2.1:80: this machine has no such address"),
            (
                io::ErrorKind::PermissionDenied,
                "cannot listen on 192.0.2.1:80: this port needs privileges; ports from 1024 on do not",
            ),
        ];
        for (kind, sentence) in cases {
            let error = io::Error::from(ListenError::new(address, kind.into()));
            assert_eq!((error.kind(), error.to_string().as_str()), (kind, sentence));
            assert_eq!(format!("{error:?}"), format!("Custom {{ kind: {kind:?}, error: {sentence} }}"));
        }
        let other = io::Error::from(ListenError::new(address, io::ErrorKind::Unsupported.into()));
        assert_eq!(reason(&other), io::Error::from(io::ErrorKind::Unsupported).to_string());
    }
}
