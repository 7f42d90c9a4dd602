//! The registry against a simple model, and under threads that compete for it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::takeover::RESERVED_FOR;
use super::*;
use crate::time::{UnixMillis, UnixSeconds};

const SHARDS: u16 = 3;
const SLOTS: u32 = 5;
const IDS: u64 = 8;
/// Low enough that client ids reach it.
const TOKENS_PER_CLIENT_ID: usize = 20;
const TAKEOVER_AFTER: Duration = Duration::from_secs(2);

fn new_registry(slots: u32, tokens_per_client_id: u32) -> ClientRegistry {
    let advertised = core::net::SocketAddr::from(([192, 0, 2, 1], 40_000));
    let mut config = ServerConfig::new(1, slots, &[advertised]);
    config.tokens_per_client_id = tokens_per_client_id;
    ClientRegistry::new(&config, SHARDS, &Seed::from([1; 32]), at(0), None).unwrap()
}

fn at(millis: u64) -> Now {
    Now { monotonic: Instant::from_start(Duration::from_millis(millis)), unix: UnixMillis(1_000_000 + millis) }
}

/// Returns the token with a number. A higher number is newer.
fn token_use(registry: &ClientRegistry, number: u64) -> TokenUse {
    let mut tag = TokenTag([0; 16]);
    tag.0[..8].copy_from_slice(&number.to_le_bytes());
    let name = registry.names().digest(&[&tag.0]);
    TokenUse { tag, used: UsedToken { name, expires: UnixSeconds(100_000) } }
}

fn age(number: u64) -> TokenAge {
    TokenAge::new(Some(UnixMillis(number)), UnixSeconds(100_000))
}

/// The expected state of the registry, as lists.
#[derive(Default)]
struct Model {
    used: Vec<u64>,
    /// The client id of each used token.
    used_by: Vec<ClientId>,
    /// Client id, shard, index, token, and the last receive time that its shard reported, in ms.
    connected: Vec<(ClientId, ShardId, ClientIndex, u64, Option<u64>)>,
    /// Indices of clients that have left, but still have disconnect packets to send.
    closing: Vec<(ShardId, ClientIndex)>,
    /// Client id, index, token that may claim it, and expiry in ms.
    reserved: Vec<(ClientId, ClientIndex, u64, u64)>,
}

impl Model {
    fn expire(&mut self, now: u64) {
        self.reserved.retain(|entry| entry.3 > now);
    }

    fn lowest_free(&self) -> Option<ClientIndex> {
        let is_taken = |index: &ClientIndex| {
            self.connected.iter().any(|it| it.2 == *index)
                || self.closing.iter().any(|it| it.1 == *index)
                || self.reserved.iter().any(|it| it.1 == *index)
        };
        (0..SLOTS).map(ClientIndex).find(|index| !is_taken(index))
    }

    fn claim(&mut self, shard: ShardId, client_id: ClientId, token: u64) -> Result<ClientIndex, ClaimError> {
        if self.used.contains(&token) {
            return Err(ClaimError::Discard(Discard::TokenUsed));
        }
        let reserved = self.reserved.iter().position(|it| it.0 == client_id);
        let is_mine = reserved.is_some_and(|position| self.reserved[position].2 == token);
        if self.connected.iter().any(|it| it.0 == client_id) || (reserved.is_some() && !is_mine) {
            return Err(ClaimError::Discard(Discard::ClientIdConnected));
        }
        if reserved.is_none() && self.lowest_free().is_none() {
            return Err(ClaimError::Full);
        }
        if self.used_by.iter().filter(|used_by| **used_by == client_id).count() >= TOKENS_PER_CLIENT_ID {
            return Err(ClaimError::Discard(Discard::ClientIdTokens));
        }
        let index = match reserved {
            Some(position) => self.reserved.remove(position).1,
            None => self.lowest_free().ok_or(ClaimError::Full)?,
        };
        self.used.push(token);
        self.used_by.push(client_id);
        self.connected.push((client_id, shard, index, token, None));
        Ok(index)
    }
}

/// Applies one random step to both. Time advances in whole seconds, after which reservations have expired.
fn step(registry: &mut ClientRegistry, model: &mut Model, random: &mut StdRng, now: u64, token: &mut u64) {
    let shard = ShardId(random.random_range(0..SHARDS));
    let client_id = ClientId(random.random_range(0..IDS));
    match random.random_range(0..10) {
        0..=3 => {
            // A fifth of the claims repeat an old token.
            let number = if random.random_bool(0.2) { random.random_range(0..=*token) } else { *token + 1 };
            *token = (*token).max(number);
            let claim =
                IndexClaim { shard, client_id, age: Some(age(number)), token: Some(token_use(registry, number)) };
            assert_eq!(registry.claim(&claim, at(now)), model.claim(shard, client_id, number));
        }
        4 | 5 => {
            registry.leave(shard, client_id);
            if let Some(position) = model.connected.iter().position(|it| it.0 == client_id && it.1 == shard) {
                let left = model.connected.remove(position);
                model.closing.push((left.1, left.2));
            }
        }
        6 => {
            let index = ClientIndex(random.random_range(0..SLOTS));
            // A shard never releases the index of a connected client of its own.
            if !model.connected.iter().any(|it| it.2 == index && it.1 == shard) {
                registry.release(shard, index);
                model.closing.retain(|it| *it != (shard, index));
            }
        }
        7 => takeover(registry, model, random, now, token),
        8 if random.random_bool(0.1) => {
            registry.leave_all(shard);
            model.connected.retain(|it| it.1 != shard);
            model.closing.retain(|it| it.0 != shard);
        }
        _ => registry.sweep(at(now)),
    }
}

/// A newer token requests a connected client id, and the shard of that client reports or ends it.
fn takeover(registry: &mut ClientRegistry, model: &mut Model, random: &mut StdRng, now: u64, token: &mut u64) {
    if model.connected.is_empty() {
        return;
    }
    let position = random.random_range(0..model.connected.len());
    let (client_id, owner, index, old, last_receive) = model.connected[position];
    *token += 1;
    let new_name = token_use(registry, *token).used.name;
    let takeover_after = Some(TAKEOVER_AFTER);
    let present = |registry: &mut ClientRegistry, number| {
        let name = token_use(registry, number).used.name;
        registry.presence(client_id, age(number), &name, takeover_after, at(now).monotonic)
    };
    assert_eq!(present(registry, old), Err(Discard::ClientIdConnected), "the same token is not newer");
    let is_silent = last_receive.is_some_and(|last| now >= last + TAKEOVER_AFTER.as_millis() as u64);
    let expected = if is_silent { Ok(Presence::SilentElsewhere) } else { Err(Discard::ClientIdConnected) };
    assert_eq!(present(registry, *token), expected);
    if is_silent {
        registry.request_takeover(client_id, new_name);
    }
    let query = if is_silent { OwnerQuery::Takeover } else { OwnerQuery::LastReceive };
    assert_eq!(registry.next_query(owner), Some((client_id, query)));
    assert_eq!(registry.next_query(owner), None, "each query is taken once");
    if is_silent && random.random_bool(0.7) {
        registry.reserve(client_id, at(now).monotonic);
        registry.leave(owner, client_id);
        registry.release(owner, index);
        model.connected.remove(position);
        model.reserved.push((client_id, index, *token, now + RESERVED_FOR.as_millis() as u64));
        assert_eq!(present(registry, *token), Ok(Presence::Reserved));
        assert_eq!(present(registry, *token + 1), Err(Discard::ClientIdConnected));
        if random.random_bool(0.5) {
            let claim = IndexClaim {
                shard: owner,
                client_id,
                age: Some(age(*token)),
                token: Some(token_use(registry, *token)),
            };
            let expected = model.claim(owner, client_id, *token);
            assert!(expected == Ok(index) || expected == Err(ClaimError::Discard(Discard::ClientIdTokens)));
            assert_eq!(registry.claim(&claim, at(now)), expected);
        }
    } else {
        let last = now - random.random_range(0..=now.min(1500));
        registry.report_last_receive(client_id, Instant::from_start(Duration::from_millis(last)));
        model.connected[position].4 = Some(last);
    }
}

#[test]
fn the_register_does_what_a_simple_model_does() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut registry, mut model, mut now, mut token) =
            (new_registry(SLOTS, TOKENS_PER_CLIENT_ID as u32), Model::default(), 0, 0);
        for number in 0..400 {
            if random.random_bool(0.1) {
                now += 1000 * random.random_range(1..3);
                model.expire(now);
                registry.sweep(at(now));
            }
            step(&mut registry, &mut model, &mut random, now, &mut token);
            let taken = model.connected.len() + model.closing.len() + model.reserved.len();
            assert_eq!(registry.free_slots(), SLOTS - taken as u32, "seed {seed}, step {number}");
            assert_eq!(registry.connected() as usize, model.connected.len(), "seed {seed}, step {number}");
            for client_id in 0..IDS {
                let shard = model.connected.iter().find(|it| it.0 == ClientId(client_id)).map(|it| it.1);
                assert_eq!(registry.shard_of(ClientId(client_id)), shard, "seed {seed}, step {number}");
            }
        }
    }
}

/// The claims of all threads. Each index, id and token is claimed at most once.
struct ClaimedOnce {
    indices: Vec<AtomicBool>,
    ids: Vec<AtomicBool>,
    tokens: Vec<AtomicU32>,
}

fn lock(registry: &Mutex<ClientRegistry>) -> MutexGuard<'_, ClientRegistry> {
    registry.lock().unwrap()
}

fn compete(registry: &Mutex<ClientRegistry>, claimed: &ClaimedOnce, shard: ShardId) -> u32 {
    let mut random = StdRng::seed_from_u64(u64::from(shard.0));
    let (mut mine, mut won): (Vec<(ClientId, ClientIndex)>, u32) = (Vec::new(), 0);
    for _ in 0..4000 {
        let client_id = ClientId(random.next_u64() % IDS);
        let number = random.next_u64() % claimed.tokens.len() as u64;
        let token = Some(token_use(&lock(registry), number));
        let claim = IndexClaim { shard, client_id, age: None, token };
        let result = lock(registry).claim(&claim, at(0));
        if let Ok(index) = result {
            assert!(!claimed.ids[client_id.0 as usize].swap(true, Ordering::SeqCst), "an id is connected once");
            assert!(!claimed.indices[index.0 as usize].swap(true, Ordering::SeqCst), "an index is given once");
            assert_eq!(claimed.tokens[number as usize].fetch_add(1, Ordering::SeqCst), 0, "a token is used once");
            mine.push((client_id, index));
            won += 1;
        }
        if random.random_bool(0.5)
            && let Some((client_id, index)) = mine.pop()
        {
            claimed.ids[client_id.0 as usize].store(false, Ordering::SeqCst);
            lock(registry).leave(shard, client_id);
            claimed.indices[index.0 as usize].store(false, Ordering::SeqCst);
            lock(registry).release(shard, index);
        }
    }
    won
}

#[test]
fn competing_threads_claim_each_id_index_and_token_once() {
    let all = |count: u64| (0..count).map(|_| AtomicBool::default()).collect();
    let tokens = (0..2000).map(|_| AtomicU32::default()).collect();
    let claimed = ClaimedOnce { indices: all(SLOTS.into()), ids: all(IDS), tokens };
    let registry = Mutex::new(new_registry(SLOTS, u32::MAX));
    let won: Vec<u32> = thread::scope(|scope| {
        let shards = (0..SHARDS).map(|shard| {
            let (registry, claimed) = (&registry, &claimed);
            scope.spawn(move || compete(registry, claimed, ShardId(shard)))
        });
        shards.collect::<Vec<_>>().into_iter().map(|shard| shard.join().unwrap()).collect()
    });
    let used = claimed.tokens.iter().filter(|token| token.load(Ordering::SeqCst) > 0).count();
    assert_eq!(won.iter().sum::<u32>() as usize, used);
    let mut registry = registry.into_inner().unwrap();
    (0..SHARDS).for_each(|shard| registry.leave_all(ShardId(shard)));
    assert_eq!((registry.free_slots(), registry.connected(), registry.remembered_tokens()), (SLOTS, 0, used));
}

/// Claims an index for a token of this number.
fn claim(registry: &mut ClientRegistry, shard: u16, client_id: u64, number: u64, now: u64) -> ClientIndex {
    let token = Some(token_use(registry, number));
    let claim = IndexClaim { shard: ShardId(shard), client_id: ClientId(client_id), age: Some(age(number)), token };
    registry.claim(&claim, at(now)).unwrap()
}

#[test]
fn takeover_on_the_same_shard_renews_the_age_of_the_client() {
    let mut registry = new_registry(SLOTS, 8);
    claim(&mut registry, 0, 1, 10, 0);
    registry.report_last_receive(ClientId(1), at(0).monotonic);
    registry.renew(ClientId(1), age(30));
    // The old report does not count for the new connection.
    let name = token_use(&registry, 40).used.name;
    let present = registry.presence(ClientId(1), age(40), &name, Some(TAKEOVER_AFTER), at(10_000).monotonic);
    assert_eq!(present, Err(Discard::ClientIdConnected));
    registry.report_last_receive(ClientId(1), at(0).monotonic);
    for (number, now, expected) in [
        (20, 10_000, Err(Discard::ClientIdConnected)),
        (30, 10_000, Err(Discard::ClientIdConnected)),
        (31, 10_000, Ok(Presence::SilentElsewhere)),
        (31, 2000, Ok(Presence::SilentElsewhere)),
        (31, 1999, Err(Discard::ClientIdConnected)),
    ] {
        let name = token_use(&registry, number).used.name;
        let present = registry.presence(ClientId(1), age(number), &name, Some(TAKEOVER_AFTER), at(now).monotonic);
        assert_eq!(present, expected, "token {number} at {now} ms");
    }
}

#[test]
fn each_client_has_at_most_one_query_and_gone_ones_none() {
    let mut registry = new_registry(SLOTS, 8);
    for client_id in 0..u64::from(SLOTS) {
        claim(&mut registry, 0, client_id, 10 + client_id, 0);
    }
    let flag = registry.has_queries(ShardId(0)).unwrap();
    for attempt in 0..100_u64 {
        for client_id in 0..u64::from(SLOTS) {
            let name = token_use(&registry, 1000 + attempt).used.name;
            let asked = registry.presence(ClientId(client_id), age(1000), &name, Some(TAKEOVER_AFTER), at(0).monotonic);
            assert_eq!(asked, Err(Discard::ClientIdConnected));
        }
        assert_eq!(registry.mailboxes[ShardId(0)].queries.len(), SLOTS as usize);
    }
    assert!(flag.load(Ordering::SeqCst) && registry.mailboxes[ShardId(1)].queries.is_empty());
    // Clients that leave and come back do not multiply their queries: the queue has one place for each index.
    for round in 0..100 {
        registry.leave(ShardId(0), ClientId(0));
        registry.release(ShardId(0), ClientIndex(0));
        registry.history = new_registry(1, 8).history;
        assert_eq!(claim(&mut registry, 0, 0, 5000 + round, 0), ClientIndex(0));
        let name = token_use(&registry, 9000).used.name;
        let _ = registry.presence(ClientId(0), age(9000), &name, Some(TAKEOVER_AFTER), at(0).monotonic);
        assert!(registry.mailboxes[ShardId(0)].queries.len() <= SLOTS as usize);
    }
    registry.leave(ShardId(0), ClientId(3));
    let mut asked = Vec::new();
    while let Some((client_id, query)) = registry.next_query(ShardId(0)) {
        assert_eq!(query, OwnerQuery::LastReceive);
        asked.push(client_id.0);
    }
    asked.sort_unstable();
    assert_eq!(asked, [0, 1, 2, 4], "a client that has left is not asked about");
}

#[test]
fn reservation_lasts_for_exactly_one_second() {
    for (now, is_reserved) in [(0, true), (999, true), (1000, false), (1001, false)] {
        let mut registry = new_registry(1, 8);
        let index = claim(&mut registry, 0, 1, 10, 0);
        let newer = token_use(&registry, 20);
        registry.request_takeover(ClientId(1), newer.used.name);
        registry.reserve(ClientId(1), at(0).monotonic);
        registry.leave(ShardId(0), ClientId(1));
        registry.release(ShardId(0), index);
        assert_eq!(registry.free_slots(), 0, "the index belongs to the reservation");
        let other = IndexClaim {
            shard: ShardId(1),
            client_id: ClientId(2),
            age: Some(age(30)),
            token: Some(token_use(&registry, 30)),
        };
        let claimed = registry.claim(&other, at(now));
        assert_eq!(claimed, if is_reserved { Err(ClaimError::Full) } else { Ok(index) }, "{now} ms");
    }
}

#[test]
fn tokens_that_expired_by_the_start_may_have_been_used_before() {
    let since = TokenCutoff::At(UnixMillis(900_000));
    for (cutoff, expected) in [(since, true), (TokenCutoff::AtStart, false), (TokenCutoff::None, false)] {
        let advertised = core::net::SocketAddr::from(([192, 0, 2, 1], 40_000));
        let mut config = ServerConfig::new(1, SLOTS, &[advertised]);
        config.token_cutoff = cutoff;
        let registry = ClientRegistry::new(&config, 1, &Seed::from([1; 32]), at(0), None).unwrap();
        let is_refused = |expires| registry.history.may_have_forgotten(UnixSeconds(expires));
        assert_eq!([1, 999, 1000, 1001].map(is_refused), [expected, expected, expected, false], "{cutoff:?}");
    }
}
