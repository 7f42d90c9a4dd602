//! Imports run one way: between crates, between the modules of a crate, and between files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::files::production;

/// The crates, and which crates of ours each one may use. An arrow that is not here is a mistake in the design.
const CRATES: &[(&str, &[&str])] = &[
    ("protocol/netcode", &[]),
    ("protocol/session", &["netcode"]),
    ("protocol/typed", &["session"]),
    ("os", &["netcode"]),
    ("udp", &["netcode", "os"]),
    ("server", &["netcode", "session", "typed", "os", "udp"]),
    ("client", &["netcode", "session", "typed", "os", "udp"]),
    ("token-issuer", &["netcode", "os"]),
    ("tools/sim", &["netcode"]),
    ("tools/lab", &["netcode", "session", "sim"]),
    ("cli", &["netcode", "session", "os", "udp", "server", "client", "token_issuer", "sim", "lab", "bench"]),
    ("tools/bench", &["netcode", "session", "os", "udp", "server"]),
];

/// Members of the workspace that hold tests only, which may use each crate.
const TEST_CRATES: &[&str] = &["tests"];

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
    ("protocol/session", "wire", &["reject"]),
    ("protocol/session", "congestion", &["wire"]),
    ("protocol/session", "reliability", &["reject", "wire", "congestion"]),
    ("protocol/session", "channel", &["reject", "wire", "reliability"]),
    ("protocol/session", "connection", &["reject", "wire", "reliability", "congestion", "channel"]),
    ("protocol/session", "client", &["wire", "reliability", "channel", "connection"]),
    ("protocol/session", "server", &["wire", "reliability", "congestion", "channel", "connection"]),
];

/// The modules that import from a part of theirs which imports from them in turn. The list must not grow: a part should
/// get what it needs as arguments, or from a file beside it.
const MODULES_WITH_CYCLES: &[(&str, &[&str])] = &[
    ("protocol/netcode", &["client", "server"]),
    ("server", &["history_file"]),
    ("tools/sim", &["proxy"]),
    ("cli", &["demo"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

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

/// Returns whether a source file holds unit tests only.
fn is_test(path: &Path) -> bool {
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
    for (folder, allowed) in CRATES {
        for path in sources(&root().join(folder).join("src")) {
            if is_test(&path) {
                continue;
            }
            for used in names_after(&production(&fs::read_to_string(&path).unwrap()), "slipgate_") {
                let own = folder.rsplit('/').next().unwrap().replace('-', "_");
                arrows += 1;
                assert!(used == own || allowed.contains(&used.as_str()), "{}: slipgate_{used}", path.display());
            }
        }
    }
    assert!(arrows > 300, "only {arrows} arrows were found: this test no longer reads the sources");
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

/// Returns the file in which a module path of a crate stands: the longest prefix of it that is a file.
fn file_of(source: &Path, module: &[String]) -> Option<PathBuf> {
    (0..=module.len()).rev().find_map(|taken| {
        let path = module[..taken].iter().fold(source.to_path_buf(), |path, part| path.join(part));
        let lib = [source.join("lib.rs"), source.join("main.rs")];
        let candidates = if taken == 0 { lib.to_vec() } else { vec![path.with_extension("rs"), path.join("mod.rs")] };
        candidates.into_iter().find(|file| file.is_file())
    })
}

/// Returns the module path of a source file within its crate.
fn module_of(source: &Path, file: &Path) -> Vec<String> {
    let inner = file.strip_prefix(source).unwrap().with_extension("");
    let mut parts: Vec<String> = inner.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if parts.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        parts.pop();
    }
    parts
}

/// Returns each path that `use` lines of a file name, with groups taken apart.
fn used_paths(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (at, _) in text.match_indices("use ") {
        let is_word = text[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
        let Some(end) = text[at..].find(';').filter(|_| !is_word) else { continue };
        // Re-exports point downwards by their nature: a module shows what its own files hold.
        let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        if !text[line_start..at].trim_start().starts_with("pub") {
            expand(&mut paths, &[], &text[at + 4..at + end]);
        }
    }
    paths
}

fn expand(paths: &mut Vec<Vec<String>>, prefix: &[String], tree: &str) {
    let tree = tree.trim();
    let (head, group) = tree.split_once('{').map_or((tree, None), |(head, group)| (head, Some(group)));
    let mut path = prefix.to_vec();
    path.extend(head.split("::").map(|part| part.split(" as ").next().unwrap_or(part).trim().to_owned()));
    path.retain(|part| !part.is_empty());
    let Some(group) = group else { return paths.push(path) };
    let (mut depth, mut item) = (0, String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(paths, &path, &std::mem::take(&mut item));
                continue;
            }
            _ => {}
        }
        item.push(c);
    }
    if !item.trim().is_empty() {
        expand(paths, &path, &item);
    }
}

/// Returns which files of a crate each of its files imports from.
fn all_imports(source: &Path) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let mut graph = BTreeMap::new();
    for file in sources(source).into_iter().filter(|file| !is_test(file)) {
        let own = module_of(source, &file);
        let mut targets = BTreeSet::new();
        for path in used_paths(&production(&fs::read_to_string(&file).unwrap())) {
            let Some(first) = path.first() else { continue };
            let absolute = match first.as_str() {
                "crate" => path[1..].to_vec(),
                "self" => own.iter().chain(&path[1..]).cloned().collect(),
                "super" => {
                    let ups = path.iter().take_while(|part| *part == "super").count();
                    own[..own.len().saturating_sub(ups)].iter().chain(&path[ups..]).cloned().collect::<Vec<_>>()
                }
                // Another crate, or a part of this module.
                _ => own.iter().chain(&path).cloned().collect(),
            };
            targets.extend(file_of(source, &absolute).filter(|target| *target != file));
        }
        graph.insert(file, targets);
    }
    graph
}

/// Returns which files of a crate each of its files imports from. What a file takes from the modules around it is left
/// out: a module and its parts are read together.
fn imports(source: &Path) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    let mut graph = all_imports(source);
    for (file, targets) in &mut graph {
        let own = module_of(source, file);
        targets.retain(|target| !own.starts_with(&module_of(source, target)));
    }
    graph
}

/// Returns the modules that import from a part of theirs which imports from them in turn. Re-exports do not count, nor
/// does the root of the crate, which consists of them.
fn modules_with_cycles(source: &Path) -> BTreeSet<String> {
    let graph = all_imports(source);
    let mut modules = BTreeSet::new();
    for (file, targets) in &graph {
        let own = module_of(source, file);
        for around in targets {
            let module = module_of(source, around);
            // Each program is a crate of its own, which is read by itself.
            let is_program = own.first().is_some_and(|first| first == "bin");
            if is_program || module.is_empty() || module.len() == own.len() || !own.starts_with(&module) {
                continue;
            }
            let part = &own[..=module.len()];
            if graph.get(around).into_iter().flatten().any(|used| module_of(source, used).starts_with(part)) {
                modules.insert(module.join("::"));
            }
        }
    }
    modules
}

/// Returns a cycle of the graph, if it has one.
fn cycle(graph: &BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> Option<Vec<PathBuf>> {
    fn visit(
        graph: &BTreeMap<PathBuf, BTreeSet<PathBuf>>,
        file: &PathBuf,
        way: &mut Vec<PathBuf>,
        done: &mut BTreeSet<PathBuf>,
    ) -> bool {
        if let Some(start) = way.iter().position(|seen| seen == file) {
            way.drain(..start);
            return true;
        }
        if !done.insert(file.clone()) {
            return false;
        }
        way.push(file.clone());
        let found = graph.get(file).into_iter().flatten().any(|next| visit(graph, next, way, done));
        if !found {
            way.pop();
        }
        found
    }
    let (mut way, mut done) = (Vec::new(), BTreeSet::new());
    graph.keys().any(|file| visit(graph, file, &mut way, &mut done)).then_some(way)
}

/// Returns the source folders of a package's crates: its library, and each program below `src/bin`.
fn crate_roots(folder: &str) -> Vec<PathBuf> {
    let library = root().join(folder).join("src");
    let programs = fs::read_dir(library.join("bin")).into_iter().flatten().map(|entry| entry.unwrap().path());
    programs.filter(|path| path.is_dir()).chain([library.clone()]).collect()
}

#[test]
fn crate_files_have_no_import_cycles() {
    for (folder, _) in CRATES {
        for source in crate_roots(folder) {
            if let Some(cycle) = cycle(&imports(&source)) {
                let names: Vec<_> = cycle.iter().map(|file| file.display().to_string()).collect();
                panic!("{folder}: an import cycle\n{}", names.join("\n"));
            }
        }
    }
}

#[test]
fn cycles_between_modules_and_their_parts_do_not_grow() {
    for (folder, _) in CRATES {
        let allowed =
            MODULES_WITH_CYCLES.iter().find(|(listed, _)| listed == folder).map_or(&[][..], |(_, modules)| modules);
        for source in crate_roots(folder) {
            for module in modules_with_cycles(&source) {
                assert!(allowed.contains(&module.as_str()), "{folder}: {module} and a part of it use each other");
            }
        }
    }
}

#[test]
fn cycles_and_import_groups_are_detected() {
    let edges = |pairs: &[(&str, &str)]| {
        let mut graph = BTreeMap::<PathBuf, BTreeSet<PathBuf>>::new();
        for (from, to) in pairs {
            graph.entry(from.into()).or_default().insert(to.into());
        }
        graph
    };
    assert_eq!(cycle(&edges(&[("a", "b"), ("b", "c")])), None);
    assert_eq!(cycle(&edges(&[("a", "b"), ("b", "c"), ("c", "b")])).unwrap().len(), 2);
    let text = "use crate::wire::{packet::Header, cursor::{Reader, Writer as W}};\npub use self::a::B;\nuse super::c;";
    let paths: Vec<String> = used_paths(text).iter().map(|path| path.join("::")).collect();
    let expected =
        ["crate::wire::packet::Header", "crate::wire::cursor::Reader", "crate::wire::cursor::Writer", "super::c"];
    assert_eq!(paths, expected);
}

#[test]
fn only_the_socket_module_may_use_unsafe_code() {
    for (folder, _) in CRATES.iter().filter(|(folder, _)| *folder != "udp").chain(&[(".", &[][..])]) {
        let path = root().join(folder).join("src/lib.rs");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{}", path.display());
    }
    let udp = root().join("udp/src");
    assert!(fs::read_to_string(udp.join("lib.rs")).unwrap().contains("#![deny(unsafe_code)]"));
    for path in sources(&udp) {
        let allows = fs::read_to_string(&path).unwrap().contains("allow(unsafe_code)");
        assert_eq!(allows, path.ends_with("src/syscalls.rs"), "{}", path.display());
    }
}

#[test]
fn lints_ban_clocks_entropy_and_default_hashers_in_the_core() {
    for folder in ["netcode", "session", "typed"] {
        let lints = fs::read_to_string(root().join("protocol").join(folder).join("clippy.toml")).unwrap();
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
    for folder in ["netcode", "session", "typed"] {
        let source = root().join("protocol").join(folder).join("src");
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
