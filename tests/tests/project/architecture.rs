//! Imports run one way: between crates, between the modules of a crate, and between files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::files::production;

/// The crates, and which crates of ours each one may use. An arrow that is not here is a mistake in the design.
pub(crate) const CRATES: &[(&str, &[&str])] = &[
    ("protocol/netcode", &[]),
    ("protocol/session", &["netcode"]),
    ("protocol/typed", &["session"]),
    ("os", &["netcode"]),
    ("udp", &["netcode", "os"]),
    ("server", &["netcode", "session", "typed", "os", "udp"]),
    ("admin", &["netcode", "os", "server"]),
    ("fleet", &["netcode", "os", "server"]),
    ("client", &["netcode", "session", "typed", "os", "udp"]),
    ("token-issuer", &["netcode", "os"]),
    ("sync", &[]),
    ("capi", &["netcode", "session", "os", "server", "client", "token_issuer"]),
    ("tools/sim", &["netcode", "udp"]),
    ("tools/worlds", &["sim"]),
    ("tools/lab", &["netcode", "session", "sim", "sync", "worlds"]),
    (
        "cli",
        &[
            "netcode",
            "session",
            "os",
            "udp",
            "server",
            "admin",
            "fleet",
            "client",
            "token_issuer",
            "sim",
            "sync",
            "worlds",
            "lab",
            "bench",
        ],
    ),
    ("tools/bench", &["netcode", "session", "os", "udp", "server"]),
];

/// Members of the workspace that hold tests or tools of the build only, which may use each crate.
const TEST_CRATES: &[&str] = &["tests", "tools/xtask"];

/// The modules at the root of the two core crates, from the ground up, and which modules each one may use.
const MODULES: &[(&str, &str, &[&str])] = &[
    ("protocol/netcode", "time", &[]),
    ("protocol/netcode", "address", &[]),
    ("protocol/netcode", "discard", &[]),
    ("protocol/netcode", "timing", &[]),
    ("protocol/netcode", "ids", &[]),
    ("protocol/netcode", "slab", &["ids"]),
    ("protocol/netcode", "wire", &["time", "address", "discard", "ids"]),
    ("protocol/netcode", "crypto", &["time", "address", "discard", "wire"]),
    ("protocol/netcode", "token", &["time", "address", "discard", "ids", "slab", "wire", "crypto"]),
    ("protocol/netcode", "loopback", &["wire"]),
    ("protocol/netcode", "client", &["time", "address", "discard", "timing", "ids", "wire", "crypto", "token"]),
    (
        "protocol/netcode",
        "server",
        &["time", "address", "discard", "timing", "ids", "slab", "wire", "crypto", "token", "loopback"],
    ),
    ("protocol/session", "reject", &[]),
    ("protocol/session", "channel_id", &[]),
    ("protocol/session", "send_error", &["channel_id"]),
    ("protocol/session", "wire", &["reject"]),
    ("protocol/session", "congestion", &["wire"]),
    ("protocol/session", "reliability", &["reject", "send_error", "wire", "congestion"]),
    ("protocol/session", "channel", &["reject", "channel_id", "send_error", "wire", "reliability"]),
    ("protocol/session", "connection", &["reject", "send_error", "wire", "reliability", "congestion", "channel"]),
    ("protocol/session", "client", &["wire", "reliability", "channel", "connection"]),
    ("protocol/session", "server", &["wire", "reliability", "congestion", "channel", "connection"]),
];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Returns whether a source file holds unit tests only.
pub(crate) fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs")
        || path.iter().rev().skip(1).take_while(|part| *part != "src").any(|part| part == "tests")
}

/// Returns the name that follows each occurrence of `prefix`, outside of longer words.
fn names_after<'t>(text: &'t str, prefix: &'t str) -> impl Iterator<Item = String> + 't {
    text.match_indices(prefix)
        .filter(|(at, _)| !text[..*at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
        .map(|(at, found)| text[at + found.len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
}

#[test]
fn crates_use_only_crates_below_them() {
    let mut arrows = 0;
    let known: BTreeSet<String> =
        CRATES.iter().map(|(folder, _)| folder.rsplit('/').next().unwrap().replace('-', "_")).collect();
    for (folder, allowed) in CRATES {
        for path in sources(&root().join(folder).join("src")) {
            if is_test(&path) {
                continue;
            }
            for used in names_after(&production(&fs::read_to_string(&path).unwrap()), "slipgate_") {
                // The functions of the C interface have names of the same form.
                if *folder == "capi" && !known.contains(used.as_str()) {
                    continue;
                }
                let own = folder.rsplit('/').next().unwrap().replace('-', "_");
                arrows += 1;
                assert!(used == own || allowed.contains(&used.as_str()), "{}: slipgate_{used}", path.display());
            }
        }
    }
    assert!(arrows > 300, "only {arrows} arrows were found: this test no longer reads the sources");
}

#[test]
fn each_published_crate_has_the_texts_of_its_licences() {
    let mut published = 0;
    let of_workspace = CRATES.iter().map(|(folder, _)| *folder);
    for folder in of_workspace.chain(["bindings/bevy"]).map(|folder| root().join(folder)) {
        let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        if manifest["package"].get("publish").is_none() {
            published += 1;
            for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
                let text = |folder: &Path| fs::read_to_string(folder.join(name)).ok();
                assert_eq!(text(&folder), text(&root()), "{} has no {name}", folder.display());
            }
        }
    }
    assert!(published > 15, "only {published} crates were found");
}

#[test]
fn all_members_of_the_workspace_are_checked() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("\nmembers = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let members: BTreeSet<&str> = members.split('"').skip(1).step_by(2).collect();
    let checked: BTreeSet<&str> = CRATES.iter().map(|(folder, _)| folder).chain(TEST_CRATES).copied().collect();
    assert_eq!(members, checked);
}

/// rustdoc runs for several targets at once: two of one name would write to the same directory.
#[test]
fn no_two_targets_write_to_one_directory_of_documents() {
    let (mut libraries, mut programs) = (BTreeSet::new(), 0);
    let folders: Vec<_> = CRATES.iter().map(|(folder, _)| folder).chain(TEST_CRATES).collect();
    let manifest =
        |folder: &&&str| fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap().parse().unwrap();
    let manifests: Vec<toml::Table> = folders.iter().map(manifest).collect();
    let has_library = |folder: &&str| root().join(folder).join("src/lib.rs").exists();
    for (manifest, _) in manifests.iter().zip(&folders).filter(|(_, folder)| has_library(folder)) {
        let name = manifest.get("lib").and_then(|lib| lib.get("name")).unwrap_or(&manifest["package"]["name"]);
        assert!(libraries.insert(name.as_str().unwrap().replace('-', "_")), "two libraries are called {name}");
    }
    for manifest in &manifests {
        for program in manifest.get("bin").and_then(|bins| bins.as_array()).into_iter().flatten() {
            let name = program["name"].as_str().unwrap();
            let has_pages = program.get("doc").and_then(toml::Value::as_bool).unwrap_or(true);
            programs += usize::from(!has_pages);
            assert!(!has_pages || !libraries.contains(&name.replace('-', "_")), "{name} needs `doc = false`");
        }
    }
    assert!(programs >= 4, "{programs}");
}

#[test]
fn modules_of_the_core_use_only_modules_below_them() {
    let allowed: BTreeMap<(&str, &str), &[&str]> =
        MODULES.iter().map(|(folder, module, below)| ((*folder, *module), *below)).collect();
    let mut arrows = 0;
    for folder in ["protocol/netcode", "protocol/session"] {
        let source = root().join(folder).join("src");
        for path in sources(&source) {
            let inner = path.strip_prefix(&source).unwrap();
            let module = inner.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
            if module == "lib" {
                continue;
            }
            let Some(allowed) = allowed.get(&(folder, module.as_str())) else {
                panic!("{folder}/src/{}: {module} is not in MODULES", inner.display());
            };
            let text = production(&fs::read_to_string(&path).unwrap());
            for used in names_after(&text, "crate::") {
                arrows += 1;
                // Another name is an item of the root, which the file lib.rs takes from a module.
                let is_module = MODULES.iter().any(|(crate_, name, _)| *crate_ == folder && *name == used);
                let is_below = !is_module || used == module || allowed.contains(&used.as_str());
                assert!(is_below, "{folder}/src/{}: {module} must not use {used}", inner.display());
            }
        }
    }
    assert!(arrows > 100, "only {arrows} arrows were found: this test no longer reads the sources");
}

#[test]
fn only_the_socket_module_may_use_unsafe_code() {
    let with_unsafe = ["udp", "capi"];
    for (folder, _) in CRATES.iter().filter(|(folder, _)| !with_unsafe.contains(folder)).chain(&[(".", &[][..])]) {
        let path = root().join(folder).join("src/lib.rs");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{}", path.display());
    }
    let udp = root().join("udp/src");
    assert!(fs::read_to_string(udp.join("lib.rs")).unwrap().contains("#![deny(unsafe_code)]"));
    for path in sources(&udp) {
        let allows = fs::read_to_string(&path).unwrap().contains("allow(unsafe_code)");
        let is_syscalls = path.ends_with("src/syscalls.rs") || path.ends_with("src/syscalls_windows.rs");
        assert_eq!(allows, is_syscalls, "{}", path.display());
    }
    // Exported names are `unsafe` attributes, so the lint cannot be on in the C interface.
    for path in sources(&root().join("capi/src")) {
        let text = fs::read_to_string(&path).unwrap().replace("#[unsafe(no_mangle)]", "");
        let has_unsafe = ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|code| text.contains(code));
        assert_eq!(has_unsafe, path.ends_with("src/pointer.rs"), "{}", path.display());
    }
}

#[test]
fn lints_ban_clocks_entropy_and_default_hashers_in_the_core() {
    for folder in ["protocol/netcode", "protocol/session", "protocol/typed", "sync"] {
        let lints = fs::read_to_string(root().join(folder).join("clippy.toml")).unwrap();
        for banned in [
            "std::time::Instant::now",
            "std::time::SystemTime::now",
            "rand::rng",
            "std::collections::HashMap",
            "std::net::UdpSocket",
        ] {
            assert!(lints.contains(&format!("path = \"{banned}\"")), "{folder}: {banned}");
        }
    }
}

#[test]
fn core_uses_no_entropy_source_and_no_std() {
    for folder in ["protocol/netcode", "protocol/session", "protocol/typed", "sync"] {
        let source = root().join(folder).join("src");
        assert!(fs::read_to_string(source.join("lib.rs")).unwrap().contains("#![no_std]"), "{folder}");
        for path in sources(&source) {
            let text = fs::read_to_string(&path).unwrap();
            for banned in ["SysRng", "OsRng", "ThreadRng", "getrandom", "rand::rng(", "rand::random"] {
                assert!(!text.contains(banned), "{}: {banned}: entropy is an argument", path.display());
            }
            let text = text.replace("#[cfg(test)]\nextern crate std;", "");
            // Shards on several threads share a registry behind the standard library's mutex, which is a feature.
            let text = text.replace("#[cfg(any(test, feature = \"std\"))]\nextern crate std;", "");
            assert!(!text.contains("extern crate std"), "{}: the core has no standard library", path.display());
        }
    }
}

#[test]
fn the_facade_brings_no_programs_and_no_tools_into_a_game() {
    let mut tree = std::process::Command::new(env!("CARGO"));
    tree.args(["tree", "--package", "slipgate", "--edges", "normal", "--prefix", "none", "--offline"])
        .current_dir(root());
    let output = tree.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains("slipgate-server") && names.contains("slipgate-client"), "{names:?}");
    for unwanted in ["clap", "axum", "tokio", "crossterm", "ureq", "slipgate-bench", "slipgate-lab", "slipgate-sim"] {
        assert!(!names.contains(unwanted), "slipgate depends on {unwanted}");
    }
}

/// Each program of integration tests must be linked.
#[test]
fn integration_tests_are_at_most_nine_programs() {
    let folders =
        CRATES.iter().map(|(folder, _)| *folder).chain(["tests"]).map(|folder| root().join(folder).join("tests"));
    let programs: Vec<PathBuf> = folders
        .filter(|folder| folder.is_dir())
        .flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file())
        .collect();
    assert!((4..=9).contains(&programs.len()), "{programs:?}");
}
