//! The windows, packet events and statistics of an endpoint: everything but fragments.

use alloc::boxed::Box;

use super::NumberSkips;
use super::config::{AckPolicy, EndpointConfig};
use super::nonce_draws::NonceDraws;
use super::nonce_sum::NonceSum;
use super::packet_events::PacketOutcomes;
use super::receive_window::{ReceiveWindow, ack_words, extended_ack_words};
use super::rtt::Rtt;
use super::stats::{EndpointCounters, EndpointStats};
use super::traffic_meter::{TrafficMeter, TrafficRates};
use super::{Acceptance, ReceivedPacket, constants};
use crate::congestion::{AckFaults, ArrivalOrder, LossDelays, SentPackets, SessionPacketKind};
use crate::reject::{Reject, Rejects};
use crate::wire::reliable::{Acks, MAX_HEADER_BYTES, ReliableHeader, Sequence};
use crate::wire::session_frame::{AckNonces, SessionFrame};
use slipgate_netcode::time::Instant;

/// Bytes of extended acknowledgements that are read at most: with the 32 of the header they cover 1,056 packets.
const MAX_EXTENDED_BYTES: usize = 128;
/// The delays of endpoints without congestion control, which wait for each packet alike.
const FIXED_LOSS_DELAYS: LossDelays = LossDelays::fixed(constants::LOST_AFTER);

/// A complete packet: from one datagram, or reassembled from fragments.
#[derive(Clone, Copy)]
pub(super) struct IncomingPacket<'a> {
    pub(super) header: ReliableHeader,
    pub(super) payload: &'a [u8],
}

/// Tracks which packets were sent and received, and measures the path.
pub(crate) struct PacketTracker {
    policy: Option<AckPolicy>,
    /// Bytes that each datagram costs below this layer.
    lower_layer_bytes: u32,
    /// Bytes that each datagram costs beside its payload, if they count for each fragment of a packet.
    overhead: Option<u32>,
    pub(crate) sent: SentPackets,
    /// Which numbers are skipped; `None` uses all of them.
    skips: Option<NumberSkips>,
    /// The nonces of sent packets; with `None` all are 0, and none is checked.
    nonces: Option<Box<NonceDraws>>,
    /// Whether the peer acknowledged a skipped number, or a packet of which it did not know the nonce.
    has_false_acks: bool,
    received: ReceiveWindow,
    /// Whether the newest accepted packet overtook none: decides how its acknowledgements are read.
    arrival_order: ArrivalOrder,
    rtt: Rtt,
    meter: TrafficMeter,
    pub(crate) counters: EndpointCounters,
    pub(crate) rejects: Rejects,
}

impl PacketTracker {
    pub(super) fn new(config: &EndpointConfig) -> Self {
        Self {
            policy: config.acks,
            lower_layer_bytes: config.lower_layer_bytes,
            overhead: None,
            sent: SentPackets::new(config.sent_window),
            skips: None,
            nonces: None,
            has_false_acks: false,
            received: ReceiveWindow::new(config.received_window),
            arrival_order: ArrivalOrder::Overtaken,
            rtt: Rtt::new(constants::RTT_SMOOTHING, config.rtt_history),
            meter: TrafficMeter::new(),
            counters: EndpointCounters::default(),
            rejects: Rejects::default(),
        }
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Skips numbers, and draws and checks nonces, from the first packet on.
    pub(crate) fn check_acks(&mut self, skips: NumberSkips) {
        self.nonces = Some(Box::new(skips.nonces()));
        self.skips = Some(skips);
    }

    /// Returns the nonces of the next packet, which has this header and these acknowledgements behind it.
    pub(crate) fn next_nonces(&mut self, header: &ReliableHeader, extended: &[u8]) -> AckNonces {
        let own = self.nonces.as_mut().map_or(0, |nonces| nonces.nonce(self.sent.next_number()));
        AckNonces { own, sum: self.received.nonce_sum(header, extended) }
    }

    /// Counts sent packets with all bytes on the path from now on, those of each fragment's headers too.
    pub(crate) fn count_headers(&mut self) {
        self.overhead = Some(self.lower_layer_bytes + MAX_HEADER_BYTES as u32);
    }

    /// Returns the header of the next packet.
    #[inline]
    pub(crate) fn next_header(&self) -> ReliableHeader {
        ReliableHeader { sequence: self.sent.next_sequence(), acks: self.received.acks() }
    }

    /// Returns the header of an ack-only packet, if one is due.
    #[inline]
    pub(crate) fn due_ack_header(&self, now: Instant) -> Option<ReliableHeader> {
        let acks = self.received.due_acks(self.policy?, now)?;
        Some(ReliableHeader { sequence: self.sent.next_sequence(), acks })
    }

    /// Returns whether an ack-only packet is due.
    pub(crate) fn owes_acks(&self, now: Instant) -> bool {
        self.due_ack_header(now).is_some()
    }

    /// Writes the acknowledgements before those of the header; see [`ReceiveWindow::extended_acks`].
    #[inline]
    pub(crate) fn extended_acks(&self, bits: &mut [u8]) -> usize {
        self.received.extended_acks(bits)
    }

    /// Records that `bytes` bytes of [`PacketTracker::extended_acks`] were sent behind the newest header.
    pub(crate) fn extended_acks_sent(&mut self, bytes: usize) {
        self.received.extended_acks_sent(bytes);
    }

    /// Records that the packet with this header was sent in `datagrams` datagrams. Returns its bytes on the path.
    pub(super) fn on_packet_sent(
        &mut self,
        header: ReliableHeader,
        kind: SessionPacketKind,
        payload_bytes: usize,
        datagrams: u32,
        now: Instant,
        outcomes: &mut impl PacketOutcomes,
    ) -> u32 {
        let bytes = match self.overhead {
            Some(overhead) => saturated(payload_bytes).saturating_add(overhead.saturating_mul(datagrams)),
            None => self.with_lower_layers(payload_bytes),
        };
        let Self { sent, counters, meter, .. } = self;
        sent.on_packet_sent(kind, bytes, now, |packet| {
            // The window was full: its oldest packet in flight made room and counts as lost.
            counters.displaced += 1;
            counters.lost += 1;
            meter.on_lost(now);
            outcomes.on_lost(packet);
        });
        self.received.on_acks_sent(header.acks);
        self.meter.on_sent(bytes, now);
        self.counters.sent += 1;
        self.counters.acks_sent += u64::from(kind == SessionPacketKind::AckOnly);
        let skipped = self.skips.as_mut().map_or(0, |skips| skips.on_packet_sent(bytes));
        (0..skipped).for_each(|_| self.sent.skip(now));
        bytes
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Accepts a complete packet, and processes its acknowledgements (§2.4).
    pub(super) fn receive<'a>(
        &mut self,
        incoming: IncomingPacket<'a>,
        now: Instant,
        accept: impl FnOnce(&ReceivedPacket<'a>) -> Acceptance,
        outcomes: &mut impl PacketOutcomes,
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
        self.on_header_acks(acks, now, outcomes);
        Ok(packet)
    }

    /// Moves the window to the packet of an accepted fragment: headers then report it as the newest, and as missing.
    pub(super) fn expect(&mut self, sequence: Sequence) {
        self.received.advance(sequence);
    }

    /// Notes the nonce of an accepted packet, and checks that its sender knows those of all that it acknowledges.
    pub(crate) fn on_nonces(&mut self, packet: &ReceivedPacket<'_>, frame: &SessionFrame<'_>) {
        self.received.set_nonce(packet.sequence, frame.nonces.own);
        let Self { nonces: Some(nonces), sent, arrival_order, .. } = self else { return };
        let mut sum = NonceSum::new(packet.sequence);
        let is_known = ack_words(packet.acks, frame.extended_acks).all(|(ack, bits)| {
            let mut known = [0, 0];
            let resolved = sent.resolve_acks(ack, bits, *arrival_order, |back, number, bits| {
                let [low, high] = nonces.planes(number, bits);
                known = [known[0] | low << back, known[1] | high << back];
            });
            sum.add(known);
            resolved
        });
        self.has_false_acks |= is_known && sum.get() != frame.nonces.sum;
    }

    /// Counts the bytes of an accepted datagram.
    pub(super) fn count_datagram(&mut self, bytes: usize, now: Instant) {
        self.meter.on_datagram(self.with_lower_layers(bytes), now);
    }

    /// Returns whether a packet is neither stale nor a duplicate.
    pub(crate) fn is_new(&self, sequence: Sequence) -> bool {
        self.received.check(sequence).is_ok()
    }

    pub(super) fn has_received(&self, sequence: Sequence) -> bool {
        self.received.has(sequence)
    }

    /// Processes acknowledgements of packets before those of the header. They give no sample of the round-trip time.
    pub(crate) fn on_extended_acks(
        &mut self,
        ack: Sequence,
        bits: &[u8],
        now: Instant,
        outcomes: &mut impl PacketOutcomes,
    ) {
        let mut faults = AckFaults::default();
        // Our own peers send at most 28 bytes; what a foreign peer adds beyond the limit is ignored.
        for (ack, bits) in extended_ack_words(ack, bits.get(..MAX_EXTENDED_BYTES).unwrap_or(bits)) {
            let found = self.on_acks(ack, bits, now, outcomes);
            faults = AckFaults { unsent: faults.unsent | found.unsent, skipped: faults.skipped | found.skipped };
        }
        self.count_faults(faults);
    }

    /// Processes the acknowledgements of a header.
    fn on_header_acks(&mut self, acks: Acks, now: Instant, outcomes: &mut impl PacketOutcomes) {
        let faults = self.on_acks(acks.ack, acks.bits.into(), now, outcomes);
        self.count_faults(faults);
    }

    /// Processes acknowledgements: bit i of `bits` stands for packet `ack` - i.
    fn on_acks(&mut self, ack: Sequence, bits: u64, now: Instant, outcomes: &mut impl PacketOutcomes) -> AckFaults {
        let Self { sent, rtt, meter, counters, arrival_order, .. } = self;
        sent.on_acks(ack, bits, *arrival_order, |acked| {
            // DECISION: only the newest packet of a header gives a sample of the round-trip time. The ones before it
            // waited at the peer, for up to 16 packets of a one-sided stream, or for the next header after a lost one
            // (RFC 9002, section 5.1, has the same rule). A packet that counted as lost gives none, as in the article.
            if acked.packet.sequence == ack && !acked.late {
                rtt.sample(now.as_nanos().saturating_sub(acked.packet.sent_at.as_nanos()));
            }
            meter.on_acked(acked, now);
            counters.acked += 1;
            counters.late_acks += u64::from(acked.late);
            outcomes.on_acked(acked, now);
        })
    }

    fn count_faults(&mut self, faults: AckFaults) {
        // One count for a datagram, however many unsent packets it names.
        self.counters.acks_of_unsent += u64::from(faults.unsent);
        self.has_false_acks |= faults.skipped;
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Declares packets lost that were not acknowledged in time, for endpoints without congestion control.
    pub(super) fn tick(&mut self, now: Instant, outcomes: &mut impl PacketOutcomes) {
        if self.sent.has_packets_in_flight() {
            self.detect_lost(FIXED_LOSS_DELAYS, now, outcomes);
        }
    }

    /// Declares packets lost by these delays.
    pub(crate) fn detect_lost(&mut self, delays: LossDelays, now: Instant, outcomes: &mut impl PacketOutcomes) {
        let Self { sent, meter, counters, .. } = self;
        sent.detect_lost(delays, now, |packet| {
            counters.lost += 1;
            meter.on_lost(now);
            outcomes.on_lost(packet);
        });
    }

    /// Returns when an ack-only packet is due at the latest, if nothing arrives; `NEVER` if none is.
    pub(super) fn ack_deadline(&self) -> Instant {
        self.policy.map_or(Instant::NEVER, |policy| self.received.ack_deadline(policy))
    }

    /// Returns when [`PacketTracker::tick`] declares the next packet lost.
    pub(super) fn loss_deadline(&self) -> Option<Instant> {
        self.sent.loss_deadline(FIXED_LOSS_DELAYS)
    }

    // Queries -------------------------------------------------------------------------------------------------------

    /// Returns whether the peer acknowledged a number that no packet had, or did not know the nonces of the packets
    /// that it acknowledged.
    pub(crate) const fn has_false_acks(&self) -> bool {
        self.has_false_acks
    }

    pub(super) fn stats(&self, now: Instant) -> EndpointStats {
        let TrafficRates { loss, sent, received, acked } = self.meter.rates(now);
        let (counters, rejects) = (self.counters, self.rejects);
        EndpointStats { rtt: self.rtt.stats(), loss, sent, received, acked, counters, rejects }
    }

    fn with_lower_layers(&self, bytes: usize) -> u32 {
        saturated(bytes).saturating_add(self.lower_layer_bytes)
    }
}

fn saturated(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
