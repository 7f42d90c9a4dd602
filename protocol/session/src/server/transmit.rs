//! What leaves in a turn: netcode's debts first, then what the lines have.

use core::time::Duration;

use super::Server;
use super::sink::ClientSink;
use crate::session::Line;
use slipgate_netcode::Outbox;
use slipgate_netcode::time::{Instant, Now};

/// No line is looked at more often for its own sake.
const LEAST_WAIT: Duration = Duration::from_millis(1);

impl Server {
    /// A turn has passed: netcode's deadlines, and those of every line that has one.
    pub fn tick(&mut self, now: Now) {
        self.caught_up(now.monotonic);
        self.netcode.tick(now);
        self.tick_above(now);
    }

    /// As [`tick`](Self::tick), of a program that has left unread what had arrived since the tick before: no client is taken
    /// for silent, for its packets may lie there, and each has its time-out anew.
    pub fn tick_unread(&mut self, now: Now) {
        self.netcode.tick_unread(now);
        self.tick_above(now);
    }

    /// What follows netcode's tick.
    fn tick_above(&mut self, now: Now) {
        self.follow();
        self.hashing.begin_turn();
        self.tick_lines(now.monotonic);
        self.share_uplink(now.monotonic);
        self.first = if self.wakes.is_empty() { 0 } else { (self.first + 1) % self.wakes.len() as u32 };
    }

    fn tick_lines(&mut self, now: Instant) {
        if self.next_wake > now {
            return;
        }
        for slot in 0..self.wakes.len() as u32 {
            if self.is_due(slot, now)
                && let Some(seat) = self.seat_at(slot)
            {
                seat.tick(now);
                self.wake(slot);
            }
        }
    }

    /// Divides what the uplink has gained over the lines that have messages to send.
    fn share_uplink(&mut self, now: Instant) {
        let Self { uplink, seats, wakes, next_wake, .. } = self;
        uplink.share(now, |uplink| {
            if *next_wake > now {
                return;
            }
            for (slot, (seat, wake)) in seats.iter().zip(wakes.iter()).enumerate() {
                if *wake <= now {
                    uplink.offer(slot, seat.as_ref().map_or(0, |seat| seat.wanted_bytes(now)));
                }
            }
        });
    }

    /// Sends what is due until nothing is or the outbox is full; the rest leaves with the next call.
    pub fn transmit(&mut self, now: Now, outbox: &mut impl Outbox) {
        if self.stopping && !self.say_that_it_stops(now, outbox) {
            return;
        }
        self.netcode.transmit(now, outbox);
        if !self.transmit_lines(now, outbox) {
            return;
        }
        // Those whose last word has been said owe their disconnect packets.
        self.follow();
        self.netcode.transmit(now, outbox);
    }

    /// Tells clients with channels that the server stops, and disconnects them; answers false when the outbox is full.
    fn say_that_it_stops(&mut self, now: Now, outbox: &mut impl Outbox) -> bool {
        let Self { netcode, seats, room, .. } = self;
        for seat in seats.iter_mut().flatten() {
            let mut sink = ClientSink::new(netcode, seat.client(), now, outbox, room);
            if let Line::Channels(connection) = &mut seat.line {
                connection.say_farewell_at_once(now.monotonic, &mut sink);
            }
            if sink.full {
                return false;
            }
        }
        self.stopping = false;
        self.netcode.stop();
        self.follow();
        true
    }

    /// Sends what the lines have that are due; answers false when the outbox is full.
    fn transmit_lines(&mut self, now: Now, outbox: &mut impl Outbox) -> bool {
        if self.next_wake > now.monotonic {
            return true;
        }
        self.next_wake = Instant::NEVER;
        for slot in (self.first..self.wakes.len() as u32).chain(0..self.first) {
            if self.is_due(slot, now.monotonic) && !self.transmit_line(slot, now, outbox) {
                // The others were not looked at: the next call goes on from here, and does not ask again who is through.
                self.first = slot;
                self.next_wake = Instant::default();
                return false;
            }
            self.next_wake = self.wakes.get(slot as usize).map_or(self.next_wake, |wake| self.next_wake.min(*wake));
        }
        true
    }

    /// Sends what one line has; answers false when the outbox is full.
    fn transmit_line(&mut self, slot: u32, now: Now, outbox: &mut impl Outbox) -> bool {
        let Self { netcode, seats, room, uplink, .. } = self;
        let Some(seat) = seats.get_mut(slot as usize).and_then(Option::as_mut) else {
            self.set_wake(slot, Instant::NEVER);
            return true;
        };
        let client = seat.client();
        if let (Line::Channels(connection), Some(at)) = (&mut seat.line, netcode.heard_at(client)) {
            connection.heard(at);
        }
        let mut sink = ClientSink::new(netcode, client, now, outbox, room);
        let messages = match &mut seat.line {
            Line::Payloads => 0,
            Line::Packets(packets) => {
                packets.transmit(now.monotonic, &mut sink);
                0
            }
            Line::Channels(connection) => connection.transmit_within(uplink.allowance(slot), now.monotonic, &mut sink),
        };
        uplink.spend(slot, messages, sink.left);
        if sink.full {
            return false;
        }
        let (over, deadline) = (seat.over(), seat.next_deadline(now.monotonic));
        if let Some(reason) = over {
            self.netcode.disconnect_for(client, reason);
            self.follow();
        } else {
            // What could not leave now is tried again a little later, not at once.
            self.set_wake(slot, deadline.max(now.monotonic.after(LEAST_WAIT)));
        }
        true
    }

    fn is_due(&self, slot: u32, now: Instant) -> bool {
        self.wakes.get(slot as usize).is_some_and(|wake| *wake <= now)
    }
}
