//! The arena from the folder `examples`: its server, two clients, and a path with delay, jitter and losses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use slipgate::server::Sockets;
use slipgate_os::clock::Clock;
use slipgate_sim::proxy::{Proxy, ProxySettings};
use slipgate_sim::{Conditions, Loss, Order, Share};

use super::arena_client::Player;
use super::arena_server::Game;

const MAX_TIME: Duration = Duration::from_secs(60);
const PAUSE_STEP: Duration = Duration::from_millis(1);
const LEFT: u32 = 4;
const RIGHT: u32 = 8;

/// A thread that runs until it is dropped.
pub(super) struct Running(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Running {
    pub(super) fn start(mut turn: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let run = move || {
            while !stopped.load(Ordering::Relaxed) {
                turn();
            }
        };
        Self(stop, Some(std::thread::spawn(run)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let result = self.1.take().map_or(Ok(()), JoinHandle::join);
        assert!(result.is_ok() || std::thread::panicking(), "the thread panicked");
    }
}

/// A server behind a proxy. Both can stand still for a time.
struct Server {
    /// The address for clients.
    address: SocketAddr,
    stops_game: Arc<AtomicBool>,
    stops_proxy: Arc<AtomicBool>,
    _running: [Running; 2],
}

/// Starts a server behind a proxy with 40 to 50 ms each way.
fn start(loss: f64) -> Server {
    start_behind(Duration::from_millis(40), loss)
}

/// Starts a server behind a proxy with a delay each way, and up to 10 ms more.
fn start_behind(latency: Duration, loss: f64) -> Server {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let conditions = Conditions {
        latency,
        jitter: Duration::from_millis(10),
        order: Order::Free,
        loss: Loss::Random(Share::percent(loss)),
        ..Conditions::perfect()
    };
    let server = sockets.local_addresses()[0];
    let settings = ProxySettings::new("127.0.0.1:0".parse().unwrap(), server, 1);
    let mut proxy = Proxy::bind(ProxySettings { up: conditions, down: conditions, ..settings }).unwrap();
    let (address, clock) = (proxy.local_address(), Clock::start());
    let mut game = Game::with_addresses(sockets, &[address]).unwrap();
    let forward = move || {
        proxy.turn(clock.monotonic());
        proxy.wait(Duration::from_millis(5), clock.monotonic()).unwrap();
    };
    let (stops_game, stops_proxy) = (Arc::default(), Arc::default());
    let running = [unless(&stops_game, move || game.turn()), unless(&stops_proxy, forward)];
    Server { address, stops_game, stops_proxy, _running: running }
}

/// Runs a function again and again, unless it is stopped.
fn unless(is_stopped: &Arc<AtomicBool>, mut turn: impl FnMut() + Send + 'static) -> Running {
    let is_stopped = Arc::clone(is_stopped);
    Running::start(move || if is_stopped.load(Ordering::Relaxed) { std::thread::sleep(PAUSE_STEP) } else { turn() })
}

/// Runs two clients, each in its own thread's place by turns, until something has happened.
fn run_until(players: &mut [Player; 2], what: &str, mut happened: impl FnMut(&[Player; 2]) -> bool) {
    let start = Instant::now();
    while !happened(players) {
        assert!(start.elapsed() < MAX_TIME, "{what}: {:?}", players.each_ref().map(Player::own));
        players.iter_mut().for_each(Player::turn);
    }
}

fn join(address: SocketAddr) -> [Player; 2] {
    let mut players = [1, 2].map(|id| Player::join(address, id).unwrap());
    run_until(&mut players, "both predict themselves and see the other", |players| {
        players.iter().all(|player| player.own().is_some() && player.others().count() == 1)
    });
    players
}

#[test]
fn own_figure_moves_at_once_and_is_where_the_server_has_it() {
    // A lost input is repeated in time, so that little has to be corrected. A machine that pauses makes inputs late.
    let mut corrections = Vec::new();
    while corrections.last().is_none_or(|corrections| *corrections >= 20) {
        assert!(corrections.len() < 5, "corrections: {corrections:?}");
        corrections.push(move_and_rest());
    }
}

/// Moves a figure and lets it rest. Returns how often its place was corrected.
fn move_and_rest() -> u64 {
    let server = start(5.0);
    let mut players = join(server.address);
    for keys in [RIGHT, LEFT, 0] {
        let before = players[0].own().unwrap();
        players[0].keys = keys;
        let start = Instant::now();
        run_until(&mut players, "frames", |_| start.elapsed() > Duration::from_millis(60));
        // The server has not seen the key yet: the path takes 40 ms, and its reply as long.
        let way = players[0].own().unwrap().place[0] - before.place[0];
        let expected = if keys == RIGHT {
            1
        } else if keys == LEFT {
            -1
        } else {
            0
        };
        assert!(expected == 0 || way.signum() == expected, "{way} mm with the keys {keys}");
        let start = Instant::now();
        run_until(&mut players, "the figure moves", |_| start.elapsed() > Duration::from_millis(700));
    }
    run_until(&mut players, "both ends agree at rest", |players| players[0].own() == players[0].own_at_server());
    let place = players[0].own().unwrap().place;
    run_until(&mut players, "the other player sees it there", |players| {
        players[1].others().any(|seen| (seen[0] * 1000.0 - place[0] as f32).abs() < 2.0)
    });
    players[0].corrections
}

#[test]
fn bots_hit_figures_that_run_where_they_saw_them() {
    let server = start(5.0);
    let mut players = join(server.address);
    let start = Instant::now();
    let mut turns = 0_u32;
    while players[0].own().is_none_or(|own| own.score < 3) {
        assert!(start.elapsed() < MAX_TIME, "{:?}", players.each_ref().map(Player::own));
        turns += 1;
        // The second figure runs to and fro at 6 m/s: without rewinding it is up to a metre beside its picture.
        players[1].keys = if (turns / 300).is_multiple_of(2) { LEFT } else { RIGHT };
        players[0].keys = players[0].bot();
        players.iter_mut().for_each(Player::turn);
    }
    let lives = |players: &[Player; 2]| players[1].own_at_server().map_or(0, |own| own.lives);
    run_until(&mut players, "the other one was hit as often", |players| lives(players) >= 3);
    assert!(players.iter().all(|player| player.client.close_reason().is_none()));
}

/// Takes turns for a time.
fn run_for(players: &mut [Player; 2], millis: u64) {
    let start = Instant::now();
    run_until(players, "time passes", |_| start.elapsed() > Duration::from_millis(millis));
}

#[test]
fn client_that_was_suspended_predicts_again_at_rest() {
    let server = start(5.0);
    let mut players = join(server.address);
    players.iter_mut().for_each(|player| player.keys = 0);
    run_for(&mut players, 500);
    // The inputs of more ticks are missing than can be repeated.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2500) {
        players[1].turn();
    }
    run_for(&mut players, 200);
    let before = players[0].own().expect("a prediction, also of a figure that rests");
    players[0].keys = RIGHT;
    run_for(&mut players, 200);
    assert!(players[0].own().is_some_and(|own| own.place[0] > before.place[0]), "{before:?}");
}

#[test]
fn figure_that_never_moved_is_put_back() {
    let server = start(0.0);
    let mut players = join(server.address);
    run_for(&mut players, 500);
    let before = players[0].own().unwrap();
    assert_eq!(players[0].own_at_server(), Some(before));
    // The keys arrive too late for their ticks, so that the server's figure rests and gets no new state.
    server.stops_proxy.store(true, Ordering::Relaxed);
    for (keys, millis) in [(0, 50), (RIGHT, 150), (0, 500)] {
        players[0].keys = keys;
        run_for(&mut players, millis);
    }
    assert_ne!(players[0].own(), Some(before));
    server.stops_proxy.store(false, Ordering::Relaxed);
    run_until(&mut players, "it is where the server has it", |players| players[0].own() == Some(before));
}

#[test]
fn first_keys_arrive_in_time_on_a_path_of_300_ms() {
    // A machine that pauses makes inputs late.
    let mut corrections = Vec::new();
    while corrections.last().is_none_or(|corrections| *corrections >= 20) {
        assert!(corrections.len() < 5, "corrections: {corrections:?}");
        let server = start_behind(Duration::from_millis(150), 0.0);
        let mut players = join(server.address);
        let before = players[0].own_at_server();
        players[0].keys = RIGHT;
        run_until(&mut players, "the figure moves", |players| players[0].own_at_server() != before);
        run_for(&mut players, 300);
        corrections.push(players[0].corrections);
    }
}

#[test]
fn figure_stands_still_a_second_after_the_last_message() {
    let server = start(0.0);
    let mut players = join(server.address);
    run_for(&mut players, 500);
    let before = players[0].own().unwrap();
    server.stops_game.store(true, Ordering::Relaxed);
    players[0].keys = RIGHT;
    run_for(&mut players, 2500);
    let way = players[0].own().unwrap().place[0] - before.place[0];
    // A metre for each ten ticks; without a limit it would be 15 m. The last messages were still on their way.
    assert!((4000..=7000).contains(&way), "{way} mm");
    server.stops_game.store(false, Ordering::Relaxed);
    run_for(&mut players, 500);
    players[0].keys = LEFT;
    run_until(&mut players, "the figure reaches the wall", |players| {
        players[0].own() == players[0].own_at_server() && players[0].own().is_some_and(|own| own.place[0] == -12_000)
    });
}
