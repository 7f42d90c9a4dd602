//! The merged and checked settings: flag, else environment variable, else configuration file, else default.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use slipgate_cli::keys::KeySource;
use slipgate_cli::log::LogSettings;
use slipgate_cli::values::Limit;
use slipgate_cli::{Failure, first_non_empty, issuer_authorities};
use slipgate_fleet::{FleetConfig, HookTarget, RegistrationConfig, RegistrationKey};
use slipgate_netcode::address::{Address, is_dialable};
use slipgate_server::config::{TimeoutPolicy, TokenCutoff};
use slipgate_server::sharded::MAX_SHARDS;
use slipgate_server::sockets::{Dscp, Steering, WakePolicy};
use slipgate_server::{ReadLimits, ServerConfig};

use crate::app::AppKind;
use crate::config_file::ConfigFile;
use crate::flags::Flags;

const DEFAULT_BIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 40000);
const DEFAULT_SLOTS: u32 = 64;
const DEFAULT_TICK: u32 = 60;
/// Shorter than the 10 s or more that process managers wait before they kill, unless a report of the end hangs.
const DEFAULT_DRAIN: Duration = Duration::from_secs(5);
/// Under Agones: longer than the lifetime of a token and the load of a match.
const DEFAULT_END_WHEN_EMPTY: Duration = Duration::from_secs(120);

/// Keep-alives are due ten times a second, so a slower tick would delay them.
const MIN_TICK_HZ: u32 = 10;
const MAX_TICK_HZ: u32 = 1000;

/// The complete settings of the program.
pub(crate) struct Settings {
    pub(crate) bind: Vec<SocketAddr>,
    /// The protocol's settings. `advertised` is empty if the bound addresses are to be advertised: `start` fills it in.
    pub(crate) config: ServerConfig,
    pub(crate) keys: KeySource,
    pub(crate) shards: u16,
    pub(crate) steering: Steering,
    pub(crate) tick: u32,
    pub(crate) wake: WakePolicy,
    pub(crate) read_limits: ReadLimits,
    pub(crate) app: AppKind,
    pub(crate) history: Option<PathBuf>,
    pub(crate) dscp: Dscp,
    pub(crate) kernel_filter: bool,
    pub(crate) drain: Duration,
    pub(crate) shutdown_delay: Duration,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) admin_token_file: Option<PathBuf>,
    pub(crate) fleet: FleetSettings,
    pub(crate) log: LogSettings,
}

/// What is informed of the life cycle.
#[derive(Default)]
pub(crate) struct FleetSettings {
    /// The loopback port of Agones' REST gateway.
    pub(crate) agones_port: Option<u16>,
    pub(crate) hooks: Vec<HookTarget>,
    /// The time without clients after which an allocated server ends.
    pub(crate) end_when_empty: Option<Duration>,
    /// The registration, without the addresses, which are known after the start.
    pub(crate) registration: Option<RegistrationConfig>,
    /// The file of its API key.
    pub(crate) issuer_key_file: Option<PathBuf>,
    /// The file of its authorities.
    pub(crate) issuer_ca_file: Option<PathBuf>,
}

impl FleetSettings {
    /// Returns whether a driver needs file descriptors.
    pub(crate) const fn has_driver(&self) -> bool {
        self.agones_port.is_some() || !self.hooks.is_empty() || self.registration.is_some()
    }

    fn gather(flags: &Flags, file: &ConfigFile, protocol_id: u64) -> Result<Self, Failure> {
        let is_agones = flags.agones.or(file.agones).unwrap_or(false);
        let agones_port = is_agones.then(FleetConfig::agones_port_of_environment);
        let default = is_agones.then_some(DEFAULT_END_WHEN_EMPTY);
        let end_when_empty = flags.end_when_empty.or(file.end_when_empty).map_or(default, |span| Some(span.0));
        Ok(Self {
            agones_port,
            hooks: hooks(flags, file)?,
            end_when_empty: end_when_empty.filter(|time| !time.is_zero()),
            registration: registration(flags, file, protocol_id)?,
            issuer_key_file: issuer_key_file(flags, file).cloned(),
            issuer_ca_file: issuer_ca_file(flags, file).cloned(),
        })
    }
}

/// Returns the absolute path of a hook's program: a name alone would be searched in the folders of `PATH`.
fn hook_program(path: &Path) -> Result<PathBuf, String> {
    let program = std::path::absolute(path).map_err(|error| error.to_string())?;
    if !program.is_file() {
        return Err(format!("there is no file {}", program.display()));
    }
    #[cfg(unix)]
    if let Err(error) = rustix::fs::access(&program, rustix::fs::Access::EXEC_OK) {
        return Err(format!("the file cannot be executed: {}", std::io::Error::from(error)));
    }
    Ok(program)
}

/// Returns what is informed of each state.
fn hooks(flags: &Flags, file: &ConfigFile) -> Result<Vec<HookTarget>, Failure> {
    let mut hooks = Vec::new();
    if let Some(path) = flags.hook_command.as_ref().or(file.hook_command.as_ref()) {
        let program = hook_program(path);
        let program =
            program.map_err(|reason| Failure::usage(format!("--hook-command {}: {reason}", path.display())))?;
        hooks.push(HookTarget::Command(program));
    }
    if let Some(url) = flags.hook_url.as_ref().or(file.hook_url.as_ref()) {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Failure::usage("--hook-url must start with http:// or https://"));
        }
        hooks.push(HookTarget::Url(url.clone()));
    }
    Ok(hooks)
}

fn issuer_key_file<'a>(flags: &'a Flags, file: &'a ConfigFile) -> Option<&'a PathBuf> {
    flags.issuer_key_file.as_ref().or(file.issuer_key_file.as_ref())
}

fn issuer_ca_file<'a>(flags: &'a Flags, file: &'a ConfigFile) -> Option<&'a PathBuf> {
    flags.issuer_ca_file.as_ref().or(file.issuer_ca_file.as_ref())
}

/// Returns how the server registers with an issuer.
fn registration(flags: &Flags, file: &ConfigFile, protocol_id: u64) -> Result<Option<RegistrationConfig>, Failure> {
    let issuers = first_non_empty(flags.issuer.clone(), file.issuer.clone());
    let redirects = flags.redirect.or(file.redirect).unwrap_or(false);
    let redirects_in_region = flags.redirect_in_region.or(file.redirect_in_region).unwrap_or(false);
    let has_region = flags.region.is_some() || file.region.is_some();
    if redirects_in_region && !(redirects && has_region) {
        return Err(Failure::usage("--redirect-in-region needs --redirect and --region"));
    }
    let authorities = issuer_ca_file(flags, file).map(|path| issuer_authorities::read(path, &issuers)).transpose()?;
    if issuers.is_empty() {
        return if redirects { Err(Failure::usage("--redirect needs --issuer")) } else { Ok(None) };
    }
    if issuers.iter().any(|issuer| !issuer.starts_with("http://") && !issuer.starts_with("https://")) {
        return Err(Failure::usage("--issuer must start with http:// or https://"));
    }
    let key_file = issuer_key_file(flags, file).ok_or_else(|| Failure::usage("--issuer needs --issuer-key-file"))?;
    let key = RegistrationKey::read(key_file).map_err(|error| Failure::usage(format!("--issuer-key-file: {error}")))?;
    let name = |flag: &str, given: Option<&String>, default: Option<&String>| {
        let name = given.or(default).cloned();
        match name.as_deref().is_none_or(RegistrationConfig::is_name) {
            true => Ok(name),
            false => Err(Failure::usage(format!(
                "{flag} must have 1 to 64 characters of A-Z a-z 0-9 . _ - and must not be `.` or `..`"
            ))),
        }
    };
    let required =
        |flag: &str, name: Option<String>| name.ok_or_else(|| Failure::usage(format!("--issuer needs {flag}")));
    Ok(Some(RegistrationConfig {
        issuers,
        authorities,
        key,
        server_id: required("--server-id", name("--server-id", flags.server_id.as_ref(), file.server_id.as_ref())?)?,
        group: required("--group", name("--group", flags.group.as_ref(), file.group.as_ref())?)?,
        region: name("--region", flags.region.as_ref(), file.region.as_ref())?,
        build: flags.build.clone().or_else(|| file.build.clone()),
        protocol_id,
        addresses: Vec::new(),
        accepts_earlier_tokens: false,
        redirects,
        redirects_in_region,
    }))
}

impl Settings {
    /// Merges flags, environment (filled in by clap) and configuration file, and checks the result.
    pub(crate) fn gather(flags: Flags, matches: &ArgMatches) -> Result<Self, Failure> {
        let file = flags.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
        let config = config(&flags, &file)?;
        let read_limits = read_limits(&file);
        let fleet = FleetSettings::gather(&flags, &file, config.protocol_id)?;
        let bind = bind(first_non_empty(flags.bind, file.bind))?;
        let given = first_non_empty(flags.advertise, file.advertise);
        let advertised = advertised(&bind, &given, fleet.agones_port.is_some())?;
        Ok(Self {
            bind,
            config: ServerConfig { advertised, ..config },
            keys: KeySource::choose(matches, flags.key_file, file.key_file)?,
            shards: shards(flags.shards.or(file.shards))?,
            steering: flags.steering.or(file.steering).unwrap_or_default().into(),
            tick: tick(flags.tick.or(file.tick))?,
            wake: flags.wake.or(file.wake).unwrap_or_default().into(),
            read_limits,
            app: flags.app.or(file.app).unwrap_or_default(),
            history: flags.history.or(file.history),
            dscp: flags.dscp.or(file.dscp).unwrap_or_default(),
            kernel_filter: flags.kernel_filter.or(file.kernel_filter).unwrap_or(true),
            drain: flags.drain.or(file.drain).map_or(DEFAULT_DRAIN, |span| span.0),
            shutdown_delay: flags.shutdown_delay.or(file.shutdown_delay).map_or(Duration::ZERO, |span| span.0),
            admin: flags.admin.or(file.admin),
            admin_token_file: flags.admin_token_file.or(file.admin_token_file),
            fleet,
            log: LogSettings {
                format: flags.log.or(file.log).unwrap_or_default(),
                level: flags.log_level.or(file.log_level),
            },
        })
    }
}

fn read_limits(file: &ConfigFile) -> ReadLimits {
    let default = ReadLimits::default();
    ReadLimits {
        max_packets: file.limits.packets_per_turn.unwrap_or(default.max_packets),
        max_time: file.limits.time_per_turn.map_or(default.max_time, |span| span.0),
    }
}

fn config(flags: &Flags, file: &ConfigFile) -> Result<ServerConfig, Failure> {
    let protocol_id = flags.protocol_id.or(file.protocol_id).ok_or_else(|| {
        Failure::usage("no protocol id is configured: give --protocol-id, equal to that of the game's token issuer")
    })?;
    let slots = flags.slots.or(file.slots).unwrap_or(DEFAULT_SLOTS);
    let mut config = ServerConfig::new(protocol_id.0, slots, &[]);
    match flags.max_token_lifetime.or(file.max_token_lifetime) {
        None => {}
        Some(Limit::Unlimited) => config.max_token_lifetime = None,
        Some(Limit::Span(span)) if span.0 >= Duration::from_secs(1) => config.max_token_lifetime = Some(span.0),
        Some(Limit::Span(_)) => return Err(Failure::usage("--max-token-lifetime must be at least 1s")),
    }
    if let Some(after) = flags.takeover_after.or(file.takeover_after) {
        config.takeover_after = Some(after.0).filter(|after| !after.is_zero());
    }
    if flags.first_start.unwrap_or(false) {
        config.token_cutoff = TokenCutoff::None;
    }
    if flags.development.or(file.development).unwrap_or(false) {
        config.timeouts = TimeoutPolicy::Development;
    }
    file.limits.apply(&mut config);
    Ok(config)
}

fn bind(given: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Failure> {
    let of_v4 = given.iter().filter(|address| address.is_ipv4()).count();
    if of_v4 > 1 || given.len() - of_v4 > 1 {
        return Err(Failure::usage("--bind takes at most one IPv4 and one IPv6 address"));
    }
    Ok(if given.is_empty() { vec![DEFAULT_BIND] } else { given })
}

/// Returns the given addresses without duplicates, or none if that of Agones, or the bound ones, are to be
/// advertised.
fn advertised(bind: &[SocketAddr], given: &[SocketAddr], is_agones: bool) -> Result<Vec<SocketAddr>, Failure> {
    if let Some(wrong) = given.iter().find(|address| !is_dialable(**address)) {
        return Err(Failure::usage(format!("--advertise {wrong}: clients cannot send to this address")));
    }
    match bind.iter().find(|address| address.ip().to_canonical().is_unspecified()) {
        Some(wildcard) if given.is_empty() && !is_agones => {
            let message = format!(
                "clients cannot connect to {wildcard}: give --advertise with the address that connect tokens list, or \
                 --bind to that address"
            );
            Err(Failure::usage(message))
        }
        _ => {
            let mut seen = BTreeSet::new();
            let distinct = given.iter().copied().map(Address::from).filter(|address| seen.insert(*address));
            Ok(distinct.map(Address::socket_addr).collect())
        }
    }
}

fn shards(given: Option<u16>) -> Result<u16, Failure> {
    match given.unwrap_or(1) {
        shards @ 1..=MAX_SHARDS => Ok(shards),
        _ => Err(Failure::usage(format!("--shards must be 1 to {MAX_SHARDS}"))),
    }
}

fn tick(given: Option<u32>) -> Result<u32, Failure> {
    match given.unwrap_or(DEFAULT_TICK) {
        tick @ MIN_TICK_HZ..=MAX_TICK_HZ => Ok(tick),
        _ => Err(Failure::usage(format!("--tick must be {MIN_TICK_HZ} to {MAX_TICK_HZ}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &[&str]) -> Vec<SocketAddr> {
        text.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn bound_addresses_are_advertised_unless_one_is_a_wildcard() {
        let concrete = addresses(&["192.0.2.1:0", "[2001:db8::1]:7"]);
        assert!(advertised(&concrete, &[], false).unwrap().is_empty());
        for wildcard in ["0.0.0.0:40000", "[::]:0", "[::ffff:0.0.0.0]:1"] {
            let bind = addresses(&["192.0.2.1:7", wildcard]);
            assert!(advertised(&bind, &[], false).is_err(), "{wildcard}");
            assert!(advertised(&bind, &[], true).unwrap().is_empty(), "the address comes from Agones");
            assert_eq!(advertised(&bind, &concrete[1..], false).unwrap(), [concrete[1]]);
            assert!(advertised(&concrete, &addresses(&[wildcard]), false).is_err(), "{wildcard}");
        }
        assert!(advertised(&concrete, &concrete, false).is_err(), "port 0 cannot be dialled");
    }

    #[test]
    fn address_advertised_twice_counts_once() {
        let given = addresses(&["192.0.2.1:7", "192.0.2.2:7", "192.0.2.1:7", "[::ffff:192.0.2.1]:7"]);
        assert_eq!(advertised(&given, &given, false).unwrap(), given[..2]);
    }

    #[test]
    fn at_most_one_address_of_each_family_is_bound() {
        assert_eq!(bind(Vec::new()).unwrap(), [DEFAULT_BIND]);
        assert!(bind(addresses(&["0.0.0.0:1", "[::]:1"])).is_ok());
        assert!(bind(addresses(&["127.0.0.1:1", "127.0.0.2:1"])).is_err());
        assert!(bind(addresses(&["[::1]:1", "[::1]:2"])).is_err());
    }

    #[test]
    fn tick_rate_is_10_to_1000_per_second() {
        for (given, expected) in
            [(None, Some(60)), (Some(9), None), (Some(10), Some(10)), (Some(1000), Some(1000)), (Some(1001), None)]
        {
            assert_eq!(tick(given).ok(), expected, "{given:?}");
        }
    }
}
