//! A path as a value: what lies between a sender and a receiver, and how it changes.

pub mod bottleneck;
pub mod codel;
pub mod loss;
pub mod policer;

use core::time::Duration;

pub use bottleneck::Discipline;
pub use loss::Loss;
pub use policer::Police;

/// How a delay varies from packet to packet.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Jitter {
    /// Not at all.
    #[default]
    None,
    /// By up to so much, evenly, and no packet overtakes another.
    InOrder(Duration),
    /// By so much on average, exponentially, and packets overtake each other.
    Reordering(Duration),
}

/// How the bottleneck's rate moves.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Change {
    /// It stays.
    #[default]
    None,
    /// It is so many bytes per second from these moments on.
    Steps(Vec<(Duration, f64)>),
    /// Each period it moves up or down, by up to a factor, between two bounds of bytes per second.
    RandomWalk {
        /// How often it moves.
        every: Duration,
        /// The factor by which it moves at most.
        factor: f64,
        /// The lowest rate.
        low: f64,
        /// The highest rate.
        high: f64,
    },
}

/// Moments at which nothing moves, as on a radio channel that others use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stalls {
    /// The mean time from the end of one to the start of the next.
    pub every: Duration,
    /// The shortest.
    pub shortest: Duration,
    /// The longest.
    pub longest: Duration,
}

/// A time in which nothing gets through, either way: what is sent meanwhile is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Darkness {
    /// When it starts.
    pub from: Duration,
    /// When it ends.
    pub until: Duration,
}

/// An additional delay for a while.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Detour {
    /// When it starts.
    pub from: Duration,
    /// When it ends.
    pub until: Duration,
    /// By how much packets are later.
    pub extra: Duration,
}

/// A path.
#[derive(Clone, PartialEq, Debug)]
pub struct Path {
    /// The bottleneck's rate at the start, in bytes per second.
    pub rate: f64,
    /// How that moves.
    pub change: Change,
    /// The round trip without any queue, one half in each direction.
    pub round_trip: Duration,
    /// The room of the bottleneck's queue, in bytes.
    pub buffer: u64,
    /// How the queue drops.
    pub discipline: Discipline,
    /// Moments at which nothing leaves the bottleneck.
    pub stalls: Option<Stalls>,
    /// A time in which nothing gets through.
    pub dark: Option<Darkness>,
    /// A policer before the bottleneck.
    pub police: Option<Police>,
    /// How delays vary, towards the receiver.
    pub jitter: Jitter,
    /// What is lost towards the receiver, after the bottleneck.
    pub loss: Loss,
    /// From when on it is lost.
    pub loss_from: Duration,
    /// What is lost of the receiver's datagrams.
    pub loss_back: Loss,
    /// An additional delay towards the receiver.
    pub detour: Option<Detour>,
    /// An additional delay towards the sender.
    pub detour_back: Option<Detour>,
}

impl Path {
    /// A path of so many bits per second, milliseconds of round trip, and milliseconds of buffer at that rate.
    #[must_use]
    pub fn new(bits_per_second: f64, round_trip_ms: u64, buffer_ms: u64) -> Self {
        let rate = bits_per_second / 8.0;
        // Two packets fit through every bottleneck.
        let buffer = ((rate * buffer_ms as f64 / 1000.0) as u64).max(2 * 1200);
        Self {
            rate,
            change: Change::None,
            round_trip: Duration::from_millis(round_trip_ms),
            buffer,
            discipline: Discipline::TailDrop,
            stalls: None,
            dark: None,
            police: None,
            jitter: Jitter::None,
            loss: Loss::Never,
            loss_from: Duration::ZERO,
            loss_back: Loss::Never,
            detour: None,
            detour_back: None,
        }
    }

    /// The same path, losing packets in both directions.
    #[must_use]
    pub fn losing(self, share: f64) -> Self {
        Self { loss: Loss::Random(share), loss_back: Loss::Random(share), ..self }
    }
}
