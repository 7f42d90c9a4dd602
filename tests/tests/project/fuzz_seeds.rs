//! The seeds of the fuzz targets: each target has some, and each seed belongs to a target. The README says how much of
//! what a minute of fuzzing reaches they reach.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::files::root;

/// Seeds that a target has at least. A short run of the continuous integration starts from them.
const MIN_SEEDS: usize = 5;
/// Seeds that a target has at most, with those of its scripts.
const MAX_SEEDS: usize = 220;

/// Returns the names of the targets.
fn targets() -> BTreeSet<String> {
    let entries = fs::read_dir(root().join("fuzz/targets")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

/// Returns the contents of the seeds in each folder, with the names of the seeds that have it.
fn seeds() -> BTreeMap<String, BTreeMap<Vec<u8>, Vec<String>>> {
    let mut seeds = BTreeMap::new();
    for folder in fs::read_dir(root().join("fuzz/corpus")).unwrap() {
        let folder = folder.unwrap();
        let of_target: &mut BTreeMap<_, Vec<_>> =
            seeds.entry(folder.file_name().to_string_lossy().into_owned()).or_default();
        for file in fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            // The fuzzer keeps its other inputs here, without an extension.
            if path.extension().is_some_and(|extension| extension == "seed") {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                of_target.entry(fs::read(&path).unwrap()).or_default().push(name);
            }
        }
    }
    seeds
}

#[test]
fn each_fuzz_target_has_seeds_and_no_seed_is_left_over() {
    let (targets, seeds) = (targets(), seeds());
    assert!(targets.len() > 10, "{targets:?}");
    let with_seeds: BTreeSet<_> =
        seeds.iter().filter(|(_, of_target)| !of_target.is_empty()).map(|(target, _)| target.clone()).collect();
    assert_eq!(with_seeds, targets, "the folders with seeds are those of the targets");
    for (target, of_target) in &seeds {
        let count = of_target.values().map(Vec::len).sum::<usize>();
        assert!((MIN_SEEDS..=MAX_SEEDS).contains(&count), "{target} has {count} seeds");
        let doubles: Vec<_> = of_target.values().filter(|names| names.len() > 1).collect();
        assert!(doubles.is_empty(), "{target} has seeds with the same content: {doubles:?}");
    }
}

#[test]
fn readme_and_manifest_name_each_fuzz_target() {
    let [readme, manifest] = ["README.md", "Cargo.toml"].map(|name| fs::read_to_string(root().join("fuzz").join(name)));
    let (readme, manifest) = (readme.unwrap(), manifest.unwrap());
    for target in targets() {
        // The checks of the target, its longest input, and its runs.
        let rows = readme.lines().filter(|line| line.starts_with(&format!("| `{target}` |"))).count();
        assert!(rows >= 3, "{target} has {rows} rows in fuzz/README.md");
        assert!(manifest.contains(&format!("name = \"{target}\"")), "{target} is no binary");
    }
}

/// The targets that reach all their code with the seeds of the specifications, so that the fuzzer finds few others.
const WITHOUT_FOUND_SEEDS: [&str; 2] = ["address", "reliable_header"];
/// Seeds of a target that the fuzzer found, at least.
const MIN_FOUND: usize = 10;
/// The minimum of the code that the seeds reach, in percent of what one more minute of fuzzing reaches.
const MIN_CODE: f64 = 50.0;

#[test]
fn seeds_reach_half_of_what_the_fuzzer_finds() {
    let readme = fs::read_to_string(root().join("fuzz/README.md")).unwrap();
    let (_, table) = readme.split_once("| target | code before | code now |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let seeds = seeds();
    for target in targets().iter().filter(|target| !WITHOUT_FOUND_SEEDS.contains(&target.as_str())) {
        let found = seeds[target].values().flatten().filter(|name| name.starts_with("found-")).count();
        assert!(
            found >= MIN_FOUND,
            "{target} has {found} seeds that the fuzzer found; fuzz/README.md says how to add some"
        );
        let row = table.lines().find(|line| line.starts_with(&format!("| `{target}` |")));
        let row = row.unwrap_or_else(|| panic!("{target} has no row with the code that its seeds reach"));
        let now = row.split('|').nth(3).and_then(|cell| cell.trim().strip_suffix(" %")?.parse::<f64>().ok());
        assert!(now.is_some_and(|now| now >= MIN_CODE), "{target}: its seeds reach too little: {row}");
    }
}
