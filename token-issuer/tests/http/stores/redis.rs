//! The registry in a real Redis: the same rules, several issuers, and the loss of the store.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipgate_token_issuer::registry::{RedisRegistry, Registry, RegistryError};
use tokio::time::sleep;

use super::rules::{check_dead_servers, check_rules, heartbeat, request, reserve_all, server};

/// The longest time that a test waits for the store.
const MAX_WAIT: Duration = Duration::from_secs(20);

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

    /// Runs a script in the store.
    fn eval(&self, script: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(stream, "EVAL \"{script}\" 0\r\n").unwrap();
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).unwrap();
        assert_eq!(reply, ":1\r\n", "one key");
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
        eprintln!("skipped: neither redis-server nor valkey-server is installed");
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
        let registered = registry.register(heartbeat(&server(id, 10))).await.is_ok();
        let probe = registry.reserve(request(u64::MAX)).await;
        match probe {
            Ok(_) if registered => return begin.elapsed(),
            Ok(_) | Err(RegistryError::Unavailable | RegistryError::NoFreeSlots) => {
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
    registry.remove("probe".parse().unwrap()).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    check_rules(registry.as_ref()).await;
    check_dead_servers(registry.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_issuers_give_out_exactly_20_000_slots() {
    let Some(store) = Store::start() else { return };
    let registries = [(); 4].map(|()| store.registry());
    wait_for_recovery(&registries[0], "probe").await;
    registries[0].remove("probe".parse().unwrap()).await.unwrap();
    let beating = Arc::clone(&registries[3]);
    let beat = || async {
        for number in 0..40 {
            beating.register(heartbeat(&server(&format!("s{number}"), 500))).await.unwrap();
        }
    };
    beat().await;
    let all = || registries.iter().map(|registry| Arc::clone(registry) as Arc<dyn Registry>).collect();
    let mut reserving = tokio::spawn(reserve_all(all(), 16, 0));
    let mut reserved = loop {
        tokio::select! {
            reserved = &mut reserving => break reserved.unwrap(),
            () = sleep(Duration::from_millis(700)) => beat().await,
        }
    };
    // On a busy machine heartbeats were late, and slots of servers that counted as dead are left.
    beat().await;
    reserved += reserve_all(all(), 1, 1 << 48).await;
    assert_eq!(reserved, 20_000);
    let listed = registries[1].servers().await.unwrap();
    assert!(listed.iter().all(|server| server.reserved_slots == 500), "{listed:?}");
}

/// The pause after a start of the store does not come back when the key of the run would expire.
#[tokio::test]
async fn store_in_use_has_no_second_pause() {
    let Some(store) = Store::start() else { return };
    let registry = store.registry();
    wait_for_recovery(&registry, "probe").await;
    let shorten = "local keys = redis.call('KEYS', '*:run:*') redis.call('PEXPIRE', keys[1], 400) return #keys";
    store.eval(shorten);
    for client in 0..10 {
        registry.register(heartbeat(&server("probe", 100))).await.unwrap();
        registry.reserve(request(client)).await.unwrap();
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn store_that_was_lost_gives_out_no_slot_twice() {
    let Some(mut store) = Store::start() else { return };
    let (first, second) = (store.registry(), store.registry());
    wait_for_recovery(&first, "probe").await;
    first.remove("probe".parse().unwrap()).await.unwrap();
    first.register(heartbeat(&server("a", 6))).await.unwrap();
    sleep(Duration::from_millis(300)).await;
    for client in 0..2 {
        first.reserve(request(client)).await.unwrap();
        second.reserve(request(10 + client)).await.unwrap();
    }
    store.kill();
    assert_eq!(first.reserve(request(20)).await, Err(RegistryError::Unavailable));
    assert!(!first.is_available());
    store.start_again();
    let begin = Instant::now();
    let reserved = loop {
        assert!(begin.elapsed() < MAX_WAIT);
        let _ = first.register(heartbeat(&server("a", 6))).await;
        match first.reserve(request(20)).await {
            Ok(reserved) => break reserved,
            Err(_) => sleep(Duration::from_millis(200)).await,
        }
    };
    eprintln!("slots are given out {:.1} s after the start of the store (goal: 10 s)", begin.elapsed().as_secs_f64());
    assert_eq!(reserved[0].id.as_str(), "a");
    assert!(first.is_available());
    // The store had lost everything. Both issuers wrote their two reservations again.
    assert_eq!(first.servers().await.unwrap()[0].reserved_slots, 5);
    second.reserve(request(21)).await.unwrap();
    assert_eq!(second.reserve(request(22)).await, Err(RegistryError::NoFreeSlots));
}

#[test]
fn wrong_url_is_refused_without_quoting_it() {
    let name = "test".parse().unwrap();
    for url in ["", "http://127.0.0.1:1", "redis://:secret@", "redis://127.0.0.1:x"] {
        let error = RedisRegistry::new(url, None, &name).err().unwrap().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
