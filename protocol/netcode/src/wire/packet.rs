//! The wire layout of the seven packet types (§1.7, §1.8).
//!
//! [`crypto`](crate::crypto) seals and opens packets. The state machines decide which types they accept.

use super::cursor::{Reader, Writer};
use super::{
    CHALLENGE_TOKEN_BYTES, MAX_ENCRYPTED_BYTES, MAX_PAYLOAD_BYTES, PRIVATE_TOKEN_BYTES, REQUEST_BYTES, TAG_BYTES,
    TOKEN_NONCE_BYTES, VERSION,
};
use crate::discard::Discard;
use crate::ids::ClientIndex;
use crate::time::UnixSeconds;

/// The first byte of every connection request, and of no other packet.
pub const REQUEST_PREFIX: u8 = 0;

/// The shortest encrypted packet: prefix, one sequence byte, no content, tag.
const MIN_ENCRYPTED_BYTES: usize = 2 + TAG_BYTES;

/// The kind of an encrypted packet: the low nibble of its prefix (§1.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum PacketKind {
    /// Server to client: the server is full or admits no clients.
    Denied = 1,
    /// Server to client: a challenge token, which the client must return.
    Challenge = 2,
    /// Client to server: the returned challenge token.
    Response = 3,
    /// Both directions: the connection is alive. The server also sends the client index.
    KeepAlive = 4,
    /// Both directions: bytes of the application.
    Payload = 5,
    /// Both directions: the connection has ended.
    Disconnect = 6,
}

impl PacketKind {
    /// The kinds that a server accepts from an address for which it has a key.
    pub const TO_SERVER: &'static [Self] = &[Self::Response, Self::KeepAlive, Self::Payload, Self::Disconnect];
    /// The kinds that a client accepts from its server.
    pub const TO_CLIENT: &'static [Self] =
        &[Self::Denied, Self::Challenge, Self::KeepAlive, Self::Payload, Self::Disconnect];

    /// Returns whether the replay window protects this kind (§1.8: types 4, 5 and 6).
    #[inline]
    #[must_use]
    pub(crate) const fn is_replay_protected(self) -> bool {
        // A repeated handshake packet must stay acceptable: the other side may not have received the reply.
        matches!(self, Self::KeepAlive | Self::Payload | Self::Disconnect)
    }

    /// Returns whether `bytes` is a permitted content size for this kind.
    ///
    /// The sizes of a kind are contiguous: the kernel filter takes them as one range. Sealing asserts them.
    #[inline]
    #[must_use]
    pub const fn allows_content(self, bytes: usize) -> bool {
        match self {
            // Exact sizes (§1.7): an authentic packet with another one comes from a faulty sender.
            Self::Denied | Self::Disconnect => bytes == 0,
            Self::Challenge | Self::Response => bytes == CHALLENGE_CONTENT_BYTES,
            Self::KeepAlive => bytes == KEEP_ALIVE_CONTENT_BYTES,
            Self::Payload => bytes >= 1 && bytes <= MAX_PAYLOAD_BYTES,
        }
    }

    fn from_nibble(nibble: u8) -> Option<Self> {
        Some(match nibble {
            1 => Self::Denied,
            2 => Self::Challenge,
            3 => Self::Response,
            4 => Self::KeepAlive,
            5 => Self::Payload,
            6 => Self::Disconnect,
            _ => return None,
        })
    }
}

/// The unencrypted header of an encrypted packet: prefix and sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketHeader {
    /// The packet's kind, not authenticated yet.
    pub kind: PacketKind,
    /// The sequence number, which is also the nonce.
    pub sequence: u64,
    /// The prefix byte as received. It is part of the associated data, so a non-minimal sequence length must be kept.
    pub prefix: u8,
    /// The length of prefix and sequence number in bytes, 2 to 9.
    pub bytes: usize,
}

impl PacketHeader {
    /// Parses the header of a datagram that is not a connection request. The checks have the order of §1.8.
    ///
    /// # Errors
    /// - `TooShort` when the datagram has fewer than 18 bytes, or ends before the tag does.
    /// - `UnknownType` when the type is 7 to 15.
    /// - `UnexpectedType` when the type is 0 or not in `accepted`.
    /// - `SequenceLength` unless the sequence number has 1 to 8 bytes.
    /// - `TooLong` when the datagram is longer than every packet.
    #[inline]
    pub fn parse(datagram: &[u8], accepted: &[PacketKind]) -> Result<Self, Discard> {
        // The order of the checks decides the counted reason, so it follows the standard.
        if datagram.len() < MIN_ENCRYPTED_BYTES {
            return Err(Discard::TooShort);
        }
        let mut reader = Reader::new(datagram);
        let prefix = reader.read::<u8>().ok_or(Discard::TooShort)?;
        let nibble = prefix & 0x0f;
        if nibble > PacketKind::Disconnect as u8 {
            return Err(Discard::UnknownType);
        }
        // Type 0 with sequence bits is not a packet (§1.8, step 11): a request has the prefix 0 exactly.
        let kind =
            PacketKind::from_nibble(nibble).filter(|kind| accepted.contains(kind)).ok_or(Discard::UnexpectedType)?;
        let sequence_bytes = usize::from(prefix >> 4);
        if !(1..=8).contains(&sequence_bytes) {
            return Err(Discard::SequenceLength);
        }
        let bytes = 1 + sequence_bytes;
        if datagram.len() < bytes + TAG_BYTES {
            return Err(Discard::TooShort);
        }
        if datagram.len() > MAX_ENCRYPTED_BYTES {
            return Err(Discard::TooLong);
        }
        // Little-endian, and one to eight bytes long (§1.7).
        let sequence = (0..sequence_bytes)
            .try_fold(0_u64, |sequence, index| Some(sequence | u64::from(reader.read::<u8>()?) << (8 * index)));
        Ok(Self { kind, sequence: sequence.ok_or(Discard::TooShort)?, prefix, bytes })
    }

    /// Returns the header to send for a kind and a sequence number, with the minimum of sequence bytes (at least one).
    #[inline]
    #[must_use]
    pub const fn canonical(kind: PacketKind, sequence: u64) -> Self {
        // Number 0 has no significant bits, but at least one byte is sent.
        let significant = 64 - sequence.leading_zeros();
        let sequence_bytes = if significant == 0 { 1 } else { significant.div_ceil(8) };
        Self { kind, sequence, prefix: (sequence_bytes as u8) << 4 | kind as u8, bytes: 1 + sequence_bytes as usize }
    }

    /// Writes the prefix and the sequence number.
    #[inline]
    pub fn emit(self, writer: &mut Writer<'_>) {
        writer.write::<u8>(self.prefix);
        // Little-endian without the leading zero bytes (§1.7).
        for byte in self.sequence.to_le_bytes().iter().take(self.bytes - 1) {
            writer.write::<u8>(*byte);
        }
    }
}

/// A connection request, the only unencrypted packet. It carries a token's sealed private part (§1.7).
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The second in which the token expires, authenticated with the private part.
    pub expires: UnixSeconds,
    /// The token's nonce.
    pub nonce: &'a [u8; TOKEN_NONCE_BYTES],
    /// The sealed private part.
    pub sealed: &'a [u8; PRIVATE_TOKEN_BYTES],
}

impl<'a> Request<'a> {
    /// Parses a connection request for the game `protocol_id`. The checks have the order of §1.8.
    ///
    /// # Errors
    /// - `RequestLength` when the datagram is not 1078 bytes long.
    /// - `UnexpectedType` when the first byte is not 0.
    /// - `RequestVersion` when the version is not `NETCODE 1.02`.
    /// - `RequestProtocol` when the protocol id is another one.
    pub fn parse(datagram: &'a [u8], protocol_id: u64) -> Result<Self, Discard> {
        if datagram.len() != REQUEST_BYTES {
            return Err(Discard::RequestLength);
        }
        let mut reader = Reader::new(datagram);
        if reader.read::<u8>() != Some(REQUEST_PREFIX) {
            return Err(Discard::UnexpectedType);
        }
        // The version comes before the protocol id, so each mismatch is counted as what it is.
        if reader.array() != Some(&VERSION) {
            return Err(Discard::RequestVersion);
        }
        if reader.read::<u64>() != Some(protocol_id) {
            return Err(Discard::RequestProtocol);
        }
        // The length was checked, so every field is there.
        let fields = (reader.read::<u64>(), reader.array(), reader.array());
        let (Some(expires), Some(nonce), Some(sealed)) = fields else {
            return Err(Discard::RequestLength);
        };
        Ok(Self { expires: UnixSeconds(expires), nonce, sealed })
    }

    /// Writes the request, [`REQUEST_BYTES`] long.
    pub fn emit(&self, protocol_id: u64, writer: &mut Writer<'_>) {
        writer.write::<u8>(REQUEST_PREFIX);
        writer.bytes(&VERSION);
        writer.write::<u64>(protocol_id);
        writer.write::<u64>(self.expires.0);
        writer.bytes(self.nonce);
        writer.bytes(self.sealed);
    }
}

/// Bytes of the content of a challenge and of a response: challenge sequence and sealed challenge token.
pub const CHALLENGE_CONTENT_BYTES: usize = 8 + CHALLENGE_TOKEN_BYTES;
/// Bytes of the content of a keep-alive.
pub const KEEP_ALIVE_CONTENT_BYTES: usize = 8;

/// The content of a challenge and of a response: a sealed challenge token, opaque to the client (§1.6).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// The sequence number, and so the nonce, under which the challenge token was sealed.
    pub sequence: u64,
    /// The sealed challenge token.
    pub sealed: [u8; CHALLENGE_TOKEN_BYTES],
}

impl Challenge {
    /// Parses the content of a challenge or response.
    #[must_use]
    pub fn parse(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        Some(Self { sequence: reader.read::<u64>()?, sealed: *reader.array()? })
    }

    /// Returns the content as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CHALLENGE_CONTENT_BYTES] {
        let mut bytes = [0; CHALLENGE_CONTENT_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.write::<u64>(self.sequence);
        writer.bytes(&self.sealed);
        bytes
    }
}

/// The content of a keep-alive. A client sends zeros, and a server ignores them (§1.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepAlive {
    /// The index of the receiving client, 0 to `max_clients - 1`.
    pub client_index: ClientIndex,
    /// The number of slots of the server.
    pub max_clients: u32,
}

impl KeepAlive {
    /// Parses the content of a keep-alive.
    #[must_use]
    pub fn parse(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        Some(Self { client_index: ClientIndex(reader.read::<u32>()?), max_clients: reader.read::<u32>()? })
    }

    /// Returns the content as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; KEEP_ALIVE_CONTENT_BYTES] {
        let mut bytes = [0; KEEP_ALIVE_CONTENT_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.write::<u32>(self.client_index.0);
        writer.write::<u32>(self.max_clients);
        bytes
    }
}
