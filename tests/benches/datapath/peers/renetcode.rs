//! `renetcode` 2.0.0, which has no socket of its own: the code around it is that of its example.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use renetcode::{NETCODE_MAX_PACKET_BYTES, NetcodeServer, ServerAuthentication, ServerConfig, ServerResult};
use slipgate_bench::driver_socket;
use slipgate_bench::row::ColumnRole;
use slipgate_bench::subject::{
    BenchServer, LoadProtocol, PAYLOAD_BYTES, PRIVATE_KEY, PROTOCOL_ID, RawPayloads, Subject, SubjectLimit, Workload,
};

use super::{since, wall_clock};

/// The maximum number of clients of its server.
pub(crate) const LIMIT: SubjectLimit = SubjectLimit { clients: 1024, why: "at most 1,024 clients" };

pub(crate) const RENETCODE: Subject = Subject {
    name: "renetcode",
    role: ColumnRole::Peer,
    limit: Some(LIMIT),
    protocol: LoadProtocol::Netcode(|| Box::new(RawPayloads)),
    start: |slots| Ok(Box::new(Renetcode::start(slots)?)),
};

struct Renetcode {
    server: NetcodeServer,
    socket: UdpSocket,
    address: SocketAddrV4,
    last: Duration,
}

/// Returns a socket for a server, its address, and the settings of the server.
pub(crate) fn settings(slots: usize) -> io::Result<(UdpSocket, SocketAddrV4, ServerConfig)> {
    let socket = driver_socket::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let SocketAddr::V4(address) = socket.local_addr()? else { return Err(io::Error::other("not IPv4")) };
    let config = ServerConfig {
        current_time: wall_clock(),
        max_clients: slots,
        protocol_id: PROTOCOL_ID,
        public_addresses: vec![SocketAddr::V4(address)],
        authentication: ServerAuthentication::Secure { private_key: PRIVATE_KEY },
    };
    Ok((socket, address, config))
}

impl Renetcode {
    fn start(slots: usize) -> io::Result<Self> {
        let (socket, address, config) = settings(slots)?;
        Ok(Self { server: NetcodeServer::new(config), socket, address, last: Duration::ZERO })
    }
}

/// Sends the packet of a result, if it has one.
fn post(socket: &UdpSocket, result: &ServerResult<'_, '_>) {
    let (ServerResult::PacketToSend { addr, payload }
    | ServerResult::ClientConnected { addr, payload, .. }
    | ServerResult::ClientDisconnected { addr, payload: Some(payload), .. }) = result
    else {
        return;
    };
    let _ = socket.send_to(payload, addr);
}

impl BenchServer for Renetcode {
    fn address(&self) -> SocketAddrV4 {
        self.address
    }

    fn turn(&mut self, workload: Workload, now: Duration) -> u64 {
        self.server.update(since(&mut self.last, now));
        let mut buffer = [0; NETCODE_MAX_PACKET_BYTES];
        let mut payloads = 0;
        while let Ok((bytes, from)) = self.socket.recv_from(&mut buffer) {
            let (datagram, _) = buffer.split_at_mut(bytes);
            match self.server.process_packet(from, datagram) {
                ServerResult::Payload { client_id, payload } => {
                    payloads += 1;
                    if workload == Workload::Echo
                        && let Ok((to, datagram)) = self.server.generate_payload_packet(client_id, payload)
                    {
                        let _ = self.socket.send_to(datagram, to);
                    }
                }
                result => post(&self.socket, &result),
            }
        }
        for client_id in self.server.clients_id() {
            post(&self.socket, &self.server.update_client(client_id));
        }
        payloads
    }

    fn broadcast(&mut self, copies: u32, _now: Duration) {
        for client_id in self.server.clients_id() {
            for _ in 0..copies {
                if let Ok((to, datagram)) = self.server.generate_payload_packet(client_id, &[7; PAYLOAD_BYTES]) {
                    let _ = self.socket.send_to(datagram, to);
                }
            }
        }
    }

    fn connected(&self) -> usize {
        self.server.connected_clients()
    }
}
