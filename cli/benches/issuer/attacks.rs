//! The attacks: connections that occupy the issuer, and are opened again when it closes them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::requests::Requests;

/// What each connection of an attack sends. With a key, its first request is a valid one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One request, then one every 8 s, which is less than the idle time-out.
    Idle,
    /// 520 connections as `Idle`, 100 others send requests without end and read nothing.
    IdleAndUnread,
    /// The same, but it looks at each idle one once a second, evenly spread, and opens it again if it was closed.
    HeldAndUnread,
    /// One byte of a head each second.
    SlowHead,
    /// A head at once, and one byte of a body each second.
    SlowBody,
    /// Opens connections as fast as one core can, each in the place of the oldest one, and sends nothing.
    Silent,
    /// The same, and sends a request on each.
    Health,
    /// The same, with a wrong API key.
    WrongKey,
}

impl Kind {
    fn has_unread(self) -> bool {
        matches!(self, Self::IdleAndUnread | Self::HeldAndUnread)
    }
}

/// One attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    kind: Kind,
    has_key: bool,
    /// The number of source addresses. With one it is the address of the honest backend.
    addresses: u8,
    /// The pause before closed connections are opened again.
    pause: Duration,
}

const fn attack(name: &'static str, kind: Kind, has_key: bool, addresses: u8, pause_millis: u64) -> Attack {
    Attack { name, kind, has_key, addresses, pause: Duration::from_millis(pause_millis) }
}

pub(crate) const ATTACKS: [Attack; 16] = [
    attack("520 held and 100 unread, one address", Kind::HeldAndUnread, false, 1, 100),
    attack("520 held and 100 unread, one address, with a key", Kind::HeldAndUnread, true, 1, 100),
    attack("520 held and 100 unread, 50 addresses", Kind::HeldAndUnread, false, 50, 100),
    attack("520 held and 100 unread, 50 addresses, with a key", Kind::HeldAndUnread, true, 50, 100),
    attack("idle and unread, one address", Kind::IdleAndUnread, false, 1, 100),
    attack("idle and unread, one address, with a key", Kind::IdleAndUnread, true, 1, 100),
    attack("idle and unread, 50 addresses", Kind::IdleAndUnread, false, 50, 100),
    attack("idle and unread, 50 addresses, with a key", Kind::IdleAndUnread, true, 50, 100),
    attack("idle, reopened at once", Kind::Idle, false, 50, 0),
    attack("idle, reopened at once, with a key", Kind::Idle, true, 50, 0),
    attack("slow heads", Kind::SlowHead, false, 50, 100),
    attack("slow bodies", Kind::SlowBody, false, 50, 100),
    attack("slow bodies, with a key", Kind::SlowBody, true, 50, 100),
    attack("churn without requests", Kind::Silent, false, 50, 0),
    attack("churn with requests", Kind::Health, false, 50, 0),
    attack("churn with wrong keys, one address", Kind::WrongKey, false, 1, 0),
];

/// The connections of an attack: more than the issuer accepts.
const CONNECTIONS: usize = 620;
/// Those of them that are idle.
const IDLE: usize = 520;
/// In one of this many turns of the attack an idle connection is looked at, where they are held.
const LOOK_EVERY: usize = 10;

impl Attack {
    fn address(&self, index: usize) -> Ipv4Addr {
        let last = if self.addresses == 1 { 1 } else { 2 + (index % usize::from(self.addresses)) as u8 };
        Ipv4Addr::new(127, 0, 0, last)
    }

    /// Attacks while `is_on`, until `is_over`. Counts the connections that it opened.
    pub(crate) fn run(&self, requests: &Requests, is_on: &AtomicBool, is_over: &AtomicBool, opened: &AtomicU64) {
        if !std::env::args().any(|word| word == "--compete") {
            yield_to_others();
        }
        while !is_over.load(Ordering::Relaxed) {
            if is_on.load(Ordering::Relaxed) {
                match self.kind {
                    Kind::Silent => self.churn(requests, &[], is_on, opened),
                    Kind::Health => self.churn(requests, &requests.health, is_on, opened),
                    Kind::WrongKey => self.churn(requests, &requests.wrong_key, is_on, opened),
                    _ => self.hold(requests, is_on, opened),
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn churn(&self, requests: &Requests, request: &[u8], is_on: &AtomicBool, opened: &AtomicU64) {
        let mut connections: Vec<Option<TcpStream>> = (0..CONNECTIONS).map(|_| None).collect();
        while is_on.load(Ordering::Relaxed) {
            for (index, connection) in connections.iter_mut().enumerate() {
                *connection = None;
                *connection = requests.connect_at_once(self.address(index)).ok();
                if let Some(stream) = connection {
                    opened.fetch_add(1, Ordering::Relaxed);
                    let _ = stream.write(request);
                }
            }
        }
    }

    fn hold(&self, requests: &Requests, is_on: &AtomicBool, opened: &AtomicU64) {
        let mut connections: Vec<Option<Held>> = (0..CONNECTIONS).map(|_| None).collect();
        let mut turns = 0..;
        while is_on.load(Ordering::Relaxed) {
            let turn: usize = turns.next().unwrap();
            for (index, place) in connections.iter_mut().enumerate() {
                let is_looked_at = turn == 0 || (turn + index).is_multiple_of(LOOK_EVERY);
                if self.kind == Kind::HeldAndUnread && index < IDLE && !is_looked_at {
                    continue;
                }
                if !place.as_mut().is_some_and(|held| held.is_open(self.kind, index)) {
                    *place = requests.connect_at_once(self.address(index)).ok().map(Held::new);
                    opened.fetch_add(1, Ordering::Relaxed);
                }
                if let Some(held) = place {
                    held.send(self, requests, index);
                }
            }
            thread::sleep(self.pause);
        }
    }
}

/// A connection that an attack holds open.
struct Held {
    stream: TcpStream,
    next_send: Instant,
    sent: usize,
}

impl Held {
    fn new(stream: TcpStream) -> Self {
        Self { stream, next_send: Instant::now(), sent: 0 }
    }

    /// Returns whether the connection is open. Reads what has arrived, unless the attack does not read on it.
    fn is_open(&mut self, kind: Kind, index: usize) -> bool {
        if kind.has_unread() && index >= IDLE {
            return true;
        }
        loop {
            match self.stream.read(&mut [0; 4096]) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    fn send(&mut self, attack: &Attack, requests: &Requests, index: usize) {
        let now = Instant::now();
        if now < self.next_send {
            return;
        }
        let first = if attack.has_key { &requests.mint } else { &requests.health };
        let is_first = self.sent == 0;
        self.sent += 1;
        let (bytes, pause): (&[u8], _) = match attack.kind {
            kind if kind.has_unread() && index >= IDLE => {
                // As much as the system takes. An error other than a full buffer is a closed connection.
                let many = first.repeat(20);
                let error = loop {
                    if let Err(error) = self.stream.write(&many) {
                        break error;
                    }
                };
                if error.kind() != ErrorKind::WouldBlock {
                    let _ = self.stream.shutdown(std::net::Shutdown::Both);
                }
                (&[], Duration::ZERO)
            }
            Kind::SlowBody if is_first && attack.has_key => (first, Duration::from_millis(20)),
            Kind::SlowBody if is_first || attack.has_key && self.sent == 2 => {
                let head = b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n";
                (head, Duration::from_secs(1))
            }
            Kind::SlowHead | Kind::SlowBody => (&b"GET /v1/health HTTP/1.1\r\n"[self.sent % 20..][..1], SECOND),
            _ => (if is_first { first } else { &requests.health }, Duration::from_secs(8)),
        };
        let _ = self.stream.write(bytes);
        self.next_send = now + pause;
    }
}

/// Gives this thread only the time that no other thread wants (`SCHED_IDLE`): an attacker has machines of its own, and
/// takes no processor time from the issuer and its backend other than by what it sends.
fn yield_to_others() {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    let id = link.file_name().unwrap();
    assert!(Command::new("chrt").args(["--idle", "--pid", "0"]).arg(id).status().unwrap().success());
}

const SECOND: Duration = Duration::from_secs(1);
