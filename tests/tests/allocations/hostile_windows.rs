//! The memory that one client takes outside of the budget that all clients share, with the largest layouts.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::channel::transfer::frame::{TransferBegin, TransferFrame};
use slipgate_session::channel::transfer::{
    ContentDigest, TransferAdmission, TransferConfig, TransferId, TransferReason,
};
use slipgate_session::channel::{ChannelConfig, Kind, Layout, MAX_CHANNELS, MAX_QUEUE_BYTES, MAX_QUEUE_MESSAGES};
use slipgate_session::connection::{Connection, ConnectionConfig, Memory, Role, WorkLimits};
use slipgate_tests::counting::bytes;
use slipgate_tests::malicious_peer::{MaliciousPeer, PeerPacket, number, slice, transfer, whole};
use slipgate_tests::sinks::Payloads;

/// The goal, for all channels of a client together, with the memory that each connection takes from its start.
const MAX_OUTSIDE: i64 = 256 << 10;
/// What was measured with mixed layouts, 223,060 bytes, and a little more.
const MEASURED_OUTSIDE: i64 = 230_000;
const FAR: u32 = MAX_QUEUE_MESSAGES as u32 - 1;

/// Returns the frames of a step on a channel.
type Attack = fn(u8, u32) -> Vec<u8>;

const ATTACKS: [(&str, &[Kind], Attack); 11] = [
    ("far messages without content", &RELIABLE, |channel, step| whole(channel, Some(FAR - step), &[])),
    ("far messages", &RELIABLE, |channel, step| whole(channel, Some(FAR - step), &[7; 9])),
    ("far slices", &RELIABLE, |channel, step| slice(channel, FAR - step, 129, 1, &[7])),
    ("far withdrawals", &RELIABLE, |channel, step| [&[(channel + 1) | 0x40][..], &number(FAR - step), &[0]].concat()),
    ("near and far slices", &RELIABLE, |channel, step| slice(channel, 1 + step * 97 % FAR, 129, 1, &[7])),
    ("slices of the oldest messages", &RELIABLE, |channel, step| slice(channel, 0, 65_536, step * 8 % 504, &[7; 1024])),
    ("slices of the oldest and of other messages", &RELIABLE, |channel, step| match step % 2 {
        0 => slice(channel, 0, 65_536, step * 4 % 504, &[7; 1024]),
        _ => slice(channel, 1 + step * 97 % FAR, 129, 1, &[7]),
    }),
    ("last slices", &[Kind::Unreliable, Kind::Sequenced], |channel, step| slice(channel, step, 129, 1, &[7])),
    ("transfers", &[Kind::Transfers], |channel, step| begins(channel, step as u16..step as u16 + 1, 9999)),
    // Rounds of 10 steps: as many transfers as are taken at once, 32 more, and then the end of them all.
    ("transfers, withdrawn", &[Kind::Transfers], |channel, step| rounds(channel, step, 9999)),
    // Each of them takes more of the budget than is left for the others.
    ("large transfers, withdrawn", &[Kind::Transfers], |channel, step| rounds(channel, step, 64 << 20)),
];
const RELIABLE: [Kind; 2] = [Kind::ReliableUnordered, Kind::ReliableOrdered];

fn begins(channel: u8, ids: Range<u16>, length: u32) -> Vec<u8> {
    let digest = ContentDigest([3; 32]);
    let begin = |id| TransferBegin { id: TransferId(id), slice_bytes: 128, length, label: 1, digest };
    ids.flat_map(|id| transfer(channel, &TransferFrame::Begin(begin(id)))).collect()
}

fn withdrawals(channel: u8, ids: Range<u16>) -> Vec<u8> {
    let withdraw = |id| TransferFrame::Withdraw { id: TransferId(id), reason: TransferReason::Cancelled };
    ids.flat_map(|id| transfer(channel, &withdraw(id))).collect()
}

/// Returns the frames of a step of 16 transfers: a round announces 96, and withdraws the first 64.
fn rounds(channel: u8, step: u32, length: u32) -> Vec<u8> {
    let (round, part) = ((step / 10) as u16, (step % 10) as u16);
    let first = 96 * round + 16 * (part % 6);
    let ids = first..first + 16;
    if part < 6 { begins(channel, ids, length) } else { withdrawals(channel, ids) }
}

/// Returns the largest layout of channels with these kinds in turn.
fn largest_layout(kinds: &[Kind], admission: TransferAdmission) -> Arc<Layout> {
    let channel = |kind: &Kind| ChannelConfig {
        max_message_bytes: 65_536,
        queue_bytes: MAX_QUEUE_BYTES,
        queue_messages: MAX_QUEUE_MESSAGES,
        transfers: TransferConfig { admission, max_at_once: 64, ..TransferConfig::default() },
        ..ChannelConfig::from(*kind)
    };
    Arc::new(Layout::try_from(kinds.iter().cycle().take(MAX_CHANNELS).map(channel).collect::<Vec<_>>()).unwrap())
}

/// Runs an attack on all channels. Returns the most bytes that were held outside of the budgets, and inside.
fn attack(layout: Arc<Layout>, attack: impl Fn(u8, u32) -> Vec<u8>, budget: usize) -> (i64, i64) {
    let hash = layout.hash();
    let memory = Memory::new(budget, budget);
    let config = ConnectionConfig { work: WorkLimits::UNLIMITED, ..ConnectionConfig::default() };
    let (mut peer, mut scratch, mut now) = (MaliciousPeer::default(), Vec::with_capacity(1 << 16), Instant::default());
    let before = bytes();
    let mut connection = Connection::new(&config, layout, Role::Server, Some(&memory)).unwrap();
    let mut receive = |frames: &[u8]| {
        let payload = peer.packet(PeerPacket::frames(hash, frames));
        if let Ok(Some(mut cursor)) = connection.handle(&payload, Duration::ZERO, now) {
            while connection.next_message(&payload, &mut cursor, &mut scratch, now).is_some() {}
        }
        while connection.channels.poll_event().is_some() {}
        now = now.after(Duration::from_millis(1));
        connection.tick(now);
        connection.transmit(now, &mut Payloads::default());
    };
    receive(&[]);
    let (mut outside, mut inside) = (0, 0);
    for step in 0..200 {
        for channel in 0..MAX_CHANNELS as u8 {
            receive(&attack(channel, step));
            let charged = (2 * budget - memory.messages.left() - memory.transfers.left()) as i64;
            inside = charged.max(inside);
            outside = (bytes() - before - charged).max(outside);
        }
    }
    assert!(connection.close_reason().is_none(), "{:?}", connection.close_reason());
    drop(connection);
    assert_eq!((memory.messages.left(), memory.transfers.left()), (budget, budget), "everything is given back");
    (outside, inside)
}

#[test]
fn largest_layouts_stay_within_the_shared_budget() {
    for budget in [1 << 20, 4 << 20, 256 << 20] {
        for (name, kinds, frames) in ATTACKS {
            for kind in kinds {
                let admissions = [TransferAdmission::Ask, TransferAdmission::Automatic];
                for admission in admissions.into_iter().take(if *kind == Kind::Transfers { 2 } else { 1 }) {
                    let (outside, inside) = attack(largest_layout(&[*kind], admission), frames, budget);
                    let what = format!("{name}, {kind:?}, {admission:?}, budget {budget}");
                    println!("{what}: {outside} bytes outside, {inside} inside");
                    assert!(outside <= MAX_OUTSIDE, "{what}: {outside} bytes, {MAX_OUTSIDE} allowed");
                }
            }
        }
    }
}

#[test]
fn mixed_layouts_stay_within_the_shared_budget() {
    use Kind::{ReliableOrdered, ReliableUnordered, Transfers, Unreliable};
    let mixes: [&[Kind]; 5] = [
        &[ReliableUnordered, Transfers],
        &[ReliableOrdered, ReliableUnordered, ReliableOrdered, Transfers],
        &[ReliableOrdered, Transfers, Transfers, Transfers],
        &[ReliableUnordered, ReliableOrdered, Transfers, Unreliable],
        &[Transfers, Transfers, Transfers, Transfers, Transfers, Transfers, Transfers, ReliableOrdered],
    ];
    let of = |kind: Kind| ATTACKS.iter().filter(move |(_, kinds, _)| kinds.contains(&kind));
    let attacks = of(ReliableOrdered).flat_map(|messages| of(Transfers).map(move |transfers| (messages, transfers)));
    let mut worst = 0;
    for (kinds, ((name, _, messages), (transfers_name, _, transfers))) in
        mixes.iter().flat_map(|kinds| attacks.clone().map(move |attack| (kinds, attack)))
    {
        let frames = |channel: u8, step| match kinds[usize::from(channel) % kinds.len()] {
            Transfers => transfers(channel, step),
            Unreliable => Vec::new(),
            _ => messages(channel, step),
        };
        let (outside, inside) = attack(largest_layout(kinds, TransferAdmission::Automatic), frames, 5 << 20);
        let what = format!("{name}, and {transfers_name}, {kinds:?}");
        println!("{what}: {outside} bytes outside, {inside} inside");
        assert!(outside <= MEASURED_OUTSIDE, "{what}: {outside} bytes, {MAX_OUTSIDE} are the goal");
        worst = outside.max(worst);
    }
    println!("at most {worst} bytes outside of the budget, goal {MAX_OUTSIDE}");
}

/// Returns the resident memory of this program in bytes.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Runs a test of this program again, in a process of its own: resident memory is that of a whole process. Returns true
/// in that process.
#[cfg(target_os = "linux")]
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "SLIPGATE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    let output = program.args([test, "--exact", "--nocapture"]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success() && text.contains("1 passed"), "{}", String::from_utf8_lossy(&output.stderr));
    false
}

#[cfg(target_os = "linux")]
#[test]
fn memory_of_broken_transfers_is_given_back() {
    const CLIENTS: usize = 5;
    if !is_alone("hostile_windows::memory_of_broken_transfers_is_given_back") {
        return;
    }
    let channel = ChannelConfig {
        transfers: TransferConfig { admission: TransferAdmission::Automatic, ..TransferConfig::default() },
        ..ChannelConfig::from(Kind::Transfers)
    };
    let layout = Arc::new(Layout::try_from(vec![channel]).unwrap());
    let memory = Memory::default();
    let config = ConnectionConfig { work: WorkLimits::UNLIMITED, ..ConnectionConfig::default() };
    let (before, resident_before) = (bytes(), resident_bytes());
    let mut connections: Vec<_> = (0..CLIENTS)
        .map(|_| Connection::new(&config, Arc::clone(&layout), Role::Server, Some(&memory)).unwrap())
        .collect();
    // Clients in turn, so that their memory is interleaved: a transfer of 64 MiB with one slice in each chunk.
    let (mut peers, mut scratch) = ([(); CLIENTS].map(|()| MaliciousPeer::default()), Vec::new());
    let digest = ContentDigest([3; 32]);
    let begin = TransferBegin { id: TransferId(1), slice_bytes: 160, length: 64 << 20, label: 1, digest };
    let mut sent = 0;
    for step in 0..(64 << 20) / 160 / 16 / 6 {
        for (connection, peer) in connections.iter_mut().zip(&mut peers) {
            let mut frames = transfer(0, &TransferFrame::Begin(begin));
            for index in (0..6).map(|chunk| (step * 6 + chunk) * 16) {
                frames.extend(transfer(0, &TransferFrame::Slice { id: TransferId(1), index, bytes: &[7; 160] }));
            }
            let payload = peer.packet(PeerPacket::frames(layout.hash(), &frames));
            sent += payload.len();
            if let Ok(Some(mut cursor)) = connection.handle(&payload, Duration::ZERO, Instant::default()) {
                let now = Instant::default();
                while connection.next_message(&payload, &mut cursor, &mut scratch, now).is_some() {}
            }
        }
    }
    let (most, resident_most) = (bytes() - before, resident_bytes() - resident_before);
    drop(connections);
    let (left, resident_left) = (bytes() - before, resident_bytes().saturating_sub(resident_before));
    println!(
        "{sent} bytes sent; allocated {most}, then {left}; resident {} MiB, then {} MiB",
        resident_most >> 20,
        resident_left >> 20
    );
    assert_eq!(memory.transfers.left(), Memory::default().transfers.left());
    assert!(left < 64 << 10, "{left} bytes are still allocated");
    // The allocator keeps some freed pages: 5 of 45 MiB were measured.
    assert!(resident_left < resident_most / 4, "{resident_left} of {resident_most} bytes are still resident");
}
