//! The settings of an endpoint: every limit, with its default and the reason for it.

use core::fmt;
use core::time::Duration;

use super::seed;
use crate::wire::reliable::{ACKS_PER_HEADER, FragmentLimits, MAX_FRAGMENTS, MAX_HEADER_BYTES};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// The default of [`AckPolicy::after_packets`].
pub const DEFAULT_ACK_AFTER_PACKETS: u16 = 16;
/// The default of [`AckPolicy::after`].
pub const DEFAULT_ACK_AFTER: Duration = Duration::from_millis(25);

/// Windows are powers of two within these bounds; beyond them the comparison of §2.1 would get ambiguous.
const WINDOWS: core::ops::RangeInclusive<u16> = 16..=1 << 14;
/// The largest packet that any setting allows.
const MAX_PACKET_BYTES: usize = 1 << 20;

/// The settings of an endpoint.
///
/// [`Config::default`] talks to any reliable 1.0 endpoint that has the reference's defaults; each field says when one
/// would change it. Both sides must have the same `fragment_bytes`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The largest payload, sent or received; 16,384 as in the reference.
    pub max_packet_bytes: usize,
    /// Payloads above this travel in fragments. 1,191 by default: what a netcode payload holds behind a header. The
    /// reference's 1,024 would send two datagrams where one does.
    pub fragment_above: usize,
    /// Bytes of data in each fragment; 1,024 as in the reference. Both sides must have the same.
    pub fragment_bytes: usize,
    /// The most fragments of a packet, 1 to 256; 16 as in the reference.
    pub max_fragments: u16,
    /// For how many packets that were sent an acknowledgement is awaited at most: a power of two, 2,048 by default. Memory
    /// is taken for those that are under way, 16 bytes each, and for as many verdicts as wait to be asked for, 8 bytes
    /// each; [`Statistics::Reference`] remembers all of the window. A packet that still waits when so many newer ones
    /// have been sent counts as lost, so one second's worth of packets should fit. The reference has 256.
    pub sent_window: u16,
    /// How far behind the newest a packet may arrive: a power of two, 2,048 by default, 2 bits each. The reference has
    /// 256.
    pub received_window: u16,
    /// How many packets may be under way in fragments at a time: a power of two; 64 as in the reference.
    pub reassemblies: u16,
    /// The most bytes of fragments that wait for others; 65,536 by default. When they are used up the oldest
    /// unfinished packet is given up. With the first fragment an endpoint also takes `max_packet_bytes`, in which packets
    /// are put together, and about 130 bytes for each of `reassemblies`.
    pub reassembly_bytes: usize,
    /// How long the first fragment of a packet waits for the others: 1 s by default, since its sender holds the packet
    /// for lost by then.
    pub reassembly_lifetime: Duration,
    /// When a packet goes out that carries nothing but acknowledgements. `None`: never, as in the reference, whose
    /// application must send often enough by itself.
    pub acks: Option<AckPolicy>,
    /// When a packet counts as lost.
    pub loss: LossDeadline,
    /// Over how many of the last samples the minimum, maximum and jitter of the round-trip time are taken; 512 as in
    /// the reference, 4 bytes each, taken with the first sample.
    pub rtt_history: u16,
    /// Bytes that each datagram costs below this layer, for the bandwidths; 28 as in the reference: IPv4 and UDP.
    pub lower_layer_bytes: u32,
    /// How loss, bandwidths and the round-trip time are measured.
    pub statistics: Statistics,
}

/// When a packet goes out that carries nothing but acknowledgements: when either is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckPolicy {
    /// The packets that arrived and were in no header yet span so many numbers, 1 to 32. With the default 16 each arrival
    /// of a one-sided stream is in two headers, so that one of them may get lost. Where a fifth of all packets are lost,
    /// both are for one arrival in 25: that one counts as lost in the end, although it came. A smaller number repeats
    /// each arrival more often, in more packets.
    pub after_packets: u16,
    /// A packet arrived this long ago and was in no header yet; 25 ms by default.
    pub after: Duration,
}

impl Default for AckPolicy {
    fn default() -> Self {
        Self { after_packets: DEFAULT_ACK_AFTER_PACKETS, after: DEFAULT_ACK_AFTER }
    }
}

/// When a packet that was not acknowledged counts as lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LossDeadline {
    /// After one second, [`seed::LOST_AFTER`].
    #[default]
    Fixed,
    /// After one second, or later where the path's round-trip time says so: for paths slower than a second, on which
    /// `Fixed` calls everything lost.
    AtLeastRtt,
}

/// How loss, bandwidths and the round-trip time are measured.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Statistics {
    /// Loss from the fate of the packets of the last ten seconds, bandwidths of the last second, round-trip times
    /// smoothed by [`seed::RTT_SMOOTHING`]. None of it depends on how often `tick` is called.
    #[default]
    Seed,
    /// As the reference measures, to compare with it. Its results depend on how often `tick` is called, and say
    /// nothing before half a window of packets was sent.
    Reference(ReferenceSmoothing),
}

/// How far each step of the reference's statistics moves the old value to the new one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReferenceSmoothing {
    /// Of the round-trip time, for each packet that is acknowledged.
    pub rtt: f64,
    /// Of the loss, for each tick.
    pub loss: f64,
    /// Of the bandwidths, for each tick.
    pub bandwidth: f64,
}

impl Default for ReferenceSmoothing {
    /// The reference's defaults (§2.5).
    fn default() -> Self {
        Self { rtt: 0.0025, loss: 0.1, bandwidth: 0.1 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_packet_bytes: 16 * 1024,
            fragment_above: MAX_PAYLOAD_BYTES - MAX_HEADER_BYTES,
            fragment_bytes: 1024,
            max_fragments: 16,
            sent_window: 2048,
            received_window: 2048,
            reassemblies: 64,
            reassembly_bytes: 64 * 1024,
            reassembly_lifetime: seed::LOST_AFTER,
            acks: Some(AckPolicy::default()),
            loss: LossDeadline::Fixed,
            rtt_history: 512,
            lower_layer_bytes: 28,
            statistics: Statistics::Seed,
        }
    }
}

impl Config {
    pub(super) const fn fragment_limits(&self) -> FragmentLimits {
        FragmentLimits { max_fragments: self.max_fragments, fragment_bytes: self.fragment_bytes }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=MAX_PACKET_BYTES).contains(&self.max_packet_bytes) {
            return Err(ConfigError::PacketBytes);
        }
        if !(1..=MAX_FRAGMENTS).contains(&self.max_fragments) {
            return Err(ConfigError::Fragments);
        }
        if !(1..=MAX_PACKET_BYTES).contains(&self.fragment_bytes) {
            return Err(ConfigError::FragmentBytes);
        }
        if !is_window(self.sent_window) || !is_window(self.received_window) {
            return Err(ConfigError::Window);
        }
        if !is_window(self.reassemblies) {
            return Err(ConfigError::Reassemblies);
        }
        // The largest packet must fit into the memory that its fragments wait in.
        let largest = self.max_packet_bytes.min(self.fragment_bytes * usize::from(self.max_fragments));
        if self.reassembly_bytes < largest.next_multiple_of(self.fragment_bytes) {
            return Err(ConfigError::ReassemblyBytes);
        }
        if self.acks.is_some_and(|acks| !(1..=ACKS_PER_HEADER).contains(&acks.after_packets)) {
            return Err(ConfigError::AckPackets);
        }
        if self.rtt_history == 0 {
            return Err(ConfigError::RttHistory);
        }
        Ok(())
    }
}

fn is_window(size: u16) -> bool {
    size.is_power_of_two() && WINDOWS.contains(&size)
}

/// A setting that no endpoint can run with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not 1 byte to 1 MiB for a packet.
    PacketBytes,
    /// Not 1 to 256 fragments for a packet.
    Fragments,
    /// Not 1 byte to 1 MiB for a fragment.
    FragmentBytes,
    /// A window that is no power of two from 16 to 16,384.
    Window,
    /// A number of reassemblies that is no power of two from 16 to 16,384.
    Reassemblies,
    /// Less memory for reassemblies than the largest packet takes.
    ReassemblyBytes,
    /// Not 1 to 32 packets before an acknowledgement.
    AckPackets,
    /// No room for a round-trip time.
    RttHistory,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PacketBytes => "a packet has 1 byte to 1 MiB",
            Self::Fragments => "a packet has 1 to 256 fragments",
            Self::FragmentBytes => "a fragment has 1 byte to 1 MiB",
            Self::Window => "a window is a power of two from 16 to 16384",
            Self::Reassemblies => "the number of reassemblies is a power of two from 16 to 16384",
            Self::ReassemblyBytes => "the memory for reassemblies must hold the fragments of the largest packet",
            Self::AckPackets => "acknowledgements go out after 1 to 32 packets",
            Self::RttHistory => "the history of round-trip times has room for at least one",
        })
    }
}

impl core::error::Error for ConfigError {}
