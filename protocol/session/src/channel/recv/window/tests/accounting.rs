//! Which bytes a window counts, and how many pieces a preview counts.

use super::*;
use crate::reliability::MemoryBudget;

const CHANNEL: ChannelId = ChannelId(0);
const LIMIT: u32 = 1000;

fn config(kind: Kind) -> ChannelConfig {
    ChannelConfig { queue_bytes: LIMIT, queue_messages: 64, ..ChannelConfig::from(kind) }
}

/// A window of an ordered channel that holds at most 1,000 bytes.
struct Bench {
    window: MessageWindow,
    config: ChannelConfig,
    pool: ChunkPool,
    scratch: Vec<u8>,
}

impl Bench {
    fn new(kind: Kind) -> Self {
        let (window, pool) = (MessageWindow::new(), ChunkPool::new(None));
        Self { window, config: config(kind), pool, scratch: Vec::new() }
    }

    fn whole(&mut self, id: u32, bytes: usize) -> Result<FrameOutcome, ChannelViolation> {
        let data = vec![id as u8; bytes];
        self.window.whole((CHANNEL, &self.config), MessageId::new(id), &data, &mut self.pool)
    }

    fn slice(&mut self, id: u32, bytes: u32, first: u16, data: usize) -> Result<FrameOutcome, ChannelViolation> {
        let Self { window, config, pool, scratch } = self;
        window.slice((CHANNEL, config), (MessageId::new(id), bytes, first), &vec![7; data], pool, scratch)
    }

    fn withdraw(&mut self, id: u32) -> Result<FrameOutcome, ChannelViolation> {
        self.window.withdrawn((CHANNEL, &self.config), MessageId::new(id), &mut self.pool)
    }

    /// Delivers what is in order. Returns the number of messages.
    fn pop_all(&mut self) -> usize {
        let Self { window, pool, scratch, .. } = self;
        core::iter::from_fn(|| window.pop(pool, scratch).then_some(())).count()
    }

    fn preview(&self, frames: &[FrameBody]) -> Vec<usize> {
        self.preview_with(frames, usize::MAX)
    }

    /// Returns what each frame needs, with this many chunks of overdraft left.
    fn preview_with(&self, frames: &[FrameBody], mut overdraft: usize) -> Vec<usize> {
        let mut preview = WindowPreview::default();
        frames.iter().map(|frame| self.window.preview(self.config.kind, frame, &mut preview, &mut overdraft)).collect()
    }
}

const REFUSED: Result<FrameOutcome, ChannelViolation> = Err(ChannelViolation::Overrun(CHANNEL));

#[test]
fn a_refused_frame_changes_no_count() {
    let mut bench = Bench::new(Kind::ReliableOrdered);
    assert_eq!(bench.whole(1, 600), Ok(FrameOutcome::Kept));
    assert_eq!((bench.whole(2, 401), bench.slice(3, 401, 0, PIECE_BYTES)), (REFUSED, REFUSED));
    assert_eq!(bench.window.bytes, 600);
    // What is left is exactly 400 bytes: a frame that was refused took none of them.
    assert_eq!(bench.whole(4, 400), Ok(FrameOutcome::Kept));
    assert_eq!((bench.window.bytes, bench.whole(5, 1)), (LIMIT, REFUSED));
    assert_eq!(bench.whole(0, 900), Ok(FrameOutcome::Deliver), "what is in order needs no room");
    assert_eq!(bench.pop_all(), 1);
    assert_eq!(bench.window.bytes, 400);
}

#[test]
fn bytes_of_delivered_and_withdrawn_messages_are_free() {
    let mut bench = Bench::new(Kind::ReliableOrdered);
    assert_eq!(bench.whole(1, 300), Ok(FrameOutcome::Kept));
    assert_eq!(bench.slice(2, 500, 0, PIECE_BYTES), Ok(FrameOutcome::Kept));
    assert_eq!(bench.window.bytes, 800, "a message counts whole from its first slice on");
    assert_eq!(bench.slice(2, 500, 1, PIECE_BYTES), Ok(FrameOutcome::Kept));
    assert_eq!(bench.window.bytes, 800, "its other slices count nothing");
    assert_eq!(bench.slice(2, 501, 1, PIECE_BYTES), Err(ChannelViolation::SliceDisagrees(CHANNEL)));
    assert_eq!(bench.withdraw(2), Ok(FrameOutcome::Kept));
    assert_eq!(bench.window.bytes, 300);
    assert_eq!(bench.withdraw(0), Ok(FrameOutcome::Kept));
    assert_eq!((bench.pop_all(), bench.window.bytes), (1, 0));
    assert_eq!(bench.whole(3, 10), Ok(FrameOutcome::Deliver), "the withdrawn one is not waited for");
    for kind in [Kind::ReliableOrdered, Kind::ReliableUnordered] {
        let mut bench = Bench::new(kind);
        let bytes = 2 * PIECE_BYTES as u32;
        assert_eq!(bench.slice(0, bytes, 0, PIECE_BYTES), Ok(FrameOutcome::Kept));
        assert_eq!(bench.slice(0, bytes, 1, PIECE_BYTES), Ok(FrameOutcome::Assembled), "{kind:?}");
        assert_eq!((bench.window.bytes, bench.scratch.len()), (0, bytes as usize), "{kind:?}");
        // A whole message replaces its slices, and their bytes.
        assert_eq!(bench.slice(2, bytes, 0, PIECE_BYTES), Ok(FrameOutcome::Kept));
        let whole = bench.whole(2, bytes as usize);
        let stays =
            if kind == Kind::ReliableOrdered { (FrameOutcome::Kept, bytes) } else { (FrameOutcome::Deliver, 0) };
        assert_eq!((whole, bench.window.bytes), (Ok(stays.0), stays.1), "{kind:?}");
    }
}

#[test]
fn a_preview_counts_what_a_packet_leaves_behind() {
    let whole = |id, data: usize| FrameBody::Whole { id: MessageId::new(id), data: 0..data };
    let slice =
        |id, bytes, first, data: usize| FrameBody::Slice { id: MessageId::new(id), bytes, first, data: 0..data };
    let withdrawn = |id| FrameBody::Withdrawn { id: MessageId::new(id) };
    let (one, two) = (PIECE_BYTES, PIECE_BYTES + 1);
    let bytes = 2 * PIECE_BYTES as u32;
    let mut bench = Bench::new(Kind::ReliableOrdered);
    let of = |bench: &Bench, frames: &[FrameBody]| bench.preview(frames);
    assert_eq!(of(&bench, &[whole(0, two), whole(1, two), whole(3, two)]), [0, 0, 2], "0 and 1 are in order");
    assert_eq!(of(&bench, &[withdrawn(0), whole(1, one), whole(3, one)]), [0, 0, 1]);
    assert_eq!(of(&bench, &[whole(0, one), whole(0, one), whole(2, one)]), [0, 0, 1], "a repeated one counts nothing");
    assert_eq!(of(&bench, &[slice(0, bytes, 0, one), slice(0, bytes, 1, one), whole(1, two)]), [0, 0, 0]);
    assert_eq!(of(&bench, &[slice(0, bytes, 0, one), slice(0, bytes, 0, one), whole(1, two)]), [0, 0, 2]);
    assert_eq!(of(&bench, &[slice(0, bytes, 1, one), whole(1, one), withdrawn(2)]), [0, 1, 0]);
    assert_eq!(of(&bench, &[slice(1, bytes, 0, one), slice(1, bytes, 1, one)]), [1, 1], "not the oldest");
    // With messages in the window.
    bench.whole(2, 10).unwrap();
    bench.slice(0, bytes, 0, PIECE_BYTES).unwrap();
    assert_eq!(of(&bench, &[whole(2, two), whole(1, two)]), [0, 2], "2 is complete, 1 is not in order");
    assert_eq!(of(&bench, &[slice(0, bytes, 1, one), whole(1, two), whole(3, two), whole(5, one)]), [0, 0, 0, 1]);
    assert_eq!(of(&bench, &[slice(0, bytes, 0, one), whole(1, two)]), [0, 2], "a slice that is there already");
    // With messages in order that the application has not taken yet.
    let mut bench = Bench::new(Kind::ReliableOrdered);
    (1..5).for_each(|id| assert_eq!(bench.whole(id, 10), Ok(FrameOutcome::Kept)));
    assert_eq!(bench.whole(0, 10), Ok(FrameOutcome::Deliver));
    assert!(bench.window.pop(&mut bench.pool, &mut bench.scratch));
    assert_eq!(of(&bench, &[whole(2, two), whole(5, two), whole(7, two)]), [0, 0, 2], "2 to 4 are complete");
    // Messages of an unordered channel are delivered at once, wherever they are; their slices wait.
    let bench = Bench::new(Kind::ReliableUnordered);
    assert_eq!(of(&bench, &[whole(5, two), slice(6, bytes, 0, one)]), [0, 1]);
}

#[test]
fn a_preview_counts_slices_that_the_overdraft_cannot_take() {
    let slice = |id, first| FrameBody::Slice { id: MessageId::new(id), bytes: 384, first, data: 0..PIECE_BYTES };
    let bench = Bench::new(Kind::ReliableOrdered);
    assert_eq!(bench.preview_with(&[slice(0, 0), slice(0, 1)], 3), [0, 0]);
    assert_eq!(bench.preview_with(&[slice(0, 0), slice(0, 1)], 2), [1, 1], "only all of a message is taken");
    let two = [0, 1, 2].map(|first| slice(0, first)).into_iter().chain([slice(1, 0)]).collect::<Vec<_>>();
    assert_eq!(bench.preview_with(&two, 6), [0, 0, 0, 0], "the next one is the oldest then");
    assert_eq!(bench.preview_with(&two, 5), [0, 0, 0, 1]);
    // A message in the overdraft needs nothing more of it.
    let mut bench = charged_bench(&MemoryBudget::new(0));
    (1..33).for_each(|id| assert_eq!(bench.whole(id, 100), Ok(FrameOutcome::Kept)));
    let left = bench.pool.overdraft_left();
    assert_eq!(bench.slice(0, 384, 1, PIECE_BYTES), Ok(FrameOutcome::Kept));
    assert_eq!(bench.pool.overdraft_left(), left - 3);
    assert_eq!(bench.preview_with(&[slice(0, 0), slice(0, 2)], 0), [0, 0]);
    assert_eq!(bench.slice(0, 384, 0, PIECE_BYTES), Ok(FrameOutcome::Kept));
    assert_eq!(bench.slice(0, 384, 2, PIECE_BYTES), Ok(FrameOutcome::Assembled));
    assert_eq!((bench.pop_all(), bench.pool.overdraft_left()), (32, left), "a complete message gives its room back");
}

#[test]
fn withdrawn_message_leaves_nothing_in_the_overdraft() {
    let mut bench = charged_bench(&MemoryBudget::new(0));
    let free = (1..33).take_while(|pieces| bench.pool.fits(*pieces, 0)).count();
    assert_eq!(free, 32, "the reserve");
    (1..33).for_each(|id| assert_eq!(bench.whole(id, 100), Ok(FrameOutcome::Kept)));
    assert_eq!(bench.slice(0, 384, 1, PIECE_BYTES), Ok(FrameOutcome::Kept));
    assert_eq!(bench.withdraw(0), Ok(FrameOutcome::Kept));
    assert_eq!(bench.pop_all(), 32);
    assert!(bench.pool.fits(32, 0), "all of the reserve is free again");
}

// The bytes of the lists ---------------------------------------------------------------------------------------------

const SLOT: usize = size_of::<WindowSlot>();

/// Returns a window of 4,096 messages whose memory is charged to a budget of this many bytes.
fn charged_bench(memory: &MemoryBudget) -> Bench {
    let config = ChannelConfig { queue_messages: 4096, ..ChannelConfig::from(Kind::ReliableOrdered) };
    let pool = ChunkPool::new(Some(memory.clone()));
    Bench { window: MessageWindow::new(), config, pool, scratch: Vec::new() }
}

#[test]
fn lists_count_beyond_their_free_entries() {
    assert_eq!(counted_bytes(FREE_SLOTS, FREE_ASSEMBLIES), 0);
    assert_eq!(counted_bytes(FREE_SLOTS + 3, 0), 3 * SLOT);
    assert_eq!(counted_bytes(0, FREE_ASSEMBLIES + 3), 3 * ASSEMBLY_BYTES);
    assert_eq!(counted_bytes(FREE_SLOTS + 2, FREE_ASSEMBLIES + 1), 2 * SLOT + ASSEMBLY_BYTES);
    assert_eq!(max_list_bytes(1), 0);
    assert_eq!(max_list_bytes(3000), counted_bytes(4096, 4096));
}

#[test]
fn assemblies_count_with_all_memory_of_their_list() {
    let mut assemblies = EntrySlab::<AssemblyIndex, MessageAssembly>::new();
    for _ in 0..1000 {
        assemblies.insert(MessageAssembly::new(2));
        let (counted, held) = (assemblies.capacity() * ASSEMBLY_BYTES, assemblies.list_bytes());
        assert!((held..=held + held / 10).contains(&counted), "{counted} bytes for {held}");
    }
}

#[test]
fn a_preview_counts_the_growth_of_the_lists() {
    let whole = |id| FrameBody::Whole { id: MessageId::new(id), data: 0..9 };
    let slice = |id, first| FrameBody::Slice { id: MessageId::new(id), bytes: 1000, first, data: 0..PIECE_BYTES };
    let slices = |ids: core::ops::Range<u32>| ids.map(|id| slice(id, 0)).collect::<Vec<_>>();
    let needed = |bench: &Bench, frames: &[FrameBody]| {
        let (mut preview, mut overdraft) = (WindowPreview::default(), usize::MAX);
        for frame in frames {
            bench.window.preview(bench.config.kind, frame, &mut preview, &mut overdraft);
        }
        bench.window.list_bytes_needed(&bench.config, &preview)
    };
    let memory = MemoryBudget::new(1 << 20);
    let mut bench = charged_bench(&memory);
    for (name, frames, expected) in [
        ("free slots", vec![whole(3)], 0),
        ("a slot more", vec![whole(4)], counted_bytes(8, 0)),
        ("257 slots", vec![whole(256)], counted_bytes(512, 0)),
        ("256 slots when the first message has left", vec![whole(0), whole(256)], counted_bytes(256, 0)),
        ("257 slots before the first message leaves", vec![whole(256), whole(0)], counted_bytes(512, 0)),
        ("whole messages need no assembly", (1..100).map(whole).collect(), counted_bytes(128, 0)),
        ("the oldest missing message has an assembly", slices(0..4), 0),
        ("three behind it, and a spare one", slices(1..4), 0),
        ("four behind it", slices(1..5), counted_bytes(8, 8)),
        ("four before it", slices(1..5).into_iter().chain([whole(0)]).collect(), counted_bytes(8, 8)),
    ] {
        assert_eq!(needed(&bench, &frames), expected, "{name}");
    }
    for id in 1..5 {
        bench.slice(id, 1000, 0, PIECE_BYTES).unwrap();
    }
    assert_eq!(bench.window.counted, counted_bytes(8, 8));
    assert_eq!(needed(&bench, &slices(5..8)), 0, "with four in the window");
    assert_eq!(needed(&bench, &slices(5..9)), counted_bytes(16, 16) - bench.window.counted, "with four in the window");
}

#[test]
fn lists_count_as_they_grow_and_are_freed_when_unused() {
    let memory = MemoryBudget::new(1 << 20);
    let mut bench = charged_bench(&memory);
    let at = |seconds| Instant::from_start(core::time::Duration::from_secs(seconds));
    bench.whole(3, 9).unwrap();
    assert_eq!(bench.window.counted, 0);
    bench.whole(256, 9).unwrap();
    assert_eq!((bench.window.slots.capacity(), bench.window.counted), (512, counted_bytes(512, 0)));
    assert_eq!(memory.left(), 1 << 20, "within the reserve");
    for id in 11..20 {
        bench.slice(id, 1000, 0, PIECE_BYTES).unwrap();
        assert_eq!(bench.window.counted, counted_bytes(512, bench.window.assemblies.capacity()), "with {id}");
    }
    assert_eq!(bench.window.assemblies.capacity(), 16);
    bench.window.tick(at(100), &mut bench.pool);
    for id in 0..=256 {
        bench.withdraw(id).unwrap();
        bench.pop_all();
    }
    assert!(bench.window.slots.is_empty());
    let just_before = Instant::from_start(core::time::Duration::from_millis(109_999));
    bench.window.tick(just_before, &mut bench.pool);
    assert_eq!(bench.window.counted, counted_bytes(512, 16), "kept for 10 s");
    bench.window.tick(at(110), &mut bench.pool);
    assert_eq!((bench.window.counted, bench.window.slots.capacity(), memory.left()), (0, 0, 1 << 20));

    bench.whole(257, 9).unwrap();
    bench.whole(260, 9).unwrap();
    for id in 258..=259 {
        bench.withdraw(id).unwrap();
    }
    bench.pop_all();
    bench.window.tick(at(1000), &mut bench.pool);
    assert!(bench.window.slots.capacity() > 0, "what does not count is kept");
}

#[test]
fn sliced_message_after_a_gap_waits_only_if_ordered() {
    let bytes = PIECE_BYTES as u32 + 1;
    for (kind, outcome) in
        [(Kind::ReliableOrdered, FrameOutcome::Kept), (Kind::ReliableUnordered, FrameOutcome::Assembled)]
    {
        let mut bench = Bench::new(kind);
        bench.config.queue_bytes = bytes;
        assert_eq!(bench.slice(1, bytes, 0, PIECE_BYTES), Ok(FrameOutcome::Kept), "{kind:?}");
        assert_eq!(bench.slice(1, bytes, 1, 1), Ok(outcome), "{kind:?}");
        assert_eq!(bench.window.bytes, if kind == Kind::ReliableOrdered { bytes } else { 0 }, "{kind:?}");
    }
}
