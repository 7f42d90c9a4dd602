//! Congestion avoidance: how many bytes may be sent now, so that the path keeps a low delay and is shared.
//!
//! A [`Controller`] is notified of sent, acknowledged and lost packets, and returns a rate and a window. It reads no
//! clock and knows no sockets. [`SentPackets`] detects losses, and the pacer turns the rate into bytes of this tick.
//!
//! ```text
//!   acknowledgements ──▶ SentPackets ──▶ Feedback ──▶ CongestionState ──▶ bytes of this tick, time of the next packet,
//!                        in flight, lost         │ RttEstimator            suggestion
//!                                                │ Controller  rate and window: Glide, Binary, Fixed
//!                                                │ Pacer       rate into bytes
//! ```

mod binary;
mod controller;
mod fixed;
mod glide;
mod pacer;
mod rate;
mod ring;
mod sent_packets;
mod socket_delay;
mod state;
mod suggestion;
mod timing;
mod units;
mod windowed_minmax;

pub use self::binary::{BinaryConfig, Threshold};
pub use self::controller::{Controller, ControllerReport, Demand, Feedback, NewestAck, PeerTime, Phase, SentPacket};
pub use self::glide::GlideConfig;
pub(crate) use self::rate::FLOOR_PACKET_BYTES;
pub use self::rate::{BytesPerSecond, FLOOR};
pub(crate) use self::sent_packets::{AckFaults, ArrivalOrder};
pub use self::sent_packets::{NewlyAcked, SentPackets, SessionPacketKind};
pub use self::socket_delay::SocketDelay;
pub use self::state::{Algorithm, CongestionConfig, CongestionState, CongestionStats};
pub(crate) use self::state::{Priority, SendAllowance};
pub use self::suggestion::{PacketShape, Suggestion};
pub use self::timing::LossDelays;
