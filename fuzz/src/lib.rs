//! Shared parts of the fuzz targets: fixed keys, and a reader of values from an input.
//!
//! A target is a file in `targets/`, a `[[bin]]` in `Cargo.toml`, and a folder in `corpus/`.

pub mod acknowledging;
pub mod invented;
// The same nonce sums as in the tests.
#[path = "../../tests/src/nonce_sum.rs"]
pub mod nonce_sum;
// The same hostile server as in the tests.
#[path = "../../tests/src/raw_server.rs"]
pub mod raw_server;
pub mod receipts;
pub mod server;

use std::net::{IpAddr, SocketAddr};

use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::wire::VERSION;
use slipgate_netcode::wire::cursor::{Reader, Writer};

/// The protocol id of every target.
pub const PROTOCOL_ID: u64 = 0x0102_0304_0506_0708;

/// Returns the key of packets and private parts in every target.
#[must_use]
pub fn key() -> Key {
    Key::from([0x6b; 32])
}

/// Returns the associated data of a packet.
#[must_use]
pub fn associated(prefix: u8) -> [u8; 22] {
    let mut associated = [0; 22];
    let mut writer = Writer::new(&mut associated);
    writer.bytes(&VERSION);
    writer.write::<u64>(PROTOCOL_ID);
    writer.write::<u8>(prefix);
    associated
}

/// Returns the input, cut or filled with zeros to `N` bytes.
#[must_use]
pub fn fit<const N: usize>(input: &[u8]) -> [u8; N] {
    let mut fitted = [0; N];
    for (to, from) in fitted.iter_mut().zip(input) {
        *to = *from;
    }
    fitted
}

/// Reads values from an input. Values behind its end are zero, so that every input is valid.
pub struct Input<'a>(Reader<'a>);

impl<'a> Input<'a> {
    /// Returns a reader at the start of the input.
    #[must_use]
    pub const fn new(input: &'a [u8]) -> Self {
        Self(Reader::new(input))
    }

    /// Returns the next byte if there is one. It selects the next operation.
    pub fn operation(&mut self) -> Option<u8> {
        self.0.read::<u8>()
    }

    /// Returns the next byte.
    pub fn u8(&mut self) -> u8 {
        self.0.read::<u8>().unwrap_or(0)
    }

    /// Returns the next number.
    pub fn u64(&mut self) -> u64 {
        self.0.read::<u64>().unwrap_or(0)
    }

    /// Returns the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        self.0.array().copied().unwrap_or([0; N])
    }

    /// Returns the next address: a byte with the family in its lowest bit (1 is IPv6), the address in network order,
    /// the port.
    pub fn address(&mut self) -> SocketAddr {
        let ip: IpAddr = if self.u8() & 1 == 0 { self.array::<4>().into() } else { self.array::<16>().into() };
        SocketAddr::new(ip, u16::from_le_bytes(self.array()))
    }
}
