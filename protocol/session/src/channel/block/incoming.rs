//! The blocks that the peer sends: who may send how much, what is kept of broken ones, and the last word about each.

use alloc::vec::Vec;

use super::farewells::Farewells;
use super::frame::{Begin, Reason};
use super::hashing::{Hashing, HashingGrant};
use super::receiver::Reception;
use super::seen::Seen;
use super::{Admission, BlockId, BlockReceiver, Config, Event, Part, PartialBlock, Progress, Side, Violation};
use crate::reliability::MemoryBudget;

/// Everything on its way in.
pub(super) struct Incoming {
    config: Config,
    budget: Option<MemoryBudget>,
    seen: Seen,
    active: Vec<Active>,
    farewells: Farewells,
    hashing: Hashing,
    /// What earlier connections left.
    kept: Vec<PartialBlock>,
}

struct Active {
    receiver: BlockReceiver,
    /// The application was told of the offer.
    is_told: bool,
    /// The peer withdrew it.
    withdrawn: Option<Reason>,
}

impl Incoming {
    pub(super) fn new(config: Config, budget: Option<MemoryBudget>) -> Self {
        let (seen, farewells, hashing) = (Seen::default(), Farewells::default(), Hashing::default());
        Self { config, budget, seen, active: Vec::new(), farewells, hashing, kept: Vec::new() }
    }

    /// From now on no more is hashed than is granted.
    pub(super) fn hash_within(&mut self, grant: HashingGrant) {
        self.hashing.within(grant);
    }

    /// Keeps a partial block for a later offer of the same content; gives it back if as many are kept as may be under
    /// way at once.
    pub(super) fn keep(&mut self, partial: PartialBlock) -> Result<(), PartialBlock> {
        if self.kept.len() >= self.config.max_at_once.into() {
            return Err(partial);
        }
        self.kept.push(partial);
        Ok(())
    }

    pub(super) fn into_partials(self) -> impl Iterator<Item = PartialBlock> {
        self.active.into_iter().filter_map(|active| active.receiver.into_partial()).chain(self.kept)
    }

    pub(super) fn label(&self, id: BlockId) -> Option<u64> {
        let active = self.active.iter().find(|active| active.receiver.id() == id)?;
        Some(active.receiver.begin().label)
    }

    pub(super) fn progress(&self) -> impl Iterator<Item = (BlockId, Progress)> {
        self.active.iter().map(|active| (active.receiver.id(), active.receiver.progress()))
    }

    pub(super) fn on_begin(&mut self, begin: Begin) -> Result<Reception, Violation> {
        let receiver = BlockReceiver::new(begin, self.budget.clone())?;
        if let Some(active) = self.find(begin.id) {
            let same = active.receiver.begin() == begin;
            return if same { Ok(Reception::Ignored) } else { Err(Violation::BeginDiffers) };
        }
        if !self.mark(begin.id) {
            return Ok(Reception::Ignored);
        }
        if self.config.admission == Admission::Never {
            self.refuse(begin.id, Reason::Declined);
        } else if begin.length > self.config.max_block_bytes {
            self.refuse(begin.id, Reason::TooLarge);
        } else if self.active.len() >= self.config.max_at_once.into() {
            self.refuse(begin.id, Reason::Busy);
        } else {
            self.active.push(Active { receiver, is_told: false, withdrawn: None });
            self.admit();
        }
        Ok(Reception::New)
    }

    pub(super) fn on_slices(&mut self, id: BlockId, index: u32, bytes: &[u8]) -> Result<Reception, Violation> {
        if let Some(active) = self.active.iter_mut().find(|active| active.receiver.id() == id) {
            if active.withdrawn.is_some() {
                return Ok(Reception::Ignored);
            }
            return active.receiver.on_slices_within(index, bytes, &mut self.hashing);
        }
        if self.seen.contains(id) { Ok(Reception::Ignored) } else { Err(Violation::NotAccepted) }
    }

    pub(super) fn on_withdraw(&mut self, id: BlockId, reason: Reason) -> Reception {
        let is_new = self.mark(id);
        self.hears(id);
        let Some(active) = self.find(id) else {
            return if is_new { Reception::New } else { Reception::Ignored };
        };
        if active.withdrawn.is_some() {
            return Reception::Ignored;
        }
        active.withdrawn = Some(reason);
        // Nobody needs to hear of the end of what nobody heard of.
        self.active.retain(|active| active.withdrawn.is_none() || active.is_told || !active.receiver.is_offered());
        self.admit();
        Reception::New
    }

    /// Accepts what the application was asked about; answers whether there is such an offer and room for it.
    pub(super) fn accept(&mut self, id: BlockId) -> bool {
        let Some(at) = self.active.iter().position(|active| active.receiver.id() == id) else { return false };
        self.has_bytes_for(at) && self.accept_at(at)
    }

    /// Ends a block that is offered or under way; answers what has arrived of it.
    pub(super) fn cancel(&mut self, id: BlockId) -> Option<PartialBlock> {
        let at = self.active.iter().position(|active| active.receiver.id() == id)?;
        let Active { receiver, withdrawn, .. } = self.active.remove(at);
        if withdrawn.is_none() {
            self.refuse(id, if receiver.is_offered() { Reason::Declined } else { Reason::Cancelled });
        }
        self.admit();
        receiver.into_partial()
    }

    pub(super) fn wants_room(&self) -> bool {
        self.farewells.wants_room()
            || self.active.iter().any(|active| active.withdrawn.is_none() && active.receiver.wants_room())
    }

    pub(super) fn write(&mut self, room: &mut [u8]) -> Option<(usize, Part)> {
        self.farewells.write(self.seen.oldest(), room).or_else(|| {
            let mut wanted = self.active.iter_mut().filter(|active| active.withdrawn.is_none());
            wanted.find_map(|active| active.receiver.write(room))
        })
    }

    pub(super) fn on_acked(&mut self, part: Part) {
        if let Part::Farewell(id) = part {
            self.hears(id);
        }
    }

    pub(super) fn on_lost(&mut self, part: Part) {
        match part {
            Part::Farewell(id) if self.seen.is_within(id) => self.farewells.on_lost(id),
            Part::Accept { block, .. } => {
                if let Some(active) = self.find(block) {
                    active.receiver.on_lost(part);
                }
            }
            _ => {}
        }
    }

    /// Whether some of what has arrived is still to be hashed.
    pub(super) fn has_work(&self) -> bool {
        self.active.iter().any(|active| active.receiver.has_work())
    }

    /// The next thing that the application has to hear, after some hashing.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        let event = self.next_event();
        if event.is_none() {
            self.hashing.begin_turn();
        }
        event
    }

    fn next_event(&mut self) -> Option<Event> {
        self.hashing.share(&mut self.active, |active, hashing| active.receiver.work_within(hashing));
        if let Some(at) = self.active.iter().position(Active::is_at_its_end) {
            let ended = self.active.remove(at);
            let event = self.bury(ended);
            self.admit();
            return Some(event);
        }
        let asks = self.config.admission == Admission::Ask;
        let offered = self.active.iter_mut().find(|active| asks && active.receiver.is_offered() && !active.is_told)?;
        offered.is_told = true;
        Some(Event::Offered(offered.receiver.offer()))
    }

    fn bury(&mut self, ended: Active) -> Event {
        let Active { mut receiver, withdrawn, .. } = ended;
        let (id, label) = (receiver.id(), receiver.begin().label);
        if let Some(content) = receiver.take() {
            if withdrawn.is_none() {
                self.say(id, None);
            }
            return Event::Received { id, label, content };
        }
        let failure = receiver.failure();
        let (by, reason) = match (withdrawn, failure) {
            (Some(reason), _) => (Side::Peer, reason),
            (None, reason) => (Side::Us, reason.unwrap_or(Reason::Cancelled)),
        };
        if by == Side::Us {
            self.refuse(id, reason);
        }
        Event::Broken { id, label, by, reason, partial: receiver.into_partial() }
    }

    fn refuse(&mut self, id: BlockId, reason: Reason) {
        self.say(id, Some(reason));
    }

    /// Owes the peer the last word about a block; what is too old to be remembered it has let go by itself.
    fn say(&mut self, id: BlockId, refused: Option<Reason>) {
        if self.seen.is_within(id) {
            self.farewells.say(id, refused);
        }
    }

    /// The peer has heard the last word about a block, or needs not. A number that is too old has its place no more.
    fn hears(&mut self, id: BlockId) {
        if self.seen.is_within(id) {
            self.farewells.drop(id);
        }
    }

    /// Marks a number as begun; answers whether it is new.
    fn mark(&mut self, id: BlockId) -> bool {
        let passed = self.seen.mark(id);
        self.farewells.pass(id, passed.unwrap_or(0));
        passed.is_some()
    }

    fn find(&mut self, id: BlockId) -> Option<&mut Active> {
        self.active.iter_mut().find(|active| active.receiver.id() == id)
    }

    /// Accepts what waits for room, oldest first, where the application is not asked.
    fn admit(&mut self) {
        if self.config.admission == Admission::Ask {
            return;
        }
        for at in 0..self.active.len() {
            let waits = self.active.get(at).is_some_and(|active| active.receiver.is_offered());
            if waits && (!self.has_bytes_for(at) || !self.accept_at(at)) {
                return;
            }
        }
    }

    /// Whether the block at this place fits into the bytes that may be received at once.
    fn has_bytes_for(&self, at: usize) -> bool {
        let length = |active: &Active| u64::from(active.receiver.begin().length);
        let taken: u64 = self.active.iter().filter(|active| !active.receiver.is_offered()).map(length).sum();
        self.active.get(at).is_some_and(|active| taken + length(active) <= self.config.max_bytes_at_once)
    }

    fn accept_at(&mut self, at: usize) -> bool {
        let Some(active) = self.active.get_mut(at).filter(|active| active.receiver.is_offered()) else { return false };
        let place = self.kept.iter().position(|partial| active.receiver.continues(partial));
        let unused = active.receiver.accept(place.map(|place| self.kept.swap_remove(place)));
        self.kept.extend(unused);
        true
    }
}

impl Active {
    fn is_at_its_end(&self) -> bool {
        self.withdrawn.is_some() || self.receiver.is_whole() || self.receiver.failure().is_some()
    }
}
