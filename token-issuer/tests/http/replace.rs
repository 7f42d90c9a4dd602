//! New keys for a running service.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::token::redeem::redeem;
use slipgate_token_issuer::api_key::ApiKey;
use slipgate_token_issuer::callers::{ApiKeys, Caller, Scopes};
use slipgate_token_issuer::{Issuer, Limits};

use crate::common::{PRIVATE_KEY, PROTOCOL_ID, SERVERS, Service, TestResponse, agent};

const NEW_KEY: [u8; 32] = [0x77; 32];

fn issuer(key: [u8; 32]) -> Issuer {
    let servers = SERVERS.map(|server| server.parse().unwrap());
    Issuer::new(PROTOCOL_ID, Key::from(key).into(), &servers, Limits::default()).unwrap()
}

#[test]
fn new_keys_take_effect_without_a_refused_request() {
    let service = Service::start();
    let mut entropy = StdRng::from_seed([9; 32]);
    let new = ApiKey::random(&mut entropy);
    let digests = [service.api_key.digest(&mut entropy), new.digest(&mut entropy)];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let backend = || {
            let (agent, mut minted) = (agent(), 0_u32);
            while !is_over.load(Ordering::Relaxed) {
                let request = agent.post(service.url("/v1/tokens")).header("Authorization", service.bearer());
                let response = request.content_type("application/json").send(r#"{"client_id": 1}"#).unwrap();
                let token = TestResponse::from(response).token();
                let opens = |key| redeem(&token.request(), PROTOCOL_ID, &Key::from(key).into()).is_ok();
                assert!(opens(PRIVATE_KEY) != opens(NEW_KEY));
                minted += 1;
            }
            minted
        };
        let backends: Vec<_> = (0..2).map(|_| scope.spawn(backend)).collect();
        // The backends need the processor as well: at least 50 tokens are requested, on a busy machine too.
        for round in 0..200 {
            let key = if round % 2 == 0 { NEW_KEY } else { PRIVATE_KEY };
            service.handle.replace(issuer(key), ApiKeys::new(digests.to_vec()).unwrap());
            thread::sleep(std::time::Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(backends.into_iter().map(|backend| backend.join().unwrap()).sum::<u32>() > 50);
    });
    // From here on, only the new API key and the new private key count.
    service.handle.replace(issuer(NEW_KEY), ApiKeys::new(vec![digests[1].clone()]).unwrap());
    service.request_token(r#"{"client_id": 1}"#).assert_refused(401, "unauthorized", None);
    let bearer = format!("Bearer {}", new.expose());
    let request = agent().post(service.url("/v1/tokens")).header("Authorization", bearer);
    let response = TestResponse::from(request.content_type("application/json").send(r#"{"client_id": 1}"#).unwrap());
    assert!(redeem(&response.token().request(), PROTOCOL_ID, &Key::from(NEW_KEY).into()).is_ok());
}

#[test]
fn reload_gives_a_key_no_further_requests_at_once() {
    let service = Service::start();
    let mut entropy = StdRng::from_seed([9; 32]);
    let key = ApiKey::random(&mut entropy);
    let digest = key.digest(&mut entropy);
    let reload = |requests_per_minute| {
        let limit = NonZeroU32::new(requests_per_minute);
        let lobby = Caller::new(&"lobby".parse().unwrap(), vec![digest.clone()], Scopes::default(), limit).unwrap();
        service.handle.replace(issuer(NEW_KEY), ApiKeys::with_named(Vec::new(), vec![lobby]).unwrap());
    };
    let status = || {
        let request = agent().get(service.url("/v1/servers"));
        request.header("Authorization", format!("Bearer lobby.{}", key.expose())).call().unwrap().status().as_u16()
    };
    reload(2);
    assert_eq!([status(), status(), status()], [200, 200, 429]);
    reload(2);
    assert_eq!(status(), 429, "its requests of this minute are used");
    reload(3);
    assert_eq!(status(), 200, "a new limit");
}
