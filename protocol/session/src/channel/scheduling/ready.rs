//! Which channels may send now, which one comes first, and when a channel that must wait may send.

use core::time::Duration;

use crate::channel::channels::Channels;
use crate::channel::chunks::RETENTION;
use crate::channel::config::ChannelId;
use crate::channel::transfer_channel::TransferChannel;
use slipgate_netcode::time::Instant;

impl Channels {
    /// Returns whether a frame could be written now.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        !self.is_idle() && self.waiting_channels().any(|channel| self.scheduler.allows(channel))
    }

    /// Returns whether no channel is known to have data to send, without a walk over the channels.
    fn is_idle(&self) -> bool {
        debug_assert!(!self.is_idle || self.waiting_channels().next().is_none(), "idle channels have no data");
        self.is_idle
    }

    /// Records after a packet whether any channel still has data to send.
    pub(crate) fn update_idle(&mut self) {
        // Transfers become ready without a call that would end the idle time, for example when a piece is hashed.
        let has_transfers = self.transfers.iter().any(|transfers| transfers.get().is_some());
        self.is_idle = !has_transfers && self.waiting_channels().next().is_none();
    }

    /// Returns when there is work that no datagram triggers: hashing, unpolled receipts, a channel that waits for the
    /// next tick, or memory to free; `NEVER` if there is none. The next tick begins after `tick`.
    pub(crate) fn next_deadline(&self, now: Instant, tick: Duration) -> Instant {
        // The owner of a grant schedules the hashing.
        let hashes = self.hashing.is_none() && self.has_transfers_to_hash();
        if hashes || self.context.receipts.has_events() {
            return now;
        }
        // The bytes per tick are used up: only the next tick lets the channel send.
        if self.waits_for_tick() {
            return now.after(tick);
        }
        if self.memory_bytes() > 0 { now.after(RETENTION) } else { Instant::NEVER }
    }

    /// Returns one bit for each channel that could write a frame.
    pub(crate) fn ready(&self) -> u64 {
        let ready = self.waiting_channels().filter(|channel| self.scheduler.allows(*channel));
        ready.fold(0, |mask, channel| mask | 1 << channel.0)
    }

    /// Returns the channel that writes next of those in the mask, which are ready.
    pub(crate) fn next_channel(&self, mask: u64, now: Instant) -> Option<ChannelId> {
        // The usual case: nothing is compared with a single channel.
        if mask.is_power_of_two() {
            return Some(ChannelId(mask.trailing_zeros() as u8));
        }
        let left = self.channel_ids().filter(|channel| mask >> channel.0 & 1 != 0);
        self.scheduler.first(left.filter_map(|channel| self.candidate(channel)), now)
    }

    pub(crate) fn is_ready(&self, channel: ChannelId) -> bool {
        self.candidate(channel).is_some()
    }

    /// Returns the channels that have data to send, whether or not they may send it in this tick.
    fn waiting_channels(&self) -> impl Iterator<Item = ChannelId> {
        let has_frames = |index| self.transfers.get(index).is_some_and(TransferChannel::has_frames);
        let waiting =
            self.senders.iter().enumerate().filter(move |(index, sender)| sender.is_ready() || has_frames(*index));
        waiting.map(|(index, _)| ChannelId(index as u8))
    }

    /// Returns whether a channel has data to send and has used up its bytes of this tick.
    fn waits_for_tick(&self) -> bool {
        !self.is_idle() && self.waiting_channels().any(|channel| !self.scheduler.allows(channel))
    }
}
