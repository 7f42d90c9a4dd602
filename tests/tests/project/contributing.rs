//! The map in CONTRIBUTING.md: each path and each name that it shows exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::files::{files, root};
use super::literals::identifiers;

/// Words in code spans that name what is not in the code: settings of tools, and their values.
const OTHER_NAMES: &[&str] = &["serde", "no_std", "unsafe", "unwrap", "bool", "subtle", "DECISION"];

fn text() -> String {
    fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap()
}

/// Returns the text of each code span outside of code blocks, with the rest of its line.
fn spans(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("    ")) {
        for span in line.split('`').skip(1).step_by(2) {
            found.push((span.to_owned(), line.to_owned()));
        }
    }
    found
}

fn is_path(span: &str) -> bool {
    let is_plain = span.chars().all(|c| c.is_alphanumeric() || "_-./*<>".contains(c));
    is_plain && (span.contains('/') || [".rs", ".md", ".toml", ".json"].iter().any(|end| span.ends_with(end)))
}

/// Returns whether a path or the end of a path exists in the project; `*` and `<name>` stand for any name.
fn exists(span: &str, all: &[PathBuf]) -> bool {
    let wanted: Vec<&str> = span.trim_start_matches("./").trim_end_matches('/').split('/').collect();
    all.iter().any(|path| {
        let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        parts.windows(wanted.len()).any(|window| {
            window.iter().zip(&wanted).all(|(part, wanted)| match wanted.split_once('*') {
                Some((start, end)) => part.starts_with(start) && part.ends_with(end),
                None => {
                    part == wanted || wanted.starts_with('<') || Path::new(part).file_stem() == Some(wanted.as_ref())
                }
            })
        })
    })
}

/// Returns every file and folder of the project, relative to its root.
fn all_paths() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("check"), PathBuf::from("check-targets")];
    for path in files(&root(), &["rs", "md", "toml", "json", "yaml", "txt"]) {
        found.push(path.strip_prefix(root()).unwrap().to_path_buf());
    }
    assert!(found.len() > 400, "only {} files were found", found.len());
    found
}

#[test]
fn paths_in_the_map_exist() {
    let (all, text) = (all_paths(), text());
    let paths: BTreeSet<String> = spans(&text).into_iter().map(|(span, _)| span).filter(|span| is_path(span)).collect();
    assert!(paths.len() > 40, "only {} paths were found: this test no longer reads the map", paths.len());
    let missing: Vec<_> = paths.iter().filter(|path| !exists(path, &all)).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md names paths that do not exist: {missing:?}");
}

#[test]
fn names_in_the_map_exist() {
    let code: String = files(&root(), &["rs"]).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    // Scenarios have names in string literals.
    let code: BTreeSet<&str> = code.split(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let is_name = |word: &str| {
        let is_identifier = word.chars().all(|c| c.is_alphanumeric() || c == '_') && word.len() > 2;
        is_identifier && (word.contains('_') || word.starts_with(char::is_uppercase))
    };
    let text = text();
    let spans = spans(&text);
    let names: BTreeSet<&str> = spans
        .iter()
        .filter(|(span, line)| {
            !is_path(span) && !span.contains(['-', '$', '=']) && !line.starts_with("- A test's name")
        })
        .flat_map(|(span, _)| span.split(|c: char| !(c.is_alphanumeric() || c == '_')))
        .filter(|word| is_name(word) && !OTHER_NAMES.contains(word))
        .collect();
    assert!(names.len() > 10, "only {} names were found: this test no longer reads the map", names.len());
    let missing: Vec<_> = names.iter().filter(|name| !code.contains(**name)).collect();
    assert!(missing.is_empty(), "CONTRIBUTING.md names what the code does not have: {missing:?}");
}

/// A name behind a path in a row of the map is in that file.
#[test]
fn names_in_the_map_are_in_the_files_beside_them() {
    let text = text();
    let pairs: Vec<(String, String)> = text
        .match_indices("` in `")
        .filter_map(|(index, joint)| {
            let name = text[..index].rsplit('`').next()?.trim_end_matches("()").rsplit("::").next()?;
            let path = text[index + joint.len()..].split('`').next()?;
            (path.ends_with(".rs")).then(|| (name.to_owned(), path.to_owned()))
        })
        .collect();
    assert!(pairs.len() >= 4, "only {} pairs were found", pairs.len());
    for (name, path) in pairs {
        let file = root().join(&path);
        let code = fs::read_to_string(&file).unwrap_or_else(|_| panic!("{path}: give the path from the root"));
        assert!(identifiers(&code).contains(&name), "{path} has no {name}");
    }
}

#[test]
fn paths_and_names_are_distinguished() {
    assert!(is_path("docs/glossary.md") && is_path("timing.rs") && is_path("congestion/glide/"));
    assert!(!is_path("SendError") && !is_path("cargo test --workspace"));
    let all = [PathBuf::from("a/src/b/c.rs"), PathBuf::from("x_1.rs")];
    assert!(exists("src/b/", &all) && exists("b/c", &all) && exists("x_*.rs", &all) && exists("a/<any>/b", &all));
    assert!(!exists("src/c", &all) && !exists("y_*.rs", &all));
}
