//! The Slipgate server as a subject, used as a game uses it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::thread;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_os::clock;
use slipgate_server::keys::Key;
use slipgate_server::{ChannelId, ClientHandle, Event, Inbox, Now, ServerConfig, Sockets, Traffic};

use crate::load::TICK;
use crate::row::ColumnRole;
use crate::subject::{
    BenchServer, GameLoop, LoadProtocol, PAYLOAD_BYTES, PRIVATE_KEY, PROTOCOL_ID, RawPayloads, Subject, Workload,
};

/// The Slipgate server with default settings and payloads without channels.
pub const SLIPGATE: Subject = Subject {
    name: "slipgate",
    role: ColumnRole::Ours,
    limit: None,
    protocol: LoadProtocol::Netcode(|| Box::new(RawPayloads)),
    start: |slots| Ok(Box::new(SlipgateServer::start(slots, Traffic::Payloads)?)),
};

/// The channel of all messages, in runs with channels.
pub(crate) const CHANNEL: ChannelId = ChannelId(0);

/// The Slipgate server with the benchmark's game.
pub(crate) struct SlipgateServer {
    has_channels: bool,
    server: slipgate_server::Server,
    inbox: Inbox,
    address: SocketAddrV4,
    clients: Vec<ClientHandle>,
}

/// Returns the benchmark's own time, with the wall clock for tokens, which a game reads once a turn.
fn at(now: Duration) -> Now {
    Now { monotonic: Instant::from_start(now), unix: clock::wall_clock() }
}

impl SlipgateServer {
    /// Starts a server on a port that the system chooses.
    pub(crate) fn start(slots: usize, traffic: Traffic) -> io::Result<Self> {
        let sockets = Sockets::bind(&[loopback()])?;
        let mut shards = shards(slots, vec![sockets])?;
        let mut ours = shards.pop().ok_or_else(|| io::Error::other("no server"))?;
        ours.has_channels = matches!(traffic, Traffic::Channels(..));
        ours.server = ours.server.with_traffic(traffic).map_err(io::Error::other)?;
        Ok(ours)
    }

    /// Takes all events of a turn. Returns the number of received payloads.
    fn take_events(&mut self, workload: Workload) -> u64 {
        let mut payloads = 0;
        while let Some(event) = self.inbox.next(&mut self.server) {
            // A client that just disconnected gets no reply.
            payloads += match event {
                Event::Payload { client, bytes, .. } => {
                    let _ = (workload == Workload::Echo).then(|| self.server.send(client, bytes));
                    1
                }
                Event::Message { client, channel, bytes, .. } => {
                    let _ = (workload == Workload::Echo).then(|| self.server.send_message(client, channel, bytes));
                    1
                }
                _ => 0,
            };
        }
        payloads
    }
}

/// Returns a loopback address with a port that the system chooses.
pub(crate) fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Starts the shards of one server, one for each of these sockets of one port.
pub(crate) fn shards(slots: usize, sockets: Vec<Sockets>) -> io::Result<Vec<SlipgateServer>> {
    let bound = sockets.first().and_then(|sockets| sockets.local_addresses().first().copied());
    let Some(SocketAddr::V4(address)) = bound else { return Err(io::Error::other("the socket has no address")) };
    let config = ServerConfig::new(PROTOCOL_ID, slots as u32, &[SocketAddr::V4(address)]);
    let keys = Key::from(PRIVATE_KEY).into();
    let servers =
        slipgate_server::Server::shards(sockets, config, keys, at(Duration::ZERO), None).map_err(io::Error::other)?;
    let around = |server| SlipgateServer {
        has_channels: false,
        server,
        inbox: Inbox::default(),
        address,
        clients: Vec::with_capacity(slots),
    };
    Ok(servers.into_iter().map(around).collect())
}

impl BenchServer for SlipgateServer {
    fn address(&self) -> SocketAddrV4 {
        self.address
    }

    fn turn(&mut self, workload: Workload, now: Duration) -> u64 {
        // Turns take no time in the benchmark's own time.
        self.server.begin_still_turn(at(now));
        let payloads = self.take_events(workload);
        self.server.end_turn();
        payloads
    }

    fn run(&mut self, game_loop: GameLoop, base: Duration, time: Duration) {
        // The loop of the documentation: a flush for arrivals, the end of a turn once a tick.
        let (start, mut next_tick) = (std::time::Instant::now(), Duration::ZERO);
        while start.elapsed() < time {
            let began_at = start.elapsed();
            self.server.begin_turn(at(base + began_at));
            self.take_events(Workload::Echo);
            if began_at >= next_tick {
                next_tick = began_at + TICK;
                self.server.end_turn();
            } else {
                self.server.flush();
            }
            let timeout = next_tick.saturating_sub(start.elapsed());
            match game_loop {
                GameLoop::Event => drop(self.server.wait(timeout)),
                GameLoop::Tick => thread::sleep(timeout),
            }
        }
    }

    fn broadcast(&mut self, copies: u32, now: Duration) {
        self.server.begin_still_turn(at(now));
        self.clients.clear();
        self.clients.extend(self.server.clients());
        for client in &self.clients {
            for _ in 0..copies {
                let _ = if self.has_channels {
                    self.server.send_message(*client, CHANNEL, &[7; PAYLOAD_BYTES])
                } else {
                    self.server.send(*client, &[7; PAYLOAD_BYTES])
                };
            }
        }
        self.server.end_turn();
    }

    fn connected(&self) -> usize {
        self.server.connected_count() as usize
    }

    fn set_filter(&mut self, on: bool) -> bool {
        self.server.set_kernel_filter(on).is_ok()
    }
}
