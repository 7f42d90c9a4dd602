//! Mints connect tokens: what a game's backend gives a player, who shows it to a game server to be let in.
//!
//! ```text
//!  backend ──client id, user data──▶ issuer ──connect token──▶ backend ──HTTPS──▶ player ──UDP──▶ game server
//!                                    (private key)                                                (private key)
//! ```
//!
//! A backend in Rust calls [`Issuer::mint`]; with `default-features = false` it pays for nothing else. A backend in
//! any other language asks the service of the `http` module over HTTP, as `specs/http-api.md` tells.
//!
//! # Examples
//! ```
//! use rand::SeedableRng;
//! use slipgate_protocol::crypto::key::Key;
//! use slipgate_protocol::time::UnixMillis;
//! use slipgate_token_issuer::{Issuer, Limits, TokenRequest};
//!
//! // In a program: a key that the game servers know too, the clock, and the system's entropy.
//! let mut entropy = rand::rngs::StdRng::from_seed([7; 32]);
//! let key = Key::random(&mut entropy);
//! let now = UnixMillis(1_760_000_000_000);
//!
//! let issuer = Issuer::new(0x1234, key.into(), &["192.0.2.7:40000".parse()?], Limits::default())?;
//! let minted = issuer.mint(&TokenRequest::new(42), now, &mut entropy)?;
//! assert_eq!(minted.token.as_bytes().len(), 2048);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod api_key;
#[cfg(feature = "http")]
pub mod http;
pub mod issuer;
pub mod limits;

pub use issuer::{Issuer, IssuerError, MintError, Minted, TokenRequest};
pub use limits::{Limits, LimitsError};
pub use slipgate_edge::key_file;
