//! The configuration file, in TOML: the flags' names with underscores.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use slipgate_cli::log::{LogFormat, LogLevel};
use slipgate_cli::values::{ProtocolId, Span};
use slipgate_cli::{Failure, config_file};

use crate::values::{AllowedServer, BindAddress, RegistrySetting, SocketMode};

/// The file's content. Every key is optional. An unknown key is refused, because it is a typing error.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    pub(crate) bind: Option<BindAddress>,
    pub(crate) socket_mode: Option<SocketMode>,
    pub(crate) tls_certificate_file: Option<PathBuf>,
    pub(crate) tls_key_file: Option<PathBuf>,
    pub(crate) insecure_http: Option<bool>,
    pub(crate) protocol_id: Option<ProtocolId>,
    #[serde(default)]
    pub(crate) servers: Vec<AllowedServer>,
    pub(crate) key_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) api_key_digests: OneOrMany,
    #[serde(default)]
    pub(crate) api_keys: Vec<NamedKey>,
    #[serde(default)]
    pub(crate) games: Vec<FurtherGame>,
    pub(crate) players: Option<PlayerTable>,
    pub(crate) registry: Option<RegistrySetting>,
    pub(crate) registry_name: Option<String>,
    pub(crate) registry_password_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
    pub(crate) shutdown_delay: Option<Span>,
    pub(crate) max_lifetime: Option<u32>,
    pub(crate) default_lifetime: Option<u32>,
    pub(crate) max_timeout: Option<u32>,
    pub(crate) default_timeout: Option<u32>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) max_connections_per_address: Option<usize>,
    pub(crate) max_tokens_per_minute: Option<u32>,
    pub(crate) log: Option<LogFormat>,
    pub(crate) log_level: Option<LogLevel>,
}

/// A game beside that of the flags, with its own key file and servers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FurtherGame {
    pub(crate) protocol_id: ProtocolId,
    pub(crate) key_file: PathBuf,
    #[serde(default)]
    pub(crate) servers: Vec<AllowedServer>,
}

/// A named API key, with its scopes and its limit.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedKey {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) digests: OneOrMany,
    pub(crate) permissions: Option<Vec<PermissionName>>,
    pub(crate) groups: Option<Vec<String>>,
    pub(crate) protocol_ids: Option<Vec<ProtocolId>>,
    pub(crate) names_client_id: Option<bool>,
    pub(crate) requests_per_minute: Option<u32>,
}

/// Players' own JSON Web Tokens as the source of client ids.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlayerTable {
    pub(crate) keys: String,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) issuer: String,
    pub(crate) audiences: OneOrMany,
    pub(crate) claim: Option<String>,
    pub(crate) client_id: Option<ClientIdName>,
    pub(crate) leeway_seconds: Option<u64>,
}

/// How the claim becomes a client id.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ClientIdName {
    Hash,
    Number,
}

/// What a named key may do.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PermissionName {
    Mint,
    Register,
    Observe,
}

/// Digests of API keys, or names: a list, or a single string.
///
/// serde would quote a single string in its error, and users confuse the key with its digest. An untagged enum is
/// refused without quoting its content.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl From<OneOrMany> for Vec<String> {
    fn from(texts: OneOrMany) -> Self {
        match texts {
            OneOrMany::One(text) => vec![text],
            OneOrMany::Many(texts) => texts,
        }
    }
}

impl ConfigFile {
    /// Reads the file and resolves its relative paths.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let mut file: Self = config_file::read(path)?;
        let resolve = |relative: PathBuf| config_file::resolve_path(path, &relative);
        for setting in [
            &mut file.key_file,
            &mut file.tls_certificate_file,
            &mut file.tls_key_file,
            &mut file.registry_password_file,
        ] {
            *setting = setting.take().map(resolve);
        }
        for game in &mut file.games {
            game.key_file = resolve(std::mem::take(&mut game.key_file));
        }
        if let Some(RegistrySetting::File(relative)) = file.registry {
            file.registry = Some(RegistrySetting::File(resolve(relative)));
        }
        if let Some(BindAddress::Unix(relative)) = file.bind {
            file.bind = Some(BindAddress::Unix(resolve(relative)));
        }
        if let Some(players) = &mut file.players {
            if !players.keys.contains("://") {
                players.keys = resolve(PathBuf::from(&players.keys)).to_string_lossy().into_owned();
            }
            players.ca_file = players.ca_file.take().map(resolve);
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_accepts_every_setting_and_no_unknown_key() {
        let text = r#"
            bind = "127.0.0.1:1"
            socket_mode = "0660"
            tls_certificate_file = "certificate.pem"
            tls_key_file = "key.pem"
            insecure_http = true
            protocol_id = "0xffffffffffffffff"
            servers = ["192.0.2.1:1", "[2001:db8::1]:2"]
            key_file = "keys"
            api_key_digests = ["hmac-sha256:…"]
            max_lifetime = 1
            default_lifetime = 1
            max_timeout = 1
            default_timeout = 1
            max_connections = 1
            max_connections_per_address = 1
            max_tokens_per_minute = 1
            log = "json"
            log_level = "debug"
            registry = "redis://127.0.0.1:6379/0"
            registry_name = "eu"
            registry_password_file = "password"
            hosts = ["tokens.example"]
            shutdown_delay = "5s"
            [players]
            keys = "https://id.example/keys"
            ca_file = "ca.pem"
            issuer = "https://id.example/"
            audiences = ["game", "launcher"]
            claim = "sub"
            client_id = "hash"
            leeway_seconds = 30
            [[games]]
            protocol_id = 8
            key_file = "keys"
            servers = ["10.0.0.0/8:40000-40999"]
            [[api_keys]]
            id = "lobby"
            digests = ["hmac-sha256:…"]
            permissions = ["mint", "register", "observe"]
            groups = ["ranked"]
            protocol_ids = ["0x8"]
            names_client_id = false
            requests_per_minute = 1
        "#;
        let file: ConfigFile = toml::from_str(text).unwrap();
        assert_eq!(file.protocol_id, Some(ProtocolId(u64::MAX)));
        assert_eq!((file.servers.len(), file.log), (2, Some(LogFormat::Json)));
        assert_eq!(toml::from_str::<ConfigFile>("protocol_id = 7").unwrap().protocol_id, Some(ProtocolId(7)));
        for wrong in [
            "protocol_id = -1",
            "private_key = \"00\"",
            "servers = [\"game.example:1\"]",
            "log = \"xml\"",
            "registry = \"\"",
            "bind = \"unix:\"",
            "socket_mode = \"rw\"",
            "[players]\nkeys = \"k\"\nissuer = \"i\"",
            "[players]\nkeys = \"k\"\nissuer = \"i\"\naudiences = \"a\"\nclient_id = \"x\"",
            "[[api_keys]]\nid = \"a\"\npermissions = [\"all\"]",
        ] {
            assert!(toml::from_str::<ConfigFile>(wrong).is_err(), "{wrong}");
        }
    }
}
