//! The buffers in which datagrams arrive, and the events in them.
//!
//! The inbox is separate from the client: an event borrows only the inbox, so that the game can reply through the
//! client while it still holds the event, without a copy.

use slipgate_netcode::ids::{ClientIndex, PacketNumber};
use slipgate_session::channel::transfer::PartialTransfer;
use slipgate_session::channel::{ChannelEvent, ChannelId};
use slipgate_session::client::ClientSessionEvent;
use slipgate_session::connection::{CloseReason, PacketTimes, ReceivedDatagram, SessionMessage};
use slipgate_session::reliability::PacketEvent;
use slipgate_session::wire::reliable::Sequence;
use slipgate_udp::ReceiveBatch;

use crate::Client;

/// Something that happened since the last event.
///
/// # Examples
/// ```no_run
/// # use slipgate_client::{Client, Event, Inbox};
/// # fn turn(client: &mut Client, inbox: &mut Inbox) {
/// while let Some(event) = inbox.next(client) {
///     match event {
///         Event::Connected { client_index, .. } => println!("player {}", client_index.0 + 1),
///         Event::Message { channel, bytes, .. } => println!("{} bytes on channel {}", bytes.len(), channel.0),
///         Event::Ended { reason } => println!("{reason}"),
///         _ => {}
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A server gave the client a slot.
    Connected {
        /// The client's index, from 0.
        client_index: ClientIndex,
        /// The number of the server's slots.
        max_clients: u32,
    },
    /// A payload arrived, with [`Traffic::Payloads`](crate::Traffic).
    Payload {
        /// The sequence number of its packet: a larger one is newer.
        sequence: PacketNumber,
        /// 1 to 1200 bytes.
        bytes: &'a [u8],
        /// The time of its arrival.
        times: PacketTimes,
    },
    /// An acknowledged packet arrived, with [`Traffic::Packets`](crate::Traffic).
    Packet {
        /// The sequence number of the packet, modulo 2^16.
        sequence: Sequence,
        /// 1 byte to 16 KiB.
        bytes: &'a [u8],
        /// The time of its arrival.
        times: PacketTimes,
    },
    /// A packet of this client was acknowledged or lost.
    Sent(PacketEvent),
    /// A message arrived on a channel, with [`Traffic::Channels`](crate::Traffic).
    Message {
        /// The channel.
        channel: ChannelId,
        /// 0 bytes to the channel's `max_message_bytes`.
        bytes: &'a [u8],
        /// The times of its arrival, and of its sending if known.
        times: PacketTimes,
    },
    /// The status of a transfer has changed, or a receipt was requested and the delivery status of the message is
    /// known.
    Channel(ChannelEvent),
    /// The received part of a transfer at the end of its connection; the next connection can resume it. It comes before
    /// `Ended`.
    Partial {
        /// The channel.
        channel: ChannelId,
        /// The received part.
        partial: PartialTransfer,
    },
    /// The server has ended the connection, and the client connects to another one by itself: `Connected` or `Ended`
    /// follows. Messages that were not acknowledged are lost.
    Redirected {
        /// Why the server has ended the connection.
        reason: CloseReason,
    },
    /// The attempt or the connection has ended.
    Ended {
        /// The reason. Its `Display` is a sentence for the player.
        reason: CloseReason,
    },
}

/// The buffers in which datagrams arrive and are decrypted; allocated once.
///
/// # Examples
/// ```no_run
/// # use slipgate_client::{Inbox, Client};
/// # fn run(mut client: Client) {
/// // One for the whole run: it keeps its buffers.
/// let mut inbox = Inbox::default();
/// while let Some(event) = inbox.next(&mut client) {
///     println!("{event:?}");
/// }
/// # }
/// ```
#[derive(Default)]
pub struct Inbox {
    batch: ReceiveBatch,
    next_index: usize,
    /// Messages that are assembled from several datagrams.
    scratch: Vec<u8>,
    /// The datagram with messages that were not taken, and its index in the batch. One datagram releases thousands of
    /// messages if it closes the gap of a large window, so it may last several turns.
    current: Option<(usize, ReceivedDatagram)>,
    /// The messages of the current datagram that were taken in a row.
    in_a_row: u32,
}

/// The next event, and the index of its datagram. An event that borrowed it at once would borrow the inbox in the loop.
enum ClientInboxItem {
    Event(ClientSessionEvent),
    Message(usize, SessionMessage),
}

impl Inbox {
    /// Returns the next event of this turn, `None` when there is none or the turn has read its limit. Messages beyond
    /// the work budget of the server follow in later turns.
    pub fn next(&mut self, client: &mut Client) -> Option<Event<'_>> {
        Some(match self.find(client)? {
            ClientInboxItem::Event(event) => from_session(event),
            ClientInboxItem::Message(index, message) => {
                let datagram = self.batch.bytes(index);
                match message {
                    SessionMessage::Payload { sequence, span, times } => {
                        Event::Payload { sequence, bytes: span.bytes(datagram, &self.scratch), times }
                    }
                    SessionMessage::Packet { sequence, span, times } => {
                        Event::Packet { sequence, bytes: span.bytes(datagram, &self.scratch), times }
                    }
                    SessionMessage::Channel { channel, span, times } => {
                        Event::Message { channel, bytes: span.bytes(datagram, &self.scratch), times }
                    }
                }
            }
        })
    }

    fn find(&mut self, client: &mut Client) -> Option<ClientInboxItem> {
        loop {
            // Events come first: `Connected` must precede the first message.
            if let Some(event) = client.poll_event() {
                return Some(ClientInboxItem::Event(event));
            }
            if let Some((index, mut received)) = self.current.take() {
                if !client.may_deliver(&received, self.in_a_row) {
                    (self.current, self.in_a_row) = (Some((index, received)), 0);
                    return None;
                }
                if let Some(message) = client.next(self.batch.bytes(index), &mut received, &mut self.scratch) {
                    self.current = Some((index, received));
                    self.in_a_row += 1;
                    return Some(ClientInboxItem::Message(index, message));
                }
                self.in_a_row = 0;
                continue;
            }
            if self.next_index >= self.batch.len() {
                self.next_index = 0;
                if !client.receive(&mut self.batch) {
                    return None;
                }
            }
            let index = self.next_index;
            self.next_index += 1;
            let Some(arrived) = self.batch.get(index) else { continue };
            let received = client.handle(arrived.from, arrived.datagram, &mut self.scratch);
            self.current = received.map(|received| (index, received));
        }
    }
}

fn from_session(event: ClientSessionEvent) -> Event<'static> {
    match event {
        ClientSessionEvent::Connected { client_index, max_clients } => Event::Connected { client_index, max_clients },
        ClientSessionEvent::Redirected { reason, .. } => Event::Redirected { reason },
        ClientSessionEvent::Ended { reason } => Event::Ended { reason },
        ClientSessionEvent::Packet(event) => Event::Sent(event),
        ClientSessionEvent::Channel(event) => Event::Channel(event),
        ClientSessionEvent::Partial { channel, partial } => Event::Partial { channel, partial },
    }
}
