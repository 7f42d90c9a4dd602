//! The game on the demo's server: sends the map and state updates to each client, and relays chat within groups.

use std::time::Duration;

use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::Instant;
use slipgate_server::connection::{Budget, PathStats};
use slipgate_server::typed::Bincode;
use slipgate_server::{ChannelId, ClientHandle, SendOptions, Server, decode};

use super::game::{CHAT, CHAT_GROUP_SIZE, ChatLine, GameSettings, MAP, STATE, StateUpdate, entities_that_fit};
use super::received::StateStats;

/// The reasons for which the demo kicks players, in turn.
const KICK_TEXTS: [&str; 3] =
    ["Your map is from last week.", "Please be kind in the chat.", "No flying in this game, please."];

/// The server's view of one client.
#[derive(Clone, Default)]
pub(super) struct ServerSideReport {
    pub(super) client_id: ClientId,
    /// Measurements of its path.
    pub(super) path: Option<PathStats>,
    /// The suggested rate and size of updates to it.
    pub(super) budget: Option<Budget>,
    /// State updates sent to it.
    pub(super) states_sent: u64,
    /// State updates received from it.
    pub(super) states: StateStats,
    /// Chat lines that arrived once, in order and unchanged.
    pub(super) lines: u64,
    /// Chat lines that did not.
    pub(super) wrong_lines: u64,
}

impl ServerSideReport {
    pub(super) const fn wrong(&self) -> u64 {
        self.wrong_lines + self.states.wrong
    }
}

/// The game's record of one client.
struct GameClient {
    client: ClientHandle,
    /// When its next state is due.
    next_state: Instant,
    report: ServerSideReport,
}

/// The game. A client's record is kept after its disconnect until another client gets the slot.
pub(super) struct ServerGame {
    settings: GameSettings,
    clients: Vec<Option<GameClient>>,
    tick: u64,
    kicks: usize,
    past_wrong: u64,
}

impl ServerGame {
    pub(super) fn new(settings: GameSettings, slots: u32) -> Self {
        Self { settings, clients: (0..slots).map(|_| None).collect(), tick: 0, kicks: 0, past_wrong: 0 }
    }

    /// Adds a client and starts to send it the map.
    pub(super) fn on_connected(
        &mut self,
        server: &mut Server,
        client: ClientHandle,
        client_id: ClientId,
        now: Instant,
    ) {
        let report = ServerSideReport { client_id, ..ServerSideReport::default() };
        // A client that connects again leaves no record in its former slot.
        let is_former =
            |entry: &mut GameClient| entry.report.client_id == client_id || entry.client.slot() == client.slot();
        for former in self.clients.iter_mut().filter_map(|entry| entry.take_if(is_former)) {
            self.past_wrong += former.report.wrong();
        }
        if let Some(entry) = self.clients.get_mut(client.slot().0 as usize) {
            *entry = Some(GameClient { client, next_state: now, report });
        }
        // Fails if the client disconnected within the same turn; then it needs no map.
        if let Some(mut client) = server.client(client) {
            let _ = client.send_transfer(MAP, self.settings.map.clone(), 0);
        }
    }

    /// Handles a message of a client.
    pub(super) fn on_message(&mut self, server: &mut Server, client: ClientHandle, channel: ChannelId, bytes: &[u8]) {
        let Some(entry) = self.clients.get_mut(client.slot().0 as usize).and_then(Option::as_mut) else { return };
        let report = &mut entry.report;
        if channel == STATE {
            match decode::<StateUpdate>(channel, bytes) {
                Ok(state) => report.states.receive(&state),
                Err(_) => report.states.wrong += 1,
            }
            return;
        }
        let line = decode::<ChatLine<'_>>(channel, bytes);
        let line = line.ok().filter(|line| line.author == report.client_id.0 && line.number == report.lines);
        if line.is_some_and(|line| line.is_correct()) {
            report.lines += 1;
            self.relay(server, client, bytes);
        } else {
            report.wrong_lines += 1;
        }
    }

    /// Sends a chat line to all members of its author's group, including the author.
    fn relay(&self, server: &mut Server, author: ClientHandle, line: &[u8]) {
        let group = author.slot().0 / CHAT_GROUP_SIZE;
        let clients = self.clients.iter().flatten().map(|entry| entry.client);
        for client in clients.filter(|client| client.slot().0 / CHAT_GROUP_SIZE == group) {
            // A client that cannot take a line would miss it, which a reliable chat must not hide. Clients that have
            // already disconnected are skipped.
            let Some(mut client) = server.client(client) else { continue };
            if client.send_message(CHAT, line).is_err() {
                let _ = client.kick("Your connection is too slow for this game.");
            }
        }
    }

    /// Advances the game by one tick and sends its state to each client for which an update is due.
    pub(super) fn advance(&mut self, server: &mut Server, now: Instant) {
        for entry in self.clients.iter_mut().flatten().filter(|entry| entry.next_state <= now) {
            entry.send_state(server, self.tick, now);
        }
        self.tick += 1;
    }

    /// Kicks the next client, in the order of slots, with the next reason.
    pub(super) fn kick_one(&mut self, server: &mut Server) {
        let clients: Vec<ClientHandle> = server.clients().collect();
        let next = self.kicks % clients.len().max(1);
        let text = KICK_TEXTS.get(self.kicks % KICK_TEXTS.len()).copied().unwrap_or_default();
        self.kicks += 1;
        if let Some(client) = clients.get(next).and_then(|client| server.client(*client)) {
            let _ = client.kick(text);
        }
    }

    /// Returns the number of wrong messages from former clients of slots in use.
    pub(super) const fn past_wrong(&self) -> u64 {
        self.past_wrong
    }

    pub(super) fn reports(&mut self, server: &mut Server) -> Vec<ServerSideReport> {
        self.clients.iter_mut().flatten().map(|entry| entry.report(server)).collect()
    }
}

impl GameClient {
    fn send_state(&mut self, server: &mut Server, tick: u64, now: Instant) {
        // The budget is read before the update is composed: on a narrow path the client gets updates less often, with
        // fewer entities. An update beyond the budget would wait in the queue and be outdated when it is sent.
        let Some(mut client) = server.client(self.client) else { return };
        let Some(budget) = client.budget() else { return };
        let interval = Duration::from_secs_f64(1.0 / budget.suggestion.packets_per_second.max(1.0));
        self.next_state = self.next_state.after(interval).max(now);
        let state = StateUpdate::new(tick, entities_that_fit(budget.suggestion.payload_bytes));
        // The key makes this update replace one that is still queued.
        let _ = client.send_typed_with(&Bincode::default(), STATE, &state, SendOptions::default().key(0));
    }

    /// Returns the current values, or the last known ones after a disconnect.
    fn report(&mut self, server: &mut Server) -> ServerSideReport {
        if let Some(client) = server.client(self.client) {
            let stats = client.connection().and_then(|connection| connection.channels.stats(STATE)).unwrap_or_default();
            self.report.states_sent = stats.sent - stats.superseded;
            self.report.path = client.path();
            self.report.budget = client.budget();
        }
        self.report.clone()
    }
}
