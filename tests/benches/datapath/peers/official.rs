//! `netcode-official` 1.0.0, which brings its own socket.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use slipgate_bench::row::ColumnRole;
use slipgate_bench::subject::{
    BenchServer, LoadProtocol, PAYLOAD_BYTES, PRIVATE_KEY, PROTOCOL_ID, RawPayloads, Subject, SubjectLimit, Workload,
};

pub(crate) const OFFICIAL: Subject = Subject {
    name: "netcode-official",
    role: ColumnRole::Peer,
    limit: Some(SubjectLimit { clients: netcode::MAX_CLIENTS, why: "at most 256 clients" }),
    protocol: LoadProtocol::Netcode(|| Box::new(RawPayloads)),
    start: |slots| Ok(Box::new(Official::start(slots)?)),
};

struct Official {
    server: netcode::Server,
    slots: usize,
}

impl Official {
    fn start(slots: usize) -> io::Result<Self> {
        let server_address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server =
            netcode::Server::new(server_address, PROTOCOL_ID, &PRIVATE_KEY, 0.0).map_err(io::Error::other)?;
        server.start(slots).map_err(io::Error::other)?;
        Ok(Self { server, slots })
    }
}

impl BenchServer for Official {
    fn address(&self) -> SocketAddrV4 {
        match self.server.address() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        }
    }

    fn turn(&mut self, workload: Workload, now: Duration) -> u64 {
        self.server.update(now.as_secs_f64());
        while self.server.next_event().is_some() {}
        let mut payloads = 0;
        for slot in 0..self.slots {
            while let Some((payload, _)) = self.server.receive_packet(slot) {
                payloads += 1;
                if workload == Workload::Echo {
                    let _ = self.server.send_packet(slot, &payload);
                }
            }
        }
        payloads
    }

    fn broadcast(&mut self, copies: u32, _now: Duration) {
        for slot in (0..self.slots).filter(|slot| self.server.client_connected(*slot)).collect::<Vec<_>>() {
            for _ in 0..copies {
                let _ = self.server.send_packet(slot, &[7; PAYLOAD_BYTES]);
            }
        }
    }

    fn connected(&self) -> usize {
        self.server.num_connected_clients()
    }
}
