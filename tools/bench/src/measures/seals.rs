//! Sealing and opening in memory, including the header, the client lookup and the replay window.
//!
//! The bare cipher (in the column of the plain echo) is ring's ChaCha20-Poly1305 in place, with one stored key and no
//! lookup.

use std::hint::black_box;
use std::io;
use std::net::SocketAddr;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::NetcodeClient;
use slipgate_netcode::crypto::aead::nonce;
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::server::{ClientHandle, NetcodeEvent, NetcodeServer, ServerConfig, TokenCutoff};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, TAG_BYTES, USER_DATA_BYTES};

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::cpu;
use crate::measures::row;
use crate::row::{Baseline, BenchRow, Cell, ColumnRole, FigureLimit};
use crate::runner::Setup;
use crate::subject::{PRIVATE_KEY, PROTOCOL_ID};

const SIZES: [usize; 4] = [16, 100, 400, 1200];
const CLIENTS: usize = 256;
/// The number of packets in a full turn.
const PACKETS: usize = 8192;
/// The number of packets that are opened together: two of each client.
const BATCH: usize = 512;
/// The associated data: version, protocol id, prefix.
const ASSOCIATED: [u8; 22] = [7; 22];

/// An outbox in memory, with reused buffers.
struct MemoryOutbox {
    datagrams: Vec<[u8; MAX_DATAGRAM_BYTES]>,
    leaving: Vec<(Address, usize)>,
}

impl Outbox for MemoryOutbox {
    fn remaining(&self) -> usize {
        self.datagrams.len() - self.leaving.len()
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.datagrams.get_mut(self.leaving.len())
    }

    fn commit(&mut self, to: Address, bytes: usize) {
        self.leaving.push((to, bytes));
    }
}

impl MemoryOutbox {
    fn new(outbox: usize) -> Self {
        Self { datagrams: vec![[0; MAX_DATAGRAM_BYTES]; outbox], leaving: Vec::with_capacity(outbox) }
    }

    /// Passes all datagrams to a function and empties the outbox.
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
    server: NetcodeServer,
    clients: Vec<(Address, NetcodeClient)>,
    handles: Vec<ClientHandle>,
    outbox: MemoryOutbox,
    now: Now,
}

impl Bench {
    fn new() -> io::Result<Self> {
        let now = Now { monotonic: Instant::default(), unix: UnixMillis(1_700_000_000_000) };
        let home = SocketAddr::from(([127, 0, 0, 1], 40_000));
        let mut config = ServerConfig::new(PROTOCOL_ID, CLIENTS as u32, &[home]);
        config.token_cutoff = TokenCutoff::None;
        let keys = Key::from(PRIVATE_KEY).into();
        let server = NetcodeServer::new(config, keys, &Seed::from([4; 32]), now).map_err(io::Error::other)?;
        let mut bench =
            Self { server, clients: Vec::new(), handles: Vec::new(), outbox: MemoryOutbox::new(BATCH), now };
        let mut random = StdRng::seed_from_u64(4);
        for number in 0..CLIENTS {
            let claims = Claims {
                protocol_id: PROTOCOL_ID,
                client_id: (number as u64).into(),
                servers: &Servers::new(&[home]).ok_or_else(|| io::Error::other("no server"))?,
                internal_servers: None,
                lifetime_seconds: 45,
                timeout_seconds: 60,
                user_data: &[7; USER_DATA_BYTES],
            };
            let key = Key::from(PRIVATE_KEY);
            let token = issue(&claims, &key, now.unix, &mut random).map_err(io::Error::other)?;
            let mut client = NetcodeClient::new(TimeoutPolicy::Clamped);
            client.connect(token, now.monotonic, |_| true).map_err(io::Error::other)?;
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
            client.transmit(self.now.monotonic, &mut self.outbox);
            let (server, now) = (&mut self.server, self.now);
            self.outbox.drain(|_, datagram| {
                let _ = server.handle(*address, datagram, now);
            });
            self.server.tick(self.now);
            self.server.transmit(self.now, &mut self.outbox);
            self.outbox.drain(|_, datagram| {
                let _ = client.handle(home, datagram, now.monotonic);
            });
            while let Some(event) = self.server.poll_event() {
                if let NetcodeEvent::Connected { client, .. } = event {
                    self.handles.push(client);
                    return Ok(());
                }
            }
        }
        Err(io::Error::other("a client without sockets does not get in"))
    }

    /// Returns the nanoseconds to seal a payload for each of the clients in turn.
    fn seal(&mut self, payload: &[u8], packets: usize) -> f64 {
        let start = cpu::thread_time();
        for number in 0..packets {
            if self.outbox.remaining() == 0 {
                self.outbox.leaving.clear();
            }
            if let Some(client) = self.handles.get(number % CLIENTS) {
                let _ = black_box(self.server.send(*client, black_box(payload), self.now, &mut self.outbox));
            }
        }
        let time = cpu::thread_time().saturating_sub(start);
        self.outbox.leaving.clear();
        time.as_nanos() as f64 / packets as f64
    }

    /// Returns the nanoseconds to open a payload of each of the clients in turn.
    fn open(&mut self, payload: &[u8], packets: usize) -> io::Result<f64> {
        let (mut time, mut opened) = (std::time::Duration::ZERO, 0);
        for _ in 0..packets.div_ceil(BATCH) {
            let mut from = Vec::with_capacity(BATCH);
            for number in 0..BATCH {
                if let Some((address, client)) = self.clients.get_mut(number % CLIENTS) {
                    client.send(payload, self.now.monotonic, &mut self.outbox).map_err(io::Error::other)?;
                    from.push(*address);
                }
            }
            self.server.tick(self.now);
            let (server, now, mut from) = (&mut self.server, self.now, from.into_iter());
            let start = cpu::thread_time();
            self.outbox.drain(|_, datagram| {
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

/// Returns the nanoseconds of the bare cipher to seal and to open.
fn bare(bytes: usize, packets: usize) -> io::Result<[f64; 2]> {
    let refused = |_| io::Error::other("the cipher refuses");
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &[9; 32]).map_err(refused)?);
    let (mut sealing, mut opening) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    let mut buffers = vec![vec![0x5a; bytes + TAG_BYTES]; BATCH];
    for round in 0..packets.div_ceil(BATCH) {
        let number = |index: usize| Nonce::assume_unique_for_key(nonce((round * BATCH + index) as u64));
        let start = cpu::thread_time();
        for (index, buffer) in buffers.iter_mut().enumerate() {
            let Some((plain, tag)) = buffer.split_last_chunk_mut::<TAG_BYTES>() else { continue };
            let made = key.seal_in_place_separate_tag(number(index), Aad::from(ASSOCIATED), plain).map_err(refused)?;
            tag.copy_from_slice(made.as_ref());
        }
        let middle = cpu::thread_time();
        for (index, buffer) in buffers.iter_mut().enumerate() {
            black_box(key.open_in_place(number(index), Aad::from(ASSOCIATED), buffer).map_err(refused)?);
        }
        sealing += middle.saturating_sub(start);
        opening += cpu::thread_time().saturating_sub(middle);
    }
    let each = |time: std::time::Duration| time.as_nanos() as f64 / (packets.div_ceil(BATCH) * BATCH) as f64;
    Ok([each(sealing), each(opening)])
}

/// Returns the figures of Slipgate and of the bare cipher, measured in turns: seal and open.
fn figures(setup: &Setup, bench: &mut Bench, bytes: usize) -> io::Result<[[Vec<f64>; 2]; 2]> {
    let packets = setup.effort.of(PACKETS).max(BATCH);
    let payload = vec![0x5a; bytes];
    let [[mut our_seals, mut our_opens], [mut bare_seals, mut bare_opens]] = <[[Vec<f64>; 2]; 2]>::default();
    for round in 0..=setup.rounds {
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

fn cells(setup: &Setup, [ours, bare]: [Vec<f64>; 2]) -> Vec<Cell> {
    let cell = |role| match role {
        ColumnRole::Ours => Cell::Rounds(ours.clone()),
        ColumnRole::Plain => Cell::Rounds(bare.clone()),
        ColumnRole::Channels | ColumnRole::Batched | ColumnRole::Peer => Cell::Blank(String::new()),
    };
    setup.subjects.iter().map(|subject| cell(subject.role)).collect()
}

/// Returns two rows for each size.
///
/// # Errors
/// `Other` if the clients do not connect.
pub fn measure(setup: &Setup) -> io::Result<Vec<BenchRow>> {
    let mut bench = Bench::new()?;
    let mut rows = Vec::new();
    for bytes in SIZES {
        for (what, figures) in ["seal", "open"].into_iter().zip(figures(setup, &mut bench, bytes)?) {
            let row =
                row(format!("{what} in memory, {bytes} bytes (plain: the bare cipher)"), "ns", cells(setup, figures));
            let is_judged = bytes == 100;
            rows.push(if is_judged { row.with_target(Baseline::Plain, FigureLimit::AtMost(1.3)) } else { row });
        }
    }
    Ok(rows)
}
