//! Packets in fragments: the fragments wait here until all have come, or until their time is up (§2.3, §2.4).

use alloc::vec::Vec;
use core::time::Duration;

use super::config::Config;
use super::memory::{Chain, Memory, MemoryBudget};
use crate::reject::Reject;
use crate::wire::reliable::{Fragment, Header, Sequence};
use slipgate_netcode::time::Instant;

/// How long after the last fragment the memory is kept for the next one.
const RETENTION: Duration = Duration::from_secs(10);

/// A packet of which some fragments have come.
struct Assembly {
    sequence: Sequence,
    count: u16,
    arrived: u16,
    /// Which fragments have come: one bit for each.
    seen: [u64; 4],
    header: Option<Header>,
    bytes: usize,
    began: Instant,
    fragments: Chain,
}

impl Assembly {
    fn new(fragment: &Fragment<'_>, began: Instant) -> Self {
        Self {
            sequence: fragment.sequence,
            count: fragment.count,
            arrived: 0,
            seen: [0; 4],
            header: None,
            bytes: 0,
            began,
            fragments: Chain::default(),
        }
    }

    /// Whether the fragment belongs to this packet and is new.
    fn check(&self, fragment: &Fragment<'_>) -> Result<(), Reject> {
        if fragment.count != self.count {
            return Err(Reject::FragmentDisagrees);
        }
        let word = self.seen.get(usize::from(fragment.id / 64)).copied().unwrap_or(u64::MAX);
        if word >> (fragment.id % 64) & 1 != 0 { Err(Reject::FragmentRepeated) } else { Ok(()) }
    }

    /// Notes a fragment whose data has been stored.
    fn note(&mut self, fragment: &Fragment<'_>) {
        if let Some(word) = self.seen.get_mut(usize::from(fragment.id / 64)) {
            *word |= 1 << (fragment.id % 64);
        }
        self.arrived += 1;
        self.bytes += fragment.data.len();
        self.header = self.header.or(fragment.header);
    }
}

/// What a fragment led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Others are missing.
    Waiting,
    /// It was the last one that was missing: here is the packet's header and the size of its data, which lies in
    /// [`Reassembly::assembled`] unless it is larger than a packet may be.
    Complete { header: Header, bytes: usize },
}

/// The packets under way. It takes memory with the first fragment of all, not before.
pub(super) struct Reassembly {
    fragment_bytes: usize,
    max_packet_bytes: usize,
    lifetime: Duration,
    size: u16,
    /// One behind the newest packet, as in [`super::received::Received`].
    next: Sequence,
    /// Empty, or `size` places; that of a packet is its number modulo `size`.
    places: Vec<Option<Assembly>>,
    assembled: Vec<u8>,
    memory: Memory,
    /// Nothing is to be done before this.
    wake: Instant,
    last_fragment: Instant,
    given_up: u64,
}

impl Reassembly {
    pub(super) fn new(config: &Config, shared: Option<MemoryBudget>) -> Self {
        Self {
            fragment_bytes: config.fragment_bytes,
            max_packet_bytes: config.max_packet_bytes,
            lifetime: config.reassembly_lifetime,
            size: config.reassemblies,
            next: Sequence::default(),
            places: Vec::new(),
            assembled: Vec::new(),
            memory: Memory::new(config.fragment_bytes, config.reassembly_bytes, shared),
            wake: Instant::NEVER,
            last_fragment: Instant::default(),
            given_up: 0,
        }
    }

    /// Whether fragments of this packet can be taken: it is under way, or may begin. Then the window has moved, so that
    /// the packet is in it.
    pub(super) fn begin(&mut self, fragment: &Fragment<'_>, now: Instant) -> Result<(), Reject> {
        if self.find(fragment.sequence).is_some() {
            return Ok(());
        }
        self.advance(fragment.sequence);
        if fragment.sequence.is_older_than(self.next.back(self.size)) {
            return Err(Reject::FragmentStale);
        }
        self.warm_up()?;
        self.give_up(fragment.sequence);
        let index = self.index(fragment.sequence);
        if let Some(place) = self.places.get_mut(index) {
            *place = Some(Assembly::new(fragment, now));
        }
        self.wake = self.wake.min(now.after(self.lifetime));
        Ok(())
    }

    /// Stores a fragment of a packet that was begun.
    pub(super) fn take(&mut self, fragment: &Fragment<'_>, now: Instant) -> Result<Progress, Reject> {
        self.find(fragment.sequence).ok_or(Reject::FragmentStale)?.check(fragment)?;
        self.store(fragment)?;
        self.last_fragment = now;
        let index = self.index(fragment.sequence);
        let place = self.places.get_mut(index).ok_or(Reject::FragmentStale)?;
        let assembly = place.as_mut().ok_or(Reject::FragmentStale)?;
        assembly.note(fragment);
        let (Some(header), true) = (assembly.header, assembly.arrived == assembly.count) else {
            return Ok(Progress::Waiting);
        };
        let bytes = assembly.bytes;
        if let Some(assembly) = place.take() {
            self.assemble(assembly);
        }
        Ok(Progress::Complete { header, bytes })
    }

    /// The data of the last packet that was completed.
    pub(super) fn assembled(&self) -> &[u8] {
        &self.assembled
    }

    /// A packet arrived: those that are too far behind it are given up.
    pub(super) fn advance(&mut self, sequence: Sequence) {
        let next = sequence.ahead(1);
        if !next.is_newer_than(self.next) {
            return;
        }
        // Without a place there is nothing to give up, which is so for endpoints that never saw a fragment.
        if !self.places.is_empty() {
            let passed = next.distance_from(self.next).min(self.size);
            for ahead in 0..passed {
                self.give_up(self.next.ahead(ahead));
            }
        }
        self.next = next;
    }

    /// Gives up what has waited too long, and memory that nobody has needed for a while.
    pub(super) fn tick(&mut self, now: Instant) {
        if now < self.wake {
            return;
        }
        self.wake = Instant::NEVER;
        for place in &mut self.places {
            let Some(assembly) = place else { continue };
            if !now.reached(assembly.began, self.lifetime) {
                self.wake = self.wake.min(assembly.began.after(self.lifetime));
            } else if let Some(assembly) = place.take() {
                self.memory.recycle(assembly.fragments);
                self.given_up += 1;
            }
        }
        if self.wake == Instant::NEVER && !self.places.is_empty() {
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

    /// Bytes of memory that are taken now.
    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    pub(super) fn reset(&mut self) {
        self.release();
        self.next = Sequence::default();
        self.given_up = 0;
    }

    fn find(&self, sequence: Sequence) -> Option<&Assembly> {
        self.places.get(self.index(sequence))?.as_ref().filter(|assembly| assembly.sequence == sequence)
    }

    fn index(&self, sequence: Sequence) -> usize {
        (sequence.0 & (self.size - 1)).into()
    }

    /// Takes the memory that no packet can do without.
    fn warm_up(&mut self) -> Result<(), Reject> {
        if !self.places.is_empty() {
            return Ok(());
        }
        let bytes = usize::from(self.size) * size_of::<Option<Assembly>>() + self.max_packet_bytes;
        if !self.memory.take_fixed(bytes) {
            return Err(Reject::NoMemory);
        }
        self.places.resize_with(self.size.into(), || None);
        self.assembled.reserve_exact(self.max_packet_bytes);
        Ok(())
    }

    fn release(&mut self) {
        (self.places, self.assembled) = (Vec::new(), Vec::new());
        self.memory.release();
        self.wake = Instant::NEVER;
    }

    /// Stores a fragment's data. Older packets are given up for it: what they wait for is hardly coming any more.
    fn store(&mut self, fragment: &Fragment<'_>) -> Result<(), Reject> {
        let index = self.index(fragment.sequence);
        loop {
            let assembly = self.places.get_mut(index).and_then(Option::as_mut).ok_or(Reject::FragmentStale)?;
            if self.memory.store(&mut assembly.fragments, fragment.id, fragment.data) {
                return Ok(());
            }
            let oldest = self.oldest_but(fragment.sequence).ok_or(Reject::NoMemory)?;
            self.give_up(oldest);
        }
    }

    /// The oldest packet under way that holds memory, other than this one.
    fn oldest_but(&self, sequence: Sequence) -> Option<Sequence> {
        let others = self.places.iter().flatten().filter(|other| other.sequence != sequence && other.arrived > 0);
        others.max_by_key(|other| self.next.distance_from(other.sequence)).map(|oldest| oldest.sequence)
    }

    /// Gives up the packet that has this one's place, if there is one.
    fn give_up(&mut self, sequence: Sequence) {
        let index = self.index(sequence);
        if let Some(assembly) = self.places.get_mut(index).and_then(Option::take) {
            self.memory.recycle(assembly.fragments);
            self.given_up += 1;
        }
    }

    /// Puts the fragments behind each other.
    fn assemble(&mut self, assembly: Assembly) {
        self.assembled.clear();
        if assembly.bytes <= self.max_packet_bytes {
            self.assembled.resize(assembly.bytes, 0);
            for (id, data) in assembly.fragments.iter() {
                let from = usize::from(id) * self.fragment_bytes;
                if let Some(place) = self.assembled.get_mut(from..from + data.len()) {
                    place.copy_from_slice(data);
                }
            }
        }
        self.memory.recycle(assembly.fragments);
    }
}
