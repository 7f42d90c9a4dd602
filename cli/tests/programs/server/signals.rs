//! Stopping with and without a drain time, and reloading keys.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use slipgate_client::CloseKind;
use slipgate_netcode::crypto::key::Key;

use super::client::{TestClient, TestToken, until};
use super::program::{MAX_WAIT, OTHER_KEY, PRIVATE_KEY, Program, TestFolder};

#[test]
fn server_without_clients_stops_at_once() {
    for signal in ["-TERM", "-INT"] {
        let folder = TestFolder::new();
        let server = folder.start(&["--drain", "1h"]);
        server.signal(signal);
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("connects=0"), "{log}");
    }
}

#[test]
fn draining_server_denies_new_clients_and_keeps_the_others() {
    let folder = TestFolder::new();
    let mut server = folder.start(&["--drain", "1h"]);
    let address = server.address();
    let mut old = TestClient::join(1, address);
    server.signal("-TERM");
    server.wait_for("stopping");
    let mut new = TestClient::new(TestToken::new(2, address).mint());
    until("denied", &mut [&mut old, &mut new], |clients| clients[1].ended.is_some());
    assert_eq!(new.ended, Some(CloseKind::Denied));
    old.echo(b"still connected");
    assert!(server.is_running());
    old.leave();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("reason=left ") && log.contains("denied="), "{log}");
}

#[test]
fn clients_are_disconnected_when_the_drain_time_is_over() {
    let folder = TestFolder::new();
    let server = folder.start(&["--drain", "300ms"]);
    let [mut one, mut other] = [1, 2].map(|id| TestClient::join(id, server.address()));
    server.signal("-INT");
    until("disconnected", &mut [&mut one, &mut other], |clients| clients.iter().all(|client| client.ended.is_some()));
    assert_eq!([one.ended, other.ended], [Some(CloseKind::DisconnectedByServer); 2]);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("reason=server_stopped ").count(), 2, "{log}");
}

#[cfg(target_os = "linux")]
#[test]
fn server_drains_when_its_shutdown_delay_is_over() {
    for shards in ["1", "2"] {
        let folder = TestFolder::new();
        let server = folder.start(&["--shutdown-delay", "500ms", "--drain", "1h", "--shards", shards]);
        let mut client = TestClient::join(1, server.address());
        server.signal("-TERM");
        server.wait_for("denying new clients");
        client.echo(b"still connected");
        client.leave();
        let (code, log) = server.end();
        assert_eq!((code, log.contains("new clients are admitted for a while")), (Some(0), true), "{log}");
    }
}

#[test]
fn second_signal_stops_at_once() {
    let folder = TestFolder::new();
    let server = folder.start(&["--drain", "1h"]);
    let mut client = TestClient::join(1, server.address());
    server.signal("-TERM");
    server.wait_for("stopping");
    server.signal("-TERM");
    client.until("disconnected", |client| client.ended.is_some());
    assert_eq!(client.ended, Some(CloseKind::DisconnectedByServer));
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("a second SIGTERM or SIGINT").count(), 1, "{log}");
}

#[test]
fn hook_command_does_not_outlive_an_end_at_once() {
    for shards in ["1", "2"] {
        let folder = TestFolder::new();
        let (script, pids) = (folder.path("hook.sh"), folder.path("pids"));
        let text =
            format!("#!/bin/sh\nsleep 1000 &\nprintf '%s\\n' $$ $! >> {0}.new\nmv {0}.new {0}\nwait\n", pids.display());
        folder.write("hook.sh", text, 0o700);
        let server = folder.start(&["--hook-command", script.to_str().unwrap(), "--shards", shards]);
        let start = Instant::now();
        while !pids.exists() {
            assert!(start.elapsed() < MAX_WAIT, "the command does not run");
            thread::sleep(Duration::from_millis(10));
        }
        // The end waits for the command, up to 10 s. The next signal ends the server at once.
        server.signal("-TERM");
        server.wait_for("totals");
        server.signal("-TERM");
        assert_eq!(server.end().0, Some(0));
        let pids = fs::read_to_string(&pids).unwrap();
        assert_eq!(pids.lines().count(), 2, "{pids:?}: the script and its child");
        for pid in pids.lines() {
            let state = Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap().stdout;
            assert!(state.is_empty() || state.starts_with(b"Z"), "{pid} goes on");
        }
        assert!(start.elapsed() < Duration::from_secs(9), "the server has waited for the command");
    }
}

#[test]
fn sighup_reloads_the_keys_and_keeps_all_clients() {
    let folder = TestFolder::new();
    let server = folder.start(&[]);
    let address = server.address();
    let [old, new] = [PRIVATE_KEY, OTHER_KEY].map(|key| key.parse::<Key>().unwrap().fingerprint().to_string());
    assert_eq!(server.fact("fingerprints"), old);
    let join = |id, key| TestClient::join_with(TestToken { key, ..TestToken::new(id, address) }.mint());
    let refuse =
        |id, key| TestClient::fail(TestToken { key, ..TestToken::new(id, address).with_short_timeout() }.mint());
    let mut first = join(1, PRIVATE_KEY);
    refuse(2, OTHER_KEY);

    folder.write("keys", format!("{OTHER_KEY}\n{PRIVATE_KEY}\n"), 0o600);
    server.signal("-HUP");
    let line = server.wait_for("path=keys keys=2");
    assert!(line.contains(&format!("fingerprints=\"{new}, {old}\"")), "{line}");
    let mut second = join(2, OTHER_KEY);
    let mut third = join(3, PRIVATE_KEY);

    folder.write("keys", OTHER_KEY, 0o600);
    server.signal("-HUP");
    server.wait_for("path=keys keys=1");
    refuse(4, PRIVATE_KEY);
    for client in [&mut first, &mut second, &mut third] {
        client.echo(b"still here");
    }
    let log = server.stop();
    assert_eq!(log.matches("SIGHUP: the key file was read again").count(), 2, "{log}");
    assert_eq!(log.matches("do not open with any").count(), 2, "{log}");
}

#[test]
fn invalid_or_missing_key_file_keeps_the_current_keys() {
    let folder = TestFolder::new();
    let server = folder.start(&[]);
    for (content, mode, part) in [("junk", 0o600, "line 1 is not a key"), (OTHER_KEY, 0o644, "mode 0644")] {
        folder.write("keys", content, mode);
        server.signal("-HUP");
        assert!(server.wait_for(part).contains("keeping the current keys"));
    }
    TestClient::join(1, server.address()).echo(b"the old key opens");
    server.stop();

    let mut command = folder.bare(&["--protocol-id", "0x1234", "--bind", "127.0.0.1:0"]);
    command.env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY);
    let server = Program::start(command);
    server.signal("-HUP");
    server.wait_for("come from the environment");
    TestClient::join(1, server.address()).echo(b"the old key opens");
    server.stop();
}

#[test]
fn key_file_that_became_readable_is_read_without_a_signal() {
    for shards in ["1", "2"] {
        let folder = TestFolder::new();
        fs::create_dir(folder.path("mounted")).unwrap();
        folder.write("mounted/keys", PRIVATE_KEY, 0o600);
        let mut command = folder.bare(&["--protocol-id", "0x1234", "--bind", "127.0.0.1:0", "--shards", shards]);
        command.arg("--key-file").arg(folder.path("mounted/keys"));
        let server = Program::start(command);
        folder.write("mounted/keys", OTHER_KEY, 0o644);
        server.wait_for("mode 0644");
        // A volume that is missing for a while. The file itself does not change afterwards.
        fs::rename(folder.path("mounted"), folder.path("unmounted")).unwrap();
        folder.write("unmounted/keys", OTHER_KEY, 0o600);
        server.wait_for("No such file");
        fs::rename(folder.path("unmounted"), folder.path("mounted")).unwrap();
        server.wait_for("was read again");
        let token = TestToken { key: OTHER_KEY, ..TestToken::new(1, server.address()) };
        TestClient::join_with(token.mint()).echo(b"the new key opens");
        server.stop();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_learns_when_the_server_is_ready_and_when_it_drains() {
    for shards in ["1", "2"] {
        let folder = TestFolder::new();
        let socket = std::os::unix::net::UnixDatagram::bind(folder.path("notify")).unwrap();
        socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
        let receive = || {
            let mut buf = [0; 256];
            let length = socket.recv(&mut buf).unwrap();
            String::from_utf8_lossy(&buf[..length]).into_owned()
        };
        let mut command = folder.complete(&["--drain", "1h", "--shards", shards]);
        command.env("NOTIFY_SOCKET", folder.path("notify"));
        let server = Program::start(command);
        assert_eq!(receive(), "READY=1\nSTATUS=serving\n");
        let mut client = TestClient::join(1, server.address());
        server.signal("-TERM");
        assert_eq!(receive(), "STOPPING=1\nSTATUS=draining\n");
        client.leave();
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn watchdog_of_systemd_is_fed_until_the_end() {
    let folder = TestFolder::new();
    let socket = std::os::unix::net::UnixDatagram::bind(folder.path("notify")).unwrap();
    socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let mut command = folder.complete(&[]);
    command.env("NOTIFY_SOCKET", folder.path("notify")).env("WATCHDOG_USEC", "400000");
    let start = Instant::now();
    let server = Program::start(command);
    let receive = || {
        let mut buf = [0; 256];
        let length = socket.recv(&mut buf).unwrap();
        String::from_utf8_lossy(&buf[..length]).into_owned()
    };
    assert_eq!(receive(), "READY=1\nSTATUS=serving\n");
    for _ in 0..10 {
        assert_eq!(receive(), "WATCHDOG=1\n");
    }
    // Each half of the time: systemd waits for 0.4 s.
    assert!(start.elapsed() > Duration::from_millis(1500), "{:?}", start.elapsed());
    server.signal("-TERM");
    let mut last = receive();
    while last == "WATCHDOG=1\n" {
        last = receive();
    }
    assert_eq!(last, "STOPPING=1\nSTATUS=draining\n");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

/// Without a line of its own, clients that time out together would have no visible cause.
#[test]
fn server_that_was_suspended_says_so() {
    for shards in ["1", "2"] {
        let folder = TestFolder::new();
        let server = folder.start(&["--shards", shards]);
        TestClient::join(1, server.address()).echo(b"the turns have begun");
        // Another shard may begin later.
        thread::sleep(Duration::from_millis(300));
        server.signal("-STOP");
        thread::sleep(Duration::from_millis(1500));
        server.signal("-CONT");
        let line = server.wait_for("the server did not run for ");
        let seconds = line.split(" seconds=").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(seconds.parse::<f64>().unwrap() > 1.0 && line.contains("clients may have timed out"), "{line}");
        let log = server.stop();
        assert!(
            log.lines().any(|line| line.contains("totals") && line.contains(&format!(" stalls={shards}"))),
            "{log}"
        );
    }
}
