//! The reasons why datagrams of the acknowledged-packet layer are dropped.
//!
//! The peer is authenticated, but not necessarily honest. Its connection goes on: bad datagrams harm only that peer.

slipgate_netcode::discard_reasons! {
    /// Why a datagram of the acknowledged-packet layer was dropped.
    Reject;
    /// One saturating counter for each reason.
    Rejects;
    /// Larger than any packet that this endpoint accepts.
    TooLarge => "too_large",
    /// Too short for a packet header.
    TooShort => "too_short",
    /// The prefix announces a fragment where a packet header is expected.
    NotAPacket => "not_a_packet",
    /// The datagram ends before or within the acknowledged sequence number.
    AckCut => "ack_cut",
    /// The datagram ends before the last of the announced bytes of ack bits.
    AckBitsCut => "ack_bits_cut",
    /// Older than the window of received packets.
    Stale => "stale",
    /// Received already.
    Duplicate => "duplicate",
    /// The application refused it; it is not acknowledged and may be sent again.
    Refused => "refused",
    /// Too short for a fragment header.
    FragmentTooShort => "fragment_too_short",
    /// The prefix is odd, as that of a fragment, but not 1.
    FragmentPrefix => "fragment_prefix",
    /// More fragments than this endpoint accepts for one packet.
    FragmentCount => "fragment_count",
    /// The index of the fragment is not below the count.
    FragmentId => "fragment_id",
    /// The packet header in the first fragment cannot be parsed.
    EmbeddedHeader => "embedded_header",
    /// The packet header in the first fragment has a different sequence number than the fragment.
    EmbeddedSequence => "embedded_sequence",
    /// The packet header in the first fragment is not in canonical form.
    EmbeddedForm => "embedded_form",
    /// More data than a fragment holds.
    FragmentTooLong => "fragment_too_long",
    /// Less data than a fragment holds, and not the last one.
    FragmentCut => "fragment_cut",
    /// Its packet is older than the reassembly window, and was discarded.
    FragmentStale => "fragment_stale",
    /// It states a different count than the first fragment of its packet that arrived.
    FragmentDisagrees => "fragment_disagrees",
    /// This fragment arrived before.
    FragmentRepeated => "fragment_repeated",
    /// Its packet is complete already.
    FragmentLate => "fragment_late",
    /// No memory is left for it: neither in this endpoint nor in the shared budget, if there is one.
    NoMemory => "no_memory",
    /// Its sender causes more work than the budget of this connection allows; it is not acknowledged.
    OverBudget => "over_budget",
    /// The application takes no messages of its sender now; it is not acknowledged.
    NotTaken => "not_taken",
}
