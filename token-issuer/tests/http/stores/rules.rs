//! What each store must do, whatever keeps its data.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use slipgate_token_issuer::callers::Scopes;
use slipgate_token_issuer::registry::{
    Heartbeat, MemoryRegistry, Registration, Registry, RegistryError, RegistryName, RegistryState, ServerInstance,
    SlotRequest,
};

/// The scopes of a key that may do everything.
pub(crate) static ALL: LazyLock<Scopes> = LazyLock::new(Scopes::default);

/// Returns a server of the group `g` with free slots only.
pub(crate) fn server(id: &str, slots: u32) -> Registration {
    Registration {
        id: id.parse().unwrap(),
        protocol_id: u64::MAX,
        addresses: vec!["192.0.2.1:40000".parse().unwrap(), "[2001:db8::1]:40000".parse().unwrap()],
        group: "g".parse().unwrap(),
        region: Some("eu".parse().unwrap()),
        slots,
        free_slots: slots,
        is_draining: false,
        build: Some("1.0".to_owned()),
    }
}

pub(crate) fn heartbeat(registration: &Registration) -> Heartbeat {
    Heartbeat { registration: registration.clone(), admitted: Vec::new(), running: None, instance: None }
}

/// Returns a run of a server with the number of its heartbeat.
pub(crate) fn instance(name: &str, sequence: Option<u64>) -> Option<ServerInstance> {
    Some(ServerInstance { name: name.parse().unwrap(), sequence })
}

pub(crate) fn request(client_id: u64) -> SlotRequest {
    SlotRequest {
        protocol_id: u64::MAX,
        group: "g".parse().unwrap(),
        regions: Vec::new(),
        only_regions: false,
        server_count: 1,
        client_id: client_id.into(),
        lifetime: Duration::from_secs(38),
    }
}

/// Registers a server, and reads the list of servers: a list from before may be used for 0.25 s.
async fn register(registry: &dyn Registry, registration: &Registration) {
    registry.register(heartbeat(registration), &ALL).await.unwrap();
    registry.servers().await.unwrap();
}

/// Checks the rules on an empty store.
pub(crate) async fn check_rules(registry: &dyn Registry) {
    assert_eq!(registry.reserve(request(1)).await, Err(RegistryError::NoServers));
    let mut one = server("one", 3);
    register(registry, &one).await;
    let misspelt = SlotRequest { group: "gg".parse().unwrap(), ..request(1) };
    assert_eq!(registry.reserve(misspelt).await, Err(RegistryError::NoServers));
    let reserved = registry.reserve(request(1)).await.unwrap();
    assert_eq!((reserved.len(), reserved[0].id.as_str()), (1, "one"));
    assert_eq!(reserved[0].addresses, one.addresses);
    for client in [1, 3, 3, 2] {
        register(registry, &one).await;
        registry.reserve(request(client)).await.unwrap();
    }
    register(registry, &one).await;
    assert_eq!(registry.reserve(request(4)).await, Err(RegistryError::NoFreeSlots), "three clients, three slots");
    registry.reserve(request(2)).await.expect("a client's tokens share its slot");
    let listed = registry.servers().await.unwrap();
    assert_eq!((listed.len(), &listed[0].registration, listed[0].reserved_slots), (1, &one, 3));
    assert_eq!(listed[0].state(), RegistryState::Full);

    // Client 3 has two tokens: the first admission leaves its reservation, the second ends it.
    one.free_slots = 2;
    let admitted = |count: usize| Heartbeat { admitted: vec![3_u64.into(); count], ..heartbeat(&one) };
    registry.register(admitted(1), &ALL).await.unwrap();
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 3);
    registry.register(admitted(1), &ALL).await.unwrap();
    assert_eq!(registry.servers().await.unwrap()[0].reserved_slots, 2);
    assert_eq!(registry.reserve(request(4)).await, Err(RegistryError::NoFreeSlots));

    let mut two = server("two", 10);
    two.addresses = vec!["192.0.2.2:40000".parse().unwrap()];
    register(registry, &two).await;
    register(registry, &one).await;
    let elsewhere = SlotRequest { regions: vec!["mars".parse().unwrap()], only_regions: true, ..request(5) };
    assert_eq!(registry.reserve(elsewhere).await, Err(RegistryError::NoFreeSlots), "both are in another region");
    assert_eq!(registry.reserve(request(5)).await.unwrap()[0].id.as_str(), "two");
    two.is_draining = true;
    registry.register(heartbeat(&two), &ALL).await.unwrap();
    assert_eq!(registry.reserve(request(6)).await, Err(RegistryError::NoFreeSlots), "it drains");
    two.is_draining = false;
    register(registry, &two).await;
    register(registry, &one).await;
    let lifetime = Duration::from_secs(2);
    let short = SlotRequest { lifetime, server_count: 2, ..request(6) };
    assert_eq!(registry.reserve(short).await.unwrap().len(), 1, "the other one is full");
    assert_eq!(registry.servers().await.unwrap()[1].reserved_slots, 2);
    tokio::time::sleep(lifetime + Duration::from_millis(50)).await;
    register(registry, &two).await;
    assert_eq!(registry.servers().await.unwrap()[1].reserved_slots, 1, "the short reservation has ended");

    assert_eq!(registry.remove("two".parse().unwrap(), None, &ALL).await, Ok(true));
    assert_eq!(registry.remove("two".parse().unwrap(), None, &ALL).await, Ok(false));
    assert_eq!(registry.servers().await.unwrap().len(), 1);
    one.is_draining = true;
    register(registry, &one).await;
    assert_eq!(registry.reserve(request(7)).await, Err(RegistryError::NoFreeSlots), "a draining one is registered");
    assert_eq!(registry.check(), Ok(()));
}

/// Checks that a key changes no server of a group or game that its scopes do not include.
pub(crate) async fn check_scopes(registry: &dyn Registry) {
    let scopes = |groups: &[&str], protocol_id| {
        let groups = groups.iter().map(|group| group.parse().unwrap()).collect();
        Scopes { groups: Some(groups), protocol_ids: Some(vec![protocol_id]), ..Scopes::default() }
    };
    let group = async || registry.servers().await.unwrap()[0].registration.group.clone();
    let (one, id) = (server("one", 3), server("one", 3).id);
    let moved = Registration { group: "h".parse().unwrap(), ..one.clone() };
    registry.register(heartbeat(&one), &scopes(&["g"], u64::MAX)).await.unwrap();
    for other in [scopes(&["h"], u64::MAX), scopes(&["g", "h"], 7)] {
        assert_eq!(registry.register(heartbeat(&moved), &other).await, Err(RegistryError::OutOfScope));
        assert_eq!(registry.remove(id.clone(), None, &other).await, Err(RegistryError::OutOfScope));
        assert_eq!(group().await.as_str(), "g");
    }
    registry.register(heartbeat(&moved), &scopes(&["g", "h"], u64::MAX)).await.unwrap();
    assert_eq!(group().await.as_str(), "h");
    registry.register(heartbeat(&moved), &scopes(&["h"], u64::MAX)).await.unwrap();
    assert_eq!(registry.remove(id.clone(), None, &scopes(&["g"], u64::MAX)).await, Err(RegistryError::OutOfScope));
    assert_eq!(registry.remove(id.clone(), None, &scopes(&["h"], u64::MAX)).await, Ok(true));
    assert_eq!(registry.remove(id, None, &scopes(&["g"], u64::MAX)).await, Ok(false), "it is not registered any more");
}

/// Checks that the newest of the servers with one id has it while it is alive.
pub(crate) async fn check_instances(registry: &dyn Registry) {
    let of = |run: &str, port: u16| {
        let mut registration = server("twice", 3);
        registration.addresses = vec![([192, 0, 2, 1], port).into()];
        Heartbeat { instance: instance(run, None), ..heartbeat(&registration) }
    };
    let addresses = async || registry.servers().await.unwrap()[0].registration.addresses.clone();
    let replaced = |port: u16| Err(RegistryError::Replaced(vec![([192, 0, 2, 1], port).into()]));
    let (id, run): (RegistryName, _) = (server("twice", 3).id, |run: &str| instance(run, None));
    registry.register(of("one", 1), &ALL).await.unwrap();
    // A restarted server, or another one, gets the id at once.
    registry.register(of("two", 2), &ALL).await.unwrap();
    registry.register(of("two", 2), &ALL).await.unwrap();
    assert_eq!(registry.register(of("one", 1), &ALL).await, replaced(2));
    assert_eq!(addresses().await, of("two", 2).registration.addresses);
    registry.register(of("three", 3), &ALL).await.unwrap();
    for (run, port) in [("one", 1), ("two", 2)] {
        assert_eq!(registry.register(of(run, port), &ALL).await, replaced(3));
    }
    // The end of a replaced one removes no other, and the end of the newest one leaves the id to the others.
    assert_eq!(registry.remove(id.clone(), run("one"), &ALL).await, Ok(false));
    assert_eq!(addresses().await, of("three", 3).registration.addresses);
    assert_eq!(registry.remove(id.clone(), run("three"), &ALL).await, Ok(true));
    registry.register(of("one", 1), &ALL).await.unwrap();
    registry.register(of("two", 2), &ALL).await.unwrap();
    // So does its death.
    tokio::time::sleep(Duration::from_millis(3_100)).await;
    registry.register(of("one", 1), &ALL).await.unwrap();
    assert_eq!(registry.register(of("two", 2), &ALL).await, replaced(1));
    // A server that does not name its run is not distinguished.
    registry.register(heartbeat(&server("twice", 3)), &ALL).await.unwrap();
    assert_eq!(registry.remove(id, None, &ALL).await, Ok(true));
}

/// Returns the heartbeat of a run with this number and these free slots.
pub(crate) fn numbered(run: &str, sequence: u64, free_slots: u32) -> Heartbeat {
    let registration = Registration { free_slots, ..server("numbered", 1_000) };
    Heartbeat { instance: instance(run, Some(sequence)), ..heartbeat(&registration) }
}

/// Checks that a late heartbeat or removal of a run changes nothing.
pub(crate) async fn check_order(registry: &dyn Registry) {
    let id: RegistryName = server("numbered", 1).id;
    let free_slots = async || {
        let listed = registry.servers().await.unwrap();
        listed.iter().find(|listed| listed.registration.id == id).map(|listed| listed.registration.free_slots)
    };
    let late = Err(RegistryError::Late);
    // Numbers of 64 bits keep their order, and those with more digits come later.
    let first = u64::MAX - 100;
    registry.register(numbered("run", 9, 9), &ALL).await.unwrap();
    registry.register(numbered("run", first, 10), &ALL).await.unwrap();
    registry.register(numbered("run", first + 1, 11), &ALL).await.unwrap();
    for (sequence, expected) in [(first, &late), (9, &late), (10, &late), (first + 1, &Ok(()))] {
        assert_eq!(&registry.register(numbered("run", sequence, 99), &ALL).await, expected, "{sequence}");
        assert_eq!(free_slots().await, Some(11), "{sequence}");
    }
    // A heartbeat without a number, or of another run, has no place in this order.
    registry.register(Heartbeat { instance: instance("run", None), ..numbered("run", 0, 12) }, &ALL).await.unwrap();
    assert_eq!(free_slots().await, Some(12));
    registry.register(numbered("next", 1, 13), &ALL).await.unwrap();
    assert_eq!(registry.register(numbered("run", 9, 99), &ALL).await, late);
    assert_eq!(free_slots().await, Some(13));

    // A late removal removes nothing, and a late heartbeat registers nothing.
    registry.register(numbered("next", 3, 14), &ALL).await.unwrap();
    assert_eq!(registry.remove(id.clone(), instance("next", Some(2)), &ALL).await, Ok(false));
    assert_eq!(free_slots().await, Some(14));
    for is_removed in [true, false] {
        assert_eq!(registry.remove(id.clone(), instance("next", Some(5)), &ALL).await, Ok(is_removed));
        assert_eq!(registry.register(numbered("next", 4, 99), &ALL).await, late);
        assert_eq!(registry.register(numbered("run", 9, 99), &ALL).await, late);
        assert_eq!(free_slots().await, None);
    }
    registry.register(numbered("next", 6, 15), &ALL).await.unwrap();
    assert_eq!(free_slots().await, Some(15));
    // A removal without a number is the last of its run.
    assert_eq!(registry.remove(id.clone(), instance("next", None), &ALL).await, Ok(true));
    assert_eq!(registry.register(numbered("next", 1_000, 99), &ALL).await, late);
    assert_eq!(free_slots().await, None);
}

/// Checks that a removal is recorded for runs alone that have sent a heartbeat: others can be made up at will.
pub(crate) async fn check_unknown_removals(registry: &dyn Registry) {
    let id: RegistryName = server("numbered", 1).id;
    let remove = async |run: &str, sequence| registry.remove(id.clone(), instance(run, sequence), &ALL).await;
    for (number, sequence) in [(1, None), (2, Some(7)), (3, None), (4, Some(7))] {
        // The id is registered for the last two.
        if number > 2 {
            registry.register(numbered("known", number, 1), &ALL).await.unwrap();
        }
        let run = format!("made-up-{number}");
        assert_eq!(remove(&run, sequence).await, Ok(false));
        registry.register(numbered(&run, 6, 1), &ALL).await.unwrap();
        assert_eq!(remove(&run, Some(8)).await, Ok(true));
        assert_eq!(registry.register(numbered(&run, 7, 1), &ALL).await, Err(RegistryError::Late), "it is known now");
    }
}

/// Waits until all servers are dead, and checks that no token leads to them. One of them lives, and is restarted later.
pub(crate) async fn check_dead_servers(registry: &dyn Registry) {
    registry.register(heartbeat(&server("dead", 10)), &ALL).await.unwrap();
    let of_other_group = |client_id| SlotRequest { group: "h".parse().unwrap(), ..request(client_id) };
    let restarted = Registration { group: "h".parse().unwrap(), ..server("restarted", 2) };
    let beat = |running| Heartbeat { running: Some(Duration::from_millis(running)), ..heartbeat(&restarted) };
    registry.register(beat(60_000), &ALL).await.unwrap();
    registry.servers().await.unwrap();
    for client in [1, 2] {
        registry.reserve(of_other_group(client)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(3_300)).await;
    let listed = registry.servers().await.unwrap();
    assert!(listed.iter().all(|server| server.state() == RegistryState::Dead), "{listed:?}");
    assert!(listed.iter().all(|server| server.reserved_slots == 0), "{listed:?}");
    assert_eq!(registry.reserve(request(9)).await, Err(RegistryError::NoFreeSlots));

    let reserved = async || {
        let listed = registry.servers().await.unwrap();
        listed.iter().find(|server| server.registration.id.as_str() == "restarted").unwrap().reserved_slots
    };
    registry.register(beat(63_300), &ALL).await.unwrap();
    assert_eq!(reserved().await, 2, "its heartbeats were lost, and its tokens are valid");
    assert_eq!(registry.reserve(of_other_group(3)).await, Err(RegistryError::NoFreeSlots));
    registry.register(beat(100), &ALL).await.unwrap();
    assert_eq!(reserved().await, 0, "it refuses the tokens from before its start");
    for client in [3, 4] {
        registry.reserve(of_other_group(client)).await.unwrap();
    }
    registry.register(beat(200), &ALL).await.unwrap();
    assert_eq!(registry.reserve(of_other_group(5)).await, Err(RegistryError::NoFreeSlots));
    assert_eq!(registry.remove(restarted.id.clone(), None, &ALL).await, Ok(true));
    assert!(registry.servers().await.unwrap().iter().all(|server| server.registration.id != restarted.id));
    registry.register(heartbeat(&restarted), &ALL).await.unwrap();
    assert_eq!(reserved().await, 2, "a server that keeps its used tokens in a file accepts the others");
    assert_eq!(registry.reserve(of_other_group(5)).await, Err(RegistryError::NoFreeSlots));
    assert_eq!(registry.remove(restarted.id.clone(), None, &ALL).await, Ok(true));
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    registry.register(beat(0), &ALL).await.unwrap();
    assert_eq!(reserved().await, 0, "it refuses the tokens from before its start");
}

/// Repeats a call of a store while it is unavailable: on a machine that pauses, a reply may come too late.
pub(crate) async fn patiently<T, F>(call: impl Fn() -> F) -> Result<T, RegistryError>
where
    F: Future<Output = Result<T, RegistryError>>,
{
    let start = Instant::now();
    loop {
        match call().await {
            Err(RegistryError::Unavailable | RegistryError::Unconfirmed)
                if start.elapsed() < Duration::from_secs(60) =>
            {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            result => return result,
        }
    }
}

/// What many tasks have reserved.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reserved {
    slots: u64,
    /// Requests without a response: a machine that pauses for a second loses responses of the store. Each of them may
    /// have reserved a slot, and its client asks again.
    unanswered: u64,
}

impl Reserved {
    /// Checks that exactly this number of slots were given out.
    pub(crate) fn assert_slots(self, slots: u64) {
        let known = self.slots..=self.slots + self.unanswered;
        assert!(known.contains(&slots), "{self:?} of {slots}");
    }
}

impl core::ops::Add for Reserved {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { slots: self.slots + other.slots, unanswered: self.unanswered + other.unanswered }
    }
}

/// Reserves with many tasks on each of these stores at once until nothing is free, for client ids from `first_id` on.
pub(crate) async fn reserve_all(registries: Vec<Arc<dyn Registry>>, tasks: u64, first_id: u64) -> Reserved {
    let mut workers = tokio::task::JoinSet::new();
    for (registry, number) in registries.into_iter().zip(0_u64..) {
        for task in 0..tasks {
            let registry = Arc::clone(&registry);
            workers.spawn(
                async move { reserve_many(registry.as_ref(), first_id + ((number * tasks + task) << 32)).await },
            );
        }
    }
    workers.join_all().await.into_iter().fold(Reserved::default(), |all, one| all + one)
}

async fn reserve_many(registry: &dyn Registry, first_id: u64) -> Reserved {
    let (mut reserved, start) = (Reserved::default(), Instant::now());
    while reserved.slots < 1 << 32 {
        // A slow machine needs longer than the lifetime of a token for all slots.
        let lifetime = Duration::from_secs(600);
        match registry.reserve(SlotRequest { lifetime, ..request(first_id + reserved.slots) }).await {
            Ok(servers) => reserved.slots += servers.len() as u64,
            Err(RegistryError::NoFreeSlots) => break,
            Err(RegistryError::Unavailable | RegistryError::Unconfirmed)
                if start.elapsed() < Duration::from_secs(120) =>
            {
                reserved.unanswered += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    reserved
}

/// Reserves what [`reserve_all`] has left: on a busy machine heartbeats are late, and dead servers give out no slots.
pub(crate) async fn reserve_rest(registries: &[Arc<dyn Registry>], servers: &[Registration]) -> Reserved {
    let (mut reserved, mut pass) = (Reserved::default(), 1);
    loop {
        for server in servers {
            patiently(|| registries[0].register(heartbeat(server), &ALL)).await.unwrap();
        }
        for registry in registries {
            patiently(|| registry.servers()).await.unwrap();
        }
        let more = reserve_all(registries.to_vec(), 1, pass << 48).await;
        (reserved, pass) = (reserved + more, pass + 1);
        if more.slots == 0 {
            return reserved;
        }
    }
}

#[tokio::test]
async fn memory_follows_the_rules() {
    let registry = MemoryRegistry::default();
    check_scopes(&registry).await;
    check_instances(&registry).await;
    check_order(&registry).await;
    check_unknown_removals(&registry).await;
    check_rules(&registry).await;
    check_dead_servers(&registry).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_gives_out_each_slot_once() {
    let registry: Arc<dyn Registry> = Arc::new(MemoryRegistry::default());
    let servers: Vec<_> = (0..10).map(|number| server(&format!("s{number}"), 1_000)).collect();
    for server in &servers {
        registry.register(heartbeat(server), &ALL).await.unwrap();
    }
    let reserved = reserve_all(vec![Arc::clone(&registry)], 8, 0).await;
    (reserved + reserve_rest(&[registry], &servers).await).assert_slots(10_000);
}
