//! Which channels may send now, which one comes first, and when a channel that must wait may send.

use core::time::Duration;

use crate::channel::channels::Channels;
use crate::channel::chunks::RETENTION;
use crate::channel::config::ChannelId;
use crate::channel::send::sender::ChannelSender;
use crate::channel::transfer_channel::TransferChannel;
use slipgate_netcode::time::Instant;

impl Channels {
    /// Returns whether a frame could be written now.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        self.channel_ids().any(|channel| self.is_ready(channel))
    }

    /// Returns when there is work that no datagram triggers: hashing, unpolled receipts, a channel that waits for the
    /// next tick, or memory to free. The next tick begins after `tick`.
    pub(crate) fn next_deadline(&self, now: Instant, tick: Duration) -> Option<Instant> {
        // The owner of a grant schedules the hashing.
        let hashes = self.hashing.is_none() && self.has_transfers_to_hash();
        if hashes || self.context.receipts.has_events() {
            return Some(now);
        }
        // The bytes per tick are used up: only the next tick lets the channel send.
        if self.waits_for_tick() {
            return Some(now.after(tick));
        }
        (self.memory_bytes() > 0).then(|| now.after(RETENTION))
    }

    /// Returns one bit for each channel that could write a frame.
    pub(crate) fn ready(&self) -> u64 {
        let ready = self.channel_ids().filter(|channel| self.is_ready(*channel));
        ready.fold(0, |mask, channel| mask | 1 << channel.0)
    }

    /// Returns the channel that writes next of those in the mask, which are ready.
    pub(crate) fn next_channel(&self, mask: u64, now: Instant) -> Option<ChannelId> {
        // The usual case: nothing is compared with a single channel.
        if mask.is_power_of_two() {
            return Some(ChannelId(mask.trailing_zeros() as u8));
        }
        let left = self.channel_ids().filter(|channel| mask >> channel.0 & 1 != 0);
        self.scheduler.first(&self.layout, left.filter_map(|channel| self.candidate(channel)), now)
    }

    pub(crate) fn is_ready(&self, channel: ChannelId) -> bool {
        self.has_waiting(channel) && self.scheduler.allows(channel)
    }

    fn has_waiting(&self, channel: ChannelId) -> bool {
        let index = usize::from(channel.0);
        let messages = self.senders.get(index).is_some_and(ChannelSender::is_ready);
        messages || self.transfers.get(index).is_some_and(TransferChannel::has_frames)
    }

    /// Returns whether a channel has data to send and has used up its bytes of this tick.
    fn waits_for_tick(&self) -> bool {
        self.channel_ids().any(|channel| self.has_waiting(channel) && !self.scheduler.allows(channel))
    }
}
