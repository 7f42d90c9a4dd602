//! Which channel writes the next frame, and how much of the path each priority class may use.

pub(crate) mod budget;
mod ready;
pub(crate) mod scheduler;
pub(crate) mod share;
