//! The demo's game: its channels, and what is said on them.
//!
//! What each message must look like follows from its numbers, so an end checks what it hears byte for byte and keeps no
//! copies. Who checks is left to `checks`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use slipgate_cli::Failure;
use slipgate_server::block::{Block, MAX_BLOCK_BYTES};
use slipgate_server::{ChannelConfig, ChannelId, Kind, Layout, Traffic};
use slipgate_session::session;

/// What players say: every line once, and in order.
pub(super) const CHAT: ChannelId = ChannelId(0);
/// How things are, of players and of the server: only the newest matters.
pub(super) const STATE: ChannelId = ChannelId(1);
/// The map, which the server sends to everyone in the background.
pub(super) const MAP: ChannelId = ChannelId(2);

/// The largest map, in KiB.
pub(super) const MOST_MAP_KIB: u32 = MAX_BLOCK_BYTES / 1024;
/// So many players sit at a table and hear each other's lines.
pub(super) const TABLE: u32 = 4;

/// Things of a world in full detail.
const MOST_THINGS: u32 = 100;
/// Things without which there is no game: those around the player.
const LEAST_THINGS: u32 = 8;
/// Bytes of a thing on the wire.
const THING_BYTES: u32 = 6;
/// Bytes of a message's payload that are kept free for headers of messages, the tick, and a line of chat.
const KEPT_BYTES: u32 = 120;

/// What both ends of a game have in common.
#[derive(Clone)]
pub(super) struct Rules {
    /// How often a second players and server send their state, if the path allows.
    pub(super) rate: u32,
    pub(super) traffic: Traffic,
    pub(super) map: Block,
}

impl Rules {
    pub(super) fn new(rate: u32, map_kib: u32) -> Result<Self, Failure> {
        // State first, for it is worth most while it is new; then chat; and the map has what is left.
        let channel = |kind, priority| ChannelConfig { priority, ..ChannelConfig::new(kind) };
        let channels = vec![channel(Kind::ReliableOrdered, 1), channel(Kind::Sequenced, 2), channel(Kind::Blocks, 0)];
        let layout = Layout::new(channels).map_err(|error| Failure::run_time(error.to_string()))?;
        let mut config = session::Config::default();
        config.congestion.shape.packets_per_second = rate.into();
        let map = Block::new(map(map_kib)).ok_or_else(|| Failure::usage("the map is larger than a block may be"))?;
        Ok(Self { rate, traffic: Traffic::Channels(Arc::new(layout), config), map })
    }
}

/// The bytes of the map.
fn map(kib: u32) -> Vec<u8> {
    (0..u64::from(kib) * 128).flat_map(|place| scramble(place).to_le_bytes()).collect()
}

/// A line of chat.
#[derive(Serialize, Deserialize)]
pub(super) struct Line<'t> {
    /// The client id of who says it.
    pub(super) author: u64,
    /// Lines of its author are numbered from 0.
    pub(super) number: u64,
    text: &'t str,
}

impl Line<'_> {
    /// What an author says as this line.
    pub(super) fn text(author: u64, number: u64) -> String {
        const WORDS: [&str; 8] =
            ["well met", "follow me", "to the gate", "wait", "over here", "run", "nice one", "again"];
        let words = (0..1 + scramble(author ^ number) % 12).map(|place| {
            let word = scramble(author.rotate_left(32) ^ number << 8 ^ place) % WORDS.len() as u64;
            WORDS.get(word as usize).copied().unwrap_or_default()
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// The line with this text.
    pub(super) const fn new(author: u64, number: u64, text: &str) -> Line<'_> {
        Line { author, number, text }
    }

    pub(super) fn is_right(&self) -> bool {
        self.text == Self::text(self.author, self.number)
    }
}

/// How things are, as of a tick.
#[derive(Serialize, Deserialize)]
pub(super) struct State {
    /// Ticks are numbered from 0 at each sender.
    pub(super) tick: u64,
    things: Vec<[u8; THING_BYTES as usize]>,
}

impl State {
    pub(super) fn new(tick: u64, things: u32) -> Self {
        Self { tick, things: (0..things).map(|place| thing(tick, place)).collect() }
    }

    /// What a player says of itself.
    pub(super) fn of_player(tick: u64) -> Self {
        Self::new(tick, 1)
    }

    pub(super) fn is_right(&self) -> bool {
        !self.things.is_empty() && self.things.iter().zip(0..).all(|(found, place)| *found == thing(self.tick, place))
    }
}

/// How many things a state may show in a message of so many bytes: all, or those that are nearest.
pub(super) fn detail(payload_bytes: u32) -> u32 {
    (payload_bytes.saturating_sub(KEPT_BYTES) / THING_BYTES).clamp(LEAST_THINGS, MOST_THINGS)
}

fn thing(tick: u64, place: u32) -> [u8; THING_BYTES as usize] {
    let [a, b, c, d, e, f, ..] = scramble(tick << 8 ^ u64::from(place)).to_le_bytes();
    [a, b, c, d, e, f]
}

/// Bits that look like chance (the finaliser of `SplitMix64`).
const fn scramble(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use slipgate_server::typed::{Bincode, Codec};

    use super::*;

    #[test]
    fn a_state_shows_less_when_little_may_leave_and_never_more_than_it_may() {
        assert_eq!((detail(0), detail(1140), detail(420)), (LEAST_THINGS, MOST_THINGS, 50));
        for payload_bytes in [180, 420, 720, 1140] {
            let mut room = [0; 1200];
            let state = State::new(u64::MAX, detail(payload_bytes));
            let bytes = Bincode::default().encode(&state, &mut room).expect("there is room");
            assert!(bytes <= payload_bytes as usize, "{bytes} of {payload_bytes}");
        }
    }

    #[test]
    fn a_line_or_a_state_with_another_number_is_not_right() {
        let text = Line::text(7, 3);
        assert!(Line::new(7, 3, &text).is_right());
        assert!(!Line::new(7, 4, &text).is_right() && !Line::new(8, 3, &text).is_right());
        let state = State::new(5, 20);
        assert!(state.is_right());
        assert!(!State { tick: 6, ..state }.is_right());
        assert!(!State { tick: 6, things: Vec::new() }.is_right());
    }

    #[test]
    fn a_map_has_the_size_that_was_asked_for() {
        let rules = Rules::new(60, 3).expect("the settings are sound");
        assert_eq!(rules.map.bytes().len(), 3 * 1024);
        assert!(Rules::new(60, 64 * 1024 + 1).is_err());
    }
}
