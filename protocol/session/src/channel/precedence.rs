//! What the path would carry now, and how much of it a class leaves to those above it.
//!
//! A thin path grants its bytes as they drip in. Whoever always has something to send, as blocks have, could take every one
//! of them the moment it is there, and the game's next state would come too late each time, however urgent it is. So the
//! classes draw on one account with different limits:
//!
//! ```text
//!            ┌──────────────── what has come in, at most two packets ───────────────┐
//!            │                                                                      │
//!     ───────┼──────────────────────────────────────────────────────────────────────┼──▶ bytes
//!     −burst 0 the lowest class that waits stops here
//!       └───── the class above it goes on to here: as far as what it writes at once
//! ```
//!
//! DECISION: higher classes draw ahead, instead of having something kept for them out of what has come in. In the long
//! run both are the same; but what was kept would have to fit into the account beside a whole packet of the lowest class,
//! and with an account so much larger a silent connection could send as much more at once into a thin path.

use alloc::vec::Vec;
use core::time::Duration;

use super::layout::ChannelId;
use slipgate_netcode::time::Instant;

/// So long it is remembered how much a channel wrote at once.
const REMEMBERED: Duration = Duration::from_secs(1);
/// What a packet costs on the path beside its frames, about.
pub(super) const PACKET_BYTES: u64 = 80;
/// What a message costs beside its bytes, at most, unless it is cut.
pub(super) const FRAME_BYTES: u64 = 8;
/// The most that is kept for higher classes, about a packet: larger bursts have to fit into what comes in meanwhile.
const MOST_KEPT: u64 = 1200;

/// What the path would carry in a packet, in bytes of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Means {
    /// What has come in by the path's rate; below zero after higher classes drew ahead.
    pub credit: i64,
    /// How much more may be under way.
    pub window: i64,
    /// Up to where blocks may fill the packet, if a slice fits: what is behind it must not wait for long.
    pub bulk: usize,
}

impl Means {
    /// Nothing limits the packet but its size.
    pub const AMPLE: Self = Self { credit: i64::MAX, window: i64::MAX, bulk: usize::MAX };

    /// Whether it is enough for so many bytes whoever is ahead of others or has to leave something to them.
    pub(super) fn is_ample(self, bytes: u64) -> bool {
        let needed = i64::try_from(bytes.saturating_add(MOST_KEPT)).unwrap_or(i64::MAX);
        self == Self::AMPLE || (self.credit >= needed && self.window >= needed)
    }

    /// What is left of it behind so many bytes of the packet.
    #[must_use]
    pub fn behind(self, bytes: usize) -> Self {
        if self == Self::AMPLE {
            return self;
        }
        let left = |means: i64| means.saturating_sub_unsigned(bytes as u64);
        Self { credit: left(self.credit), window: left(self.window), bulk: self.bulk.saturating_sub(bytes) }
    }
}

/// What waits that goes first, and what it may draw on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// About how many bytes of frames it is; `u64::MAX` when there is always more, as of blocks.
    pub bytes: u64,
    /// It may leave so many bytes ahead of what has come in, because what waits below it can wait.
    pub ahead: u64,
    /// It leaves so much of the window to those above it, which may come at any moment.
    pub kept: u64,
}

/// How much each channel writes at once.
pub(super) struct Bursts {
    lanes: Vec<Burst>,
}

#[derive(Clone, Copy, Default)]
struct Burst {
    in_tick: u64,
    most: u64,
    at: Instant,
}

impl Bursts {
    pub(super) fn new(channels: usize) -> Self {
        Self { lanes: (0..channels).map(|_| Burst::default()).collect() }
    }

    pub(super) fn begin_tick(&mut self) {
        for lane in &mut self.lanes {
            lane.in_tick = 0;
        }
    }

    /// A channel has written so many bytes of frames.
    pub(super) fn note(&mut self, channel: ChannelId, bytes: usize, now: Instant) {
        let Some(lane) = self.lanes.get_mut(usize::from(channel.0)) else { return };
        lane.in_tick += bytes as u64;
        if lane.in_tick >= lane.most || now.reached(lane.at, REMEMBERED) {
            (lane.most, lane.at) = (lane.in_tick, now);
        }
    }

    /// What is kept for the channels that `is_kept_for` says, on the path.
    pub(super) fn kept(&self, now: Instant, is_kept_for: impl Fn(ChannelId) -> bool) -> u64 {
        let lanes = (0..).map(ChannelId).zip(&self.lanes);
        let recent = lanes.filter(|(_, lane)| lane.most > 0 && !now.reached(lane.at, REMEMBERED));
        let kept = recent.filter(|(channel, _)| is_kept_for(*channel)).map(|(_, lane)| lane.most + PACKET_BYTES);
        kept.sum::<u64>().min(MOST_KEPT)
    }
}
