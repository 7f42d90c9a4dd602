//! File systems for tests, which can be frozen or filled. They need root.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system of its own, unmounted at the end.
pub(crate) struct Volume {
    pub(crate) folder: PathBuf,
    image: PathBuf,
}

/// Runs a command to its end.
pub(crate) fn run(command: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(command).args(arguments).output().map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

impl Volume {
    /// Mounts an ext4 file system on a loop device, as `volume` in this folder.
    pub(crate) fn freezable(test: &Path) -> Result<Self, String> {
        let (folder, image) = (test.join("volume"), test.join("image"));
        let volume = Self { folder, image };
        let (folder, image) = volume.paths();
        fs::create_dir_all(folder).unwrap();
        fs::File::create(image).unwrap().set_len(16 << 20).unwrap();
        run("mkfs.ext4", &["-q", "-F", image])?;
        run("mount", &["-o", "loop", image, folder])?;
        run("fsfreeze", &["--freeze", folder])?;
        run("fsfreeze", &["--unfreeze", folder])?;
        Ok(volume)
    }

    /// Mounts a file system in memory with this limit of its size or of its number of files, as `volume` in this
    /// folder.
    pub(crate) fn small(test: &Path, limit: &str) -> Result<Self, String> {
        let volume = Self { folder: test.join("volume"), image: PathBuf::new() };
        fs::create_dir_all(&volume.folder).unwrap();
        run("mount", &["-t", "tmpfs", "-o", limit, "tmpfs", volume.paths().0])?;
        Ok(volume)
    }

    fn paths(&self) -> (&str, &str) {
        (self.folder.to_str().unwrap(), self.image.to_str().unwrap())
    }

    pub(crate) fn freeze(&self, action: &str) {
        run("fsfreeze", &[action, self.paths().0]).unwrap();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = run("fsfreeze", &["--unfreeze", self.paths().0]);
        let _ = run("umount", &["--lazy", self.paths().0]);
    }
}
