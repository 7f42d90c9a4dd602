//! A client of the arena, see `arena_server.rs`: a bot that runs about and shoots at the nearest figure in front of it.
//!
//! ```console
//! $ cargo run --features sync --example arena_client -- 1
//! ```

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

#[allow(dead_code, reason = "each end uses a part of it")]
mod arena;

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use arena::{
    ADDRESS, Channels, DEVELOPMENT_KEY, DOWN, FIRE, Figure, LEFT, PROTOCOL_ID, RATE, RIGHT, SLOTS, TICK, UP, channels,
    figure, figures, log_filter, metres, sample,
};
use slipgate::client::{Client, Clock, ConnectToken, Event, Inbox, Pace};
use slipgate::sync::{
    InputClock, InputLog, Keys, MAX_INPUT_BYTES, MAX_SAVES, ObjectId, PlayoutClock, PlayoutSamples, PredictOrder,
    Predictor, Replica, ReplicaChange,
};
use slipgate_token_issuer::{Issuer, Key, Limits, TokenRequest, system_entropy, wall_clock};

/// How long the client waits for a measured round trip after the first message, and what it assumes then.
const MAX_UNMEASURED: Duration = Duration::from_secs(1);
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(100);
/// An assumption about the path until reports of the server arrive.
const FIRST_JITTER: Duration = Duration::from_millis(20);
/// Ticks without an input, after a pause of this machine, beyond which the client starts again at the present.
const MAX_GAP: u32 = 30;
/// Ticks after the newest message of the server in which the figure still moves, one second. The next message can
/// correct all of them, because the predictor repeats 63.
const MAX_AHEAD: u32 = MAX_SAVES as u32 - RATE.between_states - 1;

fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_env_filter(log_filter()).init();
    let id = std::env::args().nth(1).ok_or("usage: arena_client ID")?.parse()?;
    let mut player = Player::join(ADDRESS.parse()?, id)?;
    let mut score = 0;
    loop {
        player.keys = player.bot();
        player.turn();
        if let Some(reason) = player.client.close_reason() {
            println!("{reason}");
            return Ok(());
        }
        // The server decides what a shot hits.
        if let Some(own) = player.own_at_server().filter(|own| own.score != score) {
            score = own.score;
            println!("{score} hits, and {} corrections so far", player.corrections);
        }
    }
}

/// Mints a connect token, which the backend of a real game does: the key must not be in the client.
fn mint(server: SocketAddr, id: u64) -> Result<ConnectToken, Box<dyn Error>> {
    let issuer = Issuer::new(PROTOCOL_ID, Key::from(DEVELOPMENT_KEY).into(), &[server], Limits::default())?;
    Ok(issuer.mint(&TokenRequest::new(id), wall_clock(), &mut system_entropy()?)?.token)
}

/// The own figure, simulated ahead of the server.
struct Prediction {
    predictor: Predictor,
    figure: Figure,
    saves: [Figure; MAX_SAVES],
    /// The server's figure of the tick of a correction that is due.
    truth: Figure,
    due: Option<u32>,
}

impl Prediction {
    fn start(tick: u32, figure: Figure) -> Self {
        Self { predictor: Predictor::new(tick), figure, saves: [figure; MAX_SAVES], truth: figure, due: None }
    }

    /// Compares the server's figure with the one that was predicted for this tick.
    fn check(&mut self, tick: u32, truth: Figure) {
        let is_wrong = self.saves.get(tick as usize % MAX_SAVES).is_some_and(|own| *own != truth);
        // Another message of this tick may have a newer figure than the one before.
        if (is_wrong || self.due == Some(tick)) && self.predictor.correct(tick) {
            (self.truth, self.due) = (truth, Some(tick));
        }
    }

    /// Adds the keys of all ticks up to this one. Returns whether they were taken: not after a pause, and not after a
    /// jump back of the clock.
    fn push(&mut self, newest: u32, log: &InputLog) -> bool {
        let before = self.predictor.newest();
        // Ticks between the server's state and the first input had no keys of ours.
        let mut ticks = (before..newest).map(|tick| tick + 1);
        before <= newest && ticks.all(|tick| self.predictor.push(tick, log.keys(tick).unwrap_or(0)))
    }

    /// Obeys the orders of a frame.
    #[allow(clippy::indexing_slicing, reason = "the number of a save is below MAX_SAVES")]
    fn advance(&mut self) {
        self.predictor.on_frame();
        while let Some(order) = self.predictor.order() {
            match order {
                PredictOrder::Restore { save } => self.figure = self.saves[save],
                PredictOrder::Correct { .. } => (self.figure, self.due) = (self.truth, None),
                PredictOrder::Save { save } => self.saves[save] = self.figure,
                // A game plays sounds only if the tick is not repeated.
                PredictOrder::Step { keys, .. } => self.figure.step(keys),
            }
            self.predictor.obeyed();
        }
    }
}

pub(crate) struct Player {
    pub(crate) client: Client,
    inbox: Inbox,
    clock: Clock,
    pace: Pace,
    channels: Channels,
    slot: Option<ObjectId>,
    replica: Replica,
    playout: PlayoutClock,
    samples: PlayoutSamples,
    input_clock: InputClock,
    /// When the first message of the server arrived.
    first_message: Option<Duration>,
    log: InputLog,
    prediction: Option<Prediction>,
    /// The newest tick with an input.
    made: Option<u32>,
    /// The keys that are pressed now.
    pub(crate) keys: Keys,
    /// Corrections of the own figure so far.
    pub(crate) corrections: u64,
}

impl Player {
    pub(crate) fn join(server: SocketAddr, id: u64) -> Result<Self, Box<dyn Error>> {
        let (clock, (channels, traffic)) = (Clock::start(), channels()?);
        let mut client = Client::new()?.with_traffic(traffic)?;
        client.connect(mint(server, id)?, clock.now())?;
        Ok(Self {
            client,
            inbox: Inbox::default(),
            clock,
            pace: Pace::new(clock, TICK),
            channels,
            slot: None,
            replica: Replica::new(figures().0, SLOTS),
            playout: PlayoutClock::new(RATE),
            samples: PlayoutSamples::new(SLOTS, RATE),
            input_clock: InputClock::new(RATE.per_second),
            first_message: None,
            log: InputLog::new(),
            prediction: None,
            made: None,
            keys: 0,
            corrections: 0,
        })
    }

    /// Handles what has arrived, plays a frame if one is due, and sleeps until more happens.
    pub(crate) fn turn(&mut self) {
        let now = self.clock.now();
        self.client.begin_turn(now);
        let mut messages = Vec::new();
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { client_index, .. } => self.slot = Some(ObjectId(client_index.0 as u16)),
                Event::Message { bytes, times, .. } => messages.push((bytes.to_vec(), times.arrived.since_start())),
                _ => {}
            }
        }
        for (message, at) in messages {
            self.read(&message, at);
        }
        if self.pace.is_tick(now.monotonic) {
            self.frame(now.monotonic.since_start());
            self.client.end_turn();
        } else {
            self.client.flush();
        }
        self.pace.rest(&mut self.client);
    }

    /// Reads a message of the server. If it is refused, the next inputs ask the server to send everything again.
    fn read(&mut self, message: &[u8], at: Duration) {
        let Ok(header) = self.replica.read(message) else { return };
        // The first call counts. Inputs would be late for seconds if it assumed another path than there is.
        let waited = at.saturating_sub(*self.first_message.get_or_insert(at));
        let assumed = Some(FIRST_ROUND_TRIP).filter(|_| waited > MAX_UNMEASURED);
        let measured = self.client.path().and_then(|path| path.congestion.round_trip);
        if let Some(round_trip) = measured.or(assumed) {
            self.input_clock.set(header.tick, round_trip, FIRST_JITTER, at);
        }
        if let Some(report) = header.report.filter(|report| self.log.on_report(*report)) {
            self.input_clock.on_report(report);
        }
        self.playout.on_message(header, at);
        while let Some(change) = self.replica.poll() {
            match change {
                ReplicaChange::Gone { id, tick, .. } => self.samples.remove(id, tick),
                ReplicaChange::Appeared { id, .. } | ReplicaChange::Updated { id } => self.update(id),
            }
        }
        self.check(header.tick);
    }

    fn update(&mut self, id: ObjectId) {
        let Some(object) = self.replica.object(id) else { return };
        let (tick, Some((figure, is_at_rest))) = (object.tick(), figure(&object)) else { return };
        self.samples.add(id, sample(tick, &figure, is_at_rest));
    }

    /// Compares the own figure with that of a message of this tick. A figure that rests gets no new states: it is where
    /// it was, also at this tick.
    fn check(&mut self, tick: u32) {
        let Some(object) = self.slot.and_then(|slot| self.replica.object(slot)) else { return };
        let (Some((figure, is_at_rest)), Some(prediction)) = (figure(&object), &mut self.prediction) else { return };
        if tick == object.tick() || (is_at_rest && tick > object.tick()) {
            prediction.check(tick, figure);
        }
    }

    /// Makes the inputs that are due, predicts the own figure, and sends all inputs that the server has not confirmed.
    fn frame(&mut self, now: Duration) {
        // The player acts by what is on the screen: the frame before.
        let shown = self.playout.tick();
        self.playout.advance(now);
        let Some((newest, received)) = self.input_clock.advance(now).zip(self.replica.newest_tick()) else { return };
        // While the server is silent, the own figure stands still after a second, and no inputs are made.
        let newest = newest.min(received.saturating_add(MAX_AHEAD));
        // After a jump back of the clock the inputs of its ticks are made again. A tick may be the last one there is.
        let before = newest.saturating_sub(1);
        let made = self.made.filter(|made| *made <= newest).unwrap_or(before).max(newest.saturating_sub(MAX_GAP));
        (made..newest).for_each(|tick| self.log.push(tick + 1, self.keys, shown));
        self.made = Some(newest);
        self.predict(newest);
        let mut buf = [0; MAX_INPUT_BYTES];
        let length = self.log.write(self.replica.resync_request(), &mut buf);
        // If it is refused, the next message repeats its inputs.
        let _ = self.client.send_message(self.channels.inputs, buf.get(..length).unwrap_or(&[]));
    }

    /// Predicts the own figure up to the tick of its newest input.
    fn predict(&mut self, newest: u32) {
        if !self.prediction.as_mut().is_some_and(|prediction| prediction.push(newest, &self.log)) {
            // It starts again at the newest message, and does not wait for a state: a figure that rests gets none.
            let Some((tick, figure)) = self.replica.newest_tick().zip(self.own_at_server()) else { return };
            self.prediction.insert(Prediction::start(tick, figure)).push(newest, &self.log);
        }
        let Some(prediction) = &mut self.prediction else { return };
        let before = prediction.predictor.repeated();
        prediction.advance();
        self.corrections += u64::from(prediction.predictor.repeated() > before);
    }

    /// Returns the own figure as it is shown: ahead of the server.
    pub(crate) fn own(&self) -> Option<Figure> {
        self.prediction.as_ref().map(|prediction| prediction.figure)
    }

    /// Returns the own figure as the server has sent it.
    pub(crate) fn own_at_server(&self) -> Option<Figure> {
        self.replica.object(self.slot?).and_then(|object| figure(&object)).map(|(figure, _)| figure)
    }

    /// Returns where the other figures are shown now.
    pub(crate) fn others(&self) -> impl Iterator<Item = [f32; 3]> + '_ {
        let (tick, newest) = (self.playout.tick().unwrap_or(0.0), self.replica.newest_tick().unwrap_or(0));
        let others = self.samples.all_shown(tick, newest).filter(move |(id, _)| Some(*id) != self.slot);
        others.map(|(_, pose)| pose.position)
    }

    /// Returns the keys that lead to the nearest other figure, with a shot where one would hit.
    pub(crate) fn bot(&self) -> Keys {
        let Some(own) = self.own() else { return 0 };
        let [x, z] = own.place.map(metres);
        let distance = |target: &[f32; 3]| (target[0] - x).abs() + (target[2] - z).abs();
        let nearest = self.others().min_by(|one, two| distance(one).total_cmp(&distance(two)));
        let Some(target) = nearest else { return 0 };
        let towards = |from: f32, to: f32, low: Keys, high: Keys| match to - from {
            way if way < -0.3 => low,
            way if way > 0.3 => high,
            _ => 0,
        };
        let keys = towards(x, target[0], LEFT, RIGHT) | towards(z, target[2], UP, DOWN);
        if own.hits(target) { keys | FIRE } else { keys }
    }
}
