//! Checks the delivery promises of a channel with every message.

use std::collections::BTreeSet;

use slipgate_session::channel::{ChannelId, Kind, Layout};

/// Returns the content of a message: its number, as far as it fits, and bytes derived from it.
#[must_use]
pub fn message(channel: ChannelId, number: u32, bytes: usize) -> Vec<u8> {
    let head = number.to_le_bytes();
    let pattern = (0..).map(|at: u32| (at.wrapping_mul(31) ^ number.wrapping_mul(7) ^ u32::from(channel.0)) as u8);
    head.into_iter().chain(pattern).take(bytes).collect()
}

/// Returns the number of a message of at least four bytes.
///
/// # Panics
/// If it is shorter, or was not made by [`message`].
#[must_use]
pub fn number_of(channel: ChannelId, content: &[u8]) -> u32 {
    let number = u32::from_le_bytes(content[..4].try_into().unwrap());
    assert!(
        content == message(channel, number, content.len()),
        "message {number} of channel {} was altered",
        channel.0
    );
    number
}

/// The messages of one channel.
#[derive(Default)]
struct Log {
    sent: u32,
    /// All messages with lower numbers have arrived, except those in `missing`.
    next: u32,
    missing: BTreeSet<u32>,
    received: u32,
}

/// The messages that one end can expect of the other.
pub struct Expectation {
    kinds: Vec<Kind>,
    logs: Vec<Log>,
}

impl Expectation {
    /// Creates the state before the first message.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        let kinds: Vec<Kind> = layout.channels().map(|config| config.kind).collect();
        Self { logs: kinds.iter().map(|_| Log::default()).collect(), kinds }
    }

    /// Returns the number of messages sent.
    #[must_use]
    pub fn sent(&self, channel: ChannelId) -> u32 {
        self.logs[usize::from(channel.0)].sent
    }

    /// Records a sent message.
    pub fn note_sent(&mut self, channel: ChannelId) {
        self.logs[usize::from(channel.0)].sent += 1;
    }

    /// Returns the number of messages that arrived.
    #[must_use]
    pub fn arrived(&self, channel: ChannelId) -> u32 {
        self.logs[usize::from(channel.0)].received
    }

    /// Returns whether all messages of reliable channels have arrived.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.kinds.iter().zip(&self.logs).all(|(kind, log)| !kind.is_reliable() || log.received == log.sent)
    }

    /// Records an arrived message.
    ///
    /// # Panics
    /// If the arrival breaks the promise of the channel.
    pub fn received(&mut self, channel: ChannelId, content: &[u8]) {
        let number = number_of(channel, content);
        let (kind, log) = (self.kinds[usize::from(channel.0)], &mut self.logs[usize::from(channel.0)]);
        assert!(number < log.sent, "{kind:?}: message {number} was never sent");
        let is_new = number >= log.next || log.missing.contains(&number);
        assert!(is_new, "{kind:?}: message {number} arrived twice");
        match kind {
            Kind::Sequenced => assert!(number >= log.next, "message {number} arrived after number {}", log.next),
            Kind::ReliableOrdered => assert_eq!(number, log.next, "out of order"),
            Kind::Unreliable | Kind::ReliableUnordered | Kind::Transfers => {}
        }
        log.missing.extend(log.next..number);
        log.missing.remove(&number);
        log.next = log.next.max(number + 1);
        log.received += 1;
    }
}
