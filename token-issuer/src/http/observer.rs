//! What the service reports of its requests: log lines with the id of the request.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::HeaderMap;

use super::error::RefusedWith;
use super::limited_log::LimitedLog;
use super::peer::HttpPeer;
use super::refused_head::RefusedHead;
use super::request_id::{RequestId, RequestIds};
use crate::callers::Caller;
use crate::issuer::Minted;
use crate::registry::Registration;

/// The log lines of all requests. Each kind has its own limit, so that strangers hide no line of a backend.
pub(super) struct Observer {
    request_ids: RequestIds,
    minted: Arc<LimitedLog<()>>,
    refused_with_key: Arc<LimitedLog<()>>,
    refused_without_key: Arc<LimitedLog<()>>,
    replaced: Arc<LimitedLog<()>>,
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
            let (key, peer) = (key.map(tracing::field::display), peer.map(tracing::field::display));
            tracing::info!(code, field, reason, status, key, peer, %request_id, "refused a request");
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
        for log in [&self.minted, &self.refused_with_key, &self.refused_without_key, &self.replaced] {
            log.flush();
        }
        self.refused_heads.flush();
    }
}

fn log_refused(requests: u64, has_key: bool) {
    tracing::info!(requests, has_key, "refused further requests within a second");
}

fn log_refused_heads(connections: u64, (reason, peer): &(RefusedHead, Option<HttpPeer>)) {
    let (last, peer) = (reason.name(), peer.map(tracing::field::display));
    tracing::info!(connections, last, peer, "closed connections without a complete request");
}
