//! The interface of congestion control algorithms: what they measure by, and what they return.

use core::time::Duration;

use super::rate::BytesPerSecond;
use super::suggestion::Suggestion;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// A time of the peer's clock since an unknown start, without a wrap: only differences are meaningful.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct PeerTime(pub Duration);

/// A packet that was sent, as its acknowledgement or loss reports it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SentPacket {
    /// Its number; it serves the caller, and controls nothing.
    pub sequence: Sequence,
    /// When it was sent.
    pub sent_at: Instant,
    /// Its bytes on the path.
    pub bytes: u32,
}

/// The newest packet that the peer has received, if it is newer than in the feedback before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NewestAck {
    /// When it was sent.
    pub sent_at: Instant,
    /// When it arrived, by the peer's clock; `None` if the peer does not report it.
    pub received_at: Option<PeerTime>,
    /// How long the peer held the acknowledgement; zero if the peer does not report it.
    pub ack_delay: Duration,
    /// The longest time that the packet may have waited in the peer's socket before `received_at`; zero if the peer
    /// reads its socket at once or does not report it.
    pub socket_delay: Duration,
}

/// The report of one datagram of the peer on our packets, with the losses since the feedback before.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    /// When the datagram arrived.
    pub now: Instant,
    /// The newest packet that the peer received, if it is a new one.
    pub newest: Option<NewestAck>,
    /// Packets acknowledged for the first time, in any order.
    pub acked: &'a [SentPacket],
    /// Packets that count as lost since the feedback before, by newer acknowledgements or by time.
    pub lost: &'a [SentPacket],
    /// Those of `acked` that counted as lost before: the path has reordered them.
    pub late: &'a [SentPacket],
    /// Bytes acknowledged in all, these included.
    pub delivered: u64,
    /// Bytes sent that are neither acknowledged nor lost.
    pub in_flight: u64,
}

/// Whether the application has more to send than the controller allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Demand {
    /// The application sends all it has, so the sending rate says nothing about the capacity of the path.
    Met,
    /// Data waits for the controller.
    Unmet,
}

/// A congestion control algorithm of one connection.
pub trait Controller {
    /// Counts a sent packet.
    fn on_sent(&mut self, bytes: u32, now: Instant);

    /// Records a packet of acknowledgements alone that was sent: it is never in flight.
    fn on_ack_only_sent(&mut self, bytes: u32, now: Instant) {
        self.on_sent(bytes, now);
    }

    /// Processes each datagram of the peer that reports on our packets, even if nothing is new. The peer counts as
    /// silent while this is not called.
    fn on_feedback(&mut self, feedback: &Feedback<'_>);

    /// Runs once per tick.
    fn on_tick(&mut self, in_flight: u64, now: Instant);

    /// Sets the application's demand, when it changes; repeated calls are allowed.
    fn set_demand(&mut self, demand: Demand);

    /// Returns the sending rate.
    fn rate(&self, now: Instant) -> BytesPerSecond;

    /// Returns whether a probe started since the last call that must hold the packets of a game back. The pacer then
    /// discards its credit: on a slow path that alone would carry them.
    fn take_probe(&mut self) -> bool {
        false
    }

    /// Returns the maximum bytes in flight, or `None` if only the rate limits them.
    fn window(&self, now: Instant) -> Option<u64>;

    /// Returns the controller's view of the path, for people and for the shape of packets. It controls nothing.
    fn report(&self) -> ControllerReport {
        ControllerReport::default()
    }
}

/// A [`Controller`]'s view of the path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ControllerReport {
    /// The current phase.
    pub phase: Phase,
    /// The queueing delay at the bottleneck; `None` if the controller does not measure it.
    pub queueing_delay: Option<Duration>,
    /// The shape of packets, if the algorithm prescribes one.
    pub suggestion: Option<Suggestion>,
}

/// The phase of a [`Controller`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// The only phase of a controller without phases.
    #[default]
    Steady,
    /// Binary's good mode: the round trip is short.
    Good,
    /// Binary's bad mode: the round trip is long.
    Bad,
    /// Glide searches for the capacity of the path.
    Startup,
    /// Glide keeps the queue short.
    Delay,
    /// Glide takes its share of a queue that cross traffic keeps full.
    Compete,
}
