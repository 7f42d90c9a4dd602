//! `slipgate doctor`: checks a deployment from outside, as a backend and a player see it.
//!
//! ```text
//!  issuer: health, clock, key ─▶ token: servers, times ─▶ each server: handshake, sizes ─▶ findings
//!  admin port: health, clock, keys, clients, drops before and after the handshake ─────────┘
//! ```

mod checks;
mod clocks;
mod finding;
mod flags;
mod handshake;
mod http_date;
mod issuer;
mod keys;
mod server_metrics;

use slipgate_cli::Failure;
use slipgate_cli::output::print_line;

use self::checks::examine;
use self::finding::Severity;
pub(crate) use self::flags::DoctorFlags;
use self::issuer::IssuerAccess;
use crate::http_port::HttpPort;

pub(crate) const AFTER_HELP: &str = "\
Each finding is a sentence, and each problem has a remedy. With --admin the doctor also reads which datagrams the \
server drops while it connects, which distinguishes a wrong key from a wrong address. It connects as the client id of \
--client-id, sends some payloads and leaves: choose an id that no player has. With --group it checks the server that \
the issuer chooses, and warns if --admin is the port of another one.

Exit status: 0 if nothing is wrong, 5 otherwise; 2 if a flag is wrong.";

/// The status if something is wrong.
const PROBLEMS: u8 = 5;

pub(crate) fn run(flags: &DoctorFlags) -> Result<(), Failure> {
    let access = IssuerAccess {
        url: flags.issuer.clone(),
        key: crate::api_key::read(flags.api_key_file.as_deref())?,
        authorities: flags.issuer_ca_file.read(&flags.issuer)?,
    };
    let admin =
        flags.admin.as_deref().map(|url| HttpPort::of_admin(url, flags.admin_token_file.as_deref())).transpose()?;
    let findings = examine(flags, &access, admin.as_ref());
    findings.iter().for_each(|finding| print_line(&finding.show(flags.json)));
    let problems = findings.iter().filter(|finding| finding.severity == Severity::Problem).count();
    match problems {
        0 => Ok(()),
        1 => Err(Failure::with_status("1 problem was found", PROBLEMS)),
        more => Err(Failure::with_status(format!("{more} problems were found"), PROBLEMS)),
    }
}
