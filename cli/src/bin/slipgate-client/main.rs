//! `slipgate-client`: connects to a game server, sends payloads and checks their echoes.
//!
//! For people who set servers up and for scripts that watch them: the exit status says what happened.

mod flags;
mod output;

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use slipgate_client::fetch::{self, Request};
use slipgate_client::probe::{Probe, ProbeConfig, ProbeReport};
use slipgate_client::{Client, ConnectToken, Marking, TimeoutPolicy};
use zeroize::Zeroizing;

use crate::flags::{Flags, Source};
use crate::output::Output;

/// How long the echoes of the last payloads are waited for.
const LAST_ECHOES: Duration = Duration::from_secs(2);
/// How often progress is told.
const PROGRESS: Duration = Duration::from_secs(1);
/// How long the loop sleeps at most, so that a signal is soon seen.
const NAP: Duration = Duration::from_millis(50);

/// What the exit status says; 0 says that every echo came and was right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failed {
    /// The system refused something, or there is no token.
    Start = 1,
    /// No server gave a slot.
    Connect = 3,
    /// The connection ended before its time.
    Lost = 4,
    /// Echoes were wrong, or did not come.
    Echoes = 5,
}

fn main() -> ExitCode {
    let (flags, source) = Flags::read();
    match run(&flags, source) {
        Ok(()) => ExitCode::SUCCESS,
        Err((failed, sentence)) => {
            // Nobody is left to be told when stderr is closed.
            let _ = writeln!(io::stderr(), "slipgate-client: {sentence}");
            ExitCode::from(failed as u8)
        }
    }
}

fn run(flags: &Flags, source: Source) -> Result<(), (Failed, String)> {
    let start = |sentence: String| (Failed::Start, sentence);
    let token = token(flags, source).map_err(start)?;
    // Until here nothing looks whether a signal came: its own action ends the program.
    let stop = listen_to_signals().map_err(start)?;
    let timeouts = if flags.development { TimeoutPolicy::Development } else { TimeoutPolicy::Clamped };
    let client = match &flags.bind {
        Some(bind) => Client::bind(&[*bind], timeouts),
        None => Client::with_timeouts(timeouts),
    };
    let client = client.map_err(|error| start(format!("cannot open a socket: {error}")))?;
    let marked = client.sockets().set_dscp(flags.dscp);
    if marked.map_err(|error| start(format!("cannot mark packets: {error}")))? == Marking::Partly {
        let _ = writeln!(io::stderr(), "slipgate-client: this system has no DSCP for all packets; some leave unmarked");
    }
    let mark = u64::from(std::process::id()) << 32 | u64::from(token.facts().created.0 as u32);
    let config = ProbeConfig { rate: flags.rate, sizes: flags.sizes.0.clone(), mark };
    let mut output = Output::new(flags.json);
    output.begin(token.facts());
    let mut probe = Probe::begin(client, token, config).map_err(|error| (Failed::Connect, error.to_string()))?;
    drive(&mut probe, flags.duration.map(|span| span.0), &stop, &mut output)
        .map_err(|error| start(format!("the system refuses to wait for packets: {error}")))?;
    let report = probe.report().clone();
    let verdict = judge(&report);
    let left = probe.leave();
    output.end(&report, verdict.is_ok());
    left.map_err(|error| start(error.to_string()))?;
    verdict
}

/// What SIGINT and SIGTERM set.
fn listen_to_signals() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| format!("the system refuses to report signals: {error}"))?;
    }
    Ok(stop)
}

/// Sends until the time is over or a signal comes, then waits for the last echoes.
fn drive(probe: &mut Probe, duration: Option<Duration>, stop: &AtomicBool, output: &mut Output) -> io::Result<()> {
    let mut next_progress = Instant::now() + PROGRESS;
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
        probe.turn(true, NAP)?;
        if now >= next_progress {
            next_progress = now + PROGRESS;
            output.progress(probe.report());
        }
    }
    let patience = Instant::now() + LAST_ECHOES;
    while probe.client().state().is_connected() && probe.report().missing() > 0 && Instant::now() < patience {
        probe.turn(false, NAP)?;
    }
    Ok(())
}

fn judge(report: &ProbeReport) -> Result<(), (Failed, String)> {
    match report.ended {
        Some(reason) if !report.was_connected => return Err((Failed::Connect, reason.to_string())),
        Some(reason) => return Err((Failed::Lost, reason.to_string())),
        None if !report.was_connected => {
            return Err((Failed::Connect, "stopped before a server gave a slot".to_owned()));
        }
        None => {}
    }
    if report.wrong > 0 || report.missing() > 0 || report.sent == 0 {
        let (wrong, missing, sent) = (report.wrong, report.missing(), report.sent);
        return Err((
            Failed::Echoes,
            format!("of {sent} payloads {missing} echoes are missing, and {wrong} were wrong"),
        ));
    }
    Ok(())
}

fn token(flags: &Flags, source: Source) -> Result<ConnectToken, String> {
    match source {
        Source::File(path) => read_token(&path),
        Source::Issuer { url, client_id } => {
            let key = api_key(flags.api_key_file.as_deref())?;
            let servers = (!flags.servers.is_empty()).then(|| flags.servers.clone());
            let request = Request { client_id, servers, ..Request::default() };
            fetch::fetch(&url, &key, &request).map_err(|error| error.to_string())
        }
    }
}

/// A token of 2048 bytes, or the same in base64, from a file or from standard input (`-`).
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

/// A file that is known to be small: more than a token in base64 with line breaks is none.
fn read_small(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    const MOST: u64 = 8192;
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST as usize));
    if path == Path::new("-") {
        io::stdin().lock().take(MOST).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
