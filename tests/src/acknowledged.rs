//! Plays the endpoints of `reliable_*.json` by their scripts, and checks every expectation.

use std::collections::BTreeMap;

use slipgate_netcode::time::Instant;
use slipgate_session::connection::SendError;
use slipgate_session::reject::Reject;
use slipgate_session::reliability::{Acceptance, Endpoint, EndpointConfig, EndpointStats, PacketEvent, Sink};
use slipgate_session::wire::reliable::{Acks, FragmentLimits, Sequence};

use crate::reference_statistics::{ReferenceSettings, ReferenceStatistics};
use crate::vectors::Case;

/// An unlimited list of datagrams.
#[derive(Default)]
pub struct Datagrams {
    buf: Vec<u8>,
    /// The datagrams in the order of sending.
    pub sent: Vec<Vec<u8>>,
}

impl Sink for Datagrams {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        self.buf.resize(1 << 16, 0);
        Some(&mut self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        self.sent.push(self.buf[..bytes].to_vec());
    }
}

/// Returns an endpoint with the settings of the reference, which a case lists under the names of the reference.
///
/// # Panics
/// If no endpoint can run with these settings.
#[must_use]
pub fn endpoint(settings: &Case<'_>) -> Endpoint {
    let size = |field| settings.u32(field) as usize;
    let config = EndpointConfig {
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
        ..EndpointConfig::default()
    };
    assert_eq!(
        settings.u16("ack_buffer_size"),
        config.sent_window,
        "{settings}: the ack list is as long as the window"
    );
    Endpoint::new(config, None).unwrap_or_else(|error| panic!("{settings}: {error}"))
}

/// Returns the statistics that the reference keeps beside an endpoint with these settings.
fn statistics(settings: &Case<'_>) -> ReferenceStatistics {
    ReferenceStatistics::new(ReferenceSettings {
        rtt_smoothing: settings.number("rtt_smoothing_factor"),
        loss_smoothing: settings.number("packet_loss_smoothing_factor"),
        bandwidth_smoothing: settings.number("bandwidth_smoothing_factor"),
        sent_window: settings.u16("sent_packets_buffer_size"),
        received_window: settings.u16("received_packets_buffer_size"),
        rtt_history: settings.u16("rtt_history_size"),
        lower_layer_bytes: settings.u32("packet_header_size"),
        fragments: FragmentLimits {
            max_fragments: settings.u16("max_fragments"),
            fragment_bytes: settings.u32("fragment_size") as usize,
        },
    })
}

/// The endpoints of one scenario.
pub struct Play {
    now: Instant,
    endpoints: BTreeMap<String, Actor>,
}

struct Actor {
    endpoint: Endpoint,
    statistics: ReferenceStatistics,
    acked: Vec<u16>,
    /// The statistics as of the last update: the reference computes all but the smoothed round-trip time then, we
    /// compute on request.
    updated: Option<[(&'static str, f64); 10]>,
}

impl Play {
    /// Returns the endpoints of a scenario, before anything was sent.
    #[must_use]
    pub fn new(scenario: &Case<'_>) -> Self {
        let settings = scenario.part("endpoints");
        let actor = |name: &str| Actor {
            endpoint: endpoint(&settings.part(name)),
            statistics: statistics(&settings.part(name)),
            acked: Vec::new(),
            updated: None,
        };
        let endpoints = settings.fields().into_iter().map(|name| (name.to_owned(), actor(name))).collect();
        Self { now: Instant::default(), endpoints }
    }

    /// Plays one operation of the script.
    ///
    /// # Panics
    /// If any outcome differs from the expectation of the operation.
    pub fn play(&mut self, operation: &Case<'_>, context: &str) {
        if operation.text("op") == "update_all" {
            self.now = Instant::from_start(operation.seconds("time_s"));
            for actor in self.endpoints.values_mut() {
                actor.endpoint.tick(self.now);
                actor.statistics.tick();
                actor.updated = Some(actor.statistics.values());
                actor.poll();
            }
            return;
        }
        let now = self.now;
        let actor =
            self.endpoints.get_mut(operation.text("endpoint")).unwrap_or_else(|| panic!("{context}: unknown endpoint"));
        match operation.text("op") {
            "send" => actor.send(operation, now, context),
            "send_refused" => actor.send_refused(operation, now, context),
            "send_and_discard" => actor.send_and_discard(operation, now, context),
            "deliver" => actor.deliver(operation, now, context),
            "take_acks" => {
                let acked = std::mem::take(&mut actor.acked);
                assert_eq!(acked, operation.u16s("expect_sequences_u16"), "{context}");
            }
            "next_header_would_carry" => {
                let (ack, bits) = (operation.u16("expect_ack_u16"), operation.u32("expect_ack_bits_u32"));
                assert_eq!(actor.endpoint.next_header().acks, Acks { ack: Sequence(ack), bits }, "{context}");
            }
            "counters" => {
                let expected = counters_in(&operation.part("expect"));
                assert_eq!(counters(&actor.endpoint.stats(now)), expected, "{context}");
            }
            "stats" => {
                let updated = actor.updated.unwrap_or_else(|| panic!("{context}: before any update"));
                assert_stats(&operation.part("expect"), updated, actor.statistics.rtt(), context);
            }
            other => panic!("{context}: no operation {other}"),
        }
    }
}

impl Actor {
    fn poll(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            if let PacketEvent::Acked { sequence, rtt } = event {
                self.statistics.on_acked(sequence, rtt);
                self.acked.push(sequence.0);
            }
        }
    }

    fn send(&mut self, operation: &Case<'_>, now: Instant, context: &str) {
        let mut datagrams = Datagrams::default();
        let payload = operation.bytes("payload_hex");
        let sequence = self.endpoint.send(&payload, now, &mut datagrams);
        self.statistics.on_sent(payload.len(), now);
        assert_eq!(sequence, Ok(Sequence(operation.u16("expect_sequence_u16"))), "{context}");
        let sent: Vec<String> = datagrams.sent.iter().map(hex::encode).collect();
        assert_eq!(sent, operation.texts("expect_datagrams_hex"), "{context}");
    }

    fn send_refused(&mut self, operation: &Case<'_>, now: Instant, context: &str) {
        let mut datagrams = Datagrams::default();
        let before = self.endpoint.next_header().sequence;
        let payload = vec![0; operation.u32("payload_bytes_u32") as usize];
        let sent = self.endpoint.send(&payload, now, &mut datagrams);
        assert!(matches!(sent, Err(SendError::TooLarge { .. })), "{context}");
        assert_eq!(self.endpoint.next_header().sequence, before, "{context}");
        assert!(datagrams.sent.is_empty(), "{context}");
    }

    fn send_and_discard(&mut self, operation: &Case<'_>, now: Instant, context: &str) {
        let payload = operation.bytes("payload_hex");
        let mut datagrams = Datagrams::default();
        for _ in 0..operation.u32("count_u32") {
            assert!(self.endpoint.send(&payload, now, &mut datagrams).is_ok(), "{context}");
            self.statistics.on_sent(payload.len(), now);
            datagrams.sent.clear();
            self.poll();
        }
        assert_eq!(self.endpoint.next_header().sequence.0, operation.u16("expect_next_sequence_u16"), "{context}");
    }

    fn deliver(&mut self, operation: &Case<'_>, now: Instant, context: &str) {
        let refuses = operation.has("application_rejects") && operation.flag("application_rejects");
        let acceptance = if refuses { Acceptance::Refuse } else { Acceptance::Take };
        let before = counters(&self.endpoint.stats(now));
        let datagram = operation.bytes("datagram_hex");
        let taken = self.endpoint.handle_if(&datagram, now, |_| acceptance);
        assert_eq!(taken == Err(Reject::Refused), refuses, "{context}");
        if let Ok(packet) = &taken {
            let completed = packet.map(|packet| (packet.sequence, packet.payload.len()));
            self.statistics.on_datagram(&datagram, completed, now);
        }
        let packet = taken.ok().flatten();
        let payload = packet.map(|packet| hex::encode(packet.payload));
        let expected = operation.has("expect_payload_hex").then(|| operation.text("expect_payload_hex").to_owned());
        assert_eq!(payload, expected, "{context}");
        if operation.has("expect_sequence_u16") {
            let sequence = packet.map(|packet| packet.sequence.0);
            assert_eq!(sequence, Some(operation.u16("expect_sequence_u16")), "{context}");
        }
        let after = counters(&self.endpoint.stats(now));
        let mut changes: BTreeMap<&str, u32> =
            after.iter().map(|(name, count)| (*name, count - before[name])).collect();
        changes.retain(|_, change| *change > 0);
        assert_eq!(changes, counters_in(&operation.part("counter_changes")), "{context}");
        self.poll();
    }
}

/// Returns whether the dropped datagram was a fragment.
#[must_use]
pub const fn is_fragment_reject(reject: Reject) -> bool {
    reject as u8 >= Reject::FragmentTooShort as u8
}

fn counters_in<'a>(expected: &Case<'a>) -> BTreeMap<&'a str, u32> {
    expected.fields().into_iter().map(|name| (name, expected.u32(name))).collect()
}

/// Returns our counters under the names of the reference. The reference does not count the fragments that it ignores.
fn counters(stats: &EndpointStats) -> BTreeMap<&'static str, u32> {
    let rejected = |reasons: &[Reject]| reasons.iter().map(|reason| stats.rejects[*reason]).sum::<u64>();
    let invalid = [Reject::TooShort, Reject::NotAPacket, Reject::AckCut, Reject::AckBitsCut];
    let ignored = [Reject::FragmentRepeated, Reject::FragmentLate];
    let fragments: Vec<Reject> =
        Reject::ALL.iter().copied().filter(|reason| is_fragment_reject(*reason) && !ignored.contains(reason)).collect();
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

/// Compares with tolerance: the reference computes in single precision (see the README of the vectors).
fn assert_stats(expected: &Case<'_>, updated: [(&'static str, f64); 10], rtt: f64, context: &str) {
    let ours: Vec<(&str, f64)> = [("rtt_ms", rtt)].into_iter().chain(updated).collect();
    assert_eq!(expected.fields().len(), ours.len(), "{context}");
    for (name, value) in ours {
        let reference = expected.number(name);
        let tolerance = 1e-3 + 1e-4 * reference.abs();
        assert!((value - reference).abs() <= tolerance, "{context}: {name} is {value}, reference {reference}");
    }
}
