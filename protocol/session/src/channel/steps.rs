//! Counts the steps of searches that a peer's frames cause. Tests bound them, because run time varies between machines.

/// Counts steps, in tests and fuzz targets only.
#[cfg(not(any(test, feature = "fuzzing")))]
pub(super) const fn count(_steps: usize) {}

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use self::counted::count;
#[cfg(test)]
pub(crate) use self::counted::of;
#[cfg(feature = "fuzzing")]
pub use self::counted::search_steps;

#[cfg(any(test, feature = "fuzzing"))]
mod counted {
    use std::cell::Cell;

    std::thread_local! {
        static TAKEN: Cell<usize> = const { Cell::new(0) };
    }

    pub(in crate::channel) fn count(steps: usize) {
        TAKEN.set(TAKEN.get() + steps);
    }

    /// Returns how many steps this thread has taken.
    #[cfg(feature = "fuzzing")]
    #[must_use]
    pub fn search_steps() -> usize {
        TAKEN.get()
    }

    /// Returns how many steps `work` takes.
    #[cfg(test)]
    pub(crate) fn of(work: impl FnOnce()) -> usize {
        let before = TAKEN.get();
        work();
        TAKEN.get() - before
    }
}
