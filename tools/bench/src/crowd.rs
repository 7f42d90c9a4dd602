//! The driver's side: the clients of one server, each under an address of its own.
//!
//! Nothing here is measured. It seals what clients send and opens what they get: an answer that is not authentic does not
//! count.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{Client, ClientState};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::time;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, REQUEST_BYTES, USER_DATA_BYTES};
use slipgate_os::clock;

use crate::contestant::{Game, PRIVATE_KEY, PROTOCOL_ID, Speech, Voice};
use crate::port::{Port, Ports, ROW_BYTES};
use crate::stage::{Spent, Stage};

/// Clients that connect together.
const CONNECTING: usize = 128;
/// Steps after which who has not connected never will.
const MOST_STEPS: u32 = 400;
/// The benchmark's time between two steps of connecting.
const STEP: Duration = Duration::from_millis(10);
/// How long a token is accepted: as long as our server allows by default.
pub const TOKEN_SECONDS: u32 = 45;
/// Between two ticks of a game.
pub const TICK: Duration = Duration::from_micros(16_667);
/// The first client's address.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([127, 16, 0, 1]);

/// The clients of one server.
pub struct Crowd {
    ports: Rc<Ports>,
    server: SocketAddrV4,
    speech: Speech,
    members: Vec<Member>,
    /// The benchmark's own time for this server and these clients.
    now: Duration,
    /// When that began.
    opened: Instant,
    /// When the first of them got its token.
    since: Instant,
    /// How many members there were: each has a client id that nobody had before.
    born: u64,
    random: StdRng,
    /// Where answers arrive.
    buffer: Vec<u8>,
}

/// One client.
struct Member {
    client: Client,
    voice: Box<dyn Voice>,
    request: Vec<u8>,
    last: Vec<u8>,
}

/// Room for one datagram.
struct Letter {
    bytes: [u8; MAX_DATAGRAM_BYTES],
    length: Option<usize>,
}

impl Outbox for Letter {
    fn rooms(&self) -> usize {
        usize::from(self.length.is_none())
    }

    fn room(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.length.is_none().then_some(&mut self.bytes)
    }

    fn commit(&mut self, _to: Address, bytes: usize) {
        self.length = Some(bytes);
    }
}

impl Letter {
    const fn new() -> Self {
        Self { bytes: [0; MAX_DATAGRAM_BYTES], length: None }
    }

    fn take(&mut self) -> Option<&[u8]> {
        let length = self.length.take()?;
        self.bytes.get(..length)
    }
}

impl Crowd {
    /// Clients of a server, at most so many, with their sockets.
    #[must_use]
    pub fn new(stage: &Stage, speech: Speech, clients: usize, ports: &Rc<Ports>) -> Self {
        ports.provide(clients);
        Self {
            ports: Rc::clone(ports),
            server: stage.address(),
            speech,
            members: Vec::new(),
            now: Duration::ZERO,
            opened: Instant::now(),
            since: Instant::now(),
            born: 0,
            random: StdRng::seed_from_u64(4),
            buffer: vec![0; ROW_BYTES],
        }
    }

    /// The time of this server and its clients.
    #[must_use]
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// How old the oldest token is, by the wall clock.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn instant(&self) -> time::Instant {
        time::Instant::from_start(self.now)
    }

    /// Connects so many more clients, and answers what that cost the server. Plain ones have nothing to do.
    ///
    /// # Errors
    /// When some do not get in, or the server ends.
    pub fn admit(&mut self, clients: usize, stage: &Stage) -> io::Result<Spent> {
        let mut spent = Spent::default();
        if self.members.is_empty() {
            self.since = Instant::now();
        }
        if let Speech::Netcode(voice) = self.speech {
            let end = self.members.len() + clients;
            while self.members.len() < end {
                let first = self.members.len();
                let group = first..end.min(first + CONNECTING);
                for _ in group.clone() {
                    let member = self.newcomer(voice())?;
                    self.members.push(member);
                }
                spent.add(self.connect(group, stage)?);
            }
        }
        Ok(spent)
    }

    fn newcomer(&mut self, voice: Box<dyn Voice>) -> io::Result<Member> {
        self.born += 1;
        let mut client = Client::new(TimeoutPolicy::Clamped);
        client.connect(self.token(self.born)?, self.instant()).map_err(io::Error::other)?;
        Ok(Member { client, voice, request: Vec::new(), last: Vec::new() })
    }

    fn token(&mut self, client_id: u64) -> io::Result<ConnectToken> {
        let servers = Servers::new(&[SocketAddr::V4(self.server)]).ok_or_else(|| io::Error::other("no server"))?;
        let claims = Claims {
            protocol_id: PROTOCOL_ID,
            client_id,
            servers: &servers,
            internal_servers: None,
            lifetime_seconds: TOKEN_SECONDS,
            timeout_seconds: 60,
            user_data: &[7; USER_DATA_BYTES],
        };
        issue(&claims, &Key::from_bytes(PRIVATE_KEY), clock::wall_clock(), &mut self.random).map_err(io::Error::other)
    }

    /// The benchmark's time is no earlier than the real one. Tokens are dated by the wall clock; beside it a monotonic clock
    /// that stays behind makes a server believe that it started later than it did, and that they were minted before.
    fn keep_up(&mut self) {
        self.now = self.now.max(self.opened.elapsed());
    }

    /// Shakes hands until the server has all of a group and they know it; only the former is on the server's bill.
    fn connect(&mut self, group: Range<usize>, stage: &Stage) -> io::Result<Spent> {
        let mut spent = Spent::default();
        for _ in 0..MOST_STEPS {
            let complete = stage.connected()? >= group.end;
            if complete && self.members.iter().skip(group.start).all(|member| is_connected(&member.client)) {
                return Ok(spent);
            }
            self.keep_up();
            self.transmit(group.clone())?;
            let step = stage.turn(Game::Listen, self.now)?;
            if !complete {
                spent.add(step);
            }
            self.listen(group.clone());
            self.pass(STEP);
        }
        let missing = self.members.iter().filter(|member| !is_connected(&member.client)).count();
        Err(io::Error::other(format!("{missing} of {} clients do not get in", self.members.len())))
    }

    /// Sends what the clients owe.
    fn transmit(&mut self, group: Range<usize>) -> io::Result<()> {
        let now = self.instant();
        let mut letter = Letter::new();
        for place in group {
            let Some(member) = self.members.get_mut(place) else { continue };
            // The last words of a client are ten.
            for _ in 0..10 {
                member.client.transmit(now, &mut letter);
                let Some(datagram) = letter.take() else { break };
                if datagram.len() == REQUEST_BYTES && member.request.is_empty() {
                    member.request = datagram.to_vec();
                }
                send(&self.ports, self.server, place, datagram)?;
            }
        }
        Ok(())
    }

    /// All clients leave, and are forgotten.
    ///
    /// # Errors
    /// When the server does not let them go.
    pub fn dismiss(&mut self, stage: &Stage) -> io::Result<()> {
        for start in (0..self.members.len()).step_by(CONNECTING / 2) {
            let group = start..self.members.len().min(start + CONNECTING / 2);
            for member in self.members.get_mut(group.clone()).unwrap_or_default() {
                member.client.disconnect();
            }
            self.transmit(group.clone())?;
            stage.turn(Game::Drop, self.now)?;
            self.listen(group);
        }
        self.members.clear();
        for _ in 0..MOST_STEPS {
            if stage.connected()? == 0 {
                return Ok(());
            }
            self.pass(STEP);
            stage.turn(Game::Drop, self.now)?;
        }
        Err(io::Error::other("clients that left are still connected"))
    }

    /// Some clients send a message, each `copies` times. Answers how many messages that makes.
    ///
    /// # Errors
    /// What the system says.
    pub fn speak(&mut self, group: Range<usize>, message: &[u8], copies: u32) -> io::Result<u64> {
        let now = self.instant();
        let mut letter = Letter::new();
        let messages = group.len() as u64 * u64::from(copies);
        for place in group {
            let Some(member) = self.members.get_mut(place) else {
                (0..copies).try_for_each(|_| send(&self.ports, self.server, place, message))?;
                continue;
            };
            for packet in member.voice.say(message, copies, now) {
                member.client.send(&packet, now, &mut letter).map_err(io::Error::other)?;
                let datagram = letter.take().unwrap_or_default();
                member.last.clear();
                member.last.extend_from_slice(datagram);
                send(&self.ports, self.server, place, datagram)?;
            }
        }
        Ok(messages)
    }

    /// Takes all answers that wait for some clients, and tells how many messages they brought.
    pub fn listen(&mut self, group: Range<usize>) -> u64 {
        let now = self.instant();
        let Self { ports, server, speech, members, buffer, .. } = self;
        let mut heard = 0;
        for client in group {
            while let Some(Some(taken)) = ports.with(client, |port| port.receive(buffer)) {
                let place = u32::from(taken.to).wrapping_sub(FIRST_ADDRESS) as usize;
                let Some(row) = buffer.get_mut(..taken.bytes).filter(|_| taken.from == *server) else { continue };
                for datagram in row.chunks_mut(taken.each.max(1)) {
                    heard += match members.get_mut(place) {
                        Some(member) => hear(member, *server, datagram, now),
                        // Last words to clients that are forgotten, or an answer without any protocol.
                        None => u64::from(matches!(speech, Speech::Plain)),
                    };
                }
            }
        }
        heard
    }

    /// A client sends the same datagram so many times as one message, which the kernel cuts.
    ///
    /// # Errors
    /// What the system says.
    pub fn row(&self, place: usize, datagram: &[u8], copies: usize) -> io::Result<()> {
        let (row, each) = (datagram.repeat(copies), datagram.len() as u16);
        let send = |port: &mut Port| port.send_row(address(place), self.server, &row, each);
        self.ports.with(place, send).unwrap_or(Ok(()))
    }

    /// Sends any bytes from the port of a client, under any address.
    ///
    /// # Errors
    /// What the system says.
    pub fn forge(&self, place: usize, from: Ipv4Addr, datagram: &[u8]) -> io::Result<()> {
        self.ports.with(place, |port| port.send(from, self.server, datagram)).unwrap_or(Ok(()))
    }

    /// The last datagram of a client.
    #[must_use]
    pub fn last(&self, place: usize) -> Option<&[u8]> {
        self.members.get(place).map(|member| member.last.as_slice())
    }

    /// The request by which a client came in.
    #[must_use]
    pub fn request(&self, place: usize) -> Option<&[u8]> {
        self.members.get(place).map(|member| member.request.as_slice())
    }

    /// Random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.random.fill_bytes(bytes);
    }
}

/// The address of a client.
#[must_use]
pub fn address(place: usize) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_ADDRESS.wrapping_add(place as u32))
}

fn send(ports: &Ports, server: SocketAddrV4, place: usize, datagram: &[u8]) -> io::Result<()> {
    ports.with(place, |port| port.send(address(place), server, datagram)).unwrap_or(Ok(()))
}

fn hear(member: &mut Member, server: SocketAddrV4, datagram: &mut [u8], now: time::Instant) -> u64 {
    match member.client.handle(SocketAddr::V4(server).into(), datagram, now) {
        Ok(Some(payload)) => member.voice.hear(payload.bytes, now),
        _ => 0,
    }
}

fn is_connected(client: &Client) -> bool {
    client.state() == ClientState::Connected
}
