//! One client of the demo, as a game has it: its turn, what it sends, and what it makes of what it hears.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use slipgate_client::block;
use slipgate_client::{
    ChannelEvent, ChannelId, Client, ClientState, Clock, ConnectToken, Event, Inbox, TimeoutPolicy, decode,
};
use slipgate_netcode::time::Instant;

use super::checks::{Chat, Map, States};
use super::game::{CHAT, Line, MAP, Rules, STATE, State};

/// A player says something this often.
const LINE_INTERVAL: Duration = Duration::from_millis(250);

/// What a client has seen.
#[derive(Clone, Default)]
pub(super) struct PlayerReport {
    pub(super) state: ClientState,
    /// Its slot, once it had one.
    pub(super) slot: Option<u32>,
    pub(super) chat: Chat,
    pub(super) states: States,
    pub(super) map: Map,
    /// Datagrams that were dropped.
    pub(super) dropped: u64,
    /// Why the connection ended, if it has.
    pub(super) ended: Option<String>,
}

impl PlayerReport {
    /// Whether nothing is under way any more that must arrive.
    pub(super) const fn has_all(&self) -> bool {
        self.chat.back == self.chat.said && self.map.whole > 0
    }

    /// Whether a slot was had, and everything came as it should.
    pub(super) const fn is_perfect(&self) -> bool {
        let Self { chat, states, map, .. } = self;
        let nothing_wrong = chat.wrong == 0 && states.wrong == 0 && map.wrong == 0;
        self.slot.is_some() && nothing_wrong && chat.said > 0 && states.received > 0 && map.whole == 1 && self.has_all()
    }

    fn hear(&mut self, me: u64, channel: ChannelId, bytes: &[u8]) {
        match channel {
            CHAT => match decode::<Line<'_>>(channel, bytes) {
                Ok(line) => self.chat.hear(me, &line),
                Err(_) => self.chat.wrong += 1,
            },
            _ => match decode::<State>(channel, bytes) {
                Ok(state) => self.states.hear(&state),
                Err(_) => self.states.wrong += 1,
            },
        }
    }

    fn note_block(&mut self, event: block::Event, rules: &Rules) {
        match event {
            block::Event::Received { content, .. } => self.map.receive(content, rules.map.digest()),
            block::Event::Broken { .. } => self.map.wrong += 1,
            _ => {}
        }
    }
}

/// A client under way.
pub(super) struct Player {
    id: u64,
    client: Client,
    inbox: Inbox,
    clock: Clock,
    rules: Rules,
    tick: u64,
    next_tick: Instant,
    next_line: Instant,
    report: PlayerReport,
}

impl Player {
    /// A client that begins to connect.
    pub(super) fn begin(id: u64, token: ConnectToken, bind: SocketAddr, rules: &Rules) -> Result<Self, String> {
        let client =
            Client::bind(&[bind], TimeoutPolicy::Clamped).map_err(|error| format!("cannot open a socket: {error}"))?;
        let mut client = client.carrying(rules.traffic.clone()).map_err(|error| error.to_string())?;
        let clock = Clock::start();
        client.connect(token, clock.now()).map_err(|error| error.to_string())?;
        Ok(Self {
            id,
            client,
            inbox: Inbox::default(),
            clock,
            rules: rules.clone(),
            tick: 0,
            next_tick: Instant::default(),
            next_line: Instant::default(),
            report: PlayerReport::default(),
        })
    }

    /// One turn: takes what came, says what is due if it may, and sleeps until more happens, for at most `patience`.
    pub(super) fn turn(&mut self, talking: bool, patience: Duration) -> io::Result<()> {
        let now = self.clock.now();
        self.client.begin_turn(now);
        self.listen();
        let talking = talking && self.client.state().is_connected();
        if talking {
            self.talk(now.monotonic);
        }
        self.client.end_turn();
        self.note();
        let due = self.next_tick.min(self.next_line).since(self.clock.monotonic());
        self.client.wait(if talking { due.min(patience) } else { patience })
    }

    fn listen(&mut self) {
        let now = self.clock.monotonic();
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { client_index, .. } => {
                    self.report.slot = Some(client_index);
                    (self.next_tick, self.next_line) = (now, now);
                }
                Event::Message { channel, bytes } => self.report.hear(self.id, channel, bytes),
                Event::Channel(ChannelEvent::Block { event, .. }) => self.report.note_block(event, &self.rules),
                Event::Ended { reason } => {
                    // A server that kicks somebody can say why.
                    let reason = self.client.farewell().map_or_else(|| reason.to_string(), str::to_owned);
                    self.report.ended = Some(reason);
                }
                _ => {}
            }
        }
    }

    /// Says what is due. Who was stopped for a while does not make up for it.
    fn talk(&mut self, now: Instant) {
        if self.next_tick <= now {
            self.next_tick = self.next_tick.after(Duration::from_secs(1) / self.rules.rate).max(now);
            // One that is not taken is not missed: the next one is newer.
            let _ = self.client.send_typed(STATE, &State::of_player(self.tick));
            self.tick += 1;
        }
        if self.next_line <= now {
            self.next_line = self.next_line.after(LINE_INTERVAL).max(now);
            let number = self.report.chat.said;
            let text = Line::text(self.id, number);
            // While the queue is full the player waits, and says the same line later.
            if self.client.send_typed(CHAT, &Line::new(self.id, number, &text)).is_ok() {
                self.report.chat.said += 1;
            }
        }
    }

    fn note(&mut self) {
        self.report.state = self.client.state();
        self.report.dropped = self.client.discards().total();
        if let Some((_, progress)) = self.client.receiving(MAP).next() {
            self.report.map.bytes = progress.bytes;
        }
    }

    /// Leaves the server.
    pub(super) fn leave(&mut self) -> io::Result<()> {
        self.client.disconnect();
        self.turn(false, Duration::ZERO)
    }

    /// What it has seen so far.
    pub(super) const fn report(&self) -> &PlayerReport {
        &self.report
    }
}
