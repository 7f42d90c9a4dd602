//! The merged and checked settings: flag, else environment variable, else configuration file, else default.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::ArgMatches;
use slipgate_cli::keys::KeySource;
use slipgate_cli::log::LogSettings;
use slipgate_cli::values::ProtocolId;
use slipgate_cli::{Failure, first_non_empty};
use slipgate_netcode::time::UnixSeconds;
use slipgate_token_issuer::callers::ApiKeys;
use slipgate_token_issuer::http::{Games, HttpLimits, TlsIdentity};
use slipgate_token_issuer::players::{PlayerKeySource, PlayerSettings};
use slipgate_token_issuer::registry::RegistryName;
use slipgate_token_issuer::{Issuer, KeyRing, Limits, wall_clock};

use crate::config_file::ConfigFile;
use crate::flags::Flags;
use crate::values::{AllowedServer, BindAddress, RegistrySetting, SocketMode};
use crate::{api_keys, players};

/// Loopback: other machines connect through a proxy that terminates TLS.
const DEFAULT_BIND: BindAddress = BindAddress::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080));

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
    /// The configuration file and the key files.
    pub(crate) files: Vec<PathBuf>,
}

/// The settings that only a restart changes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RestartSettings {
    pub(crate) bind: BindAddress,
    pub(crate) socket_mode: SocketMode,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) players: Option<PlayerSettings>,
    pub(crate) http: HttpLimits,
    pub(crate) log: LogSettings,
    pub(crate) registry: RegistrySetting,
    pub(crate) registry_name: RegistryName,
    pub(crate) registry_password_file: Option<PathBuf>,
    pub(crate) hosts: Vec<String>,
    pub(crate) shutdown_delay: Duration,
}

impl RestartSettings {
    /// Takes these settings out of the flags and the file.
    fn gather(flags: &mut Flags, file: &mut ConfigFile) -> Result<Self, Failure> {
        let bind = flags.bind.take().or(file.bind.take()).unwrap_or(DEFAULT_BIND);
        let certificates = flags.tls_certificate_file.take().or(file.tls_certificate_file.take());
        let tls = tls_files(&bind, certificates, flags.tls_key_file.take().or(file.tls_key_file.take()))?;
        if tls.is_none() && !flags.insecure_http.or(file.insecure_http).unwrap_or(false) {
            refuse_open_http(&bind)?;
        }
        let registry = flags.registry.take().map(|text| text.parse::<RegistrySetting>()).transpose();
        let registry = registry.map_err(|error| Failure::usage(format!("--registry: {error}")))?;
        let name = flags.registry_name.take().or(file.registry_name.take()).unwrap_or_else(|| "default".to_owned());
        Ok(Self {
            bind,
            socket_mode: flags.socket_mode.or(file.socket_mode).unwrap_or(SocketMode::PRIVATE),
            tls,
            players: file.players.take().map(players::read).transpose()?,
            http: http_limits(flags, file)?,
            log: LogSettings {
                format: flags.log.or(file.log).unwrap_or_default(),
                level: flags.log_level.or(file.log_level),
            },
            registry: registry.or(file.registry.take()).unwrap_or_else(RegistrySetting::default),
            registry_name: name.parse().map_err(|error| Failure::usage(format!("--registry-name: {error}")))?,
            registry_password_file: flags.registry_password_file.take().or(file.registry_password_file.take()),
            hosts: hosts(first_non_empty(std::mem::take(&mut flags.hosts), std::mem::take(&mut file.hosts)))?,
            shutdown_delay: flags.shutdown_delay.or(file.shutdown_delay).map_or(Duration::ZERO, |span| span.0),
        })
    }

    /// Returns the files of the certificates.
    pub(crate) fn certificate_files(&self) -> impl Iterator<Item = PathBuf> {
        self.tls.iter().flat_map(|tls| [tls.certificates.clone(), tls.key.clone()])
    }

    /// Returns the file with the key set of players, unless that comes from a URL.
    pub(crate) fn player_file(&self) -> Option<PathBuf> {
        match &self.players.as_ref()?.keys {
            PlayerKeySource::File(path) => Some(path.clone()),
            PlayerKeySource::Url(_) => None,
        }
    }
}

/// The files with the certificates and their private key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    certificates: PathBuf,
    key: PathBuf,
}

impl TlsFiles {
    /// Reads both files.
    pub(crate) fn read(&self) -> Result<TlsIdentity, Failure> {
        TlsIdentity::read(&self.certificates, &self.key).map_err(|error| Failure::usage(error.to_string()))
    }
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
    fn gather(mut flags: Flags, matches: &ArgMatches) -> Result<Self, Failure> {
        let mut file = flags.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        let fixed = RestartSettings::gather(&mut flags, &mut file)?;
        let protocol_id = flags.protocol_id.or(file.protocol_id).ok_or_else(|| {
            Failure::usage("no protocol id is configured: give --protocol-id, equal to that of the game's servers")
        })?;
        let limits = limits(&flags, &file)?;
        let digests = first_non_empty(flags.api_key_digests, file.api_key_digests.into());
        let api_keys = api_keys::read(&digests, file.api_keys)?;
        let keys = KeySource::choose(matches, flags.key_file, file.key_file)?;
        let now = UnixSeconds::from(wall_clock());
        let schedule = keys.read_schedule()?;
        let (ring, mut next_key) = (schedule.at(now), schedule.next_change(now));
        let private_keys = ring.len();
        let mut files: Vec<PathBuf> = keys.file().into_iter().chain(flags.config.as_deref()).map(Into::into).collect();
        let servers = first_non_empty(flags.servers, file.servers);
        let mut issuers = vec![issuer(protocol_id, ring, servers, &limits)?];
        for game in file.games {
            files.push(game.key_file.clone());
            let schedule = KeySource::File(game.key_file).read_schedule()?;
            next_key = next_key.into_iter().chain(schedule.next_change(now)).min();
            issuers.push(issuer(game.protocol_id, schedule.at(now), game.servers, &limits)?);
        }
        let games = Games::new(issuers).map_err(|error| Failure::usage(error.to_string()))?;
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
        return Ok(Issuer::without_servers(protocol_id.0, ring, limits.clone()).with_networks(networks));
    }
    let issuer = Issuer::new(protocol_id.0, ring, &addresses, limits.clone()).map_err(wrong)?;
    Ok(issuer.with_networks(networks))
}

/// Returns the files for TLS, if both are given.
fn tls_files(
    bind: &BindAddress,
    certificates: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<TlsFiles>, Failure> {
    match (certificates, key, bind) {
        (None, None, _) => Ok(None),
        (Some(_), Some(_), BindAddress::Unix(_)) => Err(Failure::usage("a Unix socket needs no certificates")),
        (Some(certificates), Some(key), BindAddress::Tcp(_)) => Ok(Some(TlsFiles { certificates, key })),
        _ => Err(Failure::usage("TLS needs both --tls-certificate-file and --tls-key-file")),
    }
}

fn refuse_open_http(bind: &BindAddress) -> Result<(), Failure> {
    let BindAddress::Tcp(address) = bind else { return Ok(()) };
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let message = format!(
        "{bind} is reachable from other machines, and plain HTTP would expose session keys: give \
         --tls-certificate-file, bind to 127.0.0.1 behind a proxy that terminates TLS, or give --insecure-http if the \
         network itself is trusted"
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

/// Refuses hosts that no request can name: the port of a `Host` header is not compared.
fn hosts(hosts: Vec<String>) -> Result<Vec<String>, Failure> {
    let is_host = |host: &str| match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !host.is_empty() && host.bytes().all(is_allowed)
        }
    };
    match hosts.iter().find(|host| !is_host(host)) {
        Some(host) => Err(Failure::usage(format!(
            "--host: {host:?} is no host name and no address: write it without a port, and an IPv6 address in brackets"
        ))),
        None => Ok(hosts),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses_without_a_port() {
        let accepts = |host: &str| hosts(vec![host.to_owned()]).is_ok();
        for host in ["localhost", "tokens.example", "10.0.0.1", "[::1]"] {
            assert!(accepts(host), "{host}");
        }
        for host in ["", "localhost:8080", "::1", "[::1]:8080", "http://x", "a b", "[x]"] {
            assert!(!accepts(host), "{host}");
        }
    }
}
