//! An object of the server, without its words.

use crate::commits::CommitNumber;
use crate::schema::ObjectKind;

/// The most numbers that tell objects with one id apart (§6.3).
pub(super) const GENERATIONS: u8 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct ReplicatedObject {
    pub(super) kind: ObjectKind,
    pub(super) is_live: bool,
    pub(super) generation: u8,
    /// The commit at which its words changed last; 0 before its first commit.
    pub(super) changed: CommitNumber,
}
