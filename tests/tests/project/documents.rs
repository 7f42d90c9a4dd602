//! The documents: links lead somewhere, and README and changelog stay short.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use slipgate_netcode::discard::Discard;
use slipgate_session::reject::Reject;
use slipgate_udp::SocketErrorKind;

use super::files::{files, root};

const MAX_README_LINES: usize = 200;
const MAX_CHANGELOG_LINES: usize = 40;

/// Returns the targets of the links in Markdown text outside of code.
fn links(text: &str) -> Vec<String> {
    let (mut found, mut in_code) = (Vec::new(), false);
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        if in_code {
            continue;
        }
        for (start, _) in line.match_indices("](") {
            let target = &line[start + 2..];
            found.extend(target.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    found
}

/// Returns the anchors that headings of Markdown text get on code hosts.
fn anchors(text: &str) -> BTreeSet<String> {
    let (mut found, mut in_code) = (BTreeSet::new(), false);
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !in_code) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
    }
    found
}

#[test]
fn links_between_documents_lead_somewhere() {
    let (mut broken, mut checked) = (Vec::new(), 0);
    for path in files(&root(), &["md"]) {
        let text = fs::read_to_string(&path).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            checked += 1;
            let (file, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let has_anchor =
                |anchor: &str| fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor));
            // An anchor in source code is a line number.
            let is_document = target.extension().is_some_and(|extension| extension == "md");
            if !target.exists() || (is_document && anchor.is_some_and(|anchor| !has_anchor(anchor))) {
                broken.push(format!("{}: {link}", path.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(checked > 50, "only {checked} links were found: this test no longer reads the documents");
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

/// Returns the names of all test functions, and all test code.
fn test_functions() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for path in files(&root(), &["rs"]) {
        let text = fs::read_to_string(path).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            match line.trim_start_matches("async ").strip_prefix("fn ").and_then(|rest| rest.split_once('(')) {
                Some((name, _)) if is_test => _ = found.insert(name.to_owned()),
                _ => {}
            }
            // Attributes may stand between `#[test]` and the function.
            is_test = line == "#[test]" || line.starts_with("#[tokio::test") || (is_test && line.starts_with("#["));
        }
    }
    found
}

/// Returns the words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn tests_named_in_the_hardening_document_exist() {
    let document = fs::read_to_string(root().join("specs/hardening.md")).unwrap();
    let tests = test_functions();
    // Names of tests have at least three underscores; settings and reasons have fewer, except for these.
    let settings = ["packets_per_client_and_turn", "packets_per_client_and_tick", "tokens_per_client_id"];
    let is_reason = |word: &&str| Discard::ALL.iter().any(|reason| reason.name() == *word);
    let is_test_name = |word: &&str| {
        word.matches('_').count() >= 3 && word.chars().all(|c| c.is_lowercase() || c.is_numeric() || c == '_')
    };
    let names = quoted(&document).filter(is_test_name).filter(|name| !settings.contains(name) && !is_reason(name));
    let names: BTreeSet<&str> = names.collect();
    assert!(names.len() > 80, "only {} names were found: this test no longer reads the document", names.len());
    let missing: Vec<_> = names.iter().filter(|name| !tests.contains(**name)).collect();
    assert!(missing.is_empty(), "no test functions: {missing:?}");
}

#[test]
fn each_finding_names_tests_that_exist() {
    let document = fs::read_to_string(root().join("tests/findings.md")).unwrap();
    let tests = test_functions();
    let mut labels = BTreeSet::new();
    for row in document.lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, label, finding, named, ..] = cells[..] else { continue };
        let Some((_, number)) = label.split_once('-').filter(|(kind, _)| ["S", "K", "U", "T"].contains(kind)) else {
            continue;
        };
        assert!(number.parse::<u32>().is_ok() && !finding.is_empty(), "{row}");
        let names: Vec<_> = quoted(named).filter(|word| word.matches('_').count() >= 2).collect();
        let unknown: Vec<_> = names.iter().filter(|name| !tests.contains(**name)).collect();
        assert!(unknown.is_empty(), "{label}: no test functions: {unknown:?}");
        assert!(!names.is_empty() || named.starts_with("none: "), "{label} has no test");
        labels.insert(label.to_owned());
    }
    let expected = [("S", 14), ("K", 9), ("U", 12), ("T", 13)];
    let expected = expected.iter().flat_map(|(kind, count)| (1..=*count).map(move |number| format!("{kind}-{number}")));
    assert_eq!(labels, expected.collect());
}

/// Returns whether a file or a folder, as the last column of the table of attacks names it, has tests.
fn has_tests(name: &str) -> bool {
    let folders = ["", "protocol/netcode/src", "tests/tests/simulation"].map(|folder| root().join(folder));
    let name = if name == "simulated_world" { "world_checks" } else { name };
    let candidates = folders.iter().flat_map(|folder| [folder.join(name), folder.join(format!("{name}.rs"))]);
    let mut sources = candidates
        .filter(|path| path.exists())
        .flat_map(|path| if path.is_dir() { files(&path, &["rs"]) } else { vec![path] });
    sources.any(|path| {
        let text = fs::read_to_string(path).unwrap();
        ["#[test]", "compile_fail", "disallowed"].iter().any(|test| text.contains(test))
    })
}

#[test]
fn each_attack_of_the_hardening_document_names_a_test() {
    let document = fs::read_to_string(root().join("specs/hardening.md")).unwrap();
    let tests = test_functions();
    let (_, attacks) = document.split_once("## H1. ").unwrap();
    let (attacks, _) = attacks.split_once("## H2. ").unwrap();
    let rows: Vec<_> = attacks.lines().filter(|line| line.starts_with("| **")).collect();
    assert!(rows.len() > 35, "only {} rows were found: this test no longer reads the table", rows.len());
    for row in rows {
        let (_, column) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        let named: Vec<_> = quoted(column).filter(|word| *word != "compile_fail").collect();
        let unknown: Vec<_> = named.iter().filter(|name| !tests.contains(**name) && !has_tests(name)).collect();
        assert!(unknown.is_empty(), "neither tests nor files with tests: {unknown:?}\n{row}");
        assert!(!named.is_empty() || column == "none: inherent", "a defence without a test\n{row}");
    }
}

/// Returns the methods of types of one library, from the list of its public API.
fn methods(library: &str, types: &[&str]) -> BTreeSet<String> {
    let list = fs::read_to_string(root().join("tests/api").join(format!("{library}.txt"))).unwrap();
    let mut found = BTreeSet::new();
    for line in list.lines() {
        let Some((path, described)) = line.split_once(": ") else { continue };
        let Some((_, function)) = described.split_once("fn ") else { continue };
        if types.contains(&path.rsplit("::").next().unwrap_or(path)) {
            found.extend(function.split(['(', '<']).next().map(str::to_owned));
        }
    }
    found
}

/// Returns the names of the methods that a text calls on a variable.
fn calls(text: &str, variable: &str) -> Vec<String> {
    let prefix = format!("{variable}.");
    let mut found = Vec::new();
    for (start, _) in text.match_indices(&prefix) {
        let is_word = text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = &text[start + prefix.len()..];
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !is_word && rest[name.len()..].starts_with('(') {
            found.push(name);
        }
    }
    found
}

#[test]
fn calls_in_documents_exist() {
    // The variables of examples, and the types that they may have.
    let known = [
        ("server", methods("slipgate_server", &["Server"])),
        ("sharded", methods("slipgate_server", &["ShardedServer"])),
        ("client", &methods("slipgate_client", &["Client"]) | &methods("slipgate_server", &["ClientRef"])),
    ];
    let (mut count, mut unknown) = (0, Vec::new());
    let guides = files(&root().join("docs"), &["md"]);
    let readmes = ["README.md", "server/README.md", "client/README.md", "cli/README.md"].map(|name| root().join(name));
    for path in guides.into_iter().chain(readmes) {
        let text = fs::read_to_string(&path).unwrap();
        for (variable, methods) in &known {
            let calls = calls(&text, variable);
            count += calls.len();
            let missing = calls.iter().filter(|name| !methods.contains(*name));
            unknown.extend(missing.map(|name| format!("{}: {variable}.{name}(", path.display())));
        }
    }
    assert!(count > 60, "only {count} calls were found: this test no longer reads the documents");
    assert!(unknown.is_empty(), "calls of methods that do not exist:\n{}", unknown.join("\n"));
    assert_eq!(calls("`server.a(1)` my_server.b() server.c server.d().e()", "server"), ["a", "d"]);
}

/// Returns the members that the lists of the public API have for each type: methods, fields and variants.
fn members() -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for list in files(&root().join("tests/api"), &["txt"]) {
        for line in fs::read_to_string(list).unwrap().lines() {
            let Some((path, described)) = line.split_once(": ") else { continue };
            let words = described.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned);
            found.entry(path.rsplit("::").next().unwrap_or(path).to_owned()).or_default().extend(words);
        }
    }
    found
}

/// Returns the types of a text in backticks, each with the member that is named behind it: `Type::member`.
fn members_named(text: &str) -> Vec<(&str, &str)> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = quoted(text).map(|word| word.split(|c: char| !is_name(c)).next().unwrap_or(word));
    let pairs = paths.filter_map(|path| path.rsplit_once("::"));
    pairs
        .map(|(path, member)| (path.rsplit("::").next().unwrap_or(path), member))
        .filter(|(name, member)| name.starts_with(char::is_uppercase) && !member.is_empty())
        .collect()
}

#[test]
fn members_named_in_documents_exist() {
    let (known, mut count, mut unknown) = (members(), 0, Vec::new());
    let documents = ["docs", "specs"].into_iter().flat_map(|folder| files(&root().join(folder), &["md"]));
    for path in documents {
        let text = fs::read_to_string(&path).unwrap();
        for (name, member) in members_named(&text) {
            count += 1;
            if !known.get(name).is_some_and(|members| members.contains(member)) {
                unknown.push(format!("{}: {name}::{member}", path.display()));
            }
        }
    }
    assert!(count > 25, "only {count} members were found: this test no longer reads the documents");
    assert!(unknown.is_empty(), "members of types that do not exist:\n{}", unknown.join("\n"));
    assert_eq!(members_named("`A::b(1)` A::c `d::E::F` `g::h`"), [("A", "b"), ("E", "F")]);
}

#[test]
fn readme_and_changelog_are_short() {
    for (name, max) in [("README.md", MAX_README_LINES), ("CHANGELOG.md", MAX_CHANGELOG_LINES)] {
        let lines = fs::read_to_string(root().join(name)).unwrap().lines().count();
        assert!(lines <= max, "{name} has {lines} lines, at most {max} allowed");
    }
}

/// Fails with the first row of `docs/dropped-datagrams.md` that differs from the code.
fn same_rows(rows: &[String], code: &[&str]) {
    let missing: Vec<_> = code.iter().filter(|name| !rows.iter().any(|row| row == *name)).collect();
    assert!(missing.is_empty(), "add a row to docs/dropped-datagrams.md for {missing:?}");
    let order = rows.iter().zip(code).find(|(row, name)| row != name);
    assert!(order.is_none(), "the rows of docs/dropped-datagrams.md have the order of the code: {order:?}");
    assert_eq!(rows.len(), code.len(), "docs/dropped-datagrams.md has a row for a reason that does not exist");
}

#[test]
fn each_reason_to_drop_a_datagram_is_documented() {
    let rows = |heading| first_cells(&part(heading));
    let netcode: Vec<_> = Discard::ALL.iter().map(|reason| reason.name()).collect();
    let session: Vec<_> = Reject::ALL.iter().map(|reason| reason.name()).collect();
    let sockets = SocketErrorKind::ALL.map(SocketErrorKind::name);
    same_rows(&rows("## Datagrams of netcode"), &netcode);
    same_rows(&rows("## Packets inside of a connection"), &session);
    same_rows(&rows("## Socket errors"), &sockets);
}

/// Returns the part of `docs/dropped-datagrams.md` below this heading.
fn part(heading: &str) -> String {
    let page = fs::read_to_string(root().join("docs/dropped-datagrams.md")).unwrap();
    let (_, rest) = page.split_once(heading).unwrap();
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

/// Returns the words in the first cells of the rows.
fn first_cells(part: &str) -> Vec<String> {
    part.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
}

/// Returns the variants of an enum in the text of a file.
fn variants(text: &str, name: &str) -> Vec<String> {
    let (_, rest) = text.split_once(&format!("pub enum {name} {{\n")).unwrap();
    let lines = rest.lines().take_while(|line| *line != "}").map(str::trim);
    let variants = lines.filter(|line| !line.starts_with("//") && !line.starts_with('#'));
    variants.map(|line| line.split(['(', ',']).next().unwrap().to_owned()).collect()
}

#[test]
fn each_violation_is_documented_with_the_text_of_the_log() {
    let part = part("## Violations");
    let (channels, transfers) = part.split_once("| violation of transfers |").unwrap();
    for (name, file, rows) in [
        ("ChannelViolation", "protocol/session/src/channel/violation.rs", channels),
        ("TransferViolation", "protocol/session/src/channel/transfer/mod.rs", transfers),
    ] {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let variants = variants(&text, name);
        same_rows(&first_cells(rows), &variants.iter().map(String::as_str).collect::<Vec<_>>());
        let (_, display) = text.split_once(&format!("fmt::Display for {name} ")).unwrap();
        for variant in variants.iter().filter(|variant| *variant != "Transfer") {
            let (_, line) = display.split_once(&format!("Self::{variant}")).unwrap();
            let sentence = line.split('"').nth(1).unwrap();
            let row = rows.lines().find(|row| row.starts_with(&format!("| `{variant}` |"))).unwrap();
            assert!(row.contains(&format!("| {sentence} |")), "{variant}: {sentence}");
        }
    }
}

#[test]
fn each_term_of_the_glossary_is_used_elsewhere() {
    let glossary = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let terms: Vec<_> =
        glossary.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).skip(1).collect();
    let is_other = |path: &std::path::PathBuf| !path.ends_with("docs/glossary.md");
    let texts: String = files(&root(), &["md", "rs"])
        .into_iter()
        .filter(is_other)
        .map(|path| fs::read_to_string(path).unwrap().to_lowercase())
        .collect();
    // A line break may be between two words of a term.
    let texts = texts.replace("\n//! ", " ").replace("\n/// ", " ").replace('\n', " ");
    let unused: Vec<_> = terms.iter().filter(|term| !texts.contains(&term.to_lowercase())).collect();
    assert!(terms.len() > 60, "only {} terms were found: this test no longer reads the glossary", terms.len());
    assert!(unused.is_empty(), "terms that no other file uses: {unused:?}");
    let mut sorted = terms.clone();
    sorted.sort_by_key(|term| term.to_lowercase());
    assert_eq!(terms, sorted, "the terms are in alphabetical order");
}

#[test]
fn each_reason_comes_with_what_to_do() {
    let pages = ["docs/dropped-datagrams.md", "docs/close-reasons.md", "specs/http-api.md"];
    for name in pages {
        let (mut rows, mut columns, mut open) = (0, 0, Vec::new());
        for line in fs::read_to_string(root().join(name)).unwrap().lines() {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if cells.get(cells.len().saturating_sub(2)) == Some(&"what to do") {
                columns = cells.len();
            } else if !line.starts_with('|') {
                columns = 0;
            } else if columns > 0 {
                rows += 1;
                let is_full = cells.len() == columns && cells[columns - 2].len() >= "---".len();
                open.extend((!is_full).then(|| line.to_owned()));
            }
        }
        assert!(rows > 10, "{name}: only {rows} rows");
        assert!(open.is_empty(), "{name}: rows without what to do:\n{}", open.join("\n"));
    }
}

#[test]
fn the_guide_lists_each_of_its_pages_once() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let listed = links(&summary);
    for page in files(&root().join("docs"), &["md"]) {
        let name = Path::new(page.file_name().unwrap()).display().to_string();
        let count = listed.iter().filter(|link| **link == name).count();
        assert_eq!(count, usize::from(name != "SUMMARY.md"), "{name}");
    }
}

#[test]
fn links_and_anchors_are_found() {
    let text = "# A b: C\n[x](y.md#a-b-c) and [z](#q)\n```\n[no](no.md)\n```\n";
    assert_eq!(links(text), ["y.md#a-b-c", "#q"]);
    assert_eq!(anchors(text), BTreeSet::from(["a-b-c".to_owned()]));
}
