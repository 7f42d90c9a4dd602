//! Receivers that acknowledge packets which they did not get, behind a path of 4 Mbit/s with a buffer of 250 ms. They
//! also report arrivals that are too early, and the longest wait in a socket, which hides the queue: without one no
//! packet is missing. With these seeds none is sent 64 KiB more than an honest one there; with others false send times
//! gain up to 66,607 bytes. On other paths false times, which no nonce reveals, gain more: see the tables of the tests.
//! Receivers that omit acknowledgements of what arrived invent a random loss, which adds to that.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::channel::transfer::frame::{SLICE_HEADER_BYTES, TransferFrame};
use slipgate_session::channel::transfer::{Transfer, TransferConfig};
use slipgate_session::channel::{ChannelConfig, ChannelId, ChannelViolation, Kind, Layout};
use slipgate_session::connection::{CloseKind, Connection, ConnectionConfig, Role};
use slipgate_session::reliability::Sink;
use slipgate_session::wire::reliable::{ReliableHeader, Sequence};
use slipgate_session::wire::session_frame::{ArrivalEcho, SessionFrame, Timestamp};
use slipgate_sim::{Buffer, Conditions, Loss, Random, Rate, RateLimit, Share};
use slipgate_tests::nonce_sum::{nonce_planes, nonce_sum};
use slipgate_tests::sinks::Payloads;
use slipgate_tests::world::{End, PathSink, Program, SentDatagrams, World};

const MAP: ChannelId = ChannelId(0);
const CONTENT_BYTE: u8 = 7;
/// The bytes on the path that a false receiver may get beyond an honest one.
const GOAL: u64 = 64 << 10;
const SEEDS: u64 = 40;
/// The headers of UDP, IPv4 and netcode in bytes.
const BELOW: u64 = 49;
const STEP: Duration = Duration::from_millis(2);
/// The time of a world.
const PLAYED: Duration = Duration::from_secs(9);

/// Which of the packets that are missing a receiver acknowledges.
#[derive(Clone, Copy, PartialEq, Debug)]
enum FalseAcks {
    Nothing,
    /// All that the header and its extension can name.
    All,
    /// Each with this probability.
    Some(f64),
    /// Those of gaps of at least this length.
    Runs(u16),
    /// Those of gaps in which the slices of as many packets are missing as numbers.
    Holes,
    /// The same, each in one datagram alone.
    HolesOnce,
    /// The same, and one in each datagram: no choice of what else it acknowledges helps it to guess a nonce.
    HolesSingly,
    /// All, and this many numbers beyond the newest.
    Ahead(u16),
    /// The missing packets not at all, but all delays are the shortest.
    DelaysAlone,
    /// None of them, and of those that arrived each is left out with this probability.
    Omitted(f64),
    /// The same in every other 2 s, and none is left out between.
    OmittedInTurns(f64),
}

/// How a receiver reports that all packets had the shortest delay.
#[derive(Clone, Copy, PartialEq, Debug)]
enum FalseDelays {
    /// It claims that the packets were at its side while they were in the queue: in its socket, and until it
    /// acknowledged them.
    Held,
    /// Its send times are as early as the arrivals: the queue seems to be on the way back.
    SlowReturn,
    /// Not at all.
    True,
}

/// A false receiver.
#[derive(Clone, Copy, Debug)]
struct Lie {
    acks: FalseAcks,
    delays: FalseDelays,
    /// The time before the first lie.
    from: Duration,
}

const HONEST: Lie = Lie { acks: FalseAcks::Nothing, delays: FalseDelays::Held, from: Duration::ZERO };

#[derive(Clone, Copy)]
enum Numbering {
    Consecutive,
    Skipping,
}

/// One end: the server, which sends correct acknowledgements, or a receiver.
struct Player {
    connection: Connection,
    acks: FalseAcks,
    delays: FalseDelays,
    from: Instant,
    random: Random,
    /// Which missing packets are acknowledged: decided once for each.
    decisions: HashMap<u16, bool>,
    /// Whether a datagram acknowledges a missing packet.
    has_claimed: bool,
    /// The nonces that it guessed.
    guesses: HashMap<u16, u8>,
    /// When each packet left, by the sender's clock, with its nonce, and the shortest delay so far in units of
    /// timestamps.
    sent: HashMap<u16, (Timestamp, u8)>,
    shortest: u16,
    newest: Option<Sequence>,
    /// The slices in each packet.
    slices: HashMap<u16, Range<u32>>,
    buf: Vec<u8>,
}

impl Player {
    fn new(connection: Connection, lie: Lie, start: Instant, seed: u64) -> Self {
        Self {
            connection,
            acks: lie.acks,
            delays: lie.delays,
            from: start.after(lie.from),
            random: Random::new(seed, 1),
            decisions: HashMap::new(),
            has_claimed: false,
            guesses: HashMap::new(),
            sent: HashMap::new(),
            shortest: u16::MAX,
            newest: None,
            slices: HashMap::new(),
            buf: Vec::new(),
        }
    }

    /// Records the send time of an arriving datagram.
    fn observe(&mut self, datagram: &[u8], now: Instant) {
        let Ok((header, payload)) = ReliableHeader::parse(datagram) else { return };
        let Ok((frame, _)) = SessionFrame::parse(payload) else { return };
        self.sent.insert(header.sequence.0, (frame.sent, frame.nonces.own));
        let old = header.sequence.0.wrapping_add(1 << 15);
        self.decisions.remove(&old);
        self.guesses.remove(&old);
        self.sent.remove(&old);
        self.slices.remove(&old);
        if let Some(slices) = slices_of(payload) {
            self.slices.insert(header.sequence.0, slices);
        }
        let delay = Timestamp::from(now).0.wrapping_sub(frame.sent.0);
        self.shortest = self.shortest.min(delay);
        if self.newest.is_none_or(|newest| header.sequence.is_newer_than(newest)) {
            self.newest = Some(header.sequence);
        }
    }

    /// Returns a datagram of the honest connection with false acknowledgements.
    fn falsify(&mut self, datagram: &[u8], now: Instant) -> Vec<u8> {
        let Ok((mut header, payload)) = ReliableHeader::parse(datagram) else { return datagram.to_vec() };
        if self.acks == FalseAcks::Nothing || now < self.from || payload.is_empty() || header.acks.bits == 0 {
            return datagram.to_vec();
        }
        let Ok((frame, rest)) = SessionFrame::parse(payload) else { return datagram.to_vec() };
        let at = self.sent.get(&header.acks.ack.0).map(|sent| Timestamp(sent.0.0.wrapping_add(self.shortest)));
        let mut arrived = match self.delays {
            FalseDelays::True => frame.arrived,
            _ => frame.arrived.zip(at).map(|(_, at)| ArrivalEcho { at, late: u8::MAX }),
        };
        if let FalseAcks::Ahead(packets) = self.acks {
            header.acks.ack = header.acks.ack + packets;
            arrived = Some(ArrivalEcho { at: Timestamp::from(now), late: 0 });
        }
        let mut nonces = frame.nonces;
        self.has_claimed = false;
        let known = AckBits { header: header.acks.bits, extended: frame.extended_acks.to_vec() };
        let known = self.omit(header.acks.ack, known, now);
        let mut claimed = known.clone();
        for back in (0..known.len()).filter(|back| !known.get(*back)) {
            if self.acks_missing(header.acks.ack - back, known.missing_around(back)) {
                claimed.set(back);
            }
        }
        header.acks.bits = claimed.header;
        let acked = (0..claimed.len()).filter(|back| claimed.get(*back)).map(|back| (header.acks.ack - back).0);
        let known = HashMap::<_, _>::from_iter(acked.map(|number| (number, self.guess(Sequence(number)))));
        let planes = nonce_planes(header.acks, &claimed.extended, |number| known[&number]);
        nonces.sum = nonce_sum(header.sequence.0, &planes);
        let mut buf = [0; MAX_PAYLOAD_BYTES + 64];
        let mut writer = Writer::new(&mut buf);
        header.emit(&mut writer);
        let sent = match (self.delays, frame.arrived, arrived) {
            (FalseDelays::SlowReturn, Some(true_arrival), Some(arrival)) => {
                Timestamp(arrival.at.0.wrapping_add(frame.sent.0.wrapping_sub(true_arrival.at.0)))
            }
            _ => frame.sent,
        };
        SessionFrame { sent, nonces, arrived, extended_acks: &claimed.extended }.emit(&mut writer);
        writer.bytes(rest);
        let bytes = writer.written().unwrap();
        buf[..bytes].to_vec()
    }

    /// Returns acknowledgements without those of the packets that are left out, always the same ones.
    fn omit(&mut self, newest: Sequence, all: AckBits, now: Instant) -> AckBits {
        let share = match self.acks {
            FalseAcks::Omitted(share) => share,
            FalseAcks::OmittedInTurns(share) if (now.as_nanos() / 2_000_000_000).is_multiple_of(2) => share,
            FalseAcks::OmittedInTurns(_) => 0.0,
            _ => return all,
        };
        let mut rest = AckBits { header: 0, extended: vec![0; all.extended.len()] };
        for back in (0..all.len()).filter(|back| all.get(*back)) {
            let Self { decisions, random, .. } = self;
            if !*decisions.entry((newest - back).0).or_insert_with(|| random.fraction() < share) {
                rest.set(back);
            }
        }
        rest
    }

    /// Returns whether as many packets of slices are missing around a number as numbers, so that none was skipped.
    /// `None` if the packets before and behind it do not show that.
    fn is_hole(&self, number: Sequence) -> Option<bool> {
        let neighbour = |step: u16| (1..300).map(move |at| number.0.wrapping_add(step.wrapping_mul(at)));
        let found = |step| neighbour(step).find(|at| self.slices.contains_key(at));
        let (low, high) = (found(u16::MAX)?, found(1)?);
        let missing = (1..high.wrapping_sub(low)).filter(|at| !self.sent.contains_key(&low.wrapping_add(*at))).count();
        let (before, behind) = (&self.slices[&low], &self.slices[&high]);
        let hole = behind.start.checked_sub(before.end)?;
        Some(hole > 0 && hole.div_ceil(before.len() as u32) as usize == missing)
    }

    /// Returns the nonce of a packet, or a guess, the same each time, if it did not arrive.
    fn guess(&mut self, number: Sequence) -> u8 {
        let Self { sent, guesses, random, .. } = self;
        let guessed = guesses.entry(number.0);
        sent.get(&number.0).map_or_else(|| *guessed.or_insert_with(|| random.below(4) as u8), |(_, nonce)| *nonce)
    }

    /// Returns whether it acknowledges a packet that is missing in a gap of `run` numbers.
    fn acks_missing(&mut self, number: Sequence, run: u16) -> bool {
        match self.acks {
            FalseAcks::Nothing | FalseAcks::DelaysAlone | FalseAcks::Omitted(_) | FalseAcks::OmittedInTurns(_) => false,
            FalseAcks::All | FalseAcks::Ahead(_) => true,
            FalseAcks::Runs(min) => run >= min,
            FalseAcks::HolesOnce | FalseAcks::HolesSingly => {
                let is_done =
                    self.decisions.contains_key(&number.0) || (self.has_claimed && self.acks == FalseAcks::HolesSingly);
                let Some(is_hole) = (if is_done { None } else { self.is_hole(number) }) else { return false };
                self.decisions.insert(number.0, is_hole);
                self.has_claimed |= is_hole;
                is_hole
            }
            FalseAcks::Holes => match self.decisions.get(&number.0) {
                Some(decision) => *decision,
                None => {
                    let decision = self.is_hole(number);
                    decision.is_some_and(|is_hole| *self.decisions.entry(number.0).or_insert(is_hole))
                }
            },
            FalseAcks::Some(share) => {
                let Self { decisions, random, .. } = self;
                *decisions.entry(number.0).or_insert_with(|| random.fraction() < share)
            }
        }
    }
}

/// Returns the slices in a packet of [`world`]: their header is followed by the bytes of the map.
fn slices_of(payload: &[u8]) -> Option<Range<u32>> {
    let slice_bytes = usize::from(TransferConfig::default().slice_bytes);
    let is_content = |at: &usize| payload[*at..].iter().take(slice_bytes).all(|byte| *byte == CONTENT_BYTE);
    let ends = payload.len().checked_sub(slice_bytes)?;
    (SLICE_HEADER_BYTES..=ends).filter(is_content).find_map(|at| {
        let frame = TransferFrame::parse(&payload[at - SLICE_HEADER_BYTES..]).ok()?;
        let TransferFrame::Slice { index, bytes, .. } = frame else { return None };
        let content = bytes.iter().take_while(|byte| **byte == CONTENT_BYTE).count();
        Some(index..index + (content / slice_bytes) as u32)
    })
}

/// The acknowledgements of a header and of its extension, newest first.
#[derive(Clone)]
struct AckBits {
    header: u32,
    extended: Vec<u8>,
}

impl AckBits {
    fn len(&self) -> u16 {
        32 + 8 * self.extended.len() as u16
    }

    fn get(&self, back: u16) -> bool {
        match back.checked_sub(32) {
            None => self.header >> back & 1 != 0,
            Some(bit) => self.extended[usize::from(bit / 8)] >> (bit % 8) & 1 != 0,
        }
    }

    fn set(&mut self, back: u16) {
        match back.checked_sub(32) {
            None => self.header |= 1 << back,
            Some(bit) => self.extended[usize::from(bit / 8)] |= 1 << (bit % 8),
        }
    }

    /// Returns the length of the gap around a missing packet.
    fn missing_around(&self, back: u16) -> u16 {
        let newer = (0..=back).rev().take_while(|back| !self.get(*back)).count();
        let older = (back..self.len()).take_while(|back| !self.get(*back)).count();
        (newer + older - 1) as u16
    }
}

impl Program for Player {
    fn receive(&mut self, datagram: &[u8], waited: Duration, now: Instant) {
        self.observe(datagram, now);
        let Ok(Some(mut cursor)) = self.connection.handle(datagram, waited, now) else { return };
        while self.connection.next_message(datagram, &mut cursor, &mut self.buf, now).is_some() {}
    }

    fn run(&mut self, sink: &mut PathSink<'_>, now: Instant) {
        let mut collected = Payloads::default();
        self.connection.on_received(now);
        self.connection.tick(now);
        self.connection.transmit(now, &mut collected);
        while self.connection.channels.poll_event().is_some() {}
        for datagram in collected.sent {
            let datagram = self.falsify(&datagram, now);
            let Some(buf) = sink.next_buf() else { return };
            let bytes = datagram.len().min(buf.len());
            buf[..bytes].copy_from_slice(&datagram[..bytes]);
            sink.commit(bytes);
        }
    }
}

/// A server that sends a map, and one receiver.
fn world(lie: Lie, path: &Conditions, seed: u64, numbering: Numbering) -> World<Player> {
    let layout = Arc::new(Layout::try_from(vec![ChannelConfig::from(Kind::Transfers)]).unwrap());
    let start = Instant::from_start(Duration::from_secs(1000));
    let sides = [Role::Server, Role::Client].map(|role| {
        let connection = Connection::new(&ConnectionConfig::default(), Arc::clone(&layout), role, None).unwrap();
        let mut key = [role as u8; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let connection = match numbering {
            Numbering::Skipping => connection.with_ack_checks(&Seed::from(key)),
            Numbering::Consecutive => connection,
        };
        Player::new(connection, if role == Role::Server { HONEST } else { lie }, start, seed)
    });
    let mut world = World::of(sides, *path, seed);
    // Hashing a map takes longer than a world: all of them share one.
    static CONTENT: LazyLock<Transfer> = LazyLock::new(|| Transfer::new(vec![CONTENT_BYTE; 24 << 20]).unwrap());
    world.side(End::A).connection.channels.send_transfer(MAP, CONTENT.clone(), 1).unwrap();
    world
}

fn on_path(sent: SentDatagrams) -> u64 {
    sent.bytes + BELOW * sent.count
}

/// Returns the bytes that were sent to an honest receiver until the end of each turn.
fn honest(path: &Conditions, seed: u64, numbering: Numbering) -> Vec<u64> {
    let mut world = world(HONEST, path, seed, numbering);
    let sent = (0..PLAYED.as_millis() / STEP.as_millis()).map(|_| {
        world.turn(STEP);
        on_path(world.sent(End::A))
    });
    let sent = sent.collect();
    assert_eq!(world.side(End::A).connection.close_reason(), None, "an honest receiver, seed {seed}");
    sent
}

/// The result of a receiver, compared with an honest one on the same path.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// The time of its disconnect in milliseconds, if it was disconnected.
    ended: Option<u64>,
    /// The maximum bytes that it received beyond the honest one.
    excess: u64,
}

fn play(lie: Lie, path: &Conditions, seed: u64, numbering: Numbering, honest: &[u64]) -> Outcome {
    let mut world = world(lie, path, seed, numbering);
    let mut outcome = Outcome { ended: None, excess: 0 };
    for (turn, to_honest) in honest.iter().enumerate() {
        world.turn(STEP);
        outcome.excess = outcome.excess.max(on_path(world.sent(End::A)).saturating_sub(*to_honest));
        if let Some(reason) = world.side(End::A).connection.close_reason() {
            assert_eq!(reason.kind, CloseKind::Violation(ChannelViolation::AcksOfUnsent), "{lie:?}, seed {seed}");
            outcome.ended = Some(turn as u64 * STEP.as_millis() as u64);
            break;
        }
    }
    outcome
}

fn access_line(mbit: u32, buffer: u64, latency: u64) -> Conditions {
    Conditions {
        latency: Duration::from_millis(latency),
        rate: Some(RateLimit { rate: Rate::mbit(mbit), buffer: Buffer::Time(Duration::from_millis(buffer)) }),
        ..Conditions::perfect()
    }
}

/// The worst of all seeds.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    /// The maximum bytes beyond those of an honest receiver.
    excess: u64,
    ended: u64,
    /// The time of the last disconnect in milliseconds.
    last: u64,
}

/// Returns the worst of each lie over all seeds.
fn worst(lies: &[Lie], path: &Conditions, seeds: u64) -> Vec<Worst> {
    let mut all = vec![Worst::default(); lies.len()];
    for seed in 0..seeds {
        let honest = honest(path, seed, Numbering::Skipping);
        for (worst, lie) in all.iter_mut().zip(lies) {
            let outcome = play(*lie, path, seed, Numbering::Skipping, &honest);
            worst.excess = worst.excess.max(outcome.excess);
            worst.ended += u64::from(outcome.ended.is_some());
            worst.last = worst.last.max(outcome.ended.unwrap_or(0));
        }
    }
    all
}

fn lie(acks: FalseAcks, from: u64) -> Lie {
    Lie { acks, delays: FalseDelays::Held, from: Duration::from_millis(from) }
}

/// The share of the missing packets that is acknowledged, in steps from 1 to 100 %.
const SHARES: [f64; 8] = [0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0];

#[test]
fn false_acks_end_a_connection_within_64_kib() {
    let path = access_line(4, 250, 20);
    let mut lies: Vec<_> = [300, 1000, 3000].map(|from| lie(FalseAcks::All, from)).into();
    lies.extend(SHARES.map(|share| lie(FalseAcks::Some(share), 0)));
    lies.extend([FalseAcks::Runs(2), FalseAcks::Ahead(8), FalseAcks::Ahead(2)].map(|acks| lie(acks, 0)));
    for (lie, Worst { excess, ended, last }) in lies.iter().zip(worst(&lies, &path, SEEDS)) {
        println!("{lie:?}: at worst {excess} bytes beyond an honest one, goal {GOAL}; {ended} ended, after {last} ms");
        assert!(excess <= GOAL && ended == SEEDS, "{lie:?}: {excess} bytes, {ended} ended");
    }
}

#[test]
fn false_acks_end_connections_on_all_kinds_of_paths() {
    for (mbit, buffer, latency) in [(1, 500, 20), (20, 100, 15), (100, 50, 10), (10, 600, 300)] {
        let path = access_line(mbit, buffer, latency);
        let lies = [lie(FalseAcks::All, 0), lie(FalseAcks::All, 2000), lie(FalseAcks::Some(0.5), 0)];
        let lies = [&lies[..], &[lie(FalseAcks::Ahead(4), 0)]].concat();
        for (lie, Worst { excess, ended, last }) in lies.iter().zip(worst(&lies, &path, 10)) {
            println!(
                "{mbit} Mbit/s, {latency} ms, {lie:?}: {excess} bytes, goal {GOAL}; {ended} ended, after {last} ms"
            );
            assert!(excess <= GOAL && ended == 10, "{mbit} Mbit/s, {lie:?}: {excess}, {ended} ended");
        }
    }
}

/// A receiver sees which slices of a transfer are missing, and so which numbers were skipped: it acknowledges lost
/// packets alone. Without nonces it was never disconnected, and sent 3 MB more than an honest one with a buffer of 20
/// ms. The worst of 40 seeds, in bytes beyond an honest receiver, if it acknowledges lost packets in all datagrams;
/// each in one datagram; one in each datagram; in all with false holds; and in the first 0.6 s with false holds alone:
///
/// | Mbit/s, buffer in ms | all | once | singly | false holds | holds alone |
/// | --- | --- | --- | --- | --- | --- |
/// | 1, 50 | 3,552 | 15,007 | 6,325 | 19,030 | 23,081 |
/// | 4, 20 | 11,890 | 11,890 | 8,323 | 13,079 | 36,847 |
/// | 4, 50 | 6,016 | 42,786 | 7,134 | 57,072 | 55,883 |
/// | 10, 30 | 5,950 | 5,950 | 1,189 | 96,309 | 102,254 |
/// | 20, 30 | 0 | 14,256 | 0 | 124,784 | 124,784 |
/// | 50, 10 | 21,366 | 21,366 | 9,496 | 17,805 | 271,823 |
/// | 50, 30 | 58,157 | 78,421 | 12,000 | 264,806 | 195,855 |
///
/// Those of the first three columns are disconnected within 0.7 s, unless they guess right and no packet is lost later:
/// 11, 15 and 12 of 280, most of them on the last path.
#[test]
fn receivers_that_recognise_skipped_numbers_are_disconnected() {
    for (mbit, buffer) in [(1, 50), (4, 20), (4, 50), (10, 30), (20, 30)] {
        let path = access_line(mbit, buffer, 20);
        let lies = [FalseAcks::Holes, FalseAcks::HolesOnce, FalseAcks::HolesSingly];
        // One may guess right, and lose no packet later.
        let lies = lies.map(|acks| (acks, FalseDelays::True, GOAL, 9));
        // The false times are most of this: see the table.
        let lies = [&lies[..], &[(FalseAcks::Holes, FalseDelays::Held, 2 * GOAL, 10)]].concat();
        let receivers = Vec::from_iter(lies.iter().map(|(acks, delays, ..)| Lie { delays: *delays, ..lie(*acks, 0) }));
        for ((acks, delays, most, least_ended), worst) in lies.iter().zip(worst(&receivers, &path, 10)) {
            let Worst { excess, ended, last } = worst;
            println!(
                "{mbit} Mbit/s, {buffer} ms, {acks:?}, times {delays:?}: {excess} bytes, goal {GOAL}; {ended} ended, \
                 after {last} ms"
            );
            assert!(excess <= *most && ended >= *least_ended, "{mbit} Mbit/s, {acks:?}: {excess} bytes, {ended} ended");
        }
    }
}

#[test]
fn false_acks_draw_megabytes_without_skipped_numbers() {
    let path = access_line(1, 500, 20);
    let honest = honest(&path, 1, Numbering::Consecutive);
    let lie = Lie { delays: FalseDelays::SlowReturn, ..lie(FalseAcks::All, 0) };
    let outcome = play(lie, &path, 1, Numbering::Consecutive, &honest);
    println!("without skipped numbers: {outcome:?}");
    assert!(
        outcome.ended.is_none() && outcome.excess > 2 << 20,
        "these false acknowledgements draw no data: {outcome:?}"
    );
}

#[test]
fn false_hold_times_gain_less_than_64_kib() {
    let lies = [FalseAcks::DelaysAlone, FalseAcks::Runs(4)].map(|acks| lie(acks, 0));
    for (lie, Worst { excess, .. }) in lies.iter().zip(worst(&lies, &access_line(4, 250, 20), 4)) {
        println!("{lie:?}: at worst {excess} bytes beyond an honest one in 9 s, goal {GOAL}");
        assert!(excess <= GOAL, "{lie:?}: {excess} bytes");
    }
}

/// False send times and arrivals together look like a queue on the way back, which is not the sender's. At worst over
/// 40 seeds, in bytes beyond an honest receiver, by the share of the missing packets that is acknowledged:
///
/// | share | false holds and waits | false send times | last disconnect |
/// | --- | --- | --- | --- |
/// | 0 % | 61,784 | 63,035 | never |
/// | 1 % | 61,784 | 63,035 | 5.6 s |
/// | 3 % | 46,371 | 58,294 | 1.5 s |
/// | 10 % | 45,182 | 57,105 | 0.8 s |
/// | 20 to 100 % | 67 | 67 | 0.1 s |
#[test]
fn false_send_times_gain_little() {
    let acks = [(FalseAcks::DelaysAlone, false), (FalseAcks::Some(0.03), true), (FalseAcks::Runs(4), true)];
    let lies = acks.map(|(acks, _)| Lie { delays: FalseDelays::SlowReturn, ..lie(acks, 0) });
    let worst = worst(&lies, &access_line(4, 250, 20), 4);
    for ((_, is_ended), (lie, Worst { excess, ended, .. })) in acks.iter().zip(lies.iter().zip(worst)) {
        println!("{lie:?}: at worst {excess} bytes beyond an honest one in 9 s, goal {GOAL}; {ended} of 4 ended");
        assert!(excess <= GOAL && (ended == 4) == *is_ended, "{lie:?}: {excess} bytes, {ended} ended");
    }
}

/// Returns the bytes that are sent to a receiver on a path of `mbit` Mbit/s, as a share of what it carries in the time
/// of a world.
fn load(lie: Lie, path: &Conditions, mbit: u32, seed: u64) -> f64 {
    let mut world = world(lie, path, seed, Numbering::Skipping);
    (0..PLAYED.as_millis() / STEP.as_millis()).for_each(|_| world.turn(STEP));
    on_path(world.sent(End::A)) as f64 / (f64::from(mbit) * 125_000.0 * PLAYED.as_secs_f64())
}

/// With false times no queue is seen. What overflows a small buffer looks like random loss, which is sent on top of the
/// delivery rate, but hardly more of it than random loss explains: otherwise 1.54 of the capacity was sent.
#[test]
fn false_times_hardly_overload_a_path() {
    let lie = Lie { delays: FalseDelays::SlowReturn, ..lie(FalseAcks::DelaysAlone, 0) };
    for (percent, most) in [(0.0, 1.1), (2.0, 1.15), (5.0, 1.15)] {
        let path = Conditions { loss: Loss::Random(Share::percent(percent)), ..access_line(10, 30, 20) };
        let loads = Vec::from_iter((0..10).map(|seed| load(lie, &path, 10, seed)));
        let max = loads.iter().copied().fold(0.0, f64::max);
        println!(
            "false times, 10 Mbit/s, 30 ms, {percent} % loss: {max:.2} of the capacity is sent at most, {loads:.2?}"
        );
        assert!(max < most, "{percent} % loss: {loads:.2?} of the capacity are sent");
    }
}

/// Returns the worst of all seeds: the bytes beyond those of an honest receiver, what is sent as a share of what the
/// path carries, and the same from 5 s on.
fn overload(lie: Lie, mbit: u32, buffer: u64, seeds: Range<u64>) -> (u64, f64, f64) {
    let path = access_line(mbit, buffer, 20);
    let share = |bytes: u64, time: Duration| bytes as f64 / (f64::from(mbit) * 125_000.0 * time.as_secs_f64());
    let from = Duration::from_secs(5);
    seeds.fold((0, 0.0, 0.0), |(excess, all, later), seed| {
        let honest = honest(&path, seed, Numbering::Skipping);
        let mut world = world(lie, &path, seed, Numbering::Skipping);
        let turn = |_| {
            world.turn(STEP);
            on_path(world.sent(End::A))
        };
        let sent: Vec<_> = (0..honest.len()).map(turn).collect();
        let beyond = sent.iter().zip(&honest).map(|(sent, honest)| sent.saturating_sub(*honest)).max();
        let (before, end) = (sent[from.as_millis() as usize / 2 - 1], sent[sent.len() - 1]);
        (
            excess.max(beyond.unwrap()),
            share(end, PLAYED).max(all),
            share(end - before, PLAYED.saturating_sub(from)).max(later),
        )
    })
}

/// Acknowledgements that are left out look like random loss, which is sent on top of the delivery rate. With false send
/// times as well no queue is seen, so a path that overflows looks the same, until a test shows that the loss depends on
/// the rate. At worst over 40 seeds, as shares of what the path carries in all and from 5 s on, and in bytes beyond an
/// honest receiver, goal 65,536:
///
/// | Mbit/s, buffer in ms | 2 % left out | 5 % | 10 % | 20 % |
/// | --- | --- | --- | --- | --- |
/// | 1, 200 | 1.22, 1.29, 224,367 | 1.23, 1.09, 232,043 | 1.21, 1.13, 204,333 | 1.16, 1.09, 151,794 |
/// | 4, 250 | 1.03, 1.05, 72,584 | 1.11, 1.24, 520,203 | 1.10, 1.08, 487,882 | 1.07, 1.07, 440,583 |
/// | 10, 30 | 1.04, 1.08, 402,858 | 1.04, 1.09, 444,442 | 1.03, 1.11, 215,068 | 1.09, 1.15, 1,303,968 |
///
/// Before tests compared by deviations it was up to 1.69 of 10 Mbit/s, 7,619,283 bytes.
#[test]
fn omitted_acks_hardly_overload_a_path() {
    for (mbit, buffer, most, most_later) in [(1, 200, 1.3, 1.35), (4, 250, 1.15, 1.25), (10, 30, 1.1, 1.15)] {
        for share in [0.02, 0.05, 0.1, 0.2] {
            let lie = Lie { delays: FalseDelays::SlowReturn, ..lie(FalseAcks::Omitted(share), 0) };
            let (excess, all, later) = overload(lie, mbit, buffer, 0..4);
            println!(
                "{mbit} Mbit/s, {buffer} ms, {share} left out: {all:.2} of the capacity is sent, {later:.2} from 5 s \
                 on, {excess} bytes beyond an honest receiver, goal {GOAL}"
            );
            assert!(all < most && later < most_later, "{mbit} Mbit/s, {share}: {all:.2}, {later:.2}");
        }
    }
}

/// A receiver that is honest during a test of the rate hides what it invents, and random loss is known for 30 s.
#[test]
fn acks_omitted_in_turns_overload_a_path_for_seconds() {
    for (mbit, buffer) in [(2, 100), (4, 100), (10, 50)] {
        let lie = Lie { delays: FalseDelays::SlowReturn, ..lie(FalseAcks::OmittedInTurns(0.1), 0) };
        let (excess, all, later) = overload(lie, mbit, buffer, 0..5);
        println!(
            "{mbit} Mbit/s, {buffer} ms: {all:.2} of the capacity is sent, {later:.2} from 5 s on, {excess} bytes \
             beyond an honest receiver, goal {GOAL}"
        );
        assert!(all < 1.35 && later < 1.6, "{mbit} Mbit/s: {all:.2}, {later:.2}");
    }
}
