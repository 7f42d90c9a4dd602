//! `POST /v1/tokens`: the checks of a request in their order, the reservation of slots, and the response.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Extension;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use slipgate_netcode::time::UnixMillis;

use super::TokenService;
use super::authorize::{Authorized, expect_json, expect_no_coding, require, with_caller};
use super::error::{ApiError, ErrorCode};
use super::guard::RequestBody;
use super::request::{self, CLIENT_ID, GROUP, GroupChoice, PROTOCOL_ID, SERVER_ADDRESSES, TokenBody};
use super::request_id::RequestId;
use crate::callers::{Caller, Permission};
use crate::entropy::system_entropy;
use crate::issuer::{Issuer, Minted, TokenRequest};
use crate::registry::{RESERVATION_GRACE, ReservedServer, SlotRequest};

/// The fields of a successful response of `POST /v1/tokens`. `server_ids` is only in responses to a group.
pub const RESPONSE_FIELDS: [&str; 8] =
    ["token", "protocol_id", "client_id", "created", "expires", "timeout_seconds", "server_addresses", "server_ids"];

/// Handles `POST /v1/tokens`.
pub(super) async fn create_token(
    State(service): State<TokenService>,
    authorized: Authorized,
    headers: HeaderMap,
    Extension(body): Extension<RequestBody>,
    Extension(request_id): Extension<RequestId>,
) -> Response {
    let created = async {
        require(&authorized.caller, Permission::Mint)?;
        let body = body.complete()?;
        expect_json(&headers)?;
        expect_no_coding(&headers)?;
        let (minted, servers) = read_and_mint(&service, &authorized, &body).await?;
        let body = token_body(&minted, servers.as_deref())?;
        service.observer.on_minted(&minted, &request_id, authorized.caller.id());
        Ok::<_, ApiError>((StatusCode::CREATED, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body))
    };
    with_caller(created.await, &authorized)
}

/// Checks the request of a valid key, reserves slots if it is for a group, and mints its token.
async fn read_and_mint(
    service: &TokenService,
    authorized: &Authorized,
    body: &[u8],
) -> Result<(Minted, Option<Vec<ReservedServer>>), ApiError> {
    let body = request::read(body)?;
    check_scopes(&authorized.caller, &body)?;
    let issuer = find_game(authorized, &body)?;
    let client_id = find_client_id(service, &body).await?;
    let (request, group) = body.with_client_id(client_id);
    let Some(group) = group else {
        service.count_token(request.client_id).map_err(ApiError::too_many_tokens)?;
        return Ok((mint(issuer, &request, None)?, None));
    };
    // A request that cannot be minted must not reserve a slot.
    let (lifetime_seconds, _) = issuer.check(&request)?;
    service.count_token(request.client_id).map_err(ApiError::too_many_tokens)?;
    let slots = slot_request(issuer, &request, group, lifetime_seconds);
    let servers = service.registry.reserve(slots).await?;
    Ok((mint(issuer, &request, Some(&servers))?, Some(servers)))
}

/// Refuses a game or servers that the key may not use.
fn check_scopes(caller: &Caller, body: &TokenBody) -> Result<(), ApiError> {
    let scopes = caller.scopes();
    if let Some(groups) = &scopes.groups {
        if body.uses_allow_list() {
            let message = "this API key may request tokens for groups of servers only";
            return Err(ApiError::forbidden(Some(SERVER_ADDRESSES), message));
        }
        if body.group.as_ref().is_some_and(|group| !groups.contains(&group.group)) {
            return Err(ApiError::forbidden(Some(GROUP), "this API key may not use this group"));
        }
    }
    if body.client_id.is_some() && !scopes.names_client_id {
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
/// The token is most of it. Base64 needs no escapes in JSON, so the token is encoded in its place instead of being
/// searched for them and copied.
fn token_body(minted: &Minted, servers: Option<&[ReservedServer]>) -> Result<String, ApiError> {
    let facts = serde_json::to_string(&TokenFacts::new(minted, servers));
    let facts = facts.map_err(|_| ApiError::new(ErrorCode::Internal, "the response cannot be written"))?;
    let token = minted.token.as_bytes();
    let mut body = String::with_capacity(token.len() * 4 / 3 + facts.len() + 32);
    body.push_str("{\"token\":\"");
    STANDARD.encode_string(token, &mut body);
    body.push_str("\",");
    // The fields of the other object follow.
    body.push_str(facts.trim_start_matches('{'));
    Ok(body)
}

/// The fields of a successful response beside the token. 64-bit integers are strings, because JavaScript numbers lose
/// precision.
#[derive(Serialize)]
struct TokenFacts<'a> {
    protocol_id: String,
    client_id: String,
    created: u64,
    expires: u64,
    timeout_seconds: i32,
    server_addresses: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_ids: Option<Vec<&'a str>>,
}

impl<'a> TokenFacts<'a> {
    fn new(minted: &Minted, servers: Option<&'a [ReservedServer]>) -> Self {
        let facts = minted.token.facts();
        Self {
            protocol_id: facts.protocol_id.to_string(),
            client_id: minted.client_id.to_string(),
            created: facts.created.0,
            expires: facts.expires.0,
            timeout_seconds: facts.timeout_seconds,
            server_addresses: facts.servers.iter().map(ToString::to_string).collect(),
            server_ids: servers.map(|servers| servers.iter().map(|server| server.id.as_str()).collect()),
        }
    }
}
