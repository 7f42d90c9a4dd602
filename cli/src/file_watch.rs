//! Notices files that were replaced, written or made readable, for reloads without a signal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{fs, io, thread};

/// The interval in which the files are looked at. A change is reported at the second look that sees it, so that a file
/// is not read while it is being written: within a second.
const INTERVAL: Duration = Duration::from_millis(500);
/// The number of looks after which a failed read is due again: 5 s.
const RETRY_LOOKS: u32 = 10;

/// What changes with a file's content or with the rights to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    modified: Option<SystemTime>,
    bytes: u64,
    /// On Unix the number of the file, and the time of its last change, also of its mode and its owner.
    inode: (u64, i64, i64),
}

/// A watch on files, on a thread of its own. It ends with the last handle.
#[derive(Debug)]
pub struct FileWatch {
    shared: Arc<WatchShared>,
}

#[derive(Debug)]
struct WatchShared {
    paths: Mutex<Vec<PathBuf>>,
    has_failed: AtomicBool,
}

impl FileWatch {
    /// Starts a thread that calls `on_due` after each change of one of these files, and 5 s after a failed read. A file
    /// that is absent has not changed until it is there again. A disk that hangs stops this thread alone.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub fn start(paths: Vec<PathBuf>, on_due: impl Fn() + Send + 'static) -> io::Result<Self> {
        let mut looks = Looks::new(&paths, version);
        let shared = Arc::new(WatchShared { paths: Mutex::new(paths), has_failed: AtomicBool::new(false) });
        let watched = Arc::downgrade(&shared);
        let watch = move || {
            loop {
                thread::sleep(INTERVAL);
                let Some(shared) = watched.upgrade() else { return };
                let paths = shared.paths.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if looks.look(&paths, shared.has_failed.swap(false, Ordering::Relaxed), version) {
                    on_due();
                }
            }
        };
        thread::Builder::new().name("file-watch".to_owned()).spawn(watch)?;
        Ok(Self { shared })
    }

    /// Watches these files from now on.
    pub fn set_paths(&self, paths: Vec<PathBuf>) {
        *self.shared.paths.lock().unwrap_or_else(PoisonError::into_inner) = paths;
    }

    /// Records that the files could not be read: they are due again after 5 s, also without a change. The reason may be
    /// outside of the files, such as the rights to their folder.
    pub fn read_failed(&self) {
        self.shared.has_failed.store(true, Ordering::Relaxed);
    }
}

/// What the looks at the files have found.
struct Looks {
    /// The version that was reported last, and that of the last look.
    files: BTreeMap<PathBuf, (Option<Version>, Option<Version>)>,
    /// The number of looks until a failed read is due again.
    retry_in: Option<u32>,
}

impl Looks {
    fn new(paths: &[PathBuf], version: impl Fn(&Path) -> Option<Version>) -> Self {
        let mut looks = Self { files: BTreeMap::new(), retry_in: None };
        looks.look(paths, false, version);
        looks
    }

    /// Looks at the files. Returns whether they are due: one has changed, or the last read has failed some time ago.
    fn look(&mut self, paths: &[PathBuf], has_failed: bool, version: impl Fn(&Path) -> Option<Version>) -> bool {
        self.files.retain(|path, _| paths.contains(path));
        let mut is_due = false;
        for path in paths {
            let present = version(path);
            let (known, seen) = self.files.entry(path.clone()).or_insert((present, present));
            if present.is_some() && present != *known && present == *seen {
                *known = present;
                is_due = true;
            }
            *seen = present;
        }
        if has_failed {
            self.retry_in = Some(RETRY_LOOKS);
        }
        self.retry_in = self.retry_in.and_then(|looks| looks.checked_sub(1));
        is_due |= self.retry_in == Some(0);
        if is_due {
            self.retry_in = None;
        }
        is_due
    }
}

/// Returns the version of a file, or `None` if there is none.
pub(crate) fn version(path: &Path) -> Option<Version> {
    let metadata = fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = {
        use std::os::unix::fs::MetadataExt;
        (metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
    };
    #[cfg(not(unix))]
    let inode = (0, 0, 0);
    Some(Version { modified: metadata.modified().ok(), bytes: metadata.len(), inode })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    fn of(bytes: u64) -> Option<Version> {
        Some(Version { modified: None, bytes, inode: (0, 0, 0) })
    }

    #[test]
    fn change_is_reported_once_it_lasts() {
        let paths = [PathBuf::from("keys")];
        let mut looks = Looks::new(&paths, |_| of(1));
        let reported: Vec<_> = [of(1), of(2), of(3), of(3), of(3), None, None, of(3), of(3), of(4), of(4)]
            .into_iter()
            .map(|present| looks.look(&paths, false, |_| present))
            .collect();
        let expected = [false, false, false, true, false, false, false, false, false, false, true];
        assert_eq!(reported, expected);
    }

    #[test]
    fn failed_read_is_due_again_without_a_change() {
        let paths = [PathBuf::from("keys")];
        let mut looks = Looks::new(&paths, |_| of(1));
        let mut look = |has_failed, present| looks.look(&paths, has_failed, |_| present);
        for _ in 0..2 {
            assert!(!look(true, of(1)));
            let until_due = (1..=2 * RETRY_LOOKS).find(|_| look(false, of(1)));
            assert_eq!(until_due, Some(RETRY_LOOKS - 1));
        }
        assert!(!look(true, of(2)) && look(false, of(2)), "the change comes first");
        assert!((0..2 * RETRY_LOOKS).all(|_| !look(false, of(2))), "the read after the change has not failed");
    }

    #[test]
    fn file_that_is_watched_later_has_not_changed() {
        let (keys, other) = (PathBuf::from("keys"), PathBuf::from("other"));
        let mut looks = Looks::new(std::slice::from_ref(&keys), |_| of(1));
        let both = [keys, other];
        assert!((0..3).all(|_| !looks.look(&both, false, |_| of(1))));
        assert!(!looks.look(&both, false, |_| of(2)) && looks.look(&both, false, |_| of(2)));
    }

    #[cfg(unix)]
    #[test]
    fn mode_is_part_of_the_version() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("slipgate-file-watch-{}", std::process::id()));
        fs::write(&path, "key").unwrap();
        let before = version(&path).unwrap();
        // The clock of a file system may stand still for some milliseconds.
        let begin = std::time::Instant::now();
        loop {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            if version(&path) != Some(before) {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "the mode has changed");
        }
        fs::remove_file(&path).unwrap();
    }
}
