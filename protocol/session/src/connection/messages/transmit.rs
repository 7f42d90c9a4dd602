//! The sending side: messages, as far as the path carries them now, and acknowledgements.

use super::{Connection, Stage};
use crate::channel::control::{self, ControlMessage};
use crate::channel::{ChannelId, SendBudget, SendOptions, SharedMessage};
use crate::congestion::{Demand, FLOOR_PACKET_BYTES, SessionPacketKind};
use crate::connection::SendError;
use crate::reliability::Sink;
use slipgate_netcode::time::Instant;

impl Connection {
    /// Queues a message on a channel; its bytes are copied once.
    ///
    /// # Errors
    /// - `Gone` when the connection is closed or closing.
    /// - `NoChannel` or `WrongKind` when the layout has no such channel, or one of transfers.
    /// - `TooLarge` when the message exceeds the channel's limit.
    /// - `Backlogged` when the channel's queue or the receipts are full.
    #[inline]
    pub fn send(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
        now: Instant,
    ) -> Result<(), SendError> {
        if self.close_reason.is_some() {
            return Err(SendError::Gone);
        }
        self.queued_at = now;
        self.channels.send(channel, message, options, now)
    }

    /// Queues a message on a channel by reference to its shared bytes, which are not copied.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) fn send_shared(
        &mut self,
        channel: ChannelId,
        message: &SharedMessage,
        options: SendOptions,
        now: Instant,
    ) -> Result<(), SendError> {
        if self.close_reason.is_some() {
            return Err(SendError::Gone);
        }
        self.queued_at = now;
        self.channels.send_shared(channel, message, options, now)
    }

    /// Sends the messages that the path carries now, and the acknowledgements that are due.
    pub fn transmit(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.transmit_within(u64::MAX, now, sink);
    }

    /// Transmits with messages in at most `allowance` bytes on the path, for an uplink that many connections share.
    /// Acknowledgements and close messages need no allowance. Returns the bytes of messages that left.
    pub(crate) fn transmit_within(&mut self, allowance: u64, now: Instant, sink: &mut dyn Sink) -> u64 {
        self.tick_if_due(now);
        if self.pto_deadline().is_some_and(|deadline| deadline <= now) {
            self.on_pto(now);
            if self.stage == Stage::Open && self.is_full() {
                // All else waits for an acknowledgement of this probe (RFC 9002, section 7.5: probes ignore the
                // window).
                self.send_packet(self.max_packet_bytes(), SendBudget::UNLIMITED, now, sink);
            }
        }
        if self.ack_watchdog.is_expired() || self.path.has_ambiguous_acks() {
            self.give_up();
        }
        match self.stage {
            Stage::Open => return self.transmit_open(allowance, now, sink),
            Stage::Closing(closing) => {
                if self.transmit_redirect(now, sink) {
                    self.transmit_close(closing, now, sink);
                }
            }
            Stage::PeerClosed => {
                // The peer repeats its close message until this acknowledgement arrives.
                let max_bytes = self.max_packet_bytes();
                if self.path.send_framed(SessionPacketKind::AckOnly, max_bytes, now, sink, |_, _| 0) > 0 {
                    self.stage = Stage::Closed;
                }
            }
            Stage::Closed => {}
        }
        0
    }

    /// Begins a tick if the caller slept through the last one.
    fn tick_if_due(&mut self, now: Instant) {
        let is_due = self.ticked_at.is_none_or(|ticked_at| now.reached(ticked_at, self.path.tick_interval()));
        // A call between two ticks, because something arrived, shares the budgets of the tick before.
        if is_due && self.ticked_at != Some(now) {
            self.tick(now);
        }
    }

    fn transmit_open(&mut self, uplink: u64, now: Instant, sink: &mut dyn Sink) -> u64 {
        let mut sent = 0;
        loop {
            // The controller raises its rate only while the application wants more (RFC 9002, section 7.8).
            if !self.may_send() {
                self.path.set_demand(Demand::Met);
                break;
            }
            self.path.set_demand(Demand::Unmet);
            let allowance = self.path.allowance(now);
            let pending = || self.pending_demand(&allowance, now);
            let Some(max_bytes) = allowance.packet_budget(self.max_packet_bytes(), pending) else { break };
            let allowed = uplink.saturating_sub(sent + self.path.overhead());
            if allowed < FLOOR_PACKET_BYTES.into() && allowed < self.min_contents() {
                // The shared uplink is the limit, not the path: the controller must not raise its rate for it.
                self.path.set_demand(Demand::Met);
                break;
            }
            let max_bytes = max_bytes.min(usize::try_from(allowed).unwrap_or(max_bytes));
            let bytes = self.send_packet(max_bytes, allowance.send_budget(), now, sink);
            if bytes == 0 {
                break;
            }
            sent += u64::from(bytes);
        }
        if self.path.owes_acks(now) {
            self.path.send_framed(SessionPacketKind::AckOnly, self.max_packet_bytes(), now, sink, |_, _| 0);
            // More packets may have arrived in one tick than one frame can acknowledge.
            self.path.send_older_acks(now, sink);
            // Ack-only packets use up numbers that the channels must not wait for.
            self.channels.skip(self.path.newest_sent());
        }
        sent
    }

    /// Sends one packet of messages. Returns its bytes on the path, or 0 if it did not leave.
    fn send_packet(&mut self, max_bytes: usize, budget: SendBudget, now: Instant, sink: &mut dyn Sink) -> u32 {
        let hello_message = self.hello_message();
        let Self { path, channels, hello, ack_watchdog, .. } = self;
        let mut number = None;
        let sent = path.send_framed(SessionPacketKind::AckEliciting, max_bytes, now, sink, |sequence, buf| {
            number = Some(sequence);
            let start = hello_message.map_or(0, |message| control::write(&ControlMessage::Hello(message), buf));
            let Some(rest) = buf.get_mut(start..) else { return 0 };
            // The session frame and the hello use up a part of the budget.
            let before = max_bytes.saturating_sub(rest.len());
            let frames = channels.write_within(sequence, now, rest, budget.after(before));
            // A hello that is in flight already does not need a packet of its own.
            if frames > 0 || hello.wants_packet() { start + frames } else { 0 }
        });
        if sent > 0
            && let Some(number) = number
        {
            hello.on_sent(number);
            ack_watchdog.on_ack_eliciting_sent(now);
        }
        sent
    }

    /// Handles a probe timeout: packets are in flight and nothing was acknowledged for long, so their contents may
    /// be lost.
    fn on_pto(&mut self, now: Instant) {
        self.hello.on_pto();
        self.channels.on_pto();
        self.path.on_pto(now);
    }
}
