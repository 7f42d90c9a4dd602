//! A server with channels and its players, on top of netcode, on paths of virtual time.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::server::NetcodeServer;
use slipgate_netcode::server::{ClientHandle, ServerConfig, TokenCutoff};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_session::channel::{ChannelId, Layout, SendOptions};
use slipgate_session::client::{self, SessionClient};
use slipgate_session::connection::{CloseKind, ConnectionConfig, Memory, SendError, SessionMessage, Traffic};
use slipgate_session::server::{self, SessionServer};
use slipgate_sim::{Conditions, Link};

use crate::netcode_world::{NetcodeWorld, PROTOCOL_ID, START_TIME, TokenSpec, VecOutbox, address};

/// One turn of all programs.
pub const TURN: Duration = Duration::from_millis(16);

/// The program of a player, its path, and what it received.
pub struct Player {
    /// The client under test.
    pub core: SessionClient,
    /// The address of the client.
    pub address: Address,
    /// The path of the player; up is towards the server.
    pub link: Link,
    /// Messages that arrived.
    pub messages: Vec<(ChannelId, Vec<u8>)>,
    /// Other events.
    pub events: Vec<client::ClientSessionEvent>,
    /// Whether the program stands still. What arrives waits in its socket.
    pub is_asleep: bool,
    scratch: Vec<u8>,
}

/// A server, its players, and addresses without a player.
pub struct SessionWorld {
    /// The server under test.
    pub server: SessionServer,
    /// The address of the server.
    pub server_address: Address,
    /// The players by their ids, from 1.
    pub players: Vec<Player>,
    /// Messages that arrived at the server, each with the id of its player.
    pub messages: Vec<(u64, ChannelId, Vec<u8>)>,
    /// Other events of the server.
    pub events: Vec<server::SessionEvent>,
    /// Datagrams that the server sent to addresses without a player.
    pub replies: Vec<(Address, Vec<u8>)>,
    /// Datagrams that the server reads at the start of the next turn.
    pub incoming: Vec<(Address, Vec<u8>)>,
    /// The messages of these datagrams so far.
    pub incoming_messages: u64,
    /// The traffic of players that join from now on.
    pub traffic: Traffic,
    mint: NetcodeWorld,
    now: Duration,
    scratch: Vec<u8>,
}

impl SessionWorld {
    /// Creates a world without players. Its server has `slots` slots, and its connections take their memory from
    /// `memory`.
    ///
    /// # Panics
    /// If the settings are invalid.
    #[must_use]
    pub fn new(slots: u32, layout: &Arc<Layout>, config: &ConnectionConfig, memory: Memory) -> Self {
        let mint = NetcodeWorld::perfect(1);
        let server_address = address("10.0.0.1:40000");
        let mut settings = ServerConfig::new(PROTOCOL_ID, slots, &[server_address.socket_addr()]);
        settings.token_cutoff = TokenCutoff::None;
        let keys = mint.private_key.clone().into();
        let now = Now { monotonic: Instant::default(), unix: START_TIME };
        let netcode = NetcodeServer::new(settings, keys, &Seed::from([1; 32]), now).expect("valid settings");
        let traffic = Traffic::Channels(Arc::clone(layout), config.clone());
        Self {
            server: SessionServer::new(netcode, traffic.clone(), memory).expect("valid settings"),
            server_address,
            players: Vec::new(),
            incoming: Vec::new(),
            incoming_messages: 0,
            messages: Vec::new(),
            events: Vec::new(),
            replies: Vec::new(),
            traffic,
            mint,
            now: Duration::ZERO,
            scratch: Vec::new(),
        }
    }

    /// Returns both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { monotonic: Instant::from_start(self.now), unix: UnixMillis(START_TIME.0 + self.now.as_millis() as u64) }
    }

    /// Mints a token for the player with this id.
    pub fn token(&mut self, client_id: u64) -> ConnectToken {
        self.token_for(client_id, 45)
    }

    /// Mints a token that was issued at the start of the world and is valid for `lifetime` seconds.
    pub fn token_for(&mut self, client_id: u64, lifetime: u32) -> ConnectToken {
        let servers = vec![self.server_address];
        self.mint.mint(&TokenSpec { client_id, servers, lifetime, timeout: 5, user_data: [0; 256] })
    }

    /// Mints a token for other servers than that of the world.
    pub fn token_to(&mut self, client_id: u64, servers: &[Address]) -> ConnectToken {
        let servers = servers.to_vec();
        self.mint.mint(&TokenSpec { client_id, servers, lifetime: 45, timeout: 5, user_data: [0; 256] })
    }

    /// Adds a player and runs turns until it has a slot.
    ///
    /// # Panics
    /// If it gets no slot within 200 turns.
    pub fn join(&mut self, conditions: Conditions) -> ClientHandle {
        let token = self.token(self.players.len() as u64 + 1);
        let id = self.begin_connect(conditions, token);
        for _ in 0..200 {
            self.turn();
            if let (Some(client), ClientState::Connected) = (self.handle(id), self.player(id).core.netcode.state()) {
                return client;
            }
        }
        panic!("player {id} got no slot");
    }

    /// Adds a player that starts to connect with a token. Returns the id of the player.
    ///
    /// # Panics
    /// If the client refuses the token.
    pub fn begin_connect(&mut self, conditions: Conditions, token: ConnectToken) -> u64 {
        let id = self.players.len() as u64 + 1;
        let mut core = SessionClient::new(NetcodeClient::new(TimeoutPolicy::Clamped), &Seed::from([9; 32]));
        core.set_traffic(self.traffic.clone()).expect("valid settings");
        core.connect(token, self.now().monotonic, |_| true).expect("an idle client accepts a token");
        self.players.push(Player {
            core,
            address: address(&format!("10.1.0.{id}:5000")),
            link: Link::new(conditions, conditions, id),
            messages: Vec::new(),
            events: Vec::new(),
            is_asleep: false,
            scratch: Vec::new(),
        });
        id
    }

    /// Returns a player by its id.
    pub fn player(&mut self, id: u64) -> &mut Player {
        &mut self.players[id as usize - 1]
    }

    /// Returns the handle of a connected player on the server.
    #[must_use]
    pub fn handle(&self, id: u64) -> Option<ClientHandle> {
        self.server.netcode.find(id)
    }

    /// Queues a message of a player to the server.
    ///
    /// # Errors
    /// Returns the error of the client.
    pub fn send_to_server(&mut self, id: u64, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let now = self.now().monotonic;
        self.player(id).core.connection_mut()?.send(channel, message, SendOptions::default(), now)
    }

    /// Queues a message of the server to a player.
    ///
    /// # Errors
    /// Returns the error of the server.
    pub fn send_to_client(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<(), SendError> {
        let now = self.now();
        self.server.connection_mut(client)?.send(channel, message, SendOptions::default(), now.monotonic)
    }

    /// Delivers a datagram to the server with a given source address. Returns the number of messages in it.
    pub fn present(&mut self, from: Address, mut datagram: Vec<u8>) -> u64 {
        self.receive(from, &mut datagram)
    }

    /// Returns the client id and the reason of each disconnect, in order.
    #[must_use]
    pub fn disconnects(&self) -> Vec<(u64, CloseKind)> {
        let end = |event: &server::SessionEvent| match event {
            server::SessionEvent::Disconnected { client_id, reason, .. } => Some((client_id.0, reason.kind)),
            _ => None,
        };
        self.events.iter().filter_map(end).collect()
    }

    fn receive(&mut self, from: Address, datagram: &mut [u8]) -> u64 {
        let (now, mut messages) = (self.now(), 0);
        let Ok(Some(mut received)) = self.server.handle(from, datagram, &mut self.scratch, now) else { return 0 };
        let client = received.client;
        while let Some(message) = self.server.next_message(datagram, &mut received, &mut self.scratch, now) {
            messages += 1;
            let (channel, span) = match message {
                SessionMessage::Channel { channel, span, .. } => (channel, span),
                // The HELLO of a side with channels is a meaningless payload to a side without them.
                SessionMessage::Payload { .. } => continue,
                other => panic!("{other:?}"),
            };
            let id = self.server.netcode.client(client).expect("a message comes from a connected client").client_id.0;
            if id <= self.players.len() as u64 {
                self.messages.push((id, channel, span.bytes(datagram, &self.scratch).to_vec()));
            }
        }
        messages
    }

    /// Runs one turn of all programs.
    pub fn turn(&mut self) {
        self.now += TURN;
        let now = self.now();
        for (from, mut datagram) in std::mem::take(&mut self.incoming) {
            self.incoming_messages += self.receive(from, &mut datagram);
        }
        for index in 0..self.players.len() {
            let from = self.players[index].address;
            while let Some(arrival) = self.players[index].link.up.pop_due(now.monotonic) {
                let mut datagram = arrival.bytes.to_vec();
                self.receive(from, &mut datagram);
            }
        }
        self.events.extend(std::iter::from_fn(|| self.server.poll_event()));
        self.server.tick(now);
        let mut outbox = VecOutbox::default();
        self.server.transmit(now, &mut outbox);
        self.events.extend(std::iter::from_fn(|| self.server.poll_event()));
        for (to, datagram) in outbox.datagrams {
            match self.players.iter_mut().find(|player| player.address == to) {
                Some(player) => player.link.down.push(&datagram, now.monotonic),
                None => self.replies.push((to, datagram)),
            }
        }
        self.players.iter_mut().for_each(|player| player.turn(self.server_address, now.monotonic));
    }

    /// Runs turns for `duration`.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.turn();
        }
    }
}

impl Player {
    fn turn(&mut self, server_address: Address, now: Instant) {
        if self.is_asleep {
            return;
        }
        let Self { core, link, messages, events, scratch, .. } = self;
        while let Some(arrival) = link.down.pop_due(now) {
            let mut datagram = arrival.bytes.to_vec();
            receive_datagram(core, server_address, &mut datagram, scratch, messages, now);
        }
        events.extend(std::iter::from_fn(|| core.poll_event()));
        core.tick(now);
        let mut outbox = VecOutbox::default();
        core.transmit(now, &mut outbox);
        for (_, datagram) in outbox.datagrams {
            link.up.push(&datagram, now);
        }
    }
}

/// Delivers a datagram to a client and collects all messages in it.
///
/// # Panics
/// If an acknowledged packet arrives.
pub fn receive_datagram(
    core: &mut SessionClient,
    from: Address,
    datagram: &mut [u8],
    scratch: &mut Vec<u8>,
    messages: &mut Vec<(ChannelId, Vec<u8>)>,
    now: Instant,
) {
    let Ok(Some(mut received)) = core.handle(from, datagram, scratch, now) else { return };
    while let Some(message) = core.next_message(datagram, &mut received, scratch, now) {
        match message {
            SessionMessage::Channel { channel, span, .. } => {
                messages.push((channel, span.bytes(datagram, scratch).to_vec()));
            }
            SessionMessage::Payload { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}
