//! A history file or a key file on a disk that hangs or is full: players do not notice it.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stdout, reason = "the test prints its figures")]

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{TestClient, TestToken, until};
use super::history::{assert_used, restart};
use super::program::{MAX_WAIT, PRIVATE_KEY, Program, TestFolder};
use crate::scale::pick;
use crate::volume::{Volume, run};

/// Players which send a numbered payload every 20 ms and measure its echo.
struct Players(Vec<TestClient>);

/// The round trips of all players in a phase.
struct Figures {
    /// In milliseconds, ascending.
    round_trips: Vec<f64>,
    lost: usize,
}

impl Players {
    /// Plays for this time, and waits for the last echoes. `meanwhile` runs about every 0.2 ms.
    fn play(&mut self, length: Duration, mut meanwhile: impl FnMut(Duration)) -> Figures {
        let (start, mut round_trips, mut sent) = (Instant::now(), Vec::new(), Vec::new());
        let all = self.0.len();
        let mut ticks = 0;
        while start.elapsed() < length || (round_trips.len() < sent.len() && start.elapsed() < length + MAX_WAIT) {
            let is_due = start.elapsed() >= INTERVAL * ticks && start.elapsed() < length;
            ticks += u32::from(is_due);
            if is_due && sent.len() - round_trips.len() < MAX_UNANSWERED * all {
                for client in &mut self.0 {
                    client.send(&(sent.len() as u64).to_le_bytes());
                    sent.push(Instant::now());
                }
            }
            for client in &mut self.0 {
                client.poll();
                assert_eq!(client.ended, None, "a player was lost");
                for echo in client.received.drain(..) {
                    let number = u64::from_le_bytes(echo.try_into().unwrap());
                    round_trips.push(sent[number as usize].elapsed().as_secs_f64() * 1000.0);
                }
            }
            meanwhile(start.elapsed());
            thread::sleep(Duration::from_micros(200));
        }
        round_trips.sort_by(f64::total_cmp);
        Figures { lost: sent.len() - round_trips.len(), round_trips }
    }
}

const INTERVAL: Duration = Duration::from_millis(20);
/// The echoes for which each player waits at most: after a pause of the server, the kernel has room for all of them.
const MAX_UNANSWERED: usize = 16;
/// A frozen disk may delay a round trip by this many milliseconds.
const MAX_CHANGE: f64 = 5.0;
/// On a machine that delays echoes of the control phase by more, the longest echo is another program's matter: up to
/// twice that of the control phase is allowed there. The median and the 99th percentile have the goal on each machine.
const MAX_CONTROL: f64 = 20.0;
/// Another program may delay some echoes of a phase, so both phases are repeated after a miss. A disk delays those of
/// each round.
const ROUNDS: u64 = 10;

impl Figures {
    /// Returns the median, the 99th percentile and the maximum.
    fn quantiles(&self) -> [f64; 3] {
        [0.5, 0.99, 1.0].map(|share| self.round_trips[((self.round_trips.len() - 1) as f64 * share) as usize])
    }

    /// Prints the figures of a frozen disk beside those of the control phase. Returns whether they meet the goal.
    fn meet_goal(&self, control: &Self, frozen_for: Duration) -> bool {
        assert_eq!((self.lost, control.lost), (0, 0), "messages were lost");
        let max_control = control.quantiles()[2];
        let allowed = [MAX_CHANGE, MAX_CHANGE, if max_control > MAX_CONTROL { max_control } else { MAX_CHANGE }];
        let changes: Vec<_> =
            self.quantiles().iter().zip(control.quantiles()).map(|(one, other)| one - other).collect();
        println!(
            "disk hung for {frozen_for:?}: round trips p50, p99, max {:.2?} ms, before it {:.2?} ms; {} and {} \
             messages, 0 lost; goal: at most {MAX_CHANGE} ms more; allowed on this machine: {allowed:.0?} ms",
            self.quantiles(),
            control.quantiles(),
            self.round_trips.len(),
            control.round_trips.len(),
        );
        changes.iter().zip(allowed).all(|(change, max)| *change <= max)
    }
}

/// Freezes the disk for a while, and connects clients meanwhile. Returns the figures of the players.
fn freeze_with_players(
    volume: &Volume,
    players: &mut Players,
    server: SocketAddr,
    frozen_for: Duration,
    first_id: u64,
) -> Figures {
    let new_client = |id| TestClient::new(TestToken::new(id, server).mint());
    volume.freeze("--freeze");
    let frozen_at = Instant::now();
    // The first one is admitted but not connected. The others are not admitted while the disk hangs.
    let mut new: Vec<_> = (first_id..first_id + 4).map(new_client).collect();
    let frozen = players.play(frozen_for, |elapsed| {
        new.iter_mut().for_each(TestClient::poll);
        assert!(new.iter().all(|client| !client.is_connected()), "a record was not on the disk");
        let number = new.len() as u64;
        if number < 9 && elapsed > Duration::from_millis(250 * (number - 1)) {
            new.push(new_client(first_id + number));
        }
    });
    volume.freeze("--unfreeze");
    // Pending clients live for 5 s. Clients that waited longer have ended with a reason.
    let mut waiting: Vec<_> = new.iter_mut().collect();
    until("connected or ended", &mut waiting, |clients| {
        clients.iter().all(|client| client.is_connected() || client.ended.is_some())
    });
    println!("new clients: {:?}", new.iter().map(|client| (client.is_connected(), client.ended)).collect::<Vec<_>>());
    // A machine that pauses may use up the time of a pending client.
    assert!(frozen_at.elapsed() > Duration::from_secs(4) || new.iter().all(TestClient::is_connected));
    new.iter_mut().for_each(TestClient::leave);
    frozen
}

/// Starts a server, and returns it with eight players that have played for half a second.
fn server_with_players(command: Command) -> (Program, Players) {
    let server = Program::start(command);
    let address = server.address();
    let mut players = Players((0..8).map(|id| TestClient::join(id, address)).collect());
    players.play(Duration::from_millis(500), |_| {});
    (server, players)
}

#[test]
fn frozen_history_disk_changes_no_round_trip() {
    let frozen_for = Duration::from_secs(pick(3, 20));
    for shards in ["1", "2"] {
        let folder = TestFolder::new();
        let volume = match Volume::freezable(&folder.path("")) {
            Ok(volume) => volume,
            // `history_file/tests/frozen.rs` of the server's crate needs no file system of its own.
            Err(reason) => {
                return writeln!(std::io::stderr(), "SKIPPED: no file system that can be frozen: {reason}").unwrap();
            }
        };
        let command = folder.complete(&["--shards", shards, "--history", "volume/history"]);
        let (server, mut players) = server_with_players(command);
        let address = server.address();
        let mut has_met_goal = false;
        for round in 0..ROUNDS {
            let control = players.play(frozen_for, |_| {});
            let frozen = freeze_with_players(&volume, &mut players, address, frozen_for, 10 + 10 * round);
            if round == 0 {
                // The log has these lines at most once a minute.
                let line = server.wait_for("does not finish a write");
                println!("{line}");
                let seconds = line.split_once("seconds=").unwrap().1.split(' ').next().unwrap();
                assert!(seconds.split_once('.').is_none_or(|(_, decimals)| decimals.len() <= 3), "{line}");
                server.wait_for("has finished the write");
            }
            has_met_goal = frozen.meet_goal(&control, frozen_for);
            if has_met_goal {
                break;
            }
        }
        assert!(has_met_goal, "the frozen disk delays players, {shards} shards");
        TestClient::join(900, address).echo(b"after the frost");
        assert!(server.stop().contains("history_unavailable: "));
    }
}

/// A file system whose calls hang until it is dropped: nothing replies to the requests of the kernel.
struct HungFolder {
    path: PathBuf,
    device: Child,
}

impl HungFolder {
    /// Mounts it over a folder.
    fn mount(path: &Path) -> Result<Self, String> {
        let script = "exec 9<>/dev/fuse && mount -i -t fuse -o fd=9,rootmode=40000,user_id=0,group_id=0 hung \"$0\" \
                      && echo mounted && exec sleep 600";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(path).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut device = command.spawn().map_err(|error| error.to_string())?;
        let mut output = String::new();
        BufReader::new(device.stdout.take().unwrap()).read_line(&mut output).unwrap();
        if output == "mounted\n" {
            return Ok(Self { path: path.to_owned(), device });
        }
        let output = device.wait_with_output().map_err(|error| error.to_string())?;
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

impl Drop for HungFolder {
    fn drop(&mut self) {
        // Without its device all calls fail.
        let _ = self.device.kill();
        let _ = self.device.wait();
        let _ = run("umount", &["--lazy", self.path.to_str().unwrap()]);
    }
}

#[test]
fn hung_disk_of_the_key_file_changes_no_round_trip() {
    let hung_for = Duration::from_secs(pick(3, 20));
    for shards in ["1", "2"] {
        let folder = TestFolder::new();
        let keys = folder.path("mounted");
        fs::create_dir(&keys).unwrap();
        folder.write("mounted/keys", PRIVATE_KEY, 0o600);
        let mut command = folder.bare(&["--protocol-id", "0x1234", "--bind", "127.0.0.1:0", "--drain", "0s"]);
        command.args(["--key-file", "mounted/keys", "--shards", shards]);
        let (server, mut players) = server_with_players(command);
        let mut has_met_goal = false;
        for _ in 0..ROUNDS {
            let control = players.play(hung_for, |_| {});
            let hung_folder = match HungFolder::mount(&keys) {
                Ok(hung_folder) => hung_folder,
                Err(reason) => {
                    return writeln!(std::io::stderr(), "SKIPPED: no file system that hangs: {reason}").unwrap();
                }
            };
            // The log has lines of the rounds before.
            let lines = server.log().matches("key file").count();
            server.signal("-HUP");
            let figures = players.play(hung_for, |_| {});
            assert_eq!(server.log().matches("key file").count(), lines, "the read did not hang: {}", server.log());
            has_met_goal = figures.meet_goal(&control, hung_for);
            if has_met_goal {
                TestClient::join(900, server.address()).echo(b"the keys in effect open");
                drop(hung_folder);
                server.wait_for("the key file was read again");
                break;
            }
        }
        assert!(has_met_goal, "the hung key file delays players, {shards} shards");
        // A reload that hangs does not prevent an end.
        let _hung_folder = HungFolder::mount(&keys);
        server.signal("-HUP");
        players.play(Duration::from_millis(100), |_| {});
        server.stop();
    }
}

/// Returns whether a thread of this program waits for a disk.
fn waits_for_its_disk(server: &Program) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    threads.flatten().any(|thread| {
        // The state stands behind the name, which may hold spaces: D is a wait that no signal ends.
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('D'))
    })
}

/// Returns a server that SIGTERM has just ended while its disk is frozen: its player has left, and a token waits to be
/// written.
fn stopping_server(folder: &TestFolder, volume: &Volume, shards: &str) -> Program {
    let server = folder.start(&["--shards", shards, "--history", "volume/history"]);
    let mut player = TestClient::join(1, server.address());
    volume.freeze("--freeze");
    let mut new = TestClient::new(TestToken::new(2, server.address()).mint());
    let frozen_at = Instant::now();
    while !waits_for_its_disk(&server) {
        assert!(frozen_at.elapsed() < MAX_WAIT, "nothing is written");
        new.poll();
        thread::sleep(Duration::from_millis(1));
    }
    server.signal("-TERM");
    player.until("disconnected", |client| client.ended.is_some());
    server
}

#[test]
fn stop_signal_ends_a_server_whose_disk_is_frozen() {
    let folder = TestFolder::new();
    let volume = match Volume::freezable(&folder.path("")) {
        Ok(volume) => volume,
        Err(reason) => {
            return writeln!(std::io::stderr(), "SKIPPED: no file system that can be frozen: {reason}").unwrap();
        }
    };
    for shards in ["1", "2"] {
        let server = stopping_server(&folder, &volume, shards);
        println!("{}", server.wait_for("hangs, so the server ends without it"));
        println!("{}", server.wait_for(": stopped"));
        // The kernel does not end a thread in the middle of a write to a frozen file system, not even by SIGKILL.
        volume.freeze("--unfreeze");
        assert_eq!(server.end().0, Some(0));
    }
}

#[test]
fn full_disk_does_not_prevent_a_start_with_a_whole_file() {
    let folder = TestFolder::new();
    let volume = match Volume::small(&folder.path(""), "size=64k") {
        Ok(volume) => volume,
        Err(reason) => return writeln!(std::io::stderr(), "SKIPPED: no small file system: {reason}").unwrap(),
    };
    let history = ["--history", "volume/history"];
    let server = folder.start(&history);
    let address = server.address();
    thread::sleep(Duration::from_millis(1100));
    let used = TestToken::new(1, address).mint();
    TestClient::join_with(used.clone()).echo(b"before the disk is full");
    server.kill();
    let filler = volume.folder.join("filler");
    fs::write(&filler, vec![1; 64 << 10]).unwrap_err();

    let server = restart(&folder, address, &history);
    server.wait_for("cannot be rewritten");
    assert!(!volume.folder.join("history.new").exists());
    assert_eq!((server.fact("remembered_tokens").as_str(), files(&volume.folder)), ("1", 3));
    assert_used(&used, address);
    fs::remove_file(filler).unwrap();
    TestClient::join(2, address).echo(b"there is room");
    server.kill();
    let server = restart(&folder, address, &history);
    assert_eq!(server.fact("remembered_tokens"), "2");
    assert!(!server.stop().contains("cannot be rewritten"));
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn owner_is_checked_on_a_disk_without_room_for_a_file() {
    let folder = TestFolder::new();
    let volume = match Volume::small(&folder.path(""), "nr_inodes=16") {
        Ok(volume) => volume,
        Err(reason) => return writeln!(std::io::stderr(), "SKIPPED: no small file system: {reason}").unwrap(),
    };
    let history = ["--history", "volume/history"];
    let server = folder.start(&history);
    let address = server.address();
    server.kill();
    let filled = (0..32).take_while(|number| fs::write(volume.folder.join(number.to_string()), []).is_ok()).count();
    assert!(filled < 32, "{filled} files");

    let server = restart(&folder, address, &history);
    server.wait_for("cannot be rewritten");
    server.kill();
    std::os::unix::fs::chown(volume.folder.join("history"), Some(12345), None).unwrap();
    let (code, message) = folder.refused(folder.complete(&history));
    assert!(code == 1 && message.contains("12345"), "{code} {message}");
}

#[test]
fn second_stop_signal_ends_the_wait_for_a_frozen_disk() {
    let folder = TestFolder::new();
    let volume = match Volume::freezable(&folder.path("")) {
        Ok(volume) => volume,
        Err(reason) => {
            return writeln!(std::io::stderr(), "SKIPPED: no file system that can be frozen: {reason}").unwrap();
        }
    };
    for shards in ["1", "2"] {
        let server = stopping_server(&folder, &volume, shards);
        server.signal("-TERM");
        // A server that waits for its disk would log that it hangs, and end with a line.
        thread::sleep(Duration::from_millis(1500));
        volume.freeze("--unfreeze");
        let (code, log) = server.end();
        assert!(code == Some(0) && !log.contains(": stopped") && !log.contains("ends without it"), "{code:?}\n{log}");
    }
}

#[test]
fn stop_signal_ends_a_start_whose_disk_hangs() {
    let folder = TestFolder::new();
    let history = folder.path("mounted");
    fs::create_dir(&history).unwrap();
    let _hung = match HungFolder::mount(&history) {
        Ok(hung) => hung,
        Err(reason) => return writeln!(std::io::stderr(), "SKIPPED: no file system that hangs: {reason}").unwrap(),
    };
    let mut server = folder.complete(&["--history", "mounted/history"]).spawn().unwrap();
    // The kernel's function in which the program waits.
    let wait = format!("/proc/{}/wchan", server.id());
    let start = Instant::now();
    while !fs::read_to_string(&wait).is_ok_and(|name| name.contains("fuse") || name.contains("request_wait_answer")) {
        assert!(start.elapsed() < MAX_WAIT, "the program does not wait for the disk: {:?}", fs::read_to_string(&wait));
        thread::sleep(Duration::from_millis(5));
    }
    run("kill", &["-TERM", &server.id().to_string()]).unwrap();
    while server.try_wait().unwrap().is_none() {
        if start.elapsed() > 2 * MAX_WAIT {
            server.kill().unwrap();
            panic!("the signal does not end the start");
        }
        thread::sleep(Duration::from_millis(5));
    }
}
