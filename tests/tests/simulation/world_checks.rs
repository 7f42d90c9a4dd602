//! One thousand worlds: connect, talk, disconnect, restart, under every weather, and the laws always hold.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::client::ClientState;
use slipgate_netcode::server::Fence;
use slipgate_tests::world::{Conditions, World};

const SEEDS: u64 = 1000;

#[test]
fn a_thousand_worlds_connect_talk_disconnect_and_restart() {
    let (mut connects, mut payloads) = (0, 0);
    for seed in 0..SEEDS {
        let (connected, received) = live_through(seed);
        connects += connected;
        payloads += received;
    }
    println!("{connects} connections, {payloads} payloads in {SEEDS} worlds");
    assert!(connects > 3 * SEEDS as usize / 2 && payloads > 20 * SEEDS as usize, "the worlds did not do much");
}

fn live_through(seed: u64) -> (usize, usize) {
    let mut chance = StdRng::seed_from_u64(seed ^ 0x5eed);
    let mut world = World::new(seed, Conditions::random(&mut chance));
    let slots = chance.random_range(1..5);
    let server = world.add_server_with(slots, |config| config.takeover_after = Some(Duration::from_secs(1)));
    let other = world.add_server(2);
    // The first fence must be behind us before tokens are minted.
    world.run_for(Duration::from_millis(50));
    let clients: Vec<_> = (0..chance.random_range(1..5)).map(|_| world.add_client()).collect();
    for _ in 0..chance.random_range(100..500) {
        step(&mut world, &mut chance, server, other, &clients);
        world.turn();
    }
    world.set_conditions(Conditions::perfect());
    world.run_for(Duration::from_secs(2));
    let received: usize = world.servers.iter().map(|server| server.received.len()).sum();
    let echoed: usize = world.clients.iter().map(|client| client.received.len()).sum();
    let connects = world.servers.iter().map(slipgate_tests::world::SimServer::connects).sum();
    (connects, received + echoed)
}

/// One thing that may happen in a turn.
fn step(world: &mut World, chance: &mut StdRng, server: usize, other: usize, clients: &[usize]) {
    let client = clients[chance.random_range(0..clients.len())];
    match chance.random_range(0..1000) {
        0..=80 if !world.state(client).is_active() => {
            let token = world.token(client as u64 + 1, &[server, other]);
            world.connect(client, token);
        }
        100..=500 if world.state(client) == ClientState::Connected => {
            let payload = world.payload(chance.random_range(8..1200));
            world.client_sends(client, &payload).expect("a connected client sends");
        }
        501..=506 => world.clients[client].core.disconnect(),
        507..=509 => {
            let handle = world.servers[server].core.clients().next();
            if let Some(handle) = handle {
                world.servers[server].core.disconnect(handle);
            }
        }
        510 => {
            world.crash(server);
            world.run_for(Duration::from_millis(chance.random_range(0..3000)));
            world.restart(server, None, |config| config.fence = Fence::Closed);
        }
        511..=513 => {
            // A NAT forgets its mapping: the client goes on from another port.
            let address = world.clients[client].address.socket_addr();
            let moved = std::net::SocketAddr::new(address.ip(), address.port().wrapping_add(1000).max(1024));
            world.clients[client].address = moved.into();
        }
        _ => {}
    }
}
