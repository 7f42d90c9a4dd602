//! Which channels may send now, which one comes first, and when a channel that must wait may send.

use core::time::Duration;

use crate::channel::channel_table::{ChannelState, channels_in};
use crate::channel::channels::Channels;
use crate::channel::chunks::RETENTION;
use crate::channel::config::ChannelId;
use crate::channel::scheduling::scheduler::Candidate;
use crate::channel::transfer_channel::TransferChannel;
use slipgate_netcode::time::Instant;

impl Channels {
    /// Returns whether a frame could be written now.
    #[must_use]
    #[inline]
    pub fn wants_to_send(&self) -> bool {
        // The usual case behind a packet: nothing is left.
        self.table.pending != 0 && self.has_ready()
    }

    fn has_ready(&self) -> bool {
        channels_in(self.table.pending).any(|channel| self.is_waiting(channel) && self.allows(channel))
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
        if self.table.has_limits && self.waiting() != self.ready() {
            return now.after(tick);
        }
        if self.memory_bytes() > 0 { now.after(RETENTION) } else { Instant::NEVER }
    }

    /// Returns the channels that could write a frame, one bit for each.
    pub(crate) fn ready(&self) -> u64 {
        let mut ready = self.waiting();
        if self.table.has_limits {
            for channel in channels_in(ready).filter(|channel| !self.allows(*channel)) {
                ready &= !(1 << channel.0);
            }
        }
        ready
    }

    /// Returns the channels that have data to send, whether or not they may send it in this tick.
    #[inline]
    fn waiting(&self) -> u64 {
        let mut waiting = self.table.pending;
        for channel in channels_in(self.table.pending) {
            if !self.is_waiting(channel) {
                waiting &= !(1 << channel.0);
            }
        }
        waiting
    }

    /// Begins a packet with this much room for frames. Returns the channels that could write a frame, one bit for each.
    #[inline]
    pub(crate) fn begin_packet(&mut self, packet_bytes: usize) -> u64 {
        let mut ready = 0;
        for channel in channels_in(self.table.pending) {
            let Some(since) = self.waiting_since(channel) else {
                self.clear_pending(channel);
                continue;
            };
            // Waiting time counts from the packet in which the channel could have sent.
            if let Some(ChannelState { turn, .. }) = self.table.get_mut(channel).filter(|state| state.turn.allows()) {
                turn.on_waiting(since);
                ready |= 1 << channel.0;
            }
        }
        // An empty packet must not end the turns of channels that wait for the next tick.
        if ready != 0 {
            self.table.begin_packet(ready, packet_bytes);
        }
        ready
    }

    /// Returns the channel that writes next of those in the mask, which are ready.
    #[inline]
    pub(crate) fn next_channel(&self, mask: u64, now: Instant) -> Option<ChannelId> {
        // The usual case: nothing is compared with a single channel.
        if mask.is_power_of_two() {
            return Some(ChannelId(mask.trailing_zeros() as u8));
        }
        self.table.first(channels_in(mask).filter_map(|channel| self.candidate(channel)), now)
    }

    /// Returns the channel as a candidate of the scheduler, if it may send in this tick.
    pub(crate) fn candidate(&self, channel: ChannelId) -> Option<Candidate> {
        self.waiting_since(channel).filter(|_| self.allows(channel)).map(|since| Candidate { channel, since })
    }

    /// Returns since when the next frame of a channel has waited; `None` if there is none.
    #[inline]
    pub(crate) fn waiting_since(&self, channel: ChannelId) -> Option<Instant> {
        let messages = self.table.get(channel).and_then(|state| state.sender.waiting_since());
        messages.or_else(|| self.transfers.get(usize::from(channel.0)).and_then(TransferChannel::waiting_since))
    }

    /// Ends the turn of a channel that has written a frame and has no other. Returns whether the channel is done with
    /// the packet. A channel that cannot write is done, so that the packet ends.
    #[inline]
    pub(crate) fn finish_frame(&mut self, channel: ChannelId, written: bool, now: Instant) -> bool {
        let is_waiting = self.waiting_since(channel).is_some();
        if !is_waiting {
            self.clear_pending(channel);
        }
        let Some(ChannelState { turn, .. }) = self.table.get_mut(channel) else { return true };
        let is_ready = is_waiting && turn.allows();
        if written && !is_ready {
            turn.finish(now);
        }
        !written || !is_ready
    }

    /// Returns whether a channel may send more in this tick.
    fn allows(&self, channel: ChannelId) -> bool {
        self.table.get(channel).is_some_and(|state| state.turn.allows())
    }

    /// Records that a channel has no data to send.
    fn clear_pending(&mut self, channel: ChannelId) {
        // Transfers become ready without a call that would set it again, for example when a piece is hashed.
        let transfers = self.transfers.get(usize::from(channel.0));
        if transfers.is_none_or(|transfers| transfers.get().is_none()) {
            self.table.pending &= !(1 << channel.0);
        }
    }

    /// Returns whether a channel has a frame to write. The waiting time of a transfer begins with the next packet.
    #[inline]
    fn is_waiting(&self, channel: ChannelId) -> bool {
        let has_transfer_frames =
            || self.transfers.get(usize::from(channel.0)).is_some_and(TransferChannel::has_frames);
        self.waiting_since(channel).is_some() || has_transfer_frames()
    }
}
