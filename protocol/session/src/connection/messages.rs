//! A connection between two peers of ours: messages on channels, several in a packet, as many packets as the path
//! carries.
//!
//! This file holds the state, which all parts use. `receive` parses what arrives, `transmit` composes what leaves,
//! `timers` and `demand` say when and how much, and `close` ends the connection.

mod close;
mod closing;
mod demand;
mod receive;
mod timers;
mod transmit;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use self::closing::{CloseMessage, Closing};
pub use self::receive::{ChannelMessage, MessageCursor};
use super::ack_watchdog::AckWatchdog;
use super::path::ConnectionPath;
use super::redirect::{RedirectSender, RedirectedToken};
use super::reliable_control::ReliableControl;
use super::work_budget::WorkBudget;
use super::{Budget, CloseReason, ConnectionConfig, ConnectionConfigError, Memory, PathStats, Role};
use crate::channel::control::{Hello, VERSION};
use crate::channel::transfer::PartialTransfer;
use crate::channel::{ChannelId, Channels, Kind, Layout, LayoutHash, MAX_PACKETS};
use crate::reliability::NumberSkips;
use crate::wire::reliable::MAX_HEADER_BYTES;
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::time::Instant;

/// The life of a connection.
///
/// ```text
///  Open ──▶ Closing (repeats the close message until it is acknowledged or the time is up) ──▶ Closed
///    └───▶ PeerClosed (owes the peer one acknowledgement of its close message) ─────────────▶ Closed
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Open,
    Closing(Closing),
    PeerClosed,
    Closed,
}

/// Bytes of a session frame without extended acknowledgements: flags, two timestamps and a delay.
const PLAIN_FRAME_BYTES: usize = 6;
/// Bytes before a slice of a transfer: its channel, a length, the kind of its frame, the numbers of its transfer and
/// its own (§4.4).
const BEFORE_SLICE_BYTES: usize = 1 + 2 + 7;

/// A connection that carries messages on channels.
pub struct Connection {
    /// The channels: messages to queue, transfers, events and statistics.
    pub channels: Channels,
    path: ConnectionPath,
    layout: LayoutHash,
    role: Role,
    hello: ReliableControl,
    /// Whether the peer's hello arrived, with our layout.
    has_peer_hello: bool,
    /// When the first packet of acknowledgements alone arrived before it.
    ack_only_since: Option<Instant>,
    ack_watchdog: AckWatchdog,
    work: WorkBudget,
    stage: Stage,
    close_reason: Option<CloseReason>,
    close_message: CloseMessage,
    /// The token for another server, which a server sends before its close message.
    redirect: Option<Box<RedirectSender>>,
    /// What a client has received of such a token.
    redirected: Option<Box<RedirectedToken>>,
    /// This side's limit, in its hello. The limit of what it sends may be smaller, by the peer's hello.
    announced_payload_bytes: u16,
    max_payload_bytes: usize,
    close_timeout: Duration,
    ticked_at: Option<Instant>,
    /// When the application queued its newest message.
    queued_at: Instant,
}

impl Connection {
    /// Creates one end of a connection on which nothing was sent yet. All connections of a server share its `memory`; a
    /// connection without it has its own.
    ///
    /// # Errors
    /// - `PayloadBytes` when the payload limit is not within 508 to 1,200 bytes.
    /// - `SliceBytes` when the slices of a channel's transfers do not fit into a payload.
    /// - `Window` when the endpoint's window of received packets exceeds 2,048.
    /// - `Endpoint` when a setting of the endpoint is invalid.
    pub fn new(
        config: &ConnectionConfig,
        layout: Arc<Layout>,
        role: Role,
        memory: Option<&Memory>,
    ) -> Result<Self, ConnectionConfigError> {
        config.check()?;
        if min_payload(&layout) > config.max_payload_bytes {
            return Err(ConnectionConfigError::SliceBytes);
        }
        // Channels forget the frames of packets beyond this window.
        if config.endpoint.received_window > MAX_PACKETS {
            return Err(ConnectionConfigError::Window);
        }
        let messages = memory.map(|memory| memory.messages.clone());
        Ok(Self {
            path: ConnectionPath::new(config.endpoint.clone(), messages, config.controller())?,
            layout: layout.hash(),
            channels: channels(layout, role, memory),
            role,
            hello: ReliableControl::NEW,
            has_peer_hello: false,
            ack_only_since: None,
            ack_watchdog: AckWatchdog::default(),
            work: WorkBudget::new(config.work),
            stage: Stage::Open,
            close_reason: None,
            close_message: CloseMessage::default(),
            redirect: None,
            redirected: None,
            // The settings were checked: at most 1,200.
            announced_payload_bytes: config.max_payload_bytes as u16,
            max_payload_bytes: config.max_payload_bytes,
            close_timeout: config.close_timeout,
            ticked_at: None,
            queued_at: Instant::NEVER,
        })
    }

    /// Skips packet numbers at random and draws a nonce for each packet, as the connections of a
    /// [`SessionServer`](crate::server::SessionServer) do. A peer that acknowledges what it did not receive does not
    /// know these, and the connection closes with
    /// [`ChannelViolation::AcksOfUnsent`](crate::channel::ChannelViolation::AcksOfUnsent).
    ///
    /// Without it every number is used and each nonce is 0, and a peer that claims to receive everything is sent ever
    /// more: that is for test vectors. The seed must be unpredictable and of this connection alone.
    #[must_use]
    pub fn with_ack_checks(self, seed: &Seed) -> Self {
        self.skipping(NumberSkips::new(NumberSkips::key(seed), 0))
    }

    pub(super) fn skipping(mut self, skips: NumberSkips) -> Self {
        self.path.check_acks(skips);
        self
    }

    /// Takes what has arrived of incomplete transfers, to resume them in another connection. Call it after this
    /// connection has closed.
    pub(crate) fn take_partials(&mut self) -> impl Iterator<Item = (ChannelId, PartialTransfer)> + use<> {
        self.channels.take_partials()
    }

    /// Returns what may leave until the application sends again, if its next messages come as long after these as these
    /// after the ones before. What the pacer does not permit now leaves in later turns.
    #[must_use]
    pub fn budget(&self, now: Instant) -> Budget {
        let paced = self.path.paced_within(now.since(self.queued_at), now);
        Budget::of(&self.path, self.channels.max_overdraft(now) + paced, self.max_packet_bytes(), now)
    }

    /// Returns the measurements of the path.
    #[must_use]
    pub fn stats(&self, now: Instant) -> PathStats {
        PathStats::of(&self.path, now)
    }

    /// Informs the channels and control messages which packets arrived and which are lost.
    fn process_acks(&mut self) {
        if self.path.ack_result().is_empty() {
            return;
        }
        let Self { path, channels, hello, stage, redirect, ack_watchdog, .. } = self;
        // An acked control ignores all updates.
        let mut no_close = ReliableControl::Acked;
        let close = if let Stage::Closing(closing) = stage { &mut closing.control } else { &mut no_close };
        for packet in path.ack_result().acked.iter().map(|packet| packet.sequence) {
            ack_watchdog.on_acked();
            hello.on_acked(packet);
            close.on_acked(packet);
            redirect.iter_mut().for_each(|redirect| redirect.on_acked(packet));
            channels.on_acked(packet);
        }
        for packet in path.ack_result().lost.iter().map(|packet| packet.sequence) {
            hello.on_lost(packet);
            close.on_lost(packet);
            channels.on_lost(packet);
        }
        path.clear_ack_result();
    }

    /// Returns the hello, as long as the peer has not acknowledged it.
    fn hello_message(&self) -> Option<Hello> {
        (!self.hello.is_acked()).then_some(Hello {
            version: VERSION,
            oldest_version: VERSION,
            layout: self.layout,
            payload_bytes: self.announced_payload_bytes,
            abilities: 0,
        })
    }

    /// Returns the maximum bytes behind a packet's header.
    #[inline]
    const fn max_packet_bytes(&self) -> usize {
        self.max_payload_bytes - MAX_HEADER_BYTES
    }
}

/// Returns the smallest payload that can hold a slice of every transfer, behind a header, a session frame and the
/// slice's own header.
fn min_payload(layout: &Layout) -> usize {
    let transfers = layout.channels().filter(|channel| channel.kind == Kind::Transfers);
    let slice = transfers.map(|channel| usize::from(channel.transfers.slice_bytes)).max();
    slice.map_or(0, |slice| MAX_HEADER_BYTES + PLAIN_FRAME_BYTES + BEFORE_SLICE_BYTES + slice)
}

fn channels(layout: Arc<Layout>, role: Role, memory: Option<&Memory>) -> Channels {
    let channels = match memory {
        Some(memory) => {
            Channels::new(layout, Some(memory.messages.clone())).with_transfer_memory(memory.transfers.clone())
        }
        None => Channels::new(layout, None),
    };
    match role {
        Role::Client => channels,
        Role::Server => channels.of_server(),
    }
}
