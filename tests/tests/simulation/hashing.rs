//! Transfers of many clients complete at once: the server hashes them in turns, each within its budget.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_session::channel::transfer::{self, MAX_SLICE_BYTES, Transfer, TransferAdmission};
use slipgate_session::channel::{ChannelConfig, ChannelEvent, ChannelId, Kind, Layout};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::connection::{ConnectionConfig, Memory};
use slipgate_session::server::{HASHED_BYTES_PER_TICK, SessionEvent};
use slipgate_sim::Conditions;
use slipgate_tests::hostile::{FloodMix, FloodWriter, LATE_TRANSFER_BYTES, flood_layout};
use slipgate_tests::netcode_world::address;
use slipgate_tests::raw_client::RawClient;
use slipgate_tests::session_world::SessionWorld;

const UPLOADS: ChannelId = ChannelId(0);
const CROWD: u64 = 40;
const TRANSFER_BYTES: usize = 600_000;
/// The last chunk of a turn may exceed the budget.
const CHUNK_BYTES: u64 = 16 * MAX_SLICE_BYTES as u64;

/// Creates a world with uploads that take one or two turns on the path.
fn world(players: u64) -> SessionWorld {
    let transfers =
        transfer::TransferConfig { admission: TransferAdmission::Automatic, ..transfer::TransferConfig::default() };
    let channel = ChannelConfig { transfers, ..ChannelConfig::from(Kind::Transfers) };
    let layout = Arc::new(Layout::try_from(vec![channel]).unwrap());
    let mut config = ConnectionConfig::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(2e8));
    let mut world = SessionWorld::new(players as u32, &layout, &config, Memory::default());
    for _ in 0..players {
        world.join(Conditions::perfect());
    }
    world.run_for(Duration::from_millis(200));
    world
}

fn upload(world: &mut SessionWorld, player: u64, bytes: usize) {
    let transfer = Transfer::new(vec![player as u8; bytes]).unwrap();
    world.player(player).core.connection_mut().unwrap().channels.send_transfer(UPLOADS, transfer, player).unwrap();
}

/// Runs a turn; returns the clients with uploads that completed in it.
fn turn(world: &mut SessionWorld) -> Vec<ClientHandle> {
    world.turn();
    let whole = |event: SessionEvent| match event {
        SessionEvent::Channel {
            client,
            event: ChannelEvent::Transfer { event: transfer::TransferEvent::Received { .. }, .. },
        } => Some(client),
        _ => None,
    };
    world.events.drain(..).filter_map(whole).collect()
}

#[test]
fn hash_budget_holds_while_every_transfer_is_delivered() {
    let mut world = world(CROWD + 1);
    (1..=CROWD).for_each(|player| upload(&mut world, player, TRANSFER_BYTES));
    let (mut whole, mut turns) = (Vec::new(), 0);
    let max = u64::from(HASHED_BYTES_PER_TICK) + CHUNK_BYTES;
    // A client that joins while all others wait.
    let (late, mut late_waited) = (world.handle(CROWD + 1).unwrap(), None);
    while whole.len() as u64 <= CROWD {
        let now_whole = turn(&mut world);
        turns += 1;
        // The world polls events before and after the tick: the first turn has two budgets.
        let hashed = world.server.stats().hashed_bytes;
        assert!(hashed <= (turns + 1) * max, "{hashed} bytes in {turns} turns");
        if turns == 5 {
            assert!(whole.is_empty(), "the transfers share the budget");
            upload(&mut world, CROWD + 1, 60_000);
        }
        if now_whole.contains(&late) {
            late_waited = Some((turns - 5, whole.len()));
        }
        whole.extend(now_whole);
        assert!(turns < 60, "{} of them are complete", whole.len());
    }
    let all = CROWD * TRANSFER_BYTES as u64 + 60_000;
    assert_eq!(world.server.stats().hashed_bytes, all, "each byte once");
    let busy = all / max;
    assert!((busy..busy + 8).contains(&turns), "{turns} turns, where {busy} would suffice for an unlimited transfer");
    let (waited, before) = late_waited.expect("the late upload completed");
    // An offer, an acceptance, the slices, and two turns for all that were queued before it.
    assert!(waited <= 6 && before == 0, "it took {waited} turns, and {before} of the others completed before");
    whole.sort_unstable_by_key(|client| client.slot());
    whole.dedup();
    assert_eq!(whole.len() as u64, CROWD + 1, "each transfer once");
}

#[test]
fn one_client_hashes_a_quarter_of_the_budget_in_a_turn() {
    const MAX: u64 = (512 << 10) + CHUNK_BYTES;
    const PACKETS_PER_TURN: usize = 100;
    let layout = flood_layout();
    let mut world = SessionWorld::new(1, &layout, &ConnectionConfig::default(), Memory::default());
    let (mut client, from) = (RawClient::new(&world.token(1)), address("10.9.9.9:9"));
    world.present(from, client.request());
    world.turn();
    let challenge = world.replies.iter().find_map(|(_, reply)| client.challenge(reply)).expect("a challenge");
    world.present(from, client.response(&challenge));
    world.turn();
    // A work budget lets no client send 512 KiB in a turn: everything but the first chunk arrives before it is hashed.
    let mut writer = FloodWriter::new(FloodMix::TransferLateStarts, &layout);
    let (mut before, mut most, mut turns) = (0, 0, 0);
    while before < LATE_TRANSFER_BYTES.into() {
        for _ in 0..PACKETS_PER_TURN {
            world.incoming.push((from, client.seal(PacketKind::Payload, &writer.next_payload())));
        }
        world.turn();
        let hashed = world.server.stats().hashed_bytes;
        // The world polls events before and after the tick.
        assert!(hashed - before <= 2 * MAX, "{} bytes in turn {turns}", hashed - before);
        (most, before, turns) = (most.max(hashed - before), hashed, turns + 1);
        assert!(turns < 200, "{hashed} bytes are hashed");
    }
    assert!(most >= 2 * (512 << 10), "{most} bytes in a turn: the limit was reached");
    assert_eq!(before, u64::from(LATE_TRANSFER_BYTES), "each byte once");
}

#[test]
fn complete_transfer_of_a_leaving_client_is_delivered() {
    let mut world = world(1);
    upload(&mut world, 1, 100_000);
    let connected = world.handle(1).unwrap();
    let mut whole = Vec::new();
    for _ in 0..100 {
        whole.extend(turn(&mut world));
        if !whole.is_empty() {
            break;
        }
    }
    assert_eq!(whole, [connected]);
    assert_eq!(world.server.stats().hashed_bytes, 100_000);
}
