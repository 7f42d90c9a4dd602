//! Flags, environment, configuration file and refused settings.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;

use super::program::{PRIVATE_KEY, Program, TestFolder, request_token};

#[test]
fn plain_http_beyond_loopback_needs_a_flag() {
    let folder = TestFolder::new();
    for bind in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let (code, message) = folder.refused(folder.complete_on(bind, &[]));
        assert_eq!(code, 2);
        assert!(message.contains("--insecure-http"), "{message}");
    }
    let mut program = folder.complete_on("0.0.0.0:0", &["--insecure-http"]).spawn().unwrap();
    let mut log = BufReader::new(program.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn port_in_use_is_a_one_line_error() {
    let folder = TestFolder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let bind = taken.local_addr().unwrap().to_string();
    let (code, message) = folder.refused(folder.complete_on(&bind, &[]));
    assert_eq!(code, 1);
    assert_eq!(
        message.trim_end(),
        format!("slipgate-token-issuer: cannot listen on {bind}: another program listens there already")
    );
}

#[test]
fn missing_setting_is_named_with_its_remedy() {
    let folder = TestFolder::new();
    let keys = folder.path.join("keys");
    let keys = keys.to_str().unwrap();
    let (id, server, digest) =
        (["--protocol-id", "7"], ["--server", "192.0.2.1:1"], ["--api-key-digest", &folder.digest]);
    let file = ["--key-file", keys];
    let cases = [
        ([server, digest, file].concat(), "--protocol-id"),
        ([id, server, file].concat(), "slipgate keygen --bearer"),
        ([id, server, digest].concat(), "--key-file"),
    ];
    for (flags, remedy) in cases {
        let (code, message) = folder.refused(folder.bare(&flags));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn registry_is_a_file_unless_configured_otherwise() {
    let folder = TestFolder::new();
    let program = Program::start(folder.complete(&[]));
    assert_eq!(request_token(&program, &folder).status, 201);
    drop(program);
    // The first state directory of systemd, or the working directory.
    let states = ["first", "second"].map(|name| folder.path.join(name));
    fs::create_dir(&states[0]).unwrap();
    let in_state = |flags: &[&str]| {
        let mut command = folder.complete(flags);
        command.env("STATE_DIRECTORY", std::env::join_paths(&states).unwrap());
        command
    };
    let in_work = |flags: &[&str]| {
        let mut command = folder.complete(flags);
        command.env_remove("STATE_DIRECTORY");
        command
    };
    for (command, file) in [(in_state(&[]), states[0].clone()), (in_work(&[]), folder.path.clone())] {
        let file = file.join("registry.redb");
        let program = Program::start(command);
        assert!(file.exists() && program.first_line.contains("registry.redb"), "{}", program.first_line);
    }
    // A folder that does not exist, or that cannot be written: one line says what to do.
    let missing = || {
        let mut command = folder.complete(&[]);
        command.env("STATE_DIRECTORY", folder.path.join("missing"));
        command
    };
    let (code, message) = folder.refused(missing());
    assert_eq!(code, 1);
    for part in ["missing/registry.redb", "--registry FILE", "--registry memory"] {
        assert!(message.contains(part), "{message}");
    }
    let mut command = missing();
    command.args(["--registry", "memory"]);
    assert!(Program::start(command).first_line.contains("registry=memory"));
    let _open = Program::start(in_state(&[]));
    let (code, message) = folder.refused(in_state(&[]));
    assert!(code == 1 && message.contains("another issuer has the file"), "{message}");
    assert!(!message.contains("can write"), "{message}");
}

#[test]
fn file_that_is_no_registry_has_its_own_remedy() {
    let folder = TestFolder::new();
    let junk = folder.write("junk", &"not a registry, but a text of some length".repeat(200), 0o600);
    let (code, message) = folder.refused(folder.complete(&["--registry", junk.to_str().unwrap()]));
    assert!(code == 1 && message.contains("not a registry of this version, or is damaged"), "{message}");
    assert!(message.contains("a FILE that an issuer has made") && !message.contains("can write"), "{message}");
}

#[test]
fn key_file_readable_by_others_is_refused_with_the_remedy() {
    let folder = TestFolder::new();
    let path = folder.write("keys", PRIVATE_KEY, 0o644);
    let (code, message) = folder.refused(folder.complete(&[]));
    assert_eq!(code, 2);
    assert!(message.contains(&format!("(mode 0644): run `chmod 600 {}`", path.display())), "{message}");
    folder.write("keys", &PRIVATE_KEY[1..], 0o600);
    assert!(folder.refused(folder.complete(&[])).1.contains("line 1 is not a key"));
    fs::remove_file(&path).unwrap();
    assert!(folder.refused(folder.complete(&[])).1.contains("cannot be read"));
}

#[test]
fn wrong_setting_is_a_one_line_error_without_secrets() {
    let folder = TestFolder::new();
    let cases = [
        (vec!["--api-key-digest", folder.api_key.expose()], "create a new one"),
        (vec!["--api-key-digest", "hmac-sha256:00:11"], "entry 2"),
        (vec!["--max-lifetime", "0"], "lifetime"),
        (vec!["--max-lifetime", "20", "--default-lifetime", "21"], "lifetime"),
        (vec!["--max-timeout", "61"], "timeout"),
        (vec!["--max-connections", "0"], "--max-connections"),
        (vec!["--server", "0.0.0.0:1"], "0.0.0.0:1"),
        (vec!["--config", "/nonexistent/slipgate.toml"], "cannot be read"),
    ];
    for (flags, part) in cases {
        let (code, message) = folder.refused(folder.complete(&flags));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn help_shows_no_secret_of_the_environment() {
    let folder = TestFolder::new();
    let mut command = folder.bare(&["--help"]);
    command.env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY).env("SLIPGATE_ISSUER_API_KEY_DIGESTS", &folder.digest);
    let output = folder.end(command);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    for part in ["SLIPGATE_PRIVATE_KEY", "SLIPGATE_ISSUER_API_KEY_DIGESTS", "--insecure-http", "Exit status"] {
        assert!(help.contains(part), "{help}");
    }
}

#[test]
fn keys_may_come_from_one_environment_variable_only() {
    let folder = TestFolder::new();
    let command = |flags: &[&str]| {
        let mut command = folder.bare(&["--protocol-id", "7", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
        command.arg("--api-key-digest").arg(&folder.digest).args(flags).env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY);
        command
    };
    let program = Program::start(command(&[]));
    assert_eq!(request_token(&program, &folder).status, 201);
    // The flag overrides the environment.
    Program::start(command(&["--key-file", folder.path.join("keys").to_str().unwrap()]));
    let mut two = command(&[]);
    two.env("SLIPGATE_KEY_FILE", folder.path.join("keys"));
    assert!(folder.refused(two).1.contains("are both set"));
    let mut wrong = command(&[]);
    wrong.env("SLIPGATE_PRIVATE_KEY", &PRIVATE_KEY[1..]);
    assert!(folder.refused(wrong).1.contains("SLIPGATE_PRIVATE_KEY is invalid"));
}

#[test]
fn flag_overrides_environment_overrides_file() {
    let folder = TestFolder::new();
    let text = format!(
        "bind = \"127.0.0.1:0\"\nprotocol_id = 1\nservers = [\"192.0.2.1:1\"]\nkey_file = \"keys\"\n\
         api_key_digests = [\"{}\"]\n",
        folder.digest
    );
    let file = folder.write("issuer.toml", &text, 0o644);
    let facts = |environment: Option<&str>, flags: &[&str]| {
        let mut command = folder.bare(flags);
        command.env("SLIPGATE_ISSUER_CONFIG", &file).current_dir(Path::new("/"));
        if let Some(id) = environment {
            command.env("SLIPGATE_PROTOCOL_ID", id).env("SLIPGATE_ISSUER_SERVERS", "192.0.2.2:1,192.0.2.3:1");
        }
        let response = request_token(&Program::start(command), &folder);
        let facts = response.token().facts().clone();
        (facts.protocol_id, facts.servers.len())
    };
    assert_eq!(facts(None, &[]), (1, 1));
    assert_eq!(facts(Some("0x2"), &[]), (2, 2));
    assert_eq!(facts(Some("0x2"), &["--protocol-id", "3"]), (3, 2));
}

#[test]
fn wrong_file_is_refused_without_quoting_it() {
    let folder = TestFolder::new();
    let cases = [
        (format!("\nprivate_key = \"{PRIVATE_KEY}\""), "is wrong in line 2"),
        (format!("\nbind = \"{PRIVATE_KEY}\""), "is wrong in line 2"),
        (format!("\n\n{PRIVATE_KEY}"), "is wrong in line 3"),
        (format!("protocol_id = 7\napi_key_digests = \"{}\"", folder.api_key.expose()), "create a new one"),
        (format!("protocol_id = 7\napi_key_digests = [[\"{}\"]]", folder.digest), "is wrong in line 2"),
    ];
    for (text, part) in cases {
        let file = folder.write("issuer.toml", &text, 0o600);
        let (code, message) = folder.refused(folder.bare(&["--config", file.to_str().unwrap()]));
        assert_eq!(code, 2);
        assert!(message.contains(part), "{message}");
    }
}
