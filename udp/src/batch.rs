//! Batches: up to 64 datagrams that arrived or leave together, in buffers that are allocated once.

use std::net::SocketAddr;

use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, RECEIVE_BUFFER_BYTES};

/// Datagrams in a batch.
pub const BATCH: usize = 64;

/// Datagrams that arrived.
pub struct ReceiveBatch {
    buffers: Box<[[u8; RECEIVE_BUFFER_BYTES]]>,
    arrived: Vec<(Address, usize)>,
}

/// One datagram that arrived, where it lies: it may be decrypted there.
pub struct Received<'a> {
    /// Where it came from, it says.
    pub from: Address,
    /// Its bytes; what is longer than 1300 was cut.
    pub datagram: &'a mut [u8],
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        Self { buffers: vec![[0; RECEIVE_BUFFER_BYTES]; BATCH].into(), arrived: Vec::with_capacity(BATCH) }
    }
}

impl ReceiveBatch {
    /// How many datagrams arrived.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arrived.len()
    }

    /// Whether none did.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// The datagram at a place of the batch.
    pub fn get(&mut self, place: usize) -> Option<Received<'_>> {
        let (from, bytes) = *self.arrived.get(place)?;
        let datagram = self.buffers.get_mut(place)?.get_mut(..bytes)?;
        Some(Received { from, datagram })
    }

    /// The bytes of the datagram at a place of the batch; none if there is none.
    #[must_use]
    pub fn bytes(&self, place: usize) -> &[u8] {
        let bytes = self.arrived.get(place).map_or(0, |(_, bytes)| *bytes);
        self.buffers.get(place).and_then(|buffer| buffer.get(..bytes)).unwrap_or_default()
    }

    /// Forgets what arrived.
    pub fn clear(&mut self) {
        self.arrived.clear();
    }

    pub(super) fn room(&mut self) -> Option<&mut [u8]> {
        self.buffers.get_mut(self.arrived.len()).map(<[u8; RECEIVE_BUFFER_BYTES]>::as_mut_slice)
    }

    /// The rooms for what arrives next, until the batch holds `most`, and where to note what did.
    #[cfg(target_os = "linux")]
    pub(super) fn rooms(&mut self, most: usize) -> (&mut [[u8; RECEIVE_BUFFER_BYTES]], &mut Vec<(Address, usize)>) {
        let rooms = self.buffers.get_mut(self.arrived.len()..most.min(BATCH)).unwrap_or_default();
        (rooms, &mut self.arrived)
    }

    pub(super) fn commit(&mut self, from: Address, bytes: usize) {
        self.arrived.push((from, bytes));
    }
}

/// Datagrams that wait to leave.
pub struct SendBatch {
    buffers: Box<[[u8; MAX_DATAGRAM_BYTES]]>,
    leaving: Vec<(SocketAddr, usize)>,
}

impl Default for SendBatch {
    fn default() -> Self {
        Self { buffers: vec![[0; MAX_DATAGRAM_BYTES]; BATCH].into(), leaving: Vec::with_capacity(BATCH) }
    }
}

impl SendBatch {
    /// Whether no datagram waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Whether no more datagrams fit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.leaving.len() == BATCH
    }

    /// How many datagrams wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leaving.len()
    }

    /// Where each datagram goes, and its bytes' number.
    #[cfg(target_os = "linux")]
    pub(super) fn leaving(&self) -> &[(SocketAddr, usize)] {
        &self.leaving
    }

    /// The datagram at a place; nothing if there is none.
    #[cfg(target_os = "linux")]
    pub(super) fn datagram(&self, place: usize) -> &[u8] {
        let bytes = self.leaving.get(place).map_or(0, |(_, bytes)| *bytes);
        self.buffers.get(place).and_then(|buffer| buffer.get(..bytes)).unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        self.leaving
            .iter()
            .zip(&self.buffers)
            .map(|((to, bytes), buffer)| (*to, buffer.get(..*bytes).unwrap_or_default()))
    }

    pub(super) fn clear(&mut self) {
        self.leaving.clear();
    }
}

impl Outbox for SendBatch {
    fn rooms(&self) -> usize {
        self.buffers.len() - self.leaving.len()
    }

    fn room(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.buffers.get_mut(self.leaving.len())
    }

    fn commit(&mut self, to: Address, bytes: usize) {
        self.leaving.push((to.socket_addr(), bytes));
    }
}
