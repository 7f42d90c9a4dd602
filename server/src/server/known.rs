//! What is known of a server, of its clients and of their paths.

use slipgate_netcode::discard::Discards;
use slipgate_netcode::server::{ClientHandle, ClientInfo, Config, ShardId, Stats};
use slipgate_session::channel::block::{BlockId, Blocks, Progress};
use slipgate_session::channel::{ChannelId, Free};
use slipgate_session::session::{Budget, Connection, End, PathStats, Traffic};
use slipgate_udp::{SocketStats, Sockets};

use super::Server;

impl Server {
    /// What the payloads of clients carry.
    #[must_use]
    pub const fn traffic(&self) -> &Traffic {
        self.core.traffic()
    }

    /// Which shard of a server this is: the first one, where there is but one.
    #[must_use]
    pub const fn shard_id(&self) -> ShardId {
        self.core.netcode().shard_id()
    }

    /// What may be known of a client, while it is connected: its id, address and user data.
    #[must_use]
    pub fn client(&self, client: ClientHandle) -> Option<ClientInfo<'_>> {
        self.core.netcode().client(client)
    }

    /// The handle of a client id, while it is connected to this shard.
    #[must_use]
    pub fn find(&self, client_id: u64) -> Option<ClientHandle> {
        let netcode = self.core.netcode();
        netcode.find(client_id).filter(|client| netcode.is_announced(*client))
    }

    /// Every client of this shard of whose end no event has told, in the order of the slots. One that is kicked keeps its
    /// slot until it has heard why, and is not among them.
    pub fn clients(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        self.core.clients()
    }

    /// How many clients have a slot of this shard. Those who were kicked, or whom a stop concerns, have theirs until they have
    /// heard why, so they are counted here, and are not among [`clients`](Self::clients) any more.
    #[must_use]
    pub fn connected(&self) -> u32 {
        self.core.netcode().connected()
    }

    /// The addresses that are bound, with the ports that the system chose.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<std::net::SocketAddr> {
        self.sockets.local_addresses()
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        self.core.netcode().config()
    }

    /// How many datagrams were dropped, by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        self.core.netcode().discards()
    }

    /// What the protocol has counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        self.core.netcode().stats()
    }

    /// What the sockets have counted. Where the system counts as well, this asks it.
    #[must_use]
    pub fn socket_stats(&self) -> SocketStats {
        self.sockets.stats()
    }

    /// The sockets: their addresses, buffers and marks.
    #[must_use]
    pub const fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// What a client's channel can still take; nothing where there is none.
    #[must_use]
    pub fn free(&self, client: ClientHandle, channel: ChannelId) -> Free {
        self.connection(client).map_or_else(Free::default, |connection| connection.channels().free(channel))
    }

    /// How far the blocks are that are sent to a client on a channel, those that wait included. None where there are none.
    pub fn sending(&self, client: ClientHandle, channel: ChannelId) -> impl Iterator<Item = (BlockId, Progress)> + '_ {
        let blocks = self.connection(client).and_then(|connection| connection.channels().blocks(channel));
        blocks.into_iter().flat_map(Blocks::sending)
    }

    /// How far a client's blocks are on a channel; what they are, [`Blocks::label`] tells. None where there are none.
    pub fn receiving(
        &self,
        client: ClientHandle,
        channel: ChannelId,
    ) -> impl Iterator<Item = (BlockId, Progress)> + '_ {
        let blocks = self.connection(client).and_then(|connection| connection.channels().blocks(channel));
        blocks.into_iter().flat_map(Blocks::receiving)
    }

    /// What may leave for a client now, and how a game had best send it: ask before composing a tick. `None` where
    /// [`Traffic`] is `Payloads`, and for one that is leaving.
    #[must_use]
    pub fn budget(&self, client: ClientHandle) -> Option<Budget> {
        self.core.budget(client, self.now)
    }

    /// How a client's path is: round-trip time, jitter, loss, bandwidths. `None` where [`Traffic`] is `Payloads`.
    ///
    /// What arrives while a loop sleeps without [`wait`](Self::wait) is read when it wakes: it adds up to a turn of its own to
    /// the round trip that it measures, and to that of the other side.
    #[must_use]
    pub fn path(&self, client: ClientHandle) -> Option<PathStats> {
        self.core.path(client, self.now)
    }

    /// A client's connection, where [`Traffic`] is `Channels`.
    #[must_use]
    pub fn connection(&self, client: ClientHandle) -> Option<&Connection> {
        self.core.connection(client)
    }

    /// What was said at the end of a client's connection, by either side, where [`Traffic`] is `Channels`: code and text are
    /// in it. For the time of its event; `None` where nothing was said.
    #[must_use]
    pub fn end(&self, client: ClientHandle) -> Option<&End> {
        self.core.end(client)
    }
}
