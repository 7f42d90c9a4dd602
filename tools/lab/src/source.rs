//! The traffic of an application: a game's ticks, a transfer, or both.

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// The maximum size of a packet on the path, in bytes.
pub const MAX_PACKET_BYTES: u32 = 1200;
/// The minimum size of a transfer's packet, in bytes.
const MIN_PACKET_BYTES: f64 = 256.0;
/// The transmission time of a transfer's packet at the current rate, in seconds, so that it delays the game little.
const PACKET_TIME: f64 = 0.010;
/// A game's data that could not be sent within this time is stale and dropped.
const STALE: Duration = Duration::from_millis(200);

/// The traffic of an application.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Source {
    /// As much as the controller permits.
    Bulk,
    /// Ticks of a game.
    Game(Game),
    /// The ticks of a game, and a transfer with lower priority.
    GameAndTransfer {
        /// The game.
        game: Game,
        /// When the transfer starts.
        from: Duration,
        /// Its size, in bytes.
        bytes: f64,
        /// When another transfer of that size starts, if any.
        again: Option<Duration>,
    },
}

/// The ticks of a game.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Game {
    /// Bytes per second.
    pub rate: f64,
    /// Ticks per second.
    pub ticks: f64,
}

impl Game {
    /// Creates a game of this rate at 60 ticks per second. A tick of several packets is spread over its interval, so
    /// that they do not wait for each other.
    #[must_use]
    pub fn of(bits_per_second: f64) -> Self {
        let rate = bits_per_second / 8.0;
        let packets = libm::ceil(rate / 60.0 / f64::from(MAX_PACKET_BYTES)).max(1.0);
        Self { rate, ticks: 60.0 * packets }
    }

    /// Returns the bytes of a tick: whole ones, so that a tick is sent completely by its packets.
    fn tick_bytes(&self) -> f64 {
        libm::round(self.rate / self.ticks)
    }

    /// Returns the game of Fiedler, "Reliability, Ordering and Congestion Avoidance over UDP": 30 packets of 256 bytes
    /// per second.
    #[must_use]
    pub const fn of_fiedlers_article() -> Self {
        Self { rate: 30.0 * 256.0, ticks: 30.0 }
    }
}

impl Source {
    /// Returns the demand in bytes per second; `None` for bulk.
    #[must_use]
    pub const fn rate(&self) -> Option<f64> {
        match self {
            Self::Bulk => None,
            Self::Game(game) | Self::GameAndTransfer { game, .. } => Some(game.rate),
        }
    }

    fn tick_bytes(&self) -> f64 {
        match self {
            Self::Bulk => 0.0,
            Self::Game(game) | Self::GameAndTransfer { game, .. } => game.tick_bytes(),
        }
    }
}

/// The state of an application.
#[derive(Clone, Debug)]
pub struct Application {
    source: Source,
    started_at: Instant,
    next_tick: Instant,
    ticks: u64,
    /// Waiting bytes of the game.
    fresh: f64,
    /// Waiting bytes of the transfer; infinite for bulk.
    transfer: f64,
    transfers_started: usize,
}

impl Application {
    /// Creates an application that starts at a moment.
    #[must_use]
    pub fn new(source: Source, started_at: Instant) -> Self {
        let transfer = if source == Source::Bulk { f64::INFINITY } else { 0.0 };
        let next_tick = started_at;
        Self { source, started_at, next_tick, ticks: 0, fresh: 0.0, transfer, transfers_started: 0 }
    }

    /// Advances the time. Calls `demand` with the bytes of each new demand.
    pub fn tick(&mut self, now: Instant, mut demand: impl FnMut(f64)) {
        let (Source::Game(game) | Source::GameAndTransfer { game, .. }) = self.source else { return };
        while self.next_tick <= now {
            let bytes = game.tick_bytes();
            self.fresh = (self.fresh + bytes).min(bytes.max(game.rate * STALE.as_secs_f64()));
            demand(bytes);
            self.ticks += 1;
            self.next_tick = self.started_at.after(Duration::from_secs_f64(self.ticks as f64 / game.ticks));
        }
        if let Source::GameAndTransfer { from, bytes, again, .. } = self.source
            && let Some(Some(next)) = [Some(from), again].get(self.transfers_started)
            && now.since_start() >= *next
        {
            self.transfers_started += 1;
            self.transfer += bytes;
            demand(bytes);
        }
    }

    /// Returns when the demand changes next; `None` for bulk.
    #[must_use]
    pub fn next_tick(&self) -> Option<Instant> {
        (self.source != Source::Bulk).then_some(self.next_tick)
    }

    /// Returns the size of the next packet at this rate in bytes per second; `None` if nothing waits.
    #[must_use]
    pub fn next_packet(&self, rate: f64) -> Option<u32> {
        let largest = f64::from(MAX_PACKET_BYTES);
        let transfer = (rate * PACKET_TIME).clamp(MIN_PACKET_BYTES, largest);
        // A tick of a throttled game does not wait for others to fill a packet, and leaves whole.
        let game = transfer.max(self.source.tick_bytes()).min(largest);
        let bytes = if self.fresh >= 1.0 { self.fresh.min(game) } else { self.transfer.min(transfer) };
        (bytes >= 1.0).then_some(bytes as u32)
    }

    /// Records that a packet of this size was sent.
    pub fn sent(&mut self, bytes: u32) {
        let bytes = f64::from(bytes);
        let fresh = self.fresh.min(bytes);
        self.fresh -= fresh;
        self.transfer -= bytes - fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn game_demands_its_rate_and_drops_stale_data() {
        let mut application = Application::new(Source::Game(Game::of(1e6)), at(0));
        let mut demanded = 0.0;
        application.tick(at(9999), |bytes| demanded += bytes);
        assert!((demanded - 1_250_000.0).abs() < 1000.0, "{demanded}");
        let mut waiting = 0;
        while let Some(bytes) = application.next_packet(1e6) {
            waiting += bytes;
            application.sent(bytes);
        }
        assert_eq!(waiting, 25_000);
    }

    #[test]
    fn transfer_yields_to_the_game_and_repeats() {
        let (from, again) = (Duration::from_secs(1), Some(Duration::from_secs(2)));
        let source = Source::GameAndTransfer { game: Game::of(96e3), from, bytes: 5000.0, again };
        let mut application = Application::new(source, at(0));
        application.tick(at(0), |_| {});
        assert_eq!(application.next_packet(1e6), Some(200));
        application.sent(200);
        assert_eq!(application.next_packet(1e6), None);
        application.tick(at(1000), |_| {});
        let mut sizes = Vec::new();
        while let Some(bytes) = application.next_packet(1e6) {
            sizes.push(bytes);
            application.sent(bytes);
        }
        assert_eq!(sizes, [1200, 1200, 1200, 1200, 1200, 1200, 200]);
        application.tick(at(1999), |_| {});
        application.sent(application.fresh as u32);
        assert_eq!(application.next_packet(1e6), None);
        application.tick(at(2000), |_| {});
        application.sent(application.fresh as u32);
        assert_eq!(application.transfer, 5000.0);
    }

    #[test]
    fn throttled_game_has_small_packets() {
        let mut application = Application::new(Source::Game(Game::of(96e3)), at(0));
        application.tick(at(100), |_| {});
        for (rate, bytes) in [(10_000.0, 256), (50_000.0, 500), (1e6, 1200)] {
            assert_eq!(application.next_packet(rate), Some(bytes));
        }
        let mut application = Application::new(Source::Game(Game::of(480e3)), at(0));
        application.tick(at(100), |_| {});
        assert_eq!(application.next_packet(10_000.0), Some(1000), "a tick leaves whole");
    }

    #[test]
    fn slow_transfer_has_small_packets() {
        let application = Application::new(Source::Bulk, at(0));
        for (rate, bytes) in [(10_000.0, 256), (50_000.0, 500), (1e6, 1200)] {
            assert_eq!(application.next_packet(rate), Some(bytes));
        }
    }
}
