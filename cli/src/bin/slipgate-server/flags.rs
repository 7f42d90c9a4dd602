//! The flags, and the environment variables beside them.
//!
//! Every value is optional here: what is missing may stand in the file. `settings` puts the three together.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use slipgate_cli::log::LogFormat;
use slipgate_cli::values::{Limit, ProtocolId, Span};
use slipgate_server::Dscp;

use crate::app::AppKind;
use crate::settings::SteeringKind;

const AFTER_HELP: &str = "\
A value is taken from the flag, else from the environment variable, else from the configuration file, else it is the \
default. A TIME is written as 250ms, 45s, 1m 30s, 1.5s or 2h; a bare whole number is seconds.

The private keys are never given as flags, because every user of a machine can read command lines: they come from \
--key-file, or from the environment variable SLIPGATE_PRIVATE_KEY (64 hexadecimal digits each, newest first, separated \
by commas).

The configuration file has the flags' names with underscores, and further limits in its table [limits]: \
addresses_per_token, pending_clients, pending_lifetime, challenge_lifetime, history_tokens, strangers_per_tick, \
responses_per_tick, packets_per_client_and_tick, forgeries_per_tick, decrypts_per_source, decrypts, packets_per_turn, time_per_turn.

Signals: SIGTERM and SIGINT deny new clients, wait until all have left or --drain is over, and disconnect the rest; a \
second one does not wait. SIGHUP reads the key file anew, and drops nobody.

Exit status: 0 after SIGTERM or SIGINT, 1 when the system refuses something, 2 when the configuration is wrong.";

/// A dedicated game server: admits holders of connect tokens over UDP, and carries their payloads.
#[derive(Parser)]
#[command(name = "slipgate-server", version, after_help = AFTER_HELP)]
pub(crate) struct Flags {
    /// The configuration file, in TOML
    #[arg(long, value_name = "FILE", env = "SLIPGATE_SERVER_CONFIG", hide_env_values = true)]
    pub(crate) config: Option<PathBuf>,

    /// Where to listen: one IPv4 and one IPv6 address at most (in the environment: separated by a comma); port 0 lets
    /// the system choose [default: 0.0.0.0:40000]
    #[arg(long, value_name = "IP:PORT", value_delimiter = ',', env = "SLIPGATE_SERVER_BIND", hide_env_values = true)]
    pub(crate) bind: Vec<SocketAddr>,

    /// An address under which clients know this server, as it stands in their tokens; repeat it for each [default: the
    /// bound ones, unless one of them is 0.0.0.0 or [::]]
    #[arg(
        long,
        value_name = "IP:PORT",
        value_delimiter = ',',
        env = "SLIPGATE_SERVER_ADVERTISE",
        hide_env_values = true
    )]
    pub(crate) advertise: Vec<SocketAddr>,

    /// The game's protocol id, decimal or 0x…: the same as its token issuer's
    #[arg(long, value_name = "ID", env = "SLIPGATE_PROTOCOL_ID", hide_env_values = true)]
    pub(crate) protocol_id: Option<ProtocolId>,

    /// The private keys: 64 hexadecimal digits a line, newest first, mode 0600
    #[arg(long, value_name = "FILE", env = "SLIPGATE_KEY_FILE", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,

    /// How many clients there is room for, 1 to 65536 [default: 64]
    #[arg(long, value_name = "COUNT", env = "SLIPGATE_SERVER_SLOTS", hide_env_values = true)]
    pub(crate) slots: Option<u32>,

    /// Threads that share the port, each with its own sockets and clients, 1 to 256; more than one on Linux alone
    /// [default: 1]
    #[arg(long, value_name = "COUNT", env = "SLIPGATE_SERVER_SHARDS", hide_env_values = true)]
    pub(crate) shards: Option<u16>,

    /// By what the system chooses a datagram's shard: a hash of its addresses, or the CPU that it arrived on, for network
    /// cards that keep each client on one CPU; of one shard it changes nothing [default: hash]
    #[arg(long, value_enum, env = "SLIPGATE_SERVER_STEERING", hide_env_values = true)]
    pub(crate) steering: Option<SteeringKind>,

    /// Ticks in a second, 10 to 1000; arrivals are answered at once, whatever the tick [default: 60]
    #[arg(long, value_name = "HZ", env = "SLIPGATE_SERVER_TICK", hide_env_values = true)]
    pub(crate) tick: Option<u32>,

    /// What is done with payloads [default: echo]
    #[arg(long, value_enum, env = "SLIPGATE_SERVER_APP", hide_env_values = true)]
    pub(crate) app: Option<AppKind>,

    /// Refuse tokens that expire further off, or accept any with the word unlimited [default: 45s]
    #[arg(long, value_name = "TIME", env = "SLIPGATE_SERVER_MAX_TOKEN_LIFETIME", hide_env_values = true)]
    pub(crate) max_token_lifetime: Option<Limit>,

    /// Remember used tokens in this file, so that tokens from before a restart stay good and used ones stay used
    #[arg(long, value_name = "FILE", env = "SLIPGATE_SERVER_HISTORY", hide_env_values = true)]
    pub(crate) history: Option<PathBuf>,

    /// This server never ran before, or not for as long as tokens live: accept tokens from before its start
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

    /// Let a newer token take over the slot of its client id after so much silence [default: never]
    #[arg(long, value_name = "TIME", env = "SLIPGATE_SERVER_TAKEOVER_AFTER", hide_env_values = true)]
    pub(crate) takeover_after: Option<Span>,

    /// Let tokens switch time-outs off by a negative one, for debuggers: never for the public
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

    /// Mark packets as urgent for routers that heed it: ef, or a DSCP from 0 to 63 [default: default, which is 0]
    #[arg(long, value_name = "DSCP", env = "SLIPGATE_SERVER_DSCP", hide_env_values = true)]
    pub(crate) dscp: Option<Dscp>,

    /// Let the kernel drop junk before it wakes the server (Linux) [default: true]
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

    /// How long to wait for clients to leave when told to stop [default: 5s]
    #[arg(long, value_name = "TIME", env = "SLIPGATE_SERVER_DRAIN", hide_env_values = true)]
    pub(crate) drain: Option<Span>,

    /// How the log on stderr looks [default: text]
    #[arg(long, value_enum, env = "SLIPGATE_SERVER_LOG", hide_env_values = true)]
    pub(crate) log: Option<LogFormat>,
}
