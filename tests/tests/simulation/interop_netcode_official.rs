//! Our code against the official Rust port of netcode 1.02, `netcode-official` 1.0.0, on real sockets, IPv4 and IPv6.
//!
//! The port follows the reference in C, so these scenarios stand for the reference as well: its wire format is ours,
//! byte for byte, and every scenario of [`scenarios`] holds in both directions under our defaults. The differences:
//!
//! - Its tokens carry no mint time. A freshly started server of ours, without a history, refuses them until all that
//!   could have been minted before its start have expired (`TokenCutoff`).
//! - Its kicked client tries the next server of its token; ours does not.
//! - Its server queues at most 256 payloads of one client, and drops the others: here eight are in flight.

use std::time::Duration;

use slipgate_client::{ClientState, ConnectToken};
use slipgate_server::config::TokenCutoff;
use slipgate_server::counters::Discard;
use slipgate_tests::live::{
    GameClient, GameServer, IPV4, IPV6, MintedToken, OurClient, OurServer, PRIVATE_KEY, PROTOCOL_ID, TokenOrder,
    families, run_for, scenarios, until,
};

use super::netcode_official::{TheirClient, TheirServer};

/// Makes a test of each scenario for a pair: everything that the standard promises holds with this peer.
macro_rules! all_scenarios {
    ($pair:ident: $server:ty, $client:ty, $ip:expr) => {
        slipgate_tests::scenarios!($pair: $server, $client, $ip, [
            payloads_of_every_size_arrive_both_ways,
            payload_sent_on_connect_arrives,
            kicked_client_knows_and_its_slot_is_free,
            leaving_client_frees_its_slot,
            full_server_denies_a_client,
            denied_client_tries_the_next_server,
            silent_peer_times_out,
            expired_token_admits_no_client,
        ]);
    };
}

all_scenarios!(our_client_on_their_server_by_ipv4: TheirServer, OurClient, IPV4);
all_scenarios!(our_client_on_their_server_by_ipv6: TheirServer, OurClient, IPV6);
all_scenarios!(their_client_on_our_server_by_ipv4: OurServer, TheirClient, IPV4);
all_scenarios!(their_client_on_our_server_by_ipv6: OurServer, TheirClient, IPV6);

#[test]
fn peer_token_connects_our_client_to_the_peer_server() {
    for ip in families() {
        let mut server = TheirServer::start(ip, 4);
        let minted = their_ticket(&TokenOrder::new(scenarios::player(1), &[server.address()]));
        scenarios::talk::<TheirServer, OurClient>(&mut server, &minted);
    }
}

#[test]
fn peer_token_connects_both_clients_to_our_first_start() {
    for ip in families() {
        let start = || OurServer::start_with(ip, 4, |config| config.token_cutoff = TokenCutoff::None);
        let mut server = start();
        let minted = their_ticket(&TokenOrder::new(scenarios::player(1), &[server.address()]));
        scenarios::talk::<OurServer, TheirClient>(&mut server, &minted);

        let mut server = start();
        let minted = their_ticket(&TokenOrder::new(scenarios::player(1), &[server.address()]));
        scenarios::talk::<OurServer, OurClient>(&mut server, &minted);
    }
}

#[test]
fn peer_token_is_refused_until_surely_minted_after_the_start() {
    let mut server = OurServer::start(IPV4, 4);

    // It may have been minted up to 15 s before now: its lifetime is 30 s, and our maximum is 45 s.
    let short = their_ticket(&TokenOrder::new(scenarios::player(1), &[server.address()]));
    let mut client = TheirClient::connect(&short);
    until(&mut (&mut server, &mut client), "the token cutoff refuses the token", |(server, _)| {
        server.server.discards()[Discard::BeforeStart] > 1
    });
    assert_eq!(client.state(), ClientState::SendingRequest);
    assert_eq!(server.server.discards().total(), server.server.discards()[Discard::BeforeStart]);

    // A token with the full 45 s was minted after the start as soon as the next second starts.
    run_for(&mut server, Duration::from_millis(1001));
    let order = TokenOrder { lifetime_seconds: 45, ..TokenOrder::new(scenarios::player(2), &[server.address()]) };
    let _: TheirClient = scenarios::admit_with(&mut server, &their_ticket(&order));
}

#[test]
fn kicked_peer_client_tries_the_next_server_and_ours_does_not() {
    assert_eq!(state_after_a_kick_by_the_first_of_two::<TheirClient>(), ClientState::Connected);
    assert_eq!(state_after_a_kick_by_the_first_of_two::<OurClient>(), ClientState::Disconnected);
}

fn state_after_a_kick_by_the_first_of_two<C: GameClient>() -> ClientState {
    let (mut first, mut second) = (OurServer::start(IPV4, 1), OurServer::start(IPV4, 1));
    let order = TokenOrder::new(scenarios::player(1), &[first.address(), second.address()]);
    let mut client: C = scenarios::admit_with(&mut first, &order.mint());
    first.kick(order.client_id);
    until(&mut (&mut first, &mut client), "the client knows that it was kicked", |(_, client)| {
        client.state() != ClientState::Connected
    });
    until(&mut (&mut first, &mut second, &mut client), "the attempt ends", |(_, _, client)| {
        !matches!(client.state(), ClientState::SendingRequest | ClientState::SendingResponse)
    });
    client.state()
}

/// Mints a token of the peer's issuer.
fn their_ticket(order: &TokenOrder) -> MintedToken {
    let bytes = netcode::generate_connect_token(
        &order.servers,
        &order.servers,
        order.lifetime_seconds as i32,
        order.timeout_seconds,
        order.client_id,
        PROTOCOL_ID,
        &PRIVATE_KEY,
        &order.user_data(),
    )
    .expect("valid claims");
    order.minted(ConnectToken::from_bytes(&bytes).expect("our code can parse it"))
}
