//! The buffers in which datagrams arrive, and the events in them.
//!
//! The inbox is separate from the server: an event borrows only the inbox, so that the game can reply through the
//! server while it still holds the event, without a copy.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_netcode::ids::{ClientId, PacketNumber};
use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, RECEIVE_BUFFER_BYTES};
use slipgate_session::channel::transfer::{PartialTransfer, TransferId};
use slipgate_session::channel::{ChannelEvent, ChannelId};
use slipgate_session::connection::{CloseReason, Delivery, PacketTimes, ReceivedDatagram, SendError, SessionMessage};
use slipgate_session::reliability::PacketEvent;
use slipgate_session::server::{ClientDatagram, SessionEvent};
use slipgate_session::wire::PayloadSpan;
use slipgate_session::wire::reliable::Sequence;
use slipgate_udp::{BATCH_SIZE, ReceiveBatch};

use crate::{ClientHandle, Server};

/// Something that happened to a client. A client has its other events between `Connected` and `Disconnected`.
///
/// # Examples
/// ```no_run
/// # use slipgate_server::{Event, Inbox, Server};
/// # fn turn(server: &mut Server, inbox: &mut Inbox) {
/// while let Some(event) = inbox.next(server) {
///     match event {
///         Event::Connected { client, client_id } => println!("{client_id} has slot {}", client.slot()),
///         Event::Message { channel, bytes, .. } => println!("{} bytes on channel {}", bytes.len(), channel.0),
///         Event::Disconnected { client_id, reason, .. } => println!("{client_id}: {}", reason.kind),
///         _ => {}
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A client has a slot. [`Server::client`] returns its address and user data.
    Connected {
        /// Its handle from now on.
        client: ClientHandle,
        /// The client id of its token.
        client_id: ClientId,
    },
    /// A payload arrived, with [`Traffic::Payloads`](crate::Traffic).
    Payload {
        /// The sender.
        client: ClientHandle,
        /// The sequence number of its packet: a larger one is newer. 0 for clients in the same program.
        sequence: PacketNumber,
        /// 1 to 1200 bytes.
        bytes: &'a [u8],
        /// The time of its arrival.
        times: PacketTimes,
    },
    /// An acknowledged packet arrived, with [`Traffic::Packets`](crate::Traffic).
    Packet {
        /// The sender.
        client: ClientHandle,
        /// The sequence number of the packet, modulo 2^16.
        sequence: Sequence,
        /// 1 byte to 16 KiB.
        bytes: &'a [u8],
        /// The time of its arrival.
        times: PacketTimes,
    },
    /// An acknowledged packet to a client was acknowledged or lost.
    Sent {
        /// The receiver.
        client: ClientHandle,
        /// The result.
        event: PacketEvent,
    },
    /// A message arrived on a channel, with [`Traffic::Channels`](crate::Traffic).
    Message {
        /// The sender.
        client: ClientHandle,
        /// The channel.
        channel: ChannelId,
        /// 0 bytes to the channel's `max_message_bytes`.
        bytes: &'a [u8],
        /// The times of its arrival, and of its sending if known.
        times: PacketTimes,
    },
    /// The status of a transfer has changed, or a receipt was requested and the delivery status of the message is
    /// known.
    Channel {
        /// The client.
        client: ClientHandle,
        /// The change.
        event: ChannelEvent,
    },
    /// The shard has started a transfer; only a [`ShardedServer`](crate::sharded::ShardedServer) reports it.
    Started {
        /// The receiver.
        client: ClientHandle,
        /// The channel.
        channel: ChannelId,
        /// The id of the transfer in later events.
        id: TransferId,
        /// The label that the game gave it.
        label: u64,
    },
    /// The shard could not send a message or start a transfer; only a [`ShardedServer`](crate::sharded::ShardedServer)
    /// reports it.
    NotSent {
        /// The receiver.
        client: ClientHandle,
        /// The channel.
        channel: ChannelId,
        /// The tag of the message's receipt if one was requested, or the label of the transfer. No other event reports
        /// it.
        receipt: Option<u64>,
        /// Why it was refused.
        error: SendError,
    },
    /// The received part of a transfer at the end of its connection; the client's next connection can resume it. It
    /// comes before `Disconnected`.
    Partial {
        /// The sender.
        client: ClientHandle,
        /// The channel.
        channel: ChannelId,
        /// The received part.
        partial: PartialTransfer,
    },
    /// A client's connection has ended, and its handle is no longer valid.
    Disconnected {
        /// The handle that it had.
        client: ClientHandle,
        /// The client id of its token.
        client_id: ClientId,
        /// Why, by which side, and with which code and text.
        reason: CloseReason,
    },
}

impl<'a> Event<'a> {
    /// Returns the client that the event concerns.
    pub(crate) const fn client(&self) -> ClientHandle {
        match self {
            Self::Connected { client, .. }
            | Self::Payload { client, .. }
            | Self::Packet { client, .. }
            | Self::Sent { client, .. }
            | Self::Message { client, .. }
            | Self::Channel { client, .. }
            | Self::Started { client, .. }
            | Self::NotSent { client, .. }
            | Self::Partial { client, .. }
            | Self::Disconnected { client, .. } => *client,
        }
    }

    /// Splits off the bytes, so that the event can go to another thread beside them.
    pub(crate) fn split_bytes(self) -> (Event<'static>, &'a [u8]) {
        const NONE: &[u8] = &[];
        let event = match self {
            Self::Payload { client, sequence, bytes, times } => {
                return (Event::Payload { client, sequence, bytes: NONE, times }, bytes);
            }
            Self::Packet { client, sequence, bytes, times } => {
                return (Event::Packet { client, sequence, bytes: NONE, times }, bytes);
            }
            Self::Message { client, channel, bytes, times } => {
                return (Event::Message { client, channel, bytes: NONE, times }, bytes);
            }
            Self::Connected { client, client_id } => Event::Connected { client, client_id },
            Self::Disconnected { client, client_id, reason } => Event::Disconnected { client, client_id, reason },
            Self::Sent { client, event } => Event::Sent { client, event },
            Self::Channel { client, event } => Event::Channel { client, event },
            Self::Partial { client, channel, partial } => Event::Partial { client, channel, partial },
            Self::Started { client, channel, id, label } => Event::Started { client, channel, id, label },
            Self::NotSent { client, channel, receipt, error } => Event::NotSent { client, channel, receipt, error },
        };
        (event, NONE)
    }

    /// Puts the bytes back into an event of a kind that has some.
    pub(crate) fn with_bytes(mut self, body: &'a [u8]) -> Self {
        if let Self::Payload { bytes, .. } | Self::Packet { bytes, .. } | Self::Message { bytes, .. } = &mut self {
            *bytes = body;
        }
        self
    }
}

/// Datagrams that wait at once: a whole batch. Further ones are taken whole.
const MAX_PARKED: usize = BATCH_SIZE;

/// The longest wait while messages wait for the application, or for the budget of their client.
const PARKED_WAIT: Duration = Duration::from_millis(1);

/// The buffers in which datagrams arrive and are decrypted; allocated once.
///
/// # Examples
/// ```no_run
/// # use slipgate_server::{Inbox, Server};
/// # fn run(mut server: Server) {
/// // One for the whole run: it keeps its buffers.
/// let mut inbox = Inbox::default();
/// while let Some(event) = inbox.next(&mut server) {
///     println!("{event:?}");
/// }
/// # }
/// ```
pub struct Inbox {
    batch: ReceiveBatch,
    next_index: usize,
    loopback_buf: [u8; MAX_PAYLOAD_BYTES],
    /// Messages that are assembled from several datagrams.
    scratch: Vec<u8>,
    /// The datagram with messages that were not taken.
    current: Option<(EventSource, ClientDatagram)>,
    /// The messages of the current datagram that were taken in a row.
    in_a_row: u32,
    parked: ParkedDatagrams,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            batch: ReceiveBatch::default(),
            next_index: 0,
            loopback_buf: [0; MAX_PAYLOAD_BYTES],
            scratch: Vec::new(),
            current: None,
            in_a_row: 0,
            parked: ParkedDatagrams::default(),
        }
    }
}

/// Datagrams with messages that were set aside. A client beyond its budget does not delay the others, and one that the
/// application takes nothing of now does not fill its queue. One datagram releases thousands of messages if it closes
/// the gap of a large window.
#[derive(Default)]
struct ParkedDatagrams {
    /// Allocated with the first datagram.
    bufs: Vec<[u8; RECEIVE_BUFFER_BYTES]>,
    /// The indices of the buffers that are not used.
    free: Vec<usize>,
    queue: VecDeque<(usize, ClientDatagram)>,
}

impl ParkedDatagrams {
    /// Returns a copy's buffer, `None` if all are used.
    fn copy(&mut self, datagram: &[u8]) -> Option<usize> {
        if self.bufs.is_empty() {
            self.bufs = vec![[0; RECEIVE_BUFFER_BYTES]; MAX_PARKED];
            self.free = (0..MAX_PARKED).collect();
            self.queue.reserve(MAX_PARKED);
        }
        let index = self.free.pop()?;
        self.bufs.get_mut(index)?.get_mut(..datagram.len())?.copy_from_slice(datagram);
        Some(index)
    }

    /// Returns the position of the datagram that has waited longest and may go on.
    fn next(&self, server: &mut Server) -> Option<usize> {
        self.queue.iter().position(|(_, received)| server.may_deliver(received, 0))
    }

    /// Takes the datagram that has waited longest and may go on.
    fn take(&mut self, server: &mut Server) -> Option<(usize, ClientDatagram)> {
        let next = self.next(server)?;
        self.queue.remove(next)
    }

    /// Takes a datagram with which this turn begins: each one that only the application kept waiting, and one of a
    /// client beyond its budget.
    fn take_due(&mut self, server: &mut Server) -> Option<(usize, ClientDatagram)> {
        let is_due = |received: &ClientDatagram| !is_over_budget(received);
        let next = self.queue.iter().position(|(_, received)| is_due(received) && server.may_deliver(received, 0));
        if let Some(next) = next {
            return self.queue.remove(next);
        }
        server.end_parked_due();
        self.take(server)
    }

    fn bytes(&self, index: usize) -> &[u8] {
        self.bufs.get(index).map(<[u8; RECEIVE_BUFFER_BYTES]>::as_slice).unwrap_or_default()
    }
}

/// The buffer that holds a datagram.
#[derive(Clone, Copy)]
enum EventSource {
    /// This entry of the batch.
    Batch(usize),
    Loopback,
    Parked(usize),
}

/// The next event, and the buffer of its bytes. An event that borrowed them at once would borrow the inbox in the loop.
enum ServerInboxItem {
    Event(SessionEvent),
    Message(EventSource, ClientHandle, SessionMessage),
}

impl Inbox {
    /// Returns the next event of this turn, `None` when there is none or the turn has read its limit.
    pub fn next(&mut self, server: &mut Server) -> Option<Event<'_>> {
        let found = self.find(server)?;
        server.count_event();
        Some(match found {
            ServerInboxItem::Event(event) => from_session(event),
            ServerInboxItem::Message(source, client, message) => match message {
                SessionMessage::Payload { sequence, span, times } => {
                    Event::Payload { client, sequence, bytes: self.bytes(source, &span), times }
                }
                SessionMessage::Packet { sequence, span, times } => {
                    Event::Packet { client, sequence, bytes: self.bytes(source, &span), times }
                }
                SessionMessage::Channel { channel, span, times } => {
                    Event::Message { client, channel, bytes: self.bytes(source, &span), times }
                }
            },
        })
    }

    fn find(&mut self, server: &mut Server) -> Option<ServerInboxItem> {
        loop {
            // Events come first: `Connected` must precede the first message of a client.
            if let Some(event) = server.poll_event() {
                return Some(ServerInboxItem::Event(event));
            }
            if let Some((source, received)) = self.current.take() {
                let client = received.client;
                if let Some(message) = self.next_message(source, received, server) {
                    return Some(ServerInboxItem::Message(source, client, message));
                }
            } else {
                self.take_datagram(server)?;
            }
        }
    }

    /// Returns the next message of the current datagram. Returns `None` if it has no more, or was set aside.
    fn next_message(
        &mut self,
        source: EventSource,
        mut received: ClientDatagram,
        server: &mut Server,
    ) -> Option<SessionMessage> {
        if !server.may_deliver(&received, self.in_a_row) && self.park(source, &received) {
            return None;
        }
        let datagram = match source {
            EventSource::Batch(index) => self.batch.bytes(index),
            EventSource::Loopback => &self.loopback_buf,
            EventSource::Parked(index) => self.parked.bytes(index),
        };
        let message = server.next(datagram, &mut received, &mut self.scratch);
        if message.is_some() {
            self.in_a_row += 1;
            self.current = Some((source, received));
        } else if let EventSource::Parked(index) = source {
            self.parked.free.push(index);
        }
        message
    }

    /// Takes the next datagram: of clients in the same process, of the batch, of the sockets, or one set aside. Returns
    /// `None` if there is none, or the turn must end.
    fn take_datagram(&mut self, server: &mut Server) -> Option<()> {
        self.in_a_row = 0;
        // A turn that reads its limit would never come to these.
        if server.is_parked_due()
            && let Some((index, received)) = self.parked.take_due(server)
        {
            self.current = Some((EventSource::Parked(index), received));
            return Some(());
        }
        if let Some(received) = server.poll_loopback(&mut self.loopback_buf, &mut self.scratch) {
            self.current = Some((EventSource::Loopback, received));
            return Some(());
        }
        if self.next_index >= self.batch.len() {
            self.next_index = 0;
            if !server.receive(&mut self.batch) {
                return self.take_parked(server);
            }
        }
        let index = self.next_index;
        self.next_index += 1;
        if let Some(arrived) = self.batch.get(index) {
            let received = server.handle(arrived.from, arrived.datagram, &mut self.scratch);
            self.current = received.map(|received| (EventSource::Batch(index), received));
        }
        Some(())
    }

    /// Sets a datagram aside. Returns whether there was a buffer for it.
    fn park(&mut self, source: EventSource, received: &ClientDatagram) -> bool {
        let buf = match source {
            EventSource::Batch(index) => self.parked.copy(self.batch.bytes(index)),
            EventSource::Parked(index) => Some(index),
            EventSource::Loopback => None,
        };
        let Some(buf) = buf else { return false };
        self.parked.queue.push_back((buf, received.clone()));
        true
    }

    /// Continues with the datagram that has waited longest. Returns `None` if there is none, or the turn must end.
    fn take_parked(&mut self, server: &mut Server) -> Option<()> {
        let can_go_on = self.parked.next(server).is_some();
        let may_go_on = can_go_on && server.begin_parked();
        server.set_max_wait(match can_go_on {
            true => Duration::ZERO,
            false if self.parked.queue.is_empty() => Duration::MAX,
            // No datagram arrives when the application takes more, or the client may go on.
            false => PARKED_WAIT,
        });
        let (index, received) = if may_go_on { self.parked.take(server)? } else { return None };
        self.current = Some((EventSource::Parked(index), received));
        Some(())
    }

    fn bytes(&self, source: EventSource, span: &PayloadSpan) -> &[u8] {
        let datagram = match source {
            EventSource::Batch(index) => self.batch.bytes(index),
            EventSource::Loopback => &self.loopback_buf,
            EventSource::Parked(index) => self.parked.bytes(index),
        };
        span.bytes(datagram, &self.scratch)
    }
}

/// Returns whether the sender of a datagram has used up its work budget.
fn is_over_budget(datagram: &ClientDatagram) -> bool {
    matches!(&datagram.received, ReceivedDatagram::Frames { cursor, .. } if cursor.delivery == Delivery::MayWait)
}

fn from_session(event: SessionEvent) -> Event<'static> {
    match event {
        SessionEvent::Connected { client, client_id } => Event::Connected { client, client_id },
        SessionEvent::Disconnected { client, client_id, reason, .. } => {
            Event::Disconnected { client, client_id, reason }
        }
        SessionEvent::Packet { client, event } => Event::Sent { client, event },
        SessionEvent::Channel { client, event } => Event::Channel { client, event },
        SessionEvent::Partial { client, channel, partial } => Event::Partial { client, channel, partial },
    }
}
