//! The path of one connection: numbers and acknowledges packets, detects losses, and informs the congestion controller.
//!
//! The contents of packets are left to `messages` and `packets`.

mod ack_result;
mod allowance;
mod send_time;

use alloc::vec::Vec;
use core::time::Duration;

pub(super) use self::ack_result::AckResult;
pub(super) use self::allowance::PathAllowance;
use self::send_time::SendTimeEstimator;
use super::clock::PeerClock;
use crate::congestion::{
    CongestionState, CongestionStats, Demand, Feedback, NewestAck, PeerTime, Priority, SentPacket, SessionPacketKind,
    SocketDelay, Suggestion,
};
use crate::reject::Reject;
use crate::reliability::{
    Acceptance, EndpointConfig, EndpointConfigError, EndpointCore, EndpointStats, MemoryBudget, NumberSkips,
    PacketEvent, PacketEvents, ParsedPacket, Sink,
};
use crate::send_error::SendError;
use crate::wire::PayloadSpan;
use crate::wire::reliable::{Acks, MAX_HEADER_BYTES, ReliableHeader, Sequence};
use crate::wire::session_frame::{
    ArrivalEcho, MAX_EXTENDED_ACK_BYTES, SessionFrame, TIMESTAMP_REACH, Timestamp, unit_nanos,
};
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;

/// The longest time from reading the socket to sending in the same turn that a peer may claim: a third of a frame at
/// 60 Hz. A packet that the frame of a turn does not name may have waited in the socket since the turn began.
const MAX_TURN: Duration = Duration::from_millis(5);

/// The path of one connection.
pub(super) struct ConnectionPath {
    endpoint: EndpointCore,
    congestion: CongestionState,
    /// Bytes that a datagram costs below its payload.
    lower_layer_bytes: u32,
    peer_clock: PeerClock,
    send_times: SendTimeEstimator,
    socket_delay: SocketDelay,
    /// The newest packet that arrived, and when: the next frame echoes it.
    newest_arrival: Option<NewestArrival>,
    ack_result: AckResult,
}

/// When a packet arrived, and when it left.
///
/// # Examples
/// ```
/// use core::time::Duration;
///
/// use slipgate_netcode::time::Instant;
/// use slipgate_session::connection::PacketTimes;
///
/// /// Returns the moment to which the state is rewound for a shot: at most 200 ms before the packet arrived.
/// fn rewind_to(times: PacketTimes) -> Instant {
///     let age = times.sent.map_or(Duration::ZERO, |sent| times.arrived.since(sent));
///     let excess = age.saturating_sub(Duration::from_millis(200));
///     times.sent.unwrap_or(times.arrived).after(excess)
/// }
///
/// let arrived = Instant::from_start(Duration::from_secs(9));
/// let sent = Some(Instant::from_start(Duration::from_secs(8)));
/// assert_eq!(arrived.since(rewind_to(PacketTimes { arrived, sent })), Duration::from_millis(200));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketTimes {
    /// The earliest moment at which the datagram may have arrived in the socket. It arrived at most one interval
    /// between two reads of the socket later.
    pub arrived: Instant,
    /// When the peer claims that it sent the datagram, mapped to our clock; `None` before the first round trip was
    /// measured, and for peers without timestamps. The error is up to half of the path's asymmetry plus the time that
    /// sockets wait to be read.
    ///
    /// The peer writes the timestamp, so a cheating client chooses this value, for example to make its shots count as
    /// fired earlier. It is never later than `arrived`, and at most the largest recent round trip plus 50 ms earlier.
    /// A game that rewinds its state to this moment must limit how far.
    pub sent: Option<Instant>,
}

/// The newest packet that arrived.
#[derive(Clone, Copy)]
struct NewestArrival {
    sequence: Sequence,
    read_at: Instant,
    /// The maximum time that it waited in the socket.
    socket_delay: Duration,
}

/// The acknowledgement in a datagram of the peer.
#[derive(Clone, Copy)]
struct AckInfo {
    /// The newest packet that had arrived.
    ack: Sequence,
    arrival: Option<PeerArrival>,
}

/// When the peer read a packet of ours, in nanoseconds.
#[derive(Clone, Copy)]
struct PeerArrival {
    /// By the peer's clock.
    read_at: u64,
    /// How long the peer held its acknowledgement.
    ack_delay: u64,
    /// The maximum time that the packet waited in the peer's socket.
    socket_delay: u64,
}

impl ConnectionPath {
    pub(super) fn new(
        endpoint: EndpointConfig,
        memory: Option<MemoryBudget>,
        congestion: CongestionState,
    ) -> Result<Self, EndpointConfigError> {
        let lower_layer_bytes = endpoint.lower_layer_bytes;
        let mut endpoint = EndpointCore::new(endpoint, memory)?;
        endpoint.tracker.count_headers();
        Ok(Self {
            endpoint,
            lower_layer_bytes,
            congestion,
            peer_clock: PeerClock::default(),
            send_times: SendTimeEstimator::default(),
            socket_delay: SocketDelay::default(),
            newest_arrival: None,
            ack_result: AckResult::default(),
        })
    }

    /// Keeps the events of at most `window` packets for [`ConnectionPath::poll_event`].
    pub(super) fn with_events(self, window: u16) -> Self {
        Self { ack_result: AckResult { events: Some(PacketEvents::new(window)), ..self.ack_result }, ..self }
    }

    /// Skips packet numbers and draws nonces, so that a peer that acknowledges packets which it did not receive is
    /// found.
    pub(super) fn check_acks(&mut self, skips: NumberSkips) {
        self.endpoint.tracker.check_acks(skips);
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Processes a datagram of a peer of ours, which may have waited up to `unread` in the socket. `frame` is the
    /// session frame behind its header. A packet for which there is no memory is refused: the peer will count it as
    /// lost and send its contents again.
    pub(super) fn handle_framed(
        &mut self,
        packet: &ParsedPacket<'_>,
        frame: &SessionFrame<'_>,
        acceptance: Acceptance,
        unread: Duration,
        now: Instant,
    ) -> Result<PacketTimes, Reject> {
        let packet = self.endpoint.handle_parsed(packet, acceptance, now, &mut self.ack_result)?;
        let (sequence, Acks { ack, .. }) = (packet.sequence, packet.acks);
        let socket_delay = self.socket_delay.read(frame.sent, unread, now);
        // Reordered packets do not move the echo back.
        let is_newest = self.newest_arrival.is_none_or(|newest| sequence.is_newer_than(newest.sequence));
        // A packet that is not acknowledged must not be echoed: the echo names the newest acknowledged packet.
        if is_newest && acceptance != Acceptance::TakeUnacknowledged {
            self.newest_arrival = Some(NewestArrival { sequence, read_at: now, socket_delay });
        }
        self.endpoint.tracker.on_extended_acks(ack, frame.extended_acks, now, &mut self.ack_result);
        self.endpoint.tracker.on_nonces(&packet, frame);
        let since_previous = self.peer_clock.since_newest(frame.sent, now);
        let sent = self.peer_clock.on_timestamp(frame.sent, now);
        // Without an echo the delay of the acknowledgement is unknown, so this is not a sample of the path.
        let arrival = peer_arrival(sent, since_previous, frame);
        self.on_acks(arrival.map(|arrival| AckInfo { ack, arrival: Some(arrival) }), now);
        let arrived = now - socket_delay;
        let sent = self.send_times.on_packet(sent, now);
        Ok(PacketTimes { arrived, sent: sent.map(|sent| self.send_times.plausible(sent, arrived)) })
    }

    /// Processes a datagram of a peer that implements reliable 1.0 only. Returns the packet that it is or completes.
    pub(super) fn handle_plain(
        &mut self,
        datagram: &[u8],
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<(Sequence, PayloadSpan)>, Reject> {
        let packet = self.endpoint.handle(datagram, now, |_| Acceptance::Take, &mut self.ack_result)?;
        let Some(packet) = packet else { return Ok(None) };
        let (sequence, ack) = (packet.sequence, packet.acks.ack);
        let span = PayloadSpan::locate(datagram, packet.payload, scratch);
        self.on_acks(Some(AckInfo { ack, arrival: None }), now);
        self.ack_result.clear();
        Ok(Some((sequence, span)))
    }

    /// Processes what a datagram of the peer reports about our packets.
    fn on_acks(&mut self, info: Option<AckInfo>, now: Instant) {
        self.detect_lost(now);
        let sample = self.ack_result.newest.zip(info).and_then(|(newest, info)| sample(newest, info));
        if let Some(NewestAck { received_at: Some(_), sent_at, ack_delay, .. }) = sample {
            // Only samples with the peer's hold time are free of its tick interval.
            let round_trip = (now - ack_delay).as_nanos().saturating_sub(sent_at.as_nanos());
            self.send_times.on_round_trip(round_trip, now);
        }
        self.notify_controller(sample, now);
    }

    fn notify_controller(&mut self, newest: Option<NewestAck>, now: Instant) {
        self.congestion.on_feedback(Feedback {
            now,
            newest,
            acked: &self.ack_result.acked,
            lost: &self.ack_result.lost,
            late: &self.ack_result.late,
            delivered: self.ack_result.delivered,
            in_flight: self.in_flight(),
        });
    }

    /// Detects losses by acknowledgements and by time.
    fn detect_lost(&mut self, now: Instant) {
        if self.endpoint.tracker.sent.has_packets_in_flight() {
            self.endpoint.tracker.detect_lost(self.congestion.loss_delays(), now, &mut self.ack_result);
        }
    }

    /// Returns the bytes sent that are neither acknowledged nor lost.
    #[inline]
    fn in_flight(&self) -> u64 {
        self.endpoint.tracker.sent.in_flight()
    }

    /// Returns whether a packet is neither stale nor a duplicate.
    pub(super) fn is_new(&self, sequence: Sequence) -> bool {
        self.endpoint.tracker.is_new(sequence)
    }

    /// Counts a datagram that is dropped before the endpoint processes it.
    pub(super) fn count_reject(&mut self, reject: Reject) {
        self.endpoint.tracker.rejects += reject;
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Sends a packet of at most `max_bytes` of payload: a session frame, and behind it what `fill` writes. Returns
    /// its bytes on the path, or 0 if it did not leave: `fill` wrote nothing into an ack-eliciting packet, or the
    /// sink is full.
    pub(super) fn send_framed(
        &mut self,
        kind: SessionPacketKind,
        max_bytes: usize,
        now: Instant,
        sink: &mut dyn Sink,
        fill: impl FnOnce(Sequence, &mut [u8]) -> usize,
    ) -> u32 {
        let mut extended = [0; MAX_EXTENDED_ACK_BYTES];
        let extended_bytes = self.endpoint.tracker.extended_acks(&mut extended);
        let extended_acks = extended.get(..extended_bytes).unwrap_or_default();
        let header = self.endpoint.tracker.next_header();
        let frame = self.next_frame(&header, extended_acks, now);
        let write = |buf: &mut [u8]| write_framed(&frame, kind, buf, max_bytes, |rest| fill(header.sequence, rest));
        let sent = self.endpoint.send_framed(header, kind, now, sink, &mut self.ack_result, write);
        let Ok((_, bytes)) = sent else { return 0 };
        // A packet that did not leave must not mark its acknowledgements as sent.
        self.endpoint.tracker.extended_acks_sent(extended_bytes);
        match kind {
            SessionPacketKind::AckEliciting => self.congestion.on_sent(bytes, now),
            SessionPacketKind::AckOnly => self.congestion.on_ack_only_sent(bytes, now),
        }
        bytes
    }

    /// Returns the frame of the next packet, which has this header.
    fn next_frame<'a>(&mut self, header: &ReliableHeader, extended_acks: &'a [u8], now: Instant) -> SessionFrame<'a> {
        // An older arrival cannot be expressed: timestamps wrap after twice TIMESTAMP_REACH.
        let can_echo = |newest: &NewestArrival| {
            newest.sequence == header.acks.ack && !now.reached(newest.read_at, TIMESTAMP_REACH)
        };
        let newest = self.newest_arrival.filter(can_echo);
        let arrived = newest.map(|newest| ArrivalEcho::of(newest.read_at, newest.socket_delay));
        let nonces = self.endpoint.tracker.next_nonces(header, extended_acks);
        SessionFrame { sent: Timestamp::from(now), nonces, arrived, extended_acks }
    }

    /// Sends ack-only packets while more packets are unreported than the frame of the last one could report.
    pub(super) fn send_older_acks(&mut self, now: Instant, sink: &mut dyn Sink) {
        while let Some(header) = self.endpoint.tracker.due_ack_header(now) {
            let frame = self.next_frame(&header, &[], now);
            let write = |buf: &mut [u8]| {
                let mut writer = Writer::new(buf);
                frame.emit(&mut writer);
                writer.written().unwrap_or(0)
            };
            let kind = SessionPacketKind::AckOnly;
            let sent = self.endpoint.send_framed(header, kind, now, sink, &mut self.ack_result, write);
            let Ok((_, bytes)) = sent else { return };
            self.congestion.on_ack_only_sent(bytes, now);
        }
    }

    /// Sends a packet as reliable 1.0 does, in fragments if it is large.
    pub(super) fn send_plain(
        &mut self,
        payload: &[u8],
        datagrams: u32,
        now: Instant,
        sink: &mut dyn Sink,
    ) -> Result<Sequence, SendError> {
        let (sequence, bytes) = self.endpoint.send(payload, datagrams, now, sink, &mut self.ack_result)?;
        self.congestion.on_sent(bytes, now);
        Ok(sequence)
    }

    /// Sends the acknowledgements that are due as reliable 1.0 does, in packets without a payload.
    pub(super) fn send_plain_acks(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.endpoint.send_acks(now, sink, &mut self.ack_result);
    }

    /// Returns the number of the newest packet that has left.
    #[inline]
    pub(super) fn newest_sent(&self) -> Sequence {
        self.endpoint.tracker.sent.next_sequence() - 1
    }

    /// Returns whether a packet must leave now to carry acknowledgements.
    #[inline]
    pub(super) fn owes_acks(&self, now: Instant) -> bool {
        self.endpoint.tracker.owes_acks(now)
    }

    /// Returns the bytes that every datagram costs beside the payload behind its header.
    #[inline]
    pub(super) const fn overhead(&self) -> u64 {
        self.lower_layer_bytes as u64 + MAX_HEADER_BYTES as u64
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Detects losses by time, and lets the controller update its rate. Called once per tick.
    pub(super) fn tick(&mut self, now: Instant) {
        self.endpoint.tick_reassembly(now);
        self.detect_lost(now);
        if self.ack_result.acked.is_empty() {
            self.congestion.on_lost(&self.ack_result.lost);
        } else {
            // A packet that was refused still carried acknowledgements.
            self.notify_controller(None, now);
        }
        self.congestion.on_tick(self.in_flight(), now);
    }

    /// Returns the interval between ticks.
    pub(super) fn tick_interval(&self) -> Duration {
        self.congestion.tick_interval()
    }

    /// Returns the bytes that the pacer permits in the rest of an application's tick, after this turn.
    pub(super) fn paced_within(&self, tick: Duration, now: Instant) -> u64 {
        self.congestion.paced_within(tick, now)
    }

    /// Returns when the probe timeout fires (RFC 9002, section 6.2).
    pub(super) fn pto_deadline(&self) -> Option<Instant> {
        self.endpoint.tracker.sent.pto_deadline(self.congestion.timing())
    }

    /// Records that the probe timeout fired; the caller sends a probe if it has anything to send.
    pub(super) fn on_pto(&mut self, now: Instant) {
        self.endpoint.tracker.sent.on_pto(now);
    }

    /// Returns when something is due if nothing arrives before, except for probes; `NEVER` if nothing is.
    pub(super) fn next_deadline(&self) -> Instant {
        let (own, sent) = (self.endpoint.next_deadline(), &self.endpoint.tracker.sent);
        if !sent.has_packets_in_flight() {
            return own;
        }
        sent.loss_deadline(self.congestion.loss_delays()).map_or(own, |loss| own.min(loss))
    }

    // The budget ----------------------------------------------------------------------------------------------------

    /// Sets whether more waits to leave than may.
    #[inline]
    pub(super) fn set_demand(&mut self, demand: Demand) {
        self.congestion.set_demand(demand);
    }

    /// Returns what may be sent now, as long as nothing is sent and nothing arrives.
    pub(super) fn allowance(&self, now: Instant) -> PathAllowance {
        PathAllowance { path: self.congestion.allowance(self.in_flight(), now), overhead: self.overhead(), now }
    }

    /// Returns whether the window of sent packets is full.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.endpoint.tracker.sent.is_full()
    }

    /// Returns how many bytes of payload may leave now in one packet and those behind it.
    pub(super) fn budget(&self, now: Instant) -> usize {
        self.budget_with_overdraft(0, now)
    }

    /// Returns the budget of data that may overdraw the pacer by `overdraft` bytes.
    pub(super) fn budget_with_overdraft(&self, overdraft: u64, now: Instant) -> usize {
        self.allowance(now).payload(Priority { overdraft, reserve: 0 })
    }

    // State ---------------------------------------------------------------------------------------------------------

    /// Returns the packets of ours that became acked or lost with the last datagram or tick.
    #[inline]
    pub(super) const fn ack_result(&self) -> &AckResult {
        &self.ack_result
    }

    /// Forgets them, after the channels and control messages have processed them.
    #[inline]
    pub(super) fn clear_ack_result(&mut self) {
        self.ack_result.clear();
    }

    /// Returns one more than the newest packet number that the peer is known to have received, counted without the
    /// wrap.
    #[inline]
    pub(super) const fn peer_received_end(&self) -> u64 {
        self.endpoint.tracker.sent.peer_received_end()
    }

    /// Returns how often the peer acknowledged packets that were never sent.
    #[inline]
    pub(super) const fn acks_of_unsent(&self) -> u64 {
        self.endpoint.tracker.counters.acks_of_unsent
    }

    /// Returns whether the peer acknowledged a packet that it did not receive: a skipped number, or one of which it
    /// does not know the nonce.
    #[inline]
    pub(super) const fn has_false_acks(&self) -> bool {
        self.endpoint.tracker.has_false_acks()
    }

    /// Returns whether the peer has acknowledged so little that its numbers may mean two packets, and cannot be
    /// checked: none of the last 49,152 packets.
    #[inline]
    pub(super) fn has_ambiguous_acks(&self) -> bool {
        self.endpoint.tracker.sent.may_mean_older()
    }

    /// Takes the oldest event of a packet of ours, where the application polls them.
    pub(super) fn poll_event(&mut self) -> Option<PacketEvent> {
        self.ack_result.events.as_mut()?.pop()
    }

    pub(super) fn suggestion(&self, now: Instant) -> Suggestion {
        self.congestion.suggestion(now)
    }

    pub(super) fn stats(&self, now: Instant) -> (EndpointStats, CongestionStats) {
        let mut endpoint = self.endpoint.stats(now);
        endpoint.counters.dropped_events += self.ack_result.events.as_ref().map_or(0, PacketEvents::dropped);
        (endpoint, self.congestion.stats(now))
    }
}

/// Returns when the packet arrived at the peer that a frame echoes, which left at `sent`, this long after the previous
/// one.
///
/// The previous frame would have named the packet if it had arrived by then: a sample is of the newest packet, named
/// for the first time. An earlier arrival is a false report, which would hide a queue.
fn peer_arrival(sent: u64, since_previous: Option<u64>, frame: &SessionFrame<'_>) -> Option<PeerArrival> {
    let echo = frame.arrived?;
    // Both timestamps are of the peer's clock, so its offset cancels out.
    let ack_delay = unit_nanos(frame.sent.units_since(echo.at).into());
    let max_delay = since_previous.unwrap_or(u64::MAX);
    let ack_delay = ack_delay.min(max_delay);
    let max_socket_delay = (max_delay - ack_delay).saturating_add(MAX_TURN.as_nanos() as u64);
    let read_at = sent.saturating_sub(ack_delay);
    Some(PeerArrival { read_at, ack_delay, socket_delay: unit_nanos(echo.late.into()).min(max_socket_delay) })
}

/// Returns a sample of the path, if the peer echoes the arrival of the newly acknowledged packet.
fn sample(packet: SentPacket, info: AckInfo) -> Option<NewestAck> {
    // An older packet was acknowledged at an unknown time.
    if packet.sequence != info.ack {
        return None;
    }
    let unknown = NewestAck {
        sent_at: packet.sent_at,
        received_at: None,
        ack_delay: Duration::ZERO,
        socket_delay: Duration::ZERO,
    };
    let Some(PeerArrival { read_at, ack_delay, socket_delay }) = info.arrival else { return Some(unknown) };
    Some(NewestAck {
        sent_at: packet.sent_at,
        received_at: Some(PeerTime(Duration::from_nanos(read_at))),
        ack_delay: Duration::from_nanos(ack_delay),
        socket_delay: Duration::from_nanos(socket_delay),
    })
}

/// Writes a frame and what `fill` puts behind it. Returns the bytes written; 0 for an ack-eliciting packet without
/// contents.
fn write_framed(
    frame: &SessionFrame<'_>,
    kind: SessionPacketKind,
    buf: &mut [u8],
    max_bytes: usize,
    fill: impl FnOnce(&mut [u8]) -> usize,
) -> usize {
    let max_bytes = buf.len().min(max_bytes);
    let Some(buf) = buf.get_mut(..max_bytes) else { return 0 };
    let mut writer = Writer::new(buf);
    frame.emit(&mut writer);
    // A tiny budget may not even hold the frame.
    let Some(start) = writer.written() else { return 0 };
    let filled = buf.get_mut(start..).map_or(0, fill);
    if filled == 0 && kind == SessionPacketKind::AckEliciting { 0 } else { start + filled }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::session_frame::AckNonces;

    #[test]
    fn arrival_is_not_before_the_frame_that_did_not_name_it() {
        const MS: u64 = 1_000_000;
        let ms = |millis: u16| Timestamp(4 * millis);
        let arrival = |held: u16, late: u8, since_previous: Option<u64>| {
            let arrived = Some(ArrivalEcho { at: ms(500 - held), late: 4 * late });
            let frame = SessionFrame { sent: ms(500), nonces: AckNonces::default(), arrived, extended_acks: &[] };
            let sent = 500 * MS;
            let arrival = peer_arrival(sent, since_previous.map(|millis| millis * MS), &frame).unwrap();
            assert_eq!(arrival.read_at + arrival.ack_delay, sent);
            (arrival.ack_delay / MS, arrival.socket_delay / MS)
        };
        assert_eq!(arrival(200, 60, None), (200, 60), "the first frame");
        assert_eq!(arrival(20, 7, Some(25)), (20, 7), "arrived after the previous frame left");
        assert_eq!(arrival(25, 0, Some(25)), (25, 0), "arrived as it left");
        assert_eq!(arrival(26, 0, Some(25)), (25, 0), "would have been in it");
        assert_eq!(arrival(5, 60, Some(25)), (5, 25), "was not in the socket before the turn of that frame");
        assert_eq!(arrival(200, 60, Some(25)), (25, 5));
    }
}
