//! A UDP proxy between real programs, with an impaired path for each client.
//!
//! ```text
//!  client ──▶ ┌──────────┐ ──▶ up path ───▶ ┌─────────────────┐ ──▶ server
//!             │ listener │                  │ client's socket │
//!  client ◀── └──────────┘ ◀── down path ◀─ └─────────────────┘ ◀── server
//!                                             replaced when the NAT drops its mapping
//! ```
//!
//! The server sees each client at an address of its own. Each client has its own link; they share only the processor.
//! Clients, their datagrams in transit and the time for which an idle client is kept are bounded. The proxy sends only
//! to addresses from which it received a datagram.

mod client;
mod settings;
mod stats;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use slipgate_netcode::time::Instant;
use slipgate_udp::{read_drops, request_large_buffers};

use self::client::{Incoming, ProxyClient, receive};
pub use self::settings::{ClientPaths, DEFAULT_BOUNDS, DEFAULT_IDLE, DEFAULT_MAX_CLIENTS, ProxySettings};
use self::stats::SocketErrorClass;
pub use self::stats::{ProxyClientReport, ProxyStats, SocketErrors};
use crate::conditions::Conditions;
use crate::random::{Process, Random};

/// The receive buffer: larger than any UDP datagram, so that none is truncated.
const BUFFER_BYTES: usize = 1 << 16;
/// The maximum number of datagrams that are received from clients in a turn.
const MAX_DATAGRAMS_PER_TURN: usize = 256;
const LISTENER: Token = Token(0);

/// The proxy. A turn processes everything that is due; between turns it waits.
pub struct Proxy {
    settings: ProxySettings,
    listener: UdpSocket,
    local: SocketAddr,
    is_ready: bool,
    poll: Poll,
    events: Events,
    clients: Vec<Option<ProxyClient>>,
    indices: HashMap<SocketAddr, usize>,
    seeds: Random,
    buffer: Box<[u8]>,
    /// Counters that belong to no current client: those of the proxy itself and of clients that left.
    stats: ProxyStats,
    /// What the system dropped for clients that left.
    dropped_before: u64,
}

impl Proxy {
    /// Binds the listening socket.
    ///
    /// # Errors
    /// `InvalidInput` if the server's address is the proxy's own, which would be a loop; otherwise the error of the
    /// system when the address cannot be bound.
    pub fn bind(settings: ProxySettings) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = UdpSocket::bind(settings.listen)?;
        request_large_buffers(&listener);
        let local = listener.local_addr()?;
        if is_own_address(local, settings.to) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the server's address is the proxy's own address"));
        }
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            seeds: Process::Clients.stream(settings.seed),
            clients: (0..settings.max_clients).map(|_| None).collect(),
            settings,
            listener,
            local,
            is_ready: true,
            poll,
            events: Events::with_capacity(256),
            indices: HashMap::new(),
            buffer: vec![0; BUFFER_BYTES].into(),
            stats: ProxyStats::default(),
            dropped_before: 0,
        })
    }

    /// Returns the address for clients, with the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Processes everything up to now: receives, sends what is due and removes idle clients.
    pub fn turn(&mut self, now: Instant) {
        self.receive_from_clients(now);
        self.receive_from_server(now);
        self.rebind_clients(now);
        self.send_due(now);
        self.remove_idle_clients(now);
    }

    /// Sleeps until the next turn is needed, for at most `longest`. Waits below a millisecond are exact.
    ///
    /// # Errors
    /// The error of the system's poll. A signal ends the wait early and is not an error.
    pub fn wait(&mut self, longest: Duration, now: Instant) -> io::Result<()> {
        let waits = self.is_ready || self.clients.iter().flatten().any(|client| client.is_ready);
        let timeout = if waits { Duration::ZERO } else { self.next_due().since(now).min(longest) };
        // Polling has a resolution of 1 ms; shorter waits use a sleep.
        let whole = Duration::from_millis(timeout.as_millis() as u64);
        if whole.is_zero() && !timeout.is_zero() {
            std::thread::sleep(timeout);
        }
        match self.poll.poll(&mut self.events, Some(whole)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        for event in &self.events {
            match event.token() {
                LISTENER => self.is_ready = true,
                Token(number) => {
                    // The entry may have a new client by now, which then reads its socket once without result.
                    let client = self.clients.get_mut(number - 1).and_then(Option::as_mut);
                    client.into_iter().for_each(|client| client.is_ready = true);
                }
            }
        }
        Ok(())
    }

    /// Changes the paths of all current and future clients.
    pub fn set_conditions(&mut self, up: Conditions, down: Conditions, now: Instant) {
        (self.settings.up, self.settings.down) = (up, down);
        for client in self.clients.iter_mut().flatten() {
            client.link.set_conditions(up, down, now);
        }
    }

    /// Returns the current clients.
    pub fn clients(&self, now: Instant) -> impl Iterator<Item = ProxyClientReport> {
        self.clients.iter().flatten().map(move |client| client.report(now))
    }

    /// Returns the counters of all clients, current and removed. Reads the system's drop counter of each socket.
    #[must_use]
    pub fn stats(&self) -> ProxyStats {
        let mut stats = ProxyStats { dropped_by_system: self.dropped_by_system(), ..self.stats };
        for client in self.clients.iter().flatten() {
            stats.clients += 1;
            stats.up += client.link.up.stats();
            stats.down += client.link.down.stats();
        }
        stats
    }

    fn dropped_by_system(&self) -> Option<u64> {
        let clients = self.clients.iter().flatten().map(ProxyClient::dropped_by_system).sum::<Option<u64>>();
        Some(u64::from(read_drops(&self.listener)?) + clients? + self.dropped_before)
    }

    fn receive_from_clients(&mut self, now: Instant) {
        for _ in 0..MAX_DATAGRAMS_PER_TURN {
            if !self.is_ready {
                return;
            }
            match receive(|| self.listener.recv_from(&mut self.buffer)) {
                Incoming::Datagram((bytes, from)) => self.forward_to_server(from, bytes, now),
                Incoming::Empty => self.is_ready = false,
                Incoming::Error(class) => self.stats.socket_errors.count(class),
            }
        }
    }

    fn forward_to_server(&mut self, from: SocketAddr, bytes: usize, now: Instant) {
        let index = match self.indices.get(&from) {
            Some(index) => Some(*index),
            None => self.add_client(from, now),
        };
        let client = index.and_then(|index| self.clients.get_mut(index)).and_then(Option::as_mut);
        let (Some(client), Some(datagram)) = (client, self.buffer.get(..bytes)) else {
            self.stats.refused += 1;
            return;
        };
        client.last_received_at = now;
        client.link.up.push(datagram, now);
    }

    /// Adds a client. Returns its index; `None` at the maximum or if no socket can be opened.
    fn add_client(&mut self, from: SocketAddr, now: Instant) -> Option<usize> {
        let index = self.clients.iter().position(Option::is_none)?;
        if self.settings.paths == ClientPaths::Same {
            self.seeds = Process::Clients.stream(self.settings.seed);
        }
        let seed = self.seeds.next_u64();
        match ProxyClient::new(&self.settings, from, seed, self.poll.registry(), token(index), now) {
            Ok(client) => {
                *self.clients.get_mut(index)? = Some(client);
                self.indices.insert(from, index);
                self.stats.joined += 1;
                Some(index)
            }
            Err(error) => {
                self.stats.socket_errors.count(SocketErrorClass::of(&error));
                None
            }
        }
    }

    fn receive_from_server(&mut self, now: Instant) {
        for client in self.clients.iter_mut().flatten() {
            client.receive_from_server(&mut self.buffer, &mut self.stats.socket_errors, now);
        }
    }

    fn rebind_clients(&mut self, now: Instant) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            let Some(client) = client else { continue };
            match client.rebind_if_due(self.settings.to, self.poll.registry(), token(index), now) {
                Ok(rebound) => self.stats.rebindings += u64::from(rebound),
                Err(error) => self.stats.socket_errors.count(SocketErrorClass::of(&error)),
            }
        }
    }

    fn send_due(&mut self, now: Instant) {
        for client in self.clients.iter_mut().flatten() {
            client.send_due(&self.listener, &mut self.stats.socket_errors, now);
        }
    }

    fn remove_idle_clients(&mut self, now: Instant) {
        for entry in &mut self.clients {
            let Some(client) = entry.take_if(|client| now.reached(client.last_received_at, self.settings.idle)) else {
                continue;
            };
            self.indices.remove(&client.address);
            self.stats.left += 1;
            self.dropped_before += client.dropped_by_system().unwrap_or_default();
            self.stats.up += client.link.up.stats();
            self.stats.down += client.link.down.stats();
        }
    }

    fn next_due(&self) -> Instant {
        let next = |client: &ProxyClient| client.next_due(self.settings.idle);
        self.clients.iter().flatten().map(next).min().unwrap_or(Instant::NEVER)
    }
}

/// Returns whether a datagram to `to` would arrive at a socket that is bound to `local`.
fn is_own_address(local: SocketAddr, to: SocketAddr) -> bool {
    let is_wildcard_match = local.ip().is_unspecified() && (to.ip().is_loopback() || to.ip().is_unspecified());
    local.port() == to.port() && (local.ip() == to.ip() || is_wildcard_match)
}

const fn token(index: usize) -> Token {
    Token(index + 1)
}
