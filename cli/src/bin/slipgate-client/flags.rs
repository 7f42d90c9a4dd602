//! The flags. Keys come from a file or the environment, never from a flag.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use slipgate_cli::values::Span;
use slipgate_client::Dscp;
use slipgate_client::probe::MIN_PROBE_BYTES;

/// Where the issuer's API key comes from if not from a file.
pub(crate) const API_KEY_VARIABLE: &str = "SLIPGATE_API_KEY";

const AFTER_HELP: &str = "\
The issuer's API key comes from --api-key-file or from the environment variable SLIPGATE_API_KEY. A shipped game has no \
such key: it gets its token from the game's backend.

Exit status: 0 every echo came and was right, 1 no token or the system refused, 2 wrong flags, 3 no server gave a slot, \
4 the connection ended before its time, 5 echoes were wrong or missing.";

/// Connects to a game server, sends payloads and checks their echoes.
#[derive(Parser)]
#[command(name = "slipgate-client", version, after_help = AFTER_HELP)]
pub(crate) struct Flags {
    /// The token issuer to ask for a token
    #[arg(long, value_name = "URL", conflicts_with = "token")]
    issuer: Option<String>,

    /// The client id to ask a token for
    #[arg(long, value_name = "ID", conflicts_with = "token")]
    client_id: Option<u64>,

    /// A server to ask a token for; repeat it for several [default: all that the issuer knows]
    #[arg(long = "server", value_name = "IP:PORT", conflicts_with = "token")]
    pub(crate) servers: Vec<SocketAddr>,

    /// A file with the issuer's API key
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    pub(crate) api_key_file: Option<PathBuf>,

    /// A connect token: 2048 bytes, or base64; - for standard input
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,

    /// Payloads a second
    #[arg(long, value_name = "HZ", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rate: u32,

    /// Bytes of a payload: one number, or least-most, within 16-1200
    #[arg(long = "size", value_name = "BYTES", default_value = "16-1200")]
    pub(crate) sizes: Sizes,

    /// How long to send, once connected [default: until Ctrl-C or SIGTERM]
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) duration: Option<Span>,

    /// Send from this address [default: any]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) bind: Option<SocketAddr>,

    /// Mark packets as urgent for routers that heed it: ef, or a DSCP from 0 to 63
    #[arg(long, value_name = "DSCP", default_value_t)]
    pub(crate) dscp: Dscp,

    /// One JSON object a line instead of words
    #[arg(long)]
    pub(crate) json: bool,

    /// Let a token with a negative time-out switch time-outs off
    #[arg(long)]
    pub(crate) development: bool,
}

/// Where the token comes from.
pub(crate) enum Source {
    File(PathBuf),
    Issuer { url: String, client_id: u64 },
}

impl Flags {
    /// Reads the flags, and ends the program where they do not say where the token comes from.
    pub(crate) fn read() -> (Self, Source) {
        let flags = Self::parse();
        let source = match (&flags.token, &flags.issuer, flags.client_id) {
            (Some(path), ..) => Source::File(path.clone()),
            (None, Some(url), Some(client_id)) => Source::Issuer { url: url.clone(), client_id },
            _ => {
                let ways = "a connect token comes from --token FILE, or from --issuer URL with --client-id ID";
                Self::command().error(ErrorKind::MissingRequiredArgument, ways).exit()
            }
        };
        (flags, source)
    }
}

/// The sizes of payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) RangeInclusive<usize>);

impl std::str::FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<usize>().map_err(|_| format!("{text:?} is no number of bytes"));
        let (least, most) = match text.split_once('-') {
            Some((least, most)) => (number(least)?, number(most)?),
            None => (number(text)?, number(text)?),
        };
        if least < MIN_PROBE_BYTES || most > 1200 || least > most {
            return Err(format!("sizes lie within {MIN_PROBE_BYTES}-1200, the least first"));
        }
        Ok(Self(least..=most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_one_number_or_two() {
        for (text, sizes) in [("100", Some(100..=100)), ("16-1200", Some(16..=1200)), (" 20 - 30 ", Some(20..=30))] {
            assert_eq!(text.parse::<Sizes>().ok().map(|sizes| sizes.0), sizes);
        }
        for text in ["", "15", "1201", "30-20", "a", "16-", "-16", "16-1200-1"] {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }
}
