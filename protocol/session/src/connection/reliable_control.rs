//! A control message that is repeated in packets until one of them is acknowledged: the hello and the close message
//! (`specs/session-1.md`, §5.4 and §5.5).

use crate::wire::reliable::Sequence;

/// The delivery state of one control message.
///
/// ```text
///  Queued ──▶ InFlight(first packet, newest packet) ──▶ Acked
///    ▲            │ the newest packet is lost
///    └────────────┘
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReliableControl {
    /// No packet in flight carries it.
    Queued { first: Option<Sequence> },
    /// Every packet from `first` to `newest` carries it.
    InFlight { first: Sequence, newest: Sequence },
    /// The peer has acknowledged a packet that carried it.
    Acked,
}

impl ReliableControl {
    pub(super) const NEW: Self = Self::Queued { first: None };

    /// Returns whether a packet should leave only to carry it.
    pub(super) const fn wants_packet(self) -> bool {
        matches!(self, Self::Queued { .. })
    }

    /// Returns whether a packet in flight carries it.
    pub(super) const fn is_in_flight(self) -> bool {
        matches!(self, Self::InFlight { .. })
    }

    pub(super) fn is_acked(self) -> bool {
        self == Self::Acked
    }

    /// Records that a packet with it has left.
    pub(super) fn on_sent(&mut self, packet: Sequence) {
        *self = match *self {
            Self::Queued { first } => Self::InFlight { first: first.unwrap_or(packet), newest: packet },
            Self::InFlight { first, .. } => Self::InFlight { first, newest: packet },
            Self::Acked => Self::Acked,
        };
    }

    /// Records that a packet was acknowledged. Every packet since the first one has carried the message.
    pub(super) fn on_acked(&mut self, packet: Sequence) {
        let first = match *self {
            Self::Queued { first } => first,
            Self::InFlight { first, .. } => Some(first),
            Self::Acked => None,
        };
        if first.is_some_and(|first| !packet.is_older_than(first)) {
            *self = Self::Acked;
        }
    }

    /// Records that a packet was lost.
    pub(super) fn on_lost(&mut self, packet: Sequence) {
        // An older packet may be lost while a newer one with the same message is still in flight.
        if let Self::InFlight { first, newest } = *self
            && packet == newest
        {
            *self = Self::Queued { first: Some(first) };
        }
    }

    /// Queues the message again because a probe timeout fired: it may be lost, and no loss is known yet.
    pub(super) fn on_pto(&mut self) {
        if let Self::InFlight { first, .. } = *self {
            *self = Self::Queued { first: Some(first) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_repeated_until_a_packet_with_it_is_acknowledged() {
        let mut control = ReliableControl::NEW;
        assert!(control.wants_packet());
        control.on_acked(Sequence(65_533));
        assert!(!control.is_acked(), "that packet did not carry it");
        control.on_sent(Sequence(65_534));
        control.on_sent(Sequence(1));
        assert!(!control.wants_packet());
        control.on_lost(Sequence(65_534));
        assert!(!control.wants_packet(), "a newer packet is in flight");
        control.on_lost(Sequence(1));
        assert!(control.wants_packet());
        control.on_sent(Sequence(2));
        control.on_pto();
        assert!(control.wants_packet());
        control.on_acked(Sequence(65_533));
        assert!(!control.is_acked());
        control.on_acked(Sequence(65_534));
        assert!(control.is_acked(), "a late acknowledgement counts");
        control.on_sent(Sequence(3));
        control.on_lost(Sequence(3));
        assert!(!control.wants_packet());
    }
}
