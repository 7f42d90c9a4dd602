//! No packet allocates after warm-up, of any kind and in both directions; nor does a handshake on a server.

use std::time::Duration;

use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{ClientHandle, NetcodeServer, ServerConfig, TokenCutoff};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_netcode::wire::{CONNECT_TOKEN_BYTES, MAX_DATAGRAM_BYTES};
use slipgate_tests::counting::{allocations, bytes, freed};
use slipgate_tests::netcode_world::{NetcodeWorld, PROTOCOL_ID, START_TIME, TokenSpec, address};
use slipgate_tests::raw_client::RawClient;

// Counting ----------------------------------------------------------------------------------------------------------

#[test]
fn counting_allocator_counts_allocations() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(7_u64)))), 1);
    assert_eq!(allocations(|| drop(std::hint::black_box(Vec::<u64>::new()))), 0);
}

#[test]
fn connect_token_is_wiped_when_dropped() {
    let bytes = vec![0x5a_u8; CONNECT_TOKEN_BYTES];
    // SAFETY: a vector's bytes are initialised.
    assert_eq!(unsafe { freed(CONNECT_TOKEN_BYTES, || drop(bytes)) }, (1, 1), "a vector is not wiped");
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server(1);
    let token = world.token(7, &[server]);
    // SAFETY: the only block of this size has the token's bytes.
    assert_eq!(unsafe { freed(CONNECT_TOKEN_BYTES, || drop(token)) }, (1, 0));
}

// A server, a client, and a batch between them ----------------------------------------------------------------------

/// Buffers for datagrams, allocated once.
struct Batch {
    bufs: Vec<[u8; MAX_DATAGRAM_BYTES]>,
    lengths: Vec<usize>,
}

impl Batch {
    fn new() -> Self {
        Self { bufs: vec![[0; MAX_DATAGRAM_BYTES]; 64], lengths: Vec::with_capacity(64) }
    }

    fn clear(&mut self) {
        self.lengths.clear();
    }

    fn each(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bufs.iter_mut().zip(&self.lengths).map(|(buf, length)| &mut buf[..*length])
    }
}

impl Outbox for Batch {
    fn remaining(&self) -> usize {
        self.bufs.len() - self.lengths.len()
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.bufs.get_mut(self.lengths.len())
    }

    fn commit(&mut self, _: Address, bytes: usize) {
        self.lengths.push(bytes);
    }
}

const TURN: Duration = Duration::from_millis(16);
/// Turns before the count and during it.
const TURNS: usize = 300;

struct Pair {
    world: NetcodeWorld,
    time: Duration,
    server: NetcodeServer,
    server_address: Address,
    client: NetcodeClient,
    away: Address,
    up: Batch,
    down: Batch,
}

impl Pair {
    /// Creates a server and a client that is connected to it.
    fn connected() -> Self {
        let mut pair = Self::apart();
        let token = pair.token(1);
        pair.client.connect(token, pair.now().monotonic, |_| true).unwrap();
        for _ in 0..10 {
            pair.turn(0, 0);
        }
        assert_eq!(pair.client.state(), ClientState::Connected);
        pair
    }

    fn apart() -> Self {
        let world = NetcodeWorld::perfect(1);
        let server_address = address("10.0.0.1:40000");
        let mut config = ServerConfig::new(PROTOCOL_ID, 8, &[server_address.socket_addr()]);
        config.token_cutoff = TokenCutoff::None;
        let now = Now { monotonic: Instant::default(), unix: START_TIME };
        let server = NetcodeServer::new(config, world.private_key.clone().into(), &Seed::from([1; 32]), now);
        Self {
            world,
            time: Duration::ZERO,
            server: server.unwrap(),
            server_address,
            client: NetcodeClient::new(TimeoutPolicy::Clamped),
            away: address("10.1.0.1:5000"),
            up: Batch::new(),
            down: Batch::new(),
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: Instant::from_start(self.time), unix: UnixMillis(START_TIME.0 + self.time.as_millis() as u64) }
    }

    fn token(&mut self, client_id: u64) -> ConnectToken {
        let servers = vec![self.server_address];
        self.world.mint(&TokenSpec { client_id, servers, lifetime: 45, timeout: 5, user_data: [0; 256] })
    }

    /// Runs one turn of both, with these numbers of payloads.
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
            // Nine of ten disconnect packets find no client.
            let _ = self.server.handle(self.away, datagram, now);
        }
        while self.server.poll_event().is_some() {}
        for _ in 0..down {
            let handle = self.server.find(1).expect("a slot");
            self.server.send(handle, &[8; 300], now, &mut self.down).unwrap();
        }
        self.server.transmit(now, &mut self.down);
        for datagram in self.down.each() {
            // A payload may arrive in the turn of the first keep-alive, behind it.
            self.client.handle(self.server_address, datagram, now.monotonic).unwrap();
        }
        while self.client.poll_event().is_some() {}
        self.up.clear();
        self.down.clear();
    }
}

#[test]
fn payloads_and_keep_alives_do_not_allocate() {
    for (up, down) in [(0, 0), (1, 0), (0, 1), (4, 4)] {
        let mut pair = Pair::connected();
        let mut run = || (0..TURNS).for_each(|_| pair.turn(up, down));
        run();
        assert_eq!(allocations(run), 0, "{up} payloads up and {down} down in a turn");
        assert_eq!(pair.client.state(), ClientState::Connected);
        assert_eq!(pair.server.stats().payloads_received, (2 * TURNS * up) as u64);
    }
}

/// A datagram that a side drops: its description, its source, its bytes, and the reason.
type Refused = (&'static str, Address, Vec<u8>, Discard);

#[test]
fn dropped_datagrams_do_not_allocate_on_the_server() {
    let mut pair = Pair::connected();
    let stranger = address("10.9.9.9:9");
    let mut raw_clients = [2, 3, 4].map(|id| RawClient::new(&pair.token(id)));
    admit(&mut pair, &mut raw_clients[0], stranger);
    let replayed = raw_clients[0].keep_alive();
    pair.server.handle(stranger, &mut replayed.clone(), pair.now()).unwrap();
    let mut bad_tag = raw_clients[0].keep_alive();
    bad_tag[20] ^= 1;
    let mut forged = raw_clients[1].request();
    forged[600] ^= 1;
    let elsewhere = TokenSpec { servers: vec![stranger], ..pair.world.spec(5, &[]) };
    let elsewhere = RawClient::new(&pair.world.mint(&elsewhere)).request();
    let other = address("10.8.8.8:8");
    let cases: [Refused; 11] = [
        ("nothing", other, Vec::new(), Discard::Empty),
        ("noise", other, vec![0xee; 700], Discard::UnknownSender),
        ("noise of a client", stranger, vec![0xee; 700], Discard::UnknownType),
        ("too long", stranger, vec![0x15; 1300], Discard::TooLong),
        ("a replayed packet", stranger, replayed, Discard::Replayed),
        ("a bad tag", stranger, bad_tag, Discard::NotAuthentic),
        ("a packet of a stranger", other, raw_clients[1].keep_alive(), Discard::UnknownSender),
        ("a used token", other, raw_clients[0].request(), Discard::TokenUsed),
        ("a forged token", other, forged, Discard::TokenNotAuthentic),
        ("a token for others", other, elsewhere, Discard::AddressNotListed),
        ("a request from a client", stranger, raw_clients[2].request(), Discard::AddressConnected),
    ];
    for (what, from, datagram, reason) in cases {
        let mut buf = datagram.clone();
        let now = pair.now();
        let server = &mut pair.server;
        let mut run = || {
            for _ in 0..20 {
                buf.copy_from_slice(&datagram);
                assert_eq!(server.handle(from, &mut buf, now).err(), Some(reason), "{what}");
            }
            server.tick(now);
        };
        run();
        assert_eq!(allocations(run), 0, "{what}");
    }
}

#[test]
fn dropped_datagrams_do_not_allocate_on_the_client() {
    let mut pair = Pair::connected();
    let now = pair.now();
    let handle = pair.server.find(1).unwrap();
    pair.server.send(handle, &[1; 99], now, &mut pair.down).unwrap();
    let replayed = pair.down.each().next().unwrap().to_vec();
    pair.client.handle(pair.server_address, &mut replayed.clone(), now.monotonic).unwrap();
    let mut bad_tag = replayed.clone();
    bad_tag[1] = 0xff;
    let cases: [Refused; 5] = [
        ("nothing", pair.server_address, Vec::new(), Discard::Empty),
        ("noise", pair.server_address, vec![0xee; 700], Discard::UnknownType),
        ("noise from elsewhere", pair.away, vec![0x15; 700], Discard::UnknownSender),
        ("a replayed packet", pair.server_address, replayed, Discard::Replayed),
        ("a bad tag", pair.server_address, bad_tag, Discard::NotAuthentic),
    ];
    for (what, from, datagram, reason) in cases {
        let mut buf = datagram.clone();
        let client = &mut pair.client;
        let run = || {
            for _ in 0..100 {
                buf.copy_from_slice(&datagram);
                assert_eq!(client.handle(from, &mut buf, now.monotonic).err(), Some(reason), "{what}");
            }
        };
        assert_eq!(allocations(run), 0, "{what}");
    }
}

/// Admits a raw client; returns its handle, and the allocations of the server.
fn admit(pair: &mut Pair, raw_client: &mut RawClient, from: Address) -> (ClientHandle, u64) {
    let now = pair.now();
    let mut allocation_count = 0;
    let mut request = raw_client.request();
    allocation_count += allocations(|| {
        pair.server.handle(from, &mut request, now).unwrap();
        pair.server.transmit(now, &mut pair.down);
    });
    let challenge = pair.down.each().find_map(|reply| raw_client.challenge(reply)).expect("a challenge");
    pair.down.clear();
    let mut response = raw_client.response(&challenge);
    allocation_count += allocations(|| {
        pair.server.handle(from, &mut response, now).unwrap();
        while pair.server.poll_event().is_some() {}
        pair.server.transmit(now, &mut pair.down);
    });
    pair.down.clear();
    let client =
        pair.server.clients().find(|client| pair.server.client(*client).and_then(|info| info.address) == Some(from));
    (client.expect("a slot"), allocation_count)
}

#[test]
fn repeated_pending_requests_do_not_allocate() {
    let mut pair = Pair::apart();
    let raw_clients: Vec<_> = (0..8).map(|id| RawClient::new(&pair.token(id))).collect();
    let mut requests: Vec<_> = raw_clients.iter().map(RawClient::request).collect();
    let now = pair.now();
    let Pair { server, down, .. } = &mut pair;
    let replies = |server: &mut NetcodeServer, down: &mut Batch| {
        server.transmit(now, down);
        let replies = down.lengths.len();
        down.clear();
        replies
    };
    let mut ask = |server: &mut NetcodeServer| {
        for (index, request) in requests.iter_mut().enumerate() {
            let from = Address::from(std::net::SocketAddr::from(([10, 3, 0, index as u8], 1)));
            server.handle(from, request, now).unwrap();
        }
        server.tick(now);
    };
    ask(server);
    assert_eq!(replies(server, down), 8);
    // Many turns without any sent datagram leave one pending reply for each.
    assert_eq!(allocations(|| (0..300).for_each(|_| ask(server))), 0);
    assert_eq!(allocations(|| assert_eq!(replies(server, down), 8)), 0);
}

#[test]
fn server_does_not_allocate_for_a_whole_connection() {
    let mut pair = Pair::apart();
    let mut allocation_count = Vec::new();
    for id in 0..40 {
        let mut raw_client = RawClient::new(&pair.token(id));
        let from = Address::from(std::net::SocketAddr::from(([10, 3, 0, id as u8], 1)));
        let (client, handshake) = admit(&mut pair, &mut raw_client, from);
        let mut disconnect = raw_client.seal(PacketKind::Disconnect, &[]);
        let now = pair.now();
        let end = allocations(|| {
            if id % 2 == 0 {
                pair.server.handle(from, &mut disconnect, now).unwrap();
            } else {
                assert!(pair.server.disconnect(client));
                pair.server.transmit(now, &mut pair.down);
            }
            while pair.server.poll_event().is_some() {}
            pair.server.tick(now);
        });
        pair.down.clear();
        allocation_count.push(handshake + end);
    }
    assert_eq!(allocation_count, vec![0; 40], "no allocation from the first connection on");
    assert_eq!(pair.server.stats().disconnects, 40);
}

#[test]
fn client_allocates_only_at_the_start_of_a_session() {
    let mut pair = Pair::apart();
    for id in 1..=5 {
        let token = pair.token(id);
        let now = pair.now().monotonic;
        let began = allocations(|| pair.client.connect(token, now, |_| true).unwrap());
        assert_eq!(began, 1, "the box of a session");
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
        assert_eq!((ended, pair.server.connected_count()), (0, 0));
    }
}

#[test]
fn full_token_history_holds_at_most_9_mib() {
    use slipgate_netcode::server::DEFAULT_HISTORY_TOKENS;
    let mut pair = Pair::apart();
    let (mut longest, mut grown, mut allocated) = (Duration::ZERO, 0, 0);
    for number in 0..DEFAULT_HISTORY_TOKENS as u64 + 10 {
        // Eight tokens of each client id, the shape with the fewest accounts. The clock advances for the budgets.
        pair.time += Duration::from_micros(100);
        let mut raw_client = RawClient::new(&pair.token(number / 8));
        let [.., a, b] = (number as u16).to_be_bytes();
        let from = Address::from(std::net::SocketAddr::from(([10, 3, a, b], 1 + (number >> 16) as u16)));
        let now = pair.now();
        let start = std::time::Instant::now();
        if number as usize >= DEFAULT_HISTORY_TOKENS {
            let refused = pair.server.handle(from, &mut raw_client.request(), now).err();
            assert_eq!(refused, Some(Discard::HistoryFull));
            continue;
        }
        let (_, count) = admit(&mut pair, &mut raw_client, from);
        longest = longest.max(start.elapsed());
        (allocated, grown) = (allocated + count, grown + u64::from(count > 0));
        let mut disconnect = raw_client.seal(PacketKind::Disconnect, &[]);
        pair.server.handle(from, &mut disconnect, now).unwrap();
        while pair.server.poll_event().is_some() {}
        pair.server.tick(now);
    }
    assert_eq!(pair.server.table_usage().used_tokens, DEFAULT_HISTORY_TOKENS);
    let freed_by_drop = |pair: Pair| {
        let before = bytes();
        drop(pair.server);
        before - bytes()
    };
    let (idle, full) = (freed_by_drop(Pair::apart()), freed_by_drop(pair));
    let held = full - idle;
    println!(
        "{DEFAULT_HISTORY_TOKENS} used tokens: {held} bytes more than the {idle} of an idle server, {allocated} \
         allocations in {grown} connects, the longest connect took {longest:?}"
    );
    assert!(held < 9 << 20, "{held} bytes");
    assert!(grown <= 16, "the memory doubles: {grown} connects allocated");
}
