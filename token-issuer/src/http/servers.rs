//! The routes of dedicated servers: heartbeats, removal and the list.

use std::time::Duration;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};

use super::TokenService;
use super::authorize::{Authorized, expect_json, expect_no_coding, require, with_caller};
use super::error::{ApiError, ErrorCode};
use super::fields::parse_digits;
use super::query::expect_no_query;
use super::registration::{self, INSTANCE, SEQUENCE, server_instance};
use super::request_body::RequestBody;
use super::server_facts::ServerFacts;
use crate::callers::Permission;
use crate::registry::{DEAD_AFTER, HEARTBEAT_INTERVAL, Registration, RegistryError, RegistryName, ServerStatus};

/// The maximum number of servers in one list.
const PAGE: usize = 256;

/// Handles `PUT /v1/servers/{id}`.
pub(super) async fn register(
    State(service): State<TokenService>,
    authorized: Authorized,
    id: Result<Path<String>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
    Extension(body): Extension<RequestBody>,
) -> Response {
    let registered = async {
        expect_no_query(&uri)?;
        let body = body.complete()?;
        expect_json(&headers)?;
        expect_no_coding(&headers)?;
        let heartbeat = registration::read(path_id(&id)?, &body)?;
        check_registration(&authorized, &heartbeat.registration)?;
        let registration = heartbeat.registration.clone();
        let registered = service.registry.register(heartbeat, authorized.caller.scopes()).await;
        if let Err(RegistryError::Replaced(by)) = &registered {
            service.observer.on_replaced(&registration, by);
        }
        registered?;
        Ok::<_, ApiError>(Json(Accepted {
            heartbeat_millis: millis(HEARTBEAT_INTERVAL),
            dead_after_millis: millis(DEAD_AFTER),
        }))
    };
    with_caller(registered.await, &authorized)
}

/// The parameters of `DELETE /v1/servers/{id}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveQuery {
    instance: Option<String>,
    sequence: Option<String>,
}

/// Handles `DELETE /v1/servers/{id}`.
pub(super) async fn remove(
    State(service): State<TokenService>,
    authorized: Authorized,
    id: Result<Path<String>, PathRejection>,
    query: Result<Query<RemoveQuery>, QueryRejection>,
) -> Response {
    let removed = async {
        let caller = &authorized.caller;
        require(caller, Permission::Register)?;
        let id = path_id(&id)?;
        let wrong = |field| {
            let message = "the parameters are `instance` and `sequence`, as of the heartbeats";
            ApiError::of_field(ErrorCode::InvalidField, field, message)
        };
        let Query(query) = query.map_err(|_| wrong(INSTANCE))?;
        let name = query.instance.map(|text| text.parse().map_err(|_| wrong(INSTANCE))).transpose()?;
        let sequence = query.sequence.map(|text| parse_digits(&text).ok_or_else(|| wrong(SEQUENCE))).transpose()?;
        let instance = server_instance(name, sequence)?;
        let removed = service.registry.remove(id, instance, caller.scopes()).await?;
        Ok::<_, ApiError>(Json(Removed { removed }))
    };
    with_caller(removed.await, &authorized)
}

/// The parameters of `GET /v1/servers`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    after: Option<String>,
    group: Option<String>,
}

/// Handles `GET /v1/servers`.
pub(super) async fn list(
    State(service): State<TokenService>,
    authorized: Authorized,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Response {
    let listed = async {
        let caller = &authorized.caller;
        require(caller, Permission::Observe)?;
        let wrong = |_| ApiError::new(ErrorCode::InvalidField, "the parameters are `after` and `group`, once each");
        let Query(query) = query.map_err(wrong)?;
        let after = query.after.as_deref().map(|text| read_id("after", text)).transpose()?;
        let is_listed = |server: &&ServerStatus| {
            let registration = &server.registration;
            after.as_ref().is_none_or(|after| registration.id > *after)
                && query.group.as_deref().is_none_or(|group| registration.group.as_str() == group)
                && caller.scopes().include(registration.protocol_id, &registration.group)
        };
        let servers = service.registry.servers().await?;
        let mut found: Vec<_> = servers.iter().filter(is_listed).take(PAGE + 1).map(ServerFacts::from).collect();
        let has_more = found.len() > PAGE;
        found.truncate(PAGE);
        let next = found.last().filter(|_| has_more).map(|server| server.id.clone());
        Ok::<_, ApiError>(Json(List { servers: found, next }))
    };
    with_caller(listed.await, &authorized)
}

fn path_id(path: &Result<Path<String>, PathRejection>) -> Result<RegistryName, ApiError> {
    // A path that is no UTF-8 is no id either.
    read_id("id", path.as_ref().map_or("", |Path(id)| id))
}

fn read_id(field: &str, text: &str) -> Result<RegistryName, ApiError> {
    let message = "the id of a server has 1 to 64 characters of A-Z a-z 0-9 . _ - and is not `.` or `..`";
    text.parse().map_err(|_| ApiError::of_field(ErrorCode::InvalidField, field, message))
}

/// Checks whether a key may register this server, and whether tokens of its game may lead to it.
fn check_registration(authorized: &Authorized, server: &Registration) -> Result<(), ApiError> {
    let caller = &authorized.caller;
    require(caller, Permission::Register)?;
    let scopes = caller.scopes();
    if scopes.groups.as_ref().is_some_and(|groups| !groups.contains(&server.group)) {
        return Err(ApiError::forbidden_group(&server.group));
    }
    if scopes.protocol_ids.as_ref().is_some_and(|ids| !ids.contains(&server.protocol_id)) {
        return Err(ApiError::forbidden(Some("protocol_id"), "this API key may not use this protocol id"));
    }
    let game = authorized.current.games.get(server.protocol_id);
    let game = game.ok_or_else(|| ApiError::unknown_protocol_id("this issuer has no game with this protocol id"))?;
    if let Some(address) = server.addresses.iter().find(|address| !game.allows(**address)) {
        let message = format!("addresses lists {address}, which is not in this issuer's allow-list");
        return Err(ApiError::of_field(ErrorCode::ServerNotAllowed, "addresses", message));
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The response to a heartbeat.
#[derive(Serialize)]
struct Accepted {
    heartbeat_millis: u64,
    dead_after_millis: u64,
}

#[derive(Serialize)]
struct Removed {
    removed: bool,
}

#[derive(Serialize)]
struct List {
    servers: Vec<ServerFacts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}
