//! A whole server and a client, driven by the operations of an input.
//!
//! `tokens` makes tokens and packets of attackers, `invariants` checks invariants after each operation, this file
//! runs them.

mod device;
mod invariants;
mod tokens;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::NetcodeClient;
use slipgate_netcode::crypto::key::{KeyRing, Seed};
use slipgate_netcode::server::{ClientHandle, NetcodeServer, ServerConfig, TokenCutoff};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::packet::{Challenge, PacketKind};
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES};

use self::device::Device;
use self::invariants::Invariants;
use self::tokens::{RawClient, private_key};
use crate::{Input, PROTOCOL_ID};

const BEGINNING_MS: u64 = 1_800_000_000_000;
/// Operations of one input at most. More would be slow without finding more.
const MAX_OPERATIONS: usize = 200;
const MAX_TOKENS: usize = 12;
const MAX_RECORDED: usize = 16;

/// The addresses of all peers. The first is the client's.
const PLACES: [&str; 6] = [
    "10.0.0.1:5000",
    "10.0.0.1:5001",
    "10.0.0.2:5000",
    "[2001:db8::1]:5000",
    "[2001:db8::2]:5000",
    "[2001:db8:1::1]:5000",
];
const HOME: &str = "10.9.9.9:40000";

/// The addresses of `PLACES` and `HOME`, which are parsed once.
static ADDRESSES: LazyLock<[Address; PLACES.len()]> = LazyLock::new(|| PLACES.map(address));
static HOME_ADDRESS: LazyLock<Address> = LazyLock::new(|| address(HOME));

fn sender_address(number: u8) -> Address {
    ADDRESSES[usize::from(number) % PLACES.len()]
}

fn home() -> Address {
    *HOME_ADDRESS
}

fn address(text: &str) -> Address {
    text.parse::<SocketAddr>().map(Address::from).unwrap_or_else(|_| panic!("{text} is an address"))
}

/// Runs the operations of an input, and panics when an invariant is violated.
pub fn play(input: &[u8]) {
    let mut input = Input::new(input);
    let mut play = Play::begin(&mut input);
    for _ in 0..MAX_OPERATIONS {
        let Some(operation) = input.operation() else { break };
        // A server that does not start again has no events to check.
        if play.perform(operation, &mut input).is_none() {
            return;
        }
        play.invariants.check(&play.server);
    }
    play.drain(usize::MAX);
}

struct Play {
    server: NetcodeServer,
    device: Option<Device>,
    invariants: Invariants,
    client: NetcodeClient,
    to_client: VecDeque<Vec<u8>>,
    raw_clients: Vec<RawClient>,
    /// Challenges that were received at any address.
    earned: Vec<Challenge>,
    /// Datagrams that the server received before, to be altered and sent again.
    recorded: VecDeque<(Address, Vec<u8>)>,
    /// Handles of all connections so far. Most of them are stale.
    handles: Vec<ClientHandle>,
    time: Duration,
    unix_ms: u64,
    starts: u64,
}

/// Collects outgoing datagrams, up to a limit.
struct Batch {
    buf: [u8; MAX_DATAGRAM_BYTES],
    sent: Vec<(Address, Vec<u8>)>,
    limit: usize,
}

impl Batch {
    const fn new(limit: usize) -> Self {
        Self { buf: [0; MAX_DATAGRAM_BYTES], sent: Vec::new(), limit }
    }
}

impl Outbox for Batch {
    fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.sent.len())
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        (self.sent.len() < self.limit).then_some(&mut self.buf)
    }

    fn commit(&mut self, to: Address, bytes: usize) {
        self.sent.push((to, self.buf[..bytes].to_vec()));
    }
}

impl Play {
    fn begin(input: &mut Input<'_>) -> Self {
        let config = config(input);
        let device = (input.u8() & 1 == 1).then(Device::default);
        let now = Now { monotonic: Instant::default(), unix: UnixMillis(BEGINNING_MS) };
        let invariants = Invariants::new(&config);
        let server = start(config, device.as_ref(), 0, now).expect("an empty device");
        Self {
            server,
            device,
            invariants,
            client: NetcodeClient::new(TimeoutPolicy::Clamped),
            to_client: VecDeque::new(),
            raw_clients: Vec::new(),
            earned: Vec::new(),
            recorded: VecDeque::new(),
            handles: Vec::new(),
            time: Duration::ZERO,
            unix_ms: BEGINNING_MS,
            starts: 0,
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: Instant::from_start(self.time), unix: UnixMillis(self.unix_ms) }
    }

    /// Runs one operation. Returns `None` when the server cannot go on.
    fn perform(&mut self, operation: u8, input: &mut Input<'_>) -> Option<()> {
        match operation % 24 {
            0 => self.mint(input),
            1..=3 => self.present_request(input),
            4..=6 => self.present_response(input),
            7..=9 => self.present_sealed(input),
            10 => self.present_altered(input),
            11 => self.present_noise(input),
            12 => self.pass_time(input),
            13 => self.step_wall_clock(input),
            14 => {
                self.server.tick(self.now());
                self.invariants.check_after_tick(&self.server, self.time);
            }
            15 | 16 => self.transmit(usize::from(input.u8())),
            17 => self.send(input),
            18 => self.end_one(input),
            19 => self.administer(input),
            20 => self.loopback(input),
            21 => return self.restart(),
            22 => self.drive_client(input),
            _ => self.drain(usize::from(input.u8())),
        }
        Some(())
    }

    // Datagrams to the server ----------------------------------------------------------------------------

    fn mint(&mut self, input: &mut Input<'_>) {
        if self.raw_clients.len() < MAX_TOKENS {
            let number = self.raw_clients.len() as u8;
            self.raw_clients.push(RawClient::mint(number, input, self.unix_ms, home()));
        }
    }

    fn raw_client(&mut self, input: &mut Input<'_>) -> Option<usize> {
        let number = usize::from(input.u8());
        (!self.raw_clients.is_empty()).then(|| number % self.raw_clients.len())
    }

    fn present_request(&mut self, input: &mut Input<'_>) {
        if let Some(raw_client) = self.raw_client(input) {
            let request = self.raw_clients[raw_client].request();
            self.present(sender_address(input.u8()), request);
        }
    }

    fn present_response(&mut self, input: &mut Input<'_>) {
        let Some(raw_client) = self.raw_client(input) else { return };
        let (from, which) = (sender_address(input.u8()), usize::from(input.u8()));
        // The newest first: it is the most likely to be valid.
        let earned = self.earned.iter().rev().nth(which % self.earned.len().max(1)).copied();
        if let Some(challenge) = earned {
            let response = self.raw_clients[raw_client].seal(PacketKind::Response, &challenge.to_bytes(), None);
            self.present(from, response);
        }
    }

    fn present_sealed(&mut self, input: &mut Input<'_>) {
        let Some(raw_client) = self.raw_client(input) else { return };
        let (from, kind, sequence) = (sender_address(input.u8()), input.u8(), input.u8());
        let sequence = match sequence {
            0..=199 => None,
            200..=249 => Some(u64::from(sequence)),
            _ => Some(input.u64()),
        };
        let content = [0x5a; MAX_PAYLOAD_BYTES];
        let (kind, bytes) = match kind % 4 {
            0 => (PacketKind::KeepAlive, 8),
            1 => (PacketKind::Disconnect, 0),
            _ => (PacketKind::Payload, 1 + usize::from(kind) * 4),
        };
        let datagram = self.raw_clients[raw_client].seal(kind, &content[..bytes], sequence);
        self.present(from, datagram);
    }

    fn present_altered(&mut self, input: &mut Input<'_>) {
        let (which, from, at, change) = (usize::from(input.u8()), input.u8(), input.u8(), input.u8());
        let Some((original, mut datagram)) = self.recorded.get(which % self.recorded.len().max(1)).cloned() else {
            return;
        };
        let from = if from >= 128 { original } else { sender_address(from) };
        let at = usize::from(at) * datagram.len() / 256;
        match change {
            0 => {}
            255 => datagram.truncate(at),
            change => datagram.get_mut(at).into_iter().for_each(|byte| *byte ^= change),
        }
        self.present(from, datagram);
    }

    fn present_noise(&mut self, input: &mut Input<'_>) {
        let (from, head, length) = (sender_address(input.u8()), input.array::<12>(), usize::from(input.u8()) * 6);
        let mut noise = vec![0xa7; length];
        noise.iter_mut().zip(head).for_each(|(to, from)| *to = from);
        self.present(from, noise);
    }

    fn present(&mut self, from: Address, mut datagram: Vec<u8>) {
        if self.recorded.len() == MAX_RECORDED {
            self.recorded.pop_front();
        }
        self.recorded.push_back((from, datagram.clone()));
        let now = self.now();
        self.invariants.on_delivered(from, datagram.len());
        // Opened before the server decrypts it in place.
        let token = self.raw_clients.iter().position(|raw_client| raw_client.opens_response(&datagram));
        let (before, connects) = (self.server.discards().total(), self.server.stats().connects);
        match self.server.handle(from, &mut datagram, now) {
            Ok(payload) => {
                assert_eq!(self.server.discards().total(), before, "an accepted datagram is not counted as dropped");
                let payload = payload.map(|(client, payload)| (client, payload.bytes.len()));
                self.invariants.on_payload(&self.server, from, payload, self.time);
                if self.server.stats().connects > connects {
                    let token = token.expect("only a response is admitted");
                    self.invariants.admitted(&self.server, token, from);
                }
            }
            Err(reason) => {
                assert_eq!(self.server.discards().total(), before + 1, "{reason}: a dropped datagram is counted once");
            }
        }
    }

    // Calls of the application -------------------------------------------------------------------------------------

    fn transmit(&mut self, limit: usize) {
        let (now, mut batch) = (self.now(), Batch::new(if limit > 200 { usize::MAX } else { limit }));
        self.server.transmit(now, &mut batch);
        if batch.limit == usize::MAX && self.device.as_ref().is_none_or(Device::works) {
            assert!(!self.server.table_usage().has_due_packets, "a batch with enough capacity takes all packets");
        }
        self.deliver(batch.sent);
    }

    fn deliver(&mut self, sent: Vec<(Address, Vec<u8>)>) {
        for (to, datagram) in sent {
            let opened =
                self.raw_clients.iter().enumerate().find_map(|(n, raw_client)| Some((n, raw_client.open(&datagram)?)));
            let (sender, opened) = opened.expect("every packet is sealed under a token's key");
            self.invariants.sent(&self.server, to, sender, &opened, datagram.len());
            if opened.kind == PacketKind::Challenge {
                self.earned.extend(Challenge::parse(&opened.content));
            }
            if to == sender_address(0) && self.to_client.len() < MAX_RECORDED {
                self.to_client.push_back(datagram);
            }
        }
    }

    fn handle(&self, number: u8) -> Option<ClientHandle> {
        let number = usize::from(number);
        self.handles.iter().rev().nth(number % self.handles.len().max(1)).copied()
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let (handle, length, capacity) = (input.u8(), usize::from(input.u8()) * 5, usize::from(input.u8()));
        let Some(handle) = self.handle(handle) else { return };
        let (now, mut batch) = (self.now(), Batch::new(capacity));
        let is_live = self.server.client(handle).is_some();
        let sent = self.server.send(handle, &vec![0x77; length], now, &mut batch);
        assert!(sent.is_err() || (is_live && (1..=MAX_PAYLOAD_BYTES).contains(&length)), "sent to no client");
        self.deliver(batch.sent);
    }

    fn end_one(&mut self, input: &mut Input<'_>) {
        let Some(handle) = self.handle(input.u8()) else { return };
        let is_live = self.server.client(handle).is_some();
        assert_eq!(self.server.disconnect(handle), is_live);
        assert!(self.server.client(handle).is_none());
    }

    fn administer(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        match what % 8 {
            0 => self.server.accept_new_clients(false),
            1 | 2 => self.server.accept_new_clients(true),
            3 => self.server.stop(),
            4 => self.device.iter().for_each(|device| device.set_failing(what & 16 != 0, what & 32 != 0)),
            _ => {
                let keys = [private_key(what >> 4), private_key(what >> 5), private_key(0)];
                let count = 1 + usize::from(what >> 3) % 3;
                self.server.set_keys(KeyRing::new(&keys[3 - count..]).expect("one to three keys"));
            }
        }
    }

    fn loopback(&mut self, input: &mut Input<'_>) {
        let (what, now, mut buffer) = (input.u8(), self.now(), [0; MAX_PAYLOAD_BYTES]);
        let handle = self.handle(input.u8());
        match (what % 4, handle) {
            (0, _) => {
                let _ = self.server.connect_loopback(u64::from(what >> 4) % 4, [0; 256], now);
            }
            (1, Some(handle)) => {
                let is_live = self.server.client(handle).is_some_and(|info| info.address.is_none());
                let sent = self.server.loopback_send(handle, &[1; 50]);
                assert!(is_live || sent.is_err());
            }
            (2, Some(handle)) => {
                let received = self.server.loopback_receive(handle, &mut buffer);
                // Payloads for a loopback client that left can still be taken. Network clients have none.
                let in_program = self.server.client(handle).is_none_or(|info| info.address.is_none());
                assert!(received.is_none() || in_program);
            }
            _ => {
                if let Some((client, length)) = self.server.poll_loopback(&mut buffer) {
                    assert!(self.server.client(client).is_some_and(|info| info.address.is_none()) && length > 0);
                }
            }
        }
    }

    fn drain(&mut self, max_events: usize) {
        for _ in 0..max_events {
            let Some(event) = self.server.poll_event() else {
                self.invariants.check_after_all_events(&self.server, &self.handles);
                break;
            };
            self.handles.extend(self.invariants.happened(event, self.time));
        }
    }

    fn restart(&mut self) -> Option<()> {
        // The token cutoff counts in milliseconds: two starts within one millisecond look the same.
        self.time += Duration::from_millis(1);
        self.unix_ms += 1;
        self.starts += 1;
        let config = self.server.config().clone();
        self.invariants.restarted(self.device.is_some(), config.token_cutoff);
        self.server = start(config, self.device.as_ref(), self.starts, self.now())?;
        self.handles.clear();
        Some(())
    }

    // Clocks, and the client -----------------------------------------------------------------------------------

    fn pass_time(&mut self, input: &mut Input<'_>) {
        // The step is between a millisecond and two minutes.
        let (exponent, fraction) = (input.u8() % 17, u64::from(input.u8()));
        let passed = Duration::from_millis((1 << exponent) * (256 + fraction) / 256);
        self.time += passed;
        self.unix_ms += passed.as_millis() as u64;
    }

    fn step_wall_clock(&mut self, input: &mut Input<'_>) {
        let step = (1_u64 << (input.u8() % 24)).min(5_000_000);
        if input.u8() & 1 == 1 {
            self.unix_ms += step;
        } else {
            self.unix_ms -= step;
            self.invariants.clock_went_back();
        }
    }

    fn drive_client(&mut self, input: &mut Input<'_>) {
        let (what, now) = (input.u8(), self.now().monotonic);
        let mut batch = Batch::new(usize::from(what >> 4) * 4);
        match what % 8 {
            0 => {
                if let Some(raw_client) = self.raw_client(input) {
                    let _ = self.client.connect(self.raw_clients[raw_client].token(), now, |_| true);
                }
            }
            1 => self.client.disconnect(),
            2 => {
                let _ = self.client.send(&[3; 100], now, &mut batch);
            }
            3 => self.client.tick(now),
            4 => while self.client.poll_event().is_some() {},
            5 => {
                let mut noise = vec![what; usize::from(input.u8())];
                let _ = self.client.handle(home(), &mut noise, now);
            }
            _ => {
                for mut datagram in std::mem::take(&mut self.to_client) {
                    let _ = self.client.handle(home(), &mut datagram, now);
                }
                self.client.tick(now);
                self.client.transmit(now, &mut batch);
            }
        }
        assert_eq!(self.client.slot_info().is_some(), self.client.state() as i8 == 3);
        for (to, datagram) in batch.sent {
            self.invariants.client_sent(&self.raw_clients, &datagram);
            if to == home() {
                self.present(sender_address(0), datagram);
            }
        }
    }
}

fn config(input: &mut Input<'_>) -> ServerConfig {
    let [slots, pending, history, addresses, takeover, cutoff, timeouts, budgets] = input.array::<8>();
    let mut config = ServerConfig::new(PROTOCOL_ID, 1 + u32::from(slots % 4), &[home().socket_addr()]);
    config.pending_clients = 1 + u32::from(pending % 8);
    config.history_tokens = 1 + usize::from(history % 16);
    config.addresses_per_token = 1 + addresses % 8;
    config.takeover_after = (takeover & 1 == 1).then(|| Duration::from_millis(u64::from(takeover) * 20));
    config.token_cutoff = if cutoff & 1 == 1 { TokenCutoff::AtStart } else { TokenCutoff::None };
    config.max_token_lifetime = (cutoff & 6 != 6).then(|| Duration::from_secs(45));
    config.timeouts = if timeouts & 1 == 1 { TimeoutPolicy::Development } else { TimeoutPolicy::Clamped };
    if budgets & 1 == 1 {
        config.budgets.strangers_per_turn = u32::from(budgets >> 3).max(1);
        config.budgets.packets_per_client_and_turn = u32::from(budgets >> 4).max(1);
        config.budgets.decrypts_per_source = u32::from(budgets >> 2).max(3);
        config.budgets.decrypts = u32::from(budgets >> 1).max(3);
    }
    config
}

/// Starts a server. Returns `None` when the device holds more records than the history can.
fn start(config: ServerConfig, device: Option<&Device>, starts: u64, now: Now) -> Option<NetcodeServer> {
    let mut seed = [0x33; 32];
    seed[..8].copy_from_slice(&starts.to_le_bytes());
    let (seed, keys) = (Seed::from(seed), private_key(0).into());
    match device {
        None => Some(NetcodeServer::new(config, keys, &seed, now).expect("settings that a server can run with")),
        Some(device) => NetcodeServer::with_storage(config, keys, &seed, now, device.storage()).ok(),
    }
}
