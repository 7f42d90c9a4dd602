//! How a server starts: alone, with the used tokens of earlier starts, or as one of several shards.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use super::config::{ServerConfig, ServerConfigError};
use super::ended_addresses::EndedAddresses;
use super::handshake::HandshakeLog;
use super::log_opens::LogOpens;
use super::pending::PendingClients;
#[cfg(feature = "std")]
use super::registry::SharedRegistry;
use super::registry::{ClientRegistry, RegistryRef, ShardId};
use super::slots::Slots;
use super::turn_budgets::TurnBudgets;
use super::{NetcodeServer, NetcodeStats};
use crate::address::Address;
use crate::crypto::key::{KeyRing, Seed};
use crate::crypto::lane::Lane;
use crate::crypto::packet::PacketCipher;
use crate::discard::Discards;
use crate::time::Now;
use crate::token::challenge::Challenger;
use crate::token::history::{Journal, KeptTokens};

/// The storage of a token history that survives restarts: restored tokens, and a journal for new ones.
pub struct TokenStorage {
    /// The journal for used tokens.
    pub journal: Box<dyn Journal>,
    /// What the journal has of earlier starts.
    pub kept: KeptTokens,
}

/// The setup of one shard of a server.
#[cfg(feature = "std")]
pub struct ShardSetup {
    /// The shard's number.
    pub shard: ShardId,
    /// The registry that all shards share.
    pub registry: SharedRegistry,
    /// The journal for used tokens, if there is one.
    pub journal: Option<Box<dyn Journal>>,
}

impl NetcodeServer {
    /// Returns a server that starts now, with the entropy of this start, and without a history of earlier starts.
    ///
    /// # Errors
    /// Any error of [`ServerConfig::check`].
    pub fn new(config: ServerConfig, keys: KeyRing, seed: &Seed, now: Now) -> Result<Self, ServerConfigError> {
        let registry = ClientRegistry::new(&config, 1, seed, now, None)?;
        Self::with_registry(config, keys, seed, now, ShardId::default(), RegistryRef::Own(Box::new(registry)))
    }

    fn with_registry(
        config: ServerConfig,
        keys: KeyRing,
        seed: &Seed,
        now: Now,
        shard: ShardId,
        registry: RegistryRef,
    ) -> Result<Self, ServerConfigError> {
        config.check()?;
        let (names, flag) = registry.read(|registry| (registry.names().clone(), registry.has_queries(shard)));
        // Each shard of the registry has a flag, so a missing one means a shard id out of range.
        let flag = flag.ok_or(ServerConfigError::Shards)?;
        let slots = config.slots as usize;
        Ok(Self {
            names,
            shard,
            has_queries: registry.is_shared().then_some(flag),
            advertised: config.advertised.iter().copied().map(Address::from).collect(),
            registry,
            next_sweep: now.monotonic,
            backlog_until: now.monotonic,
            last_tick: now.monotonic,
            asleep_since: None,
            ended: EndedAddresses::new(config.slots, seed),
            cipher: PacketCipher::new(config.protocol_id),
            handshake: Lane::handshake(seed),
            challenger: Challenger::new(seed),
            session_seed: seed.derive_seed("sessions"),
            journal: None,
            recorded: 0,
            durable: 0,
            // Without a journal a client waits here only within one call.
            awaiting_durability: VecDeque::with_capacity(1),
            started: now,
            turn_budgets: TurnBudgets::new(config.budgets),
            pending: PendingClients::new(config.pending_clients, config.addresses_per_token, seed),
            slots: Slots::new(config.slots, shard, seed),
            // Admission stops at two events for each slot. A takeover (two events) and the end of each client may
            // follow.
            events: VecDeque::with_capacity(3 * slots + 2),
            loopbacks: VecDeque::new(),
            turn: 0,
            accepts_clients: true,
            misdirected: None,
            handshakes: HandshakeLog::new(),
            log_opens: LogOpens::new(seed),
            discards: Discards::default(),
            stats: NetcodeStats::default(),
            config,
            keys,
        })
    }

    /// Returns a server that restores the used tokens of earlier starts, and records those of this start.
    ///
    /// Set [`ServerConfig::token_cutoff`] to [`TokenCutoff::At`](super::TokenCutoff::At) the moment at which the
    /// journal began.
    ///
    /// # Errors
    /// - `JournalTooLarge` when the storage holds more tokens than the history.
    /// - Any error of [`ServerConfig::check`].
    pub fn with_storage(
        config: ServerConfig,
        keys: KeyRing,
        seed: &Seed,
        now: Now,
        storage: TokenStorage,
    ) -> Result<Self, ServerConfigError> {
        let registry = ClientRegistry::new(&config, 1, seed, now, Some(&storage.kept))?;
        let registry = RegistryRef::Own(Box::new(registry));
        let mut server = Self::with_registry(config, keys, seed, now, ShardId::default(), registry)?;
        server.set_journal(storage.journal);
        Ok(server)
    }

    /// Returns one shard of a server. All shards share a registry, a clock and a journal. Each has its own datagrams
    /// and its own entropy.
    ///
    /// A shard has as many slots as the whole server, but touches the memory only of used ones. Dropping a shard frees
    /// its client ids and indices.
    ///
    /// # Errors
    /// - `Shards` when the registry does not have this shard.
    /// - Any error of [`ServerConfig::check`].
    #[cfg(feature = "std")]
    pub fn shard(
        config: ServerConfig,
        keys: KeyRing,
        seed: &Seed,
        now: Now,
        setup: ShardSetup,
    ) -> Result<Self, ServerConfigError> {
        let ShardSetup { shard, registry, journal } = setup;
        let mut server = Self::with_registry(config, keys, seed, now, shard, RegistryRef::Shared(registry))?;
        if let Some(journal) = journal {
            server.set_journal(journal);
        }
        Ok(server)
    }

    fn set_journal(&mut self, journal: Box<dyn Journal>) {
        self.journal = Some(journal);
        // All clients may connect during one flush. More entries, by clients that reconnect meanwhile, allocate once.
        self.awaiting_durability.reserve(self.slots.count() as usize);
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use core::time::Duration;

    use super::*;
    use crate::crypto::key::Key;
    use crate::time::{Instant, UnixMillis};
    use crate::wire::USER_DATA_BYTES;

    #[test]
    fn handles_have_the_shard_the_slot_and_the_generation() {
        let now = Now { monotonic: Instant::from_start(Duration::from_secs(1)), unix: UnixMillis(1_000_000) };
        let advertised = core::net::SocketAddr::from(([192, 0, 2, 1], 40_000));
        let (config, seed) = (ServerConfig::new(1, 2, &[advertised]), Seed::from([2; 32]));
        let registry = RegistryRef::Own(Box::new(ClientRegistry::new(&config, 4, &seed, now, None).unwrap()));
        let keys = Key::from([1; 32]).into();
        let mut server = NetcodeServer::with_registry(config, keys, &seed, now, ShardId(3), registry).unwrap();

        let mut connect = |id: u64| server.connect_loopback(id, [0; USER_DATA_BYTES], now).unwrap();
        let (first, second) = (connect(1), connect(2));
        assert_eq!((first.shard(), server.shard_id()), (ShardId(3), ShardId(3)));
        server.disconnect(first);
        let third = server.connect_loopback(3, [0; USER_DATA_BYTES], now).unwrap();
        assert_eq!([first, second, third].map(|client| client.to_string()), ["3/0/0", "3/1/0", "3/0/1"]);
    }
}
