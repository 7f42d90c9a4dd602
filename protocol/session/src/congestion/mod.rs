//! Congestion avoidance: how many bytes may leave now, so that the path stays quick and is shared.
//!
//! A [`Controller`] hears what was sent, acknowledged and lost, and answers with a rate and a window. It reads no clock
//! and knows no sockets; what counts as lost is decided beside it, and turning a rate into bytes of this tick as well.
//!
//! ```text
//!   acknowledgements ──▶ Flight ──▶ Feedback ──▶ Congestion ──▶ bytes of this tick, next departure, suggestion
//!                        which packets           │ RoundTrip    how long the path takes
//!                        are under way           │ Controller   rate and window: Glide, Binary, Fixed
//!                                                │ Pacer        rate into bytes
//! ```

mod admission;
mod binary;
mod extreme;
mod fixed;
mod flight;
mod glide;
mod governor;
mod lateness;
mod pacer;
mod suggestion;
mod timing;
mod trunk;
mod uplink;

use core::time::Duration;

pub use self::admission::{Admission, Turn, frame_limit, may_join};
pub use self::binary::{Binary, Config as BinaryConfig, Ignorance, Threshold};
pub use self::fixed::Fixed;
pub use self::flight::{Flight, Landed};
pub use self::glide::{Config as GlideConfig, Glide};
pub use self::governor::{Algorithm, Claim, Config, Congestion, Stats};
pub use self::lateness::Lateness;
pub use self::suggestion::{Shape, Suggestion};
pub use self::timing::Timing;
pub use self::trunk::Trunk;
pub use self::uplink::{Uplink, Weight};
use slipgate_netcode::time::Instant;

/// Packets of the slow rate of "Fiedler, Reliability, Ordering and Congestion Avoidance over UDP" have this many bytes.
pub(crate) const FLOOR_PACKET_BYTES: u32 = 256;
/// The slow rate of the same article, 10 packets per second: so many always pass, or the connection would die.
const FLOOR_INTERVAL: Duration = Duration::from_millis(100);
/// The least rate, 2,560 bytes per second: one packet of the least kind each interval of the least kind.
pub const FLOOR: BytesPerSecond = BytesPerSecond(2560.0);

/// A rate, in bytes per second, as they count on the path: payload and every header.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct BytesPerSecond(pub f64);

/// A moment of the peer's clock since a start that nobody knows: only differences mean anything. It does not wrap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct PeerTime(pub Duration);

/// A packet of ours whose fate is now known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Departed {
    /// When it left.
    pub sent_at: Instant,
    /// Its bytes on the path.
    pub bytes: u32,
}

/// The newest packet that the peer has received, when it is newer than in the feedback before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Newest {
    /// When it left.
    pub sent_at: Instant,
    /// When it arrived, by the peer's clock; `None` when the peer does not say, because it is not one of ours.
    pub received_at: Option<PeerTime>,
    /// How long the peer held its acknowledgement; zero when the peer does not say.
    pub ack_delay: Duration,
    /// For how long it may have lain unread in the peer's socket before `received_at`, at most; zero when the peer reads
    /// what arrives at once, or does not say.
    pub unread: Duration,
}

/// What a datagram of the peer told of our packets, and what has been lost since the one before that told something.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    /// When it arrived.
    pub now: Instant,
    /// The newest packet that arrived at the peer, if that is news.
    pub newest: Option<Newest>,
    /// Packets acknowledged for the first time, in any order.
    pub acked: &'a [Departed],
    /// Packets that count as lost since the feedback before, by the evidence of newer acknowledgements or by time.
    pub lost: &'a [Departed],
    /// Bytes acknowledged in all, these included.
    pub delivered: u64,
    /// Bytes that left and are neither acknowledged nor lost.
    pub in_flight: u64,
}

/// Whether the application has more to send than it was allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// It sent all that it has: what leaves says nothing about what the path could carry.
    Met,
    /// Something waits for the controller's leave.
    Unmet,
}

/// An algorithm of congestion avoidance for one connection.
pub trait Controller {
    /// A packet has left.
    fn on_sent(&mut self, bytes: u32, now: Instant);

    /// A datagram of the peer told of our packets, be it that nothing is new. Nobody is heard while this is not called.
    fn on_feedback(&mut self, feedback: &Feedback<'_>);

    /// Time has passed; called once a tick.
    fn on_tick(&mut self, in_flight: u64, now: Instant);

    /// Whether the application wants more than it may; called when that changes, and may be called more often.
    fn set_demand(&mut self, demand: Demand);

    /// How fast bytes may leave.
    fn rate(&self, now: Instant) -> BytesPerSecond;

    /// How many bytes may be under way; `None` for as many as the rate brings.
    fn window(&self, now: Instant) -> Option<u64>;

    /// What the controller thinks of the path, for people and for the shape of packets. It steers nothing here.
    fn report(&self) -> Report {
        Report::default()
    }
}

/// What a [`Controller`] thinks of the path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Report {
    /// What it is doing.
    pub phase: Phase,
    /// How long packets wait in the bottleneck's queue; `None` when it measures no such thing.
    pub queueing_delay: Option<Duration>,
    /// The shape of packets, when the algorithm itself prescribes one.
    pub suggestion: Option<Suggestion>,
}

/// What a [`Controller`] is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// One thing only.
    #[default]
    Steady,
    /// The path is good.
    Good,
    /// The path is bad.
    Bad,
    /// It looks for the path's limit.
    Startup,
    /// It keeps the queue short.
    Delay,
    /// It takes its share of a queue that others keep full.
    Compete,
}
