//! The documents: links lead somewhere, and README and changelog stay short.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use slipgate_netcode::discard::Discard;
use slipgate_session::reject::Reject;

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

#[test]
fn tests_named_in_the_hardening_table_exist() {
    let table = fs::read_to_string(root().join("specs/hardening.md")).unwrap();
    let code: String = files(&root(), &["rs"]).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    // Names of tests have at least three underscores; settings and counters have fewer.
    let is_test_name = |word: &&str| {
        word.matches('_').count() >= 3 && word.chars().all(|c| c.is_lowercase() || c.is_numeric() || c == '_')
    };
    let names: BTreeSet<&str> = table.split('`').skip(1).step_by(2).filter(is_test_name).collect();
    assert!(names.len() > 40, "only {} names were found: this test no longer reads the table", names.len());
    let missing: Vec<_> = names.iter().filter(|name| !code.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
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
    let page = fs::read_to_string(root().join("docs/dropped-datagrams.md")).unwrap();
    let rows = |part: &str| -> Vec<String> {
        part.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned())).collect()
    };
    let (netcode, session) = page.split_once("## Packets inside of a connection").unwrap();
    same_rows(&rows(netcode), &Discard::ALL.iter().map(|reason| reason.name()).collect::<Vec<_>>());
    same_rows(&rows(session), &Reject::ALL.iter().map(|reason| reason.name()).collect::<Vec<_>>());
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
