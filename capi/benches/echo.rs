//! The echo of `cargo xtask bench-c` in Rust. `echo.c` and `Echo.cs` do the same, and `echo.c` gives the reasons.
//!
//! Client and server of one program on loopback. A turn begins every 2 ms, and the client sends 64 messages in it. For
//! each line of the input the program runs as many turns as the line says, and prints the processor time of an echo in
//! nanoseconds, without the pauses, and the turns of 64 echoes.

#![allow(clippy::print_stdout, reason = "a program of a benchmark")]

use std::error::Error;
use std::io::{BufRead as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

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
const TURN: Duration = Duration::from_millis(2);
/// Messages whose echoes have not come back: less than the queue of a channel holds.
const MAX_OUTSTANDING: usize = 192;

struct Echo {
    server: Server,
    client: Client,
    server_inbox: server::Inbox,
    client_inbox: client::Inbox,
    clock: Clock,
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
        Ok(Self { server, client, server_inbox, client_inbox, clock, sent: 0, echoes: 0 })
    }

    fn server_turn(&mut self) -> Result<(), Box<dyn Error>> {
        self.server.begin_turn(self.clock.now());
        while let Some(event) = self.server_inbox.next(&mut self.server) {
            if let server::Event::Message { client, channel, bytes, .. } = event {
                self.server.send_message(client, channel, bytes)?;
            }
        }
        self.server.end_turn();
        Ok(())
    }

    /// Sends 64 messages unless many are on their way.
    fn client_turn(&mut self) -> Result<(), Box<dyn Error>> {
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
        Ok(())
    }

    /// Runs turns and returns their processor time in nanoseconds.
    fn run(&mut self, turns: usize) -> Result<f64, Box<dyn Error>> {
        self.sent -= self.echoes;
        self.echoes = 0;
        let (mut time, mut due) = (0.0, Instant::now());
        for _ in 0..turns {
            let mut now = Instant::now();
            while now < due {
                now = Instant::now();
            }
            due = now + TURN;
            let before = processor_time();
            self.server_turn()?;
            self.client_turn()?;
            time += processor_time() - before;
        }
        Ok(time)
    }
}

fn token(servers: &[SocketAddr]) -> Result<ConnectToken, Box<dyn Error>> {
    let issuer = Issuer::new(PROTOCOL_ID, Key::from(KEY).into(), servers, Limits::default())?;
    Ok(issuer.mint(&TokenRequest::new(5), wall_clock(), &mut system_entropy()?)?.token)
}

/// Returns the processor time of this program in nanoseconds.
#[cfg(unix)]
fn processor_time() -> f64 {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Returns 0: the benchmark runs on Unix.
#[cfg(not(unix))]
const fn processor_time() -> f64 {
    0.0
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut echo = Echo::start()?;
    for line in std::io::stdin().lock().lines() {
        let turns = line?.trim().parse()?;
        let time = echo.run(turns)?;
        let echoes = echo.echoes as f64;
        println!("{:.1} {:.3}", time / echoes, (turns * MESSAGES) as f64 / echoes);
        std::io::stdout().flush()?;
    }
    Ok(())
}
