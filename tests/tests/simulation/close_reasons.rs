//! A server and clients in the same process: each event is reported once, and the end last.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::{self as netcode, ClientHandle};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::channel::transfer::{self, Transfer};
use slipgate_session::channel::{ChannelConfig, ChannelEvent, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::connection::CloseCode;
use slipgate_session::connection::{
    CloseKind, CloseReason, ClosedBy, Connection, ConnectionConfig, Memory, Role, SendError, Traffic,
};
use slipgate_session::reliability::Sink;
use slipgate_session::server::{STOP_TEXT, SessionEvent, SessionServer, StopMode};
use slipgate_tests::netcode_world::{VecOutbox, address};

const CHAT: ChannelId = ChannelId(0);
const TRANSFERS: ChannelId = ChannelId(1);

fn layout() -> Arc<Layout> {
    let mut channels = [Kind::ReliableOrdered, Kind::Transfers].map(ChannelConfig::from);
    // A server refuses uploads of players by default.
    channels[1].transfers.admission = transfer::TransferAdmission::Automatic;
    Arc::new(Layout::try_from(channels.to_vec()).unwrap())
}

/// 10 kB per turn.
fn config() -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e6));
    config
}

fn at(time: Duration) -> Now {
    Now { monotonic: Instant::from_start(time), unix: UnixMillis(1_700_000_000_000 + time.as_millis() as u64) }
}

struct World {
    server: SessionServer,
    handle: ClientHandle,
    connection: Connection,
    now: Duration,
}

/// The sink for the payloads of the player.
struct ToServer<'a> {
    server: &'a mut netcode::NetcodeServer,
    handle: ClientHandle,
    buf: [u8; MAX_PAYLOAD_BYTES],
}

impl Sink for ToServer<'_> {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        let _ = self.server.loopback_send(self.handle, &self.buf[..bytes]);
    }
}

impl World {
    /// Creates a server with one slot, and a player in it.
    fn new() -> Self {
        let now = Duration::from_secs(1000);
        let settings = netcode::ServerConfig::new(7, 1, &[address("10.0.0.1:40000").socket_addr()]);
        let keys = Key::from([1; 32]).into();
        let netcode = netcode::NetcodeServer::new(settings, keys, &Seed::from([2; 32]), at(now)).unwrap();
        let mut server = SessionServer::new(netcode, Traffic::Channels(layout(), config()), Memory::default()).unwrap();
        let handle = server.netcode.connect_loopback(9, [0; 256], at(now)).unwrap();
        let connection = Connection::new(&config(), layout(), Role::Client, None).unwrap();
        let mut world = Self { server, handle, connection, now };
        world.turn();
        world.turn();
        assert!(matches!(world.events()[..], [SessionEvent::Connected { client_id: ClientId(9), .. }]));
        world
    }

    fn turn(&mut self) {
        self.now += Duration::from_millis(10);
        let now = at(self.now);
        self.receive();
        self.server.tick(now);
        self.server.transmit(now, &mut VecOutbox::default());
        let (mut buffer, mut scratch) = ([0; MAX_PAYLOAD_BYTES], Vec::new());
        while let Some(bytes) = self.server.netcode.loopback_receive(self.handle, &mut buffer) {
            let datagram = &buffer[..bytes];
            if let Ok(Some(mut incoming)) = self.connection.handle(datagram, Duration::ZERO, now.monotonic) {
                while self.connection.next_message(datagram, &mut incoming, &mut scratch, now.monotonic).is_some() {}
            }
        }
        self.connection.tick(now.monotonic);
        let mut sink = ToServer { server: &mut self.server.netcode, handle: self.handle, buf: [0; MAX_PAYLOAD_BYTES] };
        self.connection.transmit(now.monotonic, &mut sink);
    }

    /// Delivers the packets of the player to the server.
    fn receive(&mut self) {
        let (now, mut scratch, mut buffer) = (at(self.now), Vec::new(), [0; MAX_PAYLOAD_BYTES]);
        while let Some((client, bytes)) = self.server.netcode.poll_loopback(&mut buffer) {
            if let Some(mut received) = self.server.handle_loopback(client, &buffer[..bytes], &mut scratch, now) {
                while self.server.next_message(&buffer[..bytes], &mut received, &mut scratch, now).is_some() {}
            }
        }
    }

    fn events(&mut self) -> Vec<SessionEvent> {
        std::iter::from_fn(|| self.server.poll_event()).collect()
    }

    /// Sends a transfer of the player, of which a part arrives within `turns` turns.
    fn send_transfer(&mut self, bytes: usize, turns: u32) {
        let transfer = Transfer::new(vec![7; bytes]).unwrap();
        self.connection.channels.send_transfer(TRANSFERS, transfer, 5).unwrap();
        for _ in 0..turns {
            self.turn();
        }
    }

    fn is_slot_free(&self) -> bool {
        self.server.netcode.client(self.handle).is_none()
    }
}

/// Returns the reason at a client after its server stopped with this text.
fn stopped(text: &str) -> CloseReason {
    let code = Some(CloseCode::SHUTDOWN);
    CloseReason { by: ClosedBy::Remote, kind: CloseKind::ServerStopped, code, text: text.to_owned() }
}

#[test]
fn end_has_the_bytes_round_trip_and_loss_of_the_connection() {
    let mut world = World::new();
    world.send_transfer(100_000, 30);
    world.server.kick(world.handle, CloseCode(300), "enough").unwrap();
    let totals = world.events().into_iter().find_map(|event| match event {
        SessionEvent::Disconnected { totals, .. } => Some(totals),
        _ => None,
    });
    let totals = totals.unwrap();
    assert!((100_000..120_000).contains(&totals.bytes_received), "{totals:?}");
    assert!((1..20_000).contains(&totals.bytes_sent), "{totals:?}");
    assert!(totals.round_trip.is_some_and(|time| time < Duration::from_millis(50)), "{totals:?}");
    assert_eq!(totals.loss, Some(0.0));
}

#[test]
fn kick_is_reported_at_once_and_frees_the_slot_when_acked() {
    let mut world = World::new();
    world.send_transfer(100_000, 5);
    assert_eq!(world.server.kick(world.handle, CloseCode(300), "enough"), Ok(()));
    let events = world.events();
    assert!(
        matches!(
            &events[..],
            [
                SessionEvent::Partial { channel: TRANSFERS, .. },
                SessionEvent::Disconnected {
                    client_id: ClientId(9),
                    reason: CloseReason { kind: CloseKind::Kicked, .. },
                    ..
                }
            ]
        ),
        "{events:?}"
    );
    assert!(!world.is_slot_free());
    assert_eq!(world.server.kick(world.handle, CloseCode(300), "again"), Err(SendError::Gone));
    let gone = world
        .server
        .connection_mut(world.handle)
        .and_then(|connection| connection.send(CHAT, b"too late", SendOptions::default(), at(world.now).monotonic));
    assert_eq!(gone, Err(SendError::Gone));
    assert_eq!((world.server.clients().count(), world.server.budget(world.handle, at(world.now))), (0, None));
    world.turn();
    world.turn();
    assert!(world.is_slot_free());
    world.turn();
    assert!(world.events().is_empty(), "it was reported already");
}

#[test]
fn unacknowledged_kick_frees_the_slot_after_one_second() {
    let mut world = World::new();
    world.server.kick(world.handle, CloseCode::KICKED, "").unwrap();
    for tenth in 0..=11 {
        assert_eq!(world.is_slot_free(), tenth > 10, "{tenth}");
        world.now += Duration::from_millis(100);
        world.server.tick(at(world.now));
        world.server.transmit(at(world.now), &mut VecOutbox::default());
    }
    assert_eq!(world.events().len(), 1);
}

#[test]
fn disconnect_is_reported_at_once_after_pending_messages() {
    let mut world = World::new();
    world.send_transfer(100_000, 5);
    assert_eq!(world.server.disconnect(world.handle), Ok(()));
    let events = world.events();
    assert!(
        matches!(
            events[..],
            [
                SessionEvent::Partial { .. },
                SessionEvent::Disconnected { reason: CloseReason { kind: CloseKind::Kicked, .. }, .. }
            ]
        ),
        "{events:?}"
    );
    assert!(world.server.connection(world.handle).is_none());
    assert_eq!(world.server.disconnect(world.handle), Err(SendError::Gone));
}

#[test]
fn completed_transfer_is_reported_before_the_disconnect() {
    let mut world = World::new();
    world.send_transfer(3000, 10);
    world.server.stop("", StopMode::Repeat);
    let events = world.events();
    assert!(
        matches!(
            &events[..],
            [
                SessionEvent::Channel {
                    event: ChannelEvent::Transfer { event: transfer::TransferEvent::Received { label: 5, .. }, .. },
                    ..
                },
                SessionEvent::Disconnected { reason: CloseReason { kind: CloseKind::ServerStopped, .. }, .. }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn kicked_client_has_no_further_channel_events() {
    let mut world = World::new();
    world.send_transfer(3000, 10);
    world.server.kick(world.handle, CloseCode(300), "enough").unwrap();
    let events = world.events();
    assert!(matches!(events[..], [.., SessionEvent::Disconnected { .. }]), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, SessionEvent::Channel { .. })), "{events:?}");
}

#[test]
fn acceptance_of_a_transfer_is_sent_next_turn() {
    let mut world = World::new();
    world.send_transfer(3000, 10);
    assert!(matches!(world.events()[..], [SessionEvent::Channel { .. }]));
    world.turn();
    let event = world.connection.channels.poll_event();
    assert!(
        matches!(event, Some(ChannelEvent::Transfer { event: transfer::TransferEvent::Delivered { .. }, .. })),
        "{event:?}"
    );
}

#[test]
fn leaving_client_disconnects_when_its_reason_is_acked() {
    let mut world = World::new();
    world.connection.close(CloseCode(256), "good night");
    world.turn();
    world.receive();
    let events = world.events();
    assert!(
        matches!(events[..], [SessionEvent::Disconnected { reason: CloseReason { kind: CloseKind::Left, .. }, .. }]),
        "{events:?}"
    );
    world.turn();
    assert!(world.is_slot_free() && world.events().is_empty());
}

#[test]
fn in_process_client_sees_its_close_reason_acked() {
    let mut world = World::new();
    world.connection.close(CloseCode(256), "good night");
    world.turn();
    assert!(!world.connection.is_closed());
    world.turn();
    assert!(world.is_slot_free() && world.connection.is_closed(), "at once, not after a second");
    // Payloads that it did not read before its slot was reused are still its own.
    assert_eq!(world.server.netcode.loopback_receive(world.handle, &mut [0; MAX_PAYLOAD_BYTES]), None);
}

#[test]
fn stopping_server_sends_its_reason_and_frees_all_slots() {
    let mut world = World::new();
    world.server.stop("", StopMode::Repeat);
    let events = world.events();
    assert!(
        matches!(
            events[..],
            [SessionEvent::Disconnected { reason: CloseReason { kind: CloseKind::ServerStopped, .. }, .. }]
        ),
        "{events:?}"
    );
    let refused = world
        .server
        .connection_mut(world.handle)
        .and_then(|connection| connection.send(CHAT, b"late", SendOptions::default(), at(world.now).monotonic));
    assert_eq!(refused, Err(SendError::Gone));
    world.turn();
    world.turn();
    assert!(world.is_slot_free() && world.events().is_empty(), "it was reported already");
    assert_eq!(world.connection.close_reason(), Some(&stopped(STOP_TEXT)));
    assert!(world.connection.is_closed(), "no peer is left to acknowledge it");
}

#[test]
fn finished_server_frees_all_slots_at_once() {
    let mut world = World::new();
    world.server.stop("", StopMode::AtOnce);
    assert_eq!(world.events().len(), 1);
    world.turn();
    assert!(world.is_slot_free());
    assert_eq!(world.connection.close_reason(), Some(&stopped(STOP_TEXT)));
}

#[test]
fn server_can_stop_with_a_custom_reason() {
    let mut world = World::new();
    assert_eq!(world.server.clients().collect::<Vec<_>>(), [world.handle]);
    world.server.stop("the server moves to another address", StopMode::Repeat);
    world.turn();
    assert_eq!(world.connection.close_reason(), Some(&stopped("the server moves to another address")));
}

#[test]
fn late_packets_of_a_gone_client_do_not_reach_the_next_one() {
    let mut world = World::new();
    let old = world.handle;
    world.server.disconnect(old).unwrap();
    world.turn();
    let new = world.server.netcode.connect_loopback(10, [0; 256], at(world.now)).unwrap();
    world.server.tick(at(world.now));
    assert_eq!(new.slot(), old.slot());
    // It would end the connection of the new client if it were taken as its payload: it is not a packet of a session.
    let taken = world.server.handle_loopback(old, &[1; 40], &mut Vec::new(), at(world.now));
    assert!(
        taken.is_none() && world.server.connection(new).is_some_and(|connection| connection.close_reason().is_none())
    );
}
