//! Transfers: their frames byte for byte, their memory, and the largest one.

use std::time::{Duration, Instant};

use slipgate_session::channel::transfer::TransferReason;
use slipgate_session::channel::transfer::frame::{SliceRanges, TransferBegin, TransferFrame};
use slipgate_session::channel::transfer::{
    ContentDigest, MAX_TRANSFER_BYTES, MIN_SLICE_BYTES, SentTransferFrame, Transfer, TransferConfig, TransferEvent,
    TransferId, TransferViolation, Transfers,
};
use slipgate_tests::counting::{allocations, held};
use slipgate_tests::vectors::{Case, Vectors};

const FRAMES: &str = "block_frames.json";

// Frames --------------------------------------------------------------------------------------------------------------

fn written(frame: &TransferFrame<'_>) -> String {
    let mut buf = [0; 1200];
    let bytes = frame.write(&mut buf).expect("the frame fits");
    hex::encode(&buf[..bytes])
}

/// Returns the ranges of a case, relative to the first slice of its frame.
fn ranges(case: &Case<'_>, first: u32) -> Vec<std::ops::Range<u32>> {
    case.steps("have").iter().map(|range| range.u32("first_u32") - first..range.u32("end_u32") - first).collect()
}

fn check_accept(case: &Case<'_>, id: TransferId, bytes: &[u8]) {
    let (first, end) = (case.u32("first_u32"), case.u32("end_u32"));
    let Ok(TransferFrame::Accept { id: came, first: from, end: to, have }) = TransferFrame::parse(bytes) else {
        panic!("{case}")
    };
    assert_eq!((came, from, to), (id, first, end), "{case}");
    assert_eq!(have.iter().collect::<Vec<_>>(), ranges(case, first), "{case}");
    let mut buf = [0; 100];
    let length = SliceRanges::write(ranges(case, first), &mut buf).unwrap_or_else(|| panic!("{case}: does not fit"));
    assert_eq!(buf[..length], bytes[11..], "{case}");
    assert_eq!(written(&TransferFrame::Accept { id, first, end, have }), hex::encode(bytes), "{case}");
}

fn reason(case: &Case<'_>) -> TransferReason {
    match case.u32("reason_u8") {
        0 => TransferReason::Cancelled,
        1 => TransferReason::Declined,
        2 => TransferReason::TooLarge,
        3 => TransferReason::Busy,
        4 => TransferReason::NoMemory,
        5 => TransferReason::WrongDigest,
        code => TransferReason::Other(code as u8),
    }
}

#[test]
fn transfer_frames_are_encoded_and_decoded_as_specified() {
    for case in Vectors::load(FRAMES).cases("valid_cases", 22) {
        let (id, bytes) = (TransferId(case.u16("id_u16")), case.bytes("frame_hex"));
        let content;
        let frame = match case.text("kind") {
            "begin" => TransferFrame::Begin(TransferBegin {
                id,
                slice_bytes: case.u16("slice_bytes_u16"),
                length: case.u32("length_u32"),
                label: case.u64("label_u64"),
                digest: ContentDigest(case.array("digest_hex")),
            }),
            "slice" => {
                content = case.bytes("bytes_hex");
                TransferFrame::Slice { id, index: case.u32("index_u32"), bytes: &content }
            }
            "withdraw" => TransferFrame::Withdraw { id, reason: reason(&case) },
            "done" => TransferFrame::Done { id },
            "refuse" => TransferFrame::Refuse { id, reason: reason(&case) },
            "accept" => {
                check_accept(&case, id, &bytes);
                continue;
            }
            other => panic!("{case}: {other}"),
        };
        assert_eq!(written(&frame), case.text("frame_hex"), "{case}");
        assert_eq!(TransferFrame::parse(&bytes), Ok(frame), "{case}");
    }
}

#[test]
fn malformed_transfer_frames_are_refused() {
    for case in Vectors::load(FRAMES).cases("invalid_cases", 27) {
        let bytes = case.bytes("frame_hex");
        assert_eq!(TransferFrame::parse(&bytes), Err(TransferViolation::Malformed), "{case}");
    }
}

// Memory ------------------------------------------------------------------------------------------------------------

fn pair(config: &TransferConfig) -> (Transfers, Transfers) {
    let [left, right] = [(); 2].map(|()| Transfers::new(config.clone(), None).expect("valid settings"));
    (left, right)
}

/// Carries all pending frames from one end to the other; returns their number.
fn carry(from: &mut Transfers, to: &mut Transfers) -> u32 {
    let (mut buf, mut frames) = ([0; 1100], 0);
    while let Some((bytes, part)) = from.write(&mut buf) {
        to.on_frame(&buf[..bytes]).expect("the peer keeps the protocol");
        from.on_acked(part);
        frames += 1;
    }
    frames
}

#[test]
fn transfer_slice_allocates_only_its_chunk() {
    let (mut left, mut right) = pair(&TransferConfig { slice_bytes: 1024, ..TransferConfig::default() });
    let slices = 2048;
    left.begin(Transfer::new(vec![3; slices * 1024]).expect("at most 64 MiB"), 0).expect("nothing is pending");
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let allocation_count = allocations(|| assert_eq!(carry(&mut left, &mut right), slices as u32));
    // One chunk for 16 slices, one region for 64 chunks, and no allocation of the sender.
    assert_eq!(allocation_count, slices as u64 / 16 + slices as u64 / 1024);
}

#[test]
fn lost_transfer_slices_do_not_allocate() {
    let (mut left, mut right) = pair(&TransferConfig::default());
    left.begin(Transfer::new(vec![3; 500 * 1024]).expect("at most 64 MiB"), 0).expect("nothing is pending");
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut buf = [0; 1100];
    let allocation_count = allocations(|| {
        for _ in 0..20_000 {
            let (_, part) = left.write(&mut buf).expect("there is always a frame to send");
            assert!(matches!(part, SentTransferFrame::Slices { first: 0, .. }));
            left.on_lost(part);
        }
    });
    assert_eq!(allocation_count, 0);
}

#[test]
fn false_announcement_of_64_mib_allocates_almost_nothing() {
    let (mut left, mut right) = pair(&TransferConfig::default());
    let digest = ContentDigest([9; 32]);
    let begin =
        TransferBegin { id: TransferId(0), slice_bytes: MIN_SLICE_BYTES, length: MAX_TRANSFER_BYTES, label: 0, digest };
    let mut buf = [0; 64];
    let bytes = TransferFrame::Begin(begin).write(&mut buf).expect("the frame fits");
    let ((), memory) = held(|| assert!(right.on_frame(&buf[..bytes]).is_ok()));
    assert!(memory < 8192, "{memory} bytes");
    // The honest end ignores an answer that it did not request.
    let ((), memory) = held(|| assert_eq!(carry(&mut left, &mut right), 0));
    assert_eq!(memory, 0);
}

// The largest transfer ------------------------------------------------------------------------------------------------

/// 64 MiB in one second, also in a debug build, because the session crate is optimised there.
#[test]
fn largest_transfer_arrives_on_a_lossy_reordering_path() {
    let content: Vec<u8> = (0..MAX_TRANSFER_BYTES).map(|pos| (pos.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let transfer = Transfer::new(content).expect("at most 64 MiB");
    let (mut left, mut right) = pair(&TransferConfig::default());
    let started = Instant::now();
    left.begin(transfer.clone(), 0).expect("nothing is pending");
    let (mut flying, mut random, mut frames, mut content) = (Vec::new(), 1u32, 0u32, None);
    let mut longest = Duration::ZERO;
    while content.is_none() {
        let mut buf = [0; 1100];
        for _ in 0..200 {
            let Some((bytes, part)) = left.write(&mut buf) else { break };
            flying.push((buf[..bytes].to_vec(), part));
            frames += 1;
        }
        for _ in 0..200.min(flying.len()) {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (bytes, part) = flying.swap_remove((random >> 8) as usize % flying.len());
            if random >> 24 < 13 {
                left.on_lost(part);
                continue;
            }
            let before = Instant::now();
            right.on_frame(&bytes).expect("the peer keeps the protocol");
            longest = longest.max(before.elapsed());
            left.on_acked(part);
        }
        carry(&mut right, &mut left);
        content = right.poll_event();
    }
    let Some(TransferEvent::Received { content, .. }) = content else { panic!("{content:?}") };
    println!("{frames} frames in {:?}, the longest took {longest:?}", started.elapsed());
    assert!(content.into_vec() == transfer.bytes());
}
