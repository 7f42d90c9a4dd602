//! A client that sends numbered payloads to an echo server and checks every echo: for the demo, tools and tests.
//!
//! The content of a payload is a function of its number, so that an echo is checked byte by byte without a copy.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use slipgate_netcode::ids::ClientIndex;
use slipgate_netcode::time::Instant;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

use crate::{Client, ClientState, Clock, CloseReason, ConnectError, Event, Inbox};

/// The minimum bytes of a payload: its number and the mark of the probe.
pub const MIN_PROBE_BYTES: usize = 16;
/// The number of remembered send times, for round-trip times: one minute at 60 payloads per second.
const MAX_REMEMBERED: usize = 4096;

/// The settings of a probe.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// Payloads per second, at least 1.
    pub rate: u32,
    /// Sizes in bytes, within 16..=1200; consecutive payloads differ in size.
    pub sizes: RangeInclusive<usize>,
    /// Distinguishes this probe's payloads from those of others, if the server relays.
    pub mark: u64,
}

/// The results of a probe.
#[derive(Clone, Debug, Default)]
pub struct ProbeReport {
    /// The state of the client.
    pub state: ClientState,
    /// Why the connection ended, if it has.
    pub ended: Option<CloseReason>,
    /// Its client index, once it was connected.
    pub client_index: Option<ClientIndex>,
    /// Whether it was ever connected.
    pub was_connected: bool,
    /// Payloads sent.
    pub sent: u64,
    /// Payloads that could not be sent.
    pub not_sent: u64,
    /// Correct echoes.
    pub right: u64,
    /// Payloads with this probe's mark that differ from every payload that it sent, or are duplicates.
    pub wrong: u64,
    /// Payloads of other probes.
    pub foreign: u64,
    /// Dropped datagrams.
    pub dropped: u64,
    /// The round-trip times.
    pub round_trip: RoundTrip,
}

impl ProbeReport {
    /// Returns the number of payloads without a correct echo.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.sent.saturating_sub(self.right)
    }

    /// Returns whether the probe was connected and every echo was correct.
    #[must_use]
    pub const fn is_perfect(&self) -> bool {
        self.was_connected && self.sent > 0 && self.missing() == 0 && self.wrong == 0
    }
}

/// Round-trip times, from sending a payload to taking its echo from the inbox.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    /// Smoothed with gain 1/8 (RFC 6298, section 2).
    pub smoothed: Option<Duration>,
    /// The minimum.
    pub min: Option<Duration>,
    /// The maximum.
    pub max: Option<Duration>,
}

impl RoundTrip {
    fn on_sample(&mut self, sample: Duration) {
        self.smoothed = Some(self.smoothed.map_or(sample, |smoothed| smoothed * 7 / 8 + sample / 8));
        self.min = Some(self.min.map_or(sample, |min| min.min(sample)));
        self.max = Some(self.max.map_or(sample, |max| max.max(sample)));
    }
}

/// Whether a turn sends payloads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sending {
    On,
    Off,
}

/// A client that sends numbered payloads and checks their echoes.
pub struct Probe {
    client: Client,
    inbox: Inbox,
    clock: Clock,
    config: ProbeConfig,
    next_number: u64,
    next_send: Instant,
    /// Number and send time of the last payloads. An echo takes its entry, so that it counts once.
    sent_at: Box<[Option<(u64, Instant)>]>,
    report: ProbeReport,
}

impl Probe {
    /// Creates a probe, and starts to connect.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn begin(mut client: Client, token: ConnectToken, config: ProbeConfig) -> Result<Self, ConnectError> {
        let clock = Clock::start();
        client.connect(token, clock.now())?;
        let ProbeConfig { rate, sizes, mark } = config;
        let (min, max) = sizes.into_inner();
        let min = min.clamp(MIN_PROBE_BYTES, MAX_PAYLOAD_BYTES);
        let sizes = min..=max.clamp(min, MAX_PAYLOAD_BYTES);
        Ok(Self {
            client,
            inbox: Inbox::default(),
            clock,
            config: ProbeConfig { rate: rate.max(1), sizes, mark },
            next_number: 0,
            next_send: Instant::default(),
            sent_at: vec![None; MAX_REMEMBERED].into(),
            report: ProbeReport::default(),
        })
    }

    /// Runs one turn: takes the events, sends due payloads, and sleeps until more happens, for at most `max_wait`.
    ///
    /// # Errors
    /// The error of the system call when the system cannot wait.
    pub fn turn(&mut self, max_wait: Duration) -> io::Result<()> {
        self.turn_with(Sending::On, max_wait)
    }

    /// Runs one turn without sending: takes the events, which include the last echoes, and sleeps until more happens,
    /// for at most `max_wait`.
    ///
    /// # Errors
    /// The error of the system call when the system cannot wait.
    pub fn receive_turn(&mut self, max_wait: Duration) -> io::Result<()> {
        self.turn_with(Sending::Off, max_wait)
    }

    fn turn_with(&mut self, sending: Sending, max_wait: Duration) -> io::Result<()> {
        let now = self.clock.now();
        self.client.begin_turn(now);
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { client_index, .. } => {
                    self.report.client_index = Some(client_index);
                    self.report.was_connected = true;
                    self.next_send = now.monotonic;
                }
                Event::Payload { bytes, .. } => {
                    check(bytes, &self.config, self.clock.monotonic(), &mut self.sent_at, &mut self.report);
                }
                _ => {}
            }
        }
        if sending == Sending::On && self.client.state().is_connected() {
            self.send_due(now.monotonic);
        }
        self.client.end_turn();
        self.report.state = self.client.state();
        self.report.ended = self.client.close_reason().cloned();
        self.report.dropped = self.client.discards().total();
        let sends = sending == Sending::On && self.report.state.is_connected();
        let due = if sends { self.next_send.since(self.clock.monotonic()) } else { max_wait };
        self.client.wait(due.min(max_wait))
    }

    fn send_due(&mut self, now: Instant) {
        let period = Duration::from_secs(1) / self.config.rate;
        // A program that was suspended must not send all missed payloads at once.
        let mut burst = self.config.rate.div_ceil(10);
        while self.next_send <= now && burst > 0 {
            burst -= 1;
            self.next_send = self.next_send.after(period);
            let mut buffer = [0; MAX_PAYLOAD_BYTES];
            let payload = compose(self.next_number, &self.config, &mut buffer);
            match self.client.send(payload) {
                Ok(()) => {
                    let index = self.next_number as usize % MAX_REMEMBERED;
                    if let Some(entry) = self.sent_at.get_mut(index) {
                        *entry = Some((self.next_number, self.clock.monotonic()));
                    }
                    self.report.sent += 1;
                    self.next_number += 1;
                }
                Err(_) => self.report.not_sent += 1,
            }
        }
        if self.next_send <= now {
            self.next_send = now;
        }
    }

    /// Disconnects.
    ///
    /// # Errors
    /// The error of the system call when the system cannot wait.
    pub fn leave(&mut self) -> io::Result<()> {
        self.client.disconnect();
        self.receive_turn(Duration::ZERO)
    }

    /// Returns the results so far.
    #[must_use]
    pub const fn report(&self) -> &ProbeReport {
        &self.report
    }

    /// Returns the client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

/// Writes the payload of a number: the number, the mark, and bytes that depend on both.
fn compose<'b>(number: u64, config: &ProbeConfig, buf: &'b mut [u8; MAX_PAYLOAD_BYTES]) -> &'b [u8] {
    let span = (config.sizes.end() - config.sizes.start() + 1) as u64;
    // Multiplying by a prime shuffles the sizes, so that no buffer is reused for an equal size by accident.
    let length = config.sizes.start() + (number.wrapping_mul(7919) % span) as usize;
    let head = number.to_le_bytes().into_iter().chain(config.mark.to_le_bytes());
    let seed = number ^ config.mark.rotate_left(32);
    let rest = (0_u64..).map(|index| (seed.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
    buf.iter_mut().zip(head.chain(rest)).for_each(|(to, from)| *to = from);
    buf.get(..length).unwrap_or_default()
}

fn check(
    bytes: &[u8],
    config: &ProbeConfig,
    now: Instant,
    sent_at: &mut [Option<(u64, Instant)>],
    report: &mut ProbeReport,
) {
    let number = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let mark = bytes.get(8..).and_then(|rest| rest.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes));
    if mark != Some(config.mark) {
        report.foreign += 1;
        return;
    }
    let mut buffer = [0; MAX_PAYLOAD_BYTES];
    let number = number.filter(|number| compose(*number, config, &mut buffer) == bytes);
    let entry =
        number.and_then(|number| sent_at.get_mut(number as usize % MAX_REMEMBERED).map(|entry| (number, entry)));
    match entry {
        Some((number, entry)) if entry.is_some_and(|(sent, _)| sent == number) => {
            if let Some((_, sent)) = entry.take() {
                report.round_trip.on_sample(now.since(sent));
            }
            report.right += 1;
        }
        _ => report.wrong += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ProbeConfig {
        ProbeConfig { rate: 60, sizes: 16..=1200, mark: 77 }
    }

    #[test]
    fn an_echo_counts_once_and_only_unaltered() {
        let mut sent_at = vec![None; MAX_REMEMBERED];
        let mut report = ProbeReport { sent: 3, was_connected: true, ..ProbeReport::default() };
        for number in 0..3 {
            sent_at[number as usize] = Some((number, Instant::default()));
        }
        let mut buffer = [0; MAX_PAYLOAD_BYTES];
        let echo = compose(1, &config(), &mut buffer).to_vec();
        let now = Instant::from_start(Duration::from_millis(4));
        check(&echo, &config(), now, &mut sent_at, &mut report);
        assert_eq!((report.right, report.wrong, report.missing()), (1, 0, 2));
        assert_eq!(report.round_trip.smoothed, Some(Duration::from_millis(4)));

        check(&echo, &config(), now, &mut sent_at, &mut report);
        assert_eq!((report.right, report.wrong), (1, 1), "a second time");
        let mut altered = compose(2, &config(), &mut buffer).to_vec();
        *altered.last_mut().unwrap() ^= 1;
        check(&altered, &config(), now, &mut sent_at, &mut report);
        check(&echo[..echo.len() - 1], &config(), now, &mut sent_at, &mut report);
        assert_eq!((report.right, report.wrong), (1, 3), "altered, cut");
        let others = compose(2, &ProbeConfig { mark: 78, ..config() }, &mut buffer).to_vec();
        check(&others, &config(), now, &mut sent_at, &mut report);
        check(b"short", &config(), now, &mut sent_at, &mut report);
        assert_eq!((report.wrong, report.foreign), (3, 2));
        assert!(!report.is_perfect());
    }

    #[test]
    fn sizes_cover_their_whole_range() {
        let mut buffer = [0; MAX_PAYLOAD_BYTES];
        let mut sizes: Vec<_> = (0..1185).map(|number| compose(number, &config(), &mut buffer).len()).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, (16..=1200).collect::<Vec<_>>());
    }
}
