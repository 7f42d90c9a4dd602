//! The limit of tokens for one client id.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::common::{PROTOCOL_ID, SERVERS, Service};
use slipgate_token_issuer::callers::Scopes;
use slipgate_token_issuer::http::HttpLimits;
use slipgate_token_issuer::registry::{
    Heartbeat, Registry, RegistryError, RegistryFuture, RegistryName, ReservedServer, ServerInstance, ServerStatus,
    SlotRequest,
};

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

/// A store that fails with this error.
struct FailingStore(RegistryError);

impl FailingStore {
    fn fail<T: Send + 'static>(&self) -> RegistryFuture<'_, T> {
        let error = self.0.clone();
        Box::pin(async { Err(error) })
    }
}

impl Registry for FailingStore {
    fn register<'a>(&'a self, _: Heartbeat, _: &'a Scopes) -> RegistryFuture<'a, ()> {
        self.fail()
    }

    fn remove<'a>(&'a self, _: RegistryName, _: Option<ServerInstance>, _: &'a Scopes) -> RegistryFuture<'a, bool> {
        self.fail()
    }

    fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>> {
        self.fail()
    }

    fn reserve(&self, _: SlotRequest) -> RegistryFuture<'_, Vec<ReservedServer>> {
        self.fail()
    }

    fn check(&self) -> Result<(), RegistryError> {
        Err(self.0.clone())
    }
}

#[test]
fn store_that_fails_before_it_reserves_costs_no_token() {
    let limits = HttpLimits { tokens_per_minute: NonZeroU32::new(2), ..HttpLimits::default() };
    let start = |error| {
        let registry = Arc::new(FailingStore(error));
        Service::start_changed(limits, &SERVERS, |service| service.with_registry(registry))
    };
    let body = r#"{"client_id": 1, "group": "g"}"#;
    let service = start(RegistryError::Unavailable);
    for _ in 0..10 {
        service.request_token(body).assert_refused(503, "store_unavailable", None);
    }
    // A store that failed meanwhile may have reserved a slot, as a token would.
    let service = start(RegistryError::Unconfirmed);
    for _ in 0..2 {
        service.request_token(body).assert_refused(503, "store_unavailable", None);
    }
    service.request_token(body).assert_refused(429, "too_many_tokens", Some("client_id"));
}

#[test]
fn client_id_has_no_limit_by_default() {
    let service = Service::start();
    for _ in 0..100 {
        assert_eq!(service.request_token(r#"{"client_id": 1}"#).status, 201);
    }
}
