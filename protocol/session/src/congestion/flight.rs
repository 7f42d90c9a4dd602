//! Which packets are under way, and which of them are lost by the evidence of newer acknowledgements or by time.
//!
//! A packet is never resent, so a verdict may come early: it costs nothing but the early answer of whoever wrote into
//! the packet, and an acknowledgement that comes after all is told as late. How long one waits is `timing`'s matter.

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

use super::{Departed, Timing};
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// A packet is lost once one sent this many later was acknowledged, and its time is up (RFC 9002, section 6.1.1).
const PACKET_THRESHOLD: u64 = 3;
/// Probes wait at most this many times doubled.
const MOST_DOUBLINGS: u32 = 10;
/// And no longer than this, unless the path itself takes so long: a game whose path comes back wants to know it while its
/// player is still there. RFC 9002 has no such limit, for it speaks of transfers; here a probe is a packet of some hundred
/// bytes every other second, until the connection times out.
const LONGEST_PROBE: Duration = Duration::from_secs(2);

/// Numbers without the wrap are counted from here: one may look back from the first.
const START: u64 = 1 << 16;

/// Places that a ring begins with: two seconds of a game at 60 packets per second.
const FIRST_PLACES: usize = 128;

/// A packet whose acknowledgement arrived.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Landed {
    /// The packet.
    pub departed: Departed,
    /// It had been called lost.
    pub late: bool,
    /// None that left later had landed before.
    pub newest: bool,
}

/// The packets of one connection that are under way, in a ring that grows with them up to a window.
///
/// Numbers may be left out (those of packets that nobody acknowledges). Every number is passed over once, so that a
/// departure, an acknowledgement and a verdict each cost the same on average, however large the window is.
pub struct Flight {
    /// The number after the newest that departed, without the wrap.
    next: u64,
    /// The oldest packet that is awaited, in the same count, or the next one.
    oldest: u64,
    newest_acked: Option<u64>,
    in_flight: u64,
    last_departure: Option<Instant>,
    probes: u32,
    /// When the last probe was due, whether or not there was anything to send then.
    probed_at: Option<Instant>,
    places: Box<[Place]>,
    /// The most places that there may be.
    window: usize,
}

#[derive(Clone, Copy, Default)]
struct Place {
    sent_at: Instant,
    bytes: u32,
    fate: Fate,
}

/// ```text
///  Awaited ──▶ Acked
///     │          ▲
///     └──▶ Lost ─┘ (its acknowledgement was late)
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Fate {
    /// No packet of this number departed, or none that waits for an acknowledgement.
    #[default]
    Absent,
    Awaited,
    Acked,
    Lost,
}

impl Place {
    fn departed(&self) -> Departed {
        Departed { sent_at: self.sent_at, bytes: self.bytes }
    }
}

impl Flight {
    /// Remembers the newest `window` packets, rounded up to a power of two of at most 32,768: 16 bytes for each, which
    /// are taken when so many are under way.
    ///
    /// 2,048 are enough for 200 Mbit/s on a path of 100 ms.
    #[must_use]
    pub fn new(window: u16) -> Self {
        let window = usize::from(window.clamp(4, 1 << 15)).next_power_of_two();
        Self {
            next: START,
            oldest: START,
            newest_acked: None,
            in_flight: 0,
            last_departure: None,
            probes: 0,
            probed_at: None,
            places: vec![Place::default(); window.min(FIRST_PLACES)].into_boxed_slice(),
            window,
        }
    }

    /// A packet has left. Its number is newer than every one before; those between were none of ours.
    ///
    /// `lost` hears of packets whose places are needed although nobody knows their fate: those of a whole window ago.
    pub fn depart(&mut self, sequence: Sequence, bytes: u32, now: Instant, mut lost: impl FnMut(Sequence, Departed)) {
        if self.last_departure.is_none() {
            (self.next, self.oldest) = (START + u64::from(sequence.0), START + u64::from(sequence.0));
        }
        let Some(number) = self.number_ahead(sequence) else {
            debug_assert!(false, "packet {sequence} departs after a newer one");
            return;
        };
        self.move_on(number, &mut lost);
        if self.oldest == self.next {
            self.oldest = number;
        }
        self.put(number, Place { sent_at: now, bytes, fate: Fate::Awaited });
        self.next = number + 1;
        self.in_flight += u64::from(bytes);
        self.last_departure = Some(now);
    }

    /// Numbers up to this one have been used, for packets that nobody acknowledges. To be told of at least every 32,767
    /// numbers, or they could not be told from older ones; `lost` hears as in [`Flight::depart`].
    pub fn skip(&mut self, sequence: Sequence, mut lost: impl FnMut(Sequence, Departed)) {
        if self.last_departure.is_none() {
            return;
        }
        if let Some(number) = self.number_ahead(sequence) {
            self.move_on(number, &mut lost);
            self.put(number, Place::default());
            if self.oldest == self.next {
                self.oldest = number + 1;
            }
            self.next = number + 1;
        }
    }

    /// The number of a packet that is not older than the next one.
    fn number_ahead(&self, sequence: Sequence) -> Option<u64> {
        let ahead = sequence.distance_from(Sequence(self.next as u16));
        (ahead < 1 << 15).then(|| self.next + u64::from(ahead))
    }

    /// Makes the places free up to that of `number`, of which those in between are nobody's.
    fn move_on(&mut self, number: u64, lost: &mut impl FnMut(Sequence, Departed)) {
        while self.oldest < self.next && self.oldest + self.size() <= number {
            if self.places.len() < self.window {
                self.grow();
                continue;
            }
            self.give_up_oldest(lost);
        }
        for skipped in self.next.max((number + 1).saturating_sub(self.size()))..number {
            self.put(skipped, Place::default());
        }
    }

    /// Takes the acknowledgement of a packet; `None` if it is known already, forgotten, or never departed.
    pub fn acked(&mut self, sequence: Sequence) -> Option<Landed> {
        let back = u64::from(Sequence(self.next as u16).distance_from(sequence));
        if back == 0 || back > self.size() {
            return None;
        }
        let number = self.next - back;
        let place = self.place_mut(number)?;
        let (departed, fate) = (place.departed(), place.fate);
        if !matches!(fate, Fate::Awaited | Fate::Lost) {
            return None;
        }
        place.fate = Fate::Acked;
        if fate == Fate::Awaited {
            self.in_flight -= u64::from(departed.bytes);
        }
        let newest = self.newest_acked.is_none_or(|acked| number > acked);
        self.newest_acked = self.newest_acked.max(Some(number));
        self.probes = 0;
        self.pass_over_settled();
        Some(Landed { departed, late: fate == Fate::Lost, newest })
    }

    /// Tells `lost` of every packet that counts as lost by now, the oldest first.
    ///
    /// Packets leave in the order of their numbers, so nobody else is lost before the oldest is.
    pub fn detect(&mut self, timing: &Timing, now: Instant, mut lost: impl FnMut(Sequence, Departed)) {
        while self.loss_deadline(timing).is_some_and(|deadline| now >= deadline) {
            self.give_up_oldest(&mut lost);
        }
    }

    /// When [`Flight::detect`] will have something to say if no acknowledgement comes before; `None` if nothing is under
    /// way.
    #[must_use]
    pub fn loss_deadline(&self, timing: &Timing) -> Option<Instant> {
        let place = self.oldest_awaited()?;
        let overtaken = self.newest_acked.is_some_and(|acked| acked >= self.oldest + PACKET_THRESHOLD);
        Some(place.sent_at.after(if overtaken { timing.loss_delay() } else { timing.loss_limit() }))
    }

    /// When a probe is due because the path is silent: some packet that the peer acknowledges. `None` if nothing is under
    /// way. Each probe doubles the time until the next (RFC 9002, section 6.2.1), up to two seconds.
    #[must_use]
    pub fn probe_deadline(&self, timing: &Timing) -> Option<Instant> {
        self.oldest_awaited()?;
        let first = timing.probe_timeout();
        let since = self.last_departure.max(self.probed_at)?;
        Some(since.after((first * (1 << self.probes)).min(first.max(LONGEST_PROBE))))
    }

    /// A probe was due: it was sent, or what it would have carried was, or there was nothing to send.
    pub fn probed(&mut self, now: Instant) {
        self.probed_at = Some(now);
        self.probes = (self.probes + 1).min(MOST_DOUBLINGS);
    }

    /// Whether so many packets are under way that no more should leave: seven eighths of the window. The rest is for those
    /// that nobody acknowledges; one more than the window, and the oldest would be taken for lost.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.next - self.oldest >= (self.window - self.window / 8) as u64
    }

    /// Bytes that left and are neither acknowledged nor lost.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Doubles the ring. What it remembers moves along.
    fn grow(&mut self) {
        let grown = vec![Place::default(); self.places.len() * 2].into_boxed_slice();
        let (oldest, old) = (self.next.saturating_sub(self.size()), core::mem::replace(&mut self.places, grown));
        for number in oldest..self.next {
            let place = old.get((number & (old.len() as u64 - 1)) as usize).copied().unwrap_or_default();
            self.put(number, place);
        }
    }

    /// The oldest packet that is awaited is lost.
    fn give_up_oldest(&mut self, lost: &mut impl FnMut(Sequence, Departed)) {
        let number = self.oldest;
        if let Some(place) = self.place_mut(number) {
            place.fate = Fate::Lost;
            let departed = place.departed();
            self.in_flight -= u64::from(departed.bytes);
            lost(Sequence(number as u16), departed);
        }
        self.pass_over_settled();
    }

    fn pass_over_settled(&mut self) {
        while self.oldest_place().is_some_and(|place| place.fate != Fate::Awaited) {
            self.oldest += 1;
        }
    }

    fn oldest_awaited(&self) -> Option<&Place> {
        debug_assert!(
            self.oldest_place().is_none_or(|place| place.fate == Fate::Awaited),
            "the oldest packet is one that is awaited"
        );
        self.oldest_place()
    }

    fn oldest_place(&self) -> Option<&Place> {
        if self.oldest < self.next { self.places.get(self.index(self.oldest)) } else { None }
    }

    fn place_mut(&mut self, number: u64) -> Option<&mut Place> {
        let index = self.index(number);
        self.places.get_mut(index)
    }

    fn put(&mut self, number: u64, place: Place) {
        if let Some(old) = self.place_mut(number) {
            *old = place;
        }
    }

    const fn index(&self, number: u64) -> usize {
        (number & (self.size() - 1)) as usize
    }

    const fn size(&self) -> u64 {
        self.places.len() as u64
    }
}

#[cfg(test)]
mod tests;
