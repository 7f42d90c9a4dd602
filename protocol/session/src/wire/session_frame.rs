//! The session frame behind the packet header: when the packet was sent, when the newest packet of the other side
//! arrived, and acknowledgements beyond the header's (`specs/session-1.md`, §5.2).
//!
//! The module `connection` derives path times from it; the message frames behind it belong to `channel`.

use core::fmt;
use core::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::{Reader, Writer};

/// The duration of one unit of a [`Timestamp`].
pub(crate) const TIMESTAMP_UNIT: Duration = Duration::from_micros(250);
const UNIT_NANOS: u64 = TIMESTAMP_UNIT.as_nanos() as u64;
/// Half of the timestamp range: longer differences are ambiguous.
pub(crate) const TIMESTAMP_REACH: Duration = Duration::from_millis(8192);

/// Returns the duration of this many units.
#[inline]
pub(crate) const fn unit_time(units: u64) -> Duration {
    // A `Duration` is made from one product of 64 bits in fewer steps than it is multiplied.
    Duration::from_nanos(unit_nanos(units))
}

/// Returns the nanoseconds of this many units.
#[inline]
pub(crate) const fn unit_nanos(units: u64) -> u64 {
    units.saturating_mul(UNIT_NANOS)
}

/// The maximum bytes of extended acknowledgements: with the 32 of the header they cover 256 packets.
pub(crate) const MAX_EXTENDED_ACK_BYTES: usize = 28;

/// Flag: the arrival time of the newest packet is present.
const ECHO: u8 = 1 << 0;
/// Flag: extended acknowledgements are present.
const EXTENDED: u8 = 1 << 1;
/// Flag: the arrival time has a socket delay.
const LATE: u8 = 1 << 2;
/// The nonce of the packet in the flags, and the sum of the nonces of those that it acknowledges.
const NONCE_SHIFT: u32 = 3;
const NONCE_SUM_SHIFT: u32 = 5;
/// A nonce has two bits.
const NONCE_BITS: u8 = 3;

/// A time of one side's clock in units of 250 microseconds, modulo 65,536. It wraps every 16.384 seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Timestamp(pub u16);

impl From<Instant> for Timestamp {
    #[inline]
    fn from(moment: Instant) -> Self {
        // The cast keeps the lower 16 bits: the timestamp wraps.
        Self((moment.as_nanos() / UNIT_NANOS) as u16)
    }
}

impl Timestamp {
    /// Returns the units from `earlier` to this timestamp, modulo 65,536.
    #[must_use]
    #[inline]
    pub(crate) const fn units_since(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0)
    }
}

/// When a packet was read from the socket, and how long it may have waited there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct ArrivalEcho {
    /// When it was read.
    pub at: Timestamp,
    /// The longest time that the packet may have waited in the socket, in units of 250 microseconds; 255 means that
    /// much or more. A loop that reads its socket once per frame finds packets of a whole frame.
    pub late: u8,
}

impl ArrivalEcho {
    /// Returns the echo of a packet that was read at `read_at` and waited for at most `late`.
    #[must_use]
    pub(crate) fn of(read_at: Instant, late: Duration) -> Self {
        // Round up: a delay that is too short would look like a queue of the path.
        let late = if late < TIMESTAMP_UNIT * u32::from(u8::MAX) {
            (late.as_micros() as u32).div_ceil(TIMESTAMP_UNIT.as_micros() as u32) as u8
        } else {
            u8::MAX
        };
        Self { at: Timestamp::from(read_at), late }
    }
}

/// The nonce of a packet, and what proves that it acknowledges only packets that arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct AckNonces {
    /// The nonce of this packet: 0 to 3.
    pub own: u8,
    /// The sum of the nonces of all packets that its header and its frame acknowledge, each times its coefficient: 0 to
    /// 7 (`specs/session-1.md`, §5.2).
    pub sum: u8,
}

/// The frame behind the header of every session packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionFrame<'a> {
    /// When the packet was sent, by its sender's clock.
    pub sent: Timestamp,
    /// The nonces.
    pub nonces: AckNonces,
    /// When the packet that the header names in `ack` arrived, by the same clock; `None` if that was
    /// 8,192 ms ago or longer.
    pub arrived: Option<ArrivalEcho>,
    /// The acknowledgements before the header's 32: bit i of the whole stands for `ack` - 32 - i. At most 28 bytes.
    pub extended_acks: &'a [u8],
}

/// Why a frame cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SessionFrameError {
    /// The payload ends within the frame.
    Cut,
    /// A socket delay without an arrival time.
    Flags,
    /// A socket delay of zero.
    Late,
    /// Extended acknowledgements of 0 or more than 28 bytes.
    ExtendedAcks,
}

impl fmt::Display for SessionFrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut => "the frame is truncated",
            Self::Flags => "the frame has a socket delay without an arrival time",
            Self::Late => "the frame has a socket delay of zero",
            Self::ExtendedAcks => "the extended acknowledgements have 0 or more than 28 bytes",
        })
    }
}

impl core::error::Error for SessionFrameError {}

impl<'a> SessionFrame<'a> {
    /// Parses the frame at the start of a packet's payload, and returns it with the bytes behind it.
    ///
    /// # Errors
    /// [`SessionFrameError`] says what is wrong with the frame.
    pub fn parse(payload: &'a [u8]) -> Result<(Self, &'a [u8]), SessionFrameError> {
        let mut reader = Reader::new(payload);
        let flags = reader.read::<u8>().ok_or(SessionFrameError::Cut)?;
        let has = |flag| flags & flag != 0;
        if has(LATE) && !has(ECHO) {
            return Err(SessionFrameError::Flags);
        }
        let nonces = AckNonces { own: flags >> NONCE_SHIFT & NONCE_BITS, sum: flags >> NONCE_SUM_SHIFT };
        let sent = parse_timestamp(&mut reader)?;
        let at = if has(ECHO) { Some(parse_timestamp(&mut reader)?) } else { None };
        let arrived = match at {
            Some(at) if has(LATE) => Some(ArrivalEcho { at, late: parse_late(&mut reader)? }),
            at => at.map(|at| ArrivalEcho { at, late: 0 }),
        };
        if !has(EXTENDED) {
            return Ok((Self { sent, nonces, arrived, extended_acks: &[] }, reader.rest()));
        }
        // The length is explicit: the message frames follow directly.
        let bytes = usize::from(reader.read::<u8>().ok_or(SessionFrameError::Cut)?);
        if !(1..=MAX_EXTENDED_ACK_BYTES).contains(&bytes) {
            return Err(SessionFrameError::ExtendedAcks);
        }
        let (extended_acks, rest) = reader.rest().split_at_checked(bytes).ok_or(SessionFrameError::Cut)?;
        Ok((Self { sent, nonces, arrived, extended_acks }, rest))
    }

    /// Writes the frame, 3 to 35 bytes.
    #[inline]
    pub fn emit(&self, writer: &mut Writer<'_>) {
        debug_assert!(self.extended_acks.len() <= MAX_EXTENDED_ACK_BYTES, "no peer reads a longer field");
        let AckNonces { own, sum } = self.nonces;
        debug_assert!(own <= NONCE_BITS && sum < 8, "a nonce has two bits, and the sum has three");
        let nonces = (own & NONCE_BITS) << NONCE_SHIFT | sum << NONCE_SUM_SHIFT;
        let behind = if self.extended_acks.is_empty() { 0 } else { EXTENDED };
        let late = self.arrived.map_or(0, |arrived| arrived.late);
        // Zero is expressed by the missing flag: the parser refuses an explicit zero.
        let is_late = if late == 0 { 0 } else { LATE };
        writer.write::<u8>(nonces | behind | is_late | self.arrived.map_or(0, |_| ECHO));
        writer.write::<u16>(self.sent.0);
        if let Some(arrived) = self.arrived {
            writer.write::<u16>(arrived.at.0);
        }
        if late != 0 {
            writer.write::<u8>(late);
        }
        if behind != 0 {
            writer.write::<u8>(self.extended_acks.len() as u8);
            writer.bytes(self.extended_acks);
        }
    }
}

fn parse_timestamp(reader: &mut Reader<'_>) -> Result<Timestamp, SessionFrameError> {
    reader.read::<u16>().map(Timestamp).ok_or(SessionFrameError::Cut)
}

/// Parses a socket delay. Zero has a form already: no flag. One form for each meaning.
fn parse_late(reader: &mut Reader<'_>) -> Result<u8, SessionFrameError> {
    let late = reader.read::<u8>().ok_or(SessionFrameError::Cut)?;
    if late == 0 { Err(SessionFrameError::Late) } else { Ok(late) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// The maximum bytes of a frame: flags, two timestamps, a socket delay, a length and acknowledgements.
    const MAX_FRAME_BYTES: usize = 1 + 2 + 2 + 1 + 1 + MAX_EXTENDED_ACK_BYTES;

    fn bytes(frame: &SessionFrame<'_>, rest: &[u8]) -> Vec<u8> {
        let mut buf = [0; 64];
        let mut writer = Writer::new(&mut buf);
        frame.emit(&mut writer);
        writer.bytes(rest);
        let length = writer.written().unwrap();
        buf[..length].to_vec()
    }

    proptest! {
        #[test]
        fn written_frames_are_read_back(
            sent: u16,
            (own, sum) in (0_u8..4, 0_u8..8),
            arrived: Option<(u16, u8)>,
            acks in prop::collection::vec(any::<u8>(), 0..29),
        ) {
            let arrived = arrived.map(|(at, late)| ArrivalEcho { at: Timestamp(at), late });
            let nonces = AckNonces { own, sum };
            let frame = SessionFrame { sent: Timestamp(sent), nonces, arrived, extended_acks: &acks };
            let bytes = bytes(&frame, b"rest");
            prop_assert!(bytes.len() <= MAX_FRAME_BYTES + 4);
            prop_assert_eq!(SessionFrame::parse(&bytes), Ok((frame, &b"rest"[..])));
            for length in 0..bytes.len() - 4 {
                prop_assert_eq!(SessionFrame::parse(&bytes[..length]), Err(SessionFrameError::Cut));
            }
        }
    }

    #[test]
    fn impossible_delays_and_wrong_lengths_are_refused() {
        for flags in (0..=u8::MAX).filter(|flags| flags & 5 == 4) {
            assert_eq!(SessionFrame::parse(&[flags, 0, 0, 0, 0, 1, 0]), Err(SessionFrameError::Flags));
        }
        assert_eq!(SessionFrame::parse(&[ECHO | LATE, 0, 0, 0, 0, 0]), Err(SessionFrameError::Late));
        for length in [0, 29, 255] {
            let mut bytes = [0; 300];
            (bytes[0], bytes[3]) = (EXTENDED, length);
            assert_eq!(SessionFrame::parse(&bytes), Err(SessionFrameError::ExtendedAcks));
        }
    }

    #[test]
    fn socket_delay_is_rounded_up_to_whole_units() {
        let late = |micros| ArrivalEcho::of(Instant::default(), Duration::from_micros(micros)).late;
        assert_eq!(
            [late(0), late(1), late(250), late(16_667), late(63_750), late(10_000_000)],
            [0, 1, 1, 67, 255, 255]
        );
    }

    #[test]
    fn timestamp_counts_250_microseconds_and_wraps() {
        let at = |micros| Timestamp::from(Instant::from_start(Duration::from_micros(micros)));
        assert_eq!([at(249), at(250), at(16_384_000 + 750)], [Timestamp(0), Timestamp(1), Timestamp(3)]);
        assert_eq!(Timestamp(2).units_since(Timestamp(65_535)), 3);
    }
}
