//! The demo's dedicated server: an echo, in a thread of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate::protocol::crypto::key::KeyRing;
use slipgate::server::{Clock, Config, Discards, Event, Inbox, Server, Sockets, Stats};
use slipgate_edge::cli::Failure;

use super::cannot_listen;

/// A turn at the latest; datagrams wake the server before.
const TICK: Duration = Duration::from_millis(16);

/// What the server has counted.
#[derive(Clone, Copy, Default)]
pub(super) struct ServerReport {
    pub(super) slots: u32,
    pub(super) connected: u32,
    pub(super) stats: Stats,
    pub(super) discards: Discards,
}

/// A running echo server.
pub(super) struct EchoServer {
    address: SocketAddr,
    report: Arc<Mutex<ServerReport>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl EchoServer {
    pub(super) fn start(bind: SocketAddr, slots: u32, keys: KeyRing, protocol_id: u64) -> Result<Self, Failure> {
        let sockets = Sockets::bind(&[bind]).map_err(|error| cannot_listen("server", "UDP", bind, &error))?;
        let address = sockets.local_addresses().first().copied().unwrap_or(bind);
        if address.ip().is_unspecified() {
            return Err(Failure::usage(format!(
                "the demo's clients cannot dial {address}: give the server a real address"
            )));
        }
        let clock = Clock::start();
        let config = Config::new(protocol_id, slots, vec![address.into()]);
        let server =
            Server::new(sockets, config, keys, clock.now()).map_err(|error| Failure::run_time(error.to_string()))?;
        let (report, stop) = (Arc::default(), Arc::default());
        let thread = {
            let (report, stop) = (Arc::clone(&report), Arc::clone(&stop));
            std::thread::Builder::new()
                .name("game-server".to_owned())
                .spawn(move || serve(server, clock, &report, &stop))
                .map_err(|error| Failure::run_time(format!("the system refuses a thread: {error}")))?
        };
        Ok(Self { address, report, stop, thread })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn report(&self) -> ServerReport {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::run_time(format!("the server could not wait for packets: {error}"))),
            Err(_) => Err(Failure::run_time("the server's thread panicked")),
        }
    }
}

/// The loop of a dedicated server. A real one would advance its game where the comment stands.
fn serve(mut server: Server, clock: Clock, report: &Mutex<ServerReport>, stop: &AtomicBool) -> io::Result<()> {
    let mut inbox = Inbox::default();
    while !stop.load(Ordering::Relaxed) {
        server.begin_turn(clock.now());
        while let Some(event) = inbox.next(&mut server) {
            if let Event::Payload { client, bytes, .. } = event {
                // A client that has gone meanwhile needs no echo.
                let _ = server.send(client, bytes);
            }
        }
        // Here the game would advance, and its state would be sent.
        server.end_turn();
        *report.lock().unwrap_or_else(PoisonError::into_inner) = ServerReport {
            slots: server.config().slots,
            connected: server.connected(),
            stats: *server.stats(),
            discards: *server.discards(),
        };
        server.wait(TICK)?;
    }
    server.stop();
    server.end_turn();
    Ok(())
}
