//! A UDP proxy between real programs, with a spoilt path for each client.
//!
//! ```text
//!  client ──▶ ┌──────────┐ ──▶ up path ───▶ ┌─────────────────┐ ──▶ server
//!             │ listens  │                  │ client's socket │
//!  client ◀── └──────────┘ ◀── down path ◀─ └─────────────────┘ ◀── server
//!                                             replaced, when the NAT forgets
//! ```
//!
//! To the server each client is an address of its own. Clients share nothing but the processor: each has its own line.
//! Everything is bounded: clients, what is on its way for each, and the time for which a silent one is remembered.
//! Nothing is sent to an address from which nothing came.

mod client;
mod stats;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use slipgate_netcode::time::Instant;

use self::client::{Client, Receipt, receive};
use self::stats::SocketTrouble;
pub use self::stats::{ClientReport, ProxyStats, SocketTroubles};
use crate::conditions::Conditions;
use crate::nat::Rebinding;
use crate::path::Bounds;
use crate::random::{Cause, Random};

/// As many clients as a proxy takes by default.
pub const DEFAULT_MAX_CLIENTS: usize = 64;
/// How long a silent client is remembered by default. NATs keep a UDP mapping for 2 minutes at least (RFC 4787, REQ-5).
pub const DEFAULT_IDLE: Duration = Duration::from_secs(120);
/// What may be on its way for one client in one direction by default.
pub const DEFAULT_BOUNDS: Bounds = Bounds { datagrams: 4096, bytes: 4 << 20 };

/// The largest datagram that UDP knows; more room than it needs, so that none is cut.
const BUFFER_BYTES: usize = 1 << 16;
/// Datagrams of all clients that are taken in one turn before others have theirs.
const DATAGRAMS_PER_TURN: usize = 256;
const LISTENER: Token = Token(0);

/// What a proxy does.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Where clients send to; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The server.
    pub to: SocketAddr,
    /// From clients to the server.
    pub up: Conditions,
    /// From the server to clients.
    pub down: Conditions,
    /// When a client gets another address in the eyes of the server; `None` for never.
    pub rebinding: Option<Rebinding>,
    /// Decides all that happens by chance. The same seed spoils the path of the first client in the same way.
    pub seed: u64,
    /// At most so many clients at once; datagrams of others are dropped and counted.
    pub max_clients: usize,
    /// How long a client is remembered that sends nothing.
    pub idle: Duration,
    /// What may be on its way for one client in one direction.
    pub bounds: Bounds,
}

impl Settings {
    /// A proxy that spoils nothing, with the usual bounds.
    #[must_use]
    pub const fn new(listen: SocketAddr, to: SocketAddr, seed: u64) -> Self {
        Self {
            listen,
            to,
            up: Conditions::perfect(),
            down: Conditions::perfect(),
            rebinding: None,
            seed,
            max_clients: DEFAULT_MAX_CLIENTS,
            idle: DEFAULT_IDLE,
            bounds: DEFAULT_BOUNDS,
        }
    }
}

/// The proxy. A turn brings everything forward to now; between turns it waits.
pub struct Proxy {
    settings: Settings,
    listener: UdpSocket,
    local: SocketAddr,
    is_ready: bool,
    poll: Poll,
    events: Events,
    clients: Vec<Option<Client>>,
    places: HashMap<SocketAddr, usize>,
    seeds: Random,
    buffer: Box<[u8]>,
    /// What concerns no single client, and what clients did that are gone.
    stats: ProxyStats,
}

impl Proxy {
    /// Listens.
    ///
    /// # Errors
    /// The address cannot be had; or the server would be the proxy itself, which would send in circles.
    pub fn bind(settings: Settings) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = UdpSocket::bind(settings.listen)?;
        let local = listener.local_addr()?;
        if is_itself(local, settings.to) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the server's address is the proxy's own"));
        }
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            seeds: Random::new(settings.seed, Cause::Clients),
            clients: (0..settings.max_clients).map(|_| None).collect(),
            settings,
            listener,
            local,
            is_ready: true,
            poll,
            events: Events::with_capacity(256),
            places: HashMap::new(),
            buffer: vec![0; BUFFER_BYTES].into(),
            stats: ProxyStats::default(),
        })
    }

    /// Where clients send to, with the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Brings everything forward to now: takes what came, sends what is due, forgets who is silent.
    pub fn turn(&mut self, now: Instant) {
        self.take_from_clients(now);
        self.take_from_server(now);
        self.rebind(now);
        self.send_due(now);
        self.forget_silent_clients(now);
    }

    /// Sleeps until there is something to do, for `longest` at most. To the millisecond and below: what is due within one
    /// is waited for exactly.
    ///
    /// # Errors
    /// When the system cannot wait. A signal ends the wait early and is no error.
    pub fn wait(&mut self, longest: Duration, now: Instant) -> io::Result<()> {
        let waits = self.is_ready || self.clients.iter().flatten().any(|client| client.is_ready);
        let timeout = if waits { Duration::ZERO } else { self.next_due().since(now).min(longest) };
        // Systems wait for datagrams in whole milliseconds; for a part of one it takes a sleep.
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
                    // A place may have a new client by now: then it looks once in vain.
                    let client = self.clients.get_mut(number - 1).and_then(Option::as_mut);
                    client.into_iter().for_each(|client| client.is_ready = true);
                }
            }
        }
        Ok(())
    }

    /// Changes the path of every client, now and to come.
    pub fn set_conditions(&mut self, up: Conditions, down: Conditions, now: Instant) {
        (self.settings.up, self.settings.down) = (up, down);
        for client in self.clients.iter_mut().flatten() {
            client.link.set_conditions(up, down, now);
        }
    }

    /// The clients of the present.
    pub fn clients(&self, now: Instant) -> impl Iterator<Item = ClientReport> {
        self.clients.iter().flatten().map(move |client| client.report(now))
    }

    /// What happened so far, to all clients that there were.
    #[must_use]
    pub fn stats(&self) -> ProxyStats {
        let mut stats = self.stats;
        for client in self.clients.iter().flatten() {
            stats.clients += 1;
            stats.up += client.link.up.stats();
            stats.down += client.link.down.stats();
        }
        stats
    }

    fn take_from_clients(&mut self, now: Instant) {
        for _ in 0..DATAGRAMS_PER_TURN {
            if !self.is_ready {
                return;
            }
            match receive(|| self.listener.recv_from(&mut self.buffer)) {
                Receipt::Came((bytes, from)) => self.take_from_client(from, bytes, now),
                Receipt::Nothing => self.is_ready = false,
                Receipt::Trouble(trouble) => self.stats.troubles.note(trouble),
            }
        }
    }

    fn take_from_client(&mut self, from: SocketAddr, bytes: usize, now: Instant) {
        let place = match self.places.get(&from) {
            Some(place) => Some(*place),
            None => self.admit(from, now),
        };
        let client = place.and_then(|place| self.clients.get_mut(place)).and_then(Option::as_mut);
        let (Some(client), Some(datagram)) = (client, self.buffer.get(..bytes)) else {
            self.stats.refused += 1;
            return;
        };
        client.heard = now;
        client.link.up.push(datagram, now);
    }

    /// A place for a new client, if there is one.
    fn admit(&mut self, from: SocketAddr, now: Instant) -> Option<usize> {
        let place = self.clients.iter().position(Option::is_none)?;
        let seed = self.seeds.next();
        match Client::new(&self.settings, from, seed, self.poll.registry(), token(place), now) {
            Ok(client) => {
                *self.clients.get_mut(place)? = Some(client);
                self.places.insert(from, place);
                self.stats.joined += 1;
                Some(place)
            }
            Err(error) => {
                self.stats.troubles.note(SocketTrouble::of(&error));
                None
            }
        }
    }

    fn take_from_server(&mut self, now: Instant) {
        for client in self.clients.iter_mut().flatten() {
            client.take_from_server(&mut self.buffer, &mut self.stats.troubles, now);
        }
    }

    fn rebind(&mut self, now: Instant) {
        for (place, client) in self.clients.iter_mut().enumerate() {
            let Some(client) = client else { continue };
            match client.rebind_if_due(self.settings.to, self.poll.registry(), token(place), now) {
                Ok(rebound) => self.stats.rebindings += u64::from(rebound),
                Err(error) => self.stats.troubles.note(SocketTrouble::of(&error)),
            }
        }
    }

    fn send_due(&mut self, now: Instant) {
        for client in self.clients.iter_mut().flatten() {
            client.send_due(&self.listener, &mut self.stats.troubles, now);
        }
    }

    fn forget_silent_clients(&mut self, now: Instant) {
        for place in &mut self.clients {
            let Some(client) = place.take_if(|client| now.reached(client.heard, self.settings.idle)) else { continue };
            self.places.remove(&client.address);
            self.stats.left += 1;
            self.stats.up += client.link.up.stats();
            self.stats.down += client.link.down.stats();
        }
    }

    fn next_due(&self) -> Instant {
        let next = |client: &Client| client.next_due(self.settings.idle);
        self.clients.iter().flatten().map(next).min().unwrap_or(Instant::NEVER)
    }
}

/// Whether what is sent to `to` comes back to a socket that is bound to `local`.
fn is_itself(local: SocketAddr, to: SocketAddr) -> bool {
    let everywhere = local.ip().is_unspecified() && (to.ip().is_loopback() || to.ip().is_unspecified());
    local.port() == to.port() && (local.ip() == to.ip() || everywhere)
}

const fn token(place: usize) -> Token {
    Token(place + 1)
}
