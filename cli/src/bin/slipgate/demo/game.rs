//! The demo's game: its channels and messages.
//!
//! The content of each message is a function of its numbers, so a receiver can verify every byte without a copy. The
//! checks are in `received`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use slipgate_cli::Failure;
use slipgate_server::transfer::{MAX_TRANSFER_BYTES, Transfer};
use slipgate_server::{ChannelConfig, ChannelId, Kind, Layout, Traffic};
use slipgate_session::connection::ConnectionConfig;

/// Chat: reliable and ordered.
pub(super) const CHAT: ChannelId = ChannelId(0);
/// State of the players and of the world: only the newest update matters.
pub(super) const STATE: ChannelId = ChannelId(1);
/// The map, which the server sends to each client in the background.
pub(super) const MAP: ChannelId = ChannelId(2);

/// The largest map, in KiB.
pub(super) const MAX_MAP_KIB: u32 = MAX_TRANSFER_BYTES / 1024;
/// The number of players in a chat group: each line goes to all members of its author's group.
pub(super) const CHAT_GROUP_SIZE: u32 = 4;

/// Entities in a state update with full detail.
const MAX_ENTITIES: u32 = 100;
/// Entities in a state update on the narrowest path: those near the player.
const MIN_ENTITIES: u32 = 8;
/// Bytes of an entity on the wire.
const ENTITY_BYTES: u32 = 6;
/// Bytes of a payload that are reserved for message headers, the tick and a chat line.
const RESERVED_BYTES: u32 = 120;

/// The settings that server and clients share.
#[derive(Clone)]
pub(super) struct GameSettings {
    /// State updates per second, if the path allows.
    pub(super) rate: u32,
    pub(super) traffic: Traffic,
    pub(super) map: Transfer,
}

impl GameSettings {
    pub(super) fn new(rate: u32, map_kib: u32) -> Result<Self, Failure> {
        // State has the highest priority, because it ages fastest, then chat. The map gets the remaining rate.
        let channel = |kind, priority| ChannelConfig { priority, ..ChannelConfig::from(kind) };
        let channels =
            vec![channel(Kind::ReliableOrdered, 1), channel(Kind::Sequenced, 2), channel(Kind::Transfers, 0)];
        let layout = Layout::try_from(channels).map_err(|error| Failure::run_time(error.to_string()))?;
        let mut config = ConnectionConfig::default();
        config.congestion.shape.packets_per_second = rate.into();
        let map =
            Transfer::new(map(map_kib)).ok_or_else(|| Failure::usage("the map is larger than a transfer may be"))?;
        Ok(Self { rate, traffic: Traffic::Channels(Arc::new(layout), config), map })
    }
}

/// Returns the bytes of the map.
fn map(kib: u32) -> Vec<u8> {
    (0..u64::from(kib) * 128).flat_map(|index| scramble(index).to_le_bytes()).collect()
}

/// A line of chat.
#[derive(Serialize, Deserialize)]
pub(super) struct ChatLine<'t> {
    /// The client id of the author.
    pub(super) author: u64,
    /// The author's session: each connection of a player is one.
    pub(super) session: u32,
    /// The line's number, counted from 0 in each session.
    pub(super) number: u64,
    text: &'t str,
}

impl ChatLine<'_> {
    /// Returns the text of a line.
    pub(super) fn text(author: u64, number: u64) -> String {
        const WORDS: [&str; 8] =
            ["well met", "follow me", "to the gate", "wait", "over here", "run", "nice one", "again"];
        let words = (0..1 + scramble(author ^ number) % 12).map(|index| {
            let word = scramble(author.rotate_left(32) ^ number << 8 ^ index) % WORDS.len() as u64;
            WORDS.get(word as usize).copied().unwrap_or_default()
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// Creates a line with this text.
    pub(super) const fn new(author: u64, session: u32, number: u64, text: &str) -> ChatLine<'_> {
        ChatLine { author, session, number, text }
    }

    pub(super) fn is_correct(&self) -> bool {
        self.text == Self::text(self.author, self.number)
    }
}

/// The state of a sender at a tick.
#[derive(Serialize, Deserialize)]
pub(super) struct StateUpdate {
    /// The tick, counted from 0 by each sender.
    pub(super) tick: u64,
    entities: Vec<[u8; ENTITY_BYTES as usize]>,
}

impl StateUpdate {
    pub(super) fn new(tick: u64, entities: u32) -> Self {
        Self { tick, entities: (0..entities).map(|index| entity(tick, index)).collect() }
    }

    /// Creates the update of a player, with a single entity.
    pub(super) fn of_player(tick: u64) -> Self {
        Self::new(tick, 1)
    }

    pub(super) fn is_correct(&self) -> bool {
        !self.entities.is_empty()
            && self.entities.iter().zip(0..).all(|(found, index)| *found == entity(self.tick, index))
    }
}

/// Returns how many entities fit in a payload of `payload_bytes` bytes.
pub(super) fn entities_that_fit(payload_bytes: u32) -> u32 {
    (payload_bytes.saturating_sub(RESERVED_BYTES) / ENTITY_BYTES).clamp(MIN_ENTITIES, MAX_ENTITIES)
}

fn entity(tick: u64, index: u32) -> [u8; ENTITY_BYTES as usize] {
    let [a, b, c, d, e, f, ..] = scramble(tick << 8 ^ u64::from(index)).to_le_bytes();
    [a, b, c, d, e, f]
}

/// Returns pseudo-random bits: the finaliser of `SplitMix64`.
pub(super) const fn scramble(number: u64) -> u64 {
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
    fn state_update_fits_the_payload_that_is_allowed() {
        assert_eq!(
            (entities_that_fit(0), entities_that_fit(1140), entities_that_fit(420)),
            (MIN_ENTITIES, MAX_ENTITIES, 50)
        );
        for payload_bytes in [180, 420, 720, 1140] {
            let mut buf = [0; 1200];
            let state = StateUpdate::new(u64::MAX, entities_that_fit(payload_bytes));
            let bytes = Bincode::default().encode(&state, &mut buf).expect("the buffer is large enough");
            assert!(bytes <= payload_bytes as usize, "{bytes} of {payload_bytes}");
        }
    }

    #[test]
    fn line_or_state_with_another_number_is_not_correct() {
        let text = ChatLine::text(7, 3);
        assert!(ChatLine::new(7, 1, 3, &text).is_correct());
        assert!(!ChatLine::new(7, 1, 4, &text).is_correct() && !ChatLine::new(8, 1, 3, &text).is_correct());
        let state = StateUpdate::new(5, 20);
        assert!(state.is_correct());
        assert!(!StateUpdate { tick: 6, ..state }.is_correct());
        assert!(!StateUpdate { tick: 6, entities: Vec::new() }.is_correct());
    }

    #[test]
    fn map_has_the_requested_size() {
        let settings = GameSettings::new(60, 3).expect("the settings are sound");
        assert_eq!(settings.map.bytes().len(), 3 * 1024);
        assert!(GameSettings::new(60, 64 * 1024 + 1).is_err());
    }
}
