//! The register against a model that is too simple to be wrong, and under threads that fight for it.

use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, MutexGuard};
use std::thread;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::*;
use crate::time::UnixMillis;

const SHARDS: u16 = 3;
const SLOTS: u32 = 5;
const IDS: u64 = 8;
const GRACE: Duration = Duration::from_secs(2);

fn register(slots: u32) -> Register {
    let advertised = core::net::SocketAddr::from(([192, 0, 2, 1], 40_000)).into();
    let config = Config::new(1, slots, [advertised].into());
    Register::new(&config, SHARDS, &Seed::from_bytes([1; 32]), at(0), None).unwrap()
}

fn at(millis: u64) -> Now {
    Now { monotonic: Instant::from_start(Duration::from_millis(millis)), unix: UnixMillis(1_000_000 + millis) }
}

/// A token by its number; a higher number is newer.
fn using(register: &Register, number: u64) -> Using {
    let mut tag = TokenTag([0; 16]);
    tag.0[..8].copy_from_slice(&number.to_le_bytes());
    let name = register.names().digest(&[&tag.0]);
    Using { tag, used: UsedToken { name, expires: UnixSeconds(100_000) } }
}

fn age(number: u64) -> Age {
    Age::new(Some(UnixMillis(number)), UnixSeconds(100_000))
}

/// What the register should know, in lists.
#[derive(Default)]
struct Model {
    used: Vec<u64>,
    /// Client id, shard, index, token, and when its shard said that it was heard of.
    connected: Vec<(u64, ShardId, u32, u64, Option<u64>)>,
    /// Indices of clients that have left, and are still used for farewells.
    closing: Vec<(ShardId, u32)>,
    /// Client id, index, token that may fetch it, until.
    kept: Vec<(u64, u32, u64, u64)>,
}

impl Model {
    fn expire(&mut self, now: u64) {
        self.kept.retain(|kept| kept.3 > now);
    }

    fn lowest_free(&self) -> Option<u32> {
        let is_taken = |index: &u32| {
            self.connected.iter().any(|it| it.2 == *index)
                || self.closing.iter().any(|it| it.1 == *index)
                || self.kept.iter().any(|it| it.1 == *index)
        };
        (0..SLOTS).find(|index| !is_taken(index))
    }

    fn claim(&mut self, shard: ShardId, client_id: u64, token: u64) -> Result<u32, Refused> {
        if self.used.contains(&token) {
            return Err(Refused::Discard(Discard::TokenUsed));
        }
        let kept = self.kept.iter().position(|it| it.0 == client_id);
        let is_mine = kept.is_some_and(|place| self.kept[place].2 == token);
        if self.connected.iter().any(|it| it.0 == client_id) || (kept.is_some() && !is_mine) {
            return Err(Refused::Discard(Discard::ClientIdConnected));
        }
        let index = match kept {
            Some(place) => self.kept.remove(place).1,
            None => self.lowest_free().ok_or(Refused::Full)?,
        };
        self.used.push(token);
        self.connected.push((client_id, shard, index, token, None));
        Ok(index)
    }
}

/// One random step on both. Time goes on by whole seconds, which is when indices are given up.
fn step(register: &mut Register, model: &mut Model, random: &mut StdRng, now: u64, token: &mut u64) {
    let shard = ShardId(random.random_range(0..SHARDS));
    let client_id = random.random_range(0..IDS);
    match random.random_range(0..10) {
        0..=3 => {
            // Sometimes an old token again.
            let number = if random.random_bool(0.2) { random.random_range(0..=*token) } else { *token + 1 };
            *token = (*token).max(number);
            let claim = Claim { shard, client_id, age: Some(age(number)), token: Some(using(register, number)) };
            assert_eq!(register.claim(&claim, at(now)), model.claim(shard, client_id, number));
        }
        4 | 5 => {
            register.leave(shard, client_id);
            if let Some(place) = model.connected.iter().position(|it| it.0 == client_id && it.1 == shard) {
                let left = model.connected.remove(place);
                model.closing.push((left.1, left.2));
            }
        }
        6 => {
            let index = random.random_range(0..SLOTS);
            // A shard releases what it has and no client holds; of what others have, nothing.
            if !model.connected.iter().any(|it| it.2 == index && it.1 == shard) {
                register.release(shard, index);
                model.closing.retain(|it| *it != (shard, index));
            }
        }
        7 => takeover(register, model, random, now, token),
        8 if random.random_bool(0.1) => {
            register.leave_all(shard);
            model.connected.retain(|it| it.1 != shard);
            model.closing.retain(|it| it.0 != shard);
        }
        _ => register.sweep(at(now)),
    }
}

/// A newer token asks for an id that is connected, and its shard answers.
fn takeover(register: &mut Register, model: &mut Model, random: &mut StdRng, now: u64, token: &mut u64) {
    if model.connected.is_empty() {
        return;
    }
    let place = random.random_range(0..model.connected.len());
    let (client_id, owner, index, old, heard) = model.connected[place];
    *token += 1;
    let wanting = using(register, *token).used.name;
    let grace = Some(GRACE);
    let present = |register: &mut Register, number| {
        let name = using(register, number).used.name;
        register.presence(client_id, age(number), &name, grace, at(now).monotonic)
    };
    assert_eq!(present(register, old), Err(Discard::ClientIdConnected), "the same token is not newer");
    let is_silent = heard.is_some_and(|heard| now >= heard + GRACE.as_millis() as u64);
    let expected = if is_silent { Ok(Presence::SilentElsewhere) } else { Err(Discard::ClientIdConnected) };
    assert_eq!(present(register, *token), expected);
    if is_silent {
        register.want(client_id, wanting);
    }
    let question = if is_silent { Question::MayItGo } else { Question::HeardWhen };
    assert_eq!(register.next_question(owner), Some((client_id, question)));
    assert_eq!(register.next_question(owner), None, "each question once");
    if is_silent && random.random_bool(0.7) {
        register.keep(client_id, at(now).monotonic);
        register.leave(owner, client_id);
        register.release(owner, index);
        model.connected.remove(place);
        model.kept.push((client_id, index, *token, now + KEPT_FOR.as_millis() as u64));
        assert_eq!(present(register, *token), Ok(Presence::Kept));
        assert_eq!(present(register, *token + 1), Err(Discard::ClientIdConnected));
        if random.random_bool(0.5) {
            let claim = Claim { shard: owner, client_id, age: Some(age(*token)), token: Some(using(register, *token)) };
            assert_eq!(register.claim(&claim, at(now)), Ok(index));
            assert_eq!(model.claim(owner, client_id, *token), Ok(index));
        }
    } else {
        let last = now - random.random_range(0..=now.min(1500));
        register.tell_heard(client_id, Instant::from_start(Duration::from_millis(last)));
        model.connected[place].4 = Some(last);
    }
}

#[test]
fn the_register_does_what_a_simple_model_does() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut register, mut model, mut now, mut token) = (register(SLOTS), Model::default(), 0, 0);
        for number in 0..400 {
            if random.random_bool(0.1) {
                now += 1000 * random.random_range(1..3);
                model.expire(now);
                register.sweep(at(now));
            }
            step(&mut register, &mut model, &mut random, now, &mut token);
            let taken = model.connected.len() + model.closing.len() + model.kept.len();
            assert_eq!(register.free_slots(), SLOTS - taken as u32, "seed {seed}, step {number}");
            assert_eq!(register.connected() as usize, model.connected.len(), "seed {seed}, step {number}");
            for client_id in 0..IDS {
                let shard = model.connected.iter().find(|it| it.0 == client_id).map(|it| it.1);
                assert_eq!(register.shard_of(client_id), shard, "seed {seed}, step {number}");
            }
        }
    }
}

/// What threads believe to have, each thing once.
struct Claimed {
    indices: Vec<AtomicBool>,
    ids: Vec<AtomicBool>,
    tokens: Vec<AtomicU32>,
}

fn lock(register: &Mutex<Register>) -> MutexGuard<'_, Register> {
    register.lock().unwrap()
}

fn fight(register: &Mutex<Register>, claimed: &Claimed, shard: ShardId) -> u32 {
    let mut random = StdRng::seed_from_u64(u64::from(shard.0));
    let (mut mine, mut won): (Vec<(u64, u32)>, u32) = (Vec::new(), 0);
    for _ in 0..4000 {
        let client_id = random.next_u64() % IDS;
        let number = random.next_u64() % claimed.tokens.len() as u64;
        let token = Some(using(&lock(register), number));
        let claim = Claim { shard, client_id, age: None, token };
        let answer = lock(register).claim(&claim, at(0));
        if let Ok(index) = answer {
            assert!(!claimed.ids[client_id as usize].swap(true, Ordering::SeqCst), "an id is connected once");
            assert!(!claimed.indices[index as usize].swap(true, Ordering::SeqCst), "an index is given once");
            assert_eq!(claimed.tokens[number as usize].fetch_add(1, Ordering::SeqCst), 0, "a token is used once");
            mine.push((client_id, index));
            won += 1;
        }
        if random.random_bool(0.5)
            && let Some((client_id, index)) = mine.pop()
        {
            claimed.ids[client_id as usize].store(false, Ordering::SeqCst);
            lock(register).leave(shard, client_id);
            claimed.indices[index as usize].store(false, Ordering::SeqCst);
            lock(register).release(shard, index);
        }
    }
    won
}

#[test]
fn threads_that_fight_for_ids_indices_and_tokens_get_each_once_and_leave_nothing_behind() {
    let all = |count: u64| (0..count).map(|_| AtomicBool::default()).collect();
    let tokens = (0..2000).map(|_| AtomicU32::default()).collect();
    let claimed = Claimed { indices: all(SLOTS.into()), ids: all(IDS), tokens };
    let register = Mutex::new(register(SLOTS));
    let won: Vec<u32> = thread::scope(|scope| {
        let shards = (0..SHARDS).map(|shard| {
            let (register, claimed) = (&register, &claimed);
            scope.spawn(move || fight(register, claimed, ShardId(shard)))
        });
        shards.collect::<Vec<_>>().into_iter().map(|shard| shard.join().unwrap()).collect()
    });
    let used = claimed.tokens.iter().filter(|token| token.load(Ordering::SeqCst) > 0).count();
    assert_eq!(won.iter().sum::<u32>() as usize, used);
    let mut register = register.into_inner().unwrap();
    (0..SHARDS).for_each(|shard| register.leave_all(ShardId(shard)));
    assert_eq!((register.free_slots(), register.connected(), register.remembered_tokens()), (SLOTS, 0, used));
}
