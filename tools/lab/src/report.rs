//! The receiver's reports: which packets arrived, and when the newest did, as in a session's datagrams.
//!
//! A report holds the reliable header's acknowledgement with its 32 bits, the two times of the session's frame in units
//! of 250 us, and the extended acknowledgement of 256 bits while the unreported packets span more than 24 numbers.

use core::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{PeerTime, SocketDelay};
use slipgate_session::wire::reliable::Sequence;
use slipgate_session::wire::session_frame::Timestamp;

/// The unit of times on the wire.
const UNIT: Duration = Duration::from_micros(250);
/// Above this span of unreported packets the extended acknowledgement is sent, because 32 bits could miss some.
const MAX_SHORT_ACK: u32 = 24;

/// A time on the wire: 16 bits in units of 250 us, which wrap every 16 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireTime(u16);

impl WireTime {
    /// Returns the wire time of a moment of the local clock.
    #[must_use]
    pub fn at(now: Instant) -> Self {
        Self((now.since_start().as_nanos() / UNIT.as_nanos()) as u16)
    }

    /// Returns the time since `earlier`, if that is less than a wrap.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        UNIT * u32::from(self.0.wrapping_sub(earlier.0))
    }
}

/// Unwraps the times of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeUnwrapper {
    newest: Option<(WireTime, Duration)>,
}

impl TimeUnwrapper {
    /// Returns the unwrapped time, if it is less than half a wrap from the newest one.
    pub fn unwrap_time(&mut self, written: WireTime) -> PeerTime {
        let Some((newest, moment)) = self.newest else {
            // The clock starts half a wrap after zero, because an older time may follow.
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

/// The content of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// The newest packet that arrived.
    pub newest: Sequence,
    /// When it arrived, on the receiver's clock.
    pub received_at: WireTime,
    /// When this report was sent, on the same clock.
    pub sent_at: WireTime,
    /// The maximum delay of the newest packet in the receiver's socket, in [`UNIT`]s.
    socket_delay: u8,
    arrived: [u64; 4],
}

impl Report {
    /// The length of a serialized report, in bytes.
    pub const BYTES: usize = 39;

    /// Serializes the report, little-endian: its numbers, its times and all 256 bits.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.newest.0, self.received_at.0, self.sent_at.0].into_iter().flat_map(u16::to_le_bytes);
        let bits = self.arrived.into_iter().flat_map(u64::to_le_bytes);
        for (place, byte) in bytes.iter_mut().zip(numbers.chain([self.socket_delay]).chain(bits)) {
            *place = byte;
        }
        bytes
    }

    /// Parses the result of [`Report::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let mut rest = bytes.iter().copied();
        let mut next =
            |count: u32| (0..count).fold(0, |word, byte| word | u64::from(rest.next().unwrap_or(0)) << (8 * byte));
        let newest = Sequence(next(2) as u16);
        let [received_at, sent_at] = [(); 2].map(|()| WireTime(next(2) as u16));
        let socket_delay = next(1) as u8;
        Self { newest, received_at, sent_at, socket_delay, arrived: [(); 4].map(|()| next(8)) }
    }

    /// Returns how long the newest packet may have waited in the receiver's socket.
    #[must_use]
    pub fn socket_delay(&self) -> Duration {
        UNIT * u32::from(self.socket_delay)
    }

    /// Returns the reported packets, oldest first.
    pub fn arrived(&self) -> impl Iterator<Item = Sequence> + use<> {
        let (newest, words) = (self.newest, self.arrived);
        let bits = words.into_iter().enumerate().rev().flat_map(|(index, word)| {
            (0..64).rev().filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * index as u16 + bit)
        });
        bits.map(move |back| newest - back)
    }
}

/// How often a receiver reports.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReportPolicy {
    /// The maximum interval between reports.
    pub every: Duration,
    /// The span of sequence numbers of unreported packets at which a report is sent at once.
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
    ack_policy: ReportPolicy,
    delay_meter: SocketDelay,
    newest: Option<Newest>,
    /// Bit n is the packet n before the newest.
    arrived: [u64; 4],
    /// The same bits of unreported packets.
    unreported: [u64; 4],
    /// The shortest delay so far, of a receiver that reports each packet with it.
    false_delay: Option<Duration>,
}

impl Receiver {
    /// Creates a receiver to which no packet has arrived.
    #[must_use]
    pub fn new(ack_policy: ReportPolicy) -> Self {
        Self {
            ack_policy,
            delay_meter: SocketDelay::default(),
            newest: None,
            arrived: [0; 4],
            unreported: [0; 4],
            false_delay: None,
        }
    }

    /// Creates a receiver that reports each packet with the shortest delay seen so far.
    #[must_use]
    pub fn with_false_delays(ack_policy: ReportPolicy) -> Self {
        Self { false_delay: Some(Duration::MAX), ..Self::new(ack_policy) }
    }

    /// Processes a packet with its sending time on the sender's clock. It was read now and waited in the socket for at
    /// most `socket_delay`. Returns whether a report is due at once.
    pub fn receive(&mut self, packet: Sequence, sent_at: Instant, socket_delay: Duration, now: Instant) -> bool {
        let late = self.delay_meter.read(Timestamp::from(sent_at), socket_delay, now);
        let newest = self.newest.map(|newest| newest.sequence);
        if let Some(newest) = newest.filter(|newest| !packet.is_newer_than(*newest)) {
            self.mark(newest - packet);
        } else {
            let by = newest.map_or(0, |newest| packet - newest);
            shift(&mut self.arrived, by);
            shift(&mut self.unreported, by);
            self.newest = Some(self.arrival(packet, sent_at, late, now));
            self.mark(0);
        }
        self.is_due()
    }

    fn mark(&mut self, back: u16) {
        mark(&mut self.arrived, back);
        mark(&mut self.unreported, back);
    }

    /// Returns the span of sequence numbers from the oldest unreported packet to the newest; 0 without one.
    fn span(&self) -> u32 {
        let mut spans = self.unreported.iter().zip([0, 64, 128, 192]).rev().filter(|(word, _)| **word != 0);
        spans.next().map_or(0, |(word, below)| below + u64::BITS - word.leading_zeros())
    }

    /// Returns what is reported of a packet that was read now.
    fn arrival(&mut self, sequence: Sequence, sent_at: Instant, late: Duration, now: Instant) -> Newest {
        let Some(shortest) = &mut self.false_delay else { return Newest { sequence, read_at: now, late } };
        *shortest = (*shortest).min(now.since(sent_at));
        Newest { sequence, read_at: sent_at.after(*shortest), late: Duration::ZERO }
    }

    /// Returns whether a report is due at once.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.span() >= self.ack_policy.packets
    }

    /// Returns the maximum interval between reports.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        self.ack_policy.every
    }

    /// Returns a report and marks all packets as reported; `None` before the first packet.
    pub fn report(&mut self, now: Instant) -> Option<Report> {
        let newest = self.newest?;
        let is_extended = self.span() > MAX_SHORT_ACK;
        self.unreported = [0; 4];
        let [recent, ..] = self.arrived;
        // The newest packet and the 32 before it: one more than the reliable header of a session reports.
        let short = [recent & ((1 << 33) - 1), 0, 0, 0];
        let arrived = if is_extended { self.arrived } else { short };
        Some(Report {
            newest: newest.sequence,
            received_at: WireTime::at(newest.read_at),
            sent_at: WireTime::at(now),
            socket_delay: newest.late.as_nanos().div_ceil(UNIT.as_nanos()).min(u8::MAX.into()) as u8,
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

    const ACK_POLICY: ReportPolicy = ReportPolicy { every: Duration::from_millis(33), packets: 16 };

    fn report_of(packets: impl IntoIterator<Item = u16>) -> Vec<u16> {
        let mut receiver = Receiver::new(ACK_POLICY);
        for packet in packets {
            receiver.receive(Sequence(packet), Instant::default(), Duration::ZERO, Instant::default());
        }
        receiver.report(Instant::default()).unwrap().arrived().map(|sequence| sequence.0).collect()
    }

    #[test]
    fn report_lists_exactly_the_arrived_packets() {
        assert_eq!(report_of([3, 5, 4, 9]), [3, 4, 5, 9]);
        assert_eq!(report_of([65_534, 1, 65_535]), [65_534, 65_535, 1]);
    }

    #[test]
    fn extended_report_covers_256_packets_and_a_short_one_33() {
        let many: Vec<u16> = (0..200).map(|packet| packet * 2).collect();
        assert_eq!(report_of(many.clone()), many[72..]);
        let mut receiver = Receiver::new(ACK_POLICY);
        let mut reported = |packets: &[u16]| -> Vec<u16> {
            for packet in packets {
                receiver.receive(Sequence(*packet), Instant::default(), Duration::ZERO, Instant::default());
            }
            receiver.report(Instant::default()).unwrap().arrived().map(|sequence| sequence.0).collect()
        };
        let first: Vec<u16> = (0..100).filter(|packet| *packet != 50).collect();
        assert_eq!(reported(&first), first);
        assert_eq!(reported(&[100, 101]), (69..=101).collect::<Vec<_>>(), "two packets need no extended report");
        assert_eq!(reported(&[50, 102]), (0..=102).collect::<Vec<_>>(), "a late packet needs one");
    }

    #[test]
    fn report_round_trips_through_bytes() {
        let mut receiver = Receiver::new(ACK_POLICY);
        for packet in (0..200).map(|packet| packet * 3) {
            let at = Instant::from_start(Duration::from_millis(1234));
            receiver.receive(Sequence(packet), at, Duration::from_millis(16), at);
        }
        let report = receiver.report(Instant::from_start(Duration::from_millis(1300))).unwrap();
        assert_eq!(Report::from_bytes(&report.to_bytes()), report);
    }

    #[test]
    fn report_is_due_after_sixteen_packets() {
        let mut receiver = Receiver::new(ACK_POLICY);
        let mut receive =
            |packet| receiver.receive(Sequence(packet), Instant::default(), Duration::ZERO, Instant::default());
        let due: Vec<bool> = (0..16).map(&mut receive).collect();
        assert_eq!(due.iter().position(|due| *due), Some(15));
        receiver.report(Instant::default());
        assert!(!receiver.is_due());
    }

    #[test]
    fn false_delays_are_the_shortest_seen() {
        let at = |millis| Instant::from_start(Duration::from_millis(millis));
        let mut receiver = Receiver::with_false_delays(ACK_POLICY);
        for (packet, sent, arrived, reported) in [(0, 0, 30, 30), (1, 40, 60, 60), (2, 80, 280, 100)] {
            receiver.receive(Sequence(packet), at(sent), Duration::ZERO, at(arrived));
            assert_eq!(receiver.report(at(300)).unwrap().received_at, WireTime::at(at(reported)), "{packet}");
        }
    }

    #[test]
    fn wire_times_unwrap_despite_reordering() {
        let mut clock = TimeUnwrapper::default();
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
