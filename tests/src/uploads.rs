//! Honest clients that upload as fast as their congestion control allows, on real sockets.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_client::{Client, ClientState};
use slipgate_netcode::discard::Discard;
use slipgate_os::pace::Pace;
use slipgate_server::config::{ConnectionConfig, WorkLimits};
use slipgate_server::keys::Key;
use slipgate_server::transfer::{Transfer, TransferEvent};
use slipgate_server::{
    ChannelEvent, ChannelId, Clock, CloseKind, Event, Inbox, Server, ServerConfig, Sockets, Traffic,
};

use crate::hostile::{ORDERED, TRANSFERS, flood_layout};
use crate::live::{IPV4, PRIVATE_KEY, PROTOCOL_ID, TokenOrder};

const TICK: Duration = Duration::from_millis(16);
/// The bytes of each message of an ordered stream.
const MESSAGE_BYTES: usize = 16 << 10;
/// A run that takes longer is incomplete.
const MAX_TIME: Duration = Duration::from_secs(60);

/// What the clients send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadKind {
    /// One transfer.
    Transfer,
    /// Messages of 16 KiB in order.
    Ordered,
}

/// The budgets of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UploadBudgets {
    /// The defaults.
    Default,
    /// No limits.
    Unlimited,
}

/// Some uploads at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Uploads {
    /// What each client sends.
    pub kind: UploadKind,
    /// The number of clients.
    pub clients: usize,
    /// The bytes of each client, a multiple of 16 KiB.
    pub bytes: usize,
}

/// The result of uploads.
#[derive(Default, Debug)]
pub struct UploadOutcome {
    /// The time until everything had arrived.
    pub time: Duration,
    /// Whether everything arrived within a minute.
    pub is_complete: bool,
    /// The packets over a budget that the server read.
    pub refused: u64,
    /// The datagrams that the system dropped, which includes those of blocked clients.
    pub dropped_by_system: Option<u64>,
    /// Why clients were disconnected.
    pub ends: Vec<CloseKind>,
}

fn traffic(budgets: UploadBudgets) -> Traffic {
    let work = match budgets {
        UploadBudgets::Default => WorkLimits::default(),
        UploadBudgets::Unlimited => WorkLimits::UNLIMITED,
    };
    Traffic::Channels(flood_layout(), ConnectionConfig { work, ..ConnectionConfig::default() })
}

fn server(budgets: UploadBudgets) -> (Server, Clock, SocketAddr) {
    let sockets = Sockets::bind(&[(IPV4, 0).into()]).expect("a free port");
    let address = sockets.local_addresses()[0];
    let mut config = ServerConfig::new(PROTOCOL_ID, 16, &[address]);
    if budgets == UploadBudgets::Unlimited {
        config.budgets.packets_per_client_and_turn = u32::MAX;
    }
    let clock = Clock::start();
    let server = Server::new(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now()).expect("valid");
    (server.with_traffic(traffic(budgets)).expect("valid"), clock, address)
}

impl Uploads {
    /// Runs a server in this thread, and each client in a thread of its own, until everything has arrived.
    ///
    /// # Panics
    /// If the system has no free port.
    #[must_use]
    pub fn run(self, budgets: UploadBudgets) -> UploadOutcome {
        let (mut server, clock, address) = server(budgets);
        let content = Transfer::new(vec![7; self.bytes]).expect("not too long");
        let (stop, content) = (AtomicBool::new(false), &content);
        let mut outcome = thread::scope(|scope| {
            for id in 0..self.clients as u64 {
                let stop = &stop;
                scope.spawn(move || self.upload(address, id, content, stop));
            }
            let outcome = self.serve(&mut server, clock);
            stop.store(true, Ordering::Relaxed);
            outcome
        });
        let totals = server.totals();
        outcome.refused =
            totals.packets_over_budget + totals.packets_not_taken + totals.discards[Discard::ClientBudget];
        outcome.dropped_by_system = totals.sockets.dropped_by_system;
        outcome
    }

    fn upload(self, address: SocketAddr, id: u64, content: &Transfer, stop: &AtomicBool) {
        let clock = Clock::start();
        let traffic = traffic(UploadBudgets::Default);
        let mut client = Client::new().expect("a socket").with_traffic(traffic).expect("valid");
        client.connect(TokenOrder::new(id, &[address]).mint().token, clock.now()).expect("a fresh token");
        let (mut inbox, mut pace) = (slipgate_client::Inbox::default(), Pace::new(clock, TICK));
        let message = vec![7; MESSAGE_BYTES];
        let mut left = if self.kind == UploadKind::Transfer { 1 } else { self.bytes / MESSAGE_BYTES };
        while !stop.load(Ordering::Relaxed) {
            let now = clock.now();
            client.begin_turn(now);
            while inbox.next(&mut client).is_some() {}
            while left > 0 && client.state() == ClientState::Connected {
                let is_sent = match self.kind {
                    UploadKind::Transfer => client.send_transfer(ChannelId(TRANSFERS), content.clone(), 1).is_ok(),
                    UploadKind::Ordered => client.send_message(ChannelId(ORDERED), &message).is_ok(),
                };
                if !is_sent {
                    break;
                }
                left -= 1;
            }
            if pace.is_tick(now.monotonic) {
                client.end_turn();
            } else {
                client.flush();
            }
            pace.rest(&mut client);
        }
    }

    /// Serves until everything has arrived.
    fn serve(self, server: &mut Server, clock: Clock) -> UploadOutcome {
        let (mut inbox, mut pace) = (Inbox::default(), Pace::new(clock, TICK));
        let (start, mut arrived, mut outcome) = (Instant::now(), 0, UploadOutcome::default());
        while start.elapsed() < MAX_TIME && !outcome.is_complete && outcome.ends.is_empty() {
            let now = clock.now();
            server.begin_turn(now);
            while let Some(event) = inbox.next(server) {
                match event {
                    Event::Message { bytes, .. } => arrived += bytes.len(),
                    Event::Channel {
                        event: ChannelEvent::Transfer { event: TransferEvent::Received { .. }, .. },
                        ..
                    } => arrived += self.bytes,
                    Event::Disconnected { reason, .. } => outcome.ends.push(reason.kind),
                    _ => {}
                }
            }
            if pace.is_tick(now.monotonic) {
                server.end_turn();
            } else {
                server.flush();
            }
            outcome.is_complete = arrived == self.clients * self.bytes;
            outcome.time = start.elapsed();
            pace.rest(server);
        }
        outcome
    }
}
