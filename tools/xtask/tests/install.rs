//! `cargo xtask install-c`: games in C find the installed library with pkg-config and CMake, shared and static.

#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, clippy::unwrap_used, reason = "tests fail by panics")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The variable with which a missing program is a failure.
const REQUIRED: &str = "SLIPGATE_REQUIRE_LANGUAGES";

/// Prints that a test is skipped.
///
/// # Panics
/// If [`REQUIRED`] is set.
fn skip(reason: &str) {
    assert!(std::env::var_os(REQUIRED).is_none(), "{reason}, but {REQUIRED} is set");
    eprintln!("SKIPPED: {reason}");
}

fn has(program: &str) -> bool {
    let is_found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_found {
        skip(&format!("{program} is not installed"));
    }
    is_found
}

/// Runs a command to its end, and returns what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}\n{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns the folder of the C interface.
fn capi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../capi")
}

/// Returns an empty folder of this name.
fn empty(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Installs the library that the tests of the C interface use. Returns false where it was not built.
fn install(arguments: &[&str]) -> bool {
    let program = Path::new(env!("CARGO_BIN_EXE_slipgate-xtask"));
    let built = program.with_file_name("examples");
    let is_built = ["libslipgate.so", "libslipgate.a"].iter().all(|file| built.join(file).is_file());
    if !is_built {
        skip("libslipgate is not built (cargo test --workspace)");
        return false;
    }
    run(Command::new(program).arg("install-c").arg("--built").arg(built).args(arguments));
    true
}

/// Returns a prefix with the installed library.
fn prefix() -> Option<&'static Path> {
    static PREFIX: OnceLock<Option<PathBuf>> = OnceLock::new();
    let installed = PREFIX.get_or_init(|| {
        let prefix = empty("prefix");
        install(&["--prefix", prefix.to_str()?]).then_some(prefix)
    });
    installed.as_deref()
}

/// Runs the program that calls every function.
fn works(program: &mut Command) {
    assert_eq!(run(program), "ok\n", "{program:?}");
}

#[test]
fn games_in_c_link_with_pkg_config() {
    if !has("cc") || !has("pkg-config") {
        return;
    }
    let Some(prefix) = prefix() else { return };
    let programs = empty("pkg-config");
    for package in ["slipgate", "slipgate-static"] {
        let ask = |question: &[&str]| {
            let mut pkg_config = Command::new("pkg-config");
            run(pkg_config.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(question).arg(package))
        };
        assert_eq!(ask(&["--modversion"]).trim(), env!("CARGO_PKG_VERSION"));
        let (flags, program) = (ask(&["--cflags", "--libs"]), programs.join(package));
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        run(compiler.arg(capi().join("tests/every_function.c")).args(flags.split_whitespace()));
        let mut command = Command::new(&program);
        if package == "slipgate" {
            command.env("LD_LIBRARY_PATH", prefix.join("lib"));
        }
        works(&mut command);
    }
}

#[test]
fn games_in_c_link_with_cmake() {
    if !has("cc") || !has("cmake") {
        return;
    }
    let Some(prefix) = prefix() else { return };
    let build = empty("cmake");
    let mut cmake = Command::new("cmake");
    cmake.arg("-S").arg(capi().join("tests/cmake")).arg("-B").arg(&build);
    run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())));
    run(Command::new("cmake").arg("--build").arg(&build));
    works(&mut Command::new(build.join("shared")));
    works(&mut Command::new(build.join("static")));
}

/// Returns the paths of all files below a folder.
fn files(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn packages_are_staged_below_a_destdir() {
    let destdir = empty("destdir");
    if !install(&["--prefix", "/opt/slipgate", "--destdir", destdir.to_str().unwrap()]) {
        return;
    }
    let root = destdir.join("opt/slipgate");
    let (mut found, expected) = (
        BTreeSet::new(),
        [
            "include/slipgate.h",
            "include/slipgate.hpp",
            "lib/libslipgate.a",
            "lib/libslipgate.so",
            "lib/libslipgate.so.1",
            "lib/pkgconfig/slipgate.pc",
            "lib/pkgconfig/slipgate-static.pc",
            "lib/cmake/slipgate/slipgateConfig.cmake",
            "lib/cmake/slipgate/slipgateConfigVersion.cmake",
        ],
    );
    files(&destdir, &mut found);
    assert_eq!(found, expected.map(|file| root.join(file)).into());
    assert_eq!(std::fs::read_link(root.join("lib/libslipgate.so")).unwrap(), Path::new("libslipgate.so.1"));
    for package in ["slipgate", "slipgate-static"] {
        let text = std::fs::read_to_string(root.join(format!("lib/pkgconfig/{package}.pc"))).unwrap();
        assert!(text.starts_with("prefix=/opt/slipgate\n") && !text.contains("destdir"), "{text}");
    }
}
