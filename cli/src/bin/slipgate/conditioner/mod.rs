//! `slipgate conditioner`: a UDP proxy between real programs that spoils what passes.
//!
//! What it does to datagrams is the crate `slipgate-conditioner`; here are its flags, its turn, and what it shows.

mod show;
mod values;
mod wishes;

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use slipgate_cli::Failure;
use slipgate_cli::signals::Signals;
use slipgate_cli::values::Span;
use slipgate_os::clock::Clock;
use slipgate_os::{entropy, listen};
use slipgate_sim::proxy::{DEFAULT_IDLE, DEFAULT_MAX_CLIENTS, Proxy, Settings};
use slipgate_sim::{Conditions, Preset};

use self::show::{Picture, Screen};
use self::values::Forgets;
use self::wishes::{Wishes, list};

/// A signal is heard after so long at the latest, also where it does not end a wait.
const ATTENTION: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct Flags {
    /// Where clients send to (UDP); port 0: any free one
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,

    /// The server that it is all for
    #[arg(long, value_name = "IP:PORT")]
    to: SocketAddr,

    /// A line to start from: wifi-bad, 4g, satellite or dsl-bufferbloat; single flags change it
    #[arg(long, value_name = "NAME")]
    preset: Option<Preset>,

    #[command(flatten, next_help_heading = "What happens to datagrams, each way")]
    both: Wishes,

    /// What happens from clients to the server alone: these flags as a list, as in loss=2%,latency=40ms
    #[arg(long, value_name = "LIST", value_parser = list, help_heading = "What happens to datagrams, one way")]
    up: Option<Wishes>,

    /// What happens from the server to clients alone
    #[arg(long, value_name = "LIST", value_parser = list, help_heading = "What happens to datagrams, one way")]
    down: Option<Wishes>,

    /// How often the server sees a client at a new address, as when a NAT forgets: 30s, or ~30s for about so often
    #[arg(long, value_name = "TIME", help_heading = "What happens to clients")]
    rebind: Option<Forgets>,

    /// Decides all that happens by chance [default: another one each time, which is printed]
    #[arg(long, value_name = "N", help_heading = "How it runs")]
    seed: Option<u64>,

    /// How many clients at once
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MAX_CLIENTS as u32, help_heading = "How it runs",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_clients: u32,

    /// How long a client is remembered that sends nothing [default: 2m]
    #[arg(long, value_name = "TIME", help_heading = "How it runs")]
    idle: Option<Span>,

    /// Ends after this time [default: when it is interrupted]
    #[arg(long = "for", value_name = "TIME", help_heading = "How it runs")]
    duration: Option<Span>,

    /// How often there is a line where there is no terminal
    #[arg(long, value_name = "TIME", default_value = "1s", help_heading = "How it runs")]
    interval: Span,

    /// One JSON object a line, on standard output
    #[arg(long, help_heading = "How it runs")]
    json: bool,
}

pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let settings = settings(flags)?;
    let signals = Signals::listen().map_err(|error| system("report signals", &error))?;
    let (listen, to) = (settings.listen, settings.to);
    let mut screen = Screen::new(flags.json, flags.interval.0);
    let mut proxy = Proxy::bind(settings.clone()).map_err(|error| cannot_listen(listen, to, &error))?;
    screen.introduce(proxy.local_address(), &settings);
    let clock = Clock::start();
    let end = flags.duration.map(|Span(duration)| clock.monotonic().after(duration));
    loop {
        let now = clock.monotonic();
        proxy.turn(now);
        if signals.take_stop() || end.is_some_and(|end| end <= now) {
            screen.summarise(&Picture::of(&proxy, now));
            return Ok(());
        }
        screen.draw(now, || Picture::of(&proxy, now));
        let until_end = end.map_or(ATTENTION, |end| end.since(now));
        proxy.wait(ATTENTION.min(until_end), now).map_err(|error| system("wait for datagrams", &error))?;
    }
}

fn settings(flags: &Flags) -> Result<Settings, Failure> {
    if flags.to.port() == 0 || flags.to.ip().is_unspecified() || flags.to.ip().is_multicast() {
        return Err(Failure::usage(format!("--to {}: that is no server's address", flags.to)));
    }
    if flags.interval.0 < Duration::from_millis(10) {
        return Err(Failure::usage("--interval: at least 10ms"));
    }
    let seed = match flags.seed {
        Some(seed) => seed,
        None => random_seed()?,
    };
    let base = |of: fn(Preset) -> Conditions| flags.preset.map_or(Conditions::perfect(), of);
    let direction = |name, wishes: &Option<Wishes>, base| {
        let wishes = wishes.as_ref().map_or_else(|| flags.both.clone(), |wishes| wishes.or(&flags.both));
        wishes.conditions(base).map_err(|reason| Failure::usage(format!("{name}: {reason}")))
    };
    Ok(Settings {
        up: direction("up", &flags.up, base(Preset::up))?,
        down: direction("down", &flags.down, base(Preset::down))?,
        rebinding: flags.rebind.map(|Forgets(rebinding)| rebinding),
        max_clients: flags.max_clients as usize,
        idle: flags.idle.map_or(DEFAULT_IDLE, |Span(idle)| idle.max(Duration::from_secs(1))),
        ..Settings::new(flags.listen, flags.to, seed)
    })
}

/// Small enough to be copied by hand, and for JSON's numbers.
fn random_seed() -> Result<u64, Failure> {
    let [a, b, c, d, ..] = entropy::bytes().map_err(|error| system("give entropy", &error))?;
    Ok(u32::from_le_bytes([a, b, c, d]).into())
}

fn system(what: &str, error: &std::io::Error) -> Failure {
    Failure::run_time(format!("the system refuses to {what}: {error}"))
}

fn cannot_listen(listen: SocketAddr, to: SocketAddr, error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::InvalidInput {
        return Failure::usage(format!("--listen {listen} and --to {to} are the same: datagrams would go in circles"));
    }
    Failure::run_time(format!("the conditioner cannot listen on {listen} (UDP): {}", listen::reason(error)))
}
