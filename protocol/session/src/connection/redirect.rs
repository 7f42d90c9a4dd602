//! A connect token on its way from a server to its client, in parts: the client continues at the token's servers
//! (`specs/session-1.md`, §5.12).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use zeroize::Zeroizing;

use crate::channel::control::{PART_BYTES, RedirectPart};
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::CONNECT_TOKEN_BYTES;

/// The interval between two packets with the same part: that of close messages.
const PART_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum number of packets that are remembered with their parts: all of the first second.
const MAX_REMEMBERED: usize = 64;

/// The parts that the client has not acknowledged.
pub(super) struct RedirectSender {
    token: ConnectToken,
    token_bytes: u16,
    acked: PartSet,
    /// The newest packets, with the index of the part in each.
    sent: VecDeque<(Sequence, u8)>,
    since: Option<Instant>,
    next_send: Instant,
}

impl RedirectSender {
    pub(super) fn new(token: ConnectToken) -> Self {
        // A client restores the zeros at the end.
        let end = token.as_bytes().iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        Self {
            token,
            token_bytes: end as u16,
            acked: PartSet::default(),
            sent: VecDeque::new(),
            since: None,
            next_send: Instant::default(),
        }
    }

    /// Returns the next part that is not acknowledged, from this index on.
    pub(super) fn next_part(&self, from: u8) -> Option<RedirectPart<'_>> {
        let index = (from..self.count()).find(|index| !self.acked.has(*index))?;
        let start = usize::from(index) * PART_BYTES;
        let length = RedirectPart::length(self.token_bytes, index)?;
        let bytes = self.token.as_bytes().get(start..start + length)?;
        Some(RedirectPart { token_bytes: self.token_bytes, index, bytes })
    }

    fn count(&self) -> u8 {
        count(self.token_bytes)
    }

    /// Records that a packet with a part has left.
    pub(super) fn on_sent(&mut self, packet: Sequence, index: u8) {
        if self.sent.len() >= MAX_REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((packet, index));
    }

    /// Records that a packet was acknowledged.
    pub(super) fn on_acked(&mut self, packet: Sequence) {
        if let Some((_, index)) = self.sent.iter().find(|(sent, _)| *sent == packet) {
            self.acked.add(*index);
        }
    }

    /// Returns whether no part is sent any more: the client has all of them, or the time since the first is up.
    pub(super) fn is_over(&self, now: Instant, limit: Duration) -> bool {
        self.acked.has_all(self.count()) || self.since.is_some_and(|since| now.reached(since, limit))
    }

    /// Returns when the missing parts are sent again.
    pub(super) fn deadline(&self, now: Instant, limit: Duration) -> Instant {
        if self.is_over(now, limit) { now } else { self.next_send }
    }

    /// Records that all missing parts have left.
    pub(super) fn on_round_sent(&mut self, now: Instant) {
        self.since.get_or_insert(now);
        self.next_send = now.after(PART_INTERVAL);
    }
}

/// The parts that a client has received.
pub(super) struct RedirectedToken {
    bytes: Box<Zeroizing<[u8; CONNECT_TOKEN_BYTES]>>,
    /// The bytes of the whole token, by the first part.
    token_bytes: u16,
    received: PartSet,
}

impl RedirectedToken {
    /// Begins with the first part that arrived.
    pub(super) fn new(first: &RedirectPart<'_>) -> Self {
        let bytes = Box::new(Zeroizing::new([0; CONNECT_TOKEN_BYTES]));
        let mut token = Self { bytes, token_bytes: first.token_bytes, received: PartSet::default() };
        token.add(first);
        token
    }

    /// Stores a part. A repeated part, and one of another token, has no effect.
    pub(super) fn add(&mut self, part: &RedirectPart<'_>) {
        if part.token_bytes != self.token_bytes || self.received.has(part.index) {
            return;
        }
        let start = usize::from(part.index) * PART_BYTES;
        if let Some(place) = self.bytes.get_mut(start..start + part.bytes.len()) {
            place.copy_from_slice(part.bytes);
            self.received.add(part.index);
        }
    }

    /// Returns the token, `None` if parts are missing or it is malformed.
    pub(super) fn token(&self) -> Option<ConnectToken> {
        let is_complete = self.received.has_all(count(self.token_bytes));
        if is_complete { ConnectToken::from_bytes(self.bytes.as_slice()).ok() } else { None }
    }
}

/// Returns the number of parts of a token: at most 6.
fn count(token_bytes: u16) -> u8 {
    usize::from(token_bytes).div_ceil(PART_BYTES) as u8
}

/// A set of indices of parts. Their number is at most 6 by the maximum length of a token.
#[derive(Clone, Copy, Default)]
struct PartSet(u8);

impl PartSet {
    const fn has(self, index: u8) -> bool {
        index >= 8 || self.0 & (1 << index) != 0
    }

    const fn add(&mut self, index: u8) {
        debug_assert!(index < 8, "a token has at most 6 parts");
        self.0 |= 1 << (index % 8);
    }

    fn has_all(self, count: u8) -> bool {
        (0..count).all(|index| self.has(index))
    }
}
