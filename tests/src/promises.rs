//! What channels promise, kept in a ledger: every message that was sent, and whether what arrives may arrive.
//!
//! Messages begin with their number on their channel, so that each can be told from all others.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::time::Instant;
use slipgate_session::channel::{ChannelConfig, Fate, Kind, Layout, PIECE_BYTES, SendOptions};

/// Bytes of a message's number.
pub const NUMBER_BYTES: usize = 4;

/// Noise of which all messages are cut, so that none of them is known from another.
pub struct Noise(Vec<u8>);

impl Noise {
    /// The noise of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut noise = vec![0; 1 << 18];
        StdRng::seed_from_u64(seed).fill(&mut noise[..]);
        Self(noise)
    }

    /// A piece of it, another one for each number.
    #[must_use]
    pub fn cut(&self, number: u32, bytes: usize) -> &[u8] {
        let at = number as usize * 977 % (self.0.len() - bytes.max(1));
        &self.0[at..at + bytes]
    }
}

/// A message that was sent.
struct Sent {
    bytes: usize,
    deadline: Option<Instant>,
    key: Option<u64>,
    /// A newer one under the same key was sent.
    replaced: bool,
    arrived: bool,
    receipt: Receipt,
}

/// What its sender was told of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receipt {
    NotAsked,
    Awaited,
    Told(Fate),
}

impl Sent {
    /// Whether a reliable channel still has to deliver it.
    const fn is_owed(&self) -> bool {
        self.deadline.is_none() && !self.replaced && !self.arrived
    }
}

/// All messages of one channel in one direction.
pub struct Ledger {
    kind: Kind,
    messages: Vec<Sent>,
    /// The newest message under each key.
    keys: BTreeMap<u64, u32>,
    /// The newest that arrived, of those without a key and of each key.
    newest: BTreeMap<Option<u64>, u32>,
    /// Messages that must still arrive: reliable ones without a deadline that no newer one has replaced.
    owed: usize,
    arrived: usize,
    room: Vec<u8>,
}

impl Ledger {
    /// The ledger of a channel of this kind.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        let (messages, keys, newest, room) = (Vec::new(), BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { kind, messages, keys, newest, owed: 0, arrived: 0, room }
    }

    /// How many messages were sent.
    #[must_use]
    pub const fn sent(&self) -> usize {
        self.messages.len()
    }

    /// How many messages arrived.
    #[must_use]
    pub const fn arrived(&self) -> usize {
        self.arrived
    }

    /// How many messages must still arrive.
    #[must_use]
    pub const fn owed(&self) -> usize {
        self.owed
    }

    /// The number of the next message: what one that asks for a receipt has for a tag.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.messages.len() as u64
    }

    /// The next message, of at least [`NUMBER_BYTES`].
    pub fn compose(&mut self, noise: &Noise, bytes: usize) -> &[u8] {
        let number = self.messages.len() as u32;
        self.room.clear();
        self.room.extend_from_slice(&number.to_le_bytes());
        self.room.extend_from_slice(noise.cut(number, bytes - NUMBER_BYTES));
        &self.room
    }

    /// The message that was composed last was taken by the channel.
    pub fn note_sent(&mut self, options: SendOptions, now: Instant) {
        let number = self.messages.len() as u32;
        let deadline = options.deadline.map(|after| now.after(after));
        self.messages.push(Sent {
            bytes: self.room.len(),
            deadline,
            key: options.key,
            replaced: false,
            arrived: false,
            receipt: if options.receipt.is_some() { Receipt::Awaited } else { Receipt::NotAsked },
        });
        self.owed += usize::from(self.kind.is_reliable() && deadline.is_none());
        if let Some(older) = options.key.and_then(|key| self.keys.insert(key, number)) {
            self.change(older, |message| message.replaced = true);
        }
    }

    /// Changes what is known of a message.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut Sent)) {
        let message = &mut self.messages[number as usize];
        let before = message.is_owed();
        change(message);
        self.owed -= usize::from(self.kind.is_reliable() && before && !message.is_owed());
    }

    /// A message has arrived. What leaves before its deadline arrives within `longest`, if the path says so.
    ///
    /// # Panics
    /// When the channel's promise is broken.
    pub fn note_arrived(&mut self, message: &[u8], noise: &Noise, longest: Option<Duration>, now: Instant) {
        let number = u32::from_le_bytes(message[..NUMBER_BYTES].try_into().expect("four bytes"));
        let sent = self.messages.get(number as usize).expect("nobody sent this message");
        assert_eq!(message.len(), sent.bytes, "message {number} has another length");
        assert!(
            message[NUMBER_BYTES..] == *noise.cut(number, sent.bytes - NUMBER_BYTES),
            "message {number} was changed"
        );
        assert!(!sent.arrived, "message {number} came twice");
        if matches!(self.kind, Kind::Sequenced | Kind::ReliableOrdered) {
            // One that replaces a waiting one takes its place: it may come before older ones of other keys.
            let newest = self.newest.get(&sent.key);
            assert!(newest.is_none_or(|newest| *newest < number), "{number} came after {newest:?}");
        }
        if let (Some(deadline), Some(longest)) = (sent.deadline, longest)
            && self.kind != Kind::ReliableOrdered
        {
            let (kind, late) = (self.kind, now.since(deadline.after(longest)));
            assert!(late.is_zero(), "{kind:?}: message {number} of {} bytes left {late:?} too late", sent.bytes);
        }
        self.newest.insert(sent.key, number);
        self.arrived += 1;
        self.change(number, |message| message.arrived = true);
    }
}

impl Ledger {
    /// The sender was told of a message.
    ///
    /// # Panics
    /// When nobody asked, when it was told before, or when it is not so.
    pub fn note_receipt(&mut self, tag: u64, fate: Fate) {
        let number = u32::try_from(tag).expect("a tag is a number here");
        let kind = self.kind;
        let sent = self.messages.get_mut(number as usize).expect("nobody sent this message");
        assert_eq!(sent.receipt, Receipt::Awaited, "{kind:?}: message {number} is told to be {fate:?}");
        sent.receipt = Receipt::Told(fate);
        let (arrived, keyed) = (sent.arrived, sent.key.is_some());
        match fate {
            Fate::Arrived => {
                // One that replaced a waiting one has left before older ones.
                let has_newer = || self.newest.values().any(|newest| keyed || *newest > number);
                let is_passed_over = || kind == Kind::Sequenced && has_newer();
                assert!(arrived || is_passed_over(), "{kind:?}: message {number} has not arrived");
            }
            Fate::Lost => assert!(!kind.is_reliable(), "{kind:?}: message {number} leaves again"),
            Fate::Expired => assert!(sent.deadline.is_some(), "{kind:?}: message {number} may wait for ever"),
            Fate::Superseded => assert!(sent.replaced, "{kind:?}: message {number} is the newest under its key"),
            _ => panic!("{kind:?}: what is {fate:?}?"),
        }
    }

    /// How many receipts were told, and how many are awaited.
    #[must_use]
    pub fn receipts(&self) -> (usize, usize) {
        let count = |is: fn(Receipt) -> bool| self.messages.iter().filter(|sent| is(sent.receipt)).count();
        (count(|receipt| matches!(receipt, Receipt::Told(_))), count(|receipt| receipt == Receipt::Awaited))
    }
}

/// The most bytes that the messages of a connection with this layout may take, those that leave and those that arrive.
#[must_use]
pub fn most_memory(layout: &Layout) -> usize {
    /// A piece with its number, its length and its link; and as many as are asked for at once, for each of two stores.
    const PIECE: usize = PIECE_BYTES + 8;
    const GROUPS: usize = 2 * 32;
    let pieces: usize = layout.channels().map(most_pieces).sum();
    (pieces + GROUPS) * PIECE
}

fn most_pieces(config: &ChannelConfig) -> usize {
    /// Messages of a channel without repetitions that wait for slices: so many, and as long as so many of the longest.
    const PARTIALS: (usize, usize) = (16, 4);
    let pieces = |messages: usize, bytes: usize| messages + bytes / PIECE_BYTES;
    let queue = pieces(config.queue_messages.into(), config.queue_bytes as usize);
    match config.kind {
        Kind::Blocks => 0,
        Kind::ReliableUnordered | Kind::ReliableOrdered => 2 * queue,
        Kind::Unreliable | Kind::Sequenced => {
            queue + pieces(PARTIALS.0 + 1, PARTIALS.1 * config.max_message_bytes as usize)
        }
    }
}
