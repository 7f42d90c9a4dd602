//! The API as a backend uses it: real HTTP over loopback.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{PROTOCOL_ID, SERVERS, Service, TestResponse, agent};
use slipgate_token_issuer::http::{HttpLimits, RESPONSE_FIELDS};

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn backend_gets_a_token_that_its_game_servers_can_open() {
    let service = Service::start();
    let before = unix_now();
    let response = service.request_token(
        r#"{"client_id": 42, "server_addresses": ["[2001:db8::1]:40001"], "user_data": "AQID",
            "lifetime_seconds": 45, "timeout_seconds": 60}"#,
    );
    let private = response.redeemed();
    response.assert_guarded();
    assert_eq!(private.client_id.0, 42);
    assert_eq!(private.servers[..], ["[2001:db8::1]:40001".parse().unwrap()]);
    assert_eq!((&private.user_data[..3], &private.user_data[3..]), ([1, 2, 3].as_slice(), [0; 253].as_slice()));
    assert_eq!(private.timeout_seconds, 60);
    assert!(private.minted.is_some());

    let created = response.json["created"].as_u64().unwrap();
    assert!((before..=unix_now()).contains(&created));
    assert_eq!(response.json["expires"], created + 45);
    assert_eq!(private.expires.0, created + 45);
}

#[test]
fn public_facts_match_the_token() {
    let response = Service::start().request_token(r#"{"client_id": "18446744073709551615"}"#);
    let token = response.token();
    let facts = token.facts();
    let json = response.json.as_object().unwrap();
    let mut fields: Vec<_> = json.keys().map(String::as_str).collect();
    fields.sort_unstable();
    let mut expected: Vec<_> = RESPONSE_FIELDS.into_iter().filter(|field| *field != "server_ids").collect();
    expected.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!(json["protocol_id"], PROTOCOL_ID.to_string());
    assert_eq!(json["client_id"], "18446744073709551615");
    assert_eq!((&json["created"], &json["expires"]), (&facts.created.0.into(), &facts.expires.0.into()));
    assert_eq!(json["timeout_seconds"], 5);
    assert_eq!(json["server_addresses"], serde_json::json!(SERVERS));
    assert_eq!(facts.expires.0 - facts.created.0, 30);
    assert_eq!(response.redeemed().client_id.0, u64::MAX);
}

#[test]
fn client_id_is_exact_as_number_and_as_string() {
    let service = Service::start();
    for id in [0, (1 << 53) + 1, u64::MAX] {
        for body in [format!(r#"{{"client_id": {id}}}"#), format!(r#"{{"client_id": "{id}"}}"#)] {
            let response = service.request_token(&body);
            assert_eq!(response.redeemed().client_id.0, id);
            assert_eq!(response.json["client_id"], id.to_string());
        }
    }
}

#[test]
fn wrong_request_is_refused_by_code_and_field() {
    let cases = [
        ("{", "malformed_body", None),
        ("\u{feff}{}", "malformed_body", None),
        ("{}", "missing_field", Some("client_id")),
        (r#"{"client_id": 1, "role": "admin"}"#, "unknown_field", Some("role")),
        (r#"{"client_id": 1, "client_id": 2}"#, "duplicate_field", Some("client_id")),
        (r#"{"client_id": "x"}"#, "invalid_field", Some("client_id")),
        (r#"{"client_id": 1, "user_data": "%"}"#, "invalid_field", Some("user_data")),
        (r#"{"client_id": 1, "server_addresses": ["localhost:1"]}"#, "invalid_field", Some("server_addresses")),
        (r#"{"client_id": 1, "server_addresses": []}"#, "out_of_range", Some("server_addresses")),
        (r#"{"client_id": 1, "server_addresses": ["192.0.2.9:1"]}"#, "server_not_allowed", Some("server_addresses")),
        (r#"{"client_id": 1, "server_addresses": ["192.0.2.1:1"]}"#, "server_not_allowed", Some("server_addresses")),
        (r#"{"client_id": 1, "lifetime_seconds": 0}"#, "out_of_range", Some("lifetime_seconds")),
        (r#"{"client_id": 1, "lifetime_seconds": 46}"#, "out_of_range", Some("lifetime_seconds")),
        (r#"{"client_id": 1, "lifetime_seconds": 1e3}"#, "invalid_field", Some("lifetime_seconds")),
        (r#"{"client_id": 1, "timeout_seconds": 0}"#, "out_of_range", Some("timeout_seconds")),
        (r#"{"client_id": 1, "timeout_seconds": -1}"#, "out_of_range", Some("timeout_seconds")),
        (r#"{"client_id": 1, "timeout_seconds": 61}"#, "out_of_range", Some("timeout_seconds")),
        (r#"{"client_id": 1, "protocol_id": 7}"#, "unknown_protocol_id", Some("protocol_id")),
    ];
    let service = Service::start();
    for (body, code, field) in cases {
        service.request_token(body).assert_refused(400, code, field);
    }
}

#[test]
fn user_data_is_limited_to_256_bytes() {
    let service = Service::start();
    // 342 digits and two of padding: 256 bytes; 344 digits and none: 258.
    let fits = format!(r#"{{"client_id": 1, "user_data": "{}/w=="}}"#, "/".repeat(340));
    assert_eq!(service.request_token(&fits).redeemed().user_data, [0xff; 256]);
    let long = format!(r#"{{"client_id": 1, "user_data": "{}//8="}}"#, "/".repeat(340));
    service.request_token(&long).assert_refused(400, "out_of_range", Some("user_data"));
}

#[test]
fn token_lists_at_most_32_servers() {
    let servers: Vec<_> = (1..=33).map(|port| format!("192.0.2.1:{port}")).collect();
    let servers: Vec<_> = servers.iter().map(String::as_str).collect();
    let service = Service::start_with(HttpLimits::default(), &servers);
    let body = |servers: &[&str]| serde_json::json!({"client_id": 1, "server_addresses": servers}).to_string();
    assert_eq!(service.request_token(&body(&servers[..32])).token().facts().servers.len(), 32);
    service.request_token(&body(&servers)).assert_refused(400, "out_of_range", Some("server_addresses"));
    service.request_token(r#"{"client_id": 1}"#).assert_refused(400, "missing_field", Some("server_addresses"));
    service.request_token(&body(&[servers[0], servers[0]])).assert_refused(
        400,
        "invalid_field",
        Some("server_addresses"),
    );
}

#[test]
fn request_without_a_valid_key_is_refused() {
    let service = Service::start();
    let key = service.api_key.expose();
    let wrong = [
        None,
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(format!("Basic {key}")),
        Some(format!("Bearer {key}0")),
        Some(format!("Bearer {}", &key[..key.len() - 1])),
        Some(format!("Bearer sgk_{}", "0".repeat(64))),
        Some(key.to_owned()),
    ];
    for header in wrong {
        let mut request = agent().post(service.url("/v1/tokens")).content_type("application/json");
        if let Some(header) = &header {
            request = request.header("Authorization", header);
        }
        let response = TestResponse::from(request.send(r#"{"client_id": 1}"#).unwrap());
        response.assert_refused(401, "unauthorized", None);
        assert_eq!(response.header("www-authenticate"), Some("Bearer"));
        assert!(!response.json.to_string().contains("sgk_"), "{}", response.json);
    }
}

#[test]
fn authorization_precedes_every_check_of_the_body() {
    let service = Service::start();
    for body in ["{", "", &"x".repeat(5000)] {
        let response = agent().post(service.url("/v1/tokens")).content_type("text/plain").send(body).unwrap();
        TestResponse::from(response).assert_refused(401, "unauthorized", None);
    }
}

#[test]
fn health_needs_no_authorization() {
    let service = Service::start();
    let response = TestResponse::from(agent().get(service.url("/v1/health")).call().unwrap());
    assert_eq!((response.status, &response.json), (200, &serde_json::json!({"status": "ok"})));
    response.assert_guarded();
    assert_eq!(agent().head(service.url("/v1/health")).call().unwrap().status(), 200);
}

#[test]
fn other_paths_and_methods_are_refused() {
    let service = Service::start();
    for path in ["/", "/v1", "/v1/tokens/", "/v1/tokens/7", "/V1/tokens", "/v2/tokens"] {
        let response = agent().post(service.url(path)).send("{}").unwrap();
        TestResponse::from(response).assert_refused(404, "not_found", None);
    }
    let get = TestResponse::from(agent().get(service.url("/v1/tokens")).call().unwrap());
    get.assert_refused(405, "method_not_allowed", None);
    assert_eq!(get.header("allow"), Some("POST"));
    let post = TestResponse::from(agent().post(service.url("/v1/health")).send("x").unwrap());
    post.assert_refused(405, "method_not_allowed", None);
    assert_eq!(post.header("allow"), Some("GET,HEAD"));
}

#[test]
fn only_the_content_type_json_is_accepted() {
    let service = Service::start();
    let request_with = |content_type: Option<&str>| {
        let mut request = agent().post(service.url("/v1/tokens")).header("Authorization", service.bearer());
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }
        TestResponse::from(request.send(r#"{"client_id": 1}"#.as_bytes()).unwrap())
    };
    for right in ["application/json", "application/json; charset=utf-8", "Application/JSON ;x"] {
        assert_eq!(request_with(Some(right)).status, 201, "{right}");
    }
    for wrong in [None, Some("text/json"), Some("application/jsonx"), Some("application/x-www-form-urlencoded")] {
        request_with(wrong).assert_refused(415, "unsupported_media_type", None);
    }
}

#[test]
fn compressed_body_is_refused_and_the_header_says_why() {
    let service = Service::start();
    let request_with = |coding: &str| {
        let request = agent().post(service.url("/v1/tokens")).header("Authorization", service.bearer());
        let request = request.content_type("application/json").header("Content-Encoding", coding);
        TestResponse::from(request.send(r#"{"client_id": 1}"#).unwrap())
    };
    for plain in ["identity", "Identity", "identity, identity"] {
        assert_eq!(request_with(plain).status, 201, "{plain}");
    }
    for coding in ["gzip", "br", "identity, gzip", "x"] {
        let response = request_with(coding);
        response.assert_refused(415, "unsupported_media_type", None);
        assert_eq!(response.header("accept-encoding"), Some("identity"), "{coding}");
    }
}

#[test]
fn each_response_has_the_id_of_its_request() {
    let service = Service::start();
    let send = |path: &str, id: Option<&str>| {
        let request = agent().get(service.url(path));
        let request = if let Some(id) = id { request.header("X-Request-Id", id) } else { request };
        TestResponse::from(request.call().unwrap()).header("x-request-id").unwrap().to_owned()
    };
    for path in ["/v1/health", "/v1/tokens", "/nowhere"] {
        assert_eq!(send(path, Some("trace-7/a")), "trace-7/a", "{path}");
        assert_eq!(send(path, None).len(), 16, "{path}");
        assert_eq!(send(path, Some("a b")).len(), 16, "{path}");
    }
    assert_eq!(service.request_token(r#"{"client_id": 1}"#).header("x-request-id").unwrap().len(), 16);
}

#[test]
fn body_is_limited_to_4096_bytes() {
    let service = Service::start();
    let padded = |length: usize| format!(r#"{{"client_id": 1{}}}"#, " ".repeat(length - 16));
    assert_eq!(padded(4096).len(), 4096);
    assert_eq!(service.request_token(&padded(4096)).status, 201);
    service.request_token(&padded(4097)).assert_refused(413, "body_too_large", None);
    service.request_token(&padded(65_536)).assert_refused(413, "body_too_large", None);
}

#[test]
fn parallel_requests_each_get_their_own_token() {
    let service = Service::start();
    let tokens: Vec<Vec<_>> = std::thread::scope(|scope| {
        let start_thread = |thread: u64| {
            let service = &service;
            scope.spawn(move || {
                let agent = agent();
                let request_token = |id: u64| {
                    let request = agent.post(service.url("/v1/tokens")).header("Authorization", service.bearer());
                    let body = format!(r#"{{"client_id": {id}}}"#);
                    let response = TestResponse::from(request.content_type("application/json").send(&body).unwrap());
                    assert_eq!(response.redeemed().client_id.0, id);
                    *response.token().request().nonce
                };
                (0..25).map(|round| request_token(thread * 1000 + round)).collect()
            })
        };
        let threads: Vec<_> = (0..16).map(start_thread).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let nonces: std::collections::BTreeSet<_> = tokens.concat().into_iter().collect();
    assert_eq!(nonces.len(), 16 * 25);
}
