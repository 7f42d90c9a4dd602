//! A server restarts without its memory: a token cutoff or a journal makes up for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use slipgate_netcode::PayloadError;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::crypto::sealed_token::{PrivateContext, open_private};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::handshake::HandshakeOutcome;
use slipgate_netcode::server::{NetcodeServer, ServerConfig, ServerConfigError, TokenCutoff, TokenStorage};
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::history::{Journal, JournalError, KeptTokens, UsedToken};
use slipgate_netcode::token::issue::seal;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_netcode::wire::token::PrivateLayout;
use slipgate_tests::netcode_world::{NetcodeWorld, ServerId, TokenSpec, address};
use slipgate_tests::raw_client::RawClient;

const SECOND: Duration = Duration::from_secs(1);

fn stranger(number: usize) -> Address {
    address(&format!("10.200.{}.{}:9000", number / 250, number % 250 + 1))
}

fn raw_client(world: &mut NetcodeWorld, client_id: u64, server: ServerId) -> RawClient {
    RawClient::new(&world.token(client_id, &[server]))
}

/// Returns the same token as another issuer makes it: zeros in place of our mint time.
fn without_mint_time(world: &NetcodeWorld, token: &ConnectToken) -> ConnectToken {
    let (facts, nonce) = (token.facts(), *token.request().nonce);
    let context = PrivateContext { protocol_id: facts.protocol_id, expires: facts.expires, nonce: &nonce };
    let mut sealed = *token.request().sealed;
    let plain = open_private(&world.private_key, &context, &mut sealed).expect("our own token opens");
    let private = PrivateLayout::parse(plain).expect("our own layout parses");
    let foreign = seal(&PrivateLayout { minted: None, ..private }, &world.private_key, &context);
    let mut bytes = *token.as_bytes();
    bytes[61..61 + foreign.len()].copy_from_slice(&foreign);
    ConnectToken::from_bytes(&bytes).expect("the public part is unchanged")
}

// The token cutoff --------------------------------------------------------------------------------------------------

#[test]
fn used_token_is_refused_after_a_restart() {
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server_with(4, |_| {});
    let mut used = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut used, stranger(1));
    world.crash(server);
    world.turn();
    world.restart(server, None, |_| {});
    assert_eq!(world.present(server, stranger(1), &used.request()), Err(Discard::BeforeStart));
    assert_eq!(world.discard_count(server, Discard::BeforeStart), 1);
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    assert_eq!(world.servers[server].core.table_usage().used_tokens, 0);
    // A token minted from now on is accepted, even in the millisecond of the start.
    let mut fresh = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut fresh, stranger(1));
}

#[test]
fn token_cutoff_compares_mint_time_in_milliseconds() {
    for (millis_before_start, expected) in [(16, Err(Discard::BeforeStart)), (0, Ok(None))] {
        let mut world = NetcodeWorld::perfect(2);
        let server = world.add_server_with(4, |_| {});
        world.crash(server);
        let early = raw_client(&mut world, 1, server);
        if millis_before_start > 0 {
            world.turn();
        }
        world.restart(server, None, |_| {});
        let presented = world.present(server, stranger(1), &early.request());
        assert_eq!(presented, expected, "minted {millis_before_start} ms before the start");
    }
}

#[test]
fn token_without_mint_time_passes_when_surely_newer() {
    // A token with a lifetime of 30 s may be 15 s older than it appears, if the maximum is 45 s.
    for (lifetime, seconds_after_start, expected) in [
        (45, 0, Ok(None)),
        (44, 0, Err(Discard::BeforeStart)),
        (30, 0, Err(Discard::BeforeStart)),
        (30, 14, Err(Discard::BeforeStart)),
        (30, 16, Ok(None)),
        (10, 34, Err(Discard::BeforeStart)),
        (10, 36, Ok(None)),
    ] {
        let mut world = NetcodeWorld::perfect(3);
        let server = world.add_server_with(4, |_| {});
        world.run_for(Duration::from_secs(seconds_after_start));
        let token = world.mint(&TokenSpec { lifetime, ..world.spec(1, &[server]) });
        let foreign = RawClient::new(&without_mint_time(&world, &token));
        let presented = world.present(server, stranger(1), &foreign.request());
        assert_eq!(presented, expected, "{lifetime} s, minted {seconds_after_start} s after the start");
        // Our token carries its mint time, and passes at once.
        let ours = world.mint(&TokenSpec { lifetime, ..world.spec(2, &[server]) });
        assert_eq!(world.present(server, stranger(2), &RawClient::new(&ours).request()), Ok(None));
    }
}

#[test]
fn unlimited_lifetime_refuses_tokens_without_mint_time() {
    let mut world = NetcodeWorld::perfect(4);
    let server = world.add_server_with(4, |config| config.max_token_lifetime = None);
    world.run_for(100 * SECOND);
    let token = world.token(1, &[server]);
    let foreign = RawClient::new(&without_mint_time(&world, &token));
    assert_eq!(world.present(server, stranger(1), &foreign.request()), Err(Discard::BeforeStart));
    assert_eq!(world.present(server, stranger(2), &RawClient::new(&token).request()), Ok(None));
}

#[test]
fn disabled_cutoff_admits_tokens_from_before_the_start() {
    let mut world = NetcodeWorld::perfect(5);
    let server = world.add_server(4);
    world.crash(server);
    let token = world.token(1, &[server]);
    let ours = world.token(2, &[server]);
    let foreign = without_mint_time(&world, &ours);
    world.run_for(10 * SECOND);
    world.restart(server, None, |config| config.token_cutoff = TokenCutoff::None);
    world.admit_raw(server, &mut RawClient::new(&token), stranger(1));
    world.admit_raw(server, &mut RawClient::new(&foreign), stranger(2));
}

#[test]
fn client_reconnects_with_a_new_token_after_a_restart() {
    let mut world = NetcodeWorld::perfect(6);
    let server = world.add_server_with(4, |_| {});
    world.turn();
    let (client, _) = world.connected_client(1, server);
    let payload = world.payload(30);
    world.client_sends(client, &payload).unwrap();
    world.run_for(SECOND);
    world.crash(server);
    world.run_for(SECOND);
    world.restart(server, None, |_| {});
    // The new start considers its packets those of a stranger.
    world.run_until(6 * SECOND, |world| world.state(client) == ClientState::TimedOut);
    assert!(world.discard_count(server, Discard::UnknownSender) > 10);
    let token = world.token(1, &[server]);
    world.connect(client, token);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
}

#[test]
fn challenge_of_an_earlier_start_is_discarded() {
    let mut world = NetcodeWorld::perfect(7);
    let server = world.add_server(4);
    let mut raw_client = raw_client(&mut world, 1, server);
    let earlier = world.request_challenge(server, &raw_client, stranger(1));
    world.crash(server);
    world.restart(server, None, |_| {});
    assert_eq!(world.present(server, stranger(1), &raw_client.response(&earlier)), Err(Discard::UnknownSender));
    world.request_challenge(server, &raw_client, stranger(1));
    let response = raw_client.response(&earlier);
    assert_eq!(world.present(server, stranger(1), &response), Err(Discard::ChallengeNotAuthentic));
}

// Clocks that disagree ----------------------------------------------------------------------------------------------

#[test]
fn server_clock_ahead_refuses_tokens_until_issuer_catches_up() {
    let mut world = NetcodeWorld::perfect(8);
    world.clock_error_ms = 5_000;
    let server = world.add_server_with(4, |_| {});
    for (seconds, expected) in [(0, Err(Discard::BeforeStart)), (4, Err(Discard::BeforeStart)), (2, Ok(None))] {
        world.run_for(Duration::from_secs(seconds));
        // The clock of the issuer is right.
        world.clock_error_ms = 0;
        let token = raw_client(&mut world, seconds, server);
        world.clock_error_ms = 5_000;
        assert_eq!(world.present(server, stranger(1), &token.request()), expected, "{seconds} s later");
    }
}

#[test]
fn clock_corrected_by_years_keeps_the_start_time() {
    let mut world = NetcodeWorld::perfect(12);
    let server = world.add_server_with(4, |_| {});
    let mut used = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut used, stranger(1));
    world.crash(server);
    // The machine boots without a battery for its clock, and corrects the time while the server runs.
    world.turn();
    world.clock_error_ms = -100_000_000_000;
    world.restart(server, None, |_| {});
    world.run_for(Duration::from_secs(2));
    world.clock_error_ms = 0;
    assert_eq!(world.present(server, stranger(1), &used.request()), Err(Discard::BeforeStart));
    let mut fresh = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut fresh, stranger(1));
}

#[test]
fn start_with_a_clock_ahead_locks_no_fresh_token_out() {
    for seconds_ahead in [3, 45, 600, 3600, 86_400] {
        let mut world = NetcodeWorld::perfect(13);
        let server = world.add_server_with(4, |_| {});
        let mut used = raw_client(&mut world, 1, server);
        world.admit_raw(server, &mut used, stranger(1));
        world.crash(server);
        world.turn();
        world.clock_error_ms = seconds_ahead * 1000;
        world.restart(server, None, |_| {});
        world.run_for(5 * SECOND);
        world.clock_error_ms = 0;
        let refused = world.present(server, stranger(1), &used.request());
        assert_eq!(refused, Err(Discard::BeforeStart), "{seconds_ahead} s ahead");
        let mut fresh = raw_client(&mut world, 2, server);
        world.admit_raw(server, &mut fresh, stranger(2));
    }
}

#[test]
fn server_clock_behind_refuses_and_counts_long_lived_tokens() {
    for (behind_ms, expected) in [(10_000, Ok(None)), (16_000, Err(Discard::TokenLifetimeTooLong))] {
        let mut world = NetcodeWorld::perfect(9);
        world.clock_error_ms = -behind_ms;
        let server = world.add_server_with(4, |_| {});
        world.clock_error_ms = 0;
        let token = raw_client(&mut world, 1, server);
        world.clock_error_ms = -behind_ms;
        assert_eq!(world.present(server, stranger(1), &token.request()), expected, "{behind_ms} ms behind");
    }
}

#[test]
fn wall_clock_jump_ends_no_session() {
    let mut world = NetcodeWorld::perfect(10);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    for error in [86_400_000, -86_400_000, 0] {
        world.clock_error_ms = error;
        world.run_for(2 * SECOND);
        assert_eq!((world.state(client), world.servers[server].core.connected_count()), (ClientState::Connected, 1));
    }
}

// The journal -------------------------------------------------------------------------------------------------------

/// The records of a storage device, and its failures.
#[derive(Clone, Default)]
struct Device(Arc<Mutex<DeviceState>>);

#[derive(Default)]
struct DeviceState {
    /// Records that a crash loses.
    written: Vec<UsedToken>,
    durable: Vec<UsedToken>,
    /// The number of durable records of this start.
    flushed: u64,
    write_fails: bool,
    flush_fails: bool,
    /// The device is busy with another flush.
    is_busy: bool,
    /// The journal accepts no records for the moment.
    is_full: bool,
    /// The maximum number of records per flush.
    at_a_time: Option<usize>,
    flushes: usize,
}

/// Returns what a device that drops no record has of earlier starts.
fn kept(used: Vec<UsedToken>) -> KeptTokens {
    KeptTokens { names: [9; 32], used, dropped_until: UnixSeconds(0) }
}

impl Device {
    fn with<T>(&self, look: impl FnOnce(&mut DeviceState) -> T) -> T {
        look(&mut self.0.lock().unwrap())
    }

    /// Returns the storage of a start with this device: all that survived the crash.
    fn storage(&self) -> TokenStorage {
        self.with(|device| {
            device.written.clear();
            device.flushed = 0;
        });
        let used = self.with(|device| device.durable.clone());
        TokenStorage { journal: Box::new(self.clone()), kept: kept(used) }
    }
}

impl Journal for Device {
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError> {
        self.with(|device| {
            device.written.push(used);
            if device.write_fails { Err(JournalError) } else { Ok(()) }
        })
    }

    fn is_busy(&self) -> bool {
        self.with(|device| device.is_full)
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

/// Creates a world with a server that has a journal, and that has restarted.
fn with_journal(seed: u64) -> (NetcodeWorld, ServerId, Device) {
    let mut world = NetcodeWorld::perfect(seed);
    let server = world.add_server(4);
    let device = Device::default();
    world.restart(server, Some(device.storage()), |_| {});
    (world, server, device)
}

fn restart(world: &mut NetcodeWorld, server: ServerId, device: &Device) {
    world.crash(server);
    world.turn();
    world.restart(server, Some(device.storage()), |config| config.token_cutoff = TokenCutoff::None);
}

#[test]
fn journal_keeps_used_tokens_and_admits_unused_ones() {
    let (mut world, server, device) = with_journal(11);
    let mut used = raw_client(&mut world, 1, server);
    let mut unused = raw_client(&mut world, 2, server);
    let mut only_pending = raw_client(&mut world, 3, server);
    world.request_challenge(server, &only_pending, stranger(3));
    world.admit_raw(server, &mut used, stranger(1));
    world.replies_to(stranger(1));
    for _ in 0..3 {
        restart(&mut world, server, &device);
        for index in [1, 2] {
            assert_eq!(world.present(server, stranger(index), &used.request()), Err(Discard::TokenUsed));
        }
    }
    world.admit_raw(server, &mut unused, stranger(2));
    world.admit_raw(server, &mut only_pending, stranger(3));
    world.turn();
    assert_eq!(device.with(|device| device.durable.len()), 3);
}

#[test]
fn journal_cuts_off_only_tokens_older_than_itself() {
    let mut world = NetcodeWorld::perfect(19);
    let server = world.add_server(4);
    let (before, foreign) = (world.token(1, &[server]), world.token(2, &[server]));
    let foreign = without_mint_time(&world, &foreign);
    world.turn();
    let (device, since) = (Device::default(), world.now().unix);
    world.restart(server, Some(device.storage()), |config| config.token_cutoff = TokenCutoff::At(since));
    let mut after = raw_client(&mut world, 3, server);
    world.run_for(SECOND);
    world.restart(server, Some(device.storage()), |_| {});
    for token in [before, foreign] {
        let presented = world.present(server, stranger(1), &RawClient::new(&token).request());
        assert_eq!(presented, Err(Discard::BeforeStart));
    }
    world.admit_raw(server, &mut after, stranger(3));
}

#[test]
fn failed_journal_write_admits_no_client() {
    let (mut world, server, device) = with_journal(12);
    let mut token = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &token, stranger(1));
    device.with(|device| device.write_fails = true);
    assert_eq!(world.present(server, stranger(1), &token.response(&challenge)), Err(Discard::HistoryUnavailable));
    assert_eq!(world.servers[server].core.connected_count(), 0);
    assert_eq!(world.servers[server].events, []);
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    assert_eq!(world.servers[server].core.stats().journal_failures, 1);
    // The same response admits the client as soon as the device works.
    device.with(|device| device.write_fails = false);
    assert_eq!(world.present(server, stranger(1), &token.response(&challenge)), Ok(None));
    world.turn();
    assert_eq!(world.servers[server].core.connected_count(), 1);
}

#[test]
fn journal_that_accepts_no_records_admits_no_client() {
    let (mut world, server, device) = with_journal(24);
    let mut token = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &token, stranger(1));
    for (is_full, result) in [(true, Err(Discard::HistoryUnavailable)), (false, Ok(None))] {
        device.with(|device| device.is_full = is_full);
        assert_eq!(world.servers[server].core.table_usage().is_journal_busy, is_full);
        assert_eq!(world.present(server, stranger(1), &token.response(&challenge)), result);
        world.turn();
        let stats = world.servers[server].core.stats();
        assert_eq!((stats.connects, stats.journal_failures), (u64::from(!is_full), 0));
    }
}

#[test]
fn failed_journal_writes_give_slots_and_client_ids_back() {
    let (mut world, server, device) = with_journal(23);
    // The server has 4 slots.
    let mut tokens: Vec<_> = (0..8).map(|id| raw_client(&mut world, id, server)).collect();
    device.with(|device| device.write_fails = true);
    for (token, from) in tokens.iter_mut().zip(1..) {
        let challenge = world.request_challenge(server, token, stranger(from));
        assert_eq!(
            world.present(server, stranger(from), &token.response(&challenge)),
            Err(Discard::HistoryUnavailable)
        );
    }
    assert_eq!(world.servers[server].core.stats().journal_failures, 8);
    assert_eq!(
        (world.servers[server].core.connected_count(), world.servers[server].core.table_usage().used_tokens),
        (0, 0)
    );
    device.with(|device| device.write_fails = false);
    // The pending entries expire.
    world.run_for(6 * SECOND);
    for (token, from) in tokens.iter_mut().take(4).zip(11..) {
        world.admit_raw(server, token, stranger(from));
    }
    assert_eq!(world.servers[server].core.connected_count(), 4);
}

#[test]
fn takeover_that_cannot_be_recorded_changes_nothing() {
    let (mut world, server, device) = with_journal(24);
    world.restart(server, Some(device.storage()), |config| config.takeover_after = Some(SECOND));
    let mut old = raw_client(&mut world, 1, server);
    let handle = world.admit_raw(server, &mut old, stranger(1));
    world.run_for(2 * SECOND);
    let mut new = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &new, stranger(2));
    device.with(|device| device.write_fails = true);
    assert_eq!(world.present(server, stranger(2), &new.response(&challenge)), Err(Discard::HistoryUnavailable));
    assert!(world.servers[server].core.client(handle).is_some(), "the predecessor keeps its slot");
    device.with(|device| device.write_fails = false);
    // Only the index of the predecessor is used: three more clients fit beside it.
    for id in 2..5 {
        let mut other = raw_client(&mut world, id, server);
        world.admit_raw(server, &mut other, stranger(10 + id as usize));
    }
    let taken_over = world.admit_raw(server, &mut new, stranger(2));
    assert!(world.servers[server].core.client(handle).is_none());
    assert!(world.servers[server].core.client(taken_over).is_some());
    assert_eq!(world.servers[server].core.connected_count(), 4);
}

#[test]
fn client_learns_its_slot_only_after_the_token_is_durable() {
    let (mut world, server, device) = with_journal(13);
    let mut token = raw_client(&mut world, 1, server);
    device.with(|device| device.flush_fails = true);
    let handle = world.admit_raw(server, &mut token, stranger(1));
    for _ in 0..30 {
        let payload = world.payload(30);
        assert_eq!(world.server_sends(server, handle, &payload), Err(PayloadError::Backlogged));
        world.turn();
    }
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    assert!(world.servers[server].core.stats().journal_failures > 30);
    // The token is unused after a crash in this state: nothing was sealed with it.
    restart(&mut world, server, &device);
    device.with(|device| device.flush_fails = false);
    world.admit_raw(server, &mut token, stranger(1));
    let replies = world.replies_to(stranger(1));
    assert_eq!(token.open(&replies[0]).map(|opened| (opened.kind, opened.sequence)), Some((PacketKind::KeepAlive, 0)));
}

#[test]
fn busy_journal_delays_a_new_client_without_failure() {
    let (mut world, server, device) = with_journal(20);
    let mut token = raw_client(&mut world, 1, server);
    device.with(|device| device.is_busy = true);
    let handle = world.admit_raw(server, &mut token, stranger(1));
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

/// The disk hangs, so the operator looks for these counts: neither a used token nor an occupied address is the cause.
#[test]
fn waiting_client_counts_as_history_unavailable() {
    let (mut world, server, device) = with_journal(25);
    let mut token = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &token, stranger(1));
    while world.servers[server].core.poll_handshake().is_some() {}
    device.with(|device| device.is_busy = true);
    assert_eq!(world.present(server, stranger(1), &token.response(&challenge)), Ok(None));
    let outcome = world.servers[server].core.poll_handshake().map(|step| step.outcome);
    assert_eq!(outcome, Some(HandshakeOutcome::AwaitsHistory));
    world.turn();
    let newer = raw_client(&mut world, 1, server);
    for (from, datagram) in [(1, token.request()), (1, token.response(&challenge)), (2, newer.request())] {
        assert_eq!(world.present(server, stranger(from), &datagram), Err(Discard::HistoryUnavailable));
    }
    let counts = |world: &NetcodeWorld| {
        let core = &world.servers[server].core;
        (core.connected_count(), core.stats().connects, core.stats().disconnects)
    };
    assert_eq!(counts(&world), (0, 0, 0));
    device.with(|device| device.is_busy = false);
    world.turn();
    world.turn();
    assert_eq!(counts(&world), (1, 1, 0));
    assert_eq!(world.present(server, stranger(1), &token.request()), Err(Discard::TokenUsed));
    assert_eq!(world.present(server, stranger(1), &token.response(&challenge)), Err(Discard::AddressConnected));
    // One that ends without a record was never counted.
    world.run_for(60 * SECOND);
    assert_eq!(counts(&world), (0, 1, 1));
    device.with(|device| device.is_busy = true);
    let mut other = raw_client(&mut world, 3, server);
    world.admit_raw(server, &mut other, stranger(3));
    world.run_for(60 * SECOND);
    assert_eq!(counts(&world), (0, 1, 1));
}

#[test]
fn client_without_a_durable_record_ends_with_a_reason() {
    let (mut world, server, device) = with_journal(22);
    let mut token = raw_client(&mut world, 42, server);
    device.with(|device| device.is_busy = true);
    world.admit_raw(server, &mut token, stranger(1));
    while world.servers[server].core.poll_handshake().is_some() {}
    world.run_for(60 * SECOND);
    assert_eq!((world.servers[server].core.connected_count(), world.servers[server].events.len()), (0, 0));
    let step = world.servers[server].core.poll_handshake().unwrap();
    assert_eq!(step.token.map(|token| token.client_id), Some(ClientId(42)));
    assert_eq!(step.outcome, HandshakeOutcome::Dropped(Discard::HistoryUnavailable));
}

#[test]
fn durable_clients_are_announced_while_others_wait() {
    let (mut world, server, device) = with_journal(21);
    device.with(|device| device.is_busy = true);
    let mut tokens: Vec<_> = (0..4).map(|id| raw_client(&mut world, id, server)).collect();
    let admit = |(token, index): (&mut RawClient, u16)| world.admit_raw(server, token, stranger(index.into()));
    let handles: Vec<_> = tokens.iter_mut().zip(0..).map(admit).collect();
    assert_eq!(world.servers[server].connects(), 0);
    device.with(|device| (device.is_busy, device.at_a_time) = (false, Some(1)));
    // Each turn makes one of them durable, the first one first.
    for announced_count in 1..=4 {
        world.turn();
        let core = &world.servers[server].core;
        let announced: Vec<_> =
            handles.iter().map(|handle| core.client(*handle).is_some_and(|client| client.durable)).collect();
        assert_eq!(announced, (0..4).map(|index| index < announced_count).collect::<Vec<_>>());
        assert_eq!((core.connected_count(), core.clients().count()), (announced_count, 4));
    }
    world.turn();
    assert_eq!(world.servers[server].connects(), 4);
    assert_eq!(world.replies_to(stranger(3)).len(), 1);
}

#[test]
fn payload_of_an_unannounced_client_is_dropped() {
    let (mut world, server, device) = with_journal(22);
    let mut token = raw_client(&mut world, 1, server);
    device.with(|device| device.is_busy = true);
    let handle = world.admit_raw(server, &mut token, stranger(1));
    assert!(!world.servers[server].core.client(handle).unwrap().durable);
    let payload = token.seal(PacketKind::Payload, b"too early");
    assert_eq!(world.present(server, stranger(1), &payload), Ok(None));
    device.with(|device| device.is_busy = false);
    world.turn();
    assert!(world.servers[server].core.client(handle).unwrap().durable);
    let payload = token.seal(PacketKind::Payload, b"in time");
    assert_eq!(world.present(server, stranger(1), &payload), Ok(Some(b"in time".to_vec())));
}

#[test]
fn early_confirmation_does_not_announce_a_client() {
    let (mut world, server, device) = with_journal(18);
    let mut token = raw_client(&mut world, 1, server);
    device.with(|device| device.flush_fails = true);
    let handle = world.admit_raw(server, &mut token, stranger(1));
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
fn kick_before_durability_sends_nothing() {
    let (mut world, server, device) = with_journal(14);
    let mut token = raw_client(&mut world, 1, server);
    device.with(|device| device.flush_fails = true);
    let handle = world.admit_raw(server, &mut token, stranger(1));
    world.turn();
    assert!(world.servers[server].core.disconnect(handle));
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new());
    assert!(!world.servers[server].core.table_usage().has_due_packets);
    assert_eq!(world.servers[server].events, [], "the application did not receive an event of it");
    // The wiretap would detect a reused number: of the disconnect packets, and of this session.
    restart(&mut world, server, &device);
    device.with(|device| device.flush_fails = false);
    world.admit_raw(server, &mut token, stranger(1));
    assert_eq!(world.replies_to(stranger(1)).len(), 1);
}

#[test]
fn failing_storage_delays_only_new_clients() {
    let (mut world, server, device) = with_journal(15);
    let (client, _) = world.connected_client(1, server);
    world.run_for(SECOND / 10);
    device.with(|device| device.flush_fails = true);
    let mut unlucky = raw_client(&mut world, 2, server);
    world.admit_raw(server, &mut unlucky, stranger(2));
    // Longer than a timeout: keep-alives and payloads of others continue.
    world.run_for(6 * SECOND);
    assert_eq!(world.state(client), ClientState::Connected);
    let payload = world.payload(30);
    world.client_sends(client, &payload).unwrap();
    let (new_client, token) = (world.add_client(), world.token(3, &[server]));
    world.connect(new_client, token);
    world.run_for(SECOND);
    assert_eq!(world.clients[client].received, [payload]);
    assert_eq!(world.state(new_client), ClientState::SendingResponse);
    device.with(|device| device.flush_fails = false);
    world.run_until(SECOND, |world| world.state(new_client) == ClientState::Connected);
}

#[test]
fn one_journal_write_makes_all_clients_of_a_turn_durable() {
    let (mut world, server, device) = with_journal(16);
    let tokens: Vec<_> = (0..4).map(|id| (world.add_client(), world.token(id, &[server]))).collect();
    for (client, token) in tokens {
        world.connect(client, token);
    }
    world.run_for(SECOND);
    assert_eq!(world.servers[server].core.connected_count(), 4);
    assert_eq!(device.with(|device| (device.flushes, device.durable.len())), (1, 4));
}

#[test]
fn start_in_a_clock_glitch_locks_no_fresh_token_out() {
    let (mut world, server, device) = with_journal(24);
    let mut used = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut used, stranger(1));
    world.turn();
    // The clock is an hour ahead at the start. The journal drops its record, and keeps until when it counts.
    world.clock_error_ms = 3_600_000;
    let mut storage = device.storage();
    let dropped = std::mem::take(&mut storage.kept.used);
    storage.kept.dropped_until = dropped[0].expires;
    world.restart(server, Some(storage), |config| config.token_cutoff = TokenCutoff::None);
    world.clock_error_ms = 0;
    world.turn();
    assert_eq!(world.present(server, stranger(1), &used.request()), Err(Discard::ClockStepped));
    world.run_for(SECOND);
    let mut fresh = raw_client(&mut world, 2, server);
    world.admit_raw(server, &mut fresh, stranger(2));
}

#[test]
fn journal_larger_than_the_history_prevents_the_start() {
    let world = NetcodeWorld::perfect(17);
    let used = (0..5).map(|number| UsedToken {
        name: slipgate_netcode::crypto::digest::Digest([number; 16]),
        expires: UnixSeconds(UnixSeconds::from(world.now().unix).0 + 30),
    });
    let storage = TokenStorage { journal: Box::new(Device::default()), kept: kept(used.collect()) };
    let config = ServerConfig { history_tokens: 4, ..ServerConfig::new(1, 4, &[stranger(0).socket_addr()]) };
    let keys = world.private_key.clone().into();
    let started = NetcodeServer::with_storage(config, keys, &Seed::from([1; 32]), world.now(), storage);
    assert_eq!(started.err(), Some(ServerConfigError::JournalTooLarge));
}
