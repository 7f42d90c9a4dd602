//! Events of a client.

use alloc::boxed::Box;

use crate::channel::transfer::PartialTransfer;
use crate::channel::{ChannelEvent, ChannelId};
use crate::connection::CloseReason;
use crate::reliability::PacketEvent;
use slipgate_netcode::ids::ClientIndex;
use slipgate_netcode::token::ConnectToken;

/// Something that happened. The server's messages come from
/// [`SessionClient::next_message`](super::SessionClient::next_message).
#[derive(Debug)]
pub enum ClientSessionEvent {
    /// A server gave the client a slot.
    Connected {
        /// The slot, from 0.
        client_index: ClientIndex,
        /// The number of the server's slots.
        max_clients: u32,
    },
    /// An acknowledged packet arrived at the server, or was lost.
    Packet(PacketEvent),
    /// An event of the channels.
    Channel(ChannelEvent),
    /// The part of a transfer that had arrived when the connection ended, to resume it in the next one. It comes before
    /// `Ended`.
    Partial {
        /// The transfer's channel.
        channel: ChannelId,
        /// The part that had arrived.
        partial: PartialTransfer,
    },
    /// The server has ended the connection, and sends the client to another one. Connect with the token, or handle it
    /// like `Ended`. The token is of the same game, and names no network that the first one did not.
    Redirected {
        /// A token for other servers.
        token: Box<ConnectToken>,
        /// The reason for a player who does not follow.
        reason: CloseReason,
    },
    /// The attempt or the connection has ended.
    Ended {
        /// The cause, the side that ended it, and its code and text.
        reason: CloseReason,
    },
}
