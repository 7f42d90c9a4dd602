//! One side runs channels and the other none: the side without channels recognizes it by the first payload.

use std::sync::Arc;
use std::time::Duration;

use slipgate_session::channel::{Channel, Layout};
use slipgate_session::connection::{ConnectionConfig, Memory, Traffic};
use slipgate_sim::Conditions;
use slipgate_tests::session_world::SessionWorld;

fn world() -> SessionWorld {
    let mut layout = Layout::builder();
    layout.add(Channel::reliable_ordered("chat"));
    let layout = Arc::new(layout.build().unwrap());
    SessionWorld::new(4, &layout, &ConnectionConfig::default(), Memory::default())
}

#[test]
fn server_without_channels_recognizes_a_client_with_channels() {
    let mut world = world();
    world.server.set_traffic(Traffic::Payloads).unwrap();
    world.join(Conditions::perfect());
    world.join(Conditions::perfect());
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.server.stats().peers_with_channels, 2, "once for each client");
}

#[test]
fn client_without_channels_recognizes_a_server_with_channels() {
    let mut world = world();
    let token = world.token(1);
    let player = world.begin_connect(Conditions::perfect(), token);
    world.player(player).core.set_traffic(Traffic::Payloads).unwrap();
    world.run_for(Duration::from_secs(2));
    let core = &mut world.player(player).core;
    assert!(core.take_peer_with_channels() && !core.take_peer_with_channels(), "reported once");
}

#[test]
fn sides_with_equal_traffic_report_nothing() {
    let mut world = world();
    world.join(Conditions::perfect());
    world.run_for(Duration::from_secs(2));
    assert_eq!(world.server.stats().peers_with_channels, 0);
    assert!(!world.player(1).core.take_peer_with_channels());
}
