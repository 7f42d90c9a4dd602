//! Changes of the registered servers as server-sent events.
//!
//! A stream ends after a minute, and its client opens the next one: no connection lasts longer than others may. All
//! streams share the readings of the registry.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use http_body_util::channel::{Channel, Sender};
use tokio::time::{Instant, sleep};

use super::TokenService;
use super::authorize::{Authorized, require, with_caller};
use super::connection_state::ConnectionState;
use super::error::ApiError;
use super::query::expect_no_query;
use super::server_feed::{ServerEvent, ServerEvents};
use super::stream_limit::OpenStream;
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
        let opened = service.streams.open(authorized.caller.id());
        let open_stream = opened.map_err(|too_many| too_many.with_retry_after(STREAM_AGE))?;
        let (sender, body) = Channel::<Bytes>::new(1);
        let (caller, connection) = (Arc::clone(&authorized.caller), connection.map(|Extension(connection)| connection));
        let stream = ServerStream { service, connection, caller, sent: Arc::default() };
        tokio::spawn(stream.send(sender, open_stream));
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
    /// The servers of the last reading that the client has.
    sent: Arc<ServerEvents>,
}

impl ServerStream {
    /// Sends events until the stream is old, the client has closed it, or the service stops.
    async fn send(mut self, mut sender: Sender<Bytes>, _open: OpenStream) {
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
        let Some(servers) = self.service.server_feed.servers(&*self.service.registry).await else { return };
        let scopes = self.caller.scopes();
        let is_visible = |event: &ServerEvent| event.is_visible(scopes);
        for (id, ServerEvent { data, .. }) in servers.iter().filter(|(_, event)| is_visible(event)) {
            if self.sent.get(id).is_none_or(|earlier| earlier.data != *data) {
                text.push_str(&format!("event: server\ndata: {data}\n\n"));
            }
        }
        for (id, _) in self.sent.iter().filter(|(_, event)| is_visible(event)) {
            if !servers.get(id).is_some_and(is_visible) {
                text.push_str(&format!("event: removed\ndata: {{\"id\":\"{id}\"}}\n\n"));
            }
        }
        self.sent = servers;
    }
}
