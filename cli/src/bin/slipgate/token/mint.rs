//! `slipgate token mint`: mints a connect token without an issuer.

use std::net::SocketAddr;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use slipgate_cli::Failure;
use slipgate_cli::values::ProtocolId;
use slipgate_netcode::address::is_dialable;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::USER_DATA_BYTES;
use slipgate_netcode::wire::token::Servers;
use slipgate_os::clock::wall_clock;
use slipgate_token_issuer::key_file::read_key_file;
use zeroize::Zeroizing;

use crate::keygen::entropy;
use crate::secret_file::{self, Existing};
use slipgate_cli::output::print_line;

#[derive(Args)]
pub(crate) struct MintFlags {
    /// File with the private keys; the newest seals the token
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,

    /// The game's protocol id, decimal or 0x…
    #[arg(long, value_name = "ID")]
    protocol_id: ProtocolId,

    /// The player's client id
    #[arg(long, value_name = "ID")]
    client_id: u64,

    /// Server that the client tries; up to 32, in this order
    #[arg(long = "server", value_name = "IP:PORT", required = true)]
    servers: Vec<SocketAddr>,

    /// Address by which the server identifies itself, if it differs; one for each --server
    #[arg(long = "internal-server", value_name = "IP:PORT")]
    internal_servers: Vec<SocketAddr>,

    /// Lifetime of the token; Slipgate servers accept at most 45 by default
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    lifetime: u32,

    /// Timeout of the connection; negative disables it (development)
    #[arg(long, value_name = "SECONDS", default_value_t = 5, allow_negative_numbers = true)]
    timeout: i32,

    /// Data for the game server: up to 256 bytes, in base64
    #[arg(long, value_name = "BASE64", default_value = "")]
    user_data: String,

    /// Write 2048 bytes to this new file (mode 0600) instead of base64 to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn run(flags: &MintFlags) -> Result<(), Failure> {
    let keys = read_key_file(&flags.key_file).map_err(|error| Failure::run_time(error.to_string()))?;
    let newest = keys.first().ok_or_else(|| Failure::run_time("the key file holds no key"))?;
    let servers = servers(&flags.servers)?;
    let internal = if flags.internal_servers.is_empty() { None } else { Some(servers_of(&flags.internal_servers)?) };
    let claims = Claims {
        protocol_id: flags.protocol_id.0,
        client_id: flags.client_id.into(),
        servers: &servers,
        internal_servers: internal.as_ref(),
        lifetime_seconds: flags.lifetime,
        timeout_seconds: flags.timeout,
        user_data: &user_data(&flags.user_data)?,
    };
    let token =
        issue(&claims, newest, wall_clock(), &mut entropy()?).map_err(|error| Failure::usage(error.to_string()))?;
    match &flags.out {
        Some(path) => secret_file::write(path, token.as_bytes(), Existing::Refuse),
        None => {
            print_line(&Zeroizing::new(STANDARD.encode(token.as_bytes())));
            Ok(())
        }
    }
}

fn servers(addresses: &[SocketAddr]) -> Result<Servers, Failure> {
    match addresses.iter().find(|address| !is_dialable(**address)) {
        Some(address) => Err(Failure::usage(format!("clients cannot send to {address}"))),
        None => servers_of(addresses),
    }
}

fn servers_of(addresses: &[SocketAddr]) -> Result<Servers, Failure> {
    Servers::new(addresses).ok_or_else(|| Failure::usage("a token lists 1 to 32 servers"))
}

fn user_data(text: &str) -> Result<[u8; USER_DATA_BYTES], Failure> {
    let bytes = STANDARD.decode(text).map_err(|_| Failure::usage("user data must be base64"))?;
    let mut padded = [0; USER_DATA_BYTES];
    padded
        .get_mut(..bytes.len())
        .ok_or_else(|| Failure::usage(format!("user data has at most {USER_DATA_BYTES} bytes")))?
        .copy_from_slice(&bytes);
    Ok(padded)
}
