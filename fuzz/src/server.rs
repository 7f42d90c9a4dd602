//! A whole server and a client, driven by a sequence of operations that an input spells out.
//!
//! `tokens` makes what attackers hold, `laws` says what must hold after every operation, and this file plays.

mod device;
mod laws;
mod tokens;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::{KeyRing, Seed};
use slipgate_netcode::Outbox;
use slipgate_netcode::client::Client;
use slipgate_netcode::server::{ClientHandle, Config, Fence, Server};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::wire::packet::{Challenge, PacketKind};
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES};

use self::device::Device;
use self::laws::Laws;
use self::tokens::{Holder, private_key};
use crate::{Input, PROTOCOL_ID};

const BEGINNING_MS: u64 = 1_800_000_000_000;
/// Operations of one input: more would only be slow.
const MOST_OPERATIONS: usize = 200;
const MOST_TOKENS: usize = 12;
const MOST_RECORDED: usize = 16;

/// Where everybody is: the first is our client's.
const PLACES: [&str; 6] = [
    "10.0.0.1:5000",
    "10.0.0.1:5001",
    "10.0.0.2:5000",
    "[2001:db8::1]:5000",
    "[2001:db8::2]:5000",
    "[2001:db8:1::1]:5000",
];
const HOME: &str = "10.9.9.9:40000";

fn place(number: u8) -> Address {
    address(PLACES[usize::from(number) % PLACES.len()])
}

fn address(text: &str) -> Address {
    text.parse::<SocketAddr>().map(Address::from).unwrap_or_else(|_| panic!("{text} is an address"))
}

/// Plays what an input spells, and panics when a law is broken.
pub fn play(input: &[u8]) {
    let mut input = Input::new(input);
    let mut play = Play::begin(&mut input);
    for _ in 0..MOST_OPERATIONS {
        let Some(operation) = input.operation() else { break };
        if play.perform(operation, &mut input).is_none() {
            break;
        }
        play.laws.check(&play.server);
    }
    play.drain(usize::MAX);
}

struct Play {
    server: Server,
    device: Option<Device>,
    laws: Laws,
    client: Client,
    to_client: VecDeque<Vec<u8>>,
    holders: Vec<Holder>,
    /// Challenges that somebody received.
    earned: Vec<Challenge>,
    /// What was brought to the server before: to be altered and brought again.
    recorded: VecDeque<(Address, Vec<u8>)>,
    /// Handles that were given once, most of them stale.
    handles: Vec<ClientHandle>,
    time: Duration,
    unix_ms: u64,
    starts: u64,
}

/// Collects what leaves, up to a limit.
struct Batch {
    room: [u8; MAX_DATAGRAM_BYTES],
    sent: Vec<(Address, Vec<u8>)>,
    limit: usize,
}

impl Batch {
    const fn new(limit: usize) -> Self {
        Self { room: [0; MAX_DATAGRAM_BYTES], sent: Vec::new(), limit }
    }
}

impl Outbox for Batch {
    fn rooms(&self) -> usize {
        self.limit.saturating_sub(self.sent.len())
    }

    fn room(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        (self.sent.len() < self.limit).then_some(&mut self.room)
    }

    fn commit(&mut self, to: Address, bytes: usize) {
        self.sent.push((to, self.room[..bytes].to_vec()));
    }
}

impl Play {
    fn begin(input: &mut Input<'_>) -> Self {
        let config = config(input);
        let device = (input.u8() & 1 == 1).then(Device::default);
        let now = Now { monotonic: Instant::default(), unix: UnixMillis(BEGINNING_MS) };
        let laws = Laws::new(&config);
        let server = start(config, device.as_ref(), 0, now).expect("an empty device");
        Self {
            server,
            device,
            laws,
            client: Client::new(TimeoutPolicy::Clamped),
            to_client: VecDeque::new(),
            holders: Vec::new(),
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

    /// One operation; `None` when the server cannot go on.
    fn perform(&mut self, operation: u8, input: &mut Input<'_>) -> Option<()> {
        match operation % 24 {
            0 => self.mint(input),
            1..=3 => self.bring_request(input),
            4..=6 => self.bring_response(input),
            7..=9 => self.bring_sealed(input),
            10 => self.bring_altered(input),
            11 => self.bring_noise(input),
            12 => self.pass_time(input),
            13 => self.step_wall_clock(input),
            14 => {
                self.server.tick(self.now());
                self.laws.check_after_tick(&self.server, self.time);
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

    // What is brought to the server ----------------------------------------------------------------------------

    fn mint(&mut self, input: &mut Input<'_>) {
        if self.holders.len() < MOST_TOKENS {
            let number = self.holders.len() as u8;
            self.holders.push(Holder::mint(number, input, self.unix_ms, address(HOME)));
        }
    }

    fn holder(&mut self, input: &mut Input<'_>) -> Option<usize> {
        let number = usize::from(input.u8());
        (!self.holders.is_empty()).then(|| number % self.holders.len())
    }

    fn bring_request(&mut self, input: &mut Input<'_>) {
        if let Some(holder) = self.holder(input) {
            let request = self.holders[holder].request();
            self.bring(place(input.u8()), request);
        }
    }

    fn bring_response(&mut self, input: &mut Input<'_>) {
        let Some(holder) = self.holder(input) else { return };
        let (from, which) = (place(input.u8()), usize::from(input.u8()));
        // The newest first: it is the most likely to be good.
        let earned = self.earned.iter().rev().nth(which % self.earned.len().max(1)).copied();
        if let Some(challenge) = earned {
            let response = self.holders[holder].seal(PacketKind::Response, &challenge.to_bytes(), None);
            self.bring(from, response);
        }
    }

    fn bring_sealed(&mut self, input: &mut Input<'_>) {
        let Some(holder) = self.holder(input) else { return };
        let (from, kind, sequence) = (place(input.u8()), input.u8(), input.u8());
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
        let datagram = self.holders[holder].seal(kind, &content[..bytes], sequence);
        self.bring(from, datagram);
    }

    fn bring_altered(&mut self, input: &mut Input<'_>) {
        let (which, from, at, change) = (usize::from(input.u8()), input.u8(), input.u8(), input.u8());
        let Some((original, mut datagram)) = self.recorded.get(which % self.recorded.len().max(1)).cloned() else {
            return;
        };
        let from = if from >= 128 { original } else { place(from) };
        let at = usize::from(at) * datagram.len() / 256;
        match change {
            0 => {}
            255 => datagram.truncate(at),
            change => datagram.get_mut(at).into_iter().for_each(|byte| *byte ^= change),
        }
        self.bring(from, datagram);
    }

    fn bring_noise(&mut self, input: &mut Input<'_>) {
        let (from, head, length) = (place(input.u8()), input.array::<12>(), usize::from(input.u8()) * 6);
        let mut noise = vec![0xa7; length];
        noise.iter_mut().zip(head).for_each(|(to, from)| *to = from);
        self.bring(from, noise);
    }

    fn bring(&mut self, from: Address, mut datagram: Vec<u8>) {
        if self.recorded.len() == MOST_RECORDED {
            self.recorded.pop_front();
        }
        self.recorded.push_back((from, datagram.clone()));
        let now = self.now();
        self.laws.brought(from, datagram.len());
        let before = self.server.discards().total();
        match self.server.handle(from, &mut datagram, now) {
            Ok(payload) => {
                assert_eq!(self.server.discards().total(), before, "what is taken is not counted as dropped");
                let payload = payload.map(|(client, payload)| (client, payload.bytes.len()));
                self.laws.taken(&self.server, from, payload, self.time);
            }
            Err(reason) => {
                assert_eq!(self.server.discards().total(), before + 1, "{reason}: what is dropped is counted once");
            }
        }
    }

    // What the server does -------------------------------------------------------------------------------------

    fn transmit(&mut self, limit: usize) {
        let (now, mut batch) = (self.now(), Batch::new(if limit > 200 { usize::MAX } else { limit }));
        self.server.transmit(now, &mut batch);
        if batch.limit == usize::MAX && self.device.as_ref().is_none_or(Device::works) {
            assert!(!self.server.owes(), "with room enough all debts are paid");
        }
        self.deliver(batch.sent);
    }

    fn deliver(&mut self, sent: Vec<(Address, Vec<u8>)>) {
        for (to, datagram) in sent {
            let opened = self.holders.iter().enumerate().find_map(|(n, holder)| Some((n, holder.open(&datagram)?)));
            let (holder, opened) = opened.expect("every packet is sealed under a token's key");
            self.laws.sent(&self.server, to, holder, &opened, datagram.len());
            if opened.kind == PacketKind::Challenge {
                self.earned.extend(Challenge::parse(&opened.content));
            }
            if to == place(0) && self.to_client.len() < MOST_RECORDED {
                self.to_client.push_back(datagram);
            }
        }
    }

    fn handle(&self, number: u8) -> Option<ClientHandle> {
        let number = usize::from(number);
        self.handles.iter().rev().nth(number % self.handles.len().max(1)).copied()
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let (handle, length, room) = (input.u8(), usize::from(input.u8()) * 5, usize::from(input.u8()));
        let Some(handle) = self.handle(handle) else { return };
        let (now, mut batch) = (self.now(), Batch::new(room));
        let is_live = self.server.client(handle).is_some();
        let sent = self.server.send(handle, &vec![0x77; length], now, &mut batch);
        assert!(sent.is_err() || (is_live && (1..=MAX_PAYLOAD_BYTES).contains(&length)), "sent to nobody");
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
            0 => self.server.set_admitting(false),
            1 | 2 => self.server.set_admitting(true),
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
                // What was left for one that is gone may be taken still; nothing is for one on the network.
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

    fn drain(&mut self, most: usize) {
        for _ in 0..most {
            let Some(event) = self.server.poll_event() else {
                self.laws.check_after_all_events(&self.server, &self.handles);
                break;
            };
            self.handles.extend(self.laws.happened(event, self.time));
        }
    }

    fn restart(&mut self) -> Option<()> {
        // The clock of the fence is in milliseconds: within one, a start cannot be told from the one before.
        self.time += Duration::from_millis(1);
        self.unix_ms += 1;
        self.starts += 1;
        let config = self.server.config().clone();
        self.laws.restarted(self.device.is_some(), config.fence);
        self.server = start(config, self.device.as_ref(), self.starts, self.now())?;
        self.handles.clear();
        Some(())
    }

    // Clocks, and our client -----------------------------------------------------------------------------------

    fn pass_time(&mut self, input: &mut Input<'_>) {
        // From a millisecond to two minutes.
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
            self.laws.clock_went_back();
        }
    }

    fn drive_client(&mut self, input: &mut Input<'_>) {
        let (what, now) = (input.u8(), self.now().monotonic);
        let mut batch = Batch::new(usize::from(what >> 4) * 4);
        match what % 8 {
            0 => {
                if let Some(holder) = self.holder(input) {
                    let _ = self.client.connect(self.holders[holder].token(), now);
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
                let _ = self.client.handle(address(HOME), &mut noise, now);
            }
            _ => {
                for mut datagram in std::mem::take(&mut self.to_client) {
                    let _ = self.client.handle(address(HOME), &mut datagram, now);
                }
                self.client.tick(now);
                self.client.transmit(now, &mut batch);
            }
        }
        assert_eq!(self.client.client_index().is_some(), self.client.state().code() == 3);
        for (to, datagram) in batch.sent {
            self.laws.client_sent(&self.holders, &datagram);
            if to == address(HOME) {
                self.bring(place(0), datagram);
            }
        }
    }
}

fn config(input: &mut Input<'_>) -> Config {
    let [slots, pending, history, addresses, takeover, fence, timeouts, budgets] = input.array::<8>();
    let mut config = Config::new(PROTOCOL_ID, 1 + u32::from(slots % 4), vec![address(HOME)]);
    config.pending_clients = 1 + u32::from(pending % 8);
    config.history_tokens = 1 + usize::from(history % 16);
    config.addresses_per_token = 1 + addresses % 8;
    config.takeover_after = (takeover & 1 == 1).then(|| Duration::from_millis(u64::from(takeover) * 20));
    config.fence = if fence & 1 == 1 { Fence::Closed } else { Fence::Open };
    config.max_token_lifetime = (fence & 6 != 6).then(|| Duration::from_secs(45));
    config.timeouts = if timeouts & 1 == 1 { TimeoutPolicy::Development } else { TimeoutPolicy::Clamped };
    if budgets & 1 == 1 {
        config.budgets.strangers_per_turn = u32::from(budgets >> 3).max(1);
        config.budgets.packets_per_client_and_turn = u32::from(budgets >> 4).max(1);
        config.budgets.decrypts_per_source = u32::from(budgets >> 2).max(3);
        config.budgets.decrypts = u32::from(budgets >> 1).max(3);
    }
    config
}

/// Starts a server; `None` when the device holds more than the history has room for.
fn start(config: Config, device: Option<&Device>, starts: u64, now: Now) -> Option<Server> {
    let mut seed = [0x33; 32];
    seed[..8].copy_from_slice(&starts.to_le_bytes());
    let (seed, keys) = (Seed::from_bytes(seed), private_key(0).into());
    match device {
        None => Some(Server::new(config, keys, &seed, now).expect("settings that a server can run with")),
        Some(device) => Server::with_storage(config, keys, &seed, now, device.storage()).ok(),
    }
}
