//! Installs, archives and measures `libslipgate`: `cargo xtask install-c`, `cargo xtask archive-c` and `cargo xtask
//! bench-c`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for developers")]

mod bench;
mod game;
mod install;
mod licences;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Parser};

/// Prepares releases of libslipgate.
#[derive(Parser)]
enum Xtask {
    /// Builds the library and installs it with headers, a pkg-config file and a CMake package.
    InstallC {
        /// The folder that programs will find it in.
        #[arg(long, default_value = "/usr/local")]
        prefix: PathBuf,
        /// A folder before the prefix, for packages.
        #[arg(long)]
        destdir: Option<PathBuf>,
        /// Installs the library in this folder, and builds none.
        #[arg(long, conflicts_with_all = ["profile", "client_only", "glibc"])]
        built: Option<PathBuf>,
        #[command(flatten)]
        build: Build,
    },
    /// Builds the library and writes an archive with headers, licences and a checksum.
    ArchiveC {
        /// The folder for the archive.
        #[arg(long, default_value = "target/archives")]
        out: PathBuf,
        #[command(flatten)]
        build: Build,
    },
    /// Compares the speed of games in C and C# with Rust, and prints the goals beside the figures. Fails if one is
    /// missed.
    BenchC {
        /// How often each program is measured.
        #[arg(long, default_value_t = 40)]
        rounds: usize,
        /// Also builds the stripped libraries and prints their sizes.
        #[arg(long)]
        sizes: bool,
        /// The folder of the sources of netcode.c, which are not part of this project: also compares 64 clients of
        /// the C interface with netcode.c and reliable.c.
        #[arg(long, requires = "reliable")]
        netcode: Option<PathBuf>,
        /// The folder of the sources of reliable.c.
        #[arg(long, requires = "netcode")]
        reliable: Option<PathBuf>,
    },
}

/// The profile of libraries for games.
const SMALL: &str = "release-small";

/// How the library is built.
#[derive(Args)]
struct Build {
    /// The target, such as `x86_64-pc-windows-gnu`; this machine's by default.
    #[arg(long)]
    target: Option<String>,
    /// The cargo profile.
    #[arg(long, default_value = SMALL)]
    profile: String,
    /// Builds the client only.
    #[arg(long)]
    client_only: bool,
    /// The oldest glibc on which the library runs, such as 2.31; this machine's by default. Needs cargo-zigbuild and
    /// Zig, for example from PyPI: `pip install cargo-zigbuild ziglang`.
    #[arg(long)]
    glibc: Option<String>,
}

impl Build {
    fn is_windows(&self) -> bool {
        self.target.as_ref().map_or(cfg!(windows), |target| target.contains("windows"))
    }

    /// Builds the library, and returns the folder in which it lies.
    fn run(&self) -> Result<PathBuf, Box<dyn Error>> {
        self.run_with(&[])
    }

    /// Builds the library with further arguments of cargo.
    fn run_with(&self, arguments: &[&str]) -> Result<PathBuf, Box<dyn Error>> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args([
            if self.glibc.is_some() { "zigbuild" } else { "build" },
            "--locked",
            "-p",
            "slipgate-c",
            "--example",
            "slipgate",
            "--profile",
            &self.profile,
        ]);
        cargo.args(arguments);
        cargo.current_dir(root());
        if self.profile == SMALL {
            // SHA-256 in a loop takes 9 kB less. Processors with instructions for it, most of today's, do not use it.
            let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
            cargo.env("RUSTFLAGS", format!("{flags} --cfg sha2_backend_soft=\"compact\""));
        }
        let target_dir = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let mut folder = target_dir;
        let with_glibc = self.glibc.as_ref().map(|_| format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
        if let Some(target) = self.target.as_ref().or(with_glibc.as_ref()) {
            folder.push(target);
            let glibc = self.glibc.as_ref().map_or_else(String::new, |version| format!(".{version}"));
            cargo.arg("--target").arg(format!("{target}{glibc}"));
        }
        if self.client_only {
            cargo.args(["--no-default-features", "--features", "client"]);
        }
        call(&mut cargo)?;
        // Cargo's profile `dev` has a folder of another name.
        folder.push(if self.profile == "dev" { "debug" } else { &self.profile });
        Ok(folder.join("examples"))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a command to its end.
fn call(command: &mut Command) -> Result<(), Box<dyn Error>> {
    if command.status()?.success() { Ok(()) } else { Err(format!("failed: {command:?}").into()) }
}

/// Copies a file, and creates the folders above it.
fn copy(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    fs::copy(from, to).map_err(|error| format!("{}, {}: {error}", from.display(), to.display()))?;
    println!("{}", to.display());
    Ok(())
}

fn archive(out: &Path, build: &Build) -> Result<(), Box<dyn Error>> {
    let built = build.run()?;
    let mut target =
        build.target.clone().unwrap_or_else(|| format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS));
    if let Some(glibc) = &build.glibc {
        target.push_str(&format!("-glibc{glibc}"));
    }
    let part = if build.client_only { "-client" } else { "" };
    let name = format!("libslipgate{part}-{}-{target}", env!("CARGO_PKG_VERSION"));
    let stage = out.join(&name);
    let _ = fs::remove_dir_all(&stage);
    // The files of pkg-config and CMake find everything relative to themselves, so an archive may be unpacked anywhere.
    install::install(&built, Path::new("/"), &stage, build.is_windows())?;
    for file in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        copy(&root().join(file), &stage.join(file))?;
    }
    fs::write(stage.join("LICENSES-OF-DEPENDENCIES.txt"), licences::of_dependencies(build)?)?;
    let file = format!("{name}.tar.gz");
    call(
        Command::new("tar")
            .current_dir(out)
            .args(["--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-czf"])
            .arg(&file)
            .arg(&name),
    )?;
    let sum = Command::new("sha256sum").current_dir(out).arg(&file).output()?;
    fs::write(out.join(format!("{file}.sha256")), sum.stdout)?;
    println!("{}", out.join(file).display());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    match Xtask::parse() {
        Xtask::InstallC { prefix, destdir, built, build } => {
            let built = built.map_or_else(|| build.run(), Ok)?;
            // The installed files name the prefix, and their readers run in other folders.
            let prefix = std::path::absolute(prefix)?;
            // A prefix is absolute, so it must not replace the folder before it.
            let inside = prefix.strip_prefix("/").unwrap_or(&prefix);
            let folder = destdir.map_or_else(|| prefix.clone(), |destdir| destdir.join(inside));
            install::install(&built, &prefix, &folder, build.is_windows())
        }
        Xtask::ArchiveC { out, build } => {
            fs::create_dir_all(&out)?;
            archive(&out, &build)
        }
        Xtask::BenchC { rounds, sizes, netcode, reliable } => {
            let mut missed = bench::Missed::default();
            bench::run(rounds, sizes, &mut missed)?;
            if let Some((netcode, reliable)) = netcode.zip(reliable) {
                game::run(rounds, &netcode, &reliable, &mut missed)?;
            }
            missed.end()
        }
    }
}
