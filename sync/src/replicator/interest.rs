//! Which objects a client is near enough to see: a grid of all objects, and a sphere for each client, with hysteresis.

use alloc::vec;
use alloc::vec::Vec;

use super::replicated::ReplicatedObject;
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

/// The live objects at one commit, sorted by the cells in which they are.
#[derive(Debug)]
pub(super) struct Grid {
    lows: [f32; 3],
    cells_per_unit: f32,
    counts: [usize; 3],
    /// The first of each cell's objects; one entry more than there are cells.
    starts: Vec<u32>,
    objects: Vec<(u16, [f32; 3])>,
    unsorted: Vec<(u16, u32, [f32; 3])>,
    /// The positions of all objects; `None` for those that are seen from everywhere.
    positions: Vec<Option<[f32; 3]>>,
    everywhere: ObjectSet,
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
            starts: vec![0; counts.iter().product::<usize>() + 1],
            objects: Vec::with_capacity(objects),
            unsorted: Vec::with_capacity(objects),
            positions: vec![None; objects],
            everywhere: ObjectSet::new(objects),
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

    /// Sorts the objects into cells.
    pub(super) fn fill(&mut self, schema: &Schema, objects: &[ReplicatedObject], words: &[i32]) {
        self.starts.fill(0);
        self.unsorted.clear();
        self.everywhere.clear();
        let words = words.chunks_exact(schema.max_words().max(1));
        for ((id, object), words) in (0_u16..).zip(objects).zip(words).filter(|((_, object), _)| object.is_live) {
            let at = schema.layout(object.kind).and_then(|layout| position(layout, words));
            if let Some(kept) = self.positions.get_mut(usize::from(id)) {
                *kept = at;
            }
            let Some(at) = at else {
                self.everywhere.insert(usize::from(id));
                continue;
            };
            let [x, y, z] = at;
            let cell = self.index([self.cell_of(0, x), self.cell_of(1, y), self.cell_of(2, z)]);
            self.unsorted.push((id, cell as u32, at));
            if let Some(count) = self.starts.get_mut(cell) {
                *count += 1;
            }
        }
        self.sort();
    }

    /// Sorts by counting: `starts` has the number of objects in each cell.
    fn sort(&mut self) {
        let mut end = 0;
        for start in &mut self.starts {
            end += *start;
            *start = end;
        }
        self.objects.resize(self.unsorted.len(), (0, [0.0; 3]));
        for (id, cell, at) in self.unsorted.iter().rev() {
            let Some(start) = self.starts.get_mut(*cell as usize) else { continue };
            *start = start.saturating_sub(1);
            if let Some(place) = self.objects.get_mut(*start as usize) {
                *place = (*id, *at);
            }
        }
    }

    /// Brings what a client sees up to date. Calls `on_change` for each object that appears or disappears.
    pub(super) fn update(&self, look: &Look, seen: &mut ObjectSet, mut on_change: impl FnMut(usize)) {
        for group in 0..seen.groups() {
            for id in seen.group(group) {
                let stays = self.positions.get(id).is_some_and(|at| at.is_none_or(|at| look.stays(at)));
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
                self.near(x, y, range(2))
                    .filter(|(_, at)| look.appears(*at))
                    .for_each(|(id, _)| appear(usize::from(*id)));
            }
        }
    }

    /// Returns the objects of a row of cells.
    fn near(
        &self,
        x: usize,
        y: usize,
        row: core::ops::RangeInclusive<usize>,
    ) -> core::slice::Iter<'_, (u16, [f32; 3])> {
        let (first, last) = (self.index([x, y, *row.start()]), self.index([x, y, *row.end()]));
        let start = |cell: usize| self.starts.get(cell).map_or(0, |start| *start as usize);
        self.objects.get(start(first)..start(last + 1)).unwrap_or(&[]).iter()
    }
}
