//! The path between clients and server, which can be impaired: the network conditioner in a thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_server::Clock;
use slipgate_sim::Conditions;
use slipgate_sim::proxy::{ClientPaths, Proxy, ProxySettings};

/// The conditions to the server, and to the client.
type BothWays = (Conditions, Conditions);

/// The longest wait of the loop, which bounds the delay of a stop.
const MAX_WAIT: Duration = Duration::from_millis(50);
/// The seed of the impairments: the same in each run.
const SEED: u64 = 1;

/// A running proxy.
pub(super) struct ImpairedPath {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    changes: Sender<BothWays>,
    thread: JoinHandle<io::Result<()>>,
}

impl ImpairedPath {
    /// Starts the proxy, with a separate simulated path for each client.
    pub(super) fn start(
        (up, down): BothWays,
        server: SocketAddr,
        clients: u32,
        paths: ClientPaths,
    ) -> Result<Self, Failure> {
        let settings = ProxySettings {
            up,
            down,
            paths,
            max_clients: clients as usize,
            ..ProxySettings::new((server.ip(), 0).into(), server, SEED)
        };
        let proxy = Proxy::bind(settings)
            .map_err(|error| Failure::run_time(format!("the conditioner cannot listen on {}: {error}", server.ip())))?;
        let (address, stop) = (proxy.local_address(), Arc::new(AtomicBool::new(false)));
        let (changes, changed) = channel();
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name("impaired-path".to_owned())
                .spawn(move || forward(proxy, &changed, &stop))
                .map_err(|error| Failure::run_time(format!("cannot start a thread: {error}")))?
        };
        Ok(Self { address, stop, changes, thread })
    }

    /// Returns the address to which clients send.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the conditions of all clients, within [`MAX_WAIT`].
    pub(super) fn set_conditions(&self, conditions: BothWays) {
        // The thread has ended only if it failed, which `stop` reports.
        let _ = self.changes.send(conditions);
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::run_time(format!("the conditioner could not wait for packets: {error}"))),
            Err(_) => Err(Failure::run_time("the conditioner's thread panicked")),
        }
    }
}

fn forward(mut proxy: Proxy, changes: &Receiver<BothWays>, stop: &AtomicBool) -> io::Result<()> {
    let clock = Clock::start();
    while !stop.load(Ordering::Relaxed) {
        let now = clock.monotonic();
        if let Some((up, down)) = changes.try_iter().last() {
            proxy.set_conditions(up, down, now);
        }
        proxy.turn(now);
        proxy.wait(MAX_WAIT, now)?;
    }
    Ok(())
}
