//! The sending side of a tick: netcode's packets first, then those of the clients' sessions.

use core::time::Duration;

use super::SessionServer;
use super::client_sink::client_sink;
use slipgate_netcode::Outbox;
use slipgate_netcode::ids::SlotIndex;
use slipgate_netcode::time::{Instant, Now};

/// The shortest interval between two visits of a session for its own deadlines.
const MIN_WAIT: Duration = Duration::from_millis(1);

impl SessionServer {
    /// Handles the deadlines of netcode and of every session that has one.
    pub fn tick(&mut self, now: Now) {
        self.drained_at = now.monotonic;
        self.netcode.tick(now);
        self.tick_sessions(now);
    }

    /// Ticks for a program that left datagrams of the last tick unread. No client times out in it,
    /// because its packets may be among them, and each timeout starts again.
    pub fn tick_with_backlog(&mut self, now: Now) {
        self.netcode.tick_with_backlog(now);
        self.tick_sessions(now);
    }

    fn tick_sessions(&mut self, now: Now) {
        self.sync_with_netcode();
        self.hashing.begin_tick();
        self.tick_due_sessions(now.monotonic);
        self.share_uplink(now.monotonic);
        // The rotation gives every slot the same chance of a full outbox.
        let slots = self.deadlines.len() as u32;
        self.first_slot = SlotIndex(if slots == 0 { 0 } else { (self.first_slot.0 + 1) % slots });
    }

    fn tick_due_sessions(&mut self, now: Instant) {
        if self.earliest_deadline > now {
            return;
        }
        for slot in (0..self.deadlines.len() as u32).map(SlotIndex) {
            if self.is_due(slot, now)
                && let Some(session) = self.wake(slot)
            {
                session.tick(now);
            }
        }
    }

    /// Divides the uplink's bytes among the sessions that have messages to send.
    fn share_uplink(&mut self, now: Instant) {
        let Self { uplink, sessions, deadlines, earliest_deadline, .. } = self;
        uplink.share(now, |uplink| {
            // A session that is not due has nothing to send.
            if *earliest_deadline > now {
                return;
            }
            for (slot, (session, deadline)) in (0..).map(SlotIndex).zip(sessions.iter().zip(deadlines.iter())) {
                // Only due sessions are asked: the question costs more than the deadline.
                if *deadline <= now {
                    uplink.offer(slot, session.as_ref().map_or(0, |session| session.wanted_bytes(now)));
                }
            }
        });
    }

    /// Sends what is due until nothing is or the outbox is full; the rest leaves with the next call.
    pub fn transmit(&mut self, now: Now, outbox: &mut impl Outbox) {
        if self.is_ending && !self.transmit_last(now, outbox) {
            return;
        }
        self.netcode.transmit(now, outbox);
        if !self.transmit_sessions(now, outbox) {
            return;
        }
        // Sessions that closed just now owe their disconnect packets.
        self.sync_with_netcode();
        self.netcode.transmit(now, outbox);
    }

    /// Sends the close message to all clients that have not acknowledged it, and disconnects all. Returns false if the
    /// outbox is full.
    fn transmit_last(&mut self, now: Now, outbox: &mut impl Outbox) -> bool {
        let Self { netcode, sessions, buf, .. } = self;
        for session in sessions.iter_mut().flatten() {
            let mut sink = client_sink(netcode, session.client(), now, outbox, buf);
            if let Some(connection) = session.protocol.connection_mut() {
                connection.close_now(now.monotonic, &mut sink);
            }
            if sink.is_full {
                return false;
            }
        }
        // From here on netcode's disconnect packets end the connections.
        self.is_ending = false;
        self.netcode.stop();
        self.sync_with_netcode();
        true
    }

    /// Sends what is due of all sessions. Returns false if the outbox is full.
    fn transmit_sessions(&mut self, now: Now, outbox: &mut impl Outbox) -> bool {
        if self.earliest_deadline > now.monotonic {
            return true;
        }
        // It is collected again while the slots are visited.
        self.earliest_deadline = Instant::NEVER;
        for slot in (self.first_slot.0..self.deadlines.len() as u32).chain(0..self.first_slot.0).map(SlotIndex) {
            if self.is_due(slot, now.monotonic) && !self.transmit_session(slot, now, outbox) {
                // The next call continues with this slot; the deadlines of the others are still unread.
                self.first_slot = slot;
                self.earliest_deadline = Instant::default();
                return false;
            }
            if let Some(deadline) = self.deadlines.get(slot.0 as usize) {
                self.earliest_deadline = self.earliest_deadline.min(*deadline);
            }
        }
        true
    }

    /// Sends what is due of one session. Returns false if the outbox is full.
    fn transmit_session(&mut self, slot: SlotIndex, now: Now, outbox: &mut impl Outbox) -> bool {
        let Self { netcode, sessions, buf, uplink, .. } = self;
        let Some(session) = sessions.get_mut(slot.0 as usize).and_then(Option::as_mut) else {
            self.set_deadline(slot, Instant::NEVER);
            return true;
        };
        let client = session.client();
        if let (Some(connection), Some(at)) = (session.protocol.connection_mut(), netcode.last_received_at(client)) {
            connection.on_received(at);
        }
        let is_full = {
            let mut sink = client_sink(netcode, client, now, outbox, buf);
            let message_bytes = session.protocol.transmit_within(uplink.allowance(slot), now.monotonic, &mut sink);
            // Acknowledgements and close messages are charged to the uplink, not to the client's allowance.
            session.totals.on_sent(sink.sent_packets, sink.sent_bytes);
            uplink.spend(slot, message_bytes, sink.sent_bytes);
            sink.is_full
        };
        if is_full {
            return false;
        }
        let (is_closed, deadline) =
            (session.is_closed(), session.protocol.next_deadline(Duration::ZERO, now.monotonic));
        if is_closed {
            self.netcode.disconnect(client);
            self.sync_with_netcode();
        } else {
            // Data that could not leave now is tried again a little later, not at once.
            self.set_deadline(slot, deadline.max(now.monotonic.after(MIN_WAIT)));
        }
        true
    }

    #[inline]
    fn is_due(&self, slot: SlotIndex, now: Instant) -> bool {
        self.deadlines.get(slot.0 as usize).is_some_and(|deadline| *deadline <= now)
    }
}
