//! The flags, and their environment variables.
//!
//! Every value is optional here, because the configuration file may supply it. `settings` merges the three.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use slipgate_cli::core_dumps::CoreDumps;
use slipgate_cli::log::{LogFormat, LogLevel};
use slipgate_cli::values::{Limit, ProtocolId, Span};
use slipgate_server::sockets::Dscp;

use crate::app::AppKind;
use crate::steering::{SteeringKind, WakeKind};

const AFTER_HELP: &str = "\
Precedence: flag, environment variable, configuration file, default. A TIME is written as 250ms, 45s, 1m 30s, 1.5s or \
2h; a whole number without a unit is in seconds.

Private keys are never flags, because every user of a machine can read command lines. They come from --key-file, or \
from the environment variable SLIPGATE_PRIVATE_KEY (64 hexadecimal digits each, newest first, separated by commas).

The configuration file has the flags' names with underscores, and further limits in its table [limits]: \
addresses_per_token, pending_clients, pending_lifetime, challenge_lifetime, history_tokens, tokens_per_client_id, \
strangers_per_turn, responses_per_turn, packets_per_client_and_turn, forgeries_per_turn, decrypts_per_source, \
decrypts, packets_per_turn, time_per_turn.

Signals: SIGTERM and SIGINT deny new clients after --shutdown-delay, wait at most --drain for the others to leave, \
then disconnect the rest. A second signal stops at once. SIGHUP reads the files of keys, of the \
admin token and of the issuer's authorities again; all clients stay connected.

Exit status: 0 after SIGTERM or SIGINT, 1 if the system refuses something, 2 if the configuration is wrong.";

/// Dedicated game server: accepts clients with valid connect tokens over UDP and echoes or relays their payloads.
#[derive(Parser)]
#[command(name = "slipgate-server", version, after_help = AFTER_HELP)]
pub(crate) struct Flags {
    /// The configuration file, in TOML
    #[arg(long, value_name = "FILE", env = "SLIPGATE_SERVER_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,

    /// Listen on this address; at most one IPv4 and one IPv6 address (in the environment: separated by a comma). Port 0
    /// lets the system choose [default: 0.0.0.0:40000]
    #[arg(long, value_name = "IP:PORT", value_delimiter = ',', env = "SLIPGATE_SERVER_BIND", hide_env_values = true)]
    pub(crate) bind: Vec<SocketAddr>,

    /// Public address of this server, as listed in connect tokens; may be repeated [default: the addresses of --bind,
    /// unless one of them is 0.0.0.0 or ::]
    #[arg(
        long,
        value_name = "IP:PORT",
        value_delimiter = ',',
        env = "SLIPGATE_SERVER_ADVERTISE",
        hide_env_values = true
    )]
    pub(crate) advertise: Vec<SocketAddr>,

    /// The game's protocol id, decimal or 0x…; must equal the token issuer's
    #[arg(long, value_name = "ID", env = "SLIPGATE_PROTOCOL_ID", hide_env_values = true)]
    pub(crate) protocol_id: Option<ProtocolId>,

    /// File with the private keys: 64 hexadecimal digits per line, newest first, mode 0600
    #[arg(long, value_name = "FILE", env = "SLIPGATE_KEY_FILE", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,

    /// Maximum number of connected clients, 1 to 65536 [default: 64]
    #[arg(long, value_name = "COUNT", env = "SLIPGATE_SERVER_SLOTS", hide_env_values = true)]
    pub(crate) slots: Option<u32>,

    /// Number of threads that share the port, each with its own sockets and clients, 1 to 256; more than 1 only on
    /// Linux [default: 1]
    #[arg(long, value_name = "COUNT", env = "SLIPGATE_SERVER_SHARDS", hide_env_values = true)]
    pub(crate) shards: Option<u16>,

    /// How the system chooses a datagram's shard: by a hash of its addresses, or by the CPU that it arrived on (only
    /// for network cards that keep each client on one CPU). No effect with one shard [default: hash]
    #[arg(long, value_enum, env = "SLIPGATE_SERVER_STEERING", hide_env_values = true)]
    pub(crate) steering: Option<SteeringKind>,

    /// Ticks per second, 10 to 1000. Received packets do not wait for the next tick [default: 60]
    #[arg(long, value_name = "HZ", env = "SLIPGATE_SERVER_TICK", hide_env_values = true)]
    pub(crate) tick: Option<u32>,

    /// How soon a datagram wakes the server: up to 1.8 ms later under load, with others that arrive meanwhile, or at
    /// once [default: adaptive]
    #[arg(long, value_enum, env = "SLIPGATE_SERVER_WAKE", hide_env_values = true)]
    pub(crate) wake: Option<WakeKind>,

    /// How payloads are handled [default: echo]
    #[arg(long, value_enum, env = "SLIPGATE_SERVER_APP", hide_env_values = true)]
    pub(crate) app: Option<AppKind>,

    /// Refuse tokens that expire later than this from now; `unlimited` accepts all [default: 45s]
    #[arg(long, value_name = "TIME", env = "SLIPGATE_SERVER_MAX_TOKEN_LIFETIME", hide_env_values = true)]
    pub(crate) max_token_lifetime: Option<Limit>,

    /// Record used tokens in this file, so that after a restart unused tokens stay valid and used ones stay refused
    #[arg(long, value_name = "FILE", env = "SLIPGATE_SERVER_HISTORY", hide_env_values = true)]
    pub(crate) history: Option<PathBuf>,

    /// Accept tokens minted before this start: safe only if the server never ran, or not within a token's lifetime
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "SLIPGATE_SERVER_FIRST_START",
        hide_env_values = true
    )]
    pub(crate) first_start: Option<bool>,

    /// Let a newer token take over its client id's slot once nothing was received for this long; 0: never [default: 1s]
    #[arg(long, value_name = "TIME", env = "SLIPGATE_SERVER_TAKEOVER_AFTER", hide_env_values = true)]
    pub(crate) takeover_after: Option<Span>,

    /// Let tokens with a negative timeout disable timeouts, for use with debuggers; never on a public server
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "SLIPGATE_SERVER_DEVELOPMENT",
        hide_env_values = true
    )]
    pub(crate) development: Option<bool>,

    /// Mark packets as urgent for routers: ef, or a DSCP from 0 to 63 [default: default, which is 0]
    #[arg(long, value_name = "DSCP", env = "SLIPGATE_SERVER_DSCP", hide_env_values = true)]
    pub(crate) dscp: Option<Dscp>,

    /// Let the kernel drop invalid datagrams before they wake the server (Linux) [default: true]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "SLIPGATE_SERVER_KERNEL_FILTER",
        hide_env_values = true
    )]
    pub(crate) kernel_filter: Option<bool>,

    /// How long to wait for clients to leave after a stop signal [default: 5s]
    #[arg(long, value_name = "TIME", env = "SLIPGATE_SERVER_DRAIN", hide_env_values = true)]
    pub(crate) drain: Option<Span>,

    /// How long new clients are still admitted after a stop signal, while /readyz and heartbeats already refuse them:
    /// load balancers and tokens need that time. The drain follows [default: 0s]
    #[arg(long, value_name = "TIME", env = "SLIPGATE_SERVER_SHUTDOWN_DELAY", hide_env_values = true)]
    pub(crate) shutdown_delay: Option<Span>,

    /// Serve health, metrics, clients, kicks and a drain by HTTP at this address; port 0 lets the system choose.
    /// Without --admin-token-file only loopback addresses are allowed [default: none]
    #[arg(long, value_name = "IP:PORT", env = "SLIPGATE_SERVER_ADMIN", hide_env_values = true)]
    pub(crate) admin: Option<SocketAddr>,

    /// File with the token that admin requests must show as `Authorization: Bearer TOKEN`, mode 0600 [default: none]
    #[arg(long, value_name = "FILE", env = "SLIPGATE_SERVER_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// Report the life cycle to Agones, by the REST gateway of its sidecar at the port of AGONES_SDK_HTTP_PORT or 9358.
    /// Without --advertise, the address comes from Agones [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "SLIPGATE_SERVER_AGONES",
        hide_env_values = true
    )]
    pub(crate) agones: Option<bool>,

    /// Start this program at each new state of the life cycle, with the variables SLIPGATE_STATE,
    /// SLIPGATE_PREVIOUS_STATE, SLIPGATE_CONNECTED and SLIPGATE_SLOTS [default: none]
    #[arg(long, value_name = "FILE", env = "SLIPGATE_SERVER_HOOK_COMMAND", hide_env_values = true)]
    pub(crate) hook_command: Option<PathBuf>,

    /// Post each new state of the life cycle to this URL, as JSON [default: none]
    #[arg(long, value_name = "URL", env = "SLIPGATE_SERVER_HOOK_URL", hide_env_values = true)]
    pub(crate) hook_url: Option<String>,

    /// End an allocated server that has had no clients for this long, also if none has ever connected; 0: never
    /// [default: 2m with --agones, otherwise 0]
    #[arg(long, value_name = "TIME", env = "SLIPGATE_SERVER_END_WHEN_EMPTY", hide_env_values = true)]
    pub(crate) end_when_empty: Option<Span>,

    /// Register with this token issuer, so that backends can request tokens for a group of servers; may be repeated for
    /// issuers that share one registry [default: none]
    #[arg(long, value_name = "URL", value_delimiter = ',', env = "SLIPGATE_SERVER_ISSUER", hide_env_values = true)]
    pub(crate) issuer: Vec<String>,

    /// File with the API key for the registration, mode 0600; with --issuer
    #[arg(long, value_name = "FILE", env = "SLIPGATE_SERVER_ISSUER_KEY_FILE", hide_env_values = true)]
    pub(crate) issuer_key_file: Option<PathBuf>,

    /// File with authorities of the issuer's certificate in PEM, instead of the public ones; with --issuer https://…
    /// [default: none]
    #[arg(long, value_name = "FILE", env = "SLIPGATE_SERVER_ISSUER_CA_FILE", hide_env_values = true)]
    pub(crate) issuer_ca_file: Option<PathBuf>,

    /// Name of this server, unique among those of the issuer: up to 64 of A-Z a-z 0-9 . _ -; with --issuer
    #[arg(long, value_name = "NAME", env = "SLIPGATE_SERVER_ID", hide_env_values = true)]
    pub(crate) server_id: Option<String>,

    /// Group of servers that this one belongs to; with --issuer
    #[arg(long, value_name = "NAME", env = "SLIPGATE_SERVER_GROUP", hide_env_values = true)]
    pub(crate) group: Option<String>,

    /// Region of this server; with --issuer [default: none]
    #[arg(long, value_name = "NAME", env = "SLIPGATE_SERVER_REGION", hide_env_values = true)]
    pub(crate) region: Option<String>,

    /// Send the clients to other servers of the group at a drain, with tokens of the issuer. The API key needs the
    /// permission to mint; clients without channels stay [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "SLIPGATE_SERVER_REDIRECT",
        hide_env_values = true
    )]
    pub(crate) redirect: Option<bool>,

    /// Send no client to another region at a drain; with --redirect and --region [default: false]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "SLIPGATE_SERVER_REDIRECT_IN_REGION",
        hide_env_values = true
    )]
    pub(crate) redirect_in_region: Option<bool>,

    /// Build of the game, for readers of the issuer's list of servers [default: none]
    #[arg(long, value_name = "TEXT", env = "SLIPGATE_SERVER_BUILD", hide_env_values = true)]
    pub(crate) build: Option<String>,

    /// Format of the log on stderr [default: text]
    #[arg(long, value_enum, env = "SLIPGATE_SERVER_LOG", hide_env_values = true)]
    pub(crate) log: Option<LogFormat>,

    #[command(flatten)]
    pub(crate) core_dumps: CoreDumps,

    /// Least important lines of the log; debug explains each handshake [default: the variable RUST_LOG, else info]
    #[arg(long, value_enum, env = "SLIPGATE_SERVER_LOG_LEVEL", hide_env_values = true)]
    pub(crate) log_level: Option<LogLevel>,
}
