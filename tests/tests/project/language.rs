//! The words of the project: plain terms of the field in code, comments and documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::files::{Comment, comments, files, is_test, production, root, without_tests};
use super::literals::{Scope, identifiers, literals};

/// Words that this project once used for itself alone, and what the field says.
const PRIVATE_WORDS: &[(&str, &str)] = &[
    ("anew", "again"),
    ("answers", "returns, replies"),
    ("begun", "started"),
    ("belief", "assumption"),
    ("bell", "has_queries"),
    ("ceiling", "limit"),
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
    ("hall", "session world"),
    ("hear", "receive"),
    ("heard", "received"),
    ("heed", "observe"),
    ("heeds", "observes"),
    ("knock", "begin_connect"),
    ("liar", "malicious peer"),
    ("lying", "false, malicious"),
    ("nap", "poll"),
    ("needless", "unnecessary"),
    ("newcomer", "new client"),
    ("newcomers", "new clients"),
    ("patience", "timeout"),
    ("pen", "frame writer"),
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

/// Identifiers with a private word that belong to others: to the system, or to a library.
const ALLOWED_IDENTIFIERS: &[&str] = &["needless_pass_by_value"];

/// Phrases that leave open how many, when or what.
const VAGUE_PHRASES: &[&str] =
    &["so many", "so much", "what became of", "in vain", "to be had", "is none of", "is no fault"];

/// Words for persons. Packets, clients and threads are things.
const PERSONS: &[&str] = &["who", "whoever", "whom", "whose", "nobody", "somebody", "everybody", "anybody"];

/// Words that open a sentence in an inverted order.
const FRONTED: &[&str] = &[
    "what", "whatever", "who", "whoever", "whom", "whose", "of", "by", "as", "to", "with", "on", "for", "from", "in",
    "at", "upon", "beside", "beyond", "so", "such", "nor", "neither", "not", "where", "wherever",
];

/// First words of documentation that do not say what a function does.
const VAGUE_VERBS: &[&str] = &["Answers", "Tells"];
/// Functions of programs and libraries whose documentation may start with another word than a verb. The functions of
/// Glide's modes start with the name of the mode.
const MAX_DOCS_WITHOUT_VERB: usize = 6;

/// Files that may use such words, each for a reason.
const ALLOWED_FILES: &[&str] = &[
    // It lists them.
    "tests/tests/project/language.rs",
    // It tells what changed, by the names of before.
    "CHANGELOG.md",
];

/// Private words that the documents of the whole tree may hold: those of the vectors, which never change. Comments hold
/// none.
const MAX_PRIVATE_WORDS_IN_DOCUMENTS: usize = 2;
/// Sentences of a crate that may open with a fronted clause, in percent.
const MAX_FRONTED_PERCENT: f64 = 3.0;
/// Sentences of a crate that may speak of persons, in percent: backends, operators and players are some.
const MAX_PERSONS_PERCENT: f64 = 0.5;
/// Texts of programs that may open with a fronted clause, in percent.
const MAX_FRONTED_TEXTS_PERCENT: f64 = 1.0;
const MAX_COLUMNS: usize = 120;
const MAX_TEST_NAME: usize = 60;

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let outside_code = text.split('`').step_by(2);
    outside_code.flat_map(|part| {
        part.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).map(str::to_lowercase)
    })
}

/// Returns whether a word is private, or the plural of a private word.
fn is_private(word: &str) -> bool {
    let singular = word.strip_suffix('s').unwrap_or(word);
    PRIVATE_WORDS.iter().any(|(private, _)| *private == word || *private == singular)
}

fn private_words(text: &str) -> Vec<String> {
    words(text).filter(|word| is_private(word)).collect()
}

fn vague_phrases(text: &str) -> Vec<&'static str> {
    let text = format!(" {} ", words(text).collect::<Vec<_>>().join(" "));
    VAGUE_PHRASES.iter().copied().filter(|phrase| text.contains(&format!(" {phrase} "))).collect()
}

/// Returns the words of an identifier.
fn parts(identifier: &str) -> Vec<String> {
    let (mut spaced, mut after_lowercase) = (String::new(), false);
    for c in identifier.chars() {
        // The words of a constant are all upper case: only an upper-case letter after a lower-case one starts a word.
        if c.is_uppercase() && after_lowercase {
            spaced.push('_');
        }
        after_lowercase = !c.is_uppercase() && c != '_';
        spaced.extend(c.to_lowercase());
    }
    spaced.split('_').filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Returns the names of the functions of a file.
fn functions(text: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let after_fn = text.match_indices("fn ").filter(|(start, _)| !text[..*start].ends_with(is_name));
    let names = after_fn.map(|(start, keyword)| text[start + keyword.len()..].chars().take_while(|c| is_name(*c)));
    names.map(Iterator::collect).filter(|name: &String| !name.is_empty()).collect()
}

/// Returns the sentences of comment lines, without tables, lists and pictures.
fn sentences(comments: &[Comment]) -> Vec<String> {
    let (mut paragraphs, mut last_line, mut was_doc) = (vec![String::new()], 0, false);
    for comment in comments {
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

/// Returns the scripts, which have no extension, with their text.
fn scripts() -> Vec<(String, String)> {
    let read = |name: &str| (name.to_owned(), fs::read_to_string(root().join(name)).unwrap());
    ["check", "check-targets", ".ci/run"].map(read).into()
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
    }
    assert_at_most(0, &found, "private words");
}

#[test]
fn identifiers_have_no_private_words() {
    let mut found = Vec::new();
    for (name, text) in texts(&["rs"]) {
        let private = identifiers(&text).into_iter().filter(|identifier| {
            !ALLOWED_IDENTIFIERS.contains(&identifier.as_str()) && parts(identifier).iter().any(|part| is_private(part))
        });
        found.extend(private.map(|identifier| format!("{name}: {identifier}")));
    }
    assert_at_most(0, &found, "identifiers with private words");
}

#[test]
fn names_of_functions_speak_of_no_persons() {
    let (mut count, mut found) = (0, Vec::new());
    for (name, text) in texts(&["rs"]) {
        for function in functions(&text) {
            count += 1;
            if parts(&function).iter().any(|part| VAGUE_PERSONS.contains(&part.as_str())) {
                found.push(format!("{name}: {function}"));
            }
        }
    }
    assert!(count > 5000, "only {count} functions were found: this test no longer reads the sources");
    assert_at_most(0, &found, "names of functions that speak of persons");
}

/// Returns the string literals that are sentences or phrases, each with its file. The production code is that of
/// programs and libraries.
fn phrases(scope: Scope) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, text) in texts(&["rs"]) {
        if scope == Scope::Production && is_test(&root().join(&name)) {
            continue;
        }
        let phrases = literals(&text, scope).into_iter().filter(|text| text.split_whitespace().count() >= 3);
        found.extend(phrases.map(|phrase| (name.clone(), phrase)));
    }
    assert!(found.len() > 400, "only {} texts were found: this test no longer reads the sources", found.len());
    found
}

#[test]
fn texts_of_programs_are_plain() {
    assert_plain(&phrases(Scope::Production));
}

#[test]
fn texts_of_tests_are_plain() {
    let mut phrases = phrases(Scope::All);
    // The files of the vectors hold its texts, and the vectors never change.
    phrases.retain(|(name, _)| name != "tests/tests/simulation/vectors_session.rs");
    assert!(phrases.len() > 2000, "only {} texts were found: this test no longer reads the tests", phrases.len());
    assert_plain(&phrases);
}

fn assert_plain(phrases: &[(String, String)]) {
    let (mut unclear, mut fronted) = (Vec::new(), Vec::new());
    for (name, phrase) in phrases {
        if !private_words(phrase).is_empty() || speaks_of_persons(phrase) || !vague_phrases(phrase).is_empty() {
            unclear.push(format!("{name}: {phrase}"));
        }
        // Shorter ones are labels. A value in front is no clause.
        if phrase.split_whitespace().count() >= 6 && !phrase.starts_with('{') && is_fronted(phrase) {
            fronted.push(format!("{name}: {phrase}"));
        }
    }
    assert_at_most(0, &unclear, "texts with private words, persons or vague phrases");
    let max = (phrases.len() as f64 * MAX_FRONTED_TEXTS_PERCENT / 100.0) as usize;
    assert_at_most(max, &fronted, "texts with fronted clauses");
}

/// Returns the comments of a script or a TOML file, or the texts of a YAML file.
fn plain_comments(name: &str, text: &str) -> Vec<Comment> {
    let (mut found, mut gaps) = (Vec::new(), 0);
    for (index, line) in text.lines().map(str::trim).enumerate() {
        let text = if name.ends_with(".yaml") {
            // The value of a key begins a paragraph, also if the previous line is text.
            let value = line.split_once(": ").map(|(_, value)| value.trim_matches('"'));
            gaps += usize::from(value.is_some());
            Some(value.unwrap_or(line)).filter(|value| value.split_whitespace().count() >= 2)
        } else {
            line.strip_prefix('#').or_else(|| line.split_once(" # ").map(|(_, comment)| comment))
        };
        found.extend(text.map(|text| Comment { line: index + gaps, text: text.trim().to_owned(), is_doc: false }));
    }
    found
}

#[test]
fn scripts_settings_and_interfaces_are_plain() {
    let (mut count, mut unclear, mut fronted) = (0, Vec::new(), Vec::new());
    for (name, text) in texts(&["yaml", "toml", "sh"]).into_iter().chain(scripts()) {
        for sentence in sentences(&plain_comments(&name, &text)) {
            count += 1;
            if !private_words(&sentence).is_empty()
                || speaks_of_persons(&sentence)
                || !vague_phrases(&sentence).is_empty()
            {
                unclear.push(format!("{name}: {sentence}"));
            }
            if is_fronted(&sentence) {
                fronted.push(format!("{name}: {sentence}"));
            }
        }
    }
    assert!(count > 60, "only {count} sentences were found: this test no longer reads the files");
    assert_at_most(0, &unclear, "sentences with private words, persons or vague phrases");
    assert_at_most((count as f64 * MAX_FRONTED_PERCENT / 100.0) as usize, &fronted, "fronted clauses");
}

#[test]
fn comments_and_documents_name_quantities() {
    let mut found = Vec::new();
    for (name, text) in texts(&["rs"]) {
        for sentence in sentences(&comments(&text)) {
            found.extend(vague_phrases(&sentence).iter().map(|phrase| format!("{name}: {phrase}: {sentence}")));
        }
    }
    for (name, text) in texts(&["md"]) {
        for (index, line) in text.lines().enumerate() {
            found.extend(vague_phrases(line).iter().map(|phrase| format!("{name}:{}: {phrase}", index + 1)));
        }
    }
    assert_at_most(0, &found, "vague phrases");
}

/// Words for persons that no document needs. Readers, players and operators may be "who".
const VAGUE_PERSONS: &[&str] = &["whoever", "nobody", "whom", "somebody", "everybody", "anybody"];

#[test]
fn documents_use_no_private_words() {
    let (mut found, mut persons) = (Vec::new(), Vec::new());
    for (name, text) in texts(&["md"]) {
        let mut in_code = false;
        for (index, line) in text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            if !in_code {
                found.extend(private_words(line).iter().map(|word| format!("{name}:{}: {word}", index + 1)));
                if !name.starts_with("specs/vectors/") && words(line).any(|word| VAGUE_PERSONS.contains(&word.as_str()))
                {
                    persons.push(format!("{name}:{}: {line}", index + 1));
                }
            }
        }
    }
    assert_at_most(0, &persons, "persons in documents");
    assert_at_most(MAX_PRIVATE_WORDS_IN_DOCUMENTS, &found, "private words in documents");
}

#[test]
fn documentation_does_not_start_with_a_vague_verb() {
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

/// Returns the first lines of the documentation of functions, each with the number of the line, from 1.
fn function_docs(source: &str) -> Vec<(usize, String)> {
    const BEFORE_FN: &[&str] = &["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe"];
    let (mut found, mut doc) = (Vec::new(), None);
    for (index, line) in source.lines().map(str::trim).enumerate() {
        if let Some(text) = line.strip_prefix("///") {
            doc.get_or_insert_with(|| (index + 1, text.trim().to_owned()));
        } else if !line.starts_with("#[") {
            let doc = doc.take();
            if line.split_whitespace().find(|word| !BEFORE_FN.contains(word)) == Some("fn") {
                found.extend(doc);
            }
        }
    }
    found
}

/// Returns whether a text starts with a verb in the third person.
fn starts_with_verb(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or_default();
    let first = first.trim_end_matches(['.', ',', ':']);
    first.strip_suffix('s').is_some_and(|stem| stem.chars().all(|c| c.is_alphabetic() || c == '-') && stem.len() >= 2)
        && first.starts_with(char::is_uppercase)
}

#[test]
fn documentation_of_functions_starts_with_a_verb() {
    let (mut count, mut found) = (0, Vec::new());
    for (name, text) in texts(&["rs"]).into_iter().filter(|(name, _)| !is_test(&root().join(name))) {
        for (line, doc) in function_docs(&without_tests(&text)) {
            count += 1;
            if !starts_with_verb(&doc) {
                found.push(format!("{name}:{line}: {doc}"));
            }
        }
    }
    assert!(count > 1500, "only {count} functions were found: this test no longer reads the sources");
    assert_at_most(MAX_DOCS_WITHOUT_VERB, &found, "documentation that starts with no verb");
}

#[test]
fn sentences_of_comments_are_plain() {
    let mut crates: BTreeMap<String, (usize, Vec<String>, Vec<String>)> = BTreeMap::new();
    for (name, text) in texts(&["rs"]) {
        let (count, fronted, persons) = crates.entry(crate_of(&name)).or_default();
        for sentence in sentences(&comments(&text)) {
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
fn no_prose_is_wider_than_120_columns() {
    let mut found = Vec::new();
    for (name, text) in texts(&["md", "yaml", "toml"]).into_iter().chain(scripts()) {
        // The documents of the vectors come with them.
        if name.starts_with("specs/vectors/") {
            continue;
        }
        let mut in_code = false;
        for (index, line) in text.lines().enumerate() {
            in_code ^= name.ends_with(".md") && line.trim_start().starts_with("```");
            // Rows of tables, and texts in TOML, have no line breaks.
            let is_whole = line.trim_start().starts_with('|') || (name.ends_with(".toml") && !line.starts_with('#'));
            if !in_code && !is_whole && line.chars().count() > MAX_COLUMNS {
                found.push(format!("{name}:{}", index + 1));
            }
        }
    }
    assert_at_most(0, &found, "lines of prose over 120 columns");
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

/// Types that the server and the client both have under the name that a game sees. A game imports those of one end:
/// `slipgate::server::Event` or `slipgate::client::Event`. Neither crate may depend on the other.
const NAMES_OF_BOTH_ENDS: &[&str] = &["Event", "Inbox"];

/// Crates that are programs or tools: their private types are no reader's concern outside of their file.
const PROGRAMS: &[&str] = &["cli", "tools"];

/// A crate of the workspace: its folder, and the names of its workspace dependencies.
#[derive(Debug)]
struct Crate {
    folder: String,
    dependencies: Vec<String>,
}

/// Returns the crates that users get, by name, as the `Cargo.toml` files describe them.
fn crates() -> BTreeMap<String, Crate> {
    let manifests = files(&root(), &["toml"]).into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let mut found = BTreeMap::new();
    for path in manifests {
        let folder = path.parent().unwrap().strip_prefix(root()).unwrap().display().to_string();
        if ["tests", "fuzz"].contains(&folder.as_str()) {
            continue;
        }
        let (name, dependencies) = manifest(&fs::read_to_string(&path).unwrap());
        found.insert(name, Crate { folder, dependencies });
    }
    found
}

/// Returns the name of a package, and the names of its dependencies in this workspace, without those for tests.
fn manifest(text: &str) -> (String, Vec<String>) {
    let (mut section, mut name, mut dependencies) = (String::new(), String::new(), Vec::new());
    for line in text.lines() {
        if let Some(header) = line.strip_prefix('[') {
            header.trim_end_matches(']').clone_into(&mut section);
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim().trim_end_matches(".workspace");
        if section == "package" && key == "name" {
            value.trim().trim_matches('"').clone_into(&mut name);
        }
        let is_dependency = section == "dependencies" || section.ends_with("'.dependencies");
        if is_dependency && key.starts_with("slipgate") {
            dependencies.push(key.to_owned());
        }
    }
    (name, dependencies)
}

/// Returns the folders of a crate and of all crates that it depends on.
fn chain(crates: &BTreeMap<String, Crate>, name: &str) -> BTreeSet<String> {
    let own = &crates[name];
    let below = own.dependencies.iter().flat_map(|dependency| chain(crates, dependency));
    below.chain([own.folder.clone()]).collect()
}

/// Returns the types of one program by name, with the files in which they are defined. `binary` is the folder of the
/// program, if it shares a crate with others.
fn types_of(folders: &BTreeSet<String>, binary: Option<&str>) -> BTreeMap<String, Vec<String>> {
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in folders {
        let private_too = !PROGRAMS.iter().any(|program| folder.split('/').next() == Some(program));
        for path in files(&root().join(folder).join("src"), &["rs"]).into_iter().filter(|path| !is_test(path)) {
            let file = path.strip_prefix(root()).unwrap().display().to_string();
            if file.contains("/bin/") && !binary.is_some_and(|binary| file.contains(&format!("/bin/{binary}/"))) {
                continue;
            }
            for name in type_names(&production(&fs::read_to_string(&path).unwrap()), private_too) {
                homes.entry(name).or_default().push(file.clone());
            }
        }
    }
    homes
}

#[test]
fn types_along_a_dependency_chain_have_names_of_their_own() {
    let crates = crates();
    assert!(crates.len() >= 13, "only {} crates were found", crates.len());
    let binaries: Vec<String> = fs::read_dir(root().join("cli/src/bin"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().display().to_string())
        .collect();
    let binaries: Vec<Option<&str>> = binaries.iter().map(|name| Some(name.as_str())).collect();
    assert!(binaries.len() >= 4, "{binaries:?}");
    let (mut twice, mut most) = (BTreeSet::new(), 0);
    for (name, own) in &crates {
        let programs = if own.folder == "cli" { &binaries[..] } else { &[None] };
        for binary in programs {
            let homes = types_of(&chain(&crates, name), *binary);
            most = most.max(homes.len());
            let is_shared =
                |name: &str, homes: &[String]| NAMES_OF_BOTH_ENDS.contains(&name) && are_apart(&crates, homes);
            let several = homes.iter().filter(|(name, homes)| homes.len() > 1 && !is_shared(name, homes));
            twice.extend(several.map(|(name, homes)| format!("{name}: {homes:?}")));
        }
    }
    assert!(most > 700, "at most {most} types were found: this test no longer reads the sources");
    assert_at_most(0, &twice.into_iter().collect::<Vec<_>>(), "types of one name");
}

/// Returns whether these files stand in crates of which none depends on another one.
fn are_apart(crates: &BTreeMap<String, Crate>, files: &[String]) -> bool {
    let holds = |folder: &str, file: &String| file.starts_with(&format!("{folder}/src/"));
    crates.iter().filter(|(_, own)| files.iter().any(|file| holds(&own.folder, file))).all(|(name, _)| {
        let below = chain(crates, name);
        files.iter().filter(|file| below.iter().any(|folder| holds(folder, file))).count() == 1
    })
}

/// Returns the names of the types that stand at the outer level of a file, or only of those that other files can use.
/// The same type may be defined for each system once.
fn type_names(code: &str, private_too: bool) -> Vec<String> {
    let mut names = Vec::new();
    for line in code.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let start = usize::from(words.first().is_some_and(|word| word.starts_with("pub")));
        if line.starts_with(' ')
            || (start == 0 && !private_too)
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
    assert_eq!(
        sentences(&comments(source)),
        ["Tells of nobody.", "What is heard is kept for ever.", "a plain comment here"]
    );
    assert!(is_fronted("What is heard is kept."));
    assert!(!is_fronted("The table keeps it."));
    assert!(speaks_of_persons("Tells of nobody."));
    assert!(!speaks_of_persons("Calls `nobody` at once."));
    assert_eq!(private_words("It is told `heard` again."), ["told"]);
    assert_eq!(private_words("two crews and a wish"), ["crews", "wish"]);
    assert_eq!(vague_phrases("It waits for so many ticks."), ["so many"]);
    assert_eq!(parts("FarewellOf"), ["farewell", "of"]);
    assert_eq!(parts("FAREWELL_OF"), ["farewell", "of"]);
    assert_eq!(functions("fn while_nobody() { let _nobody = || b(); } trait A { fn c(); }"), ["while_nobody", "c"]);
    let functions =
        "/// Returns it.\n#[must_use]\npub(crate) const fn a() {}\n/// The b.\nfn b() {}\n/// A type.\nstruct C;\n";
    let docs = function_docs(functions);
    assert_eq!(docs, [(1, "Returns it.".to_owned()), (4, "The b.".to_owned())]);
    assert_eq!([starts_with_verb(&docs[0].1), starts_with_verb(&docs[1].1)], [true, false]);
    assert!(!["As before", "Is", "40 kB", "`x` it"].iter().all(|text| starts_with_verb(text)));
    let yaml = "description: >-\n  It mints\n  a token.\nsummary: One two three.\n";
    assert_eq!(sentences(&plain_comments("a.yaml", yaml)), ["It mints a token.", "One two three."]);
    assert_eq!(sentences(&plain_comments("check", "# Builds all\n# of it.\nx=1\n")), ["Builds all of it."]);
    assert_eq!(type_names("pub(crate) struct A<T> {\n    enum No {}\nenum B {}", true), ["A", "B"]);
    assert_eq!(type_names("pub(crate) struct A<T> {\n    enum No {}\nenum B {}", false), ["A"]);
    let text = "[package]\nname = \"a\"\n[dependencies]\nslipgate-b = { path = \"b\" }\nserde = \"1\"\n\
                [target.'cfg(unix)'.dependencies]\nslipgate-c.workspace = true\n\
                [dev-dependencies]\nslipgate-d = \"1\"\n";
    assert_eq!(manifest(text), ("a".into(), vec!["slipgate-b".into(), "slipgate-c".into()]));
}

#[test]
fn types_of_one_name_may_not_meet_below_a_common_user() {
    let package = |folder: &str, below: &[&str]| {
        let dependencies = below.iter().map(|name| (*name).to_owned()).collect();
        (folder.to_owned(), Crate { folder: folder.to_owned(), dependencies })
    };
    let crates = BTreeMap::from([package("a", &[]), package("b", &["a"]), package("c", &["a"]), package("d", &["b"])]);
    let files = |folders: [&str; 2]| folders.map(|folder| format!("{folder}/src/lib.rs"));
    assert!(are_apart(&crates, &files(["b", "c"])));
    assert!(!are_apart(&crates, &files(["a", "b"])) && !are_apart(&crates, &files(["d", "a"])));
}
