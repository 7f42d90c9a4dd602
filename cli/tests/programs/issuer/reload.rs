//! SIGHUP: new private keys and API keys without a refused request.

use std::fs;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::token::redeem::redeem;
use slipgate_token_issuer::api_key::ApiKey;

use super::program::{PRIVATE_KEY, Program, TestFolder, request_token};

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
    let key: Vec<u8> = (0..64).step_by(2).map(|at| u8::from_str_radix(&key[at..at + 2], 16).unwrap()).collect();
    let key = Key::from(<[u8; 32]>::try_from(key).unwrap());
    redeem(&request_token(program, folder).token().request(), 0x1234, &key.into()).is_ok()
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
