//! What stands behind the packet header between two peers of ours: when the packet left, when the newest of the other
//! side's packets arrived, and arrivals that lie behind what the header reaches (`specs/session-1.md`, §5.2).
//!
//! What the times mean for a path is left to `session`, the message frames behind it to `channel`.

use core::fmt;
use core::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::{Reader, Writer};

/// How long one unit of a [`Stamp`] lasts.
pub const STAMP_UNIT: Duration = Duration::from_micros(250);
/// Half a round of stamps: what is further apart is not told by them.
pub const STAMP_REACH: Duration = Duration::from_millis(8192);
/// The most bytes of acknowledgements behind a header: with its 32 they tell of 256 packets.
pub const MAX_ACKS_BEHIND_BYTES: usize = 28;
/// The most bytes of a frame: flags, two stamps, a lateness, a length and acknowledgements.
pub const MAX_FRAME_BYTES: usize = 1 + 2 + 2 + 1 + 1 + MAX_ACKS_BEHIND_BYTES;

/// Flag: the arrival of the newest packet is told.
const ECHO: u8 = 1 << 0;
/// Flag: acknowledgements behind the header's are told.
const BEHIND: u8 = 1 << 1;
/// Flag: the arrival that is told was read late.
const LATE: u8 = 1 << 2;

/// A moment of somebody's clock, in units of 250 microseconds, modulo 65,536: it comes round every 16.384 seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Stamp(pub u16);

impl Stamp {
    /// The stamp of a moment.
    #[must_use]
    pub fn of(moment: Instant) -> Self {
        Self((moment.since_start().as_micros() / STAMP_UNIT.as_micros()) as u16)
    }

    /// How many units passed from `earlier` to this stamp, modulo 65,536.
    #[must_use]
    pub const fn units_since(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0)
    }
}

/// When a packet was read, and for how long it may have lain unread before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Arrived {
    /// When it was read.
    pub at: Stamp,
    /// By how much it may have arrived earlier, at most: a loop that reads its socket once a frame finds packets of all its
    /// time. In units of 250 microseconds; 255 stands for as much or more.
    pub late: u8,
}

impl Arrived {
    /// What is told of a packet that was read at a moment, and may have lain there so long.
    #[must_use]
    pub fn of(read_at: Instant, late: Duration) -> Self {
        let units = late.as_micros().div_ceil(STAMP_UNIT.as_micros());
        Self { at: Stamp::of(read_at), late: u8::try_from(units).unwrap_or(u8::MAX) }
    }
}

/// What stands behind the header of every packet of a session that has a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// When the packet left, by its sender's clock.
    pub sent: Stamp,
    /// When the packet that the header names in `ack` arrived, by the same clock, if that was less than
    /// [`STAMP_REACH`] ago.
    pub arrived: Option<Arrived>,
    /// Which packets before the header's 32 arrived; bit i of the whole stands for `ack` - 32 - i. At most 28 bytes.
    pub acks_behind: &'a [u8],
}

/// What is wrong with a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum FrameFault {
    /// It ends too early.
    Cut,
    /// A flag of no known meaning.
    Flags,
    /// A lateness of nothing.
    Late,
    /// No bytes of acknowledgements, or more than 28.
    AcksBehind,
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut => "the frame ends too early",
            Self::Flags => "the frame has a flag of no known meaning",
            Self::Late => "the frame tells of an arrival that was late by nothing",
            Self::AcksBehind => "the frame has no or more than 28 bytes of acknowledgements",
        })
    }
}

impl core::error::Error for FrameFault {}

impl<'a> Frame<'a> {
    /// Reads the frame at the start of a packet's payload, and answers what stands behind it.
    ///
    /// # Errors
    /// See [`FrameFault`].
    pub fn parse(payload: &'a [u8]) -> Result<(Self, &'a [u8]), FrameFault> {
        let mut reader = Reader::new(payload);
        let flags = reader.u8().ok_or(FrameFault::Cut)?;
        let has = |flag| flags & flag != 0;
        if has(!(ECHO | BEHIND | LATE)) || has(LATE) && !has(ECHO) {
            return Err(FrameFault::Flags);
        }
        let sent = Stamp(reader.u16().ok_or(FrameFault::Cut)?);
        let arrived = if has(ECHO) { Some(parse_arrived(&mut reader, has(LATE))?) } else { None };
        if !has(BEHIND) {
            return Ok((Self { sent, arrived, acks_behind: &[] }, reader.rest()));
        }
        let bytes = usize::from(reader.u8().ok_or(FrameFault::Cut)?);
        if !(1..=MAX_ACKS_BEHIND_BYTES).contains(&bytes) {
            return Err(FrameFault::AcksBehind);
        }
        let (acks_behind, rest) = reader.rest().split_at_checked(bytes).ok_or(FrameFault::Cut)?;
        Ok((Self { sent, arrived, acks_behind }, rest))
    }

    /// Writes the frame, 3 to 35 bytes.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        debug_assert!(self.acks_behind.len() <= MAX_ACKS_BEHIND_BYTES, "a longer one could not be read");
        let behind = if self.acks_behind.is_empty() { 0 } else { BEHIND };
        let late = self.arrived.map_or(0, |arrived| arrived.late);
        let is_late = if late == 0 { 0 } else { LATE };
        writer.u8(behind | is_late | self.arrived.map_or(0, |_| ECHO));
        writer.u16(self.sent.0);
        if let Some(arrived) = self.arrived {
            writer.u16(arrived.at.0);
        }
        if late != 0 {
            writer.u8(late);
        }
        if behind != 0 {
            writer.u8(self.acks_behind.len() as u8);
            writer.bytes(self.acks_behind);
        }
    }
}

fn parse_arrived(reader: &mut Reader<'_>, is_late: bool) -> Result<Arrived, FrameFault> {
    let at = Stamp(reader.u16().ok_or(FrameFault::Cut)?);
    let late = if is_late { reader.u8().ok_or(FrameFault::Cut)? } else { 0 };
    // One form for each meaning.
    if is_late && late == 0 { Err(FrameFault::Late) } else { Ok(Arrived { at, late }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn bytes(frame: &Frame<'_>, rest: &[u8]) -> Vec<u8> {
        let mut room = [0; 64];
        let mut writer = Writer::new(&mut room);
        frame.emit(&mut writer);
        writer.bytes(rest);
        let length = writer.written().unwrap();
        room[..length].to_vec()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(sent: u16, arrived: Option<(u16, u8)>, acks in prop::collection::vec(any::<u8>(), 0..29)) {
            let frame = Frame { sent: Stamp(sent), arrived: arrived.map(|(at, late)| Arrived { at: Stamp(at), late }), acks_behind: &acks };
            let bytes = bytes(&frame, b"rest");
            prop_assert!(bytes.len() <= MAX_FRAME_BYTES + 4);
            prop_assert_eq!(Frame::parse(&bytes), Ok((frame, &b"rest"[..])));
            for length in 0..bytes.len() - 4 {
                prop_assert_eq!(Frame::parse(&bytes[..length]), Err(FrameFault::Cut));
            }
        }
    }

    #[test]
    fn unknown_flags_and_wrong_lengths_are_refused() {
        for flags in (0..=u8::MAX).filter(|flags| flags & !7 != 0 || flags & 5 == 4) {
            assert_eq!(Frame::parse(&[flags, 0, 0, 0, 0, 1, 0]), Err(FrameFault::Flags));
        }
        assert_eq!(Frame::parse(&[ECHO | LATE, 0, 0, 0, 0, 0]), Err(FrameFault::Late));
        for length in [0, 29, 255] {
            let mut bytes = [0; 300];
            (bytes[0], bytes[3]) = (BEHIND, length);
            assert_eq!(Frame::parse(&bytes), Err(FrameFault::AcksBehind));
        }
    }

    #[test]
    fn an_arrival_is_late_by_whole_units_rounded_up() {
        let late = |micros| Arrived::of(Instant::default(), Duration::from_micros(micros)).late;
        assert_eq!(
            [late(0), late(1), late(250), late(16_667), late(63_750), late(10_000_000)],
            [0, 1, 1, 67, 255, 255]
        );
    }

    #[test]
    fn a_stamp_counts_quarters_of_milliseconds_and_comes_round() {
        let at = |micros| Stamp::of(Instant::from_start(Duration::from_micros(micros)));
        assert_eq!([at(249), at(250), at(16_384_000 + 750)], [Stamp(0), Stamp(1), Stamp(3)]);
        assert_eq!(Stamp(2).units_since(Stamp(65_535)), 3);
    }
}
