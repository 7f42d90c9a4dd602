//! The endpoint: datagrams in, packets out, and the other way round.

use super::config::{Config, ConfigError};
use super::link::{Incoming, Link};
use super::memory::MemoryBudget;
use super::reassembly::{Progress, Reassembly};
use super::sent::Cargo;
use super::stats::Stats;
use super::{Acceptance, Event, Packet, SendError, Sink};
use crate::reject::Reject;
use crate::wire::reliable::{Acks, Fragment, FragmentLimits, Header, MAX_OVERHEAD_BYTES, Sequence, is_fragment};
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;

/// The largest packet and its fragments.
#[derive(Clone, Copy)]
struct Limits {
    packet_bytes: usize,
    fragments: FragmentLimits,
}

/// One side of a path on which packets are acknowledged.
///
/// A turn: [`handle`](Self::handle) for every datagram, [`tick`](Self::tick), [`send`](Self::send),
/// [`transmit`](Self::transmit), [`poll_event`](Self::poll_event) until there is none.
///
/// # Examples
///
/// ```
/// use slipgate_session::reliability::{Config, Endpoint, Event, Sink};
/// use slipgate_netcode::time::Instant;
///
/// /// A network on which one datagram can be under way.
/// #[derive(Default)]
/// struct Wire { bytes: Vec<u8>, length: usize }
///
/// impl Sink for Wire {
///     fn rooms(&self) -> usize {
///         1
///     }
///     fn room(&mut self) -> Option<&mut [u8]> {
///         self.bytes.resize(1200, 0);
///         Some(&mut self.bytes)
///     }
///     fn commit(&mut self, bytes: usize) {
///         self.length = bytes;
///     }
/// }
///
/// let (mut alice, mut bob) = (Endpoint::new(Config::default())?, Endpoint::new(Config::default())?);
/// let (mut wire, now) = (Wire::default(), Instant::default());
///
/// let sequence = alice.send(b"hello", now, &mut wire).unwrap();
/// let packet = bob.handle(&wire.bytes[..wire.length], now).unwrap().unwrap();
/// assert_eq!(packet.payload, b"hello");
///
/// bob.send(b"hello to you", now, &mut wire).unwrap();
/// alice.handle(&wire.bytes[..wire.length], now).unwrap();
/// assert!(matches!(alice.poll_event(), Some(Event::Acked { sequence: acked, .. }) if acked == sequence));
/// # Ok::<(), slipgate_session::reliability::ConfigError>(())
/// ```
pub struct Endpoint {
    limits: Limits,
    fragment_above: usize,
    reassembly: Reassembly,
    link: Link,
}

impl Endpoint {
    /// An endpoint that has sent and received nothing.
    ///
    /// # Errors
    /// A setting that no endpoint can run with.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Self::with_budget(config, None)
    }

    /// As [`Endpoint::new`], with a bound on the memory that the reassemblies of many endpoints take together.
    ///
    /// # Errors
    /// A setting that no endpoint can run with.
    #[expect(clippy::needless_pass_by_value, reason = "a setting is handed over, not lent")]
    pub fn with_budget(config: Config, shared: Option<MemoryBudget>) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            limits: Limits { packet_bytes: config.max_packet_bytes, fragments: config.fragment_limits() },
            fragment_above: config.fragment_above,
            reassembly: Reassembly::new(&config, shared),
            link: Link::new(&config),
        })
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Brings a datagram in. Answers the packet that it is, or that it completes; it counts as received.
    ///
    /// A packet without payload carries nothing but acknowledgements, and is of no interest to the application.
    ///
    /// # Errors
    /// Why the datagram was dropped; it has been counted in [`stats`](Self::stats).
    pub fn handle<'a>(&'a mut self, datagram: &'a [u8], now: Instant) -> Result<Option<Packet<'a>>, Reject> {
        self.handle_if(datagram, now, |_| Acceptance::Take)
    }

    /// As [`handle`](Self::handle), but `accept` may refuse the packet, for which there may be no place: then it is not
    /// acknowledged.
    ///
    /// # Errors
    /// As [`handle`](Self::handle), and `Refused`.
    pub fn handle_if<'a>(
        &'a mut self,
        datagram: &'a [u8],
        now: Instant,
        accept: impl FnOnce(&Packet<'a>) -> Acceptance,
    ) -> Result<Option<Packet<'a>>, Reject> {
        let Self { limits, reassembly, link, .. } = self;
        let taken = if datagram.len() > limits.packet_bytes + MAX_OVERHEAD_BYTES {
            Err(Reject::TooLarge)
        } else if is_fragment(datagram) {
            take_fragment(reassembly, link, *limits, datagram, now, accept)
        } else {
            take_packet(reassembly, link, *limits, datagram, now, accept).map(Some)
        };
        match &taken {
            Ok(_) => link.count_datagram(datagram.len(), now),
            Err(reject) => link.rejects.add(*reject),
        }
        taken
    }

    /// Counts a datagram that a layer above dropped for this reason, without bringing it in.
    pub fn count_reject(&mut self, reject: Reject) {
        self.link.rejects.add(reject);
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Sends a packet, in fragments if it is large, and answers its number. Its header carries acknowledgements.
    ///
    /// # Errors
    /// `Empty`, `TooLarge`, or `Backlogged` when the sink has no room for all of it. Then nothing was sent.
    pub fn send(&mut self, payload: &[u8], now: Instant, sink: &mut impl Sink) -> Result<Sequence, SendError> {
        if payload.is_empty() {
            return Err(SendError::Empty);
        }
        if payload.len() > self.limits.packet_bytes {
            self.link.counters.too_large_to_send += 1;
            return Err(SendError::TooLarge);
        }
        let header = self.link.next_header();
        if payload.len() > self.fragment_above {
            self.send_fragments(header, payload, sink)?;
        } else {
            write(sink, |writer| {
                header.emit(writer);
                writer.bytes(payload);
            })?;
        }
        self.link.depart(header, Cargo::Data, payload.len(), now);
        Ok(header.sequence)
    }

    /// Sends a packet whose payload `fill` writes where the datagram leaves from, so that it need not be copied. It
    /// answers how many bytes it wrote. The packet is not cut into fragments.
    ///
    /// # Errors
    /// `Empty` if nothing was written, `TooLarge` if the sink's room does not even hold a header, or `Backlogged`. Then
    /// nothing was sent.
    pub fn send_with(
        &mut self,
        now: Instant,
        sink: &mut impl Sink,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<Sequence, SendError> {
        self.send_cargo(Cargo::Data, now, sink, fill)
    }

    /// As [`send_with`](Self::send_with), for a payload that needs no answer: the packet is never called lost, and a peer
    /// that takes it by [`Acceptance::TakeUnanswered`] sends nothing only to acknowledge it.
    ///
    /// # Errors
    /// As [`send_with`](Self::send_with).
    pub fn send_unanswered_with(
        &mut self,
        now: Instant,
        sink: &mut impl Sink,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<Sequence, SendError> {
        self.send_cargo(Cargo::AcksAlone, now, sink, fill)
    }

    fn send_cargo(
        &mut self,
        cargo: Cargo,
        now: Instant,
        sink: &mut impl Sink,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<Sequence, SendError> {
        let header = self.link.next_header();
        let room = sink.room().ok_or(SendError::Backlogged)?;
        let mut writer = Writer::new(room);
        header.emit(&mut writer);
        let start = writer.written().ok_or(SendError::TooLarge)?;
        let payload = room.get_mut(start..).ok_or(SendError::TooLarge)?;
        let most = payload.len().min(self.limits.packet_bytes);
        let bytes = fill(payload.get_mut(..most).ok_or(SendError::TooLarge)?);
        debug_assert!(bytes <= most, "more was written than there was room for");
        let bytes = bytes.min(most);
        if bytes == 0 {
            return Err(SendError::Empty);
        }
        sink.commit(start + bytes);
        self.link.depart(header, cargo, bytes, now);
        Ok(header.sequence)
    }

    /// Whether [`transmit`](Self::transmit) has something to send now.
    #[must_use]
    pub fn owes_acks(&self, now: Instant) -> bool {
        self.link.owes_acks(now)
    }

    /// Which packets before the 32 of the next header have arrived, for a layer above that tells the peer in a field of
    /// its own: bit i of the whole stands for packet `ack` - 32 - i. Answers how many bytes of `bits` are of use, which is
    /// none as long as headers tell of each arrival twice. Say [`told_behind`](Self::told_behind) when they have left.
    #[must_use]
    pub fn acks_behind(&self, bits: &mut [u8]) -> usize {
        self.link.acks_behind(bits)
    }

    /// The last packet that left told the peer of so many bytes of [`acks_behind`](Self::acks_behind).
    pub fn told_behind(&mut self, bytes: usize) {
        self.link.report_behind(bytes);
    }

    /// Hears the peer's [`acks_behind`](Self::acks_behind) of the packet that was brought in last; `ack` is the one of
    /// its header.
    pub fn handle_acks_behind(&mut self, ack: Sequence, bits: &[u8], now: Instant) {
        self.link.hear_behind(ack, bits, now);
    }

    /// Sends what is due: acknowledgements that no other packet carried.
    pub fn transmit(&mut self, now: Instant, sink: &mut impl Sink) {
        while let Some(header) = self.link.owed_header(now) {
            if write(sink, |writer| header.emit(writer)).is_err() {
                return;
            }
            self.link.depart(header, Cargo::AcksAlone, 0, now);
        }
    }

    /// Writes a packet's fragments, all of them or none.
    fn send_fragments(&mut self, header: Header, payload: &[u8], sink: &mut impl Sink) -> Result<(), SendError> {
        let parts = payload.chunks(self.limits.fragments.fragment_bytes);
        let count = u16::try_from(parts.len()).unwrap_or(u16::MAX);
        if count > self.limits.fragments.max_fragments {
            self.link.counters.too_large_to_send += 1;
            return Err(SendError::TooLarge);
        }
        if sink.rooms() < usize::from(count) {
            return Err(SendError::Backlogged);
        }
        for (id, data) in (0_u8..=u8::MAX).zip(parts) {
            let embedded = (id == 0).then_some(header);
            let fragment = Fragment { sequence: header.sequence, id, count, header: embedded, data };
            match write(sink, |writer| fragment.emit(writer)) {
                Ok(()) => self.link.counters.fragments_sent += 1,
                Err(error) if id == 0 => return Err(error),
                // The sink did not keep its word. The number is used by now; the packet is lost, as any may be.
                Err(_) => break,
            }
        }
        Ok(())
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Time has passed: packets are lost, unfinished ones are given up. With nothing under way it costs a few
    /// comparisons.
    pub fn tick(&mut self, now: Instant) {
        self.link.tick(now);
        self.reassembly.tick(now);
    }

    /// When the endpoint next has something to do of its own, if nothing arrives: wake up then, tick and transmit.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let reassembly = Some(self.reassembly.wake()).filter(|wake| *wake != Instant::NEVER);
        self.link.next_deadline().into_iter().chain(reassembly).min()
    }

    // What is known -------------------------------------------------------------------------------------------------

    /// The oldest news of packets that were sent. Ask until there is none, once a turn: there is room for as many as the
    /// window of sent packets holds. Then the oldest is forgotten, and counted in
    /// [`Counters::untold_events`](super::Counters::untold_events).
    pub fn poll_event(&mut self) -> Option<Event> {
        self.link.poll()
    }

    /// The number of the next packet.
    #[must_use]
    pub fn next_sequence(&self) -> Sequence {
        self.link.next_header().sequence
    }

    /// The acknowledgements that the next packet would carry.
    #[must_use]
    pub fn acks(&self) -> Acks {
        self.link.next_header().acks
    }

    /// One behind the newest packet that the peer is known to have received, counted without the wrap; however long that
    /// took, and also if it was one of acknowledgements alone.
    pub(crate) const fn heard_to(&self) -> u64 {
        self.link.heard_to()
    }

    /// [`Counters::acks_of_unsent`](super::Counters::acks_of_unsent).
    pub(crate) const fn acks_of_unsent(&self) -> u64 {
        self.link.counters.acks_of_unsent
    }

    /// How the path is, and what happened on it.
    #[must_use]
    pub fn stats(&self, now: Instant) -> Stats {
        let mut stats = self.link.stats(now);
        stats.counters.reassemblies_given_up = self.reassembly.given_up();
        stats
    }

    /// How many bytes the packets in fragments that are under way take.
    #[must_use]
    pub fn reassembly_bytes(&self) -> usize {
        self.reassembly.bytes()
    }

    /// Forgets everything, all statistics included: for the next peer.
    ///
    /// DECISION: the reference keeps its round-trip time, loss and bandwidths, so that one player's numbers leak into
    /// the next one's slot.
    pub fn reset(&mut self) {
        self.link.reset();
        self.reassembly.reset();
    }
}

/// Writes one datagram into the sink.
fn write(sink: &mut impl Sink, emit: impl FnOnce(&mut Writer<'_>)) -> Result<(), SendError> {
    let mut writer = Writer::new(sink.room().ok_or(SendError::Backlogged)?);
    emit(&mut writer);
    let bytes = writer.written().ok_or(SendError::TooLarge)?;
    sink.commit(bytes);
    Ok(())
}

/// A packet that came in one datagram (§2.4).
fn take_packet<'a>(
    reassembly: &mut Reassembly,
    link: &mut Link,
    limits: Limits,
    datagram: &'a [u8],
    now: Instant,
    accept: impl FnOnce(&Packet<'a>) -> Acceptance,
) -> Result<Packet<'a>, Reject> {
    link.counters.received += 1;
    let (header, payload) = Header::parse(datagram)?;
    if payload.len() > limits.packet_bytes {
        return Err(Reject::TooLarge);
    }
    let packet = link.receive(Incoming { header, payload, bytes: datagram.len() }, now, accept)?;
    reassembly.advance(packet.sequence);
    Ok(packet)
}

/// A fragment: it waits, or it completes its packet (§2.4).
fn take_fragment<'a>(
    reassembly: &'a mut Reassembly,
    link: &mut Link,
    limits: Limits,
    datagram: &[u8],
    now: Instant,
    accept: impl FnOnce(&Packet<'a>) -> Acceptance,
) -> Result<Option<Packet<'a>>, Reject> {
    let fragment = Fragment::parse(datagram, limits.fragments)?;
    if link.has_received(fragment.sequence) {
        return Err(Reject::FragmentLate);
    }
    reassembly.begin(&fragment, now)?;
    link.expect(fragment.sequence);
    let progress = reassembly.take(&fragment, now)?;
    link.counters.fragments_received += 1;
    let Progress::Complete { header, bytes: payload_bytes } = progress else { return Ok(None) };
    let bytes = header.bytes() + payload_bytes;
    if bytes > limits.packet_bytes + MAX_OVERHEAD_BYTES {
        return Err(Reject::TooLarge);
    }
    link.counters.received += 1;
    if payload_bytes > limits.packet_bytes {
        return Err(Reject::TooLarge);
    }
    let payload = reassembly.assembled();
    link.receive(Incoming { header, payload, bytes }, now, accept).map(Some)
}
