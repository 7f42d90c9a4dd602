//! `slipgate keygen`: creates private keys for issuer and servers, and API keys for backends.

use std::path::PathBuf;

use clap::Args;
use rand::rngs::{StdRng, SysRng};
use rand::{SeedableRng, TryRng};
use slipgate_cli::Failure;
use slipgate_netcode::crypto::key::{Key, MAX_PRIVATE_KEYS};
use slipgate_token_issuer::api_key::ApiKey;
use slipgate_token_issuer::key_file::read_key_schedule;
use zeroize::Zeroizing;

use crate::key_text::KeyText;
use crate::secret_file::{self, Existing};
use slipgate_cli::output::{print_error_line, print_line};

const AFTER_HELP: &str = "\
The private key is shared by the token issuer and the game servers only: give its file to slipgate-token-issuer and \
slipgate-server with --key-file.

An API key (--bearer) lets a backend request tokens from the issuer. The backend keeps the key; the issuer's \
configuration gets only its digest, which is printed.

To replace the private key without an outage: slipgate keys rotate. Without a time from which the new key seals: run \
keygen --rotate on a copy of the file, install it on every server, then on the issuer, and remove the last line when \
the tokens of the old key have expired.";

/// How the written file is protected.
const PROTECTION: &str =
    if cfg!(unix) { "mode 0600" } else { "with the access rights of its folder, which only the server may read" };

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct KeygenFlags {
    /// The file to create, on Unix with mode 0600; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Create an API key instead of a private key, and print its digest
    #[arg(long)]
    bearer: bool,

    /// Add a new private key at the top of the file and keep the newest two of the old ones, with their ids and times
    #[arg(long, conflicts_with = "bearer")]
    rotate: bool,
}

pub(crate) fn run(flags: &KeygenFlags) -> Result<(), Failure> {
    let mut entropy = entropy()?;
    let path = flags.file.display();
    if flags.bearer {
        let key = ApiKey::random(&mut entropy);
        let text = Zeroizing::new(format!("{}\n", key.expose()));
        secret_file::write(&flags.file, text.as_bytes(), Existing::Refuse)?;
        // The digest is alone on standard output, for scripts.
        print_error_line(&format!(
            "wrote an API key for a backend to {path} ({PROTECTION}); its digest, for the issuer's configuration:"
        ));
        print_line(&key.digest(&mut entropy).to_string());
        return Ok(());
    }
    let (mut text, mut count) = (KeyText::new(), 1);
    text.add(&Key::random(&mut entropy));
    if flags.rotate {
        let old = read_key_schedule(&flags.file).map_err(|error| Failure::run_time(error.to_string()))?;
        for key in old.keys().iter().take(MAX_PRIVATE_KEYS - 1) {
            text.add_scheduled(key);
            count += 1;
        }
    }
    let existing = if flags.rotate { Existing::Replace } else { Existing::Refuse };
    secret_file::write(&flags.file, text.as_bytes(), existing)?;
    print_line(&format!("wrote {count} private key(s), newest first, to {path} ({PROTECTION})"));
    Ok(())
}

/// Returns a generator seeded by the operating system, for a few keys.
pub(crate) fn entropy() -> Result<StdRng, Failure> {
    let mut seed = Zeroizing::new([0; 32]);
    SysRng
        .try_fill_bytes(seed.as_mut_slice())
        .map_err(|error| Failure::run_time(format!("cannot read the system's entropy: {error}")))?;
    Ok(StdRng::from_seed(*seed))
}
