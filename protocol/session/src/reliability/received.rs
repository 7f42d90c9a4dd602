//! Which packets arrived, and which of them the other side does not know of yet (§2.4).

use super::bits::Bits;
use super::config::AckPolicy;
use super::sent::Word;
use crate::reject::Reject;
use crate::wire::reliable::{ACKS_PER_HEADER, Acks, Sequence};
use slipgate_netcode::time::Instant;

/// Up to so many packets that were in no header yet, headers alone tell of each often enough.
const HEADERS_SUFFICE: u16 = 24;

/// The window of received packets.
pub(super) struct Received {
    /// One behind the newest.
    next: Sequence,
    size: u16,
    arrived: Bits,
    /// Packets that wait for an acknowledgement and were in no header yet.
    unreported: Bits,
    unreported_count: u16,
    /// When the first of them arrived, and when the last one did.
    waiting_since: Instant,
    latest: Instant,
}

impl Received {
    pub(super) fn new(size: u16) -> Self {
        Self {
            next: Sequence::default(),
            size,
            arrived: Bits::new(size),
            unreported: Bits::new(size),
            unreported_count: 0,
            waiting_since: Instant::default(),
            latest: Instant::default(),
        }
    }

    /// Whether a packet is welcome: neither older than the window nor in it already.
    pub(super) fn check(&self, sequence: Sequence) -> Result<(), Reject> {
        if sequence.is_older_than(self.oldest()) {
            return Err(Reject::Stale);
        }
        if self.has(sequence) { Err(Reject::Duplicate) } else { Ok(()) }
    }

    /// Whether the packet is in the window and has arrived.
    pub(super) fn has(&self, sequence: Sequence) -> bool {
        !self.is_ahead(sequence) && !sequence.is_older_than(self.oldest()) && self.arrived.get(sequence)
    }

    /// When a packet that passed [`Received::check`] left, among those that arrived.
    pub(super) fn word(&self, sequence: Sequence) -> Word {
        // The newest of all may be known by a fragment already.
        if sequence.is_older_than(self.newest()) { Word::Overtaken } else { Word::Newest }
    }

    /// Marks a packet that passed [`Received::check`].
    pub(super) fn mark(&mut self, sequence: Sequence) {
        self.advance(sequence);
        self.arrived.set(sequence);
    }

    /// The marked packet carries data: its sender waits for an acknowledgement. Those of acknowledgements alone must
    /// never be answered, or two idle endpoints would talk for ever.
    pub(super) fn owe(&mut self, sequence: Sequence, now: Instant) {
        if self.unreported_count == 0 {
            self.waiting_since = now;
        }
        self.latest = now;
        self.unreported.set(sequence);
        self.unreported_count += 1;
    }

    /// Moves the window so that `sequence` is in it. The first fragment of a packet does so: from then on the packet is
    /// reported as the newest, and as missing.
    pub(super) fn advance(&mut self, sequence: Sequence) {
        if self.is_ahead(sequence) {
            let next = sequence.ahead(1);
            let passed = next.distance_from(self.next);
            self.arrived.clear(self.next, passed);
            self.unreported_count -= self.unreported.clear(self.next, passed);
            self.next = next;
        }
    }

    /// What a header says now.
    pub(super) fn acks(&self) -> Acks {
        self.acks_from(self.newest())
    }

    /// The acknowledgements that must go out in a packet of their own, if any must by now.
    pub(super) fn owed(&self, policy: AckPolicy, now: Instant) -> Option<Acks> {
        if self.unreported_count == 0 {
            return None;
        }
        let oldest = self.unreported.first_set(self.oldest())?;
        let span = self.newest().distance_from(oldest).saturating_add(1);
        if span > policy.after_packets {
            // More arrived in one turn than headers say twice that start at the newest, or even once. This one starts at
            // an older packet; the reference, like any endpoint, reads it all the same.
            return Some(self.acks_from(oldest.ahead(policy.after_packets - 1)));
        }
        // The span, and not the number of arrivals: with some lost in between, a header of 32 would reach over fewer
        // than the two times `after_packets` arrivals that let each of them be in two headers.
        let due = span >= policy.after_packets || now.reached(self.waiting_since, policy.after);
        due.then(|| self.acks())
    }

    /// When [`Received::owed`] has something to say at the latest, if nothing else happens.
    pub(super) fn ack_deadline(&self, policy: AckPolicy) -> Option<Instant> {
        (self.unreported_count > 0).then(|| self.waiting_since.after(policy.after))
    }

    /// These acknowledgements have left.
    pub(super) fn report(&mut self, acks: Acks) {
        if self.unreported_count > 0 {
            let span = self.span(acks.ack);
            self.unreported_count -= self.unreported.clear(acks.ack.back(span.saturating_sub(1)), span);
            // What is left came in this turn: earlier ones would have been told of before.
            self.waiting_since = self.latest;
        }
    }

    /// Which packets before those of [`Received::acks`] have arrived: bit i of the whole stands for `ack` - 32 - i. It
    /// reaches twice as far back as what was in no header yet, so that each arrival is told of twice, and answers how
    /// many bytes of `bits` that takes; none as long as headers do that.
    pub(super) fn acks_behind(&self, bits: &mut [u8]) -> usize {
        let oldest = if self.unreported_count == 0 { None } else { self.unreported.first_set(self.oldest()) };
        let Some(oldest) = oldest else { return 0 };
        let span = self.newest().distance_from(oldest).saturating_add(1);
        if span <= HEADERS_SUFFICE {
            return 0;
        }
        let behind = span.saturating_mul(2).saturating_sub(ACKS_PER_HEADER);
        let bytes = usize::from(behind.div_ceil(8)).min(bits.len());
        for (place, byte) in (0_u16..).zip(bits.iter_mut().take(bytes)) {
            let backs = (0..8).map(|bit| (bit, ACKS_PER_HEADER + place * 8 + bit));
            let arrived = backs.filter(|(_, back)| *back < self.size && self.arrived.get(self.newest().back(*back)));
            *byte = arrived.fold(0, |byte, (bit, _)| byte | 1 << bit);
        }
        bytes
    }

    /// So many bytes of [`Received::acks_behind`] have left, with the newest header.
    pub(super) fn report_behind(&mut self, bytes: usize) {
        let span = u16::try_from(bytes * 8).unwrap_or(u16::MAX).saturating_add(ACKS_PER_HEADER).min(self.size);
        self.unreported_count -= self.unreported.clear(self.newest().back(span.saturating_sub(1)), span);
    }

    pub(super) fn reset(&mut self) {
        self.next = Sequence::default();
        self.arrived.reset();
        self.unreported.reset();
        self.unreported_count = 0;
    }

    fn acks_from(&self, ack: Sequence) -> Acks {
        let arrived = (0..self.span(ack)).filter(|back| self.arrived.get(ack.back(*back)));
        Acks { ack, bits: arrived.fold(0, |bits, back| bits | 1 << back) }
    }

    /// How many packets from `ack` backwards a header can speak of: those behind the window have no bit here.
    fn span(&self, ack: Sequence) -> u16 {
        ACKS_PER_HEADER.min(self.size.saturating_sub(self.newest().distance_from(ack)))
    }

    fn newest(&self) -> Sequence {
        self.next.back(1)
    }

    fn oldest(&self) -> Sequence {
        self.next.back(self.size)
    }

    fn is_ahead(&self, sequence: Sequence) -> bool {
        sequence.ahead(1).is_newer_than(self.next)
    }
}

#[cfg(test)]
mod tests;
