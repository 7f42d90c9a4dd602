//! Blocks: their frames byte for byte, what they cost, and the largest of them.

use std::time::{Duration, Instant};

use slipgate_session::channel::block::frame::{Begin, Frame, RangesWriter, Reason};
use slipgate_session::channel::block::{
    Block, BlockId, Blocks, Config, ContentDigest, Event, MAX_BLOCK_BYTES, MIN_SLICE_BYTES, Part, Violation,
};
use slipgate_tests::counting::{allocations, held};
use slipgate_tests::vectors::{Case, Vectors};

const FRAMES: &str = "block_frames.json";

// Frames --------------------------------------------------------------------------------------------------------------

fn written(frame: &Frame<'_>) -> String {
    let mut room = [0; 1200];
    let bytes = frame.write(&mut room).expect("it fits");
    hex::encode(&room[..bytes])
}

/// The ranges of a case, counted from the first slice that its frame speaks of.
fn ranges(case: &Case<'_>, first: u32) -> Vec<std::ops::Range<u32>> {
    case.steps("have").iter().map(|range| range.u32("first_u32") - first..range.u32("end_u32") - first).collect()
}

fn check_accept(case: &Case<'_>, id: BlockId, bytes: &[u8]) {
    let (first, end) = (case.u32("first_u32"), case.u32("end_u32"));
    let Ok(Frame::Accept { id: came, first: from, end: to, have }) = Frame::parse(bytes) else { panic!("{case}") };
    assert_eq!((came, from, to), (id, first, end), "{case}");
    assert_eq!(have.iter().collect::<Vec<_>>(), ranges(case, first), "{case}");
    let mut room = [0; 100];
    let mut writer = RangesWriter::new(&mut room);
    assert!(ranges(case, first).into_iter().all(|range| writer.push(range)), "{case}");
    let length = writer.bytes();
    assert_eq!(room[..length], bytes[11..], "{case}");
    assert_eq!(written(&Frame::Accept { id, first, end, have }), hex::encode(bytes), "{case}");
}

fn reason(case: &Case<'_>) -> Reason {
    match case.u32("reason_u8") {
        0 => Reason::Cancelled,
        1 => Reason::Declined,
        2 => Reason::TooLarge,
        3 => Reason::Busy,
        4 => Reason::NoMemory,
        5 => Reason::WrongDigest,
        code => Reason::Other(code as u8),
    }
}

#[test]
fn frames_of_blocks_are_written_and_read_as_the_document_says() {
    for case in Vectors::load(FRAMES).cases("valid_cases", 22) {
        let (id, bytes) = (BlockId(case.u16("id_u16")), case.bytes("frame_hex"));
        let content;
        let frame = match case.text("kind") {
            "begin" => Frame::Begin(Begin {
                id,
                slice_bytes: case.u16("slice_bytes_u16"),
                length: case.u32("length_u32"),
                label: case.u64("label_u64"),
                digest: ContentDigest(case.array("digest_hex")),
            }),
            "slice" => {
                content = case.bytes("bytes_hex");
                Frame::Slice { id, index: case.u32("index_u32"), bytes: &content }
            }
            "withdraw" => Frame::Withdraw { id, reason: reason(&case) },
            "done" => Frame::Done { id },
            "refuse" => Frame::Refuse { id, reason: reason(&case) },
            "accept" => {
                check_accept(&case, id, &bytes);
                continue;
            }
            other => panic!("{case}: {other}"),
        };
        assert_eq!(written(&frame), case.text("frame_hex"), "{case}");
        assert_eq!(Frame::parse(&bytes), Ok(frame), "{case}");
    }
}

#[test]
fn frames_that_no_writer_writes_are_not_read() {
    for case in Vectors::load(FRAMES).cases("invalid_cases", 27) {
        let bytes = case.bytes("frame_hex");
        assert_eq!(Frame::parse(&bytes), Err(Violation::Malformed), "{case}");
    }
}

// What they cost ------------------------------------------------------------------------------------------------------

fn pair(config: &Config) -> (Blocks, Blocks) {
    let [left, right] = [(); 2].map(|()| Blocks::new(config.clone(), None).expect("good settings"));
    (left, right)
}

/// Carries everything that one end has to say; answers how many frames that were.
fn carry(from: &mut Blocks, to: &mut Blocks) -> u32 {
    let (mut room, mut frames) = ([0; 1100], 0);
    while let Some((bytes, part)) = from.write(&mut room) {
        to.on_frame(&room[..bytes]).expect("an honest peer");
        from.on_acked(part);
        frames += 1;
    }
    frames
}

#[test]
fn a_slice_asks_for_no_memory_beside_its_chunk() {
    let (mut left, mut right) = pair(&Config { slice_bytes: 1024, ..Config::default() });
    let slices = 2048;
    left.begin(Block::new(vec![3; slices * 1024]).expect("at most 64 MiB"), 0).expect("nothing waits");
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let asked = allocations(|| assert_eq!(carry(&mut left, &mut right), slices as u32));
    // A chunk for 16 slices, a region for 64 chunks, and nothing for the sender.
    assert_eq!(asked, slices as u64 / 16 + slices as u64 / 1024);
}

#[test]
fn lost_slices_ask_for_no_memory() {
    let (mut left, mut right) = pair(&Config::default());
    left.begin(Block::new(vec![3; 500 * 1024]).expect("at most 64 MiB"), 0).expect("nothing waits");
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut room = [0; 1100];
    let asked = allocations(|| {
        for _ in 0..20_000 {
            let (_, part) = left.write(&mut room).expect("there is always one to send");
            assert!(matches!(part, Part::Slices { first: 0, .. }));
            left.on_lost(part);
        }
    });
    assert_eq!(asked, 0);
}

#[test]
fn a_lying_announcement_of_64_mib_costs_next_to_nothing() {
    let (mut left, mut right) = pair(&Config::default());
    let digest = ContentDigest([9; 32]);
    let begin = Begin { id: BlockId(0), slice_bytes: MIN_SLICE_BYTES, length: MAX_BLOCK_BYTES, label: 0, digest };
    let mut room = [0; 64];
    let bytes = Frame::Begin(begin).write(&mut room).expect("it fits");
    let ((), memory) = held(|| assert!(right.on_frame(&room[..bytes]).is_ok()));
    assert!(memory < 8192, "{memory} bytes");
    // An answer that the honest end never asked for is nothing either.
    let ((), memory) = held(|| assert_eq!(carry(&mut left, &mut right), 0));
    assert_eq!(memory, 0);
}

// The largest ---------------------------------------------------------------------------------------------------------

/// Takes some seconds without optimisation: `cargo test --release -p slipgate-tests --test blocks -- --ignored`.
#[test]
#[ignore = "64 MiB over a lossy path: a second in release, more without optimisation"]
fn the_largest_block_arrives_over_a_path_that_loses_and_reorders() {
    let content: Vec<u8> = (0..MAX_BLOCK_BYTES).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let block = Block::new(content).expect("at most 64 MiB");
    let (mut left, mut right) = pair(&Config::default());
    let started = Instant::now();
    left.begin(block.clone(), 0).expect("nothing waits");
    let (mut flying, mut random, mut frames, mut content) = (Vec::new(), 1u32, 0u32, None);
    let mut longest = Duration::ZERO;
    while content.is_none() {
        let mut room = [0; 1100];
        for _ in 0..200 {
            let Some((bytes, part)) = left.write(&mut room) else { break };
            flying.push((room[..bytes].to_vec(), part));
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
            right.on_frame(&bytes).expect("an honest peer");
            longest = longest.max(before.elapsed());
            left.on_acked(part);
        }
        carry(&mut right, &mut left);
        content = right.poll_event();
    }
    let Some(Event::Received { content, .. }) = content else { panic!("{content:?}") };
    println!("{frames} frames in {:?}, the longest took {longest:?}", started.elapsed());
    assert!(content.into_vec() == block.bytes());
}
