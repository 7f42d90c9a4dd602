//! The server on several threads, one for each shard. The main thread polls signals and, for `relay`, forwards payloads
//! between the shards.
//!
//! `echo` and `echo-messages` run on the shards' own threads, because they need no other shard.

use std::thread;
use std::time::Duration;

use slipgate_admin::AdminPublisher;
use slipgate_cli::Failure;
use slipgate_cli::signals::Signals;
use slipgate_fleet::FleetReporter;
use slipgate_server::counters::{Discard, Discards, ServerTotals};
use slipgate_server::keys::KeyRing;
use slipgate_server::sharded::{ShardThreads, ShardedServer, ShardedServerConfig, ShardedServerError, ShardsReport};
use slipgate_server::sockets::Overflow;
use slipgate_server::{ClientHandle, Clock, Event, Inbox, Server};
use tracing::{error, info};

use crate::app::{App, AppKind};
use crate::key_reloads::KeyReloads;
use crate::settings::Settings;
use crate::stop::{StopSchedule, StopStep};
use crate::supervision::Supervision;

/// The interval at which `echo` polls signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);
/// The pause between two rounds of `relay`, which bounds the delay that it adds.
const RELAY_INTERVAL: Duration = Duration::from_millis(1);

/// The running shards.
enum RunningShards {
    Echo(ShardThreads),
    Relay {
        server: Box<ShardedServer>,
        clients: Vec<ClientHandle>,
        payload: Vec<u8>,
        publisher: Option<AdminPublisher>,
        reporter: Box<FleetReporter>,
    },
}

impl RunningShards {
    /// Starts the shards. `echo` publishes the counters of each shard on its own thread, `relay` their sum on this one.
    fn start(
        servers: Vec<Server>,
        clock: Clock,
        tick: Duration,
        app: AppKind,
        supervision: &Supervision,
    ) -> Result<Self, ShardedServerError> {
        let config = servers.first().map(|server| server.config().clone());
        let new_publisher = || supervision.publisher(config.as_ref(), clock);
        Ok(match app {
            AppKind::Echo | AppKind::EchoMessages => {
                let game = |_| {
                    // The number of slots is for `relay` alone.
                    let (mut app, mut publisher) = (App::new(app, 0), new_publisher());
                    let mut reporter = supervision.fleet.reporter();
                    move |server: &mut Server, inbox: &mut Inbox| {
                        let now = clock.now();
                        app.handle_events(server, inbox);
                        if let Some(publisher) = &mut publisher {
                            publisher.on_turn(server, now);
                        }
                        reporter.on_turn(server, now);
                    }
                };
                Self::Echo(ShardThreads::start(servers, clock, tick, game)?)
            }
            AppKind::Relay => {
                let server = Box::new(ShardedServer::start(servers, clock, tick, ShardedServerConfig::default())?);
                let (publisher, reporter) = (new_publisher(), Box::new(supervision.fleet.reporter()));
                Self::Relay { server, clients: Vec::new(), payload: Vec::new(), publisher, reporter }
            }
        })
    }

    /// Does this thread's share of the work, then sleeps.
    fn turn(&mut self, clock: Clock) {
        match self {
            Self::Echo(_) => thread::sleep(SIGNAL_INTERVAL),
            Self::Relay { server, clients, payload, publisher, reporter } => {
                let now = clock.now();
                relay(server, clients, payload);
                if let Some(publisher) = publisher {
                    publisher.on_sharded_turn(server, now);
                }
                reporter.on_sharded_turn(server, now);
                server.flush();
                thread::sleep(RELAY_INTERVAL);
            }
        }
    }

    fn accept_new_clients(&self, accept: bool) {
        match self {
            Self::Echo(threads) => threads.accept_new_clients(accept),
            Self::Relay { server, .. } => server.accept_new_clients(accept),
        }
    }

    fn set_keys(&self, keys: &KeyRing) {
        match self {
            Self::Echo(threads) => threads.set_keys(keys),
            Self::Relay { server, .. } => server.set_keys(keys),
        }
    }

    fn is_running(&self) -> bool {
        match self {
            Self::Echo(threads) => threads.is_running(),
            Self::Relay { server, .. } => server.is_running(),
        }
    }

    /// Returns whether no client is left. Counters of the last tick lack a client that has just connected.
    fn is_drained(&self) -> bool {
        match self {
            Self::Echo(threads) => threads.is_drained(),
            Self::Relay { server, .. } => server.is_drained(),
        }
    }

    fn connected(&self) -> u32 {
        let totals = match self {
            Self::Echo(threads) => threads.totals(),
            Self::Relay { server, .. } => server.totals(),
        };
        ServerTotals::sum(&totals).connected
    }

    fn stop(self) -> ShardsReport {
        match self {
            Self::Echo(threads) => threads.stop(),
            Self::Relay { server, .. } => server.stop("", |_| {}),
        }
    }
}

/// Forwards each payload to all other clients. A payload for a full ring is dropped, as datagrams may be.
fn relay(server: &mut ShardedServer, clients: &mut Vec<ClientHandle>, payload: &mut Vec<u8>) {
    while let Some(event) = server.next_event() {
        match event {
            Event::Connected { client, .. } => clients.push(client),
            Event::Disconnected { client, .. } => clients.retain(|other| *other != client),
            Event::Payload { client, bytes, .. } => {
                payload.clear();
                payload.extend_from_slice(bytes);
                for other in clients.iter().filter(|other| **other != client) {
                    let _ = server.send(*other, payload);
                }
            }
            _ => {}
        }
    }
}

/// Serves until a stop signal or an operator begins a drain, then until all clients left, the drain time is over, or a
/// second signal arrives.
pub(crate) fn serve(
    servers: Vec<Server>,
    clock: Clock,
    settings: &Settings,
    (signals, keys): (&Signals, &KeyReloads),
    supervision: &Supervision,
) -> Result<(), Failure> {
    let tick = Duration::from_secs(1) / settings.tick;
    // The counter starts when the first socket was bound, so drops during the start are included.
    let overflow = servers.first().map_or_else(Overflow::begin, |server| server.sockets().overflow());
    let mut shards = RunningShards::start(servers, clock, tick, settings.app, supervision)
        .map_err(|error| Failure::run_time(format!("the shards' threads cannot be started: {error}")))?;
    let mut stop = StopSchedule::new(settings.shutdown_delay, settings.drain);
    while shards.is_running() {
        keys.poll(signals, |keys| {
            supervision.show_keys(&keys);
            shards.set_keys(&keys);
        });
        match stop.step(clock.monotonic(), signals.take_stop(), supervision, || shards.is_drained()) {
            StopStep::Continue => {}
            StopStep::Drain => begin_drain(&shards, settings.drain),
            StopStep::End => break,
        }
        shards.turn(clock);
    }
    // The shards wait for the last write of the history file. Another signal ends the wait, and the process.
    let commands = supervision.fleet.hook_commands();
    signals.end_at_once_on_stop(move || commands.kill());
    let ended = shards.stop();
    supervision.log_redirects();
    supervision.fleet.end();
    log_totals(ended, overflow)
}

fn begin_drain(shards: &RunningShards, drain: Duration) {
    info!(connected = shards.connected(), ?drain, "stopping: denying new clients, waiting for the others to leave");
    shards.accept_new_clients(false);
}

/// Returns the reasons of drops and their counts as in the lines of the shards, such as `empty: 3, replayed: 1`.
fn reasons(discards: &Discards) -> String {
    let counted = discards.iter().filter(|(reason, _)| *reason != Discard::ConnectionEnded);
    let named: Vec<_> = counted.map(|(reason, count)| format!("{reason}: {count}")).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

/// Logs the totals of all shards and returns a failure if a shard panicked.
fn log_totals(ended: ShardsReport, overflow: Overflow) -> Result<(), Failure> {
    let sum = ServerTotals::sum(&ended.shards);
    // Late datagrams of connections that had just ended, as in the lines of the shards.
    let after_end = sum.discards[Discard::ConnectionEnded];
    info!(
        shards = ended.shards.len(),
        connects = sum.stats.connects,
        payloads_received = sum.stats.payloads_received,
        payloads_sent = sum.stats.payloads_sent,
        denied = sum.stats.denials_sent,
        dropped = sum.discards.total() - after_end,
        reasons = reasons(&sum.discards),
        after_end,
        dropped_by_system = sum.sockets.dropped_by_system,
        overflow_at_most = overflow.at_most(&sum.sockets),
        turns_cut_short = sum.turns_cut_short,
        stalls = sum.stalls,
        max_events_per_turn = sum.max_events_per_turn,
        packets_over_budget = sum.packets_over_budget,
        packets_not_taken = sum.packets_not_taken,
        "totals of all shards"
    );
    match ended.panicked {
        None => {
            info!("stopped");
            Ok(())
        }
        Some(panicked) => {
            error!(%panicked, "stopped");
            Err(Failure::run_time(panicked.to_string()))
        }
    }
}
