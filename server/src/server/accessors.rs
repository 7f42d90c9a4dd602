//! The state of a server: its clients, settings and counters.

use slipgate_netcode::discard::Discards;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::{ClientHandle, ServerConfig, ShardId};
use slipgate_session::connection::Traffic;
use slipgate_udp::Sockets;

use super::{ClientRef, Server};
use crate::ServerTotals;
use crate::new_clients::TakeNewClients;

impl Server {
    /// Returns everything that concerns one client while it has a slot, `None` afterwards.
    ///
    /// A client that was kicked or is leaving keeps its slot until its close message is acknowledged. Its id, address,
    /// user data and path can be read until then, [`ClientRef::disconnect`] frees its slot at once, and sends return
    /// `Gone`. A client in the same program is returned as long as payloads wait for it, so that
    /// [`ClientRef::loopback_receive`] can take the last ones after the end.
    ///
    /// # Examples
    /// ```no_run
    /// # use slipgate_server::{ChannelId, ClientHandle, Server};
    /// # const CHAT: ChannelId = ChannelId(0);
    /// # fn on_chat(server: &mut Server, handle: ClientHandle) {
    /// let Some(mut client) = server.client(handle) else { return };
    /// println!("{} at {:?}", client.client_id(), client.address());
    /// if client.send_message(CHAT, b"welcome").is_err() {
    ///     let _ = client.kick("You are too far behind. Please join again.");
    /// }
    /// # }
    /// ```
    pub fn client(&mut self, client: ClientHandle) -> Option<ClientRef<'_>> {
        let netcode = &self.core.netcode;
        let is_known = netcode.client(client).is_some() || netcode.has_loopback_payloads(client);
        is_known.then(|| ClientRef::new(self, client))
    }

    /// Calls `visit` for every client, in the order of the slots. It allocates nothing.
    pub fn for_each_client(&mut self, mut visit: impl FnMut(ClientRef<'_>)) {
        let mut next = self.core.next_client(None);
        while let Some(client) = next {
            visit(ClientRef::new(self, client));
            next = self.core.next_client(Some(client));
        }
    }

    /// Returns the handle of a client id, while it is connected to this shard.
    #[must_use]
    pub fn find(&self, client_id: impl Into<ClientId>) -> Option<ClientHandle> {
        self.core.netcode.find(client_id).filter(|client| self.core.is_connected(*client))
    }

    /// Returns the handles of this shard's clients in the order of their slots, from `Connected` to `Disconnected`.
    pub fn clients(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        self.core.clients()
    }

    /// Returns the number of this shard's used slots, without those of clients that wait for the history file. A client
    /// that was kicked keeps its slot until it has acknowledged the reason, so the number may be larger than that of
    /// [`clients`](Self::clients).
    #[must_use]
    pub fn connected_count(&self) -> u32 {
        self.core.netcode.connected_count()
    }

    /// Returns what the payloads of clients carry.
    #[must_use]
    pub(crate) const fn traffic(&self) -> &Traffic {
        self.core.traffic()
    }

    /// Returns which shard this is; the first one where there is only one.
    #[must_use]
    pub(crate) const fn shard_id(&self) -> ShardId {
        self.core.netcode.shard_id()
    }

    /// Returns the settings.
    #[must_use]
    pub const fn config(&self) -> &ServerConfig {
        self.core.netcode.config()
    }

    /// Returns the sockets: addresses, buffers, DSCP marks and counters.
    #[must_use]
    pub const fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Returns the number of dropped datagrams by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        self.core.netcode.discards()
    }

    /// Returns all counters. It makes a system call where the system counts dropped datagrams.
    #[must_use]
    pub fn totals(&self) -> ServerTotals {
        let (tables, turns) = (self.core.netcode.table_usage(), self.turn_counters());
        ServerTotals {
            connected: self.connected_count(),
            pending_clients: tables.pending,
            used_tokens: tables.used_tokens,
            is_history_unavailable: tables.is_journal_busy,
            message_memory_left: self.core.memory.messages.left(),
            transfer_memory_left: self.core.memory.transfers.left(),
            stats: *self.core.netcode.stats(),
            disconnect_reasons: self.reporter.disconnect_reasons(),
            turns_cut_short: turns.turns_cut_short,
            stalls: self.reporter.stalls(),
            max_events_per_turn: self.read_budget.max_events_per_turn(),
            packets_over_budget: turns.packets_over_budget,
            packets_not_taken: turns.packets_not_taken,
            discards: *self.discards(),
            sockets: self.sockets.stats(),
        }
    }

    /// Logs the counters since the start, for the end of a program, and before them the sums of what has no line yet.
    pub fn log_totals(&mut self) {
        let turns = self.turn_counters();
        self.reporter.log_totals(&self.core.netcode, &self.sockets, turns);
    }
}

impl TakeNewClients for Server {
    fn take_new_clients(&mut self) -> impl Iterator<Item = (ClientHandle, ClientId)> {
        self.new_clients.take()
    }
}
