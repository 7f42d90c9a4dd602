//! Mints connect tokens, which a game's backend sends to its players and which game servers require to connect.
//!
//! ```text
//!  backend ──client id, user data──▶ issuer ──connect token──▶ backend ──HTTPS──▶ player ──UDP──▶ game server
//!                                    (private key)                                                (private key)
//! ```
//!
//! A backend in Rust calls [`Issuer::mint`]. A backend in any other language calls the HTTP service, which is the
//! module `http` behind the feature of that name; `specs/http-api.md` documents its API.
//!
//! # Examples
//! ```
//! use slipgate_token_issuer::{Issuer, Key, Limits, TokenRequest, system_entropy, wall_clock};
//!
//! // A program reads it by `key_file::read_key_file`: the game servers need the same key.
//! let key = Key::random(&mut system_entropy()?);
//!
//! let issuer = Issuer::new(0x1234, key.into(), &["192.0.2.7:40000".parse()?], Limits::default())?;
//! let minted = issuer.mint(&TokenRequest::new(42), wall_clock(), &mut system_entropy()?)?;
//! assert_eq!(minted.token.as_bytes().len(), 2048);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct IssuerReadme;

pub mod api_key;
#[cfg(feature = "http")]
pub mod callers;
mod entropy;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "http")]
pub mod http;
mod issuer;
mod limits;
#[cfg(feature = "player-jwt")]
pub mod players;
#[cfg(feature = "http")]
pub mod registry;

pub use entropy::system_entropy;
pub use issuer::{AllowedNetwork, AllowedNetworkError, Issuer, IssuerError, MintError, Minted, TokenRequest};
pub use limits::{Limits, LimitsError, MAX_LIFETIME_SECONDS, MAX_TIMEOUT_SECONDS};
pub use slipgate_netcode::crypto::key::{Key, KeyRing};
pub use slipgate_netcode::ids::ClientId;
pub use slipgate_netcode::time::UnixMillis;
pub use slipgate_os::clock::wall_clock;
pub use slipgate_os::key_file;
