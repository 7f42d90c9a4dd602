//! The routes that list and disconnect clients and drain the server. The game's thread executes them.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use slipgate_server::ids::ClientId;
use tracing::info;

use super::error::AdminFailure;
use super::places::AdminPeer;
use crate::command::{ClientPosition, ClientRow, MAX_ROWS, Reply, Work};
use crate::state::AdminState;

/// The maximum length of a text for a player, in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// The body of `GET /clients`.
#[derive(Serialize)]
pub(super) struct ClientsBody {
    clients: Vec<ClientBody>,
    /// The value of `after` for the clients behind these; absent for the last ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// One client. Values without a measurement are absent.
#[derive(Serialize)]
struct ClientBody {
    /// A text, because JavaScript and jq round numbers above 2^53.
    id: String,
    shard: u16,
    slot: u32,
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connected_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queueing_delay_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bytes_per_second: Option<u64>,
    bytes_sent: u64,
    bytes_received: u64,
    packets_sent: u64,
    packets_received: u64,
    queued_messages: u32,
    queued_bytes: u64,
}

impl From<&ClientRow> for ClientBody {
    fn from(row: &ClientRow) -> Self {
        let (activity, path) = (&row.activity, row.path.as_ref());
        let congestion = path.map(|path| &path.congestion);
        let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs_f64());
        Self {
            id: row.id.to_string(),
            shard: row.position.shard,
            slot: row.position.slot,
            index: row.index,
            address: row.address.map(|address| address.to_string()),
            connected_seconds: seconds(activity.connected),
            silent_seconds: seconds(activity.silent),
            round_trip_seconds: seconds(congestion.and_then(|path| path.round_trip)),
            jitter_seconds: seconds(congestion.and_then(|path| path.round_trip_variation)),
            loss: path.map(|path| path.endpoint.loss),
            queueing_delay_seconds: seconds(congestion.and_then(|path| path.queueing_delay)),
            rate_bytes_per_second: congestion.map(|path| path.rate.0 as u64),
            bytes_sent: activity.bytes_sent,
            bytes_received: activity.bytes_received,
            packets_sent: activity.packets_sent,
            packets_received: activity.packets_received,
            queued_messages: row.queued.messages,
            queued_bytes: row.queued.bytes,
        }
    }
}

/// Handles `GET /clients`: at most 256 clients in the order of shards and slots.
pub(super) async fn list(
    State(state): State<Arc<AdminState>>,
    RawQuery(query): RawQuery,
) -> Result<Json<ClientsBody>, AdminFailure> {
    let after = parse_after(query.as_deref())?;
    let replies = state.execute(Work::List(after)).await?;
    Ok(Json(merge(replies)))
}

/// Returns the position behind which a list begins, from a query such as `after=0-255`.
fn parse_after(query: Option<&str>) -> Result<Option<ClientPosition>, AdminFailure> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Ok(None) };
    let position = query
        .strip_prefix("after=")
        .and_then(|after| after.split_once('-'))
        .and_then(|(shard, slot)| Some(ClientPosition { shard: shard.parse().ok()?, slot: slot.parse().ok()? }));
    position.map(Some).ok_or(AdminFailure::INVALID_QUERY)
}

/// Returns the first clients of all shards.
fn merge(replies: Vec<Reply>) -> ClientsBody {
    let (mut rows, mut has_more) = (Vec::new(), false);
    for reply in replies {
        if let Reply::Rows { rows: more, has_more: shard_has_more } = reply {
            rows.extend(more);
            has_more |= shard_has_more;
        }
    }
    rows.sort_unstable_by_key(|row| row.position);
    has_more |= rows.len() > MAX_ROWS;
    rows.truncate(MAX_ROWS);
    let last = rows.last().filter(|_| has_more).map(|row| row.position);
    ClientsBody {
        clients: rows.iter().map(ClientBody::from).collect(),
        next: last.map(|ClientPosition { shard, slot }| format!("{shard}-{slot}")),
    }
}

/// The body of `POST /clients/{id}/kick`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct KickRequest {
    #[serde(default)]
    text: String,
}

/// The response of `POST /clients/{id}/kick`.
#[derive(Serialize)]
pub(super) struct KickedBody {
    id: String,
    shard: u16,
    slot: u32,
    /// Whether the connection carries the text: it has channels, and the text is not empty.
    text_sent: bool,
}

/// Handles `POST /clients/{id}/kick`.
pub(super) async fn kick(
    State(state): State<Arc<AdminState>>,
    Extension(peer): Extension<AdminPeer>,
    id: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<KickedBody>, AdminFailure> {
    refuse_query(query.as_deref())?;
    // A path that is no text once it is decoded is rejected here; axum's own response would not be JSON.
    let client_id = id.ok().and_then(|Path(id)| parse_client_id(&id)).ok_or(AdminFailure::UNKNOWN_CLIENT)?;
    let KickRequest { text } = if body.is_empty() { KickRequest::default() } else { parse_json(&headers, &body)? };
    if text.len() > MAX_TEXT_BYTES {
        return Err(AdminFailure::TEXT_TOO_LONG);
    }
    let replies = state.execute(Work::Kick(client_id, text.into())).await?;
    let kicked = replies.into_iter().find_map(|reply| match reply {
        Reply::Kicked { position, has_text } => Some((position, has_text)),
        _ => None,
    });
    let (position, text_sent) = kicked.ok_or(AdminFailure::UNKNOWN_CLIENT)?;
    let ClientPosition { shard, slot } = position;
    info!(peer = %peer.address(), %client_id, shard, slot, "an operator disconnects a client");
    Ok(Json(KickedBody { id: client_id.to_string(), shard: position.shard, slot: position.slot, text_sent }))
}

/// Refuses a query of a command: it would be ignored, although its sender means something by it.
fn refuse_query(query: Option<&str>) -> Result<(), AdminFailure> {
    if query.is_none_or(str::is_empty) { Ok(()) } else { Err(AdminFailure::INVALID_QUERY) }
}

/// Parses a client id as the list writes it: a number without a sign.
fn parse_client_id(id: &str) -> Option<ClientId> {
    let is_number = id.bytes().all(|byte| byte.is_ascii_digit());
    id.parse::<u64>().ok().filter(|_| is_number).map(ClientId::from)
}

/// Parses a body of `Content-Type: application/json` without an encoding, which is an object.
fn parse_json<'b, T: Deserialize<'b>>(headers: &HeaderMap, body: &'b [u8]) -> Result<T, AdminFailure> {
    let is_json = |value: &[u8]| {
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
    };
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (first, second) = (types.next(), types.next());
    let is_plain = second.is_none() && !headers.contains_key(CONTENT_ENCODING);
    if !is_plain || !first.is_some_and(|value| is_json(value.as_bytes())) {
        return Err(AdminFailure::NOT_JSON);
    }
    // serde would read a list as the fields in their order.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(AdminFailure::INVALID_JSON);
    }
    serde_json::from_slice(body).map_err(|_| AdminFailure::INVALID_JSON)
}

/// The response of `POST /drain`.
#[derive(Serialize)]
pub(super) struct DrainBody {
    status: &'static str,
}

/// Handles `POST /drain`. Each shard admits no new clients from the end of its next turn on, also after a stall.
pub(super) async fn drain(
    State(state): State<Arc<AdminState>>,
    Extension(peer): Extension<AdminPeer>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<DrainBody>, AdminFailure> {
    /// The body is optional and has no fields.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct DrainRequest {}
    refuse_query(query.as_deref())?;
    if !body.is_empty() {
        let DrainRequest {} = parse_json(&headers, &body)?;
    }
    if state.set_draining() {
        return Err(AdminFailure::ALREADY_DRAINING);
    }
    info!(peer = %peer.address(), "an operator drains the server");
    Ok(Json(DrainBody { status: "draining" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_begins_behind_a_position() {
        assert_eq!(parse_after(None).ok(), Some(None));
        assert_eq!(parse_after(Some("")).ok(), Some(None));
        assert_eq!(parse_after(Some("after=1-17")).ok(), Some(Some(ClientPosition { shard: 1, slot: 17 })));
        for wrong in ["after=", "after=1", "after=-1", "after=1-", "after=70000-1", "before=1-1", "after=1-1&x=2", "x"]
        {
            assert!(parse_after(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn client_ids_are_numbers_without_a_sign() {
        assert_eq!(parse_client_id("18446744073709551615"), Some(u64::MAX.into()));
        for wrong in ["", "+77", "-1", " 77", "7a", "18446744073709551616"] {
            assert_eq!(parse_client_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn bodies_are_objects() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, axum::http::HeaderValue::from_static("application/json"));
        let text =
            |body: &str| parse_json::<KickRequest>(&headers, body.as_bytes()).ok().map(|request| request.text.len());
        assert_eq!((text(r#" {"text":"bye"}"#), text("{}")), (Some(3), Some(0)));
        for wrong in [r#"["bye"]"#, "[]", "null", "1", r#""bye""#, ""] {
            assert_eq!(text(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lists_of_shards_are_merged_in_order() {
        let row = |shard, slot| ClientRow {
            position: ClientPosition { shard, slot },
            id: u64::MAX.into(),
            index: 0,
            address: None,
            activity: slipgate_server::connection::ClientActivity::default(),
            path: None,
            queued: slipgate_server::connection::QueuedMessages::default(),
        };
        let reply =
            |shard, count, has_more| Reply::Rows { rows: (0..count).map(|slot| row(shard, slot)).collect(), has_more };
        let merged = merge(vec![reply(1, 3, false), reply(0, 2, false)]);
        let places: Vec<_> = merged.clients.iter().map(|client| (client.shard, client.slot)).collect();
        assert_eq!((places, merged.next), (vec![(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)], None));
        let merged = merge(vec![reply(1, 256, true), reply(0, 200, false)]);
        assert_eq!((merged.clients.len(), merged.next.as_deref()), (256, Some("1-55")));
        let text = serde_json::to_string(&merged.clients[0]).unwrap();
        assert!(
            text.starts_with(r#"{"id":"18446744073709551615","shard":0,"slot":0,"index":0,"bytes_sent":0"#),
            "{text}"
        );
    }
}
