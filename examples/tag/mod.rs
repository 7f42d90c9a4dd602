//! What the server and the clients of the game of tag share: the channels and their messages.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slipgate::{Channel, ChannelId, Layout, LayoutError, Traffic};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

pub(crate) const ADDRESS: &str = "127.0.0.1:40000";
/// Distinguishes this game from others: servers drop packets with another id.
pub(crate) const PROTOCOL_ID: u64 = 0x7461_6721;
/// A player with this key can join under any id. A real game makes its key with `slipgate keygen`, and keeps it on its
/// servers.
pub(crate) const DEVELOPMENT_KEY: [u8; 32] = *b"a key that every player may have";
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// A field of the grid: column and row.
pub(crate) type Field = (i8, i8);

/// The input of a player: by how many columns and rows it wants to move, on the channel `steps`.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Step(pub(crate) i8, pub(crate) i8);

/// The state of the game, on the channel `state`.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct World {
    /// The id of the player that is "it".
    pub(crate) it: u64,
    /// The field of each player, by its id.
    pub(crate) fields: BTreeMap<u64, Field>,
}

#[derive(Clone, Copy)]
pub(crate) struct Channels {
    pub(crate) steps: ChannelId,
    pub(crate) state: ChannelId,
    pub(crate) news: ChannelId,
}

/// Returns the channels, which must be the same at both ends.
pub(crate) fn channels() -> Result<(Channels, Traffic), LayoutError> {
    let mut layout = Layout::builder();
    // Clients with another version are refused instead of misunderstood.
    layout.version = 1;
    let steps = layout.add(Channel::sequenced("steps"));
    // If the network is slow, a new state replaces one that waits.
    let state = layout.add(Channel::sequenced("state").newest_only());
    let news = layout.add(Channel::reliable_ordered("news"));
    Ok((Channels { steps, state, news }, Traffic::channels(layout.build()?)))
}

/// Returns what the log shows: the library's warnings, unless `RUST_LOG` says something else.
pub(crate) fn log_filter() -> EnvFilter {
    EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy()
}

/// Returns a text without control characters. In the name of a player they could change the terminals of others.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}
