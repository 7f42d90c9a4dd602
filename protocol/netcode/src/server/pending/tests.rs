//! The table of pending clients against a simple model, at its limits, and under a flood of valid requests.

use std::println;
use std::vec::Vec;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::server::config::DEFAULT_PENDING_CLIENTS;
use crate::time::UnixMillis;
use crate::wire::USER_DATA_BYTES;
use crate::wire::token::Servers;

const LIFETIME: Duration = Duration::from_secs(5);

fn at(millis: u64) -> Instant {
    Instant::from_start(Duration::from_millis(millis))
}

fn address(number: u64) -> Address {
    let [.., a, b, c, d] = number.to_be_bytes();
    Address::from(core::net::SocketAddr::from(([10, b, c, d], 1000 + u16::from(a))))
}

/// Returns the token of a client that was minted at this time, in ms.
fn token(client_id: u64, minted: u64) -> (PresentedToken, Redeemed) {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&client_id.to_le_bytes());
    name[8..].copy_from_slice(&minted.to_le_bytes());
    let server = core::net::SocketAddr::from(([192, 0, 2, 1], 40_000));
    let redeemed = Redeemed {
        client_id: ClientId(client_id),
        timeout_seconds: 5,
        servers: Servers::new(&[server]).unwrap(),
        client_to_server: Key::from([1; 32]),
        server_to_client: Key::from([2; 32]),
        user_data: [0; USER_DATA_BYTES],
        minted: Some(UnixMillis(minted)),
        expires: UnixSeconds(100_000),
    };
    (PresentedToken { tag: TokenTag(name), name: Digest(name) }, redeemed)
}

fn table(capacity: u32, per_token: u8) -> PendingClients {
    PendingClients::new(capacity, per_token, &Seed::from([1; 32]))
}

fn admit(table: &mut PendingClients, client_id: u64, minted: u64, from: u64, now: u64) -> Result<u64, Discard> {
    let (presented, redeemed) = token(client_id, minted);
    let index = table.admit(presented, &redeemed, 0, address(from), at(now), LIFETIME)?;
    Ok(table.get(index).unwrap().bound.pending)
}

// Limits ------------------------------------------------------------------------------------------------------------

#[test]
fn full_table_replaces_its_oldest_entry_after_one_second() {
    for (age, replaces) in [(0, false), (999, false), (1000, true), (1001, true), (4999, true)] {
        let mut table = table(2, 4);
        admit(&mut table, 1, 0, 1, 0).unwrap();
        admit(&mut table, 2, 0, 2, 0).unwrap();
        let third = admit(&mut table, 3, 0, 3, age);
        assert_eq!(third.is_ok(), replaces, "{age} ms");
        assert_eq!(table.at_address(&address(1), at(age)).is_none(), replaces, "{age} ms");
        assert!(table.at_address(&address(2), at(age)).is_some() && table.len() == 2);
        if !replaces {
            assert_eq!(third, Err(Discard::PendingFull));
        }
    }
}

#[test]
fn sixty_four_responses_of_a_client_are_decrypted_in_a_turn() {
    let mut table = table(2, 4);
    let (presented, redeemed) = token(1, 0);
    let index = table.admit(presented, &redeemed, 0, address(1), at(0), LIFETIME).unwrap();
    for turn in [7, 8] {
        for attempt in 0..64 {
            assert!(table.next_attempt(index, turn).is_some(), "{attempt}");
            table.count_attempt(index, turn);
        }
        assert!(table.next_attempt(index, turn).is_none());
    }
}

#[test]
fn fair_time_protects_entries_for_exactly_one_second() {
    for (age, replaces) in [(0, false), (999, false), (1000, true), (1001, true)] {
        // Another client at the same address.
        let mut one = table(8, 1);
        admit(&mut one, 1, 0, 1, 0).unwrap();
        assert_eq!(admit(&mut one, 2, 0, 1, age), if replaces { Ok(1) } else { Err(Discard::AddressPending) });
        // The same token at another address.
        let mut two = table(8, 1);
        admit(&mut two, 1, 0, 1, 0).unwrap();
        assert_eq!(admit(&mut two, 1, 0, 2, age), if replaces { Ok(1) } else { Err(Discard::TokenAddresses) });
    }
}

#[test]
fn entry_is_void_from_its_deadline_on_and_swept_in_order() {
    let mut table = table(8, 4);
    let (presented, redeemed) = token(1, 0);
    table.admit(presented, &redeemed, 0, address(1), at(0), 2 * LIFETIME).unwrap();
    admit(&mut table, 2, 0, 2, 0).unwrap();
    for (now, is_pending) in [(0, true), (4999, true), (5000, false), (5001, false)] {
        table.sweep(at(now));
        assert_eq!(table.at_address(&address(2), at(now)).is_some(), is_pending, "{now} ms");
    }
    assert_eq!(table.len(), 2, "an older entry lives longer");
    table.sweep(at(9999));
    assert_eq!(table.len(), 2);
    table.sweep(at(10_000));
    assert_eq!((table.len(), table.oldest, table.newest), (0, None, None));
}

#[test]
fn late_entry_is_replaced_before_the_sweep() {
    let mut table = table(2, 1);
    admit(&mut table, 1, 0, 1, 0).unwrap();
    // The same token and the same client at another address, after the deadline.
    assert_eq!(admit(&mut table, 1, 0, 1, 5000), Ok(1));
    assert_eq!(admit(&mut table, 1, 0, 2, 10_000), Ok(2));
    assert_eq!(table.len(), 1);
}

#[test]
fn memory_grows_only_with_the_entries() {
    let mut table = table(DEFAULT_PENDING_CLIENTS, 4);
    for number in 0..INITIAL_ENTRIES as u64 {
        admit(&mut table, number, 0, number, 0).unwrap();
    }
    assert_eq!(table.entries.len(), INITIAL_ENTRIES);
    for number in 0..3 * u64::from(DEFAULT_PENDING_CLIENTS) {
        admit(&mut table, 100_000 + number, 0, 100_000 + number, 2000 + number).unwrap();
        table.sweep(at(2000 + number));
    }
    let entry = size_of::<Option<Pending>>() + size_of::<(Address, PendingIndex)>() + size_of::<PendingGroup>();
    println!("{entry} bytes for each pending entry; {} entries were used", table.entries.len());
    assert!(entry < 700, "{entry}");
    // One request each millisecond, of which each lives for 5 s.
    assert_eq!((table.len(), table.entries.len()), (5000, 5001));
}

// Model -------------------------------------------------------------------------------------------------------------

/// An entry of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ModelEntry {
    from: u64,
    client_id: u64,
    minted: u64,
    since: u64,
    deadline: u64,
    identity: u64,
}

/// The table as a list, oldest entry first.
struct Model {
    capacity: usize,
    per_token: usize,
    entries: Vec<ModelEntry>,
    next_identity: u64,
}

impl Model {
    fn admit(&mut self, client_id: u64, minted: u64, from: u64, now: u64, lifetime: u64) -> Result<u64, Discard> {
        if let Some(at) = self.entries.iter().position(|entry| entry.from == from) {
            let entry = self.entries[at];
            if entry.deadline <= now {
                self.entries.remove(at);
            } else if (entry.client_id, entry.minted) == (client_id, minted) {
                return Ok(entry.identity);
            } else if entry.client_id != client_id {
                if now < entry.since + 1000 {
                    return Err(Discard::AddressPending);
                }
                self.entries.remove(at);
            }
        }
        self.entries.retain(|entry| entry.client_id != client_id || entry.deadline > now);
        let own: Vec<_> = self.entries.iter().filter(|entry| entry.client_id == client_id).copied().collect();
        if let Some(oldest) = own.first() {
            if oldest.minted == minted && own.len() >= self.per_token {
                if now < oldest.since + 1000 {
                    return Err(Discard::TokenAddresses);
                }
                self.entries.retain(|entry| entry != oldest);
            } else if oldest.minted > minted {
                return Err(Discard::ClientIdPending);
            } else if oldest.minted < minted {
                self.entries.retain(|entry| entry.client_id != client_id);
            }
        }
        if self.entries.len() >= self.capacity {
            let oldest = self.entries[0];
            if now < oldest.since + 1000 && now < oldest.deadline {
                return Err(Discard::PendingFull);
            }
            self.entries.remove(0);
        }
        let identity = self.next_identity;
        self.next_identity += 1;
        self.entries.push(ModelEntry { from, client_id, minted, since: now, deadline: now + lifetime, identity });
        Ok(identity)
    }

    fn sweep(&mut self, now: u64) {
        while self.entries.first().is_some_and(|entry| entry.deadline <= now) {
            self.entries.remove(0);
        }
    }
}

/// Compares the whole table with the model: every entry, the lookups, and the list by age in both directions.
fn compare(table: &PendingClients, model: &Model, now: u64) {
    assert_eq!(table.len(), model.entries.len());
    let (mut forward, mut next) = (Vec::new(), table.oldest);
    while let Some(entry) = next.and_then(|index| table.get(index)) {
        forward.push(entry.bound.pending);
        next = entry.newer;
    }
    let (mut backward, mut next) = (Vec::new(), table.newest);
    while let Some(entry) = next.and_then(|index| table.get(index)) {
        backward.push(entry.bound.pending);
        next = entry.older;
    }
    backward.reverse();
    let expected: Vec<_> = model.entries.iter().map(|entry| entry.identity).collect();
    assert_eq!((&forward, &backward), (&expected, &expected));
    for entry in &model.entries {
        let found = table.at_address(&address(entry.from), at(now)).and_then(|index| table.get(index));
        assert_eq!(found.map(|found| found.bound.pending), (entry.deadline > now).then_some(entry.identity));
        let own = model.entries.iter().filter(|other| other.client_id == entry.client_id);
        let group = &table.by_client_id[&ClientId(entry.client_id)];
        assert_eq!(group.indices().len(), own.clone().count());
        assert!(own.clone().all(|own| own.minted == entry.minted), "one token for each client id");
        let listed = |own: &ModelEntry| {
            group.indices().iter().any(|index| table.get(*index).is_some_and(|it| it.bound.pending == own.identity))
        };
        assert!(own.clone().all(listed), "each entry is in the group of its client");
    }
    assert_eq!(table.by_client_id.values().map(|group| group.indices().len()).sum::<usize>(), model.entries.len());
}

#[test]
fn the_table_does_what_a_simple_model_does() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let (capacity, per_token) = (random.random_range(1..10), random.random_range(1..=4));
        let mut table = table(capacity, per_token);
        let (capacity, per_token) = (capacity as usize, usize::from(per_token));
        let mut model = Model { capacity, per_token, entries: Vec::new(), next_identity: 0 };
        let mut now = 0;
        for step in 0..400 {
            now += if random.random_bool(0.1) { random.random_range(500..3000) } else { random.random_range(1..200) };
            match random.random_range(0..10) {
                0..=6 => {
                    let (client_id, minted) = (random.random_range(0..5), random.random_range(0..3));
                    let (from, lifetime) = (random.random_range(0..8), [700, 2000, 5000][random.random_range(0..3)]);
                    let (presented, redeemed) = token(client_id, minted);
                    let life = Duration::from_millis(lifetime);
                    let admitted = table.admit(presented, &redeemed, 0, address(from), at(now), life);
                    let admitted = admitted.map(|index| table.get(index).unwrap().bound.pending);
                    let expected = model.admit(client_id, minted, from, now, lifetime);
                    assert_eq!(admitted, expected, "seed {seed}, step {step}");
                }
                7 => {
                    let client_id = random.random_range(0..5);
                    table.remove_client(ClientId(client_id));
                    model.entries.retain(|entry| entry.client_id != client_id);
                }
                8 => {
                    // A denial without a challenge removes its entry.
                    let from = random.random_range(0..8);
                    if let Some(index) = table.at_address(&address(from), at(now)) {
                        table.set_due(index, HandshakeReply::Denied);
                        table.set_due(index, HandshakeReply::Denied);
                        assert_eq!(table.next_due(), Some((index, HandshakeReply::Denied)));
                        assert_eq!(table.next_due(), None, "each entry is queued once");
                        table.on_replied(index, HandshakeReply::Denied);
                        model.entries.retain(|entry| entry.from != from);
                    }
                }
                _ => {
                    table.sweep(at(now));
                    model.sweep(now);
                }
            }
            compare(&table, &model, now);
        }
    }
}

// Flood -------------------------------------------------------------------------------------------------------------

/// A player that connects to an attacked server: our client sends its response at once and then each 100 ms, and each
/// third of these packets is a request.
struct Player {
    client_id: u64,
    round_trip: u64,
    started: u64,
    /// The identity in the latest challenge, and the packets sent since the first one.
    challenge: Option<u64>,
    sent: u64,
    next_send: u64,
    /// What is on its way to the server: arrival, and the identity that it returns, or a request.
    to_server: Vec<(u64, Option<u64>)>,
    /// Challenges on their way to the player.
    to_player: Vec<(u64, u64)>,
    admitted: Option<u64>,
}

impl Player {
    fn step(&mut self, table: &mut PendingClients, now: u64) {
        let (one_way, from) = (self.round_trip / 2, self.client_id);
        for (_, identity) in self.to_player.extract_if(.., |(arrival, _)| *arrival <= now) {
            if self.challenge.replace(identity).is_none() {
                (self.sent, self.next_send) = (0, now);
            }
        }
        if self.next_send <= now {
            let is_request = self.challenge.is_none() || self.sent % 3 == 2;
            self.to_server.push((now + one_way, if is_request { None } else { self.challenge }));
            (self.sent, self.next_send) = (self.sent + 1, now + 100);
        }
        for (_, content) in self.to_server.extract_if(.., |(arrival, _)| *arrival <= now) {
            match content {
                None => {
                    if let Ok(identity) = admit(table, self.client_id, 0, from, now) {
                        self.to_player.push((now + one_way, identity));
                    }
                }
                Some(identity) => {
                    let entry = table.at_address(&address(from), at(now)).and_then(|index| table.get(index));
                    if entry.is_some_and(|entry| entry.bound.pending == identity) && self.admitted.is_none() {
                        self.admitted = Some(now);
                    }
                }
            }
        }
    }
}

/// Returns the times in ms that players wait for a slot longer than on an idle server, while `accounts` clients present
/// valid tokens at `per_account` addresses each, 20,000 a second together. `None` is a player without a slot after 8 s.
fn waits_under_flood(seed: u64, capacity: u32, accounts: u64, per_account: u64) -> Vec<Option<u64>> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut table, mut number) = (table(capacity, 4), random.random_range(0..1_000_000_u64));
    let mut players: Vec<Player> = Vec::new();
    for now in 0..10_000 {
        for _ in 0..20 {
            number += 1;
            let account = number / per_account % accounts;
            let from = 5_000_000 + account * per_account + number % per_account;
            let _ = admit(&mut table, 5_000_000 + account, 0, from, now);
        }
        // The attack has filled the table when the players come.
        if (1500..2000).contains(&now) && random.random_bool(0.05) {
            let client_id = players.len() as u64;
            players.push(Player {
                client_id,
                round_trip: random.random_range(20..300),
                started: now,
                challenge: None,
                sent: 0,
                next_send: now,
                to_server: Vec::new(),
                to_player: Vec::new(),
                admitted: None,
            });
        }
        players.iter_mut().filter(|player| player.admitted.is_none()).for_each(|player| player.step(&mut table, now));
        table.sweep(at(now));
        if now > 2000 && players.iter().all(|player| player.admitted.is_some()) {
            break;
        }
    }
    // A request, a challenge and a response: three half round trips, in steps of a millisecond.
    let wait = |player: &Player| {
        player.admitted.map(|admitted| (admitted - player.started).saturating_sub(player.round_trip / 2 * 3))
    };
    players.iter().map(wait).collect()
}

#[test]
fn flood_of_valid_requests_delays_no_player() {
    // A table that cannot hold the requests of a second locks players out.
    let mut small = waits_under_flood(0, 1024, u64::MAX / 8, 1);
    small.sort_unstable_by_key(|wait| wait.unwrap_or(u64::MAX));
    println!(
        "1024 entries instead of {DEFAULT_PENDING_CLIENTS}: the median player waits {:?} ms",
        small[small.len() / 2]
    );
    assert!(small[small.len() / 2].is_none_or(|wait| wait > 500), "{small:?}");
    // Each request from an account of its own, few accounts at four addresses each, and many accounts at four.
    for (accounts, per_account) in [(u64::MAX / 8, 1), (1024, 1), (256, 4), (5120, 4), (40_000, 4)] {
        let (mut waits, mut worst) = (Vec::new(), (0, 0));
        for seed in 0..40 {
            let of_seed = waits_under_flood(seed, DEFAULT_PENDING_CLIENTS, accounts, per_account);
            assert!(of_seed.len() > 5, "seed {seed}: {} players", of_seed.len());
            let slowest = of_seed.iter().map(|wait| wait.unwrap_or(u64::MAX)).max().unwrap_or(0);
            worst = worst.max((slowest, seed));
            waits.extend(of_seed.iter().map(|wait| wait.unwrap_or(u64::MAX)));
        }
        waits.sort_unstable();
        let quantile = |share: usize| waits[(waits.len() - 1) * share / 100];
        let (p50, p95) = (quantile(50), quantile(95));
        println!(
            "{accounts} accounts, {per_account} addresses: p50 {p50} ms, p95 {p95} ms, worst {worst:?} (ms, seed)"
        );
        assert!(p50 <= 1 && p95 <= 1 && worst.0 <= 100, "{accounts} accounts: {p50}, {p95}, {worst:?}");
    }
}
