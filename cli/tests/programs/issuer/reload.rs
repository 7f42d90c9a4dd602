//! New private keys and API keys without a refused request: by SIGHUP, by a change of a file, and at a key's time.

use std::fs;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::token::redeem::redeem;
use slipgate_token_issuer::api_key::ApiKey;

use super::program::{MAX_WAIT, PRIVATE_KEY, Program, TestFolder, TokenResponse, request, request_token};

const OTHER_KEY: &str = "facade11facade11facade11facade11facade11facade11facade11facade11";

fn wait_for(program: &mut Program, part: &str) -> String {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert_ne!(program.log.read_line(&mut line).unwrap(), 0, "the log ended before {part:?}");
    }
    line
}

/// Returns whether a new token opens with this key.
fn seals_with(program: &Program, folder: &TestFolder, key: &str) -> bool {
    opens(&request_token(program, folder), 0x1234, key)
}

/// Returns whether the token of a response opens with this key.
fn opens(response: &TokenResponse, protocol_id: u64, key: &str) -> bool {
    let key: Key = key.parse().unwrap();
    redeem(&response.token().request(), protocol_id, &key.into()).is_ok()
}

/// Waits until a condition holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < MAX_WAIT, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the fingerprints of keys as the log shows them.
fn fingerprints(keys: &[&str]) -> String {
    let fingerprints = keys.iter().map(|key| key.parse::<Key>().unwrap().fingerprint().to_string());
    format!("fingerprints=\"{}\"", fingerprints.collect::<Vec<_>>().join(", "))
}

#[test]
fn log_names_the_loaded_keys_without_a_secret() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&[]));
    let digits = &folder.digest.rsplit(':').next().unwrap()[..8];
    let expect = |program: &mut Program, keys: &[&str], api_keys: &str| {
        let line = wait_for(program, "the private keys of a game are loaded");
        folder.assert_no_secret(&line);
        assert!(line.contains("protocol_id=0x1234") && line.contains(&fingerprints(keys)), "{line}");
        let line = wait_for(program, "the API keys are loaded");
        folder.assert_no_secret(&line);
        assert!(line.contains(&format!("accepted=\"{api_keys}\"")), "{line}");
    };
    let api_keys = format!("1 ({digits})");
    expect(&mut program, &[PRIVATE_KEY], &api_keys);
    folder.write("keys", &format!("{OTHER_KEY}\n{PRIVATE_KEY}\n"), 0o600);
    program.signal("-HUP");
    expect(&mut program, &[OTHER_KEY, PRIVATE_KEY], &api_keys);
    // The newest key waits for its time.
    folder.write("keys", &format!("{OTHER_KEY} not-before=99999999999\n{PRIVATE_KEY}\n"), 0o600);
    program.signal("-HUP");
    expect(&mut program, &[PRIVATE_KEY, OTHER_KEY], &api_keys);
}

#[test]
fn sighup_reloads_the_private_keys() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&[]));
    assert!(seals_with(&program, &folder, PRIVATE_KEY));
    folder.write("keys", &format!("{OTHER_KEY}\n{PRIVATE_KEY}\n"), 0o600);
    program.signal("-HUP");
    let line = wait_for(&mut program, "SIGHUP");
    assert!(line.contains("read again") && line.contains("keys=2") && line.contains("api_keys=1"), "{line}");
    assert!(seals_with(&program, &folder, OTHER_KEY));

    for (content, mode, part) in [("junk", 0o600, "line 1 is not a key"), (PRIVATE_KEY, 0o644, "mode 0644")] {
        folder.write("keys", content, mode);
        program.signal("-HUP");
        let line = wait_for(&mut program, "SIGHUP");
        assert!(line.contains("keeping the current keys") && line.contains(part), "{line}");
        folder.assert_no_secret(&line);
        assert!(seals_with(&program, &folder, OTHER_KEY));
    }
    fs::remove_file(folder.path.join("keys")).unwrap();
    program.signal("-HUP");
    assert!(wait_for(&mut program, "SIGHUP").contains("cannot be read"));
    assert!(seals_with(&program, &folder, OTHER_KEY));
    program.signal("-TERM");
    assert_eq!(program.end().0, Some(0));
}

#[test]
fn sighup_reloads_api_keys_and_servers_of_the_file() {
    let folder = TestFolder::new();
    let mut entropy = StdRng::from_seed([4; 32]);
    let digest = ApiKey::random(&mut entropy).digest(&mut entropy).to_string();
    let config = |digests: &[&str], more: &str| {
        let text = format!(
            "bind = \"127.0.0.1:0\"\nprotocol_id = 1\nservers = [\"192.0.2.1:1\"]\nkey_file = \"keys\"\n\
             api_key_digests = {digests:?}\n{more}"
        );
        folder.write("issuer.toml", &text, 0o600)
    };
    let file = config(&[&folder.digest], "");
    let mut program = Program::start(folder.bare(&["--config", file.to_str().unwrap()]));
    assert_eq!(request_token(&program, &folder).status, 201);

    config(&[&digest], "");
    program.signal("-HUP");
    wait_for(&mut program, "were read again");
    assert_eq!(request_token(&program, &folder).status, 401, "its key was removed");

    config(&[&digest, &folder.digest], "max_connections = 7");
    program.signal("-HUP");
    assert!(wait_for(&mut program, "were read again").contains("api_keys=2"));
    assert!(wait_for(&mut program, "SIGHUP").contains("at a restart only"));
    assert_eq!(request_token(&program, &folder).status, 201);

    config(&["nonsense"], "");
    program.signal("-HUP");
    assert!(wait_for(&mut program, "SIGHUP").contains("keeping the current keys"));
    assert_eq!(request_token(&program, &folder).status, 201);

    config(&[&folder.digest], "");
    let line = wait_for(&mut program, "a file has changed");
    assert!(line.contains("the configuration was read again") && line.contains("issuer.toml"), "{line}");
    let twice = format!("[[api_keys]]\nid = \"a\"\ndigests = {digest:?}\n").repeat(2);
    config(&[&folder.digest], &twice);
    let line = wait_for(&mut program, "a file has changed");
    assert!(line.contains("two named API keys have the same id") && !line.contains("keygen"), "{line}");
}

#[test]
fn no_request_is_refused_during_reloads() {
    let folder = TestFolder::new();
    let command = folder.complete(&[]);
    // A file, because nobody reads the log meanwhile, and a pipe would be full.
    let log = folder.path.join("log");
    let program = Program::start_with_log_file(command, &log);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let backend = scope.spawn(|| {
            let mut minted = 0;
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(request_token(&program, &folder).status, 201);
                minted += 1;
            }
            minted
        });
        for round in 0..100 {
            // Written beside and renamed, as a deployment should: the program never sees half a file.
            let path = folder.write("new", if round % 2 == 0 { OTHER_KEY } else { PRIVATE_KEY }, 0o600);
            fs::rename(path, folder.path.join("keys")).unwrap();
            program.signal("-HUP");
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(backend.join().unwrap() > 10);
    });
    assert!(fs::read_to_string(&log).unwrap().matches("were read again").count() > 10);
}

#[test]
fn key_that_cannot_be_read_at_its_time_seals_later() {
    let folder = TestFolder::new();
    let at = |name: &str| folder.path.join(name);
    fs::create_dir(at("mounted")).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let keys = format!("{OTHER_KEY} not-before={}\n{PRIVATE_KEY}\n", now + 2);
    let file = folder.write("mounted/keys", &keys, 0o600);
    let mut command = folder.bare(&["--protocol-id", "0x1234", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
    command.arg("--key-file").arg(&file).arg("--api-key-digest").arg(&folder.digest);
    let mut program = Program::start(command);
    // A volume that is missing for a while. The file itself does not change.
    fs::rename(at("mounted"), at("unmounted")).unwrap();
    let line = wait_for(&mut program, "a new key seals");
    assert!(line.contains("keeping the current keys") && line.contains("cannot be read"), "{line}");
    assert!(seals_with(&program, &folder, PRIVATE_KEY));
    fs::rename(at("unmounted"), at("mounted")).unwrap();
    until("the new key seals", || seals_with(&program, &folder, OTHER_KEY));
    let line = wait_for(&mut program, "a file has changed");
    assert!(line.contains("the keys were read again") && line.contains("mounted/keys"), "{line}");
}

#[test]
fn file_that_became_readable_is_read_without_a_signal() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&[]));
    let file = folder.write("keys", OTHER_KEY, 0o644);
    let line = wait_for(&mut program, "a file has changed");
    assert!(line.contains("keeping the current keys") && line.contains("mode 0644"), "{line}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    until("the new key seals", || seals_with(&program, &folder, OTHER_KEY));
}

#[test]
fn key_file_of_a_game_that_was_added_is_watched() {
    let folder = TestFolder::new();
    let config = |more: &str| {
        let text = format!(
            "bind = \"127.0.0.1:0\"\nprotocol_id = 1\nservers = [\"192.0.2.1:1\"]\nkey_file = \"keys\"\n\
             api_key_digests = [{:?}]\n{more}",
            folder.digest
        );
        folder.write("issuer.toml", &text, 0o600)
    };
    let file = config("");
    let mut program = Program::start(folder.bare(&["--config", file.to_str().unwrap()]));
    let other = folder.write("other", PRIVATE_KEY, 0o600);
    config("[[games]]\nprotocol_id = 2\nservers = [\"192.0.2.1:2\"]\nkey_file = \"other\"\n");
    program.signal("-HUP");
    wait_for(&mut program, "were read again");
    fs::write(&other, OTHER_KEY).unwrap();
    until("the new key of the game seals", || {
        opens(&request(&program, &folder, r#"{"client_id": 77, "protocol_id": 2}"#), 2, OTHER_KEY)
    });
}
