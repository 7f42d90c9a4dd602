//! The packets in flight, and which of them are lost by newer acknowledgements or by time.
//!
//! A packet is never resent, so declaring it lost early costs little: its data is sent again a bit sooner, and a late
//! acknowledgement is marked as such. The delays are defined in `timing`.

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

use super::{SentPacket, Timing};
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// A packet is lost once a packet sent this many later was acknowledged and the loss delay has passed (RFC 9002,
/// section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// The probe timeout doubles at most this many times.
const MAX_BACKOFF: u32 = 10;
/// The longest probe timeout, unless the path itself is slower. RFC 9002 has no limit, because it is about bulk
/// transfers. A game should notice within seconds that its path is back, and a probe costs a packet of some hundred
/// bytes every other second.
const MAX_PTO: Duration = Duration::from_secs(2);

/// The first number without the wrap, so that one may look back from the first packet.
const START: u64 = 1 << 16;

/// Slots of a new ring: two seconds of a game at 60 packets per second.
const INITIAL_SLOTS: usize = 128;

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

/// The packets in flight of one connection, in a ring that grows up to a window.
///
/// Numbers may be skipped: those of ack-only packets. Each number is passed once, so sending, acknowledging and
/// losing a packet cost the same on average for any window.
pub struct SentPackets {
    /// The number after the newest packet, without the wrap.
    next: u64,
    /// The oldest packet in flight, or `next`.
    oldest: u64,
    largest_acked: Option<u64>,
    in_flight: u64,
    last_sent_at: Option<Instant>,
    pto_count: u32,
    /// When the last probe was due, whether or not one was sent.
    pto_at: Option<Instant>,
    slots: Box<[PacketSlot]>,
    /// The maximum number of slots.
    window: usize,
}

#[derive(Clone, Copy, Default)]
struct PacketSlot {
    sent_at: Instant,
    bytes: u32,
    state: PacketState,
}

/// ```text
///  InFlight ──▶ Acked
///     │          ▲
///     └──▶ Lost ─┘ (its acknowledgement was late)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum PacketState {
    /// No packet in flight has this number: it is unused, or ack-only.
    #[default]
    Absent,
    InFlight,
    Acked,
    Lost,
}

impl PacketSlot {
    fn packet(&self) -> SentPacket {
        SentPacket { sent_at: self.sent_at, bytes: self.bytes }
    }
}

impl SentPackets {
    /// Creates a ring for the newest `window` packets, rounded up to a power of two of at most 32,768. It allocates
    /// 16 bytes for each packet in flight.
    ///
    /// 2,048 packets are enough for 200 Mbit/s at a round trip of 100 ms.
    #[must_use]
    pub fn new(window: u16) -> Self {
        let window = usize::from(window.clamp(4, 1 << 15)).next_power_of_two();
        Self {
            next: START,
            oldest: START,
            largest_acked: None,
            in_flight: 0,
            last_sent_at: None,
            pto_count: 0,
            pto_at: None,
            slots: vec![PacketSlot::default(); window.min(INITIAL_SLOTS)].into_boxed_slice(),
            window,
        }
    }

    /// Records a packet that was sent. Its number must be newer than every one before; skipped numbers are not waited
    /// for.
    ///
    /// `lost` is called for packets whose slots are needed while they are still in flight: those of a whole window
    /// ago.
    pub fn on_packet_sent(
        &mut self,
        sequence: Sequence,
        bytes: u32,
        now: Instant,
        mut lost: impl FnMut(Sequence, SentPacket),
    ) {
        // The first packet may have any number: ack-only packets may have been sent before.
        if self.last_sent_at.is_none() {
            (self.next, self.oldest) = (START + u64::from(sequence.0), START + u64::from(sequence.0));
        }
        let Some(number) = self.unwrap_ahead(sequence) else {
            debug_assert!(false, "packet {sequence} was sent after a newer one");
            return;
        };
        self.make_room(number, &mut lost);
        // Nothing is in flight: skip the unused numbers in between.
        if self.oldest == self.next {
            self.oldest = number;
        }
        self.put(number, PacketSlot { sent_at: now, bytes, state: PacketState::InFlight });
        self.next = number + 1;
        self.in_flight += u64::from(bytes);
        self.last_sent_at = Some(now);
    }

    /// Records that numbers up to this one were used by ack-only packets. Call it at least every 32,767 numbers, or
    /// they become ambiguous. `lost` is called as in [`SentPackets::on_packet_sent`].
    pub(crate) fn skip(&mut self, sequence: Sequence, mut lost: impl FnMut(Sequence, SentPacket)) {
        if self.last_sent_at.is_none() {
            return;
        }
        if let Some(number) = self.unwrap_ahead(sequence) {
            self.make_room(number, &mut lost);
            self.put(number, PacketSlot::default());
            if self.oldest == self.next {
                self.oldest = number + 1;
            }
            self.next = number + 1;
        }
    }

    /// Returns the number without the wrap, if it is not older than the next one.
    fn unwrap_ahead(&self, sequence: Sequence) -> Option<u64> {
        let ahead = sequence - Sequence(self.next as u16);
        (ahead < 1 << 15).then(|| self.next + u64::from(ahead))
    }

    /// Frees the slots up to that of `number`, and clears those of skipped numbers.
    fn make_room(&mut self, number: u64, lost: &mut impl FnMut(Sequence, SentPacket)) {
        while self.oldest < self.next && self.oldest + self.size() <= number {
            // Grow before giving anything up: the memory is allowed, only not allocated yet.
            if self.slots.len() < self.window {
                self.grow();
                continue;
            }
            self.declare_oldest_lost(lost);
        }
        // Clear the slots of skipped numbers, which still hold packets of a ring ago.
        for skipped in self.next.max((number + 1).saturating_sub(self.size()))..number {
            self.put(skipped, PacketSlot::default());
        }
    }

    /// Processes an acknowledgement. Returns `None` if the packet is acknowledged already, forgotten, or was never
    /// sent.
    pub fn on_ack(&mut self, sequence: Sequence) -> Option<NewlyAcked> {
        let back = u64::from(Sequence(self.next as u16) - sequence);
        // back > || More than a ring ago, or not sent yet.
        if back == 0 || back > self.size() {
            return None;
        }
        let number = self.next - back;
        let slot = self.slot_mut(number)?;
        let (packet, state) = (slot.packet(), slot.state);
        if !matches!(state, PacketState::InFlight | PacketState::Lost) {
            return None;
        }
        slot.state = PacketState::Acked;
        // A lost packet left the bytes in flight when it was declared lost.
        if state == PacketState::InFlight {
            self.in_flight -= u64::from(packet.bytes);
        }
        let newest = self.largest_acked.is_none_or(|acked| number > acked);
        self.largest_acked = self.largest_acked.max(Some(number));
        // Any acknowledgement proves that the path works, which ends the backoff (RFC 9002, section 6.2.1).
        self.pto_count = 0;
        self.skip_resolved();
        Some(NewlyAcked { packet, late: state == PacketState::Lost, newest })
    }

    /// Calls `lost` for every packet that counts as lost by now, oldest first.
    ///
    /// Packets are sent in the order of their numbers, so none is lost before the oldest is.
    pub fn detect_lost(&mut self, timing: &Timing, now: Instant, mut lost: impl FnMut(Sequence, SentPacket)) {
        while self.loss_deadline(timing).is_some_and(|deadline| now >= deadline) {
            self.declare_oldest_lost(&mut lost);
        }
    }

    /// Returns when [`SentPackets::detect_lost`] finds the next loss if no acknowledgement arrives before; `None` if
    /// nothing is in flight.
    #[must_use]
    pub(crate) fn loss_deadline(&self, timing: &Timing) -> Option<Instant> {
        let slot = self.oldest_in_flight()?;
        let has_gap = self.largest_acked.is_some_and(|acked| acked >= self.oldest + PACKET_THRESHOLD);
        Some(slot.sent_at.after(if has_gap { timing.loss_delay() } else { timing.loss_limit() }))
    }

    /// Returns when a probe is due because the path is silent: any packet that the peer acknowledges. `None` if
    /// nothing is in flight. Each probe doubles the timeout (RFC 9002, section 6.2.1), up to two seconds.
    #[must_use]
    pub(crate) fn pto_deadline(&self, timing: &Timing) -> Option<Instant> {
        self.oldest_in_flight()?;
        let first = timing.probe_timeout();
        // RFC 9002, section 6.2.1: the timer restarts with each packet sent.
        let since = self.last_sent_at.max(self.pto_at)?;
        Some(since.after((first * (1 << self.pto_count)).min(first.max(MAX_PTO))))
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
        self.next - self.oldest >= (self.window - self.window / 8) as u64
    }

    /// Returns the bytes sent that are neither acknowledged nor lost.
    #[must_use]
    #[inline]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Doubles the ring and moves its packets.
    fn grow(&mut self) {
        let grown = vec![PacketSlot::default(); self.slots.len() * 2].into_boxed_slice();
        let (oldest, old) = (self.next.saturating_sub(self.size()), core::mem::replace(&mut self.slots, grown));
        // Copy by number: the index of each packet changes with the size of the ring.
        for number in oldest..self.next {
            let slot = old.get((number & (old.len() as u64 - 1)) as usize).copied().unwrap_or_default();
            self.put(number, slot);
        }
    }

    /// Declares the oldest packet in flight lost.
    fn declare_oldest_lost(&mut self, lost: &mut impl FnMut(Sequence, SentPacket)) {
        let number = self.oldest;
        if let Some(slot) = self.slot_mut(number) {
            slot.state = PacketState::Lost;
            let packet = slot.packet();
            self.in_flight -= u64::from(packet.bytes);
            lost(Sequence(number as u16), packet);
        }
        self.skip_resolved();
    }

    fn skip_resolved(&mut self) {
        while self.oldest_slot().is_some_and(|slot| slot.state != PacketState::InFlight) {
            self.oldest += 1;
        }
    }

    fn oldest_in_flight(&self) -> Option<&PacketSlot> {
        debug_assert!(
            self.oldest_slot().is_none_or(|slot| slot.state == PacketState::InFlight),
            "the oldest packet is one that is awaited"
        );
        self.oldest_slot()
    }

    fn oldest_slot(&self) -> Option<&PacketSlot> {
        if self.oldest < self.next { self.slots.get(self.index(self.oldest)) } else { None }
    }

    fn slot_mut(&mut self, number: u64) -> Option<&mut PacketSlot> {
        let index = self.index(number);
        self.slots.get_mut(index)
    }

    fn put(&mut self, number: u64, slot: PacketSlot) {
        if let Some(old) = self.slot_mut(number) {
            *old = slot;
        }
    }

    const fn index(&self, number: u64) -> usize {
        (number & (self.size() - 1)) as usize
    }

    const fn size(&self) -> u64 {
        self.slots.len() as u64
    }
}

#[cfg(test)]
mod tests;
