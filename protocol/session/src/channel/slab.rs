//! Places for values, each with a number; a place that was left is used again.

use alloc::vec::Vec;

/// Values by number. It grows when all places are in use.
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u16>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> u16 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            // As many free numbers as places at most: then putting one back never asks for memory.
            self.free.reserve(self.places.len());
            (self.places.len() - 1) as u16
        });
        if let Some(place) = self.places.get_mut(usize::from(number)) {
            *place = Some(value);
        }
        number
    }

    pub(super) fn remove(&mut self, number: u16) -> Option<T> {
        let value = self.places.get_mut(usize::from(number))?.take()?;
        self.free.push(number);
        Some(value)
    }

    pub(super) fn get(&self, number: u16) -> Option<&T> {
        self.places.get(usize::from(number))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: u16) -> Option<&mut T> {
        self.places.get_mut(usize::from(number))?.as_mut()
    }
}
