//! Why a connection ended: one type for both sides, for programs and for players.

use alloc::string::String;
use core::fmt;

use super::plain_text::plain_text;
use crate::channel::close_code::CloseCode;
use crate::channel::{ChannelViolation, LayoutHash};

/// Why a connection, or an attempt to connect, ended.
///
/// Which kinds the two sides report:
///
/// | cause | at the client | at the server |
/// | --- | --- | --- |
/// | the client leaves | `Left` | `Left` |
/// | the server kicks the client, with channels | `Kicked` | `Kicked` |
/// | the server stops, with channels | `ServerStopped` | `ServerStopped` |
/// | the same without channels, or the close message was lost | `DisconnectedByServer` | `Kicked`, `ServerStopped` |
/// | nothing arrives for the token's timeout | `TimedOut` | `TimedOut` |
/// | the server is full or drains | `Denied` | |
/// | the server drops the token: used, expired, for another server | `RequestTimedOut` or `TokenExpired` | |
/// | this client used the token before | `InvalidToken` | |
/// | the layouts differ | `LayoutMismatch` | `LayoutMismatch` |
/// | one side breaks the protocol | `Violation` or `Accused` | `Accused` or `Violation` |
/// | the player connects again from elsewhere | `TimedOut` | `TakenOver` |
///
/// `Display` writes what a game would show to the player at the client.
///
/// # Examples
/// ```
/// use slipgate_session::connection::{CloseKind, CloseReason, ClosedBy};
///
/// let reason = CloseReason { by: ClosedBy::Remote, kind: CloseKind::Denied, code: None, text: String::new() };
/// // For the player, and for the log:
/// println!("{reason}");
/// println!("{} ({:?})", reason.kind, reason.by);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloseReason {
    /// Which side ended the connection.
    pub by: ClosedBy,
    /// What happened.
    pub kind: CloseKind,
    /// The code that one side sent, or would have sent, to the other; `None` where netcode ended the connection.
    pub code: Option<CloseCode>,
    /// The text for people that came with the code, at most 256 bytes; empty if there was none. It has no characters
    /// that control a terminal, a log or the direction of writing: line breaks and tabs are spaces.
    pub text: String,
}

/// Which side ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum ClosedBy {
    /// This side.
    Local,
    /// The peer.
    Remote,
    /// No side: a timeout, an expired token, a takeover, or used-up sequence numbers.
    Netcode,
}

/// The event that ended a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum CloseKind {
    /// The client left.
    Left,
    /// The server's application disconnected the client.
    Kicked,
    /// The server stops.
    ServerStopped,
    /// The server disconnected this client without a reason: it was kicked, or the server stops. Clients only.
    DisconnectedByServer,
    /// The connection was established, and nothing authentic arrived for the token's timeout.
    TimedOut,
    /// The server sent a challenge but gave no slot in time. It may have used up the token, for example if it was
    /// stopped at that moment: request a new one. Clients only.
    ResponseTimedOut,
    /// No server replied to the connection request: it is unreachable, or it drops the token because that was used or
    /// is invalid. Request a new token. Clients only.
    RequestTimedOut,
    /// Every server is full or admits no new clients. Clients only.
    Denied,
    /// The attempt outlasted the token's lifetime. Request a new token. Clients only.
    TokenExpired,
    /// This client used the token before, or the token lists no usable address. Request a new token. Clients only.
    InvalidToken,
    /// The same player connected again, with a newer token. Servers only.
    TakenOver,
    /// No sequence number is left, after 10^12 packets. Servers only.
    SequencesUsedUp,
    /// The two ends have different channels.
    LayoutMismatch {
        /// The hash of this end's layout.
        local: LayoutHash,
        /// The hash of the peer's layout; `None` if the peer closed the connection before it sent its own.
        remote: Option<LayoutHash>,
        /// The application's version in this end's layout, 0 if it has none.
        local_version: u32,
        /// The number of channels of this end's layout.
        local_channels: usize,
    },
    /// The two ends share no version of the session layer.
    VersionMismatch,
    /// The peer does not implement the session layer: its packets are malformed, or it sent no hello, or it
    /// acknowledges nothing.
    NotASession,
    /// The peer broke the protocol.
    Violation(ChannelViolation),
    /// The peer reports that this end broke the protocol.
    Accused,
}

/// Which end of a connection this is: the meaning of a close message depends on its sender, and servers refuse
/// transfers of clients by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The client's end.
    Client,
    /// The server's end.
    Server,
}

impl CloseReason {
    /// Returns the reason of a close that no side gave a code for.
    pub(crate) const fn from_netcode(by: ClosedBy, kind: CloseKind) -> Self {
        Self { by, kind, code: None, text: String::new() }
    }

    /// Returns the reason of a close that the application of one side asked for.
    pub(crate) fn from_application(role: Role, by: ClosedBy, code: CloseCode, text: &str) -> Self {
        // The same message means a leave or a kick, depending on its sender.
        let by_client = (role == Role::Client) == (by == ClosedBy::Local);
        let kind = match code {
            // A client cannot stop a server, whatever code it sends.
            _ if by_client => CloseKind::Left,
            CloseCode::SHUTDOWN => CloseKind::ServerStopped,
            _ => CloseKind::Kicked,
        };
        // The text goes to games and logs, whichever side wrote it.
        Self { by, kind, code: Some(code), text: plain_text(text) }
    }

    /// Returns the reason of a close that the session layer decides on.
    pub(crate) const fn from_session(by: ClosedBy, kind: CloseKind, code: CloseCode) -> Self {
        Self { by, kind, code: Some(code), text: String::new() }
    }
}

impl CloseKind {
    /// Returns the kind as a stable `snake_case` word, for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Kicked => "kicked",
            Self::ServerStopped => "server_stopped",
            Self::DisconnectedByServer => "disconnected_by_server",
            // The names of connection attempts are those of the standard's client states.
            Self::TimedOut => "timed_out",
            Self::ResponseTimedOut => "connection_response_timed_out",
            Self::RequestTimedOut => "connection_request_timed_out",
            Self::Denied => "connection_denied",
            Self::TokenExpired => "connect_token_expired",
            Self::InvalidToken => "invalid_connect_token",
            Self::TakenOver => "taken_over",
            Self::SequencesUsedUp => "sequences_used_up",
            Self::LayoutMismatch { .. } => "layout_mismatch",
            Self::VersionMismatch => "version_mismatch",
            Self::NotASession => "not_a_session",
            Self::Violation(_) => "violation",
            Self::Accused => "accused",
        }
    }

    /// Returns what a game shows to the player.
    const fn sentence(self) -> &'static str {
        match self {
            Self::Left => "You have left the game.",
            Self::Kicked => "You were removed from the game.",
            Self::ServerStopped => "The game server is shutting down.",
            Self::DisconnectedByServer => "The game server closed the connection.",
            Self::TimedOut => "The connection to the game server was lost.",
            Self::ResponseTimedOut => "The game server stopped responding while you were joining. Please join again.",
            Self::RequestTimedOut => {
                "The game server does not respond. It may be offline, or your session has expired. Please join again."
            }
            Self::Denied => "The game server is full or closed. Please try again later.",
            Self::TokenExpired => "Connecting took too long. Please join again.",
            Self::InvalidToken => "Your session is not valid. Please join again.",
            Self::TakenOver => "You have connected from another device.",
            Self::SequencesUsedUp => "The connection has been open for too long. Please join again.",
            Self::LayoutMismatch { .. } => "Your game does not match this server. Please update your game.",
            Self::VersionMismatch => "This server runs a different version of the game. Please update your game.",
            Self::NotASession => "This server runs a different game.",
            Self::Violation(_) => "The game server sent invalid data.",
            Self::Accused => "The game server rejected data from your game.",
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The server's own words say more than any sentence of ours.
        if self.by == ClosedBy::Remote && !self.text.is_empty() {
            return f.write_str(&self.text);
        }
        f.write_str(self.kind.sentence())
    }
}

/// What both sides of a connection need to have in common.
const COMPARE_LAYOUTS: &str =
    "compare the version, and the names, kinds, limits and order of the channels in both programs";

/// Writes a phrase with all that is known, for logs.
impl fmt::Display for CloseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LayoutMismatch { local, remote, local_version, local_channels } => {
                write!(f, "the layouts differ: {local} here (version {local_version}, {local_channels} channels), ")?;
                match remote {
                    Some(remote) => write!(f, "{remote} at the peer: {COMPARE_LAYOUTS}"),
                    None => write!(f, "an unknown one at the peer: {COMPARE_LAYOUTS}"),
                }
            }
            Self::VersionMismatch => f.write_str("the peer shares no version of the session layer"),
            Self::NotASession => f.write_str("the peer does not implement the session layer"),
            Self::Violation(violation) => write!(f, "the peer broke the protocol: {violation}"),
            Self::Accused => f.write_str("the peer reports that this side broke the protocol"),
            Self::ResponseTimedOut => {
                f.write_str("the server gave no slot in time and may have used up the token: request a new token")
            }
            Self::RequestTimedOut => {
                f.write_str("no server replied, or the token was used, expired or invalid: request a new token")
            }
            Self::TokenExpired => f.write_str("the token expired during the attempt: request a new token"),
            Self::InvalidToken => {
                f.write_str("the token was used before, or lists no usable address: request a new token")
            }
            other => f.write_str(other.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::string::ToString;

    const KINDS: [CloseKind; 17] = [
        CloseKind::Left,
        CloseKind::Kicked,
        CloseKind::ServerStopped,
        CloseKind::DisconnectedByServer,
        CloseKind::TimedOut,
        CloseKind::ResponseTimedOut,
        CloseKind::RequestTimedOut,
        CloseKind::Denied,
        CloseKind::TokenExpired,
        CloseKind::InvalidToken,
        CloseKind::TakenOver,
        CloseKind::SequencesUsedUp,
        CloseKind::LayoutMismatch { local: LayoutHash([1; 8]), remote: None, local_version: 3, local_channels: 2 },
        CloseKind::VersionMismatch,
        CloseKind::NotASession,
        CloseKind::Violation(ChannelViolation::Control),
        CloseKind::Accused,
    ];

    /// Returns the index of a kind in `KINDS`. A new kind must be added here, there, and to `docs/close-reasons.md`.
    fn index(kind: CloseKind) -> usize {
        match kind {
            CloseKind::Left => 0,
            CloseKind::Kicked => 1,
            CloseKind::ServerStopped => 2,
            CloseKind::DisconnectedByServer => 3,
            CloseKind::TimedOut => 4,
            CloseKind::ResponseTimedOut => 5,
            CloseKind::RequestTimedOut => 6,
            CloseKind::Denied => 7,
            CloseKind::TokenExpired => 8,
            CloseKind::InvalidToken => 9,
            CloseKind::TakenOver => 10,
            CloseKind::SequencesUsedUp => 11,
            CloseKind::LayoutMismatch { .. } => 12,
            CloseKind::VersionMismatch => 13,
            CloseKind::NotASession => 14,
            CloseKind::Violation(_) => 15,
            CloseKind::Accused => 16,
        }
    }

    #[test]
    fn every_kind_has_its_own_name_and_sentence() {
        assert!(KINDS.iter().enumerate().all(|(expected, kind)| index(*kind) == expected));
        let names: BTreeSet<_> = KINDS.iter().map(|kind| kind.name()).collect();
        let sentences: BTreeSet<_> = KINDS.iter().map(|kind| kind.sentence()).collect();
        let phrases: BTreeSet<_> = KINDS.iter().map(ToString::to_string).collect();
        assert_eq!([names.len(), sentences.len(), phrases.len()], [KINDS.len(); 3]);
    }

    #[test]
    fn ended_attempts_ask_for_a_new_token() {
        let attempts =
            [CloseKind::ResponseTimedOut, CloseKind::RequestTimedOut, CloseKind::TokenExpired, CloseKind::InvalidToken];
        for kind in attempts {
            assert!(kind.to_string().ends_with("request a new token"), "{kind}");
            assert!(kind.sentence().ends_with("Please join again."), "{kind:?}");
        }
    }

    #[test]
    fn the_player_reads_the_text_of_the_peer_only() {
        let with = |by| CloseReason::from_application(Role::Client, by, CloseCode(300), "no rockets").to_string();
        assert_eq!(with(ClosedBy::Remote), "no rockets");
        assert_eq!(with(ClosedBy::Local), "You have left the game.");
        let silent = CloseReason::from_application(Role::Client, ClosedBy::Remote, CloseCode::SHUTDOWN, "");
        assert_eq!(silent.to_string(), "The game server is shutting down.");
    }
}
