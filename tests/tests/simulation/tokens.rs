//! Tokens: each admits one connection, once, and a used token costs almost nothing.

use std::time::Duration;

use rand::RngExt;
use slipgate_netcode::PayloadError;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, ConnectError};
use slipgate_netcode::crypto::key::{Key, KeyRing};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{DisconnectReason, ServerConfig, TokenCutoff};
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::wire::packet::{KeepAlive, PacketHeader, PacketKind};
use slipgate_tests::netcode_world::{NetcodeWorld, ServerId, TokenSpec, VecOutbox, address};
use slipgate_tests::raw_client::RawClient;

const SECOND: Duration = Duration::from_secs(1);

fn stranger(number: usize) -> Address {
    address(&format!("10.200.{}.{}:9000", number / 250, number % 250 + 1))
}

fn raw_client(world: &mut NetcodeWorld, client_id: u64, server: ServerId) -> RawClient {
    RawClient::new(&world.token(client_id, &[server]))
}

fn open_server(world: &mut NetcodeWorld, change: impl FnOnce(&mut ServerConfig)) -> ServerId {
    world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        change(config);
    })
}

/// Returns a request with another expiry, which the private data does not confirm.
fn altered_expiry(raw_client: &RawClient, expires: UnixSeconds) -> Vec<u8> {
    let mut request = raw_client.request();
    request[22..30].copy_from_slice(&expires.0.to_le_bytes());
    request
}

// One token, one connection -----------------------------------------------------------------------------------------

#[test]
fn used_token_is_discarded_at_every_address() {
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server(4);
    let mut first = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut first, stranger(1));
    assert_eq!(world.present(server, stranger(1), &first.request()), Err(Discard::TokenUsed));
    let disconnect = first.seal(PacketKind::Disconnect, &[]);
    world.present(server, stranger(1), &disconnect).unwrap();
    assert_eq!(world.servers[server].core.connected_count(), 0);
    world.replies_to(stranger(1));
    for pos in [1, 2] {
        assert_eq!(world.present(server, stranger(pos), &first.request()), Err(Discard::TokenUsed));
        assert_eq!(world.replies_to(stranger(pos)), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn recorded_packets_have_no_effect_in_the_next_session() {
    let mut world = NetcodeWorld::perfect(2);
    let server = world.add_server(4);
    let mut first = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut first, stranger(1));
    let recorded = [
        first.request(),
        first.keep_alive(),
        first.seal(PacketKind::Payload, &world.payload(30)),
        first.seal(PacketKind::Disconnect, &[]),
    ];
    for datagram in &recorded[1..] {
        world.present(server, stranger(1), datagram).unwrap();
    }
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::Left)]);

    let mut second = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut second, stranger(1));
    for datagram in &recorded {
        world.present(server, stranger(1), datagram).unwrap_err();
    }
    assert_eq!(world.servers[server].core.connected_count(), 1);
    assert_eq!(world.servers[server].disconnects().len(), 1);
}

#[test]
fn client_refuses_only_tokens_that_have_sealed_a_packet() {
    let mut world = NetcodeWorld::perfect(3);
    let server = world.add_server(1);
    let (_, holds_the_slot) = world.connected_client(9, server);

    // Denied: nothing was sealed, and the client may use the same token again.
    let (client, token) = (world.add_client(), world.token(1, &[server]));
    world.connect(client, token.clone());
    world.run_until(SECOND, |world| world.state(client) == ClientState::Denied);
    world.servers[server].core.disconnect(holds_the_slot);
    world.run_for(SECOND / 10);
    world.connect(client, token.clone());
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);

    // Connected and disconnected: used.
    world.clients[client].core.disconnect();
    world.run_for(SECOND);
    let now = world.monotonic();
    assert_eq!(world.clients[client].core.connect(token, now, |_| true), Err(ConnectError::TokenUsed));
    assert_eq!(world.state(client), ClientState::InvalidToken);

    // Sent a response without ever getting a slot: used as well.
    let (unlucky, token) = (world.add_client(), world.token(2, &[server]));
    world.connect(unlucky, token.clone());
    world.run_until(SECOND, |world| world.state(unlucky) == ClientState::SendingResponse);
    world.turn();
    world.clients[unlucky].core.disconnect();
    world.turn();
    let now = world.monotonic();
    assert_eq!(world.clients[unlucky].core.connect(token, now, |_| true), Err(ConnectError::TokenUsed));

    // Disconnected before a challenge arrived: unused.
    let (quick, token) = (world.add_client(), world.token(3, &[server]));
    world.connect(quick, token.clone());
    world.clients[quick].core.disconnect();
    world.connect(quick, token);
}

// One token, several servers ----------------------------------------------------------------------------------------

#[test]
fn two_servers_of_one_token_never_reuse_a_nonce() {
    let mut world = NetcodeWorld::perfect(4);
    let servers = [world.add_server(4), world.add_server(4)];
    let token = world.token(1, &servers);
    let mut sequences = Vec::new();
    for (index, server) in servers.into_iter().enumerate() {
        // The wiretap panics on a reused nonce.
        let mut raw_client = RawClient::new(&token);
        let handle = world.admit_raw(server, &mut raw_client, stranger(index));
        for _ in 0..20 {
            let payload = world.payload(50);
            world.server_sends(server, handle, &payload).unwrap();
        }
        let replies = world.replies_to(stranger(index));
        let opened = replies.iter().filter_map(|reply| raw_client.open(reply));
        let lane: Vec<u64> = opened.map(|opened| opened.sequence).collect();
        let start = (index as u64) << 40;
        assert_eq!(lane.iter().min(), Some(&start), "the index in the token's list determines the start of a lane");
        sequences.extend(lane);
    }
    assert!(sequences.len() > 40);
}

#[test]
fn handshake_nonce_ranges_do_not_overlap() {
    let mut world = NetcodeWorld::perfect(5);
    let servers = [world.add_server(4), world.add_server(4)];
    let mut handshakes = Vec::new();
    for (round, server) in [servers[0], servers[1], servers[0]].into_iter().enumerate() {
        if round == 2 {
            world.restart(server, None, |_| {});
        }
        let raw_client = raw_client(&mut world, round as u64, server);
        world.present(server, stranger(round), &raw_client.request()).unwrap();
        let challenge = world.replies_to(stranger(round)).remove(0);
        handshakes.push(PacketHeader::parse(&challenge, PacketKind::TO_CLIENT).unwrap().sequence);
    }
    for (pos, sequence) in handshakes.iter().enumerate() {
        assert!(*sequence > 1 << 63);
        for other in &handshakes[..pos] {
            assert!(sequence.abs_diff(*other) > 1 << 32, "{handshakes:?}");
        }
    }
}

#[test]
fn kicked_client_does_not_try_other_servers() {
    let mut world = NetcodeWorld::perfect(6);
    let servers = [world.add_server(4), world.add_server(4)];
    let (client, token) = (world.add_client(), world.token(1, &servers));
    world.connect(client, token);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
    let handle = world.servers[servers[0]].core.find(1).unwrap();
    world.servers[servers[0]].core.disconnect(handle);
    world.run_for(SECOND);
    assert_eq!(world.state(client), ClientState::Disconnected);
    let elsewhere = world.servers[servers[1]].address;
    assert!(world.sent().iter().all(|(_, to, _)| *to != elsewhere), "no packet to the second server");
}

// The history -------------------------------------------------------------------------------------------------------

#[test]
fn full_history_refuses_new_and_used_tokens() {
    const ROOM: usize = 16;
    let mut world = NetcodeWorld::perfect(7);
    let server = open_server(&mut world, |config| config.history_tokens = ROOM);
    let mut used = raw_client(&mut world, 0, server);
    world.admit_raw(server, &mut used, stranger(0));
    world.present(server, stranger(0), &used.seal(PacketKind::Disconnect, &[])).unwrap();

    for number in 1..4 * ROOM {
        let mut raw_client = raw_client(&mut world, number as u64, server);
        if number < ROOM {
            world.admit_raw(server, &mut raw_client, stranger(number));
            world.present(server, stranger(number), &raw_client.seal(PacketKind::Disconnect, &[])).unwrap();
        } else {
            let presented = world.present(server, stranger(number), &raw_client.request());
            assert_eq!(presented, Err(Discard::HistoryFull), "token {number}");
        }
    }
    assert_eq!(world.discard_count(server, Discard::HistoryFull), 3 * ROOM as u64);
    assert_eq!(world.servers[server].core.table_usage().used_tokens, ROOM);
    assert_eq!(world.present(server, stranger(0), &used.request()), Err(Discard::TokenUsed));

    // Expired tokens free their entries.
    world.run_for(32 * SECOND);
    assert_eq!(world.servers[server].core.table_usage().used_tokens, 0);
    assert_eq!(world.present(server, stranger(0), &used.request()), Err(Discard::TokenExpired));
    let mut next = raw_client(&mut world, 0, server);
    world.admit_raw(server, &mut next, stranger(0));
}

#[test]
fn wall_clock_step_back_revives_no_used_token() {
    let mut world = NetcodeWorld::perfect(8);
    let server = open_server(&mut world, |_| {});
    let mut used = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut used, stranger(1));
    world.present(server, stranger(1), &used.seal(PacketKind::Disconnect, &[])).unwrap();
    // One minute ahead, until everything has expired by both clocks, and back.
    world.clock_error_ms = 60_000;
    world.run_for(31 * SECOND);
    assert_eq!(world.servers[server].core.table_usage().used_tokens, 0);
    world.clock_error_ms = -20_000;
    world.turn();
    assert_eq!(world.present(server, stranger(1), &used.request()), Err(Discard::ClockStepped));
}

#[test]
fn brief_wall_clock_jump_keeps_the_history() {
    let mut world = NetcodeWorld::perfect(20);
    let server = open_server(&mut world, |_| {});
    let (mut used, mut unused) = (raw_client(&mut world, 1, server), raw_client(&mut world, 2, server));
    world.admit_raw(server, &mut used, stranger(1));
    world.clock_error_ms = 3_600_000;
    world.run_for(2 * SECOND);
    assert_eq!(world.servers[server].core.table_usage().used_tokens, 1);
    world.clock_error_ms = 0;
    assert_eq!(world.present(server, stranger(3), &used.request()), Err(Discard::TokenUsed));
    world.admit_raw(server, &mut unused, stranger(2));
}

#[test]
fn one_account_does_not_fill_the_history() {
    let mut world = NetcodeWorld::perfect(21);
    let server = open_server(&mut world, |config| config.history_tokens = 100);
    let mut connects = 0;
    for number in 0..400 {
        let mut account = raw_client(&mut world, 666, server);
        match world.present(server, stranger(number), &account.request()) {
            Ok(_) => {
                world.admit_raw(server, &mut account, stranger(number));
                world.present(server, stranger(number), &account.seal(PacketKind::Disconnect, &[])).unwrap();
                connects += 1;
            }
            Err(reason) => assert_eq!(reason, Discard::ClientIdTokens),
        }
    }
    assert_eq!((connects, world.servers[server].core.table_usage().used_tokens), (8, 8));
    // Others connect, and the account again when its tokens have expired.
    for client_id in 1..=10 {
        let mut honest = raw_client(&mut world, client_id, server);
        world.admit_raw(server, &mut honest, stranger(client_id as usize));
        world.present(server, stranger(client_id as usize), &honest.seal(PacketKind::Disconnect, &[])).unwrap();
    }
    world.run_for(32 * SECOND);
    let mut account = raw_client(&mut world, 666, server);
    world.admit_raw(server, &mut account, stranger(1));
}

// Clocks --------------------------------------------------------------------------------------------------------------

#[test]
fn clock_glitch_of_an_hour_locks_no_fresh_token_out() {
    let mut world = NetcodeWorld::perfect(22);
    let server = open_server(&mut world, |_| {});
    let mut before = raw_client(&mut world, 1, server);
    let from = |number: usize| stranger(number);
    world.admit_raw(server, &mut before, from(1));
    world.present(server, from(1), &before.seal(PacketKind::Disconnect, &[])).unwrap();
    // The clocks of issuer and server step by an hour for 10 s. Tokens are used, and one is forgotten meanwhile.
    world.clock_error_ms = 3_600_000;
    world.turn();
    let short = TokenSpec { lifetime: 5, ..world.spec(2, &[server]) };
    let mut glitch = [RawClient::new(&world.mint(&short)), raw_client(&mut world, 3, server)];
    for (number, client) in glitch.iter_mut().enumerate() {
        world.admit_raw(server, client, from(2 + number));
        world.present(server, from(2 + number), &client.seal(PacketKind::Disconnect, &[])).unwrap();
    }
    world.run_for(10 * SECOND);
    world.clock_error_ms = 0;
    world.turn();
    for number in 0..60 {
        let mut fresh = raw_client(&mut world, 100 + number, server);
        world.admit_raw(server, &mut fresh, from(9));
        world.present(server, from(9), &fresh.seal(PacketKind::Disconnect, &[])).unwrap();
        for used in [&before, &glitch[0], &glitch[1]] {
            assert!(world.present(server, from(8), &used.request()).is_err(), "second {number}");
        }
        world.run_for(SECOND);
    }
    // An hour later the tokens of the glitch are in time again, for the server's clock.
    world.clock_error_ms = 3_600_000 - 65_000;
    for second in 0..60 {
        for used in [&before, &glitch[0], &glitch[1]] {
            assert!(world.present(server, from(8), &used.request()).is_err(), "second {second}");
        }
        world.run_for(SECOND);
    }
    assert!(world.discard_count(server, Discard::ClockStepped) > 0);
}

#[test]
fn jumping_clocks_admit_no_token_twice_and_fresh_ones_soon() {
    const SEEDS: u64 = 40;
    let (mut admitted, mut refused, mut longest) = (0, 0, (0, 0));
    for seed in 0..SEEDS {
        let mut world = NetcodeWorld::perfect(1000 + seed);
        let server = open_server(&mut world, |_| {});
        let (mut used, mut lived, mut in_a_row) = (Vec::new(), Vec::new(), 0);
        for second in 0..240_u64 {
            if world.rng().random_bool(0.05) {
                let steps = [3_000, 40_000, 600_000, 3_600_000, 400_000_000];
                let step = steps[world.rng().random_range(0..steps.len())];
                world.clock_error_ms = world.rng().random_range(-step..=step);
            }
            world.run_for(SECOND);
            let today = UnixSeconds::from(world.now().unix).0;
            let mut fresh = raw_client(&mut world, second, server);
            let admitted_now = world.present(server, stranger(1), &fresh.request()).and_then(|_| {
                let challenge = world.request_challenge(server, &fresh, stranger(1));
                // A token of an earlier epoch may have been forgotten meanwhile.
                world.present(server, stranger(1), &fresh.response(&challenge))
            });
            match admitted_now {
                Ok(_) => {
                    world.present(server, stranger(1), &fresh.seal(PacketKind::Disconnect, &[])).unwrap();
                    used.push(fresh);
                    (admitted, in_a_row) = (admitted + 1, 0);
                }
                Err(reason) => {
                    assert_eq!(reason, Discard::ClockStepped, "seed {seed}, second {second}");
                    // Only if the wall clock is back in a time through which the server has lived.
                    let is_close = |lived: &u64| lived.abs_diff(today) <= 2;
                    assert!(lived.iter().any(is_close), "seed {seed}, second {second}");
                    (refused, in_a_row) = (refused + 1, in_a_row + 1);
                    longest = longest.max((in_a_row, seed));
                }
            }
            lived.push(today);
            for token in &used {
                let again = world.present(server, stranger(2), &token.request());
                assert!(again.is_err(), "seed {seed}, second {second}: a token admits twice");
            }
        }
    }
    println!(
        "{SEEDS} seeds: {admitted} fresh tokens admitted, {refused} refused, at most {longest:?} s in a row (seed)"
    );
    // A time through which the server has lived.
    assert!(admitted > 10 * refused && longest.0 <= 60, "{admitted}, {refused}, {longest:?}");
}

// The cost of a request ----------------------------------------------------------------------------------------------

#[test]
fn used_token_is_refused_before_decryption() {
    let mut world = NetcodeWorld::perfect(9);
    let server = open_server(&mut world, |config| config.budgets.decrypts = 3);
    let mut used = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut used, stranger(1));
    for _ in 0..100 {
        assert_eq!(world.present(server, stranger(1), &used.request()), Err(Discard::TokenUsed));
    }
    // Its tag suffices: nonce and ciphertext may be anything, and nothing is decrypted.
    let mut noise = used.request();
    noise[30..1000].fill(0);
    assert_eq!(world.present(server, stranger(2), &noise), Err(Discard::TokenUsed));
    let next = raw_client(&mut world, 2, server);
    for _ in 0..2 {
        assert_eq!(world.present(server, stranger(3), &next.request()), Ok(None), "the budget is unused");
    }
    assert_eq!(world.present(server, stranger(3), &next.request()), Err(Discard::GlobalBudget));
}

#[test]
fn refusal_without_decryption_uses_no_budget() {
    let mut world = NetcodeWorld::perfect(10);
    let server = open_server(&mut world, |config| config.budgets.decrypts = 3);
    let token = raw_client(&mut world, 1, server);
    let today = UnixSeconds::from(world.now().unix);
    let protocol = {
        let mut request = token.request();
        request[14] ^= 1;
        request
    };
    let cases: [(&str, Vec<u8>, Discard); 6] = [
        ("short", token.request()[..1077].to_vec(), Discard::RequestLength),
        ("another protocol", protocol, Discard::RequestProtocol),
        ("expired long ago", altered_expiry(&token, UnixSeconds(0)), Discard::TokenExpired),
        ("expires in this second", altered_expiry(&token, today), Discard::TokenExpired),
        ("46 s", altered_expiry(&token, UnixSeconds(today.0 + 46)), Discard::TokenLifetimeTooLong),
        ("never expires", altered_expiry(&token, UnixSeconds(u64::MAX)), Discard::TokenLifetimeTooLong),
    ];
    for (what, request, reason) in cases {
        for _ in 0..10 {
            assert_eq!(world.present(server, stranger(1), &request), Err(reason), "{what}");
        }
    }
    for _ in 0..3 {
        assert_eq!(world.present(server, stranger(1), &token.request()), Ok(None));
    }
    assert_eq!(world.present(server, stranger(1), &token.request()), Err(Discard::GlobalBudget));
}

#[test]
fn token_lifetime_limit_is_inclusive_and_optional() {
    let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
    for (max, lifetime, expected) in [
        (Some(Duration::from_secs(45)), 45, Ok(None)),
        (Some(Duration::from_secs(45)), 46, Err(Discard::TokenLifetimeTooLong)),
        (minutes(60), 3600, Ok(None)),
        (minutes(60), 3601, Err(Discard::TokenLifetimeTooLong)),
        (None, u32::MAX, Ok(None)),
    ] {
        let mut world = NetcodeWorld::perfect(11);
        let server = open_server(&mut world, |config| config.max_token_lifetime = max);
        let token = world.mint(&TokenSpec { lifetime, ..world.spec(1, &[server]) });
        let presented = world.present(server, stranger(1), &RawClient::new(&token).request());
        assert_eq!(presented, expected, "{lifetime} s with a maximum of {max:?}");
    }
}

#[test]
fn one_source_uses_its_own_budget_before_the_shared_one() {
    let mut world = NetcodeWorld::perfect(12);
    let server = open_server(&mut world, |config| {
        (config.budgets.decrypts_per_source, config.budgets.decrypts) = (5, 8);
    });
    let forged = |raw_client: &RawClient, byte: u8| {
        let mut request = raw_client.request();
        request[1000] ^= byte;
        request
    };
    let token = raw_client(&mut world, 1, server);
    let mut outcomes = Vec::new();
    for number in 1..=20 {
        outcomes.push(world.present(server, stranger(1), &forged(&token, number)));
    }
    assert!(outcomes[..5].iter().all(|outcome| *outcome == Err(Discard::TokenNotAuthentic)));
    assert!(outcomes[5..].iter().all(|outcome| *outcome == Err(Discard::SourceBudget)));
    // Ports do not distinguish sources: another port of the same host has no budget left.
    let same_host = address("10.200.0.2:9001");
    assert_eq!(world.present(server, same_host, &token.request()), Err(Discard::SourceBudget));
    // Three of the shared eight are left.
    for _ in 0..2 {
        assert_eq!(world.present(server, stranger(2), &forged(&token, 1)), Err(Discard::TokenNotAuthentic));
    }
    assert_eq!(world.present(server, stranger(2), &token.request()), Ok(None));
    assert_eq!(world.present(server, stranger(3), &token.request()), Err(Discard::GlobalBudget));
    // Both are full again one second later.
    world.run_for(SECOND);
    assert_eq!(world.present(server, stranger(1), &token.request()), Ok(None));
}

#[test]
fn decryption_with_three_keys_costs_three_attempts() {
    let mut world = NetcodeWorld::perfect(13);
    let server = open_server(&mut world, |config| config.budgets.decrypts = 7);
    let key = |byte| Key::from([byte; 32]);
    let ring = KeyRing::new(&[key(1), key(2), world.private_key.clone()]).unwrap();
    world.servers[server].core.set_keys(ring);
    let token = raw_client(&mut world, 1, server);
    let outcomes = [1, 2, 3].map(|number| world.present(server, stranger(number), &token.request()));
    assert_eq!(outcomes, [Ok(None), Ok(None), Err(Discard::GlobalBudget)]);
}

// Rotation of the private keys --------------------------------------------------------------------------------------

#[test]
fn key_rotation_at_run_time_drops_no_client() {
    let mut world = NetcodeWorld::perfect(14);
    let server = world.add_server(8);
    let old = world.private_key.clone();
    let new = Key::from([0x42; 32]);
    let ring = |keys: &[_]| KeyRing::new(keys).unwrap();
    let (client, _) = world.connected_client(1, server);
    let pending = raw_client(&mut world, 2, server);
    let challenge = world.request_challenge(server, &pending, stranger(2));

    // First every server gets the new key; then the issuer seals with it; then the old one is removed.
    world.servers[server].core.set_keys(ring(&[new.clone(), old.clone()]));
    let mut still_old = raw_client(&mut world, 3, server);
    world.admit_raw(server, &mut still_old, stranger(3));
    let too_late = raw_client(&mut world, 4, server);
    world.private_key = new.clone();
    let mut by_new = raw_client(&mut world, 5, server);
    world.admit_raw(server, &mut by_new, stranger(5));
    world.servers[server].core.set_keys(ring(&[new]));
    assert_eq!(world.present(server, stranger(4), &too_late.request()), Err(Discard::TokenNotAuthentic));

    let mut pending = pending;
    assert_eq!(world.present(server, stranger(2), &pending.response(&challenge)), Ok(None), "it was decrypted already");
    let payload = world.payload(40);
    world.client_sends(client, &payload).unwrap();
    world.run_for(SECOND / 10);
    assert_eq!(world.clients[client].received, [payload], "the echo arrives");
    assert_eq!((world.servers[server].core.connected_count(), world.servers[server].disconnects().len()), (4, 0));
}

// Sequence numbers --------------------------------------------------------------------------------------------------

#[test]
fn maximum_sequence_numbers_are_accepted_once() {
    let mut world = NetcodeWorld::perfect(15);
    let server = world.add_server(4);
    let mut token = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut token, stranger(1));
    let max = u64::MAX;
    let cases = [
        (max - 1030, Ok(())),
        (max - 1, Ok(())),
        (max, Ok(())),
        (max, Err(Discard::Replayed)),
        (max - 1, Err(Discard::Replayed)),
        (max - 1023, Ok(())),
        (max - 1023, Err(Discard::Replayed)),
        (max - 1024, Err(Discard::Replayed)),
        (max - 1030, Err(Discard::Replayed)),
        (0, Err(Discard::Replayed)),
    ];
    for (sequence, expected) in cases {
        let datagram = token.seal_at(sequence, PacketKind::Payload, &world.payload(10));
        let presented = world.present(server, stranger(1), &datagram).map(|payload| assert!(payload.is_some()));
        assert_eq!(presented, expected, "sequence {sequence}");
    }
}

#[test]
fn forged_sequence_number_does_not_move_the_replay_window() {
    let mut world = NetcodeWorld::perfect(16);
    let server = world.add_server(4);
    let (client, handle) = world.connected_client(1, server);
    world.run_for(SECOND / 10);
    let forged = [&[0x85], [0xff; 8].as_slice(), &[7; 60]].concat();
    let (client_at, server_at) = (world.clients[client].address, world.servers[server].address);
    world.inject(client_at, server_at, &forged);
    world.inject(server_at, client_at, &forged);
    world.turn();
    assert_eq!(world.discard_count(server, Discard::NotAuthentic), 1);
    assert_eq!(world.clients[client].core.discards()[Discard::NotAuthentic], 1);
    let (up, down) = (world.payload(9), world.payload(9));
    world.client_sends(client, &up).unwrap();
    world.server_sends(server, handle, &down).unwrap();
    world.run_for(SECOND / 10);
    assert_eq!(world.servers[server].received, [(1, up.clone())]);
    assert!(world.clients[client].received.contains(&down) && world.clients[client].received.contains(&up));
}

#[test]
fn replayed_session_has_no_effect_on_either_side() {
    let mut world = NetcodeWorld::perfect(17);
    let server = world.add_server(4);
    let (client, handle) = world.connected_client(1, server);
    for _ in 0..20 {
        let (up, down) = (world.payload(100), world.payload(100));
        world.client_sends(client, &up).unwrap();
        world.server_sends(server, handle, &down).unwrap();
        world.turn();
    }
    world.turn();
    world.turn();
    let before = (world.servers[server].events.len(), world.servers[server].received.len());
    let (states, received) = (world.clients[client].states.clone(), world.clients[client].received.len());
    for (from, to, datagram) in world.sent().to_vec() {
        // The world panics when a payload is delivered twice.
        world.inject(from, to, &datagram);
    }
    world.run_for(SECOND / 10);
    assert_eq!((world.servers[server].events.len(), world.servers[server].received.len()), before);
    assert_eq!((&world.clients[client].states, world.clients[client].received.len()), (&states, received));
    assert!(world.discard_count(server, Discard::Replayed) >= 20);
    assert!(world.clients[client].core.discards()[Discard::Replayed] >= 40);
}

#[test]
fn server_keep_alive_carries_slot_and_slot_count() {
    let mut world = NetcodeWorld::perfect(18);
    let server = world.add_server(4);
    for slot in 0..3 {
        let mut token = raw_client(&mut world, u64::from(slot), server);
        world.admit_raw(server, &mut token, stranger(slot as usize));
        let replies = world.replies_to(stranger(slot as usize));
        let opened = token.open(&replies[0]).unwrap();
        assert_eq!(opened.kind, PacketKind::KeepAlive);
        assert_eq!(KeepAlive::parse(&opened.content), Some(KeepAlive { client_index: slot.into(), max_clients: 4 }));
    }
}

#[test]
fn full_outbox_uses_no_sequence_number() {
    let mut world = NetcodeWorld::perfect(19);
    let server = world.add_server(4);
    let (client, handle) = world.connected_client(1, server);
    world.run_for(SECOND / 10);
    let now = world.now();
    let mut full = VecOutbox::with_limit(0);
    for _ in 0..5 {
        let sent = world.servers[server].core.send(handle, &[1; 20], now, &mut full);
        assert_eq!(sent, Err(PayloadError::Backlogged));
        let sent = world.clients[client].core.send(&[1; 20], now.monotonic, &mut full);
        assert_eq!(sent, Err(PayloadError::Backlogged));
    }
    let sequence = |datagram: &[u8]| PacketHeader::parse(datagram, PacketKind::TO_SERVER).unwrap().sequence;
    let last_of = |world: &NetcodeWorld, from: Address| {
        let (.., datagram) = world.sent().iter().rfind(|(at, ..)| *at == from).unwrap();
        sequence(datagram)
    };
    let (client_at, server_at) = (world.clients[client].address, world.servers[server].address);
    let before = (last_of(&world, client_at), last_of(&world, server_at));
    let (up, down) = (world.payload(9), world.payload(9));
    world.client_sends(client, &up).unwrap();
    world.server_sends(server, handle, &down).unwrap();
    assert_eq!((last_of(&world, client_at), last_of(&world, server_at)), (before.0 + 1, before.1 + 1));
}
