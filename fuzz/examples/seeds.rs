//! Writes the seeds in `corpus/`: `cargo run --example seeds`, in this folder. Most come from the interop vectors.
//!
//! Trailing zeros are cut where the targets fill them in.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

/// The cases of a vector file that become seeds of a target: the list and the field that holds the bytes.
struct Source {
    target: &'static str,
    file: &'static str,
    list: &'static str,
    field: &'static str,
    /// The number of leading bytes to drop.
    skip: usize,
    cases: &'static [&'static str],
}

const SOURCES: &[Source] = &[
    Source {
        target: "packet",
        file: "netcode_packets_valid",
        list: "encrypted_packet_cases",
        field: "wire_hex",
        skip: 0,
        cases: &[
            "denied_seq_0",
            "challenge_seq_0",
            "response_seq_256",
            "keep_alive_seq_0",
            "keep_alive_seq_18446744073709551615",
            "payload_1_seq_255",
            "payload_100_seq_1000",
            "disconnect_seq_9223372036854775808",
        ],
    },
    Source {
        target: "packet",
        file: "netcode_packets_valid",
        list: "connection_request_cases",
        field: "wire_hex",
        skip: 0,
        cases: &["request_one_ipv4_address"],
    },
    Source {
        target: "packet",
        file: "netcode_packets_valid",
        list: "tolerated_cases",
        field: "wire_hex",
        skip: 0,
        cases: &["sequence_5_in_8_bytes", "sequence_1000_in_3_bytes"],
    },
    Source {
        target: "packet",
        file: "netcode_packets_invalid",
        list: "cases",
        field: "wire_hex",
        skip: 0,
        cases: &["keep_alive_content_9_bytes", "payload_0_bytes", "packet_type_7", "sequence_nibble_9"],
    },
    Source {
        target: "connect_token",
        file: "netcode_connect_token",
        list: "valid_cases",
        field: "token_hex",
        skip: 0,
        cases: &["one_ipv4_address", "five_mixed_addresses", "thirty_two_mixed_addresses"],
    },
    Source {
        target: "connect_token",
        file: "netcode_connect_token",
        list: "invalid_cases",
        field: "token_hex",
        skip: 0,
        cases: &["second_address_type_0"],
    },
    Source {
        target: "private_token",
        file: "netcode_private_connect_token",
        list: "valid_cases",
        field: "plaintext_hex",
        skip: 0,
        cases: &["one_ipv4_address", "three_ipv6_addresses", "five_mixed_addresses", "all_maximum_values"],
    },
    Source {
        target: "private_token",
        file: "netcode_private_connect_token",
        list: "invalid_cases",
        field: "plaintext_hex",
        skip: 0,
        cases: &["thirty_three_server_addresses", "last_address_has_type_3"],
    },
    Source {
        target: "challenge",
        file: "netcode_challenge_token",
        list: "valid_cases",
        field: "encrypted_hex",
        skip: 0,
        cases: &["sequence_0", "sequence_1000", "all_zero"],
    },
    Source {
        target: "address",
        file: "netcode_private_connect_token",
        list: "valid_cases",
        field: "plaintext_hex",
        skip: 12,
        cases: &[
            "one_ipv4_address",
            "three_ipv6_addresses",
            "five_mixed_addresses",
            "all_minimum_values",
            "counting_bytes",
            "ipv4_mapped_ipv6_address",
        ],
    },
    Source {
        target: "reliable_header",
        file: "reliable_packet_headers",
        list: "valid_cases",
        field: "header_hex",
        skip: 0,
        cases: &["flags_00000_0", "flags_00001_0", "flags_00010_0", "flags_11110_0", "flags_11111_0"],
    },
    Source {
        target: "reliable_header",
        file: "reliable_packet_headers",
        list: "tolerated_cases",
        field: "datagram_hex",
        skip: 0,
        cases: &["ack_bits_byte_ff_present", "two_byte_ack_where_one_would_do", "unused_bits_6_and_7_set"],
    },
    Source {
        target: "reliable_header",
        file: "reliable_fragments",
        list: "invalid_cases",
        field: "datagram_hex",
        skip: 0,
        cases: &["embedded_header_bit_6", "fragment_id_255_of_3", "first_fragment_short", "middle_fragment_empty"],
    },
];

/// Inputs of the target `server`: settings, whether there is a journal, and operations (listed in `src/server.rs`).
const PLAYS: &[(&str, Settings, u8, &[&[u8]])] = &[
    ("connects_talks_and_leaves", USUAL, 0, &[CONNECT, UP, DOWN, &[12, 7, 0], TICK, TRANSMIT, LEAVE, DRAIN, REQUEST]),
    ("is_kicked_and_its_handle_is_stale", USUAL, 0, &[CONNECT, &[18, 0], DOWN, TRANSMIT, DRAIN, DOWN, UP]),
    ("times_out", USUAL, 0, &[CONNECT, &[12, 13, 0], TICK, DRAIN, DOWN]),
    (
        "is_taken_over",
        TAKEOVER,
        0,
        &[CONNECT, &[12, 9, 0], TICK, &[0, 1, 40, 13, 0, 1, 1, 2, 15, 255, 4, 1, 2, 0], DRAIN, UP],
    ),
    (
        "tokens_return_after_a_takeover_and_a_leave",
        TAKEOVER,
        0,
        &[
            CONNECT,
            &[12, 9, 0],
            TICK,
            &[0, 1, 40, 13, 0, 1, 1, 2, 15, 255, 4, 1, 2, 0],
            DRAIN,
            &[7, 1, 2, 1, 0],
            TRANSMIT,
            &[1, 1, 2, 15, 255, 4, 1, 2, 0, 1, 0, 1, 15, 255, 4, 0, 1, 0],
            DRAIN,
        ],
    ),
    (
        "two_addresses_present_one_token",
        USUAL,
        0,
        &[MINT, &[1, 0, 3, 1, 0, 4], TRANSMIT, &[4, 0, 3, 1, 4, 0, 4, 0], DRAIN],
    ),
    ("a_start_behind_a_fence", FENCED, 0, &[CONNECT, &[21], REQUEST, CONNECT, UP]),
    ("a_start_with_a_journal", USUAL, 1, &[CONNECT, UP, &[21], REQUEST, CONNECT]),
    ("a_journal_that_fails", USUAL, 1, &[&[19, 36], CONNECT, &[18, 0], TRANSMIT, &[21, 19, 4], CONNECT]),
    (
        "a_long_time_out_is_clamped",
        USUAL,
        0,
        &[&[0, 1, 40, 250, 0], REQUEST, TRANSMIT, &[4, 0, 1, 0], DRAIN, TRANSMIT, &[12, 16, 0], TICK, DRAIN],
    ),
    (
        "our_client_tries_a_token_twice",
        USUAL,
        1,
        &[
            &[19, 20],
            MINT,
            &[22, 0, 0, 22, 0xf6],
            TRANSMIT,
            &[22, 0xf6, 22, 1, 22, 0xf6, 22, 0, 0, 22, 0xf6],
            TRANSMIT,
            &[22, 0xf6],
        ],
    ),
    (
        "a_handle_of_the_client_before",
        USUAL,
        0,
        &[CONNECT, LEAVE, DRAIN, MINT, &[1, 1, 1, 15, 255, 4, 1, 1, 0], DRAIN, &[17, 1, 9, 255, 18, 1], DRAIN],
    ),
    (
        "confirms_before_it_is_told",
        USUAL,
        1,
        &[&[19, 36], CONNECT, &[7, 0, 1, 0, 0], TRANSMIT, &[21, 19, 4], REQUEST, TRANSMIT, &[4, 0, 1, 0], TRANSMIT],
    ),
    (
        "our_client_connects",
        USUAL,
        0,
        &[MINT, &[22, 0, 0, 22, 0xf6], TRANSMIT, &[22, 0xf6], TRANSMIT, &[22, 0xf6, 22, 0xf2], DRAIN],
    ),
    (
        "our_client_leaves",
        USUAL,
        0,
        &[MINT, &[22, 0, 0, 22, 0xf6], TRANSMIT, &[22, 0xf6], TRANSMIT, &[22, 0xf6, 22, 1, 22, 0xf6]],
    ),
    (
        "a_client_in_the_same_program",
        USUAL,
        0,
        &[&[20, 0, 0], DRAIN, &[20, 1, 0, 20, 3, 0], DOWN, &[20, 2, 0, 18, 0], DRAIN],
    ),
    ("keys_are_rotated", USUAL, 0, &[&[19, 0x1d], CONNECT, &[19, 0x0d], UP, MINT, REQUEST, DRAIN]),
    ("the_wall_clock_is_stepped", FENCED, 0, &[CONNECT, &[13, 20, 1], TICK, &[13, 21, 0, 21], CONNECT]),
    ("altered_and_replayed", USUAL, 0, &[CONNECT, UP, &[10, 2, 255, 0, 0, 10, 2, 255, 200, 1, 11, 0, 0x15, 9], DRAIN]),
    (
        "a_full_outbox",
        USUAL,
        0,
        &[MINT, REQUEST, &[15, 0, 15, 1, 4, 0, 1, 0, 15, 0], DRAIN, &[17, 0, 9, 1, 18, 0, 15, 4], TRANSMIT],
    ),
];

type Settings = [u8; 8];
const USUAL: Settings = [3, 7, 15, 3, 0, 0, 0, 0];
const TAKEOVER: Settings = [0, 7, 15, 3, 21, 0, 0, 0];
const FENCED: Settings = [3, 7, 15, 3, 0, 1, 0, 0];

const MINT: &[u8] = &[0, 1, 40, 13, 0];
const REQUEST: &[u8] = &[1, 0, 1];
const TRANSMIT: &[u8] = &[15, 255];
const DRAIN: &[u8] = &[23, 255];
const TICK: &[u8] = &[14];
/// Mint, request, transmit, response, drain, transmit.
const CONNECT: &[u8] = &[0, 1, 40, 13, 0, 1, 0, 1, 15, 255, 4, 0, 1, 0, 23, 255, 15, 255];
const UP: &[u8] = &[7, 0, 1, 2, 0];
const LEAVE: &[u8] = &[7, 0, 1, 1, 0];
const DOWN: &[u8] = &[17, 0, 9, 255];

fn write_plays(corpus: &Path) -> io::Result<()> {
    let folder = corpus.join("server");
    fs::create_dir_all(&folder)?;
    for (name, settings, journal, operations) in PLAYS {
        let input = [settings.as_slice(), &[*journal], &operations.concat()].concat();
        fs::write(folder.join(name).with_extension("seed"), input)?;
    }
    Ok(())
}

/// Inputs of `reliable_fragments`, `reliable_endpoint`, `channel_frames`, `transfer_reassembly`, `connection`,
/// `sessions`, `client` and `sync_inputs`: the target, a name, and operations as the target reads them.
const SCRIPTS: &[(&str, &str, &[u8])] = &[
    // Whole packets of 1, 2, 3 and 16 fragments, in runs.
    ("reliable_fragments", "runs", &[0xf4, 0, 0, 0xf4, 1, 0, 0xf4, 2, 0, 0xf4, 3, 0]),
    // Two fragments in reverse order, one of them twice, then a pause that expires the packet.
    ("reliable_fragments", "reverse", &[8, 1, 1, 8, 1, 1, 8, 1, 0, 8, 2, 0, 0, 0, 255, 8, 2, 1, 8, 2, 2]),
    // Forged counts and lengths between true ones.
    ("reliable_fragments", "lies", &[8, 2, 0, 0x41, 2, 1, 8, 2, 1, 0x52, 2, 2, 8, 2, 2, 3, 3, 0, 0xf4, 3, 0]),
    // Both ends send and receive, acknowledge, and time passes.
    ("reliable_endpoint", "talk", &[0, 0, 50, 1, 50, 8, 0, 9, 0, 24, 10, 28, 0, 29, 0, 8, 0, 9, 0, 24, 255]),
    // Large packets in fragments, some lost.
    (
        "reliable_endpoint",
        "fragments",
        &[1, 0xe0, 100, 8, 0, 8, 0, 18, 1, 8, 0, 0xe1, 100, 9, 3, 9, 2, 9, 1, 9, 0, 25, 255],
    ),
    // Altered and invented datagrams, in the reference's statistics.
    ("reliable_endpoint", "lies", &[2, 0, 9, 20, 1, 8, 0, 22, 0, 8, 0, 23, 62, 9, 0, 30, 20, 8, 0, 26, 9, 14, 0]),
    // A message on each channel in one packet, and a tick.
    ("channel_frames", "talk", &[1, 0, 10, 32, 20, 64, 31, 96, 40, 8, 200, 14, 2, 24, 50]),
    // A message in slices: one is lost, one is probed.
    ("channel_frames", "slices", &[1, 96, 200, 8, 60, 8, 60, 8, 60, 22, 0, 26, 0, 8, 60, 14, 2, 14, 3, 24, 20]),
    // A transfer each way.
    ("channel_frames", "transfers", &[1, 28, 50, 29, 60, 8, 100, 9, 100, 14, 2, 15, 2, 8, 250, 9, 250, 14, 2, 15, 2]),
    // Newer messages under a key.
    ("channel_frames", "keys", &[1, 96, 3, 96, 9, 8, 20, 96, 15, 22, 0, 8, 90, 14, 2, 64, 6, 64, 12, 8, 90]),
    // Messages with receipts: delivered, lost, expired, replaced.
    ("channel_frames", "receipts", &[1, 0, 1, 8, 20, 14, 2, 32, 2, 8, 20, 22, 0, 64, 5, 24, 9, 96, 3, 96, 9, 24, 20]),
    // More receipts than can be outstanding. The sum of all bytes enables it.
    ("channel_frames", "many_receipts", &[1, 26, 255, 14, 2, 24, 20, 0, 170]),
    // Three transfers: offered, accepted, sent in two rounds, taken, and acknowledged.
    (
        "transfer_reassembly",
        "whole",
        &[0, 0, 0, 0, 0, 0, 0, 4, 0, 14, 31, 5, 0, 15, 31, 4, 0, 14, 31, 4, 0, 14, 31, 25, 0, 5, 0, 15, 31, 24, 0],
    ),
    // The receiver accepts one and refuses one, and the sender cancels a third.
    (
        "transfer_reassembly",
        "asked",
        &[3, 0, 0, 0, 0, 4, 0, 14, 31, 25, 0, 0, 0, 4, 0, 14, 31, 25, 1, 5, 0, 15, 31, 26, 8, 4, 0, 14, 31, 25, 0],
    ),
    // The connection ends in the middle of a transfer of 5,000 bytes, and the next one resumes it.
    (
        "transfer_reassembly",
        "resumed",
        &[
            0, 0, 0, 0, 0, 0, 0, 4, 0, 14, 31, 5, 0, 15, 31, 4, 0, 14, 9, 22, 0, 28, 0, 27, 3, 0, 0, 4, 0, 14, 31, 5,
            0, 15, 31,
        ],
    ),
    // Frames of a malicious peer between two normal rounds.
    ("transfer_reassembly", "lies", &[0, 0, 0, 0, 0, 4, 0, 14, 31, 30, 8, 3, 2, 1, 5, 0, 15, 31, 31, 9, 25, 0]),
    // Two ends connect, use each channel, lose a packet and close.
    (
        "connection",
        "talk",
        &[1, 30, 0, 31, 0, 8, 0, 9, 0, 0, 20, 2, 9, 4, 40, 6, 200, 28, 0, 18, 0, 24, 60, 28, 0, 8, 0, 8, 0, 22, 255],
    ),
    // A Hello with a message behind it, extended acknowledgements, and noise.
    (
        "connection",
        "invented",
        &[
            0, 0x21, 255, 0, 0, 0, 0, 0, 7, 0, 176, 4, 4, 0x81, 0, 0, 7, 5, 30, 7, 0x11, 0, 1, 0, 0, 0, 2, 255, 1, 9,
            0, 7, 0, 0,
        ],
    ),
    // Invented frames of every kind.
    (
        "channel_frames",
        "invented",
        &[0, 11, 1, 1, 7, 2, 0, 0, 1, 7, 3, 0, 0, 1, 7, 0x44, 1, 0, 0, 0xc4, 2, 0, 0xac, 2, 0, 7],
    ),
    // A hello, then empty messages on an unreliable channel, as many as fit, in 57 packets per turn.
    (
        "sessions",
        "empty_messages",
        &[0x20, 255, 0, 0, 0, 0, 0, 0, 0, 176, 4, 0, 0xe2, 1, 0, 0, 255, 6, 0xe2, 1, 0, 0, 255, 6],
    ),
    // A hello, then slices of messages with ids far ahead.
    (
        "sessions",
        "far_slices",
        &[0x20, 255, 0, 0, 0, 0, 0, 0, 0, 176, 4, 0, 0xea, 3, 7, 255, 1, 208, 15, 4, 100, 1, 9, 8, 6, 7, 200],
    ),
    // A hello, then invented acknowledgements, and numbers that jump.
    (
        "sessions",
        "jumps",
        &[
            0x20, 255, 0, 0, 0, 0, 0, 0, 0, 176, 4, 0, 0x08, 40, 9, 255, 255, 255, 255, 0, 7, 0, 3, 2, 1, 7, 6, 0x88,
            200, 1, 0, 0, 0, 0,
        ],
    ),
    // A request, a challenge, a slot; a HELLO; messages both ways; a disconnect.
    (
        "client",
        "talk",
        &[
            0x8f, 0x83, 0x83, 0x44, 0, 255, 0, 0, 0, 0, 0, 0, 0, 176, 4, 0, 0x8f, 12, 0, 20, 12, 5, 30, 0x8f, 0x8f, 2,
            1, 0x8f,
        ],
    ),
    // Denied by the first server of two; slots out of range, and challenges again and again.
    (
        "client",
        "handshake",
        &[
            0x8f, 13, 255, 13, 255, 0x8f, 0x1e, 0x82, 0, 0x8f, 1, 3, 1, 4, 1, 4, 0x8f, 0, 7, 4, 0, 4, 4, 0, 0, 0, 11,
            0, 10, 0, 9, 1, 9, 0x8a, 3, 0x8f, 0, 3, 4, 0x8f,
        ],
    ),
    // A slot, a HELLO, and then empty messages, as many as fit, in 57 packets per turn.
    (
        "client",
        "flood",
        &[
            0x8f, 0x83, 0x83, 0x44, 0, 255, 0, 0, 0, 0, 0, 0, 0, 176, 4, 0, 0xe7, 1, 0, 0, 255, 0xe7, 1, 0, 0, 255,
            0xe7, 1, 0, 0, 255,
        ],
    ),
    // Packets of all kinds with the highest numbers and odd sizes, before and after the slot.
    (
        "client",
        "numbers",
        &[
            0x8f, 9, 1, 51, 1, 0, 9, 3, 1, 1, 0, 3, 0x8f, 0x2e, 255, 255, 255, 255, 255, 255, 255, 255, 3, 0x8f, 9, 4,
            9, 1, 1, 9, 5, 0, 2, 3, 0x8f,
        ],
    ),
    // A close message, and a second attempt with the next token.
    (
        "client",
        "again",
        &[
            0x8f, 0x83, 0x83, 0xe4, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0x8f, 13, 255, 0x8f, 14, 0x8f, 0x1e,
            0x8f, 0x83, 0x83, 0x8f,
        ],
    ),
    // A message of one input that is played and reported, and the same one cut.
    ("sync_inputs", "refused", &[0, 7, 7, 5, 0, 0x20, 0, 0, 0, 0, 3, 5, 0, 0, 0, 4, 7, 3, 5, 0, 0x20]),
    // Inputs that arrive, are confirmed and played.
    ("sync_inputs", "talk", &[1, 0, 0, 1, 3, 0, 0, 1, 3, 0, 6, 0, 5, 3, 3, 0]),
    // Two messages get lost, and the third one brings their inputs.
    ("sync_inputs", "losses", &[1, 1, 0, 1, 3, 3, 0, 2, 3, 3, 0, 4, 3, 0, 5, 5, 6, 3]),
    // Messages that come in reverse order, after their ticks.
    ("sync_inputs", "late", &[1, 2, 0, 1, 3, 2, 0, 9, 3, 2, 5, 2, 7, 1, 7, 0, 6, 0]),
    // Inputs with gaps between them, one message twice, and a pause.
    ("sync_inputs", "gap", &[1, 3, 2, 7, 1, 3, 1, 5, 20, 2, 3, 4, 3, 0, 6, 0]),
    // A clock at the last tick of all, and a report of it.
    ("sync_inputs", "clock", &[0, 5, 16, 0, 255, 255, 255, 255, 6, 255, 255, 255, 255, 128, 5, 16, 0, 0, 0, 0, 0]),
    // A message of another time than the server's.
    ("sync_inputs", "far", &[0, 1, 0, 0, 0, 240, 7, 7, 0x20, 0, 0x20, 0, 0, 0, 0, 4]),
    // A server without a time.
    ("sync_inputs", "no_time", &[0, 0, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f, 7, 7, 5, 0, 0x20, 0, 0, 0, 0, 4]),
];

fn write_scripts(corpus: &Path) -> io::Result<()> {
    for (target, name, operations) in SCRIPTS {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name).with_extension("seed"), operations)?;
    }
    Ok(())
}

/// Requests for `issuer_requests`: a name, the first line, a placeholder of a key or nothing, and a body.
const REQUESTS: &[(&str, &str, &str, &str)] = &[
    ("health", "GET /healthz", "", ""),
    ("ready", "GET /readyz", "", ""),
    ("metrics", "GET /metrics", "@any", ""),
    ("document", "GET /openapi.json", "", ""),
    ("page", "HEAD /docs", "", ""),
    ("unknown", "GET /v1/unknown?a=b", "@any", ""),
    ("without_key", "POST /v1/tokens", "", r#"{"client_id":"1"}"#),
    ("token", "POST /v1/tokens", "@any", r#"{"client_id":"1","protocol_id":"7"}"#),
    (
        "token_of_all_fields",
        "POST /v1/tokens",
        "@any",
        concat!(
            r#"{"client_id":"18446744073709551615","protocol_id":"8","server_addresses":["192.0.2.1:40000"],"#,
            r#""user_data":"AQID","lifetime_seconds":45,"timeout_seconds":60}"#
        ),
    ),
    (
        "token_of_group",
        "POST /v1/tokens",
        "@lobby",
        concat!(
            r#"{"client_id":"2","protocol_id":"7","group":"ranked","#,
            r#""regions":["eu"],"only_regions":true,"server_count":2}"#
        ),
    ),
    ("token_beyond_scope", "POST /v1/tokens", "@lobby", r#"{"client_id":"2","protocol_id":"7"}"#),
    ("token_of_player", "POST /v1/tokens", "@any", r#"{"player_jwt":"a.b.c","protocol_id":"7"}"#),
    ("servers", "GET /v1/servers?group=ranked&after=a", "@any", ""),
    ("events", "GET /v1/server-events", "@any", ""),
    (
        "registration",
        "PUT /v1/servers/s2",
        "@server",
        concat!(
            r#"{"protocol_id":"7","addresses":["192.0.2.1:40000","[2001:db8::1]:40001"],"group":"ranked","#,
            r#""region":"eu","slots":64,"free_slots":63,"draining":false,"build":"1.2","#,
            r#""admitted_client_ids":["1","2"],"running_millis":1500,"instance":"1f","sequence":"2"}"#
        ),
    ),
    (
        "registration_beyond_scope",
        "PUT /v1/servers/s2",
        "@server",
        concat!(
            r#"{"protocol_id":"7","addresses":["192.0.2.1:40000"],"#,
            r#""group":"casual","slots":1,"free_slots":1}"#
        ),
    ),
    ("removal", "DELETE /v1/servers/first", "@server", ""),
    ("removal_of_run", "DELETE /v1/servers/first?instance=1f&sequence=3", "@server", ""),
    ("removal_of_none", "DELETE /v1/servers/none", "@any", ""),
];

/// Writes each request with the headers that it needs.
fn write_requests(corpus: &Path) -> io::Result<()> {
    let folder = corpus.join("issuer_requests");
    fs::create_dir_all(&folder)?;
    for (name, line, key, body) in REQUESTS {
        let mut text = format!("{line} HTTP/1.1\r\nHost: a\r\n");
        if !key.is_empty() {
            text += &format!("Authorization: Bearer {key}\r\n");
        }
        if !body.is_empty() {
            text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        fs::write(folder.join(name).with_extension("seed"), text + "\r\n" + body)?;
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    write_plays(&here.join("corpus"))?;
    write_scripts(&here.join("corpus"))?;
    write_requests(&here.join("corpus"))?;
    for source in SOURCES {
        let file = here.join("../specs/vectors").join(source.file).with_extension("json");
        let json: Value = serde_json::from_slice(&fs::read(file)?)?;
        let folder = here.join("corpus").join(source.target);
        fs::create_dir_all(&folder)?;
        for name in source.cases {
            let cases = json[source.list].as_array().into_iter().flatten();
            let case = cases.into_iter().find(|case| case["name"] == *name).ok_or_else(|| missing(source, name))?;
            let bytes = case[source.field].as_str().and_then(|text| hex::decode(text).ok());
            let bytes = bytes.ok_or_else(|| missing(source, name))?;
            fs::write(folder.join(name).with_extension("seed"), cut(source, &bytes))?;
        }
    }
    Ok(())
}

fn cut<'a>(source: &Source, bytes: &'a [u8]) -> &'a [u8] {
    let bytes = bytes.get(source.skip..).unwrap_or_default();
    let zeros = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    if matches!(source.target, "packet" | "reliable_header") { bytes } else { &bytes[..bytes.len() - zeros] }
}

fn missing(source: &Source, case: &str) -> io::Error {
    io::Error::other(format!("{}: no {} in {case} of {}", source.file, source.field, source.list))
}
