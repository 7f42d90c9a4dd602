//! Tests of reservations and of the choice of servers.

use super::*;
use crate::registry::RegistryState;

const START: UnixMillis = UnixMillis(1_000_000);

fn at(millis: u64) -> UnixMillis {
    UnixMillis(START.0 + millis)
}

fn name(text: &str) -> RegistryName {
    text.parse().unwrap()
}

fn registration(id: &str, slots: u32) -> Registration {
    let host = id.bytes().map(u32::from).sum::<u32>() % 250;
    Registration {
        id: name(id),
        protocol_id: 7,
        addresses: vec![format!("192.0.2.{host}:40000").parse().unwrap()],
        group: name("g"),
        region: None,
        slots,
        free_slots: slots,
        is_draining: false,
        build: None,
    }
}

fn heartbeat(registration: &Registration) -> Heartbeat {
    Heartbeat { registration: registration.clone(), admitted: Vec::new(), running: None, instance: None }
}

fn request(client_id: u64) -> SlotRequest {
    SlotRequest {
        protocol_id: 7,
        group: name("g"),
        regions: Vec::new(),
        only_regions: false,
        server_count: 1,
        client_id: client_id.into(),
        lifetime: Duration::from_secs(38),
    }
}

fn table(servers: &[Registration]) -> RegistryTable {
    let mut table = RegistryTable::default();
    servers.iter().for_each(|server| _ = table.register(heartbeat(server), &Scopes::default(), START).unwrap());
    table
}

/// Returns the ids of the servers for a client, or the error.
fn reserve(table: &mut RegistryTable, request: &SlotRequest, millis: u64) -> Result<Vec<String>, RegistryError> {
    let reserved = table.reserve(request, at(millis), request.client_id.0)?;
    Ok(reserved.into_iter().map(|server| server.id.to_string()).collect())
}

/// Removes the server `a`. Returns whether it was registered.
fn remove(table: &mut RegistryTable, millis: u64) -> bool {
    table.remove(&name("a"), None, &Scopes::default(), at(millis)).unwrap()
}

#[test]
fn no_more_slots_are_reserved_than_are_free() {
    let mut server = registration("a", 10);
    server.free_slots = 3;
    let mut table = table(&[server]);
    for client in 0..3 {
        assert_eq!(reserve(&mut table, &request(client), 0).unwrap(), ["a"]);
    }
    assert_eq!(reserve(&mut table, &request(3), 1), Err(RegistryError::NoFreeSlots));
    assert_eq!(table.servers(at(1))[0].state(), RegistryState::Full);
}

#[test]
fn reservation_ends_with_its_time() {
    let mut table = table(&[registration("a", 1)]);
    reserve(&mut table, &request(1), 0).unwrap();
    let server = registration("a", 1);
    table.register(heartbeat(&server), &Scopes::default(), at(37_000)).unwrap();
    assert!(reserve(&mut table, &request(2), 37_999).is_err());
    assert_eq!(reserve(&mut table, &request(2), 38_000).unwrap(), ["a"]);
}

#[test]
fn reservation_ends_when_its_client_is_admitted() {
    let mut server = registration("a", 2);
    let mut table = table(&[server.clone()]);
    reserve(&mut table, &request(1), 0).unwrap();
    server.free_slots = 1;
    table
        .register(Heartbeat { admitted: vec![ClientId(1)], ..heartbeat(&server) }, &Scopes::default(), at(500))
        .unwrap();
    assert_eq!(table.servers(at(500))[0].reserved_slots, 0);
    assert_eq!(reserve(&mut table, &request(2), 600).unwrap(), ["a"]);
    assert!(reserve(&mut table, &request(3), 700).is_err(), "one slot has a client, one is reserved");
}

#[test]
fn tokens_of_one_client_share_a_slot_until_the_last() {
    let mut server = registration("a", 2);
    let mut table = table(&[server.clone()]);
    reserve(&mut table, &request(1), 0).unwrap();
    reserve(&mut table, &request(1), 100).unwrap();
    assert_eq!(table.servers(at(100))[0].reserved_slots, 1);
    server.free_slots = 1;
    table
        .register(Heartbeat { admitted: vec![ClientId(1)], ..heartbeat(&server) }, &Scopes::default(), at(500))
        .unwrap();
    assert_eq!(table.servers(at(500))[0].reserved_slots, 1, "the second token may still be used");
    table.register(heartbeat(&server), &Scopes::default(), at(37_000)).unwrap();
    assert_eq!(table.servers(at(38_050))[0].reserved_slots, 1);
    assert_eq!(table.servers(at(38_100))[0].reserved_slots, 0);
}

#[test]
fn dead_and_draining_servers_are_left_out() {
    let (a, mut b) = (registration("a", 100), registration("b", 100));
    let mut table = table(&[a.clone(), b.clone()]);
    b.is_draining = true;
    table.register(heartbeat(&b), &Scopes::default(), at(1)).unwrap();
    for client in 0..10 {
        assert_eq!(reserve(&mut table, &request(client), 2_999).unwrap(), ["a"]);
    }
    assert_eq!(reserve(&mut table, &request(1), 3_000), Err(RegistryError::NoFreeSlots));
    let states: Vec<_> = table.servers(at(3_000)).iter().map(ServerStatus::state).collect();
    assert_eq!(states, [RegistryState::Dead, RegistryState::Draining]);
    table.register(heartbeat(&a), &Scopes::default(), at(4_000)).unwrap();
    assert_eq!(reserve(&mut table, &request(1), 4_000).unwrap(), ["a"]);
    table.forget_dead(at(60_001));
    assert_eq!(table.servers(at(60_001)).len(), 1);
}

#[test]
fn restart_ends_the_reservations_of_refused_tokens() {
    let server = registration("a", 10);
    let beat = |running| Heartbeat { running: Some(Duration::from_millis(running)), ..heartbeat(&server) };
    let mut table = table(&[]);
    table.register(beat(50), &Scopes::default(), at(0)).unwrap();
    for (client, millis) in [(1, 0), (2, 4_000), (3, 4_001), (1, 5_000)] {
        table.register(beat(50 + millis), &Scopes::default(), at(millis)).unwrap();
        reserve(&mut table, &request(client), millis).unwrap();
    }
    // Heartbeats of the same run may be late, and a heartbeat without the time says nothing.
    table.register(beat(4_000), &Scopes::default(), at(5_900)).unwrap();
    table.register(heartbeat(&server), &Scopes::default(), at(5_900)).unwrap();
    assert_eq!(table.servers(at(5_900))[0].reserved_slots, 3);
    // It has started at 6.0 s, by a clock that may differ by 2 s.
    assert_eq!(table.register(beat(900), &Scopes::default(), at(6_900)), Ok(Some(vec![ClientId(2)])));
    assert_eq!(table.servers(at(6_900))[0].reserved_slots, 2);
    assert_eq!(table.register(beat(1_900), &Scopes::default(), at(7_900)), Ok(Some(Vec::new())));
    assert_eq!(table.register(beat(100), &Scopes::default(), at(10_100)).unwrap().unwrap().len(), 2);
    assert_eq!(table.servers(at(10_100))[0].reserved_slots, 0);
}

#[test]
fn reservations_of_a_dead_server_count_again_if_it_lives() {
    let server = registration("a", 2);
    let mut table = table(std::slice::from_ref(&server));
    reserve(&mut table, &request(1), 0).unwrap();
    assert_eq!(table.servers(at(2_999))[0].reserved_slots, 1);
    assert_eq!(table.servers(at(3_000))[0].reserved_slots, 0);
    table.register(heartbeat(&server), &Scopes::default(), at(4_000)).unwrap();
    assert_eq!(table.servers(at(4_000))[0].reserved_slots, 1);
}

#[test]
fn least_loaded_server_of_the_first_region_is_chosen() {
    let place = |id: &str, region: &str, slots, free_slots| Registration {
        region: Some(name(region)),
        free_slots,
        ..registration(id, slots)
    };
    let servers = [
        place("us-1", "us", 100, 100),
        place("eu-1", "eu", 100, 30),
        place("eu-2", "eu", 10, 4),
        place("ap-1", "ap", 10, 1),
    ];
    let chosen = |regions: &[&str]| {
        let regions = regions.iter().map(|region| name(region)).collect();
        reserve(&mut table(&servers), &SlotRequest { regions, ..request(1) }, 0).unwrap().remove(0)
    };
    assert_eq!(chosen(&[]), "us-1");
    assert_eq!(chosen(&["eu"]), "eu-2", "40 of 100 slots are more than 30 of 100");
    assert_eq!(chosen(&["mars", "ap", "eu"]), "ap-1");
    assert_eq!(chosen(&["mars"]), "us-1");
    let strict = |regions: &[&str], server_count| {
        let regions = regions.iter().map(|region| name(region)).collect();
        let strict = SlotRequest { regions, only_regions: true, server_count, ..request(1) };
        reserve(&mut table(&servers), &strict, 0)
    };
    assert_eq!(strict(&["mars", "eu"], 4).unwrap().len(), 2, "no server of another region");
    for regions in [&["mars"][..], &[]] {
        assert_eq!(strict(regions, 1), Err(RegistryError::NoFreeSlots), "{regions:?}");
    }
}

#[test]
fn servers_of_one_token_are_on_different_hosts() {
    let on =
        |id: &str, address: &str| Registration { addresses: vec![address.parse().unwrap()], ..registration(id, 10) };
    let servers = [on("a", "192.0.2.1:1"), on("b", "192.0.2.1:2"), on("c", "192.0.2.2:1")];
    for client in 0..20 {
        let two = SlotRequest { server_count: 2, ..request(client) };
        let chosen = reserve(&mut table(&servers), &two, 0).unwrap();
        assert!(chosen.contains(&"c".to_owned()), "{chosen:?}");
        let four = SlotRequest { server_count: 4, ..request(client) };
        assert_eq!(reserve(&mut table(&servers), &four, 0).unwrap().len(), 3);
    }
}

#[test]
fn equal_servers_share_the_clients() {
    let servers: Vec<_> = (0..8).map(|number| registration(&format!("s{number}"), 1_000)).collect();
    let mut counts = BTreeMap::<String, u32>::new();
    for client in 0..400 {
        // Each request sees the same loads, as those of issuers between two heartbeats.
        let chosen = reserve(&mut table(&servers), &request(client), 0).unwrap().remove(0);
        *counts.entry(chosen).or_default() += 1;
    }
    assert_eq!(counts.len(), 8);
    assert!(counts.values().all(|count| (20..100).contains(count)), "{counts:?}");
}

#[test]
fn other_games_and_groups_are_left_out() {
    let mut table = table(&[registration("a", 10)]);
    let other_game = SlotRequest { protocol_id: 8, ..request(1) };
    let other_group = SlotRequest { group: name("h"), ..request(1) };
    for request in [other_game, other_group] {
        assert_eq!(reserve(&mut table, &request, 0), Err(RegistryError::NoServers));
    }
}

#[test]
fn server_that_moves_to_another_group_keeps_its_reservations() {
    let mut server = registration("a", 1);
    let mut table = table(&[server.clone()]);
    reserve(&mut table, &request(1), 0).unwrap();
    server.group = name("h");
    table.register(heartbeat(&server), &Scopes::default(), at(10)).unwrap();
    let moved = SlotRequest { group: name("h"), ..request(2) };
    assert_eq!(reserve(&mut table, &moved, 20), Err(RegistryError::NoFreeSlots));
    assert!(remove(&mut table, 20) && !remove(&mut table, 20));
    assert!(table.groups.is_empty() && table.group_of.is_empty());
}

#[test]
fn reservations_outlive_the_registration_of_their_server() {
    let mut server = registration("a", 2);
    let mut table = table(std::slice::from_ref(&server));
    reserve(&mut table, &request(1), 0).unwrap();
    assert!(remove(&mut table, 1_000));
    assert!(table.servers(at(1_000)).is_empty());
    table.register(heartbeat(&server), &Scopes::default(), at(1_500)).unwrap();
    assert_eq!(table.servers(at(1_500))[0].reserved_slots, 1);
    reserve(&mut table, &SlotRequest { lifetime: Duration::from_secs(90), ..request(2) }, 2_000).unwrap();
    assert_eq!(reserve(&mut table, &request(3), 2_000), Err(RegistryError::NoFreeSlots));

    // A dead server is forgotten after a minute. It is found in another group, when one reservation has ended.
    table.forget_dead(at(61_500));
    assert!(table.servers(at(61_500)).is_empty());
    server.group = name("h");
    table.register(heartbeat(&server), &Scopes::default(), at(62_000)).unwrap();
    assert_eq!(table.servers(at(62_000))[0].reserved_slots, 1);

    // Its restart is known by the time since its start.
    assert!(remove(&mut table, 63_000));
    let restarted = Heartbeat { running: Some(Duration::ZERO), ..heartbeat(&server) };
    assert_eq!(table.register(restarted, &Scopes::default(), at(64_000)), Ok(Some(vec![ClientId(2)])));
    assert_eq!(table.servers(at(64_000))[0].reserved_slots, 0);
}

#[test]
fn number_of_servers_is_limited() {
    let mut table = RegistryTable::default();
    for number in 0..MAX_REGISTERED_SERVERS {
        table.register(heartbeat(&registration(&format!("s{number}"), 1)), &Scopes::default(), START).unwrap();
    }
    let one_more = heartbeat(&registration("one-more", 1));
    assert_eq!(table.register(one_more, &Scopes::default(), START), Err(RegistryError::Full));
    assert_eq!(table.register(heartbeat(&registration("s7", 1)), &Scopes::default(), START), Ok(Some(Vec::new())));
}
