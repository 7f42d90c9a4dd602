//! Reassembly of fragmented packets: fragments wait until all have arrived, or until they time out (§2.3, §2.4).

use alloc::vec::Vec;
use core::time::Duration;

use super::config::EndpointConfig;
use super::constants;
use super::fragment_pool::{FragmentList, FragmentPool, MemoryBudget};
use crate::reject::Reject;
use crate::wire::reliable::{Fragment, ReliableHeader, Sequence};
use slipgate_netcode::time::Instant;

/// How long after the last fragment the memory is kept for the next one.
const RETENTION: Duration = Duration::from_secs(10);
/// How long the first fragment of a packet waits for the others. Its sender declares the packet lost by then, so a
/// later fragment cannot complete anything of use.
const LIFETIME: Duration = constants::LOST_AFTER;

/// A packet of which some fragments have arrived.
struct PartialPacket {
    sequence: Sequence,
    count: u16,
    arrived: u16,
    /// One bit for each fragment that has arrived.
    seen: [u64; 4],
    header: Option<ReliableHeader>,
    bytes: usize,
    started_at: Instant,
    fragments: FragmentList,
}

impl PartialPacket {
    fn new(fragment: &Fragment<'_>, started_at: Instant) -> Self {
        Self {
            sequence: fragment.sequence,
            count: fragment.count,
            arrived: 0,
            seen: [0; 4],
            header: None,
            bytes: 0,
            started_at,
            fragments: FragmentList::default(),
        }
    }

    /// Checks that the fragment belongs to this packet and is new.
    fn check(&self, fragment: &Fragment<'_>) -> Result<(), Reject> {
        if fragment.count != self.count {
            return Err(Reject::FragmentDisagrees);
        }
        let word = self.seen.get(usize::from(fragment.id / 64)).copied().unwrap_or(u64::MAX);
        if word >> (fragment.id % 64) & 1 != 0 { Err(Reject::FragmentRepeated) } else { Ok(()) }
    }

    /// Records a fragment after its data was stored.
    fn note(&mut self, fragment: &Fragment<'_>) {
        if let Some(word) = self.seen.get_mut(usize::from(fragment.id / 64)) {
            *word |= 1 << (fragment.id % 64);
        }
        self.arrived += 1;
        self.bytes += fragment.data.len();
        self.header = self.header.or(fragment.header);
    }
}

/// The result of one fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FragmentOutcome {
    /// More fragments are missing.
    Waiting,
    /// The packet is complete: its header and the size of its data, which is in [`Reassembly::assembled`] unless it
    /// exceeds the largest packet.
    Complete { header: ReliableHeader, bytes: usize },
}

/// The incomplete packets of an endpoint. It allocates with the first fragment of all.
pub(super) struct Reassembly {
    fragment_bytes: usize,
    max_packet_bytes: usize,
    size: u16,
    /// One more than the newest packet, as in [`super::receive_window::ReceiveWindow`].
    next: Sequence,
    /// Empty, or `size` slots; a packet uses the slot of its number modulo `size`.
    slots: Vec<Option<PartialPacket>>,
    assembled: Vec<u8>,
    memory: FragmentPool,
    /// [`Reassembly::tick`] has nothing to do before this.
    wake: Instant,
    last_fragment: Instant,
    given_up: u64,
}

impl Reassembly {
    pub(super) fn new(config: &EndpointConfig, shared: Option<MemoryBudget>) -> Self {
        Self {
            fragment_bytes: config.fragment_bytes,
            max_packet_bytes: config.max_packet_bytes,
            size: config.reassemblies,
            next: Sequence::default(),
            slots: Vec::new(),
            assembled: Vec::new(),
            memory: FragmentPool::new(config.fragment_bytes, config.reassembly_bytes, shared),
            wake: Instant::NEVER,
            last_fragment: Instant::default(),
            given_up: 0,
        }
    }

    /// Returns without error if fragments of this packet can be stored: it is in reassembly, or the window was moved
    /// to it.
    pub(super) fn begin(&mut self, fragment: &Fragment<'_>, now: Instant) -> Result<(), Reject> {
        if self.find(fragment.sequence).is_some() {
            return Ok(());
        }
        // A fragment may be the first sign of a packet, so it moves the window too.
        self.advance(fragment.sequence);
        if fragment.sequence.is_older_than(self.next - self.size) {
            return Err(Reject::FragmentStale);
        }
        self.allocate_slots()?;
        // The slot may hold a packet one window older, which is stale by now.
        self.discard(fragment.sequence);
        let index = self.index(fragment.sequence);
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Some(PartialPacket::new(fragment, now));
        }
        // The wake-up time is a lower bound: discarded packets do not move it back.
        self.wake = self.wake.min(now.after(LIFETIME));
        Ok(())
    }

    /// Stores a fragment of a packet that passed [`Reassembly::begin`].
    pub(super) fn take(&mut self, fragment: &Fragment<'_>, now: Instant) -> Result<FragmentOutcome, Reject> {
        self.find(fragment.sequence).ok_or(Reject::FragmentStale)?.check(fragment)?;
        self.store(fragment)?;
        self.last_fragment = now;
        let index = self.index(fragment.sequence);
        let slot = self.slots.get_mut(index).ok_or(Reject::FragmentStale)?;
        let assembly = slot.as_mut().ok_or(Reject::FragmentStale)?;
        assembly.note(fragment);
        // The header is in fragment 0, which may arrive last.
        let (Some(header), true) = (assembly.header, assembly.arrived == assembly.count) else {
            return Ok(FragmentOutcome::Waiting);
        };
        let bytes = assembly.bytes;
        if let Some(assembly) = slot.take() {
            self.assemble(assembly);
        }
        Ok(FragmentOutcome::Complete { header, bytes })
    }

    /// Returns the data of the last packet that was completed.
    pub(super) fn assembled(&self) -> &[u8] {
        &self.assembled
    }

    /// Moves the window to a packet that arrived, and discards packets that fall out of it.
    pub(super) fn advance(&mut self, sequence: Sequence) {
        let next = sequence + 1;
        if !next.is_newer_than(self.next) {
            return;
        }
        // Endpoints that never received a fragment have no slots, and pay nothing here.
        if !self.slots.is_empty() {
            let passed = (next - self.next).min(self.size);
            for ahead in 0..passed {
                self.discard(self.next + ahead);
            }
        }
        self.next = next;
    }

    /// Discards packets that timed out, and memory that was not used for a while.
    pub(super) fn tick(&mut self, now: Instant) {
        if now < self.wake {
            return;
        }
        self.wake = Instant::NEVER;
        for slot in &mut self.slots {
            let Some(assembly) = slot else { continue };
            if !now.reached(assembly.started_at, LIFETIME) {
                self.wake = self.wake.min(assembly.started_at.after(LIFETIME));
            } else if let Some(assembly) = slot.take() {
                self.memory.recycle(assembly.fragments);
                self.given_up += 1;
            }
        }
        // Keep the memory for a while: a stream of large packets would otherwise allocate for each.
        // No packet is left in reassembly.
        if self.wake == Instant::NEVER && !self.slots.is_empty() {
            if now.reached(self.last_fragment, RETENTION) {
                self.release();
            } else {
                self.wake = self.last_fragment.after(RETENTION);
            }
        }
    }

    pub(super) const fn wake(&self) -> Instant {
        self.wake
    }

    pub(super) const fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns the bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    fn find(&self, sequence: Sequence) -> Option<&PartialPacket> {
        self.slots.get(self.index(sequence))?.as_ref().filter(|assembly| assembly.sequence == sequence)
    }

    fn index(&self, sequence: Sequence) -> usize {
        (sequence.0 & (self.size - 1)).into()
    }

    /// Allocates the memory that reassembly cannot do without.
    fn allocate_slots(&mut self) -> Result<(), Reject> {
        if !self.slots.is_empty() {
            return Ok(());
        }
        // Taken from the shared budget as well: fixed costs of many endpoints add up.
        let bytes = usize::from(self.size) * size_of::<Option<PartialPacket>>() + self.max_packet_bytes;
        if !self.memory.take_fixed(bytes) {
            return Err(Reject::NoMemory);
        }
        self.slots.resize_with(self.size.into(), || None);
        self.assembled.reserve_exact(self.max_packet_bytes);
        Ok(())
    }

    fn release(&mut self) {
        (self.slots, self.assembled) = (Vec::new(), Vec::new());
        self.memory.release();
        self.wake = Instant::NEVER;
    }

    /// Stores the data of a fragment. It discards older packets if memory is short: their missing fragments are
    /// unlikely to arrive.
    fn store(&mut self, fragment: &Fragment<'_>) -> Result<(), Reject> {
        let index = self.index(fragment.sequence);
        loop {
            let assembly = self.slots.get_mut(index).and_then(Option::as_mut).ok_or(Reject::FragmentStale)?;
            if self.memory.store(&mut assembly.fragments, fragment.id, fragment.data) {
                return Ok(());
            }
            let oldest = self.oldest_other(fragment.sequence).ok_or(Reject::NoMemory)?;
            self.discard(oldest);
        }
    }

    /// Returns the oldest packet other than this one that holds memory.
    fn oldest_other(&self, sequence: Sequence) -> Option<Sequence> {
        let others = self.slots.iter().flatten().filter(|other| other.sequence != sequence && other.arrived > 0);
        others.max_by_key(|other| self.next - other.sequence).map(|oldest| oldest.sequence)
    }

    /// Discards the packet in the slot of this sequence number, if there is one.
    fn discard(&mut self, sequence: Sequence) {
        let index = self.index(sequence);
        if let Some(assembly) = self.slots.get_mut(index).and_then(Option::take) {
            self.memory.recycle(assembly.fragments);
            self.given_up += 1;
        }
    }

    /// Copies the fragments into one buffer, in order.
    fn assemble(&mut self, assembly: PartialPacket) {
        self.assembled.clear();
        // A larger packet is rejected by the caller; do not copy it.
        if assembly.bytes <= self.max_packet_bytes {
            // Fragments carry their index, so the order of arrival does not matter.
            self.assembled.resize(assembly.bytes, 0);
            for (id, data) in assembly.fragments.iter() {
                let from = usize::from(id) * self.fragment_bytes;
                if let Some(slot) = self.assembled.get_mut(from..from + data.len()) {
                    slot.copy_from_slice(data);
                }
            }
        }
        self.memory.recycle(assembly.fragments);
    }
}

#[cfg(test)]
mod tests;
