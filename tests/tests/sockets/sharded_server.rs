//! A game loop on its own thread, and the shards of its server on theirs: what passes through the rings between them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use slipgate_client::{ClientState, EndReason};
use slipgate_server::{
    ByeCode, ChannelConfig, ChannelEvent, ChannelId, ClientHandle, Clock, Config, DisconnectReason, Event, Fate, Free,
    Hub, HubConfig, HubError, Key, Kind, Layout, SendError, SendOptions, Server, ShardId, Sockets, Traffic, block,
};
use slipgate_tests::live::{
    DEADLINE, GameClient, IPV4, Order, OurClient, PRIVATE_KEY, PROTOCOL_ID, Turn, run_for, until,
};

const TICK: Duration = Duration::from_millis(5);
const CHAT: ChannelId = ChannelId(0);
const MAP: ChannelId = ChannelId(1);
const SMALL: HubConfig = HubConfig { entries: 64, bytes: 16 << 10, paths_interval: Duration::ZERO };

/// The smallest that carries channels.
const NARROW: HubConfig = HubConfig { entries: 64, bytes: 160 << 10, paths_interval: Duration::ZERO };

fn shards(slots: u32, traffic: &Traffic) -> (Vec<Server>, Clock, SocketAddr) {
    let sockets = Sockets::bind_shards(&[(IPV4, 0).into()], 2).unwrap();
    let address = sockets[0].local_addresses()[0];
    let config = Config::new(PROTOCOL_ID, slots, vec![address.into()]);
    let clock = Clock::start();
    let servers = Server::shards(sockets, config, Key::from_bytes(PRIVATE_KEY).into(), clock.now()).unwrap();
    let carrying = |server: Server| server.carrying(traffic.clone()).unwrap();
    (servers.into_iter().map(carrying).collect(), clock, address)
}

fn start(slots: u32, traffic: &Traffic, config: HubConfig) -> (Hub, SocketAddr) {
    let (servers, clock, address) = shards(slots, traffic);
    (Hub::start(servers, clock, TICK, config).unwrap(), address)
}

fn channels() -> Traffic {
    let blocks = ChannelConfig::new(Kind::Blocks);
    Traffic::channels(Layout::new(vec![ChannelConfig::new(Kind::ReliableOrdered), blocks]).unwrap())
}

fn connecting(address: SocketAddr, players: std::ops::Range<u64>) -> Vec<OurClient> {
    players.map(|player| OurClient::connect(&Order::new(player, &[address]).mint())).collect()
}

fn are_in(clients: &[OurClient]) -> bool {
    clients.iter().all(|client| client.state() == ClientState::Connected)
}

/// A game that writes down what it hears.
#[derive(Default)]
struct Game {
    came: Vec<(u64, ClientHandle)>,
    went: Vec<(u64, DisconnectReason)>,
    payloads: BTreeMap<ClientHandle, Vec<Vec<u8>>>,
    unsent: Vec<(ClientHandle, ChannelId, Option<u64>, SendError)>,
    receipts: Vec<(u64, Fate)>,
    /// Blocks that are on their way, and those that have arrived.
    begun: Vec<(block::BlockId, u64)>,
    delivered: Vec<block::BlockId>,
}

impl Game {
    fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Connected { client, client_id } => self.came.push((client_id, client)),
            Event::Disconnected { client_id, reason, .. } => self.went.push((client_id, reason)),
            Event::Payload { client, bytes, .. } | Event::Message { client, bytes, .. } => {
                assert!(self.came.iter().any(|(_, came)| *came == client), "a client is told of before its words");
                self.payloads.entry(client).or_default().push(bytes.to_vec());
            }
            Event::Unsent { client, channel, receipt, error } => self.unsent.push((client, channel, receipt, error)),
            Event::Channel { event: ChannelEvent::Receipt { channel: CHAT, tag, fate }, .. } => {
                self.receipts.push((tag, fate));
            }
            Event::Begun { channel: MAP, id, label, .. } => self.begun.push((id, label)),
            Event::Channel { event: ChannelEvent::Block { event: block::Event::Delivered { id }, .. }, .. } => {
                self.delivered.push(id);
            }
            _ => {}
        }
    }

    fn listen(&mut self, hub: &mut Hub) {
        while let Some(event) = hub.next_event() {
            self.note(event);
        }
    }
}

#[test]
fn payloads_of_each_client_come_in_order_and_answers_find_their_way_by_the_shard_in_the_handle() {
    let (mut hub, address) = start(32, &Traffic::Payloads, HubConfig::default());
    let (mut clients, mut game) = (connecting(address, 0..32), Game::default());
    until(&mut clients, "all get in", |clients| are_in(clients));
    for number in 0..50_u8 {
        clients.iter_mut().for_each(|client| client.send(&[number; 50]));
        until(&mut clients, "all are heard", |_| {
            game.listen(&mut hub);
            game.payloads.values().filter(|said| said.len() > number.into()).count() == 32
        });
        for (client, said) in &game.payloads {
            hub.send(*client, said.last().unwrap()).unwrap();
        }
        hub.flush();
        until(&mut clients, "all are answered", |clients| {
            clients.iter().all(|client| client.received().len() > number.into())
        });
    }
    assert!(game.payloads.values().all(|said| said.iter().map(|payload| payload[0]).eq(0..50)));
    let mut indices: Vec<_> = hub.clients().map(|member| member.index).collect();
    indices.sort_unstable();
    assert!(indices.into_iter().eq(0..32), "indices are the whole server's");
    for (client_id, client) in &game.came {
        let member = hub.client(*client).unwrap();
        assert_eq!((member.client_id, member.client), (*client_id, *client));
        assert_eq!(member.user_data, Order::new(*client_id, &[]).user_data());
    }
    let shards: std::collections::BTreeSet<_> = game.came.iter().map(|(_, client)| client.shard()).collect();
    assert_eq!((shards.len(), hub.connected()), (2, 32));
    assert!([0, 1].map(|shard| hub.counts(ShardId(shard)).payloads_dropped) == [0, 0]);

    let ended = hub.stop(|event| game.note(event));
    assert_eq!((ended.panicked, game.went.len()), (None, 32));
    assert!(game.went.iter().all(|(_, reason)| *reason == DisconnectReason::ServerStopped));
    until(&mut clients, "all hear of the end", |clients| {
        clients.iter().all(|client| client.end() == Some(EndReason::DisconnectedByServer))
    });
}

#[test]
fn a_game_that_is_behind_misses_payloads_by_number_and_no_client() {
    let (mut hub, address) = start(32, &Traffic::Payloads, SMALL);
    let mut clients = connecting(address, 0..32);
    until(&mut clients, "all get in", |clients| are_in(clients));
    let sent = 40 * clients.len() as u64;
    for _ in 0..40 {
        clients.iter_mut().for_each(|client| client.send(&[7; 1200]));
        run_for(&mut clients, Duration::from_millis(2));
    }
    let dropped = |hub: &Hub| (0..2).map(|shard| hub.counts(ShardId(shard)).payloads_dropped).sum::<u64>();
    let received = |hub: &Hub| hub.totals().iter().map(|shard| shard.stats.payloads_received).sum::<u64>();
    until(&mut clients, "all have arrived, and most were dropped", |_| {
        received(&hub) == sent && dropped(&hub) > sent / 2
    });
    clients.iter_mut().for_each(GameClient::leave);
    clients.turn();
    let mut game = Game::default();
    until(&mut clients, "all have gone", |_| {
        game.listen(&mut hub);
        game.went.len() == 32
    });
    assert_eq!(game.came.len(), 32, "none was forgotten");
    let heard = game.payloads.values().map(Vec::len).sum::<usize>() as u64;
    assert_eq!(heard + dropped(&hub), sent, "each was heard or counted");
    assert_eq!(hub.connected(), 0);
}

#[test]
fn a_ring_that_is_full_refuses_and_takes_again_when_the_shard_has_worked() {
    let (mut hub, address) = start(4, &Traffic::Payloads, SMALL);
    let (mut clients, mut game) = (connecting(address, 0..1), Game::default());
    until(&mut clients, "it gets in", |clients| {
        game.listen(&mut hub);
        are_in(clients) && hub.connected() == 1
    });
    let client = game.came[0].1;
    // The shard's thread is busy with something else.
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    hub.on_shard(client.shard(), move |_| wait.recv_timeout(DEADLINE).unwrap()).unwrap();
    hub.flush();
    let refused = (0..100).map(|_| hub.send(client, &[1; 1200])).find_map(Result::err);
    assert_eq!(refused, Some(SendError::Backlogged));
    let other = ShardId(1 - client.shard().0);
    hub.on_shard(other, |_| {}).unwrap();
    go_on.send(()).unwrap();
    until(&mut clients, "there is room again", |_| hub.send(client, b"again").is_ok());
    hub.flush();
    until(&mut clients, "it arrives", |clients| clients[0].received().iter().any(|payload| payload == b"again"));

    assert_eq!(hub.send(client, b""), Err(SendError::Empty));
    assert_eq!(hub.send(client, &[0; 1201]), Err(SendError::TooLarge));
    assert_eq!(hub.send_message(client, CHAT, b"hi"), Err(SendError::WrongTraffic));
    hub.disconnect(client).unwrap();
    hub.flush();
    until(&mut clients, "it is gone", |_| {
        game.listen(&mut hub);
        hub.connected() == 0
    });
    assert_eq!(game.went, [(0, DisconnectReason::Kicked)]);
    assert_eq!((hub.send(client, b"too late"), hub.client(client)), (Err(SendError::Gone), None));
}

/// A client that carries channels, and what it heard.
struct Talker {
    client: slipgate_client::Client,
    inbox: slipgate_client::Inbox,
    clock: Clock,
    heard: Vec<Vec<u8>>,
    blocks: Vec<(u64, usize)>,
    ended: bool,
}

impl Talker {
    fn connect(address: SocketAddr, player: u64) -> Self {
        Self::with(&Order::new(player, &[address]))
    }

    fn with(order: &Order) -> Self {
        let clock = Clock::start();
        let mut client = slipgate_client::Client::new().unwrap().carrying(channels()).unwrap();
        client.connect(order.mint().token, clock.now()).unwrap();
        Self {
            client,
            inbox: slipgate_client::Inbox::default(),
            clock,
            heard: Vec::new(),
            blocks: Vec::new(),
            ended: false,
        }
    }
}

impl Turn for Talker {
    fn turn(&mut self) {
        self.client.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                slipgate_client::Event::Message { bytes, .. } => self.heard.push(bytes.to_vec()),
                slipgate_client::Event::Channel(ChannelEvent::Block {
                    event: block::Event::Received { label, content, .. },
                    ..
                }) => self.blocks.push((label, content.len())),
                slipgate_client::Event::Ended { .. } => self.ended = true,
                _ => {}
            }
        }
        self.client.end_turn();
    }

    fn describe(&self) -> String {
        format!("{:?}, {} heard", self.client.state(), self.heard.len())
    }
}

/// A hub of this kind, so many clients that have come to it, and a game that has heard of them.
fn with_talkers(count: u64, config: HubConfig) -> (Hub, Vec<Talker>, Game) {
    let (mut hub, address) = start(4, &channels(), config);
    let mut talkers: Vec<_> = (0..count).map(|player| Talker::connect(address, player)).collect();
    let mut game = Game::default();
    until(&mut talkers, "all get in", |_| {
        game.listen(&mut hub);
        u64::from(hub.connected()) == count
    });
    (hub, talkers, game)
}

#[test]
fn messages_on_channels_come_whole_and_in_order_though_the_game_is_slow_and_the_rings_are_small() {
    let (mut hub, address) = start(4, &channels(), NARROW);
    let mut talkers: Vec<_> = (0..4).map(|player| Talker::connect(address, player)).collect();
    until(&mut talkers, "all get in", |talkers| {
        talkers.iter().all(|talker| talker.client.state() == ClientState::Connected)
    });
    let (mut game, mut said, mut echoed) = (Game::default(), [0_u32; 4], [0_usize; 4]);
    let start = Instant::now();
    while talkers.iter().any(|talker| talker.heard.len() < 200) {
        assert!(start.elapsed() < DEADLINE, "{}", talkers.describe());
        for (talker, said) in talkers.iter_mut().zip(&mut said) {
            while *said < 200 && talker.client.send_message(CHAT, &words(*said)).is_ok() {
                *said += 1;
            }
        }
        talkers.turn();
        // A slow game: a few events a tick.
        for _ in 0..10 {
            let Some(event) = hub.next_event() else { break };
            game.note(event);
        }
        for ((_, client), echoed) in game.came.iter().zip(&mut echoed) {
            let words = game.payloads.get(client).map_or(&[][..], Vec::as_slice);
            while let Some(message) = words.get(*echoed)
                && hub.send_message(*client, CHAT, message).is_ok()
            {
                *echoed += 1;
            }
        }
        hub.flush();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(game.unsent.is_empty(), "{:?}", game.unsent);
    for talker in &talkers {
        assert!(talker.heard.iter().eq((0..200).map(words).collect::<Vec<_>>().iter()));
    }
    let client = game.came[0].1;
    assert_eq!(hub.send(client, b"hi"), Err(SendError::WrongTraffic));
    assert_eq!(hub.send_message(client, ChannelId(9), b"hi"), Err(SendError::NoChannel));
    assert_eq!(hub.send_message(client, MAP, b"hi"), Err(SendError::WrongKind));
    hub.kick(client, "that is enough").unwrap();
    hub.flush();
    until(&mut talkers, "one is kicked", |talkers| talkers.iter().filter(|talker| talker.ended).count() == 1);
    hub.stop(|event| game.note(event));
    assert_eq!((game.came.len(), game.went.len()), (4, 4));
}

#[test]
fn a_game_that_stalls_loses_no_client_that_goes_on_talking_and_afterwards_those_who_have_gone() {
    let (mut hub, address) = start(4, &channels(), NARROW);
    let order = |player| Order { timeout_seconds: 1, ..Order::new(player, &[address]) };
    let mut talkers: Vec<_> = (0..3).map(|player| Talker::with(&order(player))).collect();
    let mut game = Game::default();
    until(&mut talkers, "all get in", |_| {
        game.listen(&mut hub);
        hub.connected() == 3
    });
    // For three time-outs the game is elsewhere.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        for talker in &mut talkers {
            let _ = talker.client.send_message(CHAT, b"are you there?");
        }
        talkers.turn();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(game.came.iter().all(|(_, client)| hub.counts(client.shard()).pauses > 0), "the rings were never full");
    for talker in &mut talkers {
        assert_eq!(talker.client.state(), ClientState::Connected);
    }
    until(&mut talkers, "each is heard to its end", |talkers| {
        game.listen(&mut hub);
        talkers.iter_mut().all(|talker| talker.client.free(CHAT).messages == 256)
    });
    game.listen(&mut hub);
    assert!(game.went.is_empty(), "{:?}", game.went);
    assert!(game.payloads.values().all(|said| said.len() > 64) && game.payloads.len() == 3);

    // One that says nothing any more.
    let _silent = talkers.pop();
    until(&mut talkers, "it times out", |_| {
        game.listen(&mut hub);
        !game.went.is_empty()
    });
    assert_eq!(game.went, [(2, DisconnectReason::TimedOut)]);
}

#[test]
fn what_a_shard_has_read_reaches_the_game_when_it_makes_room_and_not_at_the_next_tick() {
    let (servers, clock, address) = shards(4, &channels());
    let tick = Duration::from_secs(20);
    let mut hub = Hub::start(servers, clock, tick, NARROW).unwrap();
    let (mut talker, mut game) = (vec![Talker::connect(address, 0)], Game::default());
    until(&mut talker, "it gets in", |talker| {
        game.listen(&mut hub);
        hub.connected() == 1 && talker[0].client.state() == ClientState::Connected
    });
    let client = game.came[0].1;
    for number in 0..200_u8 {
        talker[0].client.send_message(CHAT, &[number; 4]).unwrap();
    }
    let before = hub.counts(client.shard()).pauses;
    until(&mut talker, "the ring is full", |_| hub.counts(client.shard()).pauses > before);
    // From now on nothing arrives that could wake the shard.
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    while game.payloads.get(&client).map_or(0, Vec::len) < 200 {
        assert!(start.elapsed() < tick / 4, "{} are heard", game.payloads[&client].len());
        game.listen(&mut hub);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(game.payloads[&client].iter().map(|said| said[0]).eq(0..200));
}

/// The words of a number: some long ones, that take several packets.
fn words(number: u32) -> Vec<u8> {
    let mut words = number.to_le_bytes().to_vec();
    words.resize(if number.is_multiple_of(20) { 5000 } else { 40 }, number as u8);
    words
}

#[test]
fn a_message_that_its_shard_cannot_send_is_told_of() {
    let (mut hub, mut talkers, mut game) = with_talkers(1, HubConfig::default());
    let client = game.came[0].1;
    // More than the channel's queue holds, before the shard can send any.
    let message = vec![7; 1024];
    let asking = |tag| SendOptions { receipt: Some(tag), ..SendOptions::default() };
    let given = (0..4000).filter(|tag| hub.send_message_with(client, CHAT, &message, asking(*tag)).is_ok()).count();
    hub.flush();
    until(&mut talkers, "what does not fit is told of", |_| {
        game.listen(&mut hub);
        !game.unsent.is_empty()
    });
    assert!(matches!(game.unsent[0], (of, CHAT, Some(_), SendError::Backlogged) if of == client));
    until(&mut talkers, "the rest arrives", |_| {
        game.listen(&mut hub);
        game.receipts.len() + game.unsent.len() == given
    });
    assert_eq!(talkers[0].heard.len(), game.receipts.len());
    assert!(game.receipts.iter().all(|(_, fate)| *fate == Fate::Arrived));
    let (unsent, told) = (game.unsent.iter().filter_map(|unsent| unsent.2), game.receipts.iter().map(|told| told.0));
    let tags: std::collections::BTreeSet<_> = unsent.chain(told).collect();
    assert_eq!(tags.len(), given, "each is told of by its tag, once");
}

#[test]
fn one_block_goes_to_everybody_and_what_has_no_place_is_told_of_by_its_label() {
    let (mut hub, mut talkers, mut game) = with_talkers(3, HubConfig::default());
    let map = block::Block::new(vec![7; 30_000]).unwrap();
    for (client_id, client) in &game.came {
        hub.send_block(*client, MAP, map.clone(), 100 + client_id).unwrap();
    }
    hub.flush();
    until(&mut talkers, "all have the map, and the game knows", |talkers| {
        game.listen(&mut hub);
        game.delivered.len() == 3 && talkers.iter().all(|talker| talker.blocks.len() == 1)
    });
    for (client_id, talker) in (0..).zip(&talkers) {
        assert_eq!(talker.blocks, [(100 + client_id, 30_000)]);
    }
    let mut labels: Vec<_> = game.begun.iter().map(|(_, label)| *label).collect();
    labels.sort_unstable();
    assert_eq!(labels, [100, 101, 102]);
    assert!(game.delivered.iter().all(|id| game.begun.iter().any(|(begun, _)| begun == id)));
    // More than wait on a channel: 4 under way, and 64.
    let client = game.came[0].1;
    for label in 1000..1080 {
        hub.send_block(client, MAP, map.clone(), label).unwrap();
    }
    hub.flush();
    until(&mut talkers, "each was begun or has no place", |_| {
        game.listen(&mut hub);
        game.begun.len() + game.unsent.len() == 83
    });
    assert!(!game.unsent.is_empty());
    for unsent in &game.unsent {
        assert!(matches!(unsent, (of, MAP, Some(1000..1080), SendError::Backlogged) if *of == client), "{unsent:?}");
    }
    assert_eq!(hub.send_block(client, CHAT, map.clone(), 0), Err(SendError::WrongKind));
    assert_eq!(hub.send_block(client, ChannelId(9), map, 0), Err(SendError::NoChannel));
    hub.stop(|event| game.note(event));
}

#[test]
fn values_pass_through_a_hub_and_both_sides_know_what_was_said_at_the_end() {
    let (mut hub, mut talkers, game) = with_talkers(3, HubConfig::default());
    for (client_id, client) in &game.came {
        hub.send_typed(*client, CHAT, &(*client_id, "welcome")).unwrap();
    }
    assert!(hub.send_typed(game.came[0].1, CHAT, &vec![0_u8; 20_000]).is_err(), "larger than the channel allows");
    hub.flush();
    until(&mut talkers, "each is welcome", |talkers| talkers.iter().all(|talker| talker.heard.len() == 1));
    for (player, talker) in (0..).zip(&talkers) {
        assert_eq!(slipgate_client::decode(CHAT, &talker.heard[0]), Ok((player as u64, "welcome")));
    }
    let kicked = game.came.iter().find(|(client_id, _)| *client_id == 0).unwrap().1;
    hub.kick_with(kicked, ByeCode(300), "no rockets").unwrap();
    hub.flush();
    talkers[1].client.leave(ByeCode(301), "supper");
    let mut ends = BTreeMap::new();
    until(&mut talkers, "two have gone", |_| {
        while let Some(event) = hub.next_event() {
            if let Event::Disconnected { client, client_id, .. } = event {
                ends.insert(client_id, hub.end(client).cloned().unwrap());
            }
        }
        ends.len() == 2
    });
    let said = ends.values().map(|end| (end.code().unwrap(), end.text()));
    assert!(said.eq([(ByeCode(300), "no rockets"), (ByeCode(301), "supper")]), "{ends:?}");
    hub.stop_with("until tomorrow", |_| {});
    until(&mut talkers, "all have ended", |talkers| talkers.iter().all(|talker| talker.ended));
    let heard = talkers.iter().map(|talker| talker.client.farewell());
    assert!(heard.eq([Some("no rockets"), None, Some("until tomorrow")]));
}

#[test]
fn a_game_on_its_own_thread_knows_how_each_path_is_and_what_a_channel_can_take() {
    let (mut hub, mut talkers, mut game) = with_talkers(3, HubConfig::default());
    let known = |hub: &Hub, client| hub.path(client).is_some_and(|path| path.endpoint.rtt.is_some());
    until(&mut talkers, "round trips are known", |_| {
        game.listen(&mut hub);
        game.came.iter().all(|(_, client)| known(&hub, *client))
    });
    let clients: Vec<_> = game.came.iter().map(|(_, client)| *client).collect();
    for client in &clients {
        let (path, budget) = (hub.path(*client).unwrap(), hub.budget(*client).unwrap());
        let congestion = path.congestion;
        assert!(congestion.round_trip.is_some_and(|time| time < DEADLINE) && congestion.rate.0 > 0.0, "{path}");
        assert!(path.endpoint.counters.sent > 0 && budget.suggestion.payload_bytes > 0, "{path}, {budget:?}");
    }
    assert_eq!(hub.free(clients[0], ChannelId(9)), Free::default());

    // What one has to send takes room in its channel alone, and is told while the shard has it.
    let [one, other] = [clients[0], clients[1]];
    let (empty, sent) = (hub.free(one, CHAT), hub.path(one).unwrap().endpoint.counters.sent);
    assert_eq!((empty.messages, hub.free(other, CHAT)), (256, empty));
    for number in 0..20 {
        hub.send_message(one, CHAT, &[number; 3000]).unwrap();
    }
    hub.flush();
    let mut least = empty.bytes;
    let start = Instant::now();
    while least > empty.bytes - 30_000 {
        // Nobody answers: what was given to the shard stays with it.
        assert!(start.elapsed() < DEADLINE, "{least} bytes are free, of {}", empty.bytes);
        std::thread::sleep(TICK);
        game.listen(&mut hub);
        least = least.min(hub.free(one, CHAT).bytes);
        assert_eq!(hub.free(other, CHAT), empty);
    }
    until(&mut talkers, "all of it has arrived, and the game knows", |_| {
        game.listen(&mut hub);
        hub.free(one, CHAT) == empty && hub.path(one).unwrap().endpoint.counters.sent > sent
    });

    // Who has gone has no path, and whoever comes into its slot has another one.
    hub.disconnect(one).unwrap();
    hub.flush();
    until(&mut talkers, "it has gone", |_| {
        game.listen(&mut hub);
        hub.connected() == 2
    });
    assert_eq!((hub.path(one), hub.budget(one), hub.free(one, CHAT)), (None, None, Free::default()));
    until(&mut talkers, "the others are told of as before", |_| {
        game.listen(&mut hub);
        known(&hub, other) && known(&hub, clients[2])
    });
}

#[test]
fn paths_are_told_as_often_as_was_asked_and_not_of_payloads_as_they_are() {
    let config = HubConfig { paths_interval: Duration::from_secs(1000), ..HubConfig::default() };
    let (mut hub, mut talkers, mut game) = with_talkers(1, config);
    run_for(&mut talkers, 20 * TICK);
    game.listen(&mut hub);
    assert_eq!(hub.path(game.came[0].1), None, "the next time is not due");

    let (mut hub, address) = start(4, &Traffic::Payloads, HubConfig::default());
    let (mut clients, mut game) = (connecting(address, 0..1), Game::default());
    until(&mut clients, "it gets in", |_| {
        game.listen(&mut hub);
        hub.connected() == 1
    });
    run_for(&mut clients, 20 * TICK);
    game.listen(&mut hub);
    assert_eq!(hub.path(game.came[0].1), None);
}

#[test]
fn what_a_hub_cannot_carry_is_refused_at_its_start() {
    for (traffic, config, expected) in [
        (Traffic::packets(), HubConfig::default(), "Packets"),
        (Traffic::Payloads, HubConfig { entries: 63, ..HubConfig::default() }, "Config"),
        (channels(), SMALL, "Config"),
    ] {
        let (servers, clock, _) = shards(4, &traffic);
        let refused = Hub::start(servers, clock, TICK, config).map(|_| ()).unwrap_err();
        assert_eq!(format!("{refused:?}"), expected);
    }
    assert!(matches!(Hub::start(Vec::new(), Clock::start(), TICK, SMALL), Err(HubError::NoShard)));
}

#[test]
fn what_was_asked_of_a_shard_right_before_the_stop_is_done() {
    for _ in 0..20 {
        let (mut hub, _) = start(4, &channels(), HubConfig::default());
        let done = Arc::new(AtomicU32::new(0));
        for shard in 0..2 {
            let done = Arc::clone(&done);
            hub.on_shard(ShardId(shard), move |_| _ = done.fetch_add(1, Ordering::Relaxed)).unwrap();
        }
        let ended = hub.stop(|_| {});
        assert_eq!((done.load(Ordering::Relaxed), ended.panicked), (2, None));
    }
}

/// A hub whose news of the one shard with a client lie in a full ring, with ten blocks and a work behind them, and where
/// to see whether that was done.
fn with_full_rings() -> (Hub, Vec<Talker>, ClientHandle, Arc<AtomicU32>) {
    let (mut hub, talkers, game) = with_talkers(1, NARROW);
    let (client, done) = (game.came[0].1, Arc::new(AtomicU32::new(0)));
    let map = block::Block::new(vec![7; 3000]).unwrap();
    let start = Instant::now();
    for label in 0..64 + 10 {
        // Each is told of: it was begun, or has no place.
        while hub.send_block(client, MAP, map.clone(), label).is_err() {
            assert!(start.elapsed() < DEADLINE, "the shard takes none");
            hub.flush();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let is_done = Arc::clone(&done);
    hub.on_shard(client.shard(), move |_| _ = is_done.fetch_add(1, Ordering::Relaxed)).unwrap();
    hub.flush();
    while hub.counts(client.shard()).pauses == 0 {
        assert!(start.elapsed() < DEADLINE, "the ring has room");
        std::thread::sleep(Duration::from_millis(1));
    }
    (hub, talkers, client, done)
}

#[test]
fn what_was_asked_behind_full_rings_right_before_the_stop_is_done_as_the_news_are_taken() {
    let (hub, _talkers, _, done) = with_full_rings();
    let (mut game, mut taken) = (Game::default(), 0);
    let ended = hub.stop(|event| {
        taken += 1;
        // A game that takes its last news slowly, at first.
        std::thread::sleep(Duration::from_millis(if taken < 20 { 20 } else { 0 }));
        if !matches!(event, Event::Channel { .. }) {
            game.note(event);
        }
    });
    assert_eq!((done.load(Ordering::Relaxed), ended.panicked), (1, None));
    assert_eq!(game.begun.len() + game.unsent.len(), 74, "each is told of");
    assert_eq!(game.went, [(0, DisconnectReason::ServerStopped)]);
}

#[test]
fn what_was_asked_and_is_not_done_because_nobody_takes_the_news_is_counted() {
    let (mut hub, _talkers, client, done) = with_full_rings();
    // The other shard's end is the end of this one.
    hub.on_shard(ShardId(1 - client.shard().0), |_| panic!("for the test")).unwrap();
    hub.flush();
    let start = Instant::now();
    while hub.counts(client.shard()).errands_lost == 0 {
        assert!(start.elapsed() < DEADLINE, "it waits for ever");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(start.elapsed() > Duration::from_secs(4), "it waited");
    let mut game = Game::default();
    let lost = hub.counts(client.shard()).errands_lost;
    assert!(hub.stop(|event| game.note(event)).panicked.is_some());
    assert_eq!(done.load(Ordering::Relaxed), 0);
    assert_eq!((game.begun.len() + game.unsent.len()) as u64 + lost, 74 + 1, "each is told of or counted");
}

#[test]
fn what_a_hub_was_given_before_it_is_dropped_is_done() {
    let (mut hub, mut talkers, game) = with_talkers(2, HubConfig::default());
    let [stays, leaves] = [0, 1].map(|player| game.came.iter().find(|(came, _)| *came == player).unwrap().1);
    for number in 1..=10 {
        hub.send_message(stays, CHAT, &words(number)).unwrap();
    }
    hub.kick_with(leaves, ByeCode(300), "no rockets").unwrap();
    let done = Arc::new(AtomicU32::new(0));
    for shard in 0..2 {
        let done = Arc::clone(&done);
        hub.on_shard(ShardId(shard), move |_| _ = done.fetch_add(1, Ordering::Relaxed)).unwrap();
    }
    // Neither flushed nor stopped.
    drop(hub);
    assert_eq!(done.load(Ordering::Relaxed), 2, "its shards have ended");
    until(&mut talkers, "both hear of the end", |talkers| talkers.iter().all(|talker| talker.ended));
    let heard: Vec<_> = talkers[0].heard.iter().map(|words| words[0]).collect();
    assert_eq!(heard, (1..=10).collect::<Vec<_>>());
    assert_eq!(talkers[1].client.farewell(), Some("no rockets"));
}

#[test]
fn what_was_asked_behind_full_rings_is_done_as_the_hub_is_dropped_that_took_no_news() {
    let (hub, _talkers, _, done) = with_full_rings();
    drop(hub);
    assert_eq!(done.load(Ordering::Relaxed), 1);
}

#[test]
fn shards_that_do_not_carry_the_same_do_not_start() {
    let other = Traffic::channels(Layout::new(vec![ChannelConfig::new(Kind::Sequenced)]).unwrap());
    for other in [Traffic::Payloads, other] {
        let (mut servers, clock, _) = shards(4, &channels());
        let last = servers.pop().unwrap().carrying(other).unwrap();
        servers.push(last);
        assert!(matches!(Hub::start(servers, clock, TICK, HubConfig::default()), Err(HubError::Mixed)));
    }
}
