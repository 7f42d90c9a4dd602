//! The proxy between real sockets on the loopback interface.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_sim::proxy::{ClientPaths, Proxy, ProxySettings};
use slipgate_sim::{Buffer, Conditions, Loss, Rate, RateLimit, Rebinding, Share};

const MILLI: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(60);

/// A proxy, the server behind it, and a clock.
struct Rig {
    proxy: Proxy,
    server: UdpSocket,
    start: std::time::Instant,
}

impl Rig {
    fn new(change: impl FnOnce(&mut ProxySettings)) -> Self {
        Self::between("127.0.0.1:0", socket("127.0.0.1:0"), change)
    }

    fn between(listen: &str, server: UdpSocket, change: impl FnOnce(&mut ProxySettings)) -> Self {
        let mut settings = ProxySettings::new(listen.parse().unwrap(), server.local_addr().unwrap(), 1);
        change(&mut settings);
        Self { proxy: Proxy::bind(settings).unwrap(), server, start: std::time::Instant::now() }
    }

    fn now(&self) -> Instant {
        Instant::from_start(self.start.elapsed())
    }

    fn client(&self) -> UdpSocket {
        let client = socket(&SocketAddr::new(self.proxy.local_address().ip(), 0).to_string());
        client.connect(self.proxy.local_address()).unwrap();
        client
    }

    fn turn(&mut self) {
        let now = self.now();
        self.proxy.turn(now);
        self.proxy.wait(5 * MILLI, now).unwrap();
    }

    fn run_for(&mut self, duration: Duration) {
        let end = self.now().after(duration);
        while self.now() < end {
            self.turn();
        }
    }

    /// Runs turns until `done` returns a value.
    #[track_caller]
    fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = self.now().after(TIMEOUT);
        loop {
            self.turn();
            if let Some(done) = done(self) {
                return done;
            }
            assert!(self.now() < end, "the condition does not hold: {:?}", self.proxy.stats());
        }
    }

    /// Returns the next datagram at the server, and its source.
    #[track_caller]
    fn at_server(&mut self) -> (Vec<u8>, SocketAddr) {
        self.until(|rig| receive(&rig.server))
    }

    #[track_caller]
    fn at_client(&mut self, client: &UdpSocket) -> Vec<u8> {
        self.until(|_| receive(client)).0
    }

    /// Sends a datagram of a client and its echo; returns the address of the client at the server.
    #[track_caller]
    fn echo(&mut self, client: &UdpSocket, text: &[u8]) -> SocketAddr {
        client.send(text).unwrap();
        let (arrived, from) = self.at_server();
        assert_eq!(arrived, text);
        self.server.send_to(text, from).unwrap();
        assert_eq!(self.at_client(client), text);
        from
    }
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut buffer = vec![0; 65_536];
    match socket.recv_from(&mut buffer) {
        Ok((bytes, from)) => Some((buffer[..bytes].to_vec(), from)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

fn lost() -> Conditions {
    Conditions { loss: Loss::Random(Share::ALL), ..Conditions::perfect() }
}

#[test]
fn proxy_forwards_both_ways_with_one_address_per_client() {
    let mut rig = Rig::new(|_| ());
    let clients: Vec<UdpSocket> = (0..5).map(|_| rig.client()).collect();
    let mut seen = BTreeSet::new();
    for round in 0..3_u8 {
        for (number, client) in clients.iter().enumerate() {
            seen.insert(rig.echo(client, &[round, number as u8]));
        }
    }
    assert_eq!(seen.len(), 5);
    let stats = rig.proxy.stats();
    assert_eq!((stats.clients, stats.joined, stats.left, stats.refused), (5, 5, 0, 0));
    assert_eq!((stats.up.pushed, stats.up.delivered, stats.up.delivered_bytes), (15, 15, 30));
    assert_eq!((stats.down.pushed, stats.down.delivered, stats.down.delivered_bytes), (15, 15, 30));
    let reported: BTreeSet<SocketAddr> = rig.proxy.clients(rig.now()).filter_map(|client| client.upstream).collect();
    assert_eq!(reported, seen);
}

#[test]
fn large_and_empty_datagrams_pass_unchanged() {
    let mut rig = Rig::new(|_| ());
    let client = rig.client();
    // The default limit of macOS; others carry 65,507.
    rig.echo(&client, &[0xa5; 9_000]);
    rig.echo(&client, &[]);
}

#[test]
fn each_direction_has_its_own_latency() {
    let latency = |millis| Conditions { latency: millis * MILLI, ..Conditions::perfect() };
    let mut rig = Rig::new(|settings| (settings.up, settings.down) = (latency(30), latency(70)));
    let client = rig.client();
    let sent = rig.now();
    client.send(b"up").unwrap();
    let (_, from) = rig.at_server();
    let arrived = rig.now();
    rig.server.send_to(b"down", from).unwrap();
    rig.at_client(&client);
    // The machine determines the maximum delay.
    assert!(arrived.since(sent) >= 30 * MILLI, "{:?}", arrived.since(sent));
    assert!(rig.now().since(arrived) >= 70 * MILLI, "{:?}", rig.now().since(arrived));
}

#[test]
fn each_direction_has_its_own_adjustable_loss() {
    let mut rig = Rig::new(|settings| settings.down = lost());
    let client = rig.client();
    client.send(b"one").unwrap();
    let (_, from) = rig.at_server();
    rig.server.send_to(b"two", from).unwrap();
    rig.until(|rig| (rig.proxy.stats().down.lost == 1).then_some(()));
    let now = rig.now();
    let twice = Conditions { duplication: Share::ALL, ..Conditions::perfect() };
    rig.proxy.set_conditions(lost(), twice, now);
    client.send(b"three").unwrap();
    rig.until(|rig| (rig.proxy.stats().up.lost == 1).then_some(()));
    rig.server.send_to(b"four", from).unwrap();
    assert_eq!((rig.at_client(&client), rig.at_client(&client)), (b"four".to_vec(), b"four".to_vec()));
    assert_eq!((receive(&rig.server), receive(&client)), (None, None));
}

#[test]
fn each_client_has_its_own_rate_and_queue_statistics() {
    // 1,000 bytes take 100 ms.
    let rate = Some(RateLimit { rate: Rate::kbit(80), buffer: Buffer::Bytes(10_000) });
    let mut rig = Rig::new(|settings| settings.up = Conditions { rate, ..Conditions::perfect() });
    let clients = [rig.client(), rig.client()];
    let sent = rig.now();
    for client in &clients {
        for _ in 0..3 {
            client.send(&[0; 1000]).unwrap();
        }
    }
    rig.until(|rig| (rig.proxy.stats().up.pushed == 6).then_some(()));
    let queues: Vec<Duration> = rig.proxy.clients(sent).map(|client| client.up_queue).collect();
    // They would take 600 ms in one queue.
    assert!(queues.iter().all(|queue| (300 * MILLI..600 * MILLI).contains(queue)), "{queues:?}");
    for _ in 0..6 {
        rig.at_server();
    }
    assert!(rig.now().since(sent) >= 300 * MILLI);
}

#[test]
fn nat_rebinding_changes_the_address_and_drops_the_old_one() {
    let mut rig = Rig::new(|settings| settings.rebinding = Some(Rebinding::Every(300 * MILLI)));
    let client = rig.client();
    client.send(b"before").unwrap();
    let (_, before) = rig.at_server();
    rig.until(|rig| (rig.proxy.stats().rebindings >= 1).then_some(()));
    rig.server.send_to(b"too late", before).unwrap();
    // The address may change once more on a slow machine before the reply arrives.
    let answer = rig.until(|rig| {
        client.send(b"after").unwrap();
        rig.run_for(20 * MILLI);
        let (arrived, after) = receive(&rig.server)?;
        assert_eq!((arrived, after.ip()), (b"after".to_vec(), before.ip()));
        assert_ne!(after, before);
        rig.server.send_to(b"answer", after).unwrap();
        rig.run_for(20 * MILLI);
        receive(&client)
    });
    assert_eq!(answer.0, b"answer", "not the datagram to the old address");
    let report = rig.proxy.clients(rig.now()).next().unwrap();
    assert!(report.rebindings >= 1 && report.address == client.local_addr().unwrap(), "{report:?}");
}

#[test]
fn proxy_listens_on_ipv6_for_a_server_on_ipv4() {
    if let Err(error) = UdpSocket::bind("[::1]:0") {
        let _ = writeln!(std::io::stderr(), "SKIPPED: this machine has no ::1 ({error})");
        return;
    }
    let mut rig = Rig::between("[::1]:0", socket("127.0.0.1:0"), |_| ());
    let client = rig.client();
    assert!(rig.echo(&client, b"from six to four").is_ipv4());
    let mut rig = Rig::between("127.0.0.1:0", socket("[::1]:0"), |_| ());
    let client = rig.client();
    assert!(rig.echo(&client, b"from four to six").is_ipv6());
}

#[test]
fn full_proxy_refuses_clients_until_a_silent_one_expires() {
    let mut rig = Rig::new(|settings| (settings.max_clients, settings.idle) = (2, 4000 * MILLI));
    let clients: Vec<UdpSocket> = (0..3).map(|_| rig.client()).collect();
    rig.echo(&clients[0], b"0");
    rig.echo(&clients[1], b"1");
    clients[2].send(b"2").unwrap();
    rig.until(|rig| (rig.proxy.stats().refused == 1).then_some(()));
    rig.until(|rig| (rig.proxy.stats().left == 2).then_some(()));
    rig.echo(&clients[2], b"2");
    let stats = rig.proxy.stats();
    assert_eq!((stats.clients, stats.joined), (1, 3));
    assert_eq!((stats.up.delivered, stats.down.delivered), (3, 3), "the counts of clients that left remain");
}

#[test]
fn proxy_drops_datagrams_of_strangers() {
    let mut rig = Rig::new(|_| ());
    let client = rig.client();
    let upstream = rig.echo(&client, b"hello");
    let stranger = socket("127.0.0.1:0");
    stranger.send_to(b"I am the server", upstream).unwrap();
    rig.run_for(50 * MILLI);
    assert_eq!(receive(&client), None);
    assert_eq!(rig.proxy.stats().down.pushed, 1);
}

#[test]
fn unreachable_server_does_not_stop_the_proxy() {
    let mut rig = Rig::new(|_| ());
    let client = rig.client();
    let to = rig.server.local_addr().unwrap();
    rig.server = socket("127.0.0.1:0");
    for _ in 0..20 {
        client.send(b"anybody?").unwrap();
        rig.run_for(5 * MILLI);
    }
    assert!(rig.proxy.stats().socket_errors.closed > 0, "{:?}", rig.proxy.stats());
    rig.server = socket(&to.to_string());
    rig.echo(&client, b"there you are");
}

/// Returns the largest buffer that this system grants, in bytes.
#[cfg(target_os = "linux")]
fn max_buffer() -> usize {
    std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn proxy_keeps_a_burst_that_arrives_between_two_turns() {
    // Each takes 2304 bytes of a buffer: 500 do not fit into the 208 KiB that a socket has by default.
    const BURST: u64 = 500;
    if max_buffer() < 1 << 20 {
        let _ = writeln!(std::io::stderr(), "SKIPPED: net.core.rmem_max permits {} bytes", max_buffer());
        return;
    }
    let mut rig = Rig::new(|_| ());
    let client = rig.client();
    let upstream = rig.echo(&client, b"hello");
    for _ in 0..BURST {
        client.send(&[7; 1200]).unwrap();
        rig.server.send_to(&[7; 1200], upstream).unwrap();
    }
    rig.until(|rig| {
        let stats = rig.proxy.stats();
        assert_eq!(stats.dropped_by_system, Some(0), "{stats:?}");
        ((stats.up.pushed, stats.down.pushed) == (BURST + 1, BURST + 1)).then_some(())
    });
}

#[cfg(target_os = "linux")]
#[test]
fn proxy_counts_what_the_system_dropped() {
    // Linux grants twice the requested 4 MiB at most, which 20,000 datagrams of 768 bytes exceed.
    const BURST: u64 = 20_000;
    let mut rig = Rig::new(|settings| settings.idle = 1000 * MILLI);
    let client = rig.client();
    let upstream = rig.echo(&client, b"hello");
    for _ in 0..BURST {
        client.send(&[7]).unwrap();
        rig.server.send_to(&[7], upstream).unwrap();
    }
    let stats = rig.until(|rig| {
        let stats = rig.proxy.stats();
        let arrived = stats.up.pushed + stats.down.pushed;
        (stats.dropped_by_system == Some(2 * (BURST + 1) - arrived)).then_some(stats)
    });
    assert!(stats.up.pushed < BURST && stats.down.pushed < BURST, "{stats:?}");
    rig.until(|rig| (rig.proxy.stats().left == 1).then_some(()));
    assert_eq!(rig.proxy.stats().dropped_by_system, stats.dropped_by_system, "the count remains");
}

#[test]
fn proxy_to_itself_is_refused() {
    let taken = socket("127.0.0.1:0");
    let address = taken.local_addr().unwrap();
    drop(taken);
    for listen in [address, SocketAddr::new([0, 0, 0, 0].into(), address.port())] {
        let error = Proxy::bind(ProxySettings::new(listen, address, 1)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let same_port_elsewhere = SocketAddr::new([192, 0, 2, 1].into(), address.port());
    assert!(Proxy::bind(ProxySettings::new(address, same_port_elsewhere, 1)).is_ok());
}

#[test]
fn seed_repeats_the_path_of_the_first_client() {
    let arrivals = |seed| {
        let lossy = Conditions { loss: Loss::Random(Share::percent(50.0)), ..Conditions::perfect() };
        let mut rig = Rig::new(|settings| (settings.up, settings.seed) = (lossy, seed));
        let client = rig.client();
        for number in 0..100 {
            client.send(&[number]).unwrap();
        }
        rig.until(|rig| (rig.proxy.stats().up.pushed == 100).then_some(()));
        rig.turn();
        std::iter::from_fn(|| receive(&rig.server)).map(|(bytes, _)| bytes[0]).collect::<Vec<u8>>()
    };
    let once = arrivals(1);
    assert!((20..80).contains(&once.len()), "{once:?}");
    assert_eq!(once, arrivals(1));
    assert_ne!(once, arrivals(2));
}

#[test]
fn clients_have_losses_of_their_own_or_the_same() {
    for (paths, is_same) in [(ClientPaths::Independent, false), (ClientPaths::Same, true)] {
        let lossy = Conditions { loss: Loss::Random(Share::percent(50.0)), ..Conditions::perfect() };
        let mut rig = Rig::new(|settings| (settings.up, settings.paths) = (lossy, paths));
        let arrived = [(); 2].map(|()| {
            let (client, before) = (rig.client(), rig.proxy.stats().up.pushed);
            for number in 0..100 {
                client.send(&[number]).unwrap();
            }
            rig.until(|rig| (rig.proxy.stats().up.pushed == before + 100).then_some(()));
            rig.turn();
            std::iter::from_fn(|| receive(&rig.server)).map(|(bytes, _)| bytes[0]).collect::<Vec<u8>>()
        });
        assert!((20..80).contains(&arrived[0].len()), "{arrived:?}");
        assert_eq!(arrived[0] == arrived[1], is_same, "{paths:?}");
    }
}
