//! The requests for tokens at a drain, against a fake issuer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::wire::CONNECT_TOKEN_BYTES;
use slipgate_netcode::wire::token::{PublicLayout, Servers};
use slipgate_server::ClientHandle;

use crate::fake_http::{FakeHttp, FakeRequest};
use crate::redirect_queue::RedirectRequest;
use crate::{Fleet, FleetConfig, LifeState, RegistrationConfig, RegistrationKey};

const MINT: &str = "POST /v1/tokens";

/// Returns the response with a token for this server.
fn minted(server_id: &str) -> (u16, String) {
    let mut bytes = [0; CONNECT_TOKEN_BYTES];
    let layout = PublicLayout {
        protocol_id: 7,
        created: UnixSeconds(1),
        expires: UnixSeconds(31),
        nonce: &[1; 24],
        sealed: &[2; 1024],
        timeout_seconds: 5,
        servers: Servers::new(&["203.0.113.6:40000".parse().unwrap()]).unwrap(),
        client_to_server: &[3; 32],
        server_to_client: &[4; 32],
    };
    layout.emit(&mut bytes);
    (201, json!({"token": STANDARD.encode(bytes), "server_ids": [server_id]}).to_string())
}

fn is_mint(request: &FakeRequest) -> bool {
    request.line == MINT
}

fn key(name: &str) -> RegistrationKey {
    let path = std::env::temp_dir().join(format!("slipgate-redirect-{}-{name}", std::process::id()));
    fs::write(&path, "sgk_secret").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let key = RegistrationKey::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    key
}

/// Starts the fleet of a server with this number of clients, whose issuers are at these ports.
fn fleet(name: &str, ports: &[u16], clients: u32) -> Fleet {
    let fleet = Fleet::start(FleetConfig { slots: 8, ..FleetConfig::default() }).unwrap();
    let config = RegistrationConfig {
        issuers: ports.iter().map(|port| format!("http://127.0.0.1:{port}/")).collect(),
        authorities: None,
        key: key(name),
        server_id: "eu-1".into(),
        group: "ranked".into(),
        region: Some("eu-west".into()),
        build: None,
        protocol_id: u64::MAX,
        addresses: vec!["203.0.113.5:40000".parse().unwrap()],
        accepts_earlier_tokens: true,
        redirects: true,
        redirects_in_region: true,
    };
    fleet.register(config).unwrap();
    let request = |number: u32| RedirectRequest {
        client: client(number),
        client_id: (100 + u64::from(number)).into(),
        user_data: Box::new([number as u8; 256]),
    };
    fleet.redirects.put_back((0..clients).map(request));
    fleet
}

fn client(number: u32) -> ClientHandle {
    ClientHandle::from_bits(u64::from(number))
}

#[test]
fn tokens_are_requested_when_the_issuer_knows_of_the_drain() {
    let (count, heartbeat) = (AtomicU32::new(0), json!({"heartbeat_millis": 100}).to_string());
    let issuer = FakeHttp::start(move |request| match request.line.as_str() {
        MINT => minted("eu-2"),
        // The first heartbeat of the drain is refused.
        _ if request.body["draining"] == true && count.fetch_add(1, Ordering::Relaxed) == 0 => (503, String::new()),
        _ => (200, heartbeat.clone()),
    });
    let fleet = fleet("known", &[issuer.port], 3);
    fleet.life_cycle().advance(LifeState::Allocated);
    issuer.until("heartbeats", |requests| requests.len() > 2);
    assert!(!issuer.requests().iter().any(is_mint), "the server does not drain");
    fleet.life_cycle().advance(LifeState::Draining);
    issuer.until("tokens", |requests| requests.iter().filter(|one| is_mint(one)).count() == 3);
    let requests = issuer.requests();
    let first = requests.iter().position(is_mint).unwrap();
    let drains = requests[..first].iter().filter(|one| one.body["draining"] == true).count();
    assert_eq!(drains, 2, "the issuer has taken a heartbeat of the drain");
    let mut bodies = issuer.bodies(MINT);
    bodies.sort_by_key(|body| body["client_id"].as_str().unwrap().to_owned());
    let expected = json!({
        "client_id": "102", "protocol_id": "18446744073709551615", "group": "ranked", "regions": ["eu-west"],
        "only_regions": true, "user_data": STANDARD.encode([2; 256]),
    });
    assert_eq!(bodies[2], expected);
    issuer.until("all tokens", |_| fleet.redirects.clients_with_tokens().len() == 3);
}

#[test]
fn refused_requests_are_repeated_unless_they_cannot_succeed() {
    let count = AtomicU32::new(0);
    let issuer = FakeHttp::start(move |request| match request.line.as_str() {
        MINT => match count.fetch_add(1, Ordering::Relaxed) {
            // No server has a free slot, too many requests, and the registry has forgotten the drain.
            0 => (503, String::new()),
            1 => (429, String::new()),
            2 => minted("eu-1"),
            _ => minted("eu-2"),
        },
        _ => (200, json!({"heartbeat_millis": 100}).to_string()),
    });
    let fleet = fleet("repeated", &[issuer.port], 1);
    fleet.life_cycle().advance(LifeState::Draining);
    issuer.until("a token", |_| fleet.redirects.clients_with_tokens() == [client(0)]);
    assert_eq!(issuer.bodies(MINT).len(), 4);
}

#[test]
fn forbidden_requests_are_not_repeated() {
    let issuer = FakeHttp::start(|request| match request.line.as_str() {
        MINT => (403, json!({"error": {"code": "forbidden"}}).to_string()),
        _ => (200, json!({"heartbeat_millis": 100}).to_string()),
    });
    let fleet = fleet("forbidden", &[issuer.port], 2);
    fleet.life_cycle().advance(LifeState::Draining);
    issuer.until("requests", |requests| requests.iter().filter(|one| is_mint(one)).count() == 2);
    let requests = issuer.requests().len();
    // A repeated request would come after 1 s.
    issuer.until("more heartbeats", |all| all.len() > requests + 15);
    assert_eq!(issuer.bodies(MINT).len(), 2);
    assert!(fleet.redirects.clients_with_tokens().is_empty());
}

#[test]
fn next_issuer_is_called_when_one_cannot_be_reached() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let issuer = FakeHttp::start(|request| match request.line.as_str() {
        MINT => minted("eu-2"),
        _ => (200, Value::Null.to_string()),
    });
    let fleet = fleet("next", &[closed, issuer.port], 1);
    fleet.life_cycle().advance(LifeState::Draining);
    issuer.until("a token", |_| fleet.redirects.clients_with_tokens() == [client(0)]);
    drop(fleet);
    assert!(issuer.requests().last().unwrap().line.starts_with("DELETE /v1/servers/eu-1?instance="));
}
