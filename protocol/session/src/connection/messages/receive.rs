//! The receiving side: parses datagrams, processes their acknowledgements and control messages, and returns their
//! messages.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Connection, Stage, min_payload};
use crate::channel::close_code::CloseCode;
use crate::channel::control::{self, Bye, ControlMessage, Hello, RedirectPart, VERSION};
use crate::channel::{ChannelEvent, ChannelId, ChannelViolation, FrameCursor, LayoutHash, ReceivedMessage};
use crate::connection::config::MIN_PAYLOAD;
use crate::connection::path::PacketTimes;
use crate::connection::redirect::RedirectedToken;
use crate::connection::work_budget::{
    BYTE_WORK, CONTROL_BYTE_WORK, FRAME_WORK, PACKET_WORK, RefusedPackets, WorkPermit,
};
use crate::connection::{CloseKind, CloseReason, ClosedBy, Delivery, Intake, Role};
use crate::reject::Reject;
use crate::reliability::{Acceptance, ParsedPacket};
use crate::wire::PayloadSpan;
use crate::wire::reliable::{ReliableHeader, is_fragment};
use crate::wire::session_frame::SessionFrame;
use slipgate_netcode::time::Instant;

/// How often a peer may acknowledge packets that were never sent. An honest peer never does, and a malicious one learns
/// nothing by it. The limit is above one so that a transient fault shows in the statistics first.
const MAX_ACKS_OF_UNSENT: u64 = 16;
/// How long after the first packet of acknowledgements alone the peer's hello may arrive. An honest peer repeats its
/// hello at least every 2 s, so that 15 hellos in a row were lost.
const MAX_HELLO_DELAY: Duration = Duration::from_secs(30);

/// The position of the next message in a datagram.
#[derive(Clone, Debug)]
pub struct MessageCursor {
    /// The offset of the message frames in the datagram.
    start: usize,
    frames: FrameCursor,
    times: PacketTimes,
    /// Whether the rest may wait until other clients had their turn.
    pub delivery: Delivery,
}

/// A message that arrived on a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChannelMessage {
    /// The channel.
    pub channel: ChannelId,
    /// The position of the message's bytes.
    pub span: PayloadSpan,
    /// When the datagram arrived and left that completed the message. An ordered message that waited for an older one
    /// has the times of the datagram that brought the older one.
    pub times: PacketTimes,
}

/// The parts of a datagram.
struct DatagramParts<'d> {
    packet: ParsedPacket<'d>,
    frame: SessionFrame<'d>,
    /// Behind the session frame: control messages and message frames.
    rest: &'d [u8],
    /// The message frames.
    frames: &'d [u8],
}

impl Connection {
    /// Processes a datagram that may have waited up to `unread` in the socket; zero if it was read as soon as it
    /// arrived. The peer is informed, so that its controller does not take this time for a queue. Returns a cursor over
    /// the datagram's messages for [`next_message`](Self::next_message), if it has any.
    ///
    /// # Errors
    /// The reason why the datagram was dropped, which is already counted. A datagram that no peer of ours sends
    /// closes the connection: see [`close_reason`](Self::close_reason).
    pub fn handle(&mut self, datagram: &[u8], unread: Duration, now: Instant) -> Result<Option<MessageCursor>, Reject> {
        self.on_received(now);
        self.request_work(datagram, unread, now)?;
        let DatagramParts { packet, frame, rest, frames } = match self.parse(datagram, now) {
            Ok(parts) => parts,
            Err(reject) => {
                self.path.count_reject(reject);
                return Err(reject);
            }
        };
        if !self.channels.fits_any(frames.len()) && !self.has_memory(&packet, frames) {
            // This side has no memory and drops the peer's acknowledgements: that is not the peer's fault.
            self.ack_watchdog.on_acked();
            return self.path.handle_framed(&packet, &frame, Acceptance::Refuse, unread, now).map(|_| None);
        }
        // The decision to acknowledge is made before any message is read.
        let acceptance = self.acceptance(rest, frames);
        let control_bytes = rest.len() - frames.len();
        let costly_bytes = control_bytes + frame.extended_acks.len();
        if costly_bytes > 0 {
            self.work.charge(costly_bytes as u64 * CONTROL_BYTE_WORK);
        }
        let times = self.path.handle_framed(&packet, &frame, acceptance, unread, now)?;
        self.process_acks();
        self.ack_watchdog.on_acked_to(self.path.peer_received_end());
        self.check_acks(rest);
        if control_bytes > 0 {
            self.handle_control(rest);
        }
        // Messages behind a close message are not acknowledged, and not read either.
        if frames.is_empty() || self.stage != Stage::Open {
            return Ok(None);
        }
        debug_assert!(self.has_peer_hello, "messages before the hello are refused");
        let (start, frames) = (datagram.len() - frames.len(), FrameCursor::default());
        Ok(Some(MessageCursor { start, frames, times, delivery: Delivery::Continues }))
    }

    /// Returns whether there is memory for what the frames may leave behind, and charges the search. A packet that is
    /// dropped anyway needs none.
    #[cold]
    fn has_memory(&mut self, packet: &ParsedPacket<'_>, frames: &[u8]) -> bool {
        if !self.path.is_new(packet.header.sequence) {
            return true;
        }
        let (fits, frames_parsed) = self.channels.preview(frames);
        self.work.charge(u64::from(frames_parsed) * FRAME_WORK);
        fits
    }

    /// Takes budget for a packet. One beyond the budget, or one that the application does not take, is refused before
    /// anything of it is read (§5.11).
    fn request_work(&mut self, datagram: &[u8], unread: Duration, now: Instant) -> Result<(), Reject> {
        let reason = match self.work.request(unread, now) {
            WorkPermit::Granted => None,
            WorkPermit::OverBudget => Some(Reject::OverBudget),
            WorkPermit::NotTaken => Some(Reject::NotTaken),
        };
        if let Some(reason) = reason {
            self.path.count_reject(reason);
            if reason == Reject::NotTaken {
                // Its acknowledgements are dropped unread: that is not the peer's fault.
                self.ack_watchdog.on_acked();
            }
            if self.work.is_flood() {
                self.break_off_violation(ChannelViolation::Flood);
            }
            return Err(reason);
        }
        self.work.charge(PACKET_WORK + datagram.len() as u64 * BYTE_WORK);
        Ok(())
    }

    /// Sets whether packets of the peer are refused.
    pub(crate) fn set_intake(&mut self, intake: Intake) {
        if intake == Intake::Flooded {
            self.break_off_violation(ChannelViolation::Flood);
        } else {
            self.work.set_intake(intake);
        }
    }

    /// Returns whether the next message of a packet is delivered now, after `in_a_row` others of it.
    pub(crate) fn may_deliver(&mut self, in_a_row: u32, now: Instant) -> bool {
        self.work.may_deliver(in_a_row, now)
    }

    /// Returns how many packets were refused since the last call.
    pub(crate) const fn take_refused(&mut self) -> RefusedPackets {
        self.work.take_refused()
    }

    /// Returns the estimated work of the peer's packets and messages since the last call, in nanoseconds.
    #[inline]
    pub(crate) const fn take_work_done(&mut self) -> u64 {
        self.work.take_done()
    }

    /// Records that the layer below received something authentic of the peer at that time, if only a keep-alive. A
    /// peer that is alive but acknowledges nothing is given up in the end (§5.6). Datagrams given to
    /// [`handle`](Self::handle) are recorded without this call.
    #[inline]
    pub fn on_received(&mut self, at: Instant) {
        self.ack_watchdog.on_received(at);
    }

    /// Returns whether a datagram is acknowledged. It must not be if its messages will not be read: its sender would
    /// report them as arrived (§5.5).
    fn acceptance(&self, rest: &[u8], frames: &[u8]) -> Acceptance {
        // A packet of acknowledgements alone is not acknowledged (§5.5).
        if rest.is_empty() {
            Acceptance::TakeAckOnly
        } else if frames.is_empty() || self.will_read_behind(rest, frames) {
            Acceptance::Take
        } else {
            Acceptance::TakeUnacknowledged
        }
    }

    /// Returns whether message frames behind these control messages will be read.
    fn will_read_behind(&self, mut rest: &[u8], frames: &[u8]) -> bool {
        let mut has_hello = self.has_peer_hello;
        while rest.len() > frames.len()
            && let Ok(Some((control, bytes))) = control::read(rest)
        {
            match control {
                ControlMessage::Hello(hello) if self.objection(&hello).is_none() => has_hello = true,
                ControlMessage::Hello(_) | ControlMessage::Bye(_) => return false,
                _ => {}
            }
            rest = rest.get(bytes..).unwrap_or_default();
        }
        has_hello && self.stage == Stage::Open
    }

    /// Splits a datagram into its parts. Closes the connection if no peer of ours sends such a datagram.
    fn parse<'d>(&mut self, datagram: &'d [u8], now: Instant) -> Result<DatagramParts<'d>, Reject> {
        // Sessions never fragment: slices do that, and are acknowledged one by one.
        if is_fragment(datagram) {
            self.break_off_foreign();
            return Err(Reject::NotAPacket);
        }
        let (header, payload) = match ReliableHeader::parse(datagram) {
            Ok(parsed) => parsed,
            Err(reject) => {
                // Once the peer is known to be a session, a defect of one packet does not end it.
                if !self.has_peer_hello {
                    self.break_off_foreign();
                }
                return Err(reject);
            }
        };
        let Ok((frame, rest)) = SessionFrame::parse(payload) else {
            self.break_off_foreign();
            return Err(Reject::Refused);
        };
        if !self.has_peer_hello && self.stage == Stage::Open {
            self.require_hello(rest, now)?;
        }
        let frames = self.message_frames(rest).ok_or(Reject::Refused)?;
        let packet = ParsedPacket { header, payload, datagram_bytes: datagram.len() };
        Ok(DatagramParts { packet, frame, rest, frames })
    }

    /// Closes the connection if no session sends such a packet before its hello is acknowledged: every packet carries
    /// the hello then, except packets of acknowledgements alone, which may arrive first (§5.4).
    fn require_hello(&mut self, rest: &[u8], now: Instant) -> Result<(), Reject> {
        let is_plausible = if rest.is_empty() {
            !now.reached(*self.ack_only_since.get_or_insert(now), MAX_HELLO_DELAY)
        } else {
            matches!(control::read(rest), Ok(Some((ControlMessage::Hello(_) | ControlMessage::Bye(_), _))))
        };
        if is_plausible {
            return Ok(());
        }
        self.break_off_foreign();
        Err(Reject::Refused)
    }

    /// Closes the connection if the peer acknowledges what it did not receive.
    fn check_acks(&mut self, rest: &[u8]) {
        let (unsent, has_false_acks) = (self.path.acks_of_unsent(), self.path.has_false_acks());
        if !self.has_peer_hello && rest.is_empty() {
            // The payloads of another protocol look like acknowledgements, but seldom like true ones.
            if has_false_acks || unsent > 0 {
                self.break_off_foreign();
            }
        // No skipped number is acknowledged by mistake, and no nonce is mistaken.
        } else if has_false_acks || unsent >= MAX_ACKS_OF_UNSENT {
            self.break_off_violation(ChannelViolation::AcksOfUnsent);
        }
    }

    /// Returns the next message of a datagram; `scratch` receives messages that do not lie in the datagram in one
    /// piece. Returns `None` when there is none, or when the peer violated the protocol: see
    /// [`close_reason`](Self::close_reason).
    #[inline]
    pub fn next_message(
        &mut self,
        datagram: &[u8],
        cursor: &mut MessageCursor,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<ChannelMessage> {
        // A message may have made the application close the connection: those behind it are not read.
        if self.stage != Stage::Open {
            // The peer's acknowledgement of the close message must not be refused.
            self.work.on_packet_delivered();
            return None;
        }
        let frames = datagram.get(cursor.start..)?;
        let next = self.channels.next(frames, &mut cursor.frames, scratch, now);
        let frames_read = self.channels.take_frames_read();
        if frames_read > 0 {
            self.work.charge(u64::from(frames_read) * FRAME_WORK);
        }
        match next {
            Ok(Some(message)) => {
                cursor.delivery = self.work.charge_message(now);
                Some(located(message, cursor))
            }
            Ok(None) => {
                self.work.on_packet_delivered();
                None
            }
            Err(violation) => {
                self.break_off_violation(violation);
                None
            }
        }
    }

    /// Returns the next event of the channels. The peer is charged for events of transfers, which its frames cause, but
    /// not for those of receipts, which this side has requested.
    pub(crate) fn poll_event(&mut self) -> Option<ChannelEvent> {
        let event = self.channels.poll_event()?;
        if let ChannelEvent::Transfer { .. } = event {
            self.work.charge_event();
        }
        Some(event)
    }

    /// Returns the message frames, which follow all control messages.
    fn message_frames<'d>(&mut self, mut rest: &'d [u8]) -> Option<&'d [u8]> {
        loop {
            match control::read(rest) {
                Ok(None) => return Some(rest),
                Ok(Some((_, bytes))) => rest = rest.get(bytes..)?,
                Err(violation) => {
                    self.break_off_violation(violation);
                    return None;
                }
            }
        }
    }

    /// Processes the control messages.
    fn handle_control(&mut self, mut rest: &[u8]) {
        while let Ok(Some((control, bytes))) = control::read(rest) {
            match control {
                ControlMessage::Hello(hello) => self.on_hello(&hello),
                ControlMessage::Bye(bye) => self.on_bye(&bye),
                ControlMessage::Redirect(part) => self.on_redirect(&part),
                _ => {}
            }
            rest = rest.get(bytes..).unwrap_or_default();
        }
    }

    /// Stores a part of a token for another server. Servers take none.
    fn on_redirect(&mut self, part: &RedirectPart<'_>) {
        if self.role == Role::Client && self.stage == Stage::Open {
            match &mut self.redirected {
                Some(token) => token.add(part),
                None => self.redirected = Some(Box::new(RedirectedToken::new(part))),
            }
        }
    }

    fn on_hello(&mut self, hello: &Hello) {
        if let Some((kind, code)) = self.objection(hello) {
            self.break_off(kind, code);
            return;
        }
        self.has_peer_hello = true;
        let min_bytes = MIN_PAYLOAD.max(min_payload(self.channels.layout()));
        // A peer may announce less than any path carries; slices of transfers must fit all the same.
        self.max_payload_bytes = self.max_payload_bytes.min(hello.payload_bytes.into()).max(min_bytes);
    }

    /// Returns why no connection is possible with a peer that sends this hello.
    fn objection(&self, hello: &Hello) -> Option<(CloseKind, CloseCode)> {
        if !(hello.oldest_version..=hello.version).contains(&VERSION) {
            return Some((CloseKind::VersionMismatch, CloseCode::VERSION_MISMATCH));
        }
        let mismatch = self.layout_mismatch(Some(hello.layout));
        (hello.layout != self.layout).then_some((mismatch, CloseCode::LAYOUT_MISMATCH))
    }

    fn layout_mismatch(&self, remote: Option<LayoutHash>) -> CloseKind {
        let layout = self.channels.layout();
        let (local_version, local_channels) = (layout.version(), layout.channels().len());
        CloseKind::LayoutMismatch { local: self.layout, remote, local_version, local_channels }
    }

    fn on_bye(&mut self, bye: &Bye<'_>) {
        let from_session = |kind| CloseReason::from_session(ClosedBy::Remote, kind, bye.code);
        let reason = match bye.code {
            CloseCode::LAYOUT_MISMATCH => from_session(self.layout_mismatch(None)),
            CloseCode::VERSION_MISMATCH => from_session(CloseKind::VersionMismatch),
            CloseCode::VIOLATION => from_session(CloseKind::Accused),
            // Codes that are reserved for later versions are treated as an application's.
            code => CloseReason::from_application(self.role, ClosedBy::Remote, code, bye.text),
        };
        // Keep the first close reason.
        self.close_reason.get_or_insert(reason);
        if self.stage != Stage::Closed {
            self.stage = Stage::PeerClosed;
        }
    }
}

/// Returns the message with its span counted from the start of the datagram.
fn located(message: ReceivedMessage, cursor: &MessageCursor) -> ChannelMessage {
    ChannelMessage { channel: message.channel, span: message.span.shifted(cursor.start), times: cursor.times }
}
