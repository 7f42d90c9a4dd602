//! Ours against the official Rust port of netcode 1.02, `netcode-official` 1.0.0, on real sockets, IPv4 and IPv6.
//!
//! It follows the reference in C, so these stories stand for that one, too: its wire is ours, byte for byte, and every
//! story of [`stories`] holds in both directions under our defaults. Where it differs, and what that means:
//!
//! - Its tokens carry no mint time. A server of ours that has just started, without a history, refuses them until all
//!   that could have been minted before its start have expired (`Fence`).
//! - A client of its that is kicked goes on to the next server of its token; ours does not.
//! - A server of its lets 256 payloads of one client wait, and drops what is beyond: here eight are on their way.

use std::time::Duration;

use slipgate_client::{ClientState, ConnectToken};
use slipgate_server::{Discard, Fence};
use slipgate_tests::live::{
    GameClient, GameServer, IPV4, IPV6, Order, OurClient, OurServer, PRIVATE_KEY, PROTOCOL_ID, Ticket, families,
    run_for, stories, until,
};

use super::netcode_official::{TheirClient, TheirServer};

/// Makes a test of each story for a pair: everything that the standard promises holds with this peer.
macro_rules! all_stories {
    ($pair:ident: $server:ty, $client:ty, $ip:expr) => {
        slipgate_tests::stories!($pair: $server, $client, $ip, [
            payloads_of_every_size_arrive_each_way,
            a_word_of_welcome_arrives,
            a_kicked_client_knows_and_its_slot_is_free,
            a_server_knows_who_left_and_the_slot_is_free,
            a_full_server_denies,
            who_is_denied_tries_the_next_server,
            silence_times_out,
            an_expired_token_admits_nobody,
        ]);
    };
}

all_stories!(our_client_on_their_server_by_ipv4: TheirServer, OurClient, IPV4);
all_stories!(our_client_on_their_server_by_ipv6: TheirServer, OurClient, IPV6);
all_stories!(their_client_on_our_server_by_ipv4: OurServer, TheirClient, IPV4);
all_stories!(their_client_on_our_server_by_ipv6: OurServer, TheirClient, IPV6);

#[test]
fn tokens_of_their_issuer_lead_our_client_to_their_server() {
    for ip in families() {
        let mut server = TheirServer::start(ip, 4);
        let ticket = their_ticket(&Order::new(stories::player(1), &[server.address()]));
        stories::talk::<TheirServer, OurClient>(&mut server, &ticket);
    }
}

#[test]
fn tokens_of_their_issuer_lead_their_client_and_ours_to_our_server_on_its_first_start() {
    for ip in families() {
        let start = || OurServer::start_with(ip, 4, |config| config.fence = Fence::Open);
        let mut server = start();
        let ticket = their_ticket(&Order::new(stories::player(1), &[server.address()]));
        stories::talk::<OurServer, TheirClient>(&mut server, &ticket);

        let mut server = start();
        let ticket = their_ticket(&Order::new(stories::player(1), &[server.address()]));
        stories::talk::<OurServer, OurClient>(&mut server, &ticket);
    }
}

#[test]
fn a_token_of_their_issuer_waits_outside_the_fence_until_it_surely_is_from_after_the_start() {
    let mut server = OurServer::start(IPV4, 4);

    // Of 30 s, it may have been minted up to 15 s before now: our maximum is 45 s.
    let short = their_ticket(&Order::new(stories::player(1), &[server.address()]));
    let mut client = TheirClient::connect(&short);
    until(&mut (&mut server, &mut client), "the fence says no", |(server, _)| {
        server.server.discards().count(Discard::BeforeStart) > 1
    });
    assert_eq!(client.state(), ClientState::SendingRequest);
    assert_eq!(server.server.discards().total(), server.server.discards().count(Discard::BeforeStart));

    // Of the full 45 s, it was minted after the start as soon as another second has begun.
    run_for(&mut server, Duration::from_millis(1001));
    let order = Order { lifetime_seconds: 45, ..Order::new(stories::player(2), &[server.address()]) };
    let _: TheirClient = stories::admit_with(&mut server, &their_ticket(&order));
}

#[test]
fn whom_the_first_of_two_servers_kicks_goes_on_to_the_second_if_theirs_and_stays_out_if_ours() {
    assert_eq!(state_after_a_kick_by_the_first_of_two::<TheirClient>(), ClientState::Connected);
    assert_eq!(state_after_a_kick_by_the_first_of_two::<OurClient>(), ClientState::Disconnected);
}

fn state_after_a_kick_by_the_first_of_two<C: GameClient>() -> ClientState {
    let (mut first, mut second) = (OurServer::start(IPV4, 1), OurServer::start(IPV4, 1));
    let order = Order::new(stories::player(1), &[first.address(), second.address()]);
    let mut client: C = stories::admit_with(&mut first, &order.mint());
    first.kick(order.client_id);
    until(&mut (&mut first, &mut client), "word of the kick", |(_, client)| client.state() != ClientState::Connected);
    until(&mut (&mut first, &mut second, &mut client), "an end", |(_, _, client)| {
        !matches!(client.state(), ClientState::SendingRequest | ClientState::SendingResponse)
    });
    client.state()
}

/// A token of their issuer.
fn their_ticket(order: &Order) -> Ticket {
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
    .expect("the order is sound");
    order.ticket(ConnectToken::from_bytes(&bytes).expect("we can read it"))
}
