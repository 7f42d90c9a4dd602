//! What the service reports of its requests: log lines with the id of the request.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::http::HeaderMap;

use super::error::ErrorCode;
use super::line_budget::{LineBudget, LineLog};
use super::peer::HttpPeer;
use super::request_id::{RequestId, RequestIds};
use crate::callers::Caller;
use crate::issuer::Minted;

/// The log lines of all requests. Each kind has its own limit, so that strangers hide no line of a backend.
#[derive(Default)]
pub(super) struct Observer {
    request_ids: RequestIds,
    minted: Mutex<LineBudget>,
    refused_with_key: Mutex<LineBudget>,
    refused_without_key: Mutex<LineBudget>,
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
}

/// Counts a line.
fn count(limit: &Mutex<LineBudget>) -> LineLog {
    // Poisoning is harmless: the critical section only counts.
    limit.lock().unwrap_or_else(PoisonError::into_inner).count(Instant::now())
}
