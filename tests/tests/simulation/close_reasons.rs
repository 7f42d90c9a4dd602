//! A server, clients in the same program, and what it tells of them: each thing once, and the end last.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::server::{self as netcode, ClientHandle, DisconnectReason};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::channel::block::{self, Block};
use slipgate_session::channel::control::ByeCode;
use slipgate_session::channel::{ChannelConfig, ChannelEvent, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::reliability::Sink;
use slipgate_session::server::{Event, STOP_TEXT, Server};
use slipgate_session::session::{Config, Connection, End, Memory, SendError, Traffic};
use slipgate_tests::world::{Collected, address};

const CHAT: ChannelId = ChannelId(0);
const BLOCKS: ChannelId = ChannelId(1);

fn layout() -> Arc<Layout> {
    let mut channels = [Kind::ReliableOrdered, Kind::Blocks].map(ChannelConfig::new);
    // By default a server refuses what players upload.
    channels[1].blocks.admission = block::Admission::Automatic;
    Arc::new(Layout::new(channels.to_vec()).unwrap())
}

/// 10 kB in each turn.
fn config() -> Config {
    let mut config = Config::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e6));
    config
}

fn at(time: Duration) -> Now {
    Now { monotonic: Instant::from_start(time), unix: UnixMillis(1_700_000_000_000 + time.as_millis() as u64) }
}

struct World {
    server: Server,
    handle: ClientHandle,
    connection: Connection,
    now: Duration,
}

/// Where the player's payloads leave.
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
        let _ = self.server.loopback_send(self.handle, &self.room[..bytes]);
    }
}

impl World {
    /// A server with one slot, in which a player is.
    fn new() -> Self {
        let now = Duration::from_secs(1000);
        let settings = netcode::Config::new(7, 1, vec![address("10.0.0.1:40000")]);
        let keys = Key::from_bytes([1; 32]).into();
        let netcode = netcode::Server::new(settings, keys, &Seed::from_bytes([2; 32]), at(now)).unwrap();
        let mut server = Server::new(netcode, Traffic::Channels(layout(), config()), Memory::default()).unwrap();
        let handle = server.netcode_mut().connect_loopback(9, [0; 256], at(now)).unwrap();
        let connection = Connection::new(&config(), layout(), None).unwrap();
        let mut world = Self { server, handle, connection, now };
        world.turn();
        world.turn();
        assert!(matches!(world.events()[..], [Event::Connected { client_id: 9, .. }]));
        world
    }

    fn turn(&mut self) {
        self.now += Duration::from_millis(10);
        let now = at(self.now);
        self.hear();
        self.server.tick(now);
        self.server.transmit(now, &mut Collected::default());
        let (mut buffer, mut scratch) = ([0; MAX_PAYLOAD_BYTES], Vec::new());
        while let Some(bytes) = self.server.netcode_mut().loopback_receive(self.handle, &mut buffer) {
            let datagram = &buffer[..bytes];
            if let Ok(Some(mut incoming)) = self.connection.handle(datagram, now.monotonic) {
                while self.connection.next(datagram, &mut incoming, &mut scratch, now.monotonic).is_some() {}
            }
        }
        self.connection.tick(now.monotonic);
        let mut sink =
            ToServer { server: self.server.netcode_mut(), handle: self.handle, room: [0; MAX_PAYLOAD_BYTES] };
        self.connection.transmit(now.monotonic, &mut sink);
    }

    /// The server takes what the player has sent.
    fn hear(&mut self) {
        let (now, mut scratch, mut buffer) = (at(self.now), Vec::new(), [0; MAX_PAYLOAD_BYTES]);
        while let Some((client, bytes)) = self.server.netcode_mut().poll_loopback(&mut buffer) {
            if let Some(mut received) = self.server.handle_loopback(client, &buffer[..bytes], &mut scratch, now) {
                while self.server.next(&buffer[..bytes], &mut received, &mut scratch, now).is_some() {}
            }
        }
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.server.poll_event()).collect()
    }

    /// The player sends a block, of which a part arrives in so many turns.
    fn send_block(&mut self, bytes: usize, turns: u32) {
        let block = Block::new(vec![7; bytes]).unwrap();
        self.connection.channels_mut().send_block(BLOCKS, block, 5).unwrap();
        for _ in 0..turns {
            self.turn();
        }
    }

    fn is_slot_free(&self) -> bool {
        self.server.netcode().client(self.handle).is_none()
    }
}

#[test]
fn a_kick_is_told_now_behind_what_had_arrived_and_the_slot_is_free_when_it_was_heard() {
    let mut world = World::new();
    world.send_block(100_000, 5);
    assert!(world.server.kick(world.handle, ByeCode(300), "enough"));
    let events = world.events();
    assert!(
        matches!(
            &events[..],
            [
                Event::Partial { channel: BLOCKS, .. },
                Event::Disconnected { client_id: 9, reason: DisconnectReason::Kicked, .. }
            ]
        ),
        "{events:?}"
    );
    assert!(!world.is_slot_free() && !world.server.kick(world.handle, ByeCode(300), "again"));
    let gone = world.server.send_message(world.handle, CHAT, b"too late", SendOptions::default(), at(world.now));
    assert_eq!(gone, Err(SendError::Gone));
    assert_eq!((world.server.clients().count(), world.server.budget(world.handle, at(world.now))), (0, None));
    world.turn();
    world.turn();
    assert!(world.is_slot_free());
    world.turn();
    assert!(world.events().is_empty(), "it has been told");
}

#[test]
fn a_kick_that_nobody_hears_frees_the_slot_after_a_second() {
    let mut world = World::new();
    world.server.kick(world.handle, ByeCode::KICKED, "");
    for tenth in 0..=11 {
        assert_eq!(world.is_slot_free(), tenth > 10, "{tenth}");
        world.now += Duration::from_millis(100);
        world.server.tick(at(world.now));
        world.server.transmit(at(world.now), &mut Collected::default());
    }
    assert_eq!(world.events().len(), 1);
}

#[test]
fn a_disconnect_is_told_at_once_with_what_had_arrived() {
    let mut world = World::new();
    world.send_block(100_000, 5);
    assert!(world.server.disconnect(world.handle));
    let events = world.events();
    assert!(
        matches!(events[..], [Event::Partial { .. }, Event::Disconnected { reason: DisconnectReason::Kicked, .. }]),
        "{events:?}"
    );
    assert!(world.server.connection(world.handle).is_none() && !world.server.disconnect(world.handle));
}

#[test]
fn a_block_that_is_whole_is_told_of_before_the_end_although_nobody_asked_between() {
    let mut world = World::new();
    world.send_block(3000, 10);
    world.server.stop();
    let events = world.events();
    assert!(
        matches!(
            &events[..],
            [
                Event::Channel {
                    event: ChannelEvent::Block { event: block::Event::Received { label: 5, .. }, .. },
                    ..
                },
                Event::Disconnected { reason: DisconnectReason::ServerStopped, .. }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn the_answer_to_a_block_that_was_taken_leaves_with_the_next_turn() {
    let mut world = World::new();
    world.send_block(3000, 10);
    assert!(matches!(world.events()[..], [Event::Channel { .. }]));
    world.turn();
    let told = world.connection.poll_event();
    assert!(matches!(told, Some(ChannelEvent::Block { event: block::Event::Delivered { .. }, .. })), "{told:?}");
}

#[test]
fn who_leaves_with_a_word_is_gone_when_that_was_heard_and_the_reason_is_its_own() {
    let mut world = World::new();
    world.connection.leave(ByeCode(256), "good night");
    world.turn();
    world.hear();
    let events = world.events();
    assert!(matches!(events[..], [Event::Disconnected { reason: DisconnectReason::Left, .. }]), "{events:?}");
    world.turn();
    assert!(world.is_slot_free() && world.events().is_empty());
}

#[test]
fn a_player_in_the_same_program_hears_that_its_farewell_was_heard() {
    let mut world = World::new();
    world.connection.leave(ByeCode(256), "good night");
    world.turn();
    assert!(!world.connection.is_over());
    world.turn();
    assert!(world.is_slot_free() && world.connection.is_over(), "at once, and not after a second");
    // What it did not take before somebody else had its slot is still its own.
    assert_eq!(world.server.netcode_mut().loopback_receive(world.handle, &mut [0; MAX_PAYLOAD_BYTES]), None);
}

#[test]
fn a_server_that_stops_says_so_on_channels_and_in_the_same_turn_frees_every_slot() {
    let mut world = World::new();
    world.server.stop();
    let events = world.events();
    assert!(matches!(events[..], [Event::Disconnected { reason: DisconnectReason::ServerStopped, .. }]), "{events:?}");
    let refused = world.server.send_message(world.handle, CHAT, b"late", SendOptions::default(), at(world.now));
    assert_eq!(refused, Err(SendError::Gone));
    world.turn();
    assert!(world.is_slot_free() && world.events().is_empty(), "it has been told");
    let heard = End::Farewell { code: ByeCode::SHUTDOWN, text: STOP_TEXT.to_owned() };
    assert_eq!(world.connection.end(), Some(&heard));
    assert!(world.connection.is_over(), "nobody is there to be told that it was heard");
}

#[test]
fn a_server_stops_with_words_of_its_own() {
    let mut world = World::new();
    assert_eq!(world.server.clients().collect::<Vec<_>>(), [world.handle]);
    world.server.stop_with("we move to another house");
    world.turn();
    let heard = End::Farewell { code: ByeCode::SHUTDOWN, text: "we move to another house".to_owned() };
    assert_eq!(world.connection.end(), Some(&heard));
}

#[test]
fn what_a_gone_client_sent_reaches_nobody_in_its_slot() {
    let mut world = World::new();
    let old = world.handle;
    world.server.disconnect(old);
    world.turn();
    let new = world.server.netcode_mut().connect_loopback(10, [0; 256], at(world.now)).unwrap();
    world.server.tick(at(world.now));
    assert_eq!(new.slot(), old.slot());
    // As a payload it would end the new client's connection: it is no packet of a session.
    let taken = world.server.handle_loopback(old, &[1; 40], &mut Vec::new(), at(world.now));
    assert!(taken.is_none() && world.server.connection(new).is_some_and(|connection| connection.end().is_none()));
}
