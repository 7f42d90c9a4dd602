//! The client slots of a shard, found by address or client id without a scan.
//!
//! Three arrays separate the data by use: [`SlotLink`] for every packet, [`SlotTimers`] for every turn, and [`Profile`]
//! for rare events.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Reverse;
use core::fmt;
use core::time::Duration;

use super::registry::ShardId;
use crate::address::Address;
use crate::crypto::aead::packets::PreparedKey;
use crate::crypto::key::Seed;
use crate::crypto::keyed::{HashKey, KeyedMap, map_with_capacity};
use crate::crypto::lane::Lane;
use crate::crypto::replay::ReplayWindow;
use crate::ids::{ClientId, ClientIndex, SlotIndex};
use crate::loopback::PayloadQueue;
use crate::slab::Slab;
use crate::time::Instant;
use crate::token::redeem::TokenAge;
use crate::wire::{USER_DATA_BYTES, UserData};

/// The handle of one connection of a server: its shard, its slot there, and the generation of the slot.
///
/// When the connection has ended, the handle is invalid. It never refers to the next client of the same slot, nor to a
/// client of another shard.
///
/// # Examples
/// ```
/// use std::collections::HashMap;
///
/// use slipgate_netcode::server::ClientHandle;
///
/// /// Scores of the players. A handle is a key, and no other client ever has the same one.
/// fn add_point(scores: &mut HashMap<ClientHandle, u32>, client: ClientHandle) {
///     *scores.entry(client).or_default() += 1;
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ClientHandle {
    shard: ShardId,
    slot: u16,
    generation: u32,
}

impl ClientHandle {
    /// Returns the client's slot on its shard. If a server has several shards,
    /// [`ClientInfo::index`](super::ClientInfo::index) is the number that is unique to the client.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> SlotIndex {
        SlotIndex(self.slot as u32)
    }

    /// Returns the client's shard. A server without shards has shard 0 only.
    #[inline]
    #[must_use]
    pub const fn shard(self) -> ShardId {
        self.shard
    }

    /// Returns the handle as a number, for programs in other languages.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | (self.shard.0 as u64) << 16 | self.slot as u64
    }

    /// Returns the handle of a number. An invented number is the handle of no client, or of one that is connected.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { shard: ShardId((bits >> 16) as u16), slot: bits as u16, generation: (bits >> 32) as u32 }
    }
}

impl fmt::Display for ClientHandle {
    /// Writes `shard/slot/generation`, such as `0/17/4`: no two connections of one start have the same text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.shard, self.slot, self.generation)
    }
}

/// The state of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotState {
    Free,
    Connected,
    /// The connection has ended, and its last packets are not sent yet.
    Closing,
    /// The client is in the same process.
    Loopback,
}

/// The data of a connection that every packet needs.
pub(super) struct SlotLink {
    pub(super) state: SlotState,
    pub(super) generation: u32,
    /// The client's index over all shards, which the client learns from its first keep-alive.
    pub(super) index: ClientIndex,
    pub(super) address: Option<Address>,
    /// `None` while the slot is free, and for a client in the same process.
    pub(super) keys: Option<LinkKeys>,
    pub(super) window: ReplayWindow,
    pub(super) lane: Lane,
    pub(super) timeout: Option<Duration>,
    pub(super) last_receive: Instant,
    /// Whether an authentic packet arrived in the slot, so the client knows that it is connected.
    pub(super) confirmed: bool,
    /// Whether the token's record is durable, so that the application and the client may learn of the connection.
    pub(super) durable: bool,
    /// The turn of the two counts below. It overflows after 2^32 turns, which is harmless.
    pub(super) turn: u32,
    pub(super) turn_packets: u32,
    /// Packets under the client's address in that turn which did not decrypt: those with sequence numbers far ahead of
    /// the client's, and those with others.
    pub(super) turn_forgeries: [u32; 2],
    due: DuePackets,
    in_due_queue: bool,
}

/// The prepared keys of a connection.
pub(super) struct LinkKeys {
    pub(super) client_to_server: PreparedKey,
    pub(super) server_to_client: PreparedKey,
}

/// The packets of a slot that are due.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DuePackets {
    pub(super) keep_alive: bool,
    pub(super) disconnects: u8,
}

impl DuePackets {
    pub(super) const KEEP_ALIVE: Self = Self { keep_alive: true, disconnects: 0 };

    /// Returns the packets that remain after the next one. The keep-alive is the first.
    pub(super) const fn after_one(self) -> Self {
        let disconnects = if self.keep_alive { self.disconnects } else { self.disconnects.saturating_sub(1) };
        Self { keep_alive: false, disconnects }
    }
}

/// The two deadlines of a slot. [`Instant::NEVER`] means that a timer is off.
#[derive(Clone, Copy)]
struct SlotTimers {
    keep_alive: Instant,
    timeout: Instant,
}

const NO_TIMERS: SlotTimers = SlotTimers { keep_alive: Instant::NEVER, timeout: Instant::NEVER };

/// The rarely used data of a connection.
pub(super) struct Profile {
    pub(super) client_id: ClientId,
    pub(super) user_data: UserData,
    /// The age of the client's token. A client in the same process has none.
    pub(super) age: Option<TokenAge>,
    pub(super) loopback: Option<Box<LoopbackQueues>>,
    /// Payloads for the slot's last client in the same process which it has not received.
    unreceived: Option<(ClientHandle, Box<LoopbackQueues>)>,
}

/// Both directions of a client in the same process.
pub(super) struct LoopbackQueues {
    pub(super) to_client: PayloadQueue,
    pub(super) to_server: PayloadQueue,
}

/// A client that gets a slot.
pub(super) struct NewClient {
    pub(super) index: ClientIndex,
    pub(super) client_id: ClientId,
    pub(super) user_data: UserData,
    pub(super) age: Option<TokenAge>,
    pub(super) address: Option<Address>,
    pub(super) keys: Option<LinkKeys>,
    pub(super) lane: Lane,
    pub(super) timeout: Option<Duration>,
}

/// A deadline of a slot that has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SlotDeadline {
    KeepAlive,
    Timeout,
}

/// All slots of a shard. A shard has as many slots as the whole server, because the kernel's hash may send it all
/// clients.
///
/// Memory for all slots is reserved, but touched only when a slot is used.
pub(super) struct Slots {
    shard: ShardId,
    count: u32,
    links: Slab<SlotIndex, SlotLink>,
    timers: Slab<SlotIndex, SlotTimers>,
    profiles: Slab<SlotIndex, Profile>,
    /// Slots as `u16`, because there are at most 65,536 of them and the table has capacity for twice the entries.
    by_address: KeyedMap<Address, u16>,
    by_client_id: KeyedMap<ClientId, SlotIndex>,
    /// The number of live connections whose token's record is not durable.
    undurable: u32,
    free: BinaryHeap<Reverse<SlotIndex>>,
    /// Slots with due packets. `SlotLink::in_due_queue` keeps each from being queued twice.
    due_queue: VecDeque<SlotIndex>,
}

impl Slots {
    pub(super) fn new(count: u32, shard: ShardId, seed: &Seed) -> Self {
        let size = count as usize;
        Self {
            shard,
            count,
            links: Slab::with_capacity(size, SlotLink::vacant(0)),
            timers: Slab::with_capacity(size, NO_TIMERS),
            profiles: Slab::with_capacity(size, Profile::vacant()),
            by_address: map_with_capacity(size, HashKey::derive(seed, "slots by address")),
            by_client_id: map_with_capacity(size, HashKey::derive(seed, "slots by client id")),
            undurable: 0,
            free: BinaryHeap::with_capacity(size),
            due_queue: VecDeque::with_capacity(size),
        }
    }

    /// Returns the number of slots.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns every slot that was ever used. The slots after them are free.
    #[inline]
    pub(super) fn used(&self) -> impl Iterator<Item = SlotIndex> + use<> {
        self.links.indices()
    }

    /// Takes the lowest free slot, or returns `None` if there is none.
    fn take_free(&mut self) -> Option<SlotIndex> {
        // Freed slots are lower than unused ones.
        if let Some(Reverse(slot)) = self.free.pop() {
            return Some(slot);
        }
        (self.links.len() < self.count as usize).then(|| {
            // The three arrays grow together, so one index is valid for all of them.
            self.timers.push(NO_TIMERS);
            self.profiles.push(Profile::vacant());
            self.links.push(SlotLink::vacant(0))
        })
    }

    /// Returns the number of live connections of which their clients may know.
    pub(super) fn connected(&self) -> u32 {
        self.by_client_id.len() as u32 - self.undurable
    }

    #[inline]
    pub(super) fn at_address(&self, address: &Address) -> Option<SlotIndex> {
        self.by_address.get(address).copied().map(|slot| SlotIndex(slot.into()))
    }

    pub(super) fn of_client(&self, client_id: ClientId) -> Option<SlotIndex> {
        self.by_client_id.get(&client_id).copied()
    }

    #[inline]
    pub(super) fn link(&self, slot: SlotIndex) -> &SlotLink {
        &self.links[slot]
    }

    #[inline]
    pub(super) fn link_mut(&mut self, slot: SlotIndex) -> &mut SlotLink {
        &mut self.links[slot]
    }

    #[inline]
    pub(super) fn profile(&self, slot: SlotIndex) -> &Profile {
        &self.profiles[slot]
    }

    pub(super) fn profile_mut(&mut self, slot: SlotIndex) -> &mut Profile {
        &mut self.profiles[slot]
    }

    /// Returns the handle of the slot's present connection.
    #[inline]
    pub(super) fn handle_for(&self, slot: SlotIndex) -> ClientHandle {
        self.handle_with(slot, self.links[slot].generation)
    }

    #[inline]
    const fn handle_with(&self, slot: SlotIndex, generation: u32) -> ClientHandle {
        // The cast is lossless: there are at most 65,536 slots.
        ClientHandle { shard: self.shard, slot: slot.0 as u16, generation }
    }

    /// Returns the slot and link of a live connection, or `None` if it has ended.
    #[inline]
    pub(super) fn get(&self, client: ClientHandle) -> Option<(SlotIndex, &SlotLink)> {
        // The handle comes from the application, so neither shard nor slot nor generation can be trusted.
        let link = self.links.lookup(client.slot()).filter(|_| client.shard == self.shard)?;
        (link.is_live() && link.generation == client.generation).then_some((client.slot(), link))
    }

    /// Returns when the last authentic packet of a connection arrived, even while it is closing.
    #[inline]
    pub(super) fn last_receive(&self, client: ClientHandle) -> Option<Instant> {
        let link = self.links.lookup(client.slot()).filter(|_| client.shard == self.shard)?;
        (link.generation == client.generation).then_some(link.last_receive)
    }

    /// Returns every live connection in the order of the slots.
    pub(super) fn iter(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        let handle =
            |(slot, link): (SlotIndex, &SlotLink)| link.is_live().then(|| self.handle_with(slot, link.generation));
        self.links.iter().filter_map(handle)
    }

    /// Gives a new client the lowest free slot (§1.12). Returns `None` if all slots are used.
    pub(super) fn assign(&mut self, client: NewClient, now: Instant) -> Option<ClientHandle> {
        let slot = self.take_free()?;
        Some(self.occupy(slot, client, now))
    }

    /// Gives a new client the slot of the client that it takes over. The old client gets no packet about it.
    pub(super) fn replace(&mut self, slot: SlotIndex, client: NewClient, now: Instant) -> ClientHandle {
        self.reset(slot);
        self.occupy(slot, client, now)
    }

    fn occupy(&mut self, slot: SlotIndex, client: NewClient, now: Instant) -> ClientHandle {
        let link = &mut self.links[slot];
        link.state = if client.address.is_some() { SlotState::Connected } else { SlotState::Loopback };
        link.index = client.index;
        link.address = client.address;
        // Window and generation were set when the slot was reset.
        link.keys = client.keys;
        link.lane = client.lane;
        link.timeout = client.timeout;
        link.last_receive = now;
        let profile = &mut self.profiles[slot];
        profile.client_id = client.client_id;
        profile.user_data = client.user_data;
        profile.age = client.age;
        self.undurable += 1;
        // The caller has checked that neither id nor address is in use.
        self.by_client_id.insert(client.client_id, slot);
        // A client in the same process has neither an address nor a timeout.
        if let Some(address) = client.address {
            self.by_address.insert(address, slot.0 as u16);
            self.on_received(slot, now);
        }
        self.handle_for(slot)
    }

    #[inline]
    pub(super) fn is_durable(&self, slot: SlotIndex) -> bool {
        self.links[slot].durable
    }

    /// Records that the token's record of a slot is durable.
    pub(super) fn set_durable(&mut self, slot: SlotIndex) {
        if !core::mem::replace(&mut self.links[slot].durable, true) {
            self.undurable -= 1;
        }
    }

    /// Restarts the timeout of a slot when an authentic packet has arrived.
    #[inline]
    pub(super) fn on_received(&mut self, slot: SlotIndex, now: Instant) {
        let link = &mut self.links[slot];
        link.last_receive = now;
        self.timers[slot].timeout = link.timeout.map_or(Instant::NEVER, |timeout| now.after(timeout));
    }

    /// Restarts the timeout of a slot when an authentic packet was read that may have arrived as early as `earliest`.
    pub(super) fn on_received_late(&mut self, slot: SlotIndex, earliest: Instant) {
        // A packet that was read before the server's sleep may be newer.
        let arrival = self.links[slot].last_receive.max(earliest);
        self.on_received(slot, arrival);
    }

    /// Postpones the timeout of a slot, although no packet was read, to `extension` from now, at most the whole
    /// timeout.
    pub(super) fn extend_timeout(&mut self, slot: SlotIndex, now: Instant, extension: Duration) {
        let timers = &mut self.timers[slot];
        // A timer that is off stays off: the slot is not connected.
        if let (Some(timeout), true) = (self.links[slot].timeout, timers.timeout != Instant::NEVER) {
            timers.timeout = timers.timeout.max(now.after(timeout.min(extension)));
        }
    }

    /// Returns whether a packet was sent in the slot. Before the first one, the client does not know of its slot.
    pub(super) fn has_sent(&self, slot: SlotIndex) -> bool {
        self.timers[slot].keep_alive != Instant::NEVER
    }

    /// Postpones the keep-alive of a slot to `next`, because a packet was sent.
    #[inline]
    pub(super) fn on_sent(&mut self, slot: SlotIndex, next: Instant) {
        self.timers[slot].keep_alive = next;
    }

    /// Returns the deadline of a slot that has passed, if any.
    #[inline]
    pub(super) fn expired_deadline(&self, slot: SlotIndex, now: Instant) -> Option<SlotDeadline> {
        let timers = &self.timers[slot];
        // A timeout comes first: a connection that ends needs no keep-alive.
        if timers.timeout <= now {
            Some(SlotDeadline::Timeout)
        } else {
            (timers.keep_alive <= now).then_some(SlotDeadline::KeepAlive)
        }
    }

    /// Adds due packets to a slot.
    pub(super) fn add_due(&mut self, slot: SlotIndex, more: DuePackets) {
        let link = &mut self.links[slot];
        link.due.keep_alive |= more.keep_alive;
        // The maximum, not the sum: repeated calls must not multiply packets.
        link.due.disconnects = link.due.disconnects.max(more.disconnects);
        if !link.in_due_queue {
            link.in_due_queue = true;
            self.due_queue.push_back(slot);
        }
    }

    /// Records that the due keep-alive of a slot was sent with a payload.
    pub(super) fn clear_due_keep_alive(&mut self, slot: SlotIndex) {
        self.links[slot].due.keep_alive = false;
    }

    /// Takes the next slot with due packets, and these packets.
    pub(super) fn next_due(&mut self) -> Option<(SlotIndex, DuePackets)> {
        let slot = self.due_queue.pop_front()?;
        let link = &mut self.links[slot];
        link.in_due_queue = false;
        Some((slot, core::mem::take(&mut link.due)))
    }

    pub(super) fn has_due(&self) -> bool {
        !self.due_queue.is_empty()
    }

    /// Ends the connection of a slot, which stays occupied until its disconnect packets are sent. Address and client id
    /// are free at once.
    pub(super) fn close(&mut self, slot: SlotIndex, disconnects: u8) {
        // A client that does not know of its slot would ignore a disconnect, so the keep-alive stays due.
        let keep_alive = !self.has_sent(slot);
        self.unlist(slot);
        let link = &mut self.links[slot];
        link.state = SlotState::Closing;
        link.due.keep_alive = keep_alive;
        self.add_due(slot, DuePackets { keep_alive: false, disconnects });
    }

    /// Frees a slot for the next client.
    pub(super) fn vacate(&mut self, slot: SlotIndex) {
        self.reset(slot);
        self.free.push(Reverse(slot));
    }

    /// Removes a slot's connection and starts the next generation.
    fn reset(&mut self, slot: SlotIndex) {
        self.unlist(slot);
        let client = self.handle_for(slot);
        let link = &mut self.links[slot];
        // The queue may still contain the slot. Clearing the flag would let it be queued twice.
        let in_due_queue = link.in_due_queue;
        // A generation repeats after 2^32 connections of one slot: at one per second, after 136 years.
        *link = SlotLink::vacant(link.generation.wrapping_add(1));
        link.in_due_queue = in_due_queue;
        let profile = &mut self.profiles[slot];
        // The application may receive the last payloads after the end. They are dropped at the slot's next end.
        let unreceived = profile.loopback.take().filter(|queues| !queues.to_client.is_empty());
        *profile = Profile::vacant();
        profile.unreceived = unreceived.map(|queues| (client, queues));
    }

    /// Returns the payloads for a client in the same process, even after its connection has ended.
    pub(super) fn loopback_payloads(&mut self, client: ClientHandle) -> Option<&mut PayloadQueue> {
        let is_live = self.get(client).is_some();
        let profile = self.profiles.lookup_mut(client.slot())?;
        let queues = if is_live {
            profile.loopback.as_mut()
        } else {
            profile.unreceived.as_mut().filter(|(ended, _)| *ended == client).map(|(_, queues)| queues)
        };
        queues.map(|queues| &mut queues.to_client)
    }

    /// Returns whether [`loopback_payloads`](Self::loopback_payloads) has a payload.
    pub(super) fn has_loopback_payloads(&self, client: ClientHandle) -> bool {
        let Some(profile) = self.profiles.lookup(client.slot()) else { return false };
        let queues = if self.get(client).is_some() {
            profile.loopback.as_ref()
        } else {
            profile.unreceived.as_ref().filter(|(ended, _)| *ended == client).map(|(_, queues)| queues)
        };
        queues.is_some_and(|queues| !queues.to_client.is_empty())
    }

    /// Removes a slot's connection from both maps and stops its timers.
    fn unlist(&mut self, slot: SlotIndex) {
        let link = &self.links[slot];
        // A closing slot was removed before, and its address may belong to another slot by now.
        if !link.is_live() {
            return;
        }
        self.undurable -= u32::from(!link.durable);
        if let Some(address) = link.address {
            self.by_address.remove(&address);
        }
        self.by_client_id.remove(&self.profiles[slot].client_id);
        // A closing slot must neither time out nor become due for a keep-alive.
        self.timers[slot] = NO_TIMERS;
    }
}

impl SlotLink {
    pub(super) fn vacant(generation: u32) -> Self {
        Self {
            state: SlotState::Free,
            generation,
            index: ClientIndex(0),
            address: None,
            keys: None,
            window: ReplayWindow::default(),
            lane: Lane::slot(0),
            timeout: None,
            last_receive: Instant::default(),
            confirmed: false,
            durable: false,
            turn: 0,
            turn_packets: 0,
            turn_forgeries: [0; 2],
            due: DuePackets::default(),
            in_due_queue: false,
        }
    }

    #[inline]
    fn is_live(&self) -> bool {
        matches!(self.state, SlotState::Connected | SlotState::Loopback)
    }
}

impl Profile {
    fn vacant() -> Self {
        let user_data = [0; USER_DATA_BYTES];
        Self { client_id: ClientId(0), user_data, age: None, loopback: None, unreceived: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn at(seconds: u64) -> Instant {
        Instant::from_start(Duration::from_secs(seconds))
    }

    fn new_client(number: u16) -> NewClient {
        NewClient {
            index: ClientIndex(number.into()),
            client_id: ClientId(number.into()),
            user_data: [0; USER_DATA_BYTES],
            age: None,
            address: Some(core::net::SocketAddr::from(([192, 0, 2, 1], 40_000 + number)).into()),
            keys: None,
            lane: Lane::slot(0),
            timeout: Some(TIMEOUT),
        }
    }

    #[test]
    fn there_are_as_many_slots_as_asked_for() {
        let mut slots = Slots::new(2, ShardId(0), &Seed::from([1; 32]));
        assert!((0..2).all(|number| slots.assign(new_client(number), at(10)).is_some()));
        assert!(slots.assign(new_client(2), at(10)).is_none());
    }

    #[test]
    fn number_of_a_handle_is_the_handle() {
        let client = ClientHandle { shard: ShardId(3), slot: 17, generation: 4 };
        assert_eq!(client.to_bits(), 0x0000_0004_0003_0011);
        assert_eq!(ClientHandle::from_bits(client.to_bits()), client);
    }

    #[test]
    fn a_packet_read_late_counts_from_when_it_may_have_arrived() {
        let mut slots = Slots::new(1, ShardId(0), &Seed::from([1; 32]));
        let client = slots.assign(new_client(0), at(10)).unwrap();
        for (earliest, last) in [(8, 10), (12, 12)] {
            slots.on_received_late(client.slot(), at(earliest));
            assert_eq!(slots.last_receive(client), Some(at(last)), "read late, at {earliest} s at the earliest");
        }
        assert_eq!(slots.expired_deadline(client.slot(), at(16)), None);
        assert_eq!(slots.expired_deadline(client.slot(), at(17)), Some(SlotDeadline::Timeout));
    }
}
