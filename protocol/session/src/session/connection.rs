//! A connection between two peers of ours: messages on channels, several in a packet, as many packets as the path carries.
//!
//! Here stands what it is made of, and what time does to it. What arrives is taken in `receive`, what leaves is composed
//! in `transmit`, and how it ends is told in `leave`.

mod leave;
mod receive;
mod transmit;

use alloc::sync::Arc;
use core::time::Duration;

use self::leave::{Farewell, Leaving};
pub use self::receive::Incoming;
use super::end::End;
use super::greeting::Saying;
use super::path::Path;
use super::unanswered::Unanswered;
use super::{Budget, Config, ConfigError, Memory, PathStats};
use crate::channel::block::PartialBlock;
use crate::channel::{ChannelEvent, ChannelId, Channels, Kind, Layout, LayoutHash, MAX_PACKETS};
use crate::wire::reliable::MAX_HEADER_BYTES;
use slipgate_netcode::time::Instant;

/// Where the connection stands.
///
/// ```text
///  Open ──▶ Leaving (we say why, until it is heard or the time is up) ──▶ Over
///    └───▶ Left (the peer said why; it is owed an acknowledgement) ────▶ Over
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    Leaving(Leaving),
    Left,
    Over,
}

/// Of a frame without acknowledgements behind it: flags, two stamps and a lateness.
const PLAIN_FRAME_BYTES: usize = 6;
/// What stands before a slice: its channel's head, room for a length, the kind of its frame, its block's number and its
/// own (§4.4).
const BEFORE_SLICE_BYTES: usize = 1 + 2 + 7;

/// A connection on which messages travel.
pub struct Connection {
    path: Path,
    channels: Channels,
    layout: LayoutHash,
    hello: Saying,
    /// Whether the peer has said its layout, and it is ours.
    greeted: bool,
    unanswered: Unanswered,
    stage: Stage,
    end: Option<End>,
    farewell: Farewell,
    /// By this side's settings; what it sends may be smaller, by the peer's.
    announced_payload_bytes: u16,
    max_payload_bytes: usize,
    farewell_time: Duration,
    ticked_at: Option<Instant>,
}

impl Connection {
    /// A connection on which nothing was sent yet. The server's end has the `memory` that all its connections share, a
    /// client's has none.
    ///
    /// # Errors
    /// A setting that no connection can run with.
    pub fn new(config: &Config, layout: Arc<Layout>, memory: Option<&Memory>) -> Result<Self, ConfigError> {
        config.check()?;
        if least_payload(&layout) > config.max_payload_bytes {
            return Err(ConfigError::SliceBytes);
        }
        if config.endpoint.received_window > MAX_PACKETS {
            return Err(ConfigError::Window);
        }
        Ok(Self {
            path: Path::new(
                config.endpoint.clone(),
                memory.map(|memory| memory.messages.clone()),
                config.controller(),
            )?,
            layout: layout.hash(),
            channels: channels(layout, memory),
            hello: Saying::NEW,
            greeted: false,
            unanswered: Unanswered::default(),
            stage: Stage::Open,
            end: None,
            farewell: Farewell::default(),
            announced_payload_bytes: config.max_payload_bytes as u16,
            max_payload_bytes: config.max_payload_bytes,
            farewell_time: config.farewell,
            ticked_at: None,
        })
    }

    /// Time has passed; to be called once a tick, before messages are composed. A connection that has no deadline by then
    /// need not be: it makes up for it when it transmits.
    pub fn tick(&mut self, now: Instant) {
        self.ticked_at = Some(now);
        self.path.tick(now);
        self.settle();
        self.channels.begin_tick(now);
    }

    /// When something is due, if nothing arrives before and nothing is sent.
    #[must_use]
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.next_deadline_by_ticks(now, Duration::ZERO)
    }

    /// As [`next_deadline`](Self::next_deadline), where what waits only for its channel's budget waits so much longer: for
    /// who would make a tick of waking up.
    pub(crate) fn next_deadline_by_ticks(&self, now: Instant, tick: Duration) -> Option<Instant> {
        match self.stage {
            Stage::Open => self.open_deadline(now, tick),
            Stage::Leaving(leaving) if leaving.saying.is_heard() => Some(now),
            Stage::Leaving(leaving) => Some(leaving.again),
            Stage::Left => Some(now),
            Stage::Over => None,
        }
    }

    fn open_deadline(&self, now: Instant, tick: Duration) -> Option<Instant> {
        // Without a word from the controller it is the uplink, or the sink, that keeps something back.
        let send = self.may_send().then(|| self.path.next_send(self.wish(now), now).unwrap_or(now));
        let path = self.path.next_deadline().into_iter().chain(self.path.probe_deadline());
        path.chain(send).chain(self.channels.next_deadline_by_ticks(now, tick)).min()
    }

    /// The oldest event of the channels.
    pub fn poll_event(&mut self) -> Option<ChannelEvent> {
        self.channels.poll_event()
    }

    /// What had arrived of blocks that are not whole, to go on with in another connection; to be asked when this one has
    /// ended.
    pub fn take_partials(&mut self) -> impl Iterator<Item = (ChannelId, PartialBlock)> + use<> {
        self.channels.take_partials()
    }

    /// The channels.
    #[must_use]
    pub const fn channels(&self) -> &Channels {
        &self.channels
    }

    /// The channels, for what goes beyond messages: blocks.
    pub const fn channels_mut(&mut self) -> &mut Channels {
        &mut self.channels
    }

    /// What may leave now.
    #[must_use]
    pub fn budget(&self, now: Instant) -> Budget {
        Budget::of(&self.path, self.channels.most_ahead(now), now)
    }

    /// How the path is.
    #[must_use]
    pub fn stats(&self, now: Instant) -> PathStats {
        PathStats::of(&self.path, now)
    }
}

/// The least payload in which every block's slices find a place, between a header, a frame and what stands before a slice.
fn least_payload(layout: &Layout) -> usize {
    let blocks = layout.channels().filter(|channel| channel.kind == Kind::Blocks);
    let slice = blocks.map(|channel| usize::from(channel.blocks.slice_bytes)).max();
    slice.map_or(0, |slice| MAX_HEADER_BYTES + PLAIN_FRAME_BYTES + BEFORE_SLICE_BYTES + slice)
}

fn channels(layout: Arc<Layout>, memory: Option<&Memory>) -> Channels {
    match memory {
        Some(memory) => {
            let channels = Channels::new(layout, Some(memory.messages.clone()));
            channels.with_block_memory(memory.blocks.clone()).of_server()
        }
        None => Channels::new(layout, None),
    }
}
