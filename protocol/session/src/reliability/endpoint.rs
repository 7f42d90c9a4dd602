//! The endpoint: turns datagrams into packets, and packets into datagrams.

use super::config::{EndpointConfig, EndpointConfigError};
use super::fragment_pool::MemoryBudget;
use super::packet_events::{PacketEvents, PacketOutcomes};
use super::packet_tracker::{IncomingPacket, PacketTracker};
use super::reassembly::{FragmentOutcome, Reassembly};
use super::stats::EndpointStats;
use super::{Acceptance, PacketEvent, ReceivedPacket, Sink};
use crate::congestion::SessionPacketKind::{self, AckEliciting, AckOnly};
use crate::reject::Reject;
use crate::send_error::SendError;
use crate::wire::reliable::{Fragment, FragmentLimits, MAX_OVERHEAD_BYTES, ReliableHeader, Sequence, is_fragment};
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;

/// The limits of packets and of their fragments.
#[derive(Clone, Copy)]
struct PacketLimits {
    packet_bytes: usize,
    fragments: FragmentLimits,
}

/// A packet in one datagram, with its header parsed.
pub(crate) struct ParsedPacket<'a> {
    pub(crate) header: ReliableHeader,
    pub(crate) payload: &'a [u8],
    pub(crate) datagram_bytes: usize,
}

/// One side of a path on which packets are acknowledged.
///
/// A turn: [`handle`](Self::handle) for every datagram, [`tick`](Self::tick), [`send`](Self::send),
/// [`transmit`](Self::transmit), [`poll_event`](Self::poll_event) until there is none.
///
/// # Examples
///
/// ```
/// use slipgate_session::reliability::{EndpointConfig, Endpoint, PacketEvent, Sink};
/// use slipgate_netcode::time::Instant;
///
/// /// A network on which one datagram can be under way.
/// #[derive(Default)]
/// struct Wire { bytes: Vec<u8>, length: usize }
///
/// impl Sink for Wire {
///     fn remaining(&self) -> usize {
///         1
///     }
///     fn next_buf(&mut self) -> Option<&mut [u8]> {
///         self.bytes.resize(1200, 0);
///         Some(&mut self.bytes)
///     }
///     fn commit(&mut self, bytes: usize) {
///         self.length = bytes;
///     }
/// }
///
/// let mut alice = Endpoint::new(EndpointConfig::default(), None)?;
/// let mut bob = Endpoint::new(EndpointConfig::default(), None)?;
/// let (mut wire, now) = (Wire::default(), Instant::default());
///
/// let sequence = alice.send(b"hello", now, &mut wire).unwrap();
/// let packet = bob.handle(&wire.bytes[..wire.length], now).unwrap().unwrap();
/// assert_eq!(packet.payload, b"hello");
///
/// bob.send(b"hello to you", now, &mut wire).unwrap();
/// alice.handle(&wire.bytes[..wire.length], now).unwrap();
/// assert!(matches!(alice.poll_event(), Some(PacketEvent::Acked { sequence: acked, .. }) if acked == sequence));
/// # Ok::<(), slipgate_session::reliability::EndpointConfigError>(())
/// ```
pub struct Endpoint {
    core: EndpointCore,
    /// The outcomes of sent packets.
    events: PacketEvents,
}

/// An endpoint without a queue of events: its caller receives the outcomes of sent packets.
pub(crate) struct EndpointCore {
    limits: PacketLimits,
    fragment_above: usize,
    reassembly: Reassembly,
    pub(crate) tracker: PacketTracker,
}

impl Endpoint {
    /// Creates an endpoint that has sent and received nothing. Its reassembly memory is taken from `shared`, if there
    /// is such a budget, within the limit of its own settings.
    ///
    /// # Errors
    /// The [`EndpointConfigError`] of the first setting that is out of bounds.
    pub fn new(config: EndpointConfig, shared: Option<MemoryBudget>) -> Result<Self, EndpointConfigError> {
        let events = PacketEvents::new(config.sent_window);
        Ok(Self { core: EndpointCore::new(config, shared)?, events })
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Processes a datagram. Returns the packet that it contains or completes; the packet counts as received.
    ///
    /// A packet without payload carries only acknowledgements, and is of no interest to the application.
    ///
    /// # Errors
    /// The reason why the datagram was dropped; [`stats`](Self::stats) counts it.
    pub fn handle<'a>(&'a mut self, datagram: &'a [u8], now: Instant) -> Result<Option<ReceivedPacket<'a>>, Reject> {
        self.handle_if(datagram, now, |_| Acceptance::Take)
    }

    /// Processes a datagram like [`handle`](Self::handle), but `accept` may refuse the packet, which is then not
    /// acknowledged.
    ///
    /// # Errors
    /// The errors of [`handle`](Self::handle), and [`Reject::Refused`] if `accept` refuses the packet.
    pub fn handle_if<'a>(
        &'a mut self,
        datagram: &'a [u8],
        now: Instant,
        accept: impl FnOnce(&ReceivedPacket<'a>) -> Acceptance,
    ) -> Result<Option<ReceivedPacket<'a>>, Reject> {
        self.core.handle(datagram, now, accept, &mut self.events)
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Sends a packet, in fragments if it is large, and returns its sequence number. Its header carries
    /// acknowledgements.
    ///
    /// # Errors
    /// `Empty` if the payload has no bytes, `TooLarge` if it exceeds the limits, `Backlogged` if the sink cannot take
    /// all of its datagrams. Nothing was sent then.
    pub fn send(&mut self, payload: &[u8], now: Instant, sink: &mut dyn Sink) -> Result<Sequence, SendError> {
        self.core.send(payload, 1, now, sink, &mut self.events).map(|(sequence, _)| sequence)
    }

    /// Sends one packet, never in fragments. `fill` writes the payload into the buffer of the datagram, which saves a
    /// copy, and returns the number of bytes written.
    ///
    /// # Errors
    /// `Empty` if `fill` wrote nothing, `TooLarge` if the buffer cannot hold a header, `Backlogged` if the sink is
    /// full. Nothing was sent then.
    pub fn send_with(
        &mut self,
        now: Instant,
        sink: &mut dyn Sink,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<Sequence, SendError> {
        let header = self.core.tracker.next_header();
        let sent = self.core.send_framed(header, AckEliciting, now, sink, &mut self.events, fill);
        sent.map(|(sequence, _)| sequence)
    }

    /// Processes the bits of packets before the 32 of the header, which the layer above received in a field of its
    /// own, for the packet that was handled last; `ack` is that of its header. Bit i of the whole stands for packet
    /// `ack - 32 - i`.
    pub fn on_extended_acks(&mut self, ack: Sequence, bits: &[u8], now: Instant) {
        self.core.tracker.on_extended_acks(ack, bits, now, &mut self.events);
    }

    /// Sends the ack-only packets that are due.
    pub fn transmit(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.core.send_acks(now, sink, &mut self.events);
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Declares overdue packets lost, and discards reassemblies that timed out. It costs a few
    /// comparisons.
    pub fn tick(&mut self, now: Instant) {
        self.core.tracker.tick(now, &mut self.events);
        self.core.reassembly.tick(now);
    }

    /// Returns when [`tick`](Self::tick) or [`transmit`](Self::transmit) is due next, if nothing arrives.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let own = Some(self.core.next_deadline()).filter(|deadline| *deadline != Instant::NEVER);
        own.into_iter().chain(self.core.tracker.loss_deadline()).min()
    }

    // Queries -------------------------------------------------------------------------------------------------------

    /// Returns the oldest event of a sent packet. Call it until `None` once per turn: the queue holds as many events
    /// as the window of sent packets, then drops the oldest and counts it in
    /// [`EndpointCounters::dropped_events`](super::EndpointCounters::dropped_events).
    pub fn poll_event(&mut self) -> Option<PacketEvent> {
        self.events.pop()
    }

    /// Returns the header that the next packet would carry: its sequence number and acknowledgements.
    #[must_use]
    pub fn next_header(&self) -> ReliableHeader {
        self.core.tracker.next_header()
    }

    /// Returns the measurements of the path and all counters.
    #[must_use]
    pub fn stats(&self, now: Instant) -> EndpointStats {
        let mut stats = self.core.stats(now);
        stats.counters.dropped_events = self.events.dropped();
        stats
    }

    /// Returns the bytes of memory that incomplete packets take.
    #[must_use]
    pub fn reassembly_bytes(&self) -> usize {
        self.core.reassembly.bytes()
    }
}

impl EndpointCore {
    #[expect(clippy::needless_pass_by_value, reason = "a setting is handed over, not lent")]
    pub(crate) fn new(config: EndpointConfig, shared: Option<MemoryBudget>) -> Result<Self, EndpointConfigError> {
        config.check()?;
        Ok(Self {
            limits: PacketLimits { packet_bytes: config.max_packet_bytes, fragments: config.fragment_limits() },
            fragment_above: config.fragment_above,
            reassembly: Reassembly::new(&config, shared),
            tracker: PacketTracker::new(&config),
        })
    }

    /// Processes a datagram: a packet, or a fragment of one. Reports to `outcomes` what it acknowledges.
    pub(crate) fn handle<'a>(
        &'a mut self,
        datagram: &'a [u8],
        now: Instant,
        accept: impl FnOnce(&ReceivedPacket<'a>) -> Acceptance,
        outcomes: &mut impl PacketOutcomes,
    ) -> Result<Option<ReceivedPacket<'a>>, Reject> {
        let Self { limits, reassembly, tracker, .. } = self;
        // Check the size before parsing: an oversized datagram must not cost more than a comparison.
        let taken = if datagram.len() > limits.packet_bytes + MAX_OVERHEAD_BYTES {
            Err(Reject::TooLarge)
        } else if is_fragment(datagram) {
            take_fragment(reassembly, tracker, *limits, datagram, now, accept, outcomes)
        } else {
            tracker.counters.received += 1;
            ReliableHeader::parse(datagram).and_then(|(header, payload)| {
                let packet = IncomingPacket { header, payload };
                take_packet(reassembly, tracker, *limits, packet, now, accept, outcomes).map(Some)
            })
        };
        count(tracker, &taken, datagram.len(), now);
        taken
    }

    /// Processes a packet like [`handle`](Self::handle), of which the layer above has parsed the header.
    pub(crate) fn handle_parsed<'a>(
        &mut self,
        packet: &ParsedPacket<'a>,
        acceptance: Acceptance,
        now: Instant,
        outcomes: &mut impl PacketOutcomes,
    ) -> Result<ReceivedPacket<'a>, Reject> {
        let Self { limits, reassembly, tracker, .. } = self;
        let taken = if packet.datagram_bytes > limits.packet_bytes + MAX_OVERHEAD_BYTES {
            Err(Reject::TooLarge)
        } else {
            tracker.counters.received += 1;
            let &ParsedPacket { header, payload, .. } = packet;
            take_packet(reassembly, tracker, *limits, IncomingPacket { header, payload }, now, |_| acceptance, outcomes)
        };
        count(tracker, &taken, packet.datagram_bytes, now);
        taken
    }

    /// Sends a packet, in fragments if it is large. Returns its number and its bytes on the path.
    pub(crate) fn send(
        &mut self,
        payload: &[u8],
        datagrams: u32,
        now: Instant,
        sink: &mut dyn Sink,
        outcomes: &mut impl PacketOutcomes,
    ) -> Result<(Sequence, u32), SendError> {
        let header = self.write_packet(payload, sink)?;
        let bytes = self.tracker.on_packet_sent(header, AckEliciting, payload.len(), datagrams, now, outcomes);
        Ok((header.sequence, bytes))
    }

    /// Writes a packet into the sink, in fragments if it is large.
    fn write_packet(&mut self, payload: &[u8], sink: &mut dyn Sink) -> Result<ReliableHeader, SendError> {
        if payload.is_empty() {
            return Err(SendError::Empty);
        }
        if payload.len() > self.limits.packet_bytes {
            self.tracker.counters.too_large_to_send += 1;
            return Err(SendError::TooLarge { channel: None, bytes: payload.len(), limit: self.limits.packet_bytes });
        }
        // No sequence number is used before the datagrams are written: a refused packet leaves no gap.
        let header = self.tracker.next_header();
        if payload.len() > self.fragment_above {
            self.send_fragments(header, payload, sink)?;
        } else {
            write_datagram(payload.len(), sink, |writer| {
                header.emit(writer);
                writer.bytes(payload);
            })?;
        }
        Ok(header)
    }

    /// Writes all fragments of a packet, or none.
    fn send_fragments(&mut self, header: ReliableHeader, payload: &[u8], sink: &mut dyn Sink) -> Result<(), SendError> {
        let parts = payload.chunks(self.limits.fragments.fragment_bytes);
        let count = u16::try_from(parts.len()).unwrap_or(u16::MAX);
        if count > self.limits.fragments.max_fragments {
            self.tracker.counters.too_large_to_send += 1;
            let limit = self.limits.fragments.fragment_bytes * usize::from(self.limits.fragments.max_fragments);
            return Err(SendError::TooLarge { channel: None, bytes: payload.len(), limit });
        }
        // Ask for all datagrams first: half a packet would waste the half that was sent.
        if sink.remaining() < usize::from(count) {
            return Err(SendError::Backlogged);
        }
        for (id, data) in (0_u8..=u8::MAX).zip(parts) {
            let embedded = (id == 0).then_some(header);
            let fragment = Fragment { sequence: header.sequence, id, count, header: embedded, data };
            match write_datagram(payload.len(), sink, |writer| fragment.emit(writer)) {
                Ok(()) => self.tracker.counters.fragments_sent += 1,
                Err(error) if id == 0 => return Err(error),
                // The sink offered less than `remaining` promised. The sequence number is in use by now, so the
                // packet counts as sent and is lost.
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Writes and records one packet that is not fragmented, with this header. An ack-only packet is never declared
    /// lost, and a peer that accepts it with [`Acceptance::TakeAckOnly`] sends no packet to acknowledge it. Returns the
    /// packet's number, and its bytes on the path.
    pub(crate) fn send_framed(
        &mut self,
        header: ReliableHeader,
        kind: SessionPacketKind,
        now: Instant,
        sink: &mut dyn Sink,
        outcomes: &mut impl PacketOutcomes,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<(Sequence, u32), SendError> {
        let buf = sink.next_buf().ok_or(SendError::Backlogged)?;
        // A buffer without room for the header and one byte can carry no payload at all.
        let no_room = SendError::TooLarge { channel: None, bytes: 1, limit: 0 };
        let mut writer = Writer::new(buf);
        header.emit(&mut writer);
        let start = writer.written().ok_or(no_room)?;
        let payload = buf.get_mut(start..).ok_or(no_room)?;
        let max_bytes = payload.len().min(self.limits.packet_bytes);
        let bytes = fill(payload.get_mut(..max_bytes).ok_or(no_room)?);
        debug_assert!(bytes <= max_bytes, "fill reported more bytes than the buffer holds");
        let bytes = bytes.min(max_bytes);
        if bytes == 0 {
            return Err(SendError::Empty);
        }
        sink.commit(start + bytes);
        let path_bytes = self.tracker.on_packet_sent(header, kind, bytes, 1, now, outcomes);
        Ok((header.sequence, path_bytes))
    }

    /// Sends the ack-only packets that are due.
    pub(crate) fn send_acks(&mut self, now: Instant, sink: &mut dyn Sink, outcomes: &mut impl PacketOutcomes) {
        while let Some(header) = self.tracker.due_ack_header(now) {
            if write_datagram(0, sink, |writer| header.emit(writer)).is_err() {
                return;
            }
            self.tracker.on_packet_sent(header, AckOnly, 0, 1, now, outcomes);
        }
    }

    /// Discards reassemblies that timed out.
    pub(crate) fn tick_reassembly(&mut self, now: Instant) {
        self.reassembly.tick(now);
    }

    /// Returns when something else than a loss is due, or `NEVER`.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.tracker.ack_deadline().min(self.reassembly.wake())
    }

    /// Returns the measurements of the path and all counters, except those of events.
    pub(crate) fn stats(&self, now: Instant) -> EndpointStats {
        let mut stats = self.tracker.stats(now);
        stats.counters.reassemblies_given_up = self.reassembly.given_up();
        stats
    }
}

/// Writes one datagram of a payload of `payload_bytes` into the sink.
fn write_datagram(
    payload_bytes: usize,
    sink: &mut dyn Sink,
    emit: impl FnOnce(&mut Writer<'_>),
) -> Result<(), SendError> {
    let buf = sink.next_buf().ok_or(SendError::Backlogged)?;
    let limit = buf.len();
    let mut writer = Writer::new(buf);
    emit(&mut writer);
    let written = writer.written().ok_or(SendError::TooLarge { channel: None, bytes: payload_bytes, limit })?;
    sink.commit(written);
    Ok(())
}

/// Counts a datagram as accepted, or by the reason for which it was dropped.
fn count<T>(tracker: &mut PacketTracker, taken: &Result<T, Reject>, bytes: usize, now: Instant) {
    match taken {
        Ok(_) => tracker.count_datagram(bytes, now),
        Err(reject) => tracker.rejects += *reject,
    }
}

/// Processes a packet in one datagram (§2.4).
fn take_packet<'a>(
    reassembly: &mut Reassembly,
    tracker: &mut PacketTracker,
    limits: PacketLimits,
    packet: IncomingPacket<'a>,
    now: Instant,
    accept: impl FnOnce(&ReceivedPacket<'a>) -> Acceptance,
    outcomes: &mut impl PacketOutcomes,
) -> Result<ReceivedPacket<'a>, Reject> {
    if packet.payload.len() > limits.packet_bytes {
        return Err(Reject::TooLarge);
    }
    let packet = tracker.receive(packet, now, accept, outcomes)?;
    reassembly.advance(packet.sequence);
    Ok(packet)
}

/// Processes a fragment: stores it, or completes its packet (§2.4).
fn take_fragment<'a>(
    reassembly: &'a mut Reassembly,
    tracker: &mut PacketTracker,
    limits: PacketLimits,
    datagram: &[u8],
    now: Instant,
    accept: impl FnOnce(&ReceivedPacket<'a>) -> Acceptance,
    outcomes: &mut impl PacketOutcomes,
) -> Result<Option<ReceivedPacket<'a>>, Reject> {
    let fragment = Fragment::parse(datagram, limits.fragments)?;
    if tracker.has_received(fragment.sequence) {
        return Err(Reject::FragmentLate);
    }
    // Reassembly first, tracker second: a fragment without memory must not move the window of received packets.
    reassembly.begin(&fragment, now)?;
    tracker.expect(fragment.sequence);
    let progress = reassembly.take(&fragment, now)?;
    tracker.counters.fragments_received += 1;
    let FragmentOutcome::Complete { header, bytes: payload_bytes } = progress else { return Ok(None) };
    // The reference bounds header and payload together, then the payload alone. Keep both for the same counters.
    let bytes = header.bytes() + payload_bytes;
    if bytes > limits.packet_bytes + MAX_OVERHEAD_BYTES {
        return Err(Reject::TooLarge);
    }
    tracker.counters.received += 1;
    if payload_bytes > limits.packet_bytes {
        return Err(Reject::TooLarge);
    }
    let payload = reassembly.assembled();
    tracker.receive(IncomingPacket { header, payload }, now, accept, outcomes).map(Some)
}

#[cfg(test)]
mod tests;
