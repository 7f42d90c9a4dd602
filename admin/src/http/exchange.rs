//! One connection in memory, for the fuzz target: the same checks and routes as behind a socket.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::places::AdminPeer;
use super::serve::serve_connection;

/// The capacity of the connection in each direction, in bytes.
const PIPE_BYTES: usize = 16 * 1024;

/// Sends bytes to these routes, then the end of the stream. Returns what the service sends until it closes the
/// connection.
pub(crate) async fn exchange(router: Router, request: &[u8]) -> Vec<u8> {
    let (client, server) = duplex(PIPE_BYTES);
    let peer = AdminPeer::new(1, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    let serve = serve_connection(server, router, peer);
    let (mut read, mut write) = tokio::io::split(client);
    let send = async {
        // The service may close the connection before it has read everything.
        let _ = write.write_all(request).await;
        let _ = write.shutdown().await;
    };
    let mut response = Vec::new();
    let receive = async {
        let _ = read.read_to_end(&mut response).await;
    };
    tokio::join!(serve, send, receive);
    response
}
