//! What the screen remembers: round trips, processor time, rates of junk and drops, and the latest events.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::super::flood::FloodCount;
use super::super::server::ServerReport;
use super::super::snapshot::DemoSnapshot;

/// The interval between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(500);
/// Samples that are kept: as many as a wide screen shows.
const MAX_SAMPLES: usize = 400;
/// Events that are kept: as many as a high screen shows.
const MAX_EVENTS: usize = 50;

/// A moment of the demo.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The longest round trip of a connected player; `None` if none was measured.
    pub(super) round_trip: Option<Duration>,
    /// The share of a processor that the server's thread used; `None` if it is unknown.
    pub(super) cpu: Option<f64>,
    /// Junk datagrams sent per second; `None` without a flood.
    pub(super) flood: Option<u64>,
    /// Datagrams dropped per second: by the system, and by the server for each reason.
    pub(super) dropped_by_system: u64,
    pub(super) drops: Vec<(&'static str, u64)>,
}

/// The samples and events so far.
pub(super) struct History {
    start: Instant,
    next_sample: Instant,
    samples: VecDeque<Sample>,
    events: VecDeque<(Duration, String)>,
    /// The counters at the last sample.
    server: ServerReport,
    flood: Option<FloodCount>,
}

impl History {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            start: now,
            next_sample: now,
            samples: VecDeque::new(),
            events: VecDeque::new(),
            server: ServerReport::default(),
            flood: None,
        }
    }

    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now.duration_since(self.start)
    }

    pub(super) fn add_event(&mut self, now: Instant, text: String) {
        self.events.push_back((self.elapsed(now), text));
        if self.events.len() > MAX_EVENTS {
            self.events.pop_front();
        }
    }

    /// Returns the events, oldest first.
    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = &(Duration, String)> {
        self.events.iter()
    }

    /// Returns the samples, oldest first.
    pub(super) fn samples(&self) -> impl DoubleEndedIterator<Item = &Sample> {
        self.samples.iter()
    }

    /// Takes a sample if it is due. `flood` is the number of junk datagrams that the running flood has sent.
    pub(super) fn update(&mut self, snapshot: &DemoSnapshot, flood: Option<FloodCount>, now: Instant) {
        if now < self.next_sample {
            return;
        }
        self.next_sample = now + SAMPLE_INTERVAL;
        let server = &snapshot.server;
        // The counters of a restarted server begin again at 0; nothing is known then for one sample.
        let is_later = |(new, old): (Instant, Instant)| (new > old).then(|| new.duration_since(old));
        let time = server.made_at.zip(self.server.made_at).and_then(is_later);
        let time = time.filter(|_| server.stats.payloads_received >= self.server.stats.payloads_received);
        let rate = |new: u64, old: u64| time.map_or(0, |time| per_second(new.saturating_sub(old), time));
        let drops = server.discards.iter().map(|(reason, count)| {
            let before = self.server.discards[reason];
            (reason.name(), rate(count, before))
        });
        let drops = drops.filter(|(_, rate)| *rate > 0).collect();
        let dropped = |report: &ServerReport| report.dropped_by_system.unwrap_or(0);
        let dropped_by_system = rate(dropped(server), dropped(&self.server));
        let sample = Sample {
            round_trip: snapshot.slowest(),
            cpu: server
                .cpu
                .zip(self.server.cpu)
                .zip(time)
                .map(|((new, old), time)| share(new.saturating_sub(old), time)),
            flood: self.flood_rate(flood),
            dropped_by_system,
            drops,
        };
        self.server = server.clone();
        self.add_sample(sample);
    }

    pub(super) fn add_sample(&mut self, sample: Sample) {
        self.samples.push_back(sample);
        if self.samples.len() > MAX_SAMPLES {
            self.samples.pop_front();
        }
    }

    /// Returns the rate in the flood's own time since the last sample; `None` for the first one, which has no time.
    fn flood_rate(&mut self, count: Option<FloodCount>) -> Option<u64> {
        let last = std::mem::replace(&mut self.flood, count);
        let (count, last) = (count?, last?);
        Some(per_second(count.sent.saturating_sub(last.sent), count.until.saturating_duration_since(last.until)))
    }
}

fn per_second(count: u64, time: Duration) -> u64 {
    if time.is_zero() { 0 } else { (count as f64 / time.as_secs_f64()).round() as u64 }
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}
