//! Recognizes a peer that runs channels, for an end that runs none: the two cannot understand each other.

use crate::channel::control::{self, ControlMessage, VERSION};
use crate::wire::reliable::ReliableHeader;
use crate::wire::session_frame::SessionFrame;

/// Whether the first payload of a connection without channels was a session's HELLO. Only the first payload is parsed:
/// every packet of a session begins with the HELLO until the peer acknowledges it (§5.4), and an end without channels
/// never does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum PeerSession {
    /// No payload has arrived.
    #[default]
    Unknown,
    /// The first payload was a HELLO, and this is not reported yet.
    Unreported,
    /// There is nothing to report.
    Settled,
}

impl PeerSession {
    /// Records a payload.
    #[inline]
    pub(crate) fn on_payload(&mut self, payload: &[u8]) {
        if *self == Self::Unknown {
            *self = if starts_session(payload) { Self::Unreported } else { Self::Settled };
        }
    }

    /// Returns whether the peer runs channels, once.
    #[inline]
    pub(crate) fn take(&mut self) -> bool {
        let is_session = *self == Self::Unreported;
        if is_session {
            *self = Self::Settled;
        }
        is_session
    }
}

/// Returns whether a payload is a session's packet with a HELLO of this version.
fn starts_session(payload: &[u8]) -> bool {
    let Ok((_, rest)) = ReliableHeader::parse(payload) else { return false };
    let Ok((_, frames)) = SessionFrame::parse(rest) else { return false };
    match control::read(frames) {
        Ok(Some((ControlMessage::Hello(hello), _))) => (hello.oldest_version..=hello.version).contains(&VERSION),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_of_a_game_is_no_session() {
        for payload in [&b"x"[..], b"input of this tick", &[0; 40], &[255; 1200]] {
            let mut peer = PeerSession::default();
            peer.on_payload(payload);
            assert!(!peer.take(), "{payload:?}");
        }
    }
}
