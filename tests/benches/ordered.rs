//! Measures the CPU time of a server for a reliable ordered message and its echo, beside ENet: `cargo bench -p
//! slipgate-tests --bench ordered`. ENet is the crate `rusty_enet`, which is its C code translated to Rust. It encrypts
//! nothing.
//!
//! 256 clients in the same thread send a message of 100 bytes 60 times a second, in real time on loopback sockets. Only
//! the turns of the server are measured. The two take turns in each round; the ratio is the median of those of all
//! rounds.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for developers")]

#[cfg(target_os = "linux")]
mod program {
    use std::io;
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::net::sockopt::set_socket_recv_buffer_size;
    use rusty_enet::{Event as EnetEvent, Host, HostSettings, Packet, PeerID};
    use slipgate_bench::cpu::thread_time;
    use slipgate_client::{Client, Event as ClientEvent, Inbox as ClientInbox};
    use slipgate_os::clock::Clock;
    use slipgate_server::keys::Key;
    use slipgate_server::{
        ChannelConfig, ChannelId, Event, Inbox, Kind, Layout, Server, ServerConfig, Sockets, Traffic,
    };
    use slipgate_tests::live::{PRIVATE_KEY, PROTOCOL_ID, TokenOrder};

    const CLIENTS: usize = 256;
    const MESSAGE: [u8; 100] = [7; 100];
    const CHANNEL: ChannelId = ChannelId(0);
    const TICK: Duration = Duration::from_micros(16_667);
    const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
    const ROUNDS: usize = 15;
    const TICKS_PER_ROUND: usize = 30;
    /// The goal: at most this share of ENet's time.
    const GOAL: f64 = 0.7;

    /// A server and its clients.
    trait Contestant {
        /// Sends a message of each connected client.
        fn send(&mut self) -> io::Result<()>;

        /// Receives and returns what has arrived at the server.
        fn serve(&mut self) -> io::Result<()>;

        /// Receives the replies at the clients, and returns their number.
        fn receive(&mut self) -> io::Result<u64>;

        /// Returns whether all clients are connected.
        fn is_ready(&self) -> bool;
    }

    struct Slipgate {
        clock: Clock,
        server: Server,
        inbox: Inbox,
        clients: Vec<(Client, ClientInbox)>,
    }

    #[allow(clippy::needless_pass_by_value, reason = "a function for `map_err`")]
    fn failed(error: impl std::fmt::Debug) -> io::Error {
        io::Error::other(format!("{error:?}"))
    }

    fn loopback() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    fn traffic() -> io::Result<Traffic> {
        let layout = Layout::try_from(vec![ChannelConfig::from(Kind::ReliableOrdered)]).map_err(io::Error::other)?;
        Ok(Traffic::channels(layout))
    }

    impl Slipgate {
        fn start() -> io::Result<Self> {
            let clock = Clock::start();
            let sockets = Sockets::bind(&[loopback()])?;
            let addresses = sockets.local_addresses().to_vec();
            let config = ServerConfig::new(PROTOCOL_ID, CLIENTS as u32, &addresses);
            let server = Server::new(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now());
            let server = server.map_err(io::Error::other)?.with_traffic(traffic()?).map_err(io::Error::other)?;
            let connect = |id| {
                let mut client = Client::with_sockets(Sockets::bind(&[loopback()])?)
                    .with_traffic(traffic()?)
                    .map_err(io::Error::other)?;
                let token = TokenOrder::new(id, &addresses).mint().token;
                client.connect(token, clock.now()).map_err(io::Error::other)?;
                Ok((client, ClientInbox::default()))
            };
            let clients = (1..=CLIENTS as u64).map(connect).collect::<io::Result<_>>()?;
            Ok(Self { clock, server, inbox: Inbox::default(), clients })
        }
    }

    impl Contestant for Slipgate {
        fn send(&mut self) -> io::Result<()> {
            for (client, _) in &mut self.clients {
                client.begin_turn(self.clock.now());
                if client.state().is_connected() {
                    client.send_message(CHANNEL, &MESSAGE).map_err(io::Error::other)?;
                }
                client.end_turn();
            }
            Ok(())
        }

        fn serve(&mut self) -> io::Result<()> {
            self.server.begin_turn(self.clock.now());
            while let Some(event) = self.inbox.next(&mut self.server) {
                if let Event::Message { client, channel, bytes, .. } = event {
                    self.server.send_message(client, channel, bytes).map_err(io::Error::other)?;
                }
            }
            self.server.end_turn();
            Ok(())
        }

        fn receive(&mut self) -> io::Result<u64> {
            let mut messages = 0;
            for (client, inbox) in &mut self.clients {
                client.begin_turn(self.clock.now());
                while let Some(event) = inbox.next(client) {
                    messages += u64::from(matches!(event, ClientEvent::Message { .. }));
                }
            }
            Ok(messages)
        }

        fn is_ready(&self) -> bool {
            self.clients.iter().all(|(client, _)| client.state().is_connected())
        }
    }

    struct Enet {
        server: Host<UdpSocket>,
        clients: Vec<(Host<UdpSocket>, PeerID)>,
    }

    impl Enet {
        fn start() -> io::Result<Self> {
            let host = |peer_limit| {
                let settings = HostSettings { peer_limit, channel_limit: 1, ..HostSettings::default() };
                let socket = UdpSocket::bind(loopback())?;
                // As much as the other server requests: the datagrams of a tick must not be dropped.
                set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
                let address = socket.local_addr()?;
                let host = Host::new(socket, settings).map_err(failed)?;
                Ok::<_, io::Error>((host, address))
            };
            let (server, address) = host(CLIENTS)?;
            let connect = |_| {
                let (mut client, _) = host(1)?;
                let peer = client.connect(address, 1, 0).map_err(failed)?.id();
                Ok((client, peer))
            };
            let clients = (0..CLIENTS).map(connect).collect::<io::Result<_>>()?;
            Ok(Self { server, clients })
        }
    }

    impl Contestant for Enet {
        fn send(&mut self) -> io::Result<()> {
            for (client, peer) in &mut self.clients {
                let peer = client.peer_mut(*peer);
                if peer.connected() {
                    peer.send(0, &Packet::reliable(MESSAGE.as_slice())).map_err(failed)?;
                }
                client.flush();
            }
            Ok(())
        }

        fn serve(&mut self) -> io::Result<()> {
            // A call handles at most 256 datagrams, and returns nothing if all of them are acknowledgements.
            let mut empty_calls = 0;
            while empty_calls < 2 {
                match self.server.service()? {
                    Some(EnetEvent::Receive { peer, channel_id, packet }) => {
                        peer.send(channel_id, &Packet::reliable(packet.data())).map_err(failed)?;
                    }
                    Some(_) => {}
                    None => empty_calls += 1,
                }
            }
            self.server.flush();
            Ok(())
        }

        fn receive(&mut self) -> io::Result<u64> {
            let mut messages = 0;
            for (client, _) in &mut self.clients {
                while let Some(event) = client.service()? {
                    messages += u64::from(matches!(event, EnetEvent::Receive { .. }));
                }
            }
            Ok(messages)
        }

        fn is_ready(&self) -> bool {
            self.clients.iter().all(|(client, peer)| client.peer(*peer).connected())
        }
    }

    /// Runs ticks in real time. Returns the server's time for each message that came back, in nanoseconds.
    fn run(name: &str, contestant: &mut dyn Contestant, ticks: usize) -> io::Result<f64> {
        let (mut cost, mut messages) = (Duration::ZERO, 0);
        for _ in 0..ticks {
            let next = Instant::now() + TICK;
            contestant.send()?;
            let start = thread_time();
            contestant.serve()?;
            cost += thread_time().saturating_sub(start);
            messages += contestant.receive()?;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let expected = (ticks * CLIENTS) as u64;
        if contestant.is_ready() && messages * 10 < expected * 9 {
            return Err(io::Error::other(format!("{name}: only {messages} of {expected} messages came back")));
        }
        Ok(cost.as_nanos() as f64 / messages.max(1) as f64)
    }

    /// Connects all clients, and lets the congestion control and the round-trip times settle.
    fn warm_up(name: &str, contestant: &mut dyn Contestant) -> io::Result<()> {
        for _ in 0..600 {
            if contestant.is_ready() {
                return run(name, contestant, 2 * TICKS_PER_ROUND).map(drop);
            }
            contestant.send()?;
            contestant.serve()?;
            contestant.receive()?;
            thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::other("not all clients connect"))
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn main() -> io::Result<()> {
        let (mut slipgate, mut enet) = (Slipgate::start()?, Enet::start()?);
        warm_up("Slipgate", &mut slipgate)?;
        warm_up("ENet", &mut enet)?;
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let pair = (run("Slipgate", &mut slipgate, TICKS_PER_ROUND)?, run("ENet", &mut enet, TICKS_PER_ROUND)?);
            ours.push(pair.0);
            theirs.push(pair.1);
            ratios.push(pair.0 / pair.1);
        }
        let (ours, theirs, ratio) = (median(ours), median(theirs), median(ratios));
        let met = if ratio <= GOAL { "yes" } else { "NO" };
        let line = format!(
            "a reliable ordered message and its echo, {CLIENTS} clients: {ours:.0} ns, ENet {theirs:.0}, {ratio:.2}x \
             (<= {GOAL}x: {met})"
        );
        if std::env::args().any(|argument| argument == "--json") {
            eprintln!("{line}");
        } else {
            println!("{line}");
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    program::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {}
