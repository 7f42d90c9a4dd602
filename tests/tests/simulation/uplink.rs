//! One server, many clients in the same process, and an uplink that they share.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::server::{self as netcode, ClientHandle};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::connection::{ChannelMessage, Connection, ConnectionConfig, Memory, Role, Traffic, WorkLimits};
use slipgate_session::server::SessionServer;
use slipgate_session::server::scheduling::Weight;
use slipgate_sim::Conditions;
use slipgate_tests::netcode_world::{VecOutbox, address};
use slipgate_tests::session_world::{SessionWorld, TURN};
use slipgate_tests::sinks::ToServer;

const TICK: Duration = Duration::from_micros(16_667);
const STATE: ChannelId = ChannelId(0);
const BULK: ChannelId = ChannelId(1);
/// The cost of a state of 200 bytes on the path, with all headers.
const STATE_ON_PATH: u64 = 280;

fn layout() -> Arc<Layout> {
    let state = ChannelConfig { priority: 2, ..ChannelConfig::from(Kind::Sequenced) };
    let bulk =
        ChannelConfig { queue_bytes: 1 << 20, queue_messages: 4096, ..ChannelConfig::from(Kind::ReliableOrdered) };
    Arc::new(Layout::try_from(vec![state, bulk]).unwrap())
}

/// Returns a path without limits: only the uplink is shared here.
fn config() -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e8));
    config
}

/// A client in the same process, and what it received.
struct Player {
    handle: ClientHandle,
    connection: Connection,
    states: u32,
    bulk: u32,
    bytes: u64,
}

struct World {
    server: SessionServer,
    players: Vec<Player>,
    now: Duration,
}

impl World {
    fn new(players: u64, uplink: Option<BytesPerSecond>) -> Self {
        let now = Duration::from_secs(1000);
        let settings = netcode::ServerConfig::new(7, players as u32, &[address("10.0.0.1:40000").socket_addr()]);
        let keys = Key::from([1; 32]).into();
        let netcode = netcode::NetcodeServer::new(settings, keys, &Seed::from([2; 32]), instant_now(now)).unwrap();
        let traffic = Traffic::Channels(layout(), config());
        let mut server = SessionServer::new(netcode, traffic, Memory::default()).unwrap();
        server.set_uplink(uplink);
        let handles: Vec<ClientHandle> =
            (0..players).map(|id| server.netcode.connect_loopback(id, [0; 256], instant_now(now)).unwrap()).collect();
        let player = |handle| Player {
            handle,
            // It reads a whole turn at once, without a time in the socket by which its budget of work would grow.
            connection: Connection::new(
                &ConnectionConfig { work: WorkLimits::UNLIMITED, ..config() },
                layout(),
                Role::Client,
                None,
            )
            .unwrap(),
            states: 0,
            bulk: 0,
            bytes: 0,
        };
        Self { server, players: handles.into_iter().map(player).collect(), now }
    }

    /// Runs a turn: sends a state to every player, sends pending data, and lets the players receive and reply.
    fn turn(&mut self) {
        self.now += TICK;
        let (now, mut scratch, mut buffer) = (instant_now(self.now), Vec::new(), [0; MAX_PAYLOAD_BYTES]);
        while let Some((client, bytes)) = self.server.netcode.poll_loopback(&mut buffer) {
            if let Some(mut received) = self.server.handle_loopback(client, &buffer[..bytes], &mut scratch, now) {
                while self.server.next_message(&buffer[..bytes], &mut received, &mut scratch, now).is_some() {}
            }
        }
        while self.server.poll_event().is_some() {}
        for player in &self.players {
            // The first turn comes before the sessions of the players.
            let connection = self.server.connection_mut(player.handle);
            let sent = connection
                .and_then(|connection| connection.send(STATE, &[1; 200], SendOptions::default(), now.monotonic));
            assert!(sent.is_ok() || self.now < Duration::from_secs(1001), "{sent:?}");
        }
        self.server.tick(now);
        self.server.transmit(now, &mut VecOutbox::default());
        for player in &mut self.players {
            while let Some(bytes) = self.server.netcode.loopback_receive(player.handle, &mut buffer) {
                player.receive(&buffer[..bytes], now.monotonic);
            }
            player.connection.tick(now.monotonic);
            let mut sink = ToServer::new(&mut self.server.netcode, player.handle);
            player.connection.transmit(now.monotonic, &mut sink);
        }
    }

    /// Fills the bulk channel of a player.
    fn fill(&mut self, player: usize) {
        let (handle, now) = (self.players[player].handle, instant_now(self.now));
        let mut send = || {
            let connection = self.server.connection_mut(handle);
            connection.and_then(|connection| connection.send(BULK, &[2; 1000], SendOptions::default(), now.monotonic))
        };
        while send().is_ok() {}
    }

    /// Returns what every player received in this number of turns: states, bulk messages, bytes.
    fn received_in(&mut self, turns: u32, mut each: impl FnMut(&mut Self)) -> Vec<(u32, u32, u64)> {
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
    fn receive(&mut self, payload: &[u8], now: Instant) {
        self.bytes += payload.len() as u64 + 49;
        let Ok(Some(mut incoming)) = self.connection.handle(payload, Duration::ZERO, now) else { return };
        let mut scratch = Vec::new();
        while let Some(ChannelMessage { channel, .. }) =
            self.connection.next_message(payload, &mut incoming, &mut scratch, now)
        {
            *(if channel == STATE { &mut self.states } else { &mut self.bulk }) += 1;
        }
    }
}

fn instant_now(now: Duration) -> Now {
    Now { monotonic: Instant::from_start(now), unix: UnixMillis(1_700_000_000_000 + now.as_millis() as u64) }
}

#[test]
fn catching_up_client_does_not_delay_state_of_others() {
    // Capacity for every state, and as much again.
    let rate = BytesPerSecond(2.0 * 20.0 * STATE_ON_PATH as f64 / TICK.as_secs_f64());
    let mut world = World::new(20, Some(rate));
    world.received_in(60, |_| {});
    let received = world.received_in(300, |world| world.fill(3));
    for (player, (states, ..)) in received.iter().enumerate() {
        assert!(*states >= 295, "player {player} received {states} of 300 states");
    }
    let bytes: u64 = received.iter().map(|(.., bytes)| bytes).sum();
    let limit = rate.0 * TICK.as_secs_f64() * 300.0;
    assert!(bytes as f64 <= 1.03 * limit, "{bytes} bytes of {limit} were sent");
    assert!(received[3].1 > 500, "unused shares are lent: {} bulk messages", received[3].1);
}

#[test]
fn narrow_uplink_is_shared_by_weight() {
    let mut world = World::new(4, Some(BytesPerSecond(400_000.0)));
    let heavy = world.players[0].handle;
    world.turn();
    assert_eq!(world.server.set_weight(heavy, Weight(3)), Ok(()));
    world.received_in(60, |world| (0..4).for_each(|player| world.fill(player)));
    let received = world.received_in(300, |world| (0..4).for_each(|player| world.fill(player)));
    let bytes: Vec<f64> = received.iter().map(|(.., bytes)| *bytes as f64).collect();
    let total: f64 = bytes.iter().sum();
    for (player, share) in [(0, 0.5), (1, 1.0 / 6.0), (2, 1.0 / 6.0), (3, 1.0 / 6.0)] {
        let got = bytes[player] / total;
        assert!((got - share).abs() < 0.03, "player {player} got {got} of the uplink instead of {share}");
    }
}

#[test]
fn weights_persist_while_the_uplink_is_unlimited() {
    let mut world = World::new(4, Some(BytesPerSecond(400_000.0)));
    let [early, late] = [world.players[0].handle, world.players[1].handle];
    world.turn();
    assert_eq!(world.server.set_weight(early, Weight(3)), Ok(()));
    world.server.set_uplink(None);
    world.turn();
    assert_eq!(world.server.set_weight(late, Weight(2)), Ok(()), "it has an effect once there is a limit");
    world.server.set_uplink(Some(BytesPerSecond(400_000.0)));
    world.received_in(60, |world| (0..4).for_each(|player| world.fill(player)));
    let received = world.received_in(300, |world| (0..4).for_each(|player| world.fill(player)));
    let total: u64 = received.iter().map(|(.., bytes)| bytes).sum();
    for (player, weight) in [3.0, 2.0, 1.0, 1.0].into_iter().enumerate() {
        let (got, share) = (received[player].2 as f64 / total as f64, weight / 7.0);
        assert!((got - share).abs() < 0.03, "player {player} got {got} of the uplink instead of {share}");
    }
}

#[test]
fn uplink_share_is_available_before_each_tick() {
    let mut world = World::new(20, Some(BytesPerSecond(20.0 * 60.0 * 500.0)));
    world.received_in(60, |world| (0..20).for_each(|player| world.fill(player)));
    let handle = world.players[5].handle;
    let budget = world.server.budget(handle, instant_now(world.now)).unwrap();
    assert!((300..=600).contains(&budget.bytes), "500 bytes on the path for each, and {budget:?}");
    assert!(budget.suggestion.payload_bytes as usize <= budget.bytes);
    world.server.set_uplink(None);
    assert!(
        world.server.budget(handle, instant_now(world.now)).unwrap().bytes > 10_000,
        "then only the path limits it"
    );
}

#[test]
fn unlimited_uplink_sends_all_that_paths_carry() {
    let mut world = World::new(3, None);
    world.received_in(60, |_| {});
    let received = world.received_in(60, |world| world.fill(0));
    assert!(received[0].1 > 5000, "{received:?}");
    assert!(received.iter().all(|(states, ..)| *states == 60), "{received:?}");
}

/// Runs turns in which one player is sent this number of payloads of 1,150 bytes, 1,199 on the path, and another one as
/// much as its bulk channel takes. Returns the bytes of bulk that arrived.
fn bulk_beside(world: &mut SessionWorld, turns: u32, payloads: u32) -> usize {
    let (bulk, plain) = (world.handle(1).unwrap(), world.handle(2).unwrap());
    world.player(1).messages.clear();
    for _ in 0..turns {
        let mut outbox = VecOutbox::default();
        for _ in 0..payloads {
            world.server.send_payload(plain, &[1; 1150], world.now(), &mut outbox).unwrap();
        }
        while world.send_to_client(bulk, BULK, &[2; 1000]).is_ok() {}
        world.turn();
    }
    world.player(1).messages.iter().map(|(_, message)| message.len()).sum()
}

#[test]
fn messages_share_the_uplink_that_payloads_leave() {
    let mut world = SessionWorld::new(2, &layout(), &config(), Memory::default());
    world.join(Conditions::default());
    world.traffic = Traffic::Payloads;
    world.server.set_traffic(Traffic::Payloads).unwrap();
    world.join(Conditions::default());
    // Two payloads per turn are half of it.
    world.server.set_uplink(Some(BytesPerSecond(4.0 * 1199.0 / TURN.as_secs_f64())));
    bulk_beside(&mut world, 60, 0);
    let alone = bulk_beside(&mut world, 300, 0);
    let all = 300.0 * 4.0 * 1199.0;
    assert!((0.85..1.0).contains(&(alone as f64 / all)), "{alone} of {all} bytes");
    bulk_beside(&mut world, 60, 2);
    let beside = bulk_beside(&mut world, 300, 2) as f64 / alone as f64;
    assert!((0.47..0.53).contains(&beside), "{beside} of the messages");
    bulk_beside(&mut world, 60, 20);
    assert_eq!(bulk_beside(&mut world, 60, 20), 0, "the payloads exceed the uplink");
    let afterwards = bulk_beside(&mut world, 60, 0) as f64 / alone as f64 * 5.0;
    assert!((0.85..1.0).contains(&afterwards), "the excess is soon forgotten: {afterwards}");
}
