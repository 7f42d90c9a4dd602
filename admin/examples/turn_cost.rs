//! Measures what the admin service costs a turn of the game, for a tool that counts instructions.
//!
//! ```console
//! $ cargo build --release -p slipgate-admin --example turn_cost
//! $ valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*AdminPublisher*on_turn*' \
//!       target/release/examples/turn_cost 64 1200
//! ```
//!
//! The arguments are the number of clients in the same program, each of which sends one payload in each turn, and the
//! number of turns at 60 Hz. The tool counts the rest of the turn with
//! `--toggle-collect='*turn_of_the_game*'`.

use std::time::Duration;

use slipgate_admin::Admin;
use slipgate_server::keys::{Key, KeyRing};
use slipgate_server::{ClientHandle, Clock, Event, Inbox, Now, Pace, Server, ServerConfig, Sockets};

/// Echoes one payload of each client.
#[inline(never)]
fn turn_of_the_game(server: &mut Server, inbox: &mut Inbox, clients: &[ClientHandle], now: Now) {
    server.begin_turn(now);
    for client in clients {
        if let Some(mut client) = server.client(*client) {
            let _ = client.loopback_send(&[7; 64]);
        }
    }
    while let Some(event) = inbox.next(server) {
        if let Event::Payload { client, bytes, .. } = event {
            let _ = server.send(client, bytes);
        }
    }
    for client in clients {
        if let Some(mut client) = server.client(*client) {
            let _ = client.loopback_receive(&mut [0; slipgate_server::MAX_PAYLOAD_BYTES]);
        }
    }
    server.end_turn();
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let slots: u32 = arguments.next().ok_or("the number of clients is missing")?.parse()?;
    let turns: u32 = arguments.next().ok_or("the number of turns is missing")?.parse()?;
    let sockets = Sockets::bind(&["127.0.0.1:0".parse()?])?;
    let (clock, config) = (Clock::start(), ServerConfig::new(1, slots, &sockets.local_addresses()));
    let keys = KeyRing::new(&[Key::from([1; 32])]).ok_or("no key")?;
    let mut server = Server::new(sockets, config, keys, clock.now())?;
    let admin = Admin::start("127.0.0.1:0".parse()?)?;
    let mut publisher = admin.publisher(server.config(), clock);
    let connect = |client_id: u32| server.connect_loopback(u64::from(client_id), [0; 256]);
    let clients = (1..=slots).map(connect).collect::<Result<Vec<_>, _>>()?;
    let (mut inbox, mut pace) = (Inbox::default(), Pace::new(clock, Duration::from_micros(16_667)));
    for _ in 0..turns {
        let now = clock.now();
        turn_of_the_game(&mut server, &mut inbox, &clients, now);
        publisher.on_turn(&mut server, now);
        pace.rest(&mut server);
    }
    Ok(())
}
