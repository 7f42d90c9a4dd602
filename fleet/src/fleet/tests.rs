//! A whole life with a fake of Agones' sidecar and hooks. The turns of the game never wait.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use slipgate_server::keys::{Key, KeyRing};
use slipgate_server::{Clock, Server, ServerConfig, Sockets};

use crate::fake_http::{FakeHttp, FakeRequest, MAX_WAIT};
use crate::population::lock;
use crate::{Fleet, FleetConfig, FleetReporter, HookTarget, LifeState, RegistrationConfig, RegistrationKey};

fn fleet(agones_port: Option<u16>, hooks: Vec<HookTarget>) -> Fleet {
    Fleet::start(FleetConfig { slots: 8, agones_port, hooks, ..FleetConfig::default() }).unwrap()
}

fn line(state: &str) -> String {
    format!("{}\n", json!({"result": {"status": {"state": state}}}))
}

/// Sets the number of connected clients, as a turn of the game does.
fn set_connected(fleet: &Fleet, connected: u32) {
    let shard = fleet.population.add_shard();
    shard.on_turn();
    lock(&shard.clients).connected = connected;
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < MAX_WAIT, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn sidecar_that_starts_late_gets_the_whole_life() {
    let start = Instant::now();
    // It takes no call in the first second.
    let sidecar = FakeHttp::start(move |request| match request.line.as_str() {
        "GET /watch/gameserver" => (200, line("Ready")),
        _ if start.elapsed() < Duration::from_secs(1) => (503, String::new()),
        _ => (200, "{}".into()),
    });
    let fleet = fleet(Some(sidecar.port), Vec::new());
    let count =
        |line: &'static str| move |requests: &[FakeRequest]| requests.iter().filter(|one| one.line == line).count();
    sidecar.until("health", |requests| count("POST /health")(requests) > 1);
    assert_eq!(count("POST /ready")(&sidecar.requests()), 0, "it still starts");
    fleet.life_cycle().advance(LifeState::Ready);
    sidecar.until("ready", |requests| count("POST /ready")(requests) > 0);
    set_connected(&fleet, 3);
    fleet.life_cycle().advance(LifeState::Allocated);
    sidecar.until("allocated", |requests| count("POST /allocate")(requests) > 0);
    let three = json!({"count": "3", "capacity": "8"});
    sidecar.until("players", |requests| requests.iter().any(|one| one.body == three));
    assert!(sidecar.bodies("PATCH /v1beta1/lists/players").contains(&json!({"capacity": "8", "values": []})));
    drop(fleet);
    assert_eq!(count("POST /shutdown")(&sidecar.requests()), 1);
}

#[test]
fn refused_calls_are_repeated_until_they_are_taken() {
    let count = std::sync::atomic::AtomicU32::new(0);
    let sidecar = FakeHttp::start(move |request| match request.line.as_str() {
        "POST /ready" if count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 2 => (503, String::new()),
        "GET /watch/gameserver" => (404, String::new()),
        _ => (200, "{}".into()),
    });
    let fleet = fleet(Some(sidecar.port), Vec::new());
    fleet.life_cycle().advance(LifeState::Ready);
    sidecar.until("third attempt", |requests| requests.iter().filter(|one| one.line == "POST /ready").count() == 3);
    // Further runs do not report it again.
    sidecar.until("health", |requests| requests.iter().filter(|one| one.line == "POST /health").count() > 3);
    assert_eq!(sidecar.bodies("POST /ready").len(), 3);
}

#[test]
fn states_of_agones_move_the_server() {
    let (states, next) = mpsc::channel();
    let next = std::sync::Mutex::new(next);
    let sidecar = FakeHttp::start(move |request| match request.line.as_str() {
        "GET /watch/gameserver" => (200, line(lock(&next).recv().unwrap_or("Ready"))),
        _ => (200, "{}".into()),
    });
    let fleet = fleet(Some(sidecar.port), Vec::new());
    let life = fleet.life_cycle();
    states.send("Scheduled").unwrap();
    life.advance(LifeState::Ready);
    states.send("Allocated").unwrap();
    until("allocated", || life.state() == LifeState::Allocated);
    states.send("Shutdown").unwrap();
    until("draining", || life.is_draining());
}

#[test]
fn fleet_without_counters_is_asked_once() {
    let sidecar = FakeHttp::start(|request| match request.line.split(' ').next() {
        Some("PATCH") => (404, json!({"code": 5}).to_string()),
        _ => (200, line("Ready")),
    });
    let fleet = fleet(Some(sidecar.port), Vec::new());
    fleet.life_cycle().advance(LifeState::Ready);
    sidecar.until("counter", |requests| requests.iter().any(|one| one.line.starts_with("PATCH /v1beta1/lists")));
    set_connected(&fleet, 1);
    // A report was due 1 s after the last one.
    thread::sleep(Duration::from_millis(2500));
    let patches = sidecar.requests().iter().filter(|one| one.line.starts_with("PATCH")).count();
    assert_eq!(patches, 2, "{:?}", sidecar.requests());
}

#[test]
fn server_without_turns_is_not_reported_as_healthy() {
    let sidecar = FakeHttp::start(|_| (200, line("Ready")));
    let fleet = fleet(Some(sidecar.port), Vec::new());
    set_connected(&fleet, 0);
    until("stalled", || !fleet.population.is_healthy());
    fleet.life_cycle().advance(LifeState::Ready);
    sidecar.until("ready", |requests| requests.iter().any(|one| one.line == "POST /ready"));
    // The driver has one thread: what it reported before the stall has arrived.
    let healthy = sidecar.bodies("POST /health").len();
    // A report was due 2 s after the last one.
    thread::sleep(Duration::from_millis(2500));
    assert_eq!(sidecar.bodies("POST /health").len(), healthy);
}

#[test]
fn hook_url_gets_each_state_in_order() {
    let count = std::sync::atomic::AtomicU32::new(0);
    // The first attempt fails.
    let target = FakeHttp::start(move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => (500, String::new()),
        _ => (204, String::new()),
    });
    let fleet = fleet(None, vec![HookTarget::Url(format!("http://127.0.0.1:{}/hook?x=1", target.port))]);
    for state in [LifeState::Ready, LifeState::Allocated, LifeState::Draining] {
        fleet.life_cycle().advance(state);
    }
    drop(fleet);
    let states: Vec<_> =
        target.bodies("POST /hook?x=1").iter().map(|body| body["state"].as_str().unwrap().to_owned()).collect();
    assert_eq!(states, ["ready", "ready", "allocated", "draining", "ended"]);
    let last = target.bodies("POST /hook?x=1").pop().unwrap();
    assert_eq!(last, json!({"state": "ended", "previous": "draining", "connected": 0, "slots": 8}));
}

#[test]
fn end_is_reported_without_the_clients_of_the_last_turn() {
    let target = FakeHttp::start(|_| (204, String::new()));
    let fleet = fleet(None, vec![HookTarget::Url(format!("http://127.0.0.1:{}/hook", target.port))]);
    set_connected(&fleet, 3);
    fleet.life_cycle().advance(LifeState::Draining);
    target.until("draining", |requests| !requests.is_empty());
    drop(fleet);
    let connected: Vec<_> = target.bodies("POST /hook").iter().map(|body| body["connected"].clone()).collect();
    assert_eq!(connected, [json!(3), json!(0)]);
}

#[test]
fn hook_command_gets_each_state_without_the_servers_variables() {
    let folder = std::env::temp_dir().join(format!("slipgate-hook-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (script, output) = (folder.join("hook.sh"), folder.join("output"));
    let text = format!("#!/bin/sh\nenv | grep SLIPGATE_ | sort | tr '\\n' ' ' >> {0}\necho >> {0}\n", output.display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let fleet = fleet(None, vec![HookTarget::Command(script)]);
    fleet.life_cycle().advance(LifeState::Ready);
    drop(fleet);
    let lines = fs::read_to_string(&output).unwrap();
    let expected = "SLIPGATE_CONNECTED=0 SLIPGATE_PREVIOUS_STATE=starting SLIPGATE_SLOTS=8 SLIPGATE_STATE=ready \n\
                    SLIPGATE_CONNECTED=0 SLIPGATE_PREVIOUS_STATE=ready SLIPGATE_SLOTS=8 SLIPGATE_STATE=ended \n";
    assert_eq!(lines, expected);
    fs::remove_dir_all(&folder).unwrap();
}

/// Writes a script that is a hook's command.
fn script(name: &str, text: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("slipgate-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let script = folder.join("hook.sh");
    fs::write(&script, format!("#!/bin/sh\ncd {}\n{text}", folder.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    script
}

#[test]
fn end_waits_for_a_slow_command_and_kills_a_hung_one() {
    // Slower than the 5 s that process managers and other calls may take.
    let slow = script("slow-hook", "sleep 6\necho $SLIPGATE_STATE >> states\n");
    let states = slow.with_file_name("states");
    let fleet = fleet(None, vec![HookTarget::Command(slow)]);
    drop(fleet);
    assert_eq!(fs::read_to_string(&states).unwrap(), "ended\n");

    // The command for `draining` hangs. It and that for `ended` share the time of the end.
    let hung = script("hung-hook", "sleep 1000 &\nprintf '%s\\n' $$ $! >> pids\nwait\n");
    let pids = hung.with_file_name("pids");
    let fleet = self::fleet(None, vec![HookTarget::Command(hung)]);
    fleet.life_cycle().advance(LifeState::Draining);
    until("the command runs", || fs::read_to_string(&pids).is_ok_and(|pids| pids.ends_with('\n')));
    fleet.end();
    assert!(fleet.life_cycle().wait_for_drivers(Duration::ZERO), "the driver has finished");
    let text = fs::read_to_string(&pids).unwrap();
    assert!(text.lines().count() >= 2, "{text:?}: the script and its child");
    for pid in text.lines() {
        until("the command and its children are killed", || !is_running(pid));
    }
    for file in [states, pids] {
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }
}

/// Returns whether a process runs. A killed one may stay as a zombie until its new parent waits for it.
fn is_running(pid: &str) -> bool {
    let state = std::process::Command::new("ps").args(["-o", "stat=", "-p", pid]).output().unwrap().stdout;
    !state.is_empty() && !state.starts_with(b"Z")
}

#[test]
fn child_of_a_command_that_ended_in_time_goes_on() {
    let starts = script("background-hook", "sleep 1000 &\necho $! > pid\n");
    let file = starts.with_file_name("pid");
    let fleet = fleet(None, vec![HookTarget::Command(starts)]);
    drop(fleet);
    let pid = fs::read_to_string(&file).unwrap();
    assert!(is_running(pid.trim()));
    assert!(std::process::Command::new("kill").arg(pid.trim()).status().unwrap().success());
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn missing_hooks_do_not_stop_the_server() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hooks = vec![HookTarget::Command("/nonexistent".into()), HookTarget::Url(format!("http://{closed}/"))];
    let fleet = fleet(Some(closed.port()), hooks);
    assert!(fleet.life_cycle().advance(LifeState::Ready));
    let start = Instant::now();
    drop(fleet);
    // The end is reported for up to 10 s.
    assert!(start.elapsed() < MAX_WAIT);
}

/// Returns a server; the test runs its turns.
fn server() -> (Server, Clock) {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let (clock, config) = (Clock::start(), ServerConfig::new(1, 8, &sockets.local_addresses()));
    let keys = KeyRing::new(&[Key::from([5; 32])]).unwrap();
    (Server::new(sockets, config, keys, clock.now()).unwrap(), clock)
}

#[test]
fn turn_does_not_wait_while_a_driver_reads() {
    let fleet = fleet(None, Vec::new());
    let (mut server, clock) = server();
    let shard = fleet.population.add_shard();
    let mut reporter =
        FleetReporter::new(fleet.life_cycle().clone(), std::sync::Arc::clone(&shard), std::sync::Arc::default());
    let reading = lock(&shard.clients);
    let (done, is_done) = mpsc::channel();
    let game = thread::spawn(move || {
        reporter.on_turn(&mut server, clock.now());
        done.send(()).unwrap();
    });
    // The lock is held until the turn has ended.
    is_done.recv_timeout(MAX_WAIT).expect("the turn waits for a driver");
    drop(reading);
    game.join().unwrap();
}

/// `AGONES_SDK_HTTP_PORT` names the sidecar, for example of `sdk-server --local`.
#[test]
fn real_sidecar_takes_the_whole_life() {
    let Some(port) = std::env::var("AGONES_SDK_HTTP_PORT").ok().and_then(|port| port.parse().ok()) else {
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: AGONES_SDK_HTTP_PORT is not set, so the real sidecar is not tested");
        return;
    };
    let state = || {
        let mut response = ureq::get(format!("http://127.0.0.1:{port}/gameserver")).call().unwrap();
        let game_server: serde_json::Value =
            serde_json::from_slice(&response.body_mut().read_to_vec().unwrap()).unwrap();
        game_server["status"]["state"].as_str().unwrap_or_default().to_owned()
    };
    let fleet = fleet(Some(port), Vec::new());
    fleet.life_cycle().advance(LifeState::Ready);
    until("ready", || state() == "Ready");
    set_connected(&fleet, 2);
    fleet.life_cycle().advance(LifeState::Allocated);
    until("allocated", || state() == "Allocated");
    thread::sleep(Duration::from_secs(3));
    drop(fleet);
    until("shutdown", || state() == "Shutdown");
}

/// Returns the handle of a client in the same program.
fn handle() -> slipgate_server::ClientHandle {
    let (mut server, clock) = server();
    server.begin_turn(clock.now());
    server.connect_loopback(7, [0; 256]).unwrap()
}

/// Starts a fleet that registers with these issuers.
fn registered(issuers: &[&FakeHttp]) -> Fleet {
    let port = issuers[0].port;
    let folder = std::env::temp_dir().join(format!("slipgate-registration-{}-{port}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("key");
    fs::write(&path, "sgk_secret\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let key = RegistrationKey::read(&path).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(format!("{key:?}"), "RegistrationKey(..)");
    let fleet = fleet(None, Vec::new());
    let config = RegistrationConfig {
        issuers: issuers.iter().map(|issuer| format!("http://127.0.0.1:{}/", issuer.port)).collect(),
        authorities: None,
        accepts_earlier_tokens: false,
        redirects: false,
        redirects_in_region: false,
        key,
        server_id: "eu-1".into(),
        group: "ranked".into(),
        region: Some("eu-west".into()),
        build: None,
        protocol_id: u64::MAX,
        addresses: vec!["203.0.113.5:40000".parse().unwrap()],
    };
    fleet.register(config).unwrap();
    fleet
}

#[test]
fn server_registers_beats_drains_and_is_removed() {
    let issuer = FakeHttp::start(|_| (200, json!({"heartbeat_millis": 100, "dead_after_millis": 30_000}).to_string()));
    let fleet = registered(&[&issuer]);
    thread::sleep(Duration::from_millis(300));
    assert!(issuer.requests().is_empty(), "it still starts");
    fleet.life_cycle().advance(LifeState::Ready);
    issuer.until("heartbeats", |requests| requests.len() > 2);
    let mut first = issuer.requests().swap_remove(0);
    assert_eq!(
        (first.line.as_str(), first.authorization.as_deref()),
        ("PUT /v1/servers/eu-1", Some("Bearer sgk_secret"))
    );
    let expected = json!({
        "protocol_id": "18446744073709551615", "addresses": ["203.0.113.5:40000"], "group": "ranked",
        "region": "eu-west", "slots": 8, "free_slots": 8, "draining": false, "admitted_client_ids": [],
    });
    let running = first.body.as_object_mut().unwrap().remove("running_millis").unwrap();
    assert!((300..60_000).contains(&running.as_u64().unwrap()), "{running}");
    let instance = first.body.as_object_mut().unwrap().remove("instance").unwrap();
    assert_eq!(instance.as_str().unwrap().len(), 16);
    assert_eq!(first.body.as_object_mut().unwrap().remove("sequence"), Some(json!(1)));
    assert_eq!(first.body, expected);
    let shard = fleet.population.add_shard();
    let mut clients = lock(&shard.clients);
    clients.connected = 2;
    clients.admitted = [(handle(), 42.into())].into();
    drop(clients);
    issuer.until("an admitted client", |requests| {
        requests.iter().any(|one| one.body["admitted_client_ids"] == json!(["42"]))
    });
    let count = issuer.requests().len();
    issuer.until("more heartbeats", |requests| requests.len() > count + 2);
    let reports = issuer.requests().iter().filter(|one| one.body["admitted_client_ids"] == json!(["42"])).count();
    assert_eq!((reports, issuer.requests().last().unwrap().body["free_slots"].clone()), (1, json!(6)));
    lock(&shard.clients).is_history_unavailable = true;
    issuer.until("no free slots", |requests| requests.last().unwrap().body["free_slots"] == json!(0));
    lock(&shard.clients).is_history_unavailable = false;
    issuer.until("free slots again", |requests| requests.last().unwrap().body["free_slots"] == json!(6));
    fleet.life_cycle().advance(LifeState::Draining);
    issuer.until("draining", |requests| requests.last().unwrap().body["draining"] == json!(true));
    drop(fleet);
    let last = issuer.requests().pop().unwrap().line;
    let bodies = issuer.bodies("PUT /v1/servers/eu-1");
    // The removal has the next number after the heartbeats.
    let (name, sequence) = (instance.as_str().unwrap(), bodies.len() + 1);
    assert_eq!(last, format!("DELETE /v1/servers/eu-1?instance={name}&sequence={sequence}"));
    assert!(bodies.iter().all(|body| body["instance"] == instance));
    assert!(bodies.iter().zip(1..).all(|(body, sequence)| body["sequence"] == json!(sequence)), "{bodies:?}");
    // A server that is started again is another run.
    let again = registered(&[&issuer]);
    again.life_cycle().advance(LifeState::Ready);
    issuer.until("another run", |requests| {
        requests.last().is_some_and(|last| last.body["instance"].is_string() && last.body["instance"] != instance)
    });
}

#[test]
fn refused_heartbeats_are_repeated_with_their_clients() {
    let count = std::sync::atomic::AtomicU32::new(0);
    let issuer = FakeHttp::start(move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        0 => (503, String::new()),
        1 => (201, String::new()),
        _ => (200, "{}".into()),
    });
    let fleet = registered(&[&issuer]);
    let shard = fleet.population.add_shard();
    lock(&shard.clients).admitted = [(handle(), 42.into())].into();
    fleet.life_cycle().advance(LifeState::Ready);
    issuer.until("four heartbeats", |requests| requests.len() > 3);
    let reported: Vec<_> = issuer.requests().iter().map(|one| one.body["admitted_client_ids"].clone()).collect();
    assert_eq!(reported[..4], [json!(["42"]), json!(["42"]), json!(["42"]), json!([])]);
}

const TAKEN: (u16, &str) = (200, r#"{"heartbeat_millis": 1000, "dead_after_millis": 3000}"#);

/// Returns the longest time between two heartbeats of which one issuer hangs.
fn longest_gap_beside_an_issuer_that_hangs() -> Duration {
    let taken: std::sync::Arc<std::sync::Mutex<Vec<Instant>>> = std::sync::Arc::default();
    let take = |taken: &std::sync::Mutex<Vec<Instant>>| {
        lock(taken).push(Instant::now());
        (TAKEN.0, TAKEN.1.to_owned())
    };
    let (resume, hang) = mpsc::channel::<()>();
    let (hang, of_first) = (std::sync::Mutex::new(hang), std::sync::Arc::clone(&taken));
    let first = FakeHttp::start(move |_| {
        if !lock(&of_first).is_empty() {
            // Ends when the test has ended.
            let _ = lock(&hang).recv();
        }
        take(&of_first)
    });
    let of_second = std::sync::Arc::clone(&taken);
    let second = FakeHttp::start(move |_| take(&of_second));
    let fleet = registered(&[&first, &second]);
    fleet.life_cycle().advance(LifeState::Ready);
    second.until("a heartbeat", |requests| requests.len() >= 2);
    let times = lock(&taken).clone();
    drop(fleet);
    let last = second.requests().pop().unwrap().line;
    assert!(last.starts_with("DELETE /v1/servers/eu-1?instance="), "{last}: it responded last");
    drop(resume);
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
}

#[test]
fn heartbeat_is_in_time_although_one_issuer_hangs() {
    // A machine that pauses delays a heartbeat, too. The driver would delay those of each attempt.
    let gaps: Vec<_> = (0..5)
        .map(|_| longest_gap_beside_an_issuer_that_hangs())
        .scan(false, |is_over, gap| (!std::mem::replace(is_over, gap < Duration::from_secs(3))).then_some(gap))
        .collect();
    assert!(gaps.last().unwrap() < &Duration::from_secs(3), "{gaps:?}: the server was dead for some time");
}

#[test]
fn restored_server_registers_as_a_new_run() {
    // The issuer has recorded later numbers of the run: it refuses some heartbeats, as after a restore from a
    // snapshot. The network may delay a single one.
    let late = json!({"error": {"code": "late_heartbeat", "message": "x", "field": "sequence"}}).to_string();
    let count = std::sync::atomic::AtomicU32::new(0);
    let issuer = FakeHttp::start(move |_| match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
        1 | 3 | 4 => (409, late.clone()),
        _ => (200, json!({"heartbeat_millis": 100, "dead_after_millis": 3000}).to_string()),
    });
    let fleet = registered(&[&issuer]);
    let shard = fleet.population.add_shard();
    let mut clients = lock(&shard.clients);
    clients.connected = 1;
    (clients.clients, clients.admitted) = (vec![(handle(), 42.into())], [(handle(), 42.into())].into());
    drop(clients);
    fleet.life_cycle().advance(LifeState::Ready);
    issuer.until("heartbeats of the new run", |requests| requests.len() > 6);
    let bodies = issuer.bodies("PUT /v1/servers/eu-1");
    let (instance, new) = (&bodies[0]["instance"], &bodies[5]["instance"]);
    assert!(bodies[..5].iter().all(|body| body["instance"] == *instance), "{bodies:?}");
    assert!(new != instance && bodies[6]["instance"] == *new, "{bodies:?}");
    let numbers: Vec<_> = bodies[..7].iter().map(|body| body["sequence"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 1, 2]);
    let reported: Vec<_> = bodies[..7].iter().map(|body| !body["admitted_client_ids"][0].is_null()).collect();
    assert_eq!(reported, [true, false, false, false, false, true, false], "the new run reports all clients again");
    // Its clock has stood still.
    let has_time: Vec<_> = bodies[..7].iter().map(|body| body["running_millis"].is_u64()).collect();
    assert_eq!(has_time, [true, true, true, true, true, false, false]);
    drop(fleet);
    let (last, new) = (issuer.requests().pop().unwrap().line, new.as_str().unwrap());
    assert!(last.starts_with(&format!("DELETE /v1/servers/eu-1?instance={new}&sequence=")), "{last}");
}

#[test]
fn issuer_without_its_store_passes_a_heartbeat_to_the_next() {
    let refusal = |code: &str| json!({"error": {"code": code, "message": "x"}}).to_string();
    let first = FakeHttp::start(move |_| (503, refusal("store_unavailable")));
    let second = FakeHttp::start(|_| (TAKEN.0, TAKEN.1.to_owned()));
    let fleet = registered(&[&first, &second]);
    fleet.life_cycle().advance(LifeState::Ready);
    second.until("heartbeats", |requests| requests.len() >= 2);
    assert_eq!(first.requests().len(), 1);
    drop(fleet);

    // What all issuers know is asked once.
    let full = FakeHttp::start(move |_| (503, refusal("registry_full")));
    let other = FakeHttp::start(|_| (TAKEN.0, TAKEN.1.to_owned()));
    let fleet = registered(&[&full, &other]);
    fleet.life_cycle().advance(LifeState::Ready);
    full.until("heartbeats", |requests| requests.len() >= 2);
    assert!(other.requests().is_empty());
}
