//! A client and forged packets with its address.

use std::net::UdpSocket;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::Outbox;
use slipgate_netcode::client::NetcodeClient;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::MAX_DATAGRAM_BYTES;

use super::*;

/// The last datagram of a client.
struct LastDatagram {
    buf: [u8; MAX_DATAGRAM_BYTES],
    bytes: usize,
}

impl Outbox for LastDatagram {
    fn remaining(&self) -> usize {
        1
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        Some(&mut self.buf)
    }

    fn commit(&mut self, _to: Address, bytes: usize) {
        self.bytes = bytes;
    }
}

/// A client. The test hands its datagrams to the server.
struct Victim {
    server: Server,
    now: Now,
    netcode: NetcodeClient,
    address: Address,
    sealed: LastDatagram,
    /// The sequence number of its newest packet.
    newest: u64,
}

impl Victim {
    fn connected() -> Self {
        let (mut server, to) = server();
        let (clock, mut inbox) = (Clock::start(), Inbox::default());
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let address = Address::from(socket.local_addr().unwrap());
        let mut netcode = NetcodeClient::new(TimeoutPolicy::Clamped);
        netcode.connect(token(5, to, clock.now()), clock.now().monotonic, |_| true).unwrap();
        let mut sealed = LastDatagram { buf: [0; MAX_DATAGRAM_BYTES], bytes: 0 };
        let mut buf = [0; MAX_DATAGRAM_BYTES];
        for _ in 0..5_000 {
            let now = clock.now();
            netcode.tick(now.monotonic);
            sealed.bytes = 0;
            netcode.transmit(now.monotonic, &mut sealed);
            socket.send_to(&sealed.buf[..sealed.bytes], to).unwrap();
            server.begin_turn(now);
            while inbox.next(&mut server).is_some() {}
            server.end_turn();
            if let Ok((bytes, _)) = socket.recv_from(&mut buf) {
                let _ = netcode.handle(Address::from(to), &mut buf[..bytes], now.monotonic);
            }
            if netcode.state().is_connected() {
                return Self { server, now: clock.now(), netcode, address, sealed, newest: 0 };
            }
        }
        panic!("the client did not connect in 5 s");
    }

    /// Sends a payload. Returns whether the server takes it.
    fn send(&mut self) -> bool {
        self.netcode.send(b"position", self.now.monotonic, &mut self.sealed).unwrap();
        let datagram = &mut self.sealed.buf[..self.sealed.bytes];
        self.newest = u64::from(slipgate_udp::sequence_of(datagram).unwrap());
        self.server.handle(self.address, datagram, &mut Vec::new()).is_some()
    }

    /// Hands a datagram to the server that looks like a payload with this sequence number.
    fn forge(&mut self, sequence: u64) {
        let mut datagram = [0x85; 60];
        datagram[1..9].copy_from_slice(&sequence.to_le_bytes());
        assert!(self.server.handle(self.address, &mut datagram, &mut Vec::new()).is_none());
    }
}

/// How the attacker chooses sequence numbers.
#[derive(Clone, Copy, Debug)]
enum Forged {
    Random,
    /// Those that a client may have after half an hour.
    Plausible,
    /// The attacker knows the client's packets approximately.
    Near,
    /// The attacker sees the client's packets and repeats the number of the newest one.
    Newest,
}

/// Returns how many of 63 packets in 1 s the server takes beside 300,000 forged ones a second.
fn taken(forged: Forged) -> u32 {
    let mut victim = Victim::connected();
    let mut random = StdRng::seed_from_u64(7);
    let mut taken = 0;
    // Two milliseconds each: an event loop under load wakes at least as often.
    for step in 0..500_u32 {
        victim.now.monotonic = victim.now.monotonic.after(Duration::from_millis(2));
        victim.server.begin_still_turn(victim.now);
        victim.server.flood_guard.on_read(victim.now.monotonic);
        let position = random.random_range(0..600);
        for number in 0..600 {
            if step % 8 == 0 && number == position {
                taken += u32::from(victim.send());
            }
            let sequence = match forged {
                Forged::Random => random.random(),
                Forged::Plausible => random.random_range(0..108_000),
                Forged::Near => victim.newest + random.random_range(0..200),
                Forged::Newest => victim.newest,
            };
            victim.forge(sequence);
        }
        if step % 8 == 7 {
            victim.server.end_turn();
        }
    }
    assert_eq!(victim.server.connected_count(), 1, "{forged:?}");
    taken
}

#[test]
fn client_whose_address_is_forged_loses_no_packet() {
    for forged in [Forged::Random, Forged::Plausible, Forged::Near, Forged::Newest] {
        assert_eq!(taken(forged), 63, "{forged:?}");
    }
}
