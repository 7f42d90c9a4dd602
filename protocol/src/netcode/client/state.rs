//! The ten states of a client, and a sentence for each that a player can be shown (§1.14).

use core::fmt;

/// Where a client stands. The numbers are the standard's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[repr(i8)]
pub enum ClientState {
    /// The attempt outlasted the token's lifetime.
    TokenExpired = -6,
    /// The token is malformed, was used already, or lists no address that can be dialled.
    InvalidToken = -5,
    /// It was connected, and nothing arrived for the token's time-out.
    TimedOut = -4,
    /// Challenged, but no slot was given in time.
    ResponseTimedOut = -3,
    /// No server answered the connection request.
    RequestTimedOut = -2,
    /// Every server said that it is full.
    Denied = -1,
    /// Not connected: the start, or a clean end.
    #[default]
    Disconnected = 0,
    /// Asking a server.
    SendingRequest = 1,
    /// Answering a server's challenge.
    SendingResponse = 2,
    /// In a slot.
    Connected = 3,
}

impl ClientState {
    /// Every state, from -6 to 3.
    pub const ALL: [Self; 10] = [
        Self::TokenExpired,
        Self::InvalidToken,
        Self::TimedOut,
        Self::ResponseTimedOut,
        Self::RequestTimedOut,
        Self::Denied,
        Self::Disconnected,
        Self::SendingRequest,
        Self::SendingResponse,
        Self::Connected,
    ];

    /// The standard's number.
    #[must_use]
    pub const fn code(self) -> i8 {
        self as i8
    }

    /// The state as a stable `snake_case` word, for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenExpired => "connect_token_expired",
            Self::InvalidToken => "invalid_connect_token",
            Self::TimedOut => "connection_timed_out",
            Self::ResponseTimedOut => "connection_response_timed_out",
            Self::RequestTimedOut => "connection_request_timed_out",
            Self::Denied => "connection_denied",
            Self::Disconnected => "disconnected",
            Self::SendingRequest => "sending_connection_request",
            Self::SendingResponse => "sending_connection_response",
            Self::Connected => "connected",
        }
    }

    /// A sentence that a player can be shown.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::TokenExpired => "Connecting took too long. Please try again.",
            Self::InvalidToken => "The game server's invitation is not valid. Please try again.",
            Self::TimedOut => "The connection to the game server was lost.",
            Self::ResponseTimedOut => "The game server stopped answering while you were connecting. Please try again.",
            Self::RequestTimedOut => "The game server does not answer. Please check your connection and try again.",
            Self::Denied => "The game server is full. Please try again later.",
            Self::Disconnected => "You are not connected.",
            Self::SendingRequest => "Contacting the game server ...",
            Self::SendingResponse => "Joining the game ...",
            Self::Connected => "You are connected.",
        }
    }

    /// Whether the client is on its way or in a slot.
    #[must_use]
    pub const fn is_active(self) -> bool {
        self.code() > 0
    }

    /// Whether the client is in a slot.
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Connected)
    }

    /// Whether the last attempt or connection ended in an error.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self.code() < 0
    }
}

impl fmt::Display for ClientState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}
