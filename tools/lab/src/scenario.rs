//! A scenario: a path, the flows on it, and what is measured.

use core::time::Duration;

use crate::path::{Darkness, Path};
use crate::report::Rhythm;
use crate::source::Source;

/// How an end handles its socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Handling {
    /// Packets are read when they arrive, and leave when they may.
    #[default]
    Prompt,
    /// The sockets are read once a frame; packets leave when they may.
    ReadsInFrames(Duration),
    /// The sockets are read once a frame, and packets leave then: the sender's and the receiver's frames.
    Frames([Duration; 2]),
}

impl Handling {
    /// How often the sender's socket and the receiver's are read; `None` for at once.
    #[must_use]
    pub const fn reads_every(self) -> Option<[Duration; 2]> {
        match self {
            Self::Prompt => None,
            Self::ReadsInFrames(frame) => Some([frame; 2]),
            Self::Frames(frames) => Some(frames),
        }
    }
}

/// Which congestion avoidance a flow has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Ruler {
    /// The one that is measured.
    Measured,
    /// CUBIC, acknowledged as TCP is.
    Cubic,
    /// BBR, acknowledged as TCP is.
    Bbr,
    /// None: a constant rate of so many bytes per second, on and off for so long.
    Constant {
        /// Bytes per second.
        rate: f64,
        /// How long it is on, and how long off.
        period: Duration,
    },
}

/// A flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flow {
    /// Its congestion avoidance.
    pub ruler: Ruler,
    /// What it sends.
    pub source: Source,
    /// When it starts.
    pub start: Duration,
}

/// Which figures a scenario is about, besides use and delay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// How the flow follows a fall of the rate and its return.
    Drop {
        /// When the rate falls.
        from: Duration,
        /// When it returns.
        until: Duration,
    },
    /// What leaves while the path is dark, and how the flow comes back.
    Dark(Darkness),
    /// Which share of packets the policer or the queue drops.
    Drops,
    /// How even the flows' shares are.
    Fairness,
    /// How long the transfer took.
    Transfer,
}

/// A scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Its short name, as `A1`.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// The path.
    pub path: Path,
    /// The flows that share it.
    pub flows: Vec<Flow>,
    /// How the measured flows' ends handle their sockets.
    pub handling: Handling,
    /// How the measured flows are acknowledged.
    pub rhythm: Rhythm,
    /// For how long it runs.
    pub duration: Duration,
    /// From when on it counts.
    pub counts_from: Duration,
    /// What a sender without congestion avoidance offers, in bytes per second; bulk only.
    pub offer: f64,
    /// A figure of its own.
    pub figure: Option<Figure>,
}
