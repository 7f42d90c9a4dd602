//! A hostile client with a valid token on real sockets, beside an honest one. Time is virtual, except on shards.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use slipgate_client::ClientState;
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::NetcodeClient;
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::packet::{KeepAlive, PacketKind};
use slipgate_server::keys::Key;
use slipgate_server::sharded::{ShardId, ShardedServer, ShardedServerConfig};
use slipgate_server::{Clock, CloseKind, Event, Inbox, ReadLimits, Server, ServerConfig, Sockets, Traffic};
use slipgate_session::channel::ChannelViolation;
use slipgate_session::connection::{ConnectionConfig, WorkLimits};
use slipgate_tests::counting::peak;
use slipgate_tests::hostile::{FloodMix, FloodWriter, flood_layout};
use slipgate_tests::live::{DEADLINE, IPV4, PRIVATE_KEY, PROTOCOL_ID, TokenOrder};
use slipgate_tests::raw_client::RawClient;
use slipgate_udp::{ReceiveBatch, SendBatch};

const HOSTILE: u64 = 99;
const HONEST: u64 = 1;

fn channels() -> Traffic {
    Traffic::Channels(flood_layout(), ConnectionConfig::default())
}

/// Returns channels without the reserve of work for stalls, which grows with the time of a test.
fn without_reserve() -> Traffic {
    let work = WorkLimits { burst: Duration::from_micros(750), ..WorkLimits::default() };
    Traffic::Channels(flood_layout(), ConnectionConfig { work, ..ConnectionConfig::default() })
}

/// The time between two turns of a scene.
const STEP: Duration = Duration::from_micros(500);

/// A server, an honest client and hostile ones, all connected. Nothing happens between the turns of the server, which
/// advance the time.
struct Scene {
    start: Now,
    elapsed: Duration,
    server: Server,
    inbox: Inbox,
    honest: FloodClient,
    hostile: Vec<FloodClient>,
    /// The client ids of the messages in the order of their arrival, and the ends.
    messages: Vec<u64>,
    ends: Vec<(u64, CloseKind)>,
    ids: Vec<(slipgate_server::ClientHandle, u64)>,
}

/// A client that sends the packets of a mix.
struct FloodClient {
    server: SocketAddr,
    sockets: Sockets,
    outbox: SendBatch,
    netcode: NetcodeClient,
    writer: FloodWriter,
    /// Seals other packets under the keys of the same token.
    raw: RawClient,
    raw_packets: u64,
}

/// The first number of a packet that [`RawClient`] seals: far ahead of those of the netcode client.
const RAW_SEQUENCE: u64 = 1 << 30;

impl FloodClient {
    fn connecting(client_id: u64, mix: FloodMix, server: SocketAddr, now: Instant) -> Self {
        let mut netcode = NetcodeClient::new(TimeoutPolicy::Clamped);
        let token = TokenOrder::new(client_id, &[server]).mint().token;
        let raw = RawClient::new(&token);
        netcode.connect(token, now, |_| true).unwrap();
        let sockets = Sockets::bind(&[(IPV4, 0).into()]).unwrap();
        let writer = FloodWriter::new(mix, &flood_layout());
        Self { server, sockets, outbox: SendBatch::default(), netcode, writer, raw, raw_packets: 0 }
    }

    fn is_connected(&self) -> bool {
        self.netcode.state() == ClientState::Connected
    }

    fn turn(&mut self, now: Instant) {
        let mut batch = ReceiveBatch::default();
        self.netcode.tick(now);
        self.netcode.transmit(now, &mut self.outbox);
        self.sockets.send(&mut self.outbox);
        self.sockets.receive(&mut batch);
        for index in 0..batch.len() {
            let arrived = batch.get(index).unwrap();
            let _ = self.netcode.handle(Address::from(self.server), arrived.datagram, now);
        }
        while self.netcode.poll_event().is_some() {}
    }

    /// Sends packets of its mix at once.
    fn send(&mut self, packets: usize, now: Instant) {
        for _ in 0..packets {
            let payload = self.writer.next_payload();
            if self.netcode.send(&payload, now, &mut self.outbox).is_err() {
                self.sockets.send(&mut self.outbox);
                let _ = self.netcode.send(&payload, now, &mut self.outbox);
            }
        }
        self.sockets.send(&mut self.outbox);
    }

    /// Sends packets of this kind at once.
    fn send_raw(&mut self, packets: usize, kind: PacketKind, content: &[u8]) {
        for _ in 0..packets {
            let datagram = self.raw.seal_at(RAW_SEQUENCE + self.raw_packets, kind, content);
            self.raw_packets += 1;
            if self.outbox.is_full() {
                self.sockets.send(&mut self.outbox);
            }
            self.outbox.next_buf().unwrap()[..datagram.len()].copy_from_slice(&datagram);
            self.outbox.commit(Address::from(self.server), datagram.len());
        }
        self.sockets.send(&mut self.outbox);
    }
}

/// Waits until the system has delivered what was sent. The time of scenes stands still.
///
/// Loopback keeps the order of the datagrams of a processor: one that is sent now arrives behind them. A thread that
/// has moved to another processor sleeps a little.
fn settle() {
    thread::sleep(Duration::from_millis(1));
    let socket = UdpSocket::bind((IPV4, 0)).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    for _ in 0..2 {
        socket.send_to(b"behind all", socket.local_addr().unwrap()).unwrap();
        socket.recv(&mut [0; 16]).unwrap();
    }
}

impl Scene {
    fn new(mix: FloodMix) -> Self {
        Self::with(1, mix, &channels(), ServerConfig::new(PROTOCOL_ID, 4, &[]))
    }

    /// Creates a scene with this number of hostile clients, this traffic and these settings, whose address is replaced.
    fn with(hostile: u64, mix: FloodMix, traffic: &Traffic, mut config: ServerConfig) -> Self {
        let sockets = Sockets::bind(&[(IPV4, 0).into()]).unwrap();
        let address = sockets.local_addresses()[0];
        let start = Clock::start().now();
        config.advertised = vec![address];
        let server = Server::new(sockets, config, Key::from(PRIVATE_KEY).into(), start).unwrap();
        let mut server = server.with_traffic(traffic.clone()).unwrap();
        // The other limit of a turn is a time of the machine.
        server.set_read_limits(ReadLimits { max_time: Duration::from_secs(10), ..ReadLimits::default() });
        let connecting = |id, mix| FloodClient::connecting(id, mix, address, start.monotonic);
        let mut scene = Self {
            start,
            elapsed: Duration::ZERO,
            server,
            inbox: Inbox::default(),
            honest: connecting(HONEST, FloodMix::FullPackets),
            hostile: (0..hostile).map(|number| connecting(HOSTILE + number, mix)).collect(),
            messages: Vec::new(),
            ends: Vec::new(),
            ids: Vec::new(),
        };
        while !scene.honest.is_connected() || !scene.hostile.iter().all(FloodClient::is_connected) {
            assert!(scene.elapsed < Duration::from_secs(4), "they connect");
            scene.turn_of_clients();
            settle();
            scene.turn();
        }
        scene
    }

    fn now(&self) -> Now {
        let unix = UnixMillis(self.start.unix.0 + self.elapsed.as_millis() as u64);
        Now { monotonic: self.start.monotonic.after(self.elapsed), unix }
    }

    fn turn_of_clients(&mut self) {
        let now = self.now().monotonic;
        self.honest.turn(now);
        self.hostile.iter_mut().for_each(|client| client.turn(now));
    }

    /// Sends packets of each hostile client.
    fn flood(&mut self, packets: usize) {
        let now = self.now().monotonic;
        self.hostile.iter_mut().for_each(|client| client.send(packets, now));
    }

    /// Sends a message of the honest client.
    fn send_honest(&mut self) {
        self.honest.send(1, self.now().monotonic);
    }

    /// Advances the time, and runs a turn of the server.
    fn turn(&mut self) {
        self.elapsed += STEP;
        self.server.begin_still_turn(self.now());
        while let Some(event) = self.inbox.next(&mut self.server) {
            match event {
                Event::Connected { client, client_id } => self.ids.push((client, client_id.0)),
                Event::Message { client, .. } | Event::Packet { client, .. } => {
                    let id = self.ids.iter().find(|(handle, _)| *handle == client).unwrap().1;
                    self.messages.push(id);
                }
                Event::Disconnected { client_id, reason, .. } => self.ends.push((client_id.0, reason.kind)),
                _ => {}
            }
        }
        self.server.end_turn();
    }

    /// Returns how many messages of a client arrived.
    fn count(&self, client_id: u64) -> usize {
        self.messages.iter().filter(|id| **id == client_id).count()
    }

    /// Runs turns of the server for this long.
    fn run_for(&mut self, time: Duration) {
        let end = self.elapsed + time;
        while self.elapsed < end {
            self.turn();
        }
    }
}

#[test]
fn messages_of_a_closed_gap_do_not_delay_other_clients() {
    let mut scene = Scene::with(1, FloodMix::GapThenAll, &without_reserve(), ServerConfig::new(PROTOCOL_ID, 4, &[]));
    // The budget is used up by the first windows.
    for window in 1..=3 {
        let mut packets = 0;
        while scene.count(HOSTILE) <= (window - 1) * WINDOW {
            assert!(packets < 20 && scene.ends.is_empty(), "{packets} packets in window {window}, {:?}", scene.ends);
            scene.flood(1);
            packets += 1;
            if window == 3 {
                // It arrives right behind the packet that closes the gap.
                scene.send_honest();
            }
            settle();
            scene.messages.retain(|id| *id == HOSTILE);
            scene.turn();
            // The debt of a window is 5 ms of work.
            scene.run_for(Duration::from_millis(if packets == 1 { 100 } else { 5 }));
        }
        scene.run_for(Duration::from_millis(100));
        if window == 3 {
            let at = scene.messages.iter().rposition(|id| *id == HONEST).expect("the honest message arrived");
            let behind = scene.messages.iter().skip(at).filter(|id| **id == HOSTILE).count();
            assert!(behind > 1000, "{behind} of {WINDOW} messages come after it");
        }
        assert_eq!(scene.count(HOSTILE), window * WINDOW, "each message is delivered once");
    }
}

/// The messages of a window.
const WINDOW: usize = 4096;
/// The packets that fill it behind a gap. The next one closes the gap.
const GAP_PACKETS: usize = 11;

#[test]
fn closed_gaps_of_many_clients_do_not_delay_others() {
    const CLIENTS: u64 = 12;
    let settings = ServerConfig::new(PROTOCOL_ID, 32, &[]);
    let mut scene = Scene::with(CLIENTS, FloodMix::GapThenAll, &without_reserve(), settings);
    for _ in 0..GAP_PACKETS {
        scene.flood(1);
        settle();
        scene.run_for(Duration::from_millis(20));
    }
    assert_eq!((scene.messages.len(), scene.ends.len()), (0, 0), "all wait behind the gaps");
    scene.flood(1);
    // It arrives right behind the packets that close the gaps.
    scene.send_honest();
    settle();
    scene.run_for(Duration::from_millis(500));
    let before = scene.messages.iter().position(|id| *id == HONEST).expect("the honest message arrived");
    println!("{before} messages come before it");
    // Each client has a budget for 653 at once, and 64 beyond it.
    assert!(before < CLIENTS as usize * 717, "{before} messages come before it");
    assert_eq!(scene.messages.len(), CLIENTS as usize * WINDOW + 1, "each message is delivered once");
}

#[test]
fn messages_of_a_closed_gap_do_not_fill_the_queue_of_a_shard() {
    // An eighth of the queue is far less than the window.
    let config = ShardedServerConfig { entries: 1024, ..ShardedServerConfig::default() };
    let sockets = Sockets::bind(&[(IPV4, 0).into()]).unwrap();
    let (address, clock) = (sockets.local_addresses()[0], Clock::start());
    let settings = ServerConfig::new(PROTOCOL_ID, 4, &[address]);
    let server = Server::new(sockets, settings, Key::from(PRIVATE_KEY).into(), clock.now()).unwrap();
    let server = server.with_traffic(channels()).unwrap();
    let mut sharded = ShardedServer::start(vec![server], clock, Duration::from_millis(5), config).unwrap();
    let mut hostile = FloodClient::connecting(HOSTILE, FloodMix::GapThenAll, address, clock.monotonic());
    let start = std::time::Instant::now();
    while !hostile.is_connected() {
        assert!(start.elapsed() < DEADLINE, "it connects");
        hostile.turn(clock.monotonic());
        thread::sleep(Duration::from_millis(1));
    }
    // The game takes no event meanwhile.
    for _ in 0..=GAP_PACKETS {
        hostile.send(1, clock.monotonic());
        thread::sleep(Duration::from_millis(20));
    }
    while sharded.counts(ShardId(0)).clients_refused == 0 {
        assert!(start.elapsed() < 2 * DEADLINE, "the window fills the share of its client");
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(200));
    let counts = sharded.counts(ShardId(0));
    assert_eq!((counts.pauses, counts.clients_refused), (0, 1), "no shard stops reading");
    let mut messages = 0;
    while messages < WINDOW {
        assert!(start.elapsed() < 3 * DEADLINE, "{messages} messages");
        match sharded.next_event() {
            Some(event) => messages += usize::from(matches!(event, Event::Message { .. })),
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    assert_eq!(sharded.counts(ShardId(0)).pauses, 0);
    thread::sleep(Duration::from_millis(50));
    assert!(sharded.next_event().is_none(), "each message is delivered once");
}

#[test]
fn messages_of_a_closed_gap_arrive_although_all_turns_are_cut() {
    let mut scene = Scene::new(FloodMix::GapThenAll);
    let address = scene.server.sockets().local_addresses()[0];
    scene.server.set_read_limits(ReadLimits { max_time: Duration::ZERO, ..ReadLimits::default() });
    for _ in 0..GAP_PACKETS {
        scene.flood(1);
        settle();
        scene.run_for(Duration::from_millis(20));
    }
    scene.flood(1);
    // A datagram in each turn uses up its limit.
    let stranger = UdpSocket::bind((IPV4, 0)).unwrap();
    let mut turns = 0;
    while scene.count(HOSTILE) < WINDOW {
        assert!(turns < 100, "{} messages", scene.count(HOSTILE));
        stranger.send_to(&[0x85; 60], address).unwrap();
        settle();
        // The work of 64 messages is earned in a millisecond.
        scene.elapsed += STEP;
        scene.turn();
        turns += 1;
    }
    assert_eq!(scene.count(HOSTILE), WINDOW);
}

#[test]
fn honest_bursts_are_never_refused() {
    // 64 packets after a stall, 100 Mbit/s by ticks of 16 ms, and 1,000 packets a second.
    for (packets, pause) in [(64, 100), (160, 16), (1, 1)] {
        let (mut scene, mut sent) = (Scene::new(FloodMix::FullPackets), 0);
        for _ in 0..500 / pause {
            scene.flood(packets);
            sent += packets;
            settle();
            scene.run_for(Duration::from_millis(pause));
        }
        assert_eq!(scene.server.totals().packets_over_budget, 0, "{packets} packets each {pause} ms");
        assert_eq!((scene.messages.len(), scene.ends.len()), (sent, 0), "{packets} packets each {pause} ms");
    }
}

#[test]
fn flood_ends_its_session_and_no_other() {
    let (mut scene, mut sent) = (Scene::new(FloodMix::EmptyUnreliable), 0);
    let begin = scene.elapsed;
    while scene.ends.is_empty() {
        assert!(scene.elapsed < begin + Duration::from_secs(10), "the flood goes on");
        for _ in 0..8 {
            scene.flood(32);
            scene.run_for(4 * STEP);
        }
        scene.send_honest();
        sent += 1;
    }
    println!("ended after {:?}", scene.elapsed - begin);
    assert!(matches!(scene.ends[..], [(HOSTILE, CloseKind::Violation(_))]), "{:?}", scene.ends);
    settle();
    scene.run_for(Duration::from_millis(100));
    assert_eq!(scene.count(HONEST), sent);
    assert!(scene.server.totals().packets_over_budget > 0);
}

#[test]
fn flood_ends_the_session_of_plain_payloads_and_packets_too() {
    for traffic in [Traffic::Payloads, Traffic::packets()] {
        let mut config = ServerConfig::new(PROTOCOL_ID, 4, &[]);
        config.budgets.packets_per_client_and_turn = 16;
        let mut scene = Scene::with(1, FloodMix::FullPackets, &traffic, config);
        let begin = scene.elapsed;
        while scene.ends.is_empty() {
            assert!(scene.elapsed < begin + Duration::from_secs(10), "{traffic:?}: the flood goes on");
            scene.flood(128);
            scene.turn_of_clients();
            scene.run_for(4 * STEP);
        }
        println!("ended after {:?}", scene.elapsed - begin);
        let expected = [(HOSTILE, CloseKind::Violation(ChannelViolation::Flood))];
        assert_eq!(scene.ends, expected, "{traffic:?}");
        scene.run_for(Duration::from_millis(100));
        assert_eq!(scene.server.connected_count(), 1, "{traffic:?}: netcode has disconnected it");
    }
}

#[test]
fn flood_of_keep_alives_ends_its_session_and_no_other() {
    let mut config = ServerConfig::new(PROTOCOL_ID, 4, &[]);
    config.budgets.packets_per_client_and_turn = 16;
    let (mut scene, mut sent) = (Scene::with(1, FloodMix::FullPackets, &channels(), config), 0);
    let begin = scene.elapsed;
    while scene.ends.is_empty() {
        assert!(scene.elapsed < begin + Duration::from_secs(10), "the flood goes on");
        for _ in 0..8 {
            scene.hostile[0].send_raw(128, PacketKind::KeepAlive, &KeepAlive::default().to_bytes());
            scene.run_for(4 * STEP);
        }
        scene.send_honest();
        sent += 1;
    }
    println!("ended after {:?}", scene.elapsed - begin);
    assert_eq!(scene.ends, [(HOSTILE, CloseKind::Violation(ChannelViolation::Flood))]);
    settle();
    scene.run_for(Duration::from_millis(100));
    assert_eq!(scene.count(HONEST), sent);
}

#[test]
fn tiny_fragments_that_complete_nothing_hold_bounded_memory() {
    let settings = ServerConfig::new(PROTOCOL_ID, 4, &[]);
    let (mut scene, mut sent) = (Scene::with(1, FloodMix::FullPackets, &Traffic::packets(), settings), 0);
    let begin = scene.elapsed;
    let ((), bytes) = peak(|| {
        for number in 0..u16::MAX {
            // The last of the 16 fragments of ever new packets, with one byte.
            let [low, high] = number.to_le_bytes();
            scene.hostile[0].send_raw(1, PacketKind::Payload, &[1, low, high, 15, 15, 7]);
            if number % 8 == 0 {
                scene.turn();
            }
            if number % 256 == 0 {
                scene.send_honest();
                sent += 1;
            }
        }
    });
    settle();
    scene.run_for(Duration::from_millis(100));
    println!("{bytes} bytes in {:?}, {:?}", scene.elapsed - begin, scene.ends);
    assert_eq!((scene.count(HONEST), bytes < 4 << 20), (sent, true), "{bytes} bytes");
    assert!(scene.ends.iter().all(|(id, _)| *id == HOSTILE), "{:?}", scene.ends);
}
