use std::sync::{Arc, Mutex};

use slipgate_netcode::crypto::digest::{Digest, DigestKey};

use super::*;
use crate::test_log::count_warnings;

mod clocks;
mod damage;
mod faults;
mod frozen;
#[cfg(unix)]
mod shared_folders;

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

    fn open(&self) -> HistoryFile {
        open_unlocked(&self.file()).unwrap()
    }

    fn refused(&self) -> HistoryFileError {
        open_unlocked(&self.file()).err().expect("the file is refused")
    }

    /// Returns the first bytes of the names in the file.
    fn names(&self) -> Vec<u8> {
        self.open().kept().used.iter().map(|used| used.name.0[0]).collect()
    }

    /// Writes a history of this many records.
    fn with_records(name: &str, count: u8) -> Self {
        let folder = Self::new(name);
        drop(write(&folder, count));
        folder
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A record that never expires.
fn used(number: u8) -> UsedToken {
    UsedToken { name: Digest([number; 16]), expires: UnixSeconds(u64::MAX) }
}

fn write(folder: &TestFolder, count: u8) -> HistoryFile {
    let mut history = folder.open();
    for number in 0..count {
        history.store(&[used(number)]).unwrap();
    }
    history
}

fn length_of(records: u64) -> u64 {
    HEADER_BYTES as u64 + records * RECORD_BYTES as u64
}

/// Opens the history. A process that another test of this program starts has the lock until it runs its own program.
fn open_unlocked(file: &Path) -> Result<HistoryFile, HistoryFileError> {
    for _ in 0..2000 {
        match HistoryFile::open(file, TODAY) {
            Err(HistoryFileError::Locked) => std::thread::sleep(std::time::Duration::from_millis(1)),
            result => return result,
        }
    }
    Err(HistoryFileError::Locked)
}

#[test]
fn records_survive_a_restart_unless_they_have_expired() {
    let folder = TestFolder::new("survives");
    let mut history = write(&folder, 3);
    assert!(history.is_new());
    history.store(&[UsedToken { expires: UnixSeconds(1001), ..used(9) }, used(4)]).unwrap();
    drop(history);
    let history = HistoryFile::open(folder.file(), UnixSeconds(1001)).unwrap();
    assert_eq!((history.origin, history.is_new()), (HistoryOrigin::Continued, false));
    assert_eq!(history.kept().used, [used(0), used(1), used(2), used(4)]);
    assert_eq!(std::fs::metadata(folder.file()).unwrap().len(), length_of(4));
    assert_eq!(history.header.number_of(history.end), 5, "the expired record keeps its number");
    assert_eq!((history.len(), history.is_empty()), (4, false));
    let kept = history.kept();
    assert_eq!((kept.names, kept.dropped_until), (*history.header.digest_key, UnixSeconds(1001)));
    assert!(TestFolder::new("survives-none").open().is_empty());
}

#[test]
fn only_errors_for_lack_of_room_count_as_such() {
    use io::ErrorKind::{FileTooLarge, Interrupted, IsADirectory, PermissionDenied, QuotaExceeded, StorageFull};
    for (kind, expected) in [
        (StorageFull, true),
        (QuotaExceeded, true),
        (FileTooLarge, true),
        (PermissionDenied, false),
        (IsADirectory, false),
        (Interrupted, false),
    ] {
        assert_eq!(is_for_lack_of_room(&kind.into()), expected, "{kind:?}");
    }
}

#[test]
fn digest_key_survives_a_restart_and_differs_between_files() {
    let (one, other) = (TestFolder::new("names-one"), TestFolder::new("names-other"));
    let digest_key = |folder: &TestFolder| *folder.open().header.digest_key;
    assert_eq!(digest_key(&one), digest_key(&one));
    assert_ne!(digest_key(&one), digest_key(&other));
}

#[test]
fn since_is_the_second_after_the_creation() {
    let folder = TestFolder::with_records("since", 1);
    for today in [TODAY, UnixSeconds(5000)] {
        assert_eq!(HistoryFile::open(folder.file(), today).unwrap().since(), UnixSeconds(TODAY.0 + 1));
    }
}

#[test]
fn cutoff_follows_the_records_that_the_file_has() {
    let folder = TestFolder::with_records("cutoff", 1);
    let mut history = folder.open();
    history.header.since = UnixSeconds(2000);
    let moment = TokenCutoff::At(UnixSeconds(2000).into());
    let (earlier, later) = (TokenCutoff::At(UnixSeconds(1999).into()), TokenCutoff::At(UnixSeconds(2001).into()));
    for (origin, configured, expected) in [
        (HistoryOrigin::Created, TokenCutoff::AtStart, TokenCutoff::AtStart),
        (HistoryOrigin::Created, TokenCutoff::None, TokenCutoff::None),
        (HistoryOrigin::Continued, TokenCutoff::AtStart, moment),
        (HistoryOrigin::Continued, TokenCutoff::None, TokenCutoff::None),
        (HistoryOrigin::Shortened, TokenCutoff::AtStart, TokenCutoff::AtStart),
        (HistoryOrigin::Shortened, TokenCutoff::None, TokenCutoff::AtStart),
        (HistoryOrigin::ClockSteppedBack, TokenCutoff::AtStart, moment),
        (HistoryOrigin::ClockSteppedBack, TokenCutoff::None, moment),
        (HistoryOrigin::ClockSteppedBack, earlier, moment),
        (HistoryOrigin::ClockSteppedBack, later, later),
        (HistoryOrigin::Shortened, earlier, moment),
        (HistoryOrigin::Shortened, later, later),
    ] {
        history.origin = origin;
        assert_eq!(history.token_cutoff(configured), expected, "{origin:?}, {configured:?}");
    }
}

#[test]
fn file_of_the_old_format_is_converted() {
    let folder = TestFolder::new("old-format");
    let key = [5; 32];
    let checks = DigestKey::from(&DigestKey::from(&key).full(&[b"history file check"]));
    let magic = b"slipgate-hist-2\n";
    let since = 700_u64.to_le_bytes();
    let mut bytes = [magic.as_slice(), &key, &since, &checks.digest(&[magic.as_slice(), &key, &since]).0[..8]].concat();
    for used in [used(1), UsedToken { expires: UnixSeconds(900), ..used(2) }, used(3)] {
        let (name, expires) = (used.name.0, used.expires.0.to_le_bytes());
        bytes.extend([name.as_slice(), &expires, &checks.digest(&[name.as_slice(), &expires]).0[..8]].concat());
    }
    std::fs::write(folder.file(), &bytes).unwrap();
    set_private(&folder.file());
    let history = folder.open();
    assert_eq!((history.origin, history.since(), *history.header.digest_key), {
        (HistoryOrigin::Continued, UnixSeconds(700), key)
    });
    let kept = history.kept();
    assert_eq!(
        (kept.used.as_slice(), kept.dropped_until),
        (&[used(1), used(3)][..], TODAY),
        "earlier expiries are gone"
    );
    drop(history);
    assert_eq!(&std::fs::read(folder.file()).unwrap()[..16], b"slipgate-hist-3\n");
    assert_eq!(folder.names(), [1, 3]);

    // The old format does not say how many records are missing at a cut end, so any cut counts.
    std::fs::remove_file(folder.0.join("history.lock")).unwrap();
    std::fs::write(folder.file(), &bytes[..bytes.len() - 1]).unwrap();
    assert_eq!(folder.open().origin, HistoryOrigin::Shortened);
    // A lock file that remembers records of this history marks the old file as an older copy.
    folder.open().store(&[used(4)]).unwrap();
    std::fs::write(folder.file(), &bytes).unwrap();
    assert_eq!(folder.open().origin, HistoryOrigin::Shortened);
    for record in 0..2_usize {
        let mut damaged = bytes.clone();
        damaged[64 + record * RECORD_BYTES + 3] ^= 1;
        std::fs::write(folder.file(), &damaged).unwrap();
        let offset = (64 + record * RECORD_BYTES) as u64;
        assert!(matches!(folder.refused(), HistoryFileError::Damaged(at) if at == offset), "record {record}");
    }
}

#[test]
fn files_up_to_the_limit_are_read() {
    for (bytes, is_too_large) in [(20 << 20, false), (length_of(MAX_RECORDS) + 1, true)] {
        let folder = TestFolder::new("large");
        // A sparse file of zeros: too large, or no history.
        File::create(folder.file()).unwrap().set_len(bytes).unwrap();
        set_private(&folder.file());
        assert_eq!(matches!(folder.refused(), HistoryFileError::TooLarge), is_too_large, "{bytes} bytes");
    }
}

#[test]
fn bytes_of_a_torn_end_are_counted() {
    let folder = TestFolder::with_records("torn-bytes", 3);
    let mut bytes = std::fs::read(folder.file()).unwrap();
    for torn in [0, 1, RECORD_BYTES - 1] {
        bytes.resize(length_of(3) as usize + torn, 0xee);
        assert_eq!(ParsedHistory::parse(&bytes).ok().map(|parsed| parsed.torn_bytes), Some(torn));
    }
}

#[test]
fn only_a_whole_file_of_the_present_format_is_used_as_it_is() {
    use HistoryOrigin::{Continued, Shortened};
    let folder = TestFolder::with_records("as-it-is", 2);
    let bytes = std::fs::read(folder.file()).unwrap();
    for (origin, torn_bytes, version, expected) in [
        (Continued, 0, FormatVersion::Chained, true),
        (Shortened, 0, FormatVersion::Chained, false),
        (Continued, 1, FormatVersion::Chained, false),
        (Continued, 0, FormatVersion::Separate, false),
    ] {
        let parsed = ParsedHistory { torn_bytes, version, ..ParsedHistory::parse(&bytes).unwrap() };
        assert_eq!(parsed.is_usable_as_it_is(origin), expected, "{origin:?}, {torn_bytes} bytes, {version:?}");
    }
}

#[test]
fn file_that_cannot_be_rewritten_is_refused() {
    let folder = TestFolder::with_records("no-rewrite", 2);
    let in_the_way = folder.0.join("history.new");
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    assert!(matches!(folder.refused(), HistoryFileError::Io(_)));
    std::fs::remove_dir_all(in_the_way).unwrap();
    assert_eq!(folder.names(), [0, 1]);
}

#[test]
fn losses_and_failed_writes_are_logged_once() {
    let folder = TestFolder::with_records("logged", 2);
    let whole = std::fs::read(folder.file()).unwrap();
    let mut torn = whole.clone();
    torn.extend([0xee; 5]);
    for (name, bytes, expected) in [
        ("whole", &whole[..], [0, 0]),
        ("torn", &torn[..], [1, 0]),
        ("shortened", &whole[..length_of(1) as usize], [0, 1]),
    ] {
        std::fs::write(folder.file(), bytes).unwrap();
        let (_, torn) = count_warnings("torn record", || drop(folder.open()));
        std::fs::write(folder.file(), bytes).unwrap();
        let (_, lost) = count_warnings("lacks used tokens", || drop(folder.open()));
        assert_eq!([torn, lost], expected, "{name}");
    }

    let mut history = write(&folder, 1);
    let in_the_way = folder.0.join("history.new");
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    history.needs_full_write = true;
    let store = |history: &mut HistoryFile| count_warnings("cannot be written", || history.store(&[used(7)]));
    assert_eq!([store(&mut history), store(&mut history)], [(Err(JournalError), 1), (Err(JournalError), 0)]);
    std::fs::remove_dir_all(&in_the_way).unwrap();
    assert_eq!(store(&mut history), (Ok(()), 0));
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    history.needs_full_write = true;
    assert_eq!(store(&mut history), (Err(JournalError), 1), "logged again after a success");
}

#[test]
fn lock_file_with_a_byte_too_many_is_no_lock() {
    let folder = TestFolder::with_records("long-lock", 1);
    let path = folder.0.join("history.lock");
    let mut lock = std::fs::read(&path).unwrap();
    lock.push(1);
    std::fs::write(&path, lock).unwrap();
    assert!(matches!(folder.refused(), HistoryFileError::NotALock));
}

/// The system refuses to write to a program that runs, even for the root user.
#[cfg(target_os = "linux")]
#[test]
fn file_that_cannot_be_opened_is_not_replaced() {
    let folder = TestFolder::new("busy");
    std::fs::copy("/bin/sleep", folder.file()).unwrap();
    std::fs::set_permissions(folder.file(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let program = std::fs::read(folder.file()).unwrap();
    let mut sleeper = std::process::Command::new(folder.file()).arg("60").spawn().unwrap();
    let refused = folder.refused();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(matches!(refused, HistoryFileError::Io(_)), "{refused}");
    assert!(std::fs::read(folder.file()).unwrap() == program, "the file is the same");
}

fn set_private(path: &Path) {
    #[cfg(unix)]
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    #[cfg(not(unix))]
    let _ = path;
}

#[test]
fn two_servers_cannot_use_one_file() {
    let folder = TestFolder::new("locked");
    let history = write(&folder, 1);
    assert!(matches!(HistoryFile::open(folder.file(), TODAY).err(), Some(HistoryFileError::Locked)));
    drop(history);
    folder.open();
}

#[test]
fn large_file_is_rewritten_without_expired_records() {
    let folder = TestFolder::new("compact");
    let mut history = folder.open();
    let expired = UsedToken { expires: UnixSeconds(1), ..used(1) };
    let batch: Vec<_> = [expired, used(2)].repeat(512);
    for _ in 0..MAX_APPENDED / 1024 {
        history.tidy();
        assert!(history.end.records == history.appended);
        history.store(&batch).unwrap();
    }
    history.store(&[used(3)]).unwrap();
    assert_eq!(std::fs::metadata(folder.file()).unwrap().len(), length_of(MAX_APPENDED + 1));
    history.tidy();
    assert_eq!(std::fs::metadata(folder.file()).unwrap().len(), length_of(MAX_APPENDED / 2 + 1));
    assert_eq!(history.header.number_of(history.end), MAX_APPENDED + 1, "numbers are not used again");
    history.store(&[used(4)]).unwrap();
    drop(history);
    assert_eq!(folder.open().kept().used.len() as u64, MAX_APPENDED / 2 + 2);
}

#[cfg(unix)]
#[test]
fn pipes_devices_and_directories_are_refused_without_a_wait() {
    let folder = TestFolder::new("kinds");
    let pipe = folder.0.join("pipe");
    let mut kinds = vec![PathBuf::from("/dev/zero"), folder.0.clone(), PathBuf::from("..")];
    if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        kinds.push(pipe);
    }
    for path in kinds {
        let error = HistoryFile::open(&path, TODAY).err().unwrap();
        assert!(matches!(error, HistoryFileError::NotAFile), "{}: {error}", path.display());
    }
}
