//! Checks the delivery promises of channels: records every message sent, and checks each arrival against it.
//!
//! Each message begins with its number on its channel, so that all messages differ.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::time::Instant;
use slipgate_session::channel::{ChannelConfig, DeliveryStatus, Kind, Layout, PIECE_BYTES, SendOptions};

/// The size of the number in a message, in bytes.
pub const NUMBER_BYTES: usize = 4;

/// Random bytes that all messages are cut from, so that one message cannot be derived from another.
pub struct Noise(Vec<u8>);

impl Noise {
    /// Creates the noise of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut noise = vec![0; 1 << 18];
        StdRng::seed_from_u64(seed).fill(&mut noise[..]);
        Self(noise)
    }

    /// Returns a part of the noise, another one for each number.
    #[must_use]
    pub fn cut(&self, number: u32, bytes: usize) -> &[u8] {
        let start = number as usize * 977 % (self.0.len() - bytes.max(1));
        &self.0[start..start + bytes]
    }
}

/// A message that was sent.
struct Sent {
    bytes: usize,
    deadline: Option<Instant>,
    key: Option<u64>,
    /// Whether a newer message under the same key was sent.
    replaced: bool,
    arrived: bool,
    receipt: Receipt,
}

/// The receipt that the sender of a message got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receipt {
    NotAsked,
    Awaited,
    Reported(DeliveryStatus),
}

impl Sent {
    /// Returns whether a reliable channel still has to deliver it.
    const fn is_owed(&self) -> bool {
        self.deadline.is_none() && !self.replaced && !self.arrived
    }
}

/// Records all messages of one channel in one direction and checks their delivery.
pub struct DeliveryOracle {
    kind: Kind,
    messages: Vec<Sent>,
    /// The newest message under each key.
    keys: BTreeMap<u64, u32>,
    /// The newest message that arrived, for each key and for messages without one.
    newest: BTreeMap<Option<u64>, u32>,
    /// Messages that must still arrive: reliable ones without a deadline that no newer message replaced.
    owed: usize,
    arrived: usize,
    buf: Vec<u8>,
}

impl DeliveryOracle {
    /// Creates the record of a channel of this kind.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        let (messages, keys, newest, buf) = (Vec::new(), BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { kind, messages, keys, newest, owed: 0, arrived: 0, buf }
    }

    /// Returns the number of messages sent.
    #[must_use]
    pub const fn sent(&self) -> usize {
        self.messages.len()
    }

    /// Returns the number of messages that arrived.
    #[must_use]
    pub const fn arrived(&self) -> usize {
        self.arrived
    }

    /// Returns the number of messages that must still arrive.
    #[must_use]
    pub const fn owed(&self) -> usize {
        self.owed
    }

    /// Returns the number of the next message, which is also the tag of its receipt.
    #[must_use]
    pub const fn next_number(&self) -> u64 {
        self.messages.len() as u64
    }

    /// Composes the next message, of at least [`NUMBER_BYTES`].
    pub fn compose(&mut self, noise: &Noise, bytes: usize) -> &[u8] {
        let number = self.messages.len() as u32;
        self.buf.clear();
        self.buf.extend_from_slice(&number.to_le_bytes());
        self.buf.extend_from_slice(noise.cut(number, bytes - NUMBER_BYTES));
        &self.buf
    }

    /// Records that the channel accepted the message that was composed last.
    pub fn note_sent(&mut self, options: SendOptions, now: Instant) {
        let number = self.messages.len() as u32;
        let deadline = options.deadline.map(|after| now.after(after));
        self.messages.push(Sent {
            bytes: self.buf.len(),
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

    /// Changes the record of a message.
    fn change(&mut self, number: u32, change: impl FnOnce(&mut Sent)) {
        let message = &mut self.messages[number as usize];
        let before = message.is_owed();
        change(message);
        self.owed -= usize::from(self.kind.is_reliable() && before && !message.is_owed());
    }

    /// Records an arrived message. A message sent before its deadline arrives within `longest`, if the path guarantees
    /// one.
    ///
    /// # Panics
    /// If the arrival breaks the promise of the channel.
    pub fn note_arrived(&mut self, message: &[u8], noise: &Noise, longest: Option<Duration>, now: Instant) {
        let number = u32::from_le_bytes(message[..NUMBER_BYTES].try_into().expect("four bytes"));
        let sent = self.messages.get(number as usize).expect("this message was sent");
        assert_eq!(message.len(), sent.bytes, "message {number} has another length");
        assert!(
            message[NUMBER_BYTES..] == *noise.cut(number, sent.bytes - NUMBER_BYTES),
            "message {number} was altered"
        );
        assert!(!sent.arrived, "message {number} arrived twice");
        if matches!(self.kind, Kind::Sequenced | Kind::ReliableOrdered) {
            // A message that replaces a queued one takes its position: it may arrive before older ones of other keys.
            let newest = self.newest.get(&sent.key);
            assert!(newest.is_none_or(|newest| *newest < number), "message {number} arrived after {newest:?}");
        }
        if let (Some(deadline), Some(longest)) = (sent.deadline, longest)
            && self.kind != Kind::ReliableOrdered
        {
            let (kind, late) = (self.kind, now.since(deadline.after(longest)));
            assert!(late.is_zero(), "{kind:?}: message {number} of {} bytes was sent {late:?} too late", sent.bytes);
        }
        self.newest.insert(sent.key, number);
        self.arrived += 1;
        self.change(number, |message| message.arrived = true);
    }
}

impl DeliveryOracle {
    /// Records the receipt of a message.
    ///
    /// # Panics
    /// If none was requested, if it is the second one, or if it is false.
    pub fn note_receipt(&mut self, tag: u64, status: DeliveryStatus) {
        let number = u32::try_from(tag).expect("a tag is the number of a message");
        let kind = self.kind;
        let sent = self.messages.get_mut(number as usize).expect("this message was sent");
        // A lost message may be acked after all. Then a second receipt follows, once.
        let is_late = status == DeliveryStatus::ArrivedLate;
        let before = if is_late { Receipt::Reported(DeliveryStatus::Lost) } else { Receipt::Awaited };
        assert_eq!(sent.receipt, before, "{kind:?}: unexpected receipt of message {number}: {status:?}");
        sent.receipt = Receipt::Reported(status);
        let (arrived, keyed) = (sent.arrived, sent.key.is_some());
        match status {
            DeliveryStatus::Arrived | DeliveryStatus::ArrivedLate => {
                // A message that replaced a queued one was sent before older ones.
                let has_newer = || self.newest.values().any(|newest| keyed || *newest > number);
                let is_passed_over = || kind == Kind::Sequenced && has_newer();
                assert!(arrived || is_passed_over(), "{kind:?}: message {number} has not arrived");
            }
            DeliveryStatus::Lost => {
                assert!(!kind.is_reliable(), "{kind:?}: message {number} must be retransmitted, not lost")
            }
            DeliveryStatus::Expired => assert!(sent.deadline.is_some(), "{kind:?}: message {number} has no deadline"),
            DeliveryStatus::Superseded => {
                assert!(sent.replaced, "{kind:?}: message {number} is the newest under its key")
            }
            _ => panic!("{kind:?}: unknown status {status:?}"),
        }
    }

    /// Returns the number of receipts that arrived, and of those still awaited.
    #[must_use]
    pub fn receipts(&self) -> (usize, usize) {
        let count = |is: fn(Receipt) -> bool| self.messages.iter().filter(|sent| is(sent.receipt)).count();
        (count(|receipt| matches!(receipt, Receipt::Reported(_))), count(|receipt| receipt == Receipt::Awaited))
    }
}

/// Returns the maximum memory of the messages of a connection with this layout, sent and received, in bytes.
#[must_use]
pub fn max_memory(layout: &Layout) -> usize {
    /// The size of a chunk with its number, its length and its link; and the chunks that each of the two pools
    /// allocates at once.
    const CHUNK: usize = PIECE_BYTES + 8;
    const GROUPS: usize = 2 * 32;
    let pieces: usize = layout.channels().map(max_chunks).sum();
    (pieces + GROUPS) * CHUNK
}

fn max_chunks(config: &ChannelConfig) -> usize {
    /// Incomplete messages of a channel without retransmission: their maximum number, and their maximum size in units
    /// of the largest message.
    const PARTIALS: (usize, usize) = (16, 4);
    let pieces = |messages: usize, bytes: usize| messages + bytes / PIECE_BYTES;
    let queue = pieces(config.queue_messages.into(), config.queue_bytes as usize);
    match config.kind {
        Kind::Transfers => 0,
        Kind::ReliableUnordered | Kind::ReliableOrdered => 2 * queue,
        Kind::Unreliable | Kind::Sequenced => {
            queue + pieces(PARTIALS.0 + 1, PARTIALS.1 * config.max_message_bytes as usize)
        }
    }
}
