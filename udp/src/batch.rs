//! Batches: up to 64 datagrams that arrived or leave together, in buffers that are allocated once.

use std::net::SocketAddr;

use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, RECEIVE_BUFFER_BYTES};

/// The capacity of a batch, in datagrams.
pub const BATCH_SIZE: usize = 64;

/// A batch of received datagrams.
pub struct ReceiveBatch {
    buffers: Box<[[u8; RECEIVE_BUFFER_BYTES]]>,
    arrived: Vec<(Address, usize)>,
}

/// A received datagram in the buffer of the batch. It may be decrypted in place.
pub struct DatagramMut<'a> {
    /// The source address, which may be forged.
    pub from: Address,
    /// The bytes; longer datagrams were truncated to 1,300.
    pub datagram: &'a mut [u8],
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        Self { buffers: vec![[0; RECEIVE_BUFFER_BYTES]; BATCH_SIZE].into(), arrived: Vec::with_capacity(BATCH_SIZE) }
    }
}

impl ReceiveBatch {
    /// Returns the number of received datagrams.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.arrived.len()
    }

    /// Returns whether no datagram was received.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Returns the datagram at an index of the batch.
    #[inline]
    pub fn get(&mut self, index: usize) -> Option<DatagramMut<'_>> {
        let (from, bytes) = *self.arrived.get(index)?;
        let datagram = self.buffers.get_mut(index)?.get_mut(..bytes)?;
        Some(DatagramMut { from, datagram })
    }

    /// Returns the bytes of the datagram at an index of the batch; empty beyond its end.
    #[must_use]
    #[inline]
    pub fn bytes(&self, index: usize) -> &[u8] {
        let bytes = self.arrived.get(index).map_or(0, |(_, bytes)| *bytes);
        self.buffers.get(index).and_then(|buffer| buffer.get(..bytes)).unwrap_or_default()
    }

    /// Removes all datagrams.
    #[inline]
    pub fn clear(&mut self) {
        self.arrived.clear();
    }

    pub(super) fn next_buf(&mut self) -> Option<&mut [u8]> {
        self.buffers.get_mut(self.arrived.len()).map(<[u8; RECEIVE_BUFFER_BYTES]>::as_mut_slice)
    }

    /// Returns the buffers for the next datagrams, until the batch holds `max`, and the list of their sources and
    /// lengths.
    #[cfg(target_os = "linux")]
    pub(super) fn free_buffers(
        &mut self,
        max: usize,
    ) -> (&mut [[u8; RECEIVE_BUFFER_BYTES]], &mut Vec<(Address, usize)>) {
        let buffers = self.buffers.get_mut(self.arrived.len()..max.min(BATCH_SIZE)).unwrap_or_default();
        (buffers, &mut self.arrived)
    }

    pub(super) fn commit(&mut self, from: Address, bytes: usize) {
        self.arrived.push((from, bytes));
    }
}

/// A batch of datagrams to send.
pub struct SendBatch {
    buffers: Box<[[u8; MAX_DATAGRAM_BYTES]]>,
    leaving: Vec<(SocketAddr, usize)>,
}

impl Default for SendBatch {
    fn default() -> Self {
        Self { buffers: vec![[0; MAX_DATAGRAM_BYTES]; BATCH_SIZE].into(), leaving: Vec::with_capacity(BATCH_SIZE) }
    }
}

impl SendBatch {
    /// Returns whether the batch is empty.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.leaving.is_empty()
    }

    /// Returns whether the batch is full.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.leaving.len() == BATCH_SIZE
    }

    /// Returns the number of datagrams in the batch.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.leaving.len()
    }

    /// Returns the destination and the length of each datagram.
    #[cfg(target_os = "linux")]
    pub(super) fn leaving(&self) -> &[(SocketAddr, usize)] {
        &self.leaving
    }

    /// Returns the datagram at an index; empty beyond its end.
    #[cfg(target_os = "linux")]
    pub(super) fn datagram(&self, index: usize) -> &[u8] {
        let bytes = self.leaving.get(index).map_or(0, |(_, bytes)| *bytes);
        self.buffers.get(index).and_then(|buffer| buffer.get(..bytes)).unwrap_or_default()
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
    #[inline]
    fn remaining(&self) -> usize {
        self.buffers.len() - self.leaving.len()
    }

    #[inline]
    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.buffers.get_mut(self.leaving.len())
    }

    #[inline]
    fn commit(&mut self, to: Address, bytes: usize) {
        self.leaving.push((to.socket_addr(), bytes));
    }
}
