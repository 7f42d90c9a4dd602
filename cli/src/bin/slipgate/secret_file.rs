//! Files that hold secrets: readable by their owner only, and never written over another file by accident.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use slipgate_cli::Failure;
use zeroize::Zeroizing;

/// The action if the file already exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// Fail: the file's content may exist nowhere else.
    Refuse,
    /// Replace it atomically.
    Replace,
}

/// Writes a file with mode 0600 on Unix.
pub(crate) fn write(path: &Path, content: &[u8], existing: Existing) -> Result<(), Failure> {
    match existing {
        Existing::Refuse => create(path, content, None).map_err(|error| cannot_write(path, &error)),
        Existing::Replace => replace(path, content),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    Failure::run_time(match error.kind() {
        io::ErrorKind::AlreadyExists => format!("{path} exists already and is not overwritten"),
        io::ErrorKind::NotFound => format!("cannot write {path}: its directory does not exist"),
        _ => format!("cannot write {path}: {error}"),
    })
}

/// Creates a new file, owned by the owner of `old` if given.
fn create(path: &Path, content: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let owned = old.map_or(Ok(()), |old| copy_owner(old, &file));
    let written = owned.and_then(|()| file.write_all(content)).and_then(|()| file.sync_all());
    if written.is_err() {
        // A partial file is useless and would block the next attempt.
        let _ = std::fs::remove_file(path);
    }
    written
}

/// Replaces the file that `path` refers to; a symbolic link keeps pointing to it.
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
            Failure::run_time(format!("{fresh} already exists, left by an interrupted change: remove it first"))
        }
        _ => cannot_write(fresh, &error),
    })?;
    std::fs::rename(fresh, path).map_err(|error| {
        let _ = std::fs::remove_file(fresh);
        refused(error)
    })
}

/// Gives the file the owner of `old`, so that a file replaced by root stays readable for its owner.
#[cfg(unix)]
fn copy_owner(old: &Metadata, file: &File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, fchown};
    if file.metadata()?.uid() == old.uid() { Ok(()) } else { fchown(file, Some(old.uid()), Some(old.gid())) }
}

#[cfg(not(unix))]
fn copy_owner(_: &Metadata, _: &File) -> io::Result<()> {
    Ok(())
}

/// Reads a file, or standard input (`-`), of at most `max_bytes` bytes. The buffer is wiped when dropped.
pub(crate) fn read(path: &Path, max_bytes: usize) -> Result<Zeroizing<Vec<u8>>, Failure> {
    // Allocated at once: a growing buffer would leave copies behind that are not wiped.
    let mut bytes = Zeroizing::new(Vec::with_capacity(max_bytes + 1));
    let limit = max_bytes as u64 + 1;
    let read = if path == Path::new("-") {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::run_time(format!("cannot read {}: {error}", path.display())))?;
    if bytes.len() > max_bytes {
        return Err(Failure::run_time(format!("{} is longer than {max_bytes} bytes", path.display())));
    }
    Ok(bytes)
}
