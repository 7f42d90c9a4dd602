//! What leaves: messages, as far as the path should carry them now, and acknowledgements.

use super::{Connection, Stage};
use crate::channel::control::{self, Hello, VERSION};
use crate::channel::{ChannelId, Means, SendError, SendOptions, Wish};
use crate::congestion::{Demand, FLOOR_PACKET_BYTES};
use crate::reliability::Sink;
use crate::session::path::Cargo;
use crate::wire::reliable::MAX_HEADER_BYTES;
use slipgate_netcode::time::Instant;

/// A packet whose payload would have to be smaller is not worth its headers.
const LEAST_PAYLOAD: u64 = 64;
/// What a greeting alone wishes, which is smaller.
const GREETING: Wish = Wish { bytes: LEAST_PAYLOAD, ahead: 0, kept: 0 };

impl Connection {
    /// Puts a message into a channel's queue; it is copied once.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
        now: Instant,
    ) -> Result<(), SendError> {
        self.channels.send(channel, message, options, now)
    }

    /// Sends what waits, as far as the path should carry it now, and the acknowledgements that are due.
    pub fn transmit(&mut self, now: Instant, sink: &mut impl Sink) {
        self.transmit_within(u64::MAX, now, sink);
    }

    /// As [`transmit`](Self::transmit), with messages in at most `allowance` bytes on the path, for an uplink that many
    /// connections share; acknowledgements and farewells need none. Answers the bytes of messages that left.
    pub fn transmit_within(&mut self, allowance: u64, now: Instant, sink: &mut impl Sink) -> u64 {
        if self.ticked_at.is_none_or(|ticked_at| now.since(ticked_at) >= self.path.tick_interval())
            && self.ticked_at != Some(now)
        {
            // It slept until something was sent: this is a tick as any other, with a whole tick's budgets. What leaves
            // sooner, because something arrived, has what the tick before left.
            self.tick(now);
        }
        if self.path.probe_deadline().is_some_and(|deadline| deadline <= now) {
            self.doubt(now);
            if self.stage == Stage::Open && self.is_full() {
                // What has to wait waits for an answer to this one (RFC 9002, section 7.5: probes pass every window).
                self.send_packet(self.most(), Means::AMPLE, now, sink);
            }
        }
        if self.unanswered.is_in_vain() {
            self.give_up();
        }
        match self.stage {
            Stage::Open => return self.transmit_open(allowance, now, sink),
            Stage::Leaving(leaving) => self.transmit_farewell(leaving, now, sink),
            Stage::Left => {
                // The peer says goodbye until it hears that this was heard.
                if self.path.send_framed(Cargo::AcksAlone, self.most(), now, sink, |_, _| 0) > 0 {
                    self.stage = Stage::Over;
                }
            }
            Stage::Over => {}
        }
        0
    }

    fn transmit_open(&mut self, allowance: u64, now: Instant, sink: &mut impl Sink) -> u64 {
        let (mut left, least) = (0, self.least_content());
        loop {
            self.path.set_demand(if self.may_send() { Demand::Unmet } else { Demand::Met });
            let Some(most) = self.path.packet_budget(self.most(), self.wish(now), now) else { break };
            let allowed = allowance.saturating_sub(left + self.path.overhead());
            if allowed < least {
                // It is the uplink that keeps it back, and not the path.
                self.path.set_demand(Demand::Met);
                break;
            }
            let (most, means) = (most.min(usize::try_from(allowed).unwrap_or(most)), self.path.means(now));
            let bytes = self.send_packet(most, means, now, sink);
            if bytes == 0 {
                break;
            }
            left += u64::from(bytes);
        }
        if self.path.owes_acks(now) {
            self.path.send_framed(Cargo::AcksAlone, self.most(), now, sink, |_, _| 0);
            // More arrived in one turn than one frame can tell.
            self.path.send_plain_acks(now, sink);
            self.channels.skip(self.path.newest_departure());
        }
        left
    }

    /// A packet whose payload would have to be smaller does not leave. One without room for slices would keep them waiting
    /// for ever while messages want all that there is.
    fn least_content(&self) -> u64 {
        if self.channels.waiting_bytes().is_some() {
            return LEAST_PAYLOAD;
        }
        u64::from(FLOOR_PACKET_BYTES).saturating_sub(self.path.overhead()).max(LEAST_PAYLOAD)
    }

    /// Whether anything waits that may leave as far as this side is concerned.
    pub(super) fn may_send(&self) -> bool {
        self.waits() && !self.is_full()
    }

    /// Whether more is under way than one can wait for: then what waits has to wait for an acknowledgement or a loss.
    fn is_full(&self) -> bool {
        self.path.is_full() || self.channels.is_full()
    }

    /// What goes first of what waits.
    pub(super) fn wish(&self, now: Instant) -> Wish {
        let wish = self.channels.wish(now).unwrap_or(GREETING);
        let bytes = || self.path.bulk(now).max(self.channels.least_bulk()) as u64;
        if wish.bytes == u64::MAX { Wish { bytes: bytes(), ..wish } } else { wish }
    }

    /// Whether anything waits to be said.
    fn waits(&self) -> bool {
        self.hello.wants_packet() || self.channels.wants_to_send()
    }

    /// About how many bytes on the path would leave now, if nothing limited them but this connection's path.
    #[must_use]
    pub fn wanted_bytes(&self, now: Instant) -> u64 {
        if self.stage != Stage::Open || !self.may_send() {
            return 0;
        }
        let allowed = self.path.budget_of(self.wish(now), now) as u64 + self.path.overhead();
        let packets = |bytes: u64| bytes / self.most() as u64 + 1;
        // What frames add to messages is about as much again as their packets' own headers.
        let wanted = self.channels.waiting_bytes().map(|bytes| bytes + 2 * packets(bytes) * self.path.overhead());
        wanted.unwrap_or(u64::MAX).min(allowed)
    }

    /// Sends one packet of messages; answers its bytes on the path, 0 if it did not leave.
    fn send_packet(&mut self, most: usize, means: Means, now: Instant, sink: &mut impl Sink) -> u32 {
        let greeting = self.greeting();
        let Self { path, channels, hello, unanswered, .. } = self;
        let mut number = None;
        let sent = path.send_framed(Cargo::Data, most, now, sink, |sequence, room| {
            number = Some(sequence);
            let start = greeting.map_or(0, |greeting| control::write_hello(&greeting, room));
            let Some(rest) = room.get_mut(start..) else { return 0 };
            let before = most.saturating_sub(rest.len());
            let frames = channels.write_within(sequence, now, rest, means.behind(before));
            // A greeting that is under way already is no reason for a packet.
            if frames > 0 || hello.wants_packet() { start + frames } else { 0 }
        });
        if sent > 0
            && let Some(number) = number
        {
            hello.said(number);
            unanswered.asked(now);
        }
        sent
    }

    /// The path is silent although something is under way: what was said and sent may have got lost.
    fn doubt(&mut self, now: Instant) {
        self.hello.doubt();
        self.channels.on_probe();
        self.path.probed(now);
    }

    /// What this side says of itself, as long as that was not heard.
    pub(super) fn greeting(&self) -> Option<Hello> {
        (!self.hello.is_heard()).then_some(Hello {
            version: VERSION,
            oldest_version: VERSION,
            layout: self.layout,
            payload_bytes: self.announced_payload_bytes,
            abilities: 0,
        })
    }

    /// The most bytes behind a packet's header.
    pub(super) const fn most(&self) -> usize {
        self.max_payload_bytes - MAX_HEADER_BYTES
    }
}
