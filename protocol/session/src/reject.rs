//! Why a datagram of the acknowledged-packet layer was dropped.
//!
//! It comes from a peer that is authentic already, but not therefore honest. Its connection goes on: a peer that sends
//! nonsense harms nobody else.

slipgate_netcode::discard_reasons! {
    /// Why a datagram of the acknowledged-packet layer was dropped.
    Reject;
    /// One counter for each reason; they saturate, and a reset of the endpoint clears them.
    Rejects;
    /// Larger than any packet that this endpoint takes.
    TooLarge => "too_large",
    /// Too short for a packet header.
    TooShort => "too_short",
    /// The prefix announces a fragment where a packet header must stand.
    NotAPacket => "not_a_packet",
    /// The datagram ends before or within the acknowledged sequence number.
    AckCut => "ack_cut",
    /// The datagram ends before the last of the announced bytes of ack bits.
    AckBitsCut => "ack_bits_cut",
    /// Older than the window of received packets.
    Stale => "stale",
    /// Received already.
    Duplicate => "duplicate",
    /// The application refused it; it is not acknowledged and may come again.
    Refused => "refused",
    /// Too short for a fragment header.
    FragmentTooShort => "fragment_too_short",
    /// The prefix is odd, as that of a fragment, but not 1.
    FragmentPrefix => "fragment_prefix",
    /// More fragments than this endpoint takes for one packet.
    FragmentCount => "fragment_count",
    /// The fragment's number is not below their count.
    FragmentId => "fragment_id",
    /// The packet header in the first fragment cannot be read.
    EmbeddedHeader => "embedded_header",
    /// The packet header in the first fragment has another sequence number than the fragment.
    EmbeddedSequence => "embedded_sequence",
    /// The packet header in the first fragment is not in the form that a writer makes.
    EmbeddedForm => "embedded_form",
    /// More data than a fragment holds.
    FragmentTooLong => "fragment_too_long",
    /// Less data than a fragment holds, and not the last one.
    FragmentCut => "fragment_cut",
    /// Its packet is older than the window of reassemblies: it was given up.
    FragmentStale => "fragment_stale",
    /// It states another count than the first fragment of its packet that came.
    FragmentDisagrees => "fragment_disagrees",
    /// This fragment came already.
    FragmentRepeated => "fragment_repeated",
    /// A fragment of a packet that is complete already.
    FragmentLate => "fragment_late",
    /// No memory is left for it, neither this endpoint's nor, if there is one, the server's.
    NoMemory => "no_memory",
}

impl Reject {
    /// Whether what was dropped was a fragment, whatever was wrong with it.
    #[must_use]
    pub const fn is_fragment(self) -> bool {
        self as u8 >= Self::FragmentTooShort as u8
    }
}
