//! A disk that hangs while clients play. It needs no file system that can be frozen.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Condvar;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use slipgate_client::{Client, CloseKind, Event};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::ServerConfig;
use slipgate_os::clock::{Clock, wall_clock};
use slipgate_udp::Sockets;

use super::*;
use crate::Server;
use crate::server::tests::{echo_turn, token};

/// Makes calls of a file wait.
#[derive(Default)]
struct Freezer {
    is_frozen: Mutex<bool>,
    thaw: Condvar,
}

impl Freezer {
    fn set(&self, is_frozen: bool) {
        *self.is_frozen.lock().unwrap() = is_frozen;
        self.thaw.notify_all();
    }

    fn wait(&self) {
        drop(self.thaw.wait_while(self.is_frozen.lock().unwrap(), |is_frozen| *is_frozen).unwrap());
    }
}

/// A file of which each call waits while its disk is frozen.
struct StallingFile(File, Arc<Freezer>);

impl RecordFile for StallingFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.1.wait();
        self.0.write_at(offset, bytes)
    }

    fn cut_off(&mut self, length: u64) -> io::Result<()> {
        self.1.wait();
        self.0.cut_off(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.1.wait();
        self.0.sync()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.1.wait();
        self.0.is_at(path)
    }
}

/// A client which sends a payload every 10 ms and measures its echo.
struct Player {
    client: Client,
    inbox: slipgate_client::Inbox,
    sent: VecDeque<(u64, Instant)>,
    next: u64,
    /// In milliseconds.
    round_trips: Vec<f64>,
    is_connected: bool,
    ended: Option<CloseKind>,
}

impl Player {
    fn new(client_id: u64, server: SocketAddr, clock: Clock) -> Self {
        let mut client = Client::new().unwrap();
        client.connect(token(client_id, server, clock.now()), clock.now()).unwrap();
        let inbox = slipgate_client::Inbox::default();
        let (sent, round_trips) = (VecDeque::new(), Vec::new());
        Self { client, inbox, sent, next: 0, round_trips, is_connected: false, ended: None }
    }

    fn turn(&mut self, clock: Clock, is_due: bool) {
        self.client.begin_turn(clock.now());
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Payload { bytes, .. } => {
                    let Ok(number) = bytes.try_into().map(u64::from_le_bytes) else { continue };
                    let index = self.sent.iter().position(|(sent, _)| *sent == number).expect("an echo arrives once");
                    let (_, sent) = self.sent.remove(index).unwrap();
                    self.round_trips.push(sent.elapsed().as_secs_f64() * 1000.0);
                }
                Event::Ended { reason } => self.ended = Some(reason.kind),
                _ => {}
            }
        }
        self.is_connected = self.client.state().is_connected();
        if self.is_connected && is_due && self.sent.len() < MAX_UNANSWERED {
            self.client.send(&self.next.to_le_bytes()).unwrap();
            self.sent.push_back((self.next, Instant::now()));
            self.next += 1;
        }
        self.client.end_turn();
    }
}

const INTERVAL: Duration = Duration::from_millis(10);
/// A frozen disk may delay a round trip by this many milliseconds.
const MAX_CHANGE: f64 = 5.0;
/// On a machine that delays echoes of the control phase by more, the longest echo is another program's matter: up to
/// twice that of the control phase is allowed there. The 99th percentile has the goal on each machine.
const MAX_CONTROL: f64 = 20.0;
/// Another program may delay some echoes of a phase, so both phases are repeated after a miss. A disk delays those of
/// each round.
const ROUNDS: u64 = 10;
/// The longest time until something must have happened.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The echoes for which a player waits at most: after a pause of the server, the kernel has room for those of all
/// players.
const MAX_UNANSWERED: usize = 16;

/// Returns by how much the longest echo may exceed that of the control phase.
fn allowed(control: f64) -> f64 {
    if control > MAX_CONTROL { control } else { MAX_CHANGE }
}

/// Plays for this time, and returns the 99th percentile and the maximum of the round trips of all players.
fn play(players: &mut [Player], clock: Clock, length: Duration, mut meanwhile: impl FnMut()) -> [f64; 2] {
    let (start, mut ticks) = (Instant::now(), 0);
    while start.elapsed() < length || players.iter().any(|player| !player.sent.is_empty()) {
        assert!(start.elapsed() < length + MAX_WAIT, "an echo is missing");
        let is_due = start.elapsed() >= INTERVAL * ticks && start.elapsed() < length;
        ticks += u32::from(is_due);
        players.iter_mut().for_each(|player| player.turn(clock, is_due));
        assert!(players.iter().all(|player| player.ended.is_none()), "a player was lost");
        meanwhile();
        thread::sleep(Duration::from_micros(200));
    }
    let mut all: Vec<_> = players.iter_mut().flat_map(|player| player.round_trips.drain(..)).collect();
    all.sort_by(f64::total_cmp);
    [0.99, 1.0].map(|share| all[((all.len() - 1) as f64 * share) as usize])
}

/// Runs an echo server until the flag is set. Returns the number of its warnings, and whether it refused responses.
fn serve(mut server: Server, clock: Clock, is_over: &AtomicBool) -> (usize, bool) {
    let (refused, warnings) = count_warnings("does not finish a write", || {
        while !is_over.load(Ordering::Relaxed) {
            server.wait(Duration::from_millis(10)).unwrap();
            echo_turn(&mut server, clock.now());
        }
        server.discards()[Discard::HistoryUnavailable]
    });
    (warnings, refused > 0)
}

/// Ends the server and thaws its disk, also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool, &'a Freezer);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.1.set(false);
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns a server and its address. Its history is on a disk that hangs while the freezer is set.
fn server_on_disk(folder: &TestFolder, freezer: &Arc<Freezer>, clock: Clock) -> (Server, SocketAddr) {
    let mut history = HistoryFile::open(folder.file(), wall_clock().into()).unwrap();
    let file = File::options().read(true).write(true).open(folder.file()).unwrap();
    history.file = Some(Box::new(StallingFile(file, Arc::clone(freezer))));
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let address = sockets.local_addresses()[0];
    let config = ServerConfig { token_cutoff: TokenCutoff::None, ..ServerConfig::new(7, 128, &[address]) };
    let server = Server::with_history(sockets, config, Key::from([7; 32]).into(), clock.now(), history).unwrap();
    (server, address)
}

#[test]
fn disk_that_hangs_changes_no_round_trip_of_players() {
    let is_all = std::env::var_os("SLIPGATE_TESTS").is_some_and(|value| value == "all");
    let frozen_for = Duration::from_secs(if is_all { 20 } else { 3 });
    let (folder, clock, freezer) = (TestFolder::new("frozen"), Clock::start(), Arc::new(Freezer::default()));
    let (server, address) = server_on_disk(&folder, &freezer, clock);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let end = EndOnDrop(&is_over, &freezer);
        let serving = scope.spawn(|| serve(server, clock, &is_over));
        let mut players: Vec<_> = (1..9).map(|id| Player::new(id, address, clock)).collect();
        let start = Instant::now();
        while players.iter().any(|player| !player.is_connected || player.round_trips.is_empty()) {
            assert!(start.elapsed() < MAX_WAIT, "not all players play");
            players.iter_mut().for_each(|player| player.turn(clock, true));
            thread::sleep(INTERVAL);
        }
        let has_met_goal = (0..ROUNDS).any(|round| {
            let control = play(&mut players, clock, frozen_for, || {});
            freezer.set(true);
            let frozen_at = Instant::now();
            let new_player = |number| Player::new(10 + 10 * round + number, address, clock);
            // These are admitted but not connected. Clients that come when the disk has hung for a while are refused.
            let mut new: Vec<_> = (0..4).map(new_player).collect();
            let frozen = play(&mut players, clock, frozen_for, || {
                new.iter_mut().for_each(|player| player.turn(clock, false));
                assert!(new.iter().all(|player| !player.is_connected), "a record was not on the disk");
                let number = new.len() as u64;
                if number < 9 && frozen_at.elapsed() > Duration::from_millis(250 * (number - 1)) {
                    new.push(new_player(number));
                }
            });
            println!(
                "disk stalled for {frozen_for:?}: round trips p99, max {frozen:.2?} ms, before it {control:.2?} ms; \
                 0 messages lost; goal: at most {MAX_CHANGE} ms more; allowed here: {:.0?} ms",
                [MAX_CHANGE, allowed(control[1])]
            );
            freezer.set(false);
            // Pending clients live for 5 s. Clients that waited longer have ended with a reason.
            let thawed = Instant::now();
            // A machine that pauses may use up the time of a pending client.
            let mut is_in_time = false;
            while !new.iter().all(|player| player.is_connected || player.ended.is_some()) {
                assert!(thawed.elapsed() < MAX_WAIT, "new clients still wait");
                new.iter_mut().for_each(|player| player.turn(clock, false));
                is_in_time = frozen_at.elapsed() < Duration::from_secs(4);
                thread::sleep(Duration::from_millis(1));
            }
            println!(
                "new clients: {:?}",
                new.iter().map(|player| (player.is_connected, player.ended)).collect::<Vec<_>>()
            );
            assert!(!is_in_time || new.iter().all(|player| player.is_connected));
            let changes = frozen.iter().zip(control).map(|(frozen, control)| frozen - control);
            changes.zip([MAX_CHANGE, allowed(control[1])]).all(|(change, max)| change <= max)
        });
        assert!(has_met_goal, "the disk delays players");
        drop(end);
        let (warnings, has_refused) = serving.join().unwrap();
        assert!(warnings >= 1 && has_refused, "{warnings} lines say that the disk hangs");
    });
}

#[test]
fn server_ends_although_its_disk_hangs() {
    let (folder, clock, freezer) = (TestFolder::new("frozen-end"), Clock::start(), Arc::new(Freezer::default()));
    let (mut server, address) = server_on_disk(&folder, &freezer, clock);
    let start = Instant::now();
    let mut turn = |player: &mut Player| {
        assert!(start.elapsed() < MAX_WAIT, "a player is not admitted");
        player.turn(clock, false);
        echo_turn(&mut server, clock.now());
        thread::sleep(Duration::from_millis(1));
        server.discards()[Discard::HistoryUnavailable]
    };
    let mut old = Player::new(1, address, clock);
    while !old.is_connected {
        turn(&mut old);
    }
    freezer.set(true);
    let mut new = Player::new(2, address, clock);
    while turn(&mut new) == 0 {}
    (0..20).for_each(|_| _ = turn(&mut new));
    server.stop("");
    server.end_turn();
    // A server that waits for its disk would hang this thread, so another one drops it.
    let (ended, end) = channel();
    thread::spawn(move || {
        drop(server);
        ended.send(()).unwrap();
    });
    let has_ended = end.recv_timeout(MAX_WAIT).is_ok();
    let start = Instant::now();
    while old.ended.is_none() && start.elapsed() < MAX_WAIT {
        old.turn(clock, false);
        thread::sleep(Duration::from_millis(1));
    }
    new.turn(clock, false);
    freezer.set(false);
    assert!(has_ended, "the end of the server waits for the disk");
    assert_eq!(old.ended, Some(CloseKind::DisconnectedByServer));
    // Its record is not durable: it was sent nothing about a slot, and its token may be used again.
    assert!(!new.is_connected && new.ended.is_none(), "{:?}", new.ended);
}

/// The slot is given, but its record is not on the disk: without an end its client would connect later.
#[test]
fn stop_ends_slots_whose_record_waits_for_the_disk() {
    let (folder, clock, freezer) = (TestFolder::new("thawed-end"), Clock::start(), Arc::new(Freezer::default()));
    let (mut server, address) = server_on_disk(&folder, &freezer, clock);
    freezer.set(true);
    let (mut player, start) = (Player::new(1, address, clock), Instant::now());
    while server.discards()[Discard::HistoryUnavailable] == 0 {
        assert!(start.elapsed() < MAX_WAIT, "the player does not wait");
        player.turn(clock, false);
        echo_turn(&mut server, clock.now());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((server.connected_count(), server.totals().stats.connects), (0, 0), "it waits for the disk");
    server.stop("");
    server.end_turn();
    assert_eq!(server.connected_count(), 0);
    freezer.set(false);
    for _ in 0..300 {
        player.turn(clock, false);
        echo_turn(&mut server, clock.now());
        assert!(server.connected_count() == 0 && !player.is_connected);
        thread::sleep(Duration::from_millis(1));
    }
}
