//! The log of a run: bytes in slices of time, and the queueing delay of each packet.

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// The length of a slice.
pub const SLICE: Duration = Duration::from_millis(50);

/// A series of amounts, one for each slice of time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    slices: Vec<f64>,
}

impl Series {
    /// Adds an amount to the slice of a moment.
    pub fn add(&mut self, amount: f64, now: Instant) {
        let index = slice_of(now.since_start());
        if self.slices.len() <= index {
            self.slices.resize(index + 1, 0.0);
        }
        if let Some(slice) = self.slices.get_mut(index) {
            *slice += amount;
        }
    }

    /// Returns the amount of a slice.
    #[must_use]
    pub fn at(&self, index: usize) -> f64 {
        self.slices.get(index).copied().unwrap_or(0.0)
    }

    /// Returns the sum of all slices.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.slices.iter().sum()
    }

    /// Returns the sum between two moments, in whole slices.
    #[must_use]
    pub fn between(&self, from: Duration, until: Duration) -> f64 {
        (slice_of(from)..slice_of(until).min(self.slices.len())).map(|index| self.at(index)).sum()
    }
}

/// Returns the index of the slice of a moment.
#[must_use]
pub const fn slice_of(since_start: Duration) -> usize {
    (since_start.as_nanos() / SLICE.as_nanos()) as usize
}

/// The queueing delay of a packet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QueueWait {
    /// When it left the bottleneck, in seconds since the start.
    pub left_at: f32,
    /// How long it waited in the queue, in seconds.
    pub waited: f32,
    /// Its bytes.
    pub bytes: u32,
}

/// The log of a flow.
#[derive(Clone, Debug, Default)]
pub struct FlowLog {
    /// Bytes that the application demanded; none for bulk.
    pub demanded: Series,
    /// Bytes that arrived at the receiver.
    pub arrived: Series,
    /// Packets that were sent.
    pub sent: Series,
    /// Their bytes.
    pub sent_bytes: Series,
    /// Packets that the policer or the queue dropped.
    pub dropped: Series,
    /// Bytes that the path lost at random, without a full queue.
    pub lost: Series,
    /// The delay of each packet that left the bottleneck.
    pub waits: Vec<QueueWait>,
}

/// The log of a run.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Its flows, in the order of the scenario.
    pub flows: Vec<FlowLog>,
    /// Bytes that the path could have carried.
    pub capacity: Series,
}
