//! What a connection knows of its path: packets are numbered and acknowledged, lost ones are noticed early, and the
//! controller is told of all of it.
//!
//! What packets carry is left to `connection` and `packets`.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use super::clock::PeerClock;
use crate::channel::{Means, Wish};
use crate::congestion::{self, Claim, Congestion, Demand, Departed, Feedback, Flight, Lateness, Newest, PeerTime};
use crate::reject::Reject;
use crate::reliability::{self, Acceptance, ConfigError, Endpoint, Event, MemoryBudget, SendError, Sink};
use crate::wire::reliable::{Acks, MAX_HEADER_BYTES, Sequence};
use crate::wire::session::{Arrived, Frame, MAX_ACKS_BEHIND_BYTES, STAMP_REACH, STAMP_UNIT, Stamp};
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;

/// What a packet's frame takes beside its messages, with a word on packets far behind.
const FRAME_BYTES: u64 = 16;

/// The path of one connection.
pub(super) struct Path {
    endpoint: Endpoint,
    flight: Flight,
    congestion: Congestion,
    /// Bytes that a datagram costs below its payload.
    lower_layer_bytes: u32,
    clock: PeerClock,
    lateness: Lateness,
    /// The newest packet that arrived, and when: what the next frame tells.
    newest_arrival: Option<NewestArrival>,
    delivered: u64,
    verdicts: Verdicts,
    /// Packets that were given up because newer ones needed their places.
    displaced: Fates,
    /// The endpoint's own verdicts, when the application wants to hear them.
    news: Option<News>,
}

/// Verdicts that the application has not asked for yet: at most as many as the window of sent packets holds. Newer ones
/// displace the oldest.
struct News {
    most: usize,
    queue: VecDeque<Event>,
    displaced: u64,
}

impl News {
    fn push(&mut self, event: Event) {
        if self.queue.len() >= self.most {
            self.queue.pop_front();
            self.displaced += 1;
        }
        self.queue.push_back(event);
    }
}

/// The packets of ours whose fate became known with the last datagram or tick.
#[derive(Default)]
pub(super) struct Verdicts {
    acked: Fates,
    lost: Fates,
}

impl Verdicts {
    /// Those that arrived; some of them may have been called lost before.
    pub(super) fn acked(&self) -> impl Iterator<Item = Sequence> + '_ {
        self.acked.sequences.iter().copied()
    }

    /// Those that count as lost.
    pub(super) fn lost(&self) -> impl Iterator<Item = Sequence> + '_ {
        self.lost.sequences.iter().copied()
    }
}

/// Packets with one fate, in two columns.
#[derive(Default)]
struct Fates {
    sequences: Vec<Sequence>,
    departed: Vec<Departed>,
}

impl Fates {
    fn clear(&mut self) {
        self.sequences.clear();
        self.departed.clear();
    }

    fn push(&mut self, sequence: Sequence, departed: Departed) {
        self.sequences.push(sequence);
        self.departed.push(departed);
    }

    fn append(&mut self, other: &mut Self) {
        self.sequences.append(&mut other.sequences);
        self.departed.append(&mut other.departed);
    }
}

/// Whether somebody waits to hear that a packet arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cargo {
    Data,
    AcksAlone,
}

/// Where the payload of a packet lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the datagram.
    Datagram(Range<usize>),
    /// In the buffer that was lent for what must be put together: all of it.
    Scratch,
}

impl Place {
    /// The place in something that has `before` more bytes in front.
    #[must_use]
    pub(crate) fn shifted(self, before: usize) -> Self {
        match self {
            Self::Datagram(Range { start, end }) => Self::Datagram(before + start..before + end),
            Self::Scratch => Self::Scratch,
        }
    }

    /// The bytes that lie there.
    #[must_use]
    pub fn bytes<'a>(&self, datagram: &'a [u8], scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Datagram(range) => datagram.get(range.clone()).unwrap_or_default(),
            Self::Scratch => scratch,
        }
    }
}

/// The newest packet that arrived.
#[derive(Clone, Copy)]
struct NewestArrival {
    sequence: Sequence,
    read_at: Instant,
    /// By how much it may have arrived earlier.
    late: Duration,
}

/// What a datagram said of our packets.
#[derive(Clone, Copy)]
struct Heard {
    /// The newest packet that had arrived.
    ack: Sequence,
    arrival: Option<PeersArrival>,
}

/// When the peer read a packet of ours.
#[derive(Clone, Copy)]
struct PeersArrival {
    read_at: PeerTime,
    /// For how long the peer held its acknowledgement.
    held: Duration,
    /// For how long it may have lain unread.
    unread: Duration,
}

impl Path {
    pub(super) fn new(
        endpoint: reliability::Config,
        memory: Option<MemoryBudget>,
        congestion: Congestion,
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            flight: Flight::new(endpoint.sent_window),
            lower_layer_bytes: endpoint.lower_layer_bytes,
            endpoint: Endpoint::with_budget(endpoint, memory)?,
            congestion,
            clock: PeerClock::default(),
            lateness: Lateness::default(),
            newest_arrival: None,
            delivered: 0,
            verdicts: Verdicts::default(),
            displaced: Fates::default(),
            news: None,
        })
    }

    /// Keeps what becomes of packets for [`Path::poll_news`].
    pub(super) fn with_news(self, window: u16) -> Self {
        Self { news: Some(News { most: window.into(), queue: VecDeque::new(), displaced: 0 }), ..self }
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Takes a datagram in which a frame stands behind the header, unless it is one of acknowledgements alone, and which had
    /// arrived at most `unread` ago. `answer` says whether its sender waits to hear of it.
    pub(super) fn take_framed(
        &mut self,
        datagram: &[u8],
        frame: Option<&Frame<'_>>,
        answer: Acceptance,
        unread: Duration,
        now: Instant,
    ) -> Result<(), Reject> {
        let Some(packet) = self.endpoint.handle_if(datagram, now, |_| answer)? else { return Ok(()) };
        let (sequence, Acks { ack, .. }) = (packet.sequence, packet.acks);
        let late = frame.map_or(unread, |frame| self.lateness.read(frame.sent, unread, now));
        let is_newest = self.newest_arrival.is_none_or(|newest| sequence.is_newer_than(newest.sequence));
        if is_newest && answer != Acceptance::TakeUnacknowledged {
            self.newest_arrival = Some(NewestArrival { sequence, read_at: now, late });
        }
        if let Some(frame) = frame {
            self.endpoint.handle_acks_behind(ack, frame.acks_behind, now);
        }
        // Without the time of arrival nobody knows how long the acknowledgement waited: that is no sample of the path.
        let arrival = frame.and_then(|frame| self.arrival(frame, now));
        self.settle(arrival.map(|arrival| Heard { ack, arrival: Some(arrival) }), now);
        Ok(())
    }

    /// Refuses a packet for which there is no place: its sender will hold it for lost.
    pub(super) fn refuse<T>(&mut self, datagram: &[u8], now: Instant) -> Result<Option<T>, Reject> {
        self.endpoint.handle_if(datagram, now, |_| Acceptance::Refuse).map(|_| None)
    }

    /// Takes a datagram of a peer that speaks reliable 1.0 and nothing else. Answers the packet that it is or completes.
    pub(super) fn take_plain(
        &mut self,
        datagram: &[u8],
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<(Sequence, Place)>, Reject> {
        let Some(packet) = self.endpoint.handle(datagram, now)? else { return Ok(None) };
        let (sequence, ack) = (packet.sequence, packet.acks.ack);
        let place = place(datagram, packet.payload, scratch);
        self.settle(Some(Heard { ack, arrival: None }), now);
        Ok(Some((sequence, place)))
    }

    /// When the packet arrived of which a frame tells.
    fn arrival(&mut self, frame: &Frame<'_>, now: Instant) -> Option<PeersArrival> {
        let sent = self.clock.hear(frame.sent, now);
        let arrived = frame.arrived?;
        let held = STAMP_UNIT * u32::from(frame.sent.units_since(arrived.at));
        let read_at = PeerTime(sent.0.saturating_sub(held));
        Some(PeersArrival { read_at, held, unread: STAMP_UNIT * u32::from(arrived.late) })
    }

    /// A datagram of the peer told of our packets: collects the verdicts, and tells the controller.
    fn settle(&mut self, heard: Option<Heard>, now: Instant) {
        let newest = self.judge(now);
        self.feed_back(newest.and_then(|newest| heard.and_then(|heard| sample(newest, heard))), now);
    }

    fn feed_back(&mut self, newest: Option<Newest>, now: Instant) {
        self.congestion.on_feedback(&Feedback {
            now,
            newest,
            acked: &self.verdicts.acked.departed,
            lost: &self.verdicts.lost.departed,
            delivered: self.delivered,
            in_flight: self.flight.in_flight(),
        });
    }

    /// Collects the verdicts on our packets. Answers the newest that is acknowledged, if none newer was before.
    fn judge(&mut self, now: Instant) -> Option<(Sequence, Departed)> {
        self.verdicts.acked.clear();
        self.verdicts.lost.clear();
        self.verdicts.lost.append(&mut self.displaced);
        let newest = self.collect_acked();
        let (flight, lost) = (&mut self.flight, &mut self.verdicts.lost);
        flight.detect(&self.congestion.timing(), now, |sequence, departed| lost.push(sequence, departed));
        newest
    }

    /// Counts a datagram that is dropped before the endpoint sees it.
    pub(super) fn count_reject(&mut self, reject: Reject) {
        self.endpoint.count_reject(reject);
    }

    /// Asks the endpoint which packets were acknowledged. Answers the newest, if none newer was before.
    fn collect_acked(&mut self) -> Option<(Sequence, Departed)> {
        let mut newest = None;
        while let Some(event) = self.endpoint.poll_event() {
            if let Some(news) = &mut self.news {
                news.push(event);
            }
            if let Event::Acked { sequence, .. } = event
                && let Some(landed) = self.flight.acked(sequence)
            {
                self.delivered += u64::from(landed.departed.bytes);
                self.verdicts.acked.push(sequence, landed.departed);
                if landed.newest {
                    newest = Some((sequence, landed.departed));
                }
            }
        }
        newest
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Sends a packet with a frame, behind which `fill` writes, in at most `most` bytes of payload in all. Answers
    /// its bytes on the path; 0 if it did not leave, because `fill` wrote nothing into a packet of data, or the sink has no
    /// room.
    pub(super) fn send_framed(
        &mut self,
        cargo: Cargo,
        most: usize,
        now: Instant,
        sink: &mut impl Sink,
        fill: impl FnOnce(Sequence, &mut [u8]) -> usize,
    ) -> u32 {
        let mut behind = [0; MAX_ACKS_BEHIND_BYTES];
        let told = self.endpoint.acks_behind(&mut behind);
        let (sequence, ack) = (self.endpoint.next_sequence(), self.endpoint.acks().ack);
        let told_of = |newest: &NewestArrival| newest.sequence == ack && now.since(newest.read_at) < STAMP_REACH;
        let arrived = self.newest_arrival.filter(told_of).map(|newest| Arrived::of(newest.read_at, newest.late));
        let frame = Frame { sent: Stamp::of(now), arrived, acks_behind: behind.get(..told).unwrap_or_default() };
        let mut bytes = 0;
        let write = |room: &mut [u8]| {
            bytes = write_framed(&frame, cargo, room, most, |rest| fill(sequence, rest));
            bytes
        };
        let sent = match cargo {
            Cargo::Data => self.endpoint.send_with(now, sink, write),
            Cargo::AcksAlone => self.endpoint.send_unanswered_with(now, sink, write),
        };
        if sent.is_err() {
            return 0;
        }
        self.endpoint.told_behind(told);
        self.departed(cargo, sequence, bytes, 1, now)
    }

    /// Sends a packet as reliable 1.0 does, in fragments if it is large.
    pub(super) fn send_plain(
        &mut self,
        payload: &[u8],
        datagrams: u32,
        now: Instant,
        sink: &mut impl Sink,
    ) -> Result<Sequence, SendError> {
        let sequence = self.endpoint.send(payload, now, sink)?;
        self.departed(Cargo::Data, sequence, payload.len(), datagrams, now);
        Ok(sequence)
    }

    /// Sends the acknowledgements that are due in packets of nothing else, without frames.
    pub(super) fn send_plain_acks(&mut self, now: Instant, sink: &mut impl Sink) {
        self.endpoint.transmit(now, sink);
        self.skip_numbers();
    }

    /// The newest number that a packet of ours has.
    pub(super) fn newest_departure(&self) -> Sequence {
        self.endpoint.next_sequence().back(1)
    }

    /// Passes over the numbers of packets that nobody acknowledges.
    fn skip_numbers(&mut self) {
        let (newest, displaced) = (self.newest_departure(), &mut self.displaced);
        self.flight.skip(newest, |sequence, departed| displaced.push(sequence, departed));
    }

    /// Whether a packet must leave by now for its acknowledgements' sake.
    pub(super) fn owes_acks(&self, now: Instant) -> bool {
        self.endpoint.owes_acks(now)
    }

    /// Counts a packet that has left, and answers its bytes on the path.
    fn departed(
        &mut self,
        cargo: Cargo,
        sequence: Sequence,
        payload_bytes: usize,
        datagrams: u32,
        now: Instant,
    ) -> u32 {
        let below = (self.lower_layer_bytes + MAX_HEADER_BYTES as u32).saturating_mul(datagrams);
        let bytes = u32::try_from(payload_bytes).unwrap_or(u32::MAX).saturating_add(below);
        if cargo == Cargo::Data {
            let displaced = &mut self.displaced;
            self.flight.depart(sequence, bytes, now, |sequence, departed| displaced.push(sequence, departed));
        } else {
            self.skip_numbers();
        }
        self.congestion.on_sent(bytes, now);
        bytes
    }

    /// Bytes that every datagram costs beside its payload behind the header.
    pub(super) const fn overhead(&self) -> u64 {
        self.lower_layer_bytes as u64 + MAX_HEADER_BYTES as u64
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Time has passed: packets count as lost, and the controller may think anew.
    pub(super) fn tick(&mut self, now: Instant) {
        self.endpoint.tick(now);
        self.judge(now);
        if self.verdicts.acked.departed.is_empty() {
            self.congestion.on_lost(&self.verdicts.lost.departed);
        } else {
            // A packet that was refused has told of some.
            self.feed_back(None, now);
        }
        self.congestion.on_tick(self.flight.in_flight(), now);
    }

    /// How far apart ticks are.
    pub(super) fn tick_interval(&self) -> Duration {
        self.congestion.tick_interval()
    }

    /// When the path has been silent for so long that something should be sent of which the peer must tell.
    pub(super) fn probe_deadline(&self) -> Option<Instant> {
        self.flight.probe_deadline(&self.congestion.timing())
    }

    /// A probe was due, and leaves if there is anything to send.
    pub(super) fn probed(&mut self, now: Instant) {
        self.flight.probed(now);
    }

    /// When something is due, if nothing arrives before; probes are the affair of who sends them.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let of_flight = self.flight.loss_deadline(&self.congestion.timing());
        self.endpoint.next_deadline().into_iter().chain(of_flight).min()
    }

    // The budget ----------------------------------------------------------------------------------------------------

    /// Says whether more waits to leave than may.
    pub(super) fn set_demand(&mut self, demand: Demand) {
        self.congestion.set_demand(demand);
    }

    /// How many bytes of payload a packet may have that leaves now, if what goes first of what waits is worth one.
    pub(super) fn packet_budget(&self, most: usize, wish: Wish, now: Instant) -> Option<usize> {
        let ready = self.next_send(wish, now).is_some_and(|ready| ready <= now);
        let payload = self.budget_of(wish, now);
        let is_enough = payload as u64 >= wish.bytes.min(most as u64);
        // Nobody is ahead for the sake of a packet that only keeps the connection alive.
        let payload = if is_enough { payload } else { self.budget(now) };
        (ready && payload > 0).then(|| payload.min(most))
    }

    /// What the path would carry now in a packet, in bytes of its payload.
    pub(super) fn means(&self, now: Instant) -> Means {
        // Who may be ahead without limit is held by the window alone.
        let ahead = Claim { ahead: u64::MAX, kept: 0 };
        Means {
            credit: self.payload_of(Claim::default(), now),
            window: self.payload_of(ahead, now),
            bulk: self.bulk(now),
        }
    }

    /// Up to where blocks may fill a packet, in bytes of its payload.
    pub(super) fn bulk(&self, now: Instant) -> usize {
        let bytes = u64::from(self.congestion.bulk_packet_bytes(now));
        bytes.saturating_sub(self.overhead() + FRAME_BYTES) as usize
    }

    /// Whether more packets are under way than one can wait for.
    pub(super) fn is_full(&self) -> bool {
        self.flight.is_full()
    }

    /// How many bytes of payload may leave now in one packet and those behind it.
    pub(super) fn budget(&self, now: Instant) -> usize {
        usize::try_from(self.payload_of(Claim::default(), now)).unwrap_or(0)
    }

    /// As [`Path::budget`], for what goes first of what waits.
    pub(super) fn budget_of(&self, wish: Wish, now: Instant) -> usize {
        usize::try_from(self.payload_of(claim(wish), now)).unwrap_or(0)
    }

    /// As [`Path::budget`], for what may be so far ahead of what has come in.
    pub(super) fn budget_ahead(&self, ahead: u64, now: Instant) -> usize {
        usize::try_from(self.payload_of(Claim { ahead, kept: 0 }, now)).unwrap_or(0)
    }

    fn payload_of(&self, claim: Claim, now: Instant) -> i64 {
        self.congestion.budget_of(claim, self.flight.in_flight(), now).saturating_sub_unsigned(self.overhead())
    }

    /// When the next packet may leave, while this waits to go first.
    pub(super) fn next_send(&self, wish: Wish, now: Instant) -> Option<Instant> {
        let bytes = wish.bytes.saturating_add(self.overhead() + FRAME_BYTES);
        self.congestion.next_send_of(bytes, claim(wish), self.flight.in_flight(), now)
    }

    // What is known -------------------------------------------------------------------------------------------------

    /// The packets of ours whose fate became known with the last datagram or tick.
    pub(super) const fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// One behind the newest packet of ours that the peer is known to have received, counted without the wrap.
    pub(super) const fn heard_to(&self) -> u64 {
        self.endpoint.heard_to()
    }

    /// How often the peer acknowledged packets that were never sent.
    pub(super) const fn acks_of_unsent(&self) -> u64 {
        self.endpoint.acks_of_unsent()
    }

    /// The oldest news of a packet of ours, if somebody asked for it.
    pub(super) fn poll_news(&mut self) -> Option<Event> {
        self.news.as_mut()?.queue.pop_front()
    }

    pub(super) fn suggestion(&self, now: Instant) -> congestion::Suggestion {
        self.congestion.suggestion(now)
    }

    pub(super) fn stats(&self, now: Instant) -> (reliability::Stats, congestion::Stats) {
        let mut endpoint = self.endpoint.stats(now);
        endpoint.counters.untold_events += self.news.as_ref().map_or(0, |news| news.displaced);
        (endpoint, self.congestion.stats(now))
    }
}

/// What goes first draws on the budget so.
const fn claim(Wish { ahead, kept, .. }: Wish) -> Claim {
    Claim { ahead, kept }
}

/// A sample of the path, if what was newly acknowledged is the packet of whose arrival the peer told.
fn sample((sequence, departed): (Sequence, Departed), heard: Heard) -> Option<Newest> {
    let sample = Newest {
        sent_at: departed.sent_at,
        received_at: heard.arrival.map(|arrival| arrival.read_at),
        ack_delay: heard.arrival.map_or(Duration::ZERO, |arrival| arrival.held),
        unread: heard.arrival.map_or(Duration::ZERO, |arrival| arrival.unread),
    };
    (sequence == heard.ack).then_some(sample)
}

/// Writes a frame and what stands behind it; answers how many bytes that are, none if a packet of data has nothing there.
fn write_framed(
    frame: &Frame<'_>,
    cargo: Cargo,
    room: &mut [u8],
    most: usize,
    fill: impl FnOnce(&mut [u8]) -> usize,
) -> usize {
    let most = room.len().min(most);
    let Some(room) = room.get_mut(..most) else { return 0 };
    let mut writer = Writer::new(room);
    frame.emit(&mut writer);
    let Some(start) = writer.written() else { return 0 };
    let filled = room.get_mut(start..).map_or(0, fill);
    if filled == 0 && cargo == Cargo::Data { 0 } else { start + filled }
}

/// Says where a payload lies; one that was put together is moved out.
fn place(datagram: &[u8], payload: &[u8], scratch: &mut Vec<u8>) -> Place {
    let start = payload.as_ptr().addr().wrapping_sub(datagram.as_ptr().addr());
    if start <= datagram.len() && start + payload.len() <= datagram.len() {
        return Place::Datagram(start..start + payload.len());
    }
    scratch.clear();
    scratch.extend_from_slice(payload);
    Place::Scratch
}
