//! The ten states of a client and the end reasons, each with a sentence for the player (§1.14).

use core::fmt;

/// The state of a client. The numbers are those of the standard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[repr(i8)]
pub enum ClientState {
    /// The token expired during the attempt.
    TokenExpired = -6,
    /// This client used the token before, or the token lists no address that can be dialled.
    InvalidToken = -5,
    /// The connection ended because no packet arrived for the token's timeout.
    TimedOut = -4,
    /// The server sent a challenge, but gave no slot in time.
    ResponseTimedOut = -3,
    /// No server replied to the connection request.
    RequestTimedOut = -2,
    /// Every server replied that it is full or admits no clients.
    Denied = -1,
    /// The client is not connected: the initial state, and the state after a clean end.
    #[default]
    Disconnected = 0,
    /// The client sends connection requests.
    SendingRequest = 1,
    /// The client sends responses to a challenge.
    SendingResponse = 2,
    /// The client is connected.
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

    /// Returns the state as a stable `snake_case` word, for metrics and logs.
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

    /// Returns whether the client is connecting or connected.
    #[inline]
    #[must_use]
    pub const fn is_active(self) -> bool {
        // The standard gives errors negative numbers, and connecting states positive ones.
        self as i8 > 0
    }

    /// Returns whether the client is connected.
    #[inline]
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Connected)
    }
}

impl fmt::Display for ClientState {
    /// Writes a sentence for the player.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TokenExpired => "Connecting took too long. Please try again.",
            Self::InvalidToken => "Your session is not valid. Please join again.",
            Self::TimedOut => "The connection to the game server was lost.",
            Self::ResponseTimedOut => "The game server stopped responding while you were joining. Please try again.",
            Self::RequestTimedOut => {
                "The game server does not respond. It may be offline, or your session has expired. Please join again."
            }
            // The packet does not say which of the two (§1.7).
            Self::Denied => "The game server is full or closed. Please try again later.",
            Self::Disconnected => "You are not connected.",
            Self::SendingRequest => "Contacting the game server ...",
            Self::SendingResponse => "Joining the game ...",
            Self::Connected => "You are connected.",
        })
    }
}

/// Why an attempt or a connection ended.
///
/// The two sides report these reasons. The close reason of the session layer adds code and text, if there are channels.
/// Without channels only the disconnect itself is sent.
///
/// | cause | here | at the server ([`DisconnectReason`]) |
/// | --- | --- | --- |
/// | the client leaves, with or without code and text | `Left` | `Left` |
/// | the server kicks the client, on channels | `Kicked` | `Kicked` |
/// | the server stops, on channels | `ServerStopped` | `ServerStopped` |
/// | as before, without channels, or with lost close frames | `DisconnectedByServer` | `Kicked`, `ServerStopped` |
/// | no packet arrives for the token's timeout | `TimedOut` | `TimedOut` |
/// | the server is full, or admits no clients | `Denied` | |
/// | the server drops the token: used, expired, of another server | `RequestTimedOut`, or `TokenExpired` | |
/// | this client used the token before | `InvalidToken` | |
/// | the two sides have different channels | `LayoutMismatch` | `LayoutMismatch` |
/// | one side violates the protocol | `Violation` or `Accused` | `Accused` or `Violation` |
/// | the player connects again, by takeover | `TimedOut` | `TakenOver` |
/// | a socket fails | none: errors are counted, and may lead to a timeout | the same |
///
/// [`DisconnectReason`]: crate::server::DisconnectReason
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// This client disconnected.
    Left,
    /// The server disconnected this client without a reason, because it kicked the client or stopped. There are no
    /// channels, or the close frames were lost.
    DisconnectedByServer,
    /// The connection ended because no packet arrived for the token's timeout. The path is broken, the server crashed,
    /// or another client of this player took over.
    TimedOut,
    /// The server sent a challenge, but gave no slot in time. The path broke, or the token or the player got a slot
    /// from another address.
    ResponseTimedOut,
    /// No server replied to the connection request. The server is down, its address is wrong, or a firewall drops
    /// packets. A server also drops an invalid token without a reply: a token that was used, has expired, was minted
    /// before the server's start, names other servers or another protocol id, is sealed with another key, or belongs to
    /// a player that is connected.
    RequestTimedOut,
    /// Every server replied that it is full or admits no clients. The packet does not distinguish the two.
    Denied,
    /// The token expired during the attempt. Its lifetime covers all servers.
    TokenExpired,
    /// This client used the token before, or the token lists no address that can be dialled. A server drops a token
    /// that another client used, which ends in `RequestTimedOut`.
    InvalidToken,
    /// The server kicked this client, with an optional code and text for the player.
    Kicked,
    /// The server stopped, with an optional text for the player.
    ServerStopped,
    /// The server's channels differ from this client's.
    LayoutMismatch,
    /// The server uses another version of the session layer.
    VersionMismatch,
    /// The server does not use the session layer.
    NotASession,
    /// The server violated the protocol.
    Violation,
    /// The server reports that this client violated the protocol.
    Accused,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [Self; 15] = [
        Self::Left,
        Self::DisconnectedByServer,
        Self::TimedOut,
        Self::ResponseTimedOut,
        Self::RequestTimedOut,
        Self::Denied,
        Self::TokenExpired,
        Self::InvalidToken,
        Self::Kicked,
        Self::ServerStopped,
        Self::LayoutMismatch,
        Self::VersionMismatch,
        Self::NotASession,
        Self::Violation,
        Self::Accused,
    ];
}

impl From<EndReason> for ClientState {
    /// Returns the standard's state after this end.
    fn from(reason: EndReason) -> Self {
        match reason {
            // The standard knows no reasons of the session layer: all of them are a clean end.
            EndReason::Left
            | EndReason::DisconnectedByServer
            | EndReason::Kicked
            | EndReason::ServerStopped
            | EndReason::LayoutMismatch
            | EndReason::VersionMismatch
            | EndReason::NotASession
            | EndReason::Violation
            | EndReason::Accused => Self::Disconnected,
            EndReason::TimedOut => Self::TimedOut,
            EndReason::ResponseTimedOut => Self::ResponseTimedOut,
            EndReason::RequestTimedOut => Self::RequestTimedOut,
            EndReason::Denied => Self::Denied,
            EndReason::TokenExpired => Self::TokenExpired,
            EndReason::InvalidToken => Self::InvalidToken,
        }
    }
}

impl fmt::Display for EndReason {
    /// Writes a sentence for the player.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "You have left the game.",
            Self::DisconnectedByServer => "The game server closed the connection.",
            Self::Kicked => "You were removed from the game.",
            Self::ServerStopped => "The game server is shutting down.",
            Self::LayoutMismatch => "Your game does not match this server. Please update your game.",
            Self::VersionMismatch => "This server runs a different version of the game. Please update your game.",
            Self::NotASession => "This server runs a different game.",
            Self::Violation => "The game server sent invalid data.",
            Self::Accused => "The game server rejected data from your game.",
            // The other reasons are states of the standard, with one text for both.
            _ => return ClientState::from(*self).fmt(f),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn each_state_and_reason_has_its_own_sentence_and_name() {
        let codes: Vec<_> = ClientState::ALL.iter().map(|state| *state as i8).collect();
        assert_eq!(codes, (-6..=3).collect::<Vec<_>>());
        let sentences: BTreeSet<_> = ClientState::ALL.iter().map(ToString::to_string).collect();
        let names: BTreeSet<_> = ClientState::ALL.iter().map(|state| state.name()).collect();
        assert_eq!((sentences.len(), names.len()), (10, 10));
        let sentences: BTreeSet<_> = EndReason::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(sentences.len(), 15);
        assert!(EndReason::ALL.iter().all(|reason| !ClientState::from(*reason).is_active()));
    }
}
