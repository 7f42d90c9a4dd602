//! A server with channels and its players, put together with netcode, on paths of virtual time.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::{Client as NetcodeClient, ClientState};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::server::Server as NetcodeServer;
use slipgate_netcode::server::{ClientHandle, Config as NetcodeConfig, DisconnectReason, Fence};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_session::channel::{ChannelId, Layout, SendOptions};
use slipgate_session::client::{self, Client};
use slipgate_session::server::{self, Server};
use slipgate_session::session::{Config, Memory, SendError, Traffic};
use slipgate_sim::{Conditions, Link};

use crate::world::{BEGINNING, Collected, PROTOCOL_ID, TokenSpec, World, address};

/// A turn of all programs.
pub const TURN: Duration = Duration::from_millis(16);

/// A player's program, its path, and what it saw.
pub struct Player {
    /// The client.
    pub core: Client,
    /// Where it sends from.
    pub address: Address,
    /// Its path; up is to the server.
    pub link: Link,
    /// Messages that arrived.
    pub messages: Vec<(ChannelId, Vec<u8>)>,
    /// What else happened.
    pub events: Vec<client::Event>,
    scratch: Vec<u8>,
}

/// A server, its players, and whoever else has an address.
pub struct Hall {
    /// The server.
    pub server: Server,
    /// Where it listens.
    pub home: Address,
    /// Players by their ids, from 1.
    pub players: Vec<Player>,
    /// Messages of players that arrived at the server, with their ids.
    pub messages: Vec<(u64, ChannelId, Vec<u8>)>,
    /// What else happened there.
    pub events: Vec<server::Event>,
    /// What the server sent to addresses where no player is.
    pub replies: Vec<(Address, Vec<u8>)>,
    /// What payloads of who joins from now on carry, on its side.
    pub traffic: Traffic,
    mint: World,
    now: Duration,
    scratch: Vec<u8>,
}

impl Hall {
    /// An empty hall with so many slots, whose connections take their memory from `memory`.
    ///
    /// # Panics
    /// When the settings are none.
    #[must_use]
    pub fn new(slots: u32, layout: &Arc<Layout>, config: &Config, memory: Memory) -> Self {
        let mint = World::perfect(1);
        let home = address("10.0.0.1:40000");
        let mut settings = NetcodeConfig::new(PROTOCOL_ID, slots, vec![home]);
        settings.fence = Fence::Open;
        let keys = mint.private_key.clone().into();
        let now = Now { monotonic: Instant::default(), unix: BEGINNING };
        let netcode =
            NetcodeServer::new(settings, keys, &Seed::from_bytes([1; 32]), now).expect("settings to run with");
        let traffic = Traffic::Channels(Arc::clone(layout), config.clone());
        Self {
            server: Server::new(netcode, traffic.clone(), memory).expect("settings to run with"),
            home,
            players: Vec::new(),
            messages: Vec::new(),
            events: Vec::new(),
            replies: Vec::new(),
            traffic,
            mint,
            now: Duration::ZERO,
            scratch: Vec::new(),
        }
    }

    /// Both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { monotonic: Instant::from_start(self.now), unix: UnixMillis(BEGINNING.0 + self.now.as_millis() as u64) }
    }

    /// A token for a player of this id.
    pub fn token(&mut self, client_id: u64) -> ConnectToken {
        self.token_for(client_id, 45)
    }

    /// A token of the hall's beginning that is valid for so many seconds.
    pub fn token_for(&mut self, client_id: u64, lifetime: u32) -> ConnectToken {
        let servers = vec![self.home];
        self.mint.mint(&TokenSpec { client_id, servers, lifetime, timeout: 5, user_data: [0; 256] })
    }

    /// A player comes, and has a slot after a few turns.
    ///
    /// # Panics
    /// When it gets none.
    pub fn join(&mut self, conditions: Conditions) -> ClientHandle {
        let token = self.token(self.players.len() as u64 + 1);
        let id = self.knock(conditions, token);
        for _ in 0..200 {
            self.turn();
            if let (Some(client), ClientState::Connected) = (self.handle(id), self.player(id).core.netcode().state()) {
                return client;
            }
        }
        panic!("player {id} got no slot");
    }

    /// A player begins to connect with a token; answers the player's id.
    ///
    /// # Panics
    /// When the token is none.
    pub fn knock(&mut self, conditions: Conditions, token: ConnectToken) -> u64 {
        let id = self.players.len() as u64 + 1;
        let mut core = Client::new(NetcodeClient::new(TimeoutPolicy::Clamped));
        core.set_traffic(self.traffic.clone()).expect("settings to run with");
        core.connect(token, self.now().monotonic, |_| true).expect("a client that is free");
        self.players.push(Player {
            core,
            address: address(&format!("10.1.0.{id}:5000")),
            link: Link::new(conditions, conditions, id),
            messages: Vec::new(),
            events: Vec::new(),
            scratch: Vec::new(),
        });
        id
    }

    /// A player by its id.
    pub fn player(&mut self, id: u64) -> &mut Player {
        &mut self.players[id as usize - 1]
    }

    /// A player's handle on the server, while it is connected.
    #[must_use]
    pub fn handle(&self, id: u64) -> Option<ClientHandle> {
        self.server.netcode().find(id)
    }

    /// A player says something.
    ///
    /// # Errors
    /// The client's.
    pub fn say(&mut self, id: u64, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let now = self.now().monotonic;
        self.player(id).core.send_message(channel, message, SendOptions::default(), now)
    }

    /// The server says something to a player.
    ///
    /// # Errors
    /// The server's.
    pub fn tell(&mut self, client: ClientHandle, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let now = self.now();
        self.server.send_message(client, channel, message, SendOptions::default(), now)
    }

    /// Hands the server a datagram in the name of an address.
    pub fn present(&mut self, from: Address, mut datagram: Vec<u8>) {
        self.take(from, &mut datagram);
    }

    /// Why connections ended, in order, and whose.
    #[must_use]
    pub fn ends(&self) -> Vec<(u64, DisconnectReason)> {
        let end = |event: &server::Event| match event {
            server::Event::Disconnected { client_id, reason, .. } => Some((*client_id, *reason)),
            _ => None,
        };
        self.events.iter().filter_map(end).collect()
    }

    fn take(&mut self, from: Address, datagram: &mut [u8]) {
        let now = self.now();
        let Ok(Some(mut received)) = self.server.handle(from, datagram, &mut self.scratch, now) else { return };
        while let Some(message) = self.server.next(datagram, &mut received, &mut self.scratch, now) {
            let (client, channel, place) = match message {
                server::Message::Channel { client, channel, place } => (client, channel, place),
                // The greeting of a side with channels says nothing to one without.
                server::Message::Payload { .. } => continue,
                other => panic!("{other:?}"),
            };
            let id = self.server.netcode().client(client).expect("who speaks is there").client_id;
            if id <= self.players.len() as u64 {
                self.messages.push((id, channel, place.bytes(datagram, &self.scratch).to_vec()));
            }
        }
    }

    /// One turn of everything.
    pub fn turn(&mut self) {
        self.now += TURN;
        let now = self.now();
        for place in 0..self.players.len() {
            let from = self.players[place].address;
            while let Some(arrival) = self.players[place].link.up.pop_due(now.monotonic) {
                let mut datagram = arrival.bytes.to_vec();
                self.take(from, &mut datagram);
            }
        }
        self.events.extend(std::iter::from_fn(|| self.server.poll_event()));
        self.server.tick(now);
        let mut outbox = Collected::default();
        self.server.transmit(now, &mut outbox);
        self.events.extend(std::iter::from_fn(|| self.server.poll_event()));
        for (to, datagram) in outbox.datagrams {
            match self.players.iter_mut().find(|player| player.address == to) {
                Some(player) => player.link.down.push(&datagram, now.monotonic),
                None => self.replies.push((to, datagram)),
            }
        }
        self.players.iter_mut().for_each(|player| player.turn(self.home, now.monotonic));
    }

    /// Turns for so long.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.turn();
        }
    }
}

impl Player {
    fn turn(&mut self, home: Address, now: Instant) {
        let Self { core, link, messages, events, scratch, .. } = self;
        while let Some(arrival) = link.down.pop_due(now) {
            let mut datagram = arrival.bytes.to_vec();
            hear(core, home, &mut datagram, scratch, messages, now);
        }
        events.extend(std::iter::from_fn(|| core.poll_event()));
        core.tick(now);
        let mut outbox = Collected::default();
        core.transmit(now, &mut outbox);
        for (_, datagram) in outbox.datagrams {
            link.up.push(&datagram, now);
        }
    }
}

/// A client hears a datagram, and every message in it.
///
/// # Panics
/// When what arrives is an acknowledged packet.
pub fn hear(
    core: &mut Client,
    from: Address,
    datagram: &mut [u8],
    scratch: &mut Vec<u8>,
    messages: &mut Vec<(ChannelId, Vec<u8>)>,
    now: Instant,
) {
    let Ok(Some(mut received)) = core.handle(from, datagram, scratch, now) else { return };
    while let Some(message) = core.next(datagram, &mut received, scratch, now) {
        match message {
            client::Message::Channel { channel, place } => {
                messages.push((channel, place.bytes(datagram, scratch).to_vec()));
            }
            client::Message::Payload { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}
