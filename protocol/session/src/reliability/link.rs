//! All that an endpoint knows of its path and its peer, but for fragments: windows, verdicts, statistics.

use core::time::Duration;

use super::config::{AckPolicy, Config, DEFAULT_ACK_AFTER, LossDeadline, Statistics};
use super::meter::{Arrival, Meter, Reading};
use super::received::Received;
use super::rtt::Rtt;
use super::sent::{Cargo, Heard, News, Remember, Sent, Word};
use super::stats::{Counters, Stats};
use super::{Acceptance, Event, Packet, seed};
use crate::reject::{Reject, Rejects};
use crate::wire::reliable::{ACKS_PER_HEADER, Acks, Header, Sequence};
use slipgate_netcode::time::Instant;

/// Acknowledgements behind a header that are listened to: with its 32 they speak of 1,056 packets.
const MAX_BEHIND_BYTES: usize = 128;

/// A packet as it came: in one datagram, or put together from fragments.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    pub(super) header: Header,
    pub(super) payload: &'a [u8],
    /// Of header and payload.
    pub(super) bytes: usize,
}

pub(super) struct Link {
    loss: LossDeadline,
    policy: Option<AckPolicy>,
    lower_layer_bytes: u32,
    /// Whether every acknowledged packet gives a sample of the round-trip time, as in the reference.
    sample_all: bool,
    sent: Sent,
    received: Received,
    /// When the packet left that was heard last.
    word: Word,
    rtt: Rtt,
    meter: Meter,
    pub(super) counters: Counters,
    pub(super) rejects: Rejects,
}

impl Link {
    pub(super) fn new(config: &Config) -> Self {
        let (rtt_smoothing, sample_all, remember) = match config.statistics {
            Statistics::Seed => (seed::RTT_SMOOTHING, false, Remember::Needed),
            Statistics::Reference(smoothing) => (smoothing.rtt, true, Remember::All),
        };
        Self {
            loss: config.loss,
            policy: config.acks,
            lower_layer_bytes: config.lower_layer_bytes,
            sample_all,
            sent: Sent::new(config.sent_window, remember),
            received: Received::new(config.received_window),
            word: Word::Overtaken,
            rtt: Rtt::new(rtt_smoothing, config.rtt_history),
            meter: Meter::new(config.statistics, config.received_window),
            counters: Counters::default(),
            rejects: Rejects::default(),
        }
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// The header of the next packet.
    pub(super) fn next_header(&self) -> Header {
        Header { sequence: self.sent.next(), acks: self.received.acks() }
    }

    /// The header of a packet that must leave with nothing but acknowledgements, if one must by now.
    pub(super) fn owed_header(&self, now: Instant) -> Option<Header> {
        let acks = self.received.owed(self.policy?, now)?;
        Some(Header { sequence: self.sent.next(), acks })
    }

    /// Whether a packet must leave by now for its acknowledgements' sake.
    pub(super) fn owes_acks(&self, now: Instant) -> bool {
        self.owed_header(now).is_some()
    }

    /// Which of the packets before those that a header speaks of have arrived; see [`Received::acks_behind`].
    pub(super) fn acks_behind(&self, bits: &mut [u8]) -> usize {
        self.received.acks_behind(bits)
    }

    /// So many bytes of [`Link::acks_behind`] have left with the newest header.
    pub(super) fn report_behind(&mut self, bytes: usize) {
        self.received.report_behind(bytes);
    }

    /// The packet with this header has left.
    pub(super) fn depart(&mut self, header: Header, cargo: Cargo, payload_bytes: usize, now: Instant) {
        let bytes = self.with_lower_layers(payload_bytes);
        if self.sent.depart(cargo, bytes, now) {
            self.counters.displaced += 1;
            self.note_lost(now);
        }
        self.received.report(header.acks);
        self.meter.sent(bytes, now);
        self.counters.sent += 1;
        self.counters.acks_sent += u64::from(cargo == Cargo::AcksAlone);
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Takes a packet that came whole, or whose fragments are complete (§2.4).
    pub(super) fn receive<'a>(
        &mut self,
        incoming: Incoming<'a>,
        now: Instant,
        accept: impl FnOnce(&Packet<'a>) -> Acceptance,
    ) -> Result<Packet<'a>, Reject> {
        let Incoming { header: Header { sequence, acks }, payload, bytes } = incoming;
        self.received.check(sequence)?;
        let packet = Packet { sequence, payload, acks };
        let acceptance = accept(&packet);
        if acceptance == Acceptance::Refuse {
            return Err(Reject::Refused);
        }
        self.word = self.received.word(sequence);
        if acceptance != Acceptance::TakeUnacknowledged {
            self.received.mark(sequence);
        }
        if acceptance == Acceptance::Take && !payload.is_empty() {
            self.received.owe(sequence, now);
        }
        let bytes = self.with_lower_layers(bytes);
        self.meter.packet(Arrival { sequence, bytes, at: now });
        self.hear(acks, now);
        Ok(packet)
    }

    /// A fragment of a packet is welcome: from now on the packet is reported as the newest, and as missing.
    pub(super) fn expect(&mut self, sequence: Sequence) {
        self.received.advance(sequence);
        self.meter.expect(sequence);
    }

    /// Counts the bytes of a datagram that was of use.
    pub(super) fn count_datagram(&mut self, bytes: usize, now: Instant) {
        self.meter.datagram(self.with_lower_layers(bytes), now);
    }

    pub(super) fn has_received(&self, sequence: Sequence) -> bool {
        self.received.has(sequence)
    }

    /// Hears what the last packet said of packets before those that its header speaks of. None of them gives a sample of
    /// the round-trip time.
    pub(super) fn hear_behind(&mut self, ack: Sequence, bits: &[u8], now: Instant) {
        let mut nonsense = false;
        // A peer that has more to say is none of ours.
        for sequence in arrived_behind(ack, bits.get(..MAX_BEHIND_BYTES).unwrap_or(bits)) {
            match self.sent.acknowledge(sequence, self.word, now) {
                Heard::News(news) => self.note_acked(&news, now),
                Heard::Nothing => {}
                Heard::Nonsense => nonsense = true,
            }
        }
        self.counters.acks_of_unsent += u64::from(nonsense);
    }

    /// What a header says about our packets.
    fn hear(&mut self, acks: Acks, now: Instant) {
        let mut nonsense = false;
        for (place, sequence) in acks.arrived().enumerate() {
            match self.sent.acknowledge(sequence, self.word, now) {
                Heard::News(news) => {
                    if self.is_sample(&news, place) {
                        self.rtt.sample(news.age);
                    }
                    self.note_acked(&news, now);
                }
                Heard::Nothing => {}
                Heard::Nonsense => nonsense = true,
            }
        }
        self.counters.acks_of_unsent += u64::from(nonsense);
    }

    /// Whether an acknowledgement says how long a round trip takes; `place` is how many newer ones its header has.
    ///
    /// DECISION: only the newest packet of a header does. Those before it waited at the peer, for up to 16 packets of
    /// a one-sided stream, or for the next header after a lost one (RFC 9002, section 5.1, says the same). And what was
    /// lost has left the queue, as in the article, unless the deadline follows the round-trip time: on a path that
    /// takes longer than a second there would be no sample to follow.
    fn is_sample(&self, news: &News, place: usize) -> bool {
        let in_time = !news.late || self.loss == LossDeadline::AtLeastRtt;
        self.sample_all || (place == 0 && in_time)
    }

    fn note_acked(&mut self, news: &News, now: Instant) {
        self.meter.acked(news, now);
        self.counters.acked += 1;
        self.counters.late_acks += u64::from(news.late);
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Calls packets lost that were not acknowledged in time.
    pub(super) fn tick(&mut self, now: Instant) {
        let deadline = self.loss_deadline();
        while self.sent.give_up_overdue(deadline, now) {
            self.note_lost(now);
        }
        self.meter.tick(&self.sent);
    }

    /// When the link has something to do of its own at the latest, if nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let ack = self.policy.and_then(|policy| self.received.ack_deadline(policy));
        let loss = self.sent.awaited_since().map(|since| since.after(self.loss_deadline()));
        ack.into_iter().chain(loss).min()
    }

    fn loss_deadline(&self) -> Duration {
        let bound = match self.loss {
            LossDeadline::Fixed => None,
            LossDeadline::AtLeastRtt => self.rtt.bound().map(|bound| bound + DEFAULT_ACK_AFTER),
        };
        bound.map_or(seed::LOST_AFTER, |bound| bound.max(seed::LOST_AFTER))
    }

    fn note_lost(&mut self, now: Instant) {
        self.meter.lost(now);
        self.counters.lost += 1;
    }

    // What is known -------------------------------------------------------------------------------------------------

    /// See [`Sent::heard_to`].
    pub(super) const fn heard_to(&self) -> u64 {
        self.sent.heard_to()
    }

    /// The oldest verdict on a packet that the application was not told.
    pub(super) fn poll(&mut self) -> Option<Event> {
        self.sent.poll()
    }

    pub(super) fn stats(&self, now: Instant) -> Stats {
        let Reading { loss, sent, received, acked } = self.meter.read(now);
        let counters = Counters { untold_events: self.sent.untold(), ..self.counters };
        let rejects = self.rejects;
        Stats { rtt: self.rtt.stats(), loss, sent, received, acked, counters, rejects }
    }

    pub(super) fn reset(&mut self) {
        self.sent.reset();
        self.received.reset();
        self.word = Word::Overtaken;
        self.rtt.reset();
        self.meter.reset();
        self.counters = Counters::default();
        self.rejects = Rejects::default();
    }

    fn with_lower_layers(&self, bytes: usize) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(self.lower_layer_bytes)
    }
}

/// The packets that arrived, by bits that go on where a header's end: bit i of the whole stands for `ack` - 32 - i.
fn arrived_behind(ack: Sequence, bits: &[u8]) -> impl Iterator<Item = Sequence> {
    let newest_first =
        (0_u16..).zip(bits).flat_map(|(place, byte)| (0..8).map(move |bit| (place * 8 + bit, byte >> bit)));
    newest_first.filter(|(_, bit)| bit & 1 != 0).map(move |(back, _)| ack.back(ACKS_PER_HEADER + back))
}

#[cfg(test)]
mod tests;
