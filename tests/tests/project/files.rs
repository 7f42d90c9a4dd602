//! The files of the project, and their text without comments or code.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold no text of ours: built files, and inputs of the fuzz targets.
const SKIPPED: &[&str] = &["target", ".git", "corpus", "artifacts", "node_modules"];

/// Returns the root folder of the project.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Returns all files below `folder` whose names end with one of these extensions, in a stable order.
pub(crate) fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        // A symbolic link brings a document into the package of a crate: it is read where it lies.
        if entry.file_type().unwrap().is_symlink() {
            continue;
        }
        let path = entry.path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !SKIPPED.contains(&name.as_str()) {
            found.extend(files(&path, extensions));
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns whether a source file holds tests only.
pub(crate) fn is_test(path: &Path) -> bool {
    let inner = path.strip_prefix(root()).unwrap_or(path);
    path.ends_with("tests.rs")
        || inner.iter().any(|part| ["tests", "benches", "examples"].iter().any(|name| part == *name))
}

/// A comment line of a Rust file.
pub(crate) struct Comment {
    /// The number of the line, from 1.
    pub(crate) line: usize,
    /// The text behind the slashes.
    pub(crate) text: String,
    /// Whether the documentation shows it.
    pub(crate) is_doc: bool,
}

/// Returns the comment lines of a Rust file, without examples of code.
pub(crate) fn comments(source: &str) -> Vec<Comment> {
    let (mut found, mut in_code) = (Vec::new(), false);
    for (index, line) in source.lines().enumerate() {
        let trimmed = line.trim_start();
        let Some(text) = comment_text(trimmed) else {
            in_code = false;
            continue;
        };
        let is_doc = trimmed.starts_with("//!") || trimmed.starts_with("///");
        if is_doc && text.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            found.push(Comment { line: index + 1, text: text.to_owned(), is_doc });
        }
    }
    found
}

/// Returns the text of a line that is a comment, or of the comment at its end.
fn comment_text(line: &str) -> Option<&str> {
    let start = if line.starts_with("//") { 0 } else { line.find(" // ")? + 1 };
    // A comment at the end of a line: not the slashes of an address inside of a string.
    if line[..start].matches('"').count() % 2 == 1 {
        return None;
    }
    Some(line[start..].trim_start_matches(['/', '!']).trim_start())
}

/// Returns the text without comments and without unit tests.
pub(crate) fn production(source: &str) -> String {
    without_tests(source).lines().map(|line| line.split("//").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// Returns the text without unit tests: without the module, or the line that names its file.
pub(crate) fn without_tests(source: &str) -> String {
    const START: &str = "#[cfg(test)]\nmod tests";
    let (mut kept, mut rest) = (String::new(), source);
    while let Some((before, behind)) = rest.split_once(START) {
        kept.push_str(before);
        let end = if behind.starts_with(';') { ";" } else { "\n}\n" };
        rest = behind.split_once(end).map_or("", |(_, after)| after);
    }
    kept + rest
}

#[test]
fn code_behind_the_tests_is_production() {
    let source = "a\n#[cfg(test)]\nmod tests;\nmod b;\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\nd // e\n";
    assert_eq!(without_tests(source), "a\n\nmod b;\nd // e\n");
    assert_eq!(production(source), "a\n\nmod b;\nd ");
}

/// Adds each path below a folder with a name of other characters than letters, digits and `._-~@`.
fn odd_names(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-~@".contains(letter)) {
            found.push(path.clone());
        }
        if path.is_dir() && !path.is_symlink() {
            odd_names(&path, found);
        }
    }
}

/// A test that reads a wrong path may leave a file of a random name in the folder of its crate.
#[test]
fn names_of_files_are_plain() {
    let mut found = Vec::new();
    odd_names(&root(), &mut found);
    assert!(found.is_empty(), "{found:?}");
}
