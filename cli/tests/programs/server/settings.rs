//! Flags, environment, file; keys; and the one sentence for what is wrong.

use std::fs;
use std::net::UdpSocket;
use std::process::Command;

use super::player::{Player, Ticket};
use super::program::{OTHER_KEY, PRIVATE_KEY, Place, Program, assert_no_secret};

#[test]
fn a_flag_is_above_the_environment_is_above_the_file_is_above_the_default() {
    let place = Place::new();
    let text = "bind = [\"127.0.0.1:0\", \"[::1]:0\"]\nadvertise = [\"192.0.2.1:1\", \"192.0.2.2:2\"]\nslots = 10\n\
                tick = 30\napp = \"relay\"\nmax_token_lifetime = \"20s\"\ntakeover_after = 2\ndrain = \"1m\"\ndscp = \"ef\"\n\
                [limits]\npending_clients = 9\n";
    place.write("server.toml", text, 0o644);
    let facts = |file: bool, variables: &[(&str, &str)], flags: &[&str]| {
        let mut command = place.on(&[], flags);
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
    assert_eq!((defaults.0, defaults.1.as_str()), (1, "64 60 echo 45s never 5s default"));
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
fn the_kernels_filter_is_there_unless_it_is_switched_off() {
    let place = Place::new();
    for (flags, expected) in [(&[][..], "true"), (&["--kernel-filter"], "true"), (&["--kernel-filter=false"], "false")]
    {
        let server = place.start(flags);
        assert_eq!(server.fact("kernel_filter"), expected, "{flags:?}");
        assert!(server.fact("receive_buffer").parse::<usize>().unwrap() > 0);
        Player::join(1, server.address()).echo(b"through the filter, or without it");
    }
}

#[test]
fn a_limit_of_the_file_holds_and_a_full_history_is_told_once() {
    let place = Place::new();
    place.write("server.toml", "[limits]\nhistory_tokens = 1\n", 0o644);
    let server = place.start(&["--config", "server.toml"]);
    let mut first = Player::join(1, server.address());
    let tokens = [2, 3].map(|id| Ticket::new(id, server.address()).impatient().mint());
    for token in tokens {
        Player::fail(token);
    }
    first.echo(b"still here");
    let log = server.stop();
    assert_eq!(log.matches("the token history is full").count(), 1, "{log}");
}

#[test]
fn keys_come_from_the_flags_file_or_the_environment_but_not_from_two_places_of_it() {
    let place = Place::new();
    let command = |flags: &[&str], key: &str| {
        let mut command = place.bare(&["--protocol-id", "4660", "--bind", "127.0.0.1:0"]);
        command.args(flags).env("SLIPGATE_PRIVATE_KEY", key);
        command
    };
    let server = Program::start(command(&[], OTHER_KEY));
    assert_eq!(server.fact("keys"), "environment");
    Player::join_with(Ticket { key: OTHER_KEY, ..Ticket::new(1, server.address()) }.mint()).echo(b"by variable");
    // A flag is above the environment.
    let server = Program::start(command(&["--key-file", "keys"], OTHER_KEY));
    Player::join(1, server.address()).echo(b"by flag");
    // And the environment is above the file, where a key file lies beside the file that names it.
    fs::create_dir(place.path("etc")).unwrap();
    place.write("etc/server.toml", "key_file = \"../keys\"\n", 0o644);
    let server = Program::start(command(&["--config", "etc/server.toml"], OTHER_KEY));
    assert_eq!(server.fact("keys"), "environment");
    let mut by_file = place.bare(&["--protocol-id", "4660", "--bind", "127.0.0.1:0"]);
    by_file.args(["--config", "etc/server.toml"]);
    Player::join(1, Program::start(by_file).address());

    let mut two = command(&[], OTHER_KEY);
    two.env("SLIPGATE_KEY_FILE", "keys");
    assert!(place.refused(two).1.contains("are both set"));
    let (code, told) = place.refused(command(&[], &OTHER_KEY[1..]));
    assert!(code == 2 && told.contains("SLIPGATE_PRIVATE_KEY is of no use"), "{told}");
}

#[test]
fn the_help_names_every_limit_of_the_file() {
    let help = Place::new().bare(&["--help"]).output().unwrap();
    // Wrapped wherever a line is full.
    let help = String::from_utf8(help.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let readme = include_str!("../../../../server/README.md");
    let table = readme.split_once("the file's table `[limits]`").unwrap().1.split_once("\n## ").unwrap().0;
    let keys: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(keys.len(), 13);
    keys.iter().for_each(|key| assert!(help.contains(key), "{key}"));
}

#[test]
fn secrets_stand_in_no_help_no_command_line_and_no_refusal() {
    let place = Place::new();
    let mut help = place.bare(&["--help"]);
    let output = help.env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_no_secret(&text);
    for named in ["SLIPGATE_PRIVATE_KEY", "--takeover-after", "[limits]", "SIGHUP", "Exit status"] {
        assert!(text.contains(named), "{text}");
    }
    // There is no flag for a key, so that nobody can give it where every user of the machine sees it.
    for flag in ["--key", "--private-key", "--keys"] {
        assert_eq!(place.refused(place.complete(&[flag, "00"])).0, 2, "{flag}");
    }
    for wrong in ["slots = \"KEY\"", "tick = \"KEY\"", "KEY = 1", "bind = [\"KEY\"]", "app = \"KEY\"", "KEY"] {
        let file = place.write("server.toml", wrong.replace("KEY", PRIVATE_KEY), 0o600);
        let (code, told) = place.refused(place.complete(&["--config", file.to_str().unwrap()]));
        assert!(code == 2 && told.contains("is wrong in line 1") && told.lines().count() == 1, "{told}");
    }
    // A key given where its file's path, or another number, belongs.
    let file = place.write("server.toml", format!("key_file = \"{PRIVATE_KEY}\""), 0o600);
    for flags in [
        vec!["--key-file", PRIVATE_KEY],
        vec!["--protocol-id", PRIVATE_KEY, "--key-file", "keys"],
        vec!["--config", PRIVATE_KEY],
        vec!["--protocol-id", "7", "--config", file.to_str().unwrap()],
    ] {
        let mut command = place.bare(&["--bind", "127.0.0.1:0"]);
        if flags[0] == "--key-file" {
            command.args(["--protocol-id", "7"]);
        }
        command.args(flags);
        let (code, told) = place.refused(command);
        assert!(code == 2 && told.contains('…'), "{told}");
    }
    #[cfg(target_os = "linux")]
    {
        let mut command = place.bare(&["--protocol-id", "4660", "--bind", "127.0.0.1:0"]);
        command.env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY);
        assert_no_secret(&Program::start(command).proc("cmdline"));
    }
}

#[test]
fn what_is_missing_or_wrong_is_one_sentence_with_its_remedy() {
    let place = Place::new();
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
    let missing = missing.map(|(flags, part)| (place.bare(&flags), part));
    let wrong = wrong.map(|(flags, part)| {
        let mut command = if flags[0] == "--key-file" { place.bare(&[id, bind].concat()) } else { place.complete(&[]) };
        command.args(flags);
        (command, part)
    });
    for (command, part) in missing.into_iter().chain(wrong) {
        let (code, told) = place.refused(command);
        assert_eq!((code, told.lines().count()), (2, 1), "{told}");
        assert!(told.starts_with("slipgate-server: ") && told.contains(part), "{told}");
    }
}

#[test]
fn a_key_file_that_others_can_read_is_refused_with_the_remedy() {
    let place = Place::new();
    place.write("keys", PRIVATE_KEY, 0o640);
    let (code, told) = place.refused(place.complete(&[]));
    assert_eq!(code, 2);
    assert!(told.contains("(mode 0640): run `chmod 600 keys`"), "{told}");
}

#[test]
fn what_the_system_refuses_is_one_sentence_and_status_1() {
    let place = Place::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let holder = place.start(&["--history", "history"]);
    place.write("foreign", "no history at all", 0o600);
    let on = |bind: &str| place.on(&[bind], &[]);
    let with = |history: &str| place.complete(&["--history", history]);
    let cases: [(Command, String); 7] = [
        (on(&port), format!("cannot listen on {port}: another program listens there already")),
        (place.on(&["[::1]:0", &port], &[]), format!("cannot listen on {port}: another")),
        (on("192.0.2.1:0"), "cannot listen on 192.0.2.1:0: this machine has no such address".into()),
        (with("history"), "the history file history cannot be used: another server uses this history file".into()),
        (with("foreign"), "the history file foreign cannot be used: this is not a token history file".into()),
        (with("none/history"), "the history file none/history cannot be used: No such file".into()),
        (with("/dev/zero"), "the history file /dev/zero cannot be used: it is not a regular file".into()),
    ];
    for (command, sentence) in cases {
        let (code, told) = place.refused(command);
        assert_eq!((code, told.lines().count()), (1, 1), "{told}");
        assert!(told.starts_with(&format!("slipgate-server: {sentence}")), "{told}");
    }
    holder.stop();
}

#[test]
fn development_is_told_loudly_and_lets_tokens_switch_time_outs_off() {
    let place = Place::new();
    let server = place.start(&["--development"]);
    assert!(server.wait_for("DEVELOPMENT").contains("WARN"));
    let token = Ticket { timeout_seconds: -1, ..Ticket::new(1, server.address()) }.mint();
    // Our client clamps a negative time-out as our server does by default, so both stay connected.
    Player::join_with(token).echo(b"debugged");
    let log = place.start(&["--development=false"]).stop();
    assert!(!log.contains("DEVELOPMENT"), "{log}");
}

#[test]
fn a_lifetime_longer_than_allowed_is_refused_and_told_once() {
    let place = Place::new();
    let server = place.start(&["--max-token-lifetime", "10s"]);
    let ticket = |lifetime_seconds| Ticket { lifetime_seconds, ..Ticket::new(1, server.address()).impatient() };
    for _ in 0..2 {
        Player::fail(ticket(20).mint());
    }
    Player::join_with(ticket(9).mint()).echo(b"short");
    let log = server.stop();
    assert_eq!(log.matches("expires further off than the maximum").count(), 1, "{log}");
    assert!(log.contains("token_lifetime_too_long: "), "{log}");
}
