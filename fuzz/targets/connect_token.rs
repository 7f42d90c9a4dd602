//! Any bytes as the connect token of a client. Shorter inputs are also tried with zeros behind them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::fit;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::CONNECT_TOKEN_BYTES;
use slipgate_netcode::wire::token::{PublicLayout, TokenLayoutError};

fuzz_target!(|input: &[u8]| {
    if input.len() != CONNECT_TOKEN_BYTES {
        assert_eq!(ConnectToken::from_bytes(input).map(|_| ()), Err(TokenLayoutError::Length));
    }
    let bytes: [u8; CONNECT_TOKEN_BYTES] = fit(input);
    let Ok(token) = ConnectToken::from_bytes(&bytes) else { return };
    assert_eq!(token.as_bytes(), &bytes);
    assert!(!format!("{token:?}").is_empty());

    let facts = token.facts();
    assert!(facts.created <= facts.expires && (1..=32).contains(&facts.servers.len()));
    let (nonce, sealed) = (*token.request().nonce, *token.request().sealed);
    let (client_to_server, server_to_client) = (token.keys().client_to_server, token.keys().server_to_client);
    let layout = PublicLayout {
        protocol_id: facts.protocol_id,
        created: facts.created,
        expires: facts.expires,
        nonce: &nonce,
        sealed: &sealed,
        timeout_seconds: facts.timeout_seconds,
        servers: facts.servers.clone(),
        client_to_server: client_to_server.expose(),
        server_to_client: server_to_client.expose(),
    };
    // Readers ignore the padding. All other bytes are written back unchanged.
    let mut written = [0; CONNECT_TOKEN_BYTES];
    layout.emit(&mut written);
    let content: usize = facts.servers.iter().map(|server| if server.is_ipv4() { 7 } else { 19 }).sum();
    let (content, padding) = written.split_at(1093 + content + 64);
    assert_eq!(content, &bytes[..content.len()]);
    assert!(padding.iter().all(|byte| *byte == 0));
    assert_eq!(ConnectToken::from_bytes(&written).as_ref().map(ConnectToken::facts), Ok(facts));
});
