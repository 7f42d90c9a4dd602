//! The flags of `slipgate doctor`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use slipgate_cli::issuer_authorities::IssuerCaFile;
use slipgate_cli::values::ProtocolId;

use crate::group::GroupFlags;

#[derive(Args)]
pub(crate) struct DoctorFlags {
    /// The token issuer, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    pub(super) issuer: String,

    /// File with the issuer's API key, mode 0600 [default: the environment variable SLIPGATE_API_KEY]
    #[arg(long, value_name = "FILE")]
    pub(super) api_key_file: Option<PathBuf>,

    #[command(flatten)]
    pub(super) issuer_ca_file: IssuerCaFile,

    /// Client id of the doctor
    #[arg(long, value_name = "ID", default_value_t = u64::MAX)]
    pub(super) client_id: u64,

    #[command(flatten)]
    pub(super) group: GroupFlags,

    /// The game's protocol id, for an issuer with several games
    #[arg(long, value_name = "ID")]
    pub(super) protocol_id: Option<ProtocolId>,

    /// Check this server; may be repeated [default: all servers of the issuer]
    #[arg(long, value_name = "IP:PORT")]
    pub(super) server: Vec<SocketAddr>,

    /// The admin port of the server that is checked: IP:PORT, or a URL [default: none]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) admin: Option<String>,

    /// File with the token of the admin port, mode 0600 [default: none]
    #[arg(long, value_name = "FILE", requires = "admin")]
    pub(super) admin_token_file: Option<PathBuf>,

    /// Print one JSON object per finding
    #[arg(long)]
    pub(super) json: bool,
}
