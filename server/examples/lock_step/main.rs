//! A server for lock-step games: it relays the actions of all clients, even if some send hundreds at once.
//!
//! ```console
//! $ cargo run -p slipgate-server --example lock_step -- private.key 203.0.113.7:40000 20
//! ```
//!
//! The arguments are the key file, the address of the server in connect tokens, and the Mbit/s of its uplink.

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

mod relay;

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use relay::Relay;
use slipgate_server::congestion::BytesPerSecond;
use slipgate_server::keys::read_key_file;
use slipgate_server::{Clock, Inbox, Server, ServerConfig, Sockets};

const PROTOCOL_ID: u64 = 0x1122_3344;
const SLOTS: u32 = 250;
/// 30 frames a second.
const TICK: Duration = Duration::from_micros(33_333);
/// Turns are shorter than ticks: datagrams are read sooner, and sending is spread over the tick.
const TURN: Duration = Duration::from_millis(4);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [key_file, address, megabits] = arguments.as_slice() else {
        return Err("usage: lock_step KEY_FILE ADDRESS:PORT MBITS".into());
    };
    let address: SocketAddr = address.parse()?;
    let uplink = BytesPerSecond(megabits.parse::<f64>()? * 1e6 / 8.0);
    let clock = Clock::start();
    let sockets = Sockets::bind(&[SocketAddr::from(([0, 0, 0, 0], address.port()))])?;
    let config = ServerConfig::new(PROTOCOL_ID, SLOTS, &[address]);
    let mut server =
        Server::new(sockets, config, read_key_file(key_file)?, clock.now())?.with_traffic(relay::traffic())?;
    let mut relay = Relay::new(&mut server, uplink, TICK);
    let (mut inbox, mut printed) = (Inbox::default(), 0);
    loop {
        relay.turn(&mut server, &mut inbox, clock.now());
        if server.connected_count() != printed {
            printed = server.connected_count();
            println!("{printed} clients");
        }
        thread::sleep(TURN);
    }
}
