//! The words of the project: plain terms of the field in code, comments and documents.

use std::collections::BTreeMap;
use std::fs;

use super::files::{comments, files, is_test, production, root};

/// Words that this project once used for itself alone, and what the field says.
const PRIVATE_WORDS: &[(&str, &str)] = &[
    ("anew", "again"),
    ("answers", "returns, replies"),
    ("begun", "started"),
    ("commonest", "most common"),
    ("courier", "bridge"),
    ("crew", "shard threads"),
    ("desk", "mailbox"),
    ("doubt", "probe timeout"),
    ("errand", "command"),
    ("farewell", "close reason"),
    ("farewells", "close frames"),
    ("fate", "delivery status"),
    ("fates", "delivery status"),
    ("fence", "token cutoff"),
    ("hear", "receive"),
    ("heard", "received"),
    ("heed", "observe"),
    ("heeds", "observes"),
    ("knock", "begin_connect"),
    ("liar", "malicious peer"),
    ("nap", "poll"),
    ("needless", "unnecessary"),
    ("newcomer", "new client"),
    ("newcomers", "new clients"),
    ("patience", "timeout"),
    ("seat", "client session"),
    ("tells", "reports"),
    ("told", "reported"),
    ("trouble", "error"),
    ("trunk", "shared uplink"),
    ("untold", "unreported"),
    ("verdict", "result"),
    ("verdicts", "results"),
    ("whither", "to where"),
    ("whoever", "the peer, the caller"),
    ("wish", "demand"),
];

/// Words for persons. Packets, clients and threads are things.
const PERSONS: &[&str] = &["who", "whoever", "whom", "whose", "nobody", "somebody", "everybody", "anybody"];

/// Words that open a sentence in an inverted order, if no article or verb of a plain question follows.
const FRONTED: &[&str] = &[
    "what", "whatever", "who", "whoever", "whom", "whose", "of", "by", "as", "to", "with", "on", "for", "from", "in",
    "at", "upon", "beside", "beyond", "so", "such", "nor", "neither", "not", "where", "wherever",
];

/// First words of documentation that do not say what a function does.
const VAGUE_VERBS: &[&str] = &["Answers", "Tells"];

/// Files that may use such words, each for a reason.
const ALLOWED_FILES: &[&str] = &[
    // It lists them.
    "tests/tests/project/language.rs",
    // It tells what changed, by the names of before.
    "CHANGELOG.md",
];

/// Private words that a crate may hold: in a quotation, or as a plain word of English.
const MAX_PRIVATE_WORDS: usize = 40;
/// Sentences of a crate that may open with a fronted clause, in percent.
const MAX_FRONTED_PERCENT: f64 = 7.0;
/// Sentences of a crate that may speak of persons, in percent: backends, operators and players are some.
const MAX_PERSONS_PERCENT: f64 = 0.5;
const MAX_COLUMNS: usize = 120;
const MAX_TEST_NAME: usize = 60;

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let outside_code = text.split('`').step_by(2);
    outside_code.flat_map(|part| {
        part.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).map(str::to_lowercase)
    })
}

fn private_words(text: &str) -> Vec<String> {
    words(text).filter(|word| PRIVATE_WORDS.iter().any(|(private, _)| private == word)).collect()
}

/// Returns the words of an identifier.
fn parts(identifier: &str) -> Vec<String> {
    let mut spaced = String::new();
    for c in identifier.chars() {
        if c.is_uppercase() {
            spaced.push('_');
        }
        spaced.extend(c.to_lowercase());
    }
    spaced.split('_').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Returns the identifiers that a Rust file defines.
fn defined(code: &str) -> Vec<String> {
    let keywords = ["fn", "struct", "enum", "trait", "type", "mod", "const", "static", "let", "mut"];
    let tokens: Vec<&str> =
        code.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|token| !token.is_empty()).collect();
    tokens.windows(2).filter(|pair| keywords.contains(&pair[0])).map(|pair| pair[1].to_owned()).collect()
}

/// Returns the sentences of comment lines, without tables, lists and pictures.
fn sentences(source: &str) -> Vec<String> {
    let (mut paragraphs, mut last_line, mut was_doc) = (vec![String::new()], 0, false);
    for comment in comments(source) {
        let text = comment.text.trim();
        let is_prose = !text.is_empty()
            && !text.starts_with(['|', '#', '-', '*', '>', '+'])
            && !text.contains(['─', '│', '┌', '└', '▶', '◀', '═', '║', '╔', '┐', '┘']);
        if comment.line != last_line + 1 || comment.is_doc != was_doc || !is_prose {
            paragraphs.push(String::new());
        }
        if is_prose {
            let paragraph = paragraphs.last_mut().unwrap();
            paragraph.push_str(text);
            paragraph.push(' ');
        }
        (last_line, was_doc) = (comment.line, comment.is_doc);
    }
    let mut found = Vec::new();
    for paragraph in paragraphs {
        let mut sentence = String::new();
        for word in paragraph.split_whitespace() {
            let starts_new = word.starts_with(|c: char| c.is_uppercase() || c == '`' || c == '[');
            if starts_new && sentence.ends_with(['.', '!', '?']) {
                found.push(std::mem::take(&mut sentence));
            }
            if !sentence.is_empty() {
                sentence.push(' ');
            }
            sentence.push_str(word);
        }
        found.push(sentence);
    }
    found.retain(|sentence| sentence.split_whitespace().count() >= 3);
    found
}

fn is_fronted(sentence: &str) -> bool {
    let mut words = sentence.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    let first = words.next().unwrap_or_default().to_lowercase();
    FRONTED.contains(&first.as_str())
}

fn speaks_of_persons(sentence: &str) -> bool {
    words(sentence).any(|word| PERSONS.contains(&word.as_str()))
}

/// Returns the folder of the crate that a file belongs to.
fn crate_of(file: &str) -> String {
    let mut folder = std::path::Path::new(file).parent().unwrap();
    while folder != std::path::Path::new("") && !root().join(folder).join("Cargo.toml").exists() {
        folder = folder.parent().unwrap();
    }
    if folder == std::path::Path::new("") { ".".to_owned() } else { folder.display().to_string() }
}

/// Returns each file of ours with its path from the root and its text.
fn texts(extensions: &[&str]) -> Vec<(String, String)> {
    let root = root();
    files(&root, extensions)
        .into_iter()
        .map(|path| (path.strip_prefix(&root).unwrap().display().to_string(), fs::read_to_string(&path).unwrap()))
        .filter(|(name, _)| !ALLOWED_FILES.contains(&name.as_str()))
        .collect()
}

fn assert_at_most(max: usize, found: &[String], what: &str) {
    assert!(found.len() <= max, "{what}: {} found, at most {max} allowed\n{}", found.len(), found.join("\n"));
}

#[test]
fn code_and_comments_use_no_private_words() {
    let mut found = Vec::new();
    for (name, text) in texts(&["rs"]) {
        for comment in comments(&text) {
            found.extend(private_words(&comment.text).iter().map(|word| format!("{name}:{}: {word}", comment.line)));
        }
        for identifier in defined(&production(&text)) {
            let is_private = |part: &String| PRIVATE_WORDS.iter().any(|(private, _)| private == part);
            if parts(&identifier).iter().any(is_private) {
                found.push(format!("{name}: {identifier}"));
            }
        }
    }
    assert_at_most(MAX_PRIVATE_WORDS, &found, "private words");
}

#[test]
fn documents_use_no_private_words() {
    let mut found = Vec::new();
    for (name, text) in texts(&["md"]) {
        let mut in_code = false;
        for (index, line) in text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            if !in_code {
                found.extend(private_words(line).iter().map(|word| format!("{name}:{}: {word}", index + 1)));
            }
        }
    }
    assert_at_most(MAX_PRIVATE_WORDS, &found, "private words in documents");
}

#[test]
fn documentation_starts_with_what_a_function_does() {
    let mut found = Vec::new();
    for (name, text) in texts(&["rs"]) {
        for comment in comments(&text).iter().filter(|comment| comment.is_doc) {
            if comment.text.split_whitespace().next().is_some_and(|first| VAGUE_VERBS.contains(&first)) {
                found.push(format!("{name}:{}: {}", comment.line, comment.text));
            }
        }
    }
    assert_at_most(0, &found, "documentation that starts with Answers or Tells");
}

#[test]
fn sentences_of_comments_are_plain() {
    let mut crates: BTreeMap<String, (usize, Vec<String>, Vec<String>)> = BTreeMap::new();
    for (name, text) in texts(&["rs"]) {
        let (count, fronted, persons) = crates.entry(crate_of(&name)).or_default();
        for sentence in sentences(&text) {
            *count += 1;
            if is_fronted(&sentence) {
                fronted.push(format!("{name}: {sentence}"));
            }
            if speaks_of_persons(&sentence) {
                persons.push(format!("{name}: {sentence}"));
            }
        }
    }
    for (name, (count, fronted, persons)) in crates {
        let max = |percent: f64| (count as f64 * percent / 100.0) as usize;
        assert_at_most(max(MAX_FRONTED_PERCENT), &fronted, &format!("{name}: fronted clauses in {count} sentences"));
        assert_at_most(max(MAX_PERSONS_PERCENT), &persons, &format!("{name}: persons in {count} sentences"));
    }
}

#[test]
fn no_line_is_wider_than_120_columns() {
    let mut found = Vec::new();
    for (name, text) in texts(&["rs"]) {
        let wide = text.lines().enumerate().filter(|(_, line)| line.chars().count() > MAX_COLUMNS);
        found.extend(wide.map(|(index, _)| format!("{name}:{}", index + 1)));
    }
    assert_at_most(0, &found, "lines over 120 columns");
}

#[test]
fn test_names_have_at_most_60_characters() {
    let mut found = Vec::new();
    for (name, text) in texts(&["rs"]) {
        let mut is_test_function = false;
        for line in text.lines().map(str::trim) {
            if line.starts_with("#[test]") {
                is_test_function = true;
            } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| std::mem::take(&mut is_test_function)) {
                let test = rest.split('(').next().unwrap_or(rest);
                if test.len() > MAX_TEST_NAME {
                    found.push(format!("{name}: {test}"));
                }
            }
        }
    }
    assert_at_most(0, &found, "test names over 60 characters");
}

/// The crates that meet in one program, from the ground up.
const CHAINS: &[&[&str]] = &[
    &["protocol/netcode", "protocol/session", "protocol/typed", "os", "udp", "server"],
    &["protocol/netcode", "protocol/session", "protocol/typed", "os", "udp", "client"],
];

/// Types of which a build has one: a type for each system, and README files that are tested as documentation.
const ALTERNATIVES: &[&str] = &["Datapath", "Readme"];

#[test]
fn types_along_a_dependency_chain_have_names_of_their_own() {
    for chain in CHAINS {
        let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for folder in *chain {
            for path in files(&root().join(folder).join("src"), &["rs"]).into_iter().filter(|path| !is_test(path)) {
                let code = production(&fs::read_to_string(&path).unwrap());
                for name in type_names(&code) {
                    homes.entry(name).or_default().push(path.strip_prefix(root()).unwrap().display().to_string());
                }
            }
        }
        assert!(homes.len() > 150, "only {} types were found: this test no longer reads the sources", homes.len());
        let twice: Vec<String> = homes
            .iter()
            .filter(|(name, homes)| homes.len() > 1 && !ALTERNATIVES.contains(&name.as_str()))
            .map(|(name, homes)| format!("{name}: {homes:?}"))
            .collect();
        assert_at_most(0, &twice, "types of one name");
    }
}

/// Returns the names of the types that stand at the outer level of a file. The same type may be defined for each
/// system once.
fn type_names(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in code.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let start = usize::from(words.first().is_some_and(|word| word.starts_with("pub")));
        if line.starts_with(' ')
            || !["struct", "enum", "trait", "type", "union"].contains(words.get(start).unwrap_or(&""))
        {
            continue;
        }
        let name = words.get(start + 1).unwrap_or(&"");
        let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[test]
fn checks_find_what_they_look_for() {
    let source = "/// Tells of nobody. What is heard is kept for ever.\nfn heard_of() {} // a plain comment here\n";
    assert_eq!(sentences(source), ["Tells of nobody.", "What is heard is kept for ever.", "a plain comment here"]);
    assert!(is_fronted("What is heard is kept."));
    assert!(!is_fronted("The table keeps it."));
    assert!(speaks_of_persons("Tells of nobody."));
    assert!(!speaks_of_persons("Calls `nobody` at once."));
    assert_eq!(private_words("It is told `heard` again."), ["told"]);
    assert_eq!(defined("fn heard_of() { let x = 1; }"), ["heard_of", "x"]);
    assert_eq!(parts("FarewellOf"), ["farewell", "of"]);
    assert_eq!(type_names("pub(crate) struct A<T> {\n    enum No {}\nenum B {}"), ["A", "B"]);
}
