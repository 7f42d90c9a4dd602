//! The only place that names a cipher or holds a key.
//!
//! ```text
//!            key ────────┬──────────────┬───────────────┐
//!                        ▼              ▼               ▼
//!  lane ─▶ nonce ─▶ packet seal    token seal       digest (HMAC-SHA256)
//!  window ◀──────── packet open    token open       keyed (SipHash-1-3)
//! ```
//!
//! [`aead`] has two backends for packets that give the same bytes; tokens always go through the portable one.

pub mod aead;
pub mod digest;
pub mod key;
pub mod keyed;
pub mod lane;
pub mod packet;
pub mod replay;
pub mod sealed_token;
