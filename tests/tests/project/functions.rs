//! The length of functions, and the number of comments inside of them.

use super::files::{comments, files, is_test, production, root, without_tests};

/// The folders of the libraries, programs and tools.
const CRATES: &[&str] = &[
    "protocol/netcode",
    "protocol/session",
    "protocol/typed",
    "os",
    "udp",
    "server",
    "admin",
    "client",
    "token-issuer",
    "sync",
    "capi",
    "cli",
    "tools/sim",
    "tools/worlds",
    "tools/lab",
    "tools/bench",
];
/// The most lines of a function, and of 99 in 100 functions of a crate.
const MAX_LINES: usize = 60;
const MAX_LINES_OF_99_PERCENT: usize = 35;
/// The fewest comments beside the documentation in 100 lines of code of `protocol/`.
const MIN_COMMENTS: f64 = 4.0;

/// Returns the texts of a crate's source files, without their unit tests.
fn sources(folder: &str) -> Vec<String> {
    let paths = files(&root().join(folder).join("src"), &["rs"]).into_iter().filter(|path| !is_test(path));
    paths.map(|path| without_tests(&std::fs::read_to_string(path).unwrap())).collect()
}

/// Returns the lines of each function of a formatted text, from its name to its closing brace.
fn function_lines(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let is_function =
            line.trim_start().starts_with("fn ") || (line.contains(" fn ") && line.ends_with(['{', '(', '}']));
        if !is_function || line.trim_start().starts_with("//") {
            continue;
        }
        let end = lines[start..].iter().position(|end| end.trim() == "}" && indent(end) == indent(line));
        let is_one_line = line.ends_with('}') || line.ends_with(';');
        found.push(if is_one_line { 1 } else { end.map_or(1, |end| end + 1) });
    }
    found
}

#[test]
fn functions_are_short() {
    for folder in CRATES {
        let mut lengths: Vec<usize> =
            sources(folder).iter().flat_map(|text| function_lines(&production(text))).collect();
        lengths.sort_unstable();
        assert!(lengths.len() > 25, "{folder}: only {} functions were found", lengths.len());
        let (most, longest) = (lengths[(lengths.len() - 1) * 99 / 100], lengths[lengths.len() - 1]);
        assert!(longest <= MAX_LINES, "{folder}: a function has {longest} lines");
        assert!(most <= MAX_LINES_OF_99_PERCENT, "{folder}: 1 in 100 functions has {most} lines or more");
    }
}

#[test]
fn comments_inside_of_the_protocol_give_reasons() {
    let (mut code, mut reasons) = (0, 0);
    for text in CRATES.iter().filter(|folder| folder.starts_with("protocol/")).flat_map(|folder| sources(folder)) {
        reasons += comments(&text).iter().filter(|comment| !comment.is_doc).count();
        code += production(&text).lines().filter(|line| !line.trim().is_empty()).count();
    }
    let share = 100.0 * reasons as f64 / code as f64;
    assert!(share >= MIN_COMMENTS, "{share:.2} comments in 100 lines of code");
}

#[test]
fn lines_of_functions_are_counted() {
    let text =
        "impl A {\n    pub fn a(&self) {\n        b()\n    }\n\n    fn c() {}\n}\nconst fn d(\n    x: u8,\n) {\n}\n";
    assert_eq!(function_lines(text), [3, 1, 4]);
}
