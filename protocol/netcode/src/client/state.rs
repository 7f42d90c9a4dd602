//! The ten states of a client and the end reasons, each with a sentence for the player (§1.14).

use core::fmt;

/// The state of a client. The numbers are those of the standard.
///
/// # Examples
/// ```
/// use slipgate_netcode::client::ClientState;
///
/// let state = ClientState::SendingRequest;
/// assert!(state.is_active() && !state.is_connected());
/// ```
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
            Self::TokenExpired => "Connecting took too long. Please join again.",
            Self::InvalidToken => "Your session is not valid. Please join again.",
            Self::TimedOut => "The connection to the game server was lost.",
            Self::ResponseTimedOut => "The game server stopped responding while you were joining. Please join again.",
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

/// Why an attempt or a connection ended. Request a new token for the next attempt: the server may have used up the
/// token of this one, even if no reply arrived.
///
/// The two sides report these reasons. A disconnect carries none, so netcode knows only that it happened; a layer above
/// may send a reason in its own payloads.
///
/// | cause | here | at the server ([`DisconnectReason`]) |
/// | --- | --- | --- |
/// | the client leaves, with or without code and text | `Left` | `Left` |
/// | the server kicks the client, or stops | `DisconnectedByServer` | `Kicked`, `ServerStopped` |
/// | no packet arrives for the token's timeout | `TimedOut` | `TimedOut` |
/// | the client's program stands still for longer than the token's timeout | `TimedOut` | `TimedOut` |
/// | the server is full, or admits no clients | `Denied` | |
/// | the server drops the token: used, expired, of another server | `RequestTimedOut`, or `TokenExpired` | |
/// | this client used the token before | `InvalidToken` | |
/// | the player connects again, by takeover | `TimedOut` | `TakenOver` |
/// | a socket fails | none: errors are counted, and may lead to a timeout | the same |
///
/// [`DisconnectReason`]: crate::server::DisconnectReason
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// This client disconnected.
    Left,
    /// The server disconnected this client without a reason, because it kicked the client or stopped.
    DisconnectedByServer,
    /// The connection ended because no packet arrived for the token's timeout. The path is broken, the server crashed,
    /// this program stood still for that time, or another client of this player took over.
    TimedOut,
    /// The server sent a challenge, but gave no slot in time. The path broke, the server restarted, or the token or the
    /// player got a slot from another address. The server may have used up the token: request a new one.
    ResponseTimedOut,
    /// No server replied to the connection request. The server is down, its address is wrong, or a firewall drops
    /// packets. A server also drops an invalid token without a reply: a token that was used, has expired, was minted
    /// before the server's start, names other servers or another protocol id, is sealed with another key, or belongs to
    /// a player that is connected. Request a new token in any case.
    RequestTimedOut,
    /// Every server replied that it is full or admits no clients. The packet does not distinguish the two.
    Denied,
    /// The token expired during the attempt. Its lifetime covers all servers.
    TokenExpired,
    /// This client used the token before, or the token lists no address that can be dialled. A server drops a token
    /// that another client used, which ends in `RequestTimedOut`.
    InvalidToken,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Left,
        Self::DisconnectedByServer,
        Self::TimedOut,
        Self::ResponseTimedOut,
        Self::RequestTimedOut,
        Self::Denied,
        Self::TokenExpired,
        Self::InvalidToken,
    ];
}

impl From<EndReason> for ClientState {
    /// Returns the standard's state after this end.
    fn from(reason: EndReason) -> Self {
        match reason {
            EndReason::Left | EndReason::DisconnectedByServer => Self::Disconnected,
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
        assert_eq!(sentences.len(), EndReason::ALL.len());
        assert!(EndReason::ALL.iter().all(|reason| !ClientState::from(*reason).is_active()));
    }
}
