//! What a server reports: its counters, and the steps of handshakes.

use std::collections::BTreeSet;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::handshake::HandshakeOutcome;
use slipgate_netcode::server::{NetcodeStats, TokenCutoff};
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_tests::netcode_world::{NetcodeWorld, ServerId, address};
use slipgate_tests::raw_client::RawClient;

/// A step of a handshake: the port of its sender, the client id if a token was opened, and the outcome.
type Step = (u16, Option<u64>, HandshakeOutcome);

fn at(port: u16) -> Address {
    address(&format!("10.55.0.1:{port}"))
}

/// Takes the steps that the server kept. Each opened token has the mint time that its issuer wrote.
fn steps(world: &mut NetcodeWorld, server: ServerId) -> Vec<Step> {
    let core = &mut world.servers[server].core;
    let steps = std::iter::from_fn(|| core.poll_handshake());
    steps
        .map(|step| {
            assert!(step.token.is_none_or(|token| token.minted.is_some_and(|minted| minted.0 > 1_000_000)));
            (step.address.socket_addr().port(), step.token.map(|token| token.client_id.0), step.outcome)
        })
        .collect()
}

fn raw_client(world: &mut NetcodeWorld, client_id: u64, server: ServerId) -> RawClient {
    RawClient::new(&world.token(client_id, &[server]))
}

#[test]
fn server_counts_what_it_did_for_its_clients() {
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server(2);
    world.servers[server].echoes = false;
    for (client_id, port) in [(1, 1001), (2, 1002)] {
        let mut client = raw_client(&mut world, client_id, server);
        let handle = world.admit_raw(server, &mut client, at(port));
        for _ in 0..3 {
            let payload = client.seal(PacketKind::Payload, b"up");
            world.present(server, at(port), &payload).unwrap();
            world.server_sends(server, handle, b"down").unwrap();
        }
    }
    for (client_id, port) in [(3, 1003), (4, 1004)] {
        let client = raw_client(&mut world, client_id, server);
        world.present(server, at(port), &client.request()).unwrap();
        assert_eq!(world.replies_to(at(port)).len(), 1);
    }
    let expected = NetcodeStats {
        connects: 2,
        disconnects: 0,
        payloads_received: 6,
        payloads_sent: 6,
        challenges_sent: 2,
        denials_sent: 2,
        journal_failures: 0,
    };
    assert_eq!(*world.servers[server].core.stats(), expected);
}

#[test]
fn each_step_of_a_handshake_is_reported_with_its_client() {
    use HandshakeOutcome::{Challenged, Connected, DeniedFull, Dropped};
    let mut world = NetcodeWorld::perfect(2);
    let server = world.add_server(1);
    let mut first = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &first, at(1001));
    assert_eq!(steps(&mut world, server), [(1001, Some(1), Challenged)]);

    // A forged response opens nothing.
    let mut forged = first.response(&challenge);
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(world.present(server, at(1001), &forged), Err(Discard::NotAuthentic));
    assert_eq!(steps(&mut world, server), [(1001, None, Dropped(Discard::NotAuthentic))]);
    // The challenge of another client does not prove the address.
    let mut second = raw_client(&mut world, 2, server);
    world.present(server, at(1002), &second.request()).unwrap();
    let foreign = second.response(&challenge);
    assert_eq!(world.present(server, at(1002), &foreign), Err(Discard::ChallengeForeign));
    assert_eq!(
        steps(&mut world, server),
        [(1002, Some(2), Challenged), (1002, Some(2), Dropped(Discard::ChallengeForeign))]
    );

    let response = first.response(&challenge);
    world.present(server, at(1001), &response).unwrap();
    assert_eq!(steps(&mut world, server), [(1001, Some(1), Connected)]);
    let third = raw_client(&mut world, 3, server);
    world.present(server, at(1003), &third.request()).unwrap();
    assert_eq!(steps(&mut world, server), [(1003, Some(3), DeniedFull)]);
}

#[test]
fn dropped_requests_are_reported_except_late_repetitions() {
    use HandshakeOutcome::Dropped;
    let mut world = NetcodeWorld::perfect(3);
    let (server, other) = (world.add_server(2), world.add_server(2));
    let mut player = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut player, at(1001));
    steps(&mut world, server);

    // Late repetitions of the player's own requests say nothing new.
    let used = Err(Discard::TokenUsed);
    assert_eq!(world.present(server, at(1001), &player.request()), used);
    let again = raw_client(&mut world, 1, server);
    assert!(world.present(server, at(1001), &again.request()).is_err());
    assert_eq!(steps(&mut world, server), []);

    // The same requests from elsewhere are reported, and so is another player's at this address.
    assert_eq!(world.present(server, at(1002), &player.request()), used);
    assert_eq!(steps(&mut world, server), [(1002, Some(1), Dropped(Discard::TokenUsed))]);
    let neighbour = raw_client(&mut world, 2, server);
    let reason = world.present(server, at(1001), &neighbour.request()).unwrap_err();
    assert_eq!(steps(&mut world, server), [(1001, Some(2), Dropped(reason))]);

    let lost = raw_client(&mut world, 3, other);
    assert_eq!(world.present(server, at(1003), &lost.request()), Err(Discard::AddressNotListed));
    assert_eq!(steps(&mut world, server), [(1003, Some(3), Dropped(Discard::AddressNotListed))]);
}

#[test]
fn forty_used_tokens_at_once_are_opened_for_the_report() {
    let mut world = NetcodeWorld::perfect(4);
    let server = world.add_server_with(50, |config| config.token_cutoff = TokenCutoff::None);
    let mut players = Vec::new();
    for id in 1..=45 {
        let mut player = raw_client(&mut world, id, server);
        world.admit_raw(server, &mut player, at(1000 + id as u16));
        players.push(player);
    }
    steps(&mut world, server);
    for player in &players {
        assert_eq!(world.present(server, at(2000), &player.request()), Err(Discard::TokenUsed));
    }
    let reported = steps(&mut world, server);
    assert_eq!(reported.iter().filter(|(_, client_id, _)| client_id.is_some()).count(), 40);
    assert_eq!(reported.len(), 45);
}

/// About 1,000 forged requests a second, from one source or from many, before those of three players in each turn.
#[test]
fn forged_requests_do_not_hide_players_with_expired_tokens() {
    for sources in [1, 5000] {
        let mut world = NetcodeWorld::perfect(5);
        let server = world.add_server(4);
        let players = [1, 2, 3].map(|id| raw_client(&mut world, id, server));
        world.run_for(Duration::from_secs(50));
        let (mut named, mut forged) = (BTreeSet::new(), 0_u32);
        // Players repeat a request for 5 s.
        for turn in 0..300 {
            for _ in 0..17 {
                forged += 1;
                let mut request = players[0].request();
                let end = request.len() - 4;
                request[end..].copy_from_slice(&forged.to_le_bytes());
                let source = forged % sources;
                let from = address(&format!("10.66.{}.{}:1000", source / 256, source % 256));
                assert_eq!(world.present(server, from, &request), Err(Discard::TokenExpired));
            }
            for (port, player) in (1001..).zip(&players) {
                if turn % 6 == 0 {
                    assert_eq!(world.present(server, at(port), &player.request()), Err(Discard::TokenExpired));
                }
            }
            named.extend(steps(&mut world, server).into_iter().filter_map(|(_, client_id, _)| client_id));
            world.turn();
        }
        assert_eq!(named.into_iter().collect::<Vec<_>>(), [1, 2, 3], "forgeries of {sources} sources");
    }
}
