//! `slipgate doctor`: checks a deployment from outside, as a backend and a player see it.
//!
//! ```text
//!  issuer: health, clock ─▶ token: servers, times ─▶ each server: handshake, sizes ─▶ findings
//!  admin port: health, clock, drops before and after the handshake ───────────────────┘
//! ```

mod checks;
mod finding;
mod handshake;
mod http_date;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use slipgate_cli::Failure;
use slipgate_cli::output::print_line;

use self::checks::examine;
use self::finding::Severity;
use crate::admin_http::AdminPort;

pub(crate) const AFTER_HELP: &str = "\
Each finding is a sentence, and each problem has a remedy. With --admin the doctor also reads which datagrams the \
server drops while it connects, which distinguishes a wrong key from a wrong address. It connects as the client id of \
--client-id, sends some payloads and leaves: choose an id that no player has.

Exit status: 0 if nothing is wrong, 5 otherwise; 2 if a flag is wrong.";

/// The status if something is wrong.
const PROBLEMS: u8 = 5;

#[derive(Args)]
pub(crate) struct DoctorFlags {
    /// The token issuer, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    pub(super) issuer: String,

    /// File with the issuer's API key, mode 0600 [default: the environment variable SLIPGATE_API_KEY]
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,

    /// Client id of the doctor
    #[arg(long, value_name = "ID", default_value_t = u64::MAX)]
    pub(super) client_id: u64,

    /// Check this server; may be repeated [default: all servers of the issuer]
    #[arg(long, value_name = "IP:PORT")]
    pub(super) server: Vec<SocketAddr>,

    /// The admin port of the server: IP:PORT, or a URL [default: none]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,

    /// File with the token of the admin port, mode 0600 [default: none]
    #[arg(long, value_name = "FILE", requires = "admin")]
    admin_token_file: Option<PathBuf>,

    /// Print one JSON object per finding
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(flags: &DoctorFlags) -> Result<(), Failure> {
    let key = crate::api_key::read(flags.api_key_file.as_deref())?;
    let admin = flags.admin.as_deref().map(|url| AdminPort::new(url, flags.admin_token_file.as_deref())).transpose()?;
    let findings = examine(flags, &key, admin.as_ref());
    findings.iter().for_each(|finding| print_line(&finding.show(flags.json)));
    let problems = findings.iter().filter(|finding| finding.severity == Severity::Problem).count();
    match problems {
        0 => Ok(()),
        1 => Err(Failure::with_status("1 problem was found", PROBLEMS)),
        more => Err(Failure::with_status(format!("{more} problems were found"), PROBLEMS)),
    }
}
