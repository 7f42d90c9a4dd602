//! What arrives: datagrams are taken apart, what they tell of our packets is passed on, and their messages are handed out.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Connection, Stage, least_payload};
use crate::channel::control::{self, Bye, ByeCode, Control, Hello, VERSION};
use crate::channel::{Arrival, ReadAt, Violation};
use crate::reject::Reject;
use crate::reliability::Acceptance;
use crate::session::config::MIN_PAYLOAD;
use crate::session::end::End;
use crate::session::greeting::Saying;
use crate::wire::reliable::{Header, is_fragment};
use crate::wire::session::{Frame, FrameFault};
use slipgate_netcode::time::Instant;

/// How often a peer may acknowledge packets that were never sent: no honest one does it once, and a liar learns nothing
/// by it. Some more than one, so that a fault which passes is seen in the statistics first.
const MAX_ACKS_OF_UNSENT: u64 = 16;

/// A datagram whose messages are being taken.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Where the frames begin in the datagram.
    start: usize,
    at: ReadAt,
}

impl Incoming {
    /// Where the frames begin in the datagram: [`Place::Frames`](crate::channel::Place) counts from there.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }
}

/// What stands in a datagram.
struct Parts<'d> {
    /// None in one of acknowledgements alone, as reliable 1.0 has them.
    frame: Option<Frame<'d>>,
    /// Behind it: control messages and message frames.
    rest: &'d [u8],
    /// The message frames.
    frames: &'d [u8],
}

impl Connection {
    /// Takes a datagram. Answers where its messages are, to be taken one by one with [`next`](Self::next).
    ///
    /// # Errors
    /// Why it was dropped; it has been counted. What no peer of ours sends ends the connection: see [`end`](Self::end).
    pub fn handle(&mut self, datagram: &[u8], now: Instant) -> Result<Option<Incoming>, Reject> {
        self.handle_late(datagram, Duration::ZERO, now)
    }

    /// As [`handle`](Self::handle), for a datagram that may have lain unread for so long, at most: the peer hears of it, and
    /// does not take that time for a queue.
    ///
    /// # Errors
    /// As [`handle`](Self::handle).
    pub fn handle_late(&mut self, datagram: &[u8], unread: Duration, now: Instant) -> Result<Option<Incoming>, Reject> {
        self.heard(now);
        let Parts { frame, rest, frames } = match self.read(datagram) {
            Ok(parts) => parts,
            Err(reject) => {
                self.path.count_reject(reject);
                return Err(reject);
            }
        };
        if !self.channels.can_take(frames) {
            // What it acknowledges is not read: that is not the peer's fault.
            self.unanswered.answered();
            return self.path.refuse(datagram, now);
        }
        let answer = self.answer(rest, frames);
        self.path.take_framed(datagram, frame.as_ref(), answer, unread, now)?;
        self.settle();
        self.unanswered.answered_to(self.path.heard_to());
        if self.path.acks_of_unsent() >= MAX_ACKS_OF_UNSENT {
            self.break_off(End::Violation(Violation::AcksOfUnsent), ByeCode::VIOLATION);
        }
        self.take_control(rest);
        if frames.is_empty() || self.stage != Stage::Open {
            return Ok(None);
        }
        if !self.greeted {
            self.break_off(End::NotASession, ByeCode::VIOLATION);
            return Ok(None);
        }
        Ok(Some(Incoming { start: datagram.len() - frames.len(), at: ReadAt::default() }))
    }

    /// The layer below had something authentic of the peer then, if only to say that it is there: who lives and acknowledges
    /// nothing is given up in the end (§5.6). Every datagram that is brought in counts by itself.
    pub fn heard(&mut self, at: Instant) {
        self.unanswered.heard(at);
    }

    /// Whether a datagram is acknowledged. One whose messages nobody will read is not: its sender would be told that they
    /// arrived (§5.5).
    fn answer(&self, rest: &[u8], frames: &[u8]) -> Acceptance {
        if rest.is_empty() {
            Acceptance::TakeUnanswered
        } else if frames.is_empty() || self.will_read_behind(rest) {
            Acceptance::Take
        } else {
            Acceptance::TakeUnacknowledged
        }
    }

    /// Whether message frames behind these control messages will be read.
    fn will_read_behind(&self, mut rest: &[u8]) -> bool {
        let mut greeted = self.greeted;
        while let Ok(Some((control, bytes))) = control::read(rest) {
            match control {
                Control::Hello(hello) if self.objection(&hello).is_none() => greeted = true,
                Control::Hello(_) | Control::Bye(_) => return false,
                _ => {}
            }
            rest = rest.get(bytes..).unwrap_or_default();
        }
        greeted && self.stage == Stage::Open
    }

    /// Takes a datagram apart. What no peer of ours sends ends the connection.
    fn read<'d>(&mut self, datagram: &'d [u8]) -> Result<Parts<'d>, Reject> {
        if is_fragment(datagram) {
            self.break_off(End::NotASession, ByeCode::VIOLATION);
            return Err(Reject::NotAPacket);
        }
        let (_, payload) = Header::parse(datagram)?;
        let Ok((frame, rest)) = parse_frame(payload) else {
            self.break_off(End::NotASession, ByeCode::VIOLATION);
            return Err(Reject::Refused);
        };
        let frames = self.behind_control(rest).ok_or(Reject::Refused)?;
        Ok(Parts { frame, rest, frames })
    }

    /// Takes the next message of a datagram; `scratch` is lent for messages that must be put together. `None` when there
    /// is none, or when the peer broke the rules: see [`end`](Self::end).
    pub fn next(
        &mut self,
        datagram: &[u8],
        incoming: &mut Incoming,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<Arrival> {
        if self.stage != Stage::Open {
            return None;
        }
        let frames = datagram.get(incoming.start..)?;
        match self.channels.next(frames, &mut incoming.at, scratch, now) {
            Ok(arrival) => arrival,
            Err(violation) => {
                self.break_off(End::Violation(violation), ByeCode::VIOLATION);
                None
            }
        }
    }

    /// The frames behind the control messages, which come before all others.
    fn behind_control<'d>(&mut self, mut rest: &'d [u8]) -> Option<&'d [u8]> {
        loop {
            match control::read(rest) {
                Ok(None) => return Some(rest),
                Ok(Some((_, bytes))) => rest = rest.get(bytes..)?,
                Err(violation) => {
                    self.break_off(End::Violation(violation), ByeCode::VIOLATION);
                    return None;
                }
            }
        }
    }

    /// Takes the control messages.
    fn take_control(&mut self, mut rest: &[u8]) {
        while let Ok(Some((control, bytes))) = control::read(rest) {
            match control {
                Control::Hello(hello) => self.hear_hello(&hello),
                Control::Bye(bye) => self.hear_bye(&bye),
                _ => {}
            }
            rest = rest.get(bytes..).unwrap_or_default();
        }
    }

    fn hear_hello(&mut self, hello: &Hello) {
        if let Some((end, code)) = self.objection(hello) {
            self.break_off(end, code);
            return;
        }
        self.greeted = true;
        let least = MIN_PAYLOAD.max(least_payload(self.channels.layout()));
        self.max_payload_bytes = self.max_payload_bytes.min(hello.payload_bytes.into()).max(least);
    }

    /// Why nothing can come of a connection with a peer that greets so.
    fn objection(&self, hello: &Hello) -> Option<(End, ByeCode)> {
        if !(hello.oldest_version..=hello.version).contains(&VERSION) {
            return Some((End::VersionMismatch, ByeCode::VERSION_MISMATCH));
        }
        let mismatch = End::LayoutMismatch { ours: self.layout, theirs: Some(hello.layout) };
        (hello.layout != self.layout).then_some((mismatch, ByeCode::LAYOUT_MISMATCH))
    }

    fn hear_bye(&mut self, bye: &Bye<'_>) {
        let end = match bye.code {
            ByeCode::LAYOUT_MISMATCH => End::LayoutMismatch { ours: self.layout, theirs: None },
            ByeCode::VERSION_MISMATCH => End::VersionMismatch,
            ByeCode::VIOLATION => End::Accused,
            code => End::Farewell { code, text: bye.text.into() },
        };
        // Who has found a reason of its own stays with it.
        self.end.get_or_insert(end);
        if self.stage != Stage::Over {
            self.stage = Stage::Left;
        }
    }

    /// Tells the channels which packets arrived and which are lost.
    pub(super) fn settle(&mut self) {
        let Self { path, channels, hello, stage, unanswered, .. } = self;
        let mut nobody = Saying::Heard;
        let bye = if let Stage::Leaving(leaving) = stage { &mut leaving.saying } else { &mut nobody };
        for packet in path.verdicts().acked() {
            unanswered.answered();
            hello.acked(packet);
            bye.acked(packet);
            channels.on_acked(packet);
        }
        for packet in path.verdicts().lost() {
            hello.lost(packet);
            bye.lost(packet);
            channels.on_lost(packet);
        }
    }
}

/// Reads the frame of a packet; one of acknowledgements alone may have none.
fn parse_frame(payload: &[u8]) -> Result<(Option<Frame<'_>>, &[u8]), FrameFault> {
    if payload.is_empty() {
        return Ok((None, payload));
    }
    Frame::parse(payload).map(|(frame, rest)| (Some(frame), rest))
}
