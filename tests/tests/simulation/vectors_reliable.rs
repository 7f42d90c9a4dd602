//! reliable 1.0: headers, fragments, windows and whole exchanges, as the reference writes, reads and decides them.

use std::collections::BTreeSet;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::reject::Reject;
use slipgate_session::reliability::{Endpoint, EndpointConfig};
use slipgate_session::wire::reliable::{
    Acks, Fragment, FragmentLimits, MAX_FRAGMENTS, MAX_HEADER_BYTES, MAX_OVERHEAD_BYTES, ReliableHeader, Sequence,
};
use slipgate_tests::acknowledged::{Datagrams, Play, is_fragment_reject};
use slipgate_tests::vectors::{Case, Vectors};

const COMPARE: &str = "reliable_sequence_compare.json";
const HEADERS: &str = "reliable_packet_headers.json";
const FRAGMENTS: &str = "reliable_fragments.json";
const WINDOW: &str = "reliable_receive_window.json";
const TRACE: &str = "reliable_endpoint_trace.json";

fn emit(emit: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = [0; 1 << 15];
    let mut writer = Writer::new(&mut bytes);
    emit(&mut writer);
    let written = writer.written().expect("the header fits");
    bytes[..written].to_vec()
}

// Sequence numbers --------------------------------------------------------------------------------------------------

#[test]
fn sequence_comparison_matches_the_reference() {
    for row in Vectors::load(COMPARE).cases("rows", 180) {
        let (one, other) = (Sequence(row.u16("s1_u16")), Sequence(row.u16("s2_u16")));
        assert_eq!(one.is_newer_than(other), row.flag("s1_greater_than_s2"), "{one} > {other}");
        assert_eq!(other.is_newer_than(one), row.flag("s1_less_than_s2"), "{one} < {other}");
    }
}

// Packet headers ----------------------------------------------------------------------------------------------------

fn header(case: &Case<'_>) -> ReliableHeader {
    let acks = Acks { ack: Sequence(case.u16("ack_u16")), bits: case.u32("ack_bits_u32") };
    ReliableHeader { sequence: Sequence(case.u16("sequence_u16")), acks }
}

#[test]
fn packet_header_matches_the_reference() {
    for case in Vectors::load(HEADERS).cases("valid_cases", 97) {
        let header = header(&case);
        let bytes = emit(|writer| header.emit(writer));
        assert_eq!(hex::encode(&bytes), case.text("header_hex"), "{case}");
        assert_eq!(bytes.len() as u32, case.u32("header_bytes_u8"), "{case}");
        assert_eq!(header.acks.bits.to_le_bytes(), case.array("ack_bits_hex_low_byte_first"), "{case}");

        let prefix = bytes[0];
        assert_eq!([prefix], case.array("prefix_byte_hex"), "{case}");
        assert_eq!(prefix & 0x20 != 0, case.flag("ack_as_one_byte_difference"), "{case}");
        let present: Vec<bool> = (1..5).map(|bit| prefix >> bit & 1 != 0).collect();
        assert_eq!(present, case.flags("ack_bits_bytes_present"), "{case}");

        for payload in [&b""[..], b"payload"] {
            let datagram = [&bytes, payload].concat();
            assert_eq!(ReliableHeader::parse(&datagram), Ok((header, payload)), "{case}");
        }
    }
}

/// The reasons of the reference, and ours.
const HEADER_REASONS: &[(&str, Reject)] = &[
    ("shorter than 3 bytes", Reject::TooShort),
    ("ack field missing", Reject::AckCut),
    ("ack field truncated", Reject::AckCut),
    ("ack_bits bytes missing", Reject::AckBitsCut),
    ("bit 0 set means fragment, not a regular packet", Reject::NotAPacket),
];

const FRAGMENT_REASONS: &[(&str, Reject)] = &[
    ("shorter than the 5-byte fragment header", Reject::FragmentTooShort),
    ("prefix byte odd but not exactly 1", Reject::FragmentPrefix),
    ("more fragments than max_fragments", Reject::FragmentCount),
    ("fragment id not below fragment count", Reject::FragmentId),
    ("embedded packet header missing", Reject::EmbeddedHeader),
    ("embedded packet header truncated", Reject::EmbeddedHeader),
    ("embedded header has bit 0 set", Reject::EmbeddedHeader),
    ("embedded sequence differs from fragment sequence", Reject::EmbeddedSequence),
    ("embedded header not in shortest form", Reject::EmbeddedForm),
    ("embedded header has an unused prefix bit set", Reject::EmbeddedForm),
    ("not the last fragment, yet shorter than fragment_size", Reject::FragmentCut),
    ("longer than fragment_size", Reject::FragmentTooLong),
];

fn expected_reject(case: &Case<'_>, reasons: &[(&str, Reject)]) -> Reject {
    assert_eq!(case.text("expected"), "reject", "{case}");
    let found = reasons.iter().find(|(reason, _)| *reason == case.text("reason"));
    found.unwrap_or_else(|| panic!("{case}: the reason {} is not in the table", case.text("reason"))).1
}

#[test]
fn invalid_packet_header_is_refused_with_the_named_reason() {
    let vectors = Vectors::load(HEADERS);
    let cases = vectors.cases("invalid_cases", 19);
    for case in &cases {
        let (datagram, reject) = (case.bytes("datagram_hex"), expected_reject(case, HEADER_REASONS));
        assert_eq!(ReliableHeader::parse(&datagram), Err(reject), "{case}");
        // An endpoint takes bit 0 as a fragment, and refuses this one as malformed.
        let reject = if reject == Reject::NotAPacket { Reject::FragmentPrefix } else { reject };
        assert_endpoint_refuses(case, EndpointConfig::default(), &datagram, reject);
    }
    assert_all_reasons_occur(&cases, HEADER_REASONS);
}

fn assert_endpoint_refuses(case: &Case<'_>, config: EndpointConfig, datagram: &[u8], reject: Reject) {
    let now = Instant::default();
    let mut endpoint = Endpoint::new(config, None).expect("valid settings");
    assert_eq!(endpoint.handle(datagram, now), Err(reject), "{case}");
    let stats = endpoint.stats(now);
    assert_eq!((stats.rejects[reject], stats.rejects.total()), (1, 1), "{case}");
    assert_eq!(endpoint.next_header().acks, Acks::NONE, "{case}");
}

fn assert_all_reasons_occur(cases: &[Case<'_>], reasons: &[(&str, Reject)]) {
    let occurring: BTreeSet<&str> = cases.iter().map(|case| case.text("reason")).collect();
    assert_eq!(occurring, reasons.iter().map(|(reason, _)| *reason).collect());
}

#[test]
fn packet_headers_tolerated_by_the_reference_are_accepted() {
    let vectors = Vectors::load(HEADERS);
    for case in vectors.cases("tolerated_cases", 3) {
        let datagram = case.bytes("datagram_hex");
        if let Some((read, payload)) = vectors.tolerate(&case, ReliableHeader::parse(&datagram)) {
            assert_eq!(read, header(&case), "{case}");
            assert_eq!(datagram.len() - payload.len(), case.u32("header_bytes_u8") as usize, "{case}");
        }
    }
    vectors.all_refusals_were_needed();
}

// Fragments ---------------------------------------------------------------------------------------------------------

/// Returns an endpoint that has sent and received the packets in the header of the case.
fn sender(case: &Case<'_>, config: EndpointConfig) -> Endpoint {
    let now = Instant::default();
    let mut endpoint = Endpoint::new(config, None).unwrap_or_else(|error| panic!("{case}: {error}"));
    let mut datagrams = Datagrams::default();
    for _ in 0..case.u16("sequence_u16") {
        endpoint.send(&[0], now, &mut datagrams).unwrap_or_else(|error| panic!("{case}: {error}"));
    }
    let received: Vec<Sequence> = header(case).acks.arrived().collect();
    for sequence in received.into_iter().rev() {
        let datagram = emit(|writer| {
            ReliableHeader { sequence, acks: Acks::NONE }.emit(writer);
            writer.write::<u8>(0);
        });
        assert!(endpoint.handle(&datagram, now).is_ok(), "{case}");
    }
    assert_eq!(endpoint.next_header().acks, header(case).acks, "{case}");
    endpoint
}

#[test]
fn fragmentation_and_reassembly_match_the_reference() {
    for case in Vectors::load(FRAGMENTS).cases("fragmented_packet_cases", 10) {
        let settings = case.part("config");
        let config = EndpointConfig {
            max_packet_bytes: settings.u32("max_packet_size_u32") as usize,
            fragment_above: settings.u32("fragment_above_u32") as usize,
            fragment_bytes: settings.u32("fragment_size_u32") as usize,
            max_fragments: settings.u32("max_fragments_u32") as u16,
            ..EndpointConfig::default()
        };
        let payload = case.bytes("payload_hex");
        assert_eq!(payload.len() as u32, case.u32("payload_bytes_u32"), "{case}");
        assert_eq!(hex::encode(emit(|writer| header(&case).emit(writer))), case.text("packet_header_hex"), "{case}");

        let (now, mut datagrams) = (Instant::default(), Datagrams::default());
        let mut sender = sender(&case, config.clone());
        assert_eq!(sender.send(&payload, now, &mut datagrams), Ok(header(&case).sequence), "{case}");
        let sent: Vec<String> = datagrams.sent.iter().map(hex::encode).collect();
        assert_eq!(sent, case.texts("datagrams_hex"), "{case}");
        assert_eq!(sender.stats(now).counters.fragments_sent as u32, case.u32("num_fragments_u32"), "{case}");
        assert_eq!(case.u32("num_fragments_u32") > 0, case.flag("fragmented"), "{case}");

        let mut receiver = Endpoint::new(config, None).expect("valid settings");
        let (last, others) = datagrams.sent.split_last().expect("at least one datagram");
        for datagram in others {
            assert_eq!(receiver.handle(datagram, now), Ok(None), "{case}");
        }
        let packet = receiver.handle(last, now).unwrap_or_else(|reject| panic!("{case}: {reject}"));
        let packet = packet.unwrap_or_else(|| panic!("{case}: complete"));
        assert_eq!((packet.sequence, packet.payload), (header(&case).sequence, &payload[..]), "{case}");
    }
}

#[test]
fn fragment_encoding_matches_the_reference() {
    for case in Vectors::load(FRAGMENTS).cases("fragment_header_cases", 23) {
        let data = vec![0x5a; case.u32("fragment_data_bytes_u32") as usize];
        let embedded = case.bytes("embedded_packet_header_hex");
        let header = (!embedded.is_empty()).then(|| ReliableHeader::parse(&embedded).expect("a header").0);
        let fragment = Fragment {
            sequence: Sequence(case.u16("sequence_u16")),
            id: case.u32("fragment_id_u8") as u8,
            count: case.u16("num_fragments_u32"),
            header,
            data: &data,
        };
        assert_eq!(header.is_some(), fragment.id == 0, "{case}");
        let datagram = emit(|writer| fragment.emit(writer));
        assert_eq!(datagram, [case.bytes("fragment_header_hex"), embedded, data.clone()].concat(), "{case}");
        let limits = FragmentLimits { max_fragments: MAX_FRAGMENTS, fragment_bytes: data.len() };
        assert_eq!(Fragment::parse(&datagram, limits), Ok(fragment), "{case}");
        assert!(datagram.len() - data.len() <= MAX_OVERHEAD_BYTES && MAX_HEADER_BYTES < MAX_OVERHEAD_BYTES);
    }
}

fn limits(case: &Case<'_>) -> FragmentLimits {
    FragmentLimits {
        max_fragments: case.u16("max_fragments_u32"),
        fragment_bytes: case.u32("fragment_size_u32") as usize,
    }
}

#[test]
fn invalid_fragment_is_refused_with_the_named_reason() {
    let vectors = Vectors::load(FRAGMENTS);
    let cases = vectors.cases("invalid_cases", 29);
    for case in &cases {
        let (datagram, reject) = (case.bytes("datagram_hex"), expected_reject(case, FRAGMENT_REASONS));
        let FragmentLimits { max_fragments, fragment_bytes } = limits(case);
        assert_eq!(Fragment::parse(&datagram, limits(case)), Err(reject), "{case}");
        let config = EndpointConfig { max_fragments, fragment_bytes, ..EndpointConfig::default() };
        assert_endpoint_refuses(case, config, &datagram, reject);
        assert!(is_fragment_reject(reject), "{case}");
    }
    assert_all_reasons_occur(&cases, FRAGMENT_REASONS);
}

#[test]
fn fragments_tolerated_by_the_reference_are_accepted() {
    let vectors = Vectors::load(FRAGMENTS);
    for case in vectors.cases("tolerated_cases", 1) {
        let datagram = case.bytes("datagram_hex");
        if let Some(fragment) = vectors.tolerate(&case, Fragment::parse(&datagram, limits(&case))) {
            assert!(fragment.data.is_empty(), "{case}");
            assert_eq!(emit(|writer| fragment.emit(writer)), datagram, "{case}");
        }
    }
    vectors.all_refusals_were_needed();
}

// Scripts -----------------------------------------------------------------------------------------------------------

/// Plays every scenario of a list, and checks the numbers of scenarios and of operations.
fn play(file: &'static str, list: &str, scenarios: usize, operations: usize) {
    let mut played = 0;
    for scenario in Vectors::load(file).cases(list, scenarios) {
        let mut play = Play::new(&scenario);
        for (step, operation) in scenario.steps("operations").iter().enumerate() {
            play.play(operation, &format!("{scenario}, operation {step}"));
            played += 1;
        }
    }
    assert_eq!(played, operations, "{file}: number of operations");
}

#[test]
fn reassembly_in_any_order_matches_the_reference() {
    play(FRAGMENTS, "reassembly_scenarios", 12, 269);
}

#[test]
fn receive_window_and_acks_match_the_reference() {
    play(WINDOW, "scenarios", 13, 561);
}

#[test]
fn exchanges_yield_the_stats_of_the_reference() {
    play(TRACE, "scenarios", 8, 11075);
}
