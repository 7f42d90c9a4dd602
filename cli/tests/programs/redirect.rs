//! A drain with redirects: the clients of a real server play on at another one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![allow(clippy::print_stdout, reason = "the test prints its measurements")]
#![cfg(unix)]

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use slipgate_client::CloseKind;

#[cfg(target_os = "linux")]
use crate::fleet_world::traffic;
use crate::fleet_world::{FleetWorld, MAX_WAIT, Player, until};

const PLAYERS: u64 = 12;
/// The longest time without play at a drain.
const MAX_GAP: Duration = Duration::from_secs(2);

/// Runs the players until the condition holds.
fn play(what: &str, players: &mut [Player], mut holds: impl FnMut(&[Player]) -> bool) {
    let start = Instant::now();
    while !holds(players) {
        assert!(start.elapsed() < MAX_WAIT, "not {what}");
        players.iter_mut().for_each(Player::turn);
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the ids of a server's clients, by its admin port.
fn client_ids(server: &crate::server::program::Program) -> Vec<u64> {
    let line = server.wait_for("admin service");
    let address = line.split_once("address=").unwrap().1.split(' ').next().unwrap();
    let mut response = ureq::get(format!("http://{address}/clients")).call().unwrap();
    let list: Value = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
    let id = |client: &Value| client["id"].as_str().unwrap().parse().unwrap();
    let mut ids: Vec<u64> = list["clients"].as_array().unwrap().iter().map(id).collect();
    ids.sort_unstable();
    ids
}

/// Checks the longest time without play of some drains: a machine that pauses delays players, too.
fn assert_gap(drain: impl Fn() -> Duration) {
    let gaps: Vec<_> = std::iter::repeat_with(drain)
        .take(5)
        .scan(false, |is_over, gap| (!std::mem::replace(is_over, gap <= MAX_GAP)).then_some(gap))
        .collect();
    assert!(gaps.last().unwrap() <= &MAX_GAP, "{gaps:?}");
}

/// Joins players to the first server, starts the second one, drains the first, and checks that all play on. Returns the
/// longest time without play.
fn drain_moves_players(flags: &[&str]) -> Duration {
    let world = FleetWorld::new(1, 2, "memory");
    let (_issuer, backend) = (world.start_issuer(0), world.backend());
    let first = world.start_server(0, &[flags, &["--drain", "10m"]].concat());
    until("registered", || backend.in_state("ready") == ["s0"]);
    let mut players: Vec<_> = (1..=PLAYERS).map(Player::new).collect();
    players.iter_mut().for_each(|player| player.connect(backend.token(player.client_id).unwrap().token));
    play("playing", &mut players, |players| players.iter().all(Player::plays));
    let second = world.start_server(1, &["--admin", "127.0.0.1:0"]);
    play("registered", &mut players, |_| backend.in_state("ready").len() == 2);

    players.iter_mut().for_each(Player::begin_gap);
    first.signal("-TERM");
    let (drained, address) = (Instant::now(), world.server_address(1));
    play("playing on", &mut players, |players| {
        players.iter().all(|player| player.redirects == 1 && player.plays() && player.server() == Some(address))
    });
    let gap = players.iter().map(Player::longest_gap).max().unwrap();
    println!("all play on after {:?}, the longest gap is {gap:?}", drained.elapsed());
    assert!(players.iter().all(|player| player.ends.is_empty()), "no end comes before");
    assert_eq!(client_ids(&second), (1..=PLAYERS).collect::<Vec<_>>());
    let reserved = || backend.servers().iter().map(|server| server["reserved_slots"].as_u64().unwrap()).sum::<u64>();
    play("free of reservations", &mut players, |_| reserved() == 0);
    // It does not wait for the end of its drain.
    let (code, log) = first.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("clients are redirected to other servers"), "{log}");
    let totals = format!("totals of redirects sent={PLAYERS} refused=0 without_channels=0 left=0 waiting=0");
    assert!(log.contains(&totals), "{log}");
    world.assert_no_key(&log);
    drop(second);
    gap
}

#[test]
fn players_of_a_drained_server_play_on_at_another() {
    assert_gap(|| drain_moves_players(&[]));
}

#[cfg(target_os = "linux")]
#[test]
fn players_of_drained_shards_play_on_at_another() {
    assert_gap(|| drain_moves_players(&["--shards", "2"]));
}

/// A game loop of its own on two shards, which echoes messages, with the fleet's drivers.
#[cfg(target_os = "linux")]
struct ShardedGame {
    fleet: slipgate_fleet::Fleet,
    thread: thread::JoinHandle<()>,
}

#[cfg(target_os = "linux")]
impl ShardedGame {
    /// Starts the server with this index. It ends when it has drained.
    fn start(world: &FleetWorld, index: usize) -> Self {
        use slipgate_fleet::{Fleet, FleetConfig, LifeState};
        use slipgate_server::sharded::{ShardedServer, ShardedServerConfig};
        use slipgate_server::{Clock, Event, Server, ServerConfig, Sockets};

        let (address, tick) = (world.server_address(index), Duration::from_millis(5));
        let sockets = Sockets::bind_shards(&[address], 2).unwrap();
        let clock = Clock::start();
        let config = ServerConfig::new(crate::server::program::PROTOCOL_ID, 16, &[address]);
        let shards = Server::shards(sockets, config, world.keys(), clock.now(), None).unwrap();
        let shards = shards.into_iter().map(|shard| shard.with_traffic(traffic()).unwrap()).collect();
        let mut server = ShardedServer::start(shards, clock, tick, ShardedServerConfig::default()).unwrap();
        let fleet = Fleet::start(FleetConfig { slots: 16, ..FleetConfig::default() }).unwrap();
        fleet.register(world.registration(index)).unwrap();
        fleet.life_cycle().advance(LifeState::Ready);
        let (mut reporter, life) = (fleet.reporter(), fleet.life_cycle().clone());
        let thread = thread::spawn(move || {
            while !(life.is_draining() && server.is_drained()) {
                let began = clock.now();
                let mut echoes = Vec::new();
                while let Some(event) = server.next_event() {
                    if let Event::Message { client, channel, bytes, .. } = event {
                        echoes.push((client, channel, bytes.to_vec()));
                    }
                }
                for (client, channel, bytes) in echoes {
                    // A message to a client that has left, or is redirected, is lost.
                    let _ = server.send_message(client, channel, &bytes);
                }
                server.accept_new_clients(!life.is_draining());
                reporter.on_sharded_turn(&mut server, began);
                server.flush();
                thread::sleep(tick);
            }
            assert_eq!(server.stop("", |_| {}).panicked, None);
        });
        Self { fleet, thread }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn players_of_a_drained_sharded_game_play_on_at_another() {
    assert_gap(drain_moves_players_of_a_sharded_game);
}

/// Drains a game of two shards, and checks that all play on at another server. Returns the longest time without play.
#[cfg(target_os = "linux")]
fn drain_moves_players_of_a_sharded_game() -> Duration {
    use slipgate_fleet::{LifeState, RedirectCounts};

    let world = FleetWorld::new(1, 2, "memory");
    let (_issuer, backend) = (world.start_issuer(0), world.backend());
    let game = ShardedGame::start(&world, 0);
    until("registered", || backend.in_state("ready") == ["s0"]);
    let mut players: Vec<_> = (1..=PLAYERS).map(Player::new).collect();
    players.iter_mut().for_each(|player| player.connect(backend.token(player.client_id).unwrap().token));
    play("playing", &mut players, |players| players.iter().all(Player::plays));
    let reserved = || backend.servers().iter().map(|server| server["reserved_slots"].as_u64().unwrap()).sum::<u64>();
    play("free of reservations", &mut players, |_| reserved() == 0);
    let second = world.start_server(1, &["--admin", "127.0.0.1:0"]);
    play("registered", &mut players, |_| backend.in_state("ready").len() == 2);

    players.iter_mut().for_each(Player::begin_gap);
    game.fleet.life_cycle().advance(LifeState::Draining);
    let address = world.server_address(1);
    play("playing on", &mut players, |players| {
        players.iter().all(|player| player.redirects == 1 && player.plays() && player.server() == Some(address))
    });
    let gap = players.iter().map(Player::longest_gap).max().unwrap();
    println!("the longest gap is {gap:?}");
    assert!(players.iter().all(|player| player.ends.is_empty()), "no end comes before");
    assert_eq!(client_ids(&second), (1..=PLAYERS).collect::<Vec<_>>());
    game.thread.join().unwrap();
    assert_eq!(game.fleet.redirects().counts(), RedirectCounts { sent: PLAYERS, ..RedirectCounts::default() });
    gap
}

#[test]
fn drain_without_another_server_ends_with_a_plain_close() {
    let world = FleetWorld::new(1, 1, "memory");
    let (_issuer, backend) = (world.start_issuer(0), world.backend());
    let server = world.start_server(0, &["--drain", "3s"]);
    until("registered", || backend.in_state("ready") == ["s0"]);
    let mut players = vec![Player::new(7)];
    players[0].connect(backend.token(7).unwrap().token);
    play("playing", &mut players, |players| players[0].plays());
    server.signal("-TERM");
    play("ended", &mut players, |players| players[0].is_idle() && !players[0].ends.is_empty());
    assert_eq!(players[0].ends.iter().map(|(_, kind)| *kind).collect::<Vec<_>>(), [CloseKind::ServerStopped]);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("token for a redirect"), "the refusal is in the log: {log}");
}
