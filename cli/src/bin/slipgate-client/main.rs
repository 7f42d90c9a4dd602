//! `slipgate-client`: connects to a game server, sends payloads and checks their echoes.
//!
//! It is a tool for setting up and monitoring servers: the exit status names the result.

mod flags;
mod output;

use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use slipgate_cli::issuer_authorities::{explain, fetch_token};
use slipgate_cli::log::LogFormat;
use slipgate_cli::output::{print_error_line, queue_lines};
use slipgate_cli::stop_signal::{StopAction, on_stop_signal};
use slipgate_cli::streams::print_last_line;
use slipgate_client::fetch::FetchRequest;
use slipgate_client::probe::{Probe, ProbeConfig, ProbeReport};
use slipgate_client::sockets::{Marking, Sockets};
use slipgate_client::token::TimeoutPolicy;
use slipgate_client::{Client, ConnectToken};
use zeroize::Zeroizing;

use crate::flags::{Flags, TokenSource};
use crate::output::Output;

/// How long to wait for the echoes of the last payloads.
const LAST_ECHOES_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between two progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The longest sleep of the loop, which bounds the delay of a signal.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// The exit status of a failure. Status 0 means that every echo arrived and was correct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failed {
    /// The system refused something, or no token could be read.
    Start = 1,
    /// No server accepted the client.
    Connect = 3,
    /// The connection ended early.
    Lost = 4,
    /// Echoes were wrong or missing.
    Echoes = 5,
}

fn main() -> ExitCode {
    let (flags, source) = match Flags::read() {
        Ok(read) => read,
        Err(failure) => return failure.report("slipgate-client"),
    };
    // Ignored: the client is a tool for tests, and holds no private key.
    let _ = flags.core_dumps.apply();
    match run(&flags, source) {
        Ok(()) => ExitCode::SUCCESS,
        Err((failed, message)) => {
            print_last_line(format!("slipgate-client: {message}"));
            ExitCode::from(failed as u8)
        }
    }
}

fn run(flags: &Flags, source: TokenSource) -> Result<(), (Failed, String)> {
    let start = |message: String| (Failed::Start, message);
    let format = if flags.json { LogFormat::Json } else { LogFormat::Text };
    let _flush = queue_lines(format).map_err(|failure| start(failure.to_string()))?;
    let token = token(flags, source).map_err(start)?;
    // Registered only now: while the token is fetched, nothing polls the flag, and a signal must end the program.
    let stop = listen_to_signals().map_err(start)?;
    let timeouts = if flags.development { TimeoutPolicy::Development } else { TimeoutPolicy::Clamped };
    let client = match &flags.bind {
        Some(bind) => Sockets::bind(&[*bind]).map(Client::with_sockets),
        None => Client::new(),
    };
    let client = client.map_err(|error| start(format!("cannot open a socket: {error}")))?.with_timeouts(timeouts);
    let marked = client.sockets().set_dscp(flags.dscp);
    if marked.map_err(|error| start(format!("cannot mark packets: {error}")))? == Marking::Partly {
        print_error_line("slipgate-client: this system cannot mark all packets; some are sent unmarked");
    }
    let mark = u64::from(std::process::id()) << 32 | u64::from(token.facts().created.0 as u32);
    let config = ProbeConfig { rate: flags.rate, sizes: flags.sizes.0.clone(), mark };
    let mut output = Output::new(flags.json);
    output.begin(token.facts());
    let mut probe = Probe::begin(client, token, config).map_err(|error| (Failed::Connect, error.to_string()))?;
    drive(&mut probe, flags.duration.map(|span| span.0), &stop, &mut output)
        .map_err(|error| start(format!("cannot wait for packets: {error}")))?;
    let report = probe.report().clone();
    let outcome = check_report(&report);
    let left = probe.leave();
    output.end(&report, outcome.is_ok());
    left.map_err(|error| start(error.to_string()))?;
    outcome
}

/// Returns a flag that signals to stop set.
fn listen_to_signals() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    on_stop_signal(&StopAction::Set(Arc::clone(&stop)))
        .map_err(|error| format!("cannot register signal handlers: {error}"))?;
    Ok(stop)
}

/// Sends until the time is over or a signal arrives, then waits for the last echoes.
fn drive(probe: &mut Probe, duration: Option<Duration>, stop: &AtomicBool, output: &mut Output) -> io::Result<()> {
    let mut next_progress = Instant::now() + PROGRESS_INTERVAL;
    let mut end = None;
    loop {
        let now = Instant::now();
        if probe.report().was_connected && end.is_none() {
            end = duration.map(|duration| now + duration);
        }
        let over = stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end);
        if over || !probe.client().state().is_active() {
            break;
        }
        probe.turn(MAX_SLEEP)?;
        if now >= next_progress {
            next_progress = now + PROGRESS_INTERVAL;
            output.progress(probe.report());
        }
    }
    let deadline = Instant::now() + LAST_ECHOES_TIMEOUT;
    while probe.client().state().is_connected() && probe.report().missing() > 0 && Instant::now() < deadline {
        probe.receive_turn(MAX_SLEEP)?;
    }
    Ok(())
}

fn check_report(report: &ProbeReport) -> Result<(), (Failed, String)> {
    match &report.ended {
        Some(reason) if !report.was_connected => return Err((Failed::Connect, reason.to_string())),
        Some(reason) => return Err((Failed::Lost, reason.to_string())),
        None if !report.was_connected => {
            return Err((Failed::Connect, "stopped before a server accepted the client".to_owned()));
        }
        None => {}
    }
    if report.wrong > 0 || report.missing() > 0 || report.sent == 0 {
        let (wrong, missing, sent) = (report.wrong, report.missing(), report.sent);
        return Err((
            Failed::Echoes,
            format!("{missing} echoes of {sent} payloads are missing, {wrong} echoes were wrong"),
        ));
    }
    Ok(())
}

fn token(flags: &Flags, source: TokenSource) -> Result<ConnectToken, String> {
    match source {
        TokenSource::File(path) => read_token(&path),
        TokenSource::Issuer { url, client_id, authorities } => {
            let key = api_key(flags.api_key_file.as_deref())?;
            let servers = (!flags.servers.is_empty()).then(|| flags.servers.clone());
            let (group, regions) = (flags.group.clone(), flags.regions.clone());
            let protocol_id = flags.protocol_id.map(|id| id.0);
            let request = FetchRequest { client_id, servers, group, regions, protocol_id, ..FetchRequest::default() };
            fetch_token(&url, &key, &request, authorities.as_ref()).map_err(|error| explain(&error))
        }
    }
}

/// Reads a token of 2048 bytes, or its base64, from a file or from standard input (`-`).
fn read_token(path: &Path) -> Result<ConnectToken, String> {
    let bytes = read_small(path).map_err(|error| format!("cannot read the token {}: {error}", path.display()))?;
    let text: Zeroizing<Vec<u8>> =
        Zeroizing::new(bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect());
    let decoded = STANDARD.decode(text.as_slice()).map(Zeroizing::new);
    let token = decoded.as_ref().map_or(bytes.as_slice(), |decoded| decoded.as_slice());
    ConnectToken::from_bytes(token).map_err(|error| format!("{} holds no connect token: {error}", path.display()))
}

fn api_key(file: Option<&Path>) -> Result<Zeroizing<String>, String> {
    let text = match file {
        Some(path) => {
            let bytes = read_small(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            Zeroizing::new(String::from_utf8_lossy(&bytes).trim().to_owned())
        }
        None => Zeroizing::new(std::env::var(flags::API_KEY_VARIABLE).unwrap_or_default().trim().to_owned()),
    };
    if text.is_empty() {
        let variable = flags::API_KEY_VARIABLE;
        return Err(format!("the issuer needs an API key: give --api-key-file, or set {variable}"));
    }
    Ok(text)
}

/// Reads at most 8192 bytes: more than a token in base64 with line breaks has.
fn read_small(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    const MAX_BYTES: u64 = 8192;
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES as usize));
    if path == Path::new("-") {
        io::stdin().lock().take(MAX_BYTES).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
