//! The time of honest requests while other connections do their worst. Prints the figures; run it alone, in release:
//! `SLIPGATE_TESTS=all cargo test --release -p slipgate-cli --test programs issuer::load -- --nocapture`

#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::program::{MAX_WAIT, Program, TestFolder};

/// The idle connections of the attack. More than the issuer accepts.
const IDLE: usize = 520;
/// The connections that send requests and never read.
const PIPELINED: usize = 100;
/// The interval between two requests on an idle connection, shorter than the issuer's idle time-out.
const POLL_INTERVAL: Duration = Duration::from_secs(8);
/// The interval at which the attack looks for closed connections and opens them again.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);

/// What the attack has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attack {
    OneAddress,
    OneAddressWithKey,
    SeveralAddresses,
    SeveralAddressesWithKey,
}

impl Attack {
    const fn has_key(self) -> bool {
        matches!(self, Self::OneAddressWithKey | Self::SeveralAddressesWithKey)
    }

    /// Returns the local address of a connection. The honest backend has 127.0.0.1.
    fn address(self, index: usize) -> SocketAddr {
        let last = match self {
            Self::OneAddress | Self::OneAddressWithKey => 1,
            Self::SeveralAddresses | Self::SeveralAddressesWithKey => 2 + u8::try_from(index % 50).unwrap(),
        };
        (Ipv4Addr::new(127, 0, 0, last), 0).into()
    }
}

/// The requests of this test.
struct Requests {
    server: SocketAddr,
    health: Vec<u8>,
    mint: Vec<u8>,
}

impl Requests {
    fn new(program: &Program, folder: &TestFolder) -> Self {
        let (body, key) = (r#"{"client_id": "77"}"#, folder.api_key.expose());
        let mint = format!(
            "POST /v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let server = program.url("").strip_prefix("http://").unwrap().parse().unwrap();
        Self { server, health: b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), mint: mint.into_bytes() }
    }

    fn connect(&self, from: SocketAddr) -> std::io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&from.into())?;
        socket.connect_timeout(&self.server.into(), Duration::from_secs(1))?;
        Ok(socket.into())
    }

    /// Mints a token and returns the time that it took, or `None` if the connection was closed.
    fn mint_on(&self, stream: &mut TcpStream) -> Option<Duration> {
        let start = Instant::now();
        stream.write_all(&self.mint).ok()?;
        let (mut response, mut buf) = (Vec::new(), [0; 8192]);
        while !response.ends_with(b"]}") {
            let count = stream.read(&mut buf).ok().filter(|count| *count > 0)?;
            response.extend_from_slice(&buf[..count]);
        }
        assert!(response.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&response));
        Some(start.elapsed())
    }
}

/// One connection of the attack, opened again whenever it was closed.
struct Hostile {
    stream: Option<TcpStream>,
    next_request: Instant,
}

impl Hostile {
    /// Returns whether the connection is open, and reads what has arrived.
    fn is_open(&mut self) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        loop {
            match stream.read(&mut [0; 4096]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
    }

    fn reopen(&mut self, requests: &Requests, from: SocketAddr, reopened: &AtomicU64) {
        reopened.fetch_add(1, Ordering::Relaxed);
        self.stream = requests.connect(from).ok();
        if let Some(stream) = &self.stream {
            stream.set_nonblocking(true).unwrap();
        }
    }
}

/// Runs the attack until `is_over`. Counts how often it opened a connection.
fn attack(kind: Attack, requests: &Requests, is_over: &AtomicBool, reopened: &AtomicU64) {
    let mut connections: Vec<Hostile> =
        (0..IDLE + PIPELINED).map(|_| Hostile { stream: None, next_request: Instant::now() }).collect();
    let first = if kind.has_key() { &requests.mint } else { &requests.health };
    while !is_over.load(Ordering::Relaxed) {
        for (index, connection) in connections.iter_mut().enumerate() {
            let is_idle = index < IDLE;
            let is_new = connection.stream.is_none() || is_idle && !connection.is_open();
            if is_new {
                connection.reopen(requests, kind.address(index), reopened);
            }
            let Some(stream) = &mut connection.stream else { continue };
            if !is_idle {
                // As much as the system takes. An error other than a full buffer is a closed connection.
                let full = loop {
                    if let Err(error) = stream.write(&first.repeat(20)) {
                        break error.kind() == std::io::ErrorKind::WouldBlock;
                    }
                };
                if !full {
                    connection.stream = None;
                }
            } else if is_new || Instant::now() >= connection.next_request {
                let _ = stream.write_all(if is_new { first } else { &requests.health });
                connection.next_request = Instant::now() + POLL_INTERVAL;
            }
        }
        thread::sleep(SCAN_INTERVAL);
    }
}

/// The times of honest requests.
struct Times {
    sorted: Vec<Duration>,
    failures: usize,
}

impl Times {
    /// Requests tokens for this long, 200 each second: each on a new connection, or all on one that is kept alive.
    fn measure(requests: &Requests, length: Duration, is_kept: bool) -> Self {
        let home = (Ipv4Addr::LOCALHOST, 0).into();
        let (mut sorted, mut failures, mut kept) = (Vec::new(), 0, None);
        let start = Instant::now();
        while start.elapsed() < length {
            let begin = Instant::now();
            let time = kept.take().map_or_else(|| requests.connect(home), Ok).ok().and_then(|mut stream: TcpStream| {
                stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
                requests.mint_on(&mut stream)?;
                kept = is_kept.then_some(stream);
                Some(begin.elapsed())
            });
            match time {
                Some(time) => sorted.push(time),
                None => failures += 1,
            }
            thread::sleep(Duration::from_millis(5).saturating_sub(begin.elapsed()));
        }
        sorted.sort_unstable();
        Self { sorted, failures }
    }

    /// Returns the time that this share of the requests did not exceed, in milliseconds.
    fn quantile(&self, share: f64) -> f64 {
        let index = ((self.sorted.len() as f64 * share) as usize).min(self.sorted.len() - 1);
        self.sorted[index].as_secs_f64() * 1000.0
    }
}

/// The CPU time of a process so far, in seconds.
fn cpu_seconds(id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ');
    fields.skip(11).take(2).map(|field| field.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

#[test]
fn idle_and_pipelined_connections_do_not_delay_honest_requests() {
    let is_complete = std::env::var("SLIPGATE_TESTS").is_ok_and(|tests| tests == "all");
    let all =
        [Attack::OneAddress, Attack::OneAddressWithKey, Attack::SeveralAddresses, Attack::SeveralAddressesWithKey];
    let (attacks, length) = if is_complete { (&all[..], 20) } else { (&all[1..2], 3) };
    for kind in attacks {
        let folder = TestFolder::new();
        let log = folder.path.join("log");
        let program = Program::start_with_log_file(folder.complete(&[]), &log);
        let requests = Requests::new(&program, &folder);
        let length = Duration::from_secs(length);
        let quiet = [false, true].map(|is_kept| Times::measure(&requests, length / 2, is_kept));
        let (is_over, reopened) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| attack(*kind, &requests, &is_over, &reopened));
            // Until all connections of the attack are open.
            thread::sleep(Duration::from_secs(1));
            let (cpu, begin) = (cpu_seconds(program.child.id()), Instant::now());
            let attacked = [false, true].map(|is_kept| Times::measure(&requests, length / 2, is_kept));
            let cpu = (cpu_seconds(program.child.id()) - cpu) / begin.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            for ((quiet, attacked), name) in quiet.iter().zip(&attacked).zip(["new connections", "kept alive"]) {
                println!(
                    "{kind:?}, {name}: p50 {:.2} ms (quiet {:.2}), p99 {:.2} ms (quiet {:.2}, {:.1}x), max {:.1}, \
                     {} requests, {} failed; {cpu:.2} cores, {} hostile connects",
                    attacked.quantile(0.5),
                    quiet.quantile(0.5),
                    attacked.quantile(0.99),
                    quiet.quantile(0.99),
                    attacked.quantile(0.99) / quiet.quantile(0.99),
                    attacked.quantile(1.0),
                    attacked.sorted.len(),
                    attacked.failures,
                    reopened.load(Ordering::Relaxed),
                );
                // Bounds for a busy machine and a debug build; without the defence all requests wait for seconds.
                assert!(quiet.failures == 0 && attacked.failures * 100 <= attacked.sorted.len());
                assert!(attacked.quantile(0.99) < 500.0);
            }
        });
    }
}
