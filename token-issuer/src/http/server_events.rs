//! Changes of the registered servers as server-sent events.
//!
//! A stream ends after a minute, and its client opens the next one: no connection lasts longer than others may.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use http_body_util::channel::{Channel, Sender};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::TokenService;
use super::authorize::{Authorized, require, with_caller};
use super::connection_state::ConnectionState;
use super::error::{ApiError, ErrorCode};
use super::query::expect_no_query;
use super::server_facts::ServerFacts;
use crate::callers::{Caller, Permission};

/// How long a stream lasts.
const STREAM_AGE: Duration = Duration::from_secs(60);
/// The interval in which a stream looks for changes.
const STREAM_INTERVAL: Duration = Duration::from_millis(500);

/// Handles `GET /v1/server-events`.
pub(super) async fn events(
    State(service): State<TokenService>,
    connection: Option<Extension<Arc<ConnectionState>>>,
    authorized: Authorized,
    uri: Uri,
) -> Response {
    let open = || {
        require(&authorized.caller, Permission::Observe)?;
        expect_no_query(&uri)?;
        let too_many = |_| {
            ApiError::new(ErrorCode::TooManyStreams, "the maximum number of event streams is open")
                .with_retry_after(STREAM_AGE)
        };
        let permit = Arc::clone(&service.streams).try_acquire_owned().map_err(too_many)?;
        let (sender, body) = Channel::<Bytes>::new(1);
        let (caller, connection) = (Arc::clone(&authorized.caller), connection.map(|Extension(connection)| connection));
        let stream = ServerStream { service, connection, caller, sent: BTreeMap::new() };
        tokio::spawn(stream.send(sender, permit));
        Ok::<_, ApiError>(([(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"))], Body::new(body)))
    };
    let opened = open();
    with_caller(opened, &authorized)
}

/// An open stream.
struct ServerStream {
    service: TokenService,
    /// `None` behind the HTTP server of another program.
    connection: Option<Arc<ConnectionState>>,
    caller: Arc<Caller>,
    /// The last event of each server that the client has.
    sent: BTreeMap<String, String>,
}

impl ServerStream {
    /// Sends events until the stream is old, the client has closed it, or the service stops.
    async fn send(mut self, mut sender: Sender<Bytes>, _permit: OwnedSemaphorePermit) {
        let end = Instant::now() + STREAM_AGE;
        let connection = self.connection.clone();
        let is_stopping = || connection.as_ref().is_some_and(|connection| connection.is_stopping());
        while Instant::now() < end && !is_stopping() {
            let mut text = String::new();
            self.append_changes(&mut text).await;
            if text.is_empty() {
                // A comment, which fails if the client has closed the stream.
                text.push_str(":\n\n");
            }
            if sender.send_data(Bytes::from(text)).await.is_err() {
                return;
            }
            sleep(STREAM_INTERVAL).await;
        }
    }

    /// Appends the events of what has changed.
    async fn append_changes(&mut self, text: &mut String) {
        // Nothing is known to have changed while the store does not respond.
        let Ok(servers) = self.service.registry.servers().await else { return };
        let visible = servers
            .iter()
            .filter(|server| self.caller.scopes().include(server.registration.protocol_id, &server.registration.group));
        let present: BTreeMap<_, _> =
            visible.map(|server| (server.registration.id.to_string(), ServerFacts::event_data(server))).collect();
        for (_, data) in present.iter().filter(|(id, data)| self.sent.get(*id) != Some(data)) {
            text.push_str(&format!("event: server\ndata: {data}\n\n"));
        }
        for id in self.sent.keys().filter(|id| !present.contains_key(*id)) {
            text.push_str(&format!("event: removed\ndata: {{\"id\":\"{id}\"}}\n\n"));
        }
        self.sent = present;
    }
}
