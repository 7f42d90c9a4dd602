//! The open connections: which of them gives way to a new one.
//!
//! ```text
//!  the new one's address has too many unauthenticated ones ─▶ the longest idle of these gives way
//!  no place is free, unauthenticated ones have an eighth   ─▶ the longest idle unauthenticated one
//!  no place is free                                        ─▶ the longest idle authenticated one
//! ```

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::Instant;

use super::HttpLimits;
use super::connection_state::ConnectionState;
use super::peer::ConnectionSource;

/// Unauthenticated connections can take one of this many places from idle authenticated ones.
const UNAUTHENTICATED_SHARE: usize = 8;
/// One scan finds up to this many connections that give way one after the other. A scan visits the state of each
/// connection, which costs as much as accepting one.
const MAX_FOUND: usize = 16;
/// The maximum number of connections beyond [`HttpLimits::connections`]: these have given way, and are being closed.
/// It is never more than that setting.
pub const MAX_CLOSING: usize = 32;

struct Entry {
    id: Id,
    task: AbortHandle,
    source: ConnectionSource,
    state: Arc<ConnectionState>,
}

/// The tasks of all open connections. A connection that was asked to close counts until its task has ended.
pub(super) struct Connections {
    limits: HttpLimits,
    tasks: JoinSet<()>,
    /// The connections that were not asked to close. At most `limits.connections`, so a scan takes microseconds.
    entries: Vec<Entry>,
    /// The connections that give way next, the longest idle one last.
    next: Vec<FoundIdle>,
    /// The number of connections that may begin or end until others than `next` give way: unauthenticated ones instead
    /// of authenticated ones, or the reverse.
    next_is_valid_for: usize,
    /// Notified when a connection that could not give way can, because it has been served.
    can_give_way: Arc<Notify>,
}

/// A connection that a scan found idle.
#[derive(Clone, Copy)]
struct FoundIdle {
    id: Id,
    is_authenticated: bool,
    /// The moment of its last progress. While that is the same, no connection of its kind has been idle for longer.
    since: Instant,
}

impl Connections {
    pub(super) fn new(limits: HttpLimits) -> Self {
        let (tasks, entries, next) = (JoinSet::new(), Vec::new(), Vec::new());
        Self { limits, tasks, entries, next, next_is_valid_for: 0, can_give_way: Arc::default() }
    }

    /// Returns whether one more connection may be accepted. It does not wait for the ends of those that gave way, up to
    /// [`MAX_CLOSING`]: otherwise a new connection would wait until tasks have run that compete with it.
    pub(super) fn can_accept(&self) -> bool {
        let open = self.limits.connections.max(1);
        self.tasks.len() < open.saturating_add(open.min(MAX_CLOSING))
    }

    /// Closes a connection if a new one from `source` needs its place. Returns `false` if none can give way now: the
    /// caller tries again after [`Self::wait_for_room`].
    pub(super) fn make_room(&mut self, source: ConnectionSource) -> bool {
        let (of_source, longest_idle) = self.unauthenticated_of(source);
        if of_source >= self.limits.connections_per_address.max(1) {
            return longest_idle.is_some_and(|index| self.close(index));
        }
        self.entries.len() < self.limits.connections.max(1) || self.close_any()
    }

    /// Closes the connection that is needed least. Returns `false` if all are answering requests.
    pub(super) fn close_any(&mut self) -> bool {
        self.close_next() || {
            self.find_next();
            self.close_next()
        }
    }

    /// Closes the connection that the last scan found for this. Returns `false` if a new scan is needed.
    fn close_next(&mut self) -> bool {
        let Some(found) = self.next.pop().filter(|_| self.next_is_valid_for > 0) else { return false };
        let is_same = |entry: &Entry| {
            entry.state.is_authenticated() == found.is_authenticated && entry.state.idle_since() == Some(found.since)
        };
        let index = self.entries.iter().position(|entry| entry.id == found.id);
        let index = index.filter(|index| self.entries.get(*index).is_some_and(is_same));
        index.is_some_and(|index| self.close(index))
    }

    /// Finds the connections that give way next.
    ///
    /// Unauthenticated connections keep some places. Otherwise each new one would replace the previous one, with its
    /// request still on the way, while authenticated ones sit idle.
    fn find_next(&mut self) {
        let unauthenticated = self.entries.iter().filter(|entry| !entry.state.is_authenticated()).count();
        let places = self.unauthenticated_places();
        if unauthenticated >= places {
            self.next_is_valid_for = unauthenticated - places + 1;
            return self.find_idle(false);
        }
        self.next_is_valid_for = places - unauthenticated;
        self.find_idle(true);
        if self.next.is_empty() {
            self.next_is_valid_for = 1;
            self.find_idle(false);
        }
    }

    /// Finds the connections of one kind that have been idle longest.
    fn find_idle(&mut self, is_authenticated: bool) {
        let entries = self.entries.iter().filter(|entry| entry.state.is_authenticated() == is_authenticated);
        let found = entries.filter_map(|Entry { id, state, .. }| {
            state.idle_since().map(|since| FoundIdle { id: *id, is_authenticated, since })
        });
        self.next.clear();
        self.next.extend(found);
        self.next.sort_unstable_by_key(|found| core::cmp::Reverse(found.since));
        let excess = self.next.len().saturating_sub(MAX_FOUND);
        self.next.drain(..excess);
    }

    /// Returns how many places unauthenticated connections keep.
    const fn unauthenticated_places(&self) -> usize {
        let places = self.limits.connections / UNAUTHENTICATED_SHARE;
        if places == 0 { 1 } else { places }
    }

    /// Waits until a connection has ended, or can give way.
    pub(super) async fn wait_for_room(&mut self) {
        let can_give_way = Arc::clone(&self.can_give_way);
        tokio::select! {
            true = self.next_end() => {}
            () = can_give_way.notified() => {}
        }
    }

    /// Returns the number of unauthenticated connections of one source, and the index of the longest idle one. Visits
    /// the states of that source's connections only.
    fn unauthenticated_of(&self, source: ConnectionSource) -> (usize, Option<usize>) {
        let of_source = self.entries.iter().enumerate().filter(|(_, entry)| entry.source == source);
        let unauthenticated = of_source.filter(|(_, entry)| !entry.state.is_authenticated());
        let idle = |(index, entry): (usize, &Entry)| entry.state.idle_since().map(|since| (since, index));
        let longest_idle = unauthenticated.clone().filter_map(idle).min();
        (unauthenticated.count(), longest_idle.map(|(_, index)| index))
    }

    fn close(&mut self, index: usize) -> bool {
        self.entries.swap_remove(index).task.abort();
        true
    }

    /// Returns the state of a connection that was accepted now.
    pub(super) fn new_state(&self, now: Instant) -> ConnectionState {
        ConnectionState::new(now, Arc::clone(&self.can_give_way))
    }

    /// Starts the task of a connection.
    pub(super) fn spawn(
        &mut self,
        source: ConnectionSource,
        state: Arc<ConnectionState>,
        connection: impl Future<Output = ()> + Send + 'static,
    ) {
        // Boxed, because the runtime would move the connection's few kilobytes several times.
        let task = self.tasks.spawn(Box::pin(connection));
        self.next_is_valid_for = self.next_is_valid_for.saturating_sub(1);
        self.entries.push(Entry { id: task.id(), task, source, state });
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
        // One that gave way is no longer among them.
        if let Some(index) = self.entries.iter().position(|entry| entry.id == id) {
            self.entries.swap_remove(index);
            self.next_is_valid_for = self.next_is_valid_for.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;
    use core::time::Duration;

    use super::*;

    fn limits(connections: usize, connections_per_address: usize) -> HttpLimits {
        HttpLimits { connections, connections_per_address, ..HttpLimits::default() }
    }

    fn source(text: &str) -> ConnectionSource {
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
            self.connections.make_room(source(address)).then(|| {
                let state = Arc::new(self.connections.new_state(now));
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
        first.on_head(table.at(30));
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

    /// 512 connections of 64 addresses, a millisecond apart.
    fn full_table() -> Table {
        let mut table = Table::new(limits(512, 64));
        for millis in 0..512 {
            table.open(&format!("192.0.2.{}", millis % 64), millis).unwrap();
        }
        table
    }

    #[tokio::test]
    async fn many_new_connections_replace_the_longest_idle_in_order() {
        let mut table = full_table();
        for millis in 512..1000 {
            table.open(&format!("192.0.2.{}", millis % 64), millis).unwrap();
            let oldest = millis as usize - 511;
            assert_eq!(table.is_open(), (oldest..=millis as usize).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn authenticated_connections_found_by_one_scan_give_way_in_order() {
        let mut table = full_table();
        table.opened.iter().for_each(|state| state.authenticate());
        for (millis, found) in (600..600 + 2 * MAX_FOUND as u64).zip((0..MAX_FOUND).rev().cycle()) {
            table.open(&format!("192.0.2.{}", millis % 64), millis).unwrap();
            assert_eq!(table.connections.next.len(), found, "the rest of a scan");
            let closed = millis as usize - 599;
            assert_eq!(table.is_open().first(), Some(&closed));
        }
    }

    #[tokio::test]
    async fn scan_is_valid_until_another_kind_of_connections_gives_way() {
        let mut table = full_table();
        let places = table.connections.unauthenticated_places();
        // One less than the places that unauthenticated ones keep.
        table.opened.iter().skip(places - 1).for_each(|state| state.authenticate());
        table.open("192.0.2.70", 600).unwrap();
        table.open("192.0.2.70", 601).unwrap();
        let closed: Vec<usize> = (0..512).filter(|index| !table.is_open().contains(index)).collect();
        assert_eq!(closed, [0, places - 1], "the longest idle authenticated one, then the unauthenticated one");
    }

    #[tokio::test]
    async fn connection_found_idle_that_made_progress_does_not_give_way() {
        let mut table = full_table();
        table.open("192.0.2.70", 600).unwrap();
        assert_eq!(table.connections.next.len(), MAX_FOUND - 1, "the scan found the next ones");
        table.opened[1].on_head(table.at(601));
        table.opened[2].authenticate();
        table.opened[4].on_body(table.at(601));
        for millis in 602..606 {
            table.open("192.0.2.70", millis).unwrap();
        }
        let closed = |table: &Table| (0..512).filter(|index| !table.is_open().contains(index)).collect::<Vec<_>>();
        assert_eq!(
            closed(&table),
            [0, 3, 5, 6, 7],
            "one made progress, one has authenticated, one has sent its request"
        );
        assert!(table.connections.next_end().await);
    }

    #[tokio::test]
    async fn connection_with_an_open_request_is_not_closed() {
        let mut table = Table::new(limits(1, 8));
        let only = table.open("192.0.2.1", 0).unwrap();
        only.on_body(table.at(10));
        only.authenticate();
        assert!(table.open("192.0.2.2", 20).is_none());
        only.on_response(table.at(30), true);
        assert!(table.open("192.0.2.2", 40).is_some());
    }

    #[tokio::test]
    async fn authenticated_connection_without_its_body_gives_way() {
        let mut table = Table::new(limits(1, 8));
        let only = table.open("192.0.2.1", 0).unwrap();
        only.authenticate();
        only.on_head(table.at(10));
        assert!(table.open("192.0.2.2", 20).is_some());
    }

    #[tokio::test]
    async fn connection_that_was_not_served_yet_is_not_closed() {
        let mut connections = Connections::new(limits(1, 1));
        let now = Instant::now();
        let state = Arc::new(connections.new_state(now));
        assert!(connections.make_room(source("192.0.2.1")));
        connections.spawn(source("192.0.2.1"), Arc::clone(&state), std::future::pending());
        assert!(!connections.make_room(source("192.0.2.1")) && !connections.make_room(source("192.0.2.2")));
        state.on_wait();
        assert!(connections.make_room(source("192.0.2.1")));
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
    async fn new_connections_do_not_wait_for_those_that_gave_way() {
        for (open, closing) in [(1, 1), (MAX_CLOSING + 8, MAX_CLOSING)] {
            let mut table = Table::new(limits(open, 2 * open));
            for millis in 0..(open + closing) as u64 {
                // No task has run since the first one: each connection that gave way is still open.
                assert!(table.connections.can_accept(), "{millis} connections of {open}");
                table.open("192.0.2.1", millis).unwrap();
            }
            assert!(!table.connections.can_accept(), "{closing} connections are closing");
            for _ in 0..closing {
                assert!(table.connections.next_end().await);
                assert!(table.connections.can_accept());
            }
            (0..open).for_each(|_| assert!(table.connections.close_any()));
            for _ in 0..open {
                assert!(table.connections.next_end().await);
            }
            assert!(!table.connections.next_end().await, "all have ended");
        }
    }

    #[tokio::test]
    async fn room_is_made_when_a_connection_has_been_served() {
        let mut table = Table::new(limits(1, 8));
        let only = table.open("192.0.2.1", 0).unwrap();
        only.authenticate();
        only.on_body(table.at(1));
        table.connections.wait_for_room().await;
        let wait = tokio::time::timeout(Duration::from_millis(20), table.connections.wait_for_room());
        assert!(wait.await.is_err(), "it is answering");
        only.on_response(table.at(2), true);
        table.connections.wait_for_room().await;
        assert!(table.connections.make_room(source("192.0.2.1")));
    }
}
