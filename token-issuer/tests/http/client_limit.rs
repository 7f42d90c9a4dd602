//! The limit of tokens for one client id.

use std::num::NonZeroU32;

use crate::common::{PROTOCOL_ID, SERVERS, Service};
use slipgate_token_issuer::http::HttpLimits;

#[test]
fn client_id_above_its_limit_gets_status_429() {
    let limits = HttpLimits { tokens_per_minute: NonZeroU32::new(3), ..HttpLimits::default() };
    let service = Service::start_with(limits, &SERVERS);
    for body in [r#"{"client_id": 1}"#, r#"{"client_id": "1"}"#, r#"{"client_id": "001"}"#] {
        assert_eq!(service.request_token(body).status, 201);
    }
    let refused = service.request_token(r#"{"client_id": 1}"#);
    refused.assert_refused(429, "too_many_tokens", Some("client_id"));
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=20).contains(&seconds), "{seconds}");
    for id in 2..100 {
        assert_eq!(service.request_token(&format!(r#"{{"client_id": {id}}}"#)).status, 201);
    }
}

#[test]
fn request_for_a_full_group_costs_no_token() {
    let limits = HttpLimits { tokens_per_minute: NonZeroU32::new(2), ..HttpLimits::default() };
    let service = Service::start_with(limits, &SERVERS);
    let token = || service.request_token(r#"{"client_id": 1, "group": "g"}"#);
    for _ in 0..10 {
        token().assert_refused(503, "no_free_slots", None);
    }
    let heartbeat = format!(
        r#"{{"protocol_id": "{PROTOCOL_ID}", "addresses": ["{}"], "group": "g", "slots": 8, "free_slots": 8}}"#,
        SERVERS[0]
    );
    assert_eq!(service.send("PUT", "/v1/servers/a", &heartbeat).status, 200);
    assert_eq!([token().status, token().status], [201, 201]);
    token().assert_refused(429, "too_many_tokens", Some("client_id"));
}

#[test]
fn client_id_has_no_limit_by_default() {
    let service = Service::start();
    for _ in 0..100 {
        assert_eq!(service.request_token(r#"{"client_id": 1}"#).status, 201);
    }
}
