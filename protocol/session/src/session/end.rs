//! Why a connection with channels ended, for people and programs.

use alloc::string::String;
use core::fmt;

use crate::channel::control::ByeCode;
use crate::channel::{LayoutHash, Violation};

/// Why a connection ended before the layer below did.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum End {
    /// This side said goodbye.
    Left {
        /// Why, as a number, as the peer was told it.
        code: ByeCode,
        /// Why, for people, as the peer was told it; it may be empty.
        text: String,
    },
    /// The peer said goodbye.
    Farewell {
        /// Why, as a number; those from 256 on are the application's.
        code: ByeCode,
        /// Why, for people, in up to 256 bytes; it may be empty.
        text: String,
    },
    /// The two ends have different channels.
    LayoutMismatch {
        /// The hash of this end's layout.
        ours: LayoutHash,
        /// That of the peer's; `None` if the peer noticed first and did not say it.
        theirs: Option<LayoutHash>,
    },
    /// The two ends speak no common version of the session layer.
    VersionMismatch,
    /// The peer does not speak the session layer: it sends something else, began without saying its layout, or lives and
    /// has neither said it nor acknowledged anything.
    NotASession,
    /// The peer sent what no honest peer sends.
    Violation(Violation),
    /// The peer says that this end sent what no honest peer sends.
    Accused,
}

impl End {
    /// The number that one side gave the other for it; `None` where no side left of its own will.
    #[must_use]
    pub const fn code(&self) -> Option<ByeCode> {
        match self {
            Self::Left { code, .. } | Self::Farewell { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// What one side said to the other for people; it may be empty.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Left { text, .. } | Self::Farewell { text, .. } => text,
            _ => "",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left { .. } => f.write_str("this side said goodbye"),
            Self::Farewell { code: ByeCode::SHUTDOWN, text } if text.is_empty() => {
                f.write_str("the other side shuts down")
            }
            Self::Farewell { text, .. } if text.is_empty() => f.write_str("the other side said goodbye"),
            Self::Farewell { text, .. } => f.write_str(text),
            Self::LayoutMismatch { ours, theirs: Some(theirs) } => {
                write!(f, "the two sides have different channels: layout {ours} here, {theirs} there")
            }
            Self::LayoutMismatch { ours, theirs: None } => {
                write!(f, "the two sides have different channels: layout {ours} here, another one there")
            }
            Self::VersionMismatch => f.write_str("the two sides speak no common version"),
            Self::NotASession => f.write_str("the other side does not speak the session layer"),
            Self::Violation(violation) => write!(f, "the other side broke the rules: {violation}"),
            Self::Accused => f.write_str("the other side says that this side broke the rules"),
        }
    }
}
