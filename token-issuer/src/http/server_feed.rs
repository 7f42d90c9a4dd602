//! The servers as streams of events show them. All streams share the readings of the registry.
//!
//! Without that, each stream would read all servers from the store twice a second, and write their JSON again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::server_facts::ServerFacts;
use crate::callers::Scopes;
use crate::registry::{Registry, RegistryName, ServerStatus};

/// The maximum age of a reading that is used again: at most four readings a second, for any number of streams.
const MAX_AGE: Duration = Duration::from_millis(250);

/// A server in an event.
pub(super) struct ServerEvent {
    protocol_id: u64,
    group: RegistryName,
    /// The JSON of the event.
    pub(super) data: String,
}

impl ServerEvent {
    fn new(server: &ServerStatus) -> Self {
        let registration = &server.registration;
        let data = ServerFacts::event_data(server);
        Self { protocol_id: registration.protocol_id, group: registration.group.clone(), data }
    }

    /// Returns whether a key with these scopes may see the server.
    pub(super) fn is_visible(&self, scopes: &Scopes) -> bool {
        scopes.include(self.protocol_id, &self.group)
    }
}

/// All servers by their id.
pub(super) type ServerEvents = BTreeMap<RegistryName, ServerEvent>;

/// The last reading of the registry.
#[derive(Default)]
pub(super) struct ServerFeed(Mutex<Option<Reading>>);

struct Reading {
    at: Instant,
    servers: Option<Arc<ServerEvents>>,
}

impl ServerFeed {
    /// Returns the servers of a reading that is at most 250 ms old, or `None` if the store did not respond to it. While
    /// one stream reads, the others wait for its result.
    pub(super) async fn servers(&self, registry: &dyn Registry) -> Option<Arc<ServerEvents>> {
        let mut last = self.0.lock().await;
        if let Some(reading) = last.as_ref().filter(|reading| reading.at.elapsed() < MAX_AGE) {
            return reading.servers.clone();
        }
        let event = |server: &ServerStatus| (server.registration.id.clone(), ServerEvent::new(server));
        let read = registry.servers().await;
        let servers = read.ok().map(|servers| Arc::new(servers.iter().map(event).collect()));
        *last = Some(Reading { at: Instant::now(), servers: servers.clone() });
        servers
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use tokio::task::JoinSet;
    use tokio::time::sleep;

    use super::*;
    use crate::registry::{Heartbeat, RegistryError, RegistryFuture, ReservedServer, ServerInstance, SlotRequest};

    /// A store without servers, which counts its readings.
    #[derive(Default)]
    struct CountedStore {
        readings: AtomicU32,
        is_out: AtomicBool,
    }

    impl Registry for CountedStore {
        fn register<'a>(&'a self, _: Heartbeat, _: &'a Scopes) -> RegistryFuture<'a, ()> {
            Box::pin(async { Err(RegistryError::Unavailable) })
        }

        fn remove<'a>(&'a self, _: RegistryName, _: Option<ServerInstance>, _: &'a Scopes) -> RegistryFuture<'a, bool> {
            Box::pin(async { Err(RegistryError::Unavailable) })
        }

        fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>> {
            Box::pin(async {
                self.readings.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(100)).await;
                if self.is_out.load(Ordering::Relaxed) { Err(RegistryError::Unavailable) } else { Ok(Vec::new()) }
            })
        }

        fn reserve(&self, _: SlotRequest) -> RegistryFuture<'_, Vec<ReservedServer>> {
            Box::pin(async { Err(RegistryError::Unavailable) })
        }

        fn check(&self) -> Result<(), RegistryError> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn streams_share_the_readings_of_the_registry() {
        let (feed, store) = (Arc::new(ServerFeed::default()), Arc::new(CountedStore::default()));
        for (readings, is_out) in [(1, false), (2, true), (3, false)] {
            store.is_out.store(is_out, Ordering::Relaxed);
            let mut streams = JoinSet::new();
            for _ in 0..50 {
                let (feed, store) = (Arc::clone(&feed), Arc::clone(&store));
                streams.spawn(async move { feed.servers(&*store).await.is_none() });
            }
            assert_eq!(streams.join_all().await, [is_out; 50]);
            assert_eq!(store.readings.load(Ordering::Relaxed), readings);
            sleep(MAX_AGE).await;
        }
    }
}
