//! An exchange of acknowledged packets over an encrypted session on real sockets: our endpoint at one end, that of the
//! crate `reliable` at the other.
//!
//! ```text
//!  game ─▶ endpoint ─▶ path ─▶ payload of a session ══ UDP ══▶ payload ─▶ endpoint ─▶ game
//! ```
//!
//! The path of `slipgate-sim` loses, duplicates and delays payloads at random. Its time and that of the endpoints is
//! virtual, and each turn waits until all due payloads were carried, so that an exchange is deterministic even on a
//! busy machine.

mod endpoints;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_sim::{Conditions, Path};
use slipgate_tests::live::{GameClient, GameServer, TokenOrder, scenarios, until};

pub use self::endpoints::{Acknowledging, Measured, Ours, Theirs};

/// One turn of both ends.
pub const TURN: Duration = Duration::from_micros(16_667);
/// Payloads in flight at a time; the smallest usual socket buffer holds them at any size.
const IN_FLIGHT: usize = 16;

/// One end: an endpoint, and what its game received.
pub struct Side {
    pub endpoint: Box<dyn Acknowledging>,
    path: Path,
    /// The number of packets sent, and the packet that used each sequence number last.
    pub sent: u32,
    numbers: BTreeMap<u16, u32>,
    /// The packets reported as acknowledged.
    pub acked: BTreeSet<u32>,
    /// The packets of the other side that arrived, each with its distance to the newest.
    pub received: BTreeMap<u32, u32>,
}

impl Side {
    fn new(endpoint: Box<dyn Acknowledging>, seed: u64) -> Self {
        Self {
            endpoint,
            path: Path::new(Conditions::perfect(), seed),
            sent: 0,
            numbers: BTreeMap::new(),
            acked: BTreeSet::new(),
            received: BTreeMap::new(),
        }
    }

    fn send(&mut self, bytes: usize, now: Instant) {
        let number = self.endpoint.send(&payload(self.sent, bytes));
        self.numbers.insert(number, self.sent);
        self.sent += 1;
        self.let_leave(now);
    }

    fn let_leave(&mut self, now: Instant) {
        for datagram in self.endpoint.take_outgoing() {
            self.path.push(&datagram, now);
        }
    }

    fn take(&mut self, datagram: &[u8]) {
        let Some(bytes) = self.endpoint.receive(datagram).filter(|bytes| !bytes.is_empty()) else { return };
        let count = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        assert!(bytes == payload(count, bytes.len()), "packet {count} was altered");
        let newest = self.received.keys().next_back().copied().unwrap_or(0);
        let before = self.received.insert(count, newest.saturating_sub(count));
        assert_eq!(before, None, "packet {count} arrived twice");
    }

    fn turn(&mut self, now: Instant) {
        for number in self.endpoint.turn(now) {
            let count = self.numbers[&number];
            assert!(self.acked.insert(count), "packet {count} was acknowledged twice");
        }
        self.let_leave(now);
    }
}

/// Returns the unique bytes of a packet; at least four.
fn payload(count: u32, bytes: usize) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..bytes.max(4)).map(|index| ((index as u32 * 31) ^ count) as u8).collect();
    payload[..4].copy_from_slice(&count.to_le_bytes());
    payload
}

/// A session and the two endpoints on it.
pub struct Talk<S, C> {
    server: S,
    client: C,
    client_id: u64,
    carried: [usize; 2],
    now: Instant,
    /// The server's end, and the client's end.
    pub sides: [Side; 2],
}

impl<S: GameServer, C: GameClient> Talk<S, C> {
    /// Starts a session without any packet yet.
    pub fn begin(ip: std::net::IpAddr, at_server: Box<dyn Acknowledging>, at_client: Box<dyn Acknowledging>) -> Self {
        let mut server = S::start(ip, 1);
        let order = TokenOrder::new(scenarios::player(1), &[server.address()]);
        let client = scenarios::admit_with(&mut server, &order.mint());
        let mut sides = [Side::new(at_server, 1), Side::new(at_client, 2)];
        let now = Instant::default().after(TURN);
        sides.iter_mut().for_each(|side| side.turn(now));
        Self { server, client, client_id: order.client_id, carried: [0; 2], now, sides }
    }

    /// Changes the path in both directions from now on.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        for side in &mut self.sides {
            side.path.set_conditions(conditions, self.now);
        }
    }

    /// Runs a turn: both games send packets of these sizes, due payloads are carried, and both endpoints run.
    pub fn turn(&mut self, from_server: &[usize], from_client: &[usize]) {
        self.now = self.now.after(TURN);
        for (side, sizes) in self.sides.iter_mut().zip([from_server, from_client]) {
            sizes.iter().for_each(|bytes| side.send(*bytes, self.now));
        }
        let [mut down, mut up] = self.sides.each_mut().map(|side| {
            let due = std::iter::from_fn(|| side.path.pop_due(self.now).map(|arrival| arrival.bytes.to_vec()));
            due.collect::<Vec<_>>()
        });
        while !down.is_empty() || !up.is_empty() {
            let [down, up] = [&mut down, &mut up].map(|due| due.drain(..due.len().min(IN_FLIGHT)).collect());
            self.carry(down, up);
        }
        self.sides.iter_mut().for_each(|side| side.turn(self.now));
    }

    /// Carries all payloads over the session, and passes them to the endpoints.
    fn carry(&mut self, down: Vec<Vec<u8>>, up: Vec<Vec<u8>>) {
        down.iter().for_each(|payload| self.server.send(self.client_id, payload));
        up.iter().for_each(|payload| self.client.send(payload));
        let [at_client, at_server] = [self.carried[0] + down.len(), self.carried[1] + up.len()];
        // The first turns suffice on loopback; `until` sleeps between its own.
        self.server.turn();
        self.client.turn();
        self.server.turn();
        until(&mut (&mut self.server, &mut self.client), "the payloads arrive", |(server, client)| {
            client.received().len() >= at_client && server.log().payloads.len() >= at_server
        });
        let [server, client] = &mut self.sides;
        self.client.received()[self.carried[0]..].iter().for_each(|datagram| client.take(datagram));
        self.server.log().payloads[self.carried[1]..].iter().for_each(|datagram| server.take(datagram));
        self.carried = [at_client, at_server];
    }

    /// Asserts that both sides agree on the packets before the last `settling` ones: only arrived packets are
    /// acknowledged, and every packet is that arrived while many later headers could acknowledge it.
    pub fn assert_agreement(&self, settling: u32) {
        for (sender, receiver) in [(0, 1), (1, 0)] {
            let (sender, receiver) = (&self.sides[sender], &self.sides[receiver]);
            for count in &sender.acked {
                assert!(receiver.received.contains_key(count), "packet {count} is acknowledged but did not arrive");
            }
            let settled = sender.sent.saturating_sub(settling);
            for (count, behind) in receiver.received.range(..settled).filter(|(_, behind)| **behind < SURE) {
                assert!(sender.acked.contains(count), "packet {count} arrived {behind} late, and is not acknowledged");
            }
        }
    }
}

/// A packet that arrives at most this far behind the newest is in half of the headers that can acknowledge it.
const SURE: u32 = 16;
