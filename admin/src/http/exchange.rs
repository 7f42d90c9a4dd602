//! One connection in memory, for the fuzz target: the same checks and routes as behind a socket.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::places::AdminPeer;
use super::serve::serve_connection;

/// The capacity of the connection in each direction, in bytes.
const PIPE_BYTES: usize = 16 * 1024;

/// Sends bytes to these routes, and nothing more. Returns what the service sends until it closes the connection, at one
/// of its time limits if the request is not complete.
pub(crate) async fn exchange(router: Router, request: &[u8]) -> Vec<u8> {
    let (client, server) = duplex(PIPE_BYTES);
    let peer = AdminPeer::new(1, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    let serve = serve_connection(server, router, peer);
    let (mut read, mut write) = tokio::io::split(client);
    let send = async {
        // The service may close the connection before it has read everything. The end of the stream would end it before
        // the response.
        let _ = write.write_all(request).await;
    };
    let mut response = Vec::new();
    let receive = async {
        let _ = read.read_to_end(&mut response).await;
    };
    tokio::join!(serve, send, receive);
    response
}
