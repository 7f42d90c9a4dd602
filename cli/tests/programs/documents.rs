//! The code blocks of README and guide that are no Rust: each command line is run or parsed by its program, each
//! configuration file starts a program, and each dependency names features that exist.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::issuer;
use crate::server::program::{Program, TestFolder};

const PAGES: &[&str] = &[
    "README.md",
    "admin/README.md",
    "cli/README.md",
    "client/README.md",
    "docs/backend.md",
    "docs/bevy.md",
    "docs/c.md",
    "docs/channels.md",
    "docs/csharp.md",
    "docs/fleet.md",
    "docs/game.md",
    "docs/operations.md",
    "docs/performance.md",
    "docs/prediction.md",
    "docs/server.md",
    "docs/state.md",
    "server/README.md",
    "specs/http-api.md",
    "token-issuer/README.md",
    "tools/lab/README.md",
    "tools/sim/README.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Returns the blocks of a page in one of these languages.
fn blocks(page: &str, languages: &[&str]) -> Vec<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut found = Vec::new();
    let mut parts = text.split("\n```");
    parts.next();
    // The odd parts begin with the language, the even ones with the text behind the block.
    for part in parts.step_by(2) {
        let (language, block) = part.split_once('\n').unwrap();
        found.extend(languages.contains(&language).then(|| block.to_owned()));
    }
    found
}

/// Returns the words of each command of a console block, without prompts, output and comments.
fn commands(block: &str) -> Vec<Vec<String>> {
    let joined = block.replace("\\\n", " ");
    let has_prompts = joined.lines().any(|line| line.starts_with("$ ") || line.starts_with("# "));
    let lines = joined.lines().filter_map(|line| match line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")) {
        None if has_prompts => None,
        None => Some(line),
        command => command,
    });
    lines.map(words).filter(|words| !words.is_empty()).collect()
}

/// Splits a command line as a shell does, as far as the documents need it.
fn words(line: &str) -> Vec<String> {
    let (mut found, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ') => found.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    found.extend(word);
    found
}

/// Returns the program of ours that a command runs, and its arguments.
fn program(command: &[String]) -> Option<(&str, &[String])> {
    let first = command[0].as_str();
    if ["slipgate", "slipgate-server", "slipgate-client", "slipgate-token-issuer"].contains(&first) {
        return Some((first, &command[1..]));
    }
    if first != "cargo" || command[1] != "run" || command.iter().any(|word| word == "--example") {
        return None;
    }
    let separator = command.iter().position(|word| word == "--").expect("the arguments of the program follow --");
    let name = command[..separator].iter().position(|word| word == "--bin").map(|index| command[index + 1].as_str());
    Some((name.unwrap_or("slipgate"), &command[separator + 1..]))
}

fn binary(name: &str) -> Command {
    Command::new(match name {
        "slipgate" => env!("CARGO_BIN_EXE_slipgate"),
        "slipgate-server" => env!("CARGO_BIN_EXE_slipgate-server"),
        "slipgate-client" => env!("CARGO_BIN_EXE_slipgate-client"),
        "slipgate-token-issuer" => env!("CARGO_BIN_EXE_slipgate-token-issuer"),
        _ => panic!("there is no program {name}"),
    })
}

/// Runs a command in a folder, and returns its output. A program that serves or measures only parses its arguments.
fn run(name: &str, arguments: &[String], folder: &Path, digest: &str) -> String {
    let arguments: Vec<String> = arguments
        .iter()
        .take_while(|argument| *argument != ">")
        .map(|argument| if argument.starts_with("hmac-sha256:") { digest.to_owned() } else { argument.clone() })
        .collect();
    let ends_by_itself = name == "slipgate" && ["keygen", "token"].contains(&arguments[0].as_str());
    let mut command = binary(name);
    command.args(&arguments).args((!ends_by_itself).then_some("--help")).current_dir(folder);
    let output = command.output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{name} {}: {error}", arguments.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the names of the workspace's packages.
fn packages() -> BTreeSet<String> {
    let workspace: toml::Table = toml::from_str(&fs::read_to_string(root().join("Cargo.toml")).unwrap()).unwrap();
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let folders = members.iter().map(|member| root().join(member.as_str().unwrap())).chain([root()]);
    let manifests = folders.map(|folder| fs::read_to_string(folder.join("Cargo.toml")).unwrap());
    manifests
        .map(|text| toml::from_str::<toml::Table>(&text).unwrap()["package"]["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns whether an admin route has this path.
fn is_admin_path(path: &str) -> bool {
    let path: Vec<_> = path.split('?').next().unwrap().split('/').collect();
    let is_route = |route: &str| {
        let parts: Vec<_> = route.split('/').collect();
        parts.len() == path.len() && parts.iter().zip(&path).all(|(part, own)| part == own || part.starts_with('{'))
    };
    slipgate_admin::ROUTES.iter().any(|(route, _)| is_route(route))
}

/// Checks a command of another program: packages that exist, and requests that are JSON.
fn check_other(command: &[String], packages: &BTreeSet<String>) {
    let value_of = |flag: &str| command.iter().position(|word| word == flag).map(|index| &command[index + 1]);
    match command[0].as_str() {
        "cargo" => {
            if command[1] == "xtask" {
                let tasks = fs::read_to_string(root().join("tools/xtask/src/main.rs")).unwrap();
                assert!(tasks.contains(&format!("`cargo xtask {}`", command[2])), "{command:?}");
                return;
            }
            if let Some(example) = value_of("--example") {
                assert!(root().join(format!("examples/{example}.rs")).exists(), "{command:?}");
                let exist = features(&root());
                assert!(value_of("--features").is_none_or(|feature| exist.contains(feature)), "{command:?}");
                return;
            }
            assert!(["build", "test", "bench"].contains(&command[1].as_str()), "{command:?}");
            assert!(value_of("-p").is_none_or(|name| packages.contains(name)), "{command:?}");
        }
        "curl" => {
            let body = value_of("-d").map(|body| serde_json::from_str::<serde_json::Value>(body).unwrap());
            let interface = fs::read_to_string(root().join("specs/openapi.yaml")).unwrap();
            for field in body.iter().flat_map(|body| body.as_object().unwrap().keys()) {
                assert!(interface.contains(&format!("\n        {field}:\n")), "{field} is not a field of a request");
            }
            let url = command.iter().find(|word| word.starts_with("http")).unwrap();
            if let Some(path) = url.strip_prefix("http://127.0.0.1:9100") {
                assert!(is_admin_path(path), "{path} is no admin route");
                return;
            }
            // An issuer on this machine, on a Unix socket, and with TLS.
            let issuers = ["http://127.0.0.1:8080", "http://issuer", "https://tokens.example:8443"];
            let path = issuers.iter().find_map(|issuer| url.strip_prefix(issuer)).unwrap();
            assert!(interface.contains(&format!("\n  {path}:\n")), "{path} is not a path of the issuer");
        }
        // The tests of `capi` run these compilers and the program that they make.
        "cc" | "c++" => assert!(command.iter().any(|word| word == "slipgate)"), "{command:?}"),
        "mcs" => {
            // The tests of `capi` compile with these flags, without which Mono refuses `ref struct`.
            assert_eq!(command[1..3], ["-unsafe", "-langversion:latest"], "{command:?}");
            assert!(root().join("bindings/csharp").join(&command[4]).exists(), "{command:?}");
        }
        "LD_LIBRARY_PATH=…" => assert_eq!(command[1], "mono"),
        // The pages set the paths of an installed C library with it: nothing else has to be exported.
        "export" => {
            let paths = ["PKG_CONFIG_PATH=$HOME/slipgate/lib/pkgconfig", "LD_LIBRARY_PATH=$HOME/slipgate/lib"];
            assert_eq!(command[1..], paths);
        }
        "cd" => assert!(root().join(&command[1]).is_dir(), "{command:?}"),
        "sysctl" => assert!(command[2].starts_with("net.core."), "{command:?}"),
        // Puts the id of a named key in front of its secret.
        "sed" => assert!(command[1] == "-i" && command[2].starts_with("s/^/"), "{command:?}"),
        "umask" => assert_eq!(command[1..], ["077"]),
        // The key file of the document has the size that the programs ask for.
        "openssl" => assert_eq!(command[1..4], ["rand", "-hex", "32"]),
        other => panic!("no check for {other}: {command:?}"),
    }
}

#[test]
fn commands_of_the_documents_are_accepted() {
    let (packages, mut checked) = (packages(), 0);
    for page in PAGES {
        let folder = TestFolder::new();
        let inner = folder.path("repository");
        fs::create_dir(&inner).unwrap();
        let mut digest = format!("hmac-sha256:{}:{}", "0".repeat(64), "1".repeat(64));
        for command in blocks(page, &["console", "sh"]).iter().flat_map(|block| commands(block)) {
            let Some((name, arguments)) = program(&command) else {
                check_other(&command, &packages);
                continue;
            };
            // A page may show the use of a key that another page makes.
            if arguments.first().is_some_and(|command| command == "token") && !inner.join("private.key").exists() {
                let _ = binary("slipgate").args(["keygen", "private.key"]).current_dir(&inner).status().unwrap();
            }
            let output = run(name, arguments, &inner, &digest);
            let made = output.split_whitespace().find(|word| word.starts_with("hmac-sha256:"));
            digest = made.map_or(digest, str::to_owned);
            checked += 1;
        }
    }
    assert!(checked > 18, "only {checked} commands were found: this test no longer reads the documents");
}

/// Returns the features of the package in a folder, and of which of them are the default.
fn features(folder: &Path) -> BTreeSet<String> {
    let manifest: toml::Table = toml::from_str(&fs::read_to_string(folder.join("Cargo.toml")).unwrap()).unwrap();
    let features = manifest.get("features").and_then(toml::Value::as_table);
    features.map(|features| features.keys().cloned().collect()).unwrap_or_default()
}

/// The public key of RFC 8037, appendix A.2, as a JSON Web Key Set.
const PLAYER_KEYS: &str =
    r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// Starts an issuer with a configuration file that has placeholders for the digests, and a registry and a key set
/// elsewhere. A file without API keys is a part, to which flags add the rest.
fn issuer_accepts(block: &str) {
    let folder = issuer::program::TestFolder::new();
    fs::copy(folder.path.join("keys"), folder.path.join("private.key")).unwrap();
    folder.write("private-next.key", &"7".repeat(64), 0o600);
    folder.write("players.json", PLAYER_KEYS, 0o600);
    let text = block.replace("hmac-sha256:…", &folder.digest).replace("redis://10.0.0.5:6379/0", "registry.redb");
    let text = text.replace("https://id.example/.well-known/jwks.json", "players.json");
    folder.write("issuer.toml", &text, 0o600);
    let mut command = if text.contains("[[api_keys]]") {
        folder.bare(&["--config", "issuer.toml", "--bind", "127.0.0.1:0"])
    } else {
        folder.complete(&["--config", "issuer.toml"])
    };
    command.current_dir(&folder.path);
    drop(issuer::program::Program::start(command));
}

#[test]
fn toml_blocks_of_the_documents_are_accepted() {
    let (mut dependencies, mut configurations) = (0, 0);
    for (page, block) in PAGES.iter().flat_map(|page| blocks(page, &["toml"]).into_iter().map(move |text| (page, text)))
    {
        let table: toml::Table = toml::from_str(&block).unwrap_or_else(|error| panic!("{page}: {error}"));
        let Some(listed) = table.get("dependencies").and_then(toml::Value::as_table) else {
            configurations += 1;
            if ["api_keys", "players", "servers"].iter().any(|key| table.contains_key(*key)) {
                issuer_accepts(&block);
                continue;
            }
            let folder = TestFolder::new();
            fs::rename(folder.path("keys"), folder.path("private.key")).unwrap();
            folder.write("registration.key", "server.sgk_0123", 0o600);
            let block = block.replace("/etc/slipgate/", "").replace("/var/lib/slipgate/server-40000/", "");
            folder.write("server.toml", &block, 0o600);
            // The flags replace the addresses of the file, whose ports another program may have.
            let ports = ["--bind", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
            let server = Program::start(folder.bare(&[&["--config", "server.toml"], &ports[..]].concat()));
            let slots = table["slots"].as_integer().unwrap().to_string();
            assert_eq!(server.fact("slots"), slots, "{page}");
            continue;
        };
        for (name, dependency) in listed {
            // Crates of others have a version.
            let Some(path) = dependency.get("path").and_then(toml::Value::as_str) else { continue };
            dependencies += 1;
            let folder = match path.strip_prefix("…/slipgate").unwrap() {
                "" => root(),
                inner => root().join(inner.trim_start_matches('/')),
            };
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("name = \"{name}\"\n")), "{page}: {name}");
            let exist = features(&folder);
            let asked = dependency.get("features").and_then(toml::Value::as_array).into_iter().flatten();
            asked.for_each(|feature| assert!(exist.contains(feature.as_str().unwrap()), "{page}: {feature:?}"));
        }
    }
    assert!(dependencies >= 4 && configurations >= 1, "{dependencies} and {configurations}");
}

/// Returns the long flags at the beginning of the lines of a help text.
fn flags_of_help(name: &str) -> BTreeSet<String> {
    let output = binary(name).arg("--help").output().unwrap();
    let lines: Vec<_> = String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().to_owned()).collect();
    let flag = |line: &String| {
        let long = line.split(", ").find(|part| part.starts_with("--"))?;
        Some(long.split([' ', '=', '[']).next()?.to_owned())
    };
    lines.iter().filter(|line| line.starts_with('-')).filter_map(flag).collect()
}

#[test]
fn each_flag_of_a_program_is_in_its_table() {
    let page = fs::read_to_string(root().join("cli/README.md")).unwrap();
    for name in ["slipgate-token-issuer", "slipgate-server", "slipgate-client"] {
        let section = page.split(&format!("\n## `{name}`\n")).nth(1).unwrap().split("\n## ").next().unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| `--"));
        let first_cells = rows.flat_map(|row| row.split(" | ").next().unwrap().split('`'));
        let documented: BTreeSet<_> = first_cells
            .filter(|word| word.starts_with("--"))
            .map(|word| word.split([' ', '=']).next().unwrap().to_owned())
            .collect();
        let mut flags = flags_of_help(name);
        assert!(flags.remove("--help") && flags.remove("--version") && flags.len() > 10, "{name}: {flags:?}");
        assert_eq!(flags, documented, "{name}");
    }
}

#[test]
fn json_blocks_of_the_documents_are_json() {
    let blocks: Vec<_> = PAGES.iter().flat_map(|page| blocks(page, &["json"])).collect();
    assert!(blocks.len() >= 2);
    blocks.iter().for_each(|block| drop(serde_json::from_str::<serde_json::Value>(block).expect(block)));
}

#[test]
fn each_page_with_commands_or_settings_is_checked() {
    let pages =
        ["", "docs", "cli", "client", "server", "specs", "token-issuer", "admin", "tools/lab", "tools/sim", "fuzz"];
    for folder in pages {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            if path.extension().is_some_and(|extension| extension == "md") && !PAGES.contains(&name.as_str()) {
                assert!(blocks(&name, &["console", "sh", "toml", "json"]).is_empty(), "add {name} to PAGES");
            }
        }
    }
}

/// The pages whose Rust is compiled are listed in `tests/src/guide.rs`, and in the crates whose root shows them.
#[test]
fn rust_blocks_are_in_pages_that_are_compiled() {
    let mut guide = fs::read_to_string(root().join("tests/src/guide.rs")).unwrap();
    // Bevy has a workspace of its own, whose tests compile its page.
    if fs::read_to_string(root().join("bindings/bevy/src/lib.rs")).unwrap().contains("/docs/bevy.md\")") {
        guide.push_str("\"bevy.md\"");
    }
    for folder in ["docs", "specs", ".", "fuzz", "tests/benches"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let is_compiled =
                (folder == "docs" && guide.contains(&format!("\"{name}\""))) || (folder == "." && name == "README.md");
            if path.extension().is_some_and(|extension| extension == "md") && !is_compiled {
                let text = fs::read_to_string(&path).unwrap();
                assert!(!text.contains("```rust"), "add {folder}/{name} to tests/src/guide.rs");
            }
        }
    }
}

#[test]
fn commands_are_found() {
    let block = "$ slipgate keygen 'a b' \\\n    --rotate   # a comment\nhmac-sha256:…\n# sysctl -w x=1\n";
    assert_eq!(commands(block), [vec!["slipgate", "keygen", "a b", "--rotate"], vec!["sysctl", "-w", "x=1"]]);
    assert_eq!(commands("cargo test -p x # y\n"), [["cargo", "test", "-p", "x"]]);
    assert_eq!(commands(r#"curl -d "{\"a\": \"b c\"}""#), [["curl", "-d", r#"{"a": "b c"}"#]]);
}
