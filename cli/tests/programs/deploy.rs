//! The examples in `deploy/`: the programs start with their arguments and configuration files, and fit together.
//!
//! Only what a test cannot have is replaced: paths, listening ports, the name of the issuer's service, and digests.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::fs;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipgate_cli::values::Span;
use slipgate_token_issuer::api_key::ApiKey;
use slipgate_token_issuer::system_entropy;
use yaml_rust2::{Yaml, YamlLoader};

use crate::fleet::Sidecar;
use crate::issuer::program::agent;
use crate::server::program::{MAX_WAIT, PRIVATE_KEY};
use crate::{issuer, server};

/// The address that Agones has chosen for the server.
const ADDRESS: &str = "203.0.113.5:7654";
/// What a stop takes beside the drain, in seconds.
const STOP_SECONDS: u64 = 14;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Replaces parts of a text. Each must occur, so that a change of the examples is noticed.
fn replace(text: &str, replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from:?} is not in {text}");
        text.replace(from, to)
    })
}

/// The documents of both manifests.
struct Manifests(Vec<Yaml>);

impl Manifests {
    fn read() -> Self {
        let of = |name: &str| YamlLoader::load_from_str(&read(&format!("kubernetes/{name}.yaml"))).unwrap();
        Self([of("token-issuer"), of("agones-fleet")].concat())
    }

    fn get(&self, kind: &str, name: &str) -> &Yaml {
        let is_it = |yaml: &&Yaml| text(&yaml["kind"]) == kind && text(&yaml["metadata"]["name"]) == name;
        self.0.iter().find(is_it).unwrap_or_else(|| panic!("there is no {kind} {name}"))
    }

    /// Returns the template of the pods of the issuer.
    fn issuer(&self) -> &Yaml {
        &self.get("Deployment", "token-issuer")["spec"]["template"]
    }

    /// Returns the template of the pods of the servers.
    fn server(&self) -> &Yaml {
        &self.get("Fleet", "slipgate-server")["spec"]["template"]["spec"]["template"]
    }
}

fn text(yaml: &Yaml) -> &str {
    yaml.as_str().unwrap_or_default()
}

fn list(yaml: &Yaml) -> &[Yaml] {
    yaml.as_vec().map_or(&[], Vec::as_slice)
}

fn container(pod: &Yaml) -> &Yaml {
    &pod["spec"]["containers"][0]
}

/// Returns the arguments of the container of a pod, one in each line.
fn arguments(pod: &Yaml) -> String {
    list(&container(pod)["args"]).iter().map(text).collect::<Vec<_>>().join("\n")
}

/// Returns the time of an argument, in seconds.
fn seconds_of(pod: &Yaml, setting: &str) -> u64 {
    let arguments = arguments(pod);
    let time = arguments.lines().find_map(|line| line.strip_prefix(setting)?.strip_prefix('=')).unwrap();
    time.parse::<Span>().unwrap().0.as_secs()
}

/// Returns the port of a container with this name.
fn port(pod: &Yaml, name: &str) -> i64 {
    let ports = list(&container(pod)["ports"]);
    let port = ports.iter().find(|port| text(&port["name"]) == name).unwrap_or_else(|| panic!("no port {name}"));
    port["containerPort"].as_i64().unwrap()
}

/// Returns the files that the init container copies from the secret to `/keys`.
fn copied_files(pod: &Yaml) -> Vec<String> {
    let words = text(&pod["spec"]["initContainers"][0]["command"][2]).split(' ');
    words.filter_map(|word| word.strip_prefix("/secret/")).map(str::to_owned).collect()
}

/// The keys of a cluster: those of the secret, and that of the backend.
struct Keys {
    lobby: String,
    registration: String,
    prometheus: String,
    admin_token: String,
    digests: [String; 3],
}

impl Keys {
    fn new() -> Self {
        let keys = [(); 3].map(|()| ApiKey::random(&mut system_entropy().unwrap()));
        let digests = [0, 1, 2].map(|index: usize| keys[index].digest(&mut system_entropy().unwrap()).to_string());
        let [lobby, registration, prometheus] = &keys;
        Self {
            lobby: format!("lobby.{}", lobby.expose()),
            registration: format!("registration.{}", registration.expose()),
            prometheus: format!("prometheus.{}", prometheus.expose()),
            admin_token: "0123456789abcdef".repeat(4),
            digests,
        }
    }

    /// Returns the content of a file of the secret.
    fn secret(&self, file: &str) -> &str {
        match file {
            "private.key" => PRIVATE_KEY,
            "registration.key" => &self.registration,
            "prometheus.key" => &self.prometheus,
            "admin.token" => &self.admin_token,
            other => panic!("the secret has no file {other}"),
        }
    }

    /// Puts the digests into a configuration file.
    fn configure(&self, file: &str) -> String {
        let [lobby, registration, prometheus] = &self.digests;
        replace(
            file,
            &[
                ("hmac-sha256:PRINTED-FOR-lobby.key", lobby),
                ("hmac-sha256:PRINTED-FOR-registration.key", registration),
                ("hmac-sha256:PRINTED-FOR-prometheus.key", prometheus),
            ],
        )
    }
}

/// Sends a request with this key. Returns the status and the body.
fn send(method: &str, url: &str, key: Option<&str>, body: &str) -> (u16, String) {
    let mut request = ureq::http::Request::builder().method(method).uri(url).header("Content-Type", "application/json");
    if let Some(key) = key {
        request = request.header("Authorization", format!("Bearer {key}"));
    }
    let mut response = agent().run(request.body(body.to_owned()).unwrap()).unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

/// Returns the port after `0.0.0.0:` in a line of the log.
fn port_in(line: &str) -> u16 {
    let after = line.split_once("0.0.0.0:").unwrap_or_else(|| panic!("it does not listen on all addresses: {line}")).1;
    after.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// Starts the issuer of the manifests. Returns it with its URL.
fn start_issuer(
    manifests: &Manifests,
    keys: &Keys,
    folder: &issuer::program::TestFolder,
) -> (issuer::program::Program, String) {
    let pod = manifests.issuer();
    for file in copied_files(pod) {
        folder.write(&file, keys.secret(&file), 0o600);
    }
    let config = text(&manifests.get("ConfigMap", "token-issuer")["data"]["issuer.toml"]);
    // The files of a ConfigMap have this mode.
    folder.write("issuer.toml", &keys.configure(config), 0o644);
    let path = folder.path.to_str().unwrap();
    let replacements = [("/keys", path), ("/etc/slipgate", path), ("=0.0.0.0:8080", "=0.0.0.0:0")];
    let arguments = replace(&arguments(pod), &replacements);
    let program = issuer::program::Program::start(folder.bare(&arguments.lines().collect::<Vec<_>>()));
    let url = format!("http://127.0.0.1:{}", port_in(&program.first_line));
    (program, url)
}

/// Starts a server of the fleet, which registers with the issuer at this URL.
fn start_server(
    manifests: &Manifests,
    keys: &Keys,
    folder: &server::program::TestFolder,
    issuer: &str,
) -> server::program::Program {
    let pod = manifests.server();
    for file in copied_files(pod) {
        folder.write(&file, keys.secret(&file), 0o600);
    }
    let path = folder.path("");
    let replacements = [
        ("/keys/", path.to_str().unwrap()),
        ("=0.0.0.0:40000", "=0.0.0.0:0"),
        ("=0.0.0.0:9100", "=0.0.0.0:0"),
        ("http://token-issuer:8080", issuer),
    ];
    let arguments = replace(&arguments(pod), &replacements);
    let mut command = folder.bare(&arguments.lines().collect::<Vec<_>>());
    for variable in list(&container(pod)["env"]) {
        assert_eq!(text(&variable["valueFrom"]["fieldRef"]["fieldPath"]), "metadata.name");
        command.env(text(&variable["name"]), "slipgate-server-x7k2p");
    }
    let (host, game_port) = ADDRESS.split_once(':').unwrap();
    let sidecar = Sidecar::start(host, game_port.parse().unwrap());
    command.env("AGONES_SDK_HTTP_PORT", sidecar.port.to_string());
    server::program::Program::start(command)
}

#[test]
fn programs_of_the_manifests_work_together() {
    let (manifests, keys) = (Manifests::read(), Keys::new());
    let (issuer_folder, server_folder) = (issuer::program::TestFolder::new(), server::program::TestFolder::new());
    let (mut issuer, url) = start_issuer(&manifests, &keys, &issuer_folder);
    let issuer_pod = manifests.issuer();
    for probe in ["readinessProbe", "livenessProbe"] {
        let get = &container(issuer_pod)[probe]["httpGet"];
        assert_eq!(port(issuer_pod, text(&get["port"])), 8080);
        assert_eq!(send("GET", &format!("{url}{}", text(&get["path"])), None, "").0, 200, "{probe}");
    }

    let server = start_server(&manifests, &keys, &server_folder, &url);
    let body = json!({"client_id": "7", "group": "default"}).to_string();
    let start = Instant::now();
    let token = loop {
        let (status, response) = send("POST", &format!("{url}/v1/tokens"), Some(&keys.lobby), &body);
        if status == 201 {
            break serde_json::from_str::<Value>(&response).unwrap();
        }
        assert!(start.elapsed() < MAX_WAIT, "{response} {}", server.log());
        thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(
        (&token["server_addresses"], &token["server_ids"]),
        (&json!([ADDRESS]), &json!(["slipgate-server-x7k2p"]))
    );

    // What Prometheus scrapes, on addresses that other pods reach.
    let of_server = format!("http://127.0.0.1:{}", port_in(&server.wait_for("admin service")));
    for (name, base, pod, listening) in
        [("token-issuer", &url, issuer_pod, 8080), ("slipgate-server", &of_server, manifests.server(), 9100)]
    {
        let monitor = &manifests.get("PodMonitor", name)["spec"];
        assert_eq!(monitor["selector"]["matchLabels"], pod["metadata"]["labels"], "{name}");
        let endpoint = &monitor["podMetricsEndpoints"][0];
        assert_eq!(port(pod, text(&endpoint["port"])), listening, "{name}");
        let scrape = format!("{base}{}", text(&endpoint["path"]));
        let key = keys.secret(text(&endpoint["authorization"]["credentials"]["key"]));
        let (status, metrics) = send("GET", &scrape, Some(key), "");
        assert_eq!((status, metrics.contains("# EOF")), (200, true), "{name}: {metrics}");
        assert_eq!(send("GET", &scrape, None, "").0, 401, "{name}");
    }
    server.signal("-TERM");
    server.wait_for("new clients are admitted for a while");
    // The second signal ends the delay.
    let log = server.stop();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("\"level\":\"WARN\"")).collect();
    assert!(matches!(warnings[..], [refused] if refused.contains("unauthorized")), "{log}");
    issuer.signal("-TERM");
    let mut line = String::new();
    while !line.contains("requests are served for a while") {
        line.clear();
        assert_ne!(issuer.log.read_line(&mut line).unwrap(), 0, "the log ended");
    }
    issuer.signal("-TERM");
    assert_eq!(issuer.end().0, Some(0));
}

#[test]
fn manifests_name_each_others_ports_and_pods() {
    let manifests = Manifests::read();
    let (issuer, server) = (manifests.issuer(), manifests.server());
    let service = &manifests.get("Service", "token-issuer")["spec"];
    assert_eq!(service["selector"], issuer["metadata"]["labels"]);
    assert_eq!(service["ports"][0]["port"].as_i64(), Some(8080), "the servers' --issuer has this port");
    assert_eq!(port(issuer, text(&service["ports"][0]["targetPort"])), 8080);

    let policy = &manifests.get("NetworkPolicy", "token-issuer")["spec"];
    assert_eq!(policy["podSelector"]["matchLabels"], issuer["metadata"]["labels"]);
    let rule = &policy["ingress"][0];
    assert_eq!(port(issuer, text(&rule["ports"][0]["port"])), 8080);
    let from = list(&rule["from"]);
    assert!(from.iter().any(|peer| peer["podSelector"]["matchLabels"] == server["metadata"]["labels"]));
    assert!(from.iter().any(|peer| !peer["namespaceSelector"].is_badvalue()), "Prometheus runs in another namespace");

    for (pod, settings) in [(server, &["--shutdown-delay", "--drain"][..]), (issuer, &["--shutdown-delay"])] {
        let grace = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap() as u64;
        let times = settings.iter().map(|setting| seconds_of(pod, setting)).sum::<u64>();
        assert!(grace >= times + STOP_SECONDS, "{settings:?}");
    }
    let udp = &manifests.get("Fleet", "slipgate-server")["spec"]["template"]["spec"]["ports"][0];
    assert_eq!((udp["containerPort"].as_i64(), text(&udp["name"])), (Some(40000), "game"));
    assert!(arguments(server).contains("--bind=0.0.0.0:40000"));
}

/// Returns the example of a configuration file in the comments of a unit.
fn example(unit: &str) -> String {
    let lines = unit.lines().filter_map(|line| line.strip_prefix("#   "));
    // Deeper lines continue a command.
    lines.filter(|line| !line.starts_with(' ')).map(|line| format!("{line}\n")).collect()
}

/// Returns the command of a unit for the instance 40000, and its settings.
fn unit(text: &str, setting: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(setting)?.strip_prefix('=')).unwrap();
    line.replace("%i", "40000")
}

/// Starts the program of a unit with its example of a configuration file.
fn command_of_unit(text: &str, program: &str, config: &Path, bare: impl Fn(&[&str]) -> Command) -> Command {
    let start = unit(text, "ExecStart");
    let arguments = start.strip_prefix(&format!("/usr/local/bin/{program} ")).unwrap();
    let of_unit = arguments.strip_prefix("--config ").unwrap();
    assert_eq!(PathBuf::from(of_unit).file_name(), config.file_name());
    bare(&["--config", config.to_str().unwrap()])
}

#[test]
fn programs_of_the_units_start_with_their_examples() {
    let text = read("systemd/slipgate-server@.service");
    let folder = server::program::TestFolder::new();
    folder.write("private.key", PRIVATE_KEY, 0o600);
    let history = format!("/var/lib/{}/history", unit(&text, "StateDirectory"));
    let config = replace(
        &example(&text),
        &[
            ("\"0.0.0.0:40000\"", "\"0.0.0.0:0\""),
            ("/etc/slipgate/private.key", folder.path("private.key").to_str().unwrap()),
            (&history, folder.path("history").to_str().unwrap()),
            ("127.0.0.1:9140", "127.0.0.1:0"),
        ],
    );
    let drain = config.lines().find_map(|line| line.strip_prefix("drain = \"")?.strip_suffix('"')).unwrap();
    let timeout: u64 = unit(&text, "TimeoutStopSec").parse().unwrap();
    assert!(timeout >= drain.parse::<Span>().unwrap().0.as_secs() + STOP_SECONDS);
    let config = folder.write("server-40000.toml", config, 0o644);
    let command = command_of_unit(&text, "slipgate-server", &config, |flags| folder.bare(flags));
    server::program::Program::start(command).stop();

    let text = read("systemd/slipgate-token-issuer.service");
    let folder = issuer::program::TestFolder::new();
    let key = folder.write("private.key", PRIVATE_KEY, 0o600);
    let replacements =
        [("/etc/slipgate/private.key", key.to_str().unwrap()), ("hmac-sha256:PRINTED-FOR-api.key", &folder.digest)];
    // Its default port may be in use where tests run.
    let config = format!("bind = \"127.0.0.1:0\"\n{}", replace(&example(&text), &replacements));
    let config = folder.write("issuer.toml", &config, 0o644);
    let command = command_of_unit(&text, "slipgate-token-issuer", &config, |flags| folder.bare(flags));
    let mut issuer = issuer::program::Program::start(command);
    assert_eq!(issuer::program::request_token(&issuer, &folder).status, 201);
    issuer.signal("-TERM");
    assert_eq!(issuer.end().0, Some(0));
}

#[test]
fn images_start_programs_that_they_hold() {
    let text = read("docker/Dockerfile");
    for (image, program) in [("server", "slipgate-server"), ("issuer", "slipgate-token-issuer")] {
        let (_, stage) = text.split_once(&format!("FROM scratch AS {image}\n")).unwrap();
        let stage = stage.split("\nFROM ").next().unwrap();
        assert!(text.contains(&format!("--bin {program}")), "{program} is built");
        assert!(stage.contains(&format!("/target/release/{program} /{program}\n")), "{stage}");
        assert!(stage.trim_end().ends_with(&format!("ENTRYPOINT [\"/{program}\"]")), "{stage}");
    }
    let toolchain = format!("FROM rust:{}-", env!("CARGO_PKG_RUST_VERSION"));
    assert!(text.contains(&toolchain), "{toolchain}");
}
