//! Directories in which other users can write.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn all_files_are_of_the_owner_alone() {
    let folder = TestFolder::with_records("mode", 1);
    for file in ["history", "history.lock"] {
        assert_eq!(mode_of(&folder.0.join(file)), 0o600, "{file}");
    }
}

#[test]
fn planted_new_file_is_removed_and_not_followed() {
    let folder = TestFolder::with_records("planted", 1);
    let (victim, planted) = (folder.0.join("victim"), folder.0.join("history.new"));
    std::fs::write(&victim, "precious").unwrap();
    set_mode(&victim, 0o644);
    symlink(&victim, &planted).unwrap();
    drop(folder.open());
    assert_eq!((std::fs::read(&victim).unwrap(), mode_of(&victim)), (b"precious".to_vec(), 0o644));
    assert!(std::fs::symlink_metadata(folder.file()).unwrap().is_file());
    assert_eq!(mode_of(&folder.file()), 0o600);

    std::fs::write(&planted, "of another user").unwrap();
    set_mode(&planted, 0o666);
    drop(folder.open());
    assert_eq!(mode_of(&folder.file()), 0o600);

    assert!(std::process::Command::new("mkfifo").arg(&planted).status().unwrap().success());
    assert_eq!(folder.names(), [0]);
    assert!(std::fs::symlink_metadata(folder.file()).unwrap().is_file() && !planted.exists());
}

#[test]
fn symbolic_links_in_place_of_file_and_lock_are_refused() {
    let folder = TestFolder::with_records("links", 1);
    let (file, lock, elsewhere) = (folder.file(), folder.0.join("history.lock"), folder.0.join("elsewhere"));
    for (path, is_dangling) in [(&file, false), (&lock, false), (&file, true), (&lock, true)] {
        let content = std::fs::read(path).unwrap();
        std::fs::remove_file(path).unwrap();
        if !is_dangling {
            std::fs::write(&elsewhere, &content).unwrap();
            set_mode(&elsewhere, 0o600);
        }
        symlink(&elsewhere, path).unwrap();
        assert!(matches!(folder.refused(), HistoryFileError::IsLink), "{}", path.display());
        assert_eq!(elsewhere.exists(), !is_dangling);
        let _ = std::fs::remove_file(&elsewhere);
        std::fs::remove_file(path).unwrap();
        std::fs::write(path, content).unwrap();
        set_mode(path, 0o600);
    }
    assert_eq!(folder.names(), [0]);
}

#[test]
fn link_made_after_the_check_of_its_path_is_not_opened() {
    let folder = TestFolder::with_records("late-link", 1);
    let link = folder.0.join("link");
    symlink(folder.file(), &link).unwrap();
    assert!(record_file::private().open(folder.file()).is_ok());
    assert!(record_file::private().open(link).is_err());
}

#[test]
fn file_planted_after_the_removal_of_its_path_is_not_used() {
    let folder = TestFolder::with_records("late-file", 0);
    let (planted, link) = (folder.0.join("planted"), folder.0.join("link"));
    std::fs::write(&planted, "of another user").unwrap();
    symlink(folder.0.join("elsewhere"), &link).unwrap();
    for path in [&planted, &link] {
        assert_eq!(record_file::create_private(path).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    }
    assert!(!folder.0.join("elsewhere").exists());
}

#[test]
fn links_to_the_directory_lead_to_one_lock() {
    let folder = TestFolder::with_records("directory-link", 1);
    let other = TestFolder::new("directory-link-other");
    symlink(&folder.0, other.0.join("volume")).unwrap();
    let history = folder.open();
    let error = HistoryFile::open(other.0.join("volume/history"), TODAY).err().unwrap();
    assert!(matches!(error, HistoryFileError::Locked), "{error}");
    drop(history);
    assert_eq!(HistoryFile::open(other.0.join("volume/history"), TODAY).unwrap().len(), 1);
}

#[test]
fn files_that_all_users_may_access_are_refused() {
    let folder = TestFolder::with_records("exposed", 1);
    for file in [folder.file(), folder.0.join("history.lock")] {
        for exposed in [0o666, 0o644, 0o604, 0o602] {
            set_mode(&file, exposed);
            let error = folder.refused();
            assert!(matches!(error, HistoryFileError::ExposedFile { mode } if mode == exposed), "{error}");
        }
        // Container volumes give files to the group of the container.
        set_mode(&file, 0o660);
        drop(folder.open());
        set_mode(&file, 0o600);
    }
}

#[test]
fn directory_that_all_users_can_change_must_be_sticky() {
    let folder = TestFolder::with_records("directory-mode", 1);
    let below = folder.0.join("below");
    std::fs::create_dir(&below).unwrap();
    for shared in [0o777, 0o733, 0o703] {
        set_mode(&folder.0, shared);
        // Who can change a directory can exchange the directories in it.
        for error in [folder.refused(), HistoryFile::open(below.join("history"), TODAY).err().unwrap()] {
            assert!(matches!(error, HistoryFileError::SharedDirectory { mode } if mode == shared), "{error}");
            assert!(error.to_string().contains(&format!("{shared:04o}")), "{error}");
        }
    }
    for private in [0o1777, 0o775, 0o2770, 0o700] {
        set_mode(&folder.0, private);
        drop(folder.open());
    }
}

#[test]
fn access_of_the_group_is_allowed_but_logged() {
    let folder = TestFolder::with_records("group", 1);
    let below = folder.0.join("below");
    std::fs::create_dir(&below).unwrap();
    set_mode(&below, 0o700);
    let warnings = |file: &Path| count_warnings("history file: the group", || drop(open_unlocked(file).unwrap())).1;
    let (directory, file, lock) = (folder.0.clone(), folder.file(), folder.0.join("history.lock"));
    for (path, mode, expected) in [
        (&directory, 0o700, 0),
        (&directory, 0o755, 0),
        (&directory, 0o770, 1),
        (&directory, 0o1770, 0),
        (&file, 0o600, 0),
        (&file, 0o660, 1),
        (&file, 0o640, 1),
        (&lock, 0o640, 1),
    ] {
        let before = mode_of(path);
        set_mode(path, mode);
        assert_eq!(warnings(&file), expected, "{} {mode:o}", path.display());
        set_mode(path, before);
    }
    set_mode(&directory, 0o770);
    assert_eq!(warnings(&below.join("history")), 1, "the group can exchange the directory of the file");
}

/// Gives a file or directory to a user. Returns whether that is possible: only root can.
fn give(path: &Path, uid: u32) -> bool {
    let is_given = std::os::unix::fs::chown(path, Some(uid), None).is_ok();
    if !is_given {
        let _ = writeln!(io::stderr(), "SKIPPED: only root can give a file to another user");
    }
    is_given
}

#[test]
fn file_or_lock_of_another_user_is_refused() {
    let folder = TestFolder::with_records("owner", 1);
    for path in [folder.file(), folder.0.join("history.lock")] {
        if !give(&path, 12345) {
            return;
        }
        // Only root can open it, which is when its owner matters.
        assert!(matches!(folder.refused(), HistoryFileError::OtherOwner { uid: 12345 }), "{}", path.display());
        assert!(!folder.0.join("history.new").exists());
        assert!(give(&path, 0));
    }
    std::fs::remove_file(folder.file()).unwrap();
    assert!(give(&folder.0.join("history.lock"), 12345));
    assert!(matches!(folder.refused(), HistoryFileError::OtherOwner { uid: 12345 }), "a new file beside it");
    assert!(!folder.file().exists() && !folder.0.join("history.new").exists());
}

#[test]
fn directory_of_another_user_is_allowed_but_logged() {
    let folder = TestFolder::with_records("directory-owner", 1);
    let below = folder.0.join("below");
    std::fs::create_dir(&below).unwrap();
    let warnings =
        |file: &Path| count_warnings("another user owns the directory", || drop(open_unlocked(file).unwrap())).1;
    assert_eq!(warnings(&folder.file()), 0);
    if !give(&folder.0, 12345) {
        return;
    }
    for mode in [0o700, 0o1777] {
        set_mode(&folder.0, mode);
        for path in [folder.file(), below.join("history")] {
            assert_eq!(warnings(&path), 1, "{mode:o} {}", path.display());
        }
    }
}

#[test]
fn second_server_after_removal_of_the_lock_loses_no_record() {
    let folder = TestFolder::new("lock-removed");
    let mut first = write(&folder, 1);
    std::fs::remove_file(folder.0.join("history.lock")).unwrap();
    assert_eq!(first.store(&[used(2)]), Err(JournalError), "the lock is gone");
    let mut second = folder.open();
    second.store(&[used(3)]).unwrap();
    // The first server must not replace the second one's file, not even when asked for a rewrite, and not even when a
    // lock is in place again.
    for _ in 0..2 {
        first.appended = MAX_APPENDED;
        first.tidy();
        first.needs_full_write = true;
        assert_eq!(first.store(&[used(4)]), Err(JournalError));
    }
    let error = first.try_store(&[used(4)]).unwrap_err();
    assert!(error.to_string().contains("lock file"), "{error}");
    second.store(&[used(5)]).unwrap();
    drop((first, second));
    assert_eq!(folder.names(), [0, 3, 5]);
}

#[test]
fn lock_replaced_during_a_write_confirms_nothing() {
    /// Replaces the lock while the file is flushed.
    struct SlowFlush(File, PathBuf);
    impl RecordFile for SlowFlush {
        fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.0.write_at(offset, bytes)
        }
        fn cut_off(&mut self, length: u64) -> io::Result<()> {
            self.0.cut_off(length)
        }
        fn sync(&mut self) -> io::Result<()> {
            std::fs::remove_file(&self.1)
        }
        fn is_at(&self, path: &Path) -> io::Result<bool> {
            self.0.is_at(path)
        }
    }
    let folder = TestFolder::new("lock-race");
    let mut history = write(&folder, 1);
    let file = File::options().read(true).write(true).open(folder.file()).unwrap();
    history.file = Some(Box::new(SlowFlush(file, folder.0.join("history.lock"))));
    assert_eq!(history.store(&[used(2)]), Err(JournalError));
}

#[test]
fn lock_that_cannot_be_examined_is_not_lost() {
    let folder = TestFolder::new("lock-unexamined");
    let mut history = write(&folder, 1);
    // A link to itself: the system follows it until it reports an error other than "not found".
    let away = folder.0.with_extension("away");
    std::fs::rename(&folder.0, &away).unwrap();
    symlink(&folder.0, &folder.0).unwrap();
    for expected in [1, 0] {
        let outcome = count_warnings("cannot be written", || history.store(&[used(2)]));
        assert_eq!(outcome, (Err(JournalError), expected), "the error is logged once");
    }
    let error = history.try_store(&[used(2)]).unwrap_err();
    assert!(error.to_string().contains("cannot be examined"), "{error}");
    std::fs::remove_file(&folder.0).unwrap();
    std::fs::rename(away, &folder.0).unwrap();
    assert_eq!(history.store(&[used(2)]), Ok(()));
    drop(history);
    assert_eq!(folder.names(), [0, 2]);
}

#[test]
fn file_that_was_moved_away_is_written_again() {
    let folder = TestFolder::new("moved");
    let mut history = write(&folder, 2);
    std::fs::rename(folder.file(), folder.0.join("backup")).unwrap();
    history.store(&[used(7)]).unwrap();
    std::fs::remove_file(folder.file()).unwrap();
    history.store(&[used(8)]).unwrap();
    drop(history);
    assert_eq!(folder.names(), [0, 1, 7, 8]);
}

#[test]
fn foreign_file_in_place_of_the_lock_is_refused_and_unchanged() {
    let folder = TestFolder::with_records("foreign-lock", 1);
    let lock = folder.0.join("history.lock");
    for foreign in [&b"a document"[..], &[1; 40], &[1; 400]] {
        std::fs::write(&lock, foreign).unwrap();
        assert!(matches!(folder.refused(), HistoryFileError::NotALock));
        assert_eq!(std::fs::read(&lock).unwrap(), foreign);
    }
    // A power failure may leave zeros.
    std::fs::write(&lock, [0; 40]).unwrap();
    assert_eq!(folder.open().origin, HistoryOrigin::Continued);
}
