//! The registry in a real Redis: the same rules, several issuers, and the loss of the store.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipgate_token_issuer::http::HttpLimits;
use slipgate_token_issuer::registry::{DEAD_AFTER, Heartbeat, RedisRegistry, Registry, RegistryError, SlotRequest};
use tokio::time::sleep;

use crate::common::{PROTOCOL_ID, SERVERS, Service, TestResponse, agent};

use super::rules::{
    ALL, check_dead_servers, check_instances, check_order, check_rules, check_scopes, check_unknown_removals,
    heartbeat, patiently, request, reserve_all, reserve_rest, server,
};

/// The longest time that a test waits for the store.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A Redis server without a file, which is killed at the end of a test.
struct Store {
    port: u16,
    child: Child,
}

impl Store {
    /// Starts a server, or returns `None` if none is installed.
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = spawn(port)?;
        Some(Self { port, child })
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Runs a script in the store, which returns 1.
    fn eval(&self, script: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "EVAL \"{script}\" 0\r\n").unwrap();
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).unwrap();
        assert_eq!(reply, ":1\r\n");
    }

    /// Returns how often the store has run a command, also in scripts.
    fn calls(&self, command: &str) -> u64 {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap());
        stream.get_mut().write_all(b"INFO commandstats\r\n").unwrap();
        let mut length = String::new();
        stream.read_line(&mut length).unwrap();
        let mut info = vec![0; length.trim_start_matches('$').trim_end().parse().unwrap()];
        stream.read_exact(&mut info).unwrap();
        let (info, prefix) = (String::from_utf8(info).unwrap(), format!("cmdstat_{command}:calls="));
        let calls = info.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    }

    fn start_again(&mut self) {
        self.child = spawn(self.port).unwrap();
    }

    fn registry(&self) -> Arc<RedisRegistry> {
        let url = format!("redis://127.0.0.1:{}/0", self.port);
        let registry = RedisRegistry::new(&url, None, &"test".parse().unwrap()).unwrap();
        tokio::spawn(Arc::clone(&registry).keep_checking());
        registry
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: u16) -> Option<Child> {
    let program = ["redis-server", "valkey-server"].into_iter().find(|program| {
        Command::new(program).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    let Some(program) = program else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: neither redis-server nor valkey-server is installed");
        return None;
    };
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < MAX_WAIT, "{program} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(child)
}

/// Waits until slots are given out again after a start of the store.
async fn wait_for_recovery(registry: &RedisRegistry, id: &str) -> Duration {
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < MAX_WAIT);
        let registered = registry.register(heartbeat(&server(id, 10)), &ALL).await.is_ok();
        let probe = registry.reserve(request(u64::MAX)).await;
        match probe {
            Ok(_) if registered => return begin.elapsed(),
            Ok(_)
            | Err(
                RegistryError::Recovering(_)
                | RegistryError::Unavailable
                | RegistryError::Unconfirmed
                | RegistryError::NoFreeSlots,
            ) => {
                sleep(Duration::from_millis(200)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn redis_follows_the_rules() {
    let Some(store) = Store::start() else { return };
    let registry = store.registry();
    wait_for_recovery(&registry, "probe").await;
    registry.remove("probe".parse().unwrap(), None, &ALL).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    check_scopes(registry.as_ref()).await;
    check_instances(registry.as_ref()).await;
    check_order(registry.as_ref()).await;
    check_unknown_removals(registry.as_ref()).await;
    check_rules(registry.as_ref()).await;
    check_dead_servers(registry.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_issuers_give_out_exactly_20_000_slots() {
    let Some(store) = Store::start() else { return };
    let registries = [(); 4].map(|()| store.registry());
    wait_for_recovery(&registries[0], "probe").await;
    registries[0].remove("probe".parse().unwrap(), None, &ALL).await.unwrap();
    let beating = Arc::clone(&registries[3]);
    let beat = || async {
        for number in 0..40 {
            let server = server(&format!("s{number}"), 500);
            patiently(|| beating.register(heartbeat(&server), &ALL)).await.unwrap();
        }
    };
    beat().await;
    // A list from before may be used for 0.25 s.
    let list = async || {
        for registry in &registries {
            patiently(|| registry.servers()).await.unwrap();
        }
    };
    list().await;
    let all = || -> Vec<_> { registries.iter().map(|registry| Arc::clone(registry) as Arc<dyn Registry>).collect() };
    let mut reserving = tokio::spawn(reserve_all(all(), 16, 0));
    let reserved = loop {
        tokio::select! {
            reserved = &mut reserving => break reserved.unwrap(),
            () = sleep(Duration::from_millis(700)) => beat().await,
        }
    };
    let servers: Vec<_> = (0..40).map(|number| server(&format!("s{number}"), 500)).collect();
    (reserved + reserve_rest(&all(), &servers).await).assert_slots(20_000);
    let listed = registries[1].servers().await.unwrap();
    assert!(listed.iter().all(|server| server.reserved_slots == 500), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_for_a_full_group_share_one_list() {
    const TASKS: u64 = 8;
    const REQUESTS: u64 = 100;
    let Some(store) = Store::start() else { return };
    let registry = store.registry();
    wait_for_recovery(&registry, "probe").await;
    registry.remove("probe".parse().unwrap(), None, &ALL).await.unwrap();
    let mut full = server("s", 10);
    full.free_slots = 0;
    for number in 0..50 {
        full.id = format!("s{number}").parse().unwrap();
        registry.register(heartbeat(&full), &ALL).await.unwrap();
    }
    registry.servers().await.unwrap();
    // The list of servers is the only script with this command.
    let (lists, begin) = (store.calls("zrange"), Instant::now());
    let mut players = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let registry = Arc::clone(&registry);
        players.spawn(async move {
            for client in 0..REQUESTS {
                let refused = registry.reserve(request(task * REQUESTS + client)).await;
                assert_eq!(refused, Err(RegistryError::NoFreeSlots));
            }
        });
    }
    players.join_all().await;
    let (lists, seconds) = (store.calls("zrange") - lists, begin.elapsed().as_secs() + 1);
    // Four in a second for the requests, and two for the check of the store.
    assert!(lists <= 10 * seconds + 20, "{lists} lists in {seconds} s for {} requests", TASKS * REQUESTS);
    // A server with room is found soon.
    let begin = Instant::now();
    loop {
        registry.register(heartbeat(&server("new", 1)), &ALL).await.unwrap();
        match registry.reserve(request(1)).await {
            Ok(reserved) => break assert_eq!(reserved[0].id.as_str(), "new"),
            Err(error) => assert!(error == RegistryError::NoFreeSlots && begin.elapsed() < MAX_WAIT, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// Registers a server with six slots, and reserves two of them by each of two issuers.
async fn reserve_four(first: &RedisRegistry, second: &RedisRegistry) {
    wait_for_recovery(first, "probe").await;
    first.remove("probe".parse().unwrap(), None, &ALL).await.unwrap();
    first.register(heartbeat(&server("a", 6)), &ALL).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    // A server is dead 3 s after its last heartbeat.
    for client in 0..2 {
        for (registry, client) in [(first, client), (second, 10 + client)] {
            patiently(|| first.register(heartbeat(&server("a", 6)), &ALL)).await.unwrap();
            patiently(|| registry.servers()).await.unwrap();
            patiently(|| registry.reserve(request(client))).await.unwrap();
        }
    }
}

/// Checks that only two slots are given out after a loss of the store's data.
async fn check_recovery(first: &RedisRegistry, second: &RedisRegistry) {
    let begin = Instant::now();
    let reserved = loop {
        assert!(begin.elapsed() < MAX_WAIT);
        let _ = first.register(heartbeat(&server("a", 6)), &ALL).await;
        match first.reserve(request(20)).await {
            Ok(reserved) => break reserved,
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    };
    eprintln!("slots are given out {:.1} s after the loss of the data (goal: 10 s)", begin.elapsed().as_secs_f64());
    assert_eq!(reserved[0].id.as_str(), "a");
    assert_eq!(first.check(), Ok(()));
    // Both issuers wrote their two reservations again.
    first.register(heartbeat(&server("a", 6)), &ALL).await.unwrap();
    assert_eq!(first.servers().await.unwrap()[0].reserved_slots, 5);
    second.servers().await.unwrap();
    second.reserve(request(21)).await.unwrap();
    first.register(heartbeat(&server("a", 6)), &ALL).await.unwrap();
    assert_eq!(second.reserve(request(22)).await, Err(RegistryError::NoFreeSlots));
}

#[tokio::test]
async fn store_that_was_lost_gives_out_no_slot_twice() {
    let Some(mut store) = Store::start() else { return };
    let (first, second) = (store.registry(), store.registry());
    reserve_four(&first, &second).await;
    store.kill();
    let failed = first.reserve(request(20)).await;
    assert!(matches!(failed, Err(RegistryError::Unavailable | RegistryError::Unconfirmed)), "{failed:?}");
    assert_eq!(first.check(), Err(RegistryError::Unavailable));
    store.start_again();
    check_recovery(&first, &second).await;
}

#[tokio::test]
async fn store_that_was_emptied_gives_out_no_slot_twice() {
    let Some(store) = Store::start() else { return };
    let (first, second) = (store.registry(), store.registry());
    reserve_four(&first, &second).await;
    store.eval("redis.call('FLUSHALL') return 1");
    // The server registers again at once, but the issuers need time for their reservations.
    first.register(heartbeat(&server("a", 6)), &ALL).await.unwrap();
    let refused = first.reserve(request(20)).await;
    assert!(matches!(refused, Err(RegistryError::Recovering(left)) if left.as_millis() <= 3_000), "{refused:?}");
    check_recovery(&first, &second).await;
    // An issuer that starts later begins no second pause.
    let third = store.registry();
    let mut left = heartbeat(&server("a", 6));
    left.admitted = vec![21_u64.into()];
    third.register(left, &ALL).await.unwrap();
    third.servers().await.unwrap();
    third.reserve(request(23)).await.unwrap();
}

#[tokio::test]
async fn second_token_of_an_admitted_client_outlives_the_data() {
    let Some(store) = Store::start() else { return };
    let registry = store.registry();
    wait_for_recovery(&registry, "probe").await;
    registry.remove("probe".parse().unwrap(), None, &ALL).await.unwrap();
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    registry.servers().await.unwrap();
    for _ in 0..2 {
        registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
        registry.reserve(request(1)).await.unwrap();
    }
    let admitted = Heartbeat { admitted: vec![1_u64.into()], ..heartbeat(&server("a", 2)) };
    registry.register(admitted, &ALL).await.unwrap();
    // No slot is free for a third token, also if the client asks again and again.
    registry.register(heartbeat(&server("a", 0)), &ALL).await.unwrap();
    registry.servers().await.unwrap();
    let scripts = store.calls("evalsha");
    assert_eq!(registry.reserve(request(1)).await, Err(RegistryError::NoFreeSlots));
    let scripts = store.calls("evalsha") - scripts;
    assert!(scripts < 10, "{scripts} scripts for one request");
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    store.eval("redis.call('FLUSHALL') return 1");
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 1, "the client may use its other token");
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_after_a_loss_of_data_is_named() {
    let Some(store) = Store::start() else { return };
    let registry = store.registry();
    tokio::task::block_in_place(|| {
        let shared = Arc::clone(&registry) as Arc<dyn Registry>;
        let service = Service::start_changed(HttpLimits::default(), &SERVERS, |service| service.with_registry(shared));
        let ready = || {
            let response = TestResponse::from(agent().get(service.url("/readyz")).call().unwrap());
            (response.status, response.json["status"].as_str().unwrap().to_owned())
        };
        let until = |what: &str, holds: &dyn Fn() -> bool| {
            let begin = Instant::now();
            while !holds() {
                assert!(begin.elapsed() < MAX_WAIT, "{what}");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        let is_ready = || ready() == (200, "ready".to_owned());
        until("ready", &is_ready);
        let heartbeat = format!(
            r#"{{"protocol_id": "{PROTOCOL_ID}", "addresses": ["{}"], "group": "g", "slots": 8, "free_slots": 8}}"#,
            SERVERS[0]
        );
        let token = || {
            assert_eq!(service.send("PUT", "/v1/servers/a", &heartbeat).status, 200);
            assert_eq!(service.send("GET", "/v1/servers", "").status, 200);
            service.request_token(r#"{"client_id": 1, "group": "g"}"#)
        };
        assert_eq!(token().status, 201);
        store.eval("redis.call('FLUSHALL') return 1");
        let refused = token();
        refused.assert_refused(503, "store_recovering", None);
        let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=3).contains(&wait), "{wait}");
        assert_eq!(ready(), (503, "store_recovering".to_owned()));
        until("ready again", &is_ready);
        assert_eq!(token().status, 201);
    });
}

/// The store's clock is set back or forward by an hour: what has a time is moved against it.
#[tokio::test]
async fn steps_of_the_clock_neither_free_nor_keep_slots() {
    let Some(store) = Store::start() else { return };
    let registry = store.registry();
    wait_for_recovery(&registry, "probe").await;
    registry.remove("probe".parse().unwrap(), None, &ALL).await.unwrap();
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    let reserved = async || registry.servers().await.unwrap()[0].reserved_slots;
    for (client, step) in [(1, "3600000"), (2, "-3600000")] {
        sleep(Duration::from_millis(300)).await;
        registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
        registry.reserve(request(client)).await.unwrap();
        let move_scores = "for _, key in ipairs(redis.call('KEYS', 'slipgate:*')) do \
            if redis.call('TYPE', key).ok == 'zset' then \
            for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, STEP, member) end \
            elseif string.find(key, ':clock') then \
            for _, field in ipairs({'wall', 'now', 'since'}) do redis.call('HINCRBY', key, field, STEP) end end end \
            return 1";
        store.eval(&move_scores.replace("STEP", step));
        registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
        assert_eq!(u64::from(reserved().await), client, "after a step of {step} ms");
        let listed = registry.servers().await.unwrap();
        assert!(listed[0].heartbeat_age < DEAD_AFTER, "{listed:?}");
    }
    assert_eq!(registry.reserve(request(3)).await, Err(RegistryError::NoFreeSlots));
    // Reservations end after their time, and a living server is not dead.
    let admitted = Heartbeat { admitted: vec![1_u64.into(), 2_u64.into()], ..heartbeat(&server("a", 2)) };
    registry.register(admitted, &ALL).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    let lifetime = Duration::from_secs(2);
    registry.reserve(SlotRequest { lifetime, ..request(3) }).await.unwrap();
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    assert_eq!(reserved().await, 1);
    sleep(lifetime + Duration::from_millis(50)).await;
    registry.register(heartbeat(&server("a", 2)), &ALL).await.unwrap();
    assert_eq!(reserved().await, 0);
}

#[test]
fn wrong_url_is_refused_without_quoting_it() {
    let name = "test".parse().unwrap();
    for url in ["", "http://127.0.0.1:1", "redis://:secret@", "redis://127.0.0.1:x"] {
        let error = RedisRegistry::new(url, None, &name).err().unwrap().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
