//! Our server, as a game uses it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_os::clock;
use slipgate_server::{ChannelId, ClientHandle, Config, Event, Inbox, Key, Now, Sockets, Traffic};

use crate::contestant::{Bare, Contestant, Game, PAYLOAD_BYTES, PRIVATE_KEY, PROTOCOL_ID, Server, Speech};
use crate::row::Role;

/// Our server with its defaults; what it carries are bare payloads.
pub const OURS: Contestant = Contestant {
    name: "slipgate",
    role: Role::Ours,
    limit: None,
    speech: Speech::Netcode(|| Box::new(Bare)),
    start: |slots| Ok(Box::new(Ours::start(slots, Traffic::Payloads)?)),
};

/// The channel of all messages, where there are channels.
pub(crate) const CHANNEL: ChannelId = ChannelId(0);

/// Our server with the game of the benchmark.
pub(crate) struct Ours {
    has_channels: bool,
    server: slipgate_server::Server,
    inbox: Inbox,
    address: SocketAddrV4,
    clients: Vec<ClientHandle>,
}

/// A moment of the benchmark's own time, and the wall clock's for tokens, read as a game reads it: once a turn.
fn at(now: Duration) -> Now {
    Now { monotonic: Instant::from_start(now), unix: clock::wall_clock() }
}

impl Ours {
    /// A server on a port of the system's choice.
    pub(crate) fn start(slots: usize, traffic: Traffic) -> io::Result<Self> {
        let sockets = Sockets::bind(&[loopback()])?;
        let mut shards = shards(slots, vec![sockets])?;
        let mut ours = shards.pop().ok_or_else(|| io::Error::other("no server"))?;
        ours.has_channels = matches!(traffic, Traffic::Channels(..));
        ours.server = ours.server.carrying(traffic).map_err(io::Error::other)?;
        Ok(ours)
    }
}

/// A port of the system's choice.
pub(crate) fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// The shards of one server, one for each of these sockets of one port.
pub(crate) fn shards(slots: usize, sockets: Vec<Sockets>) -> io::Result<Vec<Ours>> {
    let bound = sockets.first().and_then(|sockets| sockets.local_addresses().first().copied());
    let Some(SocketAddr::V4(address)) = bound else { return Err(io::Error::other("the socket has no address")) };
    let config = Config::new(PROTOCOL_ID, slots as u32, vec![SocketAddr::V4(address).into()]);
    let keys = Key::from_bytes(PRIVATE_KEY).into();
    let servers =
        slipgate_server::Server::shards(sockets, config, keys, at(Duration::ZERO)).map_err(io::Error::other)?;
    let around = |server| Ours {
        has_channels: false,
        server,
        inbox: Inbox::default(),
        address,
        clients: Vec::with_capacity(slots),
    };
    Ok(servers.into_iter().map(around).collect())
}

impl Server for Ours {
    fn address(&self) -> SocketAddrV4 {
        self.address
    }

    fn turn(&mut self, game: Game, now: Duration) -> u64 {
        let mut payloads = 0;
        // Its clients live in the benchmark's time, in which a turn takes none.
        self.server.begin_still_turn(at(now));
        while let Some(event) = self.inbox.next(&mut self.server) {
            // A client that has just gone is not answered.
            payloads += match event {
                Event::Payload { client, bytes, .. } => {
                    let _ = (game == Game::Echo).then(|| self.server.send(client, bytes));
                    1
                }
                Event::Message { client, channel, bytes } => {
                    let _ = (game == Game::Echo).then(|| self.server.send_message(client, channel, bytes));
                    1
                }
                _ => 0,
            };
        }
        self.server.end_turn();
        payloads
    }

    fn say(&mut self, copies: u32, now: Duration) {
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
        self.server.connected() as usize
    }

    fn set_filter(&mut self, on: bool) -> bool {
        self.server.set_kernel_filter(on).is_ok()
    }

    fn rest(&mut self) {
        // As the documentation's loop: it wakes for arrivals, too.
        let _ = self.server.wait(Duration::from_millis(16));
    }
}
