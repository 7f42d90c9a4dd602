//! `slipgate token inspect`: prints the public part of a connect token, and with the private key its private part.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde::Serialize;
use slipgate_cli::Failure;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::redeem::{Redeemed, redeem};
use slipgate_netcode::wire::token::Servers;
use slipgate_os::clock::wall_clock;
use slipgate_token_issuer::key_file::read_key_file;
use zeroize::Zeroizing;

use crate::secret_file;
use slipgate_cli::output::print_line;

/// The largest input: more than a token in base64 with line breaks has.
const MAX_BYTES: usize = 8192;

#[derive(Args)]
pub(crate) struct InspectFlags {
    /// File with the token: 2048 bytes, or base64; - for standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,

    /// File with the private keys; with it, the private part is shown too
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Show the two session keys, which allow to read and forge this session's packets
    #[arg(long)]
    show_session_keys: bool,

    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown {
    version: &'static str,
    protocol_id: String,
    created: u64,
    expires: u64,
    expired: bool,
    timeout_seconds: i32,
    servers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    private: Option<Private>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_to_server_key: Option<Zeroizing<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_to_client_key: Option<Zeroizing<String>>,
}

#[derive(Serialize)]
struct Private {
    /// A string, because many JSON parsers lose precision above 2^53.
    client_id: String,
    timeout_seconds: i32,
    servers: Vec<String>,
    /// Hexadecimal digits without trailing zero bytes.
    user_data: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    minted_unix_ms: Option<u64>,
}

pub(crate) fn run(flags: &InspectFlags) -> Result<(), Failure> {
    let token = read(&flags.file)?;
    let private = flags.key_file.as_deref().map(|path| open(&token, path)).transpose()?;
    let shown = Shown::of(&token, private.as_ref(), flags.show_session_keys);
    if flags.json {
        let json = serde_json::to_string_pretty(&shown).map_err(|error| Failure::run_time(error.to_string()))?;
        print_line(&Zeroizing::new(json));
    } else {
        shown.print();
    }
    Ok(())
}

fn read(path: &Path) -> Result<ConnectToken, Failure> {
    let bytes = secret_file::read(path, MAX_BYTES)?;
    let text: Vec<u8> = bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let decoded = STANDARD.decode(Zeroizing::new(text).as_slice()).map(Zeroizing::new);
    let token = decoded.as_ref().map_or(bytes.as_slice(), |decoded| decoded.as_slice());
    let place = if path == Path::new("-") { "standard input".into() } else { path.to_string_lossy() };
    ConnectToken::from_bytes(token)
        .map_err(|error| Failure::run_time(format!("{place} holds no connect token: {error}")))
}

/// Decrypts the private part as a server does.
fn open(token: &ConnectToken, key_file: &Path) -> Result<Redeemed, Failure> {
    let keys = read_key_file(key_file).map_err(|error| Failure::run_time(error.to_string()))?;
    let request = token.request();
    redeem(&request, token.facts().protocol_id, &keys).map_err(|_| {
        Failure::run_time("cannot decrypt the private part with these keys: it was sealed with another key, or altered")
    })
}

fn listed(servers: &Servers) -> Vec<String> {
    servers.iter().map(ToString::to_string).collect()
}

fn digits(key: &Key) -> Zeroizing<String> {
    Zeroizing::new(hex::encode(key.expose()))
}

impl Shown {
    fn of(token: &ConnectToken, private: Option<&Redeemed>, show_session_keys: bool) -> Self {
        let facts = token.facts();
        Self {
            version: "NETCODE 1.02",
            protocol_id: format!("{:#x}", facts.protocol_id),
            created: facts.created.0,
            expires: facts.expires.0,
            expired: facts.expires <= wall_clock().into(),
            timeout_seconds: facts.timeout_seconds,
            servers: listed(&facts.servers),
            private: private.map(Private::of),
            client_to_server_key: show_session_keys.then(|| digits(&token.keys().client_to_server)),
            server_to_client_key: show_session_keys.then(|| digits(&token.keys().server_to_client)),
        }
    }

    fn print(&self) {
        let validity = if self.expired { "expired" } else { "valid" };
        print_line(&format!("version           {}", self.version));
        print_line(&format!("protocol id       {}", self.protocol_id));
        print_line(&format!("created           {} (unix seconds)", self.created));
        print_line(&format!("expires           {} ({validity} by this machine's clock)", self.expires));
        print_line(&format!("timeout           {} s", self.timeout_seconds));
        print_line(&format!("servers           {}", self.servers.join(", ")));
        match &self.private {
            None => print_line("private part      encrypted; give --key-file to show it"),
            Some(private) => private.print(),
        }
        if let (Some(client_to_server), Some(server_to_client)) =
            (&self.client_to_server_key, &self.server_to_client_key)
        {
            print_line(&Zeroizing::new(format!("client to server  {}", client_to_server.as_str())));
            print_line(&Zeroizing::new(format!("server to client  {}", server_to_client.as_str())));
        }
    }
}

impl Private {
    fn of(redeemed: &Redeemed) -> Self {
        let length = redeemed.user_data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        Self {
            client_id: redeemed.client_id.to_string(),
            timeout_seconds: redeemed.timeout_seconds,
            servers: listed(&redeemed.servers),
            user_data: hex::encode(redeemed.user_data.get(..length).unwrap_or_default()),
            minted_unix_ms: redeemed.minted.map(|minted| minted.0),
        }
    }

    fn print(&self) {
        print_line("private part      decrypted:");
        print_line(&format!("  client id       {}", self.client_id));
        print_line(&format!("  timeout         {} s", self.timeout_seconds));
        print_line(&format!("  servers         {}", self.servers.join(", ")));
        print_line(&format!("  user data       {}", if self.user_data.is_empty() { "none" } else { &self.user_data }));
        match self.minted_unix_ms {
            Some(minted) => print_line(&format!("  minted          {minted} (unix milliseconds)")),
            None => print_line("  minted          unknown: minted by another implementation"),
        }
    }
}
