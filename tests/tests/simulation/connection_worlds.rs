//! Every kind of channel on every kind of path: what channels promise holds, and the memory that it takes is bounded.
//!
//! Each world carries a thousand messages of every kind each way; and, as blocks are no messages, five of those each way,
//! of none to 60,000 bytes, besides.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::channel::block::{self, Block};
use slipgate_session::channel::{ChannelConfig, ChannelEvent, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{self, Algorithm, BytesPerSecond};
use slipgate_session::session::Config;
use slipgate_session::wire::reliable::ACKS_PER_HEADER;
use slipgate_sim::{Conditions, Loss, Order, Reordering, Share};
use slipgate_tests::connected::{End, Pair};
use slipgate_tests::promises::{Ledger, Noise, most_memory};

const STEP: Duration = Duration::from_millis(5);
/// How long a datagram is held back at most.
const HELD_BACK: Duration = Duration::from_millis(60);
const KINDS: [Kind; 4] = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];
const QUEUE_BYTES: u32 = 256 * 1024;
const BLOCKS: ChannelId = ChannelId(4);
const BLOCK_BYTES: [usize; 5] = [0, 1, 280, 9_000, 60_000];
/// What a packet carries of a message that is cut: of 1,200 bytes without heads as many pieces of 128 as fit.
const CUT_BYTES: f64 = 1152.0;

// Worlds ------------------------------------------------------------------------------------------------------------

/// What a path does.
#[derive(Clone, Copy, Debug)]
struct Weather {
    loss_percent: f64,
    latency_ms: u64,
    reordering_percent: f64,
    duplication_percent: f64,
}

impl Weather {
    /// All of them.
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for loss_percent in [0.0, 1.0, 5.0, 10.0, 20.0] {
            for latency_ms in [0, 50, 150] {
                for reordering_percent in [0.0, 2.0, 30.0] {
                    for duplication_percent in [0.0, 5.0] {
                        all.push(Self { loss_percent, latency_ms, reordering_percent, duplication_percent });
                    }
                }
            }
        }
        all
    }

    fn latency(self) -> Duration {
        Duration::from_millis(self.latency_ms)
    }

    fn conditions(self) -> Conditions {
        Conditions {
            latency: self.latency(),
            order: Order::Free,
            loss: Loss::Random(Share::percent(self.loss_percent)),
            duplication: Share::percent(self.duplication_percent),
            reordering: Reordering { share: Share::percent(self.reordering_percent), longest: HELD_BACK },
            ..Conditions::perfect()
        }
    }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
struct Load {
    bytes: usize,
    messages: usize,
    algorithm: Algorithm,
}

impl Load {
    const fn fixed(bytes: usize, messages: usize) -> Self {
        Self { bytes, messages, algorithm: Algorithm::Fixed(BytesPerSecond(4e6)) }
    }

    fn config(self) -> Config {
        let mut config = Config::default();
        config.congestion = congestion::Config { algorithm: self.algorithm, ..config.congestion };
        // A second's worth of packets of the fixed rate.
        config.endpoint.sent_window = 4096;
        config
    }

    /// The usual channels, with queues that hold what is under way.
    fn layout(self) -> Arc<Layout> {
        let channel = |kind| ChannelConfig { queue_bytes: QUEUE_BYTES, deadline: None, ..ChannelConfig::new(kind) };
        let kinds = KINDS.into_iter().chain([Kind::Blocks]);
        Arc::new(Layout::new(kinds.map(channel).collect()).unwrap())
    }
}

/// What one end has to say, and what it has heard.
struct Talk {
    ledgers: Vec<Ledger>,
    /// When the last message of each kind was taken.
    last: [Instant; KINDS.len()],
    /// Which blocks of this end's have arrived.
    arrived: Vec<bool>,
    /// How many of them it knows to have arrived.
    delivered: usize,
}

struct World {
    pair: Pair,
    begin: Instant,
    weather: Weather,
    load: Load,
    noise: Noise,
    talks: [Talk; 2],
    blocks: Vec<Block>,
    most_memory: usize,
}

impl World {
    fn new(seed: u64, weather: Weather, load: Load) -> Self {
        println!("world {seed}: {weather:?}, {load:?}");
        let (layout, noise, conditions) = (load.layout(), Noise::new(seed), weather.conditions());
        let blocks =
            (0..).zip(BLOCK_BYTES).map(|(number, bytes)| Block::new(noise.cut(number, bytes)).unwrap()).collect();
        let pair = Pair::with(seed, conditions, [&layout, &layout], &load.config());
        let begin = pair.now();
        let mut world = Self {
            pair,
            begin,
            weather,
            load,
            noise,
            talks: [(); 2].map(|()| Talk {
                ledgers: KINDS.map(Ledger::new).into(),
                last: [begin; KINDS.len()],
                arrived: vec![false; BLOCK_BYTES.len()],
                delivered: 0,
            }),
            blocks,
            most_memory: most_memory(&layout),
        };
        world.begin_blocks();
        world
    }

    fn begin_blocks(&mut self) {
        for end in End::BOTH {
            for (label, block) in (0..).zip(&self.blocks) {
                self.pair.side(end).connection.channels_mut().send_block(BLOCKS, block.clone(), label).unwrap();
            }
        }
    }

    /// Fills every queue.
    fn compose(&mut self) {
        let now = self.pair.now();
        for end in End::BOTH {
            let Talk { ledgers, last, .. } = &mut self.talks[end as usize];
            for ((channel, ledger), last) in (0..).map(ChannelId).zip(ledgers).zip(last) {
                while ledger.sent() < self.load.messages {
                    let message = ledger.compose(&self.noise, self.load.bytes);
                    if self.pair.send(end, channel, message).is_err() {
                        break;
                    }
                    ledger.note_sent(SendOptions::default(), now);
                    *last = now;
                }
            }
        }
    }

    fn turn(&mut self, step: Duration) {
        self.compose();
        self.pair.turn(step);
        for end in End::BOTH {
            self.listen(end);
            let side = self.pair.side(end);
            let memory = side.connection.channels().memory_bytes();
            assert!(memory <= self.most_memory, "{memory} bytes of {}", self.most_memory);
            assert_eq!(side.connection.end(), None);
        }
    }

    /// What arrived at `end` is what the other one sent.
    fn listen(&mut self, end: End) {
        let now = self.pair.now();
        let side = self.pair.side(end);
        let (messages, events) = (std::mem::take(&mut side.messages), std::mem::take(&mut side.events));
        for (channel, message) in messages {
            let ledger = &mut self.talks[end.other() as usize].ledgers[usize::from(channel.0)];
            ledger.note_arrived(&message, &self.noise, None, now);
        }
        for event in events {
            let ChannelEvent::Block { event, .. } = event else { panic!("{event:?}") };
            self.hear_of_block(end, event);
        }
    }

    fn hear_of_block(&mut self, end: End, event: block::Event) {
        match event {
            block::Event::Received { label, content, .. } => {
                let arrived = &mut self.talks[end.other() as usize].arrived[label as usize];
                assert!(!std::mem::replace(arrived, true), "block {label} came twice");
                assert!(content.into_vec() == self.blocks[label as usize].bytes(), "block {label} was changed");
            }
            block::Event::Delivered { .. } => self.talks[end as usize].delivered += 1,
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&mut self) -> bool {
        let said = |talk: &Talk| {
            talk.ledgers.iter().all(|ledger| ledger.sent() == self.load.messages && ledger.owed() == 0)
                && talk.delivered == BLOCK_BYTES.len()
        };
        self.talks.iter().all(said)
            && End::BOTH.iter().all(|end| !self.pair.side(*end).connection.channels().wants_to_send())
    }

    /// Everything that can arrive does, and nothing comes afterwards.
    fn live(mut self) {
        while !self.is_done() {
            self.turn(STEP);
            assert!(self.pair.now().since(self.begin) < Duration::from_secs(300), "it takes too long");
        }
        let took = self.pair.now().since(self.begin);
        for _ in 0..100 {
            self.turn(4 * STEP);
        }
        for end in End::BOTH {
            self.judge_arrivals(end);
            self.judge_path(end);
        }
        self.forget();
        println!("  {took:?}");
    }

    fn judge_arrivals(&self, end: End) {
        let talk = &self.talks[end as usize];
        assert!(talk.arrived.iter().all(|arrived| *arrived));
        for (kind, ledger) in KINDS.into_iter().zip(&talk.ledgers) {
            let (arrived, least) = (ledger.arrived(), self.least(end, kind));
            println!("  {kind:?}: {arrived}, at least {least}");
            assert!(arrived >= least, "{arrived} {kind:?} messages arrived, not {least}");
        }
    }

    /// How many messages of a kind arrive at least.
    ///
    /// One that is sent once is there if all its packets arrive, none held back for longer than the next message takes to
    /// leave: then it is complete before a newer one could make it too old, or take its place among those that wait for
    /// slices. Copies of packets do no harm. That is its chance; and of many with this chance no fewer arrive than four
    /// standard deviations below what is to be expected, or one, if ten are (that none of ten comes has a chance of 1 in
    /// 20,000). Of those of 16 KiB, cut for 15 packets, fewer are to be expected where 5 % or more are lost and 30 % held
    /// back: there is nothing to count upon.
    fn least(&self, end: End, kind: Kind) -> usize {
        if kind.is_reliable() {
            return self.load.messages;
        }
        let Weather { loss_percent, reordering_percent, .. } = self.weather;
        let (bytes, messages) = (self.load.bytes as f64, self.load.messages as f64);
        let packets = if bytes <= CUT_BYTES { 1.0 } else { bytes / CUT_BYTES + 1.0 };
        // What lies in one packet is complete as it comes, and where nothing is too old there is nothing more to it.
        let matters = kind == Kind::Sequenced || packets > 1.0;
        let held_back = if matters { reordering_percent / 100.0 * self.too_long(end, kind, packets) } else { 0.0 };
        let chance = ((1.0 - loss_percent / 100.0) * (1.0 - held_back)).powf(packets);
        // Those that share a packet share its fate.
        let alike = 1.0 + 1200.0 / bytes;
        let (expected, deviation) = (messages * chance, (messages * chance * (1.0 - chance) * alike).sqrt());
        let one = f64::from(u8::from(expected >= 10.0));
        (expected - 4.0 * deviation).max(one).floor() as usize
    }

    /// The share of packets that are held back for longer than a message takes to leave, of those held back.
    fn too_long(&self, end: End, kind: Kind, packets: f64) -> f64 {
        let talk = &self.talks[end as usize];
        let last = KINDS.into_iter().zip(talk.last).find(|(other, _)| *other == kind).expect("one of them").1;
        let waiting = QUEUE_BYTES as usize / self.load.bytes;
        if packets <= 1.0 || waiting >= self.load.messages {
            return 1.0;
        }
        let pace = last.since(self.begin).as_secs_f64() / (self.load.messages - waiting) as f64;
        // What leaves in one turn arrives at once.
        let whole_turns = (pace / STEP.as_secs_f64()).floor() * STEP.as_secs_f64();
        1.0 - (whole_turns / HELD_BACK.as_secs_f64()).min(1.0)
    }

    /// What an end thinks of its path is so.
    fn judge_path(&mut self, end: End) {
        let now = self.pair.now();
        let lost = [self.pair.link.up.stats().lost, self.pair.link.down.stats().lost][end as usize];
        let Weather { loss_percent, reordering_percent, .. } = self.weather;
        let connection = &self.pair.side(end).connection;
        let (stats, counters) = (connection.stats(now), connection.stats(now).endpoint.counters);
        let called_lost = counters.lost - counters.late_acks;
        // Each arrival is told at least twice, so it is unheard of as often as two packets in a row are lost; and a burst
        // at the end is, if its one or two acknowledgements are.
        let both = 1.5 * (loss_percent / 100.0).powi(2) * counters.sent as f64;
        let unheard = if lost == 0 { 0 } else { both as u64 + counters.sent / 100 + 2 * u64::from(ACKS_PER_HEADER) };
        assert!(called_lost <= lost + unheard, "{called_lost} called lost, {lost} were: {counters:?}");
        assert_eq!((counters.acks_of_unsent, counters.displaced), (0, 0), "{counters:?}");
        if loss_percent == 0.0 {
            assert_eq!(called_lost, 0, "{counters:?}");
        }
        if loss_percent == 0.0 && reordering_percent == 0.0 {
            assert_eq!((counters.lost, stats.congestion.loss), (0, 0.0), "{counters:?}");
        }
        let (rtt, twice) = (stats.endpoint.rtt.unwrap(), 2 * self.weather.latency());
        let held = if reordering_percent == 0.0 { Duration::ZERO } else { 2 * HELD_BACK };
        let (most, smoothed) = (twice + held + Duration::from_millis(60), stats.congestion.round_trip.unwrap());
        assert!(rtt.min >= twice && smoothed >= twice, "{rtt:?}, {smoothed:?}");
        assert!(rtt.mean <= most && smoothed <= most, "{rtt:?}, {smoothed:?}");
        self.judge_repetitions(end);
    }

    /// Messages are repeated as often as the path loses them, and hardly more often.
    fn judge_repetitions(&mut self, end: End) {
        let Weather { loss_percent, reordering_percent, .. } = self.weather;
        let (loss, content) = (loss_percent / 100.0, (self.load.bytes * self.load.messages) as f64);
        // Heads of frames, and slices of which a few bytes fit.
        let heads = (6 * self.load.messages) as f64 + content * 0.03;
        let overtaken = if reordering_percent == 0.0 { 0.0 } else { 0.35 };
        let most = (content + heads) * (1.0 / (1.0 - loss) * 1.1 + overtaken) + 20_000.0 * loss;
        for channel in [ChannelId(2), ChannelId(3)] {
            let bytes = self.pair.side(end).connection.channels().stats(channel).unwrap().frame_bytes as f64;
            assert!(bytes <= most, "{bytes} bytes of frames for {content} of messages, not {most}");
        }
    }

    /// Twelve seconds after the last message is known to have arrived nothing is remembered.
    fn forget(&mut self) {
        let rests = |pair: &mut Pair, end: &End| {
            let channels = pair.side(*end).connection.channels();
            [2, 3].iter().all(|id| channels.free(ChannelId(*id)).bytes == QUEUE_BYTES)
        };
        for _ in 0..60 {
            if End::BOTH.iter().all(|end| rests(&mut self.pair, end)) {
                break;
            }
            self.turn(Duration::from_millis(500));
        }
        for _ in 0..24 {
            self.turn(Duration::from_millis(500));
        }
        for end in End::BOTH {
            assert_eq!(self.pair.side(end).connection.channels().memory_bytes(), 0);
        }
    }
}

fn live_in(load: Load, which: impl Fn(&Weather) -> bool) {
    for (seed, weather) in (0..).zip(Weather::all()).filter(|(_, weather)| which(weather)) {
        World::new(seed, weather, load).live();
    }
}

#[test]
fn messages_of_64_bytes_keep_their_promises_in_all_worlds() {
    live_in(Load::fixed(64, 1000), |_| true);
}

#[test]
fn messages_of_1_kib_keep_their_promises_in_all_worlds() {
    live_in(Load::fixed(1024, 1000), |_| true);
}

#[test]
fn messages_of_16_kib_keep_their_promises_in_all_worlds_without_duplication() {
    live_in(Load::fixed(16 * 1024, 1000), |weather| weather.duplication_percent == 0.0);
}

#[test]
fn messages_of_16_kib_keep_their_promises_in_all_worlds_with_duplication() {
    live_in(Load::fixed(16 * 1024, 1000), |weather| weather.duplication_percent > 0.0);
}

#[test]
fn messages_keep_their_promises_under_the_default_controller() {
    let algorithm = congestion::Config::default().algorithm;
    live_in(Load { algorithm, ..Load::fixed(64, 1000) }, |_| true);
}
