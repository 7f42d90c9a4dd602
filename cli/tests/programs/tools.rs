//! The tools for running servers: `load`, `top` and `doctor`, with real programs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![cfg(unix)]

use std::process::{Command, Output};

use serde_json::Value;

use crate::pseudo_terminal::PseudoTerminal;
use crate::server::admin::admin_of;
use crate::server::client::TestClient;
use crate::server::program::{MAX_WAIT, OTHER_KEY, PRIVATE_KEY, TestFolder, assert_no_secret};
use crate::{issuer, server};

/// Runs `slipgate` in the folder, with the API key of the tests in the environment.
fn slipgate(folder: &TestFolder, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate"));
    command.args(arguments).current_dir(folder.path("."));
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, error) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_no_secret(&out);
    assert_no_secret(&error);
    (status.code(), out, error)
}

#[test]
fn load_measures_the_echoes_of_many_clients() {
    let folder = TestFolder::new();
    let server = folder.start(&["--slots", "300", "--first-start"]);
    let address = server.address().to_string();
    let keys = ["load", "--key-file", "keys", "--protocol-id", "0x1234", "--server", &address, "--json"];
    let load = |more: &[&str]| {
        let (status, out, error) = slipgate(&folder, &[&keys[..], more].concat());
        (status, serde_json::from_str::<Value>(&out).unwrap_or_else(|_| panic!("{out}{error}")), error)
    };
    let (status, report, error) = load(&["--clients", "200", "--ramp", "1s", "--for", "1s", "--rate", "10"]);
    assert_eq!(
        (status, report["connected"].clone(), report["wrong"].clone()),
        (Some(0), 200.into(), 0.into()),
        "{report} {error}"
    );
    let count = |name: &str| report[name].as_u64().unwrap();
    assert!(count("received") > 1000 && count("received") <= count("sent"), "{report}");
    assert!(report["echo"]["p99_ms"].as_f64().unwrap() > 0.0, "{report}");
    // Both directions of the line delay by the half of a satellite's round trip, and lose some.
    let (_, report, _) =
        load(&["--clients", "20", "--ramp", "0s", "--for", "2s", "--preset", "satellite", "--first-client-id", "1000"]);
    assert!(report["echo"]["p50_ms"].as_f64().unwrap() > 400.0, "{report}");
    // More clients than slots.
    let (status, report, error) =
        load(&["--clients", "310", "--ramp", "1s", "--for", "1s", "--rate", "2", "--first-client-id", "2000"]);
    assert_eq!((status, report["connected"].as_u64().unwrap()), (Some(5), 300), "{report}");
    assert!(error.contains("300 of 310 clients connected"), "{error}");
    server.stop();
}

#[test]
fn load_without_a_server_ends_with_status_5() {
    let folder = TestFolder::new();
    let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = closed.local_addr().unwrap().to_string();
    let flags = ["load", "--key-file", "keys", "--protocol-id", "1", "--server", &address, "--clients", "3"];
    let (status, out, error) = slipgate(&folder, &[&flags[..], &["--ramp", "0s", "--for", "1s"]].concat());
    assert_eq!(status, Some(5), "{out}{error}");
    assert!(out.contains("0 of 3 connected"), "{out}");
    for wrong in [&["load"][..], &["load", "--clients", "0", "--key-file", "keys"], &["load", "--key-file", "keys"]] {
        assert_eq!(slipgate(&folder, wrong).0, Some(2), "{wrong:?}");
    }
}

#[test]
fn top_prints_the_server_and_its_clients() {
    let folder = TestFolder::new();
    folder.write("token", format!("{OTHER_KEY}\n"), 0o600);
    let server = folder.start(&["--admin", "127.0.0.1:0", "--admin-token-file", "token", "--slots", "5"]);
    let admin = admin_of(&server).to_string();
    let mut client = TestClient::join(42, server.address());
    client.echo(b"hello");
    let flags = ["--admin-token-file", "token", "--once", "--interval", "500ms"];
    let (status, out, error) = slipgate(&folder, &[&["top", &admin], &flags[..]].concat());
    assert_eq!(status, Some(0), "{out}{error}");
    let rates = out.lines().find(|line| line.starts_with("turn ")).unwrap();
    assert!(!rates.contains('-') && rates.contains("B/s   out "), "{rates}");
    for part in ["ready", "of 5 slots", "round trip", "42 ", "127.0.0.1:", "1 clients by slot"] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (status, _, error) = slipgate(&folder, &["top", &admin, "--once"]);
    assert_eq!((status, error.contains("give --admin-token-file")), (Some(1), true), "{error}");
    folder.write("other", format!("{PRIVATE_KEY}\n"), 0o600);
    let wrong = ["--admin-token-file", "other"];
    let (status, _, error) = slipgate(&folder, &[&["top", &admin, "--once"], &wrong[..]].concat());
    assert_eq!((status, error.contains("--admin-token-file is not that of")), (Some(1), true), "{error}");
    let (issuer, keys) = issuer_for(&server.address().to_string(), OTHER_KEY);
    let issuer = issuer.url("");
    folder.write("api.key", keys.api_key.expose(), 0o600);
    let doctor = ["doctor", "--issuer", &issuer, "--api-key-file", "api.key", "--admin", &admin];
    let (_, out, _) = slipgate(&folder, &[&doctor[..], &wrong].concat());
    assert!(out.contains("--admin-token-file is not that of this admin port"), "{out}");
    let (status, _, error) = slipgate(&folder, &["top", &issuer, "--once"]);
    assert_eq!((status, error.contains("this is not the admin port of a server")), (Some(1), true), "{error}");
    let (status, _, error) = slipgate(&folder, &["top", "127.0.0.1:1", "--once"]);
    assert_eq!((status, error.contains("http://127.0.0.1:1: ")), (Some(1), true), "{error}");
    assert!(error.ends_with(": start the server with --admin, or give its admin port\n"), "{error}");
    client.leave();
    server.stop();
}

/// Returns a command that shows this admin port.
fn top(folder: &TestFolder, admin: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate"));
    command.args(["top", admin, "--interval", "100ms"]).current_dir(folder.path("."));
    command
}

/// Returns the row with the names of the columns. Rates and drops above it take as many rows as they need.
#[track_caller]
fn names_row(screen: &[String]) -> usize {
    let found = screen.iter().position(|row| row.starts_with("client ") && row.contains("shard"));
    found.unwrap_or_else(|| panic!("no list of clients:\n{}", screen.join("\n")))
}

/// Checks the places of the parts of a screen with this number of rows.
fn assert_layout(screen: &[String], rows: usize) {
    let text = screen.join("\n");
    assert!(screen[0].starts_with("http://127.0.0.1:"), "the header is first:\n{text}");
    for (title, row) in [("clients ", 2), ("datagrams/s in ", 2)] {
        assert!(
            screen[row].contains(title) && screen[row].starts_with('┌'),
            "{title} is the title of a chart:\n{text}"
        );
    }
    assert!(screen[6].starts_with('└') && screen[6].ends_with('┘'), "the charts have an end:\n{text}");
    let is_bar = |character: char| ('▁'..='█').contains(&character);
    assert!(screen[3..6].iter().any(|row| row.chars().any(is_bar)), "the charts have bars:\n{text}");
    assert!(screen[7].starts_with("turn ") && screen[7].contains("B/s   out "), "{text}");
    assert!(screen[8..].iter().any(|row| row.starts_with("dropped since the start: ")), "{text}");
    assert!(screen[7..].iter().any(|row| row.contains("over budget ") && row.ends_with("/s")), "{text}");
    let names: Vec<&str> = screen[names_row(screen)].split_whitespace().collect();
    assert_eq!(names[..5], ["client", "shard", "slot", "address", "connected"], "{text}");
    assert!(screen[rows - 1].ends_with("q: quit, s: order, arrows: scroll"), "the footer is last:\n{text}");
}

/// Returns the ids of the clients in the order of the screen.
fn shown_clients(screen: &[String]) -> Vec<u64> {
    let rows = screen.iter().skip_while(|row| !row.starts_with("client ")).skip(1);
    rows.map_while(|row| row.split_whitespace().next()?.parse().ok()).collect()
}

#[test]
fn top_shows_a_server_in_a_terminal() {
    let folder = TestFolder::new();
    let server = folder.start(&["--admin", "127.0.0.1:0", "--slots", "5", "--drain", "1h"]);
    let mut clients: Vec<_> = (41..=43).map(|id| TestClient::join(id, server.address())).collect();
    clients[1].echo(&[7; 1000]);
    let mut terminal = PseudoTerminal::start(top(&folder, &admin_of(&server).to_string()), 110, 24);
    let mut wait = |terminal: &mut PseudoTerminal, what: &str, is_reached: &dyn Fn(&[String]) -> bool| {
        let start = std::time::Instant::now();
        loop {
            let screen = terminal.screen_now();
            if is_reached(&screen) {
                return screen;
            }
            assert!(start.elapsed() < MAX_WAIT, "no {what}:\n{}", screen.join("\n"));
            clients.iter_mut().for_each(TestClient::poll);
        }
    };
    // The last row is drawn last.
    let header = |text: &'static str| {
        move |screen: &[String]| screen[0].contains(text) && screen.last().is_some_and(|row| row.contains("q: quit"))
    };
    let screen = wait(&mut terminal, "three clients", &header("  ready  3 of 5 slots"));
    assert_layout(&screen, 24);
    let screen = wait(&mut terminal, "a rate and three clients", &|screen| {
        let has_rate =
            screen[7].strip_prefix("turn ").is_some_and(|time| time.starts_with(|c: char| c.is_ascii_digit()));
        has_rate && shown_clients(screen) == [41, 42, 43]
    });
    let first = &screen[names_row(&screen) + 1];
    assert!(first.contains("127.0.0.1:") && first.contains(" s "), "{screen:?}");
    // By bytes, the client with the echo is first.
    terminal.press("sss");
    wait(&mut terminal, "an order", &|screen| {
        screen[23].contains("3 clients by bytes;") && shown_clients(screen).first() == Some(&42)
    });
    terminal.press("s");
    wait(&mut terminal, "the first order", &|screen| screen[23].contains("by slot;"));
    terminal.press("\u{1b}[B");
    wait(&mut terminal, "the second row first", &|screen| shown_clients(screen) == [42, 43]);
    terminal.press("\u{1b}[A");
    wait(&mut terminal, "the first row again", &|screen| shown_clients(screen) == [41, 42, 43]);
    terminal.resize(80, 20);
    let screen = wait(&mut terminal, "a smaller screen", &|screen| screen[19].contains("q: quit"));
    assert_layout(&screen, 20);
    server.signal("-TERM");
    wait(&mut terminal, "a drain", &header("  draining  3 of 5 slots"));
    clients.iter_mut().for_each(TestClient::leave);
    assert_eq!(server.end().0, Some(0));
    // The last values stay, with the reason why there are no new ones.
    let screen = terminal.wait_for("a problem", |screen| !screen[1].is_empty());
    assert!(screen[0].contains("of 5 slots"), "{screen:?}");
    terminal.press("q");
    assert!(terminal.wait_for_end().success());
    assert!(terminal.is_restored());
}

#[test]
fn signal_ends_top_and_restores_the_terminal() {
    let folder = TestFolder::new();
    let server = folder.start(&["--admin", "127.0.0.1:0"]);
    for (keys, signal) in [("\u{3}", None), ("\u{1b}", None), ("", Some("-TERM")), ("", Some("-INT"))] {
        let mut terminal = PseudoTerminal::start(top(&folder, &admin_of(&server).to_string()), 100, 24);
        terminal.wait_for_text("0 of 64 slots");
        assert!(!terminal.is_restored());
        terminal.press(keys);
        if let Some(signal) = signal {
            let kill = format!("kill {signal} {}", terminal.id());
            assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        }
        assert!(terminal.wait_for_end().success(), "{keys:?} {signal:?}");
        assert!(terminal.is_restored(), "{keys:?} {signal:?}");
    }
    server.stop();
}

/// Starts an issuer for this server with this key. Returns it, and the flags of a doctor for it.
fn issuer_for(server: &str, key: &str) -> (issuer::program::Program, issuer::program::TestFolder) {
    let folder = issuer::program::TestFolder::new();
    let mut command = folder.bare(&["--protocol-id", "0x1234", "--server", server]);
    command.arg("--key-file").arg(folder.write("other", key, 0o600));
    command.args(["--bind", "127.0.0.1:0", "--api-key-digest"]).arg(&folder.digest);
    (issuer::program::Program::start(command), folder)
}

/// Starts an issuer without a list of addresses, and a server that registers in the group `ranked`. Returns both, the
/// folder of the issuer and the key's file.
fn registered(
    folder: &TestFolder,
) -> (issuer::program::Program, issuer::program::TestFolder, server::program::Program) {
    let keys = issuer::program::TestFolder::new();
    let mut command = keys.bare(&["--protocol-id", "0x1234", "--registry", "memory", "--bind", "127.0.0.1:0"]);
    command.arg("--key-file").arg(keys.write("same", PRIVATE_KEY, 0o600)).arg("--api-key-digest").arg(&keys.digest);
    let issuer = issuer::program::Program::start(command);
    folder.write("api.key", keys.api_key.expose(), 0o600);
    let registration =
        ["--first-start", "--issuer-key-file", "api.key", "--server-id", "a", "--group", "ranked", "--region", "eu"];
    let url = issuer.url("");
    let server = folder.start(&[&["--admin", "127.0.0.1:0", "--issuer", &url], &registration[..]].concat());
    let start = std::time::Instant::now();
    while issuer::program::request(&issuer, &keys, r#"{"client_id": 1, "group": "ranked"}"#).status != 201 {
        assert!(start.elapsed() < MAX_WAIT, "the server does not register");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    (issuer, keys, server)
}

#[test]
fn doctor_and_load_use_groups_of_registered_servers() {
    let folder = TestFolder::new();
    let (issuer, _keys, server) = registered(&folder);
    let (url, admin) = (issuer.url(""), admin_of(&server).to_string());
    let doctor = ["doctor", "--issuer", &url, "--api-key-file", "api.key", "--admin", &admin];
    let (status, out, error) = slipgate(&folder, &[&doctor[..], &["--group", "ranked", "--region", "eu"]].concat());
    assert_eq!((status, out.contains("problem")), (Some(0), false), "{out}{error}");
    let fingerprint = slipgate(&folder, &["keys", "list", "keys"]).1;
    let fingerprint = fingerprint.split("fingerprint=").nth(1).unwrap().split(' ').next().unwrap();
    for part in [
        "serves and is ready",
        "admitted the client",
        "payloads of 1200 bytes return",
        &format!("the issuer seals with {fingerprint}, which the server at http://{admin} has"),
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (status, out, _) = slipgate(&folder, &doctor);
    assert_eq!((status, out.contains("give --group")), (Some(5), true), "{out}");
    let (status, out, _) = slipgate(&folder, &[&doctor[..], &["--group", "casual"]].concat());
    assert_eq!((status, out.contains("No server of this group")), (Some(5), true), "{out}");

    let load = ["load", "--issuer", &url, "--api-key-file", "api.key", "--group", "ranked", "--clients", "5"];
    let (status, out, error) =
        slipgate(&folder, &[&load[..], &["--ramp", "0s", "--for", "1s", "--first-client-id", "9"]].concat());
    assert_eq!((status, out.contains("5 of 5 connected")), (Some(0), true), "{out}{error}");

    let mut client = Command::new(env!("CARGO_BIN_EXE_slipgate-client"));
    client.args(["--issuer", &url, "--client-id", "99", "--group", "ranked", "--api-key-file", "api.key"]);
    let client = client.args(["--for", "300ms"]).current_dir(folder.path(".")).output().unwrap();
    assert!(client.status.success(), "{client:?}");
    server.stop();
}

#[test]
fn doctor_of_a_group_checks_one_server() {
    let folder = TestFolder::new();
    let (issuer, keys, server) = registered(&folder);
    let (url, other_folder) = (issuer.url(""), TestFolder::new());
    other_folder.write("api.key", keys.api_key.expose(), 0o600);
    let registration = ["--issuer", &url, "--issuer-key-file", "api.key", "--server-id", "b", "--group", "ranked"];
    let more = ["--region", "us", "--app", "echo-messages", "--admin", "127.0.0.1:0", "--first-start"];
    let other = other_folder.start(&[&registration[..], &more].concat());
    let start = std::time::Instant::now();
    let body = r#"{"client_id": 1, "group": "ranked", "regions": ["us"]}"#;
    while issuer::program::request(&issuer, &keys, body).body["server_ids"][0] != "b" {
        assert!(start.elapsed() < MAX_WAIT, "the second server does not register");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let doctor = |region: &str, admin: &str| {
        let flags = ["doctor", "--issuer", &url, "--api-key-file", "api.key", "--group", "ranked", "--region", region];
        slipgate(&folder, &[&flags[..], &["--admin", admin]].concat())
    };
    let admins = [admin_of(&server), admin_of(&other)].map(|admin| admin.to_string());
    // Echoes of payloads fail on the second server. The first one returns them.
    let (address, sizes) = (other.address(), "returns no payloads, so the sizes are not checked");
    for (region, admin, is_of_another) in
        [("us", &admins[0], true), ("us", &admins[1], false), ("eu", &admins[1], true)]
    {
        let (status, out, error) = doctor(region, admin);
        assert_eq!((status, out.contains("problem")), (Some(0), false), "{out}{error}");
        assert_eq!(out.contains("belongs to another server than"), is_of_another, "{region} {admin}: {out}");
        assert_eq!(out.contains(&format!("{address} {sizes}")), region == "us", "{out}");
    }
    server.stop();
    other.stop();
}

#[test]
fn doctor_finds_a_sound_deployment_sound() {
    let folder = TestFolder::new();
    let server = folder.start(&["--admin", "127.0.0.1:0", "--first-start"]);
    let admin = admin_of(&server).to_string();
    let (issuer, keys) = issuer_for(&server.address().to_string(), PRIVATE_KEY);
    folder.write("api.key", keys.api_key.expose(), 0o600);
    let url = issuer.url("");
    let flags = ["doctor", "--issuer", &url, "--api-key-file", "api.key", "--admin", &admin];
    let (status, out, error) = slipgate(&folder, &flags);
    assert_eq!(status, Some(0), "{out}{error}");
    for part in [
        "issuer: ",
        "serves and is ready",
        "key ids: the issuer seals with ",
        "takes new clients",
        "clocks: those of issuer and server agree",
        "admitted the client",
        "has the key and the protocol id",
        "payloads of 1200 bytes return",
        "warning  address: ",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(!out.contains("problem"), "{out}");
    server.stop();
}

#[test]
fn doctor_names_a_wrong_key_and_a_wrong_address() {
    let folder = TestFolder::new();
    let server = folder.start(&["--admin", "127.0.0.1:0", "--first-start"]);
    let admin = admin_of(&server).to_string();
    let (issuer, keys) = issuer_for(&server.address().to_string(), OTHER_KEY);
    folder.write("api.key", keys.api_key.expose(), 0o600);
    let url = issuer.url("");
    let flags = ["doctor", "--issuer", &url, "--api-key-file", "api.key", "--admin", &admin, "--json"];
    let (status, out, error) = slipgate(&folder, &flags);
    let findings: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let problem = |check: &str| {
        let of_check = |finding: &&Value| finding["severity"] == "problem" && finding["check"] == check;
        findings.iter().find(of_check).unwrap_or_else(|| panic!("{check}: {out}{error}"))
    };
    assert_eq!(status, Some(5), "{out}{error}");
    assert!(problem("key ids")["remedy"].as_str().unwrap().contains("the same key file"), "{out}");
    let problem = problem("server");
    assert!(problem["text"].as_str().unwrap().contains("token_not_authentic"), "{out}");
    assert!(problem["remedy"].as_str().unwrap().starts_with("Give issuer and server the same private key"), "{out}");
    let (status, out, _) =
        slipgate(&folder, &["doctor", "--issuer", "http://127.0.0.1:1", "--api-key-file", "api.key"]);
    assert_eq!((status, out.contains("cannot be reached")), (Some(5), true), "{out}");
    assert!(out.contains("no program listens on this port") && out.lines().count() == 2, "{out}");
    server.stop();
}

#[test]
fn doctor_says_that_a_full_server_responds() {
    let folder = TestFolder::new();
    let server = folder.start(&["--slots", "1", "--first-start"]);
    let mut client = TestClient::join(42, server.address());
    let (issuer, keys) = issuer_for(&server.address().to_string(), PRIVATE_KEY);
    folder.write("api.key", keys.api_key.expose(), 0o600);
    let (status, out, error) = slipgate(&folder, &["doctor", "--issuer", &issuer.url(""), "--api-key-file", "api.key"]);
    assert_eq!((status, out.contains("The server responds and has the key")), (Some(5), true), "{out}{error}");
    client.leave();
    server.stop();
}
