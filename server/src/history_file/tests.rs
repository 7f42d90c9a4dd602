use super::*;

const TODAY: UnixSeconds = UnixSeconds(1000);

/// A temporary directory, removed at the end.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("slipgate-history-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("history")
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn used(number: u8, expires: u64) -> UsedToken {
    UsedToken { name: Digest([number; 16]), expires: UnixSeconds(expires) }
}

fn write(folder: &TestFolder, count: u8) -> HistoryFile {
    let mut history = HistoryFile::open(folder.file(), TODAY).unwrap();
    for number in 0..count {
        history.record(used(number, 2000)).unwrap();
    }
    flush(&mut history).unwrap();
    history
}

/// Flushes the records in this thread.
fn flush(history: &mut HistoryFile) -> Result<(), JournalError> {
    let outcome = history.sync()?();
    history.on_synced(outcome)
}

#[test]
fn records_survive_a_restart_unless_they_have_expired() {
    let folder = TestFolder::new("survives");
    let mut history = write(&folder, 3);
    assert!(history.is_new());
    history.record(used(9, 1001)).unwrap();
    drop(history);
    let history = HistoryFile::open(folder.file(), UnixSeconds(1001)).unwrap();
    assert!(!history.is_new());
    assert_eq!(history.used, [used(0, 2000), used(1, 2000), used(2, 2000)]);
    assert_eq!(std::fs::metadata(folder.file()).unwrap().len(), 64 + 3 * 32);
}

#[test]
fn the_digest_key_survives_a_restart_and_differs_between_files() {
    let (one, other) = (TestFolder::new("names-one"), TestFolder::new("names-other"));
    let digest_key = |folder: &TestFolder| *HistoryFile::open(folder.file(), TODAY).unwrap().header.digest_key;
    assert_eq!(digest_key(&one), digest_key(&one));
    assert_ne!(digest_key(&one), digest_key(&other));
}

#[test]
fn since_is_the_second_after_the_creation() {
    let folder = TestFolder::new("since");
    drop(write(&folder, 1));
    for today in [TODAY, UnixSeconds(5000)] {
        assert_eq!(HistoryFile::open(folder.file(), today).unwrap().since(), UnixSeconds(TODAY.0 + 1));
    }
}

#[test]
fn a_torn_end_of_any_length_is_cut_off() {
    let folder = TestFolder::new("torn");
    drop(write(&folder, 3));
    let whole = std::fs::read(folder.file()).unwrap();
    for cut in 1..=32 {
        std::fs::write(folder.file(), &whole[..whole.len() - cut]).unwrap();
        let mut history = HistoryFile::open(folder.file(), TODAY).unwrap();
        assert_eq!(history.used.len(), 2, "{cut} bytes were torn off");
        history.record(used(7, 2000)).unwrap();
        drop(history);
        assert_eq!(HistoryFile::open(folder.file(), TODAY).unwrap().used.last(), Some(&used(7, 2000)));
    }
    // A power failure may leave zeros instead of records.
    std::fs::write(folder.file(), [&whole[..], &[0; 100]].concat()).unwrap();
    assert_eq!(HistoryFile::open(folder.file(), TODAY).unwrap().used.len(), 3);
}

#[test]
fn damaged_and_foreign_files_are_refused_and_unchanged() {
    let folder = TestFolder::new("damaged");
    drop(write(&folder, 3));
    let whole = std::fs::read(folder.file()).unwrap();
    for byte in 64..64 + 32 {
        let mut damaged = whole.clone();
        damaged[byte] ^= 1;
        std::fs::write(folder.file(), &damaged).unwrap();
        let error = HistoryFile::open(folder.file(), TODAY).err().unwrap();
        assert!(matches!(error, HistoryFileError::Damaged(64)), "{error}");
        assert_eq!(std::fs::read(folder.file()).unwrap(), damaged);
    }
    for byte in 0..64 {
        let mut damaged = whole.clone();
        damaged[byte] ^= 1;
        std::fs::write(folder.file(), &damaged).unwrap();
        let error = HistoryFile::open(folder.file(), TODAY).err().unwrap();
        let refused = if byte < 16 {
            matches!(error, HistoryFileError::NotAHistory)
        } else {
            matches!(error, HistoryFileError::Damaged(16))
        };
        assert!(refused, "byte {byte}: {error}");
        assert_eq!(std::fs::read(folder.file()).unwrap(), damaged);
    }
    for foreign in [&b"x"[..], &whole[..63], &[b'#'; 100]] {
        std::fs::write(folder.file(), foreign).unwrap();
        let error = HistoryFile::open(folder.file(), TODAY).err().unwrap();
        assert!(matches!(error, HistoryFileError::NotAHistory), "{error}");
    }
}

#[test]
fn two_servers_cannot_use_one_file() {
    let folder = TestFolder::new("locked");
    let history = write(&folder, 1);
    let error = HistoryFile::open(folder.file(), TODAY).err().unwrap();
    assert!(matches!(error, HistoryFileError::Locked), "{error}");
    drop(history);
    assert!(HistoryFile::open(folder.file(), TODAY).is_ok());
}

#[test]
fn a_large_file_is_rewritten_without_expired_records() {
    let folder = TestFolder::new("compact");
    let mut history = HistoryFile::open(folder.file(), TODAY).unwrap();
    let future = UnixSeconds::from(slipgate_os::clock::wall_clock()).0 + 1000;
    for number in 0..=MAX_APPENDED {
        let expires = if number % 2 == 0 { 1 } else { future };
        history.record(used(number as u8, expires)).unwrap();
    }
    flush(&mut history).unwrap();
    assert!(std::fs::metadata(folder.file()).unwrap().len() < 64 + (MAX_APPENDED / 2 + 2) * 32);
    drop(history);
    assert_eq!(HistoryFile::open(folder.file(), TODAY).unwrap().used.len() as u64, MAX_APPENDED / 2);
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TestFolder::new("mode");
    drop(write(&folder, 1));
    assert_eq!(std::fs::metadata(folder.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_no_torn_record() {
    // /dev/full behaves like a full disk.
    let folder = TestFolder::new("full");
    let mut history = write(&folder, 1);
    let real = std::mem::replace(&mut history.file, OpenOptions::new().write(true).open("/dev/full").unwrap().into());
    assert_eq!(history.record(used(5, 2000)), Err(JournalError));
    history.file = real;
    history.torn_at = Some(64 + 32);
    history.record(used(6, 2000)).unwrap();
    drop(history);
    assert_eq!(HistoryFile::open(folder.file(), TODAY).unwrap().used, [used(0, 2000), used(6, 2000)]);
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_is_followed_and_stays_a_link() {
    let folder = TestFolder::new("link");
    let volume = folder.0.join("volume");
    std::fs::create_dir_all(&volume).unwrap();
    std::os::unix::fs::symlink(volume.join("history"), folder.file()).unwrap();
    let mut history = HistoryFile::open(folder.file(), TODAY).unwrap();
    history.record(used(1, 2000)).unwrap();
    flush(&mut history).unwrap();
    assert!(std::fs::symlink_metadata(folder.file()).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(volume.join("history")).unwrap().len(), 64 + 32);
    let error = HistoryFile::open(volume.join("history"), TODAY).err().unwrap();
    assert!(matches!(error, HistoryFileError::Locked), "the other path leads to the same file: {error}");
}

#[cfg(target_os = "linux")]
#[test]
fn after_a_failed_flush_the_file_is_rewritten() {
    let folder = TestFolder::new("needs_full_write");
    let mut history = write(&folder, 2);
    // A device that cannot flush. Systems report a failed flush once; the next flush would succeed without writing.
    history.file = OpenOptions::new().write(true).open("/dev/null").unwrap().into();
    history.record(used(7, u64::MAX)).unwrap();
    history.used.iter_mut().for_each(|used| used.expires = UnixSeconds(u64::MAX));
    assert_eq!(flush(&mut history), Err(JournalError));
    assert!(history.needs_full_write);
    assert_eq!(flush(&mut history), Ok(()));
    assert!(!history.needs_full_write);
    history.record(used(8, u64::MAX)).unwrap();
    flush(&mut history).unwrap();
    drop(history);
    let kept: Vec<_> =
        HistoryFile::open(folder.file(), TODAY).unwrap().used.iter().map(|used| used.name.0[0]).collect();
    assert_eq!(kept, [0, 1, 7, 8]);
}

#[test]
fn records_and_rewrites_during_a_flush_are_kept() {
    let folder = TestFolder::new("meanwhile");
    let mut history = write(&folder, 1);
    history.used.iter_mut().for_each(|used| used.expires = UnixSeconds(u64::MAX));
    history.record(used(2, u64::MAX)).unwrap();
    let sync = history.sync().unwrap();
    history.record(used(3, u64::MAX)).unwrap();
    history.compact(TODAY).unwrap();
    history.record(used(4, u64::MAX)).unwrap();
    let outcome = sync();
    history.on_synced(outcome).unwrap();
    assert!(!history.needs_full_write);
    drop(history);
    let kept: Vec<_> =
        HistoryFile::open(folder.file(), TODAY).unwrap().used.iter().map(|used| used.name.0[0]).collect();
    assert_eq!(kept, [0, 2, 3, 4]);
}

#[cfg(unix)]
#[test]
fn a_renamed_file_is_used_even_if_its_directory_is_not_flushed() {
    let folder = TestFolder::new("renamed");
    let mut history = write(&folder, 1);
    history.used.iter_mut().for_each(|used| used.expires = UnixSeconds(u64::MAX));
    history.compact(TODAY).unwrap();
    // The state after a failed flush of the directory: the next flush succeeds only after a rewrite.
    history.needs_full_write = true;
    history.record(used(2, u64::MAX)).unwrap();
    flush(&mut history).unwrap();
    assert!(!history.needs_full_write);
    drop(history);
    assert_eq!(HistoryFile::open(folder.file(), TODAY).unwrap().used.len(), 2);
}

#[cfg(unix)]
#[test]
fn pipes_devices_and_directories_are_refused_without_a_wait() {
    let folder = TestFolder::new("kinds");
    let pipe = folder.0.join("pipe");
    let mut kinds = vec![PathBuf::from("/dev/zero"), folder.0.clone()];
    if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        kinds.push(pipe);
    }
    for path in kinds {
        let error = HistoryFile::open(&path, TODAY).err().unwrap();
        assert!(matches!(error, HistoryFileError::NotAFile), "{}: {error}", path.display());
    }
}
