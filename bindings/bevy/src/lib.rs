//! Slipgate for Bevy: plugins for clients and servers.
//!
//! A plugin begins the turn in `PreUpdate` and ends it in `PostUpdate`. In between, in `Update` or in systems ordered
//! by [`SlipgateSystems`], a game takes events from the resource [`SlipgateClient`] or [`SlipgateServer`] without a
//! copy. It may instead let the plugin copy the messages of channels into Bevy's own: [`ServerMessage`].
//!
//! # Examples
//! ```no_run
//! use bevy_app::{App, Update};
//! use bevy_ecs::prelude::*;
//! use bevy_slipgate::{SlipgateClient, SlipgateClientPlugin, client_connected};
//! use slipgate::client::{Client, ConnectToken, Event};
//! use slipgate::{Channel, ChannelId, Layout, Traffic};
//!
//! const CHAT: ChannelId = ChannelId(0);
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut layout = Layout::builder();
//!     layout.add(Channel::reliable_ordered("chat"));
//!     let client = Client::new()?.with_traffic(Traffic::channels(layout.build()?))?;
//!     let mut client = SlipgateClient::new(client);
//!     client.connect(ConnectToken::from_bytes(&std::fs::read("token")?)?)?;
//!     App::new()
//!         .add_plugins(SlipgateClientPlugin::default())
//!         .insert_resource(client)
//!         .add_systems(Update, (read_chat, say_hello.run_if(client_connected)))
//!         .run();
//!     Ok(())
//! }
//!
//! fn read_chat(mut slipgate: ResMut<SlipgateClient>) {
//!     while let Some(event) = slipgate.next_event() {
//!         if let Event::Message { channel: CHAT, bytes, .. } = event {
//!             println!("{}", String::from_utf8_lossy(bytes));
//!         }
//!     }
//! }
//!
//! fn say_hello(mut slipgate: ResMut<SlipgateClient>) {
//!     // A full queue means that the server is far behind.
//!     let _ = slipgate.client().send_message(CHAT, b"hello");
//! }
//! ```

#![forbid(unsafe_code)]

// The tests compile the example of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/bevy.md")]
struct Guide;

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "server")]
mod server;

use bevy_ecs::prelude::*;

#[cfg(feature = "client")]
pub use self::client::*;
#[cfg(feature = "server")]
pub use self::server::*;

/// The sets of the plugins' systems. Games order their own systems by them.
#[derive(SystemSet, Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SlipgateSystems {
    /// Begins the turn, in `PreUpdate`. Systems that take events run after it.
    Receive,
    /// Sends what is due and ends the turn, in `PostUpdate`. Systems that send run before it.
    Send,
}
