//! Requests as bytes, for the fuzz target `issuer_requests`. The time of streams and time limits is virtual; tokens and
//! registrations have that of the system.

use core::net::SocketAddr;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_netcode::crypto::key::Key;
use tokio::runtime::Runtime;

use crate::api_key::ApiKey;
use crate::callers::{ApiKeys, Caller, Permission, Scopes};
use crate::http::exchange::Exchanges;
use crate::http::{Games, TokenService};
use crate::registry::{Heartbeat, MemoryRegistry, Registration, Registry, RegistryName};
use crate::{Issuer, Limits};

/// The protocol ids of the two games.
pub const PROTOCOL_IDS: [u64; 2] = [7, 8];
/// The address of the server that is registered at the start of each exchange.
pub const REGISTERED: &str = "192.0.2.9:40009";
/// The addresses that tokens and registrations may name.
pub const ALLOWED: [&str; 3] = ["192.0.2.1:40000", "[2001:db8::1]:40001", REGISTERED];
/// The group of this server.
pub const GROUP: &str = "ranked";

/// A token service without a socket: two games, a registry in memory with one server, and three keys: one without a
/// name that may do everything, `lobby` that requests tokens for [`GROUP`], and `server` that registers in it.
pub struct IssuerRequests {
    exchanges: Exchanges,
    registry: Arc<MemoryRegistry>,
    keys: [String; 3],
    runtime: Runtime,
}

impl IssuerRequests {
    /// Creates a service.
    ///
    /// # Panics
    /// If the system has no event queue.
    #[must_use]
    pub fn new() -> Self {
        let mut entropy = StdRng::from_seed([3; 32]);
        let secrets: [ApiKey; 3] = core::array::from_fn(|_| ApiKey::random(&mut entropy));
        let mut named = |id, secret: &ApiKey, permission| {
            let scopes = Scopes { permissions: vec![permission], groups: Some(vec![name(GROUP)]), ..Scopes::default() };
            Caller::new(&name(id), vec![secret.digest(&mut entropy)], scopes, None).expect("one digest")
        };
        let callers =
            vec![named("lobby", &secrets[1], Permission::Mint), named("server", &secrets[2], Permission::Register)];
        let api_keys = ApiKeys::with_named(vec![secrets[0].digest(&mut entropy)], callers).expect("few keys");
        let registry = Arc::new(MemoryRegistry::default());
        let service = TokenService::new(games(), api_keys).with_registry(Arc::clone(&registry) as Arc<dyn Registry>);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        let exposed = |prefix: &str, secret: &ApiKey| format!("{prefix}{}", secret.expose());
        let keys = [exposed("", &secrets[0]), exposed("lobby.", &secrets[1]), exposed("server.", &secrets[2])];
        Self { exchanges: Exchanges::new(service), registry, keys, runtime }
    }

    /// Returns the keys that requests may present: that without a name, `lobby` and `server`.
    #[must_use]
    pub const fn keys(&self) -> &[String; 3] {
        &self.keys
    }

    /// Returns the key that seals the tokens of both games.
    #[must_use]
    pub fn private_key() -> Key {
        Key::from([0x5a; 32])
    }

    /// Sends the bytes of one connection, with only the first server in the registry. Returns the bytes of the
    /// responses, and the number of servers in the registry after them.
    pub fn exchange(&mut self, request: &[u8]) -> (Vec<u8>, usize) {
        let (registry, exchanges) = (&self.registry, &self.exchanges);
        self.runtime.block_on(async {
            registry.clear();
            let _ = registry.register(heartbeat(), &Scopes::default()).await;
            let response = exchanges.exchange(request).await;
            (response, registry.servers().await.unwrap_or_default().len())
        })
    }
}

impl Default for IssuerRequests {
    fn default() -> Self {
        Self::new()
    }
}

fn name(text: &str) -> RegistryName {
    text.parse().expect("a name")
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn games() -> Games {
    let servers = ALLOWED.map(address);
    let issuers = PROTOCOL_IDS.map(|id| {
        Issuer::new(id, IssuerRequests::private_key().into(), &servers, Limits::default()).expect("an allow-list")
    });
    Games::new(issuers.into()).expect("two games")
}

fn heartbeat() -> Heartbeat {
    let registration = Registration {
        id: name("first"),
        protocol_id: PROTOCOL_IDS[0],
        addresses: vec![address(REGISTERED)],
        group: name(GROUP),
        region: None,
        slots: 8,
        free_slots: 8,
        is_draining: false,
        build: None,
    };
    Heartbeat { registration, admitted: Vec::new(), running: None, instance: None }
}
