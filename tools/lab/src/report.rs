//! What a receiver tells a sender: which packets arrived, and when the newest did, as a session's datagrams say it.
//!
//! That is the reliable header's acknowledgement with its 32 bits, the two times of the session's frame in units of
//! 250 microseconds, and the wider acknowledgement of 256 bits while more than 24 packets are unreported.

use core::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{Lateness, PeerTime};
use slipgate_session::wire::reliable::Sequence;
use slipgate_session::wire::session::Stamp;

/// The unit of times on the wire.
const UNIT: Duration = Duration::from_micros(250);
/// With more packets than this unreported, the wider acknowledgement is sent: 32 bits could miss some.
const NARROW: u32 = 24;

/// A moment as it is written on the wire: 16 bits that wrap every 16 seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireTime(u16);

impl WireTime {
    /// What is written at a moment of somebody's clock.
    #[must_use]
    pub fn at(now: Instant) -> Self {
        Self((now.since_start().as_nanos() / UNIT.as_nanos()) as u16)
    }

    /// How long after `earlier` this is, if that is less than a wrap.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        UNIT * u32::from(self.0.wrapping_sub(earlier.0))
    }
}

/// Undoes the wrap of a peer's times.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerClock {
    newest: Option<(WireTime, Duration)>,
}

impl PeerClock {
    /// The moment that was written, if it is less than half a wrap from the newest one.
    pub fn unwrap_time(&mut self, written: WireTime) -> PeerTime {
        let Some((newest, moment)) = self.newest else {
            // Half a wrap after the start, for an older one may follow.
            let start = UNIT * (1 << 16);
            self.newest = Some((written, start));
            return PeerTime(start);
        };
        let ahead = written.since(newest);
        if ahead < UNIT * (1 << 15) {
            self.newest = Some((written, moment + ahead));
            PeerTime(moment + ahead)
        } else {
            PeerTime(moment.saturating_sub(newest.since(written)))
        }
    }
}

/// What one datagram of the receiver says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The newest packet that arrived.
    pub newest: Sequence,
    /// When it arrived, by the receiver's clock.
    pub received_at: WireTime,
    /// When this report was sent, by the same clock.
    pub sent_at: WireTime,
    /// By how much it may have been read late, in [`UNIT`]s.
    unread: u8,
    arrived: [u64; 4],
}

impl Report {
    /// The length of a report as it goes over a real path.
    pub const BYTES: usize = 39;

    /// The report, little-endian: its numbers and times, and all 256 bits.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.newest.0, self.received_at.0, self.sent_at.0].into_iter().flat_map(u16::to_le_bytes);
        let bits = self.arrived.into_iter().flat_map(u64::to_le_bytes);
        for (place, byte) in bytes.iter_mut().zip(numbers.chain([self.unread]).chain(bits)) {
            *place = byte;
        }
        bytes
    }

    /// Undoes [`Report::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut rest = bytes.iter().copied();
        let mut next =
            |count: u32| (0..count).fold(0, |word, byte| word | u64::from(rest.next().unwrap_or(0)) << (8 * byte));
        let newest = Sequence(next(2) as u16);
        let [received_at, sent_at] = [(); 2].map(|()| WireTime(next(2) as u16));
        let unread = next(1) as u8;
        Self { newest, received_at, sent_at, unread, arrived: [(); 4].map(|()| next(8)) }
    }

    /// By how much the newest packet may have been read late.
    #[must_use]
    pub fn unread(&self) -> Duration {
        UNIT * u32::from(self.unread)
    }

    /// The packets that arrived, as far as the report says, the oldest first.
    pub fn arrived(&self) -> impl Iterator<Item = Sequence> + use<> {
        let (newest, words) = (self.newest, self.arrived);
        let bits = words.into_iter().enumerate().rev().flat_map(|(index, word)| {
            (0..64).rev().filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * index as u16 + bit)
        });
        bits.map(move |back| newest.back(back))
    }
}

/// When a receiver reports.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rhythm {
    /// This often.
    pub every: Duration,
    /// And as soon as so many packets are unreported.
    pub packets: u32,
}

/// The newest packet that was read.
#[derive(Clone, Copy, Debug)]
struct Newest {
    sequence: Sequence,
    read_at: Instant,
    late: Duration,
}

/// A receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    rhythm: Rhythm,
    lateness: Lateness,
    newest: Option<Newest>,
    /// Bit n is the packet n before the newest.
    arrived: [u64; 4],
    unreported: u32,
}

impl Receiver {
    /// A receiver to which nothing has arrived.
    #[must_use]
    pub fn new(rhythm: Rhythm) -> Self {
        Self { rhythm, lateness: Lateness::default(), newest: None, arrived: [0; 4], unreported: 0 }
    }

    /// A packet was read that had left at a moment of the sender's clock, and had arrived at most `unread` before. Answers
    /// whether a report is due at once.
    pub fn receive(&mut self, packet: Sequence, sent_at: Instant, unread: Duration, now: Instant) -> bool {
        let late = self.lateness.read(Stamp::of(sent_at), unread, now);
        let newest = self.newest.map(|newest| newest.sequence);
        if let Some(newest) = newest.filter(|newest| !packet.is_newer_than(*newest)) {
            mark(&mut self.arrived, newest.distance_from(packet));
        } else {
            shift(&mut self.arrived, newest.map_or(0, |newest| packet.distance_from(newest)));
            self.newest = Some(Newest { sequence: packet, read_at: now, late });
            mark(&mut self.arrived, 0);
        }
        self.unreported += 1;
        self.is_due()
    }

    /// Whether so many packets are unreported that the next report should not wait.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.unreported >= self.rhythm.packets
    }

    /// How often it reports at least.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.rhythm.every
    }

    /// What there is to report; `None` before anything has arrived.
    pub fn report(&mut self, now: Instant) -> Option<Report> {
        let newest = self.newest?;
        let wide = self.unreported > NARROW;
        self.unreported = 0;
        let [recent, ..] = self.arrived;
        // The reliable header names the newest packet and the 32 before it.
        let narrow = [recent & ((1 << 33) - 1), 0, 0, 0];
        let arrived = if wide { self.arrived } else { narrow };
        Some(Report {
            newest: newest.sequence,
            received_at: WireTime::at(newest.read_at),
            sent_at: WireTime::at(now),
            unread: newest.late.as_nanos().div_ceil(UNIT.as_nanos()).min(u8::MAX.into()) as u8,
            arrived,
        })
    }
}

fn mark(words: &mut [u64; 4], bit: u16) {
    if let Some(word) = words.get_mut(usize::from(bit / 64)) {
        *word |= 1 << (bit % 64);
    }
}

fn shift(words: &mut [u64; 4], by: u16) {
    for _ in 0..(by / 64).min(4) {
        *words = [0, words[0], words[1], words[2]];
    }
    let rest = u32::from(by % 64);
    if rest > 0 {
        let [a, b, c, d] = *words;
        let over = |word: u64| word >> (64 - rest);
        *words = [a << rest, b << rest | over(a), c << rest | over(b), d << rest | over(c)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RHYTHM: Rhythm = Rhythm { every: Duration::from_millis(33), packets: 16 };

    fn report_of(packets: impl IntoIterator<Item = u16>) -> Vec<u16> {
        let mut receiver = Receiver::new(RHYTHM);
        for packet in packets {
            receiver.receive(Sequence(packet), Instant::default(), Duration::ZERO, Instant::default());
        }
        receiver.report(Instant::default()).unwrap().arrived().map(|sequence| sequence.0).collect()
    }

    #[test]
    fn a_report_names_what_arrived_and_nothing_else() {
        assert_eq!(report_of([3, 5, 4, 9]), [3, 4, 5, 9]);
        assert_eq!(report_of([65_534, 1, 65_535]), [65_534, 65_535, 1]);
    }

    #[test]
    fn a_report_of_few_reaches_back_33_packets_and_one_of_many_256() {
        assert_eq!(report_of([0, 100, 110]), [100, 110]);
        assert_eq!(report_of((0..20).map(|packet| packet * 2)), (3..20).map(|packet| packet * 2).collect::<Vec<_>>());
        let many: Vec<u16> = (0..200).map(|packet| packet * 2).collect();
        assert_eq!(report_of(many.clone()), many[72..]);
    }

    #[test]
    fn a_report_survives_a_real_path() {
        let mut receiver = Receiver::new(RHYTHM);
        for packet in (0..200).map(|packet| packet * 3) {
            let at = Instant::from_start(Duration::from_millis(1234));
            receiver.receive(Sequence(packet), at, Duration::from_millis(16), at);
        }
        let report = receiver.report(Instant::from_start(Duration::from_millis(1300))).unwrap();
        assert_eq!(Report::from_bytes(&report.to_bytes()), report);
    }

    #[test]
    fn a_report_is_due_after_sixteen_packets() {
        let mut receiver = Receiver::new(RHYTHM);
        let mut receive =
            |packet| receiver.receive(Sequence(packet), Instant::default(), Duration::ZERO, Instant::default());
        let due: Vec<bool> = (0..16).map(&mut receive).collect();
        assert_eq!(due.iter().position(|due| *due), Some(15));
        receiver.report(Instant::default());
        assert!(!receiver.is_due());
    }

    #[test]
    fn times_survive_the_wrap_and_packets_that_overtake() {
        let mut clock = PeerClock::default();
        let mut unwrapped = |seconds: f64| {
            let written = WireTime::at(Instant::from_start(Duration::from_secs_f64(seconds)));
            clock.unwrap_time(written).0.as_secs_f64()
        };
        let start = unwrapped(1.0);
        for seconds in [7.0, 14.0, 13.9, 20.0, 27.5, 33.0, 32.0] {
            assert!((unwrapped(seconds) - start - (seconds - 1.0)).abs() < 0.000_3, "{seconds}");
        }
    }
}
