//! The examples in `deploy/`: their files are well-formed, and name flags and metrics that exist.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use super::files::root;

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the words of a text that start with `--` and go on with a letter, without values.
fn flags(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '-';
    let found = text.split("--").skip(1).map(|rest| rest.chars().take_while(|c| is_part(*c)).collect::<String>());
    found.map(|flag| flag.trim_end_matches('-').to_owned()).filter(|flag| !flag.is_empty()).collect()
}

/// Returns the section of a program in the list of flags.
fn documented_flags(program: &str) -> BTreeSet<String> {
    let readme = read("cli/README.md");
    let (_, section) = readme.split_once(&format!("\n## `{program}`\n")).unwrap();
    flags(section.split("\n## ").next().unwrap())
}

/// Returns a name without what queries add to it.
fn family(name: &str) -> &str {
    ["_total", "_bucket"].iter().fold(name, |name, suffix| name.trim_end_matches(suffix))
}

/// Returns the metrics of the tables in the operations guide and in the API of the issuer. Tests of the admin service
/// and of the issuer compare each table with the service.
fn documented_metrics() -> BTreeSet<String> {
    let pages = read("docs/operations.md") + &read("specs/http-api.md");
    let rows = pages.lines().filter_map(|line| line.strip_prefix("| `slipgate_"));
    let names = rows.filter_map(|row| Some(format!("slipgate_{}", family(row.split_once('`')?.0))));
    let metrics: BTreeSet<_> = names.collect();
    assert!(metrics.len() > 30, "{metrics:?}");
    metrics
}

#[test]
fn dashboard_shows_metrics_that_exist() {
    let text = read("deploy/grafana/slipgate-servers.json");
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let is_row = |panel: &&Value| panel["type"] == "row";
    let queries: Vec<_> =
        panels.iter().filter(|panel| !is_row(panel)).flat_map(|panel| panel["targets"].as_array().unwrap()).collect();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!((ids.len(), panels.iter().filter(is_row).count()), (panels.len(), 1));
    assert!(panels.len() > 10 && queries.len() > panels.len());
    let (metrics, mut used) = (documented_metrics(), BTreeSet::new());
    for query in queries {
        let query = query["expr"].as_str().unwrap();
        assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
        for part in query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if part.starts_with("slipgate_") {
                let name = family(part);
                assert!(metrics.contains(name), "{part} in {query}");
                used.insert(name.to_owned());
            }
        }
    }
    assert!(used.len() > 20, "{used:?}");
    let of_issuer = metrics.iter().filter(|name| name.starts_with("slipgate_issuer_"));
    assert!(of_issuer.clone().count() > 5 && of_issuer.clone().all(|name| used.contains(name)), "{used:?}");
}

#[test]
fn units_have_flags_that_exist() {
    for (unit, program) in [("slipgate-server@", "slipgate-server"), ("slipgate-token-issuer", "slipgate-token-issuer")]
    {
        let text = read(&format!("deploy/systemd/{unit}.service"));
        let start = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
        let (used, known) = (flags(start), documented_flags(program));
        assert!(!used.is_empty() && used.is_subset(&known), "{used:?}");
        assert!(start.starts_with(&format!("ExecStart=/usr/local/bin/{program} ")), "{start}");
    }
}

/// Calls `visit` with each list of arguments of a container and its image.
fn containers(yaml: &Yaml, visit: &mut impl FnMut(&str, &[Yaml])) {
    match yaml {
        Yaml::Hash(hash) => {
            if let (Some(image), Some(arguments)) = (yaml["image"].as_str(), yaml["args"].as_vec()) {
                visit(image, arguments);
            }
            hash.values().for_each(|value| containers(value, visit));
        }
        Yaml::Array(values) => values.iter().for_each(|value| containers(value, visit)),
        _ => {}
    }
}

#[test]
fn manifests_are_yaml_with_flags_that_exist() {
    let mut checked = 0;
    for name in ["agones-fleet", "token-issuer"] {
        let documents = YamlLoader::load_from_str(&read(&format!("deploy/kubernetes/{name}.yaml"))).unwrap();
        assert!(documents.iter().all(|document| document["kind"].as_str().is_some()), "{name}");
        for document in &documents {
            containers(document, &mut |image, arguments| {
                let program = image.rsplit('/').next().unwrap().split(':').next().unwrap();
                let used: Vec<_> = arguments.iter().map(|argument| argument.as_str().unwrap()).collect();
                let (used, known) = (flags(&used.join(" ")), documented_flags(program));
                assert!(used.len() > 3 && used.is_subset(&known), "{program}: {used:?}");
                checked += 1;
            });
        }
    }
    assert_eq!(checked, 2);
}
