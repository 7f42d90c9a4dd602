//! The parts of a token for another server: only a client whose connection is open stores them.

use super::*;
use crate::connection::redirect::RedirectSender;
use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::UnixMillis;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;

fn token() -> ConnectToken {
    let servers = Servers::new(&["192.0.2.1:40000".parse().unwrap()]).unwrap();
    let claims = Claims {
        protocol_id: 7,
        client_id: ClientId(1),
        servers: &servers,
        internal_servers: None,
        lifetime_seconds: 30,
        timeout_seconds: 5,
        user_data: &[0; 256],
    };
    let mut entropy = StdRng::seed_from_u64(1);
    issue(&claims, &Key::random(&mut entropy), UnixMillis(1_700_000_000_000), &mut entropy).unwrap()
}

/// Returns the control messages with all parts of a token.
fn parts(token: &ConnectToken) -> Vec<Vec<u8>> {
    let sender = RedirectSender::new(token.clone());
    let part_at = |index| {
        let mut buf = [0; 1200];
        let bytes = control::write(&ControlMessage::Redirect(sender.next_part(index)?), &mut buf);
        Some(buf[..bytes].to_vec())
    };
    (0..).map_while(part_at).collect()
}

#[test]
fn only_an_open_client_stores_a_token() {
    let token = token();
    let parts = parts(&token);
    assert!(parts.len() > 1);
    for (role, is_closing, is_stored) in [
        (Role::Client, false, true),
        (Role::Client, true, false),
        (Role::Server, false, false),
        (Role::Server, true, false),
    ] {
        let mut end = Connection::new(&ConnectionConfig::default(), layout(), role, None).unwrap();
        end.handle(&datagram(0, &hello(|_| ())), Duration::ZERO, Instant::default()).unwrap();
        if is_closing {
            end.close(CloseCode(300), "closing");
        }
        for (sequence, part) in (1..).zip(&parts) {
            end.handle(&datagram(sequence, part), Duration::ZERO, Instant::default()).unwrap();
        }
        let stored = end.take_redirect().map(|stored| stored.as_bytes() == token.as_bytes());
        assert_eq!(stored, is_stored.then_some(true), "{role:?}, closing: {is_closing}");
    }
}
