//! The kinds of events. A number never changes its meaning; games ignore kinds that they do not know.

/// A client has a slot. Events of a client: `number` is its index, `label` the number of slots. Events of a server:
/// `number` is the client id of its token.
pub const SLIPGATE_CONNECTED: u32 = 1;
/// A payload arrived: `number` is its sequence number, a larger one is newer.
pub const SLIPGATE_PAYLOAD: u32 = 2;
/// An acknowledged packet arrived: `number` is its sequence number, modulo 2^16.
pub const SLIPGATE_PACKET: u32 = 3;
/// A message arrived on `channel`.
pub const SLIPGATE_MESSAGE: u32 = 4;
/// The delivery status of a message is known: `number` is the tag of its receipt, `reason` a status such as
/// `SLIPGATE_ARRIVED`.
pub const SLIPGATE_RECEIPT: u32 = 5;
/// A packet of this side was acknowledged: `number` is its sequence number, `label` the round trip in microseconds.
pub const SLIPGATE_PACKET_ACKED: u32 = 6;
/// A packet of this side was lost: `number` is its sequence number.
pub const SLIPGATE_PACKET_LOST: u32 = 7;
/// The peer offers a transfer: `number` is its id, `label` the peer's label, `size` its bytes. Accept or refuse it.
pub const SLIPGATE_TRANSFER_OFFERED: u32 = 8;
/// A transfer is complete: `number` is its id, `label` the peer's label, `bytes` its content.
pub const SLIPGATE_TRANSFER_RECEIVED: u32 = 9;
/// A transfer of the peer ended early: `number` is its id, `label` the peer's label, `reason` why, `by` which side.
pub const SLIPGATE_TRANSFER_BROKEN: u32 = 10;
/// The connection ended during a transfer of the peer: `size` bytes of it have arrived. A client keeps them for its
/// next connection, which continues if the server sends the same content again.
pub const SLIPGATE_TRANSFER_KEPT: u32 = 11;
/// The peer has all of a transfer: `number` is its id.
pub const SLIPGATE_TRANSFER_DELIVERED: u32 = 12;
/// The peer has refused or cancelled a transfer: `number` is its id, `reason` why.
pub const SLIPGATE_TRANSFER_REFUSED: u32 = 13;
/// The connection or the attempt has ended: `reason` is a kind such as `SLIPGATE_CLOSE_KICKED`, `by` which side,
/// `label` the code or `SLIPGATE_NO_CODE`. Events of a client: `bytes` is a sentence for the player. Events of a
/// server: `number` is the client id, `bytes` the text that came with the code.
pub const SLIPGATE_ENDED: u32 = 14;
/// The server has ended the connection, and the client connects to another server by itself: `SLIPGATE_CONNECTED` or
/// `SLIPGATE_ENDED` follows. The fields are those of `SLIPGATE_ENDED`.
pub const SLIPGATE_REDIRECTED: u32 = 15;

/// The peer has all of the message.
pub const SLIPGATE_ARRIVED: i32 = 1;
/// The message counts as lost, and is not sent again.
pub const SLIPGATE_LOST: i32 = 2;
/// The deadline passed first.
pub const SLIPGATE_EXPIRED: i32 = 3;
/// A newer message replaced it.
pub const SLIPGATE_SUPERSEDED: i32 = 4;
/// The message was reported as lost, and arrived all the same.
pub const SLIPGATE_ARRIVED_LATE: i32 = 5;

/// The application cancelled the transfer.
pub const SLIPGATE_TRANSFER_REASON_CANCELLED: i32 = 0;
/// The application declined the transfer.
pub const SLIPGATE_TRANSFER_REASON_DECLINED: i32 = 1;
/// The transfer is larger than the receiver allows.
pub const SLIPGATE_TRANSFER_REASON_TOO_LARGE: i32 = 2;
/// More transfers are in progress than the receiver allows.
pub const SLIPGATE_TRANSFER_REASON_BUSY: i32 = 3;
/// The receiver has no memory for the transfer.
pub const SLIPGATE_TRANSFER_REASON_NO_MEMORY: i32 = 4;
/// All bytes arrived, and their digest is not the announced one.
pub const SLIPGATE_TRANSFER_REASON_WRONG_DIGEST: i32 = 5;
