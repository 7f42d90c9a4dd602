//! Notices files that were replaced or written, for reloads without a signal.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

/// The interval in which the files are looked at. A change is reported at the second look that sees it, so that a file
/// is not read while it is being written: within a second.
const INTERVAL: Duration = Duration::from_millis(500);

/// What changes with a file's content: its time, its size and, on Unix, its number.
pub(crate) type Version = (Option<SystemTime>, u64, u64);

/// Starts a thread that calls `on_change` after each change of one of these files. A file that is absent has not
/// changed until it is there again. A disk that hangs stops this thread alone.
///
/// # Errors
/// Returns the system's error if the thread cannot be started.
pub fn watch(paths: Vec<PathBuf>, on_change: impl Fn() + Send + 'static) -> io::Result<()> {
    let mut known: Vec<_> = paths.iter().map(|path| version(path)).collect();
    let mut seen = known.clone();
    let watch = move || {
        loop {
            thread::sleep(INTERVAL);
            let mut has_changed = false;
            for (path, (known, seen)) in paths.iter().zip(known.iter_mut().zip(&mut seen)) {
                let present = version(path);
                if present.is_some() && present != *known && present == *seen {
                    *known = present;
                    has_changed = true;
                }
                *seen = present;
            }
            if has_changed {
                on_change();
            }
        }
    };
    thread::Builder::new().name("file-watch".to_owned()).spawn(watch).map(drop)
}

/// Returns the version of a file, or `None` if there is none.
pub(crate) fn version(path: &Path) -> Option<Version> {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let number = 0;
    Some((metadata.modified().ok(), metadata.len(), number))
}
