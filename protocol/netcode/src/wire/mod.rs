//! The wire format of netcode 1.02: packets and token layouts. It has no keys and no policy.
//!
//! ```text
//!  connect token (2048, for the client)      connection request (1078)
//!  ┌───────────────────────────────┐         ┌───────────────────────────────┐
//!  │ version, protocol id          │────────▶│ 0, version, protocol id       │
//!  │ created, expires, nonce       │────────▶│ expires, nonce                │
//!  │ sealed private part (1024)    │────────▶│ sealed private part (1024)    │
//!  │ timeout, servers, both keys   │         └───────────────────────────────┘
//!  └───────────────────────────────┘         encrypted packet (18..=1225)
//!                                            ┌────────┬──────────┬─────────┬─────┐
//!                                            │ prefix │ sequence │ content │ tag │
//!                                            └────────┴──────────┴─────────┴─────┘
//! ```
//!
//! Section numbers §1.x in this crate are those of `specs/netcode-1.02.md`.

pub mod cursor;
pub mod packet;
pub mod token;

/// The protocol version at the start of every connect token, and in every connection request (§1.1).
pub const VERSION: [u8; 13] = *b"NETCODE 1.02\0";

/// Bytes of a connect token (§1.2).
pub const CONNECT_TOKEN_BYTES: usize = 2048;
/// Bytes of the sealed private part of a connect token, tag included (§1.2).
pub const PRIVATE_TOKEN_BYTES: usize = 1024;
/// Bytes of the private part before sealing (§1.4).
pub const PRIVATE_TOKEN_PLAIN_BYTES: usize = PRIVATE_TOKEN_BYTES - TAG_BYTES;
/// Bytes of a connect token's nonce (§1.2).
pub const TOKEN_NONCE_BYTES: usize = 24;
/// Bytes of a sealed challenge token, tag included (§1.2).
pub const CHALLENGE_TOKEN_BYTES: usize = 300;
/// Bytes of a challenge token before sealing (§1.6).
pub const CHALLENGE_TOKEN_PLAIN_BYTES: usize = CHALLENGE_TOKEN_BYTES - TAG_BYTES;
/// Bytes of a Poly1305 tag (§1.1).
pub const TAG_BYTES: usize = 16;
/// Bytes of every key (§1.2).
pub const KEY_BYTES: usize = 32;
/// Bytes of the application's own data in a connect token (§1.2).
pub const USER_DATA_BYTES: usize = 256;
/// The maximum of server addresses in one connect token (§1.2).
pub const MAX_SERVERS_PER_TOKEN: usize = 32;
/// The maximum of bytes in a payload (§1.2). The minimum is 1.
pub const MAX_PAYLOAD_BYTES: usize = 1200;
/// Bytes of a connection request (§1.2).
pub const REQUEST_BYTES: usize = 1078;
/// The maximum of bytes in an encrypted packet: prefix, 8 sequence bytes, the largest payload, tag (§1.2).
pub const MAX_ENCRYPTED_BYTES: usize = 1 + 8 + MAX_PAYLOAD_BYTES + TAG_BYTES;
/// The size of a buffer that holds every sent datagram.
pub const MAX_DATAGRAM_BYTES: usize = MAX_ENCRYPTED_BYTES;
/// The size of a receive buffer: the reference's 1300 bytes (§1.2). A longer datagram is truncated and then dropped.
pub const RECEIVE_BUFFER_BYTES: usize = 1300;

/// The application's own data in a connect token, from the backend to the server.
pub type UserData = [u8; USER_DATA_BYTES];
