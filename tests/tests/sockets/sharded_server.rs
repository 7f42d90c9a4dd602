//! A game loop on its own thread, and the shards of its server on theirs: events and commands pass through rings.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use slipgate_client::ClientState;
use slipgate_server::connection::{BroadcastReport, Remaining};
use slipgate_server::keys::Key;
use slipgate_server::sharded::{ShardId, ShardThreads, ShardedServer, ShardedServerConfig, ShardedServerError};
use slipgate_server::{
    ChannelConfig, ChannelEvent, ChannelId, ClientHandle, Clock, CloseCode, CloseKind, ClosedBy, DeliveryStatus, Event,
    Inbox, Kind, Layout, SendError, SendOptions, Server, ServerConfig, Sockets, Traffic, transfer,
};
use slipgate_session::connection::ConnectionConfig;
use slipgate_tests::live::{
    DEADLINE, GameClient, IPV4, OurClient, PRIVATE_KEY, PROTOCOL_ID, TokenOrder, Turn, run_for, until,
};

const TICK: Duration = Duration::from_millis(5);
const CHAT: ChannelId = ChannelId(0);
const MAP: ChannelId = ChannelId(1);
const SMALL: ShardedServerConfig = ShardedServerConfig { entries: 64, bytes: 16 << 10, paths_interval: Duration::ZERO };

/// The smallest configuration with channels.
const NARROW: ShardedServerConfig =
    ShardedServerConfig { entries: 64, bytes: 160 << 10, paths_interval: Duration::ZERO };

fn shards(slots: u32, traffic: &Traffic) -> (Vec<Server>, Clock, SocketAddr) {
    let sockets = Sockets::bind_shards(&[(IPV4, 0).into()], 2).unwrap();
    let address = sockets[0].local_addresses()[0];
    let config = ServerConfig::new(PROTOCOL_ID, slots, &[address]);
    let clock = Clock::start();
    let servers = Server::shards(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now(), None).unwrap();
    let with_traffic = |server: Server| server.with_traffic(traffic.clone()).unwrap();
    (servers.into_iter().map(with_traffic).collect(), clock, address)
}

fn start(slots: u32, traffic: &Traffic, config: ShardedServerConfig) -> (ShardedServer, SocketAddr) {
    let (servers, clock, address) = shards(slots, traffic);
    (ShardedServer::start(servers, clock, TICK, config).unwrap(), address)
}

fn channels() -> Traffic {
    let transfers = ChannelConfig::from(Kind::Transfers);
    Traffic::channels(Layout::try_from(vec![ChannelConfig::from(Kind::ReliableOrdered), transfers]).unwrap())
}

fn connecting(address: SocketAddr, players: std::ops::Range<u64>) -> Vec<OurClient> {
    players.map(|player| OurClient::connect(&TokenOrder::new(player, &[address]).mint())).collect()
}

fn are_in(clients: &[OurClient]) -> bool {
    clients.iter().all(|client| client.state() == ClientState::Connected)
}

/// A game that records its events.
#[derive(Default)]
struct Game {
    connected: Vec<(u64, ClientHandle)>,
    disconnected: Vec<(u64, CloseKind)>,
    payloads: BTreeMap<ClientHandle, Vec<Vec<u8>>>,
    unsent: Vec<(ClientHandle, ChannelId, Option<u64>, SendError)>,
    receipts: Vec<(u64, DeliveryStatus)>,
    /// Transfers in progress, and those that have arrived.
    started: Vec<(transfer::TransferId, u64)>,
    delivered: Vec<transfer::TransferId>,
}

impl Game {
    fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Connected { client, client_id } => self.connected.push((client_id.0, client)),
            Event::Disconnected { client_id, reason, .. } => self.disconnected.push((client_id.0, reason.kind)),
            Event::Payload { client, bytes, .. } | Event::Message { client, bytes, .. } => {
                assert!(
                    self.connected.iter().any(|(_, connected)| *connected == client),
                    "the connect event comes before any message"
                );
                self.payloads.entry(client).or_default().push(bytes.to_vec());
            }
            Event::NotSent { client, channel, receipt, error } => self.unsent.push((client, channel, receipt, error)),
            Event::Channel { event: ChannelEvent::Receipt { channel: CHAT, tag, status }, .. } => {
                self.receipts.push((tag, status));
            }
            Event::Started { channel: MAP, id, label, .. } => self.started.push((id, label)),
            Event::Channel {
                event: ChannelEvent::Transfer { event: transfer::TransferEvent::Delivered { id }, .. },
                ..
            } => {
                self.delivered.push(id);
            }
            _ => {}
        }
    }

    fn listen(&mut self, sharded: &mut ShardedServer) {
        while let Some(event) = sharded.next_event() {
            self.note(event);
        }
    }
}

#[test]
fn payloads_and_replies_are_routed_by_the_shard_in_the_handle() {
    let (mut sharded, address) = start(32, &Traffic::Payloads, ShardedServerConfig::default());
    let (mut clients, mut game) = (connecting(address, 0..32), Game::default());
    until(&mut clients, "all clients connect", |clients| are_in(clients));
    for number in 0..50_u8 {
        clients.iter_mut().for_each(|client| client.send(&[number; 50]));
        until(&mut clients, "all payloads arrive", |_| {
            game.listen(&mut sharded);
            game.payloads.values().filter(|received| received.len() > number.into()).count() == 32
        });
        for (client, received) in &game.payloads {
            sharded.send(*client, received.last().unwrap()).unwrap();
        }
        sharded.flush();
        until(&mut clients, "all clients get a reply", |clients| {
            clients.iter().all(|client| client.received().len() > number.into())
        });
    }
    assert!(game.payloads.values().all(|received| received.iter().map(|payload| payload[0]).eq(0..50)));
    let mut indices: Vec<_> = sharded.clients().map(|member| member.index.0).collect();
    indices.sort_unstable();
    assert!(indices.into_iter().eq(0..32), "indices are unique across all shards");
    for (client_id, client) in &game.connected {
        let member = sharded.client(*client).unwrap();
        assert_eq!((member.client_id.0, member.client), (*client_id, *client));
        assert_eq!(member.user_data, TokenOrder::new(*client_id, &[]).user_data());
    }
    let shards: std::collections::BTreeSet<_> = game.connected.iter().map(|(_, client)| client.shard()).collect();
    assert_eq!((shards.len(), sharded.connected_count()), (2, 32));
    assert!([0, 1].map(|shard| sharded.counts(ShardId(shard)).payloads_dropped) == [0, 0]);

    let ended = sharded.stop("", |event| game.note(event));
    assert_eq!((ended.panicked, game.disconnected.len()), (None, 32));
    assert!(game.disconnected.iter().all(|(_, reason)| *reason == CloseKind::ServerStopped));
    until(&mut clients, "all clients learn of the end", |clients| {
        clients.iter().all(|client| client.end() == Some(CloseKind::DisconnectedByServer))
    });
}

#[test]
fn client_that_has_just_connected_keeps_shards_undrained() {
    let (servers, clock, address) = shards(8, &Traffic::Payloads);
    // The client connects between two ticks.
    let app = |_| |server: &mut Server, inbox: &mut Inbox| while inbox.next(server).is_some() {};
    let threads = ShardThreads::start(servers, clock, Duration::from_millis(300), app).unwrap();
    let mut clients = connecting(address, 0..1);
    until(&mut clients, "the client connects", |clients| are_in(clients));
    assert!(!threads.is_drained());
    threads.accept_new_clients(false);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        assert!(!threads.is_drained(), "a client is connected, after {:?}", start.elapsed());
        run_for(&mut clients, TICK);
    }
    clients[0].leave();
    until(&mut clients, "all clients have left", |_| threads.is_drained());
}

#[test]
fn one_client_does_not_fill_the_queue_of_the_others() {
    const MESSAGES: u32 = 200;
    let (mut sharded, address) = start(8, &channels(), NARROW);
    let mut clients: Vec<_> = (0..8).map(|player| Player::with(&TokenOrder::new(player, &[address]))).collect();
    let mut game = Game::default();
    until(&mut clients, "all clients connect", |clients| {
        game.listen(&mut sharded);
        let are_in = clients.iter().all(|player| player.client.state() == ClientState::Connected);
        are_in && game.connected.len() == 8
    });
    // The game reads nothing while the first client sends far more than the queue holds.
    for number in 0..MESSAGES {
        clients[0].client.send_message(CHAT, &number.to_le_bytes()).unwrap();
        run_for(&mut clients, Duration::from_millis(1));
    }
    let refused =
        |sharded: &ShardedServer| (0..2).map(|shard| sharded.counts(ShardId(shard)).clients_refused).sum::<u64>();
    until(&mut clients, "the first client is refused", |_| refused(&sharded) > 0);
    clients[1..].iter_mut().for_each(|client| client.client.send_message(CHAT, b"hello").unwrap());
    run_for(&mut clients, Duration::from_millis(300));
    assert!([0, 1].map(|shard| sharded.counts(ShardId(shard)).pauses) == [0, 0], "no shard stops reading");
    until(&mut clients, "all messages arrive once", |_| {
        game.listen(&mut sharded);
        game.payloads.values().map(Vec::len).sum::<usize>() == MESSAGES as usize + 7
    });
    let first = game.connected.iter().find(|(id, _)| *id == 0).unwrap().1;
    assert!(game.payloads[&first].iter().map(Vec::as_slice).eq((0..MESSAGES).map(|number| number.to_le_bytes())));
    assert!(game.disconnected.is_empty());
}

#[test]
fn slow_game_counts_dropped_payloads_and_keeps_all_clients() {
    let (mut sharded, address) = start(32, &Traffic::Payloads, SMALL);
    let mut clients = connecting(address, 0..32);
    until(&mut clients, "all clients connect", |clients| are_in(clients));
    let sent = 40 * clients.len() as u64;
    let dropped =
        |sharded: &ShardedServer| (0..2).map(|shard| sharded.counts(ShardId(shard)).payloads_dropped).sum::<u64>();
    let received =
        |sharded: &ShardedServer| sharded.totals().iter().map(|shard| shard.stats.payloads_received).sum::<u64>();
    for round in 1..=40 {
        clients.iter_mut().for_each(|client| client.send(&[7; 1200]));
        // The buffer of a socket does not hold all payloads.
        until(&mut clients, "the payloads arrived", |_| received(&sharded) == round * 32);
    }
    until(&mut clients, "most were dropped", |_| received(&sharded) == sent && dropped(&sharded) > sent / 2);
    clients.iter_mut().for_each(GameClient::leave);
    clients.turn();
    let mut game = Game::default();
    until(&mut clients, "all clients disconnected", |_| {
        game.listen(&mut sharded);
        game.disconnected.len() == 32
    });
    assert_eq!(game.connected.len(), 32, "every client was reported");
    let received = game.payloads.values().map(Vec::len).sum::<usize>() as u64;
    assert_eq!(received + dropped(&sharded), sent, "each payload was received or counted");
    assert_eq!(sharded.connected_count(), 0);
}

#[test]
fn full_ring_refuses_commands_until_the_shard_drains_it() {
    let (mut sharded, address) = start(4, &Traffic::Payloads, SMALL);
    let (mut clients, mut game) = (connecting(address, 0..1), Game::default());
    until(&mut clients, "the client connects", |clients| {
        game.listen(&mut sharded);
        are_in(clients) && sharded.connected_count() == 1
    });
    let client = game.connected[0].1;
    // The thread of the shard is busy.
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    sharded.on_shard(client.shard(), move |_| wait.recv_timeout(DEADLINE).unwrap()).unwrap();
    sharded.flush();
    let refused = (0..100).map(|_| sharded.send(client, &[1; 1200])).find_map(Result::err);
    assert_eq!(refused, Some(SendError::Backlogged));
    let other = ShardId(1 - client.shard().0);
    sharded.on_shard(other, |_| {}).unwrap();
    go_on.send(()).unwrap();
    until(&mut clients, "the ring has space again", |_| sharded.send(client, b"again").is_ok());
    sharded.flush();
    until(&mut clients, "the payload arrives", |clients| {
        clients[0].received().iter().any(|payload| payload == b"again")
    });

    assert_eq!(sharded.send(client, b""), Err(SendError::Empty));
    assert_eq!(sharded.send(client, &[0; 1201]), Err(SendError::TooLarge { channel: None, bytes: 1201, limit: 1200 }));
    assert_eq!(sharded.send_message(client, CHAT, b"hi"), Err(SendError::WrongTraffic));
    sharded.disconnect(client).unwrap();
    sharded.flush();
    until(&mut clients, "the client disconnects", |_| {
        game.listen(&mut sharded);
        sharded.connected_count() == 0
    });
    assert_eq!(game.disconnected, [(0, CloseKind::Kicked)]);
    assert_eq!((sharded.send(client, b"too late"), sharded.client(client)), (Err(SendError::Gone), None));
}

/// A client that carries channels, and the messages that it received.
struct Player {
    client: slipgate_client::Client,
    inbox: slipgate_client::Inbox,
    clock: Clock,
    received: Vec<Vec<u8>>,
    transfers: Vec<(u64, usize)>,
    ended: bool,
}

impl Player {
    fn connect(address: SocketAddr, player: u64) -> Self {
        Self::with(&TokenOrder::new(player, &[address]))
    }

    fn with(order: &TokenOrder) -> Self {
        let clock = Clock::start();
        let mut client = slipgate_client::Client::new().unwrap().with_traffic(channels()).unwrap();
        client.connect(order.mint().token, clock.now()).unwrap();
        Self {
            client,
            inbox: slipgate_client::Inbox::default(),
            clock,
            received: Vec::new(),
            transfers: Vec::new(),
            ended: false,
        }
    }
}

impl Turn for Player {
    fn turn(&mut self) {
        self.client.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                slipgate_client::Event::Message { bytes, .. } => self.received.push(bytes.to_vec()),
                slipgate_client::Event::Channel(ChannelEvent::Transfer {
                    event: transfer::TransferEvent::Received { label, content, .. },
                    ..
                }) => self.transfers.push((label, content.len())),
                slipgate_client::Event::Ended { .. } => self.ended = true,
                _ => {}
            }
        }
        self.client.end_turn();
    }

    fn describe(&self) -> String {
        format!("{:?}, {} received", self.client.state(), self.received.len())
    }
}

/// Starts a server with this configuration and `count` connected clients, and a game that has received the events.
fn with_players(count: u64, config: ShardedServerConfig) -> (ShardedServer, Vec<Player>, Game) {
    let (mut sharded, address) = start(4, &channels(), config);
    let mut players: Vec<_> = (0..count).map(|player| Player::connect(address, player)).collect();
    let mut game = Game::default();
    until(&mut players, "all clients connect", |_| {
        game.listen(&mut sharded);
        u64::from(sharded.connected_count()) == count
    });
    (sharded, players, game)
}

#[test]
fn slow_game_with_small_rings_receives_messages_in_order() {
    let (mut sharded, address) = start(4, &channels(), NARROW);
    let mut players: Vec<_> = (0..4).map(|player| Player::connect(address, player)).collect();
    until(&mut players, "all clients connect", |players| {
        players.iter().all(|player| player.client.state() == ClientState::Connected)
    });
    let (mut game, mut received, mut echoed) = (Game::default(), [0_u32; 4], [0_usize; 4]);
    let start = Instant::now();
    while players.iter().any(|player| player.received.len() < 200) {
        assert!(start.elapsed() < DEADLINE, "{}", players.describe());
        for (player, received) in players.iter_mut().zip(&mut received) {
            while *received < 200 && player.client.send_message(CHAT, &text(*received)).is_ok() {
                *received += 1;
            }
        }
        players.turn();
        // A slow game: a few events per tick.
        for _ in 0..10 {
            let Some(event) = sharded.next_event() else { break };
            game.note(event);
        }
        for ((_, client), echoed) in game.connected.iter().zip(&mut echoed) {
            let text = game.payloads.get(client).map_or(&[][..], Vec::as_slice);
            while let Some(message) = text.get(*echoed)
                && sharded.send_message(*client, CHAT, message).is_ok()
            {
                *echoed += 1;
            }
        }
        sharded.flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(game.unsent.is_empty(), "{:?}", game.unsent);
    for player in &players {
        assert!(player.received.iter().eq((0..200).map(text).collect::<Vec<_>>().iter()));
    }
    let client = game.connected[0].1;
    assert_eq!(sharded.send(client, b"hi"), Err(SendError::WrongTraffic));
    assert_eq!(
        sharded.send_message(client, ChannelId(9), b"hi"),
        Err(SendError::NoChannel { channel: ChannelId(9), channels: 2 })
    );
    assert_eq!(sharded.send_message(client, MAP, b"hi"), Err(SendError::WrongKind));
    sharded.kick(client, "that is enough").unwrap();
    sharded.flush();
    until(&mut players, "one client is kicked", |players| players.iter().filter(|player| player.ended).count() == 1);
    sharded.stop("", |event| game.note(event));
    assert_eq!((game.connected.len(), game.disconnected.len()), (4, 4));
}

#[test]
fn stalled_game_keeps_active_clients_and_drops_silent_ones() {
    let (mut sharded, address) = start(4, &channels(), NARROW);
    let order = |player| TokenOrder { timeout_seconds: 3, ..TokenOrder::new(player, &[address]) };
    let mut players: Vec<_> = (0..3).map(|player| Player::with(&order(player))).collect();
    let mut game = Game::default();
    until(&mut players, "all clients connect", |_| {
        game.listen(&mut sharded);
        sharded.connected_count() == 3
    });
    // The game is busy for more than two timeouts.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(7) {
        for player in &mut players {
            let _ = player.client.send_message(CHAT, b"are you there?");
        }
        players.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(
        game.connected.iter().all(|(_, client)| sharded.counts(client.shard()).clients_refused > 0),
        "no client used up its share"
    );
    for player in &mut players {
        assert_eq!(player.client.state(), ClientState::Connected);
    }
    until(&mut players, "each client receives all messages", |players| {
        game.listen(&mut sharded);
        players.iter_mut().all(|player| {
            let connection = player.client.connection().expect("the client is connected");
            connection.channels.remaining(CHAT).messages == 256
        })
    });
    game.listen(&mut sharded);
    assert!(game.disconnected.is_empty(), "{:?}", game.disconnected);
    assert!(game.payloads.values().all(|received| received.len() > 64) && game.payloads.len() == 3);

    // A client that falls silent.
    let _silent = players.pop();
    until(&mut players, "the client times out", |_| {
        game.listen(&mut sharded);
        !game.disconnected.is_empty()
    });
    assert_eq!(game.disconnected, [(2, CloseKind::TimedOut)]);
}

#[test]
fn freed_ring_space_delivers_waiting_events_at_once() {
    let (servers, clock, address) = shards(4, &channels());
    let tick = 4 * DEADLINE;
    let mut sharded = ShardedServer::start(servers, clock, tick, NARROW).unwrap();
    let (mut player, mut game) = (vec![Player::connect(address, 0)], Game::default());
    until(&mut player, "the client connects", |player| {
        game.listen(&mut sharded);
        sharded.connected_count() == 1 && player[0].client.state() == ClientState::Connected
    });
    let client = game.connected[0].1;
    // One packet of messages, more than the queue holds.
    for number in 0..120_u8 {
        player[0].client.send_message(CHAT, &[number; 4]).unwrap();
    }
    until(&mut player, "its share of the ring is full", |_| sharded.counts(client.shard()).clients_refused > 0);
    // No arriving datagram wakes the shard from now on.
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    while game.payloads.get(&client).map_or(0, Vec::len) < 120 {
        assert!(start.elapsed() < tick / 4, "{} have arrived", game.payloads[&client].len());
        game.listen(&mut sharded);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(game.payloads[&client].iter().map(|received| received[0]).eq(0..120));
}

/// Returns the message of a number: some are long and take several packets.
fn text(number: u32) -> Vec<u8> {
    let mut text = number.to_le_bytes().to_vec();
    text.resize(if number.is_multiple_of(20) { 5000 } else { 40 }, number as u8);
    text
}

#[test]
fn unsendable_message_is_reported_to_the_game() {
    let (mut sharded, mut players, mut game) = with_players(1, ShardedServerConfig::default());
    let client = game.connected[0].1;
    // More than the queue of the channel holds, before the shard can send any.
    let message = vec![7; 1024];
    let asking = |tag| SendOptions { receipt: Some(tag), ..SendOptions::default() };
    let given = (0..4000).filter(|tag| sharded.send_message_with(client, CHAT, &message, asking(*tag)).is_ok()).count();
    sharded.flush();
    until(&mut players, "refused messages are reported", |_| {
        game.listen(&mut sharded);
        !game.unsent.is_empty()
    });
    assert!(matches!(game.unsent[0], (of, CHAT, Some(_), SendError::Backlogged) if of == client));
    until(&mut players, "the other messages arrive", |_| {
        game.listen(&mut sharded);
        game.receipts.len() + game.unsent.len() == given
    });
    assert_eq!(players[0].received.len(), game.receipts.len());
    assert!(game.receipts.iter().all(|(_, status)| *status == DeliveryStatus::Arrived));
    let (unsent, reported) =
        (game.unsent.iter().filter_map(|unsent| unsent.2), game.receipts.iter().map(|reported| reported.0));
    let tags: std::collections::BTreeSet<_> = unsent.chain(reported).collect();
    assert_eq!(tags.len(), given, "each refused message is reported once by its tag");
}

#[test]
fn broadcast_transfer_reports_refused_clients_by_label() {
    let (mut sharded, mut players, mut game) = with_players(3, ShardedServerConfig::default());
    let map = transfer::Transfer::new(vec![7; 30_000]).unwrap();
    for (client_id, client) in &game.connected {
        sharded.send_transfer(*client, MAP, map.clone(), 100 + client_id).unwrap();
    }
    sharded.flush();
    until(&mut players, "all clients have the map, and the game knows", |players| {
        game.listen(&mut sharded);
        game.delivered.len() == 3 && players.iter().all(|player| player.transfers.len() == 1)
    });
    for (client_id, player) in (0..).zip(&players) {
        assert_eq!(player.transfers, [(100 + client_id, 30_000)]);
    }
    let mut labels: Vec<_> = game.started.iter().map(|(_, label)| *label).collect();
    labels.sort_unstable();
    assert_eq!(labels, [100, 101, 102]);
    assert!(game.delivered.iter().all(|id| game.started.iter().any(|(started, _)| started == id)));
    // More than the limit of a channel: 4 in progress, and 64 queued.
    let client = game.connected[0].1;
    for label in 1000..1080 {
        sharded.send_transfer(client, MAP, map.clone(), label).unwrap();
    }
    sharded.flush();
    until(&mut players, "each transfer started or was refused", |_| {
        game.listen(&mut sharded);
        game.started.len() + game.unsent.len() == 83
    });
    assert!(!game.unsent.is_empty());
    for unsent in &game.unsent {
        assert!(matches!(unsent, (of, MAP, Some(1000..1080), SendError::Backlogged) if *of == client), "{unsent:?}");
    }
    assert_eq!(sharded.send_transfer(client, CHAT, map.clone(), 0), Err(SendError::WrongKind));
    assert_eq!(
        sharded.send_transfer(client, ChannelId(9), map, 0),
        Err(SendError::NoChannel { channel: ChannelId(9), channels: 2 })
    );
    sharded.stop("", |event| game.note(event));
}

#[test]
fn sharded_server_carries_typed_values_and_close_reasons() {
    let (mut sharded, mut players, game) = with_players(3, ShardedServerConfig::default());
    for (client_id, client) in &game.connected {
        sharded.send_typed(*client, CHAT, &(*client_id, "welcome")).unwrap();
    }
    assert!(
        sharded.send_typed(game.connected[0].1, CHAT, &vec![0_u8; 20_000]).is_err(),
        "larger than the channel allows"
    );
    sharded.flush();
    until(&mut players, "each client gets the first message", |players| {
        players.iter().all(|player| player.received.len() == 1)
    });
    for (id, player) in (0..).zip(&players) {
        assert_eq!(slipgate_client::decode(CHAT, &player.received[0]), Ok((id as u64, "welcome")));
    }
    let kicked = game.connected.iter().find(|(client_id, _)| *client_id == 0).unwrap().1;
    // A text beyond 256 bytes is cut between two characters.
    let text = format!("no rockets{}", "é".repeat(200));
    let cut = format!("no rockets{}", "é".repeat(123));
    sharded.kick_with(kicked, CloseCode(300), &text).unwrap();
    sharded.flush();
    players[1].client.leave(CloseCode(301), "supper");
    let mut ends = BTreeMap::new();
    until(&mut players, "two clients disconnected", |_| {
        while let Some(event) = sharded.next_event() {
            if let Event::Disconnected { client_id, reason, .. } = event {
                ends.insert(client_id.0, reason);
            }
        }
        ends.len() == 2
    });
    let received = ends.values().map(|end| (end.code.unwrap(), end.text.as_str()));
    assert!(received.eq([(CloseCode(300), cut.as_str()), (CloseCode(301), "supper")]), "{ends:?}");
    sharded.stop("until tomorrow", |_| {});
    until(&mut players, "all clients ended", |players| players.iter().all(|player| player.ended));
    let received = players.iter().map(|player| player.client.close_reason().unwrap());
    let texts: Vec<_> = received.clone().map(|reason| reason.text.as_str()).collect();
    assert_eq!(texts, [cut.as_str(), "supper", "until tomorrow"]);
    assert!(received.map(|reason| reason.by).eq([ClosedBy::Remote, ClosedBy::Local, ClosedBy::Remote]));
}

#[test]
fn game_thread_can_read_path_stats_and_channel_space() {
    let (mut sharded, mut players, mut game) = with_players(3, ShardedServerConfig::default());
    let known = |sharded: &ShardedServer, client| sharded.path(client).is_some_and(|path| path.endpoint.rtt.is_some());
    until(&mut players, "the RTT of each client is known", |_| {
        game.listen(&mut sharded);
        game.connected.iter().all(|(_, client)| known(&sharded, *client))
    });
    let clients: Vec<_> = game.connected.iter().map(|(_, client)| *client).collect();
    for client in &clients {
        let (path, budget) = (sharded.path(*client).unwrap(), sharded.budget(*client).unwrap());
        let congestion = path.congestion;
        assert!(congestion.round_trip.is_some_and(|time| time < DEADLINE) && congestion.rate.0 > 0.0, "{path}");
        assert!(path.endpoint.counters.sent > 0 && budget.suggestion.payload_bytes > 0, "{path}, {budget:?}");
    }
    assert_eq!(sharded.remaining(clients[0], ChannelId(9)), Remaining::default());

    // A queued message takes space only in its channel, and is reported while the shard has it.
    let [one, other] = [clients[0], clients[1]];
    let (empty, sent) = (sharded.remaining(one, CHAT), sharded.path(one).unwrap().endpoint.counters.sent);
    assert_eq!((empty.messages, sharded.remaining(other, CHAT)), (256, empty));
    for number in 0..20 {
        sharded.send_message(one, CHAT, &[number; 3000]).unwrap();
    }
    sharded.flush();
    let mut min_free = empty.bytes;
    let start = Instant::now();
    while min_free > empty.bytes - 30_000 {
        // No client acknowledges: data given to the shard stays there.
        assert!(start.elapsed() < DEADLINE, "{min_free} bytes are free, of {}", empty.bytes);
        std::thread::sleep(TICK);
        game.listen(&mut sharded);
        min_free = min_free.min(sharded.remaining(one, CHAT).bytes);
        assert_eq!(sharded.remaining(other, CHAT), empty);
    }
    until(&mut players, "all data has arrived, and the game knows", |_| {
        game.listen(&mut sharded);
        sharded.remaining(one, CHAT) == empty && sharded.path(one).unwrap().endpoint.counters.sent > sent
    });

    // A disconnected client has no path, and the next client of its slot has another one.
    sharded.disconnect(one).unwrap();
    sharded.flush();
    until(&mut players, "the client disconnected", |_| {
        game.listen(&mut sharded);
        sharded.connected_count() == 2
    });
    assert_eq!(
        (sharded.path(one), sharded.budget(one), sharded.remaining(one, CHAT)),
        (None, None, Remaining::default())
    );
    until(&mut players, "the other clients are reported as before", |_| {
        game.listen(&mut sharded);
        known(&sharded, other) && known(&sharded, clients[2])
    });
}

#[test]
fn path_stats_arrive_at_the_requested_interval() {
    let config = ShardedServerConfig { paths_interval: Duration::from_secs(1000), ..ShardedServerConfig::default() };
    let (mut sharded, mut players, mut game) = with_players(1, config);
    run_for(&mut players, 20 * TICK);
    game.listen(&mut sharded);
    assert_eq!(sharded.path(game.connected[0].1), None, "the next report is not due");

    let (mut sharded, address) = start(4, &Traffic::Payloads, ShardedServerConfig::default());
    let (mut clients, mut game) = (connecting(address, 0..1), Game::default());
    until(&mut clients, "the client connects", |_| {
        game.listen(&mut sharded);
        sharded.connected_count() == 1
    });
    run_for(&mut clients, 20 * TICK);
    game.listen(&mut sharded);
    assert_eq!(sharded.path(game.connected[0].1), None);
}

#[test]
fn unsupported_traffic_is_refused_at_start() {
    for (traffic, config, expected) in [
        (Traffic::packets(), ShardedServerConfig::default(), "Packets"),
        (Traffic::Payloads, ShardedServerConfig { entries: 63, ..ShardedServerConfig::default() }, "Config"),
        (channels(), SMALL, "Config"),
    ] {
        let (servers, clock, _) = shards(4, &traffic);
        let refused = ShardedServer::start(servers, clock, TICK, config).map(|_| ()).unwrap_err();
        assert_eq!(format!("{refused:?}"), expected);
    }
    assert!(matches!(ShardedServer::start(Vec::new(), Clock::start(), TICK, SMALL), Err(ShardedServerError::NoShard)));
}

#[test]
fn commands_queued_before_stop_are_executed() {
    for _ in 0..20 {
        let (mut sharded, _) = start(4, &channels(), ShardedServerConfig::default());
        let is_done = Arc::new(AtomicU32::new(0));
        for shard in 0..2 {
            let is_done = Arc::clone(&is_done);
            sharded.on_shard(ShardId(shard), move |_| _ = is_done.fetch_add(1, Ordering::Relaxed)).unwrap();
        }
        let ended = sharded.stop("", |_| {});
        assert_eq!((is_done.load(Ordering::Relaxed), ended.panicked), (2, None));
    }
}

/// Returns a server with a full event ring of the only shard with a client, with ten transfers and one command behind
/// it, and a flag that the command sets.
fn with_full_rings() -> (ShardedServer, Vec<Player>, ClientHandle, Arc<AtomicU32>) {
    let (mut sharded, players, game) = with_players(1, NARROW);
    let (client, done) = (game.connected[0].1, Arc::new(AtomicU32::new(0)));
    let map = transfer::Transfer::new(vec![7; 3000]).unwrap();
    let start = Instant::now();
    for label in 0..64 + 10 {
        // Each transfer is reported: it started, or was refused.
        while sharded.send_transfer(client, MAP, map.clone(), label).is_err() {
            assert!(start.elapsed() < DEADLINE, "the shard refuses commands");
            sharded.flush();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let is_done = Arc::clone(&done);
    sharded.on_shard(client.shard(), move |_| _ = is_done.fetch_add(1, Ordering::Relaxed)).unwrap();
    sharded.flush();
    while sharded.counts(client.shard()).pauses == 0 {
        assert!(start.elapsed() < DEADLINE, "the ring has space");
        std::thread::sleep(Duration::from_millis(1));
    }
    (sharded, players, client, done)
}

#[test]
fn commands_behind_full_rings_run_as_events_are_taken() {
    let (sharded, _talkers, _, is_done) = with_full_rings();
    let (mut game, mut taken) = (Game::default(), 0);
    let ended = sharded.stop("", |event| {
        taken += 1;
        // A game that takes its last events slowly, at first.
        std::thread::sleep(Duration::from_millis(if taken < 20 { 20 } else { 0 }));
        if !matches!(event, Event::Channel { .. }) {
            game.note(event);
        }
    });
    assert_eq!((is_done.load(Ordering::Relaxed), ended.panicked), (1, None));
    assert_eq!(game.started.len() + game.unsent.len(), 74, "each transfer is reported");
    assert_eq!(game.disconnected, [(0, CloseKind::ServerStopped)]);
}

#[test]
fn commands_dropped_at_stop_are_counted() {
    let (mut sharded, _talkers, client, is_done) = with_full_rings();
    // The end of the other shard ends this one.
    sharded.on_shard(ShardId(1 - client.shard().0), |_| panic!("for the test")).unwrap();
    sharded.flush();
    let start = Instant::now();
    while sharded.counts(client.shard()).commands_lost == 0 {
        assert!(start.elapsed() < DEADLINE, "the stop must not wait for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(start.elapsed() > Duration::from_secs(4), "the stop waited");
    let mut game = Game::default();
    let lost = sharded.counts(client.shard()).commands_lost;
    assert!(sharded.stop("", |event| game.note(event)).panicked.is_some());
    assert_eq!(is_done.load(Ordering::Relaxed), 0);
    assert_eq!((game.started.len() + game.unsent.len()) as u64 + lost, 74 + 1, "each transfer is reported or counted");
}

#[test]
fn commands_queued_before_drop_are_executed() {
    let (mut sharded, mut players, game) = with_players(2, ShardedServerConfig::default());
    let [stays, leaves] =
        [0, 1].map(|player| game.connected.iter().find(|(connected, _)| *connected == player).unwrap().1);
    for number in 1..=10 {
        sharded.send_message(stays, CHAT, &text(number)).unwrap();
    }
    sharded.kick_with(leaves, CloseCode(300), "no rockets").unwrap();
    let is_done = Arc::new(AtomicU32::new(0));
    for shard in 0..2 {
        let is_done = Arc::clone(&is_done);
        sharded.on_shard(ShardId(shard), move |_| _ = is_done.fetch_add(1, Ordering::Relaxed)).unwrap();
    }
    // The server is dropped without flush or stop.
    drop(sharded);
    assert_eq!(is_done.load(Ordering::Relaxed), 2, "its shards have ended");
    until(&mut players, "both clients learn of the end", |players| players.iter().all(|player| player.ended));
    let received: Vec<_> = players[0].received.iter().map(|text| text[0]).collect();
    assert_eq!(received, (1..=10).collect::<Vec<_>>());
    assert_eq!(players[1].client.close_reason().unwrap().text, "no rockets");
}

#[test]
fn dropping_the_server_executes_commands_behind_full_rings() {
    let (sharded, _talkers, _, is_done) = with_full_rings();
    drop(sharded);
    assert_eq!(is_done.load(Ordering::Relaxed), 1);
}

#[test]
fn shards_with_different_traffic_do_not_start() {
    let other = Traffic::channels(Layout::try_from(vec![ChannelConfig::from(Kind::Sequenced)]).unwrap());
    for other in [Traffic::Payloads, other] {
        let (mut servers, clock, _) = shards(4, &channels());
        let last = servers.pop().unwrap().with_traffic(other).unwrap();
        servers.push(last);
        assert!(matches!(
            ShardedServer::start(servers, clock, TICK, ShardedServerConfig::default()),
            Err(ShardedServerError::Mixed)
        ));
    }
}

/// Returns a server with channels and a client that is closed only when it acknowledges, and that client.
fn with_one_client() -> (ShardedServer, Vec<Player>, ClientHandle) {
    let Traffic::Channels(layout, config) = channels() else { unreachable!() };
    let slow = Traffic::Channels(layout, ConnectionConfig { close_timeout: 100 * DEADLINE, ..config });
    let (mut sharded, address) = start(4, &slow, ShardedServerConfig::default());
    // Netcode's timeout would free the slot of a silent client as well.
    let order = TokenOrder { timeout_seconds: 60, ..TokenOrder::new(0, &[address]) };
    let (mut players, mut game) = (vec![Player::with(&order)], Game::default());
    until(&mut players, "the client connects", |players| {
        game.listen(&mut sharded);
        sharded.connected_count() == 1 && players[0].client.state() == ClientState::Connected
    });
    (sharded, players, game.connected[0].1)
}

#[test]
fn after_a_kick_only_the_end_of_the_client_is_reported() {
    let (mut sharded, mut players, client) = with_one_client();
    for number in 0..50_u8 {
        players[0].client.send_message(CHAT, &[number; 4]).unwrap();
    }
    // The game takes no events meanwhile, so the messages wait in the ring.
    until(&mut players, "all messages are acknowledged", |players| {
        let connection = players[0].client.connection().expect("the client is connected");
        connection.channels.remaining(CHAT).messages == 256
    });
    assert!(matches!(sharded.next_event(), Some(Event::Message { .. })));
    sharded.kick(client, "that is enough").unwrap();
    assert_eq!(sharded.client(client).map(|info| info.client_id.0), Some(0), "its facts stay until its event");
    assert_eq!(sharded.send_message(client, CHAT, b"too late"), Err(SendError::Gone));
    assert!(sharded.send_typed(client, CHAT, &1).is_err());
    let map = transfer::Transfer::new(vec![7; 100]).unwrap();
    assert_eq!(sharded.send_transfer(client, MAP, map, 1), Err(SendError::Gone));
    assert_eq!(sharded.kick(client, "again"), Err(SendError::Gone));
    assert_eq!(sharded.broadcast(CHAT, b"a round begins").unwrap().queued, 0);
    sharded.flush();
    let mut events = Vec::new();
    until(&mut players, "the client's end is reported", |_| {
        while let Some(event) = sharded.next_event() {
            events.push(format!("{event:?}"));
        }
        sharded.connected_count() == 0
    });
    assert!(matches!(&events[..], [only] if only.starts_with("Disconnected")), "{events:?}");
}

#[test]
fn a_disconnect_after_a_kick_frees_the_slot_at_once() {
    let (mut sharded, mut players, client) = with_one_client();
    let slots = |sharded: &ShardedServer| sharded.totals().iter().map(|shard| shard.connected).sum::<u32>();
    until(&mut players, "the shard has counted its client", |_| slots(&sharded) == 1);
    sharded.kick(client, "that is enough").unwrap();
    sharded.disconnect(client).unwrap();
    sharded.flush();
    let start = Instant::now();
    while slots(&sharded) > 0 {
        assert!(start.elapsed() < DEADLINE, "the client does not acknowledge, and keeps its slot");
        std::thread::sleep(TICK);
    }
}

#[test]
fn broadcast_is_one_command_per_shard_with_shared_bytes() {
    let (mut sharded, mut players, game) = with_players(3, NARROW);
    // Both threads are busy, so all commands wait.
    let (mut go_on, message) = (Vec::new(), [7; 10 << 10]);
    for shard in [0, 1].map(ShardId) {
        let (sender, wait) = std::sync::mpsc::channel::<()>();
        sharded.on_shard(shard, move |_| wait.recv_timeout(DEADLINE).unwrap()).unwrap();
        go_on.push(sender);
    }
    sharded.flush();
    let report = |queued, refused| Ok(BroadcastReport { queued, refused });
    let spared = game.connected.iter().find(|(client_id, _)| *client_id == 0).unwrap().1;
    assert_eq!(sharded.broadcast_except(CHAT, spared, &[9; 10 << 10]), report(2, 0));
    // The bytes fill the queues once, for however many clients.
    for _ in 1..16 {
        assert_eq!(sharded.broadcast(CHAT, &message), report(3, 0));
    }
    assert_eq!(sharded.broadcast(CHAT, &message), report(0, 3), "160 KiB wait for each shard");
    assert_eq!(sharded.broadcast_typed(CHAT, "it goes the same way").unwrap(), report(0, 3).unwrap());
    assert_eq!(sharded.broadcast(ChannelId(9), b""), Err(SendError::NoChannel { channel: ChannelId(9), channels: 2 }));
    assert_eq!(sharded.broadcast(MAP, b""), Err(SendError::WrongKind));
    let too_large = SendError::TooLarge { channel: Some(CHAT), bytes: 20_000, limit: 16_384 };
    assert_eq!(sharded.broadcast(CHAT, &[0; 20_000]), Err(too_large));
    go_on.iter().for_each(|sender| sender.send(()).unwrap());
    // A client's own queue holds 64 KiB: its shard counts what it refuses.
    let not_sent = |sharded: &ShardedServer| [0, 1].map(|shard| sharded.counts(ShardId(shard)).broadcasts_not_sent);
    until(&mut players, "each message arrives or is counted", |players| {
        let received = players.iter().map(|player| player.received.len() as u64).sum::<u64>();
        received >= 3 && received + not_sent(&sharded).iter().sum::<u64>() == 15 + 16 + 16
    });
    assert!(not_sent(&sharded).iter().sum::<u64>() > 0 && players.iter().all(|player| player.received.len() >= 6));
    let has_first = players.iter().map(|player| player.received.iter().any(|message| message[0] == 9));
    assert!(has_first.eq([false, true, true]), "one client was spared");
    assert_eq!(sharded.broadcast(CHAT, &message), report(3, 0), "the queues are empty again");
}
