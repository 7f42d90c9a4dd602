//! The configuration, put together and checked: flag, else environment variable, else file, else default.

use std::net::SocketAddr;

use clap::ArgMatches;
use slipgate_cli::keys::KeySource;
use slipgate_cli::log::LogFormat;
use slipgate_cli::{Failure, either};
use slipgate_token_issuer::api_key::ApiKeys;
use slipgate_token_issuer::http::HttpLimits;
use slipgate_token_issuer::{Issuer, Limits};

use crate::file::File;
use crate::flags::Flags;

/// Loopback: other machines come in by way of a proxy that speaks TLS.
const DEFAULT_BIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8080);

/// All that the program needs to run.
pub(crate) struct Config {
    pub(crate) bind: SocketAddr,
    pub(crate) issuer: Issuer,
    pub(crate) api_keys: ApiKeys,
    pub(crate) http: HttpLimits,
    pub(crate) log: LogFormat,
}

impl Config {
    /// Puts flags, environment (which clap has filled in) and file together, and checks the result.
    pub(crate) fn gather(flags: Flags, matches: &ArgMatches) -> Result<Self, Failure> {
        let file = flags.config.as_deref().map(File::read).transpose()?.unwrap_or_default();
        let bind = flags.bind.or(file.bind).unwrap_or(DEFAULT_BIND);
        refuse_open_http(bind, flags.insecure_http.or(file.insecure_http).unwrap_or(false))?;
        let protocol_id = flags.protocol_id.or(file.protocol_id).ok_or_else(|| {
            Failure::usage("no protocol id is configured: give --protocol-id, the same as the game's servers have")
        })?;
        let limits = limits(&flags, &file)?;
        let http = http_limits(flags.max_connections.or(file.max_connections))?;
        let api_keys = api_keys(&either(flags.api_key_digests, file.api_key_digests.into()))?;
        let keys = KeySource::choose(matches, flags.key_file, file.key_file)?.read()?;
        let issuer =
            Issuer::new(protocol_id.0, keys, &either(flags.servers, file.servers), limits).map_err(|error| {
                Failure::usage(format!("{error} (flag --server, or `servers` in the configuration file)"))
            })?;
        Ok(Self { bind, issuer, api_keys, http, log: flags.log.or(file.log).unwrap_or_default() })
    }
}

fn refuse_open_http(bind: SocketAddr, insecure_http: bool) -> Result<(), Failure> {
    if insecure_http || bind.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let sentence = format!(
        "{bind} can be reached from other machines, and plain HTTP would show them session keys: bind to 127.0.0.1 \
         behind a proxy that speaks TLS, or give --insecure-http if the network itself is trusted"
    );
    Err(Failure::usage(sentence))
}

/// A default that is not given follows a limit that was lowered below it.
fn limits(flags: &Flags, file: &File) -> Result<Limits, Failure> {
    let range = |max: Option<u32>, default: Option<u32>, (usual_max, usual): (u32, u32)| {
        let max = max.unwrap_or(usual_max);
        (1..=max, default.unwrap_or(usual.min(max)))
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
    let usual = HttpLimits::default();
    match connections {
        Some(0) => Err(Failure::usage("--max-connections must be at least 1")),
        connections => Ok(HttpLimits { connections: connections.unwrap_or(usual.connections), ..usual }),
    }
}

/// Tells which entry is wrong and never what it is: it may be the key itself.
fn api_keys(digests: &[String]) -> Result<ApiKeys, Failure> {
    let mut read = Vec::with_capacity(digests.len());
    for (index, digest) in digests.iter().enumerate() {
        let digest = digest.trim().parse();
        read.push(digest.map_err(|error| Failure::usage(format!("--api-key-digest, entry {}: {error}", index + 1)))?);
    }
    ApiKeys::new(read).map_err(|error| {
        Failure::usage(format!("{error}: `slipgate keygen --bearer` makes a key and the --api-key-digest for it"))
    })
}
