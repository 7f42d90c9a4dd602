//! Payloads, packets and broadcast messages of the application to its clients.

use super::SessionServer;
use super::client_sink::client_sink;
use crate::channel::{ChannelId, Kind, SendOptions, SharedMessage};
use crate::connection::{ClientProtocol, HEADER_BYTES, SendError, Traffic};
use crate::wire::reliable::Sequence;
use slipgate_netcode::Outbox;
use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::Now;

/// How many clients a broadcast was queued for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BroadcastReport {
    /// The number of clients with the message in their queue.
    pub queued: u32,
    /// The number of connected clients that it was not queued for: their queue is full, or the traffic or layout that
    /// they connected with does not allow it.
    pub refused: u32,
}

impl SessionServer {
    /// Seals a payload of 1 to 1,200 bytes for a client.
    ///
    /// # Errors
    /// - `Gone` when the client is not connected.
    /// - `Empty` or `TooLarge` when the payload is not of 1 to 1,200 bytes.
    /// - `Backlogged` when the outbox is full.
    /// - `WrongTraffic` unless the traffic is plain payloads.
    #[inline]
    pub fn send_payload(
        &mut self,
        client: ClientHandle,
        payload: &[u8],
        now: Now,
        outbox: &mut impl Outbox,
    ) -> Result<(), SendError> {
        let Self { netcode, sessions, .. } = self;
        let session = sessions.get_mut(client.slot().0 as usize).and_then(Option::as_mut);
        let session = session.filter(|session| session.is(client)).ok_or(SendError::Gone)?;
        let ClientProtocol::Payloads(_) = session.protocol else { return Err(SendError::WrongTraffic) };
        netcode.send(client, payload, now, outbox)?;
        let bytes = payload.len() as u64 + HEADER_BYTES;
        session.totals.on_sent(1, bytes);
        // A client in the same program has no address and needs no uplink.
        if self.uplink.is_limited() && self.netcode.client(client).is_some_and(|info| info.address.is_some()) {
            self.uplink.spend(client.slot(), 0, bytes);
        }
        Ok(())
    }

    /// Sends an acknowledged packet to a client, in fragments if it is large, and returns its number.
    ///
    /// # Errors
    /// - `Gone` when the client is not connected.
    /// - `Empty` or `TooLarge` when the packet has no bytes or exceeds the endpoint's limit.
    /// - `Backlogged` when the path can carry no more now or the outbox is full.
    /// - `WrongTraffic` unless the traffic is packets.
    pub fn send_packet(
        &mut self,
        client: ClientHandle,
        payload: &[u8],
        now: Now,
        outbox: &mut impl Outbox,
    ) -> Result<Sequence, SendError> {
        let Self { netcode, sessions, buf, uplink, .. } = self;
        let session = sessions.get_mut(client.slot().0 as usize).and_then(Option::as_mut);
        let session = session.filter(|session| session.is(client)).ok_or(SendError::Gone)?;
        let ClientProtocol::Packets(packets) = &mut session.protocol else { return Err(SendError::WrongTraffic) };
        let sent = {
            let mut sink = client_sink(netcode, client, now, outbox, buf);
            let sent = packets.send(payload, now.monotonic, &mut sink);
            session.totals.on_sent(sink.sent_packets, sink.sent_bytes);
            uplink.spend(client.slot(), 0, sink.sent_bytes);
            sent
        };
        self.wake(client.slot());
        sent
    }

    /// Queues a message on a channel of all connected clients but `except`. The bytes are stored once for all of them.
    /// A client that refuses the message is skipped, and the report counts it.
    ///
    /// # Errors
    /// By the traffic of new clients, also if no client is connected; the message was then queued for none:
    /// - `NoChannel` or `WrongKind` when the layout has no such channel, or one of transfers.
    /// - `TooLarge` when the message exceeds the channel's limit.
    /// - `WrongTraffic` unless the traffic is on channels.
    pub fn broadcast(
        &mut self,
        channel: ChannelId,
        message: impl Into<SharedMessage>,
        except: Option<ClientHandle>,
        options: SendOptions,
        now: Now,
    ) -> Result<BroadcastReport, SendError> {
        let (message, mut report) = (message.into(), BroadcastReport::default());
        self.check_broadcast(channel, message.bytes().len())?;
        let mut next = self.next_client(None);
        while let Some(client) = next {
            // The next client is found before the session is borrowed.
            next = self.next_client(Some(client));
            if Some(client) == except {
                continue;
            }
            let connection = self.connection_mut(client);
            match connection.and_then(|connection| connection.send_shared(channel, &message, options, now.monotonic)) {
                Ok(()) => report.queued += 1,
                // No refusal stops the walk: clients from before `set_traffic` may have another layout.
                Err(_) => report.refused += 1,
            }
        }
        Ok(report)
    }

    /// Checks whether the current layout has a channel for a message of this size.
    fn check_broadcast(&self, channel: ChannelId, bytes: usize) -> Result<(), SendError> {
        let Traffic::Channels(layout, _) = &self.traffic else { return Err(SendError::WrongTraffic) };
        let channels = layout.channels().len();
        let config = layout.channel(channel).ok_or(SendError::NoChannel { channel, channels })?;
        if config.kind == Kind::Transfers {
            return Err(SendError::WrongKind);
        }
        let limit = config.max_message_bytes as usize;
        if bytes > limit { Err(SendError::TooLarge { channel: Some(channel), bytes, limit }) } else { Ok(()) }
    }
}
