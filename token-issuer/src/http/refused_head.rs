//! Connections that end without a complete head of a request: hyper, or TLS, refuses them before a route sees them.

/// Why a connection got no response of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefusedHead {
    /// The bytes are no HTTP/1.1. The client gets status 400 without a body and without a request id.
    Malformed,
    /// The head has more than 16 KiB or 100 fields. The client gets status 431 in the same form.
    TooLarge,
    /// The head did not arrive in time. The connection is closed.
    Timeout,
    /// The handshake of TLS failed: the client does not trust the certificate, or speaks no TLS.
    #[cfg(feature = "tls")]
    Tls,
}

impl RefusedHead {
    /// Returns the reason of hyper's error, or `None` if the client has only left.
    pub(super) fn of_error(error: &hyper::Error) -> Option<Self> {
        if error.is_parse_too_large() { Some(Self::TooLarge) } else { error.is_parse().then_some(Self::Malformed) }
    }

    /// Returns the word of the reason in logs and metrics.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed_head",
            Self::TooLarge => "head_too_large",
            Self::Timeout => "head_timeout",
            #[cfg(feature = "tls")]
            Self::Tls => "tls_failed",
        }
    }
}
