//! Payloads, packets, messages and transfers of the application to its clients.

use super::{SessionServer, client_sink};
use crate::channel::transfer::{Transfer, TransferId};
use crate::channel::{ChannelId, SendOptions, SharedMessage};
use crate::connection::{ClientProtocol, Connection, SendError};
use crate::wire::reliable::Sequence;
use slipgate_netcode::Outbox;
use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::Now;

/// How many clients a broadcast was queued for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BroadcastReport {
    /// The number of clients with the message in their queue.
    pub queued: u32,
    /// The number of connected clients with a queue that refused it.
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
        let ClientProtocol::Payloads = self.session_mut(client)?.protocol else { return Err(SendError::WrongTraffic) };
        self.netcode.send(client, payload, now, outbox)?;
        // A client in the same program has no address and needs no uplink.
        if self.uplink.is_limited() && self.netcode.client(client).is_some_and(|info| info.address.is_some()) {
            self.uplink.spend(client.slot().0, 0, payload.len() as u64 + client_sink::HEADER_BYTES);
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
        let mut sink = client_sink::ClientSink::new(netcode, client, now, outbox, buf);
        let sent = packets.send(payload, now.monotonic, &mut sink);
        uplink.spend(client.slot().0, 0, sink.sent_bytes);
        self.wake(client.slot().0);
        Ok(sent?)
    }

    /// Queues a message on a client's channel. It is copied once, and leaves with the next
    /// [`transmit`](Self::transmit) that the path allows.
    ///
    /// # Errors
    /// - `Gone` when the client is not connected.
    /// - `NoChannel` or `WrongKind` when the layout has no such channel, or one of transfers.
    /// - `TooLarge` when the message exceeds the channel's limit.
    /// - `Backlogged` when the channel's queue or the receipts are full.
    /// - `WrongTraffic` unless the traffic is on channels.
    #[inline]
    pub fn send_message(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
        now: Now,
    ) -> Result<(), SendError> {
        self.open_connection(client)?.send(channel, message, options, now.monotonic)?;
        self.wake(client.slot().0);
        Ok(())
    }

    /// Queues a message on a channel of all connected clients but `except`. The bytes are stored once for all of them.
    ///
    /// # Errors
    /// - `NoChannel` or `WrongKind` when the layout has no such channel, or one of transfers.
    /// - `TooLarge` when the message exceeds the channel's limit.
    /// - `WrongTraffic` unless the traffic is on channels.
    ///
    /// Full queues are no error: the report counts them.
    pub fn broadcast(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        except: Option<ClientHandle>,
        options: SendOptions,
        now: Now,
    ) -> Result<BroadcastReport, SendError> {
        let (message, mut report) = (SharedMessage::from(message), BroadcastReport::default());
        let mut next = self.next_client(None);
        while let Some(client) = next {
            // The next client is found before the session is borrowed.
            next = self.next_client(Some(client));
            if Some(client) == except {
                continue;
            }
            match self.open_connection(client)?.send_shared(channel, &message, options, now.monotonic) {
                Ok(()) => report.queued += 1,
                Err(SendError::Backlogged) => report.refused += 1,
                // The other errors hold for all clients alike: the first client returns them.
                Err(error) => return Err(error),
            }
            self.wake(client.slot().0);
        }
        Ok(report)
    }

    /// Starts a transfer to a client; `label` identifies it for the client.
    ///
    /// # Errors
    /// - `Gone` when the client is not connected.
    /// - `NoChannel` or `WrongKind` when the layout has no such channel, or one of messages.
    /// - `Backlogged` when as many transfers wait as the channel allows.
    /// - `WrongTraffic` unless the traffic is on channels.
    pub fn send_transfer(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        transfer: Transfer,
        label: u64,
    ) -> Result<TransferId, SendError> {
        let id = self.open_connection(client)?.channels_mut().send_transfer(channel, transfer, label)?;
        self.wake(client.slot().0);
        Ok(id)
    }

    #[inline]
    fn open_connection(&mut self, client: ClientHandle) -> Result<&mut Connection, SendError> {
        let connection = self.session_mut(client)?.protocol.connection_mut().ok_or(SendError::WrongTraffic)?;
        if connection.close_reason().is_some() { Err(SendError::Gone) } else { Ok(connection) }
    }
}
