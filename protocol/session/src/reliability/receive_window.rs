//! Which packets arrived, and which arrivals no header has reported yet (§2.4).

use alloc::boxed::Box;

use super::config::AckPolicy;
use super::nonce_sum::NonceSum;
use crate::congestion::ArrivalOrder;
use crate::reject::Reject;
use crate::wire::reliable::{ACKS_PER_HEADER, Acks, ReliableHeader, Sequence, SequenceBits, low_bits};
use slipgate_netcode::time::Instant;

/// Spans of unreported packets up to this are reported twice by headers alone.
const MAX_SPAN_IN_HEADERS: u16 = 24;

/// The window of received packets.
pub(super) struct ReceiveWindow {
    /// One more than the newest sequence number.
    next: Sequence,
    size: u16,
    arrived: SequenceBits,
    /// The lower and the upper bits of the nonces of those packets, from the first one on that is not 0.
    nonces: Option<Box<[SequenceBits; 2]>>,
    /// Packets that require an acknowledgement and were in no header yet.
    unacked: SequenceBits,
    unacked_count: u16,
    /// No unacked packet is older than this one.
    oldest_unacked: Sequence,
    /// When the first of them arrived, and when the last one did.
    waiting_since: Instant,
    latest: Instant,
}

impl ReceiveWindow {
    pub(super) fn new(size: u16) -> Self {
        Self {
            next: Sequence::default(),
            size,
            arrived: SequenceBits::new(size),
            nonces: None,
            unacked: SequenceBits::new(size),
            unacked_count: 0,
            oldest_unacked: Sequence::default(),
            waiting_since: Instant::default(),
            latest: Instant::default(),
        }
    }

    /// Checks that a packet is neither older than the window nor in it already.
    #[inline]
    pub(super) fn check(&self, sequence: Sequence) -> Result<(), Reject> {
        // The usual case: packets arrive in order.
        if sequence == self.next {
            return Ok(());
        }
        if sequence.is_older_than(self.oldest()) {
            return Err(Reject::Stale);
        }
        if self.has(sequence) { Err(Reject::Duplicate) } else { Ok(()) }
    }

    /// Returns whether the packet is in the window and has arrived.
    pub(super) fn has(&self, sequence: Sequence) -> bool {
        !self.is_ahead(sequence) && !sequence.is_older_than(self.oldest()) && self.arrived.get(sequence)
    }

    /// Returns whether a packet that passed [`ReceiveWindow::check`] was overtaken by a newer one.
    pub(super) fn arrival_order(&self, sequence: Sequence) -> ArrivalOrder {
        // A fragment may have made this very packet the newest already, so compare with `is_older_than`.
        if sequence != self.next && sequence.is_older_than(self.newest()) {
            ArrivalOrder::Overtaken
        } else {
            ArrivalOrder::Newest
        }
    }

    /// Marks a packet that passed [`ReceiveWindow::check`].
    pub(super) fn mark(&mut self, sequence: Sequence) {
        self.advance(sequence);
        self.arrived.set(sequence);
    }

    /// Notes the nonce of a packet, if it is marked.
    pub(super) fn set_nonce(&mut self, sequence: Sequence, nonce: u8) {
        // The bits of another number may be those of a marked packet, one window older.
        if !self.has(sequence) || nonce == 0 && self.nonces.is_none() {
            return;
        }
        let size = self.size;
        let [low, high] = &mut **self.nonces.get_or_insert_with(|| Box::new([size; 2].map(SequenceBits::new)));
        low.assign(sequence, nonce & 1 != 0);
        high.assign(sequence, nonce & 2 != 0);
    }

    /// Returns the sum of the nonces of the packets that a packet with this header, and these acknowledgements behind
    /// it, reports.
    pub(super) fn nonce_sum(&self, header: &ReliableHeader, extended: &[u8]) -> u8 {
        let mut sum = NonceSum::new(header.sequence);
        for (ack, bits) in ack_words(header.acks, extended) {
            let planes =
                self.nonces.as_deref().map(|planes| planes.each_ref().map(|plane| plane.newest_first(ack) & bits));
            sum.add(planes.unwrap_or_default());
        }
        sum.get()
    }

    /// Notes that the marked packet requires an acknowledgement. Ack-only packets must never require one, or two idle
    /// endpoints would acknowledge each other for ever.
    pub(super) fn require_ack(&mut self, sequence: Sequence, now: Instant) {
        if self.unacked_count == 0 {
            self.waiting_since = now;
        }
        if self.unacked_count == 0 || sequence.is_older_than(self.oldest_unacked) {
            self.oldest_unacked = sequence;
        }
        self.latest = now;
        self.unacked.set(sequence);
        self.unacked_count += 1;
    }

    /// Moves the window so that `sequence` is in it. The first fragment of a packet does so too: headers then report
    /// the packet as the newest, and as missing.
    pub(super) fn advance(&mut self, sequence: Sequence) {
        if sequence == self.next || self.is_ahead(sequence) {
            let next = sequence + 1;
            let passed = next - self.next;
            // Clear what the window moves over: the ring still holds the bits of packets one window older.
            if passed == 1 {
                self.arrived.take(self.next);
                self.unacked_count -= u16::from(self.unacked.take(self.next));
            } else {
                self.arrived.clear(self.next, passed);
                self.unacked_count -= self.unacked.clear(self.next, passed);
            }
            self.next = next;
            // The bound stays within the window, so that distances from it never wrap.
            if self.newest() - self.oldest_unacked >= self.size {
                self.oldest_unacked = self.oldest();
            }
        }
    }

    /// Returns the acknowledgements of the next header.
    #[inline]
    pub(super) fn acks(&self) -> Acks {
        self.acks_from(self.newest())
    }

    /// Returns the acknowledgements of an ack-only packet, if one is due.
    #[inline]
    pub(super) fn due_acks(&self, policy: AckPolicy, now: Instant) -> Option<Acks> {
        if self.unacked_count == 0 {
            return None;
        }
        // Compare the span, not the number of arrivals: where packets were lost, a header of 32 bits covers fewer
        // arrivals, and each must still be in two headers.
        if self.max_unacked_span() >= policy.after_packets
            && let Some(oldest) = self.first_unacked()
            && (self.newest() - oldest).saturating_add(1) >= policy.after_packets
        {
            // More packets may have arrived in one turn than one header reports, or reports twice. Start this header at
            // an older packet then; any endpoint reads that, the reference too.
            return Some(self.acks_from(oldest + (policy.after_packets - 1)));
        }
        now.reached(self.waiting_since, policy.after).then(|| self.acks())
    }

    /// Returns when [`ReceiveWindow::due_acks`] returns something at the latest, or `NEVER`.
    pub(super) fn ack_deadline(&self, policy: AckPolicy) -> Instant {
        if self.unacked_count > 0 { self.waiting_since.after(policy.after) } else { Instant::NEVER }
    }

    /// Records that a header with these acknowledgements was sent.
    #[inline]
    pub(super) fn on_acks_sent(&mut self, acks: Acks) {
        if self.unacked_count > 0 {
            let span = self.span(acks.ack);
            // No unacked packet is older than the bound: most headers clear a single bit.
            let span = span.min((acks.ack - self.oldest_unacked).saturating_add(1));
            self.unacked_count -= match span {
                1 => u16::from(self.unacked.take(acks.ack)),
                span => self.unacked.clear(acks.ack - span.saturating_sub(1), span),
            };
            // The remaining arrivals are of this turn: older ones were reported before.
            self.waiting_since = self.latest;
        }
    }

    /// Writes which packets before those of [`ReceiveWindow::acks`] have arrived: bit i of the whole stands for
    /// `ack - 32 - i`. It covers twice the unreported span, so that each arrival is reported twice.
    ///
    /// Returns the number of bytes written, 0 while headers are enough.
    pub(super) fn extended_acks(&self, bits: &mut [u8]) -> usize {
        // The usual case: by the bound alone, headers are enough.
        if self.unacked_count == 0 || self.max_unacked_span() <= MAX_SPAN_IN_HEADERS {
            return 0;
        }
        let Some(oldest) = self.first_unacked() else { return 0 };
        let span = (self.newest() - oldest).saturating_add(1);
        if span <= MAX_SPAN_IN_HEADERS {
            return 0;
        }
        let behind = span.saturating_mul(2).saturating_sub(ACKS_PER_HEADER);
        let bytes = usize::from(behind.div_ceil(8)).min(bits.len());
        let first = self.newest() - ACKS_PER_HEADER;
        for (back, part) in (0..).step_by(64).zip(bits.get_mut(..bytes).unwrap_or_default().chunks_mut(8)) {
            // The ring holds `size` numbers, so bits further back are those of newer packets.
            let left = u64::from(self.size.saturating_sub(ACKS_PER_HEADER + back));
            let arrived = self.arrived.newest_first(first - back) & low_bits(left);
            part.iter_mut().zip(arrived.to_le_bytes()).for_each(|(byte, bits)| *byte = bits);
        }
        bytes
    }

    /// Records that this many bytes of [`ReceiveWindow::extended_acks`] were sent with the newest header.
    pub(super) fn extended_acks_sent(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let span = u16::try_from(bytes * 8).unwrap_or(u16::MAX).saturating_add(ACKS_PER_HEADER).min(self.size);
        self.unacked_count -= self.unacked.clear(self.newest() - span.saturating_sub(1), span);
    }

    #[inline]
    fn acks_from(&self, ack: Sequence) -> Acks {
        // A span of 0 is that of an `ack` behind the window.
        let bits = self.arrived.newest_first(ack) & low_bits(self.span(ack).into());
        Acks { ack, bits: bits as u32 }
    }

    /// Returns an upper bound of the span of unacked packets, which is exact unless headers have reported the oldest.
    fn max_unacked_span(&self) -> u16 {
        (self.newest() - self.oldest_unacked).saturating_add(1)
    }

    /// Returns the oldest unacked packet.
    fn first_unacked(&self) -> Option<Sequence> {
        if self.unacked_count == 0 { None } else { self.unacked.first_set(self.oldest_unacked) }
    }

    /// Returns how many packets a header with this `ack` can report: packets behind the window have no bit here.
    fn span(&self, ack: Sequence) -> u16 {
        ACKS_PER_HEADER.min(self.size.saturating_sub(self.newest() - ack))
    }

    fn newest(&self) -> Sequence {
        self.next - 1
    }

    fn oldest(&self) -> Sequence {
        self.next - self.size
    }

    fn is_ahead(&self, sequence: Sequence) -> bool {
        (sequence + 1).is_newer_than(self.next)
    }
}

/// Iterates over acknowledgements of a header and those behind it: bit i of each word stands for its packet - i.
pub(super) fn ack_words(acks: Acks, extended: &[u8]) -> impl Iterator<Item = (Sequence, u64)> {
    core::iter::once((acks.ack, acks.bits.into())).chain(extended_ack_words(acks.ack, extended))
}

/// Iterates over the acknowledgements behind a header with this `ack`, as [`ack_words`] does.
pub(super) fn extended_ack_words(ack: Sequence, bits: &[u8]) -> impl Iterator<Item = (Sequence, u64)> {
    let words = bits.chunks(8).map(|word| word.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte)));
    (ACKS_PER_HEADER..).step_by(64).zip(words).map(move |(back, bits)| (ack - back, bits))
}

#[cfg(test)]
mod tests;
