//! `slipgate demo`: all three places at work in one program, over real HTTP and real UDP.
//!
//! ```text
//!   client threads ──POST /v1/tokens──▶ issuer thread
//!        │  ▲
//!        │  │ connect token
//!        ▼
//!   encrypted UDP ◀────echoes────▶ server thread          this thread shows it
//! ```

mod clients;
mod server;
mod show;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use slipgate::issuer::api_key::{ApiKey, ApiKeys};
use slipgate::issuer::http::{self, Running, TokenService};
use slipgate::issuer::{Issuer, Limits};
use slipgate::protocol::crypto::key::{Key, KeyRing};
use slipgate_edge::cli::Failure;
use slipgate_edge::listen;

use self::clients::Clients;
use self::server::EchoServer;
use self::show::{Picture, Screen};
use crate::keygen::entropy;

/// The demo's game.
const PROTOCOL_ID: u64 = 0x51_19_67_a7_e0_de_30_01;
/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(100);
/// How long the clients have to connect, and later to get their last echoes.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long everything has to come to its end.
const FAREWELL: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Flags {
    /// How many clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=512))]
    clients: u32,

    /// How long the clients play, or `ever` (until Ctrl-C)
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Span,

    /// Payloads that each client sends a second
    #[arg(long, value_name = "HZ", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,

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
enum Span {
    For(Duration),
    Ever,
}

fn duration(text: &str) -> Result<Span, String> {
    if text == "ever" {
        return Ok(Span::Ever);
    }
    humantime::parse_duration(text).map(Span::For).map_err(|error| format!("{error}; such as 10s, 2m, or ever"))
}

pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let interrupted = listen_to_signals()?;
    let (private_key, api_key) = (Key::random(&mut entropy()?), ApiKey::random(&mut entropy()?));
    let server = EchoServer::start(flags.server, flags.clients, private_key.clone().into(), PROTOCOL_ID)?;
    let issuer = start_issuer(flags.issuer, private_key.into(), server.address(), &api_key)?;
    let mut screen = Screen::new(flags.json);
    screen.introduce(issuer.address(), server.address(), flags.clients, flags.rate);

    let url = format!("http://{}", issuer.address());
    let mut clients = Clients::start(flags.clients, flags.rate, url, api_key)?;
    let picture = |clients: &Clients| Picture { clients: clients.reports(), server: server.report() };
    play(flags.duration, &interrupted, &clients, || screen.draw(&picture(&clients)));
    clients.stop_sending();
    wait_until(PATIENCE, || clients.have_their_echoes());
    let last = picture(&clients);
    clients.leave();
    wait_until(FAREWELL, || server.report().connected == 0);
    screen.finish();
    let verdict = screen.summarise(&last, &server.report());
    drop(issuer);
    server.stop()?;
    verdict
}

/// Draws until the clients have played for as long as they should, or cannot, or the user has seen enough.
fn play(span: Span, interrupted: &AtomicBool, clients: &Clients, mut draw: impl FnMut()) {
    let connecting_until = Instant::now() + PATIENCE;
    let mut playing_since = None;
    loop {
        draw();
        let now = Instant::now();
        if playing_since.is_none() && (clients.are_all_connected() || now >= connecting_until) {
            playing_since = Some(now);
        }
        let is_over = match (span, playing_since) {
            (Span::For(span), Some(since)) => now >= since + span,
            _ => false,
        };
        if is_over || interrupted.load(Ordering::Relaxed) || clients.are_all_gone() {
            return;
        }
        std::thread::sleep(FRAME);
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
        assert_eq!(duration("10s"), Ok(Span::For(Duration::from_secs(10))));
        assert_eq!(duration("1m 30s"), Ok(Span::For(Duration::from_secs(90))));
        assert_eq!(duration("ever"), Ok(Span::Ever));
        assert!(duration("10").is_err() && duration("").is_err());
    }
}
