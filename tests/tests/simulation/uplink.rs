//! One server, many clients in the same program, and an uplink that they share.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::server::{self as netcode, ClientHandle};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::channel::{Arrival, ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{Algorithm, BytesPerSecond, Weight};
use slipgate_session::reliability::Sink;
use slipgate_session::server::Server;
use slipgate_session::session::{Config, Connection, Memory, Traffic};
use slipgate_sim::Conditions;
use slipgate_tests::hall::{Hall, TURN};
use slipgate_tests::world::{Collected, address};

const TICK: Duration = Duration::from_micros(16_667);
const STATE: ChannelId = ChannelId(0);
const BULK: ChannelId = ChannelId(1);
/// What a state of 200 bytes costs on the path, with every header.
const STATE_ON_PATH: u64 = 280;

fn layout() -> Arc<Layout> {
    let state = ChannelConfig { priority: 2, ..ChannelConfig::new(Kind::Sequenced) };
    let bulk =
        ChannelConfig { queue_bytes: 1 << 20, queue_messages: 4096, ..ChannelConfig::new(Kind::ReliableOrdered) };
    Arc::new(Layout::new(vec![state, bulk]).unwrap())
}

/// A path that carries everything: what is shared here is the uplink.
fn config() -> Config {
    let mut config = Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e8));
    config
}

/// A client in the same program, and what it heard.
struct Player {
    handle: ClientHandle,
    connection: Connection,
    states: u32,
    bulk: u32,
    bytes: u64,
}

struct World {
    server: Server,
    players: Vec<Player>,
    now: Duration,
}

/// Where a player's payloads leave.
struct ToServer<'a> {
    server: &'a mut netcode::Server,
    handle: ClientHandle,
    room: [u8; MAX_PAYLOAD_BYTES],
}

impl Sink for ToServer<'_> {
    fn rooms(&self) -> usize {
        usize::MAX
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn commit(&mut self, bytes: usize) {
        self.server.loopback_send(self.handle, &self.room[..bytes]).unwrap();
    }
}

impl World {
    fn new(players: u64, uplink: Option<BytesPerSecond>) -> Self {
        let now = Duration::from_secs(1000);
        let settings = netcode::Config::new(7, players as u32, vec![address("10.0.0.1:40000")]);
        let keys = Key::from_bytes([1; 32]).into();
        let netcode = netcode::Server::new(settings, keys, &Seed::from_bytes([2; 32]), at(now)).unwrap();
        let traffic = Traffic::Channels(layout(), config());
        let mut server = Server::new(netcode, traffic, Memory::default()).unwrap();
        server.set_uplink(uplink);
        let handles: Vec<ClientHandle> =
            (0..players).map(|id| server.netcode_mut().connect_loopback(id, [0; 256], at(now)).unwrap()).collect();
        let player = |handle| Player {
            handle,
            connection: Connection::new(&config(), layout(), None).unwrap(),
            states: 0,
            bulk: 0,
            bytes: 0,
        };
        Self { server, players: handles.into_iter().map(player).collect(), now }
    }

    /// A turn: every player is sent a state, what waits leaves, and the players hear and answer.
    fn turn(&mut self) {
        self.now += TICK;
        let (now, mut scratch, mut buffer) = (at(self.now), Vec::new(), [0; MAX_PAYLOAD_BYTES]);
        while let Some((client, bytes)) = self.server.netcode_mut().poll_loopback(&mut buffer) {
            if let Some(mut received) = self.server.handle_loopback(client, &buffer[..bytes], &mut scratch, now) {
                while self.server.next(&buffer[..bytes], &mut received, &mut scratch, now).is_some() {}
            }
        }
        while self.server.poll_event().is_some() {}
        for player in &self.players {
            let sent = self.server.send_message(player.handle, STATE, &[1; 200], SendOptions::default(), now);
            assert!(sent.is_ok() || self.now < Duration::from_secs(1001), "{sent:?}");
        }
        self.server.tick(now);
        self.server.transmit(now, &mut Collected::default());
        for player in &mut self.players {
            while let Some(bytes) = self.server.netcode_mut().loopback_receive(player.handle, &mut buffer) {
                player.hear(&buffer[..bytes], now.monotonic);
            }
            player.connection.tick(now.monotonic);
            let mut sink =
                ToServer { server: self.server.netcode_mut(), handle: player.handle, room: [0; MAX_PAYLOAD_BYTES] };
            player.connection.transmit(now.monotonic, &mut sink);
        }
    }

    /// Fills a player's bulk channel.
    fn fill(&mut self, player: usize) {
        let (handle, now) = (self.players[player].handle, at(self.now));
        while self.server.send_message(handle, BULK, &[2; 1000], SendOptions::default(), now).is_ok() {}
    }

    /// What every player heard in so many turns: states, bulk messages, bytes.
    fn heard_in(&mut self, turns: u32, mut each: impl FnMut(&mut Self)) -> Vec<(u32, u32, u64)> {
        for player in &mut self.players {
            (player.states, player.bulk, player.bytes) = (0, 0, 0);
        }
        for _ in 0..turns {
            each(self);
            self.turn();
        }
        self.players.iter().map(|player| (player.states, player.bulk, player.bytes)).collect()
    }
}

impl Player {
    fn hear(&mut self, payload: &[u8], now: Instant) {
        self.bytes += payload.len() as u64 + 49;
        let Ok(Some(mut incoming)) = self.connection.handle(payload, now) else { return };
        let mut scratch = Vec::new();
        while let Some(Arrival::Message { channel, .. }) =
            self.connection.next(payload, &mut incoming, &mut scratch, now)
        {
            *(if channel == STATE { &mut self.states } else { &mut self.bulk }) += 1;
        }
    }
}

fn at(now: Duration) -> Now {
    Now { monotonic: Instant::from_start(now), unix: UnixMillis(1_700_000_000_000 + now.as_millis() as u64) }
}

#[test]
fn one_clients_catching_up_delays_nobody_elses_state() {
    // Room for every state, and as much again.
    let rate = BytesPerSecond(2.0 * 20.0 * STATE_ON_PATH as f64 / TICK.as_secs_f64());
    let mut world = World::new(20, Some(rate));
    world.heard_in(60, |_| {});
    let heard = world.heard_in(300, |world| world.fill(3));
    for (player, (states, ..)) in heard.iter().enumerate() {
        assert!(*states >= 295, "player {player} heard {states} of 300 states");
    }
    let bytes: u64 = heard.iter().map(|(.., bytes)| bytes).sum();
    let limit = rate.0 * TICK.as_secs_f64() * 300.0;
    assert!(bytes as f64 <= 1.03 * limit, "{bytes} bytes of {limit} left");
    assert!(heard[3].1 > 500, "what others do not need is lent: {} bulk messages", heard[3].1);
}

#[test]
fn an_uplink_that_is_too_narrow_is_shared_by_weight() {
    let mut world = World::new(4, Some(BytesPerSecond(400_000.0)));
    let heavy = world.players[0].handle;
    world.turn();
    assert!(world.server.set_weight(heavy, Weight(3)));
    world.heard_in(60, |world| (0..4).for_each(|player| world.fill(player)));
    let heard = world.heard_in(300, |world| (0..4).for_each(|player| world.fill(player)));
    let bytes: Vec<f64> = heard.iter().map(|(.., bytes)| *bytes as f64).collect();
    let total: f64 = bytes.iter().sum();
    for (player, share) in [(0, 0.5), (1, 1.0 / 6.0), (2, 1.0 / 6.0), (3, 1.0 / 6.0)] {
        let got = bytes[player] / total;
        assert!((got - share).abs() < 0.03, "player {player} got {got} of the uplink, not {share}");
    }
}

#[test]
fn weights_are_kept_while_the_uplink_has_no_limit() {
    let mut world = World::new(4, Some(BytesPerSecond(400_000.0)));
    let [early, late] = [world.players[0].handle, world.players[1].handle];
    world.turn();
    assert!(world.server.set_weight(early, Weight(3)));
    world.server.set_uplink(None);
    world.turn();
    assert!(world.server.set_weight(late, Weight(2)), "it counts when there is a limit");
    world.server.set_uplink(Some(BytesPerSecond(400_000.0)));
    world.heard_in(60, |world| (0..4).for_each(|player| world.fill(player)));
    let heard = world.heard_in(300, |world| (0..4).for_each(|player| world.fill(player)));
    let total: u64 = heard.iter().map(|(.., bytes)| bytes).sum();
    for (player, weight) in [3.0, 2.0, 1.0, 1.0].into_iter().enumerate() {
        let (got, share) = (heard[player].2 as f64 / total as f64, weight / 7.0);
        assert!((got - share).abs() < 0.03, "player {player} got {got} of the uplink, not {share}");
    }
}

#[test]
fn a_game_is_told_its_share_of_the_uplink_before_it_composes_a_tick() {
    let mut world = World::new(20, Some(BytesPerSecond(20.0 * 60.0 * 500.0)));
    world.heard_in(60, |world| (0..20).for_each(|player| world.fill(player)));
    let handle = world.players[5].handle;
    let told = world.server.budget(handle, at(world.now)).unwrap();
    assert!((300..=600).contains(&told.bytes), "500 bytes on the path for each, and {told:?}");
    assert!(told.suggestion.payload_bytes as usize <= told.bytes);
    world.server.set_uplink(None);
    assert!(world.server.budget(handle, at(world.now)).unwrap().bytes > 10_000, "then the path alone counts");
}

#[test]
fn without_a_limit_everything_leaves_that_paths_carry() {
    let mut world = World::new(3, None);
    world.heard_in(60, |_| {});
    let heard = world.heard_in(60, |world| world.fill(0));
    assert!(heard[0].1 > 5000, "{heard:?}");
    assert!(heard.iter().all(|(states, ..)| *states == 60), "{heard:?}");
}

/// Turns in which one player is sent so many payloads of 1,150 bytes, 1,199 on the path, and another what its bulk channel
/// takes. Answers the bytes of bulk that were heard.
fn bulk_beside(hall: &mut Hall, turns: u32, payloads: u32) -> usize {
    let (bulk, plain) = (hall.handle(1).unwrap(), hall.handle(2).unwrap());
    hall.player(1).messages.clear();
    for _ in 0..turns {
        let mut outbox = Collected::default();
        for _ in 0..payloads {
            hall.server.send_payload(plain, &[1; 1150], hall.now(), &mut outbox).unwrap();
        }
        while hall.tell(bulk, BULK, &[2; 1000]).is_ok() {}
        hall.turn();
    }
    hall.player(1).messages.iter().map(|(_, message)| message.len()).sum()
}

#[test]
fn payloads_cannot_wait_and_messages_share_what_they_leave_of_the_uplink() {
    let mut hall = Hall::new(2, &layout(), &config(), Memory::default());
    hall.join(Conditions::default());
    hall.traffic = Traffic::Payloads;
    hall.server.set_traffic(Traffic::Payloads).unwrap();
    hall.join(Conditions::default());
    // Two payloads a turn are half of it.
    hall.server.set_uplink(Some(BytesPerSecond(4.0 * 1199.0 / TURN.as_secs_f64())));
    bulk_beside(&mut hall, 60, 0);
    let alone = bulk_beside(&mut hall, 300, 0);
    let all = 300.0 * 4.0 * 1199.0;
    assert!((0.85..1.0).contains(&(alone as f64 / all)), "{alone} of {all} bytes");
    bulk_beside(&mut hall, 60, 2);
    let beside = bulk_beside(&mut hall, 300, 2) as f64 / alone as f64;
    assert!((0.47..0.53).contains(&beside), "{beside} of the messages");
    bulk_beside(&mut hall, 60, 20);
    assert_eq!(bulk_beside(&mut hall, 60, 20), 0, "payloads fill more than the uplink");
    let afterwards = bulk_beside(&mut hall, 60, 0) as f64 / alone as f64 * 5.0;
    assert!((0.85..1.0).contains(&afterwards), "what was too much is soon forgotten: {afterwards}");
}
