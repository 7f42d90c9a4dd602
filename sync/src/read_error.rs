//! The reasons why a message of states is refused.

use core::fmt;

/// The reason why [`Replica::read`](crate::Replica::read) refuses a message as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StateReadError {
    /// The message ends inside of a record.
    Cut,
    /// The message has only the lowest bits of its tick, and this replica has read no message before. Or the tick is 0.
    UnknownTick,
    /// A number is larger than its field allows.
    OutOfRange,
    /// The id is not below the limit of this replica.
    UnknownObject,
    /// The schema has no kind with this number.
    UnknownKind,
    /// The record is a difference to a state that this replica does not have.
    MissingBaseline,
    /// The message has all bits of its tick, which is more than 255 ticks older than the newest one. It came very late,
    /// or the server has started again: then all its messages are refused until
    /// [`Replica::reset`](crate::Replica::reset).
    TickWentBack,
    /// The states would take more memory than [`Replica::with_max_bytes`](crate::Replica::with_max_bytes) allows.
    TooManyStates,
}

impl fmt::Display for StateReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cut => "the message ends inside of a record",
            Self::UnknownTick => "the message does not say which tick it describes",
            Self::OutOfRange => "a number is larger than its field allows",
            Self::UnknownObject => "the id is above the limit of this replica",
            Self::UnknownKind => "the schema has no such kind",
            Self::MissingBaseline => "the record is a difference to a state that is not known",
            Self::TickWentBack => "the server's tick went back",
            Self::TooManyStates => "the states take more memory than this replica may use",
        })
    }
}

impl core::error::Error for StateReadError {}
