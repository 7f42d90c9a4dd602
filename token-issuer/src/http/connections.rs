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
/// connection, which is more than accepting one costs when many are opened.
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
    /// Unauthenticated connections that give way next, the longest idle one last.
    next: Vec<FoundIdle>,
    /// Notified when a connection that could not give way can, because it has been served.
    can_give_way: Arc<Notify>,
}

/// An unauthenticated connection that a scan found idle.
#[derive(Clone, Copy)]
struct FoundIdle {
    id: Id,
    /// The moment of its last progress. While that is the same, no connection has been idle for longer.
    since: Instant,
}

/// One kind of connections: how many there are, and the longest idle one.
#[derive(Clone, Copy, Default)]
struct Group {
    count: usize,
    /// The idle time and the index. `None` if none can give way now.
    longest_idle: Option<(u64, usize)>,
}

impl Group {
    fn add(&mut self, idle_micros: Option<u64>, index: usize) {
        self.count += 1;
        self.longest_idle = self.longest_idle.max(idle_micros.map(|micros| (micros, index)));
    }
}

/// All connections by kind, from one pass over them.
#[derive(Default)]
struct Groups {
    authenticated: Group,
    unauthenticated: Group,
}

impl Connections {
    pub(super) fn new(limits: HttpLimits) -> Self {
        Self { limits, tasks: JoinSet::new(), entries: Vec::new(), next: Vec::new(), can_give_way: Arc::default() }
    }

    /// Returns whether one more connection may be accepted. It does not wait for the ends of those that gave way, up to
    /// [`MAX_CLOSING`]: otherwise a new connection would wait until tasks have run that compete with it.
    pub(super) fn can_accept(&self) -> bool {
        let open = self.limits.connections.max(1);
        self.tasks.len() < open.saturating_add(open.min(MAX_CLOSING))
    }

    /// Closes a connection if a new one from `source` needs its place. Returns `false` if none can give way now: the
    /// caller tries again after [`Self::wait_for_room`].
    pub(super) fn make_room(&mut self, source: ConnectionSource, now: Instant) -> bool {
        let of_source = self.unauthenticated_of(source, now);
        if of_source.count >= self.limits.connections_per_address.max(1) {
            return self.close(of_source.longest_idle);
        }
        self.entries.len() < self.limits.connections.max(1) || self.close_next(now) || self.close_any(now)
    }

    /// Closes the connection that is needed least. Returns `false` if all are answering requests.
    pub(super) fn close_any(&mut self, now: Instant) -> bool {
        let groups = self.groups(now);
        self.find_next(&groups, now);
        self.close(self.least_needed(&groups))
    }

    /// Closes the connection that the last scan found for this. Returns `false` if a new scan is needed.
    fn close_next(&mut self, now: Instant) -> bool {
        let Some(found) = self.next.pop() else { return false };
        let index = self.entries.iter().position(|entry| entry.id == found.id);
        let is_same =
            |entry: &Entry| !entry.state.is_authenticated() && entry.state.idle_since(now) == Some(found.since);
        let index = index.filter(|index| self.entries.get(*index).is_some_and(is_same));
        if index.is_none() {
            self.next.clear();
        }
        self.close(index.map(|index| (0, index)))
    }

    /// Finds the connections that give way behind the first one. There are none unless many more unauthenticated ones
    /// are open than keep their places: then these give way whatever becomes of the others.
    fn find_next(&mut self, groups: &Groups, now: Instant) {
        self.next.clear();
        if groups.unauthenticated.count < self.unauthenticated_places() + 4 * MAX_FOUND {
            return;
        }
        let found = self.entries.iter().filter(|entry| !entry.state.is_authenticated());
        let found = found.filter_map(|entry| Some(FoundIdle { id: entry.id, since: entry.state.idle_since(now)? }));
        self.next.extend(found);
        self.next.sort_unstable_by_key(|found| core::cmp::Reverse(found.since));
        // The longest idle one is closed now.
        self.next.pop();
        let excess = self.next.len().saturating_sub(MAX_FOUND - 1);
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

    fn least_needed(&self, groups: &Groups) -> Option<(u64, usize)> {
        // Unauthenticated connections keep some places. Otherwise each new one would replace the previous one, with its
        // request still on the way, while authenticated ones sit idle.
        let (first, second) = if groups.unauthenticated.count < self.unauthenticated_places() {
            (groups.authenticated, groups.unauthenticated)
        } else {
            (groups.unauthenticated, Group::default())
        };
        first.longest_idle.or(second.longest_idle)
    }

    fn groups(&self, now: Instant) -> Groups {
        let mut groups = Groups::default();
        for (index, entry) in self.entries.iter().enumerate() {
            let idle = entry.state.idle_micros(now);
            let is_authenticated = entry.state.is_authenticated();
            (if is_authenticated { &mut groups.authenticated } else { &mut groups.unauthenticated }).add(idle, index);
        }
        groups
    }

    /// Returns the unauthenticated connections of one source. It visits the states of that source's connections only.
    fn unauthenticated_of(&self, source: ConnectionSource, now: Instant) -> Group {
        let mut group = Group::default();
        for (index, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.source == source) {
            if !entry.state.is_authenticated() {
                group.add(entry.state.idle_micros(now), index);
            }
        }
        group
    }

    fn close(&mut self, found: Option<(u64, usize)>) -> bool {
        if let Some((_, index)) = found {
            self.entries.swap_remove(index).task.abort();
        }
        found.is_some()
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
        let task = self.tasks.spawn(connection);
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
        self.entries.retain(|entry| entry.id != id);
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
            self.connections.make_room(source(address), now).then(|| {
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
            (0..open).for_each(|millis| assert!(table.connections.close_any(table.at(100 + millis as u64))));
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
        assert!(table.connections.make_room(source("192.0.2.1"), table.at(3)));
    }
}
