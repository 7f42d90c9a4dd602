//! The merged and checked settings: flag, else environment variable, else configuration file, else default.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ArgMatches;
use slipgate_cli::keys::KeySource;
use slipgate_cli::log::LogSettings;
use slipgate_cli::values::ProtocolId;
use slipgate_cli::{Failure, first_non_empty};
use slipgate_netcode::time::UnixSeconds;
use slipgate_token_issuer::callers::ApiKeys;
use slipgate_token_issuer::http::{Games, HttpLimits};
use slipgate_token_issuer::registry::RegistryName;
use slipgate_token_issuer::{Issuer, KeyRing, Limits, wall_clock};

use crate::api_keys;
use crate::config_file::ConfigFile;
use crate::flags::Flags;
use crate::values::{AllowedServer, RegistrySetting};

/// Loopback: other machines connect through a proxy that terminates TLS.
const DEFAULT_BIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// The complete settings of the program.
pub(crate) struct Settings {
    pub(crate) fixed: RestartSettings,
    pub(crate) games: Games,
    pub(crate) api_keys: ApiKeys,
    pub(crate) keys: KeySource,
    /// The number of private keys of the first game.
    pub(crate) private_keys: usize,
    /// When another key seals.
    pub(crate) next_key: Option<UnixSeconds>,
    /// The files that a reload reads.
    pub(crate) files: Vec<PathBuf>,
}

/// The settings that only a restart changes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RestartSettings {
    pub(crate) bind: SocketAddr,
    pub(crate) http: HttpLimits,
    pub(crate) log: LogSettings,
    pub(crate) registry: RegistrySetting,
    pub(crate) registry_name: RegistryName,
    pub(crate) registry_password_file: Option<PathBuf>,
    pub(crate) hosts: Vec<String>,
}

/// The command line and the environment, from which settings can be gathered again.
pub(crate) struct Sources {
    pub(crate) flags: Flags,
    pub(crate) matches: ArgMatches,
}

impl Sources {
    /// Reads the files, merges them with flags and environment (filled in by clap), and checks the result.
    pub(crate) fn gather(&self) -> Result<Settings, Failure> {
        Settings::gather(self.flags.clone(), &self.matches)
    }
}

impl Settings {
    fn gather(flags: Flags, matches: &ArgMatches) -> Result<Self, Failure> {
        let file = flags.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        let bind = flags.bind.or(file.bind).unwrap_or(DEFAULT_BIND);
        refuse_open_http(bind, flags.insecure_http.or(file.insecure_http).unwrap_or(false))?;
        let protocol_id = flags.protocol_id.or(file.protocol_id).ok_or_else(|| {
            Failure::usage("no protocol id is configured: give --protocol-id, equal to that of the game's servers")
        })?;
        let limits = limits(&flags, &file)?;
        let http = http_limits(&flags, &file)?;
        let digests = first_non_empty(flags.api_key_digests, file.api_key_digests.into());
        let api_keys = api_keys::read(&digests, file.api_keys)?;
        let keys = KeySource::choose(matches, flags.key_file, file.key_file)?;
        let now = UnixSeconds::from(wall_clock());
        let schedule = keys.read_schedule()?;
        let (ring, mut next_key) = (schedule.at(now), schedule.next_change(now));
        let private_keys = ring.len();
        let mut files: Vec<PathBuf> = keys.file().into_iter().chain(flags.config.as_deref()).map(Into::into).collect();
        let log = LogSettings {
            format: flags.log.or(file.log).unwrap_or_default(),
            level: flags.log_level.or(file.log_level),
        };
        let registry = flags.registry.or(file.registry);
        let (servers, has_registry) = (first_non_empty(flags.servers, file.servers), registry.is_some());
        let mut issuers = vec![issuer(protocol_id, ring, servers, &limits, has_registry)?];
        for game in file.games {
            files.push(game.key_file.clone());
            let schedule = KeySource::File(game.key_file).read_schedule()?;
            next_key = next_key.into_iter().chain(schedule.next_change(now)).min();
            issuers.push(issuer(game.protocol_id, schedule.at(now), game.servers, &limits, has_registry)?);
        }
        let games = Games::new(issuers).map_err(|error| Failure::usage(error.to_string()))?;
        let name = flags.registry_name.or(file.registry_name).unwrap_or_else(|| "default".to_owned());
        let fixed = RestartSettings {
            bind,
            http,
            log,
            registry: registry.unwrap_or(RegistrySetting::Memory),
            registry_name: name.parse().map_err(|error| Failure::usage(format!("--registry-name: {error}")))?,
            registry_password_file: flags.registry_password_file.or(file.registry_password_file),
            hosts: first_non_empty(flags.hosts, file.hosts),
        };
        Ok(Self { fixed, games, api_keys, keys, private_keys, next_key, files })
    }

    /// Returns the number of addresses and networks in the allow-lists of all games.
    pub(crate) fn server_count(&self) -> usize {
        self.games.iter().map(Issuer::server_count).sum()
    }
}

/// Creates the issuer of one game. Without servers its tokens lead to registered ones only.
fn issuer(
    protocol_id: ProtocolId,
    ring: KeyRing,
    servers: Vec<AllowedServer>,
    limits: &Limits,
    has_registry: bool,
) -> Result<Issuer, Failure> {
    let (mut addresses, mut networks) = (Vec::new(), Vec::new());
    for server in servers {
        match server {
            AllowedServer::Address(address) => addresses.push(address),
            AllowedServer::Network(network) => networks.push(network),
        }
    }
    let wrong = |error| Failure::usage(format!("{error} (flag --server, or `servers` in the configuration file)"));
    if addresses.is_empty() {
        if networks.is_empty() && !has_registry {
            let message = "no server is configured: give --server, or --registry if game servers register";
            return Err(Failure::usage(message));
        }
        return Ok(Issuer::without_servers(protocol_id.0, ring, limits.clone()).with_networks(networks));
    }
    let issuer = Issuer::new(protocol_id.0, ring, &addresses, limits.clone()).map_err(wrong)?;
    Ok(issuer.with_networks(networks))
}

fn refuse_open_http(bind: SocketAddr, insecure_http: bool) -> Result<(), Failure> {
    if insecure_http || bind.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let message = format!(
        "{bind} is reachable from other machines, and plain HTTP would expose session keys: bind to 127.0.0.1 behind a \
         proxy that terminates TLS, or give --insecure-http if the network itself is trusted"
    );
    Err(Failure::usage(message))
}

/// Reads the limits. A default that is not given is lowered to the configured maximum if it exceeds it.
fn limits(flags: &Flags, file: &ConfigFile) -> Result<Limits, Failure> {
    let range = |max: Option<u32>, default: Option<u32>, (standard_max, standard): (u32, u32)| {
        let max = max.unwrap_or(standard_max);
        (1..=max, default.unwrap_or(standard.min(max)))
    };
    let (lifetime, default_lifetime) =
        range(flags.max_lifetime.or(file.max_lifetime), flags.default_lifetime.or(file.default_lifetime), (45, 30));
    let (timeout, default_timeout) =
        range(flags.max_timeout.or(file.max_timeout), flags.default_timeout.or(file.default_timeout), (60, 5));
    Limits::default()
        .with_lifetime(lifetime, default_lifetime)
        .and_then(|limits| limits.with_timeout(timeout, default_timeout))
        .map_err(|error| Failure::usage(error.to_string()))
}

fn http_limits(flags: &Flags, file: &ConfigFile) -> Result<HttpLimits, Failure> {
    let mut limits = HttpLimits::default();
    let at_least_1 = |name: &str| Failure::usage(format!("{name} must be at least 1"));
    if let Some(connections) = flags.max_connections.or(file.max_connections) {
        limits.connections = connections;
    }
    if let Some(connections) = flags.max_connections_per_address.or(file.max_connections_per_address) {
        limits.connections_per_address = connections;
    }
    if let Some(tokens) = flags.max_tokens_per_minute.or(file.max_tokens_per_minute) {
        limits.tokens_per_minute = Some(tokens.try_into().map_err(|_| at_least_1("--max-tokens-per-minute"))?);
    }
    match (limits.connections, limits.connections_per_address) {
        (0, _) => Err(at_least_1("--max-connections")),
        (_, 0) => Err(at_least_1("--max-connections-per-address")),
        _ => Ok(limits),
    }
}
