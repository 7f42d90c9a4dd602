//! The turn of one channel: what it has written, and how long it has waited. `scheduler` compares the turns.

use crate::channel::config::{ChannelConfig, ChannelId};
use crate::channel::layout::Layout;
use slipgate_netcode::time::Instant;

/// Bytes of frames in a turn, in packets that have room for more.
pub const QUANTUM_BYTES: usize = 1024;
/// How far the virtual time of a channel of weight 1 advances for each byte.
const STRIDE: u64 = 1 << 16;

/// The scheduling state of one channel, and its settings.
pub(crate) struct ChannelTurn {
    pub(crate) priority: u8,
    /// The first channel of the same priority.
    pub(crate) class: ChannelId,
    weight: u16,
    /// Bytes of frames that may leave in a tick.
    pub(crate) per_tick: i64,
    /// Bytes that may leave in this tick. Below zero when more did.
    pub(crate) allowance: i64,
    /// The bytes that the channel has sent, divided by its weight. The channel with the least goes first (stride
    /// scheduling, Waldspurger 1995).
    pub(crate) virtual_time: u64,
    /// In the first channel of a class: the virtual time of the channel of the class which wrote last. A channel that
    /// becomes ready starts there, so that it gets no credit for the time without data.
    pub(crate) class_time: u64,
    /// When the channel last had a turn.
    pub(crate) last_turn: Instant,
    /// Bytes of frames since then.
    written: usize,
    /// Since when the channel has had data to send without a turn. The data may have been discarded since.
    pub(crate) waiting_since: Option<Instant>,
}

impl ChannelTurn {
    pub(crate) fn new(config: &ChannelConfig, layout: &Layout) -> Self {
        let per_tick = config.bytes_per_tick.map_or(i64::MAX, i64::from);
        let class = layout.channels().position(|other| other.priority == config.priority).unwrap_or(0);
        Self {
            priority: config.priority,
            class: ChannelId(class as u8),
            weight: config.weight,
            per_tick,
            allowance: per_tick,
            virtual_time: 0,
            class_time: 0,
            last_turn: Instant::default(),
            written: 0,
            waiting_since: None,
        }
    }

    /// Returns whether the channel may send more in this tick.
    #[inline]
    pub(crate) const fn allows(&self) -> bool {
        self.allowance > 0
    }

    /// Notes that a packet is written while the channel has data to send, which has waited since then.
    #[inline]
    pub(crate) fn on_waiting(&mut self, since: Instant) {
        self.waiting_since.get_or_insert(since);
    }

    /// Ends the channel's turn: later data starts to wait from then on.
    #[inline]
    pub(crate) const fn finish(&mut self, now: Instant) {
        (self.last_turn, self.written, self.waiting_since) = (now, 0, None);
    }

    /// Charges a frame of this many bytes.
    #[inline]
    pub(crate) fn charge(&mut self, bytes: usize, quantum_bytes: usize, now: Instant) {
        self.written += bytes;
        // Enough for a turn: the channel is not starved any more.
        if self.written >= quantum_bytes {
            self.finish(now);
        }
        // 64 bits: at 1 GB/s of weight 1 this overflows after three days of one connection at full rate.
        self.virtual_time += bytes as u64 * STRIDE / u64::from(self.weight.max(1));
        self.allowance = self.allowance.saturating_sub(bytes as i64);
    }
}
