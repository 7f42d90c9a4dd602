//! `slipgate keys`: rotates the private keys in a file that issuer and servers read again by themselves.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use slipgate_cli::Failure;
use slipgate_cli::output::print_line;
use slipgate_cli::values::Span;
use slipgate_netcode::crypto::key::{Key, MAX_PRIVATE_KEYS};
use slipgate_netcode::time::UnixSeconds;
use slipgate_token_issuer::key_file::{KeySchedule, ScheduledKey, read_key_schedule};
use slipgate_token_issuer::wall_clock;

use crate::key_text::KeyText;
use crate::keygen::entropy;
use crate::secret_file::{self, Existing};

/// Rotate private keys.
#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Add a new key on top, with which issuers seal after a delay; drop the oldest keys
    Rotate(RotateFlags),
    /// List ids, times and fingerprints of the keys, without the keys
    List(ListFlags),
}

#[derive(Args)]
pub(crate) struct RotateFlags {
    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// When issuers begin to seal with the new key: all servers must have the new file by then
    #[arg(long = "in", value_name = "TIME", default_value = "1m")]
    delay: Span,

    /// The number of keys that stay in the file, with the new one. A token of a dropped key is refused
    #[arg(long, value_name = "COUNT", default_value_t = MAX_PRIVATE_KEYS, value_parser = parse_keep)]
    keep: usize,

    /// The id of the new key, for people; no other key of the file has it [default: its time]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

#[derive(Args)]
pub(crate) struct ListFlags {
    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

fn parse_keep(text: &str) -> Result<usize, String> {
    let keep = text.parse().ok().filter(|keep| (1..=MAX_PRIVATE_KEYS).contains(keep));
    keep.ok_or_else(|| format!("a file has 1 to {MAX_PRIVATE_KEYS} keys"))
}

pub(crate) fn run(command: &KeysCommand) -> Result<(), Failure> {
    match command {
        KeysCommand::Rotate(flags) => rotate(flags),
        KeysCommand::List(flags) => list(flags),
    }
}

fn read(file: &Path) -> Result<KeySchedule, Failure> {
    read_key_schedule(file).map_err(|error| Failure::run_time(error.to_string()))
}

fn rotate(flags: &RotateFlags) -> Result<(), Failure> {
    let old = read(&flags.file)?;
    let not_before = UnixSeconds(UnixSeconds::from(wall_clock()).0.saturating_add(flags.delay.0.as_secs()));
    let id = flags.id.clone().unwrap_or_else(|| new_id(&old, not_before));
    let is_id = (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    if !is_id {
        return Err(Failure::usage("an id has 1 to 64 visible ASCII characters and no comma"));
    }
    if has_id(&old, &id) {
        return Err(Failure::usage(format!("a key of the file has the id `{id}`: give the new key another one")));
    }
    let new = ScheduledKey::new(Key::random(&mut entropy()?), id.clone(), not_before);
    let keys: Vec<_> = std::iter::once(&new).chain(old.keys()).take(flags.keep).collect();
    check_sealing_key(&old, flags.keep - 1, not_before)?;
    let mut text = KeyText::new();
    keys.iter().for_each(|key| text.add_scheduled(key));
    secret_file::write(&flags.file, text.as_bytes(), Existing::Replace)?;
    let (count, path) = (keys.len(), flags.file.display());
    print_line(&format!("wrote {count} private key(s) to {path}; issuers seal with `{id}` from {} on", not_before.0));
    Ok(())
}

/// Returns the time of a new key as its id, with a number if a key of the file has that id: two rotations may take less
/// than a second.
fn new_id(old: &KeySchedule, not_before: UnixSeconds) -> String {
    let time = not_before.0.to_string();
    let numbered = (2..).map(|number: u32| format!("{time}-{number}"));
    std::iter::once(time.clone()).chain(numbered).find(|id| !has_id(old, id)).unwrap_or(time)
}

fn has_id(schedule: &KeySchedule, id: &str) -> bool {
    schedule.keys().iter().any(|key| key.id() == Some(id))
}

/// Checks that the key that seals now is among the first `kept` ones, or that the new key replaces it at once: an
/// issuer without it would seal with a key that servers may not have yet.
fn check_sealing_key(old: &KeySchedule, kept: usize, new_from: UnixSeconds) -> Result<(), Failure> {
    let now = UnixSeconds::from(wall_clock());
    if old.sealing_index(now) < kept || new_from <= now {
        return Ok(());
    }
    let next = old.next_change(now).map_or(String::new(), |next| format!(" until {}", next.0));
    Err(Failure::run_time(format!(
        "the key that issuers seal with{next} would be dropped before the new one replaces it: keep more keys, or \
         wait; `--in 0s --keep 1` replaces a key that was stolen at once"
    )))
}

fn list(flags: &ListFlags) -> Result<(), Failure> {
    let (schedule, now) = (read(&flags.file)?, UnixSeconds::from(wall_clock()));
    let sealing = schedule.sealing_index(now);
    for (index, key) in schedule.keys().iter().enumerate() {
        let id = key.id().unwrap_or("-");
        let state = match index.cmp(&sealing) {
            Ordering::Less => "accepted, seals later",
            Ordering::Equal => "seals",
            Ordering::Greater => "accepted",
        };
        let fingerprint = key.key().fingerprint();
        print_line(&format!("{id} not-before={} fingerprint={fingerprint} {state}", key.not_before().0));
    }
    Ok(())
}
