//! The flags. Keys come from a file or the environment, never from a flag.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Parser;
use slipgate_cli::core_dumps::CoreDumps;
use slipgate_cli::issuer_authorities::IssuerCaFile;
use slipgate_cli::values::{ProtocolId, Span};
use slipgate_cli::{Failure, usage};
use slipgate_client::fetch::CertificateAuthorities;
use slipgate_client::probe::MIN_PROBE_BYTES;
use slipgate_client::sockets::Dscp;
use slipgate_netcode::ids::ClientId;

/// The environment variable that holds the issuer's API key if no file is given.
pub(crate) const API_KEY_VARIABLE: &str = "SLIPGATE_API_KEY";

const AFTER_HELP: &str = "\
The issuer's API key comes from --api-key-file or from the environment variable SLIPGATE_API_KEY. A shipped game must \
not hold this key: it gets its token from the game's backend.

Exit status: 0 every echo arrived and was correct, 1 no token or the system refused something, 2 wrong flags, 3 not \
connected, 4 the connection ended early, 5 echoes were wrong or missing.";

/// Test client: connects to a game server, sends payloads and checks their echoes.
#[derive(Parser)]
#[command(name = "slipgate-client", version, after_help = AFTER_HELP)]
pub(crate) struct Flags {
    /// Request the connect token from this token issuer
    #[arg(long, value_name = "URL", conflicts_with = "token")]
    issuer: Option<String>,

    /// The client id to request a token for
    #[arg(long, value_name = "ID", conflicts_with = "token")]
    client_id: Option<u64>,

    /// Server to list in the token; may be repeated [default: all servers of the issuer]
    #[arg(long = "server", value_name = "IP:PORT", conflicts_with = "token")]
    pub(crate) servers: Vec<SocketAddr>,

    /// Request the token for this group of servers that register with the issuer
    #[arg(long, value_name = "NAME", conflicts_with_all = ["token", "servers"])]
    pub(crate) group: Option<String>,

    /// Preferred region of the group; may be repeated, the best one first
    #[arg(long = "region", value_name = "NAME", requires = "group", conflicts_with_all = ["token", "servers"])]
    pub(crate) regions: Vec<String>,

    /// The game's protocol id, decimal or 0x…; for an issuer with several games
    #[arg(long, value_name = "ID", conflicts_with = "token")]
    pub(crate) protocol_id: Option<ProtocolId>,

    /// File with the issuer's API key
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) api_key_file: Option<PathBuf>,

    #[command(flatten)]
    issuer_ca_file: IssuerCaFile,

    /// File with a connect token: 2048 bytes, or base64; - for standard input
    // clap demands no `issuer` for a flag that requires one if another flag excludes the issuer.
    #[arg(long, value_name = "FILE", conflicts_with = "issuer_ca_file")]
    token: Option<PathBuf>,

    /// Payloads per second
    #[arg(long, value_name = "HZ", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rate: u32,

    /// Payload size in bytes: one number, or MIN-MAX, within 16-1200
    #[arg(long = "size", value_name = "BYTES", default_value = "16-1200")]
    pub(crate) sizes: Sizes,

    /// How long to send after connecting [default: until Ctrl-C or SIGTERM]
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) duration: Option<Span>,

    /// Send from this local address [default: any]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) bind: Option<SocketAddr>,

    /// Mark packets as urgent for routers: ef, or a DSCP from 0 to 63
    #[arg(long, value_name = "DSCP", default_value_t)]
    pub(crate) dscp: Dscp,

    /// Print one JSON object per line instead of text
    #[arg(long)]
    pub(crate) json: bool,

    /// Let a token with a negative timeout disable timeouts
    #[arg(long)]
    pub(crate) development: bool,

    #[command(flatten)]
    pub(crate) core_dumps: CoreDumps,
}

/// The source of the token.
pub(crate) enum TokenSource {
    File(PathBuf),
    Issuer { url: String, client_id: ClientId, authorities: Option<CertificateAuthorities> },
}

impl Flags {
    /// Parses the flags.
    ///
    /// # Errors
    /// A usage failure if they are wrong or name no source of the token.
    pub(crate) fn read() -> Result<(Self, TokenSource), Failure> {
        let flags: Self = usage::parse()?;
        let source = match (&flags.token, &flags.issuer, flags.client_id) {
            (Some(path), ..) => TokenSource::File(path.clone()),
            (None, Some(url), Some(client_id)) => {
                let authorities = flags.issuer_ca_file.read(url)?;
                TokenSource::Issuer { url: url.clone(), client_id: client_id.into(), authorities }
            }
            _ => return Err(Failure::usage("give --token FILE, or --issuer URL with --client-id ID")),
        };
        Ok((flags, source))
    }
}

/// The range of payload sizes, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) RangeInclusive<usize>);

impl std::str::FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |text: &str| text.trim().parse::<usize>().map_err(|_| format!("{text:?} is not a number of bytes"));
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if min < MIN_PROBE_BYTES || max > 1200 || min > max {
            return Err(format!("sizes must be within {MIN_PROBE_BYTES}-1200, the smaller number first"));
        }
        Ok(Self(min..=max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_one_number_or_a_range() {
        for (text, sizes) in [("100", Some(100..=100)), ("16-1200", Some(16..=1200)), (" 20 - 30 ", Some(20..=30))] {
            assert_eq!(text.parse::<Sizes>().ok().map(|sizes| sizes.0), sizes);
        }
        for text in ["", "15", "1201", "30-20", "a", "16-", "-16", "16-1200-1"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }
}
