//! The lines of connects and disconnects: at most 20 a second, and a sum of the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::Instant;
use slipgate_session::connection::{CloseKind, CloseReason};
use slipgate_session::server::{ConnectionTotals, SessionEvent, SessionServer};
use tracing::info;

use super::counts::list;
use super::limit::LineLimit;
use crate::disconnect_counts::DisconnectCounts;
use crate::rounded::{rounded, seconds};

/// The most lines of connects and disconnects in a second. A join of all players after a restart is summed up beyond
/// that; a client that reconnects in a loop fills no disk.
const MAX_LINES_PER_SECOND: u32 = 20;

/// The lines of clients.
pub(super) struct ClientLines {
    limit: LineLimit,
    /// The connects without a line, and the disconnects without one by reason, since the last sum.
    connects: u32,
    disconnects: BTreeMap<&'static str, u64>,
    /// All disconnects by reason, with and without a line.
    disconnect_reasons: DisconnectCounts,
    /// The number of clients with a reported connect and no reported disconnect, of all shards.
    connected: Arc<AtomicU32>,
    /// When the client of each slot connected.
    since: Vec<Option<Instant>>,
}

impl ClientLines {
    pub(super) fn new() -> Self {
        Self {
            limit: LineLimit::new(MAX_LINES_PER_SECOND),
            connects: 0,
            disconnects: BTreeMap::new(),
            disconnect_reasons: DisconnectCounts::default(),
            connected: Arc::default(),
            since: Vec::new(),
        }
    }

    /// Counts connected clients together with other shards from now on.
    pub(super) fn count_with(&mut self, shards: &Arc<AtomicU32>) {
        self.connected = Arc::clone(shards);
    }

    pub(super) const fn disconnect_reasons(&self) -> DisconnectCounts {
        self.disconnect_reasons
    }

    fn connected(&self) -> u32 {
        self.connected.load(Ordering::Relaxed)
    }

    /// Logs a connect or a disconnect, or counts it for the sum.
    pub(super) fn on_event(&mut self, event: &SessionEvent, server: &SessionServer, now: Instant) {
        match event {
            SessionEvent::Packet { .. } | SessionEvent::Channel { .. } | SessionEvent::Partial { .. } => {}
            SessionEvent::Connected { client, client_id } => {
                self.set_since(*client, now);
                if !self.count_connect(now) {
                    return;
                }
                let address = server.netcode.client(*client).and_then(|info| info.address);
                let address = address.map_or_else(|| "loopback".to_owned(), |address| address.to_string());
                let (slot, connected) = (client.slot().0, self.connected());
                info!(%client_id, slot, %address, connected, "client connected");
            }
            SessionEvent::Disconnected { client, client_id, reason, totals } => {
                let duration = self.take_duration(*client, now);
                let CloseReason { kind, code, text, .. } = reason;
                if !self.count_disconnect(*kind, now) {
                    return;
                }
                let (slot, connected) = (client.slot().0, self.connected());
                let (reason, code) = (kind.name(), code.map(|code| code.0));
                // Only these kinds carry more information than their name.
                let detail = Some(kind.to_string()).filter(|detail| detail != reason);
                let text = Some(text.as_str()).filter(|text| !text.is_empty());
                let ConnectionTotals { bytes_sent, bytes_received, round_trip, loss, .. } = *totals;
                info!(
                    %client_id,
                    slot,
                    %reason,
                    code,
                    text,
                    detail,
                    seconds = duration.map(seconds),
                    round_trip_ms = round_trip.map(|time| rounded(1000.0 * time.as_secs_f64())),
                    loss_percent = loss.map(|share| rounded(100.0 * share)),
                    bytes_sent,
                    bytes_received,
                    connected,
                    "client disconnected"
                );
            }
        }
    }

    /// Records when the client of a slot connected.
    fn set_since(&mut self, client: ClientHandle, now: Instant) {
        let slot = client.slot().0 as usize;
        if slot >= self.since.len() {
            self.since.resize(slot + 1, None);
        }
        if let Some(since) = self.since.get_mut(slot) {
            *since = Some(now);
        }
    }

    /// Returns when the client of a slot connected.
    pub(super) fn since(&self, client: ClientHandle) -> Option<Instant> {
        *self.since.get(client.slot().0 as usize)?
    }

    /// Returns for how long the client of a slot was connected.
    fn take_duration(&mut self, client: ClientHandle, now: Instant) -> Option<Duration> {
        let since = self.since.get_mut(client.slot().0 as usize)?.take()?;
        Some(now.since(since))
    }

    /// Counts a connect. Returns whether it gets a line of its own.
    fn count_connect(&mut self, now: Instant) -> bool {
        self.sum_up(now);
        self.connected.fetch_add(1, Ordering::Relaxed);
        let has_line = self.limit.take(now);
        self.connects += u32::from(!has_line);
        has_line
    }

    /// Counts a disconnect. Returns whether it gets a line of its own.
    fn count_disconnect(&mut self, kind: CloseKind, now: Instant) -> bool {
        self.sum_up(now);
        self.disconnect_reasons += kind;
        self.connected.fetch_sub(1, Ordering::Relaxed);
        let has_line = self.limit.take(now);
        if !has_line {
            *self.disconnects.entry(kind.name()).or_default() += 1;
        }
        has_line
    }

    /// Logs the sum of what got no line, when its second is over.
    pub(super) fn sum_up(&mut self, now: Instant) {
        if self.limit.is_over(now) {
            self.flush();
        }
    }

    /// Logs the sum of what got no line yet, at the end of the server.
    pub(super) fn flush(&mut self) {
        let Some((connects, reasons)) = self.take_sum() else { return };
        let disconnects: u64 = reasons.values().sum();
        let (reasons, connected) = (list(reasons.into_iter()), self.connected());
        info!(connects, disconnects, %reasons, connected, "further clients connected or disconnected within a second");
    }

    fn take_sum(&mut self) -> Option<(u32, BTreeMap<&'static str, u64>)> {
        let sum = (std::mem::take(&mut self.connects), std::mem::take(&mut self.disconnects));
        (sum.0 > 0 || !sum.1.is_empty()).then_some(sum)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing::Level;

    use super::*;
    use crate::test_log::count_lines;

    #[test]
    fn connects_and_disconnects_are_summed_above_20_a_second() {
        let at = |millis: u64| Instant::from_start(Duration::from_millis(millis));
        let mut lines = ClientLines::new();
        // 947 connects a second, each followed by a disconnect.
        let with_line = (0..947).map(|number| {
            let now = at(number * 1000 / 947);
            u32::from(lines.count_connect(now)) + u32::from(lines.count_disconnect(CloseKind::TimedOut, now))
        });
        assert_eq!(with_line.sum::<u32>(), MAX_LINES_PER_SECOND);
        lines.sum_up(at(999));
        assert_eq!((lines.connects, lines.disconnects["timed_out"]), (937, 937), "the second is not over");
        lines.sum_up(at(1000));
        assert_eq!(lines.take_sum(), None, "the sum was written");
        assert!(lines.count_connect(at(5001)), "a single client has a line again");
        assert_eq!(lines.connected(), 1);
    }

    #[test]
    fn sum_names_the_reasons_of_its_disconnects_and_all_are_counted() {
        let (mut lines, now) = (ClientLines::new(), Instant::default());
        let with_line = (0..MAX_LINES_PER_SECOND).filter(|_| lines.count_disconnect(CloseKind::Left, now));
        assert_eq!(with_line.count(), 20);
        for (kind, count) in [(CloseKind::TimedOut, 31), (CloseKind::Left, 2)] {
            assert!((0..count).all(|_| !lines.count_disconnect(kind, now)));
        }
        // Those with a line of their own are not in the sum.
        let (_, sums) = count_lines(Level::INFO, "reasons=left: 2, timed_out: 31", || lines.flush());
        assert_eq!(sums, 1);
        let counted: Vec<_> = lines.disconnect_reasons().iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("left", 22), ("timed_out", 31)]);
        assert!((0..21).filter(|_| lines.count_connect(now)).count() == 0);
        let (_, sums) = count_lines(Level::INFO, "reasons=none", || lines.flush());
        assert_eq!(sums, 1, "only connects");
    }

    #[test]
    fn shards_count_connected_clients_together() {
        let (now, all) = (Instant::default(), Arc::default());
        let mut shards = [ClientLines::new(), ClientLines::new()];
        shards.iter_mut().for_each(|lines| lines.count_with(&all));
        assert!(shards[0].count_connect(now) && shards[1].count_connect(now));
        assert_eq!(shards.each_ref().map(ClientLines::connected), [2, 2]);
        assert!(shards[0].count_disconnect(CloseKind::Left, now));
        assert_eq!(shards[1].connected(), 1);
    }
}
