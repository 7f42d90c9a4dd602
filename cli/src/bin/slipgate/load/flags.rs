//! The flags of `slipgate load`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::Args;
use slipgate_cli::issuer_authorities::IssuerCaFile;
use slipgate_cli::values::{ProtocolId, Span};
use slipgate_sim::Preset;

use crate::group::GroupFlags;

/// The smallest payload: the mark, the number and the time of sending.
pub(super) const MIN_BYTES: u16 = 24;
/// The largest payload of netcode.
const MAX_BYTES: u16 = 1200;
/// The most threads that are used by default.
const MAX_DEFAULT_THREADS: usize = 4;

#[derive(Args)]
pub(crate) struct LoadFlags {
    /// Number of clients, 1 to 50000
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub(super) clients: u32,

    /// Time over which the clients begin to connect, evenly
    #[arg(long, value_name = "TIME", default_value = "5s")]
    pub(super) ramp: Span,

    /// How long to go on after the ramp
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    pub(super) duration: Span,

    /// Payloads per second of each client, 1 to 1000
    #[arg(long, value_name = "HZ", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rate: u32,

    /// Size of each payload in bytes, 24 to 1200
    #[arg(long, value_name = "BYTES", default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(i64::from(MIN_BYTES)..=i64::from(MAX_BYTES)))]
    pub(super) size: u16,

    /// Give each client a simulated line: wifi-bad, 4g, satellite or dsl-bufferbloat [default: none]
    #[arg(long, value_name = "NAME")]
    pub(super) preset: Option<Preset>,

    /// Threads for the clients [default: the number of cores, at most 4]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: Option<u16>,

    /// Client id of the first client; the others follow
    #[arg(long, value_name = "ID", default_value_t = 1)]
    pub(super) first_client_id: u64,

    /// Fetch tokens from this issuer, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL", conflicts_with = "key_file", required_unless_present = "key_file")]
    pub(super) issuer: Option<String>,

    /// File with the issuer's API key, mode 0600 [default: the environment variable SLIPGATE_API_KEY]
    #[arg(long, value_name = "FILE", requires = "issuer")]
    pub(super) api_key_file: Option<PathBuf>,

    #[command(flatten)]
    pub(super) issuer_ca_file: IssuerCaFile,

    /// Mint tokens with the private keys of this file, without an issuer
    // clap demands no `issuer` for a flag that requires one if another flag excludes the issuer.
    #[arg(long, value_name = "FILE", requires = "protocol_id", requires = "server",
        conflicts_with_all = ["issuer_ca_file", "api_key_file"])]
    pub(super) key_file: Option<PathBuf>,

    /// The game's protocol id, decimal or 0x…; with --key-file, or for an issuer with several games
    #[arg(long, value_name = "ID")]
    pub(super) protocol_id: Option<ProtocolId>,

    #[command(flatten)]
    pub(super) group: GroupFlags,

    /// Server to connect to; may be repeated. With --issuer one that it allows [default: all servers of the issuer]
    #[arg(long, value_name = "IP:PORT")]
    pub(super) server: Vec<SocketAddr>,

    /// Print the report as one JSON object, and no progress
    #[arg(long)]
    pub(super) json: bool,
}

impl LoadFlags {
    /// Returns the number of threads.
    pub(super) fn threads(&self) -> usize {
        let default = || available_parallelism().map_or(1, usize::from).min(MAX_DEFAULT_THREADS);
        self.threads.map_or_else(default, usize::from).min(self.clients as usize)
    }

    /// Returns the time between two payloads of a client.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.rate
    }
}
