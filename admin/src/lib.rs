#![doc = include_str!("../README.md")]
//!
//! ```text
//!  game's thread ─ on_turn ─▶ AdminPublisher ─ try_lock ─▶ AdminSnapshot ◀─ lock ─ thread "admin": HTTP/1.1
//!                                    ▲                                                       │
//!                                    └──── AdminCommand: list, kick; at most 16 wait ◀───────┘
//! ```

#![forbid(unsafe_code)]

mod command;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod histogram;
mod http;
mod metrics;
mod publisher;
mod redirect_totals;
mod refusals;
mod state;
mod token;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use slipgate_netcode::crypto::key::{Key, KeyRing};
use slipgate_server::{Clock, ServerConfig};
use tokio::sync::oneshot;

pub use self::http::ROUTES;
pub use self::publisher::AdminPublisher;
pub use self::redirect_totals::RedirectTotals;
use self::state::{AdminState, lock};
pub use self::token::{AdminToken, AdminTokenError};

/// A running admin service, which stops when this value is dropped.
///
/// # Examples
/// ```no_run
/// use slipgate_admin::Admin;
///
/// let admin = Admin::start("127.0.0.1:9100".parse()?)?;
/// println!("http://{}/readyz", admin.address());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Admin {
    address: SocketAddr,
    state: Arc<AdminState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds a loopback address and serves it on a new thread. Port 0 lets the system choose.
    ///
    /// # Errors
    /// - [`AdminError::NotLoopback`]: other machines could reach the address.
    /// - [`AdminError::Io`]: the system refused the address or the thread.
    pub fn start(bind: SocketAddr) -> Result<Self, AdminError> {
        if !bind.ip().to_canonical().is_loopback() {
            return Err(AdminError::NotLoopback(bind));
        }
        Self::listen(bind, None)
    }

    /// Binds any address and serves it on a new thread. All requests but those of health and readiness must have the
    /// header `Authorization: Bearer TOKEN`. HTTP is not encrypted: the network between must be trusted.
    ///
    /// # Errors
    /// [`AdminError::Io`]: the system refused the address or the thread.
    pub fn start_with_token(bind: SocketAddr, token: AdminToken) -> Result<Self, AdminError> {
        Self::listen(bind, Some(token))
    }

    fn listen(bind: SocketAddr, token: Option<AdminToken>) -> Result<Self, AdminError> {
        let listener = TcpListener::bind(bind)?;
        let (address, state) = (listener.local_addr()?, Arc::new(AdminState::new(token)));
        let (stop, stopped) = oneshot::channel();
        let thread = http::spawn(listener, Arc::clone(&state), stopped)?;
        Ok(Self { address, state, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the publisher of a server, or of one shard of a server; each shard needs its own. `clock` is the one
    /// that times the turns.
    #[must_use]
    pub fn publisher(&self, config: &ServerConfig, clock: Clock) -> AdminPublisher {
        AdminPublisher::new(self.state.add_shard(config), config, clock, self.state.clock())
    }

    /// Returns whether the server drains: the program or an operator has started it. A program that ends after a
    /// drain asks for it in each turn.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state.is_draining()
    }

    /// Sets the source of the counts of redirects. Each scrape of the metrics calls it, on the admin service's thread.
    /// Only the first source counts. Without one, all counts are 0.
    pub fn count_redirects(&self, read: impl Fn() -> RedirectTotals + Send + Sync + 'static) {
        let _ = self.state.redirects.set(Box::new(read));
    }

    /// Sets the source of whether an issuer takes the server's heartbeats. Each scrape of the metrics calls it, on the
    /// admin service's thread. Only the first source counts. Without one, the metric has no value.
    pub fn show_registration(&self, is_registered: impl Fn() -> bool + Send + Sync + 'static) {
        let _ = self.state.is_registered.set(Box::new(is_registered));
    }

    /// Shows the fingerprints of these private keys in the metrics, in place of those before.
    pub fn show_keys(&self, keys: &KeyRing) {
        *lock(&self.state.keys) = keys.iter().map(Key::fingerprint).collect();
    }

    /// Announces a drain: `/readyz` turns 503 with the reason `draining`, while new clients are admitted until
    /// [`set_draining`](Self::set_draining) or `POST /drain`. Load balancers need some time to notice it.
    pub fn announce_drain(&self) {
        self.state.announce_drain();
    }

    /// Starts a drain: `/readyz` turns 503, and no shard admits new clients from the end of its next turn on.
    pub fn set_draining(&self) {
        let _ = self.state.set_draining();
    }
}

/// Stops the service: finishes open requests within a second, then joins the thread.
impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Why the admin service could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdminError {
    /// The address is not a loopback address, so other machines could reach it.
    NotLoopback(SocketAddr),
    /// The system refused the address or the thread.
    Io(io::Error),
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback(address) => {
                write!(
                    f,
                    "{address} is not a loopback address such as 127.0.0.1: give a token file, because other machines \
                     could reach it"
                )
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AdminError {}

impl From<io::Error> for AdminError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
