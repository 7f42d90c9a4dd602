//! Blocks of many clients get whole at once: the server hashes them by turns, and no turn more than it may.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::server::ClientHandle;
use slipgate_session::channel::block::{self, Admission, Block, MAX_SLICE_BYTES};
use slipgate_session::channel::{ChannelConfig, ChannelEvent, ChannelId, Kind, Layout};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::server::{Event, HASHED_PER_TURN};
use slipgate_session::session::{Config, Memory};
use slipgate_sim::Conditions;
use slipgate_tests::hall::Hall;

const UPLOADS: ChannelId = ChannelId(0);
const CROWD: u64 = 40;
const BLOCK_BYTES: usize = 600_000;
/// The last chunk of a turn may go over what is allowed.
const CHUNK_BYTES: u64 = 16 * MAX_SLICE_BYTES as u64;

/// A hall whose players' uploads take a turn or two on their way.
fn hall(players: u64) -> Hall {
    let blocks = block::Config { admission: Admission::Automatic, ..block::Config::default() };
    let channel = ChannelConfig { blocks, ..ChannelConfig::new(Kind::Blocks) };
    let layout = Arc::new(Layout::new(vec![channel]).unwrap());
    let mut config = Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(2e8));
    let mut hall = Hall::new(players as u32, &layout, &config, Memory::default());
    for _ in 0..players {
        hall.join(Conditions::perfect());
    }
    hall.run_for(Duration::from_millis(200));
    hall
}

fn upload(hall: &mut Hall, player: u64, bytes: usize) {
    let block = Block::new(vec![player as u8; bytes]).unwrap();
    hall.player(player).core.send_block(UPLOADS, block, player).unwrap();
}

/// A turn; answers who uploaded what got whole in it.
fn turn(hall: &mut Hall) -> Vec<ClientHandle> {
    hall.turn();
    let whole = |event: Event| match event {
        Event::Channel { client, event: ChannelEvent::Block { event: block::Event::Received { .. }, .. } } => {
            Some(client)
        }
        _ => None,
    };
    hall.events.drain(..).filter_map(whole).collect()
}

#[test]
fn no_turn_hashes_more_than_it_may_and_every_block_of_a_crowd_is_delivered() {
    let mut hall = hall(CROWD + 1);
    (1..=CROWD).for_each(|player| upload(&mut hall, player, BLOCK_BYTES));
    let (mut whole, mut turns) = (Vec::new(), 0);
    let most = u64::from(HASHED_PER_TURN) + CHUNK_BYTES;
    // One who comes while all of them wait.
    let (late, mut late_waited) = (hall.handle(CROWD + 1).unwrap(), None);
    while whole.len() as u64 <= CROWD {
        let now_whole = turn(&mut hall);
        turns += 1;
        // A hall asks for events before the tick and after it: the first turn has two allowances.
        let hashed = hall.server.hashed_bytes();
        assert!(hashed <= (turns + 1) * most, "{hashed} bytes in {turns} turns");
        if turns == 5 {
            assert!(whole.is_empty(), "they share what there is");
            upload(&mut hall, CROWD + 1, 60_000);
        }
        if now_whole.contains(&late) {
            late_waited = Some((turns - 5, whole.len()));
        }
        whole.extend(now_whole);
        assert!(turns < 60, "{} of them got whole", whole.len());
    }
    let all = CROWD * BLOCK_BYTES as u64 + 60_000;
    assert_eq!(hall.server.hashed_bytes(), all, "each byte once");
    let busy = all / most;
    assert!((busy..busy + 8).contains(&turns), "{turns} turns, where {busy} would do if they had it all at once");
    let (waited, before) = late_waited.expect("it got whole");
    // An offer, an answer, the slices, and two turns for all who waited before it.
    assert!(waited <= 6 && before == 0, "it waited for {waited} turns, and for {before} of the others");
    whole.sort_unstable_by_key(|client| client.slot());
    whole.dedup();
    assert_eq!(whole.len() as u64, CROWD + 1, "each once");
}

#[test]
fn a_block_that_is_all_there_when_its_client_leaves_is_delivered() {
    let mut hall = hall(1);
    upload(&mut hall, 1, 100_000);
    let connected = hall.handle(1).unwrap();
    let mut whole = Vec::new();
    for _ in 0..100 {
        whole.extend(turn(&mut hall));
        if !whole.is_empty() {
            break;
        }
    }
    assert_eq!(whole, [connected]);
    assert_eq!(hall.server.hashed_bytes(), 100_000);
}
