//! Steps of searches that a peer's frames bring about: tests count them, for time is not the same on every machine.

/// So many steps are taken.
#[cfg(not(test))]
pub(super) const fn count(_steps: usize) {}

#[cfg(test)]
pub(super) use self::counted::{count, of};

#[cfg(test)]
mod counted {
    use std::cell::Cell;

    std::thread_local! {
        static TAKEN: Cell<usize> = const { Cell::new(0) };
    }

    pub(in super::super) fn count(steps: usize) {
        TAKEN.set(TAKEN.get() + steps);
    }

    /// How many steps something takes.
    pub(in super::super) fn of(work: impl FnOnce()) -> usize {
        let before = TAKEN.get();
        work();
        TAKEN.get() - before
    }
}
