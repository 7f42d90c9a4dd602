//! A client that sends numbered payloads to an echo server and checks every echo: for the demo, tools and tests.
//!
//! What a payload must look like follows from its number, so an echo is checked byte for byte without keeping a copy.

use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

use crate::{Client, ClientState, Clock, ConnectError, EndReason, Event, Inbox};

/// The fewest bytes of a probe's payload: its number and whose it is.
pub const MIN_PROBE_BYTES: usize = 16;
/// Send times that are remembered, so that an echo tells the round-trip time: a minute at 60 a second.
const REMEMBERED: usize = 4096;

/// What a probe sends.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// Payloads a second, at least 1.
    pub rate: u32,
    /// Their sizes in bytes, within 16..=1200; each next payload has another one.
    pub sizes: RangeInclusive<usize>,
    /// Tells this probe's payloads from those of others, where a server relays.
    pub mark: u64,
}

/// What a probe has seen.
#[derive(Clone, Debug, Default)]
pub struct ProbeReport {
    /// Where the client stands.
    pub state: ClientState,
    /// Why it ended, if it has.
    pub ended: Option<EndReason>,
    /// Its slot, once it had one.
    pub slot: Option<u32>,
    /// Whether it ever had one.
    pub was_connected: bool,
    /// Payloads sent.
    pub sent: u64,
    /// Payloads that the system did not take.
    pub unsent: u64,
    /// Echoes that were right.
    pub right: u64,
    /// Payloads that bear this probe's mark and are none that it sent, or not as it sent them.
    pub wrong: u64,
    /// Payloads of others.
    pub foreign: u64,
    /// Datagrams that were dropped.
    pub dropped: u64,
    /// The round-trip time: smoothed by an eighth (RFC 6298, section 2), least and most.
    pub round_trip: RoundTrip,
}

impl ProbeReport {
    /// Payloads whose echo has not come.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.sent.saturating_sub(self.right)
    }

    /// Whether a slot was had and every echo was right.
    #[must_use]
    pub const fn is_perfect(&self) -> bool {
        self.was_connected && self.sent > 0 && self.missing() == 0 && self.wrong == 0
    }
}

/// Round-trip times, from handing a payload to the client to taking its echo.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    /// Smoothed.
    pub smoothed: Option<Duration>,
    /// The least.
    pub least: Option<Duration>,
    /// The most.
    pub most: Option<Duration>,
}

impl RoundTrip {
    fn note(&mut self, sample: Duration) {
        self.smoothed = Some(self.smoothed.map_or(sample, |smoothed| smoothed * 7 / 8 + sample / 8));
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        self.most = Some(self.most.map_or(sample, |most| most.max(sample)));
    }
}

/// A client under way.
pub struct Probe {
    client: Client,
    inbox: Inbox,
    clock: Clock,
    config: ProbeConfig,
    next_number: u64,
    next_send: Instant,
    /// When the payloads of the last numbers were sent; taken when their echo comes, so that each counts once.
    sent_at: Box<[Option<(u64, Instant)>]>,
    report: ProbeReport,
}

impl Probe {
    /// A probe that begins to connect.
    ///
    /// # Errors
    /// The client refuses the token.
    pub fn begin(mut client: Client, token: ConnectToken, config: ProbeConfig) -> Result<Self, ConnectError> {
        let clock = Clock::start();
        client.connect(token, clock.now())?;
        let ProbeConfig { rate, sizes, mark } = config;
        let (least, most) = sizes.into_inner();
        let least = least.clamp(MIN_PROBE_BYTES, MAX_PAYLOAD_BYTES);
        let sizes = least..=most.clamp(least, MAX_PAYLOAD_BYTES);
        Ok(Self {
            client,
            inbox: Inbox::default(),
            clock,
            config: ProbeConfig { rate: rate.max(1), sizes, mark },
            next_number: 0,
            next_send: Instant::default(),
            sent_at: vec![None; REMEMBERED].into(),
            report: ProbeReport::default(),
        })
    }

    /// One turn: takes what came, sends what is due if `sending`, and sleeps until more happens, for at most `patience`.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn turn(&mut self, sending: bool, patience: Duration) -> io::Result<()> {
        let now = self.clock.now();
        self.client.begin_turn(now);
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { client_index, .. } => {
                    self.report.slot = Some(client_index);
                    self.report.was_connected = true;
                    self.next_send = now.monotonic;
                }
                Event::Payload { bytes, .. } => {
                    check(bytes, &self.config, self.clock.monotonic(), &mut self.sent_at, &mut self.report);
                }
                _ => {}
            }
        }
        if sending && self.client.state().is_connected() {
            self.send_due(now.monotonic);
        }
        self.client.end_turn();
        self.report.state = self.client.state();
        self.report.ended = self.client.end_reason();
        self.report.dropped = self.client.discards().total();
        let due = if sending { self.next_send.since(self.clock.monotonic()) } else { patience };
        let due = if self.report.state.is_connected() { due } else { patience };
        self.client.wait(due.min(patience))
    }

    fn send_due(&mut self, now: Instant) {
        let period = Duration::from_secs(1) / self.config.rate;
        // A program that was stopped for a while does not send all it missed at once.
        let mut burst = self.config.rate.div_ceil(10);
        while self.next_send <= now && burst > 0 {
            burst -= 1;
            self.next_send = self.next_send.after(period);
            let mut buffer = [0; MAX_PAYLOAD_BYTES];
            let payload = compose(self.next_number, &self.config, &mut buffer);
            match self.client.send(payload) {
                Ok(()) => {
                    let place = self.next_number as usize % REMEMBERED;
                    if let Some(home) = self.sent_at.get_mut(place) {
                        *home = Some((self.next_number, self.clock.monotonic()));
                    }
                    self.report.sent += 1;
                    self.next_number += 1;
                }
                Err(_) => self.report.unsent += 1,
            }
        }
        if self.next_send <= now {
            self.next_send = now;
        }
    }

    /// Leaves the server.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn leave(&mut self) -> io::Result<()> {
        self.client.disconnect();
        self.turn(false, Duration::ZERO)
    }

    /// What it has seen so far.
    #[must_use]
    pub const fn report(&self) -> &ProbeReport {
        &self.report
    }

    /// The client, for what else it knows.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

/// Writes the payload of a number: number, mark, and bytes that follow from both.
fn compose<'b>(number: u64, config: &ProbeConfig, buffer: &'b mut [u8; MAX_PAYLOAD_BYTES]) -> &'b [u8] {
    let span = (config.sizes.end() - config.sizes.start() + 1) as u64;
    // 7919 is a prime: the sizes come in no order that a buffer could follow.
    let length = config.sizes.start() + (number.wrapping_mul(7919) % span) as usize;
    let head = number.to_le_bytes().into_iter().chain(config.mark.to_le_bytes());
    let seed = number ^ config.mark.rotate_left(32);
    let rest = (0_u64..).map(|place| (seed.wrapping_add(place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
    buffer.iter_mut().zip(head.chain(rest)).for_each(|(to, from)| *to = from);
    buffer.get(..length).unwrap_or_default()
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
    let home = number.and_then(|number| sent_at.get_mut(number as usize % REMEMBERED).map(|home| (number, home)));
    match home {
        Some((number, home)) if home.is_some_and(|(sent, _)| sent == number) => {
            if let Some((_, sent)) = home.take() {
                report.round_trip.note(now.since(sent));
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
    fn an_echo_counts_once_and_only_as_it_was_sent() {
        let mut sent_at = vec![None; REMEMBERED];
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
