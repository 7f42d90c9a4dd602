//! The licences of the crates that an archive's library contains: their texts must accompany it.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Build, root};

/// Names of files with a licence or a notice begin with one of these words, in any case.
const PREFIXES: [&str; 4] = ["license", "licence", "copying", "notice"];

/// Returns the licences of all crates that are linked into the library, sorted by name.
///
/// # Errors
/// If cargo fails, or a crate names no licence.
pub(crate) fn of_dependencies(build: &Build) -> Result<String, Box<dyn Error>> {
    let mut text = String::from("libslipgate contains these crates. Their licences follow.\n");
    for line in linked_crates(build)? {
        let [name, version, licence] = line.split('\t').collect::<Vec<_>>()[..] else { continue };
        if licence.is_empty() {
            return Err(format!("the crate {name} names no licence").into());
        }
        write!(text, "\n==== {name} {version}: {licence}\n")?;
        for file in licence_files(name, version)? {
            write!(text, "\n-- {}\n\n", file.file_name().unwrap_or_default().display())?;
            text.push_str(&fs::read_to_string(file)?);
        }
    }
    Ok(text)
}

/// Returns a line for each foreign crate: name, version and licence.
fn linked_crates(build: &Build) -> Result<BTreeSet<String>, Box<dyn Error>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).args(["tree", "--locked", "-p", "slipgate-c", "-e", "normal", "--prefix", "none"]);
    cargo.args(["--format", "{p}\t{l}"]);
    if let Some(target) = &build.target {
        cargo.args(["--target", target]);
    }
    if build.client_only {
        cargo.args(["--no-default-features", "--features", "client"]);
    }
    let output = cargo.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let lines = String::from_utf8(output.stdout)?;
    // A package of the registry is `name v1.2.3`; one of this project has a path behind it.
    let foreign = lines.lines().filter_map(|line| {
        let (package, licence) = line.trim_end_matches(" (*)").split_once('\t')?;
        let (name, version) = package.trim_end_matches(" (proc-macro)").split_once(" v")?;
        (!version.contains(' ')).then(|| format!("{name}\t{version}\t{licence}"))
    });
    Ok(foreign.collect())
}

/// Returns the licence files of a crate in cargo's folder of sources.
fn licence_files(name: &str, version: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let home = std::env::var_os("CARGO_HOME")
        .map_or_else(|| Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cargo"), PathBuf::from);
    let mut found = Vec::new();
    for registry in fs::read_dir(home.join("registry/src"))? {
        let Ok(files) = fs::read_dir(registry?.path().join(format!("{name}-{version}"))) else { continue };
        for file in files {
            let path = file?.path();
            let lower = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            if path.is_file() && PREFIXES.iter().any(|prefix| lower.starts_with(prefix)) {
                found.push(path);
            }
        }
        // Another registry may hold the same package.
        break;
    }
    found.sort();
    Ok(found)
}
