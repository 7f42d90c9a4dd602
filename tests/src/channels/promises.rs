//! What a receiver is promised, checked with every message.

use std::collections::BTreeSet;

use slipgate_session::channel::{ChannelId, Kind, Layout};

/// The content of a message: its number as far as there is room for it, and bytes that follow from it.
#[must_use]
pub fn message(channel: ChannelId, number: u32, bytes: usize) -> Vec<u8> {
    let head = number.to_le_bytes();
    let pattern = (0..).map(|at: u32| (at.wrapping_mul(31) ^ number.wrapping_mul(7) ^ u32::from(channel.0)) as u8);
    head.into_iter().chain(pattern).take(bytes).collect()
}

/// The number of a message of at least four bytes.
///
/// # Panics
/// When it is shorter, or not one of [`message`].
#[must_use]
pub fn number_of(channel: ChannelId, content: &[u8]) -> u32 {
    let number = u32::from_le_bytes(content[..4].try_into().unwrap());
    assert!(
        content == message(channel, number, content.len()),
        "message {number} of channel {} is not whole",
        channel.0
    );
    number
}

/// What has come of one channel.
#[derive(Default)]
struct Log {
    sent: u32,
    /// Numbers below this have all come, but for those of `missing`.
    next: u32,
    missing: BTreeSet<u32>,
    received: u32,
}

/// What one end may expect of the other.
pub struct Expectation {
    kinds: Vec<Kind>,
    logs: Vec<Log>,
}

impl Expectation {
    /// Nothing has been sent yet.
    #[must_use]
    pub fn new(layout: &Layout) -> Self {
        let kinds: Vec<Kind> = layout.channels().map(|config| config.kind).collect();
        Self { logs: kinds.iter().map(|_| Log::default()).collect(), kinds }
    }

    /// How many messages were sent.
    #[must_use]
    pub fn sent(&self, channel: ChannelId) -> u32 {
        self.logs[usize::from(channel.0)].sent
    }

    /// Another message was sent.
    pub fn note_sent(&mut self, channel: ChannelId) {
        self.logs[usize::from(channel.0)].sent += 1;
    }

    /// How many messages have come.
    #[must_use]
    pub fn arrived(&self, channel: ChannelId) -> u32 {
        self.logs[usize::from(channel.0)].received
    }

    /// Whether all messages of reliable channels have come.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.kinds.iter().zip(&self.logs).all(|(kind, log)| !kind.is_reliable() || log.received == log.sent)
    }

    /// A message has come.
    ///
    /// # Panics
    /// When that breaks the channel's promise.
    pub fn received(&mut self, channel: ChannelId, content: &[u8]) {
        let number = number_of(channel, content);
        let (kind, log) = (self.kinds[usize::from(channel.0)], &mut self.logs[usize::from(channel.0)]);
        assert!(number < log.sent, "{kind:?}: message {number} was never sent");
        let is_new = number >= log.next || log.missing.contains(&number);
        assert!(is_new, "{kind:?}: message {number} came twice");
        match kind {
            Kind::Sequenced => assert!(number >= log.next, "{number} came after {}", log.next),
            Kind::ReliableOrdered => assert_eq!(number, log.next, "out of order"),
            Kind::Unreliable | Kind::ReliableUnordered | Kind::Blocks => {}
        }
        log.missing.extend(log.next..number);
        log.missing.remove(&number);
        log.next = log.next.max(number + 1);
        log.received += 1;
    }
}
