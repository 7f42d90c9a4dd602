//! The configuration file, in TOML: the flags' names with underscores, and limits that have no flag.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use slipgate_cli::log::{LogFormat, LogLevel};
use slipgate_cli::values::{self, Limit, ProtocolId, Span};
use slipgate_cli::{Failure, config_file};
use slipgate_server::ServerConfig;
use slipgate_server::sockets::Dscp;

use crate::app::AppKind;
use crate::steering::{SteeringKind, WakeKind};

/// The file's content. Every key is optional. An unknown key is refused, because it is a typing error.
///
/// `first_start` is missing on purpose: the file outlives the first start.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    #[serde(default)]
    pub(crate) bind: Vec<SocketAddr>,
    #[serde(default)]
    pub(crate) advertise: Vec<SocketAddr>,
    pub(crate) protocol_id: Option<ProtocolId>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) slots: Option<u32>,
    pub(crate) shards: Option<u16>,
    pub(crate) steering: Option<SteeringKind>,
    pub(crate) tick: Option<u32>,
    pub(crate) wake: Option<WakeKind>,
    pub(crate) app: Option<AppKind>,
    pub(crate) max_token_lifetime: Option<Limit>,
    pub(crate) history: Option<PathBuf>,
    pub(crate) takeover_after: Option<Span>,
    pub(crate) development: Option<bool>,
    #[serde(default, deserialize_with = "values::optional_text_or_number")]
    pub(crate) dscp: Option<Dscp>,
    pub(crate) kernel_filter: Option<bool>,
    pub(crate) drain: Option<Span>,
    pub(crate) shutdown_delay: Option<Span>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) admin_token_file: Option<PathBuf>,
    pub(crate) agones: Option<bool>,
    pub(crate) hook_command: Option<PathBuf>,
    pub(crate) hook_url: Option<String>,
    pub(crate) end_when_empty: Option<Span>,
    #[serde(default)]
    pub(crate) issuer: Vec<String>,
    pub(crate) issuer_key_file: Option<PathBuf>,
    pub(crate) issuer_ca_file: Option<PathBuf>,
    pub(crate) server_id: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) redirect: Option<bool>,
    pub(crate) redirect_in_region: Option<bool>,
    pub(crate) build: Option<String>,
    pub(crate) log: Option<LogFormat>,
    pub(crate) log_level: Option<LogLevel>,
    #[serde(default)]
    pub(crate) limits: WorkLimitKeys,
}

/// Limits on the work that unknown senders and clients can cause. The defaults suit nearly all servers.
#[derive(Clone, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkLimitKeys {
    addresses_per_token: Option<u8>,
    pending_clients: Option<u32>,
    pending_lifetime: Option<Span>,
    challenge_lifetime: Option<Span>,
    history_tokens: Option<usize>,
    tokens_per_client_id: Option<u32>,
    strangers_per_turn: Option<u32>,
    responses_per_turn: Option<u32>,
    packets_per_client_and_turn: Option<u32>,
    forgeries_per_turn: Option<u32>,
    decrypts_per_source: Option<u32>,
    decrypts: Option<u32>,
    pub(crate) packets_per_turn: Option<u32>,
    pub(crate) time_per_turn: Option<Span>,
}

impl ConfigFile {
    /// Reads the file and resolves its relative paths.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let mut file: Self = config_file::read(path)?;
        let [key, history] = [&mut file.key_file, &mut file.history];
        let [token, hook, issuer] = [&mut file.admin_token_file, &mut file.hook_command, &mut file.issuer_key_file];
        let authorities = &mut file.issuer_ca_file;
        for named in [key, history, token, hook, issuer, authorities] {
            *named = named.take().map(|relative| config_file::resolve_path(path, &relative));
        }
        Ok(file)
    }
}

impl WorkLimitKeys {
    /// Overwrites the defaults with the values that the file gives.
    pub(crate) fn apply(&self, config: &mut ServerConfig) {
        let budgets = &mut config.budgets;
        set(&mut budgets.strangers_per_turn, self.strangers_per_turn);
        set(&mut budgets.responses_per_turn, self.responses_per_turn);
        set(&mut budgets.packets_per_client_and_turn, self.packets_per_client_and_turn);
        set(&mut budgets.forgeries_per_turn, self.forgeries_per_turn);
        set(&mut budgets.decrypts_per_source, self.decrypts_per_source);
        set(&mut budgets.decrypts, self.decrypts);
        set(&mut config.addresses_per_token, self.addresses_per_token);
        set(&mut config.pending_clients, self.pending_clients);
        set(&mut config.pending_lifetime, self.pending_lifetime.map(|span| span.0));
        set(&mut config.challenge_lifetime, self.challenge_lifetime.map(|span| span.0));
        set(&mut config.history_tokens, self.history_tokens);
        set(&mut config.tokens_per_client_id, self.tokens_per_client_id);
    }
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_accepts_every_setting_and_no_unknown_key() {
        let text = r#"
            bind = ["0.0.0.0:40000", "[::]:40000"]
            advertise = ["203.0.113.7:40000", "[2001:db8::7]:40000"]
            protocol_id = "0xffffffffffffffff"
            key_file = "keys"
            slots = 100
            shards = 4
            steering = "cpu"
            tick = 30
            wake = "immediate"
            app = "relay"
            max_token_lifetime = "unlimited"
            history = "history"
            takeover_after = "2s"
            development = false
            dscp = "ef"
            kernel_filter = false
            drain = 30
            shutdown_delay = 5
            admin = "127.0.0.1:9100"
            admin_token_file = "token"
            agones = true
            hook_command = "hook"
            hook_url = "http://127.0.0.1:8000/state"
            end_when_empty = "3m"
            issuer = ["http://127.0.0.1:8080"]
            issuer_key_file = "registration.key"
            issuer_ca_file = "ca.pem"
            server_id = "eu-1"
            group = "ranked"
            region = "eu-west"
            redirect = true
            redirect_in_region = true
            build = "1.4.2"
            log = "json"
            log_level = "debug"

            [limits]
            addresses_per_token = 1
            pending_clients = 2
            pending_lifetime = "3s"
            challenge_lifetime = "4s"
            history_tokens = 5
            tokens_per_client_id = 11
            strangers_per_turn = 6
            responses_per_turn = 5
            packets_per_client_and_turn = 7
            forgeries_per_turn = 10
            decrypts_per_source = 8
            decrypts = 9
            packets_per_turn = 1000
            time_per_turn = "4ms"
        "#;
        let file: ConfigFile = toml::from_str(text).unwrap();
        assert_eq!((file.dscp, file.kernel_filter), (Some(Dscp::EXPEDITED), Some(false)));
        assert_eq!((file.shards, file.steering), (Some(4), Some(SteeringKind::Cpu)));
        assert_eq!(file.wake, Some(WakeKind::Immediate));
        assert_eq!(file.admin, Some("127.0.0.1:9100".parse().unwrap()));
        let mut config = ServerConfig::new(1, 100, &[]);
        file.limits.apply(&mut config);
        assert_eq!((config.addresses_per_token, config.pending_clients, config.history_tokens), (1, 2, 5));
        assert_eq!(config.tokens_per_client_id, 11);
        assert_eq!((config.pending_lifetime.as_secs(), config.challenge_lifetime.as_secs()), (3, 4));
        let budgets = config.budgets;
        assert_eq!(
            (budgets.strangers_per_turn, budgets.responses_per_turn, budgets.packets_per_client_and_turn),
            (6, 5, 7)
        );
        assert_eq!((budgets.decrypts_per_source, budgets.decrypts, budgets.forgeries_per_turn), (8, 9, 10));
        for wrong in ["private_key = \"00\"", "first_start = true", "bind = \"game.example:1\"", "[limits]\nslots = 1"]
        {
            assert!(toml::from_str::<ConfigFile>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_missing_in_the_file_keep_their_defaults() {
        let mut config = ServerConfig::new(1, 100, &[]);
        let defaults = format!("{config:?}");
        WorkLimitKeys::default().apply(&mut config);
        assert_eq!(format!("{config:?}"), defaults);
    }
}
