//! The figures of a run over a lossy path, and the times of the path in states.

/// States that a message takes to the other end: 50 ms.
pub(super) const DELAY_STATES: usize = 1;
/// States before the measurement starts: five seconds.
pub const WARM_UP_STATES: usize = 100;
/// The longest message, in bytes.
pub(super) const MESSAGE_BYTES: usize = 1200;

/// The figures of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SyncFigures {
    /// The mean size of what is sent for a state, in bytes.
    pub bytes_per_state: f64,
    /// The mean number of datagrams for a state.
    pub datagrams_per_state: f64,
    /// The 99th percentile of the distance between an object of the client and the server's object of that tick, in
    /// centimetres.
    pub error_p99: f64,
}

/// The messages that were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Their bytes.
    pub bytes: usize,
    /// Their number.
    pub datagrams: usize,
}

impl Sent {
    pub(super) fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.datagrams += other.datagrams;
    }
}

pub(super) fn figures(total: Sent, errors: &mut [f32], states: usize) -> SyncFigures {
    let index = errors.len().saturating_sub(1) * 99 / 100;
    let p99 = if errors.is_empty() { 0.0 } else { *errors.select_nth_unstable_by(index, f32::total_cmp).1 };
    let states = states.saturating_sub(WARM_UP_STATES).max(1) as f64;
    SyncFigures {
        bytes_per_state: total.bytes as f64 / states,
        datagrams_per_state: total.datagrams as f64 / states,
        error_p99: f64::from(p99) * 100.0,
    }
}
