//! `slipgate conditioner`: a UDP proxy that impairs the network between real programs.
//!
//! The crate `slipgate-sim` implements the proxy. This module holds its flags, its loop and its display.

mod impairments;
mod show;
mod values;

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use slipgate_cli::Failure;
use slipgate_cli::log::LogFormat;
use slipgate_cli::output::queue_lines;
use slipgate_cli::signals::Signals;
use slipgate_cli::values::Span;
use slipgate_os::clock::Clock;
use slipgate_os::{entropy, listen};
use slipgate_sim::proxy::{DEFAULT_IDLE, DEFAULT_MAX_CLIENTS, Proxy, ProxySettings};
use slipgate_sim::{Conditions, Preset};

use self::impairments::{Impairments, list};
use self::show::{ConditionerScreen, ProxySnapshot};
use self::values::RebindInterval;

/// The longest wait of the loop, which bounds the delay of a signal on systems where it does not interrupt the wait.
const MAX_WAIT: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct ConditionerFlags {
    /// Listen for clients on this address (UDP); port 0 chooses a free one
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,

    /// Forward to this server
    #[arg(long, value_name = "IP:PORT")]
    to: SocketAddr,

    /// Start from these conditions: wifi-bad, 4g, satellite or dsl-bufferbloat; other flags change single values
    #[arg(long, value_name = "NAME")]
    preset: Option<Preset>,

    #[command(flatten, next_help_heading = "Impairments, both directions")]
    both: Impairments,

    /// Impairments from clients to the server only: the flags above as a list, as in loss=2%,latency=40ms
    #[arg(long, value_name = "LIST", value_parser = list, help_heading = "Impairments, one direction")]
    up: Option<Impairments>,

    /// Impairments from the server to clients only
    #[arg(long, value_name = "LIST", value_parser = list, help_heading = "Impairments, one direction")]
    down: Option<Impairments>,

    /// Give each client a new address towards the server, as a NAT does: every 30s, or ~30s for random intervals
    #[arg(long, value_name = "TIME", help_heading = "Clients")]
    rebind: Option<RebindInterval>,

    /// Seed of all random decisions [default: a random one, which is printed]
    #[arg(long, value_name = "N", help_heading = "Operation")]
    seed: Option<u64>,

    /// Maximum number of simultaneous clients
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_CLIENTS as u32, help_heading = "Operation",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_clients: u32,

    /// Forget a client that sends nothing for this long [default: 2m]
    #[arg(long, value_name = "TIME", help_heading = "Operation")]
    idle: Option<Span>,

    /// Run for this long [default: until Ctrl-C or SIGTERM]
    #[arg(long = "for", value_name = "TIME", help_heading = "Operation")]
    duration: Option<Span>,

    /// Interval between two lines if the output is not a terminal
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "Operation")]
    interval: Span,

    /// Print one JSON object per line to standard output
    #[arg(long, help_heading = "Operation")]
    json: bool,
}

pub(crate) fn run(flags: &ConditionerFlags) -> Result<(), Failure> {
    let settings = settings(flags)?;
    let signals = Signals::listen().map_err(|error| system("register signal handlers", &error))?;
    let (listen, to) = (settings.listen, settings.to);
    let _flush = queue_lines(if flags.json { LogFormat::Json } else { LogFormat::Text })?;
    let mut screen = ConditionerScreen::new(flags.json, flags.interval.0);
    let mut proxy = Proxy::bind(settings.clone()).map_err(|error| cannot_listen(listen, to, &error))?;
    screen.introduce(proxy.local_address(), &settings);
    let clock = Clock::start();
    let end = flags.duration.map(|Span(duration)| clock.monotonic().after(duration));
    loop {
        let now = clock.monotonic();
        proxy.turn(now);
        if signals.take_stop() || end.is_some_and(|end| end <= now) {
            screen.summarise(&ProxySnapshot::of(&proxy, now));
            return Ok(());
        }
        screen.draw(now, || ProxySnapshot::of(&proxy, now));
        let until_end = end.map_or(MAX_WAIT, |end| end.since(now));
        proxy.wait(MAX_WAIT.min(until_end), now).map_err(|error| system("wait for datagrams", &error))?;
    }
}

fn settings(flags: &ConditionerFlags) -> Result<ProxySettings, Failure> {
    if flags.to.port() == 0 || flags.to.ip().is_unspecified() || flags.to.ip().is_multicast() {
        return Err(Failure::usage(format!("--to {}: this is not a server's address", flags.to)));
    }
    if flags.interval.0 < Duration::from_millis(10) {
        return Err(Failure::usage("--interval must be at least 10ms"));
    }
    let seed = match flags.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    let base = |of: fn(Preset) -> Conditions| flags.preset.map_or(Conditions::perfect(), of);
    let direction = |name, impairments: &Option<Impairments>, base| {
        let impairments =
            impairments.as_ref().map_or_else(|| flags.both.clone(), |impairments| impairments.or(&flags.both));
        impairments.conditions(base).map_err(|reason| Failure::usage(format!("{name}: {reason}")))
    };
    Ok(ProxySettings {
        up: direction("up", &flags.up, base(Preset::up))?,
        down: direction("down", &flags.down, base(Preset::down))?,
        rebinding: flags.rebind.map(|RebindInterval(rebinding)| rebinding),
        max_clients: flags.max_clients as usize,
        idle: flags.idle.map_or(DEFAULT_IDLE, |Span(idle)| idle.max(Duration::from_secs(1))),
        ..ProxySettings::new(flags.listen, flags.to, seed)
    })
}

/// Returns a random seed of 32 bits: short enough to type, and exact as a JSON number.
fn random_seed() -> Result<u64, Failure> {
    let [a, b, c, d, ..] = entropy::bytes().map_err(|error| system("read the system's entropy", &error))?;
    Ok(u32::from_le_bytes([a, b, c, d]).into())
}

fn system(what: &str, error: &std::io::Error) -> Failure {
    Failure::run_time(format!("cannot {what}: {error}"))
}

fn cannot_listen(listen: SocketAddr, to: SocketAddr, error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::InvalidInput {
        return Failure::usage(format!("--listen {listen} and --to {to} are the same: the proxy would send to itself"));
    }
    Failure::run_time(format!("the conditioner cannot listen on {listen} (UDP): {}", listen::reason(error)))
}
