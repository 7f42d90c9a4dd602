//! The command line as a person uses it: real processes, real files, real HTTP and UDP.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code says what it expects by panicking")]

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A directory of a test's own, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("slipgate-cli-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn slipgate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_slipgate"))
}

fn run(arguments: &[&str]) -> Output {
    slipgate().args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// It ends with this status and one sentence on stderr, which is answered.
#[track_caller]
fn fails(status: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", stderr(&output));
    let sentence = stderr(&output);
    assert_eq!(sentence.lines().count(), 1, "one sentence: {sentence}");
    assert!(sentence.starts_with("slipgate: "), "{sentence}");
    sentence
}

#[test]
fn the_demo_serves_every_client_and_checks_chat_state_and_map() {
    let (start, summary) = demo(&["--clients", "3", "--for", "1500ms", "--map", "300"]);
    assert_eq!((&start["event"], &start["preset"]), (&"start".into(), &Value::Null));
    assert_eq!((&summary["event"], &summary["ok"], &summary["served"]), (&"summary".into(), &true.into(), &3.into()));
    let clients = summary["clients"].as_array().unwrap();
    assert_eq!(clients.len(), 3);
    for client in clients {
        // A line in a quarter of a second and 60 states in a second for a second and a half, with room for a slow machine.
        assert!(client["chat"]["said"].as_u64().unwrap() >= 3, "{client}");
        assert_eq!((&client["chat"]["back"], &client["wrong"]), (&client["chat"]["said"], &0.into()), "{client}");
        assert!(client["chat"]["of_others"].as_u64().unwrap() >= 3, "all sit at one table: {client}");
        let (sent, received) = (&client["states"]["sent"], &client["states"]["received"]);
        assert!(received.as_u64().unwrap() >= 15 && received.as_u64() <= sent.as_u64(), "{client}");
        assert!(client["states"]["of_client"].as_u64().unwrap() >= 15, "{client}");
        assert_eq!(client["map"], serde_json::json!({ "bytes": 307_200, "of": 307_200, "whole": 1 }));
        assert!(client["round_trip_ms"].as_f64().unwrap() > 0.0, "{client}");
        assert!(client["budget"]["payload_bytes"].as_u64().unwrap() > 0, "{client}");
    }
    let mut slots: Vec<_> = clients.iter().map(|client| client["slot"].as_u64().unwrap()).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
}

/// Runs the demo, and answers its first and its last line.
#[track_caller]
fn demo(arguments: &[&str]) -> (Value, Value) {
    let output = succeeds(&[&["demo", "--json"], arguments].concat());
    let mut lines = output.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.next_back().unwrap())
}

/// Nothing is lost on one machine, and nothing waits but for the loops' own turns: that must not pass for a bad path.
#[test]
fn on_one_machine_every_client_of_the_demo_keeps_its_full_rate() {
    let (_, summary) = demo(&["--for", "4s"]);
    let clients = summary["clients"].as_array().unwrap();
    assert_eq!(clients.len(), 8);
    for client in clients {
        let states = |name: &str| client["states"][name].as_u64().unwrap();
        assert!(2 * states("received") > states("of_client"), "{client}");
        assert!(client["budget"]["packets_per_second"].as_f64().unwrap() >= 30.0, "{client}");
    }
}

#[test]
fn the_demo_gets_everything_through_a_bad_line_and_shows_it() {
    let (start, summary) = demo(&["--clients", "2", "--for", "2s", "--map", "100", "--preset", "wifi-bad"]);
    assert_eq!((&start["preset"], &summary["ok"], &summary["served"]), (&"wifi-bad".into(), &true.into(), &2.into()));
    for client in summary["clients"].as_array().unwrap() {
        // 8 ms each way at least, whoever measures.
        assert!(client["round_trip_ms"].as_f64().unwrap() >= 16.0, "{client}");
    }
    let output = run(&["demo", "--preset", "5g"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("there are the presets wifi-bad, 4g, satellite and dsl-bufferbloat"));
}

#[test]
fn the_demo_prints_plain_lines_where_there_is_no_terminal_and_works_over_ipv6() {
    let output = succeeds(&["demo", "--clients", "2", "--for", "2500ms", "--server", "[::1]:0", "--issuer", "[::1]:0"]);
    assert!(!output.contains('\u{1b}'), "no control sequences: {output}");
    assert!(output.contains("2 of 2 connected"), "{output}");
    let last = output.lines().last().unwrap();
    assert!(last.starts_with("every client was served, all that must arrive did: 2 of 2 clients served"), "{last}");
    assert!(last.contains("lines of chat once and in order") && last.contains("none older"), "{last}");
    assert!(last.contains("2 of 2 maps whole"), "{last}");
}

/// As many clients as it takes, with as few file descriptors as a shell usually allows.
#[cfg(unix)]
#[test]
fn the_demo_serves_256_clients_with_1024_file_descriptors() {
    let demo = "ulimit -n 1024 && exec \"$0\" demo --clients 256 --rate 2 --for 1 --map 8 --json";
    let output = Command::new("sh").args(["-c", demo, env!("CARGO_BIN_EXE_slipgate")]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let summary: Value = serde_json::from_str(stdout(&output).lines().last().unwrap()).unwrap();
    assert_eq!((&summary["ok"], &summary["served"]), (&true.into(), &256.into()));
}

#[test]
fn the_demo_refuses_more_clients_larger_maps_and_longer_games_than_it_has() {
    for (flag, value) in [("--clients", "257"), ("--map", "65537"), ("--for", "18446744073709551615s")] {
        let output = run(&["demo", flag, value]);
        assert_eq!(output.status.code(), Some(2), "{flag} {value}: {}", stderr(&output));
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_demo_cleanly() {
    use std::io::{BufRead, BufReader};
    use std::time::{Duration, Instant};
    let mut demo = slipgate()
        .args(["demo", "--for", "ever", "--clients", "2", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let connected = lines.by_ref().map(Result::unwrap).take(20).any(|line| {
        let line: Value = serde_json::from_str(&line).unwrap();
        line["server"]["connected"] == 2
    });
    assert!(connected);
    let killed = Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let summary = lines.map(Result::unwrap).last().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = demo.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "the demo does not end");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(0));
    assert_eq!(serde_json::from_str::<Value>(&summary).unwrap()["ok"], true);
}

#[test]
fn a_port_in_use_and_a_foreign_address_are_one_clear_sentence() {
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let (http, game) = (tcp.local_addr().unwrap().to_string(), udp.local_addr().unwrap().to_string());
    for (arguments, status, said) in [
        (
            ["demo", "--issuer", &http],
            1,
            format!("the issuer cannot listen on {http} (HTTP): another program listens there already"),
        ),
        (
            ["demo", "--server", &game],
            1,
            format!("the server cannot listen on {game} (UDP): another program listens there already"),
        ),
        (["demo", "--server", "192.0.2.1:0"], 1, "this machine has no such address".to_owned()),
        (["demo", "--server", "0.0.0.0:0"], 2, "cannot dial".to_owned()),
        (["demo", "--issuer", "0.0.0.0:0"], 2, "must be a loopback address".to_owned()),
    ] {
        let sentence = fails(status, &arguments);
        assert!(sentence.contains(&said), "{sentence}");
    }
}

#[test]
fn a_private_key_is_written_for_its_owner_alone_and_never_over_another_file() {
    let place = Place::new("keygen");
    let file = place.file("private.key");
    let said = succeeds(&["keygen", &file]);
    let key = key_lines(&file).remove(0);
    assert!(!said.contains(&key), "the key is not printed");
    assert_owner_only(&file);
    let sentence = fails(1, &["keygen", &file]);
    assert!(sentence.contains("exists already, and is not overwritten"), "{sentence}");
    assert_eq!(key_lines(&file), [key]);
    let sentence = fails(1, &["keygen", &place.file("no/such/place")]);
    assert!(sentence.contains("its directory does not exist"), "{sentence}");
}

#[test]
fn rotation_puts_a_new_key_on_top_and_keeps_the_newest_two_of_the_old() {
    let place = Place::new("rotate");
    let file = place.file("private.key");
    succeeds(&["keygen", &file]);
    let mut expected = key_lines(&file);
    for _ in 0..4 {
        succeeds(&["keygen", "--rotate", &file]);
        let keys = key_lines(&file);
        assert!(!expected.contains(&keys[0]), "a new key");
        expected.insert(0, keys[0].clone());
        expected.truncate(3);
        assert_eq!(keys, expected);
        assert_owner_only(&file);
    }
}

#[test]
fn what_an_unfinished_rotation_left_is_named_and_the_keys_stay() {
    let place = Place::new("left-over");
    let (file, left) = (place.file("private.key"), place.file("private.key.new"));
    succeeds(&["keygen", &file]);
    let keys = key_lines(&file);
    std::fs::write(&left, "half a file").unwrap();
    let sentence = fails(1, &["keygen", "--rotate", &file]);
    assert!(sentence.contains("private.key.new is in the way") && sentence.contains("remove it first"), "{sentence}");
    assert_eq!((key_lines(&file), std::fs::read_to_string(&left).unwrap()), (keys, "half a file".to_owned()));
}

#[cfg(unix)]
#[test]
fn rotation_follows_a_link_and_the_file_stays_its_owners() {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    let place = Place::new("link");
    let (file, link) = (place.file("private.key"), place.file("link.key"));
    succeeds(&["keygen", &file]);
    symlink("private.key", &link).unwrap();
    // Only root can give a file away; for others the owner cannot change anyway.
    let _ = chown(&file, Some(12_345), Some(12_346));
    let before = std::fs::metadata(&file).unwrap();
    succeeds(&["keygen", "--rotate", &link]);
    let after = std::fs::metadata(&file).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(key_lines(&file).len(), 2);
    assert_eq!((before.uid(), before.gid()), (after.uid(), after.gid()));
    assert_owner_only(&file);
}

#[test]
fn an_api_key_goes_to_a_file_and_only_its_digest_is_printed() {
    let place = Place::new("bearer");
    let file = place.file("api.key");
    let said = succeeds(&["keygen", "--bearer", &file]);
    let key = std::fs::read_to_string(&file).unwrap();
    assert!(key.starts_with("sgk_") && !said.contains(key.trim()));
    assert!(said.lines().any(|line| line.starts_with("hmac-sha256:")), "{said}");
    assert_owner_only(&file);
}

#[test]
fn a_minted_token_shows_its_private_part_only_with_the_key_and_session_keys_only_when_asked() {
    let place = Place::new("token");
    let (key, other, token) = (place.file("private.key"), place.file("other.key"), place.file("token"));
    succeeds(&["keygen", &key]);
    succeeds(&["keygen", &other]);
    let mint = ["token", "mint", "--key-file", &key, "--protocol-id", "0x1122", "--client-id", "18446744073709551615"];
    let mint =
        [&mint[..], &["--server", "192.0.2.7:40000", "--server", "[2001:db8::1]:40000", "--user-data", "aGVsbG8="]]
            .concat();
    let base64 = succeeds(&mint);
    succeeds(&[&mint[..], &["--out", &token]].concat());
    assert_owner_only(&token);
    assert_eq!(std::fs::read(&token).unwrap().len(), 2048);

    let public = inspect(&["token", "inspect", &token, "--json"]);
    assert_eq!(public["protocol_id"], "0x1122");
    assert_eq!(public["servers"], serde_json::json!(["192.0.2.7:40000", "[2001:db8::1]:40000"]));
    assert_eq!(public["expires"].as_u64().unwrap() - public["created"].as_u64().unwrap(), 30);
    for secret in ["private", "client_to_server_key", "server_to_client_key"] {
        assert!(public.get(secret).is_none(), "{secret}");
    }

    let private = inspect(&["token", "inspect", &token, "--key-file", &key, "--json"]);
    assert_eq!(private["private"]["client_id"], "18446744073709551615");
    assert_eq!(private["private"]["user_data"], hex::encode("hello"));
    assert!(private["private"]["minted_unix_ms"].as_u64().unwrap() / 1000 == private["created"].as_u64().unwrap());
    assert!(private.get("client_to_server_key").is_none());

    let secret = inspect(&["token", "inspect", &token, "--show-session-keys", "--json"]);
    assert_eq!(secret["client_to_server_key"].as_str().unwrap().len(), 64);

    let sentence = fails(1, &["token", "inspect", &token, "--key-file", &other]);
    assert!(sentence.contains("does not open with these keys"), "{sentence}");
    assert!(inspect_stdin(&base64).contains("192.0.2.7:40000"));
}

#[test]
fn what_no_token_can_say_is_refused_in_a_sentence() {
    let place = Place::new("refused");
    let key = place.file("private.key");
    succeeds(&["keygen", &key]);
    let mint = ["token", "mint", "--key-file", &key, "--protocol-id", "1", "--client-id", "2"];
    let too_much = "A".repeat(344);
    for (more, said) in [
        (vec!["--server", "0.0.0.0:40000"], "no packet can be sent to 0.0.0.0:40000"),
        (vec!["--server", "192.0.2.1:0"], "no packet can be sent to 192.0.2.1:0"),
        (vec!["--server", "192.0.2.1:1", "--user-data", "&"], "user data must be base64"),
        (vec!["--server", "192.0.2.1:1", "--user-data", &too_much], "at most 256 bytes"),
        (
            vec!["--server", "192.0.2.1:1", "--internal-server", "10.0.0.1:1", "--internal-server", "10.0.0.2:1"],
            "one address for each",
        ),
    ] {
        let sentence = fails(2, &[&mint[..], &more].concat());
        assert!(sentence.contains(said), "{sentence}");
    }
    let sentence = fails(1, &["token", "inspect", &key]);
    assert!(sentence.contains("exactly 2048 bytes"), "{sentence}");
}

#[cfg(unix)]
#[test]
fn a_key_file_that_others_can_read_is_refused_with_the_remedy() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("exposed");
    let key = place.file("private.key");
    succeeds(&["keygen", &key]);
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let mint =
        ["token", "mint", "--key-file", &key, "--protocol-id", "1", "--client-id", "2", "--server", "192.0.2.1:1"];
    let sentence = fails(1, &mint);
    assert!(sentence.contains("chmod 600"), "{sentence}");
}

#[cfg(target_os = "linux")]
#[test]
fn the_benchmark_prints_its_figures_as_json_and_as_a_table_and_knows_its_measures() {
    let json = succeeds(&["bench", "--quick", "--rounds", "5", "--only", "seals", "--json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert!(report["rows"][0]["medians"][0].as_f64().unwrap() > 0.0, "{json}");
    let table = succeeds(&["bench", "--quick", "--rounds", "5", "--only", "echo", "--clients", "1"]);
    assert!(table.contains("| echo, 1 clients"), "{table}");
    assert_eq!(run(&["bench", "--only", "speed"]).status.code(), Some(2));
    assert_eq!(run(&["bench", "--quick", "--rounds", "4"]).status.code(), Some(2), "no median of four");
}

fn inspect(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(arguments)).unwrap()
}

fn inspect_stdin(base64: &str) -> String {
    let mut child = slipgate().args(["token", "inspect"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(base64.as_bytes()).unwrap();
    stdout(&child.wait_with_output().unwrap())
}

fn key_lines(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

#[cfg(unix)]
#[track_caller]
fn assert_owner_only(file: impl AsRef<Path>) {
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[cfg(not(unix))]
fn assert_owner_only(_: impl AsRef<Path>) {}
