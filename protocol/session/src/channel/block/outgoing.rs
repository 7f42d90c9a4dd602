//! The blocks that this end sends: those under way take turns, frame by frame, and the others wait.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::frame::{Frame, Reason};
use super::receiver::Reception;
use super::seen::WINDOW;
use super::{BeginError, Block, BlockId, BlockSender, Config, Event, Part, Progress, Violation};

/// Everything on its way out.
pub(super) struct Outgoing {
    next_id: BlockId,
    waiting: VecDeque<Waiting>,
    active: Vec<BlockSender>,
    max_active: usize,
    max_waiting: usize,
    slice_bytes: u16,
    /// Whose turn it is.
    turn: usize,
}

struct Waiting {
    id: BlockId,
    label: u64,
    block: Block,
}

impl Outgoing {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            next_id: BlockId(0),
            waiting: VecDeque::new(),
            active: Vec::new(),
            max_active: config.max_at_once.into(),
            max_waiting: config.max_waiting,
            slice_bytes: config.slice_bytes,
            turn: 0,
        }
    }

    pub(super) fn begin(&mut self, block: Block, label: u64) -> Result<BlockId, BeginError> {
        self.start_waiting();
        if self.waiting.len() >= self.max_waiting && !self.can_start(self.next_id) {
            return Err(BeginError::Backlogged);
        }
        let id = self.next_id;
        self.next_id = BlockId(id.0.wrapping_add(1));
        self.waiting.push_back(Waiting { id, label, block });
        self.start_waiting();
        Ok(id)
    }

    pub(super) fn cancel(&mut self, id: BlockId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.id != id);
        if self.waiting.len() < before {
            return true;
        }
        let sender = self.find(id);
        let found = sender.is_some();
        if let Some(sender) = sender {
            sender.cancel(Reason::Cancelled);
        }
        self.drop_ended();
        found
    }

    pub(super) fn progress(&self) -> impl Iterator<Item = (BlockId, Progress)> {
        let waiting = self.waiting.iter().map(|waiting| (waiting.id, Progress { bytes: 0, of: waiting.block.length }));
        self.active.iter().map(|sender| (sender.id(), sender.progress())).chain(waiting)
    }

    pub(super) fn wants_room(&self) -> bool {
        self.active.iter().any(BlockSender::wants_room)
    }

    pub(super) fn write_control(&mut self, room: &mut [u8]) -> Option<(usize, Part)> {
        self.active.iter_mut().find_map(|sender| sender.write_control(room))
    }

    /// Writes slices of the block whose turn it is; the next ones are of another block, if there is one.
    pub(super) fn write_slices(&mut self, room: &mut [u8]) -> Option<(usize, Part)> {
        let count = self.active.len();
        for _ in 0..count {
            self.turn = (self.turn + 1) % count;
            let written = self.active.get_mut(self.turn).and_then(|sender| sender.write_slices(room));
            if written.is_some() {
                return written;
            }
        }
        None
    }

    pub(super) fn on_acked(&mut self, id: BlockId, part: Part) {
        if let Some(sender) = self.find(id) {
            sender.on_acked(part);
            if sender.is_over() {
                self.drop_ended();
            }
        }
    }

    pub(super) fn on_lost(&mut self, id: BlockId, part: Part) {
        if let Some(sender) = self.find(id) {
            sender.on_lost(part);
        }
    }

    pub(super) fn on_frame(&mut self, id: BlockId, frame: &Frame<'_>) -> Result<Reception, Violation> {
        if let Some(sender) = self.find(id) {
            let reception = sender.on_frame(frame)?;
            if sender.is_over() {
                // It was given up here as well, and nobody was told: there is no acknowledgement to wait for.
                self.drop_ended();
            }
            return Ok(reception);
        }
        let is_begun = self.next_id.0.wrapping_sub(id.0).wrapping_sub(1) < 1 << 15;
        let waits = self.waiting.iter().any(|waiting| waiting.id == id);
        // An answer to a block that ended meanwhile is late; one to a block that was never begun is a lie.
        if is_begun && !waits { Ok(Reception::Ignored) } else { Err(Violation::NeverBegun) }
    }

    pub(super) fn poll_event(&mut self) -> Option<Event> {
        let event = self.active.iter_mut().find_map(BlockSender::poll_event)?;
        self.drop_ended();
        Some(event)
    }

    fn find(&mut self, id: BlockId) -> Option<&mut BlockSender> {
        self.active.iter_mut().find(|sender| sender.id() == id)
    }

    fn drop_ended(&mut self) {
        self.active.retain(|sender| !sender.is_over());
        self.start_waiting();
    }

    fn start_waiting(&mut self) {
        while self.waiting.front().is_some_and(|first| self.can_start(first.id)) {
            let Some(Waiting { id, label, block }) = self.waiting.pop_front() else { return };
            self.active.push(BlockSender::begin(block, id, label, self.slice_bytes));
        }
    }

    /// Whether there is a place, and the number is not too far ahead of the oldest one under way (§4.1).
    fn can_start(&self, id: BlockId) -> bool {
        self.active.len() < self.max_active
            && self.active.iter().all(|sender| id.0.wrapping_sub(sender.id().0) < WINDOW)
    }
}
