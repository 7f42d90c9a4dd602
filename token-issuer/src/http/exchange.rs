//! One connection in memory, for the fuzz target: the same checks and routes as behind a socket.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::sync::watch;
use tokio::time::Instant;

use super::TokenService;
use super::connection::HttpConnection;
use super::connection_state::ConnectionState;
use super::guard::GuardedService;
use super::peer::{ConnectionSource, HttpPeer};
use super::turns::Turns;

/// The capacity of the connection in each direction, in bytes.
const PIPE_BYTES: usize = 16 * 1024;

/// Serves connections without a socket.
pub(crate) struct Exchanges {
    guarded: GuardedService,
    turns: Turns,
    service: TokenService,
}

impl Exchanges {
    pub(crate) fn new(service: TokenService) -> Self {
        Self { guarded: GuardedService::new(service.clone()), turns: Turns::new(service.clone()), service }
    }

    /// Sends bytes on a new connection, and nothing more. Returns what the service sends until it closes the connection
    /// at one of its time limits.
    pub(crate) async fn exchange(&self, request: &[u8]) -> Vec<u8> {
        let peer = HttpPeer::Address(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
        // A dropped sender would stop the service.
        let (_running, stop) = watch::channel(());
        let mut connection = HttpConnection {
            source: ConnectionSource::from(peer),
            guarded: self.guarded.clone(),
            turns: self.turns.clone(),
            state: Arc::new(ConnectionState::new(Instant::now(), Arc::default()).with_peer(peer)),
            limits: self.service.limits,
            stop,
        };
        let (client, server) = duplex(PIPE_BYTES);
        let (mut read, mut write) = tokio::io::split(client);
        let send = async {
            // The service may close the connection before it has read everything. The end of the stream would end it
            // before the response.
            let _ = write.write_all(request).await;
        };
        let mut response = Vec::new();
        let receive = async {
            let _ = read.read_to_end(&mut response).await;
        };
        tokio::join!(connection.serve_plain(server), send, receive);
        response
    }
}
