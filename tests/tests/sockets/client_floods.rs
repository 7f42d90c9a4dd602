//! A hostile client with a valid token on real sockets, beside an honest one.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_client::{Client, ClientState};
use slipgate_netcode::address::Address;
use slipgate_netcode::client::NetcodeClient;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_server::keys::Key;
use slipgate_server::sharded::{ShardId, ShardedServer, ShardedServerConfig};
use slipgate_server::{ChannelId, Clock, CloseKind, Event, Inbox, ReadLimits, Server, ServerConfig, Sockets, Traffic};
use slipgate_session::channel::ChannelViolation;
use slipgate_session::connection::{ConnectionConfig, WorkLimits};
use slipgate_tests::hostile::{FloodMix, FloodWriter, UNRELIABLE, flood_layout};
use slipgate_tests::live::{IPV4, PRIVATE_KEY, PROTOCOL_ID, TokenOrder};
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

/// A server, an honest client and a hostile one, all connected.
struct Scene {
    clock: Clock,
    server: Server,
    inbox: Inbox,
    honest: Client,
    honest_inbox: slipgate_client::Inbox,
    hostile: HostileClient,
    /// The client ids of the messages in the order of their arrival, and the ends.
    messages: Vec<u64>,
    ends: Vec<(u64, CloseKind)>,
    ids: Vec<(slipgate_server::ClientHandle, u64)>,
}

struct HostileClient {
    sockets: Sockets,
    outbox: SendBatch,
    netcode: NetcodeClient,
    writer: FloodWriter,
}

impl HostileClient {
    fn connecting(client_id: u64, mix: FloodMix, server: SocketAddr, clock: Clock) -> Self {
        let mut netcode = NetcodeClient::new(TimeoutPolicy::Clamped);
        let token = TokenOrder::new(client_id, &[server]).mint().token;
        netcode.connect(token, clock.now().monotonic, |_| true).unwrap();
        Self {
            sockets: Sockets::bind(&[(IPV4, 0).into()]).unwrap(),
            outbox: SendBatch::default(),
            netcode,
            writer: FloodWriter::new(mix, &flood_layout()),
        }
    }

    fn turn(&mut self, server: SocketAddr, clock: Clock) {
        let (now, mut batch) = (clock.now().monotonic, ReceiveBatch::default());
        self.netcode.tick(now);
        self.netcode.transmit(now, &mut self.outbox);
        self.sockets.send(&mut self.outbox);
        self.sockets.receive(&mut batch);
        for index in 0..batch.len() {
            let arrived = batch.get(index).unwrap();
            let _ = self.netcode.handle(Address::from(server), arrived.datagram, now);
        }
        while self.netcode.poll_event().is_some() {}
    }

    /// Sends packets of its mix at once.
    fn send(&mut self, packets: usize, clock: Clock) {
        for _ in 0..packets {
            let payload = self.writer.next_payload();
            if self.netcode.send(&payload, clock.now().monotonic, &mut self.outbox).is_err() {
                self.sockets.send(&mut self.outbox);
                let _ = self.netcode.send(&payload, clock.now().monotonic, &mut self.outbox);
            }
        }
        self.sockets.send(&mut self.outbox);
    }
}

impl Scene {
    fn new(mix: FloodMix) -> Self {
        Self::with(mix, &channels(), ServerConfig::new(PROTOCOL_ID, 4, &[]))
    }

    /// Creates a scene with this traffic and these settings, whose address is replaced.
    fn with(mix: FloodMix, traffic: &Traffic, mut config: ServerConfig) -> Self {
        let sockets = Sockets::bind(&[(IPV4, 0).into()]).unwrap();
        let address = sockets.local_addresses()[0];
        let clock = Clock::start();
        config.advertised = vec![address];
        let server = Server::new(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now()).unwrap();
        let mut honest = Client::new().unwrap().with_traffic(traffic.clone()).unwrap();
        honest.connect(TokenOrder::new(HONEST, &[address]).mint().token, clock.now()).unwrap();
        let hostile = HostileClient::connecting(HOSTILE, mix, address, clock);
        let mut scene = Self {
            clock,
            server: server.with_traffic(traffic.clone()).unwrap(),
            inbox: Inbox::default(),
            honest,
            honest_inbox: slipgate_client::Inbox::default(),
            hostile,
            messages: Vec::new(),
            ends: Vec::new(),
            ids: Vec::new(),
        };
        let start = Instant::now();
        while scene.honest.state() != ClientState::Connected || scene.hostile.netcode.state() != ClientState::Connected
        {
            assert!(start.elapsed() < Duration::from_secs(30), "they connect");
            scene.hostile.turn(address, clock);
            scene.honest_turn();
            scene.turn();
            thread::sleep(Duration::from_millis(1));
        }
        scene
    }

    fn honest_turn(&mut self) {
        self.honest.begin_turn(self.clock.now());
        while self.honest_inbox.next(&mut self.honest).is_some() {}
        self.honest.end_turn();
    }

    /// Runs a turn of the server.
    fn turn(&mut self) {
        self.server.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.server) {
            match event {
                Event::Connected { client, client_id } => self.ids.push((client, client_id.0)),
                Event::Message { client, .. } => {
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
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn();
            thread::sleep(Duration::from_micros(500));
        }
    }
}

#[test]
fn messages_of_a_closed_gap_do_not_delay_other_clients() {
    let mut scene = Scene::with(FloodMix::GapThenAll, &without_reserve(), ServerConfig::new(PROTOCOL_ID, 4, &[]));
    let clock = scene.clock;
    // The budget is used up by the first windows.
    for window in 1..=3 {
        let mut packets = 0;
        while scene.count(HOSTILE) <= (window - 1) * WINDOW {
            assert!(packets < 20 && scene.ends.is_empty(), "{packets} packets in window {window}, {:?}", scene.ends);
            scene.hostile.send(1, clock);
            packets += 1;
            if window == 3 {
                // It arrives right behind the packet that closes the gap.
                scene.honest.begin_turn(clock.now());
                scene.honest.send_message(ChannelId(UNRELIABLE), b"hello").unwrap();
                scene.honest.end_turn();
            }
            thread::sleep(Duration::from_millis(2));
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

/// The clients that close a gap at the same time.
const CLIENTS: u64 = 12;

#[test]
fn closed_gaps_of_many_clients_do_not_delay_others() {
    let before = (0..20).find_map(|_| messages_before_an_honest_one()).expect("a scene without a stall");
    // Each client has a budget for 650 at once, and 64 beyond it.
    assert!(before < CLIENTS as usize * 1000, "{before} messages come before it");
}

/// Returns how many messages of clients that close a gap are delivered before an honest one that arrives behind them.
/// Returns `None` if the machine stalled meanwhile: budgets grow by 87 messages in a millisecond.
fn messages_before_an_honest_one() -> Option<usize> {
    let mut scene = Scene::with(FloodMix::GapThenAll, &without_reserve(), ServerConfig::new(PROTOCOL_ID, 32, &[]));
    let (clock, address) = (scene.clock, scene.server.sockets().local_addresses()[0]);
    let others =
        (1..CLIENTS).map(|number| HostileClient::connecting(HOSTILE + number, FloodMix::GapThenAll, address, clock));
    let mut others: Vec<_> = others.collect();
    let start = Instant::now();
    while others.iter().any(|client| client.netcode.state() != ClientState::Connected) {
        assert!(start.elapsed() < Duration::from_secs(30), "they connect");
        others.iter_mut().for_each(|client| client.turn(address, clock));
        scene.run_for(Duration::from_millis(1));
    }
    for _ in 0..GAP_PACKETS {
        scene.hostile.send(1, clock);
        others.iter_mut().for_each(|client| client.send(1, clock));
        scene.run_for(Duration::from_millis(20));
    }
    assert_eq!((scene.messages.len(), scene.ends.len()), (0, 0), "all wait behind the gaps");
    let closing = Instant::now();
    scene.hostile.send(1, clock);
    others.iter_mut().for_each(|client| client.send(1, clock));
    // It arrives right behind the packets that close the gaps.
    scene.honest.begin_turn(clock.now());
    scene.honest.send_message(ChannelId(UNRELIABLE), b"hello").unwrap();
    scene.honest.end_turn();
    thread::sleep(Duration::from_millis(2));
    let has_stalled = closing.elapsed() > Duration::from_millis(3);
    scene.run_for(Duration::from_millis(500));
    let before = scene.messages.iter().position(|id| *id == HONEST).expect("the honest message arrived");
    println!("{before} messages come before it");
    assert_eq!(scene.messages.len(), CLIENTS as usize * WINDOW + 1, "each message is delivered once");
    (!has_stalled).then_some(before)
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
    let mut hostile = HostileClient::connecting(HOSTILE, FloodMix::GapThenAll, address, clock);
    let start = Instant::now();
    while hostile.netcode.state() != ClientState::Connected {
        assert!(start.elapsed() < Duration::from_secs(30), "it connects");
        hostile.turn(address, clock);
        thread::sleep(Duration::from_millis(1));
    }
    // The game takes no event meanwhile.
    for _ in 0..=GAP_PACKETS {
        hostile.send(1, clock);
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(200));
    let counts = sharded.counts(ShardId(0));
    assert_eq!((counts.pauses, counts.clients_refused), (0, 1), "no shard stops reading");
    let mut messages = 0;
    while messages < WINDOW {
        assert!(start.elapsed() < Duration::from_secs(60), "{messages} messages");
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
    let (clock, address) = (scene.clock, scene.server.sockets().local_addresses()[0]);
    scene.server.set_read_limits(ReadLimits { max_time: Duration::ZERO, ..ReadLimits::default() });
    for _ in 0..GAP_PACKETS {
        scene.hostile.send(1, clock);
        scene.run_for(Duration::from_millis(20));
    }
    scene.hostile.send(1, clock);
    // A datagram in each turn uses up its limit.
    let stranger = UdpSocket::bind((IPV4, 0)).unwrap();
    let mut turns = 0;
    while scene.count(HOSTILE) < WINDOW {
        assert!(turns < 100, "{} messages", scene.count(HOSTILE));
        stranger.send_to(&[0x85; 60], address).unwrap();
        // The work of 64 messages is earned in it.
        thread::sleep(Duration::from_millis(1));
        scene.turn();
        turns += 1;
    }
    assert_eq!(scene.count(HOSTILE), WINDOW);
}

#[test]
fn honest_bursts_are_never_refused() {
    // 64 packets after a stall, 100 Mbit/s by ticks of 16 ms, and 1,000 packets a second.
    for (packets, pause) in [(64, 100), (160, 16), (1, 1)] {
        let mut scene = Scene::new(FloodMix::FullPackets);
        let (clock, mut sent) = (scene.clock, 0);
        for _ in 0..500 / pause {
            scene.hostile.send(packets, clock);
            sent += packets;
            scene.run_for(Duration::from_millis(pause));
        }
        assert_eq!(scene.server.totals().packets_over_budget, 0, "{packets} packets each {pause} ms");
        assert_eq!((scene.messages.len(), scene.ends.len()), (sent, 0), "{packets} packets each {pause} ms");
    }
}

#[test]
fn flood_ends_its_session_and_no_other() {
    let mut scene = Scene::new(FloodMix::EmptyUnreliable);
    let (clock, start) = (scene.clock, Instant::now());
    let (mut sent, mut last) = (0, Instant::now());
    while scene.ends.is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "the flood goes on");
        scene.hostile.send(32, clock);
        if last.elapsed() > Duration::from_millis(16) {
            last = Instant::now();
            scene.honest.send_message(ChannelId(UNRELIABLE), b"hello").unwrap();
            sent += 1;
            scene.honest_turn();
        }
        scene.turn();
    }
    println!("ended after {:?}", start.elapsed());
    assert!(matches!(scene.ends[..], [(HOSTILE, CloseKind::Violation(_))]), "{:?}", scene.ends);
    scene.run_for(Duration::from_millis(100));
    assert_eq!(scene.count(HONEST), sent);
    assert!(scene.server.totals().packets_over_budget > 0);
}

#[test]
fn flood_ends_the_session_of_plain_payloads_and_packets_too() {
    for traffic in [Traffic::Payloads, Traffic::packets()] {
        let mut config = ServerConfig::new(PROTOCOL_ID, 4, &[]);
        config.budgets.packets_per_client_and_turn = 16;
        let mut scene = Scene::with(FloodMix::FullPackets, &traffic, config);
        let (clock, start) = (scene.clock, Instant::now());
        while scene.ends.is_empty() {
            assert!(start.elapsed() < Duration::from_secs(10), "{traffic:?}: the flood goes on");
            scene.hostile.send(128, clock);
            scene.honest_turn();
            scene.turn();
        }
        println!("ended after {:?}", start.elapsed());
        let expected = [(HOSTILE, CloseKind::Violation(ChannelViolation::Flood))];
        assert_eq!(scene.ends, expected, "{traffic:?}");
        scene.run_for(Duration::from_millis(100));
        assert_eq!(scene.server.connected_count(), 1, "{traffic:?}: netcode has disconnected it");
    }
}
