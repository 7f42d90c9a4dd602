//! Slipgate: secure game networking on netcode 1.02.
//!
//! | program | feature | module |
//! | --- | --- | --- |
//! | the web backend, which knows the players | `issuer` | `issuer`: mints connect tokens |
//! | the dedicated server, one per game instance | `server` (default) | `server`: accepts clients with valid tokens |
//! | the game client | `client` (default) | `client`: turns a token into an encrypted connection |
//!
//! The feature `sync` has `sync`: the objects of a game for many clients.
//!
//! Client and server of a game share a [`Layout`] of channels. [`netcode`] and [`session`] are the protocols, without
//! sockets or clocks. The folder `examples` has a complete small game.

#![forbid(unsafe_code)]

#[cfg(all(doctest, feature = "client", feature = "server"))]
#[doc = include_str!("../README.md")]
struct FacadeReadme;

#[cfg(feature = "client")]
pub use slipgate_client as client;
pub use slipgate_netcode as netcode;
#[cfg(feature = "server")]
pub use slipgate_server as server;
pub use slipgate_session as session;
pub use slipgate_session::channel::{Channel, ChannelId, Layout, LayoutError};
pub use slipgate_session::connection::Traffic;
#[cfg(feature = "sync")]
pub use slipgate_sync as sync;
#[cfg(feature = "issuer")]
pub use slipgate_token_issuer as issuer;
