//! The arrows between the protocol's modules run one way, and the core stays without clocks, sockets and unsafe code.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Which modules a module may use, from the ground up. An arrow that is not here is a mistake in the design.
const ARROWS: &[(&str, &[&str])] = &[
    ("time", &[]),
    ("address", &[]),
    ("discard", &[]),
    ("wire", &["time", "address", "discard"]),
    ("crypto", &["time", "address", "discard", "wire"]),
    ("token", &["time", "address", "discard", "wire", "crypto"]),
    ("reliability", &["time", "discard", "wire"]),
    ("congestion", &["time", "wire"]),
    ("channel", &["time", "discard", "wire", "crypto", "reliability"]),
    ("session", &["time", "discard", "wire", "reliability", "congestion", "channel"]),
    ("client", &["time", "address", "discard", "wire", "token", "channel", "netcode", "reliability", "session"]),
    ("server", &["time", "address", "discard", "wire", "channel", "congestion", "netcode", "reliability", "session"]),
    ("netcode", &["time", "address", "discard", "wire", "crypto", "token"]),
];

fn sources(directory: &Path) -> Vec<PathBuf> {
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every module of the protocol that a source file names by `crate::`.
fn used_modules(text: &str) -> Vec<String> {
    text.match_indices("crate::")
        // `slipgate_protocol::…` of an example is no arrow, and `$crate` is none of ours.
        .filter(|(at, _)| !text[..*at].ends_with(|before: char| before.is_alphanumeric() || before == '_'))
        .map(|(at, found)| text[at + found.len()..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
        .collect()
}

#[test]
fn arrows_between_modules_run_one_way() {
    let source = root().join("protocol/src");
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut arrows = 0;
    for path in sources(&source) {
        let place = path.strip_prefix(&source).unwrap();
        let module = place.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        if module == "lib" {
            continue;
        }
        let allowed = allowed.get(module.as_str()).unwrap_or_else(|| panic!("{module} is missing in the picture"));
        for used in used_modules(&fs::read_to_string(&path).unwrap()) {
            arrows += 1;
            assert!(
                used == module || allowed.contains(&used.as_str()),
                "{}: {module} must not use {used}",
                place.display()
            );
        }
    }
    assert!(arrows > 100, "only {arrows} arrows were found: does this test still read what it should?");
}

#[test]
fn every_crate_forbids_unsafe_code_but_for_one_module() {
    for library in ["protocol", "server", "client", "token-issuer", "conditioner", "lab", "."] {
        let path = root().join(library).join("src/lib.rs");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{}", path.display());
    }
    let edge = root().join("edge/src");
    assert!(fs::read_to_string(edge.join("lib.rs")).unwrap().contains("#![deny(unsafe_code)]"));
    for path in sources(&edge) {
        let allows = fs::read_to_string(&path).unwrap().contains("allow(unsafe_code)");
        assert_eq!(allows, path.ends_with("udp/system.rs"), "{}", path.display());
    }
}

#[test]
fn the_lint_that_bans_clocks_entropy_and_default_hashes_stands_in_the_protocol() {
    let lints = fs::read_to_string(root().join("protocol/clippy.toml")).unwrap();
    for banned in [
        "std::time::Instant::now",
        "std::time::SystemTime::now",
        "rand::rng",
        "std::collections::HashMap",
        "std::net::UdpSocket",
    ] {
        assert!(lints.contains(&format!("path = \"{banned}\"")), "{banned}");
    }
}

#[test]
fn the_protocol_reaches_for_no_entropy_and_for_no_standard_library() {
    let source = root().join("protocol/src");
    for path in sources(&source) {
        let text = fs::read_to_string(&path).unwrap();
        for banned in ["SysRng", "OsRng", "ThreadRng", "getrandom", "rand::rng(", "rand::random"] {
            assert!(!text.contains(banned), "{}: {banned}: entropy is an argument", path.display());
        }
        let tests_only = "#[cfg(test)]\nextern crate std;";
        let text = text.replace(tests_only, "");
        assert!(!text.contains("extern crate std"), "{}: the core has no standard library", path.display());
    }
}

#[test]
fn a_use_of_a_module_is_found_wherever_it_stands() {
    let text = "use crate::wire::packet;\n let x = crate::time::Instant::NEVER; slipgate_crate::no; pub(crate) fn";
    assert_eq!(used_modules(text), ["wire", "time"]);
}
