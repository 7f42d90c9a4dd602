//! One client of the proxy: its link, and the socket that represents it at the server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use slipgate_netcode::time::Instant;
use slipgate_udp::{read_drops, request_large_buffers};

use super::settings::ProxySettings;
use super::stats::{ProxyClientReport, SocketErrorClass, SocketErrors};
use crate::link::Link;
use crate::nat::Nat;

/// The maximum number of datagrams from the server that one client receives in a turn, before other clients get theirs.
const MAX_DATAGRAMS_PER_TURN: usize = 64;

pub(super) struct ProxyClient {
    pub(super) address: SocketAddr,
    pub(super) link: Link,
    /// When the last datagram of the client arrived.
    pub(super) last_received_at: Instant,
    /// Whether the socket may have unread datagrams.
    pub(super) is_ready: bool,
    upstream: UdpSocket,
    nat: Option<Nat>,
    rebindings: u64,
    /// What the system dropped for sockets that were replaced.
    dropped_before: u64,
}

impl ProxyClient {
    pub(super) fn new(
        settings: &ProxySettings,
        address: SocketAddr,
        seed: u64,
        registry: &Registry,
        token: Token,
        now: Instant,
    ) -> io::Result<Self> {
        Ok(Self {
            address,
            link: Link::bounded(settings.up, settings.down, seed, settings.bounds),
            last_received_at: now,
            is_ready: true,
            upstream: open(settings.to, registry, token)?,
            nat: settings.rebinding.map(|rebinding| Nat::new(rebinding, seed, now)),
            rebindings: 0,
            dropped_before: 0,
        })
    }

    pub(super) fn receive_from_server(&mut self, buffer: &mut [u8], socket_errors: &mut SocketErrors, now: Instant) {
        for _ in 0..MAX_DATAGRAMS_PER_TURN {
            if !self.is_ready {
                return;
            }
            match receive(|| self.upstream.recv(buffer)) {
                Incoming::Datagram(bytes) => self.link.down.push(buffer.get(..bytes).unwrap_or_default(), now),
                Incoming::Empty => self.is_ready = false,
                Incoming::Error(class) => socket_errors.count(class),
            }
        }
    }

    /// Replaces the socket when the NAT drops its mapping. Datagrams that the server sends to the old address are lost,
    /// as behind a real NAT. Returns whether the socket was replaced.
    pub(super) fn rebind_if_due(
        &mut self,
        to: SocketAddr,
        registry: &Registry,
        token: Token,
        now: Instant,
    ) -> io::Result<bool> {
        if !self.nat.as_mut().is_some_and(|nat| nat.changes(now)) {
            return Ok(false);
        }
        // The old socket is still open, so the new one gets another port.
        let fresh = open(to, registry, token)?;
        let mut old = std::mem::replace(&mut self.upstream, fresh);
        self.is_ready = true;
        self.rebindings += 1;
        self.dropped_before += u64::from(read_drops(&old).unwrap_or_default());
        registry.deregister(&mut old)?;
        Ok(true)
    }

    /// Sends the datagrams that have arrived at either end of the link.
    pub(super) fn send_due(&mut self, listener: &UdpSocket, socket_errors: &mut SocketErrors, now: Instant) {
        while let Some(arrival) = self.link.up.pop_due(now) {
            count_error(self.upstream.send(arrival.bytes), socket_errors);
        }
        while let Some(arrival) = self.link.down.pop_due(now) {
            count_error(listener.send_to(arrival.bytes, self.address), socket_errors);
        }
    }

    /// Returns how many of the server's datagrams the system dropped because a socket of this client was full; `None`
    /// if it does not report them.
    pub(super) fn dropped_by_system(&self) -> Option<u64> {
        Some(u64::from(read_drops(&self.upstream)?) + self.dropped_before)
    }

    /// Returns when this client needs the next turn.
    pub(super) fn next_due(&self, idle: Duration) -> Instant {
        let nat = self.nat.as_ref().map_or(Instant::NEVER, Nat::next_change);
        self.link.next_due().unwrap_or(Instant::NEVER).min(nat).min(self.last_received_at.after(idle))
    }

    pub(super) fn report(&self, now: Instant) -> ProxyClientReport {
        ProxyClientReport {
            address: self.address,
            upstream: self.upstream.local_addr().ok(),
            rebindings: self.rebindings,
            up: self.link.up.stats(),
            down: self.link.down.stats(),
            up_queue: self.link.up.queue_delay(now),
            down_queue: self.link.down.queue_delay(now),
        }
    }
}

/// The result of reading a socket.
pub(super) enum Incoming<T> {
    Datagram(T),
    Empty,
    Error(SocketErrorClass),
}

pub(super) fn receive<T>(read: impl FnOnce() -> io::Result<T>) -> Incoming<T> {
    match read() {
        Ok(received) => Incoming::Datagram(received),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Incoming::Empty,
        Err(error) => Incoming::Error(SocketErrorClass::of(&error)),
    }
}

fn count_error(result: io::Result<usize>, socket_errors: &mut SocketErrors) {
    result.err().into_iter().for_each(|error| socket_errors.count(SocketErrorClass::of(&error)));
}

/// Opens a socket that is connected to the server, so it receives from the server only.
fn open(to: SocketAddr, registry: &Registry, token: Token) -> io::Result<UdpSocket> {
    let ip = match to.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let mut socket = UdpSocket::bind((ip, 0).into())?;
    request_large_buffers(&socket);
    socket.connect(to)?;
    registry.register(&mut socket, token, Interest::READABLE)?;
    Ok(socket)
}
