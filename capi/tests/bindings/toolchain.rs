//! The compilers of other languages, and the library that they link.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder in which compiled programs and the names of the library lie.
pub(crate) fn out() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// Returns a folder with the library under the names by which linkers and loaders find it.
pub(crate) fn library() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        // Tests lie in `deps`, beside `examples`.
        let program = std::env::current_exe().unwrap();
        let built = program.parent().unwrap().parent().unwrap().join("examples");
        let folder = out().join("library");
        fs::create_dir_all(&folder).unwrap();
        for (from, to) in [
            ("libslipgate.so", "libslipgate.so"),
            ("libslipgate.so", "libslipgate.so.1"),
            ("libslipgate.a", "libslipgate.a"),
        ] {
            let built = built.join(from);
            assert!(built.is_file(), "{} is missing: run `cargo test -p slipgate-c` without --test", built.display());
            // A link of its own folder: the loader must not find an older library.
            let _ = fs::remove_file(folder.join(to));
            fs::hard_link(&built, folder.join(to)).or_else(|_| fs::copy(&built, folder.join(to)).map(drop)).unwrap();
        }
        folder
    })
}

/// The variable with which a missing program is a failure.
const REQUIRED: &str = "SLIPGATE_REQUIRE_LANGUAGES";

/// Returns whether a program is installed; prints a line that the test is skipped otherwise.
///
/// # Panics
/// If it is not installed and [`REQUIRED`] is set.
#[must_use]
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        assert!(std::env::var_os(REQUIRED).is_none(), "{program} is not installed, but {REQUIRED} is set");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {program} is not installed");
    }
    found
}

/// Returns whether a program of another workspace was built; prints a line with the command otherwise.
///
/// # Panics
/// If it was not built and [`REQUIRED`] is set.
pub(crate) fn has_built(what: &str, command: &str, program: &Path) -> bool {
    let is_built = program.is_file();
    if !is_built {
        assert!(std::env::var_os(REQUIRED).is_none(), "{what} is not built ({command}), but {REQUIRED} is set");
        let _ = writeln!(std::io::stderr(), "SKIPPED: {what} is not built ({command})");
    }
    is_built
}

/// How a program is linked.
#[derive(Clone, Copy)]
pub(crate) enum Linkage {
    Shared,
    Static,
}

/// Compiles a C or C++ file with all warnings as errors, and returns the program. Tests share a program, which is
/// compiled once.
pub(crate) fn compile(source: &Path, linkage: Linkage) -> PathBuf {
    static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let is_c = source.extension().is_some_and(|extension| extension == "c");
    let (compiler, standard) = if is_c { ("cc", "-std=c99") } else { ("c++", "-std=c++17") };
    let kind = if matches!(linkage, Linkage::Shared) { "shared" } else { "static" };
    let program = out().join(format!("{}_{kind}", source.file_name().unwrap().to_string_lossy().replace('.', "_")));
    // One at a time: a test must not run a program that another one is writing.
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if compiled.contains(&program) {
        return program;
    }
    let mut command = Command::new(compiler);
    command.args([standard, "-g", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"]).arg(folder().join("include"));
    command.arg("-o").arg(&program).arg(source);
    match linkage {
        Linkage::Shared => {
            command.arg("-L").arg(library()).arg("-lslipgate");
            command.arg(format!("-Wl,-rpath,{}", library().display()));
        }
        Linkage::Static => {
            command.arg(library().join("libslipgate.a"));
            command.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-lc"]);
        }
    }
    run(&mut command);
    compiled.insert(program.clone());
    program
}

/// Runs a command to its end, and returns what it printed.
///
/// # Panics
/// If it fails, or takes longer than 2 minutes.
pub(crate) fn run(command: &mut Command) -> String {
    let output = within(command, Duration::from_secs(120));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text + &errors
}

fn within(command: &mut Command, limit: Duration) -> std::process::Output {
    use std::process::Stdio;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let start = Instant::now();
    let (sender, ended) = std::sync::mpsc::channel::<()>();
    // The pipes are read by `wait_with_output`, so another thread watches the time.
    let stdin = child.stdin.take();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(limit).is_err() && start.elapsed() >= limit {
            let _ = Command::new("kill").arg(pid.to_string()).status();
        }
    });
    let output = child.wait_with_output().unwrap();
    drop((stdin, sender));
    watch.join().unwrap();
    output
}

/// Runs a program under valgrind, which reports each invalid access and each leak.
pub(crate) fn valgrind(program: &Path) -> String {
    run(&mut valgrind_command(program))
}

/// Returns the command that runs a program under valgrind. Its status is 9 after an error.
pub(crate) fn valgrind_command(program: &Path) -> Command {
    let flags = ["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible", "-q"];
    let known = format!("--suppressions={}", folder().join("tests/valgrind.supp").display());
    let mut command = Command::new("valgrind");
    command.args(flags).arg(known).arg(program);
    command
}
