//! The acknowledgements and times of a malicious client: those of an honest one, altered as the input says.

use slipgate_netcode::time::Instant;
use slipgate_session::wire::reliable::{Acks, ReliableHeader, Sequence};
use slipgate_session::wire::session_frame::{AckNonces, ArrivalEcho, SessionFrame, Timestamp};

use crate::{Input, nonce_sum};

/// The packets whose nonces are remembered: more than a header names.
const REMEMBERED: usize = 64;

/// What a client has received, and how it reports that.
#[derive(Default)]
pub struct Acknowledging {
    /// Number and nonce of each of the last packets, at its number.
    received: Vec<Option<(Sequence, u8)>>,
    newest: Option<(Sequence, Instant)>,
    alteration: Option<Alteration>,
}

/// What is false about acknowledgements and times.
#[derive(Clone, Copy)]
struct Alteration {
    /// The bits of the header that are not those of an honest receiver.
    false_bits: u32,
    /// How far the header names packets beyond the newest.
    ahead: u16,
    /// How much earlier than the truth packets were read, in units of timestamps.
    held: u8,
    /// How long packets waited in the socket, in units of timestamps.
    late: u8,
    /// How far send times are from the truth, in units of timestamps.
    shifted: u8,
}

impl Acknowledging {
    /// Reads how to acknowledge from now on. An input of zeros is an honest receiver.
    pub fn alter(&mut self, input: &mut Input<'_>) {
        let false_bits = u32::from_le_bytes(input.array());
        let [ahead, held, late, shifted] = input.array();
        self.alteration = Some(Alteration { false_bits, ahead: u16::from(ahead) * 16, held, late, shifted });
    }

    /// Returns whether packets are acknowledged.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.alteration.is_some()
    }

    /// Notes a packet of the peer.
    pub fn on_received(&mut self, datagram: &[u8], now: Instant) {
        let Ok((header, payload)) = ReliableHeader::parse(datagram) else { return };
        let Ok((frame, _)) = SessionFrame::parse(payload) else { return };
        self.received.resize(REMEMBERED, None);
        self.received[usize::from(header.sequence.0) % REMEMBERED] = Some((header.sequence, frame.nonces.own));
        if self.newest.is_none_or(|(newest, _)| header.sequence.is_newer_than(newest)) {
            self.newest = Some((header.sequence, now));
        }
    }

    /// Returns the acknowledgements of the next packet, and its frame.
    #[must_use]
    pub fn next(&self, sequence: Sequence, now: Instant) -> (Acks, SessionFrame<'static>) {
        let Some((alteration, (newest, read_at))) = self.alteration.zip(self.newest) else {
            let (sent, nonces) = (Timestamp(sequence.0), AckNonces::default());
            return (Acks::NONE, SessionFrame { sent, nonces, arrived: None, extended_acks: &[] });
        };
        let ack = newest + alteration.ahead;
        let bits = (0..32).filter(|back| self.nonce(ack - *back).is_some()).fold(0, |bits, back| bits | 1 << back);
        let acks = Acks { ack, bits: bits ^ alteration.false_bits };
        let planes = nonce_sum::nonce_planes(acks, &[], |number| self.nonce(Sequence(number)).unwrap_or(0));
        let at = Timestamp(Timestamp::from(read_at).0.wrapping_sub(alteration.held.into()));
        let sent = Timestamp(Timestamp::from(now).0.wrapping_add_signed(i16::from(alteration.shifted.cast_signed())));
        let sum = nonce_sum::nonce_sum(sequence.0, &planes);
        let arrived = (acks.bits & 1 != 0).then_some(ArrivalEcho { at, late: alteration.late });
        (acks, SessionFrame { sent, nonces: AckNonces { own: 0, sum }, arrived, extended_acks: &[] })
    }

    /// Returns the nonce of a packet, if it has arrived.
    fn nonce(&self, number: Sequence) -> Option<u8> {
        let (at, nonce) = (*self.received.get(usize::from(number.0) % REMEMBERED)?)?;
        (at == number).then_some(nonce)
    }
}
