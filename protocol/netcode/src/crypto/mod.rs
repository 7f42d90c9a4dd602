//! Cryptography: the only module that names a cipher or holds a key.
//!
//! ```text
//!            key ────────┬──────────────┬───────────────┐
//!                        ▼              ▼               ▼
//!  lane ─▶ nonce ─▶ packet seal    token seal       digest (HMAC-SHA256)
//!  window ◀──────── packet open    token open       keyed (SipHash-1-3)
//! ```
//!
//! [`aead`] has two backends with equal output. Packets and tokens use the same one.

pub mod aead;
pub mod digest;
pub mod key;
pub mod keyed;
pub(crate) mod lane;
pub mod packet;
pub mod replay;
pub mod sealed_token;
