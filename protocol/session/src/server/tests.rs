//! A server with a client in the same process.

use alloc::sync::Arc;
use core::time::Duration;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::channel::control::{self, ControlMessage, Hello, VERSION};
use crate::channel::transfer::frame::{TransferBegin, TransferFrame};
use crate::channel::transfer::{ContentDigest, TransferAdmission, TransferConfig, TransferId};
use crate::channel::{ChannelConfig, Kind, Layout, steps};
use crate::connection::ConnectionConfig;
use crate::wire::reliable::{Acks, ReliableHeader, Sequence};
use crate::wire::session_frame::{AckNonces, SessionFrame, Timestamp};
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::server::ServerConfig;
use slipgate_netcode::time::UnixMillis;
use slipgate_netcode::wire::cursor::Writer;

/// Returns the time of all tests.
fn now() -> Now {
    Now { monotonic: Instant::from_start(Duration::from_secs(1)), unix: UnixMillis(1_700_000_000_000) }
}

/// Returns a server with one client and this layout.
fn server(layout: &Arc<Layout>) -> (SessionServer, ClientHandle) {
    let config = ServerConfig::new(7, 1, &["127.0.0.1:40000".parse().unwrap()]);
    let netcode = NetcodeServer::new(config, Key::from([1; 32]).into(), &Seed::from([1; 32]), now()).unwrap();
    let traffic = Traffic::Channels(Arc::clone(layout), ConnectionConfig::default());
    let mut server = SessionServer::new(netcode, traffic, Memory::default()).unwrap();
    let client = server.connect_loopback(1.into(), [0; 256], now()).unwrap();
    (server, client)
}

/// Returns a packet with a hello and message frames.
fn packet(sequence: u16, layout: &Layout, frames: &[u8]) -> Vec<u8> {
    let (mut buf, mut hello) = (vec![0; MAX_PAYLOAD_BYTES], [0; 64]);
    let message = Hello {
        version: VERSION,
        oldest_version: VERSION,
        layout: layout.hash(),
        payload_bytes: MAX_PAYLOAD_BYTES as u16,
        abilities: 0,
    };
    let hello_bytes = control::write(&ControlMessage::Hello(message), &mut hello);
    let mut writer = Writer::new(&mut buf);
    ReliableHeader { sequence: Sequence(sequence), acks: Acks::NONE }.emit(&mut writer);
    SessionFrame { sent: Timestamp(sequence), nonces: AckNonces::default(), arrived: None, extended_acks: &[] }
        .emit(&mut writer);
    writer.bytes(&hello[..hello_bytes]);
    writer.bytes(frames);
    let written = writer.written().unwrap();
    buf.truncate(written);
    buf
}

/// Gives a packet to the server, and takes its events before each message, as the inbox of a server does. Returns the
/// numbers of messages and of events.
fn take(server: &mut SessionServer, client: ClientHandle, packet: &[u8]) -> (usize, usize) {
    let (mut scratch, mut counts) = (Vec::new(), (0, 0));
    let mut received = server.handle_loopback(client, packet, &mut scratch, now()).unwrap();
    loop {
        counts.1 += core::iter::from_fn(|| server.poll_event()).count();
        if server.next_message(packet, &mut received, &mut scratch, now()).is_none() {
            counts.1 += core::iter::from_fn(|| server.poll_event()).count();
            return counts;
        }
        counts.0 += 1;
    }
}

#[test]
fn events_are_polled_once_for_each_datagram() {
    let transfers = TransferConfig { admission: TransferAdmission::Ask, ..TransferConfig::default() };
    let transfers = ChannelConfig { transfers, ..ChannelConfig::from(Kind::Transfers) };
    let layout = Arc::new(Layout::try_from(vec![ChannelConfig::from(Kind::Unreliable), transfers]).unwrap());
    let (mut server, client) = server(&layout);
    let begins = |ids: core::ops::Range<u16>| {
        let frames = ids.map(|id| {
            let (mut buf, digest) = ([0; 100], ContentDigest([3; 32]));
            let begin = TransferBegin { id: TransferId(id), slice_bytes: 512, length: 9000, label: 1, digest };
            let bytes = TransferFrame::Begin(begin).write(&mut buf).unwrap();
            [&[2, bytes as u8][..], &buf[..bytes]].concat()
        });
        frames.collect::<Vec<_>>()
    };
    let offered = take(&mut server, client, &packet(0, &layout, &begins(0..4).concat()));
    // One is that the client has connected.
    assert_eq!(offered, (0, 5));

    // Each repeated offer precedes a message. Each poll visits the four transfers.
    let repeated =
        vec![begins(0..1).concat(); 15].iter().flat_map(|begin| [&begin[..], &[1, 0]].concat()).collect::<Vec<_>>();
    let packet = packet(1, &layout, &repeated);
    let visits = steps::of(|| assert_eq!(take(&mut server, client, &packet), (15, 0)));
    assert!((4..=8).contains(&visits), "{visits} visits");
}
