//! One thousand short worlds, each with channels, sizes, a path and a game of its own: what channels promise holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_session::channel::block::{self, Admission, Block, BlockId};
use slipgate_session::channel::control::ByeCode;
use slipgate_session::channel::{
    ChannelConfig, ChannelEvent, ChannelId, Free, Kind, Layout, MAX_RECEIPTS, SendError, SendOptions,
};
use slipgate_session::congestion::{self, Algorithm, BytesPerSecond};
use slipgate_session::session::{self, Config};
use slipgate_sim::{Buffer, Conditions, GilbertElliott, Loss, Order, Rate, RateLimit, Reordering, Share, Stalls};
use slipgate_tests::connected::{End, Pair};
use slipgate_tests::promises::{Ledger, NUMBER_BYTES, Noise, most_memory};

const FRAME: Duration = Duration::from_micros(16_667);
const SEEDS: u64 = 1000;

// Chance ------------------------------------------------------------------------------------------------------------

fn millis(chance: &mut StdRng, most: u64) -> Duration {
    Duration::from_millis(chance.random_range(0..=most))
}

fn share(chance: &mut StdRng, most: f64) -> Share {
    Share::percent(if chance.random() { 0.0 } else { chance.random_range(0.0..most) })
}

fn path(chance: &mut StdRng) -> Conditions {
    let rate = chance.random_bool(0.3).then(|| RateLimit {
        rate: Rate::kbit(chance.random_range(300..10_000)),
        buffer: Buffer::Time(Duration::from_millis(chance.random_range(20..300))),
    });
    let stalls = chance.random_bool(0.1).then(|| Stalls {
        every: Duration::from_millis(800),
        shortest: Duration::from_millis(20),
        longest: Duration::from_millis(300),
    });
    let bursts = GilbertElliott::bursts(share(chance, 15.0), chance.random_range(1.5..6.0));
    Conditions {
        latency: millis(chance, 200),
        jitter: millis(chance, 30),
        order: if chance.random() { Order::Free } else { Order::Kept },
        loss: match bursts {
            Some(bursts) if chance.random() => Loss::Bursts(bursts),
            _ => Loss::Random(share(chance, 25.0)),
        },
        duplication: share(chance, 10.0),
        reordering: Reordering { share: share(chance, 30.0), longest: millis(chance, 120) },
        rate,
        stalls,
        ..Conditions::perfect()
    }
}

/// How long a datagram takes at most, if that is known.
fn longest(path: &Conditions) -> Option<Duration> {
    let known = path.rate.is_none() && path.stalls.is_none();
    known.then(|| path.latency + path.jitter + path.reordering.longest + FRAME)
}

fn channel(chance: &mut StdRng, payload: usize) -> ChannelConfig {
    let kinds = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered, Kind::Blocks];
    let max_message_bytes = [8, 64, 700, 1500, 5000, 16_384, 65_536][chance.random_range(0..7)];
    let mut config = ChannelConfig {
        priority: chance.random_range(0..3),
        weight: chance.random_range(1..5),
        bytes_per_tick: chance.random_bool(0.2).then(|| chance.random_range(300..5000)),
        max_message_bytes,
        queue_bytes: max_message_bytes * chance.random_range(1..8),
        queue_messages: chance.random_range(1..80),
        deadline: None,
        ..ChannelConfig::new(kinds[chance.random_range(0..kinds.len())])
    };
    config.blocks.slice_bytes = chance.random_range(128..=payload.min(1200) - 80) as u16;
    config.blocks.max_at_once = chance.random_range(1..6);
    config.blocks.admission = if chance.random() { Admission::Ask } else { Admission::Automatic };
    config
}

fn settings(chance: &mut StdRng) -> Config {
    let mut config = Config { max_payload_bytes: chance.random_range(508..=1200), ..Config::default() };
    if chance.random() {
        let algorithm = Algorithm::Fixed(BytesPerSecond(chance.random_range(30e3..2e6)));
        config.congestion = congestion::Config { algorithm, ..config.congestion };
    }
    config
}

// A game ------------------------------------------------------------------------------------------------------------

/// What may become of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// Not known yet.
    Open,
    /// Its sender gave it up: it may arrive or not.
    Cancelled,
    /// Its receiver does not want it.
    Unwanted,
    /// It arrived, and whether its sender has heard.
    Arrived { heard: bool },
}

/// A block that one end sends.
struct Parcel {
    id: BlockId,
    block: Block,
    fate: Fate,
}

struct Game {
    pair: Pair,
    chance: StdRng,
    noise: Noise,
    layout: Arc<Layout>,
    longest: Option<Duration>,
    ledgers: [Vec<Ledger>; 2],
    parcels: [BTreeMap<(ChannelId, u64), Parcel>; 2],
    most_memory: usize,
}

impl Game {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let mut chance = StdRng::seed_from_u64(seed);
        let config = settings(&mut chance);
        let channels = (0..chance.random_range(1..7)).map(|_| channel(&mut chance, config.max_payload_bytes)).collect();
        let layout = Arc::new(Layout::new(channels).unwrap());
        let path = path(&mut chance);
        let ledgers = || layout.channels().map(|channel| Ledger::new(channel.kind)).collect();
        Self {
            pair: Pair::with(seed, path, [&layout, &layout], &config),
            noise: Noise::new(seed),
            longest: longest(&path),
            ledgers: [ledgers(), ledgers()],
            parcels: [BTreeMap::new(), BTreeMap::new()],
            most_memory: most_memory(&layout),
            layout,
            chance,
        }
    }

    /// One end does something.
    fn act(&mut self, end: End) {
        let channel = ChannelId(self.chance.random_range(0..self.layout.channels().len()) as u8);
        match self.layout.channel(channel).unwrap().kind {
            Kind::Blocks => self.act_on_blocks(end, channel),
            _ => (0..self.chance.random_range(1..6)).for_each(|_| self.send(end, channel)),
        }
    }

    fn send(&mut self, end: End, channel: ChannelId) {
        let most = self.layout.channel(channel).unwrap().max_message_bytes as usize;
        let most = if self.chance.random_bool(0.8) { most.min(300) } else { most };
        let bytes = self.chance.random_range(NUMBER_BYTES..=most);
        let mut options = SendOptions {
            deadline: self.chance.random_bool(0.1).then(|| millis(&mut self.chance, 300)),
            key: self.chance.random_bool(0.2).then(|| self.chance.random_range(0..4)),
            receipt: None,
        };
        let now = self.pair.now();
        let ledger = &mut self.ledgers[end as usize][usize::from(channel.0)];
        // Two of three ask what becomes of them.
        options.receipt = Some(ledger.next_number()).filter(|number| number % 3 != 0);
        let message = ledger.compose(&self.noise, bytes);
        match self.pair.side(end).connection.send(channel, message, options, now) {
            Ok(()) => ledger.note_sent(options, now),
            Err(error) => assert_eq!(error, SendError::Backlogged),
        }
    }

    fn act_on_blocks(&mut self, end: End, channel: ChannelId) {
        let label = self.parcels[end as usize].len() as u64;
        let blocks = |pair: &mut Pair, end| pair.side(end).connection.channels_mut().blocks_mut(channel).map(|_| ());
        assert_eq!(blocks(&mut self.pair, end), Some(()));
        let open =
            self.parcels[end as usize].iter().find(|((on, _), parcel)| *on == channel && parcel.fate == Fate::Open);
        let open = open.map(|((_, label), parcel)| (*label, parcel.id));
        if let (Some((label, id)), true) = (open, self.chance.random_bool(0.2)) {
            self.give_up(end, channel, label, id);
        } else if label < 12 {
            let most = [10, 2000, 40_000][self.chance.random_range(0..3)];
            let bytes = self.chance.random_range(0..most);
            let block = Block::new(self.noise.cut(label as u32, bytes)).unwrap();
            let channels = self.pair.side(end).connection.channels_mut();
            let id = channels.send_block(channel, block.clone(), label).unwrap();
            self.parcels[end as usize].insert((channel, label), Parcel { id, block, fate: Fate::Open });
        }
    }

    /// One of the two ends does not want a block any more.
    fn give_up(&mut self, from: End, channel: ChannelId, label: u64, id: BlockId) {
        let by_sender = self.chance.random();
        let at = if by_sender { from } else { from.other() };
        let blocks = self.pair.side(at).connection.channels_mut().blocks_mut(channel).unwrap();
        let fate = if by_sender {
            blocks.cancel(id).then_some(Fate::Cancelled)
        } else {
            let had = blocks.receiving().any(|(receiving, _)| receiving == id);
            let _ = blocks.refuse(id);
            had.then_some(Fate::Unwanted)
        };
        if let Some(fate) = fate {
            self.parcels[from as usize].get_mut(&(channel, label)).unwrap().fate = fate;
        }
    }

    fn turn(&mut self, step: Duration) {
        self.pair.turn(step);
        for end in End::BOTH {
            self.listen(end);
            let connection = &self.pair.side(end).connection;
            assert_eq!(connection.end(), None);
            let memory = connection.channels().memory_bytes();
            assert!(memory <= self.most_memory, "{memory} bytes of {}", self.most_memory);
        }
    }

    fn listen(&mut self, end: End) {
        let now = self.pair.now();
        let side = self.pair.side(end);
        let (messages, events) = (std::mem::take(&mut side.messages), std::mem::take(&mut side.events));
        for (channel, message) in messages {
            let ledger = &mut self.ledgers[end.other() as usize][usize::from(channel.0)];
            ledger.note_arrived(&message, &self.noise, self.longest, now);
        }
        for event in events {
            match event {
                ChannelEvent::Block { channel, event } => self.hear_of_block(end, channel, event),
                ChannelEvent::Receipt { channel, tag, fate } => {
                    self.ledgers[end as usize][usize::from(channel.0)].note_receipt(tag, fate);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn hear_of_block(&mut self, end: End, channel: ChannelId, event: block::Event) {
        let find = |parcels: &mut BTreeMap<(ChannelId, u64), Parcel>, id| {
            parcels.iter().find(|((on, _), parcel)| *on == channel && parcel.id == id).map(|(key, _)| *key).unwrap()
        };
        let [ours, theirs] = [end as usize, end.other() as usize];
        match event {
            block::Event::Offered(offer) => {
                let parcel = self.parcels[theirs].get_mut(&(channel, offer.label)).unwrap();
                assert_eq!((offer.id, offer.digest), (parcel.id, parcel.block.digest()));
                let blocks = self.pair.side(end).connection.channels_mut().blocks_mut(channel).unwrap();
                if self.chance.random_bool(0.2) {
                    let _ = blocks.refuse(offer.id);
                    if parcel.fate == Fate::Open {
                        parcel.fate = Fate::Unwanted;
                    }
                } else {
                    assert!(blocks.accept(offer.id));
                }
            }
            block::Event::Received { id, label, content } => {
                let parcel = self.parcels[theirs].get_mut(&(channel, label)).unwrap();
                assert_eq!(id, parcel.id);
                assert!(matches!(parcel.fate, Fate::Open | Fate::Cancelled), "block {label}: {:?}", parcel.fate);
                assert!(content.into_vec() == parcel.block.bytes(), "block {label} was changed");
                parcel.fate = Fate::Arrived { heard: parcel.fate == Fate::Cancelled };
            }
            block::Event::Broken { label, partial, .. } => {
                let parcel = &self.parcels[theirs][&(channel, label)];
                assert_eq!(parcel.fate, Fate::Cancelled, "block {label}: {:?}", partial.is_some());
            }
            block::Event::Delivered { id } => {
                let key = find(&mut self.parcels[ours], id);
                let parcel = self.parcels[ours].get_mut(&key).unwrap();
                assert_eq!(parcel.fate, Fate::Arrived { heard: false });
                parcel.fate = Fate::Arrived { heard: true };
            }
            block::Event::Refused { id, .. } => {
                let key = find(&mut self.parcels[ours], id);
                assert_eq!(self.parcels[ours][&key].fate, Fate::Unwanted);
            }
        }
    }

    /// Whether nothing waits in the queues of an end.
    fn is_empty(&mut self, end: End) -> bool {
        let (layout, channels) = (&self.layout, self.pair.side(end).connection.channels());
        (0..).map(ChannelId).zip(layout.channels()).all(|(id, config)| {
            let full = Free { bytes: config.queue_bytes, messages: config.queue_messages, receipts: MAX_RECEIPTS };
            config.kind == Kind::Blocks || channels.free(id) == full
        })
    }

    fn is_done(&mut self) -> bool {
        let open = |parcel: &Parcel| matches!(parcel.fate, Fate::Open | Fate::Arrived { heard: false });
        self.ledgers.iter().flatten().all(|ledger| ledger.owed() == 0)
            && !self.parcels.iter().flat_map(BTreeMap::values).any(open)
            && End::BOTH.iter().all(|end| self.is_empty(*end))
            && self.pair.link.up.on_the_way() + self.pair.link.down.on_the_way() == 0
    }

    /// Plays for a while, then waits until all that is owed has arrived. Answers how many messages did, and of how many
    /// their sender was told.
    fn play(mut self) -> [usize; 2] {
        for _ in 0..self.chance.random_range(30..150) {
            for end in End::BOTH {
                if self.chance.random_bool(0.6) {
                    self.act(end);
                }
            }
            self.turn(FRAME);
        }
        let limit = self.pair.now().after(Duration::from_secs(120));
        while !self.is_done() {
            self.turn(FRAME);
            assert!(self.pair.now() < limit, "it does not come to its end");
        }
        self.check_counters();
        (0..30).for_each(|_| self.turn(Duration::from_millis(500)));
        for ledger in self.ledgers.iter().flatten() {
            assert_eq!(ledger.receipts().1, 0, "what became of a message was not told");
        }
        for end in End::BOTH {
            assert_eq!(self.pair.side(end).connection.channels().memory_bytes(), 0, "something is kept for ever");
        }
        self.part();
        let sum = |of: fn(&Ledger) -> usize| self.ledgers.iter().flatten().map(of).sum();
        [sum(Ledger::arrived), sum(|ledger| ledger.receipts().0)]
    }

    /// What did not arrive of reliable messages was too late or replaced, and is counted.
    fn check_counters(&mut self) {
        for end in End::BOTH {
            for (id, ledger) in (0..).map(ChannelId).zip(&self.ledgers[end as usize]) {
                let kind = self.layout.channel(id).unwrap().kind;
                let [ours, theirs] =
                    [end, end.other()].map(|end| self.pair.side(end).connection.channels().stats(id).unwrap());
                if kind == Kind::Blocks {
                    continue;
                }
                assert_eq!((ours.sent, theirs.delivered), (ledger.sent() as u64, ledger.arrived() as u64));
                let missing = (ledger.sent() - ledger.arrived()) as u64;
                if kind.is_reliable() {
                    assert!(missing <= ours.expired + ours.superseded, "{missing} are missing: {ours:?}");
                }
            }
        }
    }

    /// One says goodbye, and the other hears it or, on the worst paths, nobody does.
    fn part(&mut self) {
        let leaver = if self.chance.random() { End::A } else { End::B };
        self.pair.side(leaver).connection.leave(ByeCode(1000), "enough");
        self.pair.run_for(Duration::from_secs(2), FRAME);
        let over = End::BOTH.map(|end| self.pair.side(end).connection.is_over());
        assert!(over[leaver as usize]);
        if over == [true; 2] {
            let heard = self.pair.side(leaver.other()).connection.end().cloned();
            assert_eq!(heard, Some(session::End::Farewell { code: ByeCode(1000), text: "enough".into() }));
        }
    }
}

fn play_all(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let mut sums = [0; 2];
    for seed in seeds {
        sums.iter_mut().zip(Game::new(seed).play()).for_each(|(sum, of_world)| *sum += of_world);
    }
    let [arrived, told] = sums;
    println!("{arrived} messages arrived in {count} worlds, {told} receipts were told");
    assert!(told > 100 * count as usize, "too few asked");
    assert!(arrived > 100 * count as usize, "the worlds did not do much");
}

#[test]
fn promises_hold_in_the_first_half_of_a_thousand_worlds() {
    play_all(0..SEEDS / 2);
}

#[test]
fn promises_hold_in_the_second_half_of_a_thousand_worlds() {
    play_all(SEEDS / 2..SEEDS);
}
