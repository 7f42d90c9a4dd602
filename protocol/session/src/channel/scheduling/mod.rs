//! Which channel writes the next frame, and how much of the path each priority class may use.

mod ready;
pub(crate) mod scheduler;
pub(crate) mod send_budget;
pub(crate) mod share;
pub(crate) mod turn;
