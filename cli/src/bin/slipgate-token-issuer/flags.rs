//! The flags, and their environment variables.
//!
//! Every value is optional here, because the configuration file may supply it. `settings` merges the three.

use std::path::PathBuf;

use clap::Parser;
use slipgate_cli::core_dumps::CoreDumps;
use slipgate_cli::log::{LogFormat, LogLevel};
use slipgate_cli::values::{ProtocolId, Span};

use crate::values::{AllowedServer, BindAddress, SocketMode};

const AFTER_HELP: &str = "\
Precedence: flag, environment variable, configuration file, default.

Keys are never flags, because every user of a machine can read command lines:
  The private keys, shared with the game servers, come from --key-file, or from the environment variable
  SLIPGATE_PRIVATE_KEY (64 hexadecimal digits each, newest first, separated by commas).
  The API keys of backends are configured as digests: `slipgate keygen --bearer` creates a key and its digest.

Signals: SIGTERM and SIGINT wait for --shutdown-delay, finish the open requests, then stop; a second signal stops at \
once. SIGHUP reads the key file, the configuration file, the certificates and the key set of players again: private \
keys, API keys, servers and token limits change, and no request is lost.

Exit status: 0 after SIGTERM or SIGINT, 1 if the system refuses something, 2 if the configuration is wrong.";

/// Issues connect tokens over HTTP: POST /v1/tokens.
#[derive(Parser, Clone)]
#[command(name = "slipgate-token-issuer", version, after_help = AFTER_HELP)]
pub(crate) struct Flags {
    /// The configuration file, in TOML
    #[arg(long, value_name = "FILE", env = "SLIPGATE_ISSUER_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,

    /// Listen on this address, or on a Unix socket as unix:/run/issuer.sock [default: 127.0.0.1:8080]
    #[arg(long, value_name = "IP:PORT", env = "SLIPGATE_ISSUER_BIND", hide_env_values = true)]
    pub(crate) bind: Option<BindAddress>,

    /// Mode of the Unix socket, in octal digits: the users that may connect [default: 0600]
    #[arg(long, value_name = "MODE", env = "SLIPGATE_ISSUER_SOCKET_MODE", hide_env_values = true)]
    pub(crate) socket_mode: Option<SocketMode>,

    /// File with the certificates for TLS in PEM, the issuer's own first; needs --tls-key-file
    #[arg(long, value_name = "FILE", env = "SLIPGATE_ISSUER_TLS_CERTIFICATE_FILE", hide_env_values = true)]
    pub(crate) tls_certificate_file: Option<PathBuf>,

    /// File with the private key of the certificate in PEM, mode 0600
    #[arg(long, value_name = "FILE", env = "SLIPGATE_ISSUER_TLS_KEY_FILE", hide_env_values = true)]
    pub(crate) tls_key_file: Option<PathBuf>,

    /// Allow plain HTTP beyond loopback; tokens hold session keys, so use it only on a trusted network
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

    /// The game's protocol id, decimal or 0x…; must equal that of its servers
    #[arg(long, value_name = "ID", env = "SLIPGATE_PROTOCOL_ID", hide_env_values = true)]
    pub(crate) protocol_id: Option<ProtocolId>,

    /// Server that tokens may list, or a network with ports as 10.0.0.0/8:40000-40999 or
    /// [2001:db8::/32]:40000-40999; may be repeated (in the environment: separated by commas)
    #[arg(
        long = "server",
        value_name = "IP:PORT",
        value_delimiter = ',',
        env = "SLIPGATE_ISSUER_SERVERS",
        hide_env_values = true
    )]
    pub(crate) servers: Vec<AllowedServer>,

    /// Where registered game servers are kept: a file, `memory`, or redis://HOST:PORT/DATABASE [default: the file
    /// registry.redb in the state directory of systemd, otherwise in the working directory]
    #[arg(long, value_name = "STORE", env = "SLIPGATE_ISSUER_REGISTRY", hide_env_values = true)]
    // Kept as text: clap quotes a value that it cannot parse, and a URL may hold a password by mistake.
    pub(crate) registry: Option<String>,

    /// Name of the registry in Redis; issuers with the same name share it [default: default]
    #[arg(long, value_name = "NAME", env = "SLIPGATE_ISSUER_REGISTRY_NAME", hide_env_values = true)]
    pub(crate) registry_name: Option<String>,

    /// File with the password of Redis, mode 0600
    #[arg(long, value_name = "FILE", env = "SLIPGATE_ISSUER_REGISTRY_PASSWORD_FILE", hide_env_values = true)]
    pub(crate) registry_password_file: Option<PathBuf>,

    /// Name in the Host header of requests; may be repeated, other names get status 421 [default: any name]
    #[arg(
        long = "host",
        value_name = "NAME",
        value_delimiter = ',',
        env = "SLIPGATE_ISSUER_HOSTS",
        hide_env_values = true
    )]
    pub(crate) hosts: Vec<String>,

    /// File with the private keys: 64 hexadecimal digits per line, newest first, mode 0600
    #[arg(long, value_name = "FILE", env = "SLIPGATE_KEY_FILE", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,

    /// Digest of an API key, hmac-sha256:…; may be repeated (in the environment: separated by commas)
    // Kept as text: clap quotes a value that it cannot parse, and users confuse the key with its digest.
    #[arg(
        long = "api-key-digest",
        value_name = "DIGEST",
        value_delimiter = ',',
        env = "SLIPGATE_ISSUER_API_KEY_DIGESTS",
        hide_env_values = true
    )]
    pub(crate) api_key_digests: Vec<String>,

    /// Longest token lifetime that a request may ask for [default: 45]
    #[arg(long, value_name = "SECONDS", env = "SLIPGATE_ISSUER_MAX_LIFETIME", hide_env_values = true)]
    pub(crate) max_lifetime: Option<u32>,

    /// Token lifetime if the request gives none [default: 30]
    #[arg(long, value_name = "SECONDS", env = "SLIPGATE_ISSUER_DEFAULT_LIFETIME", hide_env_values = true)]
    pub(crate) default_lifetime: Option<u32>,

    /// Longest connection timeout that a request may ask for [default: 60]
    #[arg(long, value_name = "SECONDS", env = "SLIPGATE_ISSUER_MAX_TIMEOUT", hide_env_values = true)]
    pub(crate) max_timeout: Option<u32>,

    /// Connection timeout if the request gives none [default: 5]
    #[arg(long, value_name = "SECONDS", env = "SLIPGATE_ISSUER_DEFAULT_TIMEOUT", hide_env_values = true)]
    pub(crate) default_timeout: Option<u32>,

    /// Maximum number of simultaneous HTTP connections [default: 512]
    #[arg(long, value_name = "COUNT", env = "SLIPGATE_ISSUER_MAX_CONNECTIONS", hide_env_values = true)]
    pub(crate) max_connections: Option<usize>,

    /// Maximum number of HTTP connections from one address that have not authenticated [default: 64]
    #[arg(long, value_name = "COUNT", env = "SLIPGATE_ISSUER_MAX_CONNECTIONS_PER_ADDRESS", hide_env_values = true)]
    pub(crate) max_connections_per_address: Option<usize>,

    /// Maximum number of tokens for one client id per minute, at least 1; more get status 429 [default: unlimited]
    #[arg(long, value_name = "COUNT", env = "SLIPGATE_ISSUER_MAX_TOKENS_PER_MINUTE", hide_env_values = true)]
    pub(crate) max_tokens_per_minute: Option<u32>,

    /// How long requests are still served after a stop signal, while /readyz already returns 503: load balancers need
    /// that time [default: 0s]
    #[arg(long, value_name = "TIME", env = "SLIPGATE_ISSUER_SHUTDOWN_DELAY", hide_env_values = true)]
    pub(crate) shutdown_delay: Option<Span>,

    /// Format of the log on stderr [default: text]
    #[arg(long, value_enum, env = "SLIPGATE_ISSUER_LOG", hide_env_values = true)]
    pub(crate) log: Option<LogFormat>,

    #[command(flatten)]
    pub(crate) core_dumps: CoreDumps,

    /// Least important lines of the log; debug explains each handshake [default: the variable RUST_LOG, else info]
    #[arg(long, value_enum, env = "SLIPGATE_ISSUER_LOG_LEVEL", hide_env_values = true)]
    pub(crate) log_level: Option<LogLevel>,
}
