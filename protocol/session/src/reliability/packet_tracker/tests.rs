use core::time::Duration;

use super::super::PacketEvents;
use super::*;
use crate::wire::session_frame::Timestamp;
use slipgate_netcode::crypto::key::Seed;
use slipgate_sim::{Conditions, Loss, Order, Path, Random, Share};

const STEPS: u64 = 400_000;
/// Steps within which a packet arrives, out of order by as many.
const MAX_DELAY_STEPS: u64 = 700;
const EXTENDED_BYTES: usize = 28;

#[derive(Clone, Copy)]
struct Sent {
    header: ReliableHeader,
    nonces: AckNonces,
    extended: [u8; EXTENDED_BYTES],
    bytes: usize,
}

/// A network that loses 20 %, duplicates 10 %, reorders, and now and then drops more packets than there are numbers.
struct Network {
    path: Path<Sent>,
    step: u64,
    /// Steps in which it carries nothing.
    broken: u64,
}

impl Network {
    fn new(seed: u64) -> Self {
        let conditions = Conditions {
            latency: Duration::from_millis(1),
            jitter: Duration::from_millis(MAX_DELAY_STEPS - 1),
            order: Order::Free,
            loss: Loss::Random(Share::percent(20.0)),
            duplication: Share::percent(10.0),
            ..Conditions::perfect()
        };
        Self { path: Path::new(conditions, seed), step: 0, broken: 0 }
    }

    /// Returns the time of the path: a step takes 1 ms.
    fn now(&self) -> Instant {
        Instant::from_start(Duration::from_millis(self.step))
    }

    fn send(&mut self, packet: Sent) {
        if self.broken == 0 {
            self.path.push_tagged(packet, &[], self.now());
        }
    }

    fn step(&mut self, random: &mut Random) {
        self.step += 1;
        self.broken = self.broken.saturating_sub(1);
        if self.broken == 0 && random.below(20_000) == 0 {
            self.broken = [100, 3000, 20_000, 40_000, 70_000, 140_000][random.below(6) as usize];
        }
    }

    fn receive(&mut self) -> Option<Sent> {
        self.path.pop_due(self.now()).map(|arrival| arrival.tag)
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
        tracker.check_acks(NumberSkips::new(NumberSkips::key(&Seed::from([7; 32])), seed));
        let events = PacketEvents::new(16);
        Self { tracker, events, network: Network::new(seed), seemingly_ahead: 0 }
    }

    fn send(&mut self, now: Instant) {
        let mut extended = [0; EXTENDED_BYTES];
        let bytes = self.tracker.extended_acks(&mut extended);
        let header = self.tracker.next_header();
        let nonces = self.tracker.next_nonces(&header, &extended[..bytes]);
        self.tracker.on_packet_sent(header, SessionPacketKind::AckEliciting, 100, 1, now, &mut self.events);
        self.tracker.extended_acks_sent(bytes);
        self.network.send(Sent { header, nonces, extended, bytes });
        while let Some(header) = self.tracker.due_ack_header(now) {
            let nonces = self.tracker.next_nonces(&header, &[]);
            self.tracker.on_packet_sent(header, SessionPacketKind::AckOnly, 0, 1, now, &mut self.events);
            self.network.send(Sent { header, nonces, extended: [0; EXTENDED_BYTES], bytes: 0 });
        }
    }

    fn receive(&mut self, packet: Sent, now: Instant) {
        let Sent { header, nonces, extended, bytes } = packet;
        let back = self.tracker.next_header().sequence - header.acks.ack;
        let incoming = IncomingPacket { header, payload: b"data" };
        if let Ok(packet) = self.tracker.receive(incoming, now, |_| Acceptance::Take, &mut self.events) {
            let frame = SessionFrame { sent: Timestamp(0), nonces, arrived: None, extended_acks: &extended[..bytes] };
            self.tracker.on_extended_acks(header.acks.ack, &extended[..bytes], now, &mut self.events);
            self.tracker.on_nonces(&packet, &frame);
            self.seemingly_ahead += u64::from(header.acks.bits != 0 && (back == 0 || back > 1 << 15));
        }
    }
}

/// One peer sends a packet, and the other processes the arrivals.
fn turn(from: &mut Peer, to: &mut Peer, step: u64, random: &mut Random) {
    let now = Instant::from_start(Duration::from_millis(step));
    from.send(now);
    from.network.step(random);
    while let Some(packet) = from.network.receive() {
        to.receive(packet, now);
    }
    from.tracker.tick(now, &mut from.events);
    while from.events.pop().is_some() {}
}

#[test]
fn honest_peers_never_count_as_acking_unsent_packets() {
    let mut seemingly_ahead = 0;
    for seed in 1..=4 {
        let mut random = Random::new(seed, 0);
        let (mut alice, mut bob) = (Peer::new(seed), Peer::new(100 + seed));
        for step in 0..STEPS {
            turn(&mut alice, &mut bob, step, &mut random);
            if step % (1 + seed % 4) == 0 {
                turn(&mut bob, &mut alice, step, &mut random);
            }
        }
        for peer in [&alice, &bob] {
            assert_eq!(peer.tracker.counters.acks_of_unsent, 0, "seed {seed}");
            assert!(!peer.tracker.has_false_acks(), "seed {seed}");
            assert!(peer.tracker.counters.acked > 1000, "seed {seed}: {:?}", peer.tracker.counters);
            seemingly_ahead += peer.seemingly_ahead;
        }
    }
    assert!(seemingly_ahead > 1000, "the network is too good to test anything: {seemingly_ahead}");
}
