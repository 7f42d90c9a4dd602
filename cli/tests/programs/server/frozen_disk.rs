//! A history file on a disk that hangs or is full: players do not notice it.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{TestClient, TestToken, until};
use super::history::{assert_used, restart};
use super::program::TestFolder;

/// A small file system of its own, unmounted at the end.
struct Volume {
    folder: PathBuf,
    image: PathBuf,
}

fn run(command: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(command).args(arguments).output().map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

impl Volume {
    /// Mounts an ext4 file system on a loop device.
    fn freezable(test: &TestFolder) -> Result<Self, String> {
        let (folder, image) = (test.path("volume"), test.path("image"));
        let volume = Self { folder, image };
        let (folder, image) = volume.paths();
        fs::create_dir_all(folder).unwrap();
        fs::File::create(image).unwrap().set_len(16 << 20).unwrap();
        run("mkfs.ext4", &["-q", "-F", image])?;
        run("mount", &["-o", "loop", image, folder])?;
        run("fsfreeze", &["--freeze", folder])?;
        run("fsfreeze", &["--unfreeze", folder])?;
        Ok(volume)
    }

    /// Mounts a file system with room for 16 pages.
    fn small(test: &TestFolder) -> Result<Self, String> {
        let volume = Self { folder: test.path("volume"), image: PathBuf::new() };
        fs::create_dir_all(&volume.folder).unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", volume.paths().0])?;
        Ok(volume)
    }

    fn paths(&self) -> (&str, &str) {
        (self.folder.to_str().unwrap(), self.image.to_str().unwrap())
    }

    fn freeze(&self, action: &str) {
        run("fsfreeze", &[action, self.paths().0]).unwrap();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = run("fsfreeze", &["--unfreeze", self.paths().0]);
        let _ = run("umount", &["--lazy", self.paths().0]);
    }
}

const BEFORE: u8 = 0;
const FROZEN: u8 = 1;
const END: u8 = 2;

/// Ends the players, also when the test fails.
struct EndOnDrop<'a>(&'a AtomicU8);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(END, Ordering::Relaxed);
    }
}

/// Measures round trips before and while the disk is frozen, in milliseconds.
fn play(mut client: TestClient, phase: &AtomicU8) -> [Vec<f64>; 2] {
    let mut round_trips = [Vec::new(), Vec::new()];
    for number in 0_u64.. {
        let now = phase.load(Ordering::Relaxed);
        if now == END {
            break;
        }
        let (sent, bytes) = (Instant::now(), number.to_le_bytes());
        client.send(&bytes);
        while !client.has_received(&bytes) {
            client.turn();
            assert_eq!(client.ended, None, "a player was lost");
            assert!(sent.elapsed() < Duration::from_secs(5), "an echo is missing");
        }
        client.received.clear();
        round_trips[usize::from(now)].push(sent.elapsed().as_secs_f64() * 1000.0);
        thread::sleep(Duration::from_millis(20));
    }
    round_trips.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    round_trips
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

#[test]
fn frozen_history_disk_changes_no_round_trip() {
    let is_all = std::env::var_os("SLIPGATE_TESTS").is_some_and(|value| value == "all");
    let frozen_for = Duration::from_secs(if is_all { 20 } else { 2 });
    let folder = TestFolder::new();
    let volume = match Volume::freezable(&folder) {
        Ok(volume) => volume,
        Err(reason) => return println!("skipped: no file system that can be frozen: {reason}"),
    };
    let server = folder.start(&["--shards", "2", "--history", "volume/history"]);
    let address = server.address();
    let phase = AtomicU8::new(BEFORE);
    thread::scope(|scope| {
        let end = EndOnDrop(&phase);
        let players: Vec<_> = (0..8).map(|id| TestClient::join(id, address)).collect();
        let players: Vec<_> = players.into_iter().map(|player| scope.spawn(|| play(player, &phase))).collect();
        thread::sleep(Duration::from_secs(2));
        volume.freeze("--freeze");
        phase.store(FROZEN, Ordering::Relaxed);
        let start = Instant::now();
        // The first one is admitted but not connected. The others are not admitted while the disk hangs.
        let mut new: Vec<_> = (10..14).map(|id| TestToken::new(id, address).mint()).map(TestClient::new).collect();
        while start.elapsed() < frozen_for {
            new.iter_mut().for_each(TestClient::turn);
            assert!(new.iter().all(|client| !client.is_connected()), "a record was not on the disk");
            if start.elapsed() > Duration::from_millis(700) && new.len() == 4 {
                new.push(TestClient::new(TestToken::new(14, address).mint()));
            }
        }
        let line = server.wait_for("does not finish a write");
        drop(end);
        volume.freeze("--unfreeze");
        server.wait_for("has finished the write");
        let mut worst = f64::MIN;
        for player in players {
            let [before, frozen] = player.join().unwrap();
            let figures = [0.5, 0.99, 1.0].map(|share| (quantile(&before, share), quantile(&frozen, share)));
            println!("round trips p50, p99, max before and while frozen: {figures:.2?} ms ({} echoes)", frozen.len());
            worst = worst.max(figures[0].1 - figures[0].0);
        }
        println!("frozen for {frozen_for:?}: medians changed by at most {worst:.2} ms, 0 of 8 players lost; {line}");
        assert!(worst <= 5.0, "the frozen disk delays players by {worst} ms");
        // Pending clients live for 5 s. Clients that waited longer have ended with a reason.
        let mut waiting: Vec<_> = new.iter_mut().collect();
        until("connected or ended", &mut waiting, |clients| {
            clients.iter().all(|client| client.is_connected() || client.ended.is_some())
        });
        println!(
            "new clients: {:?}",
            new.iter().map(|client| (client.is_connected(), client.ended)).collect::<Vec<_>>()
        );
        assert!(is_all || new.iter().all(TestClient::is_connected));
    });
    TestClient::join(20, address).echo(b"after the frost");
    assert!(server.stop().contains("history_unavailable: "));
}

#[test]
fn full_disk_does_not_prevent_a_start_with_a_whole_file() {
    let folder = TestFolder::new();
    let volume = match Volume::small(&folder) {
        Ok(volume) => volume,
        Err(reason) => return println!("skipped: no small file system: {reason}"),
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
