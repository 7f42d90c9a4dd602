//! A player: a client that sends numbered messages, and knows when the last of them came back.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use slipgate_client::{Channel, Client, Clock, CloseKind, ConnectToken, Event, Inbox, Layout, Traffic};

/// The interval between two messages.
const INTERVAL: Duration = Duration::from_millis(50);

/// A client that plays as long as its messages come back.
pub(crate) struct Player {
    pub(crate) client_id: u64,
    client: Client,
    inbox: Inbox,
    clock: Clock,
    next_send: Instant,
    sent: u64,
    /// The last message that came back on this connection, and when.
    echoed: Option<u64>,
    played: Instant,
    longest_gap: Duration,
    /// The ends of connections and attempts.
    pub(crate) ends: Vec<(Instant, CloseKind)>,
    pub(crate) redirects: u32,
}

/// Returns the channels of `slipgate-server --app echo-messages`.
pub(crate) fn traffic() -> Traffic {
    let mut layout = Layout::builder();
    layout.add(Channel::reliable_ordered("reliable"));
    layout.add(Channel::sequenced("state"));
    Traffic::channels(layout.build().unwrap())
}

impl Player {
    pub(crate) fn new(client_id: u64) -> Self {
        let now = Instant::now();
        Self {
            client_id,
            client: Client::new().unwrap().with_traffic(traffic()).unwrap(),
            inbox: Inbox::default(),
            clock: Clock::start(),
            next_send: now,
            sent: 0,
            echoed: None,
            played: now,
            longest_gap: Duration::ZERO,
            ends: Vec::new(),
            redirects: 0,
        }
    }

    /// Returns whether the player needs a token to play.
    pub(crate) fn is_idle(&self) -> bool {
        !self.client.state().is_active()
    }

    /// Returns whether messages have come back on this connection.
    pub(crate) const fn plays(&self) -> bool {
        self.echoed.is_some()
    }

    pub(crate) fn server(&self) -> Option<SocketAddr> {
        self.client.server()?.address
    }

    /// Begins to measure the time without play.
    pub(crate) fn begin_gap(&mut self) {
        (self.played, self.longest_gap) = (Instant::now(), Duration::ZERO);
    }

    /// Returns the longest time without play since [`begin_gap`](Self::begin_gap).
    pub(crate) fn longest_gap(&self) -> Duration {
        self.longest_gap.max(self.played.elapsed())
    }

    pub(crate) fn connect(&mut self, token: ConnectToken) {
        self.client.connect(token, self.clock.now()).unwrap();
    }

    pub(crate) fn leave(&mut self) {
        self.client.disconnect();
        self.turn();
    }

    /// Runs one turn without waiting.
    pub(crate) fn turn(&mut self) {
        self.client.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Message { bytes, .. } => {
                    let number = u64::from_le_bytes(bytes.try_into().unwrap());
                    assert_eq!(number, self.echoed.map_or(number, |last| last + 1), "messages are in order");
                    self.echoed = Some(number);
                    self.longest_gap = self.longest_gap.max(self.played.elapsed());
                    self.played = Instant::now();
                }
                Event::Redirected { .. } => (self.redirects, self.echoed) = (self.redirects + 1, None),
                Event::Ended { reason } => {
                    self.ends.push((Instant::now(), reason.kind));
                    self.echoed = None;
                }
                _ => {}
            }
        }
        if self.client.state().is_connected() && self.next_send <= Instant::now() {
            // A full queue is a message less.
            if self.client.send_message(slipgate_client::ChannelId(0), &self.sent.to_le_bytes()).is_ok() {
                self.sent += 1;
            }
            self.next_send = Instant::now() + INTERVAL;
        }
        self.client.end_turn();
    }
}
