//! The seven packets: what their bytes mean before anything is believed (§1.7, §1.8).
//!
//! Opening and sealing them is `crypto`'s work; whether one is welcome is `netcode`'s.

use super::cursor::{Reader, Writer};
use super::{
    CHALLENGE_TOKEN_BYTES, MAX_ENCRYPTED_BYTES, MAX_PAYLOAD_BYTES, PRIVATE_TOKEN_BYTES, REQUEST_BYTES, TAG_BYTES,
    TOKEN_NONCE_BYTES, VERSION,
};
use crate::discard::Discard;
use crate::time::UnixSeconds;

/// The first byte of a connection request. No other byte starts one.
pub const REQUEST_PREFIX: u8 = 0;

/// The shortest encrypted packet: prefix, one sequence byte, no content, tag.
const MIN_ENCRYPTED_BYTES: usize = 2 + TAG_BYTES;

/// The kind of an encrypted packet: the low nibble of its prefix (§1.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum PacketKind {
    /// Server to client: there is no place.
    Denied = 1,
    /// Server to client: prove that you receive at this address.
    Challenge = 2,
    /// Client to server: the challenge, returned.
    Response = 3,
    /// Both ways: I am here; from the server also your client index.
    KeepAlive = 4,
    /// Both ways: the application's bytes.
    Payload = 5,
    /// Both ways: this connection has ended.
    Disconnect = 6,
}

impl PacketKind {
    /// What a server accepts from an address for which it has a key.
    pub const TO_SERVER: &'static [Self] = &[Self::Response, Self::KeepAlive, Self::Payload, Self::Disconnect];
    /// What a client accepts from its server.
    pub const TO_CLIENT: &'static [Self] =
        &[Self::Denied, Self::Challenge, Self::KeepAlive, Self::Payload, Self::Disconnect];

    /// Whether the replay window guards this kind (§1.8: types 4, 5 and 6).
    #[must_use]
    pub const fn is_replay_protected(self) -> bool {
        matches!(self, Self::KeepAlive | Self::Payload | Self::Disconnect)
    }

    /// Whether a content of `bytes` bytes has the right size for this kind.
    #[must_use]
    pub const fn allows_content(self, bytes: usize) -> bool {
        match self {
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

/// The clear front of an encrypted packet: prefix and sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the packet claims to be.
    pub kind: PacketKind,
    /// Its sequence number, which is the nonce.
    pub sequence: u64,
    /// The prefix byte as it arrived: it is part of the associated data, whatever form the sequence took.
    pub prefix: u8,
    /// Bytes of prefix and sequence number together.
    pub bytes: usize,
}

impl Header {
    /// Reads the front of a datagram that is not a connection request, checking in the order of §1.8.
    ///
    /// # Errors
    /// `TooShort`, `TooLong`, `UnknownType`, `UnexpectedType` (not in `accepted`) or `SequenceLength`.
    pub fn parse(datagram: &[u8], accepted: &[PacketKind]) -> Result<Self, Discard> {
        if datagram.len() < MIN_ENCRYPTED_BYTES {
            return Err(Discard::TooShort);
        }
        let mut reader = Reader::new(datagram);
        let prefix = reader.u8().ok_or(Discard::TooShort)?;
        let nibble = prefix & 0x0f;
        if nibble > PacketKind::Disconnect as u8 {
            return Err(Discard::UnknownType);
        }
        // A low nibble of 0 behind sequence bits is no packet at all (§1.8, step 11): there is nothing to open.
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
        let sequence = (0..sequence_bytes)
            .try_fold(0_u64, |sequence, place| Some(sequence | u64::from(reader.u8()?) << (8 * place)));
        Ok(Self { kind, sequence: sequence.ok_or(Discard::TooShort)?, prefix, bytes })
    }

    /// The front that we write for this kind and sequence number: as few sequence bytes as hold it, at least one.
    #[must_use]
    pub const fn canonical(kind: PacketKind, sequence: u64) -> Self {
        let significant = 64 - sequence.leading_zeros();
        let sequence_bytes = if significant == 0 { 1 } else { significant.div_ceil(8) };
        Self { kind, sequence, prefix: (sequence_bytes as u8) << 4 | kind as u8, bytes: 1 + sequence_bytes as usize }
    }

    /// Writes prefix and sequence number.
    pub fn emit(self, writer: &mut Writer<'_>) {
        writer.u8(self.prefix);
        for byte in self.sequence.to_le_bytes().iter().take(self.bytes - 1) {
            writer.u8(*byte);
        }
    }
}

/// A connection request, the only packet in the clear: where a token's private part meets the server (§1.7).
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// When the token expires; authenticated with the private part.
    pub expires: UnixSeconds,
    /// The token's nonce.
    pub nonce: &'a [u8; TOKEN_NONCE_BYTES],
    /// The sealed private part, as the issuer wrote it.
    pub sealed: &'a [u8; PRIVATE_TOKEN_BYTES],
}

impl<'a> Request<'a> {
    /// Reads a connection request for the game `protocol_id`, checking in the order of §1.8.
    ///
    /// # Errors
    /// `RequestLength`, `UnexpectedType` (first byte not 0), `RequestVersion` or `RequestProtocol`.
    pub fn parse(datagram: &'a [u8], protocol_id: u64) -> Result<Self, Discard> {
        if datagram.len() != REQUEST_BYTES {
            return Err(Discard::RequestLength);
        }
        let mut reader = Reader::new(datagram);
        if reader.u8() != Some(REQUEST_PREFIX) {
            return Err(Discard::UnexpectedType);
        }
        if reader.array() != Some(&VERSION) {
            return Err(Discard::RequestVersion);
        }
        if reader.u64() != Some(protocol_id) {
            return Err(Discard::RequestProtocol);
        }
        let fields = (reader.u64(), reader.array(), reader.array());
        let (Some(expires), Some(nonce), Some(sealed)) = fields else {
            return Err(Discard::RequestLength);
        };
        Ok(Self { expires: UnixSeconds(expires), nonce, sealed })
    }

    /// Writes the request; it takes [`REQUEST_BYTES`].
    pub fn emit(&self, protocol_id: u64, writer: &mut Writer<'_>) {
        writer.u8(REQUEST_PREFIX);
        writer.bytes(&VERSION);
        writer.u64(protocol_id);
        writer.u64(self.expires.0);
        writer.bytes(self.nonce);
        writer.bytes(self.sealed);
    }
}

/// Bytes of the content of challenge and response: challenge sequence and sealed challenge token.
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
    /// Reads the content of a challenge or response.
    #[must_use]
    pub fn parse(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        Some(Self { sequence: reader.u64()?, sealed: *reader.array()? })
    }

    /// The content as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CHALLENGE_CONTENT_BYTES] {
        let mut bytes = [0; CHALLENGE_CONTENT_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.u64(self.sequence);
        writer.bytes(&self.sealed);
        bytes
    }
}

/// The content of a keep-alive. A client sends zeros, and a server does not look at them (§1.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeepAlive {
    /// The slot of the client to whom it goes.
    pub client_index: u32,
    /// How many slots the server has.
    pub max_clients: u32,
}

impl KeepAlive {
    /// Reads the content of a keep-alive.
    #[must_use]
    pub fn parse(content: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(content);
        Some(Self { client_index: reader.u32()?, max_clients: reader.u32()? })
    }

    /// The content as bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; KEEP_ALIVE_CONTENT_BYTES] {
        let mut bytes = [0; KEEP_ALIVE_CONTENT_BYTES];
        let mut writer = Writer::new(&mut bytes);
        writer.u32(self.client_index);
        writer.u32(self.max_clients);
        bytes
    }
}
