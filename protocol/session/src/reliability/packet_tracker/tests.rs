use super::super::PacketEvents;
use super::*;
use slipgate_netcode::crypto::key::Seed;
use std::vec;
use std::vec::Vec;

const STEPS: u64 = 400_000;
/// Steps within which a packet arrives, out of order by as many.
const MAX_DELAY_STEPS: u64 = 700;
const SLOTS: usize = 1024;
const EXTENDED_BYTES: usize = 28;

/// A pseudo-random generator (xorshift64, Marsaglia, "Xorshift RNGs").
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[derive(Clone, Copy)]
struct ReceivedPacket {
    header: ReliableHeader,
    extended: [u8; EXTENDED_BYTES],
    bytes: usize,
}

/// A network that loses 20 %, duplicates 10 %, reorders, and now and then drops more packets than there are numbers.
struct Network {
    slots: Vec<Vec<ReceivedPacket>>,
    step: u64,
    /// Steps in which it carries nothing.
    broken: u64,
}

impl Network {
    fn send(&mut self, packet: ReceivedPacket, random: &mut XorShift) {
        if self.broken > 0 || random.below(5) == 0 {
            return;
        }
        for _ in 0..1 + u64::from(random.below(10) == 0) {
            let arrives = self.step + 1 + random.below(MAX_DELAY_STEPS);
            self.slots[arrives as usize % SLOTS].push(packet);
        }
    }

    fn step(&mut self, random: &mut XorShift) -> Vec<ReceivedPacket> {
        self.step += 1;
        self.broken = self.broken.saturating_sub(1);
        if self.broken == 0 && random.below(20_000) == 0 {
            self.broken = [100, 3000, 20_000, 40_000, 70_000, 140_000][random.below(6) as usize];
        }
        core::mem::take(&mut self.slots[self.step as usize % SLOTS])
    }
}

struct Peer {
    tracker: PacketTracker,
    events: PacketEvents,
    network: Network,
    /// Acknowledgements that it sent of numbers which seemed to be ahead.
    seemingly_ahead: u64,
}

impl Peer {
    fn new(seed: u64) -> Self {
        let config = EndpointConfig { acks: Some(AckPolicy::default()), ..EndpointConfig::default() };
        let mut tracker = PacketTracker::new(&config);
        tracker.skip_numbers(NumberSkips::new(NumberSkips::key(&Seed::from([7; 32])), seed));
        let events = PacketEvents::new(16);
        Self {
            tracker,
            events,
            network: Network { slots: vec![Vec::new(); SLOTS], step: 0, broken: 0 },
            seemingly_ahead: 0,
        }
    }

    fn send(&mut self, now: Instant, random: &mut XorShift) {
        let mut extended = [0; EXTENDED_BYTES];
        let bytes = self.tracker.extended_acks(&mut extended);
        let header = self.tracker.next_header();
        self.tracker.on_packet_sent(header, SessionPacketKind::AckEliciting, 100, 1, now, &mut self.events);
        self.tracker.extended_acks_sent(bytes);
        self.network.send(ReceivedPacket { header, extended, bytes }, random);
        while let Some(header) = self.tracker.due_ack_header(now) {
            self.tracker.on_packet_sent(header, SessionPacketKind::AckOnly, 0, 1, now, &mut self.events);
            self.network.send(ReceivedPacket { header, extended: [0; EXTENDED_BYTES], bytes: 0 }, random);
        }
    }

    fn receive(&mut self, packet: ReceivedPacket, now: Instant) {
        let ReceivedPacket { header, extended, bytes } = packet;
        let back = self.tracker.next_header().sequence - header.acks.ack;
        let incoming = IncomingPacket { header, payload: b"data" };
        if self.tracker.receive(incoming, now, |_| Acceptance::Take, &mut self.events).is_ok() {
            self.tracker.on_extended_acks(header.acks.ack, &extended[..bytes], now, &mut self.events);
            self.seemingly_ahead += u64::from(header.acks.bits != 0 && (back == 0 || back > 1 << 15));
        }
    }
}

/// One peer sends a packet, and the other processes the arrivals.
fn turn(from: &mut Peer, to: &mut Peer, step: u64, random: &mut XorShift) {
    let now = Instant::from_start(Duration::from_millis(step));
    from.send(now, random);
    for packet in from.network.step(random) {
        to.receive(packet, now);
    }
    from.tracker.tick(now, &mut from.events);
    while from.events.pop().is_some() {}
}

#[test]
fn honest_peers_never_count_as_acking_unsent_packets() {
    let mut seemingly_ahead = 0;
    for seed in 1..=4 {
        let mut random = XorShift(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (mut alice, mut bob) = (Peer::new(seed), Peer::new(100 + seed));
        for step in 0..STEPS {
            turn(&mut alice, &mut bob, step, &mut random);
            if step % (1 + seed % 4) == 0 {
                turn(&mut bob, &mut alice, step, &mut random);
            }
        }
        for peer in [&alice, &bob] {
            assert_eq!(peer.tracker.counters.acks_of_unsent, 0, "seed {seed}");
            assert!(!peer.tracker.acked_skipped(), "seed {seed}");
            assert!(peer.tracker.counters.acked > 1000, "seed {seed}: {:?}", peer.tracker.counters);
            seemingly_ahead += peer.seemingly_ahead;
        }
    }
    assert!(seemingly_ahead > 1000, "the network is too good to test anything: {seemingly_ahead}");
}
