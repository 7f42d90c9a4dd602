//! One client of the load: a socket, netcode, and an optional simulated line.

use std::io;
use std::net::SocketAddr;

use mio::net::UdpSocket;
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{NetcodeClient, NetcodeClientEvent};
use slipgate_netcode::time::Instant;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::MAX_DATAGRAM_BYTES;
use slipgate_sim::{Path, Preset};

use super::flags::MIN_BYTES;
use super::payload::write_payload;
use super::plan::LoadTurn;
use super::report::PartReport;

/// The maximum number of datagrams that one turn of a client reads.
const MAX_READS: u32 = 64;
/// The maximum number of datagrams that one turn of a client sends: ten disconnect packets, and some to spare.
const MAX_SENDS: usize = 16;

/// The simulated line of a client.
struct LoadLine {
    up: Path<Address>,
    down: Path,
}

/// A client that is connecting, connected, or has ended.
pub(super) struct LoadClient {
    netcode: NetcodeClient,
    socket: UdpSocket,
    line: Option<Box<LoadLine>>,
    server: Option<Address>,
    mark: u64,
    next_number: u64,
    began: Instant,
    next_send: Instant,
    /// Whether the client has had a slot.
    is_connected: bool,
    has_ended: bool,
}

/// The datagrams of one turn of a client.
pub(super) struct LoadOutbox {
    buf: [u8; MAX_DATAGRAM_BYTES],
    leaving: Vec<(Address, Vec<u8>)>,
}

impl LoadOutbox {
    pub(super) fn new() -> Self {
        Self { buf: [0; MAX_DATAGRAM_BYTES], leaving: Vec::with_capacity(MAX_SENDS) }
    }
}

impl Outbox for LoadOutbox {
    fn remaining(&self) -> usize {
        MAX_SENDS - self.leaving.len().min(MAX_SENDS)
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        (self.remaining() > 0).then_some(&mut self.buf)
    }

    fn commit(&mut self, to: Address, bytes: usize) {
        self.leaving.push((to, self.buf.get(..bytes).unwrap_or_default().to_vec()));
    }
}

impl LoadClient {
    /// Opens a socket, and starts to connect.
    ///
    /// # Errors
    /// The error of the system, or of the token.
    pub(super) fn begin(mark: u64, token: ConnectToken, preset: Option<Preset>, now: Instant) -> io::Result<Self> {
        let is_v6 = token.facts().servers.iter().next().is_some_and(SocketAddr::is_ipv6);
        let bind: SocketAddr = if is_v6 { ([0_u16; 8], 0).into() } else { ([0_u8; 4], 0).into() };
        let socket = UdpSocket::bind(bind)?;
        let mut netcode = NetcodeClient::new(TimeoutPolicy::Clamped);
        let is_reachable = |server: Address| server.socket_addr().is_ipv6() == is_v6;
        netcode.connect(token, now, is_reachable).map_err(io::Error::other)?;
        // Each client has a line of its own, and the same one in each run.
        let line = preset.map(|preset| {
            let (up, down) = (Path::new(preset.up(), mark), Path::new(preset.down(), !mark));
            Box::new(LoadLine { up, down })
        });
        let (server, next_send) = (None, now);
        Ok(Self {
            netcode,
            socket,
            line,
            server,
            mark,
            next_number: 0,
            began: now,
            next_send,
            is_connected: false,
            has_ended: false,
        })
    }

    pub(super) const fn socket(&mut self) -> &mut UdpSocket {
        &mut self.socket
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns when the client has something to do without a datagram.
    pub(super) fn next_due(&self, sends: bool) -> Option<Instant> {
        if self.has_ended {
            return None;
        }
        let send = (self.is_connected && sends).then_some(self.next_send);
        let line = self.line.as_ref().and_then(|line| earliest(line.up.next_due(), line.down.next_due()));
        earliest(earliest(send, self.netcode.next_deadline()), line)
    }

    /// Reads what has arrived.
    pub(super) fn receive(&mut self, now: Instant, report: &mut PartReport) {
        let mut buf = [0; 1500];
        for _ in 0..MAX_READS {
            let Ok((bytes, from)) = self.socket.recv_from(&mut buf) else { break };
            let Some(datagram) = buf.get_mut(..bytes) else { break };
            self.server = Some(from.into());
            match &mut self.line {
                Some(line) => line.down.push(datagram, now),
                None => self.handle(from.into(), datagram, now, report),
            }
        }
    }

    fn handle(&mut self, from: Address, datagram: &mut [u8], now: Instant, report: &mut PartReport) {
        if let Ok(Some(payload)) = self.netcode.handle(from, datagram, now) {
            report.on_echo(self.mark, payload.bytes, now);
        }
    }

    /// Delivers what has passed the line, runs timers, and sends what is due.
    pub(super) fn turn(&mut self, turn: &LoadTurn, outbox: &mut LoadOutbox, report: &mut PartReport) {
        let now = turn.now;
        self.deliver(now, report);
        self.netcode.tick(now);
        while let Some(event) = self.netcode.poll_event() {
            match event {
                NetcodeClientEvent::Connected { .. } => {
                    self.is_connected = true;
                    self.next_send = now;
                    report.on_connected(now.since(self.began));
                }
                NetcodeClientEvent::Ended { reason } => {
                    self.has_ended = true;
                    report.on_ended(&reason.to_string());
                }
            }
        }
        if turn.sends && self.is_connected && !self.has_ended {
            self.send_due(turn, outbox, report);
        }
        self.netcode.transmit(now, outbox);
        self.leave(now, outbox);
    }

    /// Takes the datagrams that have passed the line.
    fn deliver(&mut self, now: Instant, report: &mut PartReport) {
        let Some(mut line) = self.line.take() else { return };
        while let Some(arrival) = line.up.pop_due(now) {
            let _ = self.socket.send_to(arrival.bytes, arrival.tag.socket_addr());
        }
        while let Some(arrival) = line.down.pop_due(now) {
            let mut datagram = arrival.bytes.to_vec();
            if let Some(from) = self.server {
                self.handle(from, &mut datagram, now, report);
            }
        }
        self.line = Some(line);
    }

    fn send_due(&mut self, turn: &LoadTurn, outbox: &mut LoadOutbox, report: &mut PartReport) {
        if turn.now < self.next_send {
            return;
        }
        // Payloads that a stall of this program has missed are left out.
        self.next_send = self.next_send.after(turn.interval).max(turn.now);
        let mut payload = vec![0; usize::from(turn.size.max(MIN_BYTES))];
        write_payload(&mut payload, self.mark, self.next_number, turn.now);
        self.next_number += 1;
        match self.netcode.send(&payload, turn.now, outbox) {
            Ok(()) => report.sent += 1,
            Err(_) => report.not_sent += 1,
        }
    }

    /// Sends the datagrams of this turn, or pushes them into the line.
    fn leave(&mut self, now: Instant, outbox: &mut LoadOutbox) {
        for (to, datagram) in outbox.leaving.drain(..) {
            match &mut self.line {
                Some(line) => line.up.push_tagged(to, &datagram, now),
                // A full buffer loses it, as the path may.
                None => drop(self.socket.send_to(&datagram, to.socket_addr())),
            }
        }
    }

    /// Disconnects.
    pub(super) fn stop(&mut self, now: Instant, outbox: &mut LoadOutbox) {
        self.netcode.disconnect();
        self.netcode.transmit(now, outbox);
        for (to, datagram) in outbox.leaving.drain(..) {
            let _ = self.socket.send_to(&datagram, to.socket_addr());
        }
    }
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}
