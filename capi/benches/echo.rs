//! The echo of `cargo xtask bench-c` in Rust. `echo.c` and `Echo.cs` do the same.
//!
//! Client and server of one program on loopback. For each line of the input the program sends 64 messages a turn
//! and takes their echoes, and prints the processor time of an echo in nanoseconds and the turns of 64 echoes.

#![allow(clippy::print_stdout, reason = "a program of a benchmark")]

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use slipgate::client::{self, Client, Clock, ConnectToken};
use slipgate::server::keys::Key;
use slipgate::server::{self, Server, ServerConfig, Sockets};
use slipgate::{Channel, ChannelId, Layout, Traffic};
use slipgate_token_issuer::{Issuer, Limits, TokenRequest, system_entropy, wall_clock};

const PROTOCOL_ID: u64 = 7;
const KEY: [u8; 32] = [7; 32];
const CHAT: ChannelId = ChannelId(0);
const MESSAGES: usize = 64;
const MESSAGE: [u8; 64] = [7; 64];
const WARM_UP: usize = 64 * 1000;
const ECHOES: usize = 64 * 1000;
/// Messages whose echoes have not come back: less than the queue of a channel holds.
const MAX_OUTSTANDING: usize = 192;
/// How long a turn without an echo waits.
const WAIT: Duration = Duration::from_micros(500);

struct Echo {
    server: Server,
    client: Client,
    server_inbox: server::Inbox,
    client_inbox: client::Inbox,
    clock: Clock,
    turns: usize,
    sent: usize,
    echoes: usize,
}

impl Echo {
    fn start() -> Result<Self, Box<dyn Error>> {
        let sockets = Sockets::bind(&[(Ipv4Addr::LOCALHOST, 0).into()])?;
        let addresses = sockets.local_addresses();
        let clock = Clock::start();
        let mut layout = Layout::builder();
        layout.add(Channel::reliable_ordered("chat"));
        let traffic = Traffic::channels(layout.build()?);
        let config = ServerConfig::new(PROTOCOL_ID, 4, &addresses);
        let server = Server::new(sockets, config, Key::from(KEY).into(), clock.now())?.with_traffic(traffic.clone())?;
        let mut client = Client::new()?.with_traffic(traffic)?;
        client.connect(token(&addresses)?, clock.now())?;
        let (server_inbox, client_inbox) = (server::Inbox::default(), client::Inbox::default());
        Ok(Self { server, client, server_inbox, client_inbox, clock, turns: 0, sent: 0, echoes: 0 })
    }

    /// Runs a turn of the server and one of the client, which sends 64 messages unless many are on their way.
    fn turn(&mut self) -> Result<(), Box<dyn Error>> {
        self.turns += 1;
        self.server.begin_turn(self.clock.now());
        while let Some(event) = self.server_inbox.next(&mut self.server) {
            if let server::Event::Message { client, channel, bytes, .. } = event {
                self.server.send_message(client, channel, bytes)?;
            }
        }
        self.server.end_turn();
        let before = self.echoes;
        self.client.begin_turn(self.clock.now());
        while let Some(event) = self.client_inbox.next(&mut self.client) {
            if let client::Event::Message { bytes, .. } = event {
                self.echoes += usize::from(bytes == MESSAGE);
            }
        }
        if self.client.state().is_connected() && self.sent - self.echoes <= MAX_OUTSTANDING - MESSAGES {
            for _ in 0..MESSAGES {
                self.client.send_message(CHAT, &MESSAGE)?;
            }
            self.sent += MESSAGES;
        }
        self.client.end_turn();
        if self.echoes == before {
            self.client.wait(WAIT)?;
        }
        Ok(())
    }

    /// Takes this many echoes. Returns the processor time of one in nanoseconds, and the turns of 64.
    fn measure(&mut self, echoes: usize) -> Result<(f64, f64), Box<dyn Error>> {
        let (before, start) = (processor_time(), self.echoes);
        self.turns = 0;
        while self.echoes - start < echoes {
            self.turn()?;
        }
        let echoes = (self.echoes - start) as f64;
        Ok(((processor_time() - before) / echoes, (self.turns * MESSAGES) as f64 / echoes))
    }
}

fn token(servers: &[SocketAddr]) -> Result<ConnectToken, Box<dyn Error>> {
    let issuer = Issuer::new(PROTOCOL_ID, Key::from(KEY).into(), servers, Limits::default())?;
    Ok(issuer.mint(&TokenRequest::new(5), wall_clock(), &mut system_entropy()?)?.token)
}

/// Returns the processor time of this program in nanoseconds.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut echo = Echo::start()?;
    echo.measure(WARM_UP)?;
    for line in std::io::stdin().lock().lines() {
        line?;
        let (nanoseconds, turns) = echo.measure(ECHOES)?;
        println!("{nanoseconds:.1} {turns:.2}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
