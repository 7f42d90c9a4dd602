//! Sealing and opening packets: the associated data, the nonce, and the replay window in their right order (§1.3, §1.8).

use super::aead::{NotAuthentic, PacketKey, nonce};
use super::replay::ReplayWindow;
use crate::discard::Discard;
use crate::wire::cursor::Writer;
use crate::wire::packet::{Header, PacketKind};
use crate::wire::{TAG_BYTES, VERSION};

/// Version, protocol id and prefix: what is authenticated beside the content.
const ASSOCIATED_BYTES: usize = VERSION.len() + 8 + 1;

/// Seals and opens the packets of one game.
#[derive(Clone)]
pub struct PacketCipher {
    associated: [u8; ASSOCIATED_BYTES],
}

impl PacketCipher {
    /// For the game `protocol_id`.
    #[must_use]
    pub fn new(protocol_id: u64) -> Self {
        let mut associated = [0; ASSOCIATED_BYTES];
        let mut writer = Writer::new(&mut associated);
        writer.bytes(&VERSION);
        writer.u64(protocol_id);
        Self { associated }
    }

    fn associated(&self, prefix: u8) -> [u8; ASSOCIATED_BYTES] {
        let mut associated = self.associated;
        if let Some(last) = associated.last_mut() {
            *last = prefix;
        }
        associated
    }

    /// Writes and seals a packet into `datagram`; answers its length, or `None` if it does not fit.
    ///
    /// The sequence number must be one that was never used with this key: take it from a [`Lane`](super::lane::Lane).
    #[must_use]
    pub fn seal(
        &self,
        key: &impl PacketKey,
        kind: PacketKind,
        sequence: u64,
        content: &[u8],
        datagram: &mut [u8],
    ) -> Option<usize> {
        debug_assert!(kind.allows_content(content.len()), "the caller checked the size of a {kind:?}");
        let header = Header::canonical(kind, sequence);
        let length = header.bytes + content.len() + TAG_BYTES;
        let datagram = datagram.get_mut(..length)?;
        header.emit(&mut Writer::new(datagram));
        let (plain, tag) = datagram.get_mut(header.bytes..)?.split_last_chunk_mut::<TAG_BYTES>()?;
        plain.copy_from_slice(content);
        *tag = key.seal(nonce(sequence), &self.associated(header.prefix), plain);
        Some(length)
    }

    /// Opens a packet of the handshake in place and checks the size of its content.
    ///
    /// # Errors
    /// `NotAuthentic` or `ContentSize`.
    pub fn open<'d>(
        &self,
        key: &impl PacketKey,
        header: &Header,
        datagram: &'d mut [u8],
    ) -> Result<&'d mut [u8], Discard> {
        let content = self.open_unsized(key, header, datagram)?;
        checked_content(header.kind, content)
    }

    /// Opens a packet of a connection in place: replay window, cipher, mark, size of the content, in this order.
    ///
    /// # Errors
    /// `Replayed`, `NotAuthentic` or `ContentSize`.
    pub fn open_fresh<'d>(
        &self,
        key: &impl PacketKey,
        window: &mut ReplayWindow,
        header: &Header,
        datagram: &'d mut [u8],
    ) -> Result<&'d mut [u8], Discard> {
        let guarded = header.kind.is_replay_protected();
        if guarded && !window.is_fresh(header.sequence) {
            return Err(Discard::Replayed);
        }
        let content = self.open_unsized(key, header, datagram)?;
        if guarded {
            window.mark(header.sequence);
        }
        checked_content(header.kind, content)
    }

    fn open_unsized<'d>(
        &self,
        key: &impl PacketKey,
        header: &Header,
        datagram: &'d mut [u8],
    ) -> Result<&'d mut [u8], Discard> {
        let sealed = datagram.get_mut(header.bytes..).ok_or(Discard::TooShort)?;
        key.open(nonce(header.sequence), &self.associated(header.prefix), sealed)
            .map_err(|NotAuthentic| Discard::NotAuthentic)
    }
}

fn checked_content(kind: PacketKind, content: &mut [u8]) -> Result<&mut [u8], Discard> {
    if kind.allows_content(content.len()) { Ok(content) } else { Err(Discard::ContentSize) }
}
