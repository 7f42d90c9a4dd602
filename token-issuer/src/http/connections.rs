//! The open connections: which of them gives way to a new one.
//!
//! ```text
//!  the new one's address has too many unauthenticated ones ─▶ the longest idle of these gives way
//!  no place is free, unauthenticated ones have an eighth   ─▶ the longest idle unauthenticated one
//!  no place is free                                        ─▶ the longest idle authenticated one
//! ```

use core::net::{IpAddr, Ipv6Addr};
use std::future::Future;
use std::sync::Arc;

use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::Instant;

use super::HttpLimits;
use super::connection_state::ConnectionState;

/// The part of all places that unauthenticated connections can take from idle authenticated ones: one in so many.
const UNAUTHENTICATED_SHARE: usize = 8;

/// The unit of the limit for each address: an IPv4 address, or the /64 of an IPv6 address, which is one host's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        })
    }
}

struct Entry {
    task: AbortHandle,
    source: Source,
    state: Arc<ConnectionState>,
}

/// The tasks of all open connections. A connection that was told to close counts until its task has ended.
pub(super) struct Connections {
    limits: HttpLimits,
    tasks: JoinSet<()>,
    /// The connections that were not told to close. At most `limits.connections`, so a scan takes microseconds.
    entries: Vec<Entry>,
}

impl Connections {
    pub(super) fn new(limits: HttpLimits) -> Self {
        Self { limits, tasks: JoinSet::new(), entries: Vec::new() }
    }

    /// Returns whether one more connection may be accepted. It may exceed the limit by one until another has closed.
    pub(super) fn can_accept(&self) -> bool {
        self.tasks.len() <= self.limits.connections.max(1)
    }

    /// Closes a connection if a new one from `source` needs its place. Returns `false` if none can give way now: the
    /// caller tries again when the waiting requests have been served.
    pub(super) fn make_room(&mut self, source: Source, now: Instant) -> bool {
        let is_of_source = |entry: &Entry| entry.source == source && !entry.state.is_authenticated();
        if self.count(is_of_source) >= self.limits.connections_per_address.max(1) {
            return self.close_longest_idle(now, is_of_source);
        }
        self.entries.len() < self.limits.connections.max(1) || self.close_any(now)
    }

    /// Closes the connection that is needed least. Returns `false` if all are answering requests.
    pub(super) fn close_any(&mut self, now: Instant) -> bool {
        // Unauthenticated connections keep some places. Otherwise each new one would replace the previous one, with its
        // request still on the way, while authenticated ones sit idle.
        let places = (self.limits.connections / UNAUTHENTICATED_SHARE).max(1);
        let is_authenticated = |entry: &Entry| entry.state.is_authenticated();
        let are_few = self.count(|entry| !is_authenticated(entry)) < places;
        are_few && self.close_longest_idle(now, is_authenticated)
            || self.close_longest_idle(now, |entry| !is_authenticated(entry))
    }

    fn count(&self, is_counted: impl Fn(&Entry) -> bool) -> usize {
        self.entries.iter().filter(|entry| is_counted(entry)).count()
    }

    fn close_longest_idle(&mut self, now: Instant, may_close: impl Fn(&Entry) -> bool) -> bool {
        let candidates = self.entries.iter().enumerate().filter(|(_, entry)| may_close(entry));
        let idle = candidates.filter_map(|(index, entry)| Some((entry.state.idle_micros(now)?, index)));
        match idle.max() {
            Some((_, index)) => {
                self.entries.swap_remove(index).task.abort();
                true
            }
            None => false,
        }
    }

    /// Starts the task of a connection.
    pub(super) fn spawn(
        &mut self,
        source: Source,
        state: Arc<ConnectionState>,
        connection: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.tasks.spawn(connection);
        self.entries.push(Entry { task, source, state });
    }

    /// Waits for the end of a connection. Returns `false` if there is none.
    pub(super) async fn next_end(&mut self) -> bool {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => self.remove(id),
            Some(Err(error)) => self.remove(error.id()),
            None => return false,
        }
        true
    }

    fn remove(&mut self, id: Id) {
        self.entries.retain(|entry| entry.task.id() != id);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn limits(connections: usize, connections_per_address: usize) -> HttpLimits {
        HttpLimits { connections, connections_per_address, ..HttpLimits::default() }
    }

    fn source(text: &str) -> Source {
        text.parse::<IpAddr>().unwrap().into()
    }

    /// A table of connections that never end by themselves.
    struct Table {
        connections: Connections,
        start: Instant,
        opened: Vec<Arc<ConnectionState>>,
    }

    impl Table {
        fn new(limits: HttpLimits) -> Self {
            Self { connections: Connections::new(limits), start: Instant::now(), opened: Vec::new() }
        }

        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }

        /// Opens a connection at this time. Returns `None` if there was no room.
        fn open(&mut self, address: &str, millis: u64) -> Option<Arc<ConnectionState>> {
            let now = self.at(millis);
            self.connections.make_room(source(address), now).then(|| {
                let state = Arc::new(ConnectionState::new(now));
                state.on_wait();
                self.connections.spawn(source(address), Arc::clone(&state), std::future::pending());
                self.opened.push(Arc::clone(&state));
                state
            })
        }

        /// Returns the positions of the open connections, in the order in which they were opened.
        fn is_open(&self) -> Vec<usize> {
            let is_open = |state: &Arc<ConnectionState>| {
                self.connections.entries.iter().any(|entry| Arc::ptr_eq(&entry.state, state))
            };
            (0..self.opened.len()).filter(|index| is_open(&self.opened[*index])).collect()
        }
    }

    #[tokio::test]
    async fn longest_idle_connection_gives_way_when_all_places_are_taken() {
        let mut table = Table::new(limits(3, 8));
        let first = table.open("192.0.2.1", 0).unwrap();
        table.open("192.0.2.2", 10).unwrap();
        table.open("192.0.2.3", 20).unwrap();
        first.on_request(table.at(30));
        table.open("192.0.2.4", 40).unwrap();
        assert_eq!(table.is_open(), [0, 2, 3], "the first one made progress");
    }

    #[tokio::test]
    async fn authenticated_connection_gives_way_last() {
        let mut table = Table::new(limits(2, 8));
        table.open("192.0.2.1", 0).unwrap().authenticate();
        table.open("192.0.2.2", 10).unwrap();
        table.open("192.0.2.3", 20).unwrap().authenticate();
        assert_eq!(table.is_open(), [0, 2]);
        table.open("192.0.2.4", 30).unwrap();
        assert_eq!(table.is_open(), [2, 3], "only authenticated ones were left");
    }

    #[tokio::test]
    async fn unauthenticated_connections_keep_an_eighth_of_the_places() {
        let mut table = Table::new(limits(16, 8));
        for millis in 0..16 {
            table.open("192.0.2.1", millis).unwrap().authenticate();
        }
        for millis in 16..19 {
            table.open("192.0.2.2", millis).unwrap();
        }
        let expected: Vec<usize> = (2..16).chain(17..19).collect();
        assert_eq!(table.is_open(), expected, "two took the places of idle ones, the third that of the first");
    }

    #[tokio::test]
    async fn connection_that_answers_a_request_is_not_closed() {
        let mut table = Table::new(limits(1, 8));
        let only = table.open("192.0.2.1", 0).unwrap();
        only.on_request(table.at(10));
        only.authenticate();
        assert!(table.open("192.0.2.2", 20).is_none());
        assert!(table.open("192.0.2.2", 1_010).is_some(), "the request does not arrive");
    }

    #[tokio::test]
    async fn connection_that_was_not_served_yet_is_not_closed() {
        let mut connections = Connections::new(limits(1, 1));
        let (now, state) = (Instant::now(), Arc::new(ConnectionState::new(Instant::now())));
        assert!(connections.make_room(source("192.0.2.1"), now));
        connections.spawn(source("192.0.2.1"), Arc::clone(&state), std::future::pending());
        assert!(!connections.make_room(source("192.0.2.1"), now) && !connections.make_room(source("192.0.2.2"), now));
        state.on_wait();
        assert!(connections.make_room(source("192.0.2.1"), now));
    }

    #[tokio::test]
    async fn one_address_has_a_limit_of_unauthenticated_connections() {
        let mut table = Table::new(limits(100, 2));
        table.open("192.0.2.1", 0).unwrap().authenticate();
        table.open("192.0.2.9", 1).unwrap();
        for millis in 2..6 {
            table.open("192.0.2.1", millis).unwrap();
        }
        assert_eq!(table.is_open(), [0, 1, 4, 5], "the authenticated one and the other address do not count");
    }

    #[tokio::test]
    async fn ended_connections_leave_the_table() {
        let mut connections = Connections::new(limits(1, 8));
        let now = Instant::now();
        for _ in 0..3 {
            assert!(connections.make_room(source("192.0.2.1"), now));
            let state = Arc::new(ConnectionState::new(now));
            state.on_wait();
            connections.spawn(source("192.0.2.1"), state, std::future::pending());
        }
        assert!(!connections.can_accept(), "two are closing");
        assert!(connections.next_end().await && connections.next_end().await);
        assert!(connections.can_accept());
        assert!(connections.close_any(now) && connections.next_end().await && !connections.next_end().await);
    }

    #[test]
    fn hosts_of_one_ipv6_network_count_together() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }
}
