//! Players' own JSON Web Tokens as the source of client ids.

mod signer;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rand::SeedableRng;
use rand::rngs::StdRng;
use ring::digest::{SHA256, digest};
use ring::hmac;
use serde_json::{Value, json};
use slipgate_netcode::crypto::key::Key;
use slipgate_token_issuer::api_key::ApiKey;
use slipgate_token_issuer::callers::{ApiKeys, Caller, Scopes};
use slipgate_token_issuer::http::HttpLimits;
use slipgate_token_issuer::players::{ClientIdMapping, PlayerKeySource, PlayerSettings, Players, PlayersError};
use slipgate_token_issuer::{Issuer, Limits};

use self::signer::{Signer, base64url};
use crate::common::{PRIVATE_KEY, PROTOCOL_ID, SERVERS, Service, TestResponse, agent};

const ISSUER: &str = "https://id.example/";
const AUDIENCE: &str = "the-game";

/// A service that accepts tokens of these signers, and the file with their public keys.
struct PlayerService {
    service: Service,
    file: PathBuf,
}

impl PlayerService {
    fn start(signers: &[Signer]) -> Self {
        Self::start_with(signers, |settings| settings)
    }

    fn start_with(signers: &[Signer], change: impl FnOnce(PlayerSettings) -> PlayerSettings) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = std::env::temp_dir().join(format!("slipgate-players-{}-{number}", std::process::id()));
        let keys: Vec<_> = signers.iter().map(Signer::jwk).collect();
        fs::write(&file, json!({"keys": keys}).to_string()).unwrap();
        let settings = change(PlayerSettings::new(PlayerKeySource::File(file.clone()), ISSUER, AUDIENCE));
        let players = Arc::new(Players::new(settings).unwrap());
        let service = Service::start_changed(HttpLimits::default(), &SERVERS, |service| service.with_players(players));
        Self { service, file }
    }

    fn request(&self, jwt: &str) -> TestResponse {
        self.service.request_token(&json!({"player_jwt": jwt}).to_string())
    }

    /// Asserts that a token is refused for this reason, and that the response does not show it.
    fn assert_refused(&self, jwt: &str, reason: &str) {
        let response = self.request(jwt);
        response.assert_refused(403, "invalid_player_jwt", Some("player_jwt"));
        let message = response.json["error"]["message"].as_str().unwrap();
        assert!(message.contains(reason), "{message:?} instead of {reason:?}");
        assert!(jwt.len() < 10 || !message.contains(&jwt[..10]), "{message}");
    }
}

impl Drop for PlayerService {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Returns the claims of a valid token.
fn claims() -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "auth0|7", "exp": now() + 3600})
}

/// Returns these claims with another value, or without it if that is null.
fn with(field: &str, value: impl Into<Value>) -> Value {
    let mut claims = claims();
    claims[field] = value.into();
    claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    claims
}

fn hash(text: &str) -> u64 {
    u64::from_be_bytes(digest(&SHA256, text.as_bytes()).as_ref()[..8].try_into().unwrap())
}

#[test]
fn token_of_each_algorithm_names_the_client_id() {
    let signers = Signer::all();
    let players = PlayerService::start(&signers);
    for signer in &signers {
        let response = players.request(&signer.token(&claims()));
        assert_eq!(response.redeemed().client_id.0, hash("auth0|7"), "{}", signer.algorithm);
        assert_eq!(response.json["client_id"], hash("auth0|7").to_string());
        for accepted in [
            with("aud", json!(["another", AUDIENCE])),
            with("exp", now() - 10),
            with("nbf", now() + 10),
            with("nbf", now() - 10),
            with("more", json!({"roles": ["admin"]})),
        ] {
            assert_eq!(players.request(&signer.token(&accepted)).status, 201, "{} {accepted}", signer.algorithm);
        }
    }
}

#[test]
fn wrong_claims_are_refused_with_each_algorithm() {
    let signers = Signer::all();
    let players = PlayerService::start(&signers);
    let lacks = "lacks the claim exp, iss or aud";
    let cases = [
        (with("exp", now() - 60), "has expired"),
        (with("exp", 0), "has expired"),
        (with("exp", Value::Null), lacks),
        (with("exp", (now() + 3600).to_string()), lacks),
        (with("exp", -1), lacks),
        (with("nbf", now() + 60), "is not valid yet"),
        (with("nbf", "tomorrow"), "is malformed"),
        (with("iss", "https://evil.example/"), "has another issuer"),
        (with("iss", "https://id.example"), "has another issuer"),
        (with("iss", Value::Null), lacks),
        (with("iss", 7), lacks),
        (with("aud", "another-game"), "is for another audience"),
        (with("aud", json!(["another", "further"])), "is for another audience"),
        (with("aud", json!([])), "is for another audience"),
        (with("aud", Value::Null), lacks),
        (with("sub", Value::Null), "lacks the claim that names the player"),
        (with("sub", ""), "names the player by no text"),
        (with("sub", 7), "names the player by no text"),
        (with("sub", "x".repeat(256)), "names the player by no text"),
    ];
    for signer in &signers {
        for (claims, reason) in &cases {
            players.assert_refused(&signer.token(claims), reason);
        }
        players.assert_refused(&signer.token(&json!("no object")), "is malformed");
    }
}

#[test]
fn wrong_signature_is_refused_with_each_algorithm() {
    let players = PlayerService::start(&Signer::all());
    // Other keys with the ids of the right ones. The RSA key signs another content.
    for other in [Signer::ed25519("ed"), Signer::p256("ec")] {
        players.assert_refused(&other.token(&claims()), "has a wrong signature");
    }
    let signers = Signer::all();
    let players = PlayerService::start(&signers);
    for signer in &signers {
        let token = signer.token(&claims());
        let [header, content, signature] = token.split('.').collect::<Vec<_>>().try_into().unwrap();
        let admin = base64url(with("sub", "admin").to_string());
        players.assert_refused(&format!("{header}.{admin}.{signature}"), "has a wrong signature");
        players.assert_refused(&format!("{header}.{content}."), "has a wrong signature");
        players.assert_refused(&format!("{header}.{content}.{}", &signature[..80]), "has a wrong signature");
        // An embedded key, or the address of one, is not used.
        for (name, value) in [("jwk", Signer::p256("x").jwk()), ("jku", json!("https://evil.example/keys"))] {
            let mut header = signer.header();
            header[name] = value;
            let forged = Signer::ed25519("x").token_with(&header, &claims());
            players.assert_refused(&forged, "has a wrong signature");
        }
    }
}

#[test]
fn algorithm_is_that_of_the_key_alone() {
    let signers = Signer::all();
    let players = PlayerService::start(&signers);
    for signer in &signers {
        let header = |algorithm: &str| json!({"alg": algorithm, "kid": signer.id});
        let unsigned = |algorithm: &str| {
            let message = format!("{}.{}", base64url(header(algorithm).to_string()), base64url(claims().to_string()));
            (message.clone(), format!("{message}."))
        };
        for none in ["none", "None", "NONE", "nOnE", ""] {
            players.assert_refused(&unsigned(none).1, "is malformed");
        }
        // The public key is known to all, so an HMAC with it as the secret would be a forgery.
        let (message, _) = unsigned("HS256");
        let jwk = signer.jwk();
        for secret in [jwk.to_string(), jwk["x"].to_string(), jwk["n"].to_string(), String::new()] {
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes());
            players.assert_refused(&format!("{message}.{}", base64url(tag)), "has another algorithm than its key");
        }
        for other in ["EdDSA", "ES256", "RS256", "PS256", "RS512", "ES384"] {
            if other != signer.algorithm {
                players.assert_refused(&signer.token_with(&header(other), &claims()), "has another algorithm");
            }
        }
    }
}

#[test]
fn key_id_and_extensions_are_checked() {
    let signers = Signer::all();
    let players = PlayerService::start(&signers);
    for signer in &signers {
        let header = |field: &str, value: Value| {
            let mut header = signer.header();
            header[field] = value;
            signer.token_with(&header, &claims())
        };
        players.assert_refused(&header("kid", json!("unknown")), "has an unknown key id");
        players.assert_refused(&header("kid", json!(7)), "is malformed");
        players.assert_refused(&header("kid", Value::Null), "has no key id");
        players.assert_refused(&header("crit", json!(["b64"])), "requires an extension");
        // With one key in the set, a token needs no key id.
        let alone = PlayerService::start(std::slice::from_ref(signer));
        assert_eq!(alone.request(&header("kid", Value::Null)).status, 201);
        alone.assert_refused(&header("kid", json!("unknown")), "has an unknown key id");
    }
}

#[test]
fn malformed_token_is_refused() {
    let signers = Signer::all();
    let players = PlayerService::start(&signers);
    let token = signers[0].token(&claims());
    for malformed in [
        "x",
        ".",
        "..",
        "...",
        "a.b.c",
        "a.b.c.d.e",
        &token.replace('.', ""),
        &token.replace('.', "=."),
        &format!("{token}."),
        &format!(" {token}"),
        &format!("{token}\n"),
        &format!("Bearer {token}"),
        &token.replacen('.', "..", 1),
        "eyJhbGciOiJub25lIn0.e30.",
        &"a.".repeat(1500),
    ] {
        players.assert_refused(malformed, "is malformed");
    }
}

#[test]
fn named_client_id_must_be_that_of_the_token() {
    let signers = Signer::all();
    let players = PlayerService::start(&signers);
    let jwt = signers[0].token(&claims());
    let request = |id: u64| players.service.request_token(&json!({"player_jwt": jwt, "client_id": id}).to_string());
    assert_eq!(request(hash("auth0|7")).status, 201);
    request(7).assert_refused(403, "invalid_player_jwt", Some("client_id"));
}

#[test]
fn key_without_the_scope_cannot_name_a_client_id() {
    let signers = Signer::all();
    let players = PlayerService::start(&signers);
    let mut entropy = StdRng::from_seed([8; 32]);
    let key = ApiKey::random(&mut entropy);
    let scopes = Scopes { names_client_id: false, ..Scopes::default() };
    let digests = vec![key.digest(&mut entropy)];
    let caller = Caller::new(&"launcher".parse().unwrap(), digests, scopes, None).unwrap();
    let servers = SERVERS.map(|server| server.parse().unwrap());
    let issuer = Issuer::new(PROTOCOL_ID, Key::from(PRIVATE_KEY).into(), &servers, Limits::default()).unwrap();
    players.service.handle.replace(issuer, ApiKeys::with_named(Vec::new(), vec![caller]).unwrap());

    let request = |body: Value| {
        let request = agent().post(players.service.url("/v1/tokens"));
        let request = request.header("Authorization", format!("Bearer launcher.{}", key.expose()));
        TestResponse::from(request.content_type("application/json").send(body.to_string()).unwrap())
    };
    let jwt = signers[0].token(&claims());
    for body in [json!({"client_id": 7}), json!({"client_id": 7, "group": "ranked"})] {
        request(body).assert_refused(403, "forbidden", Some("client_id"));
    }
    let other = request(json!({"client_id": 7, "player_jwt": jwt}));
    other.assert_refused(403, "invalid_player_jwt", Some("client_id"));
    let message = other.json["error"]["message"].as_str().unwrap();
    assert!(message.contains("not that of the player's JSON Web Token"), "{message}");
    for body in [json!({"player_jwt": jwt}), json!({"client_id": hash("auth0|7").to_string(), "player_jwt": jwt})] {
        assert_eq!(request(body).redeemed().client_id.0, hash("auth0|7"));
    }
    let expired = signers[0].token(&with("exp", 0));
    request(json!({"player_jwt": expired})).assert_refused(403, "invalid_player_jwt", Some("player_jwt"));
    request(json!({})).assert_refused(400, "missing_field", Some("client_id"));
}

#[test]
fn claim_and_mapping_can_be_chosen() {
    let signers = Signer::all();
    let players = PlayerService::start_with(&signers, |settings| PlayerSettings {
        claim: "steam_id".to_owned(),
        client_id: ClientIdMapping::Number,
        ..settings
    });
    let request = |id: Value| players.request(&signers[1].token(&with("steam_id", id)));
    assert_eq!(request(json!("76561197960287930")).redeemed().client_id.0, 76_561_197_960_287_930);
    assert_eq!(request(json!(7)).redeemed().client_id.0, 7);
    for wrong in [json!("07"), json!("x"), json!(-1), json!(1.5)] {
        request(wrong).assert_refused(403, "invalid_player_jwt", Some("player_jwt"));
    }
}

#[test]
fn service_without_players_refuses_their_tokens() {
    let service = Service::start();
    let jwt = Signer::ed25519("ed").token(&claims());
    let response = service.request_token(&json!({"player_jwt": jwt}).to_string());
    response.assert_refused(403, "invalid_player_jwt", Some("player_jwt"));
}

#[test]
fn readiness_and_status_503_show_missing_keys() {
    // Nothing listens on this port.
    let source = "http://127.0.0.1:1/keys".parse().unwrap();
    let players = Arc::new(Players::new(PlayerSettings::new(source, ISSUER, AUDIENCE)).unwrap());
    let service = Service::start_changed(HttpLimits::default(), &SERVERS, |service| service.with_players(players));
    let jwt = Signer::ed25519("ed").token(&claims());
    let response = service.request_token(&json!({"player_jwt": jwt}).to_string());
    response.assert_refused(503, "player_keys_unavailable", None);
    assert_eq!(response.header("retry-after"), Some("10"));
    let ready = TestResponse::from(agent().get(service.url("/readyz")).call().unwrap());
    assert_eq!((ready.status, &ready.json["status"]), (503, &json!("player_keys_unavailable")));
    assert_eq!(service.request_token(r#"{"client_id": 1}"#).status, 201, "a named client id needs no key");
}

#[test]
fn wrong_source_or_rule_is_refused() {
    for wrong in ["", "http://id.example/keys", "https://", "https://user:secret@id.example/keys", "ftp://a/b"] {
        assert!(wrong.parse::<PlayerKeySource>().is_err(), "{wrong}");
    }
    for right in ["https://id.example/keys", "http://127.0.0.1:9/k", "http://localhost/k", "http://[::1]:1/k"] {
        assert!(matches!(right.parse(), Ok(PlayerKeySource::Url(_))), "{right}");
    }
    let source: PlayerKeySource = "/nonexistent/keys".parse().unwrap();
    assert!(matches!(Players::new(PlayerSettings::new(source.clone(), ISSUER, AUDIENCE)), Err(PlayersError::File(..))));
    for settings in [PlayerSettings::new(source.clone(), "", AUDIENCE), PlayerSettings::new(source, ISSUER, "")] {
        assert!(matches!(Players::new(settings), Err(PlayersError::Rules)));
    }
}
