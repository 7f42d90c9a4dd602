//! The game that the demo's server runs: who sits where, what each is sent, and what each has said.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_server::typed::Bincode;
use slipgate_server::{Budget, ChannelId, ClientHandle, PathStats, SendOptions, Server, decode};

use super::checks::States;
use super::game::{CHAT, Line, MAP, Rules, STATE, State, TABLE, detail};

/// What the server knows of one client.
#[derive(Clone, Default)]
pub(super) struct SeatReport {
    pub(super) client_id: u64,
    /// How its path is.
    pub(super) path: Option<PathStats>,
    /// What it may be sent.
    pub(super) budget: Option<Budget>,
    /// States that left for it.
    pub(super) states_sent: u64,
    /// What it has said of itself.
    pub(super) states: States,
    /// Its lines that came once, in order and as they were said.
    pub(super) lines: u64,
    /// Lines that did not.
    pub(super) wrong_lines: u64,
}

impl SeatReport {
    pub(super) const fn is_perfect(&self) -> bool {
        self.wrong_lines == 0 && self.states.wrong == 0
    }
}

/// One client's place in the game.
struct Seat {
    client: ClientHandle,
    /// When its next state is due.
    next_state: Instant,
    report: SeatReport,
}

/// All places, by slot. Who has left stays in the books until somebody else comes.
pub(super) struct Seats {
    rules: Rules,
    seats: Vec<Option<Seat>>,
    tick: u64,
}

impl Seats {
    pub(super) fn new(rules: Rules, slots: u32) -> Self {
        Self { rules, seats: (0..slots).map(|_| None).collect(), tick: 0 }
    }

    /// Somebody has come: the map begins to travel.
    pub(super) fn welcome(&mut self, server: &mut Server, client: ClientHandle, client_id: u64, now: Instant) {
        let report = SeatReport { client_id, ..SeatReport::default() };
        if let Some(seat) = self.seats.get_mut(client.slot() as usize) {
            *seat = Some(Seat { client, next_state: now, report });
        }
        // One that has gone again in this turn needs no map.
        let _ = server.send_block(client, MAP, self.rules.map.clone(), 0);
    }

    /// A client has said something.
    pub(super) fn hear(&mut self, server: &mut Server, client: ClientHandle, channel: ChannelId, bytes: &[u8]) {
        let Some(seat) = self.seats.get_mut(client.slot() as usize).and_then(Option::as_mut) else { return };
        let report = &mut seat.report;
        if channel == STATE {
            match decode::<State>(client, channel, bytes) {
                Ok(state) => report.states.hear(&state),
                Err(_) => report.states.wrong += 1,
            }
            return;
        }
        let line = decode::<Line<'_>>(client, channel, bytes);
        let line = line.ok().filter(|line| line.author == report.client_id && line.number == report.lines);
        if line.is_some_and(|line| line.is_right()) {
            report.lines += 1;
            self.pass_on(server, client, bytes);
        } else {
            report.wrong_lines += 1;
        }
    }

    /// Hands a line to everyone at the table, its author among them. It is not copied before it stands in their queues.
    fn pass_on(&self, server: &mut Server, author: ClientHandle, line: &[u8]) {
        let table = author.slot() / TABLE;
        let seats = self.seats.iter().flatten().map(|seat| seat.client);
        for client in seats.filter(|client| client.slot() / TABLE == table) {
            // One that has left hears nothing; one that takes nothing for so long has to go, or would miss a line.
            let is_full = server.send_message(client, CHAT, line).is_err() && server.client(client).is_some();
            if is_full {
                server.kick(client, "The game's chat could not reach you any more.");
            }
        }
    }

    /// The game advances: its state goes to everyone for whom it is due.
    pub(super) fn advance(&mut self, server: &mut Server, now: Instant) {
        for seat in self.seats.iter_mut().flatten().filter(|seat| seat.next_state <= now) {
            seat.send_state(server, self.tick, now);
        }
        self.tick += 1;
    }

    pub(super) fn reports(&mut self, server: &Server) -> Vec<SeatReport> {
        self.seats.iter_mut().flatten().map(|seat| seat.report(server)).collect()
    }
}

impl Seat {
    fn send_state(&mut self, server: &mut Server, tick: u64, now: Instant) {
        // Asked before anything is composed: on a narrow path the client gets states less often, and with fewer things in
        // them. What does not fit would only wait in a queue, and be old when it leaves.
        let Some(budget) = server.budget(self.client) else { return };
        let interval = Duration::from_secs_f64(1.0 / budget.suggestion.packets_per_second.max(1.0));
        self.next_state = self.next_state.after(interval).max(now);
        let state = State::new(tick, detail(budget.suggestion.payload_bytes));
        // A state that still waits is replaced by this one.
        let options = SendOptions { key: Some(0), ..SendOptions::default() };
        let _ = server.send_typed_with(&Bincode::default(), self.client, STATE, &state, options);
    }

    /// What is known now; of one who has left, what was known last.
    fn report(&mut self, server: &Server) -> SeatReport {
        if let Some(connection) = server.connection(self.client) {
            let stats = connection.channels().stats(STATE).unwrap_or_default();
            self.report.states_sent = stats.sent - stats.superseded;
            self.report.path = server.path(self.client);
            self.report.budget = server.budget(self.client);
        }
        self.report.clone()
    }
}
