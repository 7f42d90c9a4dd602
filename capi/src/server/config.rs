//! The settings of a server, and how it starts.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::Duration;

use slipgate_netcode::crypto::key::MAX_PRIVATE_KEYS;
use slipgate_netcode::time::UnixSeconds;
use slipgate_server::config::TokenCutoff;
use slipgate_server::history_file::HistoryFile;
use slipgate_server::keys::{Key, KeyRing};
use slipgate_server::{Clock, Inbox, Server, ServerConfig, Sockets};

use super::{CServer, ServerObject};
use crate::boundary::{Guarded, run, some};
use crate::event_batch::EventCopies;
use crate::pointer;
use crate::status::{SLIPGATE_DONE, SLIPGATE_ERROR_ARGUMENT};
use crate::traffic::{CTraffic, SettingError, check_size, read_traffic};

/// The bytes of a private key.
const KEY_BYTES: usize = 32;

/// Accept tokens from before this start. Only for the first start of an instance: a used token could be used again.
pub const SLIPGATE_ACCEPT_OLD_TOKENS: u32 = 1;

/// The settings of a server; `slipgate_server_config_init` sets the defaults. Texts end with zero, and everything is
/// copied when the server starts.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CServerConfig {
    /// The size of this structure, set by `slipgate_server_config_init`.
    pub size: u32,
    /// The number of client slots, 1 to 65,536; 32 by default.
    pub slots: u32,
    /// The id of the game. Tokens and packets with another id are refused.
    pub protocol_id: u64,
    /// The addresses of the sockets, at most one for IPv4 and one for IPv6, separated by commas:
    /// `0.0.0.0:40000,[::]:40000`.
    pub bind: *const c_char,
    /// The addresses of this server in connect tokens, separated by commas. Null for those of the sockets, which must
    /// then be real addresses.
    pub advertised: *const c_char,
    /// The private keys, 32 bytes each, newest first: 1 to 3 of them.
    pub keys: *const u8,
    /// The bytes of the keys.
    pub keys_length: usize,
    /// The traffic of the connections; null for payloads.
    pub traffic: *const CTraffic,
    /// The file that keeps the used tokens, so that a restarted server accepts tokens from before its start. Null for
    /// none.
    pub history_file: *const c_char,
    /// The maximum lifetime of a token in seconds; 45 by default, 0 for no limit.
    pub max_token_lifetime_seconds: u32,
    /// The silence after which a newer token for a connected client id may take over its slot, in milliseconds; 1,000
    /// by default, 0 for never.
    pub takeover_after_ms: u32,
    /// `SLIPGATE_ACCEPT_OLD_TOKENS`, or 0. Others are refused.
    pub flags: u32,
    /// 0.
    pub reserved: u32,
}

/// Sets the default settings.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_config_init(config: Option<&mut MaybeUninit<CServerConfig>>) -> i32 {
    run(|| {
        let defaults = ServerConfig::new(0, 32, &[]);
        let milliseconds = |time: Option<Duration>| time.map_or(0, |time| time.as_millis() as u32);
        some(config)?.write(CServerConfig {
            size: size_of::<CServerConfig>() as u32,
            slots: defaults.slots,
            protocol_id: 0,
            bind: pointer::none(),
            advertised: pointer::none(),
            keys: pointer::none(),
            keys_length: 0,
            traffic: pointer::none(),
            history_file: pointer::none(),
            max_token_lifetime_seconds: milliseconds(defaults.max_token_lifetime) / 1000,
            takeover_after_ms: milliseconds(defaults.takeover_after),
            flags: 0,
            reserved: 0,
        });
        Ok(SLIPGATE_DONE)
    })
}

/// Starts a server. The text of an error is written to `error`, which may be null, with a zero at its end.
///
/// Errors: `ARGUMENT` for an invalid address, key or structure, `CONFIG` for a setting out of its bounds, `IO` if the
/// system refuses a socket or the history file.
#[unsafe(no_mangle)]
pub extern "C" fn slipgate_server_new(
    config: Option<&CServerConfig>,
    out: Option<&mut *mut CServer>,
    error: *mut c_char,
    error_capacity: usize,
) -> i32 {
    run(|| {
        let out = some(out)?;
        *out = pointer::none();
        match start(some(config)?) {
            Ok(server) => *out = pointer::give(server),
            Err(reason) => return reason.report(error, error_capacity),
        }
        Ok(SLIPGATE_DONE)
    })
}

fn start(config: &CServerConfig) -> Result<CServer, SettingError> {
    check_size::<CServerConfig>(config.size, "slipgate_server_config")?;
    if config.flags & !SLIPGATE_ACCEPT_OLD_TOKENS != 0 {
        return Err(SettingError::argument("unknown flags")(SLIPGATE_ERROR_ARGUMENT));
    }
    if config.reserved != 0 {
        return Err(SettingError::argument("reserved must be 0")(SLIPGATE_ERROR_ARGUMENT));
    }
    let keys = read_keys(config.keys, config.keys_length)
        .map_err(SettingError::argument("keys must be 1 to 3 private keys of 32 bytes"))?;
    let traffic = pointer::optional(config.traffic).map_err(SettingError::argument("traffic is not aligned"))?;
    let traffic = read_traffic(traffic)?;
    let bind = read_addresses(config.bind, "bind")?;
    if bind.is_empty() {
        return Err(SettingError::argument("bind: an address is missing")(SLIPGATE_ERROR_ARGUMENT));
    }
    let sockets = Sockets::bind(&bind).map_err(SettingError::io("bind"))?;
    let mut advertised = read_addresses(config.advertised, "advertised")?;
    if advertised.is_empty() {
        advertised = sockets.local_addresses();
    }
    // The heap is the game's, and the library has no threads that a game does not expect.
    slipgate_server::leave_freed_memory();
    let clock = Clock::start();
    let (settings, now) = (settings(config, &advertised), clock.now());
    let history = pointer::c_text(config.history_file).map_err(SettingError::argument("history_file is not UTF-8"))?;
    let server = if history.is_empty() {
        Server::new(sockets, settings, keys, now)
    } else {
        let history =
            HistoryFile::open(history, UnixSeconds::from(now.unix)).map_err(SettingError::io("history_file"))?;
        Server::with_history(sockets, settings, keys, now, history)
    };
    let server = server.and_then(|server| server.with_traffic(traffic)).map_err(SettingError::config)?;
    let (inbox, held, copies) = (Inbox::default(), Vec::new(), EventCopies::default());
    Ok(CServer(Guarded::new(ServerObject { server, inbox, clock, held, copies })))
}

fn settings(config: &CServerConfig, advertised: &[SocketAddr]) -> ServerConfig {
    let mut settings = ServerConfig::new(config.protocol_id, config.slots, advertised);
    let lifetime = config.max_token_lifetime_seconds;
    settings.max_token_lifetime = (lifetime > 0).then(|| Duration::from_secs(lifetime.into()));
    settings.takeover_after = Some(Duration::from_millis(config.takeover_after_ms.into()));
    if config.flags & SLIPGATE_ACCEPT_OLD_TOKENS != 0 {
        settings.token_cutoff = TokenCutoff::None;
    }
    settings
}

/// Returns the addresses of a text, separated by commas.
pub(crate) fn read_addresses(text: *const c_char, name: &str) -> Result<Vec<SocketAddr>, SettingError> {
    let text = pointer::c_text(text).map_err(SettingError::argument("an address is not UTF-8"))?;
    let addresses = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parsed = addresses.map(|part| {
        part.parse().map_err(|_| {
            let text = format!("{name}: {part:?} is not an address such as 127.0.0.1:40000");
            SettingError { status: SLIPGATE_ERROR_ARGUMENT, text }
        })
    });
    parsed.collect()
}

/// Returns private keys, newest first.
pub(crate) fn read_keys(keys: *const u8, length: usize) -> Result<KeyRing, i32> {
    // Nothing is read or allocated for a length that cannot be right.
    if length > MAX_PRIVATE_KEYS * KEY_BYTES {
        return Err(SLIPGATE_ERROR_ARGUMENT);
    }
    let (keys, rest) = pointer::bytes(keys, length)?.as_chunks::<KEY_BYTES>();
    let keys: Vec<Key> = keys.iter().map(|key| Key::from(*key)).collect();
    // The length must be a multiple, so that a key that was cut is noticed.
    KeyRing::new(&keys).filter(|_| rest.is_empty()).ok_or(SLIPGATE_ERROR_ARGUMENT)
}
