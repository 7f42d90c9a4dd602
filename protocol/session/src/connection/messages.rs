//! A connection between two peers of ours: messages on channels, several in a packet, as many packets as the path
//! carries.
//!
//! This file holds the state and the timers. `receive` parses what arrives, `transmit` composes what leaves, and
//! `close` ends the connection.

mod close;
mod receive;
mod transmit;

use alloc::sync::Arc;
use core::time::Duration;

use self::close::{CloseMessage, Closing};
pub use self::receive::{ChannelMessage, MessageCursor};
use super::ack_watchdog::AckWatchdog;
use super::path::ConnectionPath;
use super::reliable_control::ReliableControl;
use super::work_budget::WorkBudget;
use super::{Budget, CloseReason, ConnectionConfig, ConnectionConfigError, Memory, PathStats, Role};
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
    ack_watchdog: AckWatchdog,
    work: WorkBudget,
    stage: Stage,
    close_reason: Option<CloseReason>,
    close_message: CloseMessage,
    /// This side's limit, in its hello. The limit of what it sends may be smaller, by the peer's hello.
    announced_payload_bytes: u16,
    max_payload_bytes: usize,
    close_timeout: Duration,
    ticked_at: Option<Instant>,
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
            ack_watchdog: AckWatchdog::default(),
            work: WorkBudget::new(config.work),
            stage: Stage::Open,
            close_reason: None,
            close_message: CloseMessage::default(),
            // The settings were checked: at most 1,200.
            announced_payload_bytes: config.max_payload_bytes as u16,
            max_payload_bytes: config.max_payload_bytes,
            close_timeout: config.close_timeout,
            ticked_at: None,
        })
    }

    /// Skips packet numbers at random, as the connections of a [`SessionServer`](crate::server::SessionServer) do. A
    /// peer that acknowledges one of them did not receive what it acknowledges, and the connection closes with
    /// [`ChannelViolation::AcksOfUnsent`](crate::channel::ChannelViolation::AcksOfUnsent).
    ///
    /// Without it every number is used, and a peer that claims to receive everything is sent ever more: that is for
    /// test vectors. The seed must be unpredictable and of this connection alone.
    #[must_use]
    pub fn with_skipped_numbers(self, seed: &Seed) -> Self {
        self.skipping(NumberSkips::new(NumberSkips::key(seed), 0))
    }

    pub(super) fn skipping(mut self, skips: NumberSkips) -> Self {
        self.path.skip_numbers(skips);
        self
    }

    /// Detects losses, updates the sending rate and begins the channels' tick. Call it once per tick before messages
    /// are composed. A connection with a later deadline may skip it: [`transmit`](Self::transmit) makes up for it.
    pub fn tick(&mut self, now: Instant) {
        self.ticked_at = Some(now);
        self.path.tick(now);
        // Losses by time are reported before the channels plan the tick.
        self.process_acks();
        self.channels.begin_tick(now);
    }

    /// Returns when something is due, if nothing arrives and nothing is sent before.
    #[must_use]
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.next_deadline_by_ticks(now, Duration::ZERO)
    }

    /// Returns the same, but delays by `tick` what waits only for its channel's budget. It serves a caller that
    /// begins a tick whenever it wakes up.
    pub(crate) fn next_deadline_by_ticks(&self, now: Instant, tick: Duration) -> Option<Instant> {
        match self.stage {
            Stage::Open => self.open_deadline(now, tick),
            Stage::Closing(closing) if closing.control.is_acked() => Some(now),
            Stage::Closing(closing) => Some(closing.next_send),
            // The acknowledgement of the close message is due at once.
            Stage::PeerClosed => Some(now),
            Stage::Closed => None,
        }
    }

    fn open_deadline(&self, now: Instant, tick: Duration) -> Option<Instant> {
        // If the controller names no time, the uplink or the sink limits the sending, and it may be tried at once.
        let send = self.may_send().then(|| {
            let allowance = self.path.allowance(now);
            allowance.next_send(self.pending_demand(&allowance, now)).unwrap_or(now)
        });
        let path = self.path.next_deadline().into_iter().chain(self.pto_deadline());
        path.chain(send).chain(self.channels.next_deadline(now, tick)).min()
    }

    /// Returns when the probe timeout fires, if a probe has anything to send: content of a packet in flight, or the
    /// first packet of a window that is full.
    fn pto_deadline(&self) -> Option<Instant> {
        let has_probe = self.channels.has_probe() || self.hello.is_in_flight() || self.is_full();
        if has_probe { self.path.pto_deadline() } else { None }
    }

    /// Takes what has arrived of incomplete transfers, to resume them in another connection. Call it after this
    /// connection has closed.
    pub(crate) fn take_partials(&mut self) -> impl Iterator<Item = (ChannelId, PartialTransfer)> + use<> {
        self.channels.take_partials()
    }

    /// Returns what may leave now.
    #[must_use]
    pub fn budget(&self, now: Instant) -> Budget {
        Budget::of(&self.path, self.channels.max_overdraft(now), self.max_packet_bytes(), now)
    }

    /// Returns the measurements of the path.
    #[must_use]
    pub fn stats(&self, now: Instant) -> PathStats {
        PathStats::of(&self.path, now)
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
