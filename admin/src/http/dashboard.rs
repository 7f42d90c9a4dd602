//! The page with live charts, its two files, and the stream of values that it draws.
//!
//! A stream ends after ten seconds, and the browser opens the next one: no connection lasts longer than others may.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use http_body_util::channel::Channel;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use super::error::AdminFailure;
use crate::histogram::Histogram;
use crate::state::{AdminState, NotReady};

/// The time between two values.
const INTERVAL: Duration = Duration::from_secs(1);
/// The number of values of one stream.
const VALUES: u32 = 10;
/// The pause of the browser after the end of a stream, in milliseconds.
const RETRY: &str = "retry: 200\n\n";

/// Handles `GET /`.
pub(super) async fn page() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], include_str!("dashboard.html"))
}

/// Handles `GET /dashboard.js`.
pub(super) async fn script() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("dashboard.js"))
}

/// Handles `GET /dashboard.css`.
pub(super) async fn style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("dashboard.css"))
}

/// The values of one moment. Counters are those since the start; the page computes rates.
#[derive(Serialize)]
struct DashboardValues {
    uptime: f64,
    not_ready: Option<&'static str>,
    slots: u32,
    clients: u32,
    pending: usize,
    datagrams_received: u64,
    datagrams_sent: u64,
    bytes_received: u64,
    bytes_sent: u64,
    turns: u64,
    /// The time of the turns since the previous value, in milliseconds; absent without a turn.
    turn_mean: Option<f64>,
    turn_p99: Option<f64>,
    dropped: u64,
    over_budget: u64,
    /// Pairs of a bound, `None` for the last one, and a count.
    round_trip: Vec<(Option<f64>, u64)>,
    loss: Vec<(Option<f64>, u64)>,
    queued: Vec<(Option<f64>, u64)>,
}

/// Returns the bounds and counts of a histogram. JSON has no infinity.
fn buckets(histogram: &Histogram) -> Vec<(Option<f64>, u64)> {
    histogram
        .buckets()
        .into_iter()
        .map(|(bound, count)| (Some(bound).filter(|bound| bound.is_finite()), count))
        .collect()
}

impl DashboardValues {
    /// Returns the values of this moment. `turns` are those of the previous one.
    fn read(state: &AdminState, turns: &mut Option<Histogram>) -> Self {
        let (snapshot, uptime) = (state.snapshot(), state.uptime());
        let new = turns.replace(snapshot.turn_time).map(|earlier| snapshot.turn_time.since(&earlier));
        let (totals, sockets) = (&snapshot.totals, &snapshot.totals.sockets);
        Self {
            uptime: uptime.as_secs_f64(),
            not_ready: state.not_ready(uptime).map(NotReady::name),
            slots: state.slots(),
            clients: totals.connected,
            pending: totals.pending_clients,
            datagrams_received: sockets.datagrams_received,
            datagrams_sent: sockets.datagrams_sent,
            bytes_received: sockets.bytes_received,
            bytes_sent: sockets.bytes_sent,
            turns: snapshot.turn_time.count(),
            turn_mean: new.as_ref().and_then(Histogram::mean).map(|seconds| seconds * 1000.0),
            turn_p99: new.and_then(|turns| turns.quantile(0.99)).map(|seconds| seconds * 1000.0),
            dropped: totals.discards.total(),
            over_budget: totals.packets_over_budget,
            round_trip: buckets(&snapshot.round_trip),
            loss: buckets(&snapshot.loss),
            queued: buckets(&snapshot.queued),
        }
    }
}

/// Handles `GET /events`: server-sent events, one a second for ten seconds.
pub(super) async fn events(State(state): State<Arc<AdminState>>) -> Result<Response, AdminFailure> {
    let place = Arc::clone(&state.streams).try_acquire_owned().map_err(|_| AdminFailure::TOO_MANY_STREAMS)?;
    let (sender, body) = Channel::<Bytes>::new(1);
    tokio::spawn(send_events(state, sender, place));
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::new(body)).into_response())
}

/// Sends values until the stream has all, or the browser has closed it.
async fn send_events(
    state: Arc<AdminState>,
    mut sender: http_body_util::channel::Sender<Bytes>,
    _place: OwnedSemaphorePermit,
) {
    let mut turns = None;
    let mut text = RETRY.to_owned();
    for _ in 0..VALUES {
        let Ok(values) = serde_json::to_string(&DashboardValues::read(&state, &mut turns)) else { return };
        text.push_str("data: ");
        text.push_str(&values);
        text.push_str("\n\n");
        if sender.send_data(std::mem::take(&mut text).into()).await.is_err() {
            return;
        }
        sleep(INTERVAL).await;
    }
}
