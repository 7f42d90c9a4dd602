//! Sealing and opening in memory, with everything around the cipher: header, whose client it is, replay window.
//!
//! The bare cipher beside it (in the column of the plain echo) is ring's ChaCha20-Poly1305 in place, with one key that is
//! kept and nothing to look up.

use std::hint::black_box;
use std::io;
use std::net::SocketAddr;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::Client;
use slipgate_netcode::crypto::aead::nonce;
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::server::{ClientHandle, Config, Event, Fence, Server};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, TAG_BYTES, USER_DATA_BYTES};

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::arena::Rig;
use crate::contestant::{PRIVATE_KEY, PROTOCOL_ID};
use crate::cpu;
use crate::measures::row;
use crate::row::{Against, Cell, Limit, Role, Row};

const SIZES: [usize; 4] = [16, 100, 400, 1200];
const CLIENTS: usize = 256;
/// Packets of a full turn.
const PACKETS: usize = 8192;
/// Packets that are opened in one go: two of each client.
const BATCH: usize = 512;
/// Bytes that are authenticated beside the payload: version, protocol id, prefix.
const ASSOCIATED: [u8; 22] = [7; 22];

/// Datagrams that leave, in rooms that are used again and again.
struct Rooms {
    datagrams: Vec<[u8; MAX_DATAGRAM_BYTES]>,
    leaving: Vec<(Address, usize)>,
}

impl Outbox for Rooms {
    fn rooms(&self) -> usize {
        self.datagrams.len() - self.leaving.len()
    }

    fn room(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.datagrams.get_mut(self.leaving.len())
    }

    fn commit(&mut self, to: Address, bytes: usize) {
        self.leaving.push((to, bytes));
    }
}

impl Rooms {
    fn new(rooms: usize) -> Self {
        Self { datagrams: vec![[0; MAX_DATAGRAM_BYTES]; rooms], leaving: Vec::with_capacity(rooms) }
    }

    /// Hands out what leaves, and is empty again.
    fn drain(&mut self, mut take: impl FnMut(Address, &mut [u8])) {
        for ((to, bytes), datagram) in self.leaving.drain(..).zip(&mut self.datagrams) {
            if let Some(datagram) = datagram.get_mut(..bytes) {
                take(to, datagram);
            }
        }
    }
}

/// A server and its clients without sockets.
struct Bench {
    server: Server,
    clients: Vec<(Address, Client)>,
    handles: Vec<ClientHandle>,
    rooms: Rooms,
    now: Now,
}

impl Bench {
    fn new() -> io::Result<Self> {
        let now = Now { monotonic: Instant::default(), unix: UnixMillis(1_700_000_000_000) };
        let home = SocketAddr::from(([127, 0, 0, 1], 40_000));
        let mut config = Config::new(PROTOCOL_ID, CLIENTS as u32, vec![home.into()]);
        config.fence = Fence::Open;
        let keys = Key::from_bytes(PRIVATE_KEY).into();
        let server = Server::new(config, keys, &Seed::from_bytes([4; 32]), now).map_err(io::Error::other)?;
        let mut bench = Self { server, clients: Vec::new(), handles: Vec::new(), rooms: Rooms::new(BATCH), now };
        let mut random = StdRng::seed_from_u64(4);
        for number in 0..CLIENTS {
            let claims = Claims {
                protocol_id: PROTOCOL_ID,
                client_id: number as u64,
                servers: &Servers::new(&[home]).ok_or_else(|| io::Error::other("no server"))?,
                internal_servers: None,
                lifetime_seconds: 45,
                timeout_seconds: 60,
                user_data: &[7; USER_DATA_BYTES],
            };
            let key = Key::from_bytes(PRIVATE_KEY);
            let token = issue(&claims, &key, now.unix, &mut random).map_err(io::Error::other)?;
            let mut client = Client::new(TimeoutPolicy::Clamped);
            client.connect(token, now.monotonic).map_err(io::Error::other)?;
            let address = SocketAddr::from(([127, 16, 0, 1], 10_000 + number as u16));
            bench.clients.push((address.into(), client));
            bench.connect(number)?;
        }
        Ok(bench)
    }

    fn connect(&mut self, number: usize) -> io::Result<()> {
        let home = SocketAddr::from(([127, 0, 0, 1], 40_000)).into();
        // Request, challenge, response, keep-alive.
        for _ in 0..4 {
            let Some((address, client)) = self.clients.get_mut(number) else { break };
            client.transmit(self.now.monotonic, &mut self.rooms);
            let (server, now) = (&mut self.server, self.now);
            self.rooms.drain(|_, datagram| {
                let _ = server.handle(*address, datagram, now);
            });
            self.server.tick(self.now);
            self.server.transmit(self.now, &mut self.rooms);
            self.rooms.drain(|_, datagram| {
                let _ = client.handle(home, datagram, now.monotonic);
            });
            while let Some(event) = self.server.poll_event() {
                if let Event::Connected { client, .. } = event {
                    self.handles.push(client);
                    return Ok(());
                }
            }
        }
        Err(io::Error::other("a client without sockets does not get in"))
    }

    /// Nanoseconds to seal a payload for one client after the other.
    fn seal(&mut self, payload: &[u8], packets: usize) -> f64 {
        let start = cpu::thread_time();
        for number in 0..packets {
            if self.rooms.rooms() == 0 {
                self.rooms.leaving.clear();
            }
            if let Some(client) = self.handles.get(number % CLIENTS) {
                let _ = black_box(self.server.send(*client, black_box(payload), self.now, &mut self.rooms));
            }
        }
        let time = cpu::thread_time().saturating_sub(start);
        self.rooms.leaving.clear();
        time.as_nanos() as f64 / packets as f64
    }

    /// Nanoseconds to open a payload of one client after the other.
    fn open(&mut self, payload: &[u8], packets: usize) -> io::Result<f64> {
        let (mut time, mut opened) = (std::time::Duration::ZERO, 0);
        for _ in 0..packets.div_ceil(BATCH) {
            let mut from = Vec::with_capacity(BATCH);
            for number in 0..BATCH {
                if let Some((address, client)) = self.clients.get_mut(number % CLIENTS) {
                    client.send(payload, self.now.monotonic, &mut self.rooms).map_err(io::Error::other)?;
                    from.push(*address);
                }
            }
            self.server.tick(self.now);
            let (server, now, mut from) = (&mut self.server, self.now, from.into_iter());
            let start = cpu::thread_time();
            self.rooms.drain(|_, datagram| {
                if let Some(from) = from.next() {
                    opened += usize::from(matches!(black_box(server.handle(from, datagram, now)), Ok(Some(_))));
                }
            });
            time += cpu::thread_time().saturating_sub(start);
        }
        if opened < packets {
            return Err(io::Error::other("packets without sockets are not opened"));
        }
        Ok(time.as_nanos() as f64 / opened as f64)
    }
}

/// The cipher alone: nanoseconds to seal, and to open.
fn bare(bytes: usize, packets: usize) -> io::Result<[f64; 2]> {
    let refused = |_| io::Error::other("the cipher refuses");
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &[9; 32]).map_err(refused)?);
    let (mut sealing, mut opening) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    let mut buffers = vec![vec![0x5a; bytes + TAG_BYTES]; BATCH];
    for round in 0..packets.div_ceil(BATCH) {
        let number = |place: usize| Nonce::assume_unique_for_key(nonce((round * BATCH + place) as u64));
        let start = cpu::thread_time();
        for (place, buffer) in buffers.iter_mut().enumerate() {
            let Some((plain, tag)) = buffer.split_last_chunk_mut::<TAG_BYTES>() else { continue };
            let made = key.seal_in_place_separate_tag(number(place), Aad::from(ASSOCIATED), plain).map_err(refused)?;
            tag.copy_from_slice(made.as_ref());
        }
        let middle = cpu::thread_time();
        for (place, buffer) in buffers.iter_mut().enumerate() {
            black_box(key.open_in_place(number(place), Aad::from(ASSOCIATED), buffer).map_err(refused)?);
        }
        sealing += middle.saturating_sub(start);
        opening += cpu::thread_time().saturating_sub(middle);
    }
    let each = |time: std::time::Duration| time.as_nanos() as f64 / (packets.div_ceil(BATCH) * BATCH) as f64;
    Ok([each(sealing), each(opening)])
}

/// Figures of ours and of the bare cipher in turns: seal and open.
fn figures(rig: &Rig, bench: &mut Bench, bytes: usize) -> io::Result<[[Vec<f64>; 2]; 2]> {
    let packets = rig.effort.of(PACKETS).max(BATCH);
    let payload = vec![0x5a; bytes];
    let [[mut our_seals, mut our_opens], [mut bare_seals, mut bare_opens]] = <[[Vec<f64>; 2]; 2]>::default();
    for round in 0..=rig.rounds {
        let (seal, open) = (bench.seal(&payload, packets), bench.open(&payload, packets)?);
        let [bare_seal, bare_open] = bare(bytes, packets)?;
        if round > 0 {
            our_seals.push(seal);
            our_opens.push(open);
            bare_seals.push(bare_seal);
            bare_opens.push(bare_open);
        }
    }
    Ok([[our_seals, bare_seals], [our_opens, bare_opens]])
}

fn cells(rig: &Rig, [ours, bare]: [Vec<f64>; 2]) -> Vec<Cell> {
    let cell = |role| match role {
        Role::Ours => Cell::Rounds(ours.clone()),
        Role::Plain => Cell::Rounds(bare.clone()),
        Role::Channels | Role::Batched | Role::Peer => Cell::Blank(String::new()),
    };
    rig.contestants.iter().map(|contestant| cell(contestant.role)).collect()
}

/// Two rows for each size.
///
/// # Errors
/// When the clients do not get in.
pub fn measure(rig: &Rig) -> io::Result<Vec<Row>> {
    let mut bench = Bench::new()?;
    let mut rows = Vec::new();
    for bytes in SIZES {
        for (what, figures) in ["seal", "open"].into_iter().zip(figures(rig, &mut bench, bytes)?) {
            let row =
                row(format!("{what} in memory, {bytes} bytes (plain: the bare cipher)"), "ns", cells(rig, figures));
            let is_judged = bytes == 100;
            rows.push(if is_judged { row.judged(Against::Plain, Limit::AtMost(1.3)) } else { row });
        }
    }
    Ok(rows)
}
