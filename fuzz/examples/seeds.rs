//! Writes the seeds in `corpus/`, from the interop vectors and from the scripts below: `cargo run --example seeds`, in this folder.
//!
//! Inputs for which the targets fill in zeros are cut to what is not zero.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

/// Of each file's list these cases, their bytes in this field, become seeds of the target.
struct Source {
    target: &'static str,
    file: &'static str,
    list: &'static str,
    field: &'static str,
    /// Leading bytes to leave out.
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

/// Scripts: a target, a name, and the operations as the target reads them.
const SCRIPTS: &[(&str, &str, &[u8])] = &[
    // Whole packets of 1, 2, 3 and 16 fragments, in runs.
    ("reliable_fragments", "runs", &[0xf4, 0, 0, 0xf4, 1, 0, 0xf4, 2, 0, 0xf4, 3, 0]),
    // Two fragments in reverse order, one of them twice, then a pause that ends it.
    ("reliable_fragments", "reverse", &[8, 1, 1, 8, 1, 1, 8, 1, 0, 8, 2, 0, 0, 0, 255, 8, 2, 1, 8, 2, 2]),
    // Lies about count and length between honest ones.
    ("reliable_fragments", "lies", &[8, 2, 0, 0x41, 2, 1, 8, 2, 1, 0x52, 2, 2, 8, 2, 2, 3, 3, 0, 0xf4, 3, 0]),
    // Each sends and hears the other; acknowledgements leave; time passes.
    ("reliable_endpoint", "talk", &[0, 0, 50, 1, 50, 8, 0, 9, 0, 24, 10, 28, 0, 29, 0, 8, 0, 9, 0, 24, 255]),
    // Large packets in fragments, some lost.
    (
        "reliable_endpoint",
        "fragments",
        &[1, 0xe0, 100, 8, 0, 8, 0, 18, 1, 8, 0, 0xe1, 100, 9, 3, 9, 2, 9, 1, 9, 0, 25, 255],
    ),
    // Altered and invented datagrams, in the reference's statistics.
    ("reliable_endpoint", "lies", &[2, 0, 9, 20, 1, 8, 0, 22, 0, 8, 0, 23, 62, 9, 0, 30, 20, 8, 0, 26, 9, 14, 0]),
];

fn main() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
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
    for (target, name, operations) in SCRIPTS {
        let folder = here.join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(name).with_extension("seed"), operations)?;
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
