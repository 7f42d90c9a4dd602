//! The configuration file, in TOML: the flags' names with underscores.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use slipgate_cli::log::{LogFormat, LogLevel};
use slipgate_cli::values::ProtocolId;
use slipgate_cli::{Failure, config_file};

use crate::values::{AllowedServer, RegistrySetting};

/// The file's content. Every key is optional. An unknown key is refused, because it is a typing error.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    pub(crate) bind: Option<SocketAddr>,
    pub(crate) insecure_http: Option<bool>,
    pub(crate) protocol_id: Option<ProtocolId>,
    #[serde(default)]
    pub(crate) servers: Vec<AllowedServer>,
    pub(crate) key_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) api_key_digests: Digests,
    #[serde(default)]
    pub(crate) api_keys: Vec<NamedKey>,
    #[serde(default)]
    pub(crate) games: Vec<FurtherGame>,
    pub(crate) registry: Option<RegistrySetting>,
    pub(crate) registry_name: Option<String>,
    pub(crate) registry_password_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) hosts: Vec<String>,
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
    pub(crate) digests: Digests,
    pub(crate) permissions: Option<Vec<PermissionName>>,
    pub(crate) groups: Option<Vec<String>>,
    pub(crate) protocol_ids: Option<Vec<ProtocolId>>,
    pub(crate) names_client_id: Option<bool>,
    pub(crate) requests_per_minute: Option<u32>,
}

/// What a named key may do.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PermissionName {
    Mint,
    Register,
    Observe,
}

/// The digests of API keys: a list, or a single string.
///
/// serde would quote a single string in its error, and users confuse the key with its digest. An untagged enum is
/// refused without quoting its content.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Digests {
    One(String),
    Many(Vec<String>),
}

impl Default for Digests {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl From<Digests> for Vec<String> {
    fn from(digests: Digests) -> Self {
        match digests {
            Digests::One(digest) => vec![digest],
            Digests::Many(digests) => digests,
        }
    }
}

impl ConfigFile {
    /// Reads the file and resolves the relative path of the key file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let mut file: Self = config_file::read(path)?;
        let resolve = |relative: PathBuf| config_file::resolve_path(path, &relative);
        file.key_file = file.key_file.map(resolve);
        file.registry_password_file = file.registry_password_file.map(resolve);
        for game in &mut file.games {
            game.key_file = resolve(std::mem::take(&mut game.key_file));
        }
        if let Some(RegistrySetting::File(relative)) = file.registry {
            file.registry = Some(RegistrySetting::File(resolve(relative)));
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
            "[[api_keys]]\nid = \"a\"\npermissions = [\"all\"]",
        ] {
            assert!(toml::from_str::<ConfigFile>(wrong).is_err(), "{wrong}");
        }
    }
}
