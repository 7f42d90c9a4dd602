//! The cost of a token over HTTP, plain and with TLS, beside that of a bare axum handler with the same bodies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;

use crate::program::{MAX_WAIT, Program, TestFolder};
use crate::requests::Requests;
use crate::tls::{TlsFiles, TlsListener};

/// The argument with which this program serves the bare handler, in a process of its own as the issuer.
pub(crate) const SERVE_BARE: &str = "--serve-bare";
/// Rounds, in each of which both are measured.
const ROUNDS: usize = 9;
/// Tokens of a round: on each connection one after the other.
const TOKENS: usize = 8_000;
/// The goal: a token costs at most this many times what the bare handler costs.
const MAX_COST: f64 = 1.4;
/// The connections of a backend.
const CONNECTIONS: usize = 16;

/// Serves the content of stdin as the response to each `POST /v1/tokens`, on one worker thread. With the folder of a
/// certificate as the second argument, it serves over TLS.
pub(crate) fn serve_bare() {
    let tls = std::env::args().nth(2).map(|folder| TlsFiles::in_folder(folder.as_ref()));
    let mut body = Vec::new();
    io::stdin().read_to_end(&mut body).unwrap();
    let body = Bytes::from(body);
    let handler = move |request: Bytes| async move {
        let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
        assert!(request.is_object());
        (StatusCode::CREATED, [(CONTENT_TYPE, "application/json")], body)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let serving = runtime.spawn(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap());
        let router = Router::new().route("/v1/tokens", post(handler));
        match tls {
            None => axum::serve(listener, router).await.unwrap(),
            Some(files) => axum::serve(TlsListener::new(listener, &files), router).await.unwrap(),
        }
    });
    runtime.block_on(serving).unwrap();
}

/// Measures both in turn without TLS and with it, with a backend that sleeps in each read and with one that polls, and
/// prints the rows. A server has to wake a backend that sleeps, on the server's own CPU time: one which responds sooner
/// finds it awake.
pub(crate) fn run() {
    println!("Cost of a token | issuer | bare axum handler | ratio | goal");
    println!("--- | --- | --- | --- | ---");
    let folder = TestFolder::new();
    let plain = Program::start_with_log_file(folder.complete(&[]), &folder.path.join("log"));
    let body = Requests::new(&plain, &folder).body_of_a_token();
    for waiting in [Waiting::Asleep, Waiting::Polling] {
        compare("", &plain, &folder, &body, None, waiting);
    }
    drop(plain);
    let files = TlsFiles::create(&folder);
    let flags = files.flags();
    let encrypted = folder.complete(&flags.each_ref().map(String::as_str));
    let encrypted = Program::start_with_log_file(encrypted, &folder.path.join("log"));
    for waiting in [Waiting::Asleep, Waiting::Polling] {
        compare(", TLS", &encrypted, &folder, &body, Some(&files), waiting);
    }
}

fn compare(kind: &str, issuer: &Program, folder: &TestFolder, body: &[u8], tls: Option<&TlsFiles>, waiting: Waiting) {
    let requests = Requests::new(issuer, folder);
    let bare = BareServer::start(body, tls);
    let connect = |address, process| Backend::connect(address, process, &requests.mint, body.len(), tls, waiting);
    let mut backends = [connect(requests.server, issuer.child.id()), connect(bare.address, bare.child.id())];
    for backend in &mut backends {
        backend.request(TOKENS);
    }
    let mut costs = [(); 2].map(|()| Vec::new());
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let [issuer, bare] = backends.each_mut().map(Backend::measure);
        ratios.push([issuer[0] / bare[0], issuer[1] / bare[1]]);
        costs[0].push(issuer);
        costs[1].push(bare);
    }
    let [issuer, bare] = costs.map(|costs| [0, 1].map(|index| median(costs.iter().map(|cost| cost[index]))));
    let [cpu, wall] = [0, 1].map(|index| median(ratios.iter().map(|ratio| ratio[index])));
    let kind = format!("{kind}{}", if waiting == Waiting::Polling { ", backend polls" } else { "" });
    println!("CPU time of the process, us{kind} | {:.1} | {:.1} | {cpu:.2} | {MAX_COST}", issuer[0], bare[0]);
    println!("{CONNECTIONS} requests in turn, us{kind} | {:.1} | {:.1} | {wall:.2} | {MAX_COST}", issuer[1], bare[1]);
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A process with the bare handler.
struct BareServer {
    child: Child,
    address: SocketAddr,
}

impl BareServer {
    fn start(body: &[u8], tls: Option<&TlsFiles>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(SERVE_BARE).args(tls.map(TlsFiles::folder));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(body).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, address: line.trim().parse().unwrap() }
    }
}

impl Drop for BareServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The connections of a backend to one of the two.
struct Backend<'a> {
    process: u32,
    request: &'a [u8],
    /// The length of each response's body.
    body_bytes: usize,
    connections: Vec<Box<dyn Connection>>,
}

/// How a backend waits for a response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// In a system call.
    Asleep,
    /// In a loop that asks again and again.
    Polling,
}

/// A socket that is read in one of these ways.
struct Socket {
    stream: TcpStream,
    waiting: Waiting,
}

impl Socket {
    fn connect(address: SocketAddr, waiting: Waiting) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        Self { stream, waiting }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.waiting == Waiting::Asleep {
            return self.stream.read(buf);
        }
        self.stream.set_nonblocking(true)?;
        let begin = Instant::now();
        let read = loop {
            match self.stream.read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && begin.elapsed() < MAX_WAIT => {
                    std::hint::spin_loop();
                }
                read => break read,
            }
        };
        self.stream.set_nonblocking(false)?;
        read
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A connection, plain or with TLS.
trait Connection: Read + Write {}

impl<S: Read + Write> Connection for S {}

impl<'a> Backend<'a> {
    fn connect(
        address: SocketAddr,
        process: u32,
        request: &'a [u8],
        body_bytes: usize,
        tls: Option<&TlsFiles>,
        waiting: Waiting,
    ) -> Self {
        let connect = |_| -> Box<dyn Connection> {
            let stream = Socket::connect(address, waiting);
            match tls {
                None => Box::new(stream),
                Some(files) => Box::new(files.connect(stream)),
            }
        };
        Self { process, request, body_bytes, connections: (0..CONNECTIONS).map(connect).collect() }
    }

    /// Returns the process's CPU time and the time of a token, in microseconds.
    fn measure(&mut self) -> [f64; 2] {
        let (cpu, begin) = (cpu_time(self.process), Instant::now());
        self.request(TOKENS);
        let wall = begin.elapsed();
        [cpu_time(self.process) - cpu, wall].map(|time| time.as_secs_f64() * 1e6 / TOKENS as f64)
    }

    /// Requests tokens on all connections at once, again when all have responded.
    fn request(&mut self, tokens: usize) {
        let mut buf = [0; 8192];
        for _ in 0..tokens / CONNECTIONS {
            for connection in &mut self.connections {
                connection.write_all(self.request).unwrap();
                connection.flush().unwrap();
            }
            for connection in &mut self.connections {
                let mut response = Vec::new();
                while !is_complete(&response, self.body_bytes) {
                    let count = connection.read(&mut buf).unwrap();
                    assert!(count > 0, "the connection ended");
                    response.extend_from_slice(&buf[..count]);
                }
                assert!(response.starts_with(b"HTTP/1.1 201 "), "{}", String::from_utf8_lossy(&response));
            }
        }
    }
}

/// Returns whether the response has a body of this many bytes.
fn is_complete(response: &[u8], body_bytes: usize) -> bool {
    let head = response.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    head.is_some_and(|head| response.len() >= head + 4 + body_bytes)
}

/// Returns the CPU time of all threads of a process so far.
fn cpu_time(process: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let nanos = threads.map(|thread| {
        let schedstat = std::fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
        schedstat.split(' ').next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanos.sum())
}
