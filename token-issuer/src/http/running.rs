//! The service in a thread of its own, for programs that have no tokio runtime.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::{TokenService, serve};

/// A service that runs until this value is dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts the service on this listener, in one new thread.
///
/// # Examples
/// ```no_run
/// # fn service() -> slipgate_token_issuer::http::TokenService { unimplemented!() }
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let running = slipgate_token_issuer::http::spawn(listener, service())?;
/// println!("http://{}/v1/health", running.address());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The system refuses a thread, or the listener's socket is of no use.
pub fn spawn(listener: TcpListener, service: TokenService) -> io::Result<Running> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        runtime.block_on(serve(listener, service, async {
            // A dropped sender stops it as well as a sent word.
            let _ = stopped.await;
        }));
    };
    let thread = std::thread::Builder::new().name("token-issuer".to_owned()).spawn(run)?;
    Ok(Running { address, stop: Some(stop), thread: Some(thread) })
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Stops it: requests under way are answered first, within their time limit.
impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
