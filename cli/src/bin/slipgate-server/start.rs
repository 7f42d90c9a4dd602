//! Starts the server from its checked settings and logs them in one line.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use slipgate_admin::{Admin, AdminError, AdminToken, RedirectTotals};
use slipgate_cli::Failure;
use slipgate_cli::keys::list_fingerprints;
use slipgate_cli::signals::Signals;
use slipgate_fleet::{Fleet, FleetConfig, LifeState, RedirectCounts, RegistrationConfig, agones_address};
use slipgate_server::config::{TimeoutPolicy, TokenCutoff};
use slipgate_server::history_file::HistoryFile;
use slipgate_server::keys::Key;
use slipgate_server::sockets::{Dscp, Marking, Steering};
use slipgate_server::{Clock, Now, Server, ServerConfig, Sockets, StartError};
use tracing::{info, warn};

use crate::settings::{FleetSettings, Settings};

/// Binds the sockets, opens the token history, and creates one server for each shard. SIGTERM and SIGINT have their
/// default action until it has done so.
pub(crate) fn start(
    settings: &Settings,
    admin: Option<&Admin>,
    signals: &Signals,
) -> Result<(Vec<Server>, Clock), Failure> {
    let keys = settings.keys.read()?;
    if let Some(admin) = admin {
        admin.show_keys(&keys);
    }
    let fingerprints = list_fingerprints(keys.iter().map(Key::fingerprint));
    let sockets = bind(settings)?;
    let config = advertising(settings.config.clone(), settings.fleet.agones_port, &sockets)?;
    // Checked before a history file is created.
    config.check().map_err(|error| Failure::usage(error.to_string()))?;
    let clock = Clock::start();
    let history = open_history(settings, clock.now())?;
    let remembered = history.as_ref().map_or(0, HistoryFile::len);
    let mut servers = Server::shards(sockets, config, keys, clock.now(), history).map_err(refused)?;
    for server in &mut servers {
        server.set_read_limits(settings.read_limits);
        if !settings.kernel_filter {
            server
                .set_kernel_filter(false)
                .map_err(|error| Failure::run_time(format!("cannot remove the kernel filter: {error}")))?;
        }
    }
    let servers = servers.into_iter().map(|server| settings.app.set_traffic(server)).collect::<Result<Vec<_>, _>>()?;
    // Must precede the line: a supervisor that sees it may send a signal at once.
    signals.listen_for_stop().map_err(|error| not_registered(&error))?;
    log_start(&servers, settings, &fingerprints, remembered);
    Ok((servers, clock))
}

/// Reads the token of the admin service, if it has one.
pub(crate) fn read_admin_token(settings: &Settings) -> Result<Option<AdminToken>, Failure> {
    let file = settings.admin_token_file.as_deref().filter(|_| settings.admin.is_some());
    let token = file.map(AdminToken::read).transpose();
    token.map_err(|error| Failure::usage(format!("--admin-token-file: {error}")))
}

/// Starts the admin service and logs its address.
pub(crate) fn start_admin(bind: SocketAddr, token: Option<AdminToken>) -> Result<Admin, Failure> {
    let has_token = token.is_some();
    let started = match token {
        Some(token) => Admin::start_with_token(bind, token),
        None => Admin::start(bind),
    };
    let admin = started.map_err(|error| match error {
        AdminError::NotLoopback(_) => Failure::usage(format!("--admin: {error}")),
        error => Failure::run_time(format!("the admin service cannot listen on {bind}: {error}")),
    })?;
    info!(address = %admin.address(), token = has_token, "admin service");
    Ok(admin)
}

/// Starts the life cycle and what is informed of it.
pub(crate) fn start_fleet(settings: &Settings) -> Result<Fleet, Failure> {
    let FleetSettings { agones_port, hooks, end_when_empty, .. } = &settings.fleet;
    let config = FleetConfig {
        slots: settings.config.slots,
        agones_port: *agones_port,
        hooks: hooks.clone(),
        // Only where systemd has started the program.
        systemd: true,
        end_when_empty: *end_when_empty,
    };
    Fleet::start(config).map_err(|error| Failure::run_time(format!("the life cycle cannot be started: {error}")))
}

/// Lets the metrics show the registration, if there is one, and the redirects.
pub(crate) fn show_fleet(admin: &Admin, fleet: &Fleet, settings: &Settings) {
    if settings.fleet.registration.is_some() {
        let registration = fleet.registration();
        admin.show_registration(move || registration.is_registered());
    }
    let counter = fleet.redirects();
    admin.count_redirects(move || {
        let RedirectCounts { sent, refused, without_channels, left, waiting } = counter.counts();
        RedirectTotals { sent, refused, without_channels, left, waiting }
    });
}

/// Registers the server with its issuer, and reports that it is ready.
pub(crate) fn report_ready(fleet: &Fleet, servers: &[Server], settings: &Settings) -> Result<(), Failure> {
    if let (Some(registration), Some(server)) = (&settings.fleet.registration, servers.first()) {
        let addresses = server.config().advertised.clone();
        let accepts_earlier_tokens = settings.history.is_some() || settings.config.token_cutoff != TokenCutoff::AtStart;
        let registration = RegistrationConfig { addresses, accepts_earlier_tokens, ..registration.clone() };
        let registered = fleet.register(registration);
        registered.map_err(|error| Failure::run_time(format!("the registration cannot be started: {error}")))?;
    }
    fleet.life_cycle().advance(LifeState::Ready);
    Ok(())
}

/// Binds the sockets of each shard and configures wakeups, marking and steering.
fn bind(settings: &Settings) -> Result<Vec<Sockets>, Failure> {
    let sockets = Sockets::bind_shards(&settings.bind, settings.shards);
    let mut sockets = sockets.map_err(|error| Failure::run_time(error.to_string()))?;
    sockets.iter_mut().for_each(|sockets| sockets.set_wake_policy(settings.wake));
    mark(&sockets, settings.dscp)?;
    if let Some(first) = sockets.first() {
        first.steer(settings.steering, settings.shards).map_err(|error| {
            Failure::run_time(format!("cannot steer datagrams by {}: {error}", settings.steering.name()))
        })?;
    }
    Ok(sockets)
}

/// Sets the DSCP of sent packets. Systems without it send unmarked packets, with a warning in the log.
fn mark(shards: &[Sockets], dscp: Dscp) -> Result<(), Failure> {
    let refused = |error| Failure::run_time(format!("cannot mark packets with the DSCP {dscp}: {error}"));
    let mut marked = Marking::All;
    for sockets in shards {
        marked = marked.max(sockets.set_dscp(dscp).map_err(refused)?);
    }
    if marked == Marking::Partly {
        warn!(%dscp, "this system cannot mark all packets: IPv6 packets on Windows are sent unmarked");
    }
    Ok(())
}

/// Returns the settings with the address of Agones, or the bound ones, if no others are given.
fn advertising(mut config: ServerConfig, agones: Option<u16>, shards: &[Sockets]) -> Result<ServerConfig, Failure> {
    if !config.advertised.is_empty() {
        return Ok(config);
    }
    if let Some(port) = agones {
        let address = agones_address(port).map_err(|error| Failure::run_time(error.to_string()))?;
        config.advertised = vec![address];
    } else if let Some(sockets) = shards.first() {
        config.advertised = sockets.local_addresses();
    }
    Ok(config)
}

/// Returns the failure of a program that cannot handle signals.
pub(crate) fn not_registered(error: &io::Error) -> Failure {
    Failure::run_time(format!("cannot register signal handlers: {error}"))
}

fn open_history(settings: &Settings, now: Now) -> Result<Option<HistoryFile>, Failure> {
    let Some(path) = &settings.history else { return Ok(None) };
    let refused = |error| Failure::run_time(format!("the history file {} cannot be used: {error}", path.display()));
    HistoryFile::open(path, now.unix.into()).map_err(refused).map(Some)
}

fn refused(error: StartError) -> Failure {
    match error {
        StartError::ServerConfig(error) => Failure::usage(error.to_string()),
        error => Failure::run_time(error.to_string()),
    }
}

/// Logs the settings in effect.
fn log_start(servers: &[Server], settings: &Settings, fingerprints: &str, remembered: usize) {
    let Some(server) = servers.first() else { return };
    let config = server.config();
    let Settings { keys, tick, app, drain, dscp, .. } = settings;
    let sockets = server.sockets();
    let buffers = sockets.buffers();
    info!(
        bind = list(server.sockets().local_addresses()),
        advertise = list(&config.advertised),
        protocol_id = format_args!("{:#x}", config.protocol_id),
        slots = config.slots,
        shards = servers.len(),
        steering = settings.steering.name(),
        tick_hz = tick,
        wake = settings.wake.name(),
        app = app.name(),
        keys = keys.file().map_or("environment".into(), |path| path.to_string_lossy()).as_ref(),
        fingerprints,
        max_token_lifetime = span(config.max_token_lifetime, "unlimited"),
        takeover_after = span(config.takeover_after, "never"),
        tokens_from = token_cutoff_name(config.token_cutoff),
        history = settings.history.as_ref().map_or("none".into(), |path| path.to_string_lossy()).as_ref(),
        remembered_tokens = remembered,
        history_capacity = config.history_tokens,
        pending_clients = config.pending_clients,
        shutdown_delay = span(Some(settings.shutdown_delay).filter(|delay| !delay.is_zero()), "none"),
        drain = span(Some(*drain), ""),
        end_when_empty = span(settings.fleet.end_when_empty, "never"),
        dscp = %dscp,
        kernel_filter = server.sockets().filter().is_some(),
        batching = sockets.batching().name(),
        receive_buffer = buffers.map(|buffers| buffers.receive),
        send_buffer = buffers.map(|buffers| buffers.send),
        "serving"
    );
    log_notes(servers.len(), settings);
}

/// Logs which settings have no effect, and which make the server unfit for the public.
fn log_notes(shards: usize, settings: &Settings) {
    let redirects = settings.fleet.registration.as_ref().is_some_and(|registration| registration.redirects);
    if redirects && !settings.app.has_channels() {
        warn!(
            app = settings.app.name(),
            "--redirect has no effect: clients of this --app have no channels, so no message can redirect them, and \
             at a drain they stay until they leave"
        );
    }
    if shards == 1 && settings.steering == Steering::Cpu {
        info!("--steering cpu has no effect without --shards of at least 2");
    }
    if settings.config.timeouts == TimeoutPolicy::Development {
        warn!(
            "DEVELOPMENT: clients with a negative timeout in their tokens never time out and keep their slots. Do not \
             use this on a public server"
        );
    }
}

fn list(items: impl IntoIterator<Item: Display>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

fn span(span: Option<Duration>, none: &str) -> String {
    span.map_or_else(|| none.to_owned(), |span| format!("{span:?}"))
}

const fn token_cutoff_name(token_cutoff: TokenCutoff) -> &'static str {
    match token_cutoff {
        TokenCutoff::AtStart => "this start",
        TokenCutoff::At(_) => "the start of the history",
        TokenCutoff::None => "any time",
    }
}
