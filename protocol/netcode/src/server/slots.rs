//! The client slots: who is connected, found by address or client id without looking at the others.
//!
//! What every packet touches ([`Link`]), what every turn sweeps ([`Timers`]) and what is seldom needed ([`Profile`]) lie
//! in arrays of their own.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::time::Duration;

use super::register::ShardId;
use crate::address::Address;
use crate::crypto::aead::packets::Kept;
use crate::crypto::key::Seed;
use crate::crypto::keyed::{HashKey, KeyedMap, map_with_capacity};
use crate::crypto::lane::Lane;
use crate::crypto::replay::ReplayWindow;
use crate::loopback::PayloadQueue;
use crate::time::Instant;
use crate::token::redeem::Age;
use crate::wire::{USER_DATA_BYTES, UserData};

/// Names one connection of a server: its shard, its slot there, and which of the slot's connections it is.
///
/// After the connection has ended the handle reaches nobody: not the next client of the same slot either. On another
/// shard it reaches nobody at all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ClientHandle {
    shard: ShardId,
    slot: u16,
    generation: u32,
}

impl ClientHandle {
    /// The client's slot on its shard, from 0. A server of one shard numbers its clients by it; with more of them, that is
    /// [`ClientInfo::index`](super::ClientInfo::index).
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot as u32
    }

    /// The shard that has it: the first one, where there is but one.
    #[must_use]
    pub const fn shard(self) -> ShardId {
        self.shard
    }
}

/// What a slot is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Free,
    Connected,
    /// Owes its last packets, then it is free.
    Closing,
    /// A client in the same program.
    Loopback,
}

/// What every packet of a connection touches.
pub(super) struct Link {
    pub(super) state: State,
    pub(super) generation: u32,
    /// The client's index in the game, of all clients of all shards, which it learns from its first keep-alive.
    pub(super) index: u32,
    pub(super) address: Option<Address>,
    /// None while the slot is free, and for a client in the same program.
    pub(super) keys: Option<LinkKeys>,
    pub(super) window: ReplayWindow,
    pub(super) lane: Lane,
    pub(super) timeout: Option<Duration>,
    pub(super) last_receive: Instant,
    /// Something authentic arrived since the slot was assigned, so the client knows that it is connected.
    pub(super) confirmed: bool,
    /// The application knows of it. The client itself may, from then on.
    pub(super) announced: bool,
    /// Packets in the turn numbered `turn`, which begins anew after 2^32 turns.
    pub(super) turn: u32,
    pub(super) turn_packets: u32,
    /// Packets under its address in that turn that did not open.
    pub(super) turn_forgeries: u32,
    owes: Owes,
    in_debts: bool,
}

/// The keys of a connection, ready for its packets.
pub(super) struct LinkKeys {
    pub(super) client_to_server: Kept,
    pub(super) server_to_client: Kept,
}

/// What a slot owes its client.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Owes {
    pub(super) keep_alive: bool,
    pub(super) disconnects: u8,
}

impl Owes {
    /// What is left when the next packet has left: the keep-alive comes first.
    pub(super) const fn less_one(self) -> Self {
        let disconnects = if self.keep_alive { self.disconnects } else { self.disconnects.saturating_sub(1) };
        Self { keep_alive: false, disconnects }
    }
}

/// What a turn sweeps: two moments for each slot, [`Instant::NEVER`] where nothing is due.
#[derive(Clone, Copy)]
struct Timers {
    keep_alive: Instant,
    silence: Instant,
}

const NO_TIMERS: Timers = Timers { keep_alive: Instant::NEVER, silence: Instant::NEVER };

/// What is seldom needed.
pub(super) struct Profile {
    pub(super) client_id: u64,
    pub(super) user_data: UserData,
    pub(super) age: Option<Age>,
    pub(super) loopback: Option<Box<Loopback>>,
    /// What was sent to a client in the same program that is gone, and had not been taken by then.
    left_over: Option<(ClientHandle, Box<Loopback>)>,
}

/// Both directions of a client in the same program.
pub(super) struct Loopback {
    pub(super) to_client: PayloadQueue,
    pub(super) to_server: PayloadQueue,
}

/// A client that gets a slot.
pub(super) struct Newcomer {
    pub(super) index: u32,
    pub(super) client_id: u64,
    pub(super) user_data: UserData,
    pub(super) age: Option<Age>,
    pub(super) address: Option<Address>,
    pub(super) keys: Option<LinkKeys>,
    pub(super) lane: Lane,
    pub(super) timeout: Option<Duration>,
}

/// What is due in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    KeepAlive,
    Silence,
}

/// All slots of a shard: as many as the server has, for the system's hash may send all its clients here.
///
/// What they take is reserved and not touched before they are used, so that a shard costs what its clients do.
pub(super) struct Slots {
    shard: ShardId,
    count: u32,
    links: Vec<Link>,
    timers: Vec<Timers>,
    profiles: Vec<Profile>,
    /// By as few bytes as it takes: there are at most 65,536 slots, and twice the entries.
    by_address: KeyedMap<Address, u16>,
    by_client_id: KeyedMap<u64, u32>,
    free: BinaryHeap<Reverse<u32>>,
    debts: VecDeque<u32>,
}

impl Slots {
    pub(super) fn new(count: u32, shard: ShardId, seed: &Seed) -> Self {
        let size = count as usize;
        Self {
            shard,
            count,
            links: Vec::with_capacity(size),
            timers: Vec::with_capacity(size),
            profiles: Vec::with_capacity(size),
            by_address: map_with_capacity(size, HashKey::derive(seed, "slots by address")),
            by_client_id: map_with_capacity(size, HashKey::derive(seed, "slots by client id")),
            free: BinaryHeap::with_capacity(size),
            debts: VecDeque::with_capacity(size),
        }
    }

    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// How many slots were ever used: those from there on are free.
    pub(super) fn used(&self) -> u32 {
        self.links.len() as u32
    }

    /// The lowest free slot, or none.
    fn take_free(&mut self) -> Option<u32> {
        if let Some(Reverse(slot)) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.used();
        (slot < self.count).then(|| {
            self.links.push(Link::vacant(0));
            self.timers.push(NO_TIMERS);
            self.profiles.push(Profile::vacant());
            slot
        })
    }

    pub(super) fn connected(&self) -> u32 {
        self.by_client_id.len() as u32
    }

    pub(super) fn at_address(&self, address: &Address) -> Option<u32> {
        self.by_address.get(address).copied().map(u32::from)
    }

    pub(super) fn of_client(&self, client_id: u64) -> Option<u32> {
        self.by_client_id.get(&client_id).copied()
    }

    pub(super) fn link(&mut self, slot: u32) -> Option<&mut Link> {
        self.links.get_mut(slot as usize)
    }

    pub(super) fn profile(&self, slot: u32) -> Option<&Profile> {
        self.profiles.get(slot as usize)
    }

    pub(super) fn profile_mut(&mut self, slot: u32) -> Option<&mut Profile> {
        self.profiles.get_mut(slot as usize)
    }

    pub(super) fn handle(&self, slot: u32) -> Option<ClientHandle> {
        self.links.get(slot as usize).map(|link| self.named(slot, link.generation))
    }

    const fn named(&self, slot: u32, generation: u32) -> ClientHandle {
        // There are at most 65,536.
        ClientHandle { shard: self.shard, slot: slot as u16, generation }
    }

    /// The slot of a live connection, or `None` if it has ended.
    pub(super) fn live(&self, client: ClientHandle) -> Option<(u32, &Link)> {
        let link = self.links.get(usize::from(client.slot)).filter(|_| client.shard == self.shard)?;
        (link.is_live() && link.generation == client.generation).then_some((client.slot(), link))
    }

    /// Every live connection, in the order of the slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        let live = |(slot, link): (usize, &Link)| link.is_live().then(|| self.named(slot as u32, link.generation));
        self.links.iter().enumerate().filter_map(live)
    }

    /// Gives a newcomer the lowest free slot (§1.12), or none.
    pub(super) fn assign(&mut self, newcomer: Newcomer, now: Instant) -> Option<ClientHandle> {
        let slot = self.take_free()?;
        self.occupy(slot, newcomer, now)
    }

    /// Gives a newcomer the slot of the client whom it takes over, without a word to that one.
    pub(super) fn replace(&mut self, slot: u32, newcomer: Newcomer, now: Instant) -> Option<ClientHandle> {
        self.forget(slot);
        self.occupy(slot, newcomer, now)
    }

    fn occupy(&mut self, slot: u32, newcomer: Newcomer, now: Instant) -> Option<ClientHandle> {
        let link = self.links.get_mut(slot as usize)?;
        link.state = if newcomer.address.is_some() { State::Connected } else { State::Loopback };
        link.index = newcomer.index;
        link.address = newcomer.address;
        link.keys = newcomer.keys;
        link.lane = newcomer.lane;
        link.timeout = newcomer.timeout;
        link.last_receive = now;
        let generation = link.generation;
        let profile = self.profiles.get_mut(slot as usize)?;
        profile.client_id = newcomer.client_id;
        profile.user_data = newcomer.user_data;
        profile.age = newcomer.age;
        self.by_client_id.insert(newcomer.client_id, slot);
        if let Some(address) = newcomer.address {
            self.by_address.insert(address, slot as u16);
            self.heard(slot, now);
        }
        Some(self.named(slot, generation))
    }

    pub(super) fn is_announced(&self, slot: u32) -> bool {
        self.links.get(slot as usize).is_some_and(|link| link.announced)
    }

    pub(super) fn announce(&mut self, slot: u32) {
        if let Some(link) = self.links.get_mut(slot as usize) {
            link.announced = true;
        }
    }

    /// Something authentic arrived.
    pub(super) fn heard(&mut self, slot: u32, now: Instant) {
        let (Some(link), Some(timers)) = (self.links.get_mut(slot as usize), self.timers.get_mut(slot as usize)) else {
            return;
        };
        link.last_receive = now;
        timers.silence = link.timeout.map_or(Instant::NEVER, |timeout| now.after(timeout));
    }

    /// Gives a connection its time-out anew, though nothing of it was read.
    pub(super) fn bear_with(&mut self, slot: u32, now: Instant) {
        let (Some(link), Some(timers)) = (self.links.get(slot as usize), self.timers.get_mut(slot as usize)) else {
            return;
        };
        if let (Some(timeout), true) = (link.timeout, timers.silence != Instant::NEVER) {
            timers.silence = now.after(timeout);
        }
    }

    /// Whether a packet has left for this connection: before that its client knows nothing of its slot.
    pub(super) fn was_told(&self, slot: u32) -> bool {
        self.timers.get(slot as usize).is_some_and(|timers| timers.keep_alive != Instant::NEVER)
    }

    /// Something left, so no keep-alive is due before `next`.
    pub(super) fn spoke(&mut self, slot: u32, next: Instant) {
        if let Some(timers) = self.timers.get_mut(slot as usize) {
            timers.keep_alive = next;
        }
    }

    /// What is due in this slot at this moment.
    pub(super) fn due(&self, slot: u32, now: Instant) -> Option<Due> {
        let timers = self.timers.get(slot as usize)?;
        if timers.silence <= now { Some(Due::Silence) } else { (timers.keep_alive <= now).then_some(Due::KeepAlive) }
    }

    /// From now on the slot owes this too.
    pub(super) fn owe(&mut self, slot: u32, more: Owes) {
        let Some(link) = self.links.get_mut(slot as usize) else { return };
        link.owes.keep_alive |= more.keep_alive;
        link.owes.disconnects = link.owes.disconnects.max(more.disconnects);
        if !link.in_debts {
            link.in_debts = true;
            self.debts.push_back(slot);
        }
    }

    /// The next slot that owes something, and what.
    pub(super) fn next_debt(&mut self) -> Option<(u32, Owes)> {
        let slot = self.debts.pop_front()?;
        let link = self.links.get_mut(slot as usize)?;
        link.in_debts = false;
        Some((slot, core::mem::take(&mut link.owes)))
    }

    pub(super) fn has_debts(&self) -> bool {
        !self.debts.is_empty()
    }

    /// The connection is over, but the slot owes its farewell: neither address nor client id lead here any more.
    ///
    /// A client that was not told of its slot yet would not understand one, so it is still owed that keep-alive.
    pub(super) fn close(&mut self, slot: u32, disconnects: u8) {
        let untold = !self.was_told(slot);
        self.unlist(slot);
        if let Some(link) = self.links.get_mut(slot as usize) {
            link.state = State::Closing;
            link.owes.keep_alive = untold;
        }
        self.owe(slot, Owes { keep_alive: false, disconnects });
    }

    /// The slot is free for the next client.
    pub(super) fn vacate(&mut self, slot: u32) {
        self.forget(slot);
        self.free.push(Reverse(slot));
    }

    fn forget(&mut self, slot: u32) {
        self.unlist(slot);
        let generation = self.links.get(slot as usize).map_or(0, |link| link.generation);
        if let Some(link) = self.links.get_mut(slot as usize) {
            let in_debts = link.in_debts;
            // A generation comes back after 2^32 connections of one slot: at one a second, after 136 years.
            *link = Link::vacant(link.generation.wrapping_add(1));
            link.in_debts = in_debts;
        }
        if let Some(profile) = self.profiles.get_mut(slot as usize) {
            let client = ClientHandle { shard: self.shard, slot: slot as u16, generation };
            let left_over = profile.loopback.take().filter(|queues| !queues.to_client.is_empty());
            *profile = Profile::vacant();
            profile.left_over = left_over.map(|queues| (client, queues));
        }
    }

    /// What was sent to a client in the same program and has not been taken, whether or not the client is gone.
    pub(super) fn for_loopback(&mut self, client: ClientHandle) -> Option<&mut PayloadQueue> {
        let is_live = self.live(client).is_some();
        let profile = self.profiles.get_mut(usize::from(client.slot))?;
        let queues = if is_live {
            profile.loopback.as_mut()
        } else {
            profile.left_over.as_mut().filter(|(gone, _)| *gone == client).map(|(_, queues)| queues)
        };
        queues.map(|queues| &mut queues.to_client)
    }

    fn unlist(&mut self, slot: u32) {
        let (Some(link), Some(profile)) = (self.links.get_mut(slot as usize), self.profiles.get(slot as usize)) else {
            return;
        };
        if !link.is_live() {
            return;
        }
        if let Some(address) = link.address {
            self.by_address.remove(&address);
        }
        self.by_client_id.remove(&profile.client_id);
        if let Some(timers) = self.timers.get_mut(slot as usize) {
            *timers = NO_TIMERS;
        }
    }
}

impl Link {
    fn vacant(generation: u32) -> Self {
        Self {
            state: State::Free,
            generation,
            index: 0,
            address: None,
            keys: None,
            window: ReplayWindow::default(),
            lane: Lane::slot(0),
            timeout: None,
            last_receive: Instant::default(),
            confirmed: false,
            announced: false,
            turn: 0,
            turn_packets: 0,
            turn_forgeries: 0,
            owes: Owes::default(),
            in_debts: false,
        }
    }

    fn is_live(&self) -> bool {
        matches!(self.state, State::Connected | State::Loopback)
    }
}

impl Profile {
    fn vacant() -> Self {
        Self { client_id: 0, user_data: [0; USER_DATA_BYTES], age: None, loopback: None, left_over: None }
    }
}
