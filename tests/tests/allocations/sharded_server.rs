//! What passes between a game loop and the shards asks for no memory, on neither side, once buffers have grown.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use slipgate_client::ClientState;
use slipgate_server::{ClientHandle, Clock, Config, Event, Hub, HubConfig, Key, Server, Sockets};
use slipgate_tests::counting::{self, allocations};
use slipgate_tests::live::{DEADLINE, GameClient, Order, OurClient, PRIVATE_KEY, PROTOCOL_ID, Turn, until};

/// Echoes so many payloads, and answers how often the game's side asked for memory.
fn echo(hub: &mut Hub, player: &mut OurClient, client: ClientHandle, count: usize) -> u64 {
    let mut asked = 0;
    for number in 0..count {
        let (heard, start) = (player.received().len(), Instant::now());
        player.send(&[number as u8; 1000]);
        while player.received().len() == heard {
            assert!(start.elapsed() < DEADLINE, "{}", player.describe());
            asked += allocations(|| {
                let mut room = [0; 1200];
                while let Some(event) = hub.next_event() {
                    let Event::Payload { bytes, .. } = event else { continue };
                    let length = bytes.len();
                    room[..length].copy_from_slice(bytes);
                    hub.send(client, &room[..length]).unwrap();
                }
                hub.flush();
            });
            player.turn();
        }
    }
    asked
}

#[test]
fn payloads_pass_through_a_hub_without_an_allocation_on_either_side() {
    let sockets = Sockets::bind_shards(&[SocketAddr::from((Ipv4Addr::LOCALHOST, 0))], 2).unwrap();
    let address = sockets[0].local_addresses()[0];
    let config = Config::new(PROTOCOL_ID, 8, vec![address.into()]);
    let clock = Clock::start();
    let shards = Server::shards(sockets, config, Key::from_bytes(PRIVATE_KEY).into(), clock.now()).unwrap();
    let mut hub = Hub::start(shards, clock, Duration::from_millis(2), HubConfig::default()).unwrap();
    let mut player = OurClient::connect(&Order::new(1, &[address]).mint());
    let mut client = None;
    until(&mut player, "it gets in", |player| {
        if let Some(Event::Connected { client: handle, .. }) = hub.next_event() {
            client = Some(handle);
        }
        client.is_some() && player.state() == ClientState::Connected
    });
    let client = client.unwrap();
    echo(&mut hub, &mut player, client, 20);

    // The errand that asks the shard's thread costs it the channel's message, and no more: the second one is compared.
    let on_shard = |hub: &mut Hub| {
        let (tell, told) = channel();
        hub.on_shard(client.shard(), move |_| tell.send(counting::asked()).unwrap()).unwrap();
        hub.flush();
        told.recv_timeout(DEADLINE).unwrap()
    };
    on_shard(&mut hub);
    let before = on_shard(&mut hub);
    let nothing_between = on_shard(&mut hub) - before;
    let before = on_shard(&mut hub);
    assert_eq!(echo(&mut hub, &mut player, client, 200), 0, "on the game's thread");
    assert_eq!(on_shard(&mut hub) - before, nothing_between, "on the shard's thread");
}
