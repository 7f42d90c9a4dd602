//! How a connection begins and how it may end: each side says which layout it has, and why it leaves.
//!
//! What is said is repeated in every packet until one of those was acknowledged, so a packet that arrives first says it,
//! whichever that is (`specs/session-1.md`, §5.4 and §5.5).

use crate::wire::reliable::Sequence;

/// Something that is said until it is heard.
///
/// ```text
///  Unsaid ──▶ Said(first packet, newest packet) ──▶ Heard
///    ▲            │ the newest of them is lost
///    └────────────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Saying {
    /// It is in no packet that is under way.
    Unsaid { first: Option<Sequence> },
    /// It is in every packet from `first` on, of which `newest` is the newest.
    Said { first: Sequence, newest: Sequence },
    /// The peer has acknowledged a packet with it.
    Heard,
}

impl Saying {
    pub(super) const NEW: Self = Self::Unsaid { first: None };

    /// Whether a packet should leave only to say it.
    pub(super) const fn wants_packet(self) -> bool {
        matches!(self, Self::Unsaid { .. })
    }

    pub(super) fn is_heard(self) -> bool {
        self == Self::Heard
    }

    /// A packet with it has left.
    pub(super) fn said(&mut self, packet: Sequence) {
        *self = match *self {
            Self::Unsaid { first } => Self::Said { first: first.unwrap_or(packet), newest: packet },
            Self::Said { first, .. } => Self::Said { first, newest: packet },
            Self::Heard => Self::Heard,
        };
    }

    /// A packet was acknowledged. Every packet from the first on has said it.
    pub(super) fn acked(&mut self, packet: Sequence) {
        let first = match *self {
            Self::Unsaid { first } => first,
            Self::Said { first, .. } => Some(first),
            Self::Heard => None,
        };
        if first.is_some_and(|first| !packet.is_older_than(first)) {
            *self = Self::Heard;
        }
    }

    /// A packet was lost.
    pub(super) fn lost(&mut self, packet: Sequence) {
        if let Self::Said { first, newest } = *self
            && packet == newest
        {
            *self = Self::Unsaid { first: Some(first) };
        }
    }

    /// It may have got lost: say it again without waiting for the verdict.
    pub(super) fn doubt(&mut self) {
        if let Self::Said { first, .. } = *self {
            *self = Self::Unsaid { first: Some(first) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_until_a_packet_with_it_was_acknowledged() {
        let mut saying = Saying::NEW;
        assert!(saying.wants_packet());
        saying.acked(Sequence(65_533));
        assert!(!saying.is_heard(), "that packet did not say it");
        saying.said(Sequence(65_534));
        saying.said(Sequence(1));
        assert!(!saying.wants_packet());
        saying.lost(Sequence(65_534));
        assert!(!saying.wants_packet(), "a newer packet is under way");
        saying.lost(Sequence(1));
        assert!(saying.wants_packet());
        saying.said(Sequence(2));
        saying.doubt();
        assert!(saying.wants_packet());
        saying.acked(Sequence(65_533));
        assert!(!saying.is_heard());
        saying.acked(Sequence(65_534));
        assert!(saying.is_heard(), "its acknowledgement was late");
        saying.said(Sequence(3));
        saying.lost(Sequence(3));
        assert!(!saying.wants_packet());
    }
}
