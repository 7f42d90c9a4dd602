//! The contents of the payloads of a server's or client's connections.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::packets::PacketConnection;
use super::peer_session::PeerSession;
use super::{
    Budget, Connection, ConnectionConfig, ConnectionConfigError, Memory, PacketTimes, PathStats, ReceivedDatagram,
    Role, SessionMessage,
};
use crate::channel::Layout;
use crate::reliability::{NumberSkips, Sink};
use crate::wire::PayloadSpan;
use slipgate_netcode::ids::PacketNumber;
use slipgate_netcode::time::Instant;

/// The contents of the payloads of connections. Both ends must use the same.
///
/// # Examples
/// ```
/// use slipgate_session::channel::{Channel, Layout};
/// use slipgate_session::connection::Traffic;
///
/// let mut layout = Layout::builder();
/// let chat = layout.add(Channel::reliable_ordered("chat"));
/// let traffic = Traffic::channels(layout.build().expect("one channel"));
/// ```
#[derive(Clone, Debug, Default)]
pub enum Traffic {
    /// Plain payloads: for peers of plain netcode, and for games with a protocol of their own.
    #[default]
    Payloads,
    /// Acknowledged packets: for peers of netcode and reliable 1.0. They use every packet number, as reliable 1.0 does,
    /// so a false acknowledgement of a lost packet is not recognised. Limit what you send to each client, or use
    /// channels, which skip numbers at random.
    Packets(ConnectionConfig),
    /// Messages on channels: for peers that run this crate.
    Channels(Arc<Layout>, ConnectionConfig),
}

impl Traffic {
    /// Returns messages on these channels, with the default settings.
    #[must_use]
    pub fn channels(layout: Layout) -> Self {
        Self::Channels(Arc::new(layout), ConnectionConfig::default())
    }

    /// Returns acknowledged packets, with the default settings.
    #[must_use]
    pub fn packets() -> Self {
        Self::Packets(ConnectionConfig::default())
    }

    /// Checks whether a connection can run with these settings.
    pub(crate) fn check(&self) -> Result<(), ConnectionConfigError> {
        // Building one is the only complete check, and settings change rarely.
        self.protocol(Role::Client, None, None).map(|_| ())
    }

    /// Creates a connection on which nothing was sent yet, and which skips packet numbers by `skips` on channels.
    pub(crate) fn protocol(
        &self,
        role: Role,
        memory: Option<&Memory>,
        skips: Option<NumberSkips>,
    ) -> Result<ClientProtocol, ConnectionConfigError> {
        Ok(match self {
            Self::Payloads => ClientProtocol::Payloads(PeerSession::default()),
            Self::Packets(config) => ClientProtocol::Packets(Box::new(PacketConnection::new(config, memory)?)),
            Self::Channels(layout, config) => {
                let connection = Connection::new(config, Arc::clone(layout), role, memory)?;
                ClientProtocol::Channels(Box::new(match skips {
                    Some(skips) => connection.skipping(skips),
                    None => connection,
                }))
            }
        })
    }
}

/// The state of one client's [`Traffic`].
pub(crate) enum ClientProtocol {
    /// Plain payloads, and whether the peer runs channels although this end runs none.
    Payloads(PeerSession),
    Packets(Box<PacketConnection>),
    Channels(Box<Connection>),
}

impl ClientProtocol {
    #[inline]
    pub(crate) const fn connection(&self) -> Option<&Connection> {
        if let Self::Channels(connection) = self { Some(connection) } else { None }
    }

    #[inline]
    pub(crate) const fn connection_mut(&mut self) -> Option<&mut Connection> {
        if let Self::Channels(connection) = self { Some(connection) } else { None }
    }

    /// Processes a payload that begins at `start` in its datagram and may have waited up to `unread` in the socket.
    // Always inlined: otherwise the server copies each result into its own.
    #[inline(always)]
    pub(crate) fn handle(
        &mut self,
        sequence: PacketNumber,
        payload: &[u8],
        start: usize,
        scratch: &mut Vec<u8>,
        unread: Duration,
        now: Instant,
    ) -> Option<ReceivedDatagram> {
        let range = start..start + payload.len();
        let times = || PacketTimes { arrived: now - unread, sent: None };
        // Rejected payloads are counted by the endpoint and dropped here.
        match self {
            Self::Payloads(peer) => {
                peer.on_payload(payload);
                let span = PayloadSpan::Datagram(range);
                Some(ReceivedDatagram::Message(Some(SessionMessage::Payload { sequence, span, times: times() })))
            }
            Self::Packets(packets) => {
                let (sequence, span) = packets.handle(payload, scratch, now).ok().flatten()?;
                let span = span.shifted(start);
                Some(ReceivedDatagram::Message(Some(SessionMessage::Packet { sequence, span, times: times() })))
            }
            Self::Channels(connection) => {
                let cursor = connection.handle(payload, unread, now).ok().flatten()?;
                Some(ReceivedDatagram::Frames { payload: range, cursor })
            }
        }
    }

    /// Returns whether the peer runs channels although this end runs none, once.
    #[inline]
    pub(crate) fn take_peer_with_channels(&mut self) -> bool {
        if let Self::Payloads(peer) = self { peer.take() } else { false }
    }

    pub(crate) fn tick(&mut self, now: Instant) {
        match self {
            Self::Payloads(_) => {}
            Self::Packets(packets) => packets.tick(now),
            Self::Channels(connection) => connection.tick(now),
        }
    }

    /// Sends what is due, messages on channels in at most `allowance` bytes on the path. Returns the bytes of messages
    /// that left.
    #[inline]
    pub(crate) fn transmit_within(&mut self, allowance: u64, now: Instant, sink: &mut dyn Sink) -> u64 {
        match self {
            Self::Payloads(_) => {}
            Self::Packets(packets) => packets.transmit(now, sink),
            Self::Channels(connection) => return connection.transmit_within(allowance, now, sink),
        }
        0
    }

    /// Returns when something is due, if nothing arrives before; `NEVER` if nothing is. Data that only waits for its
    /// channel's bytes per tick is due after `tick`.
    #[inline]
    pub(crate) fn next_deadline(&self, tick: Duration, now: Instant) -> Instant {
        match self {
            Self::Payloads(_) => Instant::NEVER,
            Self::Packets(packets) => packets.next_deadline(),
            Self::Channels(connection) => connection.next_deadline_by_ticks(now, tick),
        }
    }

    /// Returns what may leave now; `None` for plain payloads, which nothing limits.
    pub(crate) fn budget(&self, now: Instant) -> Option<Budget> {
        match self {
            Self::Payloads(_) => None,
            Self::Packets(packets) => Some(packets.budget(now)),
            Self::Channels(connection) => Some(connection.budget(now)),
        }
    }

    /// Returns the measurements of the path; `None` for plain payloads, which carry no acknowledgements.
    pub(crate) fn stats(&self, now: Instant) -> Option<PathStats> {
        match self {
            Self::Payloads(_) => None,
            Self::Packets(packets) => Some(packets.stats(now)),
            Self::Channels(connection) => Some(connection.stats(now)),
        }
    }
}
