//! `slipgate demo`: all three places at work in one program, over real HTTP and real UDP.
//!
//! ```text
//!   client threads ──POST /v1/tokens──▶ issuer thread
//!        │  ▲
//!        │  │ connect token
//!        ▼
//!   encrypted UDP ◀── chat, state, a map ──▶ server thread          this thread shows it
//!                  (over a bad line, if asked)
//! ```

mod checks;
mod clients;
mod game;
mod line;
mod picture;
mod player;
mod seats;
mod server;
mod show;
mod verdict;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use slipgate_cli::Failure;
use slipgate_cli::values::{NotASpan, Span};
use slipgate_netcode::crypto::key::{Key, KeyRing};
use slipgate_os::listen;
use slipgate_sim::Preset;
use slipgate_token_issuer::api_key::{ApiKey, ApiKeys};
use slipgate_token_issuer::http::{self, Running, TokenService};
use slipgate_token_issuer::{Issuer, Limits};

use self::clients::Clients;
use self::game::Rules;
use self::line::BadLine;
use self::picture::Picture;
use self::server::{Bound, GameServer};
use self::show::Screen;
use crate::keygen::entropy;

/// The demo's game.
const PROTOCOL_ID: u64 = 0x51_19_67_a7_e0_de_30_01;
/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(100);
/// How long the clients have to connect, and later how long nothing more may arrive before what is missing is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long everything has to come to its end.
const FAREWELL: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Flags {
    /// How many clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    clients: u32,

    /// How long the clients play, or `ever` (until Ctrl-C)
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Playtime,

    /// How often a second each client and the server send their state, if the path allows
    #[arg(long, value_name = "HZ", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,

    /// The map that the server sends each client in the background, in KiB
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=game::MOST_MAP_KIB.into()))]
    map: u32,

    /// Puts a bad line between the clients and the server: wifi-bad, 4g, satellite or dsl-bufferbloat [default: none]
    #[arg(long, value_name = "NAME")]
    preset: Option<Preset>,

    /// Where the issuer listens (HTTP, loopback); port 0: any free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    issuer: SocketAddr,

    /// Where the server listens (UDP); port 0: any free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    server: SocketAddr,

    /// One JSON object a line instead of a picture
    #[arg(long)]
    json: bool,
}

/// How long the demo runs.
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
    let interrupted = listen_to_signals()?;
    let (private_key, api_key) = (Key::random(&mut entropy()?), ApiKey::random(&mut entropy()?));
    let rules = Rules::new(flags.rate, flags.map)?;
    let bound = Bound::bind(flags.server)?;
    let address = bound.address();
    let line = flags.preset.map(|preset| BadLine::start(preset, address, flags.clients)).transpose()?;
    // Where clients go is what stands in their tokens.
    let door = line.as_ref().map_or(address, BadLine::address);
    let server = GameServer::start(bound, door, flags.clients, private_key.clone().into(), PROTOCOL_ID, rules.clone())?;
    let issuer = start_issuer(flags.issuer, private_key.into(), door, &api_key)?;
    let mut screen = Screen::new(flags.json);
    screen.introduce(issuer.address(), address, door, flags);

    let url = format!("http://{}", issuer.address());
    let mut clients = Clients::start(flags.clients, &rules, url, door, api_key)?;
    let picture = |clients: &Clients| Picture::new(clients.reports(), server.report(), &rules);
    play(flags.duration, &interrupted, &clients, || screen.draw(&picture(&clients)));
    clients.stop_talking();
    wait_for_the_rest(&clients, || screen.draw(&picture(&clients)));
    let last = picture(&clients);
    clients.leave();
    wait_until(FAREWELL, || server.report().connected == 0);
    let verdict = screen.summarise(&last, &server.report());
    drop(issuer);
    line.map_or(Ok(()), BadLine::stop)?;
    server.stop()?;
    verdict
}

/// Draws until the clients have played for as long as they should, or cannot, or the user has seen enough.
fn play(playtime: Playtime, interrupted: &AtomicBool, clients: &Clients, mut draw: impl FnMut()) {
    let connecting_until = Instant::now() + PATIENCE;
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
        if is_over || interrupted.load(Ordering::Relaxed) || clients.are_all_gone() {
            return;
        }
        std::thread::sleep(FRAME);
    }
}

/// Draws until all has arrived that must, or nothing does any more.
fn wait_for_the_rest(clients: &Clients, mut draw: impl FnMut()) {
    let (mut progress, mut since) = (clients.progress(), Instant::now());
    while !clients.have_all() && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
        draw();
        let newer = clients.progress();
        if newer != progress {
            (progress, since) = (newer, Instant::now());
        }
    }
}

fn wait_until(patience: Duration, done: impl Fn() -> bool) {
    let end = Instant::now() + patience;
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn listen_to_signals() -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the program at once, whatever hangs.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupted))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupted)))
            .map_err(|error| Failure::run_time(format!("the system refuses to report signals: {error}")))?;
    }
    Ok(interrupted)
}

fn start_issuer(bind: SocketAddr, keys: KeyRing, server: SocketAddr, api_key: &ApiKey) -> Result<Running, Failure> {
    if !bind.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "the demo's issuer speaks plain HTTP, so {bind} must be a loopback address"
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

/// Why an address cannot be had, in words.
fn cannot_listen(who: &str, what: &str, bind: SocketAddr, error: &io::Error) -> Failure {
    let reason = listen::reason(error);
    Failure::run_time(format!("the {who} cannot listen on {bind} ({what}): {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_runs_for_a_time_or_for_ever() {
        for (text, seconds) in [("10s", 10), ("1m 30s", 90), ("10", 10)] {
            assert_eq!(duration(text), Ok(Playtime::For(Span(Duration::from_secs(seconds)))), "{text}");
        }
        assert_eq!(duration("ever"), Ok(Playtime::Ever));
        for text in ["", "Ever", "unlimited", "18446744073709551615s"] {
            assert!(duration(text).is_err_and(|sentence| sentence.ends_with("or the word ever")), "{text}");
        }
    }
}
