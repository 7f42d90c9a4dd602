//! The server on several threads: this one hears signals, and relays what clients of different shards say to each other.
//!
//! An echo needs nobody but the client's own shard, so it is answered on the shard's thread.

use std::thread;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_cli::keys::KeySource;
use slipgate_cli::signals::Signals;
use slipgate_netcode::time::Instant;
use slipgate_server::{
    ClientHandle, Clock, Crew, Ended, Event, Hub, HubConfig, HubError, Inbox, KeyRing, Overflow, Server, Totals,
};
use tracing::{error, info};

use crate::app::{App, AppKind};
use crate::serve::read_keys_anew;
use crate::settings::Settings;

/// How often signals are looked for where nothing else is to be done.
const LOOK: Duration = Duration::from_millis(20);
/// How long a relay waits for words to pass on.
const RELAY: Duration = Duration::from_millis(1);

/// Shards at work.
enum Shards {
    Echo(Crew),
    Relay { hub: Box<Hub>, members: Vec<ClientHandle>, words: Vec<u8> },
}

impl Shards {
    fn start(servers: Vec<Server>, clock: Clock, tick: Duration, app: AppKind) -> Result<Self, HubError> {
        Ok(match app {
            AppKind::Echo => {
                let game = |_| {
                    let mut app = App::Echo;
                    move |server: &mut Server, inbox: &mut Inbox| app.answer(server, inbox)
                };
                Self::Echo(Crew::start(servers, clock, tick, game)?)
            }
            AppKind::Relay => {
                let hub = Box::new(Hub::start(servers, clock, tick, HubConfig::default())?);
                Self::Relay { hub, members: Vec::new(), words: Vec::new() }
            }
        })
    }

    /// Does what is to be done on this thread, and rests.
    fn turn(&mut self) {
        match self {
            Self::Echo(_) => thread::sleep(LOOK),
            Self::Relay { hub, members, words } => {
                relay(hub, members, words);
                hub.flush();
                thread::sleep(RELAY);
            }
        }
    }

    fn set_admitting(&self, admitting: bool) {
        match self {
            Self::Echo(crew) => crew.set_admitting(admitting),
            Self::Relay { hub, .. } => hub.set_admitting(admitting),
        }
    }

    fn set_keys(&self, keys: &KeyRing) {
        match self {
            Self::Echo(crew) => crew.set_keys(keys),
            Self::Relay { hub, .. } => hub.set_keys(keys),
        }
    }

    fn is_running(&self) -> bool {
        match self {
            Self::Echo(crew) => crew.is_running(),
            Self::Relay { hub, .. } => hub.is_running(),
        }
    }

    fn connected(&self) -> u32 {
        let totals = match self {
            Self::Echo(crew) => crew.totals(),
            Self::Relay { hub, .. } => hub.totals(),
        };
        Totals::sum(&totals).connected
    }

    fn stop(self) -> Ended {
        match self {
            Self::Echo(crew) => crew.stop(),
            Self::Relay { hub, .. } => hub.stop(|_| {}),
        }
    }
}

/// Passes on what clients say; what finds no room is lost, as datagrams may be.
fn relay(hub: &mut Hub, members: &mut Vec<ClientHandle>, words: &mut Vec<u8>) {
    while let Some(event) = hub.next_event() {
        match event {
            Event::Connected { client, .. } => members.push(client),
            Event::Disconnected { client, .. } => members.retain(|member| *member != client),
            Event::Payload { client, bytes, .. } => {
                words.clear();
                words.extend_from_slice(bytes);
                for member in members.iter().filter(|member| **member != client) {
                    let _ = hub.send(*member, words);
                }
            }
            _ => {}
        }
    }
}

/// Serves on a thread for each shard until it is told to stop and its clients have left, or their time is over, or it is
/// told again.
pub(crate) fn serve(servers: Vec<Server>, clock: Clock, settings: &Settings, signals: &Signals) -> Result<(), Failure> {
    let tick = Duration::from_secs(1) / settings.tick;
    // From when the first of them was bound.
    let overflow = servers.first().map_or_else(Overflow::begin, |server| server.sockets().overflow());
    let mut shards = Shards::start(servers, clock, tick, settings.app)
        .map_err(|error| Failure::run_time(format!("the shards' threads cannot be started: {error}")))?;
    let mut drains_until: Option<Instant> = None;
    while shards.is_running() {
        if signals.take_reload() {
            reload_keys(&shards, &settings.keys);
        }
        match (drains_until, signals.take_stop()) {
            (None, true) => drains_until = Some(begin_drain(&shards, clock, settings.drain)),
            (Some(_), true) => break,
            (None, false) => {}
            (Some(until), false) if shards.connected() == 0 || clock.monotonic() >= until => break,
            (Some(_), false) => {}
        }
        shards.turn();
    }
    tell_end(shards.stop(), overflow)
}

fn reload_keys(shards: &Shards, keys: &KeySource) {
    if let Some(keys) = read_keys_anew(keys) {
        shards.set_keys(&keys);
    }
}

fn begin_drain(shards: &Shards, clock: Clock, drain: Duration) -> Instant {
    info!(connected = shards.connected(), ?drain, "stopping: new clients are denied, the others may leave first");
    shards.set_admitting(false);
    clock.monotonic().after(drain)
}

/// Sums up what the shards have told each for itself.
fn tell_end(ended: Ended, overflow: Overflow) -> Result<(), Failure> {
    let sum = Totals::sum(&ended.shards);
    info!(
        shards = ended.shards.len(),
        connects = sum.stats.connects,
        payloads_received = sum.stats.payloads_received,
        payloads_sent = sum.stats.payloads_sent,
        denied = sum.stats.denials_sent,
        dropped = sum.discards.total(),
        dropped_by_system = sum.sockets.dropped_by_system,
        overflow_at_most = overflow.at_most(&sum.sockets),
        turns_cut_short = sum.turns_cut_short,
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
