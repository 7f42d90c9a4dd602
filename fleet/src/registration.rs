//! Registration with the token issuer: heartbeats with the free slots, so that backends can request tokens for a group
//! of servers (`specs/http-api.md`, PUT /v1/servers/{id}).

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;
use serde_json::Value;
use slipgate_netcode::ids::ClientId;
use slipgate_os::authorities::CertificateAuthorities;
use slipgate_server::ClientHandle;
use tracing::warn;

use crate::back_off::BackOff;
use crate::driver::Driver;
use crate::http::{CALL_TIMEOUT, CallMethod, CallResponse};
use crate::issuer_link::{IssuerLink, IssuerReply, share};
use crate::life_cycle::LifeState;
use crate::population::{Population, keep_newest};
use crate::redirect_queue::RedirectQueue;
use crate::registration_key::RegistrationKey;
use crate::registration_log::{RegistrationLog, RegistrationState};

/// The heartbeat without a response that says otherwise, and the bounds of what a response may say.
const HEARTBEAT: Duration = Duration::from_secs(1);
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);
const MAX_HEARTBEAT: Duration = Duration::from_secs(10);
/// The time without a heartbeat after which a server is dead, if no response says otherwise.
const DEAD_AFTER: Duration = Duration::from_secs(3);
const MAX_DEAD_AFTER: Duration = Duration::from_secs(60);
/// The time between two looks at the state before the server is ready; a new state ends the wait.
const IDLE: Duration = Duration::from_secs(60);
/// The maximum number of client ids in one heartbeat.
const MAX_ADMITTED: usize = 128;
/// The maximum number of addresses of a server.
const MAX_ADDRESSES: usize = 4;
/// The code of the error of a heartbeat before one that was recorded.
const LATE: &str = "late_heartbeat";
/// How many heartbeats in a row are late if the server was restored from a snapshot of its machine: its numbers are
/// older then. A network delays one of them at most, because each one waits for the response to the one before it.
const MAX_LATE: u32 = 2;
/// The maximum length of an id and of a name, in characters.
const MAX_NAME_CHARS: usize = 64;

/// How a server registers.
#[derive(Clone, Debug)]
pub struct RegistrationConfig {
    /// The URLs of the issuers, such as `http://127.0.0.1:8080`. Several share one registry: each of them will do.
    pub issuers: Vec<String>,
    /// The authorities of the issuers' certificates for `https`; `None`: the public ones. Replaced authorities count
    /// from the next call on.
    pub authorities: Option<CertificateAuthorities>,
    /// The API key, with the permission to register in the group, and with `redirects` also to mint tokens for it.
    pub key: RegistrationKey,
    /// The name of the server, unique among the servers of the issuer.
    pub server_id: String,
    /// The group for which backends request tokens.
    pub group: String,
    /// The region, if there are several.
    pub region: Option<String>,
    /// The build of the game, for people.
    pub build: Option<String>,
    /// The protocol id of the server.
    pub protocol_id: u64,
    /// The addresses that tokens list; the first four are registered.
    pub addresses: Vec<SocketAddr>,
    /// Whether the server accepts tokens from before its start: it has a history file, or no token cutoff. After a
    /// restart of another server, the issuer frees the slots that were reserved for such tokens.
    pub accepts_earlier_tokens: bool,
    /// Whether a drain sends the clients with channels to other servers of the group.
    pub redirects: bool,
    /// Whether redirects lead to servers of this region only; they need a region then.
    pub redirects_in_region: bool,
}

impl RegistrationConfig {
    /// Returns whether a text may be a server id, a group or a region: 1 to 64 characters of `A-Z a-z 0-9 . _ -`,
    /// except `.` and `..`, which HTTP clients remove from paths.
    #[must_use]
    pub fn is_name(text: &str) -> bool {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=MAX_NAME_CHARS).contains(&text.len()) && text.bytes().all(is_allowed) && !matches!(text, "." | "..")
    }
}

/// The body of a heartbeat.
#[derive(Serialize)]
struct RegistrationBeat<'a> {
    /// A text, because many JSON parsers lose precision above 2^53.
    protocol_id: String,
    addresses: Vec<String>,
    group: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<&'a str>,
    slots: u32,
    free_slots: u32,
    draining: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<&'a str>,
    admitted_client_ids: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    running_millis: Option<u64>,
    instance: &'a str,
    sequence: u64,
}

/// Sends heartbeats from the state ready on, and removes the server at its end.
pub(crate) struct RegistrationDriver {
    config: RegistrationConfig,
    path: String,
    /// Distinguishes this run from other servers with its id.
    instance: String,
    /// The number of the last heartbeat: the issuer ignores one that arrives after a later one.
    sequence: u64,
    /// How many of the last heartbeats were late.
    late: u32,
    /// A little later than the start of the server, which is within the issuer's margin. `None` if the server accepts
    /// tokens from before, or if its clock has stood still since.
    started: Option<Instant>,
    issuer: IssuerLink,
    population: Arc<Population>,
    redirects: Arc<RedirectQueue>,
    back_off: BackOff,
    log: RegistrationLog,
    /// The time that a heartbeat to all issuers may take.
    budget: Duration,
    /// The clients that got a slot and that no accepted heartbeat has reported, oldest first.
    unreported: VecDeque<(ClientHandle, ClientId)>,
}

impl RegistrationDriver {
    pub(crate) fn new(
        config: RegistrationConfig,
        population: Arc<Population>,
        redirects: Arc<RedirectQueue>,
        registered: RegistrationState,
    ) -> Self {
        let path = format!("/v1/servers/{}", config.server_id);
        let issuer = IssuerLink::new(&config.issuers, config.authorities.as_ref(), config.key.clone());
        let log = RegistrationLog::new(&config.server_id, &config.group, registered);
        let (back_off, budget, unreported) = (BackOff::default(), budget(HEARTBEAT, DEAD_AFTER), VecDeque::new());
        let started = (!config.accepts_earlier_tokens).then(Instant::now);
        let (instance, sequence, late) = (new_instance(), 0, 0);
        Self {
            config,
            path,
            instance,
            sequence,
            late,
            started,
            issuer,
            population,
            redirects,
            back_off,
            log,
            budget,
            unreported,
        }
    }

    /// Sends a heartbeat. Returns the time until the next one.
    fn beat(&mut self, state: LifeState) -> Duration {
        // Taken before the count: the slot of a client that comes in between is reserved a little longer, and no player
        // gets it twice.
        self.unreported.extend(self.population.take_admitted());
        keep_newest(&mut self.unreported, self.population.max_admitted());
        let new: Vec<_> = self.unreported.iter().take(MAX_ADMITTED).map(|(_, id)| id.to_string()).collect();
        let (now, slots, reported) = (self.population.read(), self.population.slots(), new.len());
        self.sequence += 1;
        let heartbeat = RegistrationBeat {
            protocol_id: self.config.protocol_id.to_string(),
            addresses: self.config.addresses.iter().take(MAX_ADDRESSES).map(ToString::to_string).collect(),
            group: &self.config.group,
            region: self.config.region.as_deref(),
            slots,
            // The issuer sends players only to servers with free slots.
            free_slots: if now.is_history_unavailable { 0 } else { slots.saturating_sub(now.connected) },
            draining: state >= LifeState::Draining,
            build: self.config.build.as_deref(),
            admitted_client_ids: new,
            running_millis: self.started.map(|at| u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)),
            instance: &self.instance,
            sequence: self.sequence,
        };
        let reply = self.issuer.call(self.timeout(), CallMethod::Put, &self.path, Some(&heartbeat));
        match &reply.result {
            Ok(CallResponse { status: 200, body }) => {
                self.late = 0;
                self.unreported.drain(..reported);
                if state >= LifeState::Draining {
                    self.redirects.set_drain_known();
                }
                self.back_off.on_success();
                self.log.on_taken(&reply.url);
                let heartbeat = next_heartbeat(body);
                self.budget = budget(heartbeat, dead_after(body));
                heartbeat
            }
            _ => self.on_refused(&reply),
        }
    }

    /// Handles a heartbeat that was not taken. Returns the time until the next one.
    fn on_refused(&mut self, reply: &IssuerReply) -> Duration {
        self.log.on_failed(reply, Instant::now());
        let (is_late, server) = (reply.error("code") == Some(LATE), &self.config.server_id);
        self.late = if is_late { self.late + 1 } else { 0 };
        if self.late >= MAX_LATE {
            warn!(
                server,
                "the issuer has later heartbeats, as after a restore of this machine; registering as a new run"
            );
            self.begin_run();
        }
        self.back_off.on_failure()
    }

    /// Begins a new run in the order of heartbeats, for a server that was restored from a snapshot of its machine.
    fn begin_run(&mut self) {
        (self.instance, self.sequence, self.late) = (new_instance(), 0, 0);
        // The registry may not know the clients of the snapshot.
        let connected = self.population.read().clients;
        self.unreported.retain(|client| !connected.contains(client));
        self.unreported.extend(connected);
        // The monotonic clock stood still in the snapshot. A start computed by it would look like a restart, and end
        // the reservations of tokens that this server accepts.
        self.started = None;
    }

    /// Returns how long each issuer may take for its response. A hung issuer must leave time for the next one before
    /// the registry counts the server as dead. Once no issuer has taken a heartbeat, that is too late: then all are
    /// slow, or far away, and get as long as other calls.
    fn timeout(&self) -> Duration {
        if self.back_off.is_first() { share(self.budget, self.issuer.count()) } else { CALL_TIMEOUT }
    }

    /// Removes the server from the registry. Without it, the issuer notices the end by the missing heartbeats.
    fn remove(&self) {
        let path = format!("{}?instance={}&sequence={}", self.path, self.instance, self.sequence + 1);
        let reply = self.issuer.call(self.timeout(), CallMethod::Delete, &path, None::<&()>);
        if !reply.result.as_ref().is_ok_and(CallResponse::is_success) {
            let (server, url) = (&self.config.server_id, &reply.url);
            warn!(server, url, "the server could not be removed from the issuer");
        }
    }
}

/// Returns a name for a run of the server. It is random, and need not be secret.
fn new_instance() -> String {
    // Machines restored from one snapshot have the same random keys, but draw names at different times.
    format!("{:016x}", RandomState::new().hash_one((std::process::id(), SystemTime::now())))
}

/// Returns the time that a response asks for, within bounds.
fn next_heartbeat(response: &Value) -> Duration {
    let millis = response.get("heartbeat_millis").and_then(Value::as_u64);
    millis.map_or(HEARTBEAT, Duration::from_millis).clamp(MIN_HEARTBEAT, MAX_HEARTBEAT)
}

/// Returns the time without a heartbeat after which a response says that the server is dead.
fn dead_after(response: &Value) -> Duration {
    response.get("dead_after_millis").and_then(Value::as_u64).map_or(DEAD_AFTER, Duration::from_millis)
}

/// Returns the time that a heartbeat may take: three quarters of what is left before the server is dead when it begins.
fn budget(heartbeat: Duration, dead_after: Duration) -> Duration {
    dead_after.min(MAX_DEAD_AFTER).saturating_sub(heartbeat) * 3 / 4
}

impl Driver for RegistrationDriver {
    fn run(&mut self, state: LifeState) -> Option<Duration> {
        match state {
            LifeState::Starting => Some(IDLE),
            LifeState::Ready | LifeState::Allocated | LifeState::Draining => Some(self.beat(state)),
            LifeState::Ended => {
                self.remove();
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn heartbeats_keep_their_bounds_whatever_the_issuer_says() {
        for (response, millis) in [
            (json!({"heartbeat_millis": 250}), 250),
            (json!({"heartbeat_millis": 0}), 100),
            (json!({"heartbeat_millis": u64::MAX}), 10_000),
            (json!({"heartbeat_millis": -1}), 1000),
            (json!(null), 1000),
        ] {
            assert_eq!(next_heartbeat(&response).as_millis(), millis, "{response}");
        }
    }

    #[test]
    fn hung_issuers_leave_time_for_the_last_one() {
        for (response, count) in [
            (json!({"heartbeat_millis": 1000, "dead_after_millis": 3000}), 2),
            (json!({"heartbeat_millis": 1000, "dead_after_millis": 3000}), 3),
            (json!({"heartbeat_millis": 5000, "dead_after_millis": 15_000}), 10),
            (json!({}), 2),
        ] {
            let (heartbeat, dead_after) = (next_heartbeat(&response), dead_after(&response));
            let each = share(budget(heartbeat, dead_after), count);
            assert!(heartbeat + each * count < dead_after, "{response}: {each:?} for each of {count}");
        }
        let least = share(budget(HEARTBEAT, DEAD_AFTER), 100);
        assert_eq!((least.as_millis(), share(budget(HEARTBEAT, Duration::MAX), 1).as_secs()), (500, 3));
    }

    #[test]
    fn names_have_few_characters() {
        for name in ["a", "eu-west.1_b", "...", &"x".repeat(64)] {
            assert!(RegistrationConfig::is_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "..%2f", "ä", "a b", &"x".repeat(65)] {
            assert!(!RegistrationConfig::is_name(name), "{name}");
        }
    }
}
