//! `slipgate demo`: token issuer, dedicated server and clients in one process, over real HTTP and real UDP.
//!
//! ```text
//!   client threads ──POST /v1/tokens──▶ issuer thread
//!        │  ▲
//!        │  │ connect token
//!        ▼
//!   encrypted UDP ◀── chat, state, a map ──▶ server thread          this thread shows it
//!              (over an impaired path with --preset)
//! ```

mod clients;
mod game;
mod impaired_path;
mod outcome;
mod player;
mod received;
mod server;
mod server_game;
mod show;
mod snapshot;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use slipgate_cli::Failure;
use slipgate_cli::log::LogFormat;
use slipgate_cli::output::queue_lines;
use slipgate_cli::values::{NotASpan, Span};
use slipgate_netcode::crypto::key::{Key, KeyRing};
use slipgate_os::listen;
use slipgate_sim::Preset;
use slipgate_token_issuer::api_key::{ApiKey, ApiKeys};
use slipgate_token_issuer::http::{self, RunningService, TokenService};
use slipgate_token_issuer::{Issuer, Limits};

use self::clients::Clients;
use self::game::GameSettings;
use self::impaired_path::ImpairedPath;
use self::server::{Bound, GameServer};
use self::show::Screen;
use self::snapshot::Snapshot;
use crate::keygen::entropy;

/// The protocol id of the demo's game.
const PROTOCOL_ID: u64 = 0x51_19_67_a7_e0_de_30_01;
/// The interval at which the display is updated.
const FRAME: Duration = Duration::from_millis(100);
/// How long the clients may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait, without any progress, for messages that are still missing at the end.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may take to process all disconnects.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Flags {
    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: u32,

    /// How long the clients play; `ever` means until Ctrl-C
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Playtime,

    /// State messages per second, of each client and to each client, if the path allows
    #[arg(long, value_name = "HZ", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,

    /// Size of the map that the server sends to each client in the background, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 1024,
        value_parser = clap::value_parser!(u32).range(1..=game::MAX_MAP_KIB.into()))]
    map: u32,

    /// Impair the network between clients and server: wifi-bad, 4g, satellite or dsl-bufferbloat [default: none]
    #[arg(long, value_name = "NAME")]
    preset: Option<Preset>,

    /// Listening address of the token issuer (HTTP, loopback only); port 0 chooses a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    issuer: SocketAddr,

    /// Listening address of the server (UDP); port 0 chooses a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    server: SocketAddr,

    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

/// How long the clients play.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Playtime {
    For(Span),
    Ever,
}

fn duration(text: &str) -> Result<Playtime, String> {
    if text == "ever" {
        return Ok(Playtime::Ever);
    }
    text.parse().map(Playtime::For).map_err(|NotASpan| format!("{NotASpan}, or the word ever"))
}

pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let _flush = queue_lines(if flags.json { LogFormat::Json } else { LogFormat::Text })?;
    let interrupted = listen_to_signals()?;
    let (private_key, api_key) = (Key::random(&mut entropy()?), ApiKey::random(&mut entropy()?));
    let settings = GameSettings::new(flags.rate, flags.map)?;
    let bound = Bound::bind(flags.server)?;
    let address = bound.address();
    let path = flags.preset.map(|preset| ImpairedPath::start(preset, address, flags.clients)).transpose()?;
    // Clients connect to the address that their tokens list: the proxy's, if there is one.
    let public_address = path.as_ref().map_or(address, ImpairedPath::address);
    let server = GameServer::start(
        bound,
        public_address,
        flags.clients,
        private_key.clone().into(),
        PROTOCOL_ID,
        settings.clone(),
    )?;
    let issuer = start_issuer(flags.issuer, private_key.into(), public_address, &api_key)?;
    let mut screen = Screen::new(flags.json);
    screen.introduce(issuer.address(), address, public_address, flags);

    let url = format!("http://{}", issuer.address());
    let mut clients = Clients::start(flags.clients, &settings, url, public_address, api_key)?;
    let snapshot = |clients: &Clients| Snapshot::new(clients.reports(), server.report(), &settings);
    play(flags.duration, &interrupted, &clients, || screen.draw(&snapshot(&clients)));
    clients.stop_sending();
    wait_for_delivery(&clients, || screen.draw(&snapshot(&clients)));
    let last = snapshot(&clients);
    clients.leave();
    wait_until(DISCONNECT_TIMEOUT, || server.report().connected == 0);
    let outcome = screen.summarise(&last, &server.report());
    drop(issuer);
    path.map_or(Ok(()), ImpairedPath::stop)?;
    server.stop()?;
    outcome
}

/// Updates the display until the playing time is over, all clients ended, or a signal arrives.
fn play(playtime: Playtime, interrupted: &AtomicBool, clients: &Clients, mut draw: impl FnMut()) {
    let connecting_until = Instant::now() + CONNECT_TIMEOUT;
    let mut playing_since = None;
    loop {
        draw();
        let now = Instant::now();
        if playing_since.is_none() && (clients.are_all_connected() || now >= connecting_until) {
            playing_since = Some(now);
        }
        let is_over = match (playtime, playing_since) {
            (Playtime::For(span), Some(since)) => now >= since + span.0,
            _ => false,
        };
        if is_over || interrupted.load(Ordering::Relaxed) || clients.have_all_ended() {
            return;
        }
        std::thread::sleep(FRAME);
    }
}

/// Updates the display until all reliable messages arrived, or none arrived for [`DELIVERY_TIMEOUT`].
fn wait_for_delivery(clients: &Clients, mut draw: impl FnMut()) {
    let (mut progress, mut since) = (clients.progress(), Instant::now());
    while !clients.have_received_all() && since.elapsed() < DELIVERY_TIMEOUT {
        std::thread::sleep(Duration::from_millis(10));
        draw();
        let newer = clients.progress();
        if newer != progress {
            (progress, since) = (newer, Instant::now());
        }
    }
}

fn wait_until(timeout: Duration, done: impl Fn() -> bool) {
    let end = Instant::now() + timeout;
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn listen_to_signals() -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the program at once, even if a thread hangs.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
            .map_err(|error| Failure::run_time(format!("cannot register signal handlers: {error}")))?;
    }
    Ok(interrupted)
}

fn start_issuer(
    bind: SocketAddr,
    keys: KeyRing,
    server: SocketAddr,
    api_key: &ApiKey,
) -> Result<RunningService, Failure> {
    if !bind.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "the demo's issuer serves plain HTTP, so {bind} must be a loopback address"
        )));
    }
    let issuer = Issuer::new(PROTOCOL_ID, keys, &[server], Limits::default())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let digest = api_key.digest(&mut entropy()?);
    let api_keys = ApiKeys::new(vec![digest]).map_err(|error| Failure::run_time(error.to_string()))?;
    TcpListener::bind(bind)
        .and_then(|listener| http::spawn(listener, TokenService::new(issuer, api_keys)))
        .map_err(|error| cannot_listen("issuer", "HTTP", bind, &error))
}

/// Returns the failure of a program part that cannot listen on its address.
fn cannot_listen(part: &str, protocol: &str, bind: SocketAddr, error: &io::Error) -> Failure {
    let reason = listen::reason(error);
    Failure::run_time(format!("the {part} cannot listen on {bind} ({protocol}): {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_runs_for_a_time_or_for_ever() {
        for (text, seconds) in [("10s", 10), ("1m 30s", 90), ("10", 10)] {
            assert_eq!(duration(text), Ok(Playtime::For(Span(Duration::from_secs(seconds)))), "{text}");
        }
        assert_eq!(duration("ever"), Ok(Playtime::Ever));
        for text in ["", "Ever", "unlimited", "18446744073709551615s"] {
            assert!(duration(text).is_err_and(|message| message.ends_with("or the word ever")), "{text}");
        }
    }
}
