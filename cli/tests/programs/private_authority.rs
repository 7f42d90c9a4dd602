//! A token issuer with a certificate of a private authority, and the programs that call it by `--issuer-ca-file`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![cfg(unix)]

use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::issuer;
use crate::server::program::{MAX_WAIT, PRIVATE_KEY, TestFolder, assert_no_secret};

/// A private certificate authority.
struct TestAuthority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl TestAuthority {
    fn new() -> Self {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Returns a certificate for `localhost` and its key, in PEM.
    fn sign(&self, adapt: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let (mut params, key) =
            (CertificateParams::new(vec!["localhost".to_owned()]).unwrap(), KeyPair::generate().unwrap());
        adapt(&mut params);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// An issuer over TLS with a registry, whose API key has all permissions.
struct TlsIssuer {
    program: issuer::program::Program,
    folder: issuer::program::TestFolder,
}

impl TlsIssuer {
    fn start((certificate, key): &(String, String)) -> Self {
        let folder = issuer::program::TestFolder::new();
        let mut command = folder.bare(&["--protocol-id", "0x1234", "--registry", "memory", "--bind", "127.0.0.1:0"]);
        command.arg("--key-file").arg(folder.write("same", PRIVATE_KEY, 0o600));
        command.arg("--tls-certificate-file").arg(folder.write("certificate.pem", certificate, 0o644));
        command.arg("--tls-key-file").arg(folder.write("key.pem", key, 0o600));
        command.arg("--api-key-digest").arg(&folder.digest);
        Self { program: issuer::program::Program::start(command), folder }
    }

    fn url(&self) -> String {
        self.program.url("").replace("http://127.0.0.1", "https://localhost")
    }

    /// Waits until a server has registered in the group `ranked`.
    fn wait_for_server(&self, authority: &TestAuthority) {
        let roots = RootCerts::new_with_certs(&[Certificate::from_pem(authority.pem.as_bytes()).unwrap()]);
        let tls = TlsConfig::builder().root_certs(roots).build();
        let config = ureq::Agent::config_builder().tls_config(tls).timeout_global(Some(MAX_WAIT)).proxy(None);
        let agent: ureq::Agent = config.build().into();
        let (url, start) = (format!("{}/v1/servers", self.url()), Instant::now());
        loop {
            let request = agent.get(&url).header("Authorization", format!("Bearer {}", self.folder.api_key.expose()));
            let list = request.call().unwrap().body_mut().read_to_string().unwrap();
            if list.contains("\"ready\"") {
                return;
            }
            assert!(start.elapsed() < MAX_WAIT, "no server registers: {list}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Returns the flags of a server that registers with this issuer.
fn registration(url: &str) -> Vec<&str> {
    let names = ["--server-id", "a", "--group", "ranked", "--first-start"];
    [&["--issuer", url, "--issuer-key-file", "api.key"][..], &names].concat()
}

/// Runs one of the tools in the folder. Returns its status and all of its output.
fn run(folder: &TestFolder, program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder.path(".")).env_remove("SLIPGATE_API_KEY");
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    assert_no_secret(&text);
    (status.code(), text)
}

const SLIPGATE: &str = env!("CARGO_BIN_EXE_slipgate");
const CLIENT: &str = env!("CARGO_BIN_EXE_slipgate-client");

#[test]
fn authorities_of_a_server_are_replaced_without_a_restart() {
    let [ours, other] = [(); 2].map(|()| TestAuthority::new());
    let issuer = TlsIssuer::start(&ours.sign(|_| ()));
    let (folder, url) = (TestFolder::new(), issuer.url());
    folder.write("api.key", issuer.folder.api_key.expose(), 0o600);
    folder.write("ca.pem", &other.pem, 0o644);
    let server = folder.start(&[&registration(&url)[..], &["--issuer-ca-file", "ca.pem"]].concat());
    let failure = server.wait_for("a call failed");
    // Both authorities have one name.
    assert!(failure.contains("BadSignature. Give --issuer-ca-file"), "{failure}");
    for wrong in ["", "-----BEGIN CERTIFICATE-----\n%"] {
        folder.replace("ca.pem", wrong, 0o644);
        server.signal("-HUP");
    }
    let line = server.wait_for("the file of --issuer-ca-file is invalid");
    assert!(line.contains("keeping the current authorities"), "{line}");
    folder.replace("ca.pem", [other.pem.as_str(), &ours.pem].concat(), 0o644);
    server.wait_for("the file of --issuer-ca-file was read again");
    issuer.wait_for_server(&ours);
    server.stop();
}

#[test]
fn programs_call_an_issuer_of_a_private_authority() {
    let authority = TestAuthority::new();
    let issuer = TlsIssuer::start(&authority.sign(|_| ()));
    let (folder, url) = (TestFolder::new(), issuer.url());
    folder.write("api.key", issuer.folder.api_key.expose(), 0o600);
    folder.write("ca.pem", &authority.pem, 0o644);
    folder.write("server.toml", "issuer_ca_file = \"ca.pem\"\n", 0o600);
    let server = folder.start(&[&registration(&url)[..], &["--config", "server.toml"]].concat());
    issuer.wait_for_server(&authority);

    let tool = ["--issuer", &url, "--api-key-file", "api.key", "--group", "ranked"];
    let (doctor, load) = ([&["doctor"], &tool[..]].concat(), [&["load"], &tool[..], &["--clients", "2"]].concat());
    let load = [&load[..], &["--ramp", "0s", "--for", "1s"]].concat();
    let client = [&tool[..], &["--client-id", "99", "--for", "300ms"]].concat();
    for (program, arguments, status) in [(SLIPGATE, doctor, 5), (SLIPGATE, load, 5), (CLIENT, client, 1)] {
        let (code, text) = run(&folder, program, &[&arguments[..], &["--issuer-ca-file", "ca.pem"]].concat());
        assert_eq!(code, Some(0), "{arguments:?}: {text}");
        let (code, text) = run(&folder, program, &arguments);
        assert_eq!(code, Some(status), "{arguments:?}: {text}");
        assert!(text.contains("UnknownIssuer") && text.contains("Give --issuer-ca-file"), "{arguments:?}: {text}");
    }
    server.stop();
    let server = folder.start(&registration(&url));
    assert!(server.wait_for("a call failed").contains("UnknownIssuer. Give --issuer-ca-file"));
    server.stop();
}

#[test]
fn wrong_file_of_authorities_is_refused_at_the_start() {
    let (folder, authority) = (TestFolder::new(), TestAuthority::new());
    folder.write("api.key", "sgk_0123", 0o600);
    folder.write("ca.pem", &authority.pem, 0o644);
    folder.write("no.pem", "no certificate", 0o644);
    let (https, http) = ("https://localhost:1", "http://localhost:1");
    for (url, file, part) in [
        (https, "missing.pem", "missing.pem: No such file"),
        (https, "no.pem", "no.pem: it has no certificate in PEM"),
        (http, "ca.pem", "needs an --issuer that starts with https://"),
    ] {
        let (code, message) =
            folder.refused(folder.complete(&[&registration(url)[..], &["--issuer-ca-file", file]].concat()));
        assert!(code == 2 && message.contains(part), "{message}");
        let tool = ["--issuer", url, "--api-key-file", "api.key", "--issuer-ca-file", file];
        for (program, arguments) in
            [(SLIPGATE, &["doctor"][..]), (SLIPGATE, &["load"]), (CLIENT, &["--client-id", "1"])]
        {
            let (code, text) = run(&folder, program, &[arguments, &tool].concat());
            assert!(code == Some(2) && text.contains(part), "{arguments:?}: {text}");
        }
    }
    let load = ["load", "--key-file", "keys", "--protocol-id", "7", "--server", "127.0.0.1:1"];
    for (program, arguments) in [(SLIPGATE, &load[..]), (CLIENT, &["--token", "token"])] {
        for more in [["--issuer-ca-file", "ca.pem"], ["--api-key-file", "api.key"], ["--region", "eu"]] {
            let (code, text) = run(&folder, program, &[arguments, &more].concat());
            assert!(code == Some(2) && text.contains("cannot be used with"), "{arguments:?} {more:?}: {text}");
        }
    }
    let (code, message) = folder.refused(folder.complete(&["--issuer-ca-file", "ca.pem"]));
    assert!(code == 2 && message.contains("--issuer-ca-file needs"), "{message}");
}

#[test]
fn doctor_names_what_is_wrong_with_a_certificate() {
    let authority = TestAuthority::new();
    let folder = TestFolder::new();
    folder.write("api.key", "sgk_0123", 0o600);
    folder.write("ca.pem", &authority.pem, 0o644);
    let [good, old, early, own] = [
        authority.sign(|_| ()),
        authority.sign(|params| params.not_after = date_time_ymd(2001, 1, 1)),
        authority.sign(|params| params.not_before = date_time_ymd(4000, 1, 1)),
        authority.sign(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
    ];
    for (certificate, host, remedy) in [
        (&good, "127.0.0.1", "Give --issuer with a name of the issuer's certificate"),
        (&old, "localhost", "Renew the issuer's certificate"),
        (&early, "localhost", "Correct the clock of this machine, or the times"),
        (&own, "localhost", "not an authority itself"),
    ] {
        let issuer = TlsIssuer::start(certificate);
        let url = issuer.url().replace("localhost", host);
        let doctor = ["doctor", "--issuer", &url, "--api-key-file", "api.key", "--issuer-ca-file", "ca.pem"];
        let (code, text) = run(&folder, SLIPGATE, &doctor);
        assert!(code == Some(5) && text.contains(remedy), "{remedy}: {text}");
    }
    // An issuer without TLS.
    let keys = issuer::program::TestFolder::new();
    let plain = issuer::program::Program::start(keys.complete(&[]));
    let url = plain.url("").replace("http:", "https:");
    let (code, text) = run(&folder, SLIPGATE, &["doctor", "--issuer", &url, "--api-key-file", "api.key"]);
    assert!(code == Some(5) && text.contains("The port of --issuer does not use TLS"), "{text}");
    // An issuer with TLS.
    let issuer = TlsIssuer::start(&good);
    let tool = ["--issuer", &issuer.url().replace("https:", "http:"), "--api-key-file", "api.key"];
    for (program, arguments, status) in
        [(SLIPGATE, &["doctor"][..], 5), (CLIENT, &["--client-id", "1"], 1), (SLIPGATE, &["load", "--ramp", "0s"], 5)]
    {
        let (code, text) = run(&folder, program, &[arguments, &tool].concat());
        assert!(code == Some(status) && text.contains("uses TLS: give https://"), "{arguments:?}: {text}");
    }
}
