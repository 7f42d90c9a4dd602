//! No secret is in the command line, the log at its lowest level, metrics, or responses to others.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;
use slipgate_token_issuer::wall_clock;
use ureq::http::Request;

use super::program::{Program, TestFolder, agent};

/// The password of the registry, which does not run.
const PASSWORD: &str = "registry-password-5a17";

/// Returns a key set, and a player's token that it verifies.
fn player_token() -> (String, String) {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let key = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let set = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": encode(key.public_key().as_ref())}]});
    let expiry = wall_clock().0 / 1000 + 3600;
    let claims = json!({"iss": "https://id.example/", "aud": "game", "sub": "secret-subject-7f", "exp": expiry});
    let header = json!({"alg": "EdDSA", "kid": "a"});
    let message = format!("{}.{}", encode(header.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
    let signature = encode(key.sign(message.as_bytes()).as_ref());
    (set.to_string(), format!("{message}.{signature}"))
}

/// The secrets of a deployment, and what has been seen of it.
struct Witness {
    folder: TestFolder,
    secrets: Vec<(&'static str, String)>,
}

impl Witness {
    fn assert_no_secret(&self, place: &str, text: &str) {
        self.folder.assert_no_secret(text);
        for (name, secret) in &self.secrets {
            assert!(!text.contains(secret.as_str()), "{place} shows the {name}: {text}");
        }
    }
}

/// Sends a request. Returns the status and the text of the response.
fn send(program: &Program, method: &str, path: &str, key: Option<&str>, body: &str) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(program.url(path));
    if let Some(key) = key {
        request = request.header("Authorization", format!("Bearer {key}"));
    }
    let request = request.header("Content-Type", "application/json").body(body.to_owned()).unwrap();
    let mut response = agent().run(request).unwrap();
    let headers = format!("{:?}", response.headers());
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap() + &headers)
}

/// Starts an issuer with each kind of secret, which writes all lines of its log to a file.
fn start(folder: &TestFolder, key_set: &str) -> Program {
    folder.write("players.json", key_set, 0o644);
    folder.write("password", PASSWORD, 0o600);
    let text = format!(
        "bind = \"127.0.0.1:0\"\nprotocol_id = 1\nservers = [\"192.0.2.1:1\"]\nkey_file = \"keys\"\n\
         registry = \"redis://127.0.0.1:1/0\"\nregistry_password_file = \"password\"\napi_key_digests = \"{}\"\n\
         [players]\nkeys = \"players.json\"\nissuer = \"https://id.example/\"\naudiences = \"game\"\n",
        folder.digest
    );
    let file = folder.write("issuer.toml", &text, 0o600);
    let mut command = folder.bare(&["--config", file.to_str().unwrap()]);
    command.env("RUST_LOG", "trace");
    Program::start_with_log_file(command, &folder.path.join("log"))
}

#[test]
fn no_secret_is_in_argv_trace_log_metrics_and_responses() {
    let folder = TestFolder::new();
    let (key_set, jwt) = player_token();
    let mut program = start(&folder, &key_set);
    let api_key = folder.api_key.expose().to_owned();
    let signature = jwt.rsplit('.').next().unwrap().to_owned();
    let claims = jwt.split('.').nth(1).unwrap().to_owned();
    let subject = "secret-subject-7f".to_owned();
    let mut secrets = vec![("signature", signature), ("claims", claims), ("subject", subject)];
    secrets.push(("password", PASSWORD.to_owned()));
    let mut witness = Witness { folder, secrets };

    // Tokens are shown to the caller alone, so their responses are secrets for all other places.
    let mut minted = 0;
    for body in [json!({"client_id": 7}), json!({"player_jwt": jwt})] {
        let (status, text) = send(&program, "POST", "/v1/tokens", Some(&api_key), &body.to_string());
        assert_eq!(status, 201, "{text}");
        witness.assert_no_secret("a response with a token", &text);
        let token = text.split("\"token\":\"").nth(1).unwrap();
        minted += 1;
        // The private part, and the session keys at the end of the public part.
        witness.secrets.extend([("sealed part", token[100..140].to_owned()), ("keys", token[1480..1520].to_owned())]);
    }
    assert_eq!(minted, 2);
    let (other, wrong) = (json!({"client_id": 7, "group": "g"}), format!("{api_key}0"));
    let stolen = json!({"player_jwt": jwt, "client_id": 7, "user_data": api_key, api_key.as_str(): 1}).to_string();
    let altered = json!({"player_jwt": format!("{jwt}AA")}).to_string();
    for (method, path, key, body) in [
        ("POST", "/v1/tokens", Some(api_key.as_str()), other.to_string()),
        ("POST", "/v1/tokens", Some(wrong.as_str()), "{}".to_owned()),
        ("POST", "/v1/tokens", None, jwt.clone()),
        ("POST", "/v1/tokens", Some(jwt.as_str()), "{}".to_owned()),
        ("POST", "/v1/tokens", Some(api_key.as_str()), stolen),
        ("POST", "/v1/tokens", Some(api_key.as_str()), altered),
        ("POST", "/v1/tokens", Some(api_key.as_str()), format!("{{\"client_id\": {api_key}}}")),
        ("PUT", "/v1/servers/a", Some(api_key.as_str()), json!({"build": api_key}).to_string()),
        ("PUT", &format!("/v1/servers/{api_key}"), Some(api_key.as_str()), "{}".to_owned()),
        ("GET", "/v1/servers", Some(api_key.as_str()), String::new()),
        ("GET", "/metrics", Some(api_key.as_str()), String::new()),
        ("GET", "/openapi.json", None, String::new()),
        ("GET", "/readyz", None, String::new()),
        ("GET", &format!("/{jwt}"), None, String::new()),
    ] {
        let (status, text) = send(&program, method, path, key, &body);
        witness.assert_no_secret(&format!("the response {status} to {method} {path}"), &text);
        if path == "/metrics" {
            assert!(text.contains("slipgate_issuer_player_keys 1"), "{text}");
        }
    }
    let arguments = fs::read(format!("/proc/{}/cmdline", program.child.id())).unwrap();
    witness.assert_no_secret("the command line", &String::from_utf8_lossy(&arguments));
    for signal in ["-HUP", "-TERM"] {
        program.signal(signal);
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    assert_eq!(program.end().0, Some(0));
    let log = fs::read_to_string(witness.folder.path.join("log")).unwrap();
    assert!(log.contains("minted a connect token") && log.contains("refused a request"), "{log}");
    witness.assert_no_secret("the log", &log);
}

#[test]
fn password_in_the_url_of_the_registry_is_not_printed() {
    let folder = TestFolder::new();
    for url in [format!("redis://:{PASSWORD}@127.0.0.1/0"), format!("rediss://user:{PASSWORD}@127.0.0.1/0")] {
        let mut by_variable = folder.complete(&[]);
        by_variable.env("SLIPGATE_ISSUER_REGISTRY", &url);
        let text = format!("registry = \"{url}\"\nprotocol_id = 1\n");
        let file = folder.write("wrong.toml", &text, 0o600);
        let by_file = folder.bare(&["--config", file.to_str().unwrap()]);
        for command in [folder.complete(&["--registry", &url]), by_variable, by_file] {
            let (status, message) = folder.refused(command);
            assert_eq!((status, message.contains("registry")), (2, true), "{message}");
            assert!(!message.contains(PASSWORD), "{message}");
        }
    }
}

/// A panic prints the debug text of values, so those with secrets have none, or one without content.
#[test]
fn debug_texts_of_the_issuer_show_no_secret() {
    let folder = TestFolder::new();
    let digest: slipgate_token_issuer::api_key::ApiKeyDigest = folder.digest.parse().unwrap();
    let keys = slipgate_token_issuer::callers::ApiKeys::new(vec![digest.clone()]).unwrap();
    let wrong = folder.api_key.expose().parse::<slipgate_token_issuer::api_key::ApiKeyDigest>().unwrap_err();
    folder.assert_no_secret(&format!("{digest:?} {keys:?} {wrong:?} {wrong}"));
}
