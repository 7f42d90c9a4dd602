//! What the service reports of its requests: log lines with the id of the request.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use tracing::field::display;

use super::error::RefusedWith;
use super::limited_log::LimitedLog;
use super::peer::HttpPeer;
use super::refused_head::RefusedHead;
use super::request_id::{RequestId, RequestIds};
use super::server_changes::{ServerChange, WatchedServer};
use crate::callers::Caller;
use crate::issuer::Minted;
use crate::registry::{MISSED_HEARTBEATS, Registration};

/// The log lines of all requests. Each kind has its own limit, so that strangers hide no line of a backend.
pub(super) struct Observer {
    request_ids: RequestIds,
    minted: Arc<LimitedLog<()>>,
    refused_with_key: Arc<LimitedLog<()>>,
    refused_without_key: Arc<LimitedLog<()>>,
    replaced: Arc<LimitedLog<()>>,
    server_changes: Arc<LimitedLog<()>>,
    shared_addresses: Arc<LimitedLog<()>>,
    refused_heads: Arc<LimitedLog<(RefusedHead, Option<HttpPeer>)>>,
}

impl Default for Observer {
    fn default() -> Self {
        Self {
            request_ids: RequestIds::default(),
            minted: LimitedLog::per_second(|tokens, ()| {
                tracing::info!(tokens, "minted further connect tokens within a second");
            }),
            refused_with_key: LimitedLog::per_second(|requests, ()| log_refused(requests, true)),
            refused_without_key: LimitedLog::per_second(|requests, ()| log_refused(requests, false)),
            replaced: LimitedLog::per_second(|heartbeats, ()| {
                tracing::warn!(heartbeats, "refused further heartbeats of replaced game servers within a second");
            }),
            server_changes: LimitedLog::per_second(|changes, ()| {
                tracing::info!(changes, "further game servers have registered, are dead, or were removed");
            }),
            shared_addresses: LimitedLog::per_second(|servers, ()| {
                tracing::warn!(servers, "further game servers advertise the address of another one");
            }),
            refused_heads: LimitedLog::per_minute(log_refused_heads),
        }
    }
}

impl Observer {
    /// Returns the id of a request with these headers.
    pub(super) fn request_id(&self, headers: &HeaderMap) -> RequestId {
        self.request_ids.of(headers)
    }

    /// Logs a minted token.
    pub(super) fn on_minted(&self, minted: &Minted, request_id: &RequestId, key: &str) {
        if self.minted.count(()).is_some() {
            let expires = minted.token.facts().expires.0;
            let client_id = minted.client_id;
            tracing::info!(%client_id, expires, %key, %request_id, "minted a connect token");
        }
    }

    /// Logs that two game servers have one id: this one, and one that has registered since.
    pub(super) fn on_replaced(&self, server: &Registration, by: &[SocketAddr]) {
        if self.replaced.count(()).is_some() {
            let (id, addresses) = (&server.id, &server.addresses);
            tracing::warn!(%id, ?addresses, ?by, "two game servers have one id: the one that was replaced is refused");
        }
    }

    /// Logs what has happened to a game server.
    pub(super) fn on_server_change(&self, event: &ServerChange) {
        let is_conflict = matches!(event, ServerChange::SharesAddress(..));
        let log = if is_conflict { &self.shared_addresses } else { &self.server_changes };
        if log.count(()).is_none() {
            return;
        }
        match event {
            ServerChange::Registered(WatchedServer { id, group, addresses, .. }) => {
                tracing::info!(%id, %group, ?addresses, "a game server has registered");
            }
            ServerChange::Dead(WatchedServer { id, group, addresses, .. }) => {
                let missed = MISSED_HEARTBEATS;
                tracing::warn!(%id, %group, ?addresses, missed, "a game server is dead: it has missed its heartbeats");
            }
            ServerChange::Removed(WatchedServer { id, group, addresses, .. }) => {
                tracing::info!(%id, %group, ?addresses, "a game server was removed");
            }
            ServerChange::SharesAddress(WatchedServer { id, group, .. }, other, address) => {
                tracing::warn!(%id, %group, %other, %address, "two game servers advertise one address");
            }
        }
    }

    /// Logs a refusal.
    pub(super) fn on_refused(
        &self,
        refused: &RefusedWith,
        caller: Option<&Caller>,
        request_id: &RequestId,
        peer: Option<HttpPeer>,
    ) {
        let key = caller.map(Caller::id);
        let log = if key.is_some() { &self.refused_with_key } else { &self.refused_without_key };
        if log.count(()).is_some() {
            let (code, status) = (refused.code.name(), refused.code.status());
            // These quote no key. The log escapes them: a field may be the client's own text.
            let (field, reason) = (refused.field.as_deref(), refused.message.as_str());
            let (key, peer) = (key.map(display), peer.map(display));
            let subject = refused.subject.as_deref();
            let client_id = subject.and_then(|subject| subject.client_id).map(display);
            let group = subject.and_then(|subject| subject.group.as_ref()).map(display);
            tracing::info!(client_id, group, code, field, reason, status, key, peer, %request_id, "refused a request");
        }
    }

    /// Logs connections without a complete request, summed.
    pub(super) fn on_refused_head(&self, reason: RefusedHead, peer: Option<HttpPeer>) {
        if let Some(last) = self.refused_heads.count((reason, peer)) {
            log_refused_heads(1, &last);
        }
    }

    /// Logs the sums of what has no line yet, at the end of the service.
    pub(super) fn flush(&self) {
        let (with_key, without_key) = (&self.refused_with_key, &self.refused_without_key);
        let (changes, shared) = (&self.server_changes, &self.shared_addresses);
        for log in [&self.minted, with_key, without_key, &self.replaced, changes, shared] {
            log.flush();
        }
        self.refused_heads.flush();
    }
}

fn log_refused(requests: u64, has_key: bool) {
    tracing::info!(requests, has_key, "refused further requests within a second");
}

fn log_refused_heads(connections: u64, (reason, peer): &(RefusedHead, Option<HttpPeer>)) {
    let (last, peer) = (reason.name(), peer.map(display));
    tracing::info!(connections, last, peer, "closed connections without a complete request");
}
