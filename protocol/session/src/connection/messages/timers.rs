//! The tick of a connection, and its deadlines.

use core::time::Duration;

use super::closing::Closing;
use super::{Connection, Stage};
use slipgate_netcode::time::Instant;

impl Connection {
    /// Detects losses, updates the sending rate and begins the channels' tick. Call it once per tick before messages
    /// are composed. A connection with a later deadline may skip it: [`transmit`](Self::transmit) makes up for it.
    pub fn tick(&mut self, now: Instant) {
        self.ticked_at = Some(now);
        self.path.tick(now);
        // Losses by time are reported before the channels plan the tick.
        self.process_acks();
        self.channels.begin_tick(now);
    }

    /// Returns when something is due, if nothing arrives and nothing is sent before.
    #[must_use]
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        Some(self.next_deadline_by_ticks(now, Duration::ZERO)).filter(|deadline| *deadline != Instant::NEVER)
    }

    /// Returns the same, or `NEVER`, but delays by `tick` what waits only for its channel's budget. It serves a caller
    /// that begins a tick whenever it wakes up.
    pub(crate) fn next_deadline_by_ticks(&self, now: Instant, tick: Duration) -> Instant {
        match self.stage {
            Stage::Open => self.open_deadline(now, tick),
            Stage::Closing(closing) => self.closing_deadline(closing, now),
            // The acknowledgement of the close message is due at once.
            Stage::PeerClosed => now,
            Stage::Closed => Instant::NEVER,
        }
    }

    fn closing_deadline(&self, closing: Closing, now: Instant) -> Instant {
        match &self.redirect {
            Some(redirect) => redirect.deadline(now, self.close_timeout),
            None if closing.control.is_acked() => now,
            None => closing.next_send,
        }
    }

    fn open_deadline(&self, now: Instant, tick: Duration) -> Instant {
        let mut deadline = self.path.next_deadline().min(self.channels.next_deadline(now, tick));
        if let Some(pto) = self.pto_deadline() {
            deadline = deadline.min(pto);
        }
        if self.may_send() {
            let allowance = self.path.allowance(now);
            // If the controller names no time, the uplink or the sink limits the sending, and it may be tried at once.
            let send = allowance.next_send(self.pending_demand(&allowance, now)).unwrap_or(now);
            deadline = deadline.min(send);
        }
        deadline
    }

    /// Returns when the probe timeout fires, if a probe has anything to send: content of a packet in flight, or the
    /// first packet of a window that is full.
    pub(super) fn pto_deadline(&self) -> Option<Instant> {
        let has_probe = self.channels.has_probe() || self.hello.is_in_flight() || self.is_full();
        if has_probe { self.path.pto_deadline() } else { None }
    }
}
