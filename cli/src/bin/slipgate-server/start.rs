//! From checked settings to a server that listens, and the one line of the log that says how.

use std::fmt::Display;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_server::{
    Clock, Config, Dscp, Fence, HistoryFile, Marking, Now, Server, Sockets, StartError, Steering, TimeoutPolicy,
};
use tracing::{info, warn};

use crate::settings::Settings;

/// Binds the sockets, opens the history, and makes the server, or its shards.
pub(crate) fn start(settings: &Settings) -> Result<(Vec<Server>, Clock), Failure> {
    let keys = settings.keys.read()?;
    let sockets = bind(settings)?;
    let config = advertising(settings.config.clone(), &sockets);
    // Before a history file is made.
    config.check().map_err(|error| Failure::usage(error.to_string()))?;
    let clock = Clock::start();
    let history = open_history(settings, clock.now())?;
    let remembered = history.as_ref().map_or(0, HistoryFile::len);
    let servers = match history {
        Some(history) => Server::shards_with_history(sockets, config, keys, clock.now(), history),
        None => Server::shards(sockets, config, keys, clock.now()),
    };
    let mut servers = servers.map_err(refused)?;
    for server in &mut servers {
        server.set_packets_per_turn(settings.packets_per_turn);
        server.set_time_per_turn(settings.time_per_turn);
        if !settings.kernel_filter {
            server
                .set_kernel_filter(false)
                .map_err(|error| Failure::run_time(format!("the system keeps its filter of datagrams: {error}")))?;
        }
    }
    tell(&servers, settings, remembered);
    Ok((servers, clock))
}

/// Binds sockets for each shard, and tells the system what becomes of what leaves and arrives.
fn bind(settings: &Settings) -> Result<Vec<Sockets>, Failure> {
    let sockets = Sockets::bind_shards(&settings.bind, settings.shards);
    let sockets = sockets.map_err(|error| Failure::run_time(error.to_string()))?;
    mark(&sockets, settings.dscp)?;
    if let Some(first) = sockets.first() {
        first.steer(settings.steering, settings.shards).map_err(|error| {
            Failure::run_time(format!("the system does not steer datagrams by {}: {error}", settings.steering.name()))
        })?;
    }
    Ok(sockets)
}

/// Marks what leaves; where the system has no such mark it leaves without one.
fn mark(shards: &[Sockets], dscp: Dscp) -> Result<(), Failure> {
    let refused =
        |error| Failure::run_time(format!("the system refuses to mark packets with the DSCP {dscp}: {error}"));
    let mut marked = Marking::All;
    for sockets in shards {
        marked = marked.max(sockets.set_dscp(dscp).map_err(refused)?);
    }
    if marked == Marking::Partly {
        warn!(%dscp, "this system has no DSCP for all packets; those for which it has none, on Windows IPv6, leave unmarked");
    }
    Ok(())
}

/// The settings, with the bound addresses advertised if no others are.
fn advertising(mut config: Config, shards: &[Sockets]) -> Config {
    if config.advertised.is_empty()
        && let Some(sockets) = shards.first()
    {
        config.advertised = sockets.local_addresses().into_iter().map(Into::into).collect();
    }
    config
}

fn open_history(settings: &Settings, now: Now) -> Result<Option<HistoryFile>, Failure> {
    let Some(path) = &settings.history else { return Ok(None) };
    let refused = |error| Failure::run_time(format!("the history file {} cannot be used: {error}", path.display()));
    HistoryFile::open(path, now.unix.seconds()).map_err(refused).map(Some)
}

fn refused(error: StartError) -> Failure {
    match error {
        StartError::Config(error) => Failure::usage(error.to_string()),
        error => Failure::run_time(error.to_string()),
    }
}

/// Says how the server runs, and loudly what makes it unfit for the public.
fn tell(servers: &[Server], settings: &Settings, remembered: usize) {
    let Some(server) = servers.first() else { return };
    let config = server.config();
    let Settings { keys, tick, app, drain, dscp, .. } = settings;
    let sockets = server.sockets();
    let buffers = sockets.buffers();
    info!(
        bind = list(server.local_addresses()),
        advertise = list(&config.advertised),
        protocol_id = format_args!("{:#x}", config.protocol_id),
        slots = config.slots,
        shards = servers.len(),
        steering = settings.steering.name(),
        tick_hz = tick,
        app = app.name(),
        keys = keys.file().map_or("environment".into(), |path| path.to_string_lossy()).as_ref(),
        max_token_lifetime = span(config.max_token_lifetime, "unlimited"),
        takeover_after = span(config.takeover_after, "never"),
        tokens_from = fence(config.fence),
        history = settings.history.as_ref().map_or("none".into(), |path| path.to_string_lossy()).as_ref(),
        remembered_tokens = remembered,
        history_capacity = config.history_tokens,
        pending_clients = config.pending_clients,
        drain = span(Some(*drain), ""),
        dscp = %dscp,
        kernel_filter = server.has_kernel_filter(),
        batching = sockets.batching().name(),
        receive_buffer = buffers.map(|buffers| buffers.receive),
        send_buffer = buffers.map(|buffers| buffers.send),
        "serving"
    );
    if servers.len() == 1 && settings.steering == Steering::Cpu {
        info!("one shard has everything: --steering cpu changes nothing without --shards of at least 2");
    }
    if config.timeouts == TimeoutPolicy::Development {
        warn!(
            "DEVELOPMENT: tokens with a negative time-out keep their slots for ever, whether their players are there or \
             not. Never run this for the public"
        );
    }
}

fn list(items: impl IntoIterator<Item: Display>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

fn span(span: Option<Duration>, none: &str) -> String {
    span.map_or_else(|| none.to_owned(), |span| format!("{span:?}"))
}

const fn fence(fence: Fence) -> &'static str {
    match fence {
        Fence::Closed => "this start on",
        Fence::Since(_) => "the history's beginning on",
        Fence::Open => "any time",
    }
}
