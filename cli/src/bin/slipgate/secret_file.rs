//! Files that hold secrets: written for their owner alone, and never over another one.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use slipgate_cli::Failure;
use zeroize::Zeroizing;

/// Whether a file that is already there is in the way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It is: what it holds may exist nowhere else.
    Refuse,
    /// It is replaced, whole or not at all.
    Replace,
}

/// Writes a file with mode 0600.
pub(crate) fn write(path: &Path, content: &[u8], existing: Existing) -> Result<(), Failure> {
    match existing {
        Existing::Refuse => create(path, content, None).map_err(|error| cannot_write(path, &error)),
        Existing::Replace => replace(path, content),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::run_time(match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{path} exists already, and is not overwritten"),
        io::ErrorKind::NotFound => format!("cannot write {path}: its directory does not exist"),
        _ => format!("cannot write {path}: {error}"),
    })
}

/// Writes a new file, for the owner of `old` if there is one.
fn create(path: &Path, content: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let owned = old.map_or(Ok(()), |old| give_to_owner_of(old, &file));
    let written = owned.and_then(|()| file.write_all(content)).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a secret is worth nothing, and would be in the way of the next try.
        let _ = std::fs::remove_file(path);
    }
    written
}

/// Replaces the file that `path` leads to; a link on the way stays one.
fn replace(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let refused = |error| cannot_write(path, &error);
    let path = &path.canonicalize().map_err(refused)?;
    let old = path.metadata().map_err(refused)?;
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = Path::new(&fresh);
    create(fresh, content, Some(&old)).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let fresh = fresh.display();
            Failure::run_time(format!("{fresh} is in the way, left by a change that did not finish: remove it first"))
        }
        _ => cannot_write(fresh, &error),
    })?;
    std::fs::rename(fresh, path).map_err(|error| {
        let _ = std::fs::remove_file(fresh);
        refused(error)
    })
}

/// What root replaces stays readable for whom it belonged to.
#[cfg(unix)]
fn give_to_owner_of(old: &Metadata, file: &File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    if file.metadata()?.uid() == old.uid() { Ok(()) } else { fchown(file, Some(old.uid()), Some(old.gid())) }
}

#[cfg(not(unix))]
fn give_to_owner_of(_: &Metadata, _: &File) -> io::Result<()> {
    Ok(())
}

/// Reads at most `most` bytes of a file, or of standard input (`-`); what was read is wiped when dropped.
pub(crate) fn read(path: &Path, most: usize) -> Result<Zeroizing<Vec<u8>>, Failure> {
    // Room for all of it at once: a growing buffer would leave copies behind that nobody wipes.
    let mut bytes = Zeroizing::new(Vec::with_capacity(most + 1));
    let limit = most as u64 + 1;
    let read = if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::run_time(format!("cannot read {}: {error}", path.display())))?;
    if bytes.len() > most {
        return Err(Failure::run_time(format!("{} is longer than {most} bytes", path.display())));
    }
    Ok(bytes)
}
