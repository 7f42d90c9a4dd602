//! The receive window of a reliable channel: which messages have arrived, and those that wait for older ones.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::channel::chunks::{ChunkList, ChunkPool, Credit, RETENTION};
use crate::channel::config::{ChannelConfig, ChannelId, Kind};
use crate::channel::recv::assembly::{AssemblyProgress, MessageAssembly};
use crate::channel::slab::{EntrySlab, entry_index};
use crate::channel::steps;
use crate::channel::violation::ChannelViolation;
use crate::channel::wire::frame::FrameBody;
use crate::channel::wire::message_id::MessageId;
use crate::channel::wire::pieces::{PIECE_BYTES, pieces_of};
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

/// Slots of each window that are not counted: 256 bytes, for the oldest missing message and a few behind it.
const FREE_SLOTS: usize = 16;
/// Assemblies of each window that are not counted: 0.3 KiB, the smallest list. One of them is always spare for the
/// oldest missing message.
const FREE_ASSEMBLIES: usize = 4;
/// Bytes of an assembly in its slab, with the index in the list of free ones, which doubles.
const ASSEMBLY_BYTES: usize = size_of::<Option<MessageAssembly>>() + 2 * size_of::<u16>();

/// Returns the bytes of lists with these capacities that count in the pool, which charges them to the shared budget
/// beyond its reserve.
const fn counted_bytes(slots: usize, assemblies: usize) -> usize {
    slots.saturating_sub(FREE_SLOTS) * size_of::<WindowSlot>()
        + assemblies.saturating_sub(FREE_ASSEMBLIES) * ASSEMBLY_BYTES
}

/// Returns the capacity for this many entries. It doubles, so that a growing list is seldom copied.
const fn capacity_for(entries: usize) -> usize {
    if entries == 0 { 0 } else { entries.next_power_of_two() }
}

/// Returns the bytes that the lists of a window of this many messages count at most.
pub(crate) const fn max_list_bytes(messages: usize) -> usize {
    let capacity = capacity_for(messages);
    counted_bytes(capacity, capacity)
}

/// The received part of a message.
enum WindowSlot {
    Nothing,
    /// Some slices.
    Partial(AssemblyIndex),
    /// All of it. It waits for older messages.
    Stored {
        chunks: ChunkList,
        bytes: u32,
        run: RunLength,
    },
    /// It was delivered or withdrawn.
    Settled(RunLength),
}

/// The length of a run of complete messages. It is valid in the first and the last slot of the run, so that neither
/// adding a message nor a preview visits the slots between.
type RunLength = u16;

impl WindowSlot {
    /// Returns the length of the run of complete messages, in its first and last slot, or 0 if this one is incomplete.
    fn run(&self) -> RunLength {
        match self {
            Self::Stored { run, .. } | Self::Settled(run) => *run,
            Self::Nothing | Self::Partial(_) => 0,
        }
    }

    fn set_run(&mut self, length: RunLength) {
        match self {
            Self::Stored { run, .. } | Self::Settled(run) => *run = length,
            Self::Nothing | Self::Partial(_) => {}
        }
    }
}

/// The outcome of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameOutcome {
    /// Deliver the message from the packet.
    Deliver,
    /// Deliver the message from the scratch buffer, where it was assembled.
    Assembled,
    /// The frame was stored.
    Kept,
    /// The frame was a duplicate or too old.
    Dropped,
}

entry_index! {
    /// The place of an incomplete message among those of its window.
    AssemblyIndex
}

/// The window of one channel. Its limits in messages and bytes are those of the sender's queue. A conforming sender has
/// nothing in flight beyond them, because its oldest unacked message is not newer than the oldest missing one here.
pub(crate) struct MessageWindow {
    /// The oldest message that is missing.
    next: MessageId,
    /// The messages from `next` to the newest one with any received part: at most `queue_messages`.
    slots: VecDeque<WindowSlot>,
    assemblies: EntrySlab<AssemblyIndex, MessageAssembly>,
    /// Bytes of the messages in the slots, missing slices included.
    bytes: u32,
    /// Bytes of the two lists that count in the pool.
    counted: usize,
    /// When a message was stored last, as far as is known.
    last_use: Instant,
}

/// How far the frames of a packet would advance a window, if they were taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct WindowPreview {
    /// How many of the oldest messages would be settled.
    settled: u32,
    /// New pieces of the message behind them.
    new_pieces: u16,
    /// One past the last of these pieces.
    end: u16,
    /// Whether the overdraft has room for that message.
    overdrawn: bool,
    /// The slots that the window needs.
    slots: u32,
    /// New incomplete messages, at most.
    assemblies: u16,
}

impl MessageWindow {
    pub(crate) fn new() -> Self {
        Self {
            next: MessageId::new(0),
            slots: VecDeque::new(),
            assemblies: EntrySlab::new(),
            bytes: 0,
            counted: 0,
            last_use: Instant::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn begin_ids_at(&mut self, id: MessageId) {
        self.next = id;
    }

    /// Handles a whole message.
    ///
    /// # Errors
    /// [`ChannelViolation::Overrun`] when it exceeds the window.
    pub(crate) fn whole(
        &mut self,
        (channel, config): (ChannelId, &ChannelConfig),
        id: MessageId,
        data: &[u8],
        pool: &mut ChunkPool,
    ) -> Result<FrameOutcome, ChannelViolation> {
        let Some(index) = self.open(channel, config, id, pool)? else { return Ok(FrameOutcome::Dropped) };
        // Slices of it may have arrived before the sender sent it whole in a larger packet.
        self.drop_partial(index, pool);
        if config.kind == Kind::ReliableUnordered || index == 0 {
            self.set_settled(index);
            return Ok(FrameOutcome::Deliver);
        }
        self.reserve(channel, config, data.len() as u32)?;
        // `can_take` has checked the shared budget for the whole packet.
        let chunks = pool.store(data, Credit::Checked).must_exist("memory that was checked").unwrap_or_default();
        self.put_complete(index, WindowSlot::Stored { chunks, bytes: data.len() as u32, run: 1 });
        Ok(FrameOutcome::Kept)
    }

    /// Handles a slice of a message.
    ///
    /// # Errors
    /// - [`ChannelViolation::Overrun`] when the message exceeds the window.
    /// - [`ChannelViolation::SliceDisagrees`] when an earlier slice had another message size.
    pub(crate) fn slice(
        &mut self,
        (channel, config): (ChannelId, &ChannelConfig),
        (id, bytes, first): (MessageId, u32, u16),
        data: &[u8],
        pool: &mut ChunkPool,
        scratch: &mut Vec<u8>,
    ) -> Result<FrameOutcome, ChannelViolation> {
        let Some(index) = self.open(channel, config, id, pool)? else { return Ok(FrameOutcome::Dropped) };
        // The first slice reserves the bytes of the whole message.
        let assembly_index = match self.slots.get(index) {
            Some(WindowSlot::Partial(assembly)) => *assembly,
            _ => self.begin((channel, config), index, bytes, pool)?,
        };
        let Some(assembly) = self.assemblies.get_mut(assembly_index) else { return Ok(FrameOutcome::Dropped) };
        // Every slice carries the message size, so that slices may arrive in any order (§3.4).
        if assembly.bytes != bytes {
            return Err(ChannelViolation::SliceDisagrees(channel));
        }
        let new_pieces = data.len().div_ceil(PIECE_BYTES);
        let credit = if index == 0 { assembly.credit_as_oldest(new_pieces, pool) } else { Credit::Checked };
        if assembly.add(first, data, pool, credit) != AssemblyProgress::Complete {
            return Ok(FrameOutcome::Kept);
        }
        Ok(self.completed(config.kind, index, assembly_index, pool, scratch))
    }

    /// Handles the withdrawal of a message.
    ///
    /// # Errors
    /// [`ChannelViolation::Overrun`] when its id exceeds the window.
    pub(crate) fn withdrawn(
        &mut self,
        (channel, config): (ChannelId, &ChannelConfig),
        id: MessageId,
        pool: &mut ChunkPool,
    ) -> Result<FrameOutcome, ChannelViolation> {
        let Some(index) = self.open(channel, config, id, pool)? else { return Ok(FrameOutcome::Dropped) };
        // A withdrawal may overtake or follow slices of the message.
        self.drop_partial(index, pool);
        self.set_settled(index);
        Ok(FrameOutcome::Kept)
    }

    /// Assembles the next message in order, if it is stored. Returns whether it is.
    pub(crate) fn pop(&mut self, pool: &mut ChunkPool, scratch: &mut Vec<u8>) -> bool {
        let Some(WindowSlot::Stored { .. }) = self.slots.front() else { return false };
        // The line above has found the same slot, so this is never refused.
        let Some(WindowSlot::Stored { chunks, bytes, .. }) = self.pop_complete() else { return false };
        self.bytes -= bytes;
        pool.assemble(&chunks, bytes, scratch);
        pool.release(chunks);
        self.skip_settled();
        true
    }

    /// Returns an upper bound of the pieces that a frame stores, besides messages that are in order by then. `preview`
    /// and `overdraft`, the chunks that it has left, reflect the earlier frames of the packet.
    ///
    /// Slices of the oldest missing message count as 0 if the overdraft has room for all of it: if they were refused as
    /// well, the channel could stall forever.
    pub(crate) fn preview(
        &self,
        kind: Kind,
        body: &FrameBody,
        preview: &mut WindowPreview,
        overdraft: &mut usize,
    ) -> usize {
        let (FrameBody::Whole { id, .. } | FrameBody::Slice { id, .. } | FrameBody::Withdrawn { id }) = body else {
            return 0;
        };
        // Duplicates are dropped and need no memory.
        let Some(index) = id.ahead_of(self.next).filter(|index| *index >= preview.settled) else { return 0 };
        // Settled messages have left the window by then.
        preview.slots = preview.slots.max(index - preview.settled + 1);
        let is_in_order = index == preview.settled;
        // An assembly is always spare for the oldest missing message, which must not be refused.
        preview.assemblies += u16::from(matches!(body, FrameBody::Slice { .. }) && !is_in_order);
        match body {
            FrameBody::Slice { bytes, first, data, .. } if is_in_order => {
                self.preview_overdraft(preview, *bytes, overdraft);
                let needed = if preview.overdrawn { 0 } else { data.len().div_ceil(PIECE_BYTES) };
                self.preview_slice(preview, *bytes, *first, data.len());
                needed
            }
            FrameBody::Whole { .. } | FrameBody::Withdrawn { .. } if is_in_order => {
                self.preview_settled(preview);
                0
            }
            // Unordered messages are delivered at once.
            FrameBody::Whole { .. } if kind == Kind::ReliableUnordered => 0,
            FrameBody::Whole { data, .. } | FrameBody::Slice { data, .. } if !self.is_complete(index) => {
                data.len().div_ceil(PIECE_BYTES)
            }
            _ => 0,
        }
    }

    /// Returns an upper bound of the bytes by which the lists grow for a previewed packet.
    pub(crate) fn list_bytes_needed(&self, config: &ChannelConfig, preview: &WindowPreview) -> usize {
        // An id beyond the window is a violation, which takes no memory.
        let slots = capacity_for((preview.slots as usize).min(config.queue_messages.into()));
        let assemblies = match preview.assemblies {
            0 => 0,
            new => capacity_for(self.assemblies.len() + usize::from(new) + 1).max(4),
        };
        let needed = counted_bytes(slots.max(self.slots.capacity()), assemblies.max(self.assemblies.capacity()));
        needed.saturating_sub(self.counted)
    }

    /// Frees the lists if nothing was stored for [`RETENTION`] and they count in the pool.
    pub(crate) fn tick(&mut self, now: Instant, pool: &mut ChunkPool) {
        if !self.slots.is_empty() {
            self.last_use = now;
        } else if self.counted > 0 && now.reached(self.last_use, RETENTION) {
            (self.slots, self.assemblies) = (VecDeque::new(), EntrySlab::new());
            pool.free_list(core::mem::take(&mut self.counted));
        }
    }

    /// Counts the lists in the pool after they have grown.
    fn count_lists(&mut self, pool: &mut ChunkPool) {
        let bytes = counted_bytes(self.slots.capacity(), self.assemblies.capacity());
        pool.grow_list(bytes - self.counted);
        self.counted = bytes;
    }

    /// Moves the oldest missing message to the overdraft in a preview, if it has room for it.
    fn preview_overdraft(&self, preview: &mut WindowPreview, bytes: u32, overdraft: &mut usize) {
        if preview.overdrawn {
            return;
        }
        let is_overdrawn = self.partial_at(preview.settled).is_some_and(MessageAssembly::is_overdrawn);
        let needed = if is_overdrawn { 0 } else { pieces_of(bytes).into() };
        if let Some(left) = overdraft.checked_sub(needed) {
            (*overdraft, preview.overdrawn) = (left, true);
        }
    }

    /// Returns the stored part of an incomplete message.
    fn partial_at(&self, index: u32) -> Option<&MessageAssembly> {
        match self.slots.get(index as usize) {
            Some(WindowSlot::Partial(assembly)) => self.assemblies.get(*assembly),
            _ => None,
        }
    }

    /// Adds a slice of the oldest missing message to a preview. Only slices with ascending pieces count, so that no
    /// piece counts twice.
    fn preview_slice(&self, preview: &mut WindowPreview, bytes: u32, first: u16, data: usize) {
        let assembly = self.partial_at(preview.settled);
        if first < preview.end {
            return;
        }
        // Slices of one packet ascend, so one position suffices to skip duplicates.
        preview.end = first.saturating_add(data.div_ceil(PIECE_BYTES) as u16);
        let is_new = |piece: &u16| assembly.is_none_or(|assembly| assembly.is_missing(*piece));
        preview.new_pieces += (first..preview.end).filter(is_new).count() as u16;
        if preview.new_pieces == assembly.map_or(pieces_of(bytes), MessageAssembly::missing) {
            self.preview_settled(preview);
        }
    }

    /// Settles the oldest missing message in a preview, and those that waited for it.
    fn preview_settled(&self, preview: &mut WindowPreview) {
        let WindowPreview { settled, slots, assemblies, .. } = *preview;
        let run = match self.run_at(settled) {
            0 => 1 + self.run_at(settled + 1),
            // The frame settles nothing: messages that may be delivered were left in the window.
            run => run,
        };
        *preview = WindowPreview { settled: settled + run, slots, assemblies, ..WindowPreview::default() };
    }

    /// Returns how many messages are complete from `index` on, if the one before is incomplete. If it is complete, the
    /// number is wrong, but is 0 for an incomplete message only.
    fn run_at(&self, index: u32) -> u32 {
        steps::count(1);
        self.slots.get(index as usize).map_or(0, WindowSlot::run).into()
    }

    fn is_complete(&self, index: u32) -> bool {
        self.run_at(index) > 0
    }

    /// Extends the window to a message. Returns the message's index, or `None` if it is complete already.
    fn open(
        &mut self,
        channel: ChannelId,
        config: &ChannelConfig,
        id: MessageId,
        pool: &mut ChunkPool,
    ) -> Result<Option<usize>, ChannelViolation> {
        // Older than the window: a retransmission of a settled message.
        let Some(ahead) = id.ahead_of(self.next) else { return Ok(None) };
        if ahead >= config.queue_messages.into() {
            return Err(ChannelViolation::Overrun(channel));
        }
        let index = ahead as usize;
        // Grows only as far as anything arrived: 16 bytes for each message.
        if index >= self.slots.capacity() {
            self.slots.reserve_exact(capacity_for(index + 1) - self.slots.len());
            self.count_lists(pool);
        }
        while self.slots.len() <= index {
            self.slots.push_back(WindowSlot::Nothing);
        }
        let is_incomplete = matches!(self.slots.get(index), Some(WindowSlot::Nothing | WindowSlot::Partial(_)));
        Ok(is_incomplete.then_some(index))
    }

    fn begin(
        &mut self,
        (channel, config): (ChannelId, &ChannelConfig),
        index: usize,
        bytes: u32,
        pool: &mut ChunkPool,
    ) -> Result<AssemblyIndex, ChannelViolation> {
        self.reserve(channel, config, bytes)?;
        // Assemblies are in a slab, so that a slot of the window stays at 16 bytes.
        let assembly = self.assemblies.insert(MessageAssembly::new(bytes));
        self.assemblies.reserve_one();
        // Counts only what the list has grown by.
        self.count_lists(pool);
        self.put(index, WindowSlot::Partial(assembly));
        Ok(assembly)
    }

    fn completed(
        &mut self,
        kind: Kind,
        index: usize,
        assembly: AssemblyIndex,
        pool: &mut ChunkPool,
        scratch: &mut Vec<u8>,
    ) -> FrameOutcome {
        let Some(assembly) = self.assemblies.remove(assembly) else { return FrameOutcome::Dropped };
        let (bytes, chunks) = (assembly.bytes, assembly.into_chunks(pool));
        if kind == Kind::ReliableOrdered && index > 0 {
            // Its bytes were reserved by the first slice, and stay reserved.
            self.put_complete(index, WindowSlot::Stored { chunks, bytes, run: 1 });
            return FrameOutcome::Kept;
        }
        pool.assemble(&chunks, bytes, scratch);
        pool.release(chunks);
        self.bytes -= bytes;
        self.set_settled(index);
        FrameOutcome::Assembled
    }

    /// Counts bytes of a message that the window holds from now on.
    fn reserve(&mut self, channel: ChannelId, config: &ChannelConfig, bytes: u32) -> Result<(), ChannelViolation> {
        // A conforming sender never exceeds the limit, because it counts the same messages (§3.7).
        let fits = bytes <= config.queue_bytes.saturating_sub(self.bytes);
        self.bytes += if fits { bytes } else { 0 };
        if fits { Ok(()) } else { Err(ChannelViolation::Overrun(channel)) }
    }

    /// Drops slices of a message that arrived whole or was withdrawn.
    fn drop_partial(&mut self, index: usize, pool: &mut ChunkPool) {
        let Some(WindowSlot::Partial(assembly)) = self.slots.get(index) else { return };
        let Some(assembly) = self.assemblies.remove(*assembly) else { return };
        self.bytes -= assembly.bytes;
        let chunks = assembly.into_chunks(pool);
        pool.release(chunks);
        self.put(index, WindowSlot::Nothing);
    }

    fn set_settled(&mut self, index: usize) {
        if index > 0 {
            return self.put_complete(index, WindowSlot::Settled(1));
        }
        self.slots.pop_front();
        self.next = self.next.ahead(1);
        self.skip_settled();
    }

    fn skip_settled(&mut self) {
        while let Some(WindowSlot::Settled(_)) = self.slots.front() {
            self.pop_complete();
        }
    }

    /// Removes the oldest message, which is complete.
    fn pop_complete(&mut self) -> Option<WindowSlot> {
        let slot = self.slots.pop_front()?;
        self.next = self.next.ahead(1);
        let behind = slot.run().saturating_sub(1);
        if behind > 0
            && let Some(front) = self.slots.front_mut()
        {
            front.set_run(behind);
        }
        Some(slot)
    }

    /// Puts a complete message behind the oldest one, and joins it with the runs before and behind it.
    fn put_complete(&mut self, index: usize, slot: WindowSlot) {
        let run_at = |index: usize| usize::from(self.slots.get(index).map_or(0, WindowSlot::run));
        let first = index.saturating_sub(run_at(index.saturating_sub(1)));
        let last = index + run_at(index + 1);
        self.put(index, slot);
        let run = (last + 1 - first) as RunLength;
        for end in [first, last] {
            if let Some(slot) = self.slots.get_mut(end) {
                slot.set_run(run);
            }
        }
    }

    fn put(&mut self, index: usize, slot: WindowSlot) {
        if let Some(entry) = self.slots.get_mut(index).must_exist("a slot of the window") {
            *entry = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    mod accounting;
    mod runs;

    #[test]
    fn messages_far_ahead_take_16_bytes_each() {
        let channel = ChannelId(0);
        for kind in [Kind::ReliableUnordered, Kind::ReliableOrdered] {
            let config = ChannelConfig { queue_messages: 4096, ..ChannelConfig::from(kind) };
            let (mut window, mut pool) = (MessageWindow::new(), ChunkPool::new(None));
            let mut take = |number| window.whole((channel, &config), MessageId::new(number), &[1; 9], &mut pool);
            assert!(take(4095).is_ok());
            assert_eq!(take(4096), Err(ChannelViolation::Overrun(channel)));
            assert_eq!(window.slots.capacity() * size_of::<WindowSlot>(), 4096 * 16, "{kind:?}");
            let mut scratch = Vec::new();
            for number in 0..4095 {
                assert!(window.whole((channel, &config), MessageId::new(number), &[1; 9], &mut pool).is_ok());
                while window.pop(&mut pool, &mut scratch) {}
            }
            assert!(window.slots.is_empty(), "{kind:?}");
            // The slots are reused for later messages.
            for number in (4096..8192).rev() {
                assert!(window.whole((channel, &config), MessageId::new(number), &[1; 9], &mut pool).is_ok());
            }
            assert_eq!(window.slots.capacity(), 4096, "{kind:?}");
        }
    }
}
