//! Agones, by the REST gateway of its SDK's sidecar on loopback
//! (<https://agones.dev/site/docs/guides/client-sdks/rest/>).
//!
//! The calls are repeated until the sidecar takes them: it may start after the game server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipgate_netcode::ids::ClientId;
use tracing::{info, warn};

use crate::back_off::BackOff;
use crate::driver::Driver;
use crate::http::{CallMethod, CallResponse, HttpCaller, warn_refused};
use crate::life_cycle::{LifeCycle, LifeState};
use crate::population::Population;

/// The port of the gateway without the variable `AGONES_SDK_HTTP_PORT`.
pub(crate) const DEFAULT_PORT: u16 = 9358;
/// The time between two health reports. Agones allows 5 s by default.
const HEALTH_INTERVAL: Duration = Duration::from_secs(2);
/// The shortest time between two reports of the players.
const PLAYERS_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum number of values of a list in Agones.
const MAX_LIST_VALUES: usize = 1000;
/// The counter and the list of Agones that hold the players, if the fleet defines them.
const PLAYERS: &str = "players";

/// A report of the players that the fleet may not support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlayersSupport {
    Unknown,
    Yes,
    /// The fleet defines no such counter or list.
    No,
}

/// Reports the life to the sidecar, and its health every 2 s while turns advance.
pub(crate) struct AgonesDriver {
    base: String,
    http: HttpCaller,
    population: Arc<Population>,
    back_off: BackOff,
    /// Whether the sidecar has taken all calls of this run; `None` without a call.
    taken: Option<bool>,
    next_health: Instant,
    next_players: Instant,
    is_ready_reported: bool,
    is_allocation_reported: bool,
    counter: PlayersSupport,
    counted: Option<u32>,
    list: PlayersSupport,
    listed: Option<BTreeSet<ClientId>>,
}

impl AgonesDriver {
    pub(crate) fn new(port: u16, population: Arc<Population>) -> Self {
        let now = Instant::now();
        Self {
            base: format!("http://127.0.0.1:{port}"),
            http: HttpCaller::new(true),
            population,
            back_off: BackOff::default(),
            taken: None,
            next_health: now,
            next_players: now,
            is_ready_reported: false,
            is_allocation_reported: false,
            counter: PlayersSupport::Unknown,
            counted: None,
            list: PlayersSupport::Unknown,
            listed: None,
        }
    }

    fn call(&self, method: CallMethod, path: &str, body: &Value) -> Result<CallResponse, String> {
        self.http.call(method, &format!("{}{path}", self.base), None, Some(body))
    }

    /// Calls the sidecar. Returns whether it has taken the call.
    fn report(&mut self, path: &str) -> bool {
        let result = self.call(CallMethod::Post, path, &json!({}));
        let is_taken = result.as_ref().is_ok_and(CallResponse::is_success);
        let has_failed = self.taken == Some(false);
        if !is_taken && !has_failed && self.back_off.is_first() {
            warn_refused("agones", None, path, &result);
        }
        self.taken = Some(is_taken && !has_failed);
        is_taken
    }

    /// Reports the state. Returns whether the sidecar has taken all of it.
    fn report_state(&mut self, state: LifeState) -> bool {
        match state {
            LifeState::Starting | LifeState::Draining => true,
            LifeState::Ready => self.report_ready(),
            LifeState::Allocated => self.report_ready() && self.report_allocation(),
            LifeState::Ended => self.report("/shutdown"),
        }
    }

    fn report_ready(&mut self) -> bool {
        self.is_ready_reported = self.is_ready_reported || self.report("/ready");
        self.is_ready_reported
    }

    fn report_allocation(&mut self) -> bool {
        self.is_allocation_reported = self.is_allocation_reported || self.report("/allocate");
        self.is_allocation_reported
    }

    /// Reports health, unless the game's turns have stopped: then Agones replaces the server.
    fn report_health(&mut self, now: Instant) {
        if now >= self.next_health && self.population.is_healthy() {
            self.next_health = now + HEALTH_INTERVAL;
            self.report("/health");
        }
    }

    /// Reports the number and the ids of the players, where they have changed and the fleet has a counter or a list.
    fn report_players(&mut self, now: Instant) {
        if now < self.next_players {
            return;
        }
        self.next_players = now + PLAYERS_INTERVAL;
        let (clients, slots) = (self.population.read(), self.population.slots());
        if self.counter != PlayersSupport::No && self.counted != Some(clients.connected) {
            let body = json!({"count": clients.connected.to_string(), "capacity": slots.to_string()});
            let result = self.call(CallMethod::Patch, &format!("/v1beta1/counters/{PLAYERS}"), &body);
            self.counter = supported(self.counter, &result, "counter");
            self.counted = result.is_ok_and(|response| response.is_success()).then_some(clients.connected);
        }
        let ids = clients.ids();
        if self.list != PlayersSupport::No && slots as usize <= MAX_LIST_VALUES && self.listed.as_ref() != Some(&ids) {
            let values: Vec<_> = ids.iter().map(ToString::to_string).collect();
            let body = json!({"capacity": slots.to_string(), "values": values});
            let result = self.call(CallMethod::Patch, &format!("/v1beta1/lists/{PLAYERS}"), &body);
            self.list = supported(self.list, &result, "list");
            self.listed = result.is_ok_and(|response| response.is_success()).then_some(ids);
        }
    }
}

/// Returns whether the fleet has a counter or a list, by the result of a call. Other failures are tried again.
fn supported(before: PlayersSupport, result: &Result<CallResponse, String>, what: &str) -> PlayersSupport {
    match result {
        Ok(response) if response.is_success() => PlayersSupport::Yes,
        // gRPC's NotFound, and Unimplemented of a sidecar without the feature.
        Ok(response) if before == PlayersSupport::Unknown && matches!(response.status, 404 | 501) => {
            info!(what, name = PLAYERS, status = response.status, "the fleet does not count players in Agones");
            PlayersSupport::No
        }
        _ => before,
    }
}

impl Driver for AgonesDriver {
    fn run(&mut self, state: LifeState) -> Option<Duration> {
        let now = Instant::now();
        self.taken = None;
        let is_taken = self.report_state(state);
        if state == LifeState::Ended && is_taken {
            return None;
        }
        self.report_health(now);
        match self.taken {
            // Health must not wait for long.
            Some(false) => return Some(self.back_off.on_failure().min(HEALTH_INTERVAL)),
            Some(true) if self.back_off.on_success() => info!("the sidecar of Agones takes calls"),
            _ => {}
        }
        if state >= LifeState::Ready {
            self.report_players(now);
        }
        Some(PLAYERS_INTERVAL)
    }
}

/// Applies a state that Agones reports. It allocates a server for a match, and shuts down one that it deletes.
pub(crate) fn on_agones_state(life: &LifeCycle, state: &str) {
    let entered = match state {
        "Allocated" => life.advance(LifeState::Allocated),
        "Shutdown" | "Unhealthy" => life.advance(LifeState::Draining),
        _ => false,
    };
    if entered && life.is_draining() {
        warn!(state, "Agones ends the server");
    }
}
