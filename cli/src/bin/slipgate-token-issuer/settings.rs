//! The merged and checked settings: flag, else environment variable, else configuration file, else default.

use std::net::SocketAddr;

use clap::ArgMatches;
use slipgate_cli::keys::KeySource;
use slipgate_cli::log::LogSettings;
use slipgate_cli::{Failure, first_non_empty};
use slipgate_token_issuer::api_key::ApiKeys;
use slipgate_token_issuer::http::HttpLimits;
use slipgate_token_issuer::{Issuer, Limits};

use crate::config_file::ConfigFile;
use crate::flags::Flags;

/// Loopback: other machines connect through a proxy that terminates TLS.
const DEFAULT_BIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// The complete settings of the program.
pub(crate) struct Settings {
    pub(crate) bind: SocketAddr,
    pub(crate) issuer: Issuer,
    pub(crate) api_keys: ApiKeys,
    pub(crate) http: HttpLimits,
    pub(crate) log: LogSettings,
}

impl Settings {
    /// Merges flags, environment (filled in by clap) and configuration file, and checks the result.
    pub(crate) fn gather(flags: Flags, matches: &ArgMatches) -> Result<Self, Failure> {
        let file = flags.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        let bind = flags.bind.or(file.bind).unwrap_or(DEFAULT_BIND);
        refuse_open_http(bind, flags.insecure_http.or(file.insecure_http).unwrap_or(false))?;
        let protocol_id = flags.protocol_id.or(file.protocol_id).ok_or_else(|| {
            Failure::usage("no protocol id is configured: give --protocol-id, equal to that of the game's servers")
        })?;
        let limits = limits(&flags, &file)?;
        let http = http_limits(flags.max_connections.or(file.max_connections))?;
        let api_keys = api_keys(&first_non_empty(flags.api_key_digests, file.api_key_digests.into()))?;
        let keys = KeySource::choose(matches, flags.key_file, file.key_file)?.read()?;
        let issuer = Issuer::new(protocol_id.0, keys, &first_non_empty(flags.servers, file.servers), limits).map_err(
            |error| Failure::usage(format!("{error} (flag --server, or `servers` in the configuration file)")),
        )?;
        let log = LogSettings {
            format: flags.log.or(file.log).unwrap_or_default(),
            level: flags.log_level.or(file.log_level),
        };
        Ok(Self { bind, issuer, api_keys, http, log })
    }
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

fn http_limits(connections: Option<usize>) -> Result<HttpLimits, Failure> {
    let defaults = HttpLimits::default();
    match connections {
        Some(0) => Err(Failure::usage("--max-connections must be at least 1")),
        connections => Ok(HttpLimits { connections: connections.unwrap_or(defaults.connections), ..defaults }),
    }
}

/// Parses the digests. An error names the position of the wrong entry and never quotes it: it may be the key itself.
fn api_keys(digests: &[String]) -> Result<ApiKeys, Failure> {
    let mut parsed = Vec::with_capacity(digests.len());
    for (index, digest) in digests.iter().enumerate() {
        let digest = digest.trim().parse();
        parsed.push(digest.map_err(|error| Failure::usage(format!("--api-key-digest, entry {}: {error}", index + 1)))?);
    }
    ApiKeys::new(parsed).map_err(|error| {
        Failure::usage(format!("{error}: `slipgate keygen --bearer` creates a key and its --api-key-digest"))
    })
}
