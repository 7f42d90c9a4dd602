//! All blocks of a channel, in both directions: what the packer and the application talk to.

use core::fmt;

use super::frame::Frame;
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::{
    BeginError, Block, BlockId, Config, ConfigError, Event, HashingGrant, Part, PartialBlock, Progress, Reception,
    Violation,
};
use crate::reliability::MemoryBudget;

/// A channel of blocks.
///
/// # Examples
///
/// ```
/// use slipgate_session::channel::block::{Block, Blocks, Config, Event};
///
/// let [mut server, mut client] = [(); 2].map(|()| Blocks::new(Config::default(), None).expect("good settings"));
/// server.begin(Block::new(vec![7; 5000]).expect("at most 64 MiB"), 1).expect("nothing waits yet");
/// let mut room = [0; 1100];
/// let content = loop {
///     while let Some((bytes, part)) = server.write(&mut room) {
///         client.on_frame(&room[..bytes]).expect("an honest peer");
///         server.on_acked(part);
///     }
///     while let Some((bytes, part)) = client.write(&mut room) {
///         server.on_frame(&room[..bytes]).expect("an honest peer");
///         client.on_acked(part);
///     }
///     if let Some(Event::Received { content, .. }) = client.poll_event() {
///         break content;
///     }
/// };
/// assert_eq!(content.into_vec(), [7; 5000]);
/// ```
pub struct Blocks {
    outgoing: Outgoing,
    incoming: Incoming,
}

impl Blocks {
    /// A channel with these settings. What it receives takes its memory from `budget`, if there is one.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its bounds.
    pub fn new(config: Config, budget: Option<MemoryBudget>) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self { outgoing: Outgoing::new(&config), incoming: Incoming::new(config, budget) })
    }

    /// From now on no more is hashed of what has arrived than `grant` allows when events are asked for.
    pub(crate) fn hash_within(&mut self, grant: HashingGrant) {
        self.incoming.hash_within(grant);
    }

    /// Takes a block to be sent; `label` tells the peer's application what it is.
    ///
    /// # Errors
    ///
    /// [`BeginError::Backlogged`] if as many wait as the settings allow.
    pub fn begin(&mut self, block: Block, label: u64) -> Result<BlockId, BeginError> {
        self.outgoing.begin(block, label)
    }

    /// Gives up sending a block; answers whether there was one. No event comes of it. The peer may have all of it by
    /// then.
    pub fn cancel(&mut self, id: BlockId) -> bool {
        self.outgoing.cancel(id)
    }

    /// Accepts an offered block; answers whether there is such an offer, and room for so many bytes at once.
    pub fn accept(&mut self, id: BlockId) -> bool {
        self.incoming.accept(id)
    }

    /// Refuses an offered block, or gives up receiving one; answers what has arrived of it. No event comes of it.
    pub fn refuse(&mut self, id: BlockId) -> Option<PartialBlock> {
        self.incoming.cancel(id)
    }

    /// Keeps what an earlier connection left of a block: when the peer offers the same content, only the rest is sent.
    ///
    /// # Errors
    ///
    /// Gives it back if as many are kept as may be under way at once.
    pub fn keep(&mut self, partial: PartialBlock) -> Result<(), PartialBlock> {
        self.incoming.keep(partial)
    }

    /// What is left of the peer's blocks when the connection has ended, to [`Blocks::keep`] in the next one.
    pub fn into_partials(self) -> impl Iterator<Item = PartialBlock> {
        self.incoming.into_partials()
    }

    /// How far our blocks are, those that wait included.
    pub fn sending(&self) -> impl Iterator<Item = (BlockId, Progress)> {
        self.outgoing.progress()
    }

    /// What the peer calls one of its blocks that is on its way.
    #[must_use]
    pub fn label(&self, id: BlockId) -> Option<u64> {
        self.incoming.label(id)
    }

    /// How far the peer's blocks are.
    pub fn receiving(&self) -> impl Iterator<Item = (BlockId, Progress)> {
        self.incoming.progress()
    }

    /// Whether there is a frame to write.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        self.incoming.wants_room() || self.outgoing.wants_room()
    }

    /// Writes one frame: answers and announcements first, then slices, of each block in turn. Answers its bytes and what
    /// it was, or `None` if there is nothing to write or no room for it. It costs the same whatever the block's size.
    pub fn write(&mut self, room: &mut [u8]) -> Option<(usize, Part)> {
        self.incoming
            .write(room)
            .or_else(|| self.outgoing.write_control(room))
            .or_else(|| self.outgoing.write_slices(room))
    }

    /// A packet arrived that this frame was in. It may be told more than once, and after [`Blocks::on_lost`].
    pub fn on_acked(&mut self, part: Part) {
        match part {
            Part::Begin(id) | Part::Withdraw(id) | Part::Slices { block: id, .. } => self.outgoing.on_acked(id, part),
            Part::Accept { .. } | Part::Farewell(_) => self.incoming.on_acked(part),
        }
    }

    /// A packet is lost, or taken for lost, that this frame was in: the frame is written again if it still matters.
    pub fn on_lost(&mut self, part: Part) {
        match part {
            Part::Begin(id) | Part::Withdraw(id) | Part::Slices { block: id, .. } => self.outgoing.on_lost(id, part),
            Part::Accept { .. } | Part::Farewell(_) => self.incoming.on_lost(part),
        }
    }

    /// Takes a frame of the peer's.
    ///
    /// # Errors
    ///
    /// What no honest peer sends. Nothing has changed, and the connection should end.
    pub fn on_frame(&mut self, bytes: &[u8]) -> Result<Reception, Violation> {
        let frame = Frame::parse(bytes)?;
        match frame {
            Frame::Begin(begin) => self.incoming.on_begin(begin),
            Frame::Slice { id, index, bytes } => self.incoming.on_slices(id, index, bytes),
            Frame::Withdraw { id, reason } => Ok(self.incoming.on_withdraw(id, reason)),
            Frame::Accept { id, .. } | Frame::Done { id } | Frame::Refuse { id, .. } => {
                self.outgoing.on_frame(id, &frame)
            }
        }
    }

    /// Whether [`Blocks::poll_event`] would go on with hashing what has arrived: then it should be called soon, though
    /// nothing may arrive.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.incoming.has_work()
    }

    /// What the application has to hear next. To be called until `None` once a tick: until then at most a megabyte is
    /// hashed of what has arrived, of all blocks of the channel together; each has its turn. That takes a millisecond or
    /// two. A server has one allowance for all its clients instead.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outgoing.poll_event().or_else(|| self.incoming.poll_event())
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sending, receiving) = (self.sending().count(), self.receiving().count());
        f.debug_struct("Blocks").field("sending", &sending).field("receiving", &receiving).finish()
    }
}
