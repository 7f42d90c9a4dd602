//! Sealing and opening packets: associated data, nonce, and the replay window in the standard's order (§1.3, §1.8).

use super::aead::{NotAuthentic, PacketKey, nonce};
use super::replay::ReplayWindow;
use crate::discard::Discard;
use crate::wire::cursor::Writer;
use crate::wire::packet::{PacketHeader, PacketKind};
use crate::wire::{TAG_BYTES, VERSION};

/// Bytes of the associated data: version, protocol id and prefix.
const ASSOCIATED_BYTES: usize = VERSION.len() + 8 + 1;

/// The cipher for the packets of one game.
#[derive(Clone)]
pub struct PacketCipher {
    associated: [u8; ASSOCIATED_BYTES],
}

impl PacketCipher {
    /// Returns the cipher for the game `protocol_id`.
    #[must_use]
    pub fn new(protocol_id: u64) -> Self {
        let mut associated = [0; ASSOCIATED_BYTES];
        let mut writer = Writer::new(&mut associated);
        writer.bytes(&VERSION);
        writer.write::<u64>(protocol_id);
        Self { associated }
    }

    #[inline]
    fn associated(&self, prefix: u8) -> [u8; ASSOCIATED_BYTES] {
        let mut associated = self.associated;
        // Only the prefix differs between packets, so the rest is prepared once.
        if let Some(last) = associated.last_mut() {
            *last = prefix;
        }
        associated
    }

    /// Writes and seals a packet into `datagram`. Returns its length in bytes, or `None` if it does not fit.
    ///
    /// The sequence number must never have been used with this key.
    #[must_use]
    pub fn seal(
        &self,
        key: &impl PacketKey,
        kind: PacketKind,
        sequence: u64,
        content: &[u8],
        datagram: &mut [u8],
    ) -> Option<usize> {
        debug_assert!(kind.allows_content(content.len()), "the caller checks the content size of a {kind:?}");
        let header = PacketHeader::canonical(kind, sequence);
        let length = header.bytes + content.len() + TAG_BYTES;
        let datagram = datagram.get_mut(..length)?;
        header.emit(&mut Writer::new(datagram));
        let (plain, tag) = datagram.get_mut(header.bytes..)?.split_last_chunk_mut::<TAG_BYTES>()?;
        // The content is encrypted where it is sent from, without another buffer.
        plain.copy_from_slice(content);
        *tag = key.seal(nonce(sequence), &self.associated(header.prefix), plain);
        Some(length)
    }

    /// Opens a packet of the handshake in place and checks the size of its content.
    ///
    /// # Errors
    /// - `TooShort` when the datagram ends before the header does.
    /// - `NotAuthentic` when the packet does not decrypt with `key`.
    /// - `ContentSize` when the content has the wrong size for the packet's kind.
    pub fn open<'d>(
        &self,
        key: &impl PacketKey,
        header: &PacketHeader,
        datagram: &'d mut [u8],
    ) -> Result<&'d mut [u8], Discard> {
        let content = self.decrypt(key, header, datagram)?;
        check_content_size(header.kind, content)
    }

    /// Opens a packet of a connection in place: tests the replay window, decrypts, marks the window and checks the size
    /// of the content, in this order.
    ///
    /// # Errors
    /// - `Replayed` when the sequence number was received before or lies behind the window.
    /// - `TooShort`, `NotAuthentic` and `ContentSize` as in [`open`](Self::open).
    pub fn open_fresh<'d>(
        &self,
        key: &impl PacketKey,
        window: &mut ReplayWindow,
        header: &PacketHeader,
        datagram: &'d mut [u8],
    ) -> Result<&'d mut [u8], Discard> {
        let guarded = header.kind.is_replay_protected();
        // Before the decryption, so that replayed packets cost almost nothing.
        if guarded && !window.is_fresh(header.sequence) {
            return Err(Discard::Replayed);
        }
        let content = self.decrypt(key, header, datagram)?;
        // Marked only now: a forged sequence number must not move the window.
        if guarded {
            window.mark(header.sequence);
        }
        check_content_size(header.kind, content)
    }

    fn decrypt<'d>(
        &self,
        key: &impl PacketKey,
        header: &PacketHeader,
        datagram: &'d mut [u8],
    ) -> Result<&'d mut [u8], Discard> {
        let sealed = datagram.get_mut(header.bytes..).ok_or(Discard::TooShort)?;
        key.open(nonce(header.sequence), &self.associated(header.prefix), sealed)
            .map_err(|NotAuthentic| Discard::NotAuthentic)
    }
}

#[inline]
fn check_content_size(kind: PacketKind, content: &mut [u8]) -> Result<&mut [u8], Discard> {
    if kind.allows_content(content.len()) { Ok(content) } else { Err(Discard::ContentSize) }
}
