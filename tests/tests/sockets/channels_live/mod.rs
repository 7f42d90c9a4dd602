//! A server and a client on real sockets, each with a game that writes down what its channels bring.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use slipgate_client::{Client, EndReason};
use slipgate_server::block::{self, Block, ContentDigest, PartialBlock};
use slipgate_server::{
    ChannelEvent, ChannelId, ClientHandle, Clock, Config, DisconnectReason, Fate, Inbox, Key, Server, Sockets, Traffic,
};
use slipgate_session::reliability;
use slipgate_session::wire::reliable::Sequence;
use slipgate_tests::live::{IPV4, Order, PRIVATE_KEY, PROTOCOL_ID, Turn, until};

/// What one end has seen.
#[derive(Default)]
pub struct Log {
    pub connected: Vec<ClientHandle>,
    pub messages: Vec<(ChannelId, Vec<u8>)>,
    pub packets: Vec<(Sequence, Vec<u8>)>,
    pub news: Vec<reliability::Event>,
    /// Blocks that came whole: label and digest.
    pub received: Vec<(u64, ContentDigest)>,
    /// Blocks that the other end has whole.
    pub delivered: usize,
    /// Why the other end did not take blocks, or this one did not get them.
    pub refused: Vec<block::Reason>,
    pub partials: Vec<(ChannelId, PartialBlock)>,
    /// What became of messages that asked.
    pub receipts: Vec<(ChannelId, u64, Fate)>,
}

impl Log {
    /// The messages of a channel, in the order in which they came.
    pub fn on(&self, channel: ChannelId) -> impl Iterator<Item = Vec<u8>> {
        self.messages.iter().filter(move |(of, _)| *of == channel).map(|(_, bytes)| bytes.clone())
    }

    fn note(&mut self, event: ChannelEvent) {
        match event {
            ChannelEvent::Block { event: block::Event::Received { label, content, .. }, .. } => {
                self.received.push((label, ContentDigest::of(&content.into_vec())));
            }
            ChannelEvent::Block { event: block::Event::Delivered { .. }, .. } => self.delivered += 1,
            ChannelEvent::Block { event: block::Event::Refused { reason, .. }, .. }
            | ChannelEvent::Block { event: block::Event::Broken { reason, .. }, .. } => self.refused.push(reason),
            ChannelEvent::Receipt { channel, tag, fate } => self.receipts.push((channel, tag, fate)),
            other => panic!("nobody breaks a transfer off here: {other:?}"),
        }
    }
}

/// A server.
pub struct Host {
    pub server: Server,
    pub log: Log,
    pub ended: Vec<DisconnectReason>,
    /// What everyone is sent who comes.
    pub on_arrival: Option<(ChannelId, Block)>,
    /// What the next one who comes goes on with.
    pub to_keep: Option<(ChannelId, PartialBlock)>,
    inbox: Inbox,
    clock: Clock,
    address: SocketAddr,
}

/// A client.
pub struct Guest {
    pub client: Client,
    pub log: Log,
    pub ended: Vec<EndReason>,
    /// What the next connection goes on with.
    pub to_keep: Option<(ChannelId, PartialBlock)>,
    pub clock: Clock,
    inbox: slipgate_client::Inbox,
}

/// A server and a client that is connected.
pub fn meet(traffic: Traffic) -> (Host, Guest) {
    let mut host = Host::start(traffic.clone());
    let mut guest = Guest::connect(&host, traffic);
    until(&mut (&mut host, &mut guest), "a connection", |(host, guest)| {
        guest.client.state().is_connected() && !host.log.connected.is_empty()
    });
    (host, guest)
}

/// One turn of each.
pub fn fetch_both(host: &mut Host, guest: &mut Guest) {
    (host, guest).turn();
}

impl Host {
    pub fn start(traffic: Traffic) -> Self {
        let sockets = Sockets::bind(&[SocketAddr::new(IPV4, 0)]).expect("the system has a free port");
        let address = sockets.local_addresses()[0];
        let (config, clock) = (Config::new(PROTOCOL_ID, 4, vec![address.into()]), Clock::start());
        let server = Server::new(sockets, config, Key::from_bytes(PRIVATE_KEY).into(), clock.now());
        let server = server.and_then(|server| server.carrying(traffic)).expect("the settings are sound");
        let inbox = Inbox::default();
        Self { server, log: Log::default(), ended: Vec::new(), on_arrival: None, to_keep: None, inbox, clock, address }
    }

    /// Who came last.
    pub fn client(&self) -> ClientHandle {
        *self.log.connected.last().expect("somebody has come")
    }

    /// Bytes that have arrived of the block that is under way.
    pub fn arrived(&self, channel: ChannelId) -> u32 {
        let blocks = self.server.connection(self.client()).and_then(|connection| connection.channels().blocks(channel));
        blocks.and_then(|blocks| blocks.receiving().next()).map_or(0, |(_, progress)| progress.bytes)
    }

    fn welcome(&mut self, client: ClientHandle) {
        self.log.connected.push(client);
        if let Some((channel, map)) = &self.on_arrival {
            self.server.send_block(client, *channel, map.clone(), 0).expect("it has just come");
        }
        if let Some((channel, partial)) = self.to_keep.take() {
            let connection = self.server.connection_mut(client).expect("it has just come");
            connection
                .channels_mut()
                .blocks_mut(channel)
                .expect("it is of blocks")
                .keep(partial)
                .expect("there is room");
        }
    }
}

impl Turn for Host {
    fn turn(&mut self) {
        use slipgate_server::Event;
        let mut arrived = Vec::new();
        self.server.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.server) {
            match event {
                Event::Connected { client, .. } => arrived.push(client),
                Event::Message { channel, bytes, .. } => self.log.messages.push((channel, bytes.to_vec())),
                Event::Packet { sequence, bytes, .. } => self.log.packets.push((sequence, bytes.to_vec())),
                Event::Sent { event, .. } => self.log.news.push(event),
                Event::Channel { event, .. } => self.log.note(event),
                Event::Partial { channel, partial, .. } => self.log.partials.push((channel, partial)),
                Event::Disconnected { reason, .. } => self.ended.push(reason),
                _ => {}
            }
            // Before anything else of theirs is looked at.
            std::mem::take(&mut arrived).into_iter().for_each(|client| self.welcome(client));
        }
        self.server.end_turn();
    }

    fn describe(&self) -> String {
        let (Log { connected, messages, received, .. }, ended) = (&self.log, &self.ended);
        let (came, messages, discards) = (connected.len(), messages.len(), self.server.discards());
        format!("server: {came} came, {messages} messages, {} blocks, {ended:?}, {discards:?}", received.len())
    }
}

impl Guest {
    /// A client of a player of its own, on its way to the server.
    pub fn connect(host: &Host, traffic: Traffic) -> Self {
        let client =
            Client::new().expect("the system has a free port").carrying(traffic).expect("the settings are sound");
        let (inbox, clock) = (slipgate_client::Inbox::default(), Clock::start());
        let mut guest = Self { client, log: Log::default(), ended: Vec::new(), to_keep: None, inbox, clock };
        guest.again(host);
        guest
    }

    /// Connects with a new token.
    pub fn again(&mut self, host: &Host) {
        static NEXT_PLAYER: AtomicU64 = AtomicU64::new(1);
        let ticket = Order::new(NEXT_PLAYER.fetch_add(1, Ordering::Relaxed), &[host.address]).mint();
        self.client.connect(ticket.token, self.clock.now()).expect("the token is new");
    }

    /// Bytes that have arrived of the block that is under way.
    pub fn arrived(&self, channel: ChannelId) -> u32 {
        let blocks = self.client.connection().and_then(|connection| connection.channels().blocks(channel));
        blocks.and_then(|blocks| blocks.receiving().next()).map_or(0, |(_, progress)| progress.bytes)
    }

    fn go_on(&mut self) {
        if let Some((channel, partial)) = self.to_keep.take() {
            let connection = self.client.connection_mut().expect("it is connected");
            connection
                .channels_mut()
                .blocks_mut(channel)
                .expect("it is of blocks")
                .keep(partial)
                .expect("there is room");
        }
    }
}

impl Turn for Guest {
    fn turn(&mut self) {
        use slipgate_client::Event;
        self.client.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { .. } => self.go_on(),
                Event::Message { channel, bytes } => self.log.messages.push((channel, bytes.to_vec())),
                Event::Packet { sequence, bytes } => self.log.packets.push((sequence, bytes.to_vec())),
                Event::Sent(event) => self.log.news.push(event),
                Event::Channel(event) => self.log.note(event),
                Event::Partial { channel, partial } => self.log.partials.push((channel, partial)),
                Event::Ended { reason } => self.ended.push(reason),
                _ => {}
            }
        }
        self.client.end_turn();
    }

    fn describe(&self) -> String {
        let (state, Log { messages, received, .. }, ended) = (self.client.state().name(), &self.log, &self.ended);
        format!("client: {state}, {} messages, {} blocks, {ended:?}", messages.len(), received.len())
    }
}
