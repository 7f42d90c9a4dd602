//! What the service reports of its requests: log lines with the id of the request.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::http::HeaderMap;

use super::error::ErrorCode;
use super::line_budget::{LineBudget, LineLog};
use super::peer::HttpPeer;
use super::refused_head::RefusedHead;
use super::request_id::{RequestId, RequestIds};
use super::summed_log::SummedLog;
use crate::callers::Caller;
use crate::issuer::Minted;
use crate::registry::Registration;

/// The log lines of all requests. Each kind has its own limit, so that strangers hide no line of a backend.
#[derive(Default)]
pub(super) struct Observer {
    request_ids: RequestIds,
    minted: Mutex<LineBudget>,
    refused_with_key: Mutex<LineBudget>,
    refused_without_key: Mutex<LineBudget>,
    replaced: Mutex<LineBudget>,
    refused_heads: Mutex<SummedLog>,
}

impl Observer {
    /// Returns the id of a request with these headers.
    pub(super) fn request_id(&self, headers: &HeaderMap) -> RequestId {
        self.request_ids.of(headers)
    }

    /// Logs a minted token.
    pub(super) fn on_minted(&self, minted: &Minted, request_id: &RequestId, key: &str) {
        let log = count(&self.minted);
        if let Some(tokens) = log.earlier {
            tracing::info!(tokens, "minted further connect tokens within a second");
        }
        if log.has_line {
            let expires = minted.token.facts().expires.0;
            let client_id = minted.client_id;
            tracing::info!(%client_id, expires, %key, %request_id, "minted a connect token");
        }
    }

    /// Logs that two game servers have one id: this one, and one that has registered since.
    pub(super) fn on_replaced(&self, server: &Registration, by: &[SocketAddr]) {
        let log = count(&self.replaced);
        if let Some(heartbeats) = log.earlier {
            tracing::warn!(heartbeats, "refused further heartbeats of replaced game servers within a second");
        }
        if log.has_line {
            let (id, addresses) = (&server.id, &server.addresses);
            tracing::warn!(%id, ?addresses, ?by, "two game servers have one id: the one that was replaced is refused");
        }
    }

    /// Logs a refusal.
    pub(super) fn on_refused(
        &self,
        code: ErrorCode,
        caller: Option<&Caller>,
        request_id: &RequestId,
        peer: Option<HttpPeer>,
    ) {
        let key = caller.map(Caller::id);
        let log = count(if key.is_some() { &self.refused_with_key } else { &self.refused_without_key });
        if let Some(requests) = log.earlier {
            tracing::info!(requests, has_key = key.is_some(), "refused further requests within a second");
        }
        if log.has_line {
            let (code, status) = (code.name(), code.status());
            let (key, peer) = (key.map(tracing::field::display), peer.map(tracing::field::display));
            tracing::info!(code, status, key, peer, %request_id, "refused a request");
        }
    }

    /// Logs connections without a complete request, summed.
    pub(super) fn on_refused_head(&self, reason: RefusedHead, peer: Option<HttpPeer>) {
        // Poisoning is harmless: the critical section only counts.
        let mut log = self.refused_heads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connections) = log.count(tokio::time::Instant::now()) {
            let (last, peer) = (reason.name(), peer.map(tracing::field::display));
            tracing::info!(connections, last, peer, "closed connections without a complete request");
        }
    }
}

/// Counts a line.
fn count(limit: &Mutex<LineBudget>) -> LineLog {
    // Poisoning is harmless: the critical section only counts.
    limit.lock().unwrap_or_else(PoisonError::into_inner).count(Instant::now())
}
