use super::*;

const TODAY: UnixSeconds = UnixSeconds(1000);

/// A directory of this test's own, removed at the end.
struct Place(PathBuf);

impl Place {
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

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn used(number: u8, expires: u64) -> UsedToken {
    UsedToken { name: Digest([number; 16]), expires: UnixSeconds(expires) }
}

fn write(place: &Place, count: u8) -> HistoryFile {
    let mut history = HistoryFile::open(place.file(), TODAY).unwrap();
    for number in 0..count {
        history.record(used(number, 2000)).unwrap();
    }
    flush(&mut history).unwrap();
    history
}

/// Makes durable what was recorded, here and now.
fn flush(history: &mut HistoryFile) -> Result<(), JournalError> {
    let outcome = history.sync()?();
    history.synced(outcome)
}

#[test]
fn what_was_recorded_is_there_at_the_next_start_and_what_expired_is_not() {
    let place = Place::new("survives");
    let mut history = write(&place, 3);
    assert!(history.is_new());
    history.record(used(9, 1001)).unwrap();
    drop(history);
    let history = HistoryFile::open(place.file(), UnixSeconds(1001)).unwrap();
    assert!(!history.is_new());
    assert_eq!(history.used, [used(0, 2000), used(1, 2000), used(2, 2000)]);
    assert_eq!(std::fs::metadata(place.file()).unwrap().len(), 64 + 3 * 32);
}

#[test]
fn names_stay_the_same_over_starts_and_differ_between_files() {
    let (one, other) = (Place::new("names-one"), Place::new("names-other"));
    let names = |place: &Place| *HistoryFile::open(place.file(), TODAY).unwrap().header.names;
    assert_eq!(names(&one), names(&one));
    assert_ne!(names(&one), names(&other));
}

#[test]
fn it_says_from_which_second_on_it_knows_of_every_token_used() {
    let place = Place::new("since");
    drop(write(&place, 1));
    for today in [TODAY, UnixSeconds(5000)] {
        assert_eq!(HistoryFile::open(place.file(), today).unwrap().since(), UnixSeconds(TODAY.0 + 1));
    }
}

#[test]
fn a_torn_end_of_any_length_is_cut_off_and_writing_goes_on() {
    let place = Place::new("torn");
    drop(write(&place, 3));
    let whole = std::fs::read(place.file()).unwrap();
    for cut in 1..=32 {
        std::fs::write(place.file(), &whole[..whole.len() - cut]).unwrap();
        let mut history = HistoryFile::open(place.file(), TODAY).unwrap();
        assert_eq!(history.used.len(), 2, "{cut} bytes were torn off");
        history.record(used(7, 2000)).unwrap();
        drop(history);
        assert_eq!(HistoryFile::open(place.file(), TODAY).unwrap().used.last(), Some(&used(7, 2000)));
    }
    // A power cut may leave zeros where records were to be.
    std::fs::write(place.file(), [&whole[..], &[0; 100]].concat()).unwrap();
    assert_eq!(HistoryFile::open(place.file(), TODAY).unwrap().used.len(), 3);
}

#[test]
fn damage_in_the_middle_and_foreign_files_are_refused_and_left_as_they_are() {
    let place = Place::new("damaged");
    drop(write(&place, 3));
    let whole = std::fs::read(place.file()).unwrap();
    for byte in 64..64 + 32 {
        let mut damaged = whole.clone();
        damaged[byte] ^= 1;
        std::fs::write(place.file(), &damaged).unwrap();
        let error = HistoryFile::open(place.file(), TODAY).err().unwrap();
        assert!(matches!(error, HistoryFileError::Damaged(64)), "{error}");
        assert_eq!(std::fs::read(place.file()).unwrap(), damaged);
    }
    for byte in 0..64 {
        let mut damaged = whole.clone();
        damaged[byte] ^= 1;
        std::fs::write(place.file(), &damaged).unwrap();
        let error = HistoryFile::open(place.file(), TODAY).err().unwrap();
        let refused = if byte < 16 {
            matches!(error, HistoryFileError::Foreign)
        } else {
            matches!(error, HistoryFileError::Damaged(16))
        };
        assert!(refused, "byte {byte}: {error}");
        assert_eq!(std::fs::read(place.file()).unwrap(), damaged);
    }
    for foreign in [&b"x"[..], &whole[..63], &[b'#'; 100]] {
        std::fs::write(place.file(), foreign).unwrap();
        let error = HistoryFile::open(place.file(), TODAY).err().unwrap();
        assert!(matches!(error, HistoryFileError::Foreign), "{error}");
    }
}

#[test]
fn two_servers_cannot_use_one_file() {
    let place = Place::new("locked");
    let history = write(&place, 1);
    let error = HistoryFile::open(place.file(), TODAY).err().unwrap();
    assert!(matches!(error, HistoryFileError::Locked), "{error}");
    drop(history);
    assert!(HistoryFile::open(place.file(), TODAY).is_ok());
}

#[test]
fn a_file_that_has_grown_is_written_anew_without_what_expired() {
    let place = Place::new("compact");
    let mut history = HistoryFile::open(place.file(), TODAY).unwrap();
    let future = slipgate_os::clock::wall_clock().seconds().0 + 1000;
    for number in 0..=COMPACT_AFTER {
        let expires = if number % 2 == 0 { 1 } else { future };
        history.record(used(number as u8, expires)).unwrap();
    }
    flush(&mut history).unwrap();
    assert!(std::fs::metadata(place.file()).unwrap().len() < 64 + (COMPACT_AFTER / 2 + 2) * 32);
    drop(history);
    assert_eq!(HistoryFile::open(place.file(), TODAY).unwrap().used.len() as u64, COMPACT_AFTER / 2);
}

#[cfg(unix)]
#[test]
fn the_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("mode");
    drop(write(&place, 1));
    assert_eq!(std::fs::metadata(place.file()).unwrap().permissions().mode() & 0o777, 0o600);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_refuses_and_leaves_no_torn_record_behind() {
    // /dev/full takes no byte: the place of a disk without room.
    let place = Place::new("full");
    let mut history = write(&place, 1);
    let real = std::mem::replace(&mut history.file, OpenOptions::new().write(true).open("/dev/full").unwrap().into());
    assert_eq!(history.record(used(5, 2000)), Err(JournalError));
    history.file = real;
    history.torn_at = Some(64 + 32);
    history.record(used(6, 2000)).unwrap();
    drop(history);
    assert_eq!(HistoryFile::open(place.file(), TODAY).unwrap().used, [used(0, 2000), used(6, 2000)]);
}

#[cfg(unix)]
#[test]
fn a_link_is_followed_and_stays_a_link() {
    let place = Place::new("link");
    let volume = place.0.join("volume");
    std::fs::create_dir_all(&volume).unwrap();
    std::os::unix::fs::symlink(volume.join("history"), place.file()).unwrap();
    let mut history = HistoryFile::open(place.file(), TODAY).unwrap();
    history.record(used(1, 2000)).unwrap();
    flush(&mut history).unwrap();
    assert!(std::fs::symlink_metadata(place.file()).unwrap().is_symlink());
    assert_eq!(std::fs::metadata(volume.join("history")).unwrap().len(), 64 + 32);
    let error = HistoryFile::open(volume.join("history"), TODAY).err().unwrap();
    assert!(matches!(error, HistoryFileError::Locked), "by another path it is the same file: {error}");
}

#[cfg(target_os = "linux")]
#[test]
fn after_a_failed_flush_nothing_is_durable_until_all_was_written_anew() {
    let place = Place::new("doubtful");
    let mut history = write(&place, 2);
    // A device that cannot flush. Systems report a failed flush once; the next one would succeed with nothing written.
    history.file = OpenOptions::new().write(true).open("/dev/null").unwrap().into();
    history.record(used(7, u64::MAX)).unwrap();
    history.used.iter_mut().for_each(|used| used.expires = UnixSeconds(u64::MAX));
    assert_eq!(flush(&mut history), Err(JournalError));
    assert!(history.doubtful);
    assert_eq!(flush(&mut history), Ok(()));
    assert!(!history.doubtful);
    history.record(used(8, u64::MAX)).unwrap();
    flush(&mut history).unwrap();
    drop(history);
    let kept: Vec<_> = HistoryFile::open(place.file(), TODAY).unwrap().used.iter().map(|used| used.name.0[0]).collect();
    assert_eq!(kept, [0, 1, 7, 8]);
}

#[test]
fn what_is_recorded_while_the_file_is_flushed_is_kept_and_so_is_a_file_that_is_written_anew_meanwhile() {
    let place = Place::new("meanwhile");
    let mut history = write(&place, 1);
    history.used.iter_mut().for_each(|used| used.expires = UnixSeconds(u64::MAX));
    history.record(used(2, u64::MAX)).unwrap();
    let sync = history.sync().unwrap();
    history.record(used(3, u64::MAX)).unwrap();
    history.compact(TODAY).unwrap();
    history.record(used(4, u64::MAX)).unwrap();
    let outcome = sync();
    history.synced(outcome).unwrap();
    assert!(!history.doubtful);
    drop(history);
    let kept: Vec<_> = HistoryFile::open(place.file(), TODAY).unwrap().used.iter().map(|used| used.name.0[0]).collect();
    assert_eq!(kept, [0, 2, 3, 4]);
}

#[cfg(unix)]
#[test]
fn a_new_file_that_is_in_place_is_written_to_even_if_its_directory_cannot_be_flushed() {
    let place = Place::new("renamed");
    let mut history = write(&place, 1);
    history.used.iter_mut().for_each(|used| used.expires = UnixSeconds(u64::MAX));
    history.compact(TODAY).unwrap();
    // As if flushing the directory had failed: the next flush does not say yes before everything was written anew.
    history.doubtful = true;
    history.record(used(2, u64::MAX)).unwrap();
    flush(&mut history).unwrap();
    assert!(!history.doubtful);
    drop(history);
    assert_eq!(HistoryFile::open(place.file(), TODAY).unwrap().used.len(), 2);
}

#[cfg(unix)]
#[test]
fn a_pipe_a_device_and_a_directory_are_refused_and_not_waited_for() {
    let place = Place::new("kinds");
    let pipe = place.0.join("pipe");
    let mut kinds = vec![PathBuf::from("/dev/zero"), place.0.clone()];
    if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        kinds.push(pipe);
    }
    for path in kinds {
        let error = HistoryFile::open(&path, TODAY).err().unwrap();
        assert!(matches!(error, HistoryFileError::NotAFile), "{}: {error}", path.display());
    }
}
