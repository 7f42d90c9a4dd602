//! The flags, and the environment variables beside them.
//!
//! Every value is optional here: what is missing may stand in the file. `config` puts the three together.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use slipgate_cli::log::LogFormat;
use slipgate_cli::values::ProtocolId;

const AFTER_HELP: &str = "\
A value is taken from the flag, else from the environment variable, else from the configuration file, else it is the \
default.

Keys are never given as flags, because every user of a machine can read command lines:
  the private keys that the game servers share come from --key-file, or from the environment variable
  SLIPGATE_PRIVATE_KEY (64 hexadecimal digits each, newest first, separated by commas);
  of the API keys of backends only digests are configured: `slipgate keygen --bearer` makes both.

Exit status: 0 after SIGTERM or SIGINT, 1 when the system refuses something, 2 when the configuration is wrong.";

/// Hands out connect tokens over HTTP: POST /v1/tokens.
#[derive(Parser)]
#[command(name = "slipgate-token-issuer", version, after_help = AFTER_HELP)]
pub(crate) struct Flags {
    /// The configuration file, in TOML.
    #[arg(long, value_name = "FILE", env = "SLIPGATE_ISSUER_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,

    /// Where to listen [default: 127.0.0.1:8080]
    #[arg(long, value_name = "IP:PORT", env = "SLIPGATE_ISSUER_BIND", hide_env_values = true)]
    pub(crate) bind: Option<SocketAddr>,

    /// Listen beyond loopback without TLS: tokens hold session keys, so only where the network itself is trusted
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "SLIPGATE_ISSUER_INSECURE_HTTP",
        hide_env_values = true
    )]
    pub(crate) insecure_http: Option<bool>,

    /// The game's protocol id, decimal or 0x…: the same as its servers'
    #[arg(long, value_name = "ID", env = "SLIPGATE_PROTOCOL_ID", hide_env_values = true)]
    pub(crate) protocol_id: Option<ProtocolId>,

    /// A server that tokens may admit to; repeat it for each (in the environment: separated by commas)
    #[arg(
        long = "server",
        value_name = "IP:PORT",
        value_delimiter = ',',
        env = "SLIPGATE_ISSUER_SERVERS",
        hide_env_values = true
    )]
    pub(crate) servers: Vec<SocketAddr>,

    /// The private keys: 64 hexadecimal digits a line, newest first, mode 0600
    #[arg(long, value_name = "FILE", env = "SLIPGATE_KEY_FILE", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,

    /// The digest of an API key, hmac-sha256:…; repeat it to accept several
    // Text, for clap shows what it cannot parse, and people mistake the key for its digest.
    #[arg(
        long = "api-key-digest",
        value_name = "DIGEST",
        value_delimiter = ',',
        env = "SLIPGATE_ISSUER_API_KEY_DIGESTS",
        hide_env_values = true
    )]
    pub(crate) api_key_digests: Vec<String>,

    /// The longest lifetime that a request may ask for [default: 45]
    #[arg(long, value_name = "SECONDS", env = "SLIPGATE_ISSUER_MAX_LIFETIME", hide_env_values = true)]
    pub(crate) max_lifetime: Option<u32>,

    /// The lifetime of a token whose request names none [default: 30]
    #[arg(long, value_name = "SECONDS", env = "SLIPGATE_ISSUER_DEFAULT_LIFETIME", hide_env_values = true)]
    pub(crate) default_lifetime: Option<u32>,

    /// The longest timeout that a request may ask for [default: 60]
    #[arg(long, value_name = "SECONDS", env = "SLIPGATE_ISSUER_MAX_TIMEOUT", hide_env_values = true)]
    pub(crate) max_timeout: Option<u32>,

    /// The timeout of a token whose request names none [default: 5]
    #[arg(long, value_name = "SECONDS", env = "SLIPGATE_ISSUER_DEFAULT_TIMEOUT", hide_env_values = true)]
    pub(crate) default_timeout: Option<u32>,

    /// The most connections at a time [default: 512]
    #[arg(long, value_name = "COUNT", env = "SLIPGATE_ISSUER_MAX_CONNECTIONS", hide_env_values = true)]
    pub(crate) max_connections: Option<usize>,

    /// How the log on stderr looks [default: text]
    #[arg(long, value_enum, env = "SLIPGATE_ISSUER_LOG", hide_env_values = true)]
    pub(crate) log: Option<LogFormat>,
}
