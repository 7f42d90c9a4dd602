//! Events and commands between a game loop and the shards do not allocate on either side, once buffers have grown.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use slipgate_client::ClientState;
use slipgate_server::keys::Key;
use slipgate_server::sharded::{ShardedServer, ShardedServerConfig};
use slipgate_server::{ClientHandle, Clock, Event, Server, ServerConfig, Sockets};
use slipgate_tests::counting::{self, allocations};
use slipgate_tests::live::{DEADLINE, GameClient, OurClient, PRIVATE_KEY, PROTOCOL_ID, TokenOrder, Turn, until};

/// Echoes `count` payloads, and returns the allocations of the game's side.
fn echo(sharded: &mut ShardedServer, player: &mut OurClient, client: ClientHandle, count: usize) -> u64 {
    let mut allocation_count = 0;
    for number in 0..count {
        let (received, start) = (player.received().len(), Instant::now());
        player.send(&[number as u8; 1000]);
        while player.received().len() == received {
            assert!(start.elapsed() < DEADLINE, "{}", player.describe());
            allocation_count += allocations(|| {
                let mut buf = [0; 1200];
                while let Some(event) = sharded.next_event() {
                    let Event::Payload { bytes, .. } = event else { continue };
                    let length = bytes.len();
                    buf[..length].copy_from_slice(bytes);
                    sharded.send(client, &buf[..length]).unwrap();
                }
                sharded.flush();
            });
            player.turn();
        }
    }
    allocation_count
}

#[test]
fn sharded_server_passes_payloads_without_allocation() {
    let sockets = Sockets::bind_shards(&[SocketAddr::from((Ipv4Addr::LOCALHOST, 0))], 2).unwrap();
    let address = sockets[0].local_addresses()[0];
    let config = ServerConfig::new(PROTOCOL_ID, 8, &[address]);
    let clock = Clock::start();
    let shards = Server::shards(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now(), None).unwrap();
    let mut sharded =
        ShardedServer::start(shards, clock, Duration::from_millis(2), ShardedServerConfig::default()).unwrap();
    let mut player = OurClient::connect(&TokenOrder::new(1, &[address]).mint());
    let mut client = None;
    until(&mut player, "the client connects", |player| {
        if let Some(Event::Connected { client: handle, .. }) = sharded.next_event() {
            client = Some(handle);
        }
        client.is_some() && player.state() == ClientState::Connected
    });
    let client = client.unwrap();
    echo(&mut sharded, &mut player, client, 20);

    // The command that asks the shard's thread costs one message of the channel: the second command is compared.
    let on_shard = |sharded: &mut ShardedServer| {
        let (count_tx, count_rx) = channel();
        sharded.on_shard(client.shard(), move |_| count_tx.send(counting::allocation_count()).unwrap()).unwrap();
        sharded.flush();
        count_rx.recv_timeout(DEADLINE).unwrap()
    };
    on_shard(&mut sharded);
    let before = on_shard(&mut sharded);
    let nothing_between = on_shard(&mut sharded) - before;
    let before = on_shard(&mut sharded);
    assert_eq!(echo(&mut sharded, &mut player, client, 200), 0, "on the game's thread");
    assert_eq!(on_shard(&mut sharded) - before, nothing_between, "on the shard's thread");
}
