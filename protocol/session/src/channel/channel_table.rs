//! The channels of one connection in one list: all state of a channel lies together.
//!
//! `scheduling` decides which channel writes, `send` and `recv` what its frames mean.

use alloc::boxed::Box;

use crate::channel::config::{ChannelConfig, ChannelId, Kind};
use crate::channel::layout::Layout;
use crate::channel::recv::receiver::ChannelReceiver;
use crate::channel::scheduling::send_budget::ChannelBurst;
use crate::channel::scheduling::turn::{ChannelTurn, QUANTUM_BYTES};
use crate::channel::send::sender::ChannelSender;
use crate::channel::stats::ChannelStats;
use slipgate_netcode::slab::MustExist;

/// One channel: when it writes, what it sends and what it receives.
pub(crate) struct ChannelState {
    pub(crate) kind: Kind,
    pub(crate) turn: ChannelTurn,
    pub(crate) burst: ChannelBurst,
    pub(crate) stats: ChannelStats,
    pub(crate) sender: ChannelSender,
    pub(crate) receiver: ChannelReceiver,
}

impl ChannelState {
    fn new(config: &ChannelConfig, layout: &Layout) -> Self {
        Self {
            kind: config.kind,
            turn: ChannelTurn::new(config, layout),
            burst: ChannelBurst::default(),
            stats: ChannelStats::default(),
            sender: ChannelSender::new(config),
            receiver: ChannelReceiver::new(config.kind),
        }
    }
}

/// The channels of one connection, by id. Sets of channels are masks with one bit for each.
pub(crate) struct ChannelTable {
    channels: Box<[ChannelState]>,
    /// The channels that may have data to send; all others have none.
    pub(crate) pending: u64,
    /// The channels that had data to send when the last packet began.
    pub(crate) was_ready: u64,
    /// Bytes of a turn in the packet that is being written.
    pub(crate) quantum_bytes: usize,
    /// The number of the tick, wrapping.
    pub(crate) tick: u32,
    /// Whether any channel has a limit of bytes in a tick.
    pub(crate) has_limits: bool,
}

impl ChannelTable {
    pub(crate) fn new(layout: &Layout) -> Self {
        Self {
            channels: layout.channels().map(|config| ChannelState::new(config, layout)).collect(),
            pending: 0,
            was_ready: 0,
            quantum_bytes: QUANTUM_BYTES,
            tick: 0,
            has_limits: layout.channels().any(|config| config.bytes_per_tick.is_some()),
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.channels.len()
    }

    #[inline]
    pub(crate) fn get(&self, channel: ChannelId) -> Option<&ChannelState> {
        self.channels.get(usize::from(channel.0))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, channel: ChannelId) -> Option<&mut ChannelState> {
        self.channels.get_mut(usize::from(channel.0))
    }

    /// Returns the sender of a channel that may have data to send from now on.
    #[inline]
    pub(crate) fn pending_sender(&mut self, channel: ChannelId) -> Option<&mut ChannelSender> {
        self.set_pending(channel);
        self.get_mut(channel).must_exist("a channel of the layout").map(|state| &mut state.sender)
    }

    /// Records that a channel may have data to send.
    #[inline]
    pub(crate) const fn set_pending(&mut self, channel: ChannelId) {
        self.pending |= 1 << channel.0;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ChannelId, &ChannelState)> {
        (0..).map(ChannelId).zip(&self.channels)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ChannelState> {
        self.channels.iter_mut()
    }
}

/// Iterates over the channels of a mask, in the order of their ids.
pub(crate) fn channels_in(mut mask: u64) -> impl Iterator<Item = ChannelId> {
    core::iter::from_fn(move || {
        let channel = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (channel < u64::BITS).then_some(ChannelId(channel as u8))
    })
}
