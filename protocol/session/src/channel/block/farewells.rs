//! The last word about each of the peer's blocks: that it arrived, or why it was refused. Repeated until it arrives.
//!
//! They are found by the numbers of their blocks, so that a thousand that nobody acknowledges cost no more than one.

use alloc::vec::Vec;

use super::frame::{Frame, Reason};
use super::places::Places;
use super::seen::WINDOW;
use super::{BlockId, Part};

/// Last words that the peer is not known to have heard, of the last 1,024 numbers.
#[derive(Default)]
pub(super) struct Farewells {
    standing: Places,
    /// Those of them that have to be written.
    owed: Places,
    /// Why a block was refused, by its place; `None`: it arrived. As long as the places that were used.
    reasons: Vec<Option<Reason>>,
}

impl Farewells {
    /// The last word about a block among the last 1,024.
    pub(super) fn say(&mut self, id: BlockId, refused: Option<Reason>) {
        let place = usize::from(id.0 % WINDOW);
        if self.reasons.len() <= place {
            self.reasons.resize(place + 1, None);
        }
        if let Some(reason) = self.reasons.get_mut(place) {
            *reason = refused;
        }
        self.standing.insert(id);
        self.owed.insert(id);
    }

    /// The peer has heard it, or needs not.
    pub(super) fn drop(&mut self, id: BlockId) {
        self.standing.remove(id);
        self.owed.remove(id);
    }

    /// The window went on by `count` numbers, up to `last`: who begins that has heard what was said about those that fell
    /// out of it.
    pub(super) fn pass(&mut self, last: BlockId, count: u16) {
        self.standing.clear(last, count);
        self.owed.clear(last, count);
    }

    pub(super) fn on_lost(&mut self, id: BlockId) {
        if self.standing.contains(id) {
            self.owed.insert(id);
        }
    }

    pub(super) fn wants_room(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Writes the one about the oldest block that has to be written, counted from the window's start.
    pub(super) fn write(&mut self, oldest: BlockId, room: &mut [u8]) -> Option<(usize, Part)> {
        let id = self.owed.first_from(oldest)?;
        let refused = self.reasons.get(usize::from(id.0 % WINDOW)).copied().flatten();
        let frame = refused.map_or(Frame::Done { id }, |reason| Frame::Refuse { id, reason });
        let bytes = frame.write(room)?;
        self.owed.remove(id);
        Some((bytes, Part::Farewell(id)))
    }
}
