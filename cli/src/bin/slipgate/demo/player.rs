//! One client of the demo, as in a game: its turn, the messages that it sends and the events that it handles.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use slipgate_client::sockets::Sockets;
use slipgate_client::transfer;
use slipgate_client::{
    ChannelEvent, ChannelId, Client, ClientState, Clock, CloseReason, ConnectToken, Event, Inbox, decode,
};
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::Instant;

use super::game::{CHAT, ChatLine, GameSettings, MAP, STATE, StateUpdate};
use super::received::{ChatStats, MapStats, StateStats};

/// The interval between two chat lines of a player.
const LINE_INTERVAL: Duration = Duration::from_millis(250);

/// The state and counters of a player.
#[derive(Clone, Default)]
pub(super) struct PlayerReport {
    pub(super) state: ClientState,
    /// The slot, once connected; kept after the end.
    pub(super) slot: Option<u32>,
    pub(super) chat: ChatStats,
    pub(super) states: StateStats,
    pub(super) map: MapStats,
    /// Datagrams that the client dropped.
    pub(super) dropped: u64,
    /// When the player got its slot.
    pub(super) connected_at: Option<std::time::Instant>,
    /// Why the connection, or the attempt, ended, if it did.
    pub(super) ended: Option<CloseReason>,
}

impl PlayerReport {
    /// Returns whether all messages that must arrive did.
    pub(super) const fn has_received_all(&self) -> bool {
        self.chat.returned == self.chat.sent && self.map.complete > 0
    }

    /// Returns the number of messages that were altered, duplicated or out of order.
    pub(super) const fn wrong(&self) -> u64 {
        self.chat.wrong + self.states.wrong + self.map.wrong
    }

    /// Returns whether the player was connected and received everything complete and correct.
    pub(super) const fn is_perfect(&self) -> bool {
        let has_played = self.slot.is_some() && self.chat.sent > 0 && self.states.received > 0;
        has_played && self.wrong() == 0 && self.map.complete == 1 && self.has_received_all()
    }

    fn receive(&mut self, me: u64, channel: ChannelId, bytes: &[u8]) {
        match channel {
            CHAT => match decode::<ChatLine<'_>>(channel, bytes) {
                Ok(line) => self.chat.receive(me, &line),
                Err(_) => self.chat.wrong += 1,
            },
            _ => match decode::<StateUpdate>(channel, bytes) {
                Ok(state) => self.states.receive(&state),
                Err(_) => self.states.wrong += 1,
            },
        }
    }

    fn note_transfer(&mut self, event: transfer::TransferEvent, settings: &GameSettings) {
        match event {
            transfer::TransferEvent::Received { content, .. } => self.map.receive(content, settings.map.digest()),
            transfer::TransferEvent::Broken { .. } => self.map.wrong += 1,
            _ => {}
        }
    }
}

/// A running player.
pub(super) struct Player {
    id: ClientId,
    /// The number of the session, counted from 1.
    session: u32,
    client: Client,
    inbox: Inbox,
    clock: Clock,
    settings: GameSettings,
    tick: u64,
    next_tick: Instant,
    next_line: Instant,
    report: PlayerReport,
}

impl Player {
    /// Creates a player that is not connected.
    pub(super) fn new(id: ClientId, bind: SocketAddr, settings: &GameSettings) -> Result<Self, String> {
        let client = Sockets::bind(&[bind])
            .map(Client::with_sockets)
            .map_err(|error| format!("cannot open a socket: {error}"))?;
        let client = client.with_traffic(settings.traffic.clone()).map_err(|error| error.to_string())?;
        Ok(Self {
            id,
            session: 0,
            client,
            inbox: Inbox::default(),
            clock: Clock::start(),
            settings: settings.clone(),
            tick: 0,
            next_tick: Instant::default(),
            next_line: Instant::default(),
            report: PlayerReport::default(),
        })
    }

    /// Returns the client id.
    pub(super) const fn id(&self) -> ClientId {
        self.id
    }

    /// Returns whether the player had a session.
    pub(super) const fn has_played(&self) -> bool {
        self.session > 0
    }

    /// Starts to connect: a new session, with counters from 0.
    pub(super) fn connect(&mut self, token: ConnectToken) -> Result<(), String> {
        (self.session, self.report, self.tick) = (self.session + 1, PlayerReport::default(), 0);
        self.client.connect(token, self.clock.now()).map_err(|error| error.to_string())
    }

    /// Runs one turn: handles events, sends due messages if `sending`, then waits for at most `max_wait`.
    pub(super) fn turn(&mut self, sending: bool, max_wait: Duration) -> io::Result<()> {
        let now = self.clock.now();
        self.client.begin_turn(now);
        self.handle_events();
        let sending = sending && self.client.state().is_connected();
        if sending {
            self.send_due(now.monotonic);
        }
        self.client.end_turn();
        self.update_report();
        let due = self.next_tick.min(self.next_line).since(self.clock.monotonic());
        self.client.wait(if sending { due.min(max_wait) } else { max_wait })
    }

    fn handle_events(&mut self) {
        let now = self.clock.monotonic();
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { client_index, .. } => {
                    self.report.slot = Some(client_index.0);
                    self.report.connected_at = Some(std::time::Instant::now());
                    (self.next_tick, self.next_line) = (now, now);
                }
                Event::Message { channel, bytes, .. } => self.report.receive(self.id.0, channel, bytes),
                Event::Channel(ChannelEvent::Transfer { event, .. }) => {
                    self.report.note_transfer(event, &self.settings);
                }
                Event::Ended { reason } => self.report.ended = Some(reason),
                _ => {}
            }
        }
    }

    /// Sends the messages that are due. Ticks that were missed while the process was stopped are skipped.
    fn send_due(&mut self, now: Instant) {
        if self.next_tick <= now {
            self.next_tick = self.next_tick.after(Duration::from_secs(1) / self.settings.rate).max(now);
            // A refused update is not repeated: the next one is newer.
            let _ = self.client.send_typed(STATE, &StateUpdate::of_player(self.tick));
            self.tick += 1;
        }
        if self.next_line <= now {
            self.next_line = self.next_line.after(LINE_INTERVAL).max(now);
            let number = self.report.chat.sent;
            let text = ChatLine::text(self.id.0, number);
            // If the queue is full, the same line is sent later.
            if self.client.send_typed(CHAT, &ChatLine::new(self.id.0, self.session, number, &text)).is_ok() {
                self.report.chat.sent += 1;
            }
        }
    }

    fn update_report(&mut self) {
        self.report.state = self.client.state();
        self.report.dropped = self.client.discards().total();
        let transfers = self.client.connection().and_then(|connection| connection.channels.transfers(MAP));
        if let Some((_, progress)) = transfers.and_then(|transfers| transfers.receiving().next()) {
            self.report.map.bytes = progress.bytes;
        }
    }

    /// Disconnects from the server, or ends the attempt to connect.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        self.client.disconnect();
        self.turn(false, Duration::ZERO)
    }

    /// Returns the counters so far.
    pub(super) const fn report(&self) -> &PlayerReport {
        &self.report
    }
}
