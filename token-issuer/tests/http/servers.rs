//! Registered game servers, and tokens for groups of them.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use slipgate_netcode::crypto::key::Key;
use slipgate_token_issuer::api_key::ApiKey;
use slipgate_token_issuer::callers::{ApiKeys, Caller, Permission, Scopes};
use slipgate_token_issuer::http::{HttpLimits, MAX_EVENT_STREAMS_PER_KEY};
use slipgate_token_issuer::{Issuer, Limits};
use ureq::http::Request;

use crate::common::{MAX_WAIT, PRIVATE_KEY, PROTOCOL_ID, SERVERS, Service, TestResponse, agent};

/// Returns a heartbeat of a server with this number of free slots.
fn heartbeat(slots: u32, free_slots: u32) -> Value {
    json!({
        "protocol_id": PROTOCOL_ID.to_string(), "addresses": ["192.0.2.1:40000"], "group": "ranked",
        "slots": slots, "free_slots": free_slots,
    })
}

impl Service {
    /// Sends a request with the service's key.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> TestResponse {
        let request = Request::builder().method(method).uri(self.url(path)).header("Authorization", self.bearer());
        let request = request.header("Content-Type", "application/json").body(body.to_owned()).unwrap();
        TestResponse::from(agent().run(request).unwrap())
    }

    fn put(&self, id: &str, heartbeat: &Value) -> TestResponse {
        self.send("PUT", &format!("/v1/servers/{id}"), &heartbeat.to_string())
    }

    fn get(&self, path: &str) -> TestResponse {
        let request = agent().get(self.url(path)).header("Authorization", self.bearer());
        TestResponse::from(request.call().unwrap())
    }

    fn token_for(&self, client_id: u64) -> TestResponse {
        self.request_token(&format!(r#"{{"client_id": {client_id}, "group": "ranked"}}"#))
    }
}

#[test]
fn token_for_a_group_leads_to_a_server_with_a_free_slot() {
    let service = Service::start();
    let registered = service.put("a", &heartbeat(64, 2));
    assert_eq!(registered.status, 200);
    assert_eq!(registered.json, json!({"heartbeat_millis": 1000, "dead_after_millis": 3000}));
    registered.assert_guarded();
    for client in 1..=2 {
        let response = service.token_for(client);
        assert_eq!(response.json["server_ids"], json!(["a"]));
        assert_eq!(response.json["server_addresses"], json!(["192.0.2.1:40000"]));
        assert_eq!(response.redeemed().client_id.0, client);
    }
    let refused = service.token_for(3);
    refused.assert_refused(503, "no_free_slots", None);
    let message = "no server of the group `ranked` is alive, admits clients and has a free slot";
    assert_eq!(refused.json["error"]["message"], message);
    assert_eq!(refused.header("retry-after"), Some("1"));
    let misspelt = service.request_token(r#"{"client_id": 3, "group": "rankd"}"#);
    misspelt.assert_refused(503, "no_free_slots", None);
    assert_eq!(misspelt.json["error"]["message"], "no server of the group `rankd` is registered");

    // The first client got its slot, and another client left.
    let mut later = heartbeat(64, 2);
    later["admitted_client_ids"] = json!(["1"]);
    assert_eq!(service.put("a", &later).status, 200);
    assert_eq!(service.token_for(3).status, 201);
    service.token_for(4).assert_refused(503, "no_free_slots", None);
}

#[test]
fn refused_request_reserves_no_slot() {
    let service = Service::start();
    service.put("a", &heartbeat(64, 1));
    let wrong = [
        (r#"{"client_id": 1, "group": "ranked", "lifetime_seconds": 46}"#, "lifetime_seconds"),
        (r#"{"client_id": 1, "group": "ranked", "timeout_seconds": 0}"#, "timeout_seconds"),
    ];
    for (body, field) in wrong {
        service.request_token(body).assert_refused(400, "out_of_range", Some(field));
    }
    let long = format!(r#"{{"client_id": 1, "group": "ranked", "user_data": "{}"}}"#, "AAAA".repeat(86));
    service.request_token(&long).assert_refused(400, "out_of_range", Some("user_data"));
    assert_eq!(service.get("/v1/servers").json["servers"][0]["reserved_slots"], 0);
    assert_eq!(service.token_for(1).status, 201);
}

#[test]
fn draining_and_removed_servers_get_no_players() {
    let service = Service::start();
    service.put("a", &heartbeat(64, 64));
    assert_eq!(service.token_for(1).status, 201);
    let mut draining = heartbeat(64, 63);
    draining["draining"] = json!(true);
    service.put("a", &draining);
    service.token_for(2).assert_refused(503, "no_free_slots", None);
    assert_eq!(service.get("/v1/servers").json["servers"][0]["state"], "draining");
    for is_registered in [true, false] {
        let removed = service.send("DELETE", "/v1/servers/a", "");
        assert_eq!((removed.status, &removed.json), (200, &json!({"removed": is_registered})));
    }
    assert_eq!(service.get("/v1/servers").json, json!({"servers": []}));
}

#[test]
fn list_has_pages_and_one_group_on_demand() {
    let service = Service::start();
    for number in 0..300 {
        let mut heartbeat = heartbeat(64, 64);
        heartbeat["group"] = json!(if number % 2 == 0 { "even" } else { "odd" });
        assert_eq!(service.put(&format!("s{number:03}"), &heartbeat).status, 200);
    }
    let first = service.get("/v1/servers");
    first.assert_guarded();
    assert_eq!(first.json["servers"].as_array().unwrap().len(), 256);
    assert_eq!(first.json["next"], "s255");
    let second = service.get("/v1/servers?after=s255").json;
    assert_eq!(second["servers"].as_array().unwrap().len(), 44);
    assert_eq!(second["next"], Value::Null);
    let even = service.get("/v1/servers?group=even").json;
    assert_eq!(even["servers"].as_array().unwrap().len(), 150);
    assert_eq!(even["servers"][1]["id"], "s002");
    for wrong in ["?after=a/b", "?x=1", "?after=a&after=b"] {
        assert_eq!(service.get(&format!("/v1/servers{wrong}")).status, 400, "{wrong}");
    }
    service.get("/v1/servers?after=a/b").assert_refused(400, "invalid_field", Some("after"));
}

#[test]
fn server_needs_a_known_game_and_an_allowed_address() {
    let service = Service::start();
    let mut other_game = heartbeat(64, 64);
    other_game["protocol_id"] = json!(7);
    service.put("a", &other_game).assert_refused(400, "unknown_protocol_id", Some("protocol_id"));
    let mut other_address = heartbeat(64, 64);
    other_address["addresses"] = json!(["192.0.2.1:40001"]);
    service.put("a", &other_address).assert_refused(400, "server_not_allowed", Some("addresses"));
    service.put("a%20b", &heartbeat(1, 1)).assert_refused(400, "invalid_field", Some("id"));
    service.put("%ff", &heartbeat(1, 1)).assert_refused(400, "invalid_field", Some("id"));
    service.send("PUT", "/v1/servers/a", "{").assert_refused(400, "malformed_body", None);
    assert_eq!(service.get("/v1/servers").json["servers"], json!([]));
}

#[test]
fn replaced_server_is_refused_and_removes_no_other() {
    let service = Service::start();
    let of = |instance: &str| {
        let mut heartbeat = heartbeat(64, 64);
        heartbeat["instance"] = json!(instance);
        heartbeat
    };
    for instance in ["one", "two"] {
        assert_eq!(service.put("a", &of(instance)).status, 200, "{instance}");
    }
    let replaced = service.put("a", &of("one"));
    replaced.assert_refused(409, "server_replaced", Some("id"));
    let message = replaced.json["error"]["message"].as_str().unwrap();
    assert!(message.contains("192.0.2.1:40000"), "{message}");
    let remove = |query: &str| service.send("DELETE", &format!("/v1/servers/a{query}"), "");
    assert_eq!(remove("?instance=one").json, json!({"removed": false}));
    for wrong in ["?instance=a/b", "?instance=", "?x=1", "?instance=two&instance=two"] {
        remove(wrong).assert_refused(400, "invalid_field", Some("instance"));
    }
    for wrong in ["", "-1", "%2B1", "18446744073709551616"] {
        let query = format!("?instance=two&sequence={wrong}");
        remove(&query).assert_refused(400, "invalid_field", Some("sequence"));
    }
    remove("?sequence=1").assert_refused(400, "missing_field", Some("instance"));
    assert_eq!(remove("?instance=two").json, json!({"removed": true}));
    assert_eq!(service.put("a", &of("one")).status, 200);
}

#[test]
fn late_heartbeat_is_refused_and_revives_no_server() {
    let service = Service::start();
    let put = |sequence: Value, free_slots: u32| {
        let mut heartbeat = heartbeat(64, free_slots);
        (heartbeat["instance"], heartbeat["sequence"]) = (json!("one"), sequence);
        service.put("a", &heartbeat)
    };
    assert_eq!(put(json!(1), 10).status, 200);
    assert_eq!(put(json!("18446744073709551613"), 11).status, 200);
    put(json!(2), 64).assert_refused(409, "late_heartbeat", Some("sequence"));
    assert_eq!(put(json!(18_446_744_073_709_551_613_u64), 64).status, 200, "the last one again");
    assert_eq!(service.get("/v1/servers").json["servers"][0]["free_slots"], 11);
    let remove = |query: &str| service.send("DELETE", &format!("/v1/servers/a{query}"), "").json;
    assert_eq!(remove("?instance=one&sequence=3"), json!({"removed": false}));
    assert_eq!(remove("?instance=one&sequence=18446744073709551615"), json!({"removed": true}));
    put(json!(18_446_744_073_709_551_614_u64), 64).assert_refused(409, "late_heartbeat", Some("sequence"));
    assert_eq!(service.get("/v1/servers").json["servers"], json!([]));
}

#[test]
fn key_of_one_group_takes_no_server_of_another() {
    let service = Service::start();
    let mut entropy = StdRng::from_seed([7; 32]);
    let (all, named) = (service.api_key.digest(&mut entropy), ApiKey::random(&mut entropy));
    let groups = Some(vec!["casual".parse().unwrap()]);
    let scopes = Scopes { permissions: vec![Permission::Register], groups, ..Scopes::default() };
    let caller = Caller::new(&"casual".parse().unwrap(), vec![named.digest(&mut entropy)], scopes, None).unwrap();
    let servers = SERVERS.map(|server| server.parse().unwrap());
    let issuer = Issuer::new(PROTOCOL_ID, Key::from(PRIVATE_KEY).into(), &servers, Limits::default()).unwrap();
    service.handle.replace(issuer, ApiKeys::with_named(vec![all], vec![caller]).unwrap());
    let send = |method: &str, body: &Value| {
        let bearer = format!("Bearer casual.{}", named.expose());
        let request = Request::builder().method(method).uri(service.url("/v1/servers/a"));
        let request = request.header("Authorization", bearer).header("Content-Type", "application/json");
        TestResponse::from(agent().run(request.body(body.to_string()).unwrap()).unwrap())
    };
    assert_eq!(service.put("a", &heartbeat(64, 64)).status, 200);
    let mut moved = heartbeat(64, 64);
    send("PUT", &moved).assert_refused(403, "forbidden", Some("group"));
    moved["group"] = json!("casual");
    send("PUT", &moved).assert_refused(403, "forbidden", Some("id"));
    send("DELETE", &Value::Null).assert_refused(403, "forbidden", Some("id"));
    assert_eq!(service.get("/v1/servers").json["servers"][0]["group"], "ranked");
    assert_eq!(service.send("DELETE", "/v1/servers/a", "").status, 200);
    assert_eq!(send("PUT", &moved).status, 200);
    assert_eq!(send("DELETE", &Value::Null).json, json!({"removed": true}));
}

#[test]
fn changes_arrive_as_server_sent_events() {
    let service = Service::start();
    service.put("a", &heartbeat(64, 64));
    let mut stream = service.connect();
    let bearer = service.bearer();
    write!(stream, "GET /v1/server-events HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut next = |event: &str| {
        lines.by_ref().find(|line| line == &format!("event: {event}")).unwrap();
        let data = lines.next().unwrap();
        serde_json::from_str::<Value>(data.strip_prefix("data: ").unwrap()).unwrap()
    };
    let first = next("server");
    assert_eq!((&first["id"], &first["state"], &first["reserved_slots"]), (&json!("a"), &json!("ready"), &json!(0)));
    assert_eq!(service.token_for(1).status, 201);
    assert_eq!(next("server")["reserved_slots"], 1);
    let mut draining = heartbeat(64, 63);
    draining["draining"] = json!(true);
    service.put("a", &draining);
    assert_eq!(next("server")["state"], "draining");
    service.send("DELETE", "/v1/servers/a", "");
    assert_eq!(next("removed"), json!({"id": "a"}));
}

/// The heads of requests and the idle time are limited, a stream is not idle.
#[test]
fn event_stream_outlasts_the_header_timeout() {
    let limits = HttpLimits { header_timeout: Duration::from_secs(2), ..HttpLimits::default() };
    let service = Service::start_with(limits, &SERVERS);
    let mut stream = service.connect();
    let bearer = service.bearer();
    write!(stream, "GET /v1/server-events HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer}\r\n\r\n").unwrap();
    let begin = Instant::now();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "connection: close"), "a stream is the last response of its connection");
    // Comments arrive twice in a second.
    while begin.elapsed() < 2 * limits.header_timeout {
        lines.find(|line| line == ":").expect("the stream ended");
    }
}

#[test]
fn event_stream_ends_when_the_service_stops() {
    let limits = HttpLimits { shutdown_timeout: 2 * MAX_WAIT, ..HttpLimits::default() };
    let service = Service::start_with(limits, &SERVERS);
    let mut stream = service.connect();
    let bearer = service.bearer();
    write!(stream, "GET /v1/server-events HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer}\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    lines.find(|line| line == ":").unwrap();
    let stopped = Instant::now();
    drop(service);
    assert!(stopped.elapsed() < MAX_WAIT, "it waited for the stream, which lasts for a minute");
    assert!(lines.any(|line| line == "0"), "the last chunk ends the stream");
}

#[test]
fn number_of_event_streams_of_a_key_is_limited() {
    let service = Service::start();
    let mut entropy = StdRng::from_seed([7; 32]);
    let (all, named) = (service.api_key.digest(&mut entropy), ApiKey::random(&mut entropy));
    let scopes = Scopes { permissions: vec![Permission::Observe], ..Scopes::default() };
    let caller = Caller::new(&"board".parse().unwrap(), vec![named.digest(&mut entropy)], scopes, None).unwrap();
    let servers = SERVERS.map(|server| server.parse().unwrap());
    let issuer = Issuer::new(PROTOCOL_ID, Key::from(PRIVATE_KEY).into(), &servers, Limits::default()).unwrap();
    service.handle.replace(issuer, ApiKeys::with_named(vec![all], vec![caller]).unwrap());
    let open_with = |bearer: String| {
        let mut stream = service.connect();
        write!(stream, "GET /v1/server-events HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer}\r\n\r\n").unwrap();
        let mut reader = BufReader::new(stream);
        let mut status = String::new();
        reader.read_line(&mut status).unwrap();
        (status, reader)
    };
    let open = || open_with(service.bearer());
    let streams: Vec<_> = (0..MAX_EVENT_STREAMS_PER_KEY).map(|_| open()).collect();
    assert!(streams.iter().all(|(status, _)| status.starts_with("HTTP/1.1 200 ")));
    service.get("/v1/server-events").assert_refused(429, "too_many_streams", None);
    let other = open_with(format!("Bearer board.{}", named.expose()));
    assert!(other.0.starts_with("HTTP/1.1 200 "), "another key has its own places");
    drop(streams);
    // The places are free once the service has noticed.
    let start = Instant::now();
    while !open().0.starts_with("HTTP/1.1 200 ") {
        assert!(start.elapsed() < MAX_WAIT, "no place is free");
        std::thread::sleep(Duration::from_millis(100));
    }
}
