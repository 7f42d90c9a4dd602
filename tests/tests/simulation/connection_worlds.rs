//! Every kind of channel on every kind of path: all promises hold, and the memory of the channels is bounded.
//!
//! Each world carries messages of every kind in both directions, and besides them five transfers of 0 to 60,000 bytes
//! in each direction.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::channel::transfer::{self, Transfer};
use slipgate_session::channel::{ChannelConfig, ChannelEvent, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::congestion::{self, Algorithm, BytesPerSecond};
use slipgate_session::connection::ConnectionConfig;
use slipgate_session::wire::reliable::ACKS_PER_HEADER;
use slipgate_sim::{Conditions, Loss, Order, Reordering, Share};
use slipgate_tests::connection_world::ConnectionWorld;
use slipgate_tests::delivery_oracle::{DeliveryOracle, Noise, max_memory};
use slipgate_tests::scale;
use slipgate_tests::world::End;

const STEP: Duration = Duration::from_millis(5);
/// The maximum additional latency of a reordered datagram.
const HELD_BACK: Duration = Duration::from_millis(60);
const KINDS: [Kind; 4] = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];
const QUEUE_BYTES: u32 = 256 * 1024;
const TRANSFERS: ChannelId = ChannelId(4);
const TRANSFER_BYTES: [usize; 5] = [0, 1, 280, 9_000, 60_000];
/// The bytes of a fragmented message in one packet: as many chunks of 128 bytes as fit 1,200 bytes without headers.
const CUT_BYTES: f64 = 1152.0;

// Worlds ------------------------------------------------------------------------------------------------------------

/// The impairments of a path.
#[derive(Clone, Copy, Debug)]
struct Impairments {
    loss_percent: f64,
    latency_ms: u64,
    reordering_percent: f64,
    duplication_percent: f64,
}

impl Impairments {
    /// Returns all combinations.
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

/// The messages of a world.
#[derive(Clone, Copy, Debug)]
struct Workload {
    bytes: usize,
    messages: usize,
    algorithm: Algorithm,
}

impl Workload {
    const fn fixed(bytes: usize, messages: usize) -> Self {
        Self { bytes, messages, algorithm: Algorithm::Fixed(BytesPerSecond(4e6)) }
    }

    fn config(self) -> ConnectionConfig {
        let mut config = ConnectionConfig::default();
        config.congestion = congestion::CongestionConfig { algorithm: self.algorithm, ..config.congestion };
        // The numbers of one second at the fixed rate, skipped ones among them.
        config.endpoint.sent_window = 8192;
        config
    }

    /// Returns the usual channels, with queues that hold all data in flight.
    fn layout(self) -> Arc<Layout> {
        let channel = |kind| ChannelConfig { queue_bytes: QUEUE_BYTES, deadline: None, ..ChannelConfig::from(kind) };
        let kinds = KINDS.into_iter().chain([Kind::Transfers]);
        Arc::new(Layout::try_from(kinds.map(channel).collect::<Vec<_>>()).unwrap())
    }
}

/// The messages of one end, and those that it received.
struct Talk {
    oracles: Vec<DeliveryOracle>,
    /// The time when the last message of each kind was queued.
    last: [Instant; KINDS.len()],
    /// Which transfers of this end have arrived.
    arrived: Vec<bool>,
    /// The number of its transfers that it knows to have arrived.
    delivered: usize,
}

struct World {
    pair: ConnectionWorld,
    begin: Instant,
    impairments: Impairments,
    workload: Workload,
    noise: Noise,
    talks: [Talk; 2],
    transfers: Vec<Transfer>,
    max_memory: usize,
}

impl World {
    fn new(seed: u64, impairments: Impairments, workload: Workload) -> Self {
        println!("world {seed}: {impairments:?}, {workload:?}");
        let (layout, noise, conditions) = (workload.layout(), Noise::new(seed), impairments.conditions());
        let transfers =
            (0..).zip(TRANSFER_BYTES).map(|(number, bytes)| Transfer::new(noise.cut(number, bytes)).unwrap()).collect();
        let pair = ConnectionWorld::with(seed, conditions, [&layout, &layout], &workload.config());
        let begin = pair.now();
        let mut world = Self {
            pair,
            begin,
            impairments,
            workload,
            noise,
            talks: [(); 2].map(|()| Talk {
                oracles: KINDS.map(DeliveryOracle::new).into(),
                last: [begin; KINDS.len()],
                arrived: vec![false; TRANSFER_BYTES.len()],
                delivered: 0,
            }),
            transfers,
            max_memory: max_memory(&layout),
        };
        world.begin_transfers();
        world
    }

    fn begin_transfers(&mut self) {
        for end in End::BOTH {
            for (label, transfer) in (0..).zip(&self.transfers) {
                self.pair.side(end).connection.channels.send_transfer(TRANSFERS, transfer.clone(), label).unwrap();
            }
        }
    }

    /// Fills every queue.
    fn compose(&mut self) {
        let now = self.pair.now();
        for end in End::BOTH {
            let Talk { oracles, last, .. } = &mut self.talks[end as usize];
            for ((channel, oracle), last) in (0..).map(ChannelId).zip(oracles).zip(last) {
                while oracle.sent() < self.workload.messages {
                    let message = oracle.compose(&self.noise, self.workload.bytes);
                    if self.pair.send(end, channel, message).is_err() {
                        break;
                    }
                    oracle.note_sent(SendOptions::default(), now);
                    *last = now;
                }
            }
        }
    }

    fn turn(&mut self, step: Duration) {
        self.compose();
        self.pair.turn(step);
        for end in End::BOTH {
            self.check_events(end);
            let side = self.pair.side(end);
            let memory = side.connection.channels.memory_bytes();
            assert!(memory <= self.max_memory, "{memory} bytes of {}", self.max_memory);
            assert_eq!(side.connection.close_reason(), None);
        }
    }

    /// Checks the messages that arrived at `end` against those of the other end.
    fn check_events(&mut self, end: End) {
        let now = self.pair.now();
        let side = self.pair.side(end);
        let (messages, events) = (std::mem::take(&mut side.messages), std::mem::take(&mut side.events));
        for (channel, message) in messages {
            let oracle = &mut self.talks[end.other() as usize].oracles[usize::from(channel.0)];
            oracle.note_arrived(&message, &self.noise, None, now);
        }
        for event in events {
            let ChannelEvent::Transfer { event, .. } = event else { panic!("{event:?}") };
            self.on_transfer_event(end, event);
        }
    }

    fn on_transfer_event(&mut self, end: End, event: transfer::TransferEvent) {
        match event {
            transfer::TransferEvent::Received { label, content, .. } => {
                let arrived = &mut self.talks[end.other() as usize].arrived[label as usize];
                assert!(!std::mem::replace(arrived, true), "transfer {label} arrived twice");
                assert!(content.into_vec() == self.transfers[label as usize].bytes(), "transfer {label} was altered");
            }
            transfer::TransferEvent::Delivered { .. } => self.talks[end as usize].delivered += 1,
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&mut self) -> bool {
        let is_done_at_end = |talk: &Talk| {
            talk.oracles.iter().all(|oracle| oracle.sent() == self.workload.messages && oracle.owed() == 0)
                && talk.delivered == TRANSFER_BYTES.len()
        };
        self.talks.iter().all(is_done_at_end)
            && End::BOTH.iter().all(|end| !self.pair.side(*end).connection.channels.wants_to_send())
    }

    /// Runs until everything that can arrive has arrived, and checks that nothing arrives afterwards.
    fn run(mut self) {
        while !self.is_done() {
            self.turn(STEP);
            assert!(self.pair.now().since(self.begin) < Duration::from_secs(300), "the world takes too long");
        }
        let took = self.pair.now().since(self.begin);
        for _ in 0..100 {
            self.turn(4 * STEP);
        }
        for end in End::BOTH {
            self.check_arrivals(end);
            self.check_path(end);
        }
        self.check_released();
        println!("  {took:?}");
    }

    fn check_arrivals(&self, end: End) {
        let talk = &self.talks[end as usize];
        assert!(talk.arrived.iter().all(|arrived| *arrived));
        for (kind, oracle) in KINDS.into_iter().zip(&talk.oracles) {
            let (arrived, min_arrivals) = (oracle.arrived(), self.min_arrivals(end, kind));
            println!("  {kind:?}: {arrived}, at least {min_arrivals}");
            assert!(arrived >= min_arrivals, "{arrived} {kind:?} messages arrived, at least {min_arrivals} expected");
        }
    }

    /// Returns the minimum number of messages of a kind that must arrive.
    ///
    /// An unreliable message arrives if all its packets arrive, and none is delayed for longer than the next message
    /// takes to be sent: then it is complete before a newer one makes it too old, or takes its reassembly entry.
    /// Duplicates do no harm. This gives its probability p. The bound for many messages is four standard deviations
    /// below the expected number, or 1 if ten are expected (the probability that none of ten arrives is 1 in 20,000).
    /// Messages of 16 KiB in 15 packets have no bound where at least 5 % are lost and 30 % are delayed.
    fn min_arrivals(&self, end: End, kind: Kind) -> usize {
        if kind.is_reliable() {
            return self.workload.messages;
        }
        let Impairments { loss_percent, reordering_percent, .. } = self.impairments;
        let (bytes, messages) = (self.workload.bytes as f64, self.workload.messages as f64);
        let packets = if bytes <= CUT_BYTES { 1.0 } else { bytes / CUT_BYTES + 1.0 };
        // A message in one packet is complete on arrival, and without ordering nothing makes it too old.
        let matters = kind == Kind::Sequenced || packets > 1.0;
        let held_back = if matters { reordering_percent / 100.0 * self.too_long(end, kind, packets) } else { 0.0 };
        let chance = ((1.0 - loss_percent / 100.0) * (1.0 - held_back)).powf(packets);
        // Messages in the same packet are lost together.
        let alike = 1.0 + 1200.0 / bytes;
        let (expected, deviation) = (messages * chance, (messages * chance * (1.0 - chance) * alike).sqrt());
        let one = f64::from(u8::from(expected >= 10.0));
        (expected - 4.0 * deviation).max(one).floor() as usize
    }

    /// Returns the share of delayed packets with a longer delay than a message takes to be sent.
    fn too_long(&self, end: End, kind: Kind, packets: f64) -> f64 {
        let talk = &self.talks[end as usize];
        let last = KINDS.into_iter().zip(talk.last).find(|(other, _)| *other == kind).expect("KINDS holds this kind").1;
        let waiting = QUEUE_BYTES as usize / self.workload.bytes;
        if packets <= 1.0 || waiting >= self.workload.messages {
            return 1.0;
        }
        let pace = last.since(self.begin).as_secs_f64() / (self.workload.messages - waiting) as f64;
        // Packets of one turn arrive at the same time.
        let whole_turns = (pace / STEP.as_secs_f64()).floor() * STEP.as_secs_f64();
        1.0 - (whole_turns / HELD_BACK.as_secs_f64()).min(1.0)
    }

    /// Checks the path statistics of an end.
    fn check_path(&mut self, end: End) {
        let now = self.pair.now();
        let lost = [self.pair.link.up.stats().lost, self.pair.link.down.stats().lost][end as usize];
        let Impairments { loss_percent, reordering_percent, .. } = self.impairments;
        let connection = &self.pair.side(end).connection;
        let (stats, counters) = (connection.stats(now), connection.stats(now).endpoint.counters);
        let called_lost = counters.lost - counters.late_acks;
        // Each arrival is acknowledged at least twice, so an acknowledgement is missing as often as two packets in a
        // row are lost; at the end of a burst, as often as its one or two acknowledgements are lost.
        let both = 1.5 * (loss_percent / 100.0).powi(2) * counters.sent as f64;
        let unheard = if lost == 0 { 0 } else { both as u64 + counters.sent / 100 + 2 * u64::from(ACKS_PER_HEADER) };
        assert!(called_lost <= lost + unheard, "{called_lost} declared lost, {lost} were: {counters:?}");
        assert_eq!((counters.acks_of_unsent, counters.displaced), (0, 0), "{counters:?}");
        if loss_percent == 0.0 {
            assert_eq!(called_lost, 0, "{counters:?}");
        }
        if loss_percent == 0.0 && reordering_percent == 0.0 {
            assert_eq!((counters.lost, stats.congestion.loss), (0, 0.0), "{counters:?}");
        }
        let (rtt, twice) = (stats.endpoint.rtt.unwrap(), 2 * self.impairments.latency());
        let held = if reordering_percent == 0.0 { Duration::ZERO } else { 2 * HELD_BACK };
        let (max_bytes, smoothed) = (twice + held + Duration::from_millis(60), stats.congestion.round_trip.unwrap());
        assert!(rtt.min >= twice && smoothed >= twice, "{rtt:?}, {smoothed:?}");
        assert!(rtt.mean <= max_bytes && smoothed <= max_bytes, "{rtt:?}, {smoothed:?}");
        self.check_retransmissions(end);
    }

    /// Checks that messages are retransmitted about as often as the path loses them.
    fn check_retransmissions(&mut self, end: End) {
        let Impairments { loss_percent, reordering_percent, .. } = self.impairments;
        let (loss, content) = (loss_percent / 100.0, (self.workload.bytes * self.workload.messages) as f64);
        // Frame headers, and slices cut to the last bytes of a packet.
        let heads = (6 * self.workload.messages) as f64 + content * 0.03;
        let overtaken = if reordering_percent == 0.0 { 0.0 } else { 0.35 };
        let max_bytes = (content + heads) * (1.0 / (1.0 - loss) * 1.1 + overtaken) + 20_000.0 * loss;
        for channel in [ChannelId(2), ChannelId(3)] {
            let bytes = self.pair.side(end).connection.channels.stats(channel).unwrap().frame_bytes as f64;
            assert!(
                bytes <= max_bytes,
                "{bytes} bytes of frames for {content} bytes of messages, at most {max_bytes} expected"
            );
        }
    }

    /// Checks that all state is released twelve seconds after the last message is known to have arrived.
    fn check_released(&mut self) {
        let rests = |pair: &mut ConnectionWorld, end: &End| {
            let channels = &mut pair.side(*end).connection.channels;
            [2, 3].iter().all(|id| channels.remaining(ChannelId(*id)).bytes == QUEUE_BYTES)
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
            assert_eq!(self.pair.side(end).connection.channels.memory_bytes(), 0);
        }
    }
}

fn run_worlds(workload: Workload, which: impl Fn(&Impairments) -> bool) {
    for (seed, impairments) in (0..).zip(Impairments::all()).filter(|(_, impairments)| which(impairments)) {
        World::new(seed, impairments, workload).run();
    }
}

#[test]
fn messages_of_64_bytes_keep_promises_in_all_worlds() {
    run_worlds(Workload::fixed(64, 1000), |_| true);
}

#[test]
fn messages_of_1_kib_keep_promises_in_all_worlds() {
    run_worlds(Workload::fixed(1024, scale::pick(500, 1000)), |_| true);
}

#[test]
fn messages_of_16_kib_keep_promises_without_duplication() {
    let workload = Workload::fixed(16 * 1024, scale::pick(250, 1000));
    run_worlds(workload, |impairments| impairments.duplication_percent == 0.0);
}

#[test]
fn messages_of_16_kib_keep_promises_with_duplication() {
    let workload = Workload::fixed(16 * 1024, scale::pick(250, 1000));
    run_worlds(workload, |impairments| impairments.duplication_percent > 0.0);
}

#[test]
fn messages_keep_promises_under_the_default_controller() {
    let algorithm = congestion::CongestionConfig::default().algorithm;
    run_worlds(Workload { algorithm, ..Workload::fixed(64, 1000) }, |_| true);
}
