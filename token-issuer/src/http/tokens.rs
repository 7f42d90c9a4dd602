//! `POST /v1/tokens`: the checks of a request in their order, the reservation of slots, and the response.

use core::fmt::Write;
use core::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use base64_simd::STANDARD;
use slipgate_netcode::time::UnixMillis;
use slipgate_netcode::wire::CONNECT_TOKEN_BYTES;

use super::TokenService;
use super::answer::Answer;
use super::authorize::{Authorized, Unauthorized, authorize, expect_json, expect_no_coding, require};
use super::connection_state::ConnectionState;
use super::error::{ApiError, ErrorCode, TokenSubject};
use super::query::expect_no_query;
use super::request::{self, CLIENT_ID, GroupChoice, PROTOCOL_ID, SERVER_ADDRESSES, TokenBody};
use super::request_body::RequestBody;
use super::request_id::RequestId;
use crate::callers::{Caller, Permission};
use crate::entropy::system_entropy;
use crate::issuer::{Issuer, Minted, TokenRequest};
use crate::registry::{RESERVATION_GRACE, RegistryError, RegistryName, ReservedServer, SlotRequest};

/// The fields of a successful response of `POST /v1/tokens`. `server_ids` is only in responses to a group.
pub const RESPONSE_FIELDS: [&str; 8] =
    ["token", "protocol_id", "client_id", "created", "expires", "timeout_seconds", "server_addresses", "server_ids"];
/// The length of a token in base64.
const BASE64_TOKEN_BYTES: usize = CONNECT_TOKEN_BYTES.div_ceil(3) * 4;
/// Room for the other fields of most responses.
const FACTS_BYTES: usize = 300;

/// Handles a request for [`TOKENS`](super::routes::TOKENS).
pub(super) async fn create_token(
    service: &TokenService,
    parts: &Parts,
    body: RequestBody,
    connection: Option<&ConnectionState>,
    request_id: &RequestId,
) -> Answer {
    if parts.method != Method::POST {
        return ApiError::method_not_allowed()
            .with_header(ALLOW, HeaderValue::from_static("POST"))
            .into_response()
            .into();
    }
    let (authorized, refusal) = match authorize(service, &parts.headers, connection) {
        Ok(authorized) => (authorized, None),
        Err(Unauthorized::Key(error)) => return error.into_response().into(),
        Err(Unauthorized::Limit(authorized, error)) => (authorized, Some(error)),
    };
    let created = async {
        if let Some(error) = refusal {
            return Err(error);
        }
        require(&authorized.caller, Permission::Mint)?;
        expect_no_query(&parts.uri)?;
        let body = body.complete()?;
        expect_json(&parts.headers)?;
        expect_no_coding(&parts.headers)?;
        read_and_mint(service, &authorized, &body, request_id).await
    };
    let response = match created.await {
        Ok(body) => {
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = StatusCode::CREATED;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => error.into_response(),
    };
    Answer { response, caller: Some(authorized.caller) }
}

/// Checks the request of a valid key, reserves slots if it is for a group, and mints its token. Returns the body of the
/// response. An error names the player and the group as soon as they are known.
async fn read_and_mint(
    service: &TokenService,
    authorized: &Authorized,
    json: &[u8],
    request_id: &RequestId,
) -> Result<String, ApiError> {
    let body = request::read(json)?;
    let about = |client_id| move |error: ApiError| error.about(TokenSubject { client_id, group: group_of(json) });
    let (issuer, client_id) = identify(service, authorized, &body).await.map_err(about(body.client_id))?;
    let (request, group) = body.with_client_id(client_id);
    let mint = |servers: Option<&[ReservedServer]>| {
        let minted = mint(issuer, &request, servers)?;
        service.observer.on_minted(&minted, request_id, authorized.caller.id());
        Ok(token_body(&minted, servers))
    };
    reserve_and_mint(service, issuer, &request, group, json, mint).await.map_err(about(Some(client_id)))
}

/// Returns the issuer of the request's game and the player, if the key may request this token.
async fn identify<'a>(
    service: &TokenService,
    authorized: &'a Authorized,
    body: &TokenBody,
) -> Result<(&'a Issuer, u64), ApiError> {
    check_scopes(&authorized.caller, body)?;
    let issuer = find_game(authorized, body)?;
    Ok((issuer, find_client_id(service, body).await?))
}

/// Checks and counts the request, reserves slots if it is for a group, and mints its token by `mint`. Returns the body
/// of the response.
async fn reserve_and_mint(
    service: &TokenService,
    issuer: &Issuer,
    request: &TokenRequest,
    group: Option<GroupChoice>,
    json: &[u8],
    mint: impl Fn(Option<&[ReservedServer]>) -> Result<String, ApiError>,
) -> Result<String, ApiError> {
    // A request that cannot be minted must not reserve a slot.
    let (lifetime_seconds, _) = issuer.check(request)?;
    service.count_token(request.client_id).map_err(ApiError::too_many_tokens)?;
    let Some(group) = group else {
        return mint(None).inspect_err(|_| service.give_token_back(request.client_id));
    };
    let slots = slot_request(issuer, request, group, lifetime_seconds);
    match service.registry.reserve(slots).await {
        Ok(servers) => mint(Some(&servers)),
        Err(error) => {
            if has_reserved_nothing(&error) {
                service.give_token_back(request.client_id);
            }
            Err(not_reserved(error, json))
        }
    }
}

/// Returns whether no slot is reserved. After the other errors one may be.
const fn has_reserved_nothing(error: &RegistryError) -> bool {
    use RegistryError::{NoFreeSlots, NoServers, Recovering, Unavailable};
    matches!(error, NoFreeSlots | NoServers | Unavailable | Recovering(_))
}

/// Returns the refusal of a reservation for this body.
fn not_reserved(error: RegistryError, json: &[u8]) -> ApiError {
    match group_of(json) {
        Some(group) => ApiError::not_reserved(error, &group),
        None => error.into(),
    }
}

/// Returns the group of a body that was refused. The reservation has taken its name, so it is parsed again: requests
/// that get a token copy nothing for messages and logs.
fn group_of(json: &[u8]) -> Option<RegistryName> {
    Some(request::read(json).ok()?.group?.group)
}

/// Refuses a game or servers that the key may not use.
fn check_scopes(caller: &Caller, body: &TokenBody) -> Result<(), ApiError> {
    let scopes = caller.scopes();
    if let Some(groups) = &scopes.groups {
        if body.uses_allow_list() {
            let message = "this API key may request tokens for groups of servers only";
            return Err(ApiError::forbidden(Some(SERVER_ADDRESSES), message));
        }
        if let Some(group) = body.group.as_ref().filter(|group| !groups.contains(&group.group)) {
            return Err(ApiError::forbidden_group(&group.group));
        }
    }
    // With a player_jwt, `find_client_id` accepts the id of that player only.
    if body.client_id.is_some() && body.player_jwt.is_none() && !scopes.names_client_id {
        let message = "this API key may not name client ids: send the player's JSON Web Token as player_jwt";
        return Err(ApiError::forbidden(Some(CLIENT_ID), message));
    }
    Ok(())
}

/// Returns the issuer of the request's game.
fn find_game<'a>(authorized: &'a Authorized, body: &TokenBody) -> Result<&'a Issuer, ApiError> {
    let games = &authorized.current.games;
    let issuer = match body.protocol_id {
        Some(id) => games.get(id).ok_or("this issuer has no game with this protocol id"),
        None => games.only().ok_or("protocol_id must be given: this issuer has several games"),
    };
    let issuer = issuer.map_err(ApiError::unknown_protocol_id)?;
    let allowed = authorized.caller.scopes().protocol_ids.as_ref();
    if allowed.is_some_and(|ids| !ids.contains(&issuer.protocol_id())) {
        return Err(ApiError::forbidden(Some(PROTOCOL_ID), "this API key may not use this protocol id"));
    }
    Ok(issuer)
}

/// Returns the client id that the request names, or that the player's JSON Web Token names.
async fn find_client_id(service: &TokenService, body: &TokenBody) -> Result<u64, ApiError> {
    let Some(player_jwt) = &body.player_jwt else {
        return body.client_id.ok_or_else(|| ApiError::new(ErrorCode::MissingField, "client_id must be given"));
    };
    let client_id = service.players.client_id(player_jwt).await?;
    if body.client_id.is_some_and(|named| named != client_id) {
        let message = "client_id is not that of the player's JSON Web Token";
        return Err(ApiError::of_field(ErrorCode::InvalidPlayerJwt, CLIENT_ID, message));
    }
    Ok(client_id)
}

fn slot_request(issuer: &Issuer, request: &TokenRequest, group: GroupChoice, lifetime_seconds: u32) -> SlotRequest {
    SlotRequest {
        protocol_id: issuer.protocol_id(),
        group: group.group,
        regions: group.regions,
        only_regions: group.only_regions,
        server_count: group.server_count,
        client_id: request.client_id,
        lifetime: Duration::from_secs(lifetime_seconds.into()) + RESERVATION_GRACE,
    }
}

fn mint(issuer: &Issuer, request: &TokenRequest, servers: Option<&[ReservedServer]>) -> Result<Minted, ApiError> {
    let no_clock = |_| ApiError::new(ErrorCode::Internal, "the issuer's clock is before 1970");
    let no_entropy = |_| ApiError::new(ErrorCode::Internal, "the issuer's system provides no entropy");
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_err(no_clock)?;
    let now = UnixMillis(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX));
    let mut entropy = system_entropy().map_err(no_entropy)?;
    let Some(servers) = servers else { return Ok(issuer.mint(request, now, &mut entropy)?) };
    let addresses: Vec<_> = servers.iter().flat_map(|server| server.addresses.iter().copied()).collect();
    Ok(issuer.mint_to(&addresses, request, now, &mut entropy)?)
}

/// Returns the JSON body of a successful response.
///
/// The token is most of it. No value needs an escape in JSON: base64, numbers, addresses, and ids of servers. 64-bit
/// integers are strings, because JavaScript numbers lose precision.
fn token_body(minted: &Minted, servers: Option<&[ReservedServer]>) -> String {
    let (token, facts) = (minted.token.as_bytes(), minted.token.facts());
    let mut body = String::with_capacity(BASE64_TOKEN_BYTES + FACTS_BYTES);
    body.push_str("{\"token\":\"");
    STANDARD.encode_append(token, &mut body);
    let mut digits = itoa::Buffer::new();
    for (name, number) in [("\",\"protocol_id\":\"", facts.protocol_id), ("\",\"client_id\":\"", minted.client_id.0)] {
        body.push_str(name);
        body.push_str(digits.format(number));
    }
    for (name, number) in [("\",\"created\":", facts.created.0), (",\"expires\":", facts.expires.0)] {
        body.push_str(name);
        body.push_str(digits.format(number));
    }
    body.push_str(",\"timeout_seconds\":");
    body.push_str(digits.format(facts.timeout_seconds));
    push_list(&mut body, ",\"server_addresses\":[", facts.servers.iter(), |body, address| push_address(body, *address));
    if let Some(servers) = servers {
        push_list(&mut body, ",\"server_ids\":[", servers.iter(), |body, server| body.push_str(server.id.as_str()));
    }
    body.push('}');
    body
}

/// Appends an address as text.
fn push_address(body: &mut String, address: SocketAddr) {
    let SocketAddr::V4(address) = address else {
        // Writing to a string does not fail.
        let _ = write!(body, "{address}");
        return;
    };
    let mut digits = itoa::Buffer::new();
    for (index, octet) in address.ip().octets().into_iter().enumerate() {
        body.push_str(if index > 0 { "." } else { "" });
        body.push_str(digits.format(octet));
    }
    body.push(':');
    body.push_str(digits.format(address.port()));
}

/// Appends a list of strings that need no escapes.
fn push_list<T>(body: &mut String, name: &str, entries: impl Iterator<Item = T>, push: impl Fn(&mut String, T)) {
    body.push_str(name);
    for (index, entry) in entries.enumerate() {
        body.push_str(if index > 0 { ",\"" } else { "\"" });
        push(body, entry);
        body.push('"');
    }
    body.push(']');
}
