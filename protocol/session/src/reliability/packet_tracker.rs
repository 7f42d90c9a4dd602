//! The windows, packet events and statistics of an endpoint: everything but fragments.

use alloc::boxed::Box;
use core::time::Duration;

use super::NumberSkips;
use super::config::{AckPolicy, DEFAULT_ACK_AFTER, EndpointConfig, LossDeadline};
use super::receive_window::ReceiveWindow;
use super::rtt::Rtt;
use super::send_window::{AckOutcome, AckedPacket, ArrivalOrder, SendWindow, SessionPacketKind};
use super::stats::{EndpointCounters, EndpointStats};
use super::traffic_meter::{TrafficMeter, TrafficRates};
use super::{Acceptance, PacketEvent, ReceivedPacket, constants};
use crate::reject::{Reject, Rejects};
use crate::wire::reliable::{ACKS_PER_HEADER, Acks, ReliableHeader, Sequence};
use slipgate_netcode::time::Instant;

/// Bytes of extended acknowledgements that are read at most: with the 32 of the header they cover 1,056 packets.
const MAX_EXTENDED_BYTES: usize = 128;

/// A complete packet: from one datagram, or reassembled from fragments.
#[derive(Clone, Copy)]
pub(super) struct IncomingPacket<'a> {
    pub(super) header: ReliableHeader,
    pub(super) payload: &'a [u8],
}

/// Tracks which packets were sent and received, and measures the path.
pub(super) struct PacketTracker {
    loss: LossDeadline,
    policy: Option<AckPolicy>,
    lower_layer_bytes: u32,
    sent: SendWindow,
    /// Which numbers are skipped; `None` uses all of them. Boxed, because endpoints of reliable 1.0 alone have none.
    skips: Option<Box<NumberSkips>>,
    /// Whether the peer acknowledged a skipped number.
    acked_skipped: bool,
    received: ReceiveWindow,
    /// Whether the newest accepted packet overtook none: decides how its acknowledgements are read.
    arrival_order: ArrivalOrder,
    rtt: Rtt,
    meter: TrafficMeter,
    pub(super) counters: EndpointCounters,
    pub(super) rejects: Rejects,
}

impl PacketTracker {
    pub(super) fn new(config: &EndpointConfig) -> Self {
        Self {
            loss: config.loss,
            policy: config.acks,
            lower_layer_bytes: config.lower_layer_bytes,
            sent: SendWindow::new(config.sent_window),
            skips: None,
            acked_skipped: false,
            received: ReceiveWindow::new(config.received_window),
            arrival_order: ArrivalOrder::Overtaken,
            rtt: Rtt::new(constants::RTT_SMOOTHING, config.rtt_history),
            meter: TrafficMeter::new(),
            counters: EndpointCounters::default(),
            rejects: Rejects::default(),
        }
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Skips numbers from now on.
    pub(super) fn skip_numbers(&mut self, skips: NumberSkips) {
        self.skips = Some(Box::new(skips));
    }

    /// Returns the sequence number of the next packet.
    pub(super) const fn next_sequence(&self) -> Sequence {
        self.sent.next()
    }

    /// Returns the header of the next packet.
    pub(super) fn next_header(&self) -> ReliableHeader {
        ReliableHeader { sequence: self.sent.next(), acks: self.received.acks() }
    }

    /// Returns the header of an ack-only packet, if one is due.
    pub(super) fn due_ack_header(&self, now: Instant) -> Option<ReliableHeader> {
        let acks = self.received.due_acks(self.policy?, now)?;
        Some(ReliableHeader { sequence: self.sent.next(), acks })
    }

    /// Returns whether an ack-only packet is due.
    pub(super) fn owes_acks(&self, now: Instant) -> bool {
        self.due_ack_header(now).is_some()
    }

    /// Writes the acknowledgements before those of the header; see [`ReceiveWindow::extended_acks`].
    pub(super) fn extended_acks(&self, bits: &mut [u8]) -> usize {
        self.received.extended_acks(bits)
    }

    /// Records that `bytes` bytes of [`PacketTracker::extended_acks`] were sent behind the newest header.
    pub(super) fn extended_acks_sent(&mut self, bytes: usize) {
        self.received.extended_acks_sent(bytes);
    }

    /// Records that the packet with this header was sent.
    pub(super) fn on_packet_sent(
        &mut self,
        header: ReliableHeader,
        kind: SessionPacketKind,
        payload_bytes: usize,
        now: Instant,
    ) {
        let bytes = self.with_lower_layers(payload_bytes);
        if self.sent.on_packet_sent(kind, bytes, now) {
            // The window was full: its oldest unacknowledged packet made room and counts as lost.
            self.counters.displaced += 1;
            self.count_lost(now);
        }
        self.received.on_acks_sent(header.acks);
        self.meter.on_sent(bytes, now);
        self.counters.sent += 1;
        self.counters.acks_sent += u64::from(kind == SessionPacketKind::AckOnly);
        let skipped = self.skips.as_mut().map_or(0, |skips| skips.on_packet_sent(bytes));
        (0..skipped).for_each(|_| self.sent.skip(now));
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Accepts a complete packet, and processes its acknowledgements (§2.4).
    pub(super) fn receive<'a>(
        &mut self,
        incoming: IncomingPacket<'a>,
        now: Instant,
        accept: impl FnOnce(&ReceivedPacket<'a>) -> Acceptance,
    ) -> Result<ReceivedPacket<'a>, Reject> {
        let IncomingPacket { header: ReliableHeader { sequence, acks }, payload } = incoming;
        // The application sees only packets that are new: duplicates and stale ones end here.
        self.received.check(sequence)?;
        let packet = ReceivedPacket { sequence, payload, acks };
        let acceptance = accept(&packet);
        if acceptance == Acceptance::Refuse {
            return Err(Reject::Refused);
        }
        self.arrival_order = self.received.arrival_order(sequence);
        // An unacknowledged packet must not be marked: a mark would put it into the ack bits.
        if acceptance != Acceptance::TakeUnacknowledged {
            self.received.mark(sequence);
        }
        if acceptance == Acceptance::Take && !payload.is_empty() {
            self.received.require_ack(sequence, now);
        }
        // Read the acknowledgements last: a refused packet must not acknowledge anything.
        self.on_acks(acks, now);
        Ok(packet)
    }

    /// Moves the window to the packet of an accepted fragment: headers then report it as the newest, and as missing.
    pub(super) fn expect(&mut self, sequence: Sequence) {
        self.received.advance(sequence);
    }

    /// Counts the bytes of an accepted datagram.
    pub(super) fn count_datagram(&mut self, bytes: usize, now: Instant) {
        self.meter.on_datagram(self.with_lower_layers(bytes), now);
    }

    pub(super) fn has_received(&self, sequence: Sequence) -> bool {
        self.received.has(sequence)
    }

    /// Processes acknowledgements of packets before those of the header. They give no sample of the round-trip time.
    pub(super) fn on_extended_acks(&mut self, ack: Sequence, bits: &[u8], now: Instant) {
        let mut names_unsent = false;
        // Our own peers send at most 28 bytes; what a foreign peer adds beyond the limit is ignored.
        for sequence in extended_arrivals(ack, bits.get(..MAX_EXTENDED_BYTES).unwrap_or(bits)) {
            match self.sent.on_ack(sequence, self.arrival_order, now) {
                AckOutcome::NewlyAcked(packet) => self.count_acked(&packet, now),
                AckOutcome::AlreadyKnown => {}
                AckOutcome::NeverSent => names_unsent = true,
                AckOutcome::Skipped => (names_unsent, self.acked_skipped) = (true, true),
            }
        }
        // One count for a datagram, however many unsent packets it names.
        self.counters.acks_of_unsent += u64::from(names_unsent);
    }

    /// Processes the acknowledgements of a header.
    fn on_acks(&mut self, acks: Acks, now: Instant) {
        let mut names_unsent = false;
        for (index, sequence) in acks.arrived().enumerate() {
            match self.sent.on_ack(sequence, self.arrival_order, now) {
                AckOutcome::NewlyAcked(packet) => {
                    if self.is_rtt_sample(&packet, index) {
                        self.rtt.sample(packet.age);
                    }
                    self.count_acked(&packet, now);
                }
                AckOutcome::AlreadyKnown => {}
                AckOutcome::NeverSent => names_unsent = true,
                AckOutcome::Skipped => (names_unsent, self.acked_skipped) = (true, true),
            }
        }
        self.counters.acks_of_unsent += u64::from(names_unsent);
    }

    /// Returns whether an acknowledgement is a sample of the round-trip time. `index` is its position in the header,
    /// newest first.
    ///
    /// DECISION: only the newest packet of a header gives a sample. The ones before it waited at the peer, for up to
    /// 16 packets of a one-sided stream, or for the next header after a lost one (RFC 9002, section 5.1, has the same
    /// rule). A packet that counted as lost gives none, as in the article, unless the deadline follows the round-trip
    /// time: a path slower than one second would never give a sample.
    fn is_rtt_sample(&self, packet: &AckedPacket, index: usize) -> bool {
        let in_time = !packet.late || self.loss == LossDeadline::AtLeastRtt;
        index == 0 && in_time
    }

    fn count_acked(&mut self, packet: &AckedPacket, now: Instant) {
        self.meter.on_acked(packet, now);
        self.counters.acked += 1;
        self.counters.late_acks += u64::from(packet.late);
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Declares packets lost that were not acknowledged in time.
    pub(super) fn tick(&mut self, now: Instant) {
        let deadline = self.lost_report_delay();
        while self.sent.declare_overdue_lost(deadline, now) {
            self.count_lost(now);
        }
    }

    /// Returns when [`PacketTracker::tick`] or an ack-only packet is due at the latest, if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let ack = self.policy.and_then(|policy| self.received.ack_deadline(policy));
        let loss = self.sent.oldest_unacked_sent_at().map(|since| since.after(self.lost_report_delay()));
        ack.into_iter().chain(loss).min()
    }

    fn lost_report_delay(&self) -> Duration {
        let bound = match self.loss {
            // The peer may hold an acknowledgement for as long as its policy allows, which the round trip does not
            // contain.
            LossDeadline::Fixed => None,
            LossDeadline::AtLeastRtt => self.rtt.bound().map(|bound| bound + DEFAULT_ACK_AFTER),
        };
        bound.map_or(constants::LOST_AFTER, |bound| bound.max(constants::LOST_AFTER))
    }

    fn count_lost(&mut self, now: Instant) {
        self.meter.on_lost(now);
        self.counters.lost += 1;
    }

    // Queries -------------------------------------------------------------------------------------------------------

    /// Returns whether the peer acknowledged a number that no packet had.
    pub(super) const fn acked_skipped(&self) -> bool {
        self.acked_skipped
    }

    /// Returns [`SendWindow::peer_received_end`].
    pub(super) const fn peer_received_end(&self) -> u64 {
        self.sent.peer_received_end()
    }

    /// Returns the oldest packet event that was not polled yet.
    pub(super) fn poll(&mut self) -> Option<PacketEvent> {
        self.sent.poll()
    }

    pub(super) fn stats(&self, now: Instant) -> EndpointStats {
        let TrafficRates { loss, sent, received, acked } = self.meter.rates(now);
        let counters = EndpointCounters { dropped_events: self.sent.dropped_events(), ..self.counters };
        let rejects = self.rejects;
        EndpointStats { rtt: self.rtt.stats(), loss, sent, received, acked, counters, rejects }
    }

    pub(super) fn reset(&mut self) {
        self.sent.reset();
        self.acked_skipped = false;
        self.received.reset();
        self.arrival_order = ArrivalOrder::Overtaken;
        self.rtt.reset();
        self.meter.reset();
        self.counters = EndpointCounters::default();
        self.rejects = Rejects::default();
    }

    fn with_lower_layers(&self, bytes: usize) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(self.lower_layer_bytes)
    }
}

/// Returns the packets that extended acknowledgements name: bit i of the whole stands for `ack` - 32 - i.
fn extended_arrivals(ack: Sequence, bits: &[u8]) -> impl Iterator<Item = Sequence> {
    let newest_first =
        (0_u16..).zip(bits).flat_map(|(index, byte)| (0..8).map(move |bit| (index * 8 + bit, byte >> bit)));
    newest_first.filter(|(_, bit)| bit & 1 != 0).map(move |(back, _)| ack - (ACKS_PER_HEADER + back))
}

#[cfg(test)]
mod tests;
