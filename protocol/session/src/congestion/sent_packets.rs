//! The packets that were sent: which of them are in flight, acknowledged, or lost by newer acknowledgements or by time
//! (§2.4, §5.9).
//!
//! A packet is never resent, so declaring it lost early costs little: its data is sent again a bit sooner, and a late
//! acknowledgement is marked as such. The delays are defined in `timing`.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::controller::SentPacket;
use super::timing::{LossDelays, Timing, nanos};
use crate::wire::reliable::{Sequence, SequenceBits, low_bits};
use slipgate_netcode::time::Instant;

/// A packet is lost once a number larger by this much was acknowledged and the loss delay has passed (kPacketThreshold
/// of RFC 9002, section 6.1.1). Skipped numbers and packets of acknowledgements alone count, too.
const PACKET_THRESHOLD: u64 = 3;
/// The probe timeout doubles at most this many times.
const MAX_BACKOFF: u32 = 10;
/// The longest probe timeout, unless the path itself is slower. RFC 9002 has no limit, because it is about bulk
/// transfers. A game should notice within seconds that its path is back, and a probe costs a packet of some hundred
/// bytes every other second.
const MAX_PTO: Duration = Duration::from_secs(2);

/// Time since sending within which a lost packet may still be acknowledged: four times the longest round trip that
/// "Fiedler, Reliability, Ordering and Congestion Avoidance over UDP" measures.
const LATE_ACK_LIMIT: Duration = Duration::from_secs(4);

/// The largest window that an endpoint may have: a peer acknowledges no packet further behind the newest that it
/// received.
const MAX_PEER_WINDOW: u64 = 1 << 14;

/// Packets this far apart have the same sequence number.
const SEQUENCE_SPACE: u64 = 1 << 16;

/// Whether the peer acknowledges a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionPacketKind {
    /// The peer acknowledges it.
    AckEliciting,
    /// It carries only acknowledgements, which the peer does not acknowledge.
    AckOnly,
}

/// The order in which packets with acknowledgements were sent, compared with the order of their arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArrivalOrder {
    /// Sent after all that arrived before it, so its acknowledgements are at least as new as theirs.
    Newest,
    /// Sent before one that arrived earlier, so its acknowledgements may be outdated.
    Overtaken,
}

/// A packet that was acknowledged for the first time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NewlyAcked {
    /// The packet.
    pub packet: SentPacket,
    /// It had been declared lost.
    pub late: bool,
    /// It was sent later than every packet acknowledged before.
    pub newest: bool,
}

/// What is wrong with acknowledgements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct AckFaults {
    /// They name a packet that was never sent.
    pub(crate) unsent: bool,
    /// They name a number that was skipped, so that only a peer that lies acknowledges it.
    pub(crate) skipped: bool,
}

/// The packets that were sent on one connection, from the oldest of which an acknowledgement would be news to the
/// newest. It takes 16 bytes for each, and no memory before the first.
pub struct SentPackets {
    /// Numbers used in all, without the wrap. They start at 0, so this is the number of the next packet.
    next: u64,
    /// The oldest packet in flight, or `next`.
    oldest: u64,
    in_flight: u64,
    largest_acked: Option<u64>,
    /// The peer acknowledges no packet before this one any more: it received one at least [`MAX_PEER_WINDOW`] newer.
    oldest_reportable: u64,
    /// One more than the newest packet that the peer is known to have received.
    peer_received_end: u64,
    /// One more than the newest number that was acknowledged in any order while it meant one packet.
    acked_end: u64,
    last_sent_at: Option<Instant>,
    pto_count: u32,
    /// When the last probe was due, whether or not one was sent.
    pto_at: Option<Instant>,
    /// The skipped numbers of the last `window`, if any are skipped, and the newest of them.
    skipped: Option<SequenceBits>,
    newest_skipped: u64,
    /// The last packets, newest last, at most `window`.
    packets: VecDeque<SentRecord>,
    window: u16,
}

#[derive(Clone, Copy)]
struct SentRecord {
    sent_at: Instant,
    bytes: u32,
    state: PacketState,
}

/// ```text
///  InFlight ──▶ Acked        Unawaited
///     │          ▲
///     └──▶ Lost ─┘ (its acknowledgement was late)
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum PacketState {
    InFlight,
    /// An ack-only packet, which the peer does not acknowledge, or a skipped number.
    Unawaited,
    Acked,
    Lost,
}

impl SentRecord {
    const fn packet(&self, number: u64) -> SentPacket {
        SentPacket { sequence: Sequence(number as u16), sent_at: self.sent_at, bytes: self.bytes }
    }

    /// Returns whether an acknowledgement of this packet would change nothing.
    fn is_resolved(&self, now: Instant) -> bool {
        match self.state {
            PacketState::InFlight => false,
            PacketState::Lost => now.reached(self.sent_at, LATE_ACK_LIMIT),
            PacketState::Unawaited | PacketState::Acked => true,
        }
    }
}

impl SentPackets {
    /// Creates a window of the newest `window` packets: a power of two from 16 to 16,384.
    ///
    /// 2,048 packets are enough for 200 Mbit/s at a round trip of 100 ms.
    #[must_use]
    pub const fn new(window: u16) -> Self {
        Self {
            next: 0,
            oldest: 0,
            in_flight: 0,
            largest_acked: None,
            oldest_reportable: 0,
            peer_received_end: 0,
            acked_end: 0,
            last_sent_at: None,
            pto_count: 0,
            pto_at: None,
            skipped: None,
            newest_skipped: 0,
            packets: VecDeque::new(),
            window,
        }
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Returns the number of the next packet.
    #[inline]
    pub(crate) const fn next_sequence(&self) -> Sequence {
        Sequence(self.next as u16)
    }

    /// Returns the number of the next packet without the wrap.
    #[inline]
    pub(crate) const fn next_number(&self) -> u64 {
        self.next
    }

    /// Records the next packet, and returns its number. `lost` is called for the oldest packet if the window was full
    /// of packets in flight.
    pub fn on_packet_sent(
        &mut self,
        kind: SessionPacketKind,
        bytes: u32,
        now: Instant,
        mut lost: impl FnMut(SentPacket),
    ) -> Sequence {
        let sequence = self.next_sequence();
        // Without room for another number the oldest would be confused with the newest.
        if self.next - self.oldest == self.window.into() {
            self.declare_oldest_lost(&mut lost);
        }
        if let Some(skipped) = &mut self.skipped {
            skipped.take(sequence);
        }
        let state = match kind {
            SessionPacketKind::AckEliciting => {
                self.in_flight += u64::from(bytes);
                self.last_sent_at = Some(now);
                PacketState::InFlight
            }
            SessionPacketKind::AckOnly => PacketState::Unawaited,
        };
        self.push(SentRecord { sent_at: now, bytes, state });
        sequence
    }

    /// Skips the next number, unless that would displace a packet: an acknowledgement of it is a lie.
    pub(crate) fn skip(&mut self, now: Instant) {
        if self.next - self.oldest == self.window.into() {
            return;
        }
        // A record of its own would be forgotten as soon as all older packets are acknowledged. The bit stays.
        self.skipped.get_or_insert_with(|| SequenceBits::new(self.window)).set(Sequence(self.next as u16));
        self.newest_skipped = self.next;
        self.push(SentRecord { sent_at: now, bytes: 0, state: PacketState::Unawaited });
    }

    fn push(&mut self, record: SentRecord) {
        let full = usize::from(self.window);
        let now = record.sent_at;
        while self.packets.front().is_some_and(|oldest| self.packets.len() >= full || oldest.is_resolved(now)) {
            self.packets.pop_front();
        }
        self.packets.push_back(record);
        self.next += 1;
        // No acknowledgement of an ack-only packet is awaited: `oldest` must step over it at once.
        self.skip_resolved();
    }

    // Acknowledgements ----------------------------------------------------------------------------------------------

    /// Processes the acknowledgement of one packet. Returns `None` if the packet is acknowledged already, forgotten, or
    /// was never sent.
    pub fn on_ack(&mut self, sequence: Sequence) -> Option<NewlyAcked> {
        let mut news = None;
        self.on_acks(sequence, 1, ArrivalOrder::Newest, |acked| news = Some(*acked));
        news
    }

    /// Processes acknowledgements: bit i of `bits` stands for packet `ack` - i. Calls `acked` for each packet that was
    /// not acknowledged before, newest first.
    pub(crate) fn on_acks(
        &mut self,
        ack: Sequence,
        bits: u64,
        order: ArrivalOrder,
        mut acked: impl FnMut(&NewlyAcked),
    ) -> AckFaults {
        let mut faults = AckFaults::default();
        if bits == 0 {
            return faults;
        }
        let Some(number) = self.resolve_numbers(ack, u64::BITS - bits.leading_zeros(), order) else {
            for back in set_bits(bits) {
                // Each number by itself, newest first: some may have been sent, or have another meaning.
                self.on_single_ack(ack - back as u16, order, &mut faults, &mut acked);
            }
            return faults;
        };
        let skipped = self.skipped_bits(ack, number) & bits;
        faults = AckFaults { unsent: skipped != 0, skipped: skipped != 0 };
        self.on_arrived(number, bits & !skipped, order, &mut acked);
        faults
    }

    fn on_single_ack(
        &mut self,
        sequence: Sequence,
        order: ArrivalOrder,
        faults: &mut AckFaults,
        acked: &mut impl FnMut(&NewlyAcked),
    ) {
        let Some(number) = self.resolve_number(sequence, order) else {
            faults.unsent = true;
            return;
        };
        if self.skipped_bits(sequence, number) & 1 != 0 {
            *faults = AckFaults { unsent: true, skipped: true };
        } else {
            self.on_arrived(number, 1, order, acked);
        }
    }

    /// Processes that packets arrived: bit i of `bits` stands for packet `number` - i.
    fn on_arrived(&mut self, number: u64, bits: u64, order: ArrivalOrder, acked: &mut impl FnMut(&NewlyAcked)) {
        // Only the newest header proves how far the peer is: an overtaken one may be arbitrarily old.
        if order == ArrivalOrder::Newest && bits != 0 {
            self.on_peer_received(number - u64::from(bits.trailing_zeros()));
        }
        // Most packets of a header were acknowledged before, and forgotten since.
        let first = self.next - self.packets.len() as u64;
        let Some(remembered) = number.checked_sub(first) else { return };
        let mut has_new_acks = false;
        for back in set_bits(bits & low_bits(remembered + 1)) {
            has_new_acks |= self.acknowledge(number - u64::from(back), (remembered - u64::from(back)) as usize, acked);
        }
        if has_new_acks {
            // Any acknowledgement proves that the path works, which ends the backoff (RFC 9002, section 6.2.1).
            self.pto_count = 0;
            self.skip_resolved();
            self.drop_acked();
        }
    }

    /// Marks the packet at this index as acknowledged. Returns whether that is news.
    // Not inlined into the loop over the bits: most headers acknowledge one packet, and the loop would load all state
    // before its first step.
    #[inline(never)]
    fn acknowledge(&mut self, number: u64, index: usize, acked: &mut impl FnMut(&NewlyAcked)) -> bool {
        let has_one_meaning = !self.may_mean_older();
        let Some(record) = self.packets.get_mut(index) else { return false };
        let late = match record.state {
            PacketState::InFlight => false,
            PacketState::Lost => true,
            PacketState::Unawaited | PacketState::Acked => return false,
        };
        record.state = PacketState::Acked;
        let packet = record.packet(number);
        // A lost packet left the bytes in flight when it was declared lost.
        if !late {
            self.in_flight -= u64::from(packet.bytes);
        }
        if has_one_meaning {
            self.acked_end = self.acked_end.max(number + 1);
        }
        let newest = self.largest_acked.is_none_or(|largest| number > largest);
        self.largest_acked = self.largest_acked.max(Some(number));
        acked(&NewlyAcked { packet, late, newest });
        true
    }

    /// Calls `each` with numbers without the wrap that acknowledgements name: (n, number, bits) says that bit i of
    /// `bits` stands for packet number - i, and is bit n + i of the acknowledgements. Packets that were never sent are
    /// left out. Returns `false`, without a call, if older packets with the same 16 bits can be meant.
    pub(crate) fn resolve_acks(
        &self,
        ack: Sequence,
        bits: u64,
        order: ArrivalOrder,
        mut each: impl FnMut(u32, u64, u64),
    ) -> bool {
        if bits == 0 {
            return true;
        }
        if self.may_mean_older() {
            return false;
        }
        if let Some(number) = self.resolve_numbers(ack, u64::BITS - bits.leading_zeros(), order) {
            each(0, number, bits);
        } else {
            let resolve = |back| Some((back, self.resolve_number(ack - back as u16, order)?));
            set_bits(bits).filter_map(resolve).for_each(|(back, number)| each(back, number, 1));
        }
        true
    }

    /// Returns the number of `ack` without the wrap, if it and the numbers before it, `count` in all, follow each other
    /// and each means one packet that was sent.
    fn resolve_numbers(&self, ack: Sequence, count: u32, order: ArrivalOrder) -> Option<u64> {
        let number = self.resolve_number(ack, order)?;
        let before = u64::from(count - 1);
        let ahead = u64::from(ack - self.next_sequence());
        let is_plain = ahead >= before
            && number >= before
            && (order == ArrivalOrder::Overtaken || number - before >= self.oldest_reportable);
        (is_plain && !self.is_ambiguous()).then_some(number)
    }

    /// Returns the newest packet with this sequence number, or `None` if no honest peer can name it.
    ///
    /// A peer that received nothing for 32,768 packets or more still names the last one that it has. That number
    /// looks like one ahead of all sent packets, and must not count as an error.
    fn resolve_number(&self, sequence: Sequence, order: ArrivalOrder) -> Option<u64> {
        // Count back from the next number: the newest number with these 16 bits.
        let ahead = u64::from(sequence - self.next_sequence());
        let number = self.next.checked_sub(SEQUENCE_SPACE - ahead)?;
        (order == ArrivalOrder::Overtaken || number >= self.oldest_reportable).then_some(number)
    }

    /// Returns which numbers from `number` back were skipped, unless older packets with the same 16 bits can be meant.
    fn skipped_bits(&self, sequence: Sequence, number: u64) -> u64 {
        let Some(skipped) = &self.skipped else { return 0 };
        // Most headers report packets behind the newest skipped number alone.
        if number >= self.newest_skipped + u64::from(u64::BITS) {
            return 0;
        }
        let remembered = u64::from(self.window).checked_sub(self.next - number);
        let Some(remembered) = remembered.filter(|_| !self.may_mean_older()) else { return 0 };
        // The ring has no bits of older numbers.
        skipped.newest_first(sequence) & low_bits(remembered + 1)
    }

    /// Returns whether the peer has acknowledged nothing for so long that it may mean a packet with the same number a
    /// whole number space ago.
    ///
    /// Unlike [`is_ambiguous`](Self::is_ambiguous), acknowledgements in overtaken packets count: a peer that sends only
    /// such packets would make its lies count as ambiguous.
    pub(crate) fn may_mean_older(&self) -> bool {
        let oldest = self.oldest_reportable.max(self.acked_end.saturating_sub(MAX_PEER_WINDOW));
        self.next - oldest > SEQUENCE_SPACE
    }

    /// Returns whether the peer has received nothing for so long that a sequence number may mean two packets.
    const fn is_ambiguous(&self) -> bool {
        self.next - self.oldest_reportable > SEQUENCE_SPACE
    }

    /// Records that the peer received a packet, unless its number is ambiguous.
    fn on_peer_received(&mut self, number: u64) {
        // Beyond a full number space two packets share the number, and the older may be meant.
        if !self.is_ambiguous() {
            self.oldest_reportable = self.oldest_reportable.max(number.saturating_sub(MAX_PEER_WINDOW));
            self.peer_received_end = self.peer_received_end.max(number + 1);
        }
    }

    /// Returns one more than the newest packet that the peer is known to have received, without the wrap. Ack-only
    /// packets and late acknowledgements count too.
    #[inline]
    pub(crate) const fn peer_received_end(&self) -> u64 {
        self.peer_received_end
    }

    // Losses and probes ---------------------------------------------------------------------------------------------

    /// Calls `lost` for every packet that counts as lost by these delays, oldest first.
    ///
    /// Packets are sent in the order of their numbers, so none is lost before the oldest is.
    pub fn detect_lost(&mut self, delays: LossDelays, now: Instant, mut lost: impl FnMut(SentPacket)) {
        while self.loss_deadline(delays).is_some_and(|deadline| now >= deadline) {
            self.declare_oldest_lost(&mut lost);
        }
    }

    /// Returns when [`SentPackets::detect_lost`] finds the next loss if no acknowledgement arrives before; `None`
    /// if nothing is in flight.
    #[must_use]
    pub(crate) fn loss_deadline(&self, delays: LossDelays) -> Option<Instant> {
        let record = self.oldest_in_flight()?;
        let has_gap = self.largest_acked.is_some_and(|acked| acked >= self.oldest + PACKET_THRESHOLD);
        let delay = if has_gap { delays.after_gap } else { delays.limit };
        Some(Instant::from_nanos(record.sent_at.as_nanos().saturating_add(delay)))
    }

    /// Returns whether any packet is in flight.
    #[inline]
    pub(crate) const fn has_packets_in_flight(&self) -> bool {
        self.oldest < self.next
    }

    /// Returns when a probe is due because the path is silent: any packet that the peer acknowledges. `None` if
    /// nothing is in flight. Each probe doubles the timeout (RFC 9002, section 6.2.1), up to two seconds.
    #[must_use]
    pub(crate) fn pto_deadline(&self, timing: &Timing) -> Option<Instant> {
        if !self.has_packets_in_flight() {
            return None;
        }
        let first = timing.probe_timeout();
        // RFC 9002, section 6.2.1: the timer restarts with each packet sent.
        let since = self.last_sent_at.max(self.pto_at)?;
        let timeout = first.saturating_mul(1 << self.pto_count).min(first.max(nanos(MAX_PTO)));
        Some(Instant::from_nanos(since.as_nanos().saturating_add(timeout)))
    }

    /// Records that a probe was due, whether it was sent, replaced by data, or impossible.
    pub(crate) fn on_pto(&mut self, now: Instant) {
        self.pto_at = Some(now);
        self.pto_count = (self.pto_count + 1).min(MAX_BACKOFF);
    }

    /// Returns whether no more packets should be sent: seven eighths of the window are in flight. The rest is for
    /// ack-only packets; one more than the window, and the oldest packet would count as lost.
    #[must_use]
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.next - self.oldest >= u64::from(self.window - self.window / 8)
    }

    /// Returns the bytes sent that are neither acknowledged nor lost.
    #[must_use]
    #[inline]
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Declares the oldest packet in flight lost.
    fn declare_oldest_lost(&mut self, lost: &mut impl FnMut(SentPacket)) {
        let number = self.oldest;
        if let Some(record) = self.index(number).and_then(|index| self.packets.get_mut(index)) {
            record.state = PacketState::Lost;
            let packet = record.packet(number);
            self.in_flight -= u64::from(packet.bytes);
            lost(packet);
        }
        self.skip_resolved();
    }

    /// Advances to the oldest packet in flight. Each number is passed once, so the cost per packet is constant.
    fn skip_resolved(&mut self) {
        while self.oldest_record().is_some_and(|record| record.state != PacketState::InFlight) {
            self.oldest += 1;
        }
    }

    /// Drops the oldest packets if no acknowledgement of them is awaited.
    fn drop_acked(&mut self) {
        let is_done = |record: &SentRecord| matches!(record.state, PacketState::Acked | PacketState::Unawaited);
        while self.packets.front().is_some_and(is_done) {
            self.packets.pop_front();
        }
    }

    fn oldest_in_flight(&self) -> Option<&SentRecord> {
        let oldest = self.oldest_record();
        debug_assert!(
            oldest.is_none_or(|record| record.state == PacketState::InFlight),
            "the oldest packet is one that is awaited"
        );
        oldest
    }

    fn oldest_record(&self) -> Option<&SentRecord> {
        self.packets.get(self.index(self.oldest)?)
    }

    /// Returns the index of a packet, or `None` if it is dropped.
    fn index(&self, number: u64) -> Option<usize> {
        // The deque ends with the newest packet, so index from its end.
        let behind_newest = usize::try_from(self.next.checked_sub(number)?).ok()?;
        self.packets.len().checked_sub(behind_newest)
    }
}

/// Iterates over the indices of the bits that are set, the lowest first.
fn set_bits(mut bits: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let index = bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
        (index < u64::BITS).then_some(index)
    })
}

#[cfg(test)]
mod tests;
