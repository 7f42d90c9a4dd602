//! The endpoints of `reliable_*.json`, played as their scripts say, with every expectation checked.

use std::collections::BTreeMap;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::reject::Reject;
use slipgate_session::reliability::{
    Acceptance, Config, Endpoint, Event, ReferenceSmoothing, RttStats, SendError, Sink, Statistics, Stats,
};
use slipgate_session::wire::reliable::{Acks, Sequence};

use crate::vectors::Case;

/// A list of datagrams, as many as one likes.
#[derive(Default)]
pub struct Datagrams {
    room: Vec<u8>,
    /// What was sent, in order.
    pub sent: Vec<Vec<u8>>,
}

impl Sink for Datagrams {
    fn rooms(&self) -> usize {
        usize::MAX
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.room.resize(1 << 16, 0);
        Some(&mut self.room)
    }

    fn commit(&mut self, bytes: usize) {
        self.sent.push(self.room[..bytes].to_vec());
    }
}

/// An endpoint with the reference's settings, which a case lists under its own names.
///
/// # Panics
/// When no endpoint can run with them.
#[must_use]
pub fn endpoint(settings: &Case<'_>) -> Endpoint {
    let size = |field| settings.u32(field) as usize;
    let config = Config {
        max_packet_bytes: size("max_packet_size"),
        fragment_above: size("fragment_above"),
        fragment_bytes: size("fragment_size"),
        max_fragments: settings.u16("max_fragments"),
        sent_window: settings.u16("sent_packets_buffer_size"),
        received_window: settings.u16("received_packets_buffer_size"),
        reassemblies: settings.u16("fragment_reassembly_buffer_size"),
        acks: None,
        rtt_history: settings.u16("rtt_history_size"),
        lower_layer_bytes: settings.u32("packet_header_size"),
        statistics: Statistics::Reference(ReferenceSmoothing {
            rtt: settings.number("rtt_smoothing_factor"),
            loss: settings.number("packet_loss_smoothing_factor"),
            bandwidth: settings.number("bandwidth_smoothing_factor"),
        }),
        ..Config::default()
    };
    assert_eq!(settings.u16("ack_buffer_size"), config.sent_window, "{settings}: our list is as long as the window");
    Endpoint::new(config).unwrap_or_else(|error| panic!("{settings}: {error}"))
}

/// The endpoints of one scenario.
pub struct Play {
    now: Instant,
    endpoints: BTreeMap<String, Actor>,
}

struct Actor {
    endpoint: Endpoint,
    acked: Vec<u16>,
    /// As of the last update: the reference computes all but the smoothed round-trip time there, we when somebody asks.
    updated: Option<Stats>,
}

impl Play {
    /// The endpoints of a scenario, before anything was sent.
    #[must_use]
    pub fn new(scenario: &Case<'_>) -> Self {
        let settings = scenario.part("endpoints");
        let actor = |name: &str| Actor { endpoint: endpoint(&settings.part(name)), acked: Vec::new(), updated: None };
        let endpoints = settings.fields().into_iter().map(|name| (name.to_owned(), actor(name))).collect();
        Self { now: Instant::default(), endpoints }
    }

    /// Plays one operation of the script.
    ///
    /// # Panics
    /// When anything is otherwise than the operation expects.
    pub fn play(&mut self, operation: &Case<'_>, place: &str) {
        if operation.text("op") == "update_all" {
            self.now = Instant::from_start(operation.seconds("time_s"));
            for actor in self.endpoints.values_mut() {
                actor.endpoint.tick(self.now);
                actor.updated = Some(actor.endpoint.stats(self.now));
                actor.poll();
            }
            return;
        }
        let now = self.now;
        let actor = self.endpoints.get_mut(operation.text("endpoint")).unwrap_or_else(|| panic!("{place}: who?"));
        match operation.text("op") {
            "send" => actor.send(operation, now, place),
            "send_refused" => actor.send_refused(operation, now, place),
            "send_and_discard" => actor.send_and_discard(operation, now, place),
            "deliver" => actor.deliver(operation, now, place),
            "take_acks" => {
                let acked = std::mem::take(&mut actor.acked);
                assert_eq!(acked, operation.u16s("expect_sequences_u16"), "{place}");
            }
            "next_header_would_carry" => {
                let (ack, bits) = (operation.u16("expect_ack_u16"), operation.u32("expect_ack_bits_u32"));
                assert_eq!(actor.endpoint.acks(), Acks { ack: Sequence(ack), bits }, "{place}");
            }
            "counters" => {
                let expected = counters_in(&operation.part("expect"));
                assert_eq!(counters(&actor.endpoint.stats(now)), expected, "{place}");
            }
            "stats" => {
                let updated = actor.updated.unwrap_or_else(|| panic!("{place}: before any update"));
                assert_stats(&operation.part("expect"), &updated, &actor.endpoint.stats(now), place);
            }
            other => panic!("{place}: no operation {other}"),
        }
    }
}

impl Actor {
    fn poll(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::Acked { sequence, .. } = event {
                self.acked.push(sequence.0);
            }
        }
    }

    fn send(&mut self, operation: &Case<'_>, now: Instant, place: &str) {
        let mut datagrams = Datagrams::default();
        let sequence = self.endpoint.send(&operation.bytes("payload_hex"), now, &mut datagrams);
        assert_eq!(sequence, Ok(Sequence(operation.u16("expect_sequence_u16"))), "{place}");
        let sent: Vec<String> = datagrams.sent.iter().map(hex::encode).collect();
        assert_eq!(sent, operation.texts("expect_datagrams_hex"), "{place}");
    }

    fn send_refused(&mut self, operation: &Case<'_>, now: Instant, place: &str) {
        let mut datagrams = Datagrams::default();
        let before = self.endpoint.next_sequence();
        let payload = vec![0; operation.u32("payload_bytes_u32") as usize];
        assert_eq!(self.endpoint.send(&payload, now, &mut datagrams), Err(SendError::TooLarge), "{place}");
        assert_eq!(self.endpoint.next_sequence(), before, "{place}");
        assert!(datagrams.sent.is_empty(), "{place}");
    }

    fn send_and_discard(&mut self, operation: &Case<'_>, now: Instant, place: &str) {
        let payload = operation.bytes("payload_hex");
        let mut datagrams = Datagrams::default();
        for _ in 0..operation.u32("count_u32") {
            assert!(self.endpoint.send(&payload, now, &mut datagrams).is_ok(), "{place}");
            datagrams.sent.clear();
            self.poll();
        }
        assert_eq!(self.endpoint.next_sequence().0, operation.u16("expect_next_sequence_u16"), "{place}");
    }

    fn deliver(&mut self, operation: &Case<'_>, now: Instant, place: &str) {
        let refuses = operation.has("application_rejects") && operation.flag("application_rejects");
        let acceptance = if refuses { Acceptance::Refuse } else { Acceptance::Take };
        let before = counters(&self.endpoint.stats(now));
        let datagram = operation.bytes("datagram_hex");
        let taken = self.endpoint.handle_if(&datagram, now, |_| acceptance);
        assert_eq!(taken == Err(Reject::Refused), refuses, "{place}");
        let packet = taken.ok().flatten();
        let payload = packet.map(|packet| hex::encode(packet.payload));
        let expected = operation.has("expect_payload_hex").then(|| operation.text("expect_payload_hex").to_owned());
        assert_eq!(payload, expected, "{place}");
        if operation.has("expect_sequence_u16") {
            let sequence = packet.map(|packet| packet.sequence.0);
            assert_eq!(sequence, Some(operation.u16("expect_sequence_u16")), "{place}");
        }
        let after = counters(&self.endpoint.stats(now));
        let mut changes: BTreeMap<&str, u32> =
            after.iter().map(|(name, count)| (*name, count - before[name])).collect();
        changes.retain(|_, change| *change > 0);
        assert_eq!(changes, counters_in(&operation.part("counter_changes")), "{place}");
        self.poll();
    }
}

fn counters_in<'a>(expected: &Case<'a>) -> BTreeMap<&'a str, u32> {
    expected.fields().into_iter().map(|name| (name, expected.u32(name))).collect()
}

/// Our counters under the reference's names. It does not count fragments that it ignores.
fn counters(stats: &Stats) -> BTreeMap<&'static str, u32> {
    let rejected = |reasons: &[Reject]| reasons.iter().map(|reason| stats.rejects.count(*reason)).sum::<u64>();
    let invalid = [Reject::TooShort, Reject::NotAPacket, Reject::AckCut, Reject::AckBitsCut];
    let ignored = [Reject::FragmentRepeated, Reject::FragmentLate];
    let fragments: Vec<Reject> =
        Reject::ALL.iter().copied().filter(|reason| reason.is_fragment() && !ignored.contains(reason)).collect();
    [
        ("packets_sent", stats.counters.sent),
        ("packets_received", stats.counters.received),
        ("packets_acked", stats.counters.acked),
        ("packets_stale", rejected(&[Reject::Stale])),
        ("packets_invalid", rejected(&invalid)),
        ("packets_too_large_to_send", stats.counters.too_large_to_send),
        ("packets_too_large_to_receive", rejected(&[Reject::TooLarge])),
        ("fragments_sent", stats.counters.fragments_sent),
        ("fragments_received", stats.counters.fragments_received),
        ("fragments_invalid", rejected(&fragments)),
        ("packets_duplicate", rejected(&[Reject::Duplicate])),
    ]
    .into_iter()
    .map(|(name, count)| (name, count as u32))
    .collect()
}

/// The reference computes in single precision: its README says how near one must come.
fn assert_stats(expected: &Case<'_>, stats: &Stats, now: &Stats, place: &str) {
    let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let rtt = |value: fn(&RttStats) -> Duration| stats.rtt.as_ref().map_or(0.0, |rtt| millis(value(rtt)));
    let ours = [
        ("rtt_ms", now.rtt.map_or(0.0, |rtt| millis(rtt.smoothed))),
        ("rtt_min_ms", rtt(|rtt| rtt.min)),
        ("rtt_max_ms", rtt(|rtt| rtt.max)),
        ("rtt_avg_ms", rtt(|rtt| rtt.mean)),
        ("jitter_avg_vs_min_rtt_ms", rtt(|rtt| rtt.jitter.mean_over_min)),
        ("jitter_max_vs_min_rtt_ms", rtt(|rtt| rtt.jitter.max_over_min)),
        ("jitter_stddev_vs_avg_rtt_ms", rtt(|rtt| rtt.jitter.deviation)),
        ("packet_loss_percent", stats.loss * 100.0),
        ("sent_bandwidth_kbps", stats.sent.0 / 1000.0),
        ("received_bandwidth_kbps", stats.received.0 / 1000.0),
        ("acked_bandwidth_kbps", stats.acked.0 / 1000.0),
    ];
    assert_eq!(expected.fields().len(), ours.len(), "{place}");
    for (name, value) in ours {
        let reference = expected.number(name);
        let tolerance = 1e-3 + 1e-4 * reference.abs();
        assert!((value - reference).abs() <= tolerance, "{place}: {name} is {value}, reference {reference}");
    }
}
