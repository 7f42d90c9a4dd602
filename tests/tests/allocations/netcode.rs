//! After warm-up no packet asks for memory, whatever it is and whichever way it goes; nor does a handshake on a server.

use std::time::Duration;

use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{Client, ClientState};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{ClientHandle, Config, Fence, Server};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::MAX_DATAGRAM_BYTES;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_tests::counting::allocations;
use slipgate_tests::holder::Holder;
use slipgate_tests::world::{BEGINNING, PROTOCOL_ID, TokenSpec, World, address};

// Counting ----------------------------------------------------------------------------------------------------------

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(7_u64)))), 1);
    assert_eq!(allocations(|| drop(std::hint::black_box(Vec::<u64>::new()))), 0);
}

// A server, a client, and a batch between them ----------------------------------------------------------------------

/// Room for datagrams, all of it asked for once.
struct Batch {
    rooms: Vec<[u8; MAX_DATAGRAM_BYTES]>,
    lengths: Vec<usize>,
}

impl Batch {
    fn new() -> Self {
        Self { rooms: vec![[0; MAX_DATAGRAM_BYTES]; 64], lengths: Vec::with_capacity(64) }
    }

    fn clear(&mut self) {
        self.lengths.clear();
    }

    fn each(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.rooms.iter_mut().zip(&self.lengths).map(|(room, length)| &mut room[..*length])
    }
}

impl Outbox for Batch {
    fn rooms(&self) -> usize {
        self.rooms.len() - self.lengths.len()
    }

    fn room(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.rooms.get_mut(self.lengths.len())
    }

    fn commit(&mut self, _: Address, bytes: usize) {
        self.lengths.push(bytes);
    }
}

const TURN: Duration = Duration::from_millis(16);
/// Turns before and while counting.
const TURNS: usize = 300;

struct Pair {
    world: World,
    time: Duration,
    server: Server,
    home: Address,
    client: Client,
    away: Address,
    up: Batch,
    down: Batch,
}

impl Pair {
    /// A server and a client that is connected to it.
    fn connected() -> Self {
        let mut pair = Self::apart();
        let token = pair.token(1);
        pair.client.connect(token, pair.now().monotonic).unwrap();
        for _ in 0..10 {
            pair.turn(0, 0);
        }
        assert_eq!(pair.client.state(), ClientState::Connected);
        pair
    }

    fn apart() -> Self {
        let world = World::perfect(1);
        let home = address("10.0.0.1:40000");
        let mut config = Config::new(PROTOCOL_ID, 8, vec![home]);
        config.fence = Fence::Open;
        let now = Now { monotonic: Instant::default(), unix: BEGINNING };
        let server = Server::new(config, world.private_key.clone().into(), &Seed::from_bytes([1; 32]), now);
        Self {
            world,
            time: Duration::ZERO,
            server: server.unwrap(),
            home,
            client: Client::new(TimeoutPolicy::Clamped),
            away: address("10.1.0.1:5000"),
            up: Batch::new(),
            down: Batch::new(),
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: Instant::from_start(self.time), unix: UnixMillis(BEGINNING.0 + self.time.as_millis() as u64) }
    }

    fn token(&mut self, client_id: u64) -> ConnectToken {
        let servers = vec![self.home];
        self.world.mint(&TokenSpec { client_id, servers, lifetime: 45, timeout: 5, user_data: [0; 256] })
    }

    /// One turn of both, with so many payloads each way.
    fn turn(&mut self, up: usize, down: usize) {
        self.time += TURN;
        let now = self.now();
        self.server.tick(now);
        self.client.tick(now.monotonic);
        for _ in 0..up {
            self.client.send(&[7; 300], now.monotonic, &mut self.up).unwrap();
        }
        self.client.transmit(now.monotonic, &mut self.up);
        for datagram in self.up.each() {
            // Of ten farewells nine reach nobody.
            let _ = self.server.handle(self.away, datagram, now);
        }
        while self.server.poll_event().is_some() {}
        for _ in 0..down {
            let handle = self.server.find(1).expect("a slot");
            self.server.send(handle, &[8; 300], now, &mut self.down).unwrap();
        }
        self.server.transmit(now, &mut self.down);
        for datagram in self.down.each() {
            // A payload may come in the turn of the first keep-alive, behind it.
            self.client.handle(self.home, datagram, now.monotonic).unwrap();
        }
        while self.client.poll_event().is_some() {}
        self.up.clear();
        self.down.clear();
    }
}

#[test]
fn payloads_and_keep_alives_of_a_connection_ask_for_no_memory() {
    for (up, down) in [(0, 0), (1, 0), (0, 1), (4, 4)] {
        let mut pair = Pair::connected();
        let mut run = || (0..TURNS).for_each(|_| pair.turn(up, down));
        run();
        assert_eq!(allocations(run), 0, "{up} payloads up and {down} down in a turn");
        assert_eq!(pair.client.state(), ClientState::Connected);
        assert_eq!(pair.server.stats().payloads_received, (2 * TURNS * up) as u64);
    }
}

/// Datagrams that a side drops: what they are, from where, and why they are dropped.
type Refused = (&'static str, Address, Vec<u8>, Discard);

#[test]
fn whatever_a_server_drops_asks_for_no_memory() {
    let mut pair = Pair::connected();
    let stranger = address("10.9.9.9:9");
    let mut holders = [2, 3, 4].map(|id| Holder::of(&pair.token(id)));
    admit(&mut pair, &mut holders[0], stranger);
    let replayed = holders[0].keep_alive();
    pair.server.handle(stranger, &mut replayed.clone(), pair.now()).unwrap();
    let mut bad_tag = holders[0].keep_alive();
    bad_tag[20] ^= 1;
    let mut forged = holders[1].request();
    forged[600] ^= 1;
    let elsewhere = TokenSpec { servers: vec![stranger], ..pair.world.spec(5, &[]) };
    let elsewhere = Holder::of(&pair.world.mint(&elsewhere)).request();
    let other = address("10.8.8.8:8");
    let cases: [Refused; 11] = [
        ("nothing", other, Vec::new(), Discard::Empty),
        ("noise", other, vec![0xee; 700], Discard::UnknownSender),
        ("noise of a client", stranger, vec![0xee; 700], Discard::UnknownType),
        ("too long", stranger, vec![0x15; 1300], Discard::TooLong),
        ("a replayed packet", stranger, replayed, Discard::Replayed),
        ("a bad tag", stranger, bad_tag, Discard::NotAuthentic),
        ("a packet of a stranger", other, holders[1].keep_alive(), Discard::UnknownSender),
        ("a used token", other, holders[0].request(), Discard::TokenUsed),
        ("a forged token", other, forged, Discard::TokenNotAuthentic),
        ("a token for others", other, elsewhere, Discard::AddressNotListed),
        ("a request from a client", stranger, holders[2].request(), Discard::AddressConnected),
    ];
    for (what, from, datagram, reason) in cases {
        let mut room = datagram.clone();
        let now = pair.now();
        let server = &mut pair.server;
        let mut run = || {
            for _ in 0..20 {
                room.copy_from_slice(&datagram);
                assert_eq!(server.handle(from, &mut room, now).err(), Some(reason), "{what}");
            }
            server.tick(now);
        };
        run();
        assert_eq!(allocations(run), 0, "{what}");
    }
}

#[test]
fn whatever_a_client_drops_asks_for_no_memory() {
    let mut pair = Pair::connected();
    let now = pair.now();
    let handle = pair.server.find(1).unwrap();
    pair.server.send(handle, &[1; 99], now, &mut pair.down).unwrap();
    let replayed = pair.down.each().next().unwrap().to_vec();
    pair.client.handle(pair.home, &mut replayed.clone(), now.monotonic).unwrap();
    let mut bad_tag = replayed.clone();
    bad_tag[1] = 0xff;
    let cases: [Refused; 5] = [
        ("nothing", pair.home, Vec::new(), Discard::Empty),
        ("noise", pair.home, vec![0xee; 700], Discard::UnknownType),
        ("noise from elsewhere", pair.away, vec![0x15; 700], Discard::UnknownSender),
        ("a replayed packet", pair.home, replayed, Discard::Replayed),
        ("a bad tag", pair.home, bad_tag, Discard::NotAuthentic),
    ];
    for (what, from, datagram, reason) in cases {
        let mut room = datagram.clone();
        let client = &mut pair.client;
        let run = || {
            for _ in 0..100 {
                room.copy_from_slice(&datagram);
                assert_eq!(client.handle(from, &mut room, now.monotonic).err(), Some(reason), "{what}");
            }
        };
        assert_eq!(allocations(run), 0, "{what}");
    }
}

/// A holder gets a slot; how often the server asked for memory meanwhile.
fn admit(pair: &mut Pair, holder: &mut Holder, from: Address) -> (ClientHandle, u64) {
    let now = pair.now();
    let mut asked = 0;
    let mut request = holder.request();
    asked += allocations(|| {
        pair.server.handle(from, &mut request, now).unwrap();
        pair.server.transmit(now, &mut pair.down);
    });
    let challenge = pair.down.each().find_map(|reply| holder.challenge(reply)).expect("a challenge");
    pair.down.clear();
    let mut response = holder.response(&challenge);
    asked += allocations(|| {
        pair.server.handle(from, &mut response, now).unwrap();
        while pair.server.poll_event().is_some() {}
        pair.server.transmit(now, &mut pair.down);
    });
    pair.down.clear();
    let client =
        pair.server.clients().find(|client| pair.server.client(*client).and_then(|info| info.address) == Some(from));
    (client.expect("a slot"), asked)
}

#[test]
fn requests_that_wait_for_their_response_ask_for_no_memory_however_often_they_come() {
    let mut pair = Pair::apart();
    let holders: Vec<_> = (0..8).map(|id| Holder::of(&pair.token(id))).collect();
    let mut requests: Vec<_> = holders.iter().map(Holder::request).collect();
    let now = pair.now();
    let Pair { server, down, .. } = &mut pair;
    let replies = |server: &mut Server, down: &mut Batch| {
        server.transmit(now, down);
        let replies = down.lengths.len();
        down.clear();
        replies
    };
    let mut ask = |server: &mut Server| {
        for (place, request) in requests.iter_mut().enumerate() {
            let from = Address::from(std::net::SocketAddr::from(([10, 3, 0, place as u8], 1)));
            server.handle(from, request, now).unwrap();
        }
        server.tick(now);
    };
    ask(server);
    assert_eq!(replies(server, down), 8);
    // Of many turns in which nothing can leave, too, one debt to each remains.
    assert_eq!(allocations(|| (0..300).for_each(|_| ask(server))), 0);
    assert_eq!(allocations(|| assert_eq!(replies(server, down), 8)), 0);
}

#[test]
fn a_connection_from_request_to_end_asks_a_server_for_no_memory() {
    let mut pair = Pair::apart();
    let mut asked = Vec::new();
    for id in 0..40 {
        let mut holder = Holder::of(&pair.token(id));
        let from = Address::from(std::net::SocketAddr::from(([10, 3, 0, id as u8], 1)));
        let (client, handshake) = admit(&mut pair, &mut holder, from);
        let mut farewell = holder.seal(PacketKind::Disconnect, &[]);
        let now = pair.now();
        let end = allocations(|| {
            if id % 2 == 0 {
                pair.server.handle(from, &mut farewell, now).unwrap();
            } else {
                assert!(pair.server.disconnect(client));
                pair.server.transmit(now, &mut pair.down);
            }
            while pair.server.poll_event().is_some() {}
            pair.server.tick(now);
        });
        pair.down.clear();
        asked.push(handshake + end);
    }
    assert_eq!(asked, vec![0; 40], "from the first connection on");
    assert_eq!(pair.server.stats().disconnects, 40);
}

#[test]
fn a_client_asks_for_memory_once_for_each_session_and_not_in_it() {
    let mut pair = Pair::apart();
    for id in 1..=5 {
        let token = pair.token(id);
        let now = pair.now().monotonic;
        let began = allocations(|| pair.client.connect(token, now).unwrap());
        assert_eq!(began, 1, "the box in which a session lies");
        let lived = allocations(|| {
            for _ in 0..10 {
                pair.turn(0, 0);
            }
        });
        assert_eq!((lived, pair.client.state()), (0, ClientState::Connected));
        let ended = allocations(|| {
            pair.client.disconnect();
            pair.turn(0, 0);
        });
        assert_eq!((ended, pair.server.connected()), (0, 0));
    }
}
