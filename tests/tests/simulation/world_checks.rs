//! Random worlds: connect, exchange payloads, disconnect, restart, under all impairments; the invariants always hold.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::client::ClientState;
use slipgate_netcode::server::TokenCutoff;
use slipgate_sim::Conditions;
use slipgate_tests::conditions;
use slipgate_tests::netcode_world::NetcodeWorld;

const SEEDS: u64 = 1000;

#[test]
fn random_worlds_connect_talk_disconnect_and_restart() {
    let (mut connects, mut payloads) = (0, 0);
    for seed in 0..SEEDS {
        let (connected, received) = run_world(seed);
        connects += connected;
        payloads += received;
    }
    println!("{connects} connections, {payloads} payloads in {SEEDS} worlds");
    assert!(connects > 3 * SEEDS as usize / 2 && payloads > 20 * SEEDS as usize, "the worlds carried too little");
}

fn run_world(seed: u64) -> (usize, usize) {
    let mut chance = StdRng::seed_from_u64(seed ^ 0x5eed);
    let mut world = NetcodeWorld::new(seed, conditions::random(&mut chance));
    let slots = chance.random_range(1..5);
    let server = world.add_server_with(slots, |config| config.takeover_after = Some(Duration::from_secs(1)));
    let other = world.add_server(2);
    // The token cutoff of the start must be over before tokens are minted.
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
    let connects = world.servers.iter().map(slipgate_tests::netcode_world::SimServer::connects).sum();
    (connects, received + echoed)
}

/// Runs one random action of a turn.
fn step(world: &mut NetcodeWorld, chance: &mut StdRng, server: usize, other: usize, clients: &[usize]) {
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
            world.restart(server, None, |config| config.token_cutoff = TokenCutoff::AtStart);
        }
        511..=513 => {
            // A NAT rebinding: the client continues from another port.
            let address = world.clients[client].address.socket_addr();
            let moved = std::net::SocketAddr::new(address.ip(), address.port().wrapping_add(1000).max(1024));
            world.clients[client].address = moved.into();
        }
        _ => {}
    }
}
