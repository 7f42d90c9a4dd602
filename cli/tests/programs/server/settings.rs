//! Flags, environment, configuration file and keys; and the one-line errors about them.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use super::client::{TestClient, TestToken};
use super::program::{OTHER_KEY, PRIVATE_KEY, Program, TestFolder, assert_no_secret};

#[test]
fn flag_overrides_environment_overrides_file_overrides_default() {
    let folder = TestFolder::new();
    let text = "bind = [\"127.0.0.1:0\", \"[::1]:0\"]\nadvertise = [\"192.0.2.1:1\", \"192.0.2.2:2\"]\nslots = 10\n\
                tick = 30\napp = \"relay\"\nmax_token_lifetime = \"20s\"\ntakeover_after = 2\ndrain = \"1m\"\n\
                dscp = \"ef\"\n\
                [limits]\npending_clients = 9\n";
    folder.write("server.toml", text, 0o644);
    let facts = |file: bool, variables: &[(&str, &str)], flags: &[&str]| {
        let mut command = folder.on(&[], flags);
        command.env_remove("SLIPGATE_SERVER_DRAIN");
        if file {
            command.env("SLIPGATE_SERVER_CONFIG", "server.toml");
        } else {
            command.args(["--bind", "127.0.0.1:0"]);
        }
        let server = Program::start({
            command.envs(variables.iter().copied());
            command
        });
        let names = ["advertise", "slots", "tick_hz", "app", "max_token_lifetime", "takeover_after", "drain", "dscp"];
        assert_eq!(server.fact("protocol_id"), "0x1234");
        (server.addresses().len(), names.map(|name| server.fact(name))[1..].join(" "), server.fact("advertise"))
    };
    let variables = [
        ("SLIPGATE_SERVER_BIND", "[::1]:0"),
        ("SLIPGATE_SERVER_ADVERTISE", "192.0.2.3:3,192.0.2.4:4"),
        ("SLIPGATE_SERVER_SLOTS", "20"),
        ("SLIPGATE_SERVER_TICK", "40"),
        ("SLIPGATE_SERVER_APP", "echo"),
        ("SLIPGATE_SERVER_MAX_TOKEN_LIFETIME", "unlimited"),
        ("SLIPGATE_SERVER_TAKEOVER_AFTER", "250ms"),
        ("SLIPGATE_SERVER_DRAIN", "2s"),
        ("SLIPGATE_SERVER_DSCP", "8"),
        ("SLIPGATE_PROTOCOL_ID", "7"),
    ];
    let defaults = facts(false, &[], &[]);
    assert_eq!((defaults.0, defaults.1.as_str()), (1, "64 60 echo 45s 1s 5s default"));
    let of_file = facts(true, &[], &[]);
    assert_eq!(of_file, (2, "10 30 relay 20s 2s 60s ef".into(), "192.0.2.1:1, 192.0.2.2:2".into()));
    let of_environment = facts(true, &variables, &[]);
    assert_eq!(of_environment, (1, "20 40 echo unlimited 250ms 2s 8".into(), "192.0.2.3:3, 192.0.2.4:4".into()));
    let flags = ["--bind", "127.0.0.1:0", "--advertise", "192.0.2.5:5", "--slots", "30", "--app", "relay"];
    let of_flags = facts(true, &variables, &flags);
    assert_eq!(of_flags, (1, "30 40 relay unlimited 250ms 2s 8".into(), "192.0.2.5:5".into()));
}

#[cfg(target_os = "linux")]
#[test]
fn kernel_filter_is_on_unless_disabled() {
    let folder = TestFolder::new();
    for (flags, expected) in [(&[][..], "true"), (&["--kernel-filter"], "true"), (&["--kernel-filter=false"], "false")]
    {
        let server = folder.start(flags);
        assert_eq!(server.fact("kernel_filter"), expected, "{flags:?}");
        assert!(server.fact("receive_buffer").parse::<usize>().unwrap() > 0);
        TestClient::join(1, server.address()).echo(b"through the filter, or without it");
    }
}

#[test]
fn limit_of_the_file_applies_and_is_logged_once() {
    let folder = TestFolder::new();
    folder.write("server.toml", "[limits]\nhistory_tokens = 1\n", 0o644);
    let server = folder.start(&["--config", "server.toml"]);
    let mut first = TestClient::join(1, server.address());
    let tokens = [2, 3].map(|id| TestToken::new(id, server.address()).with_short_timeout().mint());
    for token in tokens {
        TestClient::fail(token);
    }
    first.echo(b"still here");
    let log = server.stop();
    assert_eq!(log.matches("the token history is full").count(), 1, "{log}");
}

#[test]
fn keys_come_from_a_file_or_one_environment_variable() {
    let folder = TestFolder::new();
    let command = |flags: &[&str], key: &str| {
        let mut command = folder.bare(&["--protocol-id", "4660", "--bind", "127.0.0.1:0"]);
        command.args(flags).env("SLIPGATE_PRIVATE_KEY", key);
        command
    };
    let server = Program::start(command(&[], OTHER_KEY));
    assert_eq!(server.fact("keys"), "environment");
    TestClient::join_with(TestToken { key: OTHER_KEY, ..TestToken::new(1, server.address()) }.mint())
        .echo(b"by variable");
    // The flag overrides the environment.
    let server = Program::start(command(&["--key-file", "keys"], OTHER_KEY));
    TestClient::join(1, server.address()).echo(b"by flag");
    // The environment overrides the configuration file. Its `key_file` is relative to the file.
    fs::create_dir(folder.path("etc")).unwrap();
    folder.write("etc/server.toml", "key_file = \"../keys\"\n", 0o644);
    let server = Program::start(command(&["--config", "etc/server.toml"], OTHER_KEY));
    assert_eq!(server.fact("keys"), "environment");
    let mut by_file = folder.bare(&["--protocol-id", "4660", "--bind", "127.0.0.1:0"]);
    by_file.args(["--config", "etc/server.toml"]);
    TestClient::join(1, Program::start(by_file).address());

    let mut two = command(&[], OTHER_KEY);
    two.env("SLIPGATE_KEY_FILE", "keys");
    assert!(folder.refused(two).1.contains("are both set"));
    let (code, message) = folder.refused(command(&[], &OTHER_KEY[1..]));
    assert!(code == 2 && message.contains("SLIPGATE_PRIVATE_KEY is invalid"), "{message}");
}

#[test]
fn help_lists_every_limit_of_the_file() {
    let help = TestFolder::new().bare(&["--help"]).output().unwrap();
    // Joined, because clap wraps the lines.
    let help = String::from_utf8(help.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let readme = include_str!("../../../README.md");
    let table = readme.split_once("the file's table `[limits]`").unwrap().1.split_once("\n### ").unwrap().0;
    let keys: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(keys.len(), 14);
    keys.iter().for_each(|key| assert!(help.contains(key), "{key}"));
}

#[test]
fn secrets_are_in_no_help_command_line_or_error() {
    let folder = TestFolder::new();
    let mut help = folder.bare(&["--help"]);
    let output = help.env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_no_secret(&text);
    for part in ["SLIPGATE_PRIVATE_KEY", "--takeover-after", "[limits]", "SIGHUP", "Exit status"] {
        assert!(text.contains(part), "{text}");
    }
    // There is no flag for a key, because every user of the machine can read command lines.
    for flag in ["--key", "--private-key", "--keys"] {
        assert_eq!(folder.refused(folder.complete(&[flag, "00"])).0, 2, "{flag}");
    }
    for wrong in ["slots = \"KEY\"", "tick = \"KEY\"", "KEY = 1", "bind = [\"KEY\"]", "app = \"KEY\"", "KEY"] {
        let file = folder.write("server.toml", wrong.replace("KEY", PRIVATE_KEY), 0o600);
        let (code, message) = folder.refused(folder.complete(&["--config", file.to_str().unwrap()]));
        assert!(code == 2 && message.contains("is wrong in line 1") && message.lines().count() == 1, "{message}");
    }
    // A key instead of the key file's path or of another number.
    let file = folder.write("server.toml", format!("key_file = \"{PRIVATE_KEY}\""), 0o600);
    for flags in [
        vec!["--key-file", PRIVATE_KEY],
        vec!["--protocol-id", PRIVATE_KEY, "--key-file", "keys"],
        vec!["--config", PRIVATE_KEY],
        vec!["--protocol-id", "7", "--config", file.to_str().unwrap()],
    ] {
        let mut command = folder.bare(&["--bind", "127.0.0.1:0"]);
        if flags[0] == "--key-file" {
            command.args(["--protocol-id", "7"]);
        }
        command.args(flags);
        let (code, message) = folder.refused(command);
        assert!(code == 2 && message.contains('…'), "{message}");
    }
    #[cfg(target_os = "linux")]
    {
        let mut command = folder.bare(&["--protocol-id", "4660", "--bind", "127.0.0.1:0"]);
        command.env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY);
        assert_no_secret(&Program::start(command).proc("cmdline"));
    }
}

#[test]
fn missing_or_wrong_setting_is_a_one_line_error_with_a_remedy() {
    let folder = TestFolder::new();
    let (id, keys) = (["--protocol-id", "7"], ["--key-file", "keys"]);
    let bind = ["--bind", "127.0.0.1:0"];
    let missing: [(Vec<&str>, &str); 4] = [
        ([bind, keys].concat(), "--protocol-id"),
        ([id, keys].concat(), "0.0.0.0:40000: give --advertise"),
        ([["--bind", "[::]:0"], id, keys].concat(), "[::]:0: give --advertise"),
        ([id, bind].concat(), "--key-file"),
    ];
    let wrong: [(Vec<&str>, &str); 11] = [
        (vec!["--slots", "0"], "1 to 65536 slots"),
        (vec!["--slots", "65537"], "1 to 65536 slots"),
        (vec!["--tick", "9"], "--tick must be 10 to 1000"),
        (vec!["--max-token-lifetime", "999ms"], "at least 1s"),
        (vec!["--bind", "127.0.0.2:0"], "at most one IPv4 and one IPv6"),
        (vec!["--advertise", "0.0.0.0:1"], "cannot send to this address"),
        (vec!["--advertise", "192.0.2.1:0"], "cannot send to this address"),
        (vec!["--config", "none.toml"], "none.toml cannot be read"),
        (vec!["--config", "keys"], "is wrong in line 1"),
        (vec!["--key-file", "none"], "the key file none cannot be read"),
        (vec!["--key-file", "."], "is not a regular file"),
    ];
    let missing = missing.map(|(flags, part)| (folder.bare(&flags), part));
    let wrong = wrong.map(|(flags, part)| {
        let mut command =
            if flags[0] == "--key-file" { folder.bare(&[id, bind].concat()) } else { folder.complete(&[]) };
        command.args(flags);
        (command, part)
    });
    for (command, part) in missing.into_iter().chain(wrong) {
        let (code, message) = folder.refused(command);
        assert_eq!((code, message.lines().count()), (2, 1), "{message}");
        assert!(message.starts_with("slipgate-server: ") && message.contains(part), "{message}");
    }
}

#[test]
fn key_file_readable_by_others_is_refused_with_the_remedy() {
    let folder = TestFolder::new();
    folder.write("keys", PRIVATE_KEY, 0o640);
    let (code, message) = folder.refused(folder.complete(&[]));
    assert_eq!(code, 2);
    assert!(message.contains("(mode 0640): run `chmod 600 keys`"), "{message}");
}

#[test]
fn refusal_by_the_system_is_a_one_line_error_with_status_1() {
    let folder = TestFolder::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let running = folder.start(&["--history", "history"]);
    folder.write("foreign", "no history at all", 0o600);
    let on = |bind: &str| folder.on(&[bind], &[]);
    let with = |history: &str| folder.complete(&["--history", history]);
    let cases: [(Command, String); 7] = [
        (on(&port), format!("cannot listen on {port}: another program listens there already")),
        (folder.on(&["[::1]:0", &port], &[]), format!("cannot listen on {port}: another")),
        (on("192.0.2.1:0"), "cannot listen on 192.0.2.1:0: this machine has no such address".into()),
        (with("history"), "the history file history cannot be used: another server uses this history file".into()),
        (with("foreign"), "the history file foreign cannot be used: this is not a token history file".into()),
        (with("none/history"), "the history file none/history cannot be used: No such file".into()),
        (with("/dev/zero"), "the history file /dev/zero cannot be used: it is not a regular file".into()),
    ];
    for (command, expected) in cases {
        let (code, message) = folder.refused(command);
        assert_eq!((code, message.lines().count()), (1, 1), "{message}");
        assert!(message.starts_with(&format!("slipgate-server: {expected}")), "{message}");
    }
    running.stop();
}

#[test]
fn development_mode_warns_and_lets_tokens_disable_time_outs() {
    let folder = TestFolder::new();
    let server = folder.start(&["--development"]);
    assert!(server.wait_for("DEVELOPMENT").contains("WARN"));
    let token = TestToken { timeout_seconds: -1, ..TestToken::new(1, server.address()) }.mint();
    // Slipgate's client clamps a negative timeout, so it stays connected in either mode.
    TestClient::join_with(token).echo(b"debugged");
    let log = folder.start(&["--development=false"]).stop();
    assert!(!log.contains("DEVELOPMENT"), "{log}");
}

#[test]
fn too_long_token_lifetime_is_refused_and_logged_once() {
    let folder = TestFolder::new();
    let server = folder.start(&["--max-token-lifetime", "10s"]);
    let token =
        |lifetime_seconds| TestToken { lifetime_seconds, ..TestToken::new(1, server.address()).with_short_timeout() };
    for _ in 0..2 {
        TestClient::fail(token(20).mint());
    }
    TestClient::join_with(token(9).mint()).echo(b"short");
    let log = server.stop();
    assert_eq!(log.matches("refused because it lives too long").count(), 1, "{log}");
    assert!(log.contains("token_lifetime_too_long: ") && log.contains(" max_token_lifetime_seconds=10"), "{log}");
}
