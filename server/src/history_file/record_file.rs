//! Where a history file is stored: opening it safely in directories of other users, and replacing it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tracing::warn;

use super::HistoryFileError;

/// An open history file. Tests replace it by one that fails.
pub(super) trait RecordFile: Send {
    /// Writes bytes at an offset, which may be behind the end.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file off behind this number of bytes.
    fn cut_off(&mut self, length: u64) -> io::Result<()>;

    /// Waits until everything is on the disk.
    fn sync(&mut self) -> io::Result<()>;

    /// Returns whether `path` names this file.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
}

impl RecordFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        self.write_all(bytes)
    }

    fn cut_off(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        is_same_file(self, path)
    }
}

/// Returns the path with a resolved directory, so that all paths to one file have one lock.
///
/// # Errors
/// - `SharedDirectory` when all users may replace the files of the directory, or of one above it.
/// - `NotAFile` and `IsLink` unless the path is free or names a regular file. Opening a pipe could block.
/// - `Io` when the directory cannot be read.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, HistoryFileError> {
    let name = path.file_name().ok_or(HistoryFileError::NotAFile)?;
    let directory = std::fs::canonicalize(directory_of(path))?;
    // Who may write to a directory above can exchange the whole directory.
    for directory in directory.ancestors() {
        require_unshared(directory, &std::fs::metadata(directory)?)?;
    }
    let path = directory.join(name);
    // An error other than "not found" comes again when the file is opened.
    if let Ok(metadata) = std::fs::symlink_metadata(&path) {
        require_regular(&metadata)?;
    }
    Ok(path)
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Appends to the file name: the same directory is on the same disk, so that the file can be renamed.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns options that open a file of this user only (mode 0600), never through a symbolic link, and without waiting
/// for the other end of a pipe.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    options
}

/// Creates a file of this user only. It is an error if the path has any file or link.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    private().create_new(true).open(path)
}

/// Opens the history file, if there is one.
pub(super) fn open_existing(path: &Path) -> Result<Option<File>, HistoryFileError> {
    match private().open(path) {
        Ok(file) => checked(path, file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens the lock file, or creates it. Returns whether it was created.
pub(super) fn open_lock(path: &Path) -> Result<(File, bool), HistoryFileError> {
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        require_regular(&metadata)?;
    }
    let (file, is_new) = match private().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (private().open(path)?, false),
        created => (created?, true),
    };
    Ok((checked(path, file)?, is_new))
}

fn checked(path: &Path, file: File) -> Result<File, HistoryFileError> {
    let metadata = file.metadata()?;
    require_regular(&metadata)?;
    require_private(path, &metadata)?;
    Ok(file)
}

fn require_regular(metadata: &Metadata) -> Result<(), HistoryFileError> {
    match metadata {
        regular if regular.is_file() => Ok(()),
        link if link.is_symlink() => Err(HistoryFileError::IsLink),
        _ => Err(HistoryFileError::NotAFile),
    }
}

/// Refuses a file that all users may access, and warns of one that its group may access: container volumes give files
/// to the group of the container.
#[cfg(unix)]
fn require_private(path: &Path, metadata: &Metadata) -> Result<(), HistoryFileError> {
    use std::os::unix::fs::MetadataExt;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(HistoryFileError::ExposedFile { mode });
    }
    if mode & 0o070 != 0 {
        warn_of_group(path, mode, "the group of the file may access it; set its mode to 0600");
    }
    Ok(())
}

#[cfg(unix)]
fn warn_of_group(path: &Path, mode: u32, advice: &str) {
    warn!(path = %path.display(), mode = format!("{mode:04o}"), "history file: {advice}");
}

#[cfg(not(unix))]
fn require_private(_: &Path, _: &Metadata) -> Result<(), HistoryFileError> {
    Ok(())
}

/// Refuses a directory in which all users may replace the files of others, and warns of one in which its group may. In
/// a sticky one, such as `/tmp`, they may not.
#[cfg(unix)]
fn require_unshared(path: &Path, directory: &Metadata) -> Result<(), HistoryFileError> {
    use std::os::unix::fs::MetadataExt;
    let mode = directory.mode() & 0o7777;
    match mode & 0o1022 {
        0o002 | 0o022 => Err(HistoryFileError::SharedDirectory { mode }),
        0o020 => {
            warn_of_group(path, mode, "the group of the directory may replace its files; set its mode to 0700");
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(not(unix))]
fn require_unshared(_: &Path, _: &Metadata) -> Result<(), HistoryFileError> {
    Ok(())
}

/// Returns whether the path names this open file. A path that cannot be examined is an error: the file may be there.
#[cfg(unix)]
pub(super) fn is_same_file(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let opened = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns true: the standard library does not identify files here.
#[cfg(not(unix))]
pub(super) fn is_same_file(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

/// A user of the system, by number. On systems without such numbers all are equal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner(u32);

impl Owner {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self(metadata.uid())
    }

    #[cfg(not(unix))]
    const fn of(_: &Metadata) -> Self {
        Self(0)
    }

    /// Returns the user of this process: the owner of a new pipe.
    #[cfg(unix)]
    fn of_process() -> io::Result<Self> {
        let (reader, _writer) = io::pipe()?;
        Ok(Self::of(&File::from(std::os::fd::OwnedFd::from(reader)).metadata()?))
    }

    #[cfg(not(unix))]
    const fn of_process() -> io::Result<Self> {
        Ok(Self(0))
    }
}

/// Refuses files of another user than that of the new file, and warns of directories of other users. Without a new
/// file, because the disk has no room for one, the files must belong to the user of this process.
///
/// Comparing with a file that was just created is right on network file systems too, which may map users.
pub(super) fn require_owners(history: &Path, new: Option<&NewFile>, files: &[&File]) -> Result<(), HistoryFileError> {
    let ours = new.map_or_else(Owner::of_process, NewFile::owner)?;
    for file in files {
        let owner = Owner::of(&file.metadata()?);
        if owner != ours {
            return Err(HistoryFileError::OtherOwner { uid: owner.0 });
        }
    }
    Ok(warn_of_owners(history, ours)?)
}

/// Warns of each directory above the path that belongs to another user than `ours` and root: the owner of a directory
/// may replace its files, also of a sticky one.
fn warn_of_owners(path: &Path, ours: Owner) -> io::Result<()> {
    for directory in path.ancestors().skip(1) {
        let owner = Owner::of(&std::fs::metadata(directory)?);
        if owner != Owner(0) && owner != ours {
            let advice = "another user owns the directory and may replace its files; use one of the server's own user";
            warn!(path = %directory.display(), uid = owner.0, "history file: {advice}");
        }
    }
    Ok(())
}

/// Returns whether an error says that the disk has no room.
pub(super) fn is_for_lack_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A whole file `FILE.new` beside the old one: a crash leaves at least one of them. It is removed unless it replaces
/// the old one.
pub(super) struct NewFile {
    path: PathBuf,
    file: Option<File>,
}

impl NewFile {
    /// Creates the file without content. It is always a new one: whatever had its name before is removed, and a link is
    /// not followed.
    pub(super) fn create(history: &Path) -> io::Result<Self> {
        let path = beside(history, ".new");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = create_private(&path)?;
        Ok(Self { path, file: Some(file) })
    }

    /// Writes the content and flushes it.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| {
            file.write_all(bytes)?;
            file.sync_all()
        })
    }

    fn owner(&self) -> io::Result<Owner> {
        self.file.as_ref().map_or_else(Owner::of_process, |file| Ok(Owner::of(&file.metadata()?)))
    }

    /// Replaces the history file, and returns the open new one. The old file must be closed: Wine 8, and perhaps some
    /// file systems of Windows, replace no open file.
    pub(super) fn replace(mut self, history: &Path) -> io::Result<File> {
        std::fs::rename(&self.path, history)?;
        self.file.take().ok_or_else(|| io::Error::other("the new file was used twice"))
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The directory of the file. A rename survives a power failure only after its directory was flushed. It is opened
/// before the rename, because opening it afterwards might fail for lack of file handles.
pub(super) struct Directory(
    #[cfg_attr(not(unix), expect(dead_code, reason = "only Unix flushes directories"))] Option<File>,
);

impl Directory {
    #[cfg(unix)]
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        File::open(directory_of(path)).map(|directory| Self(Some(directory)))
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &Path) -> io::Result<Self> {
        Ok(Self(None))
    }

    #[cfg(unix)]
    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), File::sync_all)
    }

    #[cfg(not(unix))]
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
