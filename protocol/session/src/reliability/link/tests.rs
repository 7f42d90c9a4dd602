use super::*;
use std::vec;
use std::vec::Vec;

const STEPS: u64 = 400_000;
/// Steps within which a packet arrives, out of order by as many.
const LONGEST_WAY: u64 = 700;
const PLACES: usize = 1024;
const BEHIND: usize = 28;

/// As random as a world needs to be (xorshift64, Marsaglia, "Xorshift RNGs").
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[derive(Clone, Copy)]
struct Packet {
    header: Header,
    behind: [u8; BEHIND],
    bytes: usize,
}

/// A path that loses a fifth, repeats a tenth, mixes up all, and now and then carries nothing for longer than there are
/// numbers.
struct Way {
    places: Vec<Vec<Packet>>,
    step: u64,
    /// Steps in which it carries nothing.
    broken: u64,
}

impl Way {
    fn carry(&mut self, packet: Packet, chance: &mut Chance) {
        if self.broken > 0 || chance.below(5) == 0 {
            return;
        }
        for _ in 0..1 + u64::from(chance.below(10) == 0) {
            let arrives = self.step + 1 + chance.below(LONGEST_WAY);
            self.places[arrives as usize % PLACES].push(packet);
        }
    }

    fn step(&mut self, chance: &mut Chance) -> Vec<Packet> {
        self.step += 1;
        self.broken = self.broken.saturating_sub(1);
        if self.broken == 0 && chance.below(20_000) == 0 {
            self.broken = [100, 3000, 20_000, 40_000, 70_000, 140_000][chance.below(6) as usize];
        }
        core::mem::take(&mut self.places[self.step as usize % PLACES])
    }
}

struct Side {
    link: Link,
    way: Way,
    /// Acknowledgements that it sent of numbers which seemed to be ahead.
    looked_ahead: u64,
}

impl Side {
    fn new() -> Self {
        let link = Link::new(&Config { acks: Some(AckPolicy::default()), ..Config::default() });
        Self { link, way: Way { places: vec![Vec::new(); PLACES], step: 0, broken: 0 }, looked_ahead: 0 }
    }

    fn send(&mut self, now: Instant, chance: &mut Chance) {
        let mut behind = [0; BEHIND];
        let bytes = self.link.acks_behind(&mut behind);
        let header = self.link.next_header();
        self.link.depart(header, Cargo::Data, 100, now);
        self.link.report_behind(bytes);
        self.way.carry(Packet { header, behind, bytes }, chance);
        while let Some(header) = self.link.owed_header(now) {
            self.link.depart(header, Cargo::AcksAlone, 0, now);
            self.way.carry(Packet { header, behind: [0; BEHIND], bytes: 0 }, chance);
        }
    }

    fn hear(&mut self, packet: Packet, now: Instant) {
        let Packet { header, behind, bytes } = packet;
        let back = self.link.next_header().sequence.distance_from(header.acks.ack);
        let incoming = Incoming { header, payload: b"data", bytes: 100 };
        if self.link.receive(incoming, now, |_| Acceptance::Take).is_ok() {
            self.link.hear_behind(header.acks.ack, &behind[..bytes], now);
            self.looked_ahead += u64::from(header.acks.bits != 0 && (back == 0 || back > 1 << 15));
        }
    }
}

/// One sends a packet, and the other hears what arrives.
fn turn(from: &mut Side, to: &mut Side, step: u64, chance: &mut Chance) {
    let now = Instant::from_start(Duration::from_millis(step));
    from.send(now, chance);
    for packet in from.way.step(chance) {
        to.hear(packet, now);
    }
    from.link.tick(now);
    while from.link.poll().is_some() {}
}

#[test]
fn no_honest_peer_is_ever_taken_for_one_that_acknowledges_what_was_never_sent() {
    let mut looked_ahead = 0;
    for seed in 1..=4 {
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let (mut alice, mut bob) = (Side::new(), Side::new());
        for step in 0..STEPS {
            turn(&mut alice, &mut bob, step, &mut chance);
            if step % (1 + seed % 4) == 0 {
                turn(&mut bob, &mut alice, step, &mut chance);
            }
        }
        for side in [&alice, &bob] {
            assert_eq!(side.link.counters.acks_of_unsent, 0, "seed {seed}");
            assert!(side.link.counters.acked > 1000, "seed {seed}: {:?}", side.link.counters);
            looked_ahead += side.looked_ahead;
        }
    }
    assert!(looked_ahead > 1000, "the worlds are too kind: {looked_ahead}");
}
