//! A scenario: a path, the flows on it, and what is measured.

use core::time::Duration;

use crate::path::{Outage, PathSpec};
use crate::report::ReportPolicy;
use crate::source::Source;

/// When an end of a flow reads its socket and sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SocketPolling {
    /// It reads packets when they arrive, and sends when the controller permits.
    #[default]
    Prompt,
    /// It reads the socket once a frame, and sends when the controller permits.
    ReadsPerFrame(Duration),
    /// It reads and sends once a frame. The frames of the sender and of the receiver.
    PerFrame([Duration; 2]),
}

impl SocketPolling {
    /// Returns how often the sender's and the receiver's sockets are read; `None` for at once.
    #[must_use]
    pub const fn read_intervals(self) -> Option<[Duration; 2]> {
        match self {
            Self::Prompt => None,
            Self::ReadsPerFrame(frame) => Some([frame; 2]),
            Self::PerFrame(frames) => Some(frames),
        }
    }
}

/// The controller of a flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FlowController {
    /// The measured controller.
    Measured,
    /// CUBIC, acknowledged like TCP.
    Cubic,
    /// BBR, acknowledged like TCP.
    Bbr,
    /// No controller: a constant rate, on and off in turn.
    Constant {
        /// Bytes per second.
        rate: f64,
        /// How long it is on, and then off.
        period: Duration,
    },
}

/// A flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Flow {
    /// Its controller.
    pub controller: FlowController,
    /// Its traffic.
    pub source: Source,
    /// When it starts.
    pub start: Duration,
}

/// The additional figure of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// The reaction to a rate drop and its end.
    Drop {
        /// When the rate drops.
        from: Duration,
        /// When the rate returns.
        until: Duration,
    },
    /// The behaviour in and after an outage.
    Outage(Outage),
    /// The share of packets that the policer or the queue drops.
    Drops,
    /// The fairness between the flows.
    Fairness,
    /// The duration of the transfers.
    Transfer,
}

/// A scenario.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Its short name, as `A1`.
    pub name: String,
    /// Its description for people.
    pub title: String,
    /// The path.
    pub path: PathSpec,
    /// The flows that share it.
    pub flows: Vec<Flow>,
    /// How the ends of the measured flows use their sockets.
    pub polling: SocketPolling,
    /// How often the measured flows are acknowledged.
    pub ack_policy: ReportPolicy,
    /// Whether the receivers of the measured flows report each packet with the shortest delay seen so far.
    pub false_delays: bool,
    /// How long it runs.
    pub duration: Duration,
    /// When the measurement starts.
    pub counts_from: Duration,
    /// The rate of a bulk sender without congestion control, in bytes per second.
    pub offer: f64,
    /// An additional figure.
    pub figure: Option<Figure>,
}
