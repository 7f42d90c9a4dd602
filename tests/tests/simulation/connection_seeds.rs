//! Many short worlds, each with random channels, sizes, a path and a game: all promises of the channels hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_session::channel::transfer::{self, Transfer, TransferAdmission, TransferId};
use slipgate_session::channel::{
    ChannelConfig, ChannelEvent, ChannelId, Kind, Layout, MAX_RECEIPTS, Remaining, SendOptions,
};
use slipgate_session::congestion::{self, Algorithm, BytesPerSecond};
use slipgate_session::connection::CloseCode;
use slipgate_session::connection::{CloseKind, CloseReason, ClosedBy, ConnectionConfig, SendError};
use slipgate_sim::{Buffer, Conditions, GilbertElliott, Loss, Order, Rate, RateLimit, Reordering, Share, Stalls};
use slipgate_tests::connection_world::ConnectionWorld;
use slipgate_tests::delivery_oracle::{DeliveryOracle, NUMBER_BYTES, Noise, max_memory};
use slipgate_tests::scale;
use slipgate_tests::world::End;

const FRAME: Duration = Duration::from_micros(16_667);
/// Returns the number of worlds.
fn seeds() -> u64 {
    scale::pick(200, 1000)
}

// Random settings ----------------------------------------------------------------------------------------------------

fn millis(chance: &mut StdRng, max: u64) -> Duration {
    Duration::from_millis(chance.random_range(0..=max))
}

fn share(chance: &mut StdRng, max: f64) -> Share {
    Share::percent(if chance.random() { 0.0 } else { chance.random_range(0.0..max) })
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

/// Returns the maximum latency of a datagram, if there is one.
fn longest(path: &Conditions) -> Option<Duration> {
    let known = path.rate.is_none() && path.stalls.is_none();
    known.then(|| path.latency + path.jitter + path.reordering.longest + FRAME)
}

fn channel(chance: &mut StdRng, payload: usize) -> ChannelConfig {
    let kinds = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered, Kind::Transfers];
    let max_message_bytes = [8, 64, 700, 1500, 5000, 16_384, 65_536][chance.random_range(0..7)];
    let mut config = ChannelConfig {
        priority: chance.random_range(0..3),
        weight: chance.random_range(1..5),
        bytes_per_tick: chance.random_bool(0.2).then(|| chance.random_range(300..5000)),
        max_message_bytes,
        queue_bytes: max_message_bytes * chance.random_range(1..8),
        queue_messages: chance.random_range(1..80),
        deadline: None,
        ..ChannelConfig::from(kinds[chance.random_range(0..kinds.len())])
    };
    config.transfers.slice_bytes = chance.random_range(128..=payload.min(1200) - 80) as u16;
    config.transfers.max_at_once = chance.random_range(1..6);
    config.transfers.admission = if chance.random() { TransferAdmission::Ask } else { TransferAdmission::Automatic };
    config
}

fn settings(chance: &mut StdRng) -> ConnectionConfig {
    let mut config =
        ConnectionConfig { max_payload_bytes: chance.random_range(508..=1200), ..ConnectionConfig::default() };
    if chance.random() {
        let algorithm = Algorithm::Fixed(BytesPerSecond(chance.random_range(30e3..2e6)));
        config.congestion = congestion::CongestionConfig { algorithm, ..config.congestion };
    }
    config
}

// A game ------------------------------------------------------------------------------------------------------------

/// The outcome of a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TransferOutcome {
    /// Still unknown.
    Open,
    /// The sender cancelled it: it may arrive or not.
    Cancelled,
    /// The receiver refused it.
    Unwanted,
    /// It arrived; `is_acked` says whether the sender knows.
    Arrived { is_acked: bool },
}

/// A transfer of one end.
struct SentTransfer {
    id: TransferId,
    transfer: Transfer,
    outcome: TransferOutcome,
}

struct Game {
    pair: ConnectionWorld,
    chance: StdRng,
    noise: Noise,
    layout: Arc<Layout>,
    longest: Option<Duration>,
    oracles: [Vec<DeliveryOracle>; 2],
    sent_transfers: [BTreeMap<(ChannelId, u64), SentTransfer>; 2],
    max_memory: usize,
}

impl Game {
    fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let mut chance = StdRng::seed_from_u64(seed);
        let config = settings(&mut chance);
        let channels: Vec<_> =
            (0..chance.random_range(1..7)).map(|_| channel(&mut chance, config.max_payload_bytes)).collect();
        let layout = Arc::new(Layout::try_from(channels).unwrap());
        let path = path(&mut chance);
        let oracles = || layout.channels().map(|channel| DeliveryOracle::new(channel.kind)).collect();
        Self {
            pair: ConnectionWorld::with(seed, path, [&layout, &layout], &config),
            noise: Noise::new(seed),
            longest: longest(&path),
            oracles: [oracles(), oracles()],
            sent_transfers: [BTreeMap::new(), BTreeMap::new()],
            max_memory: max_memory(&layout),
            layout,
            chance,
        }
    }

    /// Runs one random action of an end.
    fn act(&mut self, end: End) {
        let channel = ChannelId(self.chance.random_range(0..self.layout.channels().len()) as u8);
        match self.layout.channel(channel).unwrap().kind {
            Kind::Transfers => self.act_on_transfers(end, channel),
            _ => (0..self.chance.random_range(1..6)).for_each(|_| self.send(end, channel)),
        }
    }

    fn send(&mut self, end: End, channel: ChannelId) {
        let max = self.layout.channel(channel).unwrap().max_message_bytes as usize;
        let max = if self.chance.random_bool(0.8) { max.min(300) } else { max };
        let bytes = self.chance.random_range(NUMBER_BYTES..=max);
        let mut options = SendOptions {
            deadline: self.chance.random_bool(0.1).then(|| millis(&mut self.chance, 300)),
            key: self.chance.random_bool(0.2).then(|| self.chance.random_range(0..4)),
            receipt: None,
        };
        let now = self.pair.now();
        let oracle = &mut self.oracles[end as usize][usize::from(channel.0)];
        // Two of three messages request a receipt.
        options.receipt = Some(oracle.next_number()).filter(|number| number % 3 != 0);
        let message = oracle.compose(&self.noise, bytes);
        match self.pair.side(end).connection.send(channel, message, options, now) {
            Ok(()) => oracle.note_sent(options, now),
            Err(error) => assert_eq!(error, SendError::Backlogged),
        }
    }

    fn act_on_transfers(&mut self, end: End, channel: ChannelId) {
        let label = self.sent_transfers[end as usize].len() as u64;
        let transfers =
            |pair: &mut ConnectionWorld, end| pair.side(end).connection.channels.transfers_mut(channel).map(|_| ());
        assert_eq!(transfers(&mut self.pair, end), Some(()));
        let open = self.sent_transfers[end as usize]
            .iter()
            .find(|((on, _), sent_transfer)| *on == channel && sent_transfer.outcome == TransferOutcome::Open);
        let open = open.map(|((_, label), sent_transfer)| (*label, sent_transfer.id));
        if let (Some((label, id)), true) = (open, self.chance.random_bool(0.2)) {
            self.cancel_or_refuse(end, channel, label, id);
        } else if label < 12 {
            let max = [10, 2000, 40_000][self.chance.random_range(0..3)];
            let bytes = self.chance.random_range(0..max);
            let transfer = Transfer::new(self.noise.cut(label as u32, bytes)).unwrap();
            let channels = &mut self.pair.side(end).connection.channels;
            let id = channels.send_transfer(channel, transfer.clone(), label).unwrap();
            self.sent_transfers[end as usize]
                .insert((channel, label), SentTransfer { id, transfer, outcome: TransferOutcome::Open });
        }
    }

    /// Cancels or refuses a transfer at one of the two ends.
    fn cancel_or_refuse(&mut self, from: End, channel: ChannelId, label: u64, id: TransferId) {
        let by_sender = self.chance.random();
        let at = if by_sender { from } else { from.other() };
        let transfers = self.pair.side(at).connection.channels.transfers_mut(channel).unwrap();
        let outcome = if by_sender {
            transfers.cancel(id).then_some(TransferOutcome::Cancelled)
        } else {
            let had = transfers.receiving().any(|(receiving, _)| receiving == id);
            let _ = transfers.refuse(id);
            had.then_some(TransferOutcome::Unwanted)
        };
        if let Some(outcome) = outcome {
            self.sent_transfers[from as usize].get_mut(&(channel, label)).unwrap().outcome = outcome;
        }
    }

    fn turn(&mut self, step: Duration) {
        self.pair.turn(step);
        for end in End::BOTH {
            self.check_events(end);
            let connection = &self.pair.side(end).connection;
            assert_eq!(connection.close_reason(), None);
            let memory = connection.channels.memory_bytes();
            assert!(memory <= self.max_memory, "{memory} bytes of {}", self.max_memory);
        }
    }

    fn check_events(&mut self, end: End) {
        let now = self.pair.now();
        let side = self.pair.side(end);
        let (messages, events) = (std::mem::take(&mut side.messages), std::mem::take(&mut side.events));
        for (channel, message) in messages {
            let oracle = &mut self.oracles[end.other() as usize][usize::from(channel.0)];
            oracle.note_arrived(&message, &self.noise, self.longest, now);
        }
        for event in events {
            match event {
                ChannelEvent::Transfer { channel, event } => self.on_transfer_event(end, channel, event),
                ChannelEvent::Receipt { channel, tag, status } => {
                    self.oracles[end as usize][usize::from(channel.0)].note_receipt(tag, status);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn on_transfer_event(&mut self, end: End, channel: ChannelId, event: transfer::TransferEvent) {
        let find = |sent_transfers: &mut BTreeMap<(ChannelId, u64), SentTransfer>, id| {
            sent_transfers
                .iter()
                .find(|((on, _), sent_transfer)| *on == channel && sent_transfer.id == id)
                .map(|(key, _)| *key)
                .unwrap()
        };
        let [ours, theirs] = [end as usize, end.other() as usize];
        match event {
            transfer::TransferEvent::Offered(offer) => {
                let sent_transfer = self.sent_transfers[theirs].get_mut(&(channel, offer.label)).unwrap();
                assert_eq!((offer.id, offer.digest), (sent_transfer.id, sent_transfer.transfer.digest()));
                let transfers = self.pair.side(end).connection.channels.transfers_mut(channel).unwrap();
                if self.chance.random_bool(0.2) {
                    let _ = transfers.refuse(offer.id);
                    if sent_transfer.outcome == TransferOutcome::Open {
                        sent_transfer.outcome = TransferOutcome::Unwanted;
                    }
                } else {
                    assert!(transfers.accept(offer.id));
                }
            }
            transfer::TransferEvent::Received { id, label, content } => {
                let sent_transfer = self.sent_transfers[theirs].get_mut(&(channel, label)).unwrap();
                assert_eq!(id, sent_transfer.id);
                assert!(
                    matches!(sent_transfer.outcome, TransferOutcome::Open | TransferOutcome::Cancelled),
                    "transfer {label}: {:?}",
                    sent_transfer.outcome
                );
                assert!(content.into_vec() == sent_transfer.transfer.bytes(), "transfer {label} was altered");
                sent_transfer.outcome =
                    TransferOutcome::Arrived { is_acked: sent_transfer.outcome == TransferOutcome::Cancelled };
            }
            transfer::TransferEvent::Broken { label, partial, .. } => {
                let sent_transfer = &self.sent_transfers[theirs][&(channel, label)];
                assert_eq!(
                    sent_transfer.outcome,
                    TransferOutcome::Cancelled,
                    "transfer {label}: {:?}",
                    partial.is_some()
                );
            }
            transfer::TransferEvent::Delivered { id } => {
                let key = find(&mut self.sent_transfers[ours], id);
                let sent_transfer = self.sent_transfers[ours].get_mut(&key).unwrap();
                assert_eq!(sent_transfer.outcome, TransferOutcome::Arrived { is_acked: false });
                sent_transfer.outcome = TransferOutcome::Arrived { is_acked: true };
            }
            transfer::TransferEvent::Refused { id, .. } => {
                let key = find(&mut self.sent_transfers[ours], id);
                assert_eq!(self.sent_transfers[ours][&key].outcome, TransferOutcome::Unwanted);
            }
        }
    }

    /// Returns whether the queues of an end are empty.
    fn is_empty(&mut self, end: End) -> bool {
        let (layout, channels) = (&self.layout, &mut self.pair.side(end).connection.channels);
        (0..).map(ChannelId).zip(layout.channels()).all(|(id, config)| {
            let full = Remaining { bytes: config.queue_bytes, messages: config.queue_messages, receipts: MAX_RECEIPTS };
            config.kind == Kind::Transfers || channels.remaining(id) == full
        })
    }

    fn is_done(&mut self) -> bool {
        let open = |sent_transfer: &SentTransfer| {
            matches!(sent_transfer.outcome, TransferOutcome::Open | TransferOutcome::Arrived { is_acked: false })
        };
        self.oracles.iter().flatten().all(|oracle| oracle.owed() == 0)
            && !self.sent_transfers.iter().flat_map(BTreeMap::values).any(open)
            && End::BOTH.iter().all(|end| self.is_empty(*end))
            && self.pair.link.up.in_transit() + self.pair.link.down.in_transit() == 0
    }

    /// Plays for a while, then waits until all promised messages have arrived. Returns the numbers of messages that
    /// arrived and of receipts.
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
            assert!(self.pair.now() < limit, "the game does not end");
        }
        self.check_counters();
        (0..30).for_each(|_| self.turn(Duration::from_millis(500)));
        for oracle in self.oracles.iter().flatten() {
            assert_eq!(oracle.receipts().1, 0, "a receipt is missing");
        }
        for end in End::BOTH {
            assert_eq!(self.pair.side(end).connection.channels.memory_bytes(), 0, "memory was not released");
        }
        self.disconnect();
        let sum = |of: fn(&DeliveryOracle) -> usize| self.oracles.iter().flatten().map(of).sum();
        [sum(DeliveryOracle::arrived), sum(|oracle| oracle.receipts().0)]
    }

    /// Reliable messages that did not arrive had expired or were replaced, and are counted.
    fn check_counters(&mut self) {
        for end in End::BOTH {
            for (id, oracle) in (0..).map(ChannelId).zip(&self.oracles[end as usize]) {
                let kind = self.layout.channel(id).unwrap().kind;
                let [ours, theirs] =
                    [end, end.other()].map(|end| self.pair.side(end).connection.channels.stats(id).unwrap());
                if kind == Kind::Transfers {
                    continue;
                }
                assert_eq!((ours.sent, theirs.delivered), (oracle.sent() as u64, oracle.arrived() as u64));
                let missing = (oracle.sent() - oracle.arrived()) as u64;
                if kind.is_reliable() {
                    assert!(missing <= ours.expired + ours.superseded, "{missing} messages are missing: {ours:?}");
                }
            }
        }
    }

    /// Closes the connection at one end; the other end gets the reason or, on the worst paths, times out.
    fn disconnect(&mut self) {
        let leaver = if self.chance.random() { End::A } else { End::B };
        self.pair.side(leaver).connection.close(CloseCode(1000), "enough");
        self.pair.run_for(Duration::from_secs(2), FRAME);
        let over = End::BOTH.map(|end| self.pair.side(end).connection.is_closed());
        assert!(over[leaver as usize]);
        if over == [true; 2] {
            let reason = self.pair.side(leaver.other()).connection.close_reason().cloned();
            let (code, text) = (Some(CloseCode(1000)), "enough".to_owned());
            assert_eq!(reason, Some(CloseReason { by: ClosedBy::Remote, kind: CloseKind::Kicked, code, text }));
        }
    }
}

fn play_all(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let mut sums = [0; 2];
    for seed in seeds {
        sums.iter_mut().zip(Game::new(seed).play()).for_each(|(sum, of_world)| *sum += of_world);
    }
    let [arrived, receipts] = sums;
    println!("{arrived} messages arrived in {count} worlds, {receipts} receipts");
    assert!(receipts > 100 * count as usize, "too few receipts");
    assert!(arrived > 100 * count as usize, "the worlds carried too little");
}

#[test]
fn promises_hold_for_the_first_half_of_the_seeds() {
    play_all(0..seeds() / 2);
}

#[test]
fn promises_hold_for_the_second_half_of_the_seeds() {
    play_all(seeds() / 2..seeds());
}
