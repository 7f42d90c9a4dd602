//! The ten states of a client and the reasons of an end, with a sentence for each that a player can be shown (§1.14).

use core::fmt;

/// Where a client stands. The numbers are the standard's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[repr(i8)]
pub enum ClientState {
    /// The attempt outlasted the token's lifetime.
    TokenExpired = -6,
    /// This client has used the token already, or the token lists no address that can be dialled.
    InvalidToken = -5,
    /// It was connected, and nothing arrived for the token's time-out.
    TimedOut = -4,
    /// Challenged, but no slot was given in time.
    ResponseTimedOut = -3,
    /// No server answered the connection request.
    RequestTimedOut = -2,
    /// Every server said that it is full, or that it admits nobody now.
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
            Self::RequestTimedOut => {
                "The game server does not answer: it may be down, your connection broken, or your invitation used or \
                 expired. Please try again."
            }
            Self::Denied => "The game server is full, or admits nobody now. Please try again later.",
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

/// Why an attempt or a connection ended.
///
/// What each side is told, whichever way a connection ends (on channels, code and text are in
/// `session::End`; without channels nothing travels but the fact):
///
/// | what happened | here | at the server ([`DisconnectReason`]) |
/// | --- | --- | --- |
/// | the client leaves, with or without code and text | `Left` | `Left` |
/// | the server kicks it, on channels | `Kicked` | `Kicked` |
/// | the server stops, on channels | `ServerStopped` | `ServerStopped` |
/// | the server kicks or stops without channels, or its words got lost | `DisconnectedByServer` | `Kicked`, `ServerStopped` |
/// | nothing arrives for the token's time-out | `TimedOut` | `TimedOut` |
/// | the server is full, or drains | `Denied` | |
/// | the token is dropped unheard: used, expired, of another server | `RequestTimedOut`, or `TokenExpired` | |
/// | this client has used the token | `InvalidToken` | |
/// | the two ends have other channels | `LayoutMismatch` | `LayoutMismatch` |
/// | one breaks the rules | `Violation` or `Accused` | `Accused` or `Violation` |
/// | the player connects anew, by takeover | `TimedOut` | `TakenOver` |
/// | a socket fails | none: it is counted, and may come to a time-out | the same |
///
/// [`DisconnectReason`]: crate::server::DisconnectReason
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// This client left.
    Left,
    /// The server disconnected this client without saying why: there are no channels, or the words got lost. It was kicked,
    /// or the server stops.
    DisconnectedByServer,
    /// It was connected, and nothing arrived for the token's time-out: the path is broken, the server crashed, or another
    /// client of this player took over.
    TimedOut,
    /// Challenged, but no slot was given in time: the path broke, or the token or the player got a slot meanwhile by another
    /// address.
    ResponseTimedOut,
    /// No server answered the connection request. It is down, its address is wrong, or a firewall stands between. Or it drops
    /// the token, which servers do without a word: one that was used already, that has expired, that is from before the
    /// server's start, for other servers or another protocol id, or sealed with another key; or of a player who is connected.
    RequestTimedOut,
    /// Every server said that it is full, or that it admits nobody now: it drains. The packet has no room for which.
    Denied,
    /// The attempt outlasted the token's lifetime, all servers together.
    TokenExpired,
    /// This client has used the token already, or the token lists no address that can be dialled. (A token that was used by
    /// another one is dropped by the server: `RequestTimedOut`.)
    InvalidToken,
    /// The server kicked this client, perhaps with a code and a text for the player.
    Kicked,
    /// The server said that it stops, perhaps with a text for the player.
    ServerStopped,
    /// The server's channels are not this client's.
    LayoutMismatch,
    /// The server speaks another version of the session layer.
    VersionMismatch,
    /// The server does not speak the session layer.
    NotASession,
    /// The server sent what no honest server sends.
    Violation,
    /// The server says that this client sent what no honest client sends.
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

    /// The standard's state after such an end.
    #[must_use]
    pub const fn state(self) -> ClientState {
        match self {
            Self::Left
            | Self::DisconnectedByServer
            | Self::Kicked
            | Self::ServerStopped
            | Self::LayoutMismatch
            | Self::VersionMismatch
            | Self::NotASession
            | Self::Violation
            | Self::Accused => ClientState::Disconnected,
            Self::TimedOut => ClientState::TimedOut,
            Self::ResponseTimedOut => ClientState::ResponseTimedOut,
            Self::RequestTimedOut => ClientState::RequestTimedOut,
            Self::Denied => ClientState::Denied,
            Self::TokenExpired => ClientState::TokenExpired,
            Self::InvalidToken => ClientState::InvalidToken,
        }
    }

    /// The reason as a stable `snake_case` word, for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::DisconnectedByServer => "disconnected_by_server",
            Self::Kicked => "kicked",
            Self::ServerStopped => "server_stopped",
            Self::LayoutMismatch => "layout_mismatch",
            Self::VersionMismatch => "version_mismatch",
            Self::NotASession => "not_a_session",
            Self::Violation => "violation",
            Self::Accused => "accused",
            _ => self.state().name(),
        }
    }

    /// A sentence that a player can be shown.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Left => "You have left the game.",
            Self::DisconnectedByServer => "The game server has ended the connection.",
            Self::Kicked => "The game server has asked you to leave.",
            Self::ServerStopped => "The game server shuts down.",
            Self::LayoutMismatch => "Your game and the game server do not fit together. Is your game up to date?",
            Self::VersionMismatch => "Your game and the game server are of different ages. Is your game up to date?",
            Self::NotASession => "The game server speaks another language than your game.",
            Self::Violation => "The game server sent something that makes no sense.",
            Self::Accused => "The game server did not understand your game.",
            _ => self.state().sentence(),
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn every_state_and_reason_has_a_sentence_and_a_name_of_its_own() {
        let codes: Vec<_> = ClientState::ALL.iter().map(|state| state.code()).collect();
        assert_eq!(codes, (-6..=3).collect::<Vec<_>>());
        let sentences: BTreeSet<_> = ClientState::ALL.iter().map(ToString::to_string).collect();
        let names: BTreeSet<_> = ClientState::ALL.iter().map(|state| state.name()).collect();
        assert_eq!((sentences.len(), names.len()), (10, 10));
        let sentences: BTreeSet<_> = EndReason::ALL.iter().map(ToString::to_string).collect();
        let names: BTreeSet<_> = EndReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!((sentences.len(), names.len()), (15, 15));
        assert!(EndReason::ALL.iter().all(|reason| !reason.state().is_active()));
    }
}
