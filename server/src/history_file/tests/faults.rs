//! Disks that fail: full ones, ones that cannot flush, and writes that stop in the middle of a record.

use super::*;

/// What goes wrong with a file.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// A write that would make the file longer stops there, as with a limit of the size or on a full disk.
    max_bytes: Option<u64>,
    /// Writes to the header fail.
    no_confirmation: bool,
    no_cut: bool,
    no_sync: bool,
}

/// A file with faults that the test sets.
struct FaultyFile {
    file: File,
    faults: Arc<Mutex<Faults>>,
}

impl FaultyFile {
    /// Replaces the open file of a history.
    fn put_into(history: &mut HistoryFile) -> Arc<Mutex<Faults>> {
        let file = File::options().read(true).write(true).open(&history.path).unwrap();
        let faults = Arc::new(Mutex::new(Faults::default()));
        history.file = Some(Box::new(Self { file, faults: Arc::clone(&faults) }));
        faults
    }

    fn faults(&self) -> Faults {
        *self.faults.lock().unwrap()
    }
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

impl RecordFile for FaultyFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if offset < HEADER_BYTES as u64 && self.faults().no_confirmation {
            return Err(full());
        }
        let room = self.faults().max_bytes.map_or(u64::MAX, |max| max.saturating_sub(offset));
        let fitting = room.min(bytes.len() as u64) as usize;
        self.file.write_at(offset, &bytes[..fitting])?;
        if fitting < bytes.len() { Err(full()) } else { Ok(()) }
    }

    fn cut_off(&mut self, length: u64) -> io::Result<()> {
        if self.faults().no_cut { Err(full()) } else { self.file.cut_off(length) }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.faults().no_sync { Err(io::ErrorKind::Other.into()) } else { self.file.sync() }
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file.is_at(path)
    }
}

/// Stores records `5, 6, 7` with faults, and then only `8`. The remains of the longer write must not follow `8`.
fn fail_then_store(name: &str, faults: Faults) {
    let folder = TestFolder::new(name);
    let mut history = write(&folder, 2);
    let current = FaultyFile::put_into(&mut history);
    *current.lock().unwrap() = faults;
    for _ in 0..2 {
        assert_eq!(history.store(&[used(5), used(6), used(7)]), Err(JournalError));
    }
    // A crash at this moment keeps all confirmed records.
    let copy = TestFolder::new(&format!("{name}-crashed"));
    std::fs::copy(folder.file(), copy.file()).unwrap();
    let lock = copy.0.join("history.lock");
    std::fs::write(&lock, b"").unwrap();
    set_private(&lock);
    let crashed = copy.open();
    assert_eq!(
        (crashed.origin, crashed.kept().used.starts_with(&[used(0), used(1)])),
        (HistoryOrigin::Continued, true)
    );

    *current.lock().unwrap() = Faults::default();
    history.store(&[used(8)]).unwrap();
    assert_eq!(std::fs::metadata(folder.file()).unwrap().len(), length_of(3));
    history.store(&[used(9)]).unwrap();
    drop(history);
    assert_eq!(folder.names(), [0, 1, 8, 9]);
}

#[test]
fn write_that_stops_within_a_record_is_cut_off_before_the_next() {
    for stop in [0, 1, 31, 32, 33, 64, 95] {
        let faults = Faults { max_bytes: Some(length_of(2) + stop), ..Faults::default() };
        fail_then_store(&format!("torn-{stop}"), faults);
    }
    fail_then_store("unconfirmed", Faults { no_confirmation: true, ..Faults::default() });
}

#[test]
fn records_wait_until_a_torn_end_can_be_cut_off() {
    let folder = TestFolder::new("no-cut");
    let mut history = write(&folder, 1);
    let current = FaultyFile::put_into(&mut history);
    *current.lock().unwrap() = Faults { max_bytes: Some(length_of(1) + 40), no_cut: true, ..Faults::default() };
    assert_eq!(history.store(&[used(5), used(6)]), Err(JournalError));
    current.lock().unwrap().max_bytes = None;
    assert_eq!(history.store(&[used(8)]), Err(JournalError), "the end is still torn");
    current.lock().unwrap().no_cut = false;
    history.store(&[used(8)]).unwrap();
    drop(history);
    assert_eq!(folder.names(), [0, 8]);
}

#[test]
fn after_a_failed_flush_the_file_is_rewritten() {
    let folder = TestFolder::new("needs-full-write");
    let mut history = write(&folder, 2);
    let current = FaultyFile::put_into(&mut history);
    // Systems report a failed flush once; the next flush would succeed without writing.
    current.lock().unwrap().no_sync = true;
    assert_eq!(history.store(&[used(7)]), Err(JournalError));
    assert!(history.needs_full_write);
    // The faulty file is replaced by a new one.
    assert_eq!(history.store(&[used(7)]), Ok(()));
    assert!(!history.needs_full_write);
    history.store(&[used(8)]).unwrap();
    drop(history);
    assert_eq!(folder.names(), [0, 1, 7, 8]);
}

#[test]
fn renamed_file_is_used_even_if_its_directory_is_not_flushed() {
    let folder = TestFolder::new("renamed");
    let mut history = write(&folder, 1);
    history.rewrite(&[]).unwrap();
    // The state after a failed flush of the directory: the next records need a rewrite.
    history.needs_full_write = true;
    history.store(&[used(2)]).unwrap();
    assert!(!history.needs_full_write);
    drop(history);
    assert_eq!(folder.names(), [0, 2]);
}

/// Makes rewrites fail: a directory is in the way of the new file.
fn block_rewrites(folder: &TestFolder) -> PathBuf {
    let in_the_way = folder.0.join("history.new");
    std::fs::create_dir_all(in_the_way.join("full")).unwrap();
    in_the_way
}

#[test]
fn failed_removal_of_expired_records_loses_none() {
    let folder = TestFolder::new("failed-compaction");
    let mut history = write(&folder, 3);
    let in_the_way = block_rewrites(&folder);
    history.appended = MAX_APPENDED;
    history.tidy();
    assert_eq!((history.appended, history.needs_full_write), (0, false), "it is tried again after as many records");
    history.store(&[used(4)]).unwrap();
    history.tidy();
    std::fs::remove_dir_all(in_the_way).unwrap();
    history.appended = MAX_APPENDED;
    history.tidy();
    history.store(&[used(5)]).unwrap();
    drop(history);
    assert_eq!(folder.names(), [0, 1, 2, 4, 5]);
}

#[test]
fn full_file_takes_no_record_until_a_rewrite_makes_room() {
    let folder = TestFolder::new("limit");
    let mut history = write(&folder, 2);
    history.store(&[UsedToken { expires: UnixSeconds(5), ..used(3) }]).unwrap();
    history.max_records = 3;
    let in_the_way = block_rewrites(&folder);
    assert_eq!(history.store(&[used(4)]), Err(JournalError), "the expired record cannot be removed");
    std::fs::remove_dir_all(in_the_way).unwrap();
    assert_eq!(history.store(&[used(4)]), Ok(()));
    assert_eq!(history.store(&[used(5)]), Err(JournalError), "there are three unexpired records");
    history.max_records = 4;
    assert_eq!(history.store(&[used(5)]), Ok(()));
    drop(history);
    assert_eq!(folder.names(), [0, 1, 4, 5]);
}

/// An open file that calls a function when it is closed.
struct ClosingFile {
    file: Option<File>,
    on_close: Option<Box<dyn FnOnce() + Send>>,
}

impl ClosingFile {
    /// Replaces the open file of a history.
    fn put_into(history: &mut HistoryFile, on_close: impl FnOnce() + Send + 'static) {
        // The file that a rewrite must close is the only open one.
        history.file = None;
        let file = File::options().read(true).write(true).open(&history.path).unwrap();
        history.file = Some(Box::new(Self { file: Some(file), on_close: Some(Box::new(on_close)) }));
    }

    fn file(&self) -> &File {
        self.file.as_ref().unwrap()
    }
}

impl Drop for ClosingFile {
    fn drop(&mut self) {
        self.file = None;
        self.on_close.take().unwrap()();
    }
}

impl RecordFile for ClosingFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().unwrap().write_at(offset, bytes)
    }

    fn cut_off(&mut self, length: u64) -> io::Result<()> {
        self.file().set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file().sync_data()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        self.file().is_at(path)
    }
}

/// Makes a rename fail: nothing has the name of the new file.
fn take_new_file_away(folder: &Path) {
    std::fs::rename(folder.join("history.new"), folder.join("moved")).unwrap();
}

#[test]
fn file_is_closed_before_it_is_replaced() {
    let folder = TestFolder::new("closed");
    let mut history = write(&folder, 2);
    let (path, old) = (folder.file(), std::fs::read(folder.file()).unwrap());
    let found = Arc::new(Mutex::new(None));
    let to = Arc::clone(&found);
    ClosingFile::put_into(&mut history, move || *to.lock().unwrap() = Some(std::fs::read(path).unwrap()));
    history.needs_full_write = true;
    history.store(&[used(2)]).unwrap();
    assert_eq!(found.lock().unwrap().take(), Some(old), "the old file is in its place until then");
    drop(history);
    assert_eq!(folder.names(), [0, 1, 2]);
}

#[test]
fn file_that_cannot_be_replaced_is_opened_again() {
    let folder = TestFolder::new("reopened");
    let mut history = write(&folder, 2);
    let path = folder.0.clone();
    ClosingFile::put_into(&mut history, move || take_new_file_away(&path));
    assert!(history.rewrite(&[used(5)]).is_err());
    assert_eq!(std::fs::metadata(folder.file()).unwrap().len(), length_of(2));
    // No rewrite is possible now, so these records are appended.
    let in_the_way = block_rewrites(&folder);
    history.store(&[used(2)]).unwrap();
    history.store(&[used(3)]).unwrap();
    assert_eq!(std::fs::metadata(folder.file()).unwrap().len(), length_of(4));
    std::fs::remove_dir_all(in_the_way).unwrap();
    history.rewrite(&[used(4)]).unwrap();
    drop(history);
    assert_eq!(folder.names(), [0, 1, 2, 3, 4]);
}

#[test]
fn another_file_in_its_place_is_not_continued() {
    let earlier = TestFolder::with_records("earlier", 3);
    let foreign = std::fs::read(earlier.file()).unwrap();
    let folder = TestFolder::new("other-file");
    for case in ["an older copy", "another history", "a cut file", "no file", "a directory"] {
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir_all(&folder.0).unwrap();
        let mut history = write(&folder, 1);
        let older = std::fs::read(folder.file()).unwrap();
        history.store(&[used(1)]).unwrap();
        let cut = std::fs::read(folder.file()).unwrap()[..length_of(1) as usize].to_vec();
        let (path, other) = (folder.0.clone(), foreign.clone());
        ClosingFile::put_into(&mut history, move || {
            let file = path.join("history");
            match case {
                "an older copy" => std::fs::write(file, older).unwrap(),
                "another history" => std::fs::write(file, other).unwrap(),
                "a cut file" => std::fs::write(file, cut).unwrap(),
                "no file" => std::fs::remove_file(file).unwrap(),
                _ => {
                    std::fs::remove_file(&file).unwrap();
                    std::fs::create_dir_all(file.join("full")).unwrap();
                }
            }
            take_new_file_away(&path);
        });
        assert!(history.rewrite(&[]).is_err(), "{case}");
        let in_the_way = block_rewrites(&folder);
        assert_eq!(history.store(&[used(2)]), Err(JournalError), "{case}: nothing is appended");
        std::fs::remove_dir_all(in_the_way).unwrap();
        if case == "a directory" {
            assert_eq!(history.store(&[used(2)]), Err(JournalError), "{case} is in the way");
            std::fs::remove_dir_all(folder.file()).unwrap();
        }
        assert_eq!(history.store(&[used(2)]), Ok(()), "{case}");
        drop(history);
        assert_eq!(folder.names(), [0, 1, 2], "{case}");
    }
}

#[test]
fn rewrite_that_fails_removes_its_new_file() {
    let folder = TestFolder::with_records("new-file", 1);
    assert!(!folder.0.join("history.new").exists());
    let mut new = NewFile::create(&folder.file()).unwrap();
    new.write(b"not complete").unwrap();
    assert!(folder.0.join("history.new").exists());
    drop(new);
    assert!(!folder.0.join("history.new").exists());
}
