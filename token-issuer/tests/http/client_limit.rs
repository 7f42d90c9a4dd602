//! The limit of tokens for one client id.

use std::num::NonZeroU32;

use crate::common::{SERVERS, Service};
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
fn client_id_has_no_limit_by_default() {
    let service = Service::start();
    for _ in 0..100 {
        assert_eq!(service.request_token(r#"{"client_id": 1}"#).status, 201);
    }
}
