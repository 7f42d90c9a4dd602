//! The load generator: the driver's clients of one server, each with its own address.
//!
//! Nothing here is measured. It seals the clients' packets and opens the server's; a reply that is not authentic does
//! not count.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::time;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, REQUEST_BYTES, USER_DATA_BYTES};
use slipgate_os::clock;

use crate::driver_socket::{DriverSocket, DriverSockets, MAX_GSO_BYTES};
use crate::server_thread::{Cost, ServerThread};
use crate::subject::{LoadProtocol, PRIVATE_KEY, PROTOCOL_ID, PayloadLayer, Workload};

/// The number of clients that connect together.
const CONNECTING: usize = 128;
/// The maximum number of steps for a group of clients to connect.
const MAX_STEPS: u32 = 400;
/// The benchmark's time between two steps of connecting.
const STEP: Duration = Duration::from_millis(10);
/// The lifetime of a token in seconds: the maximum of a Slipgate server's default settings.
pub const TOKEN_SECONDS: u32 = 45;
/// The time between two ticks of a game.
pub const TICK: Duration = Duration::from_micros(16_667);
/// The address of the first client.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([127, 16, 0, 1]);

/// The clients of one server.
pub struct LoadGenerator {
    sockets: Rc<DriverSockets>,
    server: SocketAddrV4,
    protocol: LoadProtocol,
    clients: Vec<LoadClient>,
    /// The benchmark's own time for this server and its clients.
    now: Duration,
    /// When that time started, on the real clock.
    opened: Instant,
    /// When the first of them got its token.
    since: Instant,
    /// The number of clients so far. Each has a new client id.
    born: u64,
    random: StdRng,
    /// The receive buffer.
    buffer: Vec<u8>,
}

/// One client.
struct LoadClient {
    client: NetcodeClient,
    payload_layer: Box<dyn PayloadLayer>,
    request: Vec<u8>,
    last: Vec<u8>,
}

/// An outbox for one datagram.
struct SingleDatagram {
    bytes: [u8; MAX_DATAGRAM_BYTES],
    length: Option<usize>,
}

impl Outbox for SingleDatagram {
    fn remaining(&self) -> usize {
        usize::from(self.length.is_none())
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.length.is_none().then_some(&mut self.bytes)
    }

    fn commit(&mut self, _to: Address, bytes: usize) {
        self.length = Some(bytes);
    }
}

impl SingleDatagram {
    const fn new() -> Self {
        Self { bytes: [0; MAX_DATAGRAM_BYTES], length: None }
    }

    fn take(&mut self) -> Option<&[u8]> {
        let length = self.length.take()?;
        self.bytes.get(..length)
    }
}

impl LoadGenerator {
    /// Creates the load generator for at most this number of clients, with their sockets.
    #[must_use]
    pub fn new(
        server_thread: &ServerThread,
        protocol: LoadProtocol,
        clients: usize,
        sockets: &Rc<DriverSockets>,
    ) -> Self {
        sockets.provide(clients);
        Self {
            sockets: Rc::clone(sockets),
            server: server_thread.address(),
            protocol,
            clients: Vec::new(),
            now: Duration::ZERO,
            opened: Instant::now(),
            since: Instant::now(),
            born: 0,
            random: StdRng::seed_from_u64(4),
            buffer: vec![0; MAX_GSO_BYTES],
        }
    }

    /// Returns the time of this server and its clients.
    #[must_use]
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// Returns the age of the oldest token on the real clock.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Advances the time.
    pub fn advance(&mut self, time: Duration) {
        self.now += time;
    }

    fn instant(&self) -> time::Instant {
        time::Instant::from_start(self.now)
    }

    /// Connects further clients. Returns the cost of the server. Clients without a protocol need no connection.
    ///
    /// # Errors
    /// `Other` if clients do not connect or the server has panicked.
    pub fn connect_clients(&mut self, clients: usize, server_thread: &ServerThread) -> io::Result<Cost> {
        let mut cost = Cost::default();
        if self.clients.is_empty() {
            self.since = Instant::now();
        }
        if let LoadProtocol::Netcode(payload_layer) = self.protocol {
            let end = self.clients.len() + clients;
            while self.clients.len() < end {
                let first = self.clients.len();
                let group = first..end.min(first + CONNECTING);
                for _ in group.clone() {
                    let member = self.new_client(payload_layer())?;
                    self.clients.push(member);
                }
                cost.add(self.connect(group, server_thread)?);
            }
        }
        Ok(cost)
    }

    fn new_client(&mut self, payload_layer: Box<dyn PayloadLayer>) -> io::Result<LoadClient> {
        self.born += 1;
        let mut client = NetcodeClient::new(TimeoutPolicy::Clamped);
        client.connect(self.token(self.born)?, self.instant(), |_| true).map_err(io::Error::other)?;
        Ok(LoadClient { client, payload_layer, request: Vec::new(), last: Vec::new() })
    }

    fn token(&mut self, client_id: u64) -> io::Result<ConnectToken> {
        let servers = Servers::new(&[SocketAddr::V4(self.server)]).ok_or_else(|| io::Error::other("no server"))?;
        let claims = Claims {
            protocol_id: PROTOCOL_ID,
            client_id: client_id.into(),
            servers: &servers,
            internal_servers: None,
            lifetime_seconds: TOKEN_SECONDS,
            timeout_seconds: 60,
            user_data: &[7; USER_DATA_BYTES],
        };
        issue(&claims, &Key::from(PRIVATE_KEY), clock::wall_clock(), &mut self.random).map_err(io::Error::other)
    }

    /// Advances the time at least to the real clock. Tokens are dated by the wall clock. If the monotonic clock stayed
    /// behind it, the server would believe that it started after the tokens were created.
    fn catch_up(&mut self) {
        self.now = self.now.max(self.opened.elapsed());
    }

    /// Runs the handshakes of a group until all are connected at both ends. Only the server's part counts as cost.
    fn connect(&mut self, group: Range<usize>, server_thread: &ServerThread) -> io::Result<Cost> {
        let mut cost = Cost::default();
        for _ in 0..MAX_STEPS {
            let complete = server_thread.connected()? >= group.end;
            if complete && self.clients.iter().skip(group.start).all(|member| is_connected(&member.client)) {
                return Ok(cost);
            }
            self.catch_up();
            self.transmit(group.clone())?;
            let step = server_thread.turn(Workload::Listen, self.now)?;
            if !complete {
                cost.add(step);
            }
            self.receive_messages(group.clone());
            self.advance(STEP);
        }
        let missing = self.clients.iter().filter(|member| !is_connected(&member.client)).count();
        Err(io::Error::other(format!("{missing} of {} clients do not connect", self.clients.len())))
    }

    /// Sends the datagrams that are due at the clients.
    fn transmit(&mut self, group: Range<usize>) -> io::Result<()> {
        let now = self.instant();
        let mut letter = SingleDatagram::new();
        for index in group {
            let Some(member) = self.clients.get_mut(index) else { continue };
            // A client sends ten disconnect packets.
            for _ in 0..10 {
                member.client.transmit(now, &mut letter);
                let Some(datagram) = letter.take() else { break };
                if datagram.len() == REQUEST_BYTES && member.request.is_empty() {
                    member.request = datagram.to_vec();
                }
                send(&self.sockets, self.server, index, datagram)?;
            }
        }
        Ok(())
    }

    /// Disconnects and removes all clients.
    ///
    /// # Errors
    /// `Other` if the server keeps clients connected or has panicked.
    pub fn disconnect_clients(&mut self, server_thread: &ServerThread) -> io::Result<()> {
        for start in (0..self.clients.len()).step_by(CONNECTING / 2) {
            let group = start..self.clients.len().min(start + CONNECTING / 2);
            for member in self.clients.get_mut(group.clone()).unwrap_or_default() {
                member.client.disconnect();
            }
            self.transmit(group.clone())?;
            server_thread.turn(Workload::Drop, self.now)?;
            self.receive_messages(group);
        }
        self.clients.clear();
        for _ in 0..MAX_STEPS {
            if server_thread.connected()? == 0 {
                return Ok(());
            }
            self.advance(STEP);
            server_thread.turn(Workload::Drop, self.now)?;
        }
        Err(io::Error::other("clients that left are still connected"))
    }

    /// Sends a message `copies` times from each client of a group. Returns the number of messages.
    ///
    /// # Errors
    /// The error of the system.
    pub fn send_messages(&mut self, group: Range<usize>, message: &[u8], copies: u32) -> io::Result<u64> {
        let now = self.instant();
        let mut letter = SingleDatagram::new();
        let messages = group.len() as u64 * u64::from(copies);
        for index in group {
            let Some(member) = self.clients.get_mut(index) else {
                (0..copies).try_for_each(|_| send(&self.sockets, self.server, index, message))?;
                continue;
            };
            for packet in member.payload_layer.encode(message, copies, now) {
                member.client.send(&packet, now, &mut letter).map_err(io::Error::other)?;
                let datagram = letter.take().unwrap_or_default();
                member.last.clear();
                member.last.extend_from_slice(datagram);
                send(&self.sockets, self.server, index, datagram)?;
            }
        }
        Ok(messages)
    }

    /// Receives all waiting datagrams for a group of clients. Returns the number of messages in them.
    pub fn receive_messages(&mut self, group: Range<usize>) -> u64 {
        let mut received = 0;
        for client in group {
            while let Some((_, messages)) = self.receive_next(client) {
                received += messages;
            }
        }
        received
    }

    /// Receives a waiting datagram from the socket of a client. Returns for which client it is, and the number of
    /// messages in it; `None` if nothing waits.
    pub fn receive_next(&mut self, client: usize) -> Option<(usize, u64)> {
        let now = self.instant();
        let Self { sockets, server, protocol, clients, buffer, .. } = self;
        let taken = sockets.with(client, |socket| socket.receive(buffer))??;
        let index = u32::from(taken.to).wrapping_sub(FIRST_ADDRESS) as usize;
        let row = buffer.get_mut(..taken.bytes).filter(|_| taken.from == *server).unwrap_or_default();
        let messages = row.chunks_mut(taken.each.max(1)).map(|datagram| match clients.get_mut(index) {
            Some(member) => open_datagram(member, *server, datagram, now),
            // Last words to clients that are forgotten, or an answer without any protocol.
            None => u64::from(matches!(protocol, LoadProtocol::Plain)),
        });
        Some((index, messages.sum()))
    }

    /// Sends the same datagram several times from one client, as one message that the kernel segments.
    ///
    /// # Errors
    /// The error of the system.
    pub fn send_gso(&self, index: usize, datagram: &[u8], copies: usize) -> io::Result<()> {
        let (row, each) = (datagram.repeat(copies), datagram.len() as u16);
        let send = |socket: &mut DriverSocket| socket.send_gso(address(index), self.server, &row, each);
        self.sockets.with(index, send).unwrap_or(Ok(()))
    }

    /// Sends any bytes from the socket of a client, under any source address.
    ///
    /// # Errors
    /// The error of the system.
    pub fn send_from(&self, index: usize, from: Ipv4Addr, datagram: &[u8]) -> io::Result<()> {
        self.sockets.with(index, |socket| socket.send(from, self.server, datagram)).unwrap_or(Ok(()))
    }

    /// Returns the last datagram of a client.
    #[must_use]
    pub fn last(&self, index: usize) -> Option<&[u8]> {
        self.clients.get(index).map(|member| member.last.as_slice())
    }

    /// Returns the connection request of a client.
    #[must_use]
    pub fn request(&self, index: usize) -> Option<&[u8]> {
        self.clients.get(index).map(|member| member.request.as_slice())
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.random.fill_bytes(bytes);
    }
}

/// Returns the address of a client.
#[must_use]
pub fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_ADDRESS.wrapping_add(index as u32))
}

fn send(sockets: &DriverSockets, server: SocketAddrV4, index: usize, datagram: &[u8]) -> io::Result<()> {
    sockets.with(index, |socket| socket.send(address(index), server, datagram)).unwrap_or(Ok(()))
}

fn open_datagram(member: &mut LoadClient, server: SocketAddrV4, datagram: &mut [u8], now: time::Instant) -> u64 {
    match member.client.handle(SocketAddr::V4(server).into(), datagram, now) {
        Ok(Some(payload)) => member.payload_layer.decode(payload.bytes, now),
        _ => 0,
    }
}

fn is_connected(client: &NetcodeClient) -> bool {
    client.state() == ClientState::Connected
}
