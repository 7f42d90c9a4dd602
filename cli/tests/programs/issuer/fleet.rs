//! Named keys, several games and a registry, as an operator configures them.

#[cfg(target_os = "linux")]
use std::io::Write as _;

use serde_json::{Value, json};
use slipgate_token_issuer::api_key::ApiKey;
use ureq::http::Request;

use super::program::{Program, TestFolder, agent};
#[cfg(target_os = "linux")]
use crate::volume::Volume;

/// Sends a request with this key. Returns the status and the body.
fn send(program: &Program, key: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request =
        Request::builder().method(method).uri(program.url(path)).header("Authorization", format!("Bearer {key}"));
    let request = request.header("Content-Type", "application/json").body(body.to_string()).unwrap();
    let mut response = agent().run(request).unwrap();
    let body = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&body).unwrap_or_default())
}

/// Writes a configuration with a registry, two games and three named keys. Returns the keys' texts.
fn configure(folder: &TestFolder, registry: &str) -> [String; 3] {
    let keys = [(); 3].map(|()| ApiKey::random(&mut slipgate_token_issuer::system_entropy().unwrap()));
    let digest = |index: usize| keys[index].digest(&mut slipgate_token_issuer::system_entropy().unwrap());
    let text = format!(
        "bind = \"127.0.0.1:0\"\nprotocol_id = 1\nkey_file = \"keys\"\nregistry = \"{registry}\"\n\
         hosts = [\"127.0.0.1\"]\n\
         [[games]]\nprotocol_id = 2\nkey_file = \"keys\"\nservers = [\"10.0.0.0/8:40000-40999\"]\n\
         [[api_keys]]\nid = \"lobby\"\ndigests = [\"{}\"]\ngroups = [\"ranked\"]\nrequests_per_minute = 20\n\
         [[api_keys]]\nid = \"server\"\ndigests = [\"{}\"]\npermissions = [\"register\"]\nprotocol_ids = [1]\n\
         [[api_keys]]\nid = \"monitor\"\ndigests = \"{}\"\npermissions = [\"observe\"]\n",
        digest(0),
        digest(1),
        digest(2),
    );
    folder.write("issuer.toml", &text, 0o600);
    let mut names = ["lobby", "server", "monitor"].into_iter();
    keys.map(|key| format!("{}.{}", names.next().unwrap(), key.expose()))
}

fn start(folder: &TestFolder) -> Program {
    Program::start(folder.bare(&["--config", folder.path.join("issuer.toml").to_str().unwrap()]))
}

fn heartbeat() -> Value {
    json!({"protocol_id": 1, "addresses": ["192.0.2.1:1"], "group": "ranked", "slots": 4, "free_slots": 1})
}

#[test]
fn named_keys_do_what_their_scopes_allow() {
    let folder = TestFolder::new();
    let [lobby, server, monitor] = configure(&folder, "memory");
    let program = start(&folder);
    let token = json!({"client_id": 7, "protocol_id": 1, "group": "ranked"});
    assert_eq!(send(&program, &server, "PUT", "/v1/servers/a", &heartbeat()).0, 200);
    let mut other_game = heartbeat();
    other_game["protocol_id"] = json!(2);
    for (key, method, path, body) in [
        (&server, "PUT", "/v1/servers/a", &other_game),
        (&lobby, "PUT", "/v1/servers/a", &heartbeat()),
        (&lobby, "GET", "/v1/servers", &Value::Null),
        (&lobby, "DELETE", "/v1/servers/a", &Value::Null),
        (&server, "POST", "/v1/tokens", &token),
        (&monitor, "POST", "/v1/tokens", &token),
        (&lobby, "POST", "/v1/tokens", &json!({"client_id": 7, "protocol_id": 1, "group": "casual"})),
        (
            &lobby,
            "POST",
            "/v1/tokens",
            &json!({"client_id": 7, "protocol_id": 2, "server_addresses": ["10.0.0.1:40000"]}),
        ),
    ] {
        let (status, answer) = send(&program, key, method, path, body);
        assert_eq!((status, &answer["error"]["code"]), (403, &json!("forbidden")), "{method} {path} {body}");
    }
    assert_eq!(send(&program, &lobby, "POST", "/v1/tokens", &token).1["server_ids"], json!(["a"]));
    let casual = send(&program, &lobby, "POST", "/v1/tokens", &json!({"client_id": 7, "group": "casual"})).1;
    assert_eq!(casual["error"]["message"], "this API key may not use the group `casual`");
    let (_, list) = send(&program, &monitor, "GET", "/v1/servers", &Value::Null);
    assert_eq!(list["servers"][0]["reserved_slots"], 1);
    let wrong = send(&program, &lobby, "POST", "/v1/tokens", &json!({"client_id": 7, "group": "ranked"}));
    assert_eq!(wrong.1["error"]["code"], "unknown_protocol_id", "two games");
    assert_eq!(send(&program, "lobby.sgk_0", "POST", "/v1/tokens", &token).0, 401);
}

#[test]
fn key_that_names_no_client_ids_is_refused_without_a_player() {
    let folder = TestFolder::new();
    let [lobby, ..] = configure(&folder, "memory");
    let file = folder.path.join("issuer.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("groups = [\"ranked\"]", "names_client_id = false")).unwrap();
    let program = start(&folder);
    let token = |body: Value| send(&program, &lobby, "POST", "/v1/tokens", &body);
    let (status, answer) = token(json!({"client_id": 7, "protocol_id": 1}));
    assert_eq!((status, &answer["error"]["field"]), (403, &json!("client_id")), "{answer}");
    let (status, answer) = token(json!({"player_jwt": "a.b.c", "protocol_id": 1}));
    assert_eq!((status, &answer["error"]["code"]), (403, &json!("invalid_player_jwt")), "no players are configured");
}

#[test]
fn key_above_its_limit_gets_status_429() {
    let folder = TestFolder::new();
    let [lobby, _, monitor] = configure(&folder, "memory");
    let program = start(&folder);
    let statuses = (0..21).map(|_| send(&program, &lobby, "POST", "/v1/tokens", &Value::Null).0);
    let statuses: Vec<_> = statuses.collect();
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 1, "{statuses:?}");
    assert_eq!(send(&program, &monitor, "GET", "/v1/servers", &Value::Null).0, 200, "another key");
}

#[test]
fn repeated_wrong_keys_get_status_429_and_valid_ones_pass() {
    let folder = TestFolder::new();
    let [_, _, monitor] = configure(&folder, "memory");
    let program = start(&folder);
    let statuses: Vec<_> = (0..33).map(|_| send(&program, "sgk_0", "GET", "/v1/servers", &Value::Null).0).collect();
    assert!(statuses[..30].iter().all(|status| *status == 401), "{statuses:?}");
    assert!(statuses[31..].contains(&429), "{statuses:?}");
    assert_eq!(send(&program, &monitor, "GET", "/v1/servers", &Value::Null).0, 200);
}

#[test]
fn registry_in_a_file_survives_a_restart_of_the_program() {
    let folder = TestFolder::new();
    let [lobby, server, monitor] = configure(&folder, "registry");
    let token = json!({"client_id": 7, "protocol_id": 1, "group": "ranked"});
    let mut program = start(&folder);
    assert_eq!(send(&program, &server, "PUT", "/v1/servers/a", &heartbeat()).0, 200);
    assert_eq!(send(&program, &lobby, "POST", "/v1/tokens", &token).0, 201);
    program.signal("-KILL");
    program.end();
    let program = start(&folder);
    let (_, list) = send(&program, &monitor, "GET", "/v1/servers", &Value::Null);
    assert_eq!(list["servers"][0]["reserved_slots"], 1, "{list}");
    assert_eq!(send(&program, &server, "PUT", "/v1/servers/a", &heartbeat()).0, 200);
    let other = json!({"client_id": 8, "protocol_id": 1, "group": "ranked"});
    assert_eq!(send(&program, &lobby, "POST", "/v1/tokens", &other).0, 503, "its only free slot is reserved");
}

#[test]
fn tokens_for_addresses_pass_while_the_store_is_lost() {
    let folder = TestFolder::new();
    // Nothing listens on this port.
    let mut program = Program::start(folder.complete(&["--registry", "redis://127.0.0.1:1/0"]));
    let key = folder.api_key.expose();
    let group = json!({"client_id": 7, "group": "ranked"});
    let (status, answer) = send(&program, key, "POST", "/v1/tokens", &group);
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("store_unavailable")));
    assert_eq!(send(&program, key, "POST", "/v1/tokens", &json!({"client_id": 7})).0, 201);
    program.signal("-TERM");
    let (code, log) = program.end();
    // The store never responded, which has a line all the same.
    let is_warning = |line: &&str| line.contains("WARN") && line.contains("the store of the registry does not respond");
    assert_eq!((code, log.lines().filter(is_warning).count()), (Some(0), 1), "{log}");
}

#[test]
fn two_servers_with_one_id_are_logged_with_their_addresses() {
    let folder = TestFolder::new();
    let [_, server, _] = configure(&folder, "memory");
    let mut program = start(&folder);
    let put = |instance: &str, address: &str| {
        let mut heartbeat = heartbeat();
        heartbeat["instance"] = json!(instance);
        heartbeat["addresses"] = json!([address]);
        send(&program, &server, "PUT", "/v1/servers/a", &heartbeat).0
    };
    assert_eq!((put("one", "192.0.2.1:1"), put("two", "192.0.2.2:2"), put("one", "192.0.2.1:1")), (200, 200, 409));
    program.signal("-TERM");
    let (_, log) = program.end();
    let is_warning = |line: &str| line.contains("WARN") && line.contains("two game servers have one id");
    let warning = log.lines().find(|line| is_warning(line)).unwrap_or_else(|| panic!("no warning: {log}"));
    for part in ["id=a", "192.0.2.1:1", "192.0.2.2:2"] {
        assert!(warning.contains(part), "{warning}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn registry_on_a_full_disk_is_lost_until_there_is_room() {
    let folder = TestFolder::new();
    let volume = match Volume::small(&folder.path, "size=4m") {
        Ok(volume) => volume,
        Err(reason) => return writeln!(std::io::stderr(), "SKIPPED: no small file system: {reason}").unwrap(),
    };
    let [lobby, server, monitor] = configure(&folder, "volume/registry");
    let mut program = start(&folder);
    let put = |program: &Program, number: usize| {
        let mut heartbeat = heartbeat();
        heartbeat["addresses"] = json!([format!("192.0.2.1:{}", number + 1)]);
        send(program, &server, "PUT", &format!("/v1/servers/s{number}"), &heartbeat)
    };
    let token = json!({"client_id": 7, "protocol_id": 1, "group": "ranked"});
    assert_eq!(put(&program, 0).0, 200);
    assert_eq!(send(&program, &lobby, "POST", "/v1/tokens", &token).0, 201);

    let filler = volume.folder.join("filler");
    std::fs::write(&filler, vec![1; 4 << 20]).unwrap_err();
    let refused = (1..2000).map(|number| put(&program, number)).find(|(status, _)| *status != 200);
    let (status, answer) = refused.expect("the disk is full");
    assert_eq!((status, &answer["error"]["code"]), (503, &json!("store_unavailable")));
    assert_eq!(send(&program, &lobby, "POST", "/v1/tokens", &token).0, 503);

    std::fs::remove_file(filler).unwrap();
    let start = std::time::Instant::now();
    while put(&program, 0).0 != 200 {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "the registry stays lost");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let (_, list) = send(&program, &monitor, "GET", "/v1/servers", &Value::Null);
    let first = list["servers"].as_array().unwrap().iter().find(|server| server["id"] == "s0").unwrap();
    assert_eq!(first["reserved_slots"], 1, "the token that was minted before: {first}");
    program.signal("-TERM");
    assert_eq!(program.end().0, Some(0));
}
