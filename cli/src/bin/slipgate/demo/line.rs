//! The line between the demo's clients and its server, when it shall be a bad one: a conditioner in a thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_server::Clock;
use slipgate_sim::Preset;
use slipgate_sim::proxy::{Proxy, Settings};

/// The end is heard after so long at the latest.
const ATTENTION: Duration = Duration::from_millis(50);
/// The same weather each time.
const SEED: u64 = 1;

/// A running line.
pub(super) struct BadLine {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl BadLine {
    /// A line of its own for each client.
    pub(super) fn start(preset: Preset, server: SocketAddr, clients: u32) -> Result<Self, Failure> {
        let settings = Settings {
            up: preset.up(),
            down: preset.down(),
            max_clients: clients as usize,
            ..Settings::new((server.ip(), 0).into(), server, SEED)
        };
        let proxy = Proxy::bind(settings)
            .map_err(|error| Failure::run_time(format!("the conditioner cannot listen on {}: {error}", server.ip())))?;
        let (address, stop) = (proxy.local_address(), Arc::new(AtomicBool::new(false)));
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name("bad-line".to_owned())
                .spawn(move || carry(proxy, &stop))
                .map_err(|error| Failure::run_time(format!("the system refuses a thread: {error}")))?
        };
        Ok(Self { address, stop, thread })
    }

    /// Where clients reach the server.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
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

fn carry(mut proxy: Proxy, stop: &AtomicBool) -> io::Result<()> {
    let clock = Clock::start();
    while !stop.load(Ordering::Relaxed) {
        let now = clock.monotonic();
        proxy.turn(now);
        proxy.wait(ATTENTION, now)?;
    }
    Ok(())
}
