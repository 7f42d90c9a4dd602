//! The log lines of game servers.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::program::{Program, TestFolder, agent};

/// Sends a heartbeat, or the removal, of a server on this port.
fn send(url: &str, key: &str, method: &str, port: u16) {
    let body = match method {
        "DELETE" => Value::Null,
        _ => json!({"protocol_id": 0x1234, "addresses": [format!("192.0.2.1:{port}")], "group": "ranked", "slots": 4,
            "free_slots": 4}),
    };
    let request =
        ureq::http::Request::builder().method(method).uri(url).header("Authorization", format!("Bearer {key}"));
    let request = request.header("Content-Type", "application/json").body(body.to_string()).unwrap();
    assert_eq!(agent().run(request).unwrap().status(), 200, "{method} {url}");
}

/// Returns the next line of the log that has this part, and asserts that it has the others.
fn expect(program: &mut Program, part: &str, others: &[&str]) {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert_ne!(program.log.read_line(&mut line).unwrap(), 0, "the log ended before {part:?}");
    }
    assert!(others.iter().all(|other| line.contains(other)), "{line}");
}

#[test]
fn log_says_which_servers_register_die_and_share_an_address() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&["--registry", "memory", "--server", "192.0.2.1:2"]));
    let url = |id: &str| program.url(&format!("/v1/servers/{id}"));
    let [a, b, c] = ["a", "b", "c"].map(url);
    let key = folder.api_key.expose().to_owned();
    send(&a, &key, "PUT", 1);
    expect(&mut program, "a game server has registered", &["id=a", "group=ranked", "192.0.2.1:1"]);
    expect(&mut program, "a game server is dead", &["id=a", "group=ranked", "missed=3", "WARN"]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // A failed test must end, too.
            for _ in (0..60).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                [&b, &c].into_iter().for_each(|url| send(url, &key, "PUT", 2));
                thread::sleep(Duration::from_millis(500));
            }
        });
        for id in ["id=b", "id=c"] {
            expect(&mut program, "a game server has registered", &[id]);
        }
        expect(&mut program, "two game servers advertise one address", &["id=c", "other=b", "192.0.2.1:2", "WARN"]);
        is_over.store(true, Ordering::Relaxed);
    });
    send(&b, &key, "DELETE", 2);
    expect(&mut program, "a game server was removed", &["id=b", "group=ranked"]);
}
