//! Memory for received data that many connections share.

use super::*;
use crate::reliability::MemoryBudget;

const RELIABLE: [Kind; 2] = [Kind::ReliableUnordered, Kind::ReliableOrdered];

/// Returns an end that takes the memory for received data from a budget.
fn sharing(configs: &[ChannelConfig], memory: &MemoryBudget) -> End {
    let mut end = End::new(configs);
    end.channels = Channels::new(Arc::new(Layout::try_from(configs.to_vec()).unwrap()), Some(memory.clone()));
    end
}

/// Returns two ends. The second one has memory left only for the last channel, which waits for its first message.
fn without_memory(kind: Kind) -> [End; 2] {
    let configs = [of(kind), ChannelConfig { priority: 1, ..of(Kind::ReliableOrdered) }];
    let [mut one, mut other] = [End::new(&configs), sharing(&configs, &MemoryBudget::new(0))];
    one.send(ChannelId(1), b"lost");
    let _lost = one.packet(20).unwrap();
    for _ in 0..RESERVE_BYTES / PIECE_BYTES - 2 {
        one.send(ChannelId(1), b"waits");
        let (sequence, frames) = one.packet(20).unwrap();
        assert!(other.channels.can_take(&frames));
        other.take(&frames).unwrap();
        one.channels.on_acked(sequence);
    }
    assert!(other.received.is_empty());
    [one, other]
}

#[test]
fn packet_without_memory_is_refused_and_arrives_later() {
    for (budget, packet_bytes) in
        [4500, 5000, 6500].into_iter().flat_map(|budget| (1175..1181).map(move |p| (budget, p)))
    {
        let memory = MemoryBudget::new(budget);
        let mut one = End::new(&[of(Kind::ReliableOrdered)]);
        let mut other = sharing(&[of(Kind::ReliableOrdered)], &memory);
        for number in 0..40 {
            one.send(C, &message(number, 1000));
        }
        let packets: Vec<_> = one.packets(packet_bytes);
        let (missing, rest) = packets.split_first().unwrap();
        let (taken, refused): (Vec<_>, Vec<_>) = rest.iter().partition(|(_, frames)| {
            let fits = other.channels.can_take(frames);
            if fits {
                other.take(frames).unwrap();
            }
            fits
        });
        assert!(taken.len() >= 6 && refused.len() > 20, "{} taken of {budget}", taken.len());
        assert!(other.received.is_empty() && memory.left() < 2500, "{} left of {budget}", memory.left());
        for (sequence, frames) in [missing].into_iter().chain(refused) {
            assert!(other.channels.can_take(frames), "messages in order need no memory");
            other.take(frames).unwrap();
            one.channels.on_acked(*sequence);
        }
        let expected: Vec<_> = (0..40).map(|number| message(number, 1000)).collect();
        assert_eq!(other.received(), expected, "budget {budget}, packets of {packet_bytes}");
    }
}

#[test]
fn messages_in_order_within_a_packet_need_no_memory() {
    for (kind, bytes) in RELIABLE.into_iter().flat_map(|kind| [1, 100, 700, 3000].map(|bytes| (kind, bytes))) {
        let [mut one, mut other] = without_memory(kind);
        let expected: Vec<_> = (0..15).map(|number| message(number, bytes)).collect();
        for message in &expected {
            one.send(C, message);
        }
        for (_, frames) in one.packets(1180) {
            assert!(other.channels.can_take(&frames), "{kind:?} {bytes}");
            other.take(&frames).unwrap();
        }
        assert_eq!(other.received(), expected, "{kind:?} {bytes}");
    }
}

#[test]
fn lost_slice_is_taken_without_memory_and_frees_the_rest() {
    let [mut one, mut other] = without_memory(Kind::ReliableOrdered);
    one.send(C, &message(0, 1300));
    let (lost, _) = one.packet(800).unwrap();
    let (sequence, frames) = one.packet(800).unwrap();
    assert!(other.channels.can_take(&frames), "slices of the oldest missing message");
    other.take(&frames).unwrap();
    one.channels.on_acked(sequence);
    (1..4).for_each(|number| one.send(C, &message(number, 40)));
    one.channels.on_lost(lost);
    let (_, frames) = one.packet(1180).unwrap();
    assert!(other.channels.can_take(&frames));
    other.take(&frames).unwrap();
    let expected = [(0, 1300), (1, 40), (2, 40), (3, 40)].map(|(number, bytes)| message(number, bytes));
    assert_eq!(other.received(), expected);
}

#[test]
fn packet_of_more_pieces_than_are_free_is_refused() {
    // The lists of eight messages take no shared memory, so the pieces alone decide.
    let configs = [ChannelConfig { queue_messages: 8, ..of(Kind::ReliableOrdered) }];
    let [mut one, mut other] = [End::new(&configs), sharing(&configs, &MemoryBudget::new(0))];
    for number in 0..8 {
        one.send(C, &message(number, 5 * PIECE_BYTES));
    }
    let packets = one.packets(700);
    assert_eq!((packets.len(), RESERVE_BYTES / PIECE_BYTES / 5), (8, 6));
    // The first packet is lost. Six of those behind it take 30 of the 32 pieces of the reserve.
    for (number, (_, frames)) in packets.iter().enumerate().skip(1) {
        let fits = other.channels.can_take(frames);
        assert_eq!(fits, number <= 6, "packet {number}");
        if fits {
            other.take(frames).unwrap();
        }
    }
}

#[test]
fn packet_far_ahead_is_refused_without_memory_for_lists() {
    for kind in RELIABLE {
        let configs = [ChannelConfig { queue_messages: 4096, ..of(kind) }];
        let [mut one, mut other] = [End::new(&configs), sharing(&configs, &MemoryBudget::new(0))];
        for number in 0..1200 {
            one.send(C, &message(number, 10));
        }
        let packets = one.packets(20);
        let fits = |index: usize| other.channels.can_take(&packets[index].1);
        // Up to 1,024 messages are listed without shared memory: 16 KiB.
        assert_eq!((packets.len(), fits(1023), fits(1024), fits(1199)), (1200, true, false, false), "{kind:?}");
        other.take(&packets[1023].1).unwrap();
    }
}

#[test]
fn slice_repeated_in_a_packet_completes_no_message() {
    let [_, mut other] = without_memory(Kind::ReliableOrdered);
    // A message of 300 bytes, with its first piece three times, and three messages behind it. The memory suffices for
    // two.
    let first = [&[0x41, 0, 0xac, 2, 0, 0x80, 1][..], &[7; 128]].concat();
    let behind = [[1, 1, 1, b'x'], [1, 1, 1, b'y'], [1, 1, 1, b'z']].concat();
    let frames = [first.repeat(3), behind.clone()].concat();
    assert!(!other.channels.can_take(&frames));
    // Complete messages need none.
    let frames = [[&[0x41, 0, 0xac, 2, 0, 0xac, 2][..], &[7; 300]].concat(), behind].concat();
    assert!(other.channels.can_take(&frames));
    other.take(&frames).unwrap();
    assert_eq!(other.received().len(), 4);
}

/// Memory of the overdraft: a message of the largest size.
const OVERDRAFT_BYTES: usize = 65_536 / PIECE_BYTES * RESERVE_BYTES / 32;

#[test]
fn large_messages_of_all_channels_arrive_without_memory() {
    for (kind, seed) in RELIABLE.into_iter().flat_map(|kind| (1..=2).map(move |seed| (kind, seed))) {
        // A layout as hostile as possible, and small messages of a higher priority beside it.
        let large = ChannelConfig { max_message_bytes: 65_536, queue_bytes: 1 << 18, ..of(kind) };
        let mut configs = vec![large; MAX_CHANNELS - 1];
        configs.push(ChannelConfig { priority: 1, ..of(Kind::ReliableOrdered) });
        let small = ChannelId(MAX_CHANNELS as u8 - 1);
        let [mut one, mut other] = [End::new(&configs), sharing(&configs, &MemoryBudget::new(0))];
        let mut chance = Chance(seed);
        let mut expected: Vec<_> = (0..MAX_CHANNELS - 1).map(|number| message(number, 65_536 - 900 * number)).collect();
        for (number, message) in expected.iter().enumerate() {
            one.send(ChannelId(number as u8), message);
        }
        let (mut rounds, mut most, mut sent) = (0, 0, 0);
        while one.channels.wants_to_send() {
            rounds += 1;
            assert!(rounds < 300, "{kind:?}, seed {seed}: {} arrived", other.received.len());
            if rounds < 100 {
                let message = message(1000 + rounds, 30);
                one.send(small, &message);
                expected.push(message);
            }
            // What a path carries in a round trip. A packet in 16 is lost.
            let packets: Vec<_> = core::iter::from_fn(|| one.packet(1180)).take(500).collect();
            sent += packets.len();
            let (acked, lost): (Vec<_>, Vec<_>) = packets.into_iter().partition(|(_, frames)| {
                let fits = chance.below(16) > 0 && other.channels.can_take(frames);
                if fits {
                    other.take(frames).unwrap();
                }
                most = most.max(other.channels.memory_bytes());
                fits
            });
            acked.iter().for_each(|(sequence, _)| one.channels.on_acked(*sequence));
            lost.iter().for_each(|(sequence, _)| one.channels.on_lost(*sequence));
        }
        let mut received = other.received();
        received.sort();
        expected.sort();
        assert!(received == expected, "{kind:?}, seed {seed}: {} arrived", received.len());
        std::println!("{kind:?}, seed {seed}: {rounds} rounds, {sent} packets, {most} bytes");
        assert!(most <= RESERVE_BYTES + OVERDRAFT_BYTES + RESERVE_BYTES, "{kind:?}, seed {seed}: {most} bytes");
    }
}

/// A random number generator.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end) as u8
    }

    /// Returns a packet of messages and slices, most of them behind the first missing message.
    fn frames(&mut self) -> Vec<u8> {
        let mut frames = Vec::new();
        for _ in 0..=self.below(4) {
            let is_first = self.below(200) == 0;
            let (channel, id) = (1 + self.below(2), if is_first { 0 } else { 1 + self.below(100) });
            if self.below(2) == 0 {
                let bytes = self.below(100);
                frames.extend([channel, id, bytes]);
                frames.resize(frames.len() + usize::from(bytes), 7);
            } else {
                // One piece of a message of 2,000 bytes.
                frames.extend([channel | 0x40, id, 0xd0, 15, self.below(15), 0x80, 1]);
                frames.resize(frames.len() + 128, 7);
            }
        }
        frames
    }
}

#[test]
fn memory_is_bounded_by_budget_and_reserves_for_any_frames() {
    const BUDGET: usize = 40_000;
    const ENDS: usize = 5;
    // The oldest missing message of each channel, in whole groups of chunks.
    const OLDEST: usize = 2 * RESERVE_BYTES;
    let (memory, mut chance, mut used_up) = (MemoryBudget::new(BUDGET), Chance(4), 0);
    let configs = RELIABLE.map(|kind| ChannelConfig { max_message_bytes: 2000, queue_bytes: 1 << 18, ..of(kind) });
    let mut ends: Vec<_> = (0..ENDS).map(|_| sharing(&configs, &memory)).collect();
    for turn in 0..20_000 {
        if turn % 400 == 0 {
            ends[turn / 400 % ENDS] = sharing(&configs, &memory);
        }
        let frames = chance.frames();
        let end = &mut ends[usize::from(chance.below(ENDS as u64))];
        if end.channels.can_take(&frames) && end.take(&frames).is_err() {
            *end = sharing(&configs, &memory);
        }
        let bytes: usize = ends.iter().map(|end| end.channels.memory_bytes()).sum();
        assert!(bytes <= BUDGET + ENDS * (RESERVE_BYTES + OLDEST), "{bytes}");
        used_up += usize::from(memory.left() < RESERVE_BYTES);
    }
    assert!(used_up > 1000, "{used_up}");
}
