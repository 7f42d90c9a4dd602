//! Slipgate: secure game networking on netcode 1.02.
//!
//! A multiplayer game has three places, and each finds its part here:
//!
//! | place | feature | part |
//! | --- | --- | --- |
//! | the web backend, which knows the players | `issuer` | [`issuer`]: mints connect tokens |
//! | the dedicated server, one for each game instance | `server` | [`server`]: admits holders of valid tokens |
//! | the game in the player's hands | `client` | [`client`]: turns a token into an encrypted connection |
//!
//! [`protocol`] is what all of them rest on, without sockets or clocks.

#![forbid(unsafe_code)]

#[cfg(all(doctest, feature = "client", feature = "server", feature = "issuer"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "client")]
pub use slipgate_client as client;
pub use slipgate_netcode as netcode;
#[cfg(feature = "server")]
pub use slipgate_server as server;
pub use slipgate_session as session;
#[cfg(feature = "issuer")]
pub use slipgate_token_issuer as issuer;
