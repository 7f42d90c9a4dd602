//! The command `slipgate` as a process, with real files, HTTP and UDP.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A temporary directory.
struct TestFolder(PathBuf);

impl TestFolder {
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

impl Drop for TestFolder {
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

/// Runs a command that must fail with this status and a one-line error. Returns the error.
#[track_caller]
fn fails(status: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", stderr(&output));
    let message = stderr(&output);
    assert_eq!(message.lines().count(), 1, "one line: {message}");
    assert!(message.starts_with("slipgate: "), "{message}");
    message
}

#[test]
fn demo_serves_every_client_and_checks_chat_state_and_map() {
    let (start, summary) = demo(&["--clients", "3", "--for", "1500ms", "--map", "300"]);
    assert_eq!((&start["event"], &start["preset"]), (&"start".into(), &Value::Null));
    assert_eq!((&summary["event"], &summary["ok"], &summary["served"]), (&"summary".into(), &true.into(), &3.into()));
    let clients = summary["clients"].as_array().unwrap();
    assert_eq!(clients.len(), 3);
    for client in clients {
        // A client sends 6 lines and 90 updates in 1.5 s; the bounds are lower for slow machines.
        assert!(client["chat"]["sent"].as_u64().unwrap() >= 3, "{client}");
        assert_eq!((&client["chat"]["returned"], &client["wrong"]), (&client["chat"]["sent"], &0.into()), "{client}");
        assert!(client["chat"]["from_others"].as_u64().unwrap() >= 3, "all are in one chat group: {client}");
        let (sent, received) = (&client["states"]["sent"], &client["states"]["received"]);
        assert!(received.as_u64().unwrap() >= 15 && received.as_u64() <= sent.as_u64(), "{client}");
        assert!(client["states"]["from_client"].as_u64().unwrap() >= 15, "{client}");
        assert_eq!(client["map"], serde_json::json!({ "bytes": 307_200, "of": 307_200, "complete": 1 }));
        assert!(client["round_trip_ms"].as_f64().unwrap() > 0.0, "{client}");
        assert!(client["budget"]["payload_bytes"].as_u64().unwrap() > 0, "{client}");
    }
    let mut slots: Vec<_> = clients.iter().map(|client| client["slot"].as_u64().unwrap()).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2]);
}

/// Runs the demo. Returns its first and its last line.
#[track_caller]
fn demo(arguments: &[&str]) -> (Value, Value) {
    let output = succeeds(&[&["demo", "--json"], arguments].concat());
    let mut lines = output.lines().map(|line| serde_json::from_str(line).unwrap());
    (lines.next().unwrap(), lines.next_back().unwrap())
}

/// Loopback has no loss and only the delay of the loops' turns, which must not reduce the rate.
#[test]
fn demo_keeps_its_full_rate_on_loopback() {
    let (_, summary) = demo(&["--for", "4s"]);
    let clients = summary["clients"].as_array().unwrap();
    assert_eq!(clients.len(), 8);
    for client in clients {
        let states = |name: &str| client["states"][name].as_u64().unwrap();
        assert!(2 * states("received") > states("from_client"), "{client}");
        assert!(client["budget"]["packets_per_second"].as_f64().unwrap() >= 30.0, "{client}");
    }
}

#[test]
fn demo_delivers_everything_over_an_impaired_path() {
    let (start, summary) = demo(&["--clients", "2", "--for", "2s", "--map", "100", "--preset", "wifi-bad"]);
    assert_eq!((&start["preset"], &summary["ok"], &summary["served"]), (&"wifi-bad".into(), &true.into(), &2.into()));
    for client in summary["clients"].as_array().unwrap() {
        // The preset's one-way delay is at least 8 ms.
        assert!(client["round_trip_ms"].as_f64().unwrap() >= 16.0, "{client}");
    }
    let output = run(&["demo", "--preset", "5g"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("the presets are wifi-bad, 4g, satellite and dsl-bufferbloat"));
}

#[test]
fn demo_prints_plain_lines_without_a_terminal_over_ipv6() {
    let output = succeeds(&["demo", "--clients", "2", "--for", "2500ms", "--server", "[::1]:0", "--issuer", "[::1]:0"]);
    assert!(!output.contains('\u{1b}'), "no control sequences: {output}");
    assert!(output.contains("2 of 2 connected"), "{output}");
    let last = output.lines().last().unwrap();
    assert!(last.starts_with("SUCCESS: every client was served, every reliable message arrived: 2 of 2"), "{last}");
    assert!(last.contains("chat lines once and in order") && last.contains("none out of order"), "{last}");
    assert!(last.contains("2 of 2 maps complete"), "{last}");
}

/// Runs the maximum number of clients with the usual limit of file descriptors.
#[cfg(unix)]
#[test]
fn demo_serves_256_clients_with_1024_file_descriptors() {
    let demo = "ulimit -n 1024 && exec \"$0\" demo --clients 256 --rate 2 --for 1 --map 8 --json";
    // Clients of a busy machine may give up while they join. Too few descriptors would end each attempt.
    let attempt = || Command::new("sh").args(["-c", demo, env!("CARGO_BIN_EXE_slipgate")]).output().unwrap();
    let mut output = attempt();
    for _ in 0..4 {
        if !output.status.success() {
            println!("{}", stderr(&output));
            output = attempt();
        }
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let summary: Value = serde_json::from_str(stdout(&output).lines().last().unwrap()).unwrap();
    assert_eq!((&summary["ok"], &summary["served"]), (&true.into(), &256.into()));
}

#[cfg(unix)]
#[test]
fn demo_with_too_few_file_descriptors_ends_at_its_start() {
    // A program has three from its start. With the last limit the demo runs.
    for (limit, clients, status) in [(12, 8, 1), (40, 60, 1), (72, 8, 1), (230, 60, 1), (80, 8, 0)] {
        let demo = format!("ulimit -n {limit} && exec \"$0\" demo --clients {clients} --for 1 --map 8 --json");
        let output = Command::new("sh").args(["-c", &demo, env!("CARGO_BIN_EXE_slipgate")]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{limit}: {}", stderr(&output));
        if status > 0 {
            assert!(stderr(&output).contains("too few file descriptors"), "{limit}: {}", stderr(&output));
            assert_eq!(stderr(&output).lines().count(), 1, "{limit}: {}", stderr(&output));
        }
    }
}

#[test]
fn demo_refuses_values_above_its_maximums() {
    for (flag, value) in [("--clients", "257"), ("--map", "65537"), ("--for", "18446744073709551615s")] {
        let output = run(&["demo", flag, value]);
        assert_eq!(output.status.code(), Some(2), "{flag} {value}: {}", stderr(&output));
    }
}

#[cfg(unix)]
#[test]
fn signal_ends_the_demo_with_a_summary() {
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
    let end = Instant::now() + Duration::from_secs(60);
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
fn demo_reports_unusable_addresses_in_one_line() {
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let (http, game) = (tcp.local_addr().unwrap().to_string(), udp.local_addr().unwrap().to_string());
    for (arguments, status, expected) in [
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
        (["demo", "--server", "0.0.0.0:0"], 2, "cannot connect to".to_owned()),
        (["demo", "--issuer", "0.0.0.0:0"], 2, "must be a loopback address".to_owned()),
    ] {
        let message = fails(status, &arguments);
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn private_key_is_owner_only_and_never_overwrites_a_file() {
    let folder = TestFolder::new("keygen");
    let file = folder.file("private.key");
    let message = succeeds(&["keygen", &file]);
    let key = key_lines(&file).remove(0);
    assert!(!message.contains(&key), "the key is not printed");
    assert_owner_only(&file);
    let message = fails(1, &["keygen", &file]);
    assert!(message.contains("exists already and is not overwritten"), "{message}");
    assert_eq!(key_lines(&file), [key]);
    let message = fails(1, &["keygen", &folder.file("no/such/folder")]);
    assert!(message.contains("its directory does not exist"), "{message}");
}

#[test]
fn rotation_adds_a_key_at_the_top_and_keeps_the_newest_two() {
    let folder = TestFolder::new("rotate");
    let file = folder.file("private.key");
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
fn rotation_keeps_ids_and_times_of_old_keys() {
    let folder = TestFolder::new("attributes");
    let file = folder.file("private.key");
    succeeds(&["keygen", &file]);
    let old = [("33", " id=b not-before=2000"), ("22", " not-before=1000"), ("11", " id=a")];
    let old = old.map(|(byte, attributes)| byte.repeat(32) + attributes);
    // The file keeps its mode.
    std::fs::write(&file, old.join("\n")).unwrap();
    succeeds(&["keygen", "--rotate", &file]);
    let keys = key_lines(&file);
    assert_eq!((keys[0].len(), &keys[1..]), (64, &old[..2]));
}

#[test]
fn rotation_with_a_delay_keeps_the_key_that_seals() {
    let folder = TestFolder::new("delay");
    let file = folder.file("private.key");
    succeeds(&["keygen", &file]);
    let first = key_lines(&file);
    let rotate = |more: &[&'static str]| [&["keys", "rotate", &file], more].concat();
    assert!(fails(1, &rotate(&["--keep", "1"])).contains("would be dropped"));
    succeeds(&rotate(&[]));
    succeeds(&rotate(&[]));
    let keys = key_lines(&file);
    assert_eq!((keys.len(), keys[2].split(' ').next()), (3, Some(first[0].as_str())));
    // Two keys wait for their time, and the third one seals.
    assert!(fails(1, &rotate(&[])).contains("would be dropped"));
    assert_eq!(key_lines(&file), keys);
    succeeds(&rotate(&["--keep", "1", "--in", "0s"]));
    assert_eq!(key_lines(&file).len(), 1);
}

#[test]
fn keys_of_one_second_have_ids_of_their_own() {
    let folder = TestFolder::new("ids");
    let file = folder.file("private.key");
    succeeds(&["keygen", &file]);
    for _ in 0..5 {
        succeeds(&["keys", "rotate", &file, "--in", "0s"]);
    }
    let list = succeeds(&["keys", "list", &file]);
    let ids: BTreeSet<_> = list.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(ids.len(), 3, "{list}");
    let newest = list.split(' ').next().unwrap();
    let message = fails(2, &["keys", "rotate", &file, "--in", "0s", "--id", newest]);
    assert!(message.contains("give the new key another one"), "{message}");
    assert_eq!(succeeds(&["keys", "list", &file]), list);
}

#[test]
fn oldest_key_seals_until_the_time_of_another_has_come() {
    let folder = TestFolder::new("list");
    let file = folder.file("private.key");
    succeeds(&["keygen", &file]);
    for (new, old, expected) in [
        ("4102444800", "4102444700", ["accepted, seals later", "seals"]),
        ("4102444800", "1000", ["accepted, seals later", "seals"]),
        ("2000", "1000", ["seals", "accepted"]),
    ] {
        let keys = [("22", new), ("11", old)].map(|(byte, from)| format!("{} not-before={from}\n", byte.repeat(32)));
        // The file keeps its mode.
        std::fs::write(&file, keys.concat()).unwrap();
        let list = succeeds(&["keys", "list", &file]);
        let states: Vec<_> = list.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap()).collect();
        assert_eq!(states, expected, "{list}");
    }
}

#[test]
fn leftover_of_an_interrupted_rotation_is_reported() {
    let folder = TestFolder::new("left-over");
    let (file, left) = (folder.file("private.key"), folder.file("private.key.new"));
    succeeds(&["keygen", &file]);
    let keys = key_lines(&file);
    std::fs::write(&left, "half a file").unwrap();
    let message = fails(1, &["keygen", "--rotate", &file]);
    assert!(message.contains("private.key.new already exists") && message.contains("remove it first"), "{message}");
    assert_eq!((key_lines(&file), std::fs::read_to_string(&left).unwrap()), (keys, "half a file".to_owned()));
}

#[cfg(unix)]
#[test]
fn rotation_follows_a_link_and_keeps_the_owner() {
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    let folder = TestFolder::new("link");
    let (file, link) = (folder.file("private.key"), folder.file("link.key"));
    succeeds(&["keygen", &file]);
    symlink("private.key", &link).unwrap();
    // Only root can change the owner; without root the check is trivial.
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
fn api_key_is_written_to_a_file_and_its_digest_is_printed() {
    let folder = TestFolder::new("bearer");
    let file = folder.file("api.key");
    let message = succeeds(&["keygen", "--bearer", &file]);
    let key = std::fs::read_to_string(&file).unwrap();
    assert!(key.starts_with("sgk_") && !message.contains(key.trim()));
    assert!(message.starts_with("hmac-sha256:") && message.lines().count() == 1, "for scripts: {message}");
    assert_owner_only(&file);
}

#[test]
fn inspect_shows_private_part_and_session_keys_only_on_demand() {
    let folder = TestFolder::new("token");
    let (key, other, token) = (folder.file("private.key"), folder.file("other.key"), folder.file("token"));
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

    let message = fails(1, &["token", "inspect", &token, "--key-file", &other]);
    assert!(message.contains("cannot decrypt the private part with these keys"), "{message}");
    assert!(inspect_stdin(&base64).contains("192.0.2.7:40000"));
}

#[test]
fn invalid_claims_are_refused_in_one_line() {
    let folder = TestFolder::new("refused");
    let key = folder.file("private.key");
    succeeds(&["keygen", &key]);
    let mint = ["token", "mint", "--key-file", &key, "--protocol-id", "1", "--client-id", "2"];
    let too_much = "A".repeat(344);
    for (more, expected) in [
        (vec!["--server", "0.0.0.0:40000"], "clients cannot send to 0.0.0.0:40000"),
        (vec!["--server", "192.0.2.1:0"], "clients cannot send to 192.0.2.1:0"),
        (vec!["--server", "192.0.2.1:1", "--user-data", "&"], "user data must be base64"),
        (vec!["--server", "192.0.2.1:1", "--user-data", &too_much], "at most 256 bytes"),
        (
            vec!["--server", "192.0.2.1:1", "--internal-server", "10.0.0.1:1", "--internal-server", "10.0.0.2:1"],
            "one address for each",
        ),
    ] {
        let message = fails(2, &[&mint[..], &more].concat());
        assert!(message.contains(expected), "{message}");
    }
    let message = fails(1, &["token", "inspect", &key]);
    let reason = format!("{key} holds no connect token: a connect token must be exactly 2048 bytes long");
    assert!(message.contains(&reason), "{message}");
}

#[cfg(unix)]
#[test]
fn key_file_readable_by_others_is_refused_with_the_remedy() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TestFolder::new("exposed");
    let key = folder.file("private.key");
    succeeds(&["keygen", &key]);
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    let mint =
        ["token", "mint", "--key-file", &key, "--protocol-id", "1", "--client-id", "2", "--server", "192.0.2.1:1"];
    let message = fails(1, &mint);
    assert!(message.contains("chmod 600"), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn benchmark_prints_json_and_a_table_and_checks_its_flags() {
    let json = succeeds(&["bench", "--quick", "--rounds", "5", "--only", "seals", "--json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert!(report["rows"][0]["medians"][0].as_f64().unwrap() > 0.0, "{json}");
    let table = succeeds(&["bench", "--quick", "--rounds", "5", "--only", "echo", "--clients", "1"]);
    assert!(table.contains("| echo, 1 clients"), "{table}");
    assert_eq!(run(&["bench", "--only", "speed"]).status.code(), Some(2));
    assert_eq!(
        run(&["bench", "--quick", "--rounds", "4"]).status.code(),
        Some(2),
        "an even number of rounds has no median"
    );
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
