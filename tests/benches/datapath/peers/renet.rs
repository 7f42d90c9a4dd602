//! `renet` 2.0.0 on `renet_netcode` 2.0.0: messages on its unreliable channel.
//!
//! It packs all messages that a client is sent at once into one packet, and sends separate packets for
//! acknowledgements. This benchmark counts messages, in whichever packets they travel.

use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;

use bytes::Bytes;
use renet::{ConnectionConfig, DefaultChannel, RenetClient, RenetServer};
use renet_netcode::NetcodeServerTransport;
use slipgate_bench::row::ColumnRole;
use slipgate_bench::subject::{BenchServer, LoadProtocol, PAYLOAD_BYTES, PayloadLayer, Subject, Workload};
use slipgate_netcode::time::Instant;

use super::renetcode::{LIMIT, settings};
use super::since;

pub(crate) const RENET: Subject = Subject {
    name: "renet",
    role: ColumnRole::Peer,
    limit: Some(LIMIT),
    protocol: LoadProtocol::Netcode(|| Box::new(Words(RenetClient::new(ConnectionConfig::default())))),
    start: |slots| Ok(Box::new(Renet::start(slots)?)),
};

/// The sending and receiving half of a client.
struct Words(RenetClient);

impl PayloadLayer for Words {
    fn encode(&mut self, message: &[u8], copies: u32, _now: Instant) -> Vec<Vec<u8>> {
        for _ in 0..copies {
            self.0.send_message(DefaultChannel::Unreliable, Bytes::copy_from_slice(message));
        }
        self.0.get_packets_to_send()
    }

    fn decode(&mut self, packet: &[u8], _now: Instant) -> u64 {
        self.0.process_packet(packet);
        std::iter::from_fn(|| self.0.receive_message(DefaultChannel::Unreliable)).count() as u64
    }
}

struct Renet {
    server: RenetServer,
    transport: NetcodeServerTransport,
    address: SocketAddrV4,
    last: Duration,
}

impl Renet {
    fn start(slots: usize) -> io::Result<Self> {
        let (socket, address, config) = settings(slots)?;
        let transport = NetcodeServerTransport::new(config, socket)?;
        Ok(Self { server: RenetServer::new(ConnectionConfig::default()), transport, address, last: Duration::ZERO })
    }
}

impl BenchServer for Renet {
    fn address(&self) -> SocketAddrV4 {
        self.address
    }

    fn turn(&mut self, workload: Workload, now: Duration) -> u64 {
        let passed = since(&mut self.last, now);
        self.server.update(passed);
        let _ = self.transport.update(passed, &mut self.server);
        while self.server.get_event().is_some() {}
        let mut payloads = 0;
        for client_id in self.server.clients_id() {
            while let Some(message) = self.server.receive_message(client_id, DefaultChannel::Unreliable) {
                payloads += 1;
                if workload == Workload::Echo {
                    self.server.send_message(client_id, DefaultChannel::Unreliable, message);
                }
            }
        }
        if workload == Workload::Echo {
            self.transport.send_packets(&mut self.server);
        }
        payloads
    }

    fn broadcast(&mut self, copies: u32, _now: Duration) {
        // The message refers to existing bytes, as an echoed one does: nothing is allocated for it here.
        let message = Bytes::from_static(&[7; PAYLOAD_BYTES]);
        for client_id in self.server.clients_id() {
            for _ in 0..copies {
                self.server.send_message(client_id, DefaultChannel::Unreliable, message.clone());
            }
        }
        self.transport.send_packets(&mut self.server);
    }

    fn connected(&self) -> usize {
        self.server.connected_clients()
    }
}
