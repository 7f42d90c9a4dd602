//! Stories of a server that starts anew: what it has forgotten, a fence or a journal makes up for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipgate_netcode::PayloadError;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::crypto::sealed_token::{PrivateContext, open_private};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{Config, ConfigError, Fence, Server, Storage};
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::history::{Journal, JournalError, UsedToken};
use slipgate_netcode::token::issue::seal;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_netcode::wire::token::PrivateLayout;
use slipgate_tests::holder::Holder;
use slipgate_tests::world::{ServerId, TokenSpec, World, address};

const SECOND: Duration = Duration::from_secs(1);

fn stranger(number: usize) -> Address {
    address(&format!("10.200.{}.{}:9000", number / 250, number % 250 + 1))
}

fn holder(world: &mut World, client_id: u64, server: ServerId) -> Holder {
    Holder::of(&world.token(client_id, &[server]))
}

/// The same token as an issuer of another library makes it: zeros where ours writes its mint time.
fn without_mint_time(world: &World, token: &ConnectToken) -> ConnectToken {
    let (facts, nonce) = (token.facts(), token.nonce());
    let context = PrivateContext { protocol_id: facts.protocol_id, expires: facts.expires, nonce: &nonce };
    let mut sealed = token.sealed_private_part();
    let plain = open_private(&world.private_key, &context, &mut sealed).expect("our own token");
    let private = PrivateLayout::parse(plain).expect("our own layout");
    let foreign = seal(&PrivateLayout { minted: None, ..private }, &world.private_key, &context);
    let mut bytes = *token.as_bytes();
    bytes[61..61 + foreign.len()].copy_from_slice(&foreign);
    ConnectToken::from_bytes(&bytes).expect("the public face is as it was")
}

// The fence ---------------------------------------------------------------------------------------------------------

#[test]
fn a_token_that_was_used_before_a_restart_is_refused_after_it() {
    let mut world = World::perfect(1);
    let server = world.add_server_with(4, |_| {});
    let mut used = holder(&mut world, 1, server);
    world.admitted(server, &mut used, stranger(1));
    world.crash(server);
    world.turn();
    world.restart(server, None, |_| {});
    assert_eq!(world.present(server, stranger(1), &used.request()), Err(Discard::BeforeStart));
    assert_eq!(world.discarded(server, Discard::BeforeStart), 1);
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    assert_eq!(world.servers[server].core.remembered_tokens(), 0);
    // One that is minted from now on is welcome, in the very millisecond of the start or later.
    let mut fresh = holder(&mut world, 1, server);
    world.admitted(server, &mut fresh, stranger(1));
}

#[test]
fn a_token_is_fenced_by_its_mint_time_to_the_millisecond() {
    for (millis_before_start, expected) in [(16, Err(Discard::BeforeStart)), (0, Ok(None))] {
        let mut world = World::perfect(2);
        let server = world.add_server_with(4, |_| {});
        world.crash(server);
        let early = holder(&mut world, 1, server);
        if millis_before_start > 0 {
            world.turn();
        }
        world.restart(server, None, |_| {});
        let presented = world.present(server, stranger(1), &early.request());
        assert_eq!(presented, expected, "minted {millis_before_start} ms before the start");
    }
}

#[test]
fn a_token_without_a_mint_time_passes_once_it_must_have_been_minted_after_the_start() {
    // With a maximum lifetime of 45 s a token that lives 30 s may be 15 s older than it is.
    for (lifetime, seconds_after_start, expected) in [
        (45, 0, Ok(None)),
        (44, 0, Err(Discard::BeforeStart)),
        (30, 0, Err(Discard::BeforeStart)),
        (30, 14, Err(Discard::BeforeStart)),
        (30, 16, Ok(None)),
        (10, 34, Err(Discard::BeforeStart)),
        (10, 36, Ok(None)),
    ] {
        let mut world = World::perfect(3);
        let server = world.add_server_with(4, |_| {});
        world.run_for(Duration::from_secs(seconds_after_start));
        let token = world.mint(&TokenSpec { lifetime, ..world.spec(1, &[server]) });
        let foreign = Holder::of(&without_mint_time(&world, &token));
        let presented = world.present(server, stranger(1), &foreign.request());
        assert_eq!(presented, expected, "{lifetime} s, minted {seconds_after_start} s after the start");
        // Ours says when it was minted, and passes at once.
        let ours = world.mint(&TokenSpec { lifetime, ..world.spec(2, &[server]) });
        assert_eq!(world.present(server, stranger(2), &Holder::of(&ours).request()), Ok(None));
    }
}

#[test]
fn without_a_maximum_lifetime_a_fence_refuses_every_token_without_a_mint_time() {
    let mut world = World::perfect(4);
    let server = world.add_server_with(4, |config| config.max_token_lifetime = None);
    world.run_for(100 * SECOND);
    let token = world.token(1, &[server]);
    let foreign = Holder::of(&without_mint_time(&world, &token));
    assert_eq!(world.present(server, stranger(1), &foreign.request()), Err(Discard::BeforeStart));
    assert_eq!(world.present(server, stranger(2), &Holder::of(&token).request()), Ok(None));
}

#[test]
fn an_open_fence_lets_the_first_start_of_an_instance_admit_tokens_from_before_it() {
    let mut world = World::perfect(5);
    let server = world.add_server(4);
    world.crash(server);
    let token = world.token(1, &[server]);
    let ours = world.token(2, &[server]);
    let foreign = without_mint_time(&world, &ours);
    world.run_for(10 * SECOND);
    world.restart(server, None, |config| config.fence = Fence::Open);
    world.admitted(server, &mut Holder::of(&token), stranger(1));
    world.admitted(server, &mut Holder::of(&foreign), stranger(2));
}

#[test]
fn a_client_of_a_server_that_restarts_connects_again_with_a_new_token() {
    let mut world = World::perfect(6);
    let server = world.add_server_with(4, |_| {});
    world.turn();
    let (client, _) = world.connected_client(1, server);
    let payload = world.payload(30);
    world.client_sends(client, &payload).unwrap();
    world.run_for(SECOND);
    world.crash(server);
    world.run_for(SECOND);
    world.restart(server, None, |_| {});
    // To the new start its packets are a stranger's.
    world.run_until(6 * SECOND, |world| world.state(client) == ClientState::TimedOut);
    assert!(world.discarded(server, Discard::UnknownSender) > 10);
    let token = world.token(1, &[server]);
    world.connect(client, token);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
}

#[test]
fn a_challenge_of_an_earlier_start_admits_nobody() {
    let mut world = World::perfect(7);
    let server = world.add_server(4);
    let mut holder = holder(&mut world, 1, server);
    let earlier = world.challenged(server, &holder, stranger(1));
    world.crash(server);
    world.restart(server, None, |_| {});
    assert_eq!(world.present(server, stranger(1), &holder.response(&earlier)), Err(Discard::UnknownSender));
    world.challenged(server, &holder, stranger(1));
    let response = holder.response(&earlier);
    assert_eq!(world.present(server, stranger(1), &response), Err(Discard::ChallengeNotAuthentic));
}

// Clocks that disagree ----------------------------------------------------------------------------------------------

#[test]
fn a_server_whose_clock_is_ahead_refuses_fresh_tokens_until_the_issuer_has_caught_up() {
    let mut world = World::perfect(8);
    world.clock_error_ms = 5_000;
    let server = world.add_server_with(4, |_| {});
    for (seconds, expected) in [(0, Err(Discard::BeforeStart)), (4, Err(Discard::BeforeStart)), (2, Ok(None))] {
        world.run_for(Duration::from_secs(seconds));
        // The issuer's clock is right.
        world.clock_error_ms = 0;
        let token = holder(&mut world, seconds, server);
        world.clock_error_ms = 5_000;
        assert_eq!(world.present(server, stranger(1), &token.request()), expected, "{seconds} s later");
    }
}

#[test]
fn a_server_that_starts_with_a_clock_that_is_years_behind_still_knows_when_it_started() {
    let mut world = World::perfect(12);
    let server = world.add_server_with(4, |_| {});
    let mut used = holder(&mut world, 1, server);
    world.admitted(server, &mut used, stranger(1));
    world.crash(server);
    // The machine starts anew without a battery for its clock, and learns the time when the server runs already.
    world.turn();
    world.clock_error_ms = -100_000_000_000;
    world.restart(server, None, |_| {});
    world.run_for(Duration::from_secs(2));
    world.clock_error_ms = 0;
    assert_eq!(world.present(server, stranger(1), &used.request()), Err(Discard::BeforeStart));
    let mut fresh = holder(&mut world, 1, server);
    world.admitted(server, &mut fresh, stranger(1));
}

#[test]
fn a_server_whose_clock_is_behind_refuses_tokens_that_seem_to_live_too_long_and_counts_them() {
    for (behind_ms, expected) in [(10_000, Ok(None)), (16_000, Err(Discard::TokenTooLong))] {
        let mut world = World::perfect(9);
        world.clock_error_ms = -behind_ms;
        let server = world.add_server_with(4, |_| {});
        world.clock_error_ms = 0;
        let token = holder(&mut world, 1, server);
        world.clock_error_ms = -behind_ms;
        assert_eq!(world.present(server, stranger(1), &token.request()), expected, "{behind_ms} ms behind");
    }
}

#[test]
fn a_wall_clock_that_jumps_in_the_middle_of_a_session_ends_no_session() {
    let mut world = World::perfect(10);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    for error in [86_400_000, -86_400_000, 0] {
        world.clock_error_ms = error;
        world.run_for(2 * SECOND);
        assert_eq!((world.state(client), world.servers[server].core.connected()), (ClientState::Connected, 1));
    }
}

// The journal -------------------------------------------------------------------------------------------------------

/// What a storage device keeps, and how it fails.
#[derive(Clone, Default)]
struct Device(Arc<Mutex<DeviceState>>);

#[derive(Default)]
struct DeviceState {
    /// Written, and lost at a crash.
    written: Vec<UsedToken>,
    durable: Vec<UsedToken>,
    /// How many records of this start are durable.
    flushed: u64,
    write_fails: bool,
    flush_fails: bool,
    /// It flushes for somebody else.
    is_busy: bool,
    /// So many records at a time.
    at_a_time: Option<usize>,
    flushes: usize,
}

impl Device {
    fn with<T>(&self, look: impl FnOnce(&mut DeviceState) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// What a start with this device gets: all that survived the crash.
    fn storage(&self) -> Storage {
        self.with(|device| {
            device.written.clear();
            device.flushed = 0;
        });
        let used = self.with(|device| device.durable.clone());
        Storage { journal: Box::new(self.clone()), names: [9; 32], used }
    }
}

impl Journal for Device {
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError> {
        self.with(|device| {
            device.written.push(used);
            if device.write_fails { Err(JournalError) } else { Ok(()) }
        })
    }

    fn flush(&mut self) -> Result<u64, JournalError> {
        self.with(|device| {
            device.flushes += 1;
            if device.is_busy {
                return Ok(device.flushed);
            }
            if device.flush_fails {
                return Err(JournalError);
            }
            let count = device.at_a_time.unwrap_or(usize::MAX).min(device.written.len());
            let written: Vec<_> = device.written.drain(..count).collect();
            device.flushed += written.len() as u64;
            device.durable.extend(written);
            Ok(device.flushed)
        })
    }
}

/// A server with a journal, started anew in a world of its own.
fn with_journal(seed: u64) -> (World, ServerId, Device) {
    let mut world = World::perfect(seed);
    let server = world.add_server(4);
    let device = Device::default();
    world.restart(server, Some(device.storage()), |_| {});
    (world, server, device)
}

fn restart(world: &mut World, server: ServerId, device: &Device) {
    world.crash(server);
    world.turn();
    world.restart(server, Some(device.storage()), |config| config.fence = Fence::Open);
}

#[test]
fn with_a_journal_a_used_token_stays_used_across_restarts_and_unused_ones_pass() {
    let (mut world, server, device) = with_journal(11);
    let mut used = holder(&mut world, 1, server);
    let mut unused = holder(&mut world, 2, server);
    let mut only_pending = holder(&mut world, 3, server);
    world.challenged(server, &only_pending, stranger(3));
    world.admitted(server, &mut used, stranger(1));
    world.replies_to(stranger(1));
    for _ in 0..3 {
        restart(&mut world, server, &device);
        for place in [1, 2] {
            assert_eq!(world.present(server, stranger(place), &used.request()), Err(Discard::TokenUsed));
        }
    }
    world.admitted(server, &mut unused, stranger(2));
    world.admitted(server, &mut only_pending, stranger(3));
    world.turn();
    assert_eq!(device.with(|device| device.durable.len()), 3);
}

#[test]
fn a_journal_fences_what_is_older_than_itself_and_nothing_that_is_younger_than_a_start() {
    let mut world = World::perfect(19);
    let server = world.add_server(4);
    let (before, foreign) = (world.token(1, &[server]), world.token(2, &[server]));
    let foreign = without_mint_time(&world, &foreign);
    world.turn();
    let (device, since) = (Device::default(), world.now().unix);
    world.restart(server, Some(device.storage()), |config| config.fence = Fence::Since(since));
    let mut after = holder(&mut world, 3, server);
    world.run_for(SECOND);
    world.restart(server, Some(device.storage()), |_| {});
    for token in [before, foreign] {
        let presented = world.present(server, stranger(1), &Holder::of(&token).request());
        assert_eq!(presented, Err(Discard::BeforeStart));
    }
    world.admitted(server, &mut after, stranger(3));
}

#[test]
fn a_client_gets_no_slot_while_the_journal_cannot_be_written() {
    let (mut world, server, device) = with_journal(12);
    let mut token = holder(&mut world, 1, server);
    let challenge = world.challenged(server, &token, stranger(1));
    device.with(|device| device.write_fails = true);
    assert_eq!(world.present(server, stranger(1), &token.response(&challenge)), Err(Discard::HistoryUnavailable));
    assert_eq!(world.servers[server].core.connected(), 0);
    assert_eq!(world.servers[server].events, []);
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    assert_eq!(world.servers[server].core.stats().journal_failures, 1);
    // The same response is good as soon as the device is.
    device.with(|device| device.write_fails = false);
    assert_eq!(world.present(server, stranger(1), &token.response(&challenge)), Ok(None));
    assert_eq!(world.servers[server].core.connected(), 1);
}

#[test]
fn nothing_tells_a_client_of_its_slot_before_its_used_token_is_durable() {
    let (mut world, server, device) = with_journal(13);
    let mut token = holder(&mut world, 1, server);
    device.with(|device| device.flush_fails = true);
    let handle = world.admitted(server, &mut token, stranger(1));
    for _ in 0..30 {
        let payload = world.payload(30);
        assert_eq!(world.server_sends(server, handle, &payload), Err(PayloadError::Backlogged));
        world.turn();
    }
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    assert!(world.servers[server].core.stats().journal_failures > 30);
    // After a crash in this state the token is as good as new: nothing was sealed with it.
    restart(&mut world, server, &device);
    device.with(|device| device.flush_fails = false);
    world.admitted(server, &mut token, stranger(1));
    let replies = world.replies_to(stranger(1));
    assert_eq!(token.open(&replies[0]).map(|opened| (opened.kind, opened.sequence)), Some((PacketKind::KeepAlive, 0)));
}

#[test]
fn while_the_journal_is_busy_a_newcomer_is_told_nothing_and_that_is_no_failure() {
    let (mut world, server, device) = with_journal(20);
    let mut token = holder(&mut world, 1, server);
    device.with(|device| device.is_busy = true);
    let handle = world.admitted(server, &mut token, stranger(1));
    for _ in 0..30 {
        let payload = world.payload(30);
        assert_eq!(world.server_sends(server, handle, &payload), Err(PayloadError::Backlogged));
        world.turn();
    }
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    assert_eq!(world.servers[server].core.stats().journal_failures, 0);
    assert_eq!(world.servers[server].events, [], "the application could not send to it");
    device.with(|device| device.is_busy = false);
    world.turn();
    world.turn();
    assert_eq!(world.servers[server].connects(), 1);
    let replies = world.replies_to(stranger(1));
    assert_eq!(token.open(&replies[0]).map(|opened| (opened.kind, opened.sequence)), Some((PacketKind::KeepAlive, 0)));
    assert_eq!(device.with(|device| device.durable.len()), 1);
}

#[test]
fn those_whose_tokens_are_durable_are_told_while_others_wait() {
    let (mut world, server, device) = with_journal(21);
    device.with(|device| device.is_busy = true);
    let mut tokens: Vec<_> = (0..4).map(|id| holder(&mut world, id, server)).collect();
    let admit = |(token, place): (&mut Holder, u16)| world.admitted(server, token, stranger(place.into()));
    let handles: Vec<_> = tokens.iter_mut().zip(0..).map(admit).collect();
    assert_eq!(world.servers[server].connects(), 0);
    device.with(|device| (device.is_busy, device.at_a_time) = (false, Some(1)));
    // Each turn makes one of them durable, the first one first.
    for told in 1..=4 {
        world.turn();
        let core = &world.servers[server].core;
        let announced: Vec<_> = handles.iter().map(|handle| core.is_announced(*handle)).collect();
        assert_eq!(announced, (0..4).map(|place| place < told).collect::<Vec<_>>());
    }
    world.turn();
    assert_eq!(world.servers[server].connects(), 4);
    assert_eq!(world.replies_to(stranger(3)).len(), 1);
}

#[test]
fn what_a_client_says_of_whom_nobody_was_told_goes_nowhere() {
    let (mut world, server, device) = with_journal(22);
    let mut token = holder(&mut world, 1, server);
    device.with(|device| device.is_busy = true);
    let handle = world.admitted(server, &mut token, stranger(1));
    assert!(!world.servers[server].core.is_announced(handle));
    let payload = token.seal(PacketKind::Payload, b"too early");
    assert_eq!(world.present(server, stranger(1), &payload), Ok(None));
    device.with(|device| device.is_busy = false);
    world.turn();
    assert!(world.servers[server].core.is_announced(handle));
    let payload = token.seal(PacketKind::Payload, b"in time");
    assert_eq!(world.present(server, stranger(1), &payload), Ok(Some(b"in time".to_vec())));
}

#[test]
fn a_client_that_confirms_before_it_is_told_is_told_no_sooner() {
    let (mut world, server, device) = with_journal(18);
    let mut token = holder(&mut world, 1, server);
    device.with(|device| device.flush_fails = true);
    let handle = world.admitted(server, &mut token, stranger(1));
    let keep_alive = token.keep_alive();
    assert_eq!(world.present(server, stranger(1), &keep_alive), Ok(None));
    let payload = world.payload(30);
    assert_eq!(world.server_sends(server, handle, &payload), Err(PayloadError::Backlogged));
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    device.with(|device| device.flush_fails = false);
    world.server_sends(server, handle, &payload).unwrap();
    assert_eq!(world.replies_to(stranger(1)).len(), 2);
}

#[test]
fn a_client_that_is_kicked_before_its_used_token_is_durable_is_not_told_so() {
    let (mut world, server, device) = with_journal(14);
    let mut token = holder(&mut world, 1, server);
    device.with(|device| device.flush_fails = true);
    let handle = world.admitted(server, &mut token, stranger(1));
    world.turn();
    assert!(world.servers[server].core.disconnect(handle));
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    assert!(!world.servers[server].core.owes());
    assert_eq!(world.servers[server].events, [], "the application was never told of it either");
    // The wiretap would see a number used twice: the disconnect packets', and this session's.
    restart(&mut world, server, &device);
    device.with(|device| device.flush_fails = false);
    world.admitted(server, &mut token, stranger(1));
    assert_eq!(world.replies_to(stranger(1)).len(), 1);
}

#[test]
fn a_device_that_fails_for_a_while_delays_newcomers_and_nobody_else() {
    let (mut world, server, device) = with_journal(15);
    let (client, _) = world.connected_client(1, server);
    world.run_for(SECOND / 10);
    device.with(|device| device.flush_fails = true);
    let mut unlucky = holder(&mut world, 2, server);
    world.admitted(server, &mut unlucky, stranger(2));
    // Longer than a time-out: keep-alives and payloads of others go on.
    world.run_for(6 * SECOND);
    assert_eq!(world.state(client), ClientState::Connected);
    let payload = world.payload(30);
    world.client_sends(client, &payload).unwrap();
    let (newcomer, token) = (world.add_client(), world.token(3, &[server]));
    world.connect(newcomer, token);
    world.run_for(SECOND);
    assert_eq!(world.clients[client].received, [payload]);
    assert_eq!(world.state(newcomer), ClientState::SendingResponse);
    device.with(|device| device.flush_fails = false);
    world.run_until(SECOND, |world| world.state(newcomer) == ClientState::Connected);
}

#[test]
fn a_turn_makes_all_its_newcomers_durable_at_once() {
    let (mut world, server, device) = with_journal(16);
    let tokens: Vec<_> = (0..4).map(|id| (world.add_client(), world.token(id, &[server]))).collect();
    for (client, token) in tokens {
        world.connect(client, token);
    }
    world.run_for(SECOND);
    assert_eq!(world.servers[server].core.connected(), 4);
    assert_eq!(device.with(|device| (device.flushes, device.durable.len())), (1, 4));
}

#[test]
fn a_journal_with_more_tokens_than_the_history_has_room_for_starts_no_server() {
    let world = World::perfect(17);
    let used = (0..5).map(|number| UsedToken {
        name: slipgate_netcode::crypto::digest::Digest([number; 16]),
        expires: UnixSeconds(world.now().unix.seconds().0 + 30),
    });
    let storage = Storage { journal: Box::new(Device::default()), names: [9; 32], used: used.collect() };
    let config = Config { history_tokens: 4, ..Config::new(1, 4, vec![stranger(0)]) };
    let keys = world.private_key.clone().into();
    let started = Server::with_storage(config, keys, &Seed::from_bytes([1; 32]), world.now(), storage);
    assert_eq!(started.err(), Some(ConfigError::JournalTooLarge));
}
