//! Fragments in any order, with gaps, duplicates, forgeries and pauses: reassembled packets equal the sent ones.

#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::reliability::{Endpoint, EndpointConfig, MemoryBudget};
use slipgate_session::wire::reliable::{Acks, Fragment, ReliableHeader, Sequence};

const FRAGMENT_BYTES: usize = 20;
const MAX_FRAGMENTS: u16 = 200;
const REASSEMBLY_BYTES: usize = 3000;
const MAX_PACKET_BYTES: usize = 2500;
const BUDGET: usize = 20_000;

/// Returns the true content of a packet. Its size and bytes follow from its sequence number.
fn honest_count(sequence: u16) -> u16 {
    [1, 2, 3, 16, 64, 65, 125, 200][usize::from(sequence % 8)]
}

fn honest_data(sequence: u16, id: u8) -> Vec<u8> {
    let last = u16::from(id) + 1 == honest_count(sequence);
    let bytes = if last { 1 + usize::from(sequence) % FRAGMENT_BYTES } else { FRAGMENT_BYTES };
    (0..bytes).map(|index| (sequence as u8).wrapping_mul(31) ^ id ^ index as u8).collect()
}

fn emit(sequence: u16, id: u8, count: u16, data: &[u8]) -> Vec<u8> {
    let sequence = Sequence(sequence);
    let header = (id == 0).then_some(ReliableHeader { sequence, acks: Acks::NONE });
    let mut datagram = vec![0; 14 + data.len()];
    let mut writer = Writer::new(&mut datagram);
    Fragment { sequence, id, count, header, data }.emit(&mut writer);
    let bytes = writer.written().expect("it fits");
    datagram.truncate(bytes);
    datagram
}

fuzz_target!(|input: &[u8]| {
    let budget = MemoryBudget::new(BUDGET);
    let config = EndpointConfig {
        max_packet_bytes: MAX_PACKET_BYTES,
        fragment_bytes: FRAGMENT_BYTES,
        max_fragments: MAX_FRAGMENTS,
        reassemblies: 16,
        reassembly_bytes: REASSEMBLY_BYTES,
        received_window: 64,
        sent_window: 16,
        ..EndpointConfig::default()
    };
    let mut endpoint = Endpoint::new(config, Some(budget.clone())).expect("settings to run with");
    let mut now = Instant::default();
    // Sequence numbers with a forged fragment. Their content is not checked.
    let (mut lied, mut delivered) = (BTreeSet::new(), BTreeSet::new());
    let mut operations = Input::new(input);
    for _ in 0..input.len() / 3 {
        let operation = operations.u8();
        let sequence = u16::from(operations.u8());
        let id = operations.u8();
        let datagram = match operation % 16 {
            0 => {
                now = now.after(Duration::from_millis(u64::from(id) * 16));
                endpoint.tick(now);
                continue;
            }
            // A fragment with another count, length or data.
            1 => {
                lied.insert(sequence);
                emit(sequence, id, u16::from(operation / 16) * 16 + 1, &honest_data(sequence, id))
            }
            2 => {
                lied.insert(sequence);
                emit(sequence, id, honest_count(sequence), &vec![9; usize::from(operation / 16) * 2])
            }
            // A packet in one datagram with the same sequence number.
            3 => {
                lied.insert(sequence);
                vec![0x3e, sequence as u8, (sequence >> 8) as u8, 1, 0, 0, 0, 0, 7]
            }
            // A run of true fragments that starts at `id`.
            4..8 => {
                let last = u16::from(id) + u16::from(operation) / 4;
                for id in u16::from(id)..last.min(honest_count(sequence)) {
                    let datagram = emit(sequence, id as u8, honest_count(sequence), &honest_data(sequence, id as u8));
                    give(&mut endpoint, &datagram, now, &lied, &mut delivered);
                }
                continue;
            }
            _ => {
                let id = (u16::from(id) % honest_count(sequence)) as u8;
                emit(sequence, id, honest_count(sequence), &honest_data(sequence, id))
            }
        };
        give(&mut endpoint, &datagram, now, &lied, &mut delivered);
        assert_eq!(endpoint.reassembly_bytes() + budget.left(), BUDGET);
    }
    endpoint.tick(now.after(Duration::from_secs(2)));
    endpoint.tick(now.after(Duration::from_secs(20)));
    assert_eq!((endpoint.reassembly_bytes(), budget.left()), (0, BUDGET));
});

fn give(endpoint: &mut Endpoint, datagram: &[u8], now: Instant, lied: &BTreeSet<u16>, delivered: &mut BTreeSet<u16>) {
    if let Ok(Some(packet)) = endpoint.handle(datagram, now) {
        let sequence = packet.sequence.0;
        assert!(packet.payload.len() <= MAX_PACKET_BYTES);
        // Numbers are below 256 and the window has 64 entries: older packets are refused and not delivered again.
        assert!(delivered.insert(sequence), "{sequence} came twice");
        if !lied.contains(&sequence) {
            let whole: Vec<u8> = (0..honest_count(sequence)).flat_map(|id| honest_data(sequence, id as u8)).collect();
            assert_eq!(packet.payload, whole);
        }
    }
    assert!(endpoint.reassembly_bytes() <= REASSEMBLY_BYTES + MAX_PACKET_BYTES + 16 * 256);
}
