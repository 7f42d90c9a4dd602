//! A player returns after a crash of its game: a newer token takes over the silent slot, if takeover is enabled.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{
    ClientHandle, ClientRegistry, DisconnectReason, NetcodeEvent, NetcodeServer, ServerConfig, ShardId, ShardSetup,
    SharedRegistry, TokenCutoff,
};
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_tests::netcode_world::{NetcodeWorld, PROTOCOL_ID, ServerId, VecOutbox, address};
use slipgate_tests::raw_client::RawClient;

const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(2);

fn player_address() -> Address {
    address("10.50.0.1:5000")
}

fn elsewhere() -> Address {
    address("10.60.0.1:6000")
}

fn raw_client(world: &mut NetcodeWorld, client_id: u64, server: ServerId) -> RawClient {
    RawClient::new(&world.token(client_id, &[server]))
}

/// Creates a server of one slot with takeover after two seconds, and player 1 in that slot.
fn with_a_player(seed: u64) -> (NetcodeWorld, ServerId, RawClient, ClientHandle) {
    let mut world = NetcodeWorld::perfect(seed);
    let server = world.add_server_with(1, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(GRACE);
    });
    let mut player = raw_client(&mut world, 1, server);
    let handle = world.admit_raw(server, &mut player, player_address());
    (world, server, player, handle)
}

#[test]
fn takeover_after_one_second_is_the_default() {
    for (millis, takes_over) in [(900, false), (984, false), (1016, true), (1100, true), (4900, true)] {
        let mut world = NetcodeWorld::perfect(1);
        let server = world.add_server(4);
        let mut crashed = raw_client(&mut world, 1, server);
        world.admit_raw(server, &mut crashed, player_address());
        world.run_until(2 * SECOND, |world| world.servers[server].core.table_usage().pending == 0);
        let admitted_at = world.servers[server].events[0].0;
        world.run_until(5 * SECOND, |world| world.monotonic() >= admitted_at.after(Duration::from_millis(millis)));
        let newer = raw_client(&mut world, 1, server);
        let presented = world.present(server, elsewhere(), &newer.request());
        assert_eq!(presented, if takes_over { Ok(None) } else { Err(Discard::ClientIdConnected) }, "{millis} ms");
    }
}

#[test]
fn takeover_can_be_switched_off() {
    for off in [None, Some(Duration::ZERO)] {
        no_takeover_with(off);
    }
}

fn no_takeover_with(off: Option<Duration>) {
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = off;
    });
    let mut crashed = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut crashed, player_address());
    world.run_for(4 * SECOND);
    let mut newer = raw_client(&mut world, 1, server);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Err(Discard::ClientIdConnected));
    assert_eq!(world.present(server, player_address(), &newer.request()), Err(Discard::AddressConnected));
    world.run_for(2 * SECOND);
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::TimedOut)]);
    world.admit_raw(server, &mut newer, elsewhere());
}

#[test]
fn newer_token_takes_over_the_slot_of_a_silent_player() {
    let (mut world, server, mut crashed, old) = with_a_player(2);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = raw_client(&mut world, 1, server);
    let new = world.admit_raw(server, &mut newer, elsewhere());
    assert_eq!(new.slot().0, old.slot().0);
    assert_ne!(new, old);

    let events: Vec<NetcodeEvent> = world.servers[server].events.iter().map(|(_, event)| *event).collect();
    let expected = [
        NetcodeEvent::Connected { client: old, client_id: 1.into() },
        NetcodeEvent::Disconnected { client: old, client_id: 1.into(), reason: DisconnectReason::TakenOver },
        NetcodeEvent::Connected { client: new, client_id: 1.into() },
    ];
    assert_eq!(events, expected);
    assert_eq!(world.servers[server].core.connected_count(), 1);
    assert_eq!(world.servers[server].core.client(new).and_then(|info| info.address), Some(elsewhere()));
    assert!(world.servers[server].core.client(old).is_none());

    let late = crashed.keep_alive();
    assert_eq!(world.present(server, player_address(), &late), Err(Discard::ConnectionEnded));
    let late = crashed.seal(PacketKind::Disconnect, &[]);
    assert_eq!(world.present(server, player_address(), &late), Err(Discard::ConnectionEnded));
    assert_eq!(world.present(server, elsewhere(), &late), Err(Discard::NotAuthentic));
    assert_eq!(world.present(server, player_address(), &crashed.request()), Err(Discard::TokenUsed));
    let keep_alive = newer.keep_alive();
    assert_eq!(world.present(server, elsewhere(), &keep_alive), Ok(None));
}

#[test]
fn player_takes_over_its_slot_from_the_same_address() {
    let (mut world, server, mut crashed, old) = with_a_player(3);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = raw_client(&mut world, 1, server);
    let new = world.admit_raw(server, &mut newer, player_address());
    assert_eq!((new.slot().0, new != old), (old.slot().0, true));
    let late = crashed.seal(PacketKind::Disconnect, &[]);
    assert_eq!(world.present(server, player_address(), &late), Err(Discard::NotAuthentic));
    let payload = world.payload(20);
    let datagram = newer.seal(PacketKind::Payload, &payload);
    assert_eq!(world.present(server, player_address(), &datagram), Ok(Some(payload)));
}

#[test]
fn active_player_is_not_taken_over_before_the_grace_time() {
    let (mut world, server, mut player, _) = with_a_player(4);
    for _ in 0..30 {
        world.run_for(SECOND / 5);
        let keep_alive = player.keep_alive();
        assert_eq!(world.present(server, player_address(), &keep_alive), Ok(None));
    }
    world.run_for(GRACE - SECOND / 5);
    let newer = raw_client(&mut world, 1, server);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Err(Discard::ClientIdConnected));
    world.run_for(SECOND / 5);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Ok(None));
}

#[test]
fn player_active_again_before_the_response_keeps_its_slot() {
    let (mut world, server, mut player, old) = with_a_player(5);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &newer, elsewhere());
    let keep_alive = player.keep_alive();
    assert_eq!(world.present(server, player_address(), &keep_alive), Ok(None));
    let response = newer.response(&challenge);
    assert_eq!(world.present(server, elsewhere(), &response), Err(Discard::ClientIdConnected));
    assert!(world.servers[server].core.client(old).is_some());
}

#[test]
fn request_alone_takes_over_no_slot() {
    let (mut world, server, _, old) = with_a_player(6);
    world.run_for(GRACE + SECOND / 5);
    let newer = raw_client(&mut world, 1, server);
    world.request_challenge(server, &newer, elsewhere());
    assert!(world.servers[server].core.client(old).is_some());
    assert_eq!(world.servers[server].disconnects(), []);
}

#[test]
fn token_of_the_same_age_or_older_takes_over_no_slot() {
    let mut world = NetcodeWorld::perfect(7);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(GRACE);
    });
    let older = raw_client(&mut world, 1, server);
    world.run_for(SECOND);
    let (mut current, equal) = (raw_client(&mut world, 1, server), raw_client(&mut world, 1, server));
    world.admit_raw(server, &mut current, player_address());
    world.run_for(GRACE + SECOND / 5);
    for stale in [older, equal] {
        assert_eq!(world.present(server, elsewhere(), &stale.request()), Err(Discard::ClientIdConnected));
    }
}

#[test]
fn another_client_id_or_address_takes_over_no_slot() {
    let (mut world, server, ..) = with_a_player(8);
    world.run_for(GRACE + SECOND / 5);
    let other = raw_client(&mut world, 2, server);
    assert_eq!(world.present(server, player_address(), &other.request()), Err(Discard::AddressConnected));
    assert_eq!(world.present(server, elsewhere(), &other.request()), Ok(None));
    let replies = world.replies_to(elsewhere());
    assert_eq!(other.open(&replies[0]).map(|opened| opened.kind), Some(PacketKind::Denied));
}

#[test]
fn address_of_a_third_player_takes_over_no_slot() {
    let mut world = NetcodeWorld::perfect(9);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(GRACE);
    });
    let (mut crashed, mut third) = (raw_client(&mut world, 1, server), raw_client(&mut world, 3, server));
    world.admit_raw(server, &mut crashed, player_address());
    world.admit_raw(server, &mut third, elsewhere());
    world.run_for(GRACE + SECOND / 5);
    let newer = raw_client(&mut world, 1, server);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Err(Discard::AddressConnected));
}

#[test]
fn crashed_game_reconnects_after_the_grace_time() {
    let mut world = NetcodeWorld::perfect(10);
    let server = world.add_server_with(2, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(GRACE);
    });
    let (_, handle) = world.connected_client(1, server);
    // The process dies: it sends nothing more, and the next one uses another port.
    world.clients[0].address = address("10.250.0.1:1");
    world.clients[0].core = slipgate_netcode::client::NetcodeClient::new(Default::default());
    let (again, token) = (world.add_client(), world.token(1, &[server]));
    world.connect(again, token);
    // The default of one second would let it in by now.
    world.run_for(GRACE - SECOND / 5);
    assert_eq!(world.state(again), ClientState::SendingRequest);
    world.run_until(SECOND * 7 / 10, |world| world.state(again) == ClientState::Connected);
    assert_eq!(world.clients[again].core.slot_info().map(|(index, _)| index.0), Some(handle.slot().0));
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::TakenOver)]);
}

#[test]
fn token_that_took_over_a_slot_admits_no_second_client() {
    let (mut world, server, mut crashed, _) = with_a_player(11);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut newer, elsewhere());
    world.present(server, elsewhere(), &newer.seal(PacketKind::Disconnect, &[])).unwrap();
    assert_eq!(world.servers[server].core.connected_count(), 0);
    for used in [&mut newer, &mut crashed] {
        for from in [elsewhere(), player_address(), address("10.70.0.1:7000")] {
            assert_eq!(world.present(server, from, &used.request()), Err(Discard::TokenUsed));
        }
    }
    assert_eq!(world.servers[server].core.table_usage().used_tokens, 2);
    let mut next = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut next, elsewhere());
}

// Two shards --------------------------------------------------------------------------------------------------------

/// Two shards of one server in virtual time, without a network.
struct Shards {
    world: NetcodeWorld,
    servers: Vec<NetcodeServer>,
}

impl Shards {
    fn new(seed: u64, slots: u32) -> Self {
        let world = NetcodeWorld::perfect(seed);
        let at = address("10.0.0.1:40000");
        let mut config = ServerConfig::new(PROTOCOL_ID, slots, &[at.socket_addr()]);
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(GRACE);
        let now = world.now();
        let registry = ClientRegistry::new(&config, 2, &Seed::from([1; 32]), now, None).unwrap();
        let registry = SharedRegistry::from(registry);
        let shard = |shard: u16| {
            let setup = ShardSetup { shard: ShardId(shard), registry: registry.clone(), journal: None };
            let (keys, seed) = (world.private_key.clone().into(), Seed::from([shard as u8; 32]));
            NetcodeServer::shard(config.clone(), keys, &seed, now, setup).unwrap()
        };
        Self { servers: vec![shard(0), shard(1)], world }
    }

    /// Mints a token of the client id.
    fn token(&mut self, client_id: u64) -> RawClient {
        let mut spec = self.world.spec(client_id, &[]);
        spec.servers = vec![address("10.0.0.1:40000")];
        RawClient::new(&self.world.mint(&spec))
    }

    /// Runs turns of both shards.
    fn run_for(&mut self, duration: Duration) {
        let end = self.world.monotonic().after(duration);
        while self.world.monotonic() < end {
            self.world.turn();
            let now = self.world.now();
            for server in &mut self.servers {
                server.tick(now);
                server.transmit(now, &mut VecOutbox::default());
                while server.poll_event().is_some() {}
            }
        }
    }

    /// Runs a whole handshake on a shard; a refused response is repeated ten times a second, as clients do.
    fn admit(&mut self, shard: usize, client: &mut RawClient, from: Address) -> Result<(), Discard> {
        for attempt in 1.. {
            match self.try_admit(shard, client, from) {
                Err(Discard::ClientIdConnected) if attempt < 10 => self.run_for(SECOND / 10),
                result => return result,
            }
        }
        Ok(())
    }

    fn try_admit(&mut self, shard: usize, client: &mut RawClient, from: Address) -> Result<(), Discard> {
        let (now, server, mut outbox) = (self.world.now(), &mut self.servers[shard], VecOutbox::default());
        server.handle(from, &mut client.request(), now)?;
        server.transmit(now, &mut outbox);
        let challenge = outbox.datagrams.iter().find_map(|(_, reply)| client.challenge(reply)).expect("a challenge");
        server.handle(from, &mut client.response(&challenge), now).map(|_| ())
    }
}

#[test]
fn token_older_than_the_one_that_took_over_gets_no_slot() {
    // The takeover is on the same shard or on the other one, and the token of an age between the two comes to either.
    for (second, third) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut shards = Shards::new(12, 2);
        let mut oldest = shards.token(1);
        shards.run_for(SECOND / 10);
        let mut between = shards.token(1);
        shards.run_for(SECOND / 10);
        let mut newest = shards.token(1);
        shards.admit(0, &mut oldest, player_address()).unwrap();
        shards.run_for(GRACE + SECOND / 5);
        shards.admit(second, &mut newest, elsewhere()).unwrap();
        assert_eq!(shards.servers.iter().map(NetcodeServer::connected_count).sum::<u32>(), 1);
        // The newest one is silent for long enough, but not ended by its timeout.
        shards.run_for(GRACE + SECOND / 5);
        let refused = shards.admit(third, &mut between, address("10.70.0.1:7000"));
        assert_eq!(refused, Err(Discard::ClientIdConnected), "takeover on {second}, then a token on {third}");
        let mut latest = shards.token(1);
        shards.admit(third, &mut latest, address("10.70.0.1:7001")).unwrap();
        assert_eq!(shards.servers[third].connected_count(), 1);
    }
}

#[test]
fn token_admits_once_on_all_shards_even_when_forgotten() {
    let mut shards = Shards::new(13, 2);
    let mut spec = shards.world.spec(1, &[]);
    (spec.servers, spec.lifetime) = (vec![address("10.0.0.1:40000")], 2);
    let token = shards.world.mint(&spec);
    let (mut here, mut there) = (RawClient::new(&token), RawClient::new(&token));
    shards.run_for(SECOND / 2);
    // The token is pending on shard 1 with a challenge, when it is used on shard 0.
    let now = shards.world.now();
    shards.servers[1].handle(elsewhere(), &mut there.request(), now).unwrap();
    let mut outbox = VecOutbox::default();
    shards.servers[1].transmit(now, &mut outbox);
    let challenge = there.challenge(&outbox.datagrams[0].1).expect("a challenge");
    shards.admit(0, &mut here, player_address()).unwrap();
    let now = shards.world.now();
    shards.servers[0].handle(player_address(), &mut here.seal(PacketKind::Disconnect, &[]), now).unwrap();
    // It expires and is forgotten before the response comes.
    shards.run_for(3 * SECOND);
    assert_eq!(shards.servers[0].table_usage().used_tokens, 0);
    let now = shards.world.now();
    let late = shards.servers[1].handle(elsewhere(), &mut there.response(&challenge), now).map(|_| ());
    assert_eq!(late, Err(Discard::TokenExpired));
}

#[test]
fn last_slot_of_two_shards_goes_to_one_client() {
    let mut shards = Shards::new(14, 1);
    let (mut first, mut second) = (shards.token(1), shards.token(2));
    let now = shards.world.now();
    let mut challenges = Vec::new();
    for (shard, (client, from)) in [(&first, player_address()), (&second, elsewhere())].into_iter().enumerate() {
        let mut outbox = VecOutbox::default();
        shards.servers[shard].handle(from, &mut client.request(), now).unwrap();
        shards.servers[shard].transmit(now, &mut outbox);
        challenges.push(client.challenge(&outbox.datagrams[0].1).expect("a challenge"));
    }
    shards.servers[0].handle(player_address(), &mut first.response(&challenges[0]), now).unwrap();
    // The second client was challenged while the slot was free, and is denied now. Its token stays unused.
    let mut outbox = VecOutbox::default();
    shards.servers[1].handle(elsewhere(), &mut second.response(&challenges[1]), now).unwrap();
    shards.servers[1].transmit(now, &mut outbox);
    assert_eq!(second.open(&outbox.datagrams[0].1).map(|opened| opened.kind), Some(PacketKind::Denied));
    assert_eq!((shards.servers[1].connected_count(), shards.servers[1].table_usage().used_tokens), (0, 1));
    // The slot is free again when the first client has left, and its disconnect packets need no sending.
    shards.servers[0].handle(player_address(), &mut first.seal(PacketKind::Disconnect, &[]), now).unwrap();
    shards.servers[1].handle(elsewhere(), &mut second.response(&challenges[1]), now).unwrap();
    assert_eq!(shards.servers[1].connected_count(), 1);
}

#[test]
fn request_alone_takes_over_no_slot_on_another_shard() {
    let mut shards = Shards::new(15, 2);
    let mut player = shards.token(1);
    shards.admit(0, &mut player, player_address()).unwrap();
    shards.run_for(GRACE + SECOND / 5);
    let mut newer = shards.token(1);
    // Only a response proves that its sender receives at this address.
    let mut results = Vec::new();
    for _ in 0..3 {
        let now = shards.world.now();
        results.push(shards.servers[1].handle(elsewhere(), &mut newer.request(), now).map(|_| ()));
        shards.run_for(SECOND / 10);
    }
    assert_eq!(results, [Err(Discard::ClientIdConnected), Ok(()), Ok(())], "refused until the other shard replies");
    assert_eq!(shards.servers[0].connected_count(), 1);
    shards.admit(1, &mut newer, elsewhere()).unwrap();
    assert_eq!([0, 1].map(|shard| shards.servers[shard].connected_count()), [0, 1]);
}

#[test]
fn shard_that_ends_frees_its_slots_and_client_ids() {
    for client_id in [1, 2] {
        let mut shards = Shards::new(16, 1);
        let mut player = shards.token(1);
        shards.admit(0, &mut player, player_address()).unwrap();
        drop(shards.servers.remove(0));
        let mut next = shards.token(client_id);
        shards.admit(0, &mut next, elsewhere()).unwrap();
        assert_eq!(shards.servers[0].connected_count(), 1, "client id {client_id}");
    }
}

#[test]
fn shard_replies_to_a_query_in_its_next_turn() {
    let mut shards = Shards::new(17, 2);
    let mut player = shards.token(1);
    shards.admit(0, &mut player, player_address()).unwrap();
    shards.run_for(GRACE + SECOND / 5);
    let newer = shards.token(1);
    let now = shards.world.now();
    let ask = |shards: &mut Shards| shards.servers[1].handle(elsewhere(), &mut newer.request(), now).map(|_| ());
    assert_eq!(ask(&mut shards), Err(Discard::ClientIdConnected));
    shards.servers[0].tick(now);
    assert_eq!(ask(&mut shards), Ok(()));
}
