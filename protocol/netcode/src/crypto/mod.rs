//! The only place that names a cipher or holds a key.
//!
//! ```text
//!            key ────────┬──────────────┬───────────────┐
//!                        ▼              ▼               ▼
//!  lane ─▶ nonce ─▶ packet seal    token seal       digest (HMAC-SHA256)
//!  window ◀──────── packet open    token open       keyed (SipHash-1-3)
//! ```
//!
//! [`aead`] has two backends that give the same bytes, for packets and tokens alike.

pub mod aead;
pub mod digest;
pub mod key;
pub mod keyed;
pub mod lane;
pub mod packet;
pub mod replay;
pub mod sealed_token;
