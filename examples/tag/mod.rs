//! The channels of the game of tag and their messages, which the server and the clients share.

use serde::{Deserialize, Serialize};
use slipgate::{Channel, ChannelId, Layout, LayoutError, Traffic};

/// Distinguishes this game from others: servers drop packets with another id.
pub(crate) const PROTOCOL_ID: u64 = 0x7461_6721;
/// A player with this key can join under any id. A real game creates one with `slipgate keygen`, and keeps it on its
/// servers.
pub(crate) const DEVELOPMENT_KEY: [u8; 32] = *b"a key that every player may have";

/// A request to move by one field, on the channel `steps`.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Step {
    pub(crate) dx: i8,
    pub(crate) dy: i8,
}

/// The position of a player.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Position {
    pub(crate) id: u64,
    pub(crate) x: i8,
    pub(crate) y: i8,
}

/// The state of the game, on the channel `state`.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct World {
    /// The id of the player that is "it".
    pub(crate) it: u64,
    pub(crate) players: Vec<Position>,
}

/// The map: one byte for each field, row by row; 0 is free. Each player receives it as a transfer.
pub(crate) struct Map(pub(crate) Vec<u8>);

impl Map {
    /// The grid has this many columns and rows.
    pub(crate) const GRID: i8 = 16;

    /// Returns whether a player can stand on a field; never outside of the grid.
    pub(crate) fn is_free(&self, x: i8, y: i8) -> bool {
        let line = 0..Self::GRID;
        let index = i32::from(y) * i32::from(Self::GRID) + i32::from(x);
        line.contains(&x) && line.contains(&y) && self.0.get(index as usize) == Some(&0)
    }
}

/// The ids of the channels.
#[derive(Clone, Copy)]
pub(crate) struct Channels {
    pub(crate) steps: ChannelId,
    pub(crate) state: ChannelId,
    pub(crate) chat: ChannelId,
    pub(crate) maps: ChannelId,
}

/// Returns the channels, which must be the same at both ends.
pub(crate) fn channels() -> Result<(Channels, Traffic), LayoutError> {
    let mut layout = Layout::builder();
    // Clients with another version are refused instead of misunderstood.
    layout.version = 2;
    let steps = layout.add(Channel::sequenced("steps"));
    // If the network is slow, a new state replaces one that waits.
    let state = layout.add(Channel::sequenced("state").newest_only());
    let chat = layout.add(Channel::reliable_ordered("chat"));
    // The map uses only what the other channels leave of the path, so it delays no state.
    let maps = layout.add(Channel::transfers("maps"));
    Ok((Channels { steps, state, chat, maps }, Traffic::channels(layout.build()?)))
}
