//! The redirects of a server, for the metrics.

/// The redirects of a server since its start; those of a client count once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RedirectTotals {
    /// Clients to which a token for another server was sent.
    pub sent: u64,
    /// Clients for which the issuer refused a token.
    pub refused: u64,
    /// Clients without channels, to which no token can be sent.
    pub without_channels: u64,
    /// Clients that left before their token came.
    pub left: u64,
    /// Clients that wait for a token now.
    pub waiting: u64,
}
