//! The checks of acknowledgements (`specs/session-1.md`, §5.6): a hostile receiver cannot end them, and an honest one
//! is never disconnected by them.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::time::Instant;
use slipgate_session::channel::{ChannelConfig, ChannelId, ChannelViolation, Kind, Layout};
use slipgate_session::connection::{CloseKind, Connection, ConnectionConfig, Role};
use slipgate_session::wire::reliable::Acks;
use slipgate_sim::{Conditions, Loss, Order, Share};
use slipgate_tests::connection_world::ConnectionWorld;
use slipgate_tests::malicious_peer::{MaliciousPeer, PeerPacket};
use slipgate_tests::sinks::Payloads;
use slipgate_tests::world::End;

/// The numbers of packets wrap after as many.
const NUMBERS: usize = 1 << 16;

/// Each of its packets lacks the 24 before it, so that an ack-only packet of the server replies to it: the server uses
/// up all numbers within 15 s, and the peer names none of them. Numbers would be ambiguous from then on.
#[test]
fn silent_receivers_cannot_end_the_check() {
    let layout = Arc::new(Layout::try_from(vec![ChannelConfig::from(Kind::ReliableOrdered)]).unwrap());
    let server = Connection::new(&ConnectionConfig::default(), Arc::clone(&layout), Role::Server, None).unwrap();
    let mut server = server.with_ack_checks(&Seed::from([9; 32]));
    let (mut peer, mut sent) = (MaliciousPeer::default(), 0);
    for turn in 0..2000 {
        let now = Instant::from_start(Duration::from_millis(1000 + 16 * turn));
        for _ in 0..80 {
            let datagram = peer.packet(PeerPacket { acks: Acks::NONE, ..PeerPacket::frames(layout.hash(), &[]) });
            peer.skip(24);
            let _ = server.handle(&datagram, Duration::ZERO, now);
        }
        let mut sink = Payloads::default();
        server.tick(now);
        server.transmit(now, &mut sink);
        sent += sink.sent.len();
        if let Some(reason) = server.close_reason() {
            println!("after {sent} packets and {turn} turns: {:?}", reason.kind);
            // Skipped numbers count, too.
            assert!((NUMBERS * 3 / 4..NUMBERS + 200).contains(&sent), "after {sent} packets");
            return assert_eq!(reason.kind, CloseKind::Violation(ChannelViolation::AcknowledgesNothing));
        }
    }
    panic!("it is still connected after {sent} packets");
}

#[test]
fn honest_connections_with_odd_windows_go_on() {
    let kinds = [Kind::ReliableOrdered, Kind::Unreliable, Kind::ReliableUnordered];
    let layout = Arc::new(Layout::try_from(kinds.map(ChannelConfig::from).to_vec()).unwrap());
    let conditions = Conditions {
        latency: Duration::from_millis(20),
        jitter: Duration::from_millis(80),
        order: Order::Free,
        loss: Loss::Random(Share::percent(15.0)),
        duplication: Share::percent(10.0),
        ..Conditions::perfect()
    };
    let windows = [(16, 16), (16, 2048), (2048, 16), (32, 64), (64, 32), (16_384, 2048), (16_384, 128)];
    for (seed, (sent, received)) in (0..).zip(windows) {
        let mut config = ConnectionConfig::default();
        (config.endpoint.sent_window, config.endpoint.received_window) = (sent, received);
        let mut world = ConnectionWorld::with(seed, conditions, [&layout, &layout], &config);
        for step in 0..3000_u32 {
            if step % 3 == 0 {
                for (channel, bytes) in [(0, 3000), (1, 300), (2, 700)] {
                    let _ = world.send(End::A, ChannelId(channel), &vec![1; bytes]);
                    if step % 60 == 0 {
                        let _ = world.send(End::B, ChannelId(channel), &vec![1; bytes / 4]);
                    }
                }
            }
            // Now and then both take no turn for long.
            world.turn_after_sleep(Duration::from_millis(if step % 500 == 0 { 700 } else { 4 }));
        }
        for end in [End::A, End::B] {
            let connection = &world.side(end).connection;
            assert_eq!(connection.close_reason(), None, "windows {sent}, {received}, seed {seed}");
        }
    }
}
