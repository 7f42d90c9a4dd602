//! The log lines of game servers: reads the registry in intervals, and reports what has changed.
//!
//! That works with each store, and requests pay nothing for it. Each issuer of a shared store has the lines.

use core::future::{Future, poll_fn};
use core::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::TokenService;

/// The interval between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// Starts the readings. They end when the returned set is dropped.
///
/// The first reading begins before this returns, and ends if the store responds at once. A server that registers from
/// then on has a line.
pub(super) async fn watch_servers(service: TokenService) -> JoinSet<()> {
    let mut watch = Box::pin(keep_watching(service));
    let _ = poll_fn(|cx| Poll::Ready(watch.as_mut().poll(cx))).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(watch);
    tasks
}

async fn keep_watching(service: TokenService) {
    loop {
        // Nothing is known to have changed while the store does not respond.
        if let Ok(servers) = service.registry.servers().await {
            let changes = service.server_watch.update(&servers, Instant::now());
            changes.iter().for_each(|change| service.observer.on_server_change(change));
        }
        sleep(INTERVAL).await;
    }
}
