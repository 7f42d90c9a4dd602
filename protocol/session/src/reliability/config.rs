//! The settings of an endpoint: every limit, with its default and the reason for it.

use core::fmt;
use core::time::Duration;

use crate::wire::reliable::{ACKS_PER_HEADER, FragmentLimits, MAX_FRAGMENTS, MAX_HEADER_BYTES};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// The default of [`AckPolicy::after_packets`].
pub const DEFAULT_ACK_AFTER_PACKETS: u16 = 16;
/// The default of [`AckPolicy::after`].
pub const DEFAULT_ACK_AFTER: Duration = Duration::from_millis(25);

/// Windows are powers of two within these bounds. Larger ones would make the comparison of §2.1 ambiguous.
const WINDOWS: core::ops::RangeInclusive<u16> = 16..=1 << 14;
/// The largest packet that any setting allows.
const MAX_PACKET_BYTES: usize = 1 << 20;

/// The settings of an endpoint.
///
/// [`EndpointConfig::default`] works with any reliable 1.0 endpoint that has the defaults of the reference; each
/// field says when to change it. Both sides must have the same `fragment_bytes`.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// The largest payload, sent or received; 16,384 as in the reference.
    pub max_packet_bytes: usize,
    /// Payloads above this size are sent in fragments. Default 1,191: what a netcode payload holds behind a header.
    /// The 1,024 of the reference would send two datagrams where one is enough.
    pub fragment_above: usize,
    /// Bytes of data in each fragment; 1,024 as in the reference. Both sides must have the same.
    pub fragment_bytes: usize,
    /// The maximum number of fragments of a packet, 1 to 256; 16 as in the reference.
    pub max_fragments: u16,
    /// The maximum number of sent packets that wait for an acknowledgement: a power of two, 2,048 by default. Packets
    /// in flight take 16 bytes each, unpolled events 8 bytes each. A packet that is still unacknowledged when this
    /// many newer ones were sent counts as lost, so one second of packets should fit. The reference has 256.
    pub sent_window: u16,
    /// How far behind the newest a packet may arrive: a power of two, 2,048 by default, 2 bits each, and 2
    /// more where packets have nonces. The reference has 256.
    pub received_window: u16,
    /// The maximum number of packets in reassembly: a power of two; 64 as in the reference.
    pub reassemblies: u16,
    /// The maximum bytes of fragments in reassembly; 65,536 by default. A new fragment beyond it discards the oldest
    /// incomplete packet. The first fragment also takes `max_packet_bytes`, where packets are assembled, and about
    /// 130 bytes for each of `reassemblies`.
    pub reassembly_bytes: usize,
    /// When an ack-only packet is sent. `None` sends none, as the reference: there the application must send often
    /// enough.
    pub acks: Option<AckPolicy>,
    /// The number of samples from which the minimum, maximum and jitter of the round-trip time are taken; 512 as in
    /// the reference, 4 bytes each, allocated with the first sample.
    pub rtt_history: u16,
    /// Bytes that each datagram costs below this layer, for the bandwidths; 28 as in the reference: IPv4 and UDP.
    pub lower_layer_bytes: u32,
}

/// When an ack-only packet is sent: as soon as one of the two limits is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckPolicy {
    /// The span of sequence numbers of unreported arrivals, 1 to 32. With the default of 16 each arrival of a
    /// one-sided stream is in two headers, so one of them may be lost. At 20 % loss both are lost for one arrival in
    /// 25, which then counts as lost although it arrived. A smaller number repeats each arrival more often, in more
    /// packets.
    pub after_packets: u16,
    /// The age of the oldest unreported arrival; 25 ms by default.
    pub after: Duration,
}

impl Default for AckPolicy {
    fn default() -> Self {
        Self { after_packets: DEFAULT_ACK_AFTER_PACKETS, after: DEFAULT_ACK_AFTER }
    }
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            max_packet_bytes: 16 * 1024,
            // One netcode payload less the largest header: the most that fits into one datagram.
            fragment_above: MAX_PAYLOAD_BYTES - MAX_HEADER_BYTES,
            fragment_bytes: 1024,
            max_fragments: 16,
            sent_window: 2048,
            received_window: 2048,
            reassemblies: 64,
            reassembly_bytes: 64 * 1024,
            acks: Some(AckPolicy::default()),
            rtt_history: 512,
            lower_layer_bytes: 28,
        }
    }
}

impl EndpointConfig {
    pub(super) const fn fragment_limits(&self) -> FragmentLimits {
        FragmentLimits { max_fragments: self.max_fragments, fragment_bytes: self.fragment_bytes }
    }

    /// Checks the bounds of every setting.
    pub(super) fn check(&self) -> Result<(), EndpointConfigError> {
        if !(1..=MAX_PACKET_BYTES).contains(&self.max_packet_bytes) {
            return Err(EndpointConfigError::PacketBytes);
        }
        if !(1..=MAX_FRAGMENTS).contains(&self.max_fragments) {
            return Err(EndpointConfigError::Fragments);
        }
        if !(1..=MAX_PACKET_BYTES).contains(&self.fragment_bytes) {
            return Err(EndpointConfigError::FragmentBytes);
        }
        if !is_window(self.sent_window) || !is_window(self.received_window) {
            return Err(EndpointConfigError::Window);
        }
        if !is_window(self.reassemblies) {
            return Err(EndpointConfigError::Reassemblies);
        }
        // The largest packet must fit into the memory of its fragments, or it could never be completed.
        let largest = self.max_packet_bytes.min(self.fragment_bytes * usize::from(self.max_fragments));
        if self.reassembly_bytes < largest.next_multiple_of(self.fragment_bytes) {
            return Err(EndpointConfigError::ReassemblyBytes);
        }
        // One header covers 32 packets: a longer span would leave arrivals unreported.
        if self.acks.is_some_and(|acks| !(1..=ACKS_PER_HEADER).contains(&acks.after_packets)) {
            return Err(EndpointConfigError::AckPackets);
        }
        if self.rtt_history == 0 {
            return Err(EndpointConfigError::RttHistory);
        }
        Ok(())
    }
}

fn is_window(size: u16) -> bool {
    size.is_power_of_two() && WINDOWS.contains(&size)
}

/// Why an endpoint cannot run with its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EndpointConfigError {
    /// A packet of 0 bytes or more than 1 MiB.
    PacketBytes,
    /// A packet of 0 or more than 256 fragments.
    Fragments,
    /// A fragment of 0 bytes or more than 1 MiB.
    FragmentBytes,
    /// A window that is not a power of two from 16 to 16,384.
    Window,
    /// A number of reassemblies that is not a power of two from 16 to 16,384.
    Reassemblies,
    /// Less memory for reassembly than the largest packet takes.
    ReassemblyBytes,
    /// An acknowledgement after 0 or more than 32 packets.
    AckPackets,
    /// A history of zero round-trip times.
    RttHistory,
}

impl fmt::Display for EndpointConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PacketBytes => "a packet has 1 byte to 1 MiB",
            Self::Fragments => "a packet has 1 to 256 fragments",
            Self::FragmentBytes => "a fragment has 1 byte to 1 MiB",
            Self::Window => "a window is a power of two from 16 to 16384",
            Self::Reassemblies => "the number of reassemblies is a power of two from 16 to 16384",
            Self::ReassemblyBytes => "the memory for reassemblies must hold the fragments of the largest packet",
            Self::AckPackets => "acknowledgements go out after 1 to 32 packets",
            Self::RttHistory => "the history of round-trip times holds at least one",
        })
    }
}

impl core::error::Error for EndpointConfigError {}
