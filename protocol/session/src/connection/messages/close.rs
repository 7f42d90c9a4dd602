//! How a connection ends: why this side closes it, and how long it repeats the close message.

use alloc::boxed::Box;
use core::time::Duration;

use super::closing::Closing;
use super::{Connection, Stage};
use crate::channel::ChannelViolation;
use crate::channel::close_code::CloseCode;
use crate::channel::control::{self, Bye, ControlMessage, MAX_TEXT_BYTES};
use crate::congestion::SessionPacketKind;
use crate::connection::plain_text::plain_text;
use crate::connection::redirect::RedirectSender;
use crate::connection::reliable_control::ReliableControl;
use crate::connection::{CloseKind, CloseReason, ClosedBy};
use crate::reliability::Sink;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;
use slipgate_netcode::token::ConnectToken;

/// The interval between close messages: 10 packets per second, the slow rate of "Fiedler, Reliability, Ordering and
/// Congestion Avoidance over UDP", because nothing else measures the path any more.
const CLOSE_INTERVAL: Duration = Duration::from_millis(100);

/// The number of close messages that a program which cannot wait sends at once: like netcode's disconnect packets,
/// they are repeated because some may be lost.
const CLOSES_AT_ONCE: usize = 3;

impl Connection {
    /// Closes the connection with a text for people, which is cut to 256 bytes and loses its control characters.
    /// Codes that are not an application's ([`CloseCode`]) count as 0. The close message is repeated until the peer
    /// acknowledges it or `close_timeout` has passed; then [`is_closed`](Self::is_closed) returns true.
    pub fn close(&mut self, code: CloseCode, text: &str) {
        // Only the first reason counts.
        if self.stage == Stage::Open {
            let text = plain_text(text);
            // A cut within a character would not be UTF-8.
            let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
            let code = code.of_application();
            self.close_message.text.push_str(text);
            self.begin_close(CloseReason::from_application(self.role, ClosedBy::Local, code, text), code);
        }
    }

    /// Closes the connection because the server shuts down, with a token for another server: its parts are sent before
    /// the close message. Without an acknowledgement of each within `close_timeout` the client sees the close alone.
    pub(crate) fn redirect(&mut self, token: ConnectToken, text: &str) {
        if self.stage == Stage::Open {
            self.close(CloseCode::SHUTDOWN, text);
            self.redirect = Some(Box::new(RedirectSender::new(token)));
        }
    }

    /// Takes the token for another server that the peer has sent; `None` without one, and if it is not complete.
    pub(crate) fn take_redirect(&mut self) -> Option<ConnectToken> {
        self.redirected.take()?.token()
    }

    /// Sends the close message three times at once and does not wait for an acknowledgement: for a program that ends.
    /// Does nothing unless the connection is closing. Sends it with the next call if the sink is full now.
    pub(crate) fn close_now(&mut self, now: Instant, sink: &mut dyn Sink) {
        if !matches!(self.stage, Stage::Closing(_)) {
            return;
        }
        let sent = (0..CLOSES_AT_ONCE).map_while(|_| self.send_close(now, sink)).count();
        // With a full sink nothing was sent, and the next call tries again.
        if sent > 0 {
            self.stage = Stage::Closed;
        }
    }

    /// Closes the connection because the peer is alive but acknowledges nothing. A peer that has not even sent a
    /// hello does not implement the session layer.
    pub(super) fn give_up(&mut self) {
        let silent = CloseKind::Violation(ChannelViolation::AcknowledgesNothing);
        self.break_off(if self.has_peer_hello { silent } else { CloseKind::NotASession }, CloseCode::VIOLATION);
    }

    /// Closes the connection for a reason of the session layer.
    pub(super) fn break_off(&mut self, kind: CloseKind, code: CloseCode) {
        if self.stage == Stage::Open {
            self.begin_close(CloseReason::from_session(ClosedBy::Local, kind, code), code);
        }
    }

    /// Closes the connection because the peer does not implement the session layer.
    pub(super) fn break_off_foreign(&mut self) {
        self.break_off(CloseKind::NotASession, CloseCode::VIOLATION);
    }

    /// Closes the connection because the peer violates the protocol.
    pub(super) fn break_off_violation(&mut self, violation: ChannelViolation) {
        self.break_off(CloseKind::Violation(violation), CloseCode::VIOLATION);
    }

    fn begin_close(&mut self, reason: CloseReason, code: CloseCode) {
        debug_assert!(self.stage == Stage::Open, "a connection closes once");
        self.close_reason = Some(reason);
        self.close_message.code = code;
        self.stage =
            Stage::Closing(Closing { control: ReliableControl::NEW, since: None, next_send: Instant::default() });
    }

    /// Returns why the connection is closed or closing; `None` while it is open.
    #[must_use]
    #[inline]
    pub const fn close_reason(&self) -> Option<&CloseReason> {
        self.close_reason.as_ref()
    }

    /// Returns whether the connection has ended and nothing is left to send.
    #[must_use]
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    /// Sends the parts of the token that are not acknowledged. Returns whether the close message is next.
    pub(super) fn transmit_redirect(&mut self, now: Instant, sink: &mut dyn Sink) -> bool {
        let Some(mut redirect) = self.redirect.take() else { return true };
        let limit = self.close_timeout;
        if redirect.is_over(now, limit) {
            return true;
        }
        if redirect.deadline(now, limit) <= now && self.send_parts(&mut redirect, now, sink) {
            redirect.on_round_sent(now);
        }
        self.redirect = Some(redirect);
        false
    }

    /// Sends one packet for each missing part. Returns false if the sink is full.
    fn send_parts(&mut self, redirect: &mut RedirectSender, now: Instant, sink: &mut dyn Sink) -> bool {
        let mut from = 0;
        while let Some(part) = redirect.next_part(from) {
            let index = part.index;
            let Some(packet) = self.send_control(&ControlMessage::Redirect(part), now, sink) else { return false };
            redirect.on_sent(packet, index);
            from = index + 1;
        }
        true
    }

    /// Sends the close message until it is acknowledged or the time is up.
    pub(super) fn transmit_close(&mut self, closing: Closing, now: Instant, sink: &mut dyn Sink) {
        // The timeout begins with the first transmission, which a slow loop may delay.
        let since = closing.since.unwrap_or(now);
        if closing.control.is_acked() || now.reached(since, self.close_timeout) {
            self.stage = Stage::Closed;
            return;
        }
        let mut closing = Closing { since: Some(since), ..closing };
        if closing.next_send <= now
            && let Some(packet) = self.send_close(now, sink)
        {
            closing.control.on_sent(packet);
            closing.next_send = now.after(CLOSE_INTERVAL);
        }
        self.stage = Stage::Closing(closing);
    }

    fn send_close(&mut self, now: Instant, sink: &mut dyn Sink) -> Option<Sequence> {
        // Moved out, because the message borrows it.
        let text = core::mem::take(&mut self.close_message.text);
        let bye = Bye { code: self.close_message.code, text: &text };
        let sent = self.send_control(&ControlMessage::Bye(bye), now, sink);
        self.close_message.text = text;
        sent
    }

    /// Sends a packet with a control message, behind a hello if the peer may not have received that. Returns the
    /// packet's number, or `None` if the sink is full.
    fn send_control(&mut self, control: &ControlMessage<'_>, now: Instant, sink: &mut dyn Sink) -> Option<Sequence> {
        let (hello_message, max_bytes) = (self.hello_message(), self.max_packet_bytes());
        let Self { path, hello, .. } = self;
        let mut number = None;
        let sent = path.send_framed(SessionPacketKind::AckEliciting, max_bytes, now, sink, |sequence, buf| {
            number = Some(sequence);
            let start = hello_message.map_or(0, |message| control::write(&ControlMessage::Hello(message), buf));
            start + buf.get_mut(start..).map_or(0, |rest| control::write(control, rest))
        });
        // The closure may have run although the sink refused the packet.
        let number = number.filter(|_| sent > 0)?;
        hello.on_sent(number);
        Some(number)
    }
}
