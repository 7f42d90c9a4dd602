//! One client of the proxy: its line, and the socket by which the server knows it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};
use slipgate_netcode::time::Instant;

use super::Settings;
use super::stats::{ClientReport, SocketTrouble, SocketTroubles};
use crate::link::Link;
use crate::nat::Nat;

/// Datagrams of the server for one client that are taken in one turn before others have theirs.
const DATAGRAMS_PER_TURN: usize = 64;

pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) link: Link,
    /// When it sent something last.
    pub(super) heard: Instant,
    /// Something may wait in the socket.
    pub(super) is_ready: bool,
    upstream: UdpSocket,
    nat: Option<Nat>,
    rebindings: u64,
}

impl Client {
    pub(super) fn new(
        settings: &Settings,
        address: SocketAddr,
        seed: u64,
        registry: &Registry,
        token: Token,
        now: Instant,
    ) -> io::Result<Self> {
        Ok(Self {
            address,
            link: Link::bounded(settings.up, settings.down, seed, settings.bounds),
            heard: now,
            is_ready: true,
            upstream: open(settings.to, registry, token)?,
            nat: settings.rebinding.map(|rebinding| Nat::new(rebinding, seed, now)),
            rebindings: 0,
        })
    }

    pub(super) fn take_from_server(&mut self, buffer: &mut [u8], troubles: &mut SocketTroubles, now: Instant) {
        for _ in 0..DATAGRAMS_PER_TURN {
            if !self.is_ready {
                return;
            }
            match receive(|| self.upstream.recv(buffer)) {
                Receipt::Came(bytes) => self.link.down.push(buffer.get(..bytes).unwrap_or_default(), now),
                Receipt::Nothing => self.is_ready = false,
                Receipt::Trouble(trouble) => troubles.note(trouble),
            }
        }
    }

    /// Takes another socket when the NAT forgets. What the server still sends to the old one is lost, as behind a NAT.
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
        // The old one is still open, so that the new one has another port.
        let fresh = open(to, registry, token)?;
        let mut old = std::mem::replace(&mut self.upstream, fresh);
        self.is_ready = true;
        self.rebindings += 1;
        registry.deregister(&mut old)?;
        Ok(true)
    }

    /// Sends what has arrived at either end of the line.
    pub(super) fn send_due(&mut self, listener: &UdpSocket, troubles: &mut SocketTroubles, now: Instant) {
        while let Some(arrival) = self.link.up.pop_due(now) {
            note(self.upstream.send(arrival.bytes), troubles);
        }
        while let Some(arrival) = self.link.down.pop_due(now) {
            note(listener.send_to(arrival.bytes, self.address), troubles);
        }
    }

    /// When there is something to do for this client.
    pub(super) fn next_due(&self, idle: Duration) -> Instant {
        let nat = self.nat.as_ref().map_or(Instant::NEVER, Nat::next_change);
        self.link.next_due().unwrap_or(Instant::NEVER).min(nat).min(self.heard.after(idle))
    }

    pub(super) fn report(&self, now: Instant) -> ClientReport {
        ClientReport {
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

/// What reading a socket brought.
pub(super) enum Receipt<T> {
    Came(T),
    Nothing,
    Trouble(SocketTrouble),
}

pub(super) fn receive<T>(read: impl FnOnce() -> io::Result<T>) -> Receipt<T> {
    match read() {
        Ok(came) => Receipt::Came(came),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Receipt::Nothing,
        Err(error) => Receipt::Trouble(SocketTrouble::of(&error)),
    }
}

fn note(result: io::Result<usize>, troubles: &mut SocketTroubles) {
    result.err().into_iter().for_each(|error| troubles.note(SocketTrouble::of(&error)));
}

/// A socket that hears the server alone.
fn open(to: SocketAddr, registry: &Registry, token: Token) -> io::Result<UdpSocket> {
    let ip = match to.ip() {
        IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let mut socket = UdpSocket::bind((ip, 0).into())?;
    socket.connect(to)?;
    registry.register(&mut socket, token, Interest::READABLE)?;
    Ok(socket)
}
