//! A server and a client on real sockets, each with a game that records the events of its channels.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use slipgate_client::Client;
use slipgate_server::connection::Remaining;
use slipgate_server::keys::Key;
use slipgate_server::transfer::{self, ContentDigest, PartialTransfer, Transfer};
use slipgate_server::{
    ChannelEvent, ChannelId, ClientHandle, ClientRef, Clock, CloseKind, DeliveryStatus, Inbox, Server, ServerConfig,
    Sockets, Traffic,
};
use slipgate_session::reliability;
use slipgate_session::wire::reliable::Sequence;
use slipgate_tests::live::{IPV4, PRIVATE_KEY, PROTOCOL_ID, TokenOrder, Turn, until};

/// The events of one end.
#[derive(Default)]
pub struct Log {
    pub connected: Vec<ClientHandle>,
    pub messages: Vec<(ChannelId, Vec<u8>)>,
    pub packets: Vec<(Sequence, Vec<u8>)>,
    pub news: Vec<reliability::PacketEvent>,
    /// Transfers that arrived: label and digest.
    pub received: Vec<(u64, ContentDigest)>,
    /// Transfers that the other end has received.
    pub delivered: usize,
    /// Why the other end refused transfers, or why transfers to this end failed.
    pub refused: Vec<transfer::TransferReason>,
    pub partials: Vec<(ChannelId, PartialTransfer)>,
    /// Receipts of messages.
    pub receipts: Vec<(ChannelId, u64, DeliveryStatus)>,
}

impl Log {
    /// Returns the messages of a channel, in the order of arrival.
    pub fn on(&self, channel: ChannelId) -> impl Iterator<Item = Vec<u8>> {
        self.messages.iter().filter(move |(of, _)| *of == channel).map(|(_, bytes)| bytes.clone())
    }

    fn note(&mut self, event: ChannelEvent) {
        match event {
            ChannelEvent::Transfer { event: transfer::TransferEvent::Received { label, content, .. }, .. } => {
                self.received.push((label, ContentDigest::of(&content.into_vec())));
            }
            ChannelEvent::Transfer { event: transfer::TransferEvent::Delivered { .. }, .. } => self.delivered += 1,
            ChannelEvent::Transfer { event: transfer::TransferEvent::Refused { reason, .. }, .. }
            | ChannelEvent::Transfer { event: transfer::TransferEvent::Broken { reason, .. }, .. } => {
                self.refused.push(reason)
            }
            ChannelEvent::Receipt { channel, tag, status } => self.receipts.push((channel, tag, status)),
            other => panic!("unexpected end of a transfer: {other:?}"),
        }
    }
}

/// A server.
pub struct Host {
    pub server: Server,
    pub log: Log,
    pub ended: Vec<CloseKind>,
    /// The transfer to every new client.
    pub on_arrival: Option<(ChannelId, Transfer)>,
    /// The partial transfer that the next client resumes.
    pub to_keep: Option<(ChannelId, PartialTransfer)>,
    inbox: Inbox,
    clock: Clock,
    address: SocketAddr,
}

/// A client.
pub struct Guest {
    pub client: Client,
    pub log: Log,
    pub ended: Vec<CloseKind>,
    /// The partial transfer that the next connection resumes.
    pub to_keep: Option<(ChannelId, PartialTransfer)>,
    pub clock: Clock,
    inbox: slipgate_client::Inbox,
}

/// Starts a server and a client, and waits until the client is connected.
pub fn meet(traffic: Traffic) -> (Host, Guest) {
    let mut host = Host::start(traffic.clone());
    let mut guest = Guest::connect(&host, traffic);
    until(&mut (&mut host, &mut guest), "a connection", |(host, guest)| {
        guest.client.state().is_connected() && !host.log.connected.is_empty()
    });
    (host, guest)
}

/// Runs one turn of each.
pub fn fetch_both(host: &mut Host, guest: &mut Guest) {
    (host, guest).turn();
}

impl Host {
    pub fn start(traffic: Traffic) -> Self {
        Self::with_slots(4, traffic)
    }

    pub fn with_slots(slots: u32, traffic: Traffic) -> Self {
        let sockets = Sockets::bind(&[SocketAddr::new(IPV4, 0)]).expect("the system has a free port");
        let address = sockets.local_addresses()[0];
        let (config, clock) = (ServerConfig::new(PROTOCOL_ID, slots, &[address]), Clock::start());
        let server = Server::new(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now());
        let server = server.and_then(|server| server.with_traffic(traffic)).expect("valid settings");
        let inbox = Inbox::default();
        Self { server, log: Log::default(), ended: Vec::new(), on_arrival: None, to_keep: None, inbox, clock, address }
    }

    /// Returns the client that connected last.
    pub fn client(&self) -> ClientHandle {
        *self.log.connected.last().expect("a client has connected")
    }

    /// Returns everything that concerns the client that connected last.
    pub fn newest(&mut self) -> ClientRef<'_> {
        self.at(self.client())
    }

    /// Returns everything that concerns a client.
    pub fn at(&mut self, client: ClientHandle) -> ClientRef<'_> {
        self.server.client(client).expect("the client is connected")
    }

    /// Returns the bytes that have arrived of the transfer in progress.
    pub fn arrived(&mut self, channel: ChannelId) -> u32 {
        let client = self.client();
        let client = self.server.client(client);
        let transfers = client.as_ref().and_then(|client| client.connection()?.channels.transfers(channel));
        transfers.and_then(|transfers| transfers.receiving().next()).map_or(0, |(_, progress)| progress.bytes)
    }

    fn welcome(&mut self, client: ClientHandle) {
        self.log.connected.push(client);
        if let Some((channel, map)) = &self.on_arrival {
            let mut client = self.server.client(client).expect("the client has just connected");
            client.send_transfer(*channel, map.clone(), 0).expect("the queue is empty");
        }
        if let Some((channel, partial)) = self.to_keep.take() {
            let mut client = self.server.client(client).expect("the client has just connected");
            let connection = client.connection_mut().expect("the traffic is on channels");
            connection
                .channels
                .transfers_mut(channel)
                .expect("it is of transfers")
                .keep(partial)
                .expect("the channel has space");
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
                Event::Disconnected { reason, .. } => self.ended.push(reason.kind),
                _ => {}
            }
            // Before their other events are handled.
            std::mem::take(&mut arrived).into_iter().for_each(|client| self.welcome(client));
        }
        self.server.end_turn();
    }

    fn describe(&self) -> String {
        let (Log { connected, messages, received, .. }, ended) = (&self.log, &self.ended);
        let (connected, messages, discards) = (connected.len(), messages.len(), self.server.discards());
        format!(
            "server: {connected} connected, {messages} messages, {} transfers, {ended:?}, {discards:?}",
            received.len()
        )
    }
}

impl Guest {
    /// Starts a client of its own player that connects to the server.
    pub fn connect(host: &Host, traffic: Traffic) -> Self {
        let client = Client::new().expect("the system has a free port").with_traffic(traffic).expect("valid settings");
        let (inbox, clock) = (slipgate_client::Inbox::default(), Clock::start());
        let mut guest = Self { client, log: Log::default(), ended: Vec::new(), to_keep: None, inbox, clock };
        guest.again(host);
        guest
    }

    /// Connects with a new token.
    pub fn again(&mut self, host: &Host) {
        static NEXT_PLAYER: AtomicU64 = AtomicU64::new(1);
        let minted = TokenOrder::new(NEXT_PLAYER.fetch_add(1, Ordering::Relaxed), &[host.address]).mint();
        self.client.connect(minted.token, self.clock.now()).expect("the token is new");
    }

    /// Returns the bytes that have arrived of the transfer in progress.
    pub fn arrived(&self, channel: ChannelId) -> u32 {
        let transfers = self.client.connection().and_then(|connection| connection.channels.transfers(channel));
        transfers.and_then(|transfers| transfers.receiving().next()).map_or(0, |(_, progress)| progress.bytes)
    }

    /// Returns what a channel still takes.
    pub fn remaining(&self, channel: ChannelId) -> Remaining {
        self.client.connection().map(|connection| connection.channels.remaining(channel)).unwrap_or_default()
    }

    fn go_on(&mut self) {
        if let Some((channel, partial)) = self.to_keep.take() {
            let connection = self.client.connection_mut().expect("the client is connected");
            connection
                .channels
                .transfers_mut(channel)
                .expect("it is of transfers")
                .keep(partial)
                .expect("the channel has space");
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
                Event::Message { channel, bytes, .. } => self.log.messages.push((channel, bytes.to_vec())),
                Event::Packet { sequence, bytes, .. } => self.log.packets.push((sequence, bytes.to_vec())),
                Event::Sent(event) => self.log.news.push(event),
                Event::Channel(event) => self.log.note(event),
                Event::Partial { channel, partial } => self.log.partials.push((channel, partial)),
                Event::Ended { reason } => self.ended.push(reason.kind),
                _ => {}
            }
        }
        self.client.end_turn();
    }

    fn describe(&self) -> String {
        let (state, Log { messages, received, .. }, ended) = (self.client.state().name(), &self.log, &self.ended);
        format!("client: {state}, {} messages, {} transfers, {ended:?}", messages.len(), received.len())
    }
}
