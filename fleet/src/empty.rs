//! The end of an allocated server without clients: an orchestrator replaces it only when its program ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::info;

use crate::driver::Driver;
use crate::life_cycle::{LifeCycle, LifeState};
use crate::population::Population;

/// The time between two looks at the clients of an allocated server.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two looks at the state before the allocation; a new state ends the wait.
const IDLE: Duration = Duration::from_secs(60);

/// Drains an allocated server that has had no clients for some time, also if none has ever connected.
pub(crate) struct EmptyDriver {
    limit: Duration,
    life: LifeCycle,
    population: Arc<Population>,
    /// The first look since the last one that found a client.
    empty_since: Option<Instant>,
}

impl EmptyDriver {
    pub(crate) const fn new(limit: Duration, life: LifeCycle, population: Arc<Population>) -> Self {
        Self { limit, life, population, empty_since: None }
    }

    /// Looks at the clients. Returns the time until the next look, and `None` when the server drains.
    fn look(&mut self, now: Instant) -> Option<Duration> {
        if self.population.read().connected > 0 {
            self.empty_since = None;
            return Some(LOOK_INTERVAL);
        }
        let left = self.limit.saturating_sub(now.duration_since(*self.empty_since.get_or_insert(now)));
        if !left.is_zero() {
            return Some(left.min(LOOK_INTERVAL));
        }
        if self.life.advance(LifeState::Draining) {
            info!(without_clients = ?self.limit, "the allocated server has no clients, so it ends");
        }
        None
    }
}

impl Driver for EmptyDriver {
    fn run(&mut self, state: LifeState) -> Option<Duration> {
        match state {
            LifeState::Starting | LifeState::Ready => Some(IDLE),
            LifeState::Allocated => self.look(Instant::now()),
            LifeState::Draining | LifeState::Ended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::population::lock;

    #[test]
    fn only_an_uninterrupted_time_without_clients_ends_the_server() {
        let (life, population) = (LifeCycle::default(), Arc::new(Population::new(8)));
        let shard = population.add_shard();
        let mut driver = EmptyDriver::new(Duration::from_millis(2500), life.clone(), population);
        let (start, millis) = (Instant::now(), Duration::from_millis);
        assert_eq!([LifeState::Starting, LifeState::Ready].map(|state| driver.run(state)), [Some(IDLE); 2]);
        life.advance(LifeState::Allocated);
        let mut look = |at, connected| {
            lock(&shard.clients).connected = connected;
            driver.look(start + millis(at))
        };
        assert_eq!([look(0, 0), look(2000, 0)], [Some(millis(1000)), Some(millis(500))]);
        assert_eq!([look(2500, 1), look(9000, 1)], [Some(LOOK_INTERVAL); 2]);
        assert_eq!([look(9500, 0), look(11_999, 0)], [Some(millis(1000)), Some(millis(1))]);
        assert_eq!((look(12_000, 0), life.state()), (None, LifeState::Draining));
    }
}
