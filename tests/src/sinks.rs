//! Sinks for the payloads of a connection without sockets.

use slipgate_netcode::server::{ClientHandle, NetcodeServer};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::reliability::Sink;

/// Sends the payloads of a client in the same process to its server.
pub struct ToServer<'a> {
    server: &'a mut NetcodeServer,
    handle: ClientHandle,
    buf: [u8; MAX_PAYLOAD_BYTES],
}

impl<'a> ToServer<'a> {
    /// Returns the sink of a client.
    pub fn new(server: &'a mut NetcodeServer, handle: ClientHandle) -> Self {
        Self { server, handle, buf: [0; MAX_PAYLOAD_BYTES] }
    }
}

impl Sink for ToServer<'_> {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        self.server.loopback_send(self.handle, &self.buf[..bytes]).unwrap();
    }
}

/// An unlimited list of payloads.
pub struct Payloads {
    buf: [u8; MAX_PAYLOAD_BYTES],
    /// The payloads in the order of sending.
    pub sent: Vec<Vec<u8>>,
}

impl Default for Payloads {
    fn default() -> Self {
        Self { buf: [0; MAX_PAYLOAD_BYTES], sent: Vec::new() }
    }
}

impl Sink for Payloads {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        self.sent.push(self.buf[..bytes].to_vec());
    }
}
