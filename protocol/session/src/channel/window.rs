//! The receiver's window of a reliable channel: which messages have come, and those that wait for older ones.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::assembly::{Assembly, Progress};
use super::frame::Body;
use super::layout::{ChannelConfig, ChannelId, Kind};
use super::message_id::MessageId;
use super::pieces::{Chain, Credit, PIECE_BYTES, Store, pieces_of};
use super::slab::Slab;
use super::violation::Violation;

/// What has come of a message.
enum Slot {
    Nothing,
    /// Some slices; the number is that of the assembly.
    Partial(u16),
    /// All of it, and it waits for its turn.
    Stored {
        chain: Chain,
        bytes: u32,
    },
    /// It has been delivered, or will never come.
    Settled,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Its message is to be delivered as it stands in the packet.
    Deliver,
    /// Its message is complete, and lies in the caller's scratch.
    Gathered,
    /// It was kept.
    Kept,
    /// It was of no use.
    Dropped,
}

/// The window of one channel. Its size, in messages and in bytes, is that of the sender's queue: an honest sender has
/// nothing under way beyond it, since its oldest message that is not acknowledged is at or before our oldest missing one.
pub(super) struct Window {
    /// The oldest message that is missing.
    next: MessageId,
    /// From `next` on, as far as anything has come: at most as many as the queue has messages.
    slots: VecDeque<Slot>,
    assemblies: Slab<Assembly>,
    /// Bytes of the messages in the slots, the missing parts of slices included.
    bytes: u32,
}

/// How far the frames of a packet would bring a window, if they were taken.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead {
    /// How many of the oldest messages would be there.
    settled: u32,
    /// Pieces that would come of the one behind them.
    brought: u16,
    /// The piece behind the last one of these.
    end: u16,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { next: MessageId::new(0), slots: VecDeque::new(), assemblies: Slab::new(), bytes: 0 }
    }

    #[cfg(test)]
    pub(super) fn begin_ids_at(&mut self, id: MessageId) {
        self.next = id;
    }

    /// A whole message has come.
    pub(super) fn whole(
        &mut self,
        (channel, config): (ChannelId, &ChannelConfig),
        id: MessageId,
        data: &[u8],
        store: &mut Store,
    ) -> Result<Outcome, Violation> {
        let Some(place) = self.open(channel, config, id)? else { return Ok(Outcome::Dropped) };
        self.drop_partial(place, store);
        if config.kind == Kind::ReliableUnordered || place == 0 {
            self.settle(place);
            return Ok(Outcome::Deliver);
        }
        self.reserve(channel, config, data.len() as u32)?;
        let chain = store.store(data, Credit::Overdraft).unwrap_or_default();
        self.put(place, Slot::Stored { chain, bytes: data.len() as u32 });
        Ok(Outcome::Kept)
    }

    /// A slice of a message has come.
    pub(super) fn slice(
        &mut self,
        (channel, config): (ChannelId, &ChannelConfig),
        (id, bytes, first): (MessageId, u32, u16),
        data: &[u8],
        store: &mut Store,
        scratch: &mut Vec<u8>,
    ) -> Result<Outcome, Violation> {
        let Some(place) = self.open(channel, config, id)? else { return Ok(Outcome::Dropped) };
        let number = match self.slots.get(place) {
            Some(Slot::Partial(number)) => *number,
            _ => self.begin(channel, config, place, bytes)?,
        };
        let Some(assembly) = self.assemblies.get_mut(number) else { return Ok(Outcome::Dropped) };
        if assembly.bytes != bytes {
            return Err(Violation::SliceDisagrees(channel));
        }
        if assembly.add(first, data, store, Credit::Overdraft) != Progress::Complete {
            return Ok(Outcome::Kept);
        }
        Ok(self.completed(config.kind, place, number, store, scratch))
    }

    /// The message will not come any more.
    pub(super) fn withdrawn(
        &mut self,
        (channel, config): (ChannelId, &ChannelConfig),
        id: MessageId,
        store: &mut Store,
    ) -> Result<Outcome, Violation> {
        let Some(place) = self.open(channel, config, id)? else { return Ok(Outcome::Dropped) };
        self.drop_partial(place, store);
        self.settle(place);
        Ok(Outcome::Kept)
    }

    /// Takes the next message in order out of the window, if it waits there.
    pub(super) fn pop(&mut self, store: &mut Store, scratch: &mut Vec<u8>) -> bool {
        let Some(Slot::Stored { .. }) = self.slots.front() else { return false };
        let Some(Slot::Stored { chain, bytes }) = self.slots.pop_front() else { return false };
        self.next = self.next.ahead(1);
        self.bytes -= bytes;
        store.gather(&chain, bytes, scratch);
        store.release(chain);
        self.pass_settled();
        true
    }

    /// How many pieces must be kept, at most, of what a packet brings beside messages that are in order by then. `ahead` is
    /// what earlier frames of the packet have done here.
    ///
    /// The slices of the oldest missing message count for nothing: what they take is bounded by the largest message, and
    /// without them there would be no end of waiting.
    pub(super) fn preview(&self, kind: Kind, body: &Body, ahead: &mut Ahead) -> usize {
        let (Body::Whole { id, .. } | Body::Slice { id, .. } | Body::Withdrawn { id }) = body else { return 0 };
        let Some(place) = id.ahead_of(self.next).filter(|place| *place >= ahead.settled) else { return 0 };
        let in_order = place == ahead.settled;
        match body {
            Body::Slice { bytes, first, data, .. } if in_order => {
                self.bring(ahead, *bytes, *first, data.len());
                0
            }
            Body::Whole { .. } | Body::Withdrawn { .. } if in_order => {
                self.pass(ahead);
                0
            }
            Body::Whole { .. } if kind == Kind::ReliableUnordered => 0,
            Body::Whole { data, .. } | Body::Slice { data, .. } if !self.has(place) => data.len().div_ceil(PIECE_BYTES),
            _ => 0,
        }
    }

    /// A slice of the oldest missing message would come. Slices of a packet count while their pieces ascend, so that none
    /// counts twice.
    fn bring(&self, ahead: &mut Ahead, bytes: u32, first: u16, data: usize) {
        let assembly = match self.slots.get(ahead.settled as usize) {
            Some(Slot::Partial(number)) => self.assemblies.get(*number),
            _ => None,
        };
        if first < ahead.end {
            return;
        }
        ahead.end = first.saturating_add(data.div_ceil(PIECE_BYTES) as u16);
        let is_new = |piece: &u16| assembly.is_none_or(|assembly| assembly.lacks(*piece));
        ahead.brought += (first..ahead.end).filter(is_new).count() as u16;
        if ahead.brought == assembly.map_or(pieces_of(bytes), Assembly::missing) {
            self.pass(ahead);
        }
    }

    /// The oldest missing message would be there, and those be delivered that waited for it.
    fn pass(&self, ahead: &mut Ahead) {
        *ahead = Ahead { settled: ahead.settled + 1, ..Ahead::default() };
        while self.has(ahead.settled) {
            ahead.settled += 1;
        }
    }

    fn has(&self, place: u32) -> bool {
        matches!(self.slots.get(place as usize), Some(Slot::Stored { .. } | Slot::Settled))
    }

    /// The place of a message that is of use, in a window that reaches as far; `None` if it came before.
    fn open(&mut self, channel: ChannelId, config: &ChannelConfig, id: MessageId) -> Result<Option<usize>, Violation> {
        let Some(ahead) = id.ahead_of(self.next) else { return Ok(None) };
        if ahead >= config.queue_messages.into() {
            return Err(Violation::Overrun(channel));
        }
        let place = ahead as usize;
        while self.slots.len() <= place {
            self.slots.push_back(Slot::Nothing);
        }
        let news = matches!(self.slots.get(place), Some(Slot::Nothing | Slot::Partial(_)));
        Ok(news.then_some(place))
    }

    fn begin(
        &mut self,
        channel: ChannelId,
        config: &ChannelConfig,
        place: usize,
        bytes: u32,
    ) -> Result<u16, Violation> {
        self.reserve(channel, config, bytes)?;
        let number = self.assemblies.insert(Assembly::new(bytes));
        self.put(place, Slot::Partial(number));
        Ok(number)
    }

    fn completed(
        &mut self,
        kind: Kind,
        place: usize,
        number: u16,
        store: &mut Store,
        scratch: &mut Vec<u8>,
    ) -> Outcome {
        let Some(Assembly { bytes, chain, .. }) = self.assemblies.remove(number) else { return Outcome::Dropped };
        if kind == Kind::ReliableOrdered && place > 0 {
            self.put(place, Slot::Stored { chain, bytes });
            return Outcome::Kept;
        }
        store.gather(&chain, bytes, scratch);
        store.release(chain);
        self.bytes -= bytes;
        self.settle(place);
        Outcome::Gathered
    }

    /// Counts bytes that the window holds from now on.
    fn reserve(&mut self, channel: ChannelId, config: &ChannelConfig, bytes: u32) -> Result<(), Violation> {
        let fits = bytes <= config.queue_bytes.saturating_sub(self.bytes);
        self.bytes += if fits { bytes } else { 0 };
        if fits { Ok(()) } else { Err(Violation::Overrun(channel)) }
    }

    fn drop_partial(&mut self, place: usize, store: &mut Store) {
        let Some(Slot::Partial(number)) = self.slots.get(place) else { return };
        let Some(assembly) = self.assemblies.remove(*number) else { return };
        self.bytes -= assembly.bytes;
        store.release(assembly.chain);
        self.put(place, Slot::Nothing);
    }

    fn settle(&mut self, place: usize) {
        self.put(place, Slot::Settled);
        self.pass_settled();
    }

    fn pass_settled(&mut self) {
        while let Some(Slot::Settled) = self.slots.front() {
            self.slots.pop_front();
            self.next = self.next.ahead(1);
        }
    }

    fn put(&mut self, place: usize, slot: Slot) {
        if let Some(at) = self.slots.get_mut(place) {
            *at = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_far_ahead_takes_16_bytes_for_each_message_of_the_queue_and_nothing_more() {
        let channel = ChannelId(0);
        for kind in [Kind::ReliableUnordered, Kind::ReliableOrdered] {
            let config = ChannelConfig { queue_messages: 4096, ..ChannelConfig::new(kind) };
            let (mut window, mut store) = (Window::new(), Store::new(None));
            let mut take = |number| window.whole((channel, &config), MessageId::new(number), &[1; 9], &mut store);
            assert!(take(4095).is_ok());
            assert_eq!(take(4096), Err(Violation::Overrun(channel)));
            assert_eq!(window.slots.capacity() * size_of::<Slot>(), 4096 * 16, "{kind:?}");
            let mut scratch = Vec::new();
            for number in 0..4095 {
                assert!(window.whole((channel, &config), MessageId::new(number), &[1; 9], &mut store).is_ok());
                while window.pop(&mut store, &mut scratch) {}
            }
            assert!(window.slots.is_empty(), "{kind:?}");
            // The same places do for all that comes.
            for number in (4096..8192).rev() {
                assert!(window.whole((channel, &config), MessageId::new(number), &[1; 9], &mut store).is_ok());
            }
            assert_eq!(window.slots.capacity(), 4096, "{kind:?}");
        }
    }
}
