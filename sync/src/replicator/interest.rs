//! Which objects a client is near enough to see: a grid of all objects, and a sphere for each client, with hysteresis.

use alloc::vec;
use alloc::vec::Vec;

use super::replicated::ReplicatedObject;
use crate::commits::Commits;
use crate::object_set::ObjectSet;
use crate::quantize;
use crate::schema::{FieldShape, KindLayout, Schema};

/// The most cells along an axis.
const MAX_CELLS: f32 = 32.0;

/// What a client sees of the world: all objects within a radius, by the first vector of their kinds. Objects of kinds
/// without a vector are seen from everywhere.
///
/// # Examples
///
/// ```
/// use slipgate_sync::Look;
///
/// // Objects within 40 m appear, and those beyond 48 m disappear: nothing flickers at the edge.
/// let look = Look::around([0.0, 1.0, 0.0], 40.0).leaving(48.0);
/// # let _ = look;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    centre: [f32; 3],
    radius: f32,
    leaving: f32,
}

impl Look {
    /// Sees objects within `radius` of `centre`, in units of their positions.
    #[must_use]
    pub const fn around(centre: [f32; 3], radius: f32) -> Self {
        Self { centre, radius, leaving: radius }
    }

    /// Keeps objects in sight until they are beyond this radius. It is at least that of
    /// [`around`](Self::around).
    #[must_use]
    pub const fn leaving(self, radius: f32) -> Self {
        Self { leaving: self.radius.max(radius), ..self }
    }

    fn squared_distance(&self, position: [f32; 3]) -> f32 {
        position.iter().zip(self.centre).map(|(part, centre)| (part - centre) * (part - centre)).sum()
    }

    fn appears(&self, position: [f32; 3]) -> bool {
        self.squared_distance(position) <= self.radius * self.radius
    }

    fn stays(&self, position: [f32; 3]) -> bool {
        self.squared_distance(position) <= self.leaving * self.leaving
    }
}

/// Returns the first vector of an object.
fn position(layout: &KindLayout, words: &[i32]) -> Option<[f32; 3]> {
    layout.fields().find_map(|(start, shape)| {
        let FieldShape::Vector(axes) = shape else { return None };
        let word = |index: usize| words.get(start + index).copied().unwrap_or(0);
        let [x, y, z] = axes;
        Some([quantize::value(x, word(0)), quantize::value(y, word(1)), quantize::value(z, word(2))])
    })
}

/// An object in a grid.
#[derive(Clone, Copy, Debug, Default)]
struct PlacedObject {
    /// `None` for an object that is seen from everywhere.
    position: Option<[f32; 3]>,
    /// The cell of the list that it is in.
    cell: Option<u32>,
    /// Its neighbours in the list.
    before: Option<u16>,
    next: Option<u16>,
}

/// The live objects at one commit, with a list of those in each cell. Only what changed is moved.
#[derive(Debug)]
pub(super) struct Grid {
    lows: [f32; 3],
    cells_per_unit: f32,
    counts: [usize; 3],
    /// The first object of each cell.
    heads: Vec<Option<u16>>,
    objects: Vec<PlacedObject>,
    everywhere: ObjectSet,
    /// The objects that changed since their cells were found.
    stale: ObjectSet,
}

impl Grid {
    /// Returns an empty grid over the ranges of all first vectors.
    pub(super) fn new(schema: &Schema, objects: usize) -> Self {
        let (mut lows, mut highs) = ([f32::MAX; 3], [f32::MIN; 3]);
        for layout in schema.layouts() {
            let Some(FieldShape::Vector(axes)) =
                layout.fields().map(|(_, shape)| shape).find(|shape| matches!(shape, FieldShape::Vector(_)))
            else {
                continue;
            };
            for ((low, high), axis) in lows.iter_mut().zip(&mut highs).zip(axes) {
                (*low, *high) = (low.min(axis.min), high.max(axis.max));
            }
        }
        let sides =
            [0, 1, 2].map(|axis: usize| highs.get(axis).zip(lows.get(axis)).map_or(0.0, |(high, low)| high - low));
        let longest = sides.iter().fold(0.0_f32, |longest, side| longest.max(*side));
        let cells_per_unit = if longest > 0.0 { MAX_CELLS / longest } else { 0.0 };
        let counts = sides.map(|side| (libm::ceilf(side.max(0.0) * cells_per_unit) as usize).max(1));
        Self {
            lows,
            cells_per_unit,
            counts,
            heads: vec![None; counts.iter().product()],
            objects: vec![PlacedObject::default(); objects],
            everywhere: ObjectSet::new(objects),
            stale: ObjectSet::new(objects),
        }
    }

    /// Returns the cell of a coordinate; the nearest one if it is outside.
    fn cell_of(&self, axis: usize, part: f32) -> usize {
        let low = self.lows.get(axis).copied().unwrap_or(0.0);
        let count = self.counts.get(axis).copied().unwrap_or(1);
        // The cast turns negative numbers and NaN into 0.
        (((part - low) * self.cells_per_unit) as usize).min(count - 1)
    }

    fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        (x * self.counts[1] + y) * self.counts[2] + z
    }

    /// Notes that an object changed.
    pub(super) fn note(&mut self, object: usize) {
        self.stale.insert(object);
    }

    /// Notes that these objects changed.
    pub(super) fn note_all(&mut self, objects: &ObjectSet) {
        self.stale.add(objects);
    }

    /// Moves the objects that changed to the cells in which they are at the newest commit.
    pub(super) fn update_cells(&mut self, schema: &Schema, objects: &[ReplicatedObject], commits: &Commits) {
        for group in 0..self.stale.groups() {
            for id in self.stale.group(group) {
                let object = objects.get(id).filter(|object| object.is_live && object.changed > 0);
                let layout = object.and_then(|object| schema.layout(object.kind));
                let at = layout.and_then(|layout| position(layout, commits.words(commits.newest(), id)?));
                self.everywhere.set(id, layout.is_some() && at.is_none());
                self.place(id, at, layout.is_some());
            }
        }
        self.stale.clear();
    }

    /// Moves an object to its cell. One that is gone is in none, and keeps its position until its id is used again.
    fn place(&mut self, id: usize, at: Option<[f32; 3]>, is_live: bool) {
        let [x, y, z] = at.unwrap_or_default();
        let cell = at.map(|_| self.index([self.cell_of(0, x), self.cell_of(1, y), self.cell_of(2, z)]) as u32);
        let Some(object) = self.objects.get_mut(id) else { return };
        if is_live {
            object.position = at;
        }
        if object.cell != cell {
            self.unlink(id);
            self.link(id, cell);
        }
    }

    /// Takes an object out of the list of its cell.
    fn unlink(&mut self, id: usize) {
        let Some(PlacedObject { cell: Some(cell), before, next, .. }) = self.objects.get(id).copied() else { return };
        match before.and_then(|before| self.objects.get_mut(usize::from(before))) {
            Some(before) => before.next = next,
            None => self.heads.get_mut(cell as usize).into_iter().for_each(|head| *head = next),
        }
        if let Some(next) = next.and_then(|next| self.objects.get_mut(usize::from(next))) {
            next.before = before;
        }
    }

    /// Puts an object in front of the list of a cell.
    fn link(&mut self, id: usize, cell: Option<u32>) {
        let head = cell.and_then(|cell| self.heads.get_mut(cell as usize));
        let next = head.and_then(|head| head.replace(id as u16));
        if let Some(next) = next.and_then(|next| self.objects.get_mut(usize::from(next))) {
            next.before = Some(id as u16);
        }
        if let Some(object) = self.objects.get_mut(id) {
            (object.cell, object.before, object.next) = (cell, None, next);
        }
    }

    /// Brings what a client sees up to date. Calls `on_change` for each object that appears or disappears.
    pub(super) fn update(&self, look: &Look, seen: &mut ObjectSet, mut on_change: impl FnMut(usize)) {
        for group in 0..seen.groups() {
            for id in seen.group(group) {
                let stays = |object: &PlacedObject| object.position.is_none_or(|at| look.stays(at));
                let stays = self.objects.get(id).is_some_and(stays);
                if !stays {
                    seen.remove(id);
                    on_change(id);
                }
            }
        }
        let mut appear = |id: usize| {
            if !seen.contains(id) {
                seen.insert(id);
                on_change(id);
            }
        };
        self.everywhere.iter().for_each(&mut appear);
        let range = |axis: usize| {
            let centre = look.centre.get(axis).copied().unwrap_or(0.0);
            self.cell_of(axis, centre - look.radius)..=self.cell_of(axis, centre + look.radius)
        };
        for x in range(0) {
            for y in range(1) {
                for z in range(2) {
                    self.near([x, y, z], look).for_each(&mut appear);
                }
            }
        }
    }

    /// Returns the objects of a cell that appear.
    fn near(&self, cell: [usize; 3], look: &Look) -> impl Iterator<Item = usize> {
        let object = |id: &u16| self.objects.get(usize::from(*id));
        let first = self.heads.get(self.index(cell)).copied().flatten();
        let all = core::iter::successors(first, move |id| object(id).and_then(|object| object.next));
        let appears = move |id: &u16| object(id).and_then(|object| object.position).is_some_and(|at| look.appears(at));
        all.filter(appears).map(usize::from)
    }
}
