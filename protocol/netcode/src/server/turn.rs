//! A turn of the server: datagrams that arrive, and the tick that ends the turn.

use core::time::Duration;

use super::NetcodeServer;
use super::report::DisconnectReason;
use super::response::is_response;
use super::slots::{ClientHandle, DuePackets, SlotDeadline};
use crate::Payload;
use crate::address::Address;
use crate::discard::Discard;
use crate::time::{Instant, Now};
use crate::timing::{DISCONNECT_PACKETS, MAX_TIMEOUT};
use crate::wire::packet::REQUEST_PREFIX;

/// The time between two ticks after which the server was asleep: stopped, or starved by other programs.
const ASLEEP: Duration = Duration::from_secs(1);

/// The time that a client has after the server's own sleep until a packet of it must arrive: ten of its keep-alives.
const GRACE_AFTER_SLEEP: Duration = Duration::from_secs(1);

/// The interval of sweeps of a shared registry.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);

impl NetcodeServer {
    /// Handles a received datagram. It is decrypted in place, and a returned payload borrows it.
    ///
    /// # Errors
    /// The [`Discard`] reason when the datagram was dropped. [`discards`](Self::discards) has counted it.
    #[inline]
    pub fn handle<'d>(
        &mut self,
        from: Address,
        datagram: &'d mut [u8],
        now: Now,
    ) -> Result<Option<(ClientHandle, Payload<'d>)>, Discard> {
        let result = self.dispatch(from, datagram, now);
        // The only place that counts, so that each datagram is counted at most once.
        if let Err(reason) = result {
            self.discards += reason;
        }
        result
    }

    #[inline]
    fn dispatch<'d>(
        &mut self,
        from: Address,
        datagram: &'d mut [u8],
        now: Now,
    ) -> Result<Option<(ClientHandle, Payload<'d>)>, Discard> {
        self.notice_sleep(now.monotonic);
        let Some(prefix) = datagram.first().copied() else { return Err(Discard::Empty) };
        // Requests are unencrypted, so their prefix is checked before any lookup.
        if prefix == REQUEST_PREFIX {
            return self.on_request(from, datagram, now).map(|()| None);
        }
        match self.slots.at_address(&from) {
            // A response from a slot's address may belong to a takeover by the same player.
            Some(slot) if !is_response(prefix) => self.on_established(slot, datagram, now.monotonic),
            slot => {
                let unknown =
                    slot.map_or(Discard::UnknownSender, |slot| self.occupied(slot, Discard::AddressConnected));
                match self.on_response(from, unknown, datagram, now) {
                    Ok(()) => Ok(None),
                    Err(Discard::UnknownSender) if self.ended.contains(&from, now.monotonic) => {
                        Err(Discard::ConnectionEnded)
                    }
                    Err(reason) => Err(reason),
                }
            }
        }
    }

    /// Records that the server was asleep, if the last tick is long ago. Silence in that time proves nothing.
    #[inline]
    fn notice_sleep(&mut self, now: Instant) {
        if self.asleep_since.is_none() && now.since(self.last_tick) > ASLEEP {
            self.asleep_since = Some(self.last_tick);
            self.backlog_until = now;
        }
    }

    /// Ends a turn: disconnects clients that timed out, schedules keep-alives, forgets expired entries and restores the
    /// budgets of a turn.
    ///
    /// If the last tick was more than a second ago, the server itself was asleep: it waits another second for packets
    /// of its clients. A program that ticks less than once per second therefore times no client out.
    pub fn tick(&mut self, now: Now) {
        self.notice_sleep(now.monotonic);
        if self.asleep_since.take().is_some() {
            self.slots.used().for_each(|slot| self.slots.extend_timeout(slot, now.monotonic, GRACE_AFTER_SLEEP));
        }
        self.end_turn(now);
    }

    fn end_turn(&mut self, now: Now) {
        self.last_tick = now.monotonic;
        // Each slot compares this number with its own, which restores the slots' budgets without a loop.
        self.turn += 1;
        self.turn_budgets.start_turn();
        self.reply_to_queries(now.monotonic);
        for slot in self.slots.used() {
            match self.slots.expired_deadline(slot, now.monotonic) {
                // The client may be alive behind a path that is broken in one direction, or stopped for a while. It
                // learns of the end by the disconnect packets.
                Some(SlotDeadline::Timeout) => self.end(slot, DisconnectReason::TimedOut, DISCONNECT_PACKETS),
                Some(SlotDeadline::KeepAlive) => self.slots.add_due(slot, DuePackets::KEEP_ALIVE),
                None => {}
            }
        }
        self.pending.sweep(now.monotonic);
        self.ended.sweep(now.monotonic);
        // A shared registry is swept every 20 ms: a lock in every turn of every shard would cost more than the sweep.
        if self.has_queries.is_none() || now.monotonic >= self.next_sweep {
            self.next_sweep = now.monotonic.after(SWEEP_INTERVAL);
            self.registry.lock().sweep(now);
        }
    }

    /// Ends a turn like [`tick`](Self::tick) when received packets are still unread. Every client's timeout restarts,
    /// because its packets may be among them. After a sleep of the server, every client has at least another second.
    pub fn tick_with_backlog(&mut self, now: Now) {
        self.notice_sleep(now.monotonic);
        self.backlog_until = now.monotonic;
        let extension = if self.asleep_since.is_some() { GRACE_AFTER_SLEEP } else { MAX_TIMEOUT };
        // This precedes `end_turn`, which would disconnect clients with packets in the socket's buffer.
        self.slots.used().for_each(|slot| self.slots.extend_timeout(slot, now.monotonic, extension));
        self.end_turn(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::key::{Key, Seed};
    use crate::server::ServerConfig;
    use crate::time::UnixMillis;

    #[test]
    fn server_with_a_tick_after_exactly_a_second_was_awake() {
        let at = |time| Now { monotonic: Instant::from_start(time), unix: UnixMillis(1_000_000) };
        let config = ServerConfig::new(1, 1, &[core::net::SocketAddr::from(([192, 0, 2, 1], 40_000))]);
        let (keys, seed) = (Key::from([1; 32]).into(), Seed::from([2; 32]));
        let mut server = NetcodeServer::new(config, keys, &seed, at(Duration::ZERO)).unwrap();
        server.tick(at(Duration::ZERO));
        server.notice_sleep(at(Duration::from_secs(1)).monotonic);
        assert_eq!(server.asleep_since, None);
        server.notice_sleep(at(Duration::new(1, 1)).monotonic);
        assert_eq!(server.asleep_since, Some(Instant::default()));
    }
}
