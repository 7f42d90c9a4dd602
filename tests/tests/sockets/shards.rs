//! One server on several sockets of one port: the state that its shards share, and the state of each shard.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use slipgate_client::ClientState;
use slipgate_server::config::TokenCutoff;
use slipgate_server::counters::Discard;
use slipgate_server::history_file::HistoryFile;
use slipgate_server::keys::Key;
use slipgate_server::sharded::{ShardId, ShardThreads};
use slipgate_server::{Clock, CloseKind, Event, Inbox, Server, ServerConfig, Sockets};
use slipgate_tests::live::{
    DEADLINE, GameClient, GameServer, IPV4, MintedToken, OurClient, OurServer, PRIVATE_KEY, PROTOCOL_ID, TokenOrder,
    Turn, run_for, until,
};
use slipgate_tests::raw_client::RawClient;

/// Longer than a busy machine delays a turn of the test.
const GRACE: Duration = Duration::from_secs(6);
const TICK: Duration = Duration::from_millis(5);

/// Mints a new token for a player.
fn minted(client_id: u64, server: &impl GameServer) -> MintedToken {
    TokenOrder::new(client_id, &[server.address()]).mint()
}

/// Returns the shard of a connected player.
fn shard_of(shards: &[OurServer], client_id: u64) -> Option<usize> {
    shards.iter().position(|shard| shard.server.find(client_id).is_some())
}

fn connect(shards: &mut Vec<OurServer>, minted: &MintedToken) -> OurClient {
    let mut client = OurClient::connect(minted);
    until(&mut (shards, &mut client), "a client connects", |(_, client)| client.state() == ClientState::Connected);
    client
}

fn leave(shards: &mut Vec<OurServer>, mut client: OurClient, client_id: u64) {
    client.leave();
    until(&mut (shards, client), "a client leaves", |(shards, _)| shard_of(shards, client_id).is_none());
}

/// Connects a player on a given shard: it tries other ports until the hash of the system selects the shard.
fn connect_on(shards: &mut Vec<OurServer>, shard: usize, client_id: u64) -> OurClient {
    loop {
        let minted = minted(client_id, &shards[0]);
        let client = connect(shards, &minted);
        if shard_of(shards, client_id) == Some(shard) {
            return client;
        }
        leave(shards, client, client_id);
    }
}

/// Ends clients without disconnect packets, which dropping a client would send.
fn crash(clients: impl IntoIterator<Item = OurClient>) {
    clients.into_iter().for_each(std::mem::forget);
}

/// Presents tokens from other ports until a shard has refused one for this reason.
fn refused_on(
    shards: &mut Vec<OurServer>,
    shard: usize,
    reason: Discard,
    minted: impl Fn() -> MintedToken,
) -> OurClient {
    let refusals = |shards: &[OurServer]| shards[shard].server.discards()[reason];
    let before = refusals(shards);
    for _ in 0..64 {
        let mut client = OurClient::connect(&minted());
        run_for(&mut (&mut *shards, &mut client), Duration::from_millis(250));
        assert_ne!(client.state(), ClientState::Connected);
        if refusals(shards) > before {
            return client;
        }
    }
    panic!("no port of 64 leads to shard {shard}: {}", shards.describe());
}

/// Replays the request of a token from other ports, which our client never does, until a shard has refused it.
fn replayed_on(shards: &mut Vec<OurServer>, shard: usize, minted: &MintedToken) {
    let refusals = |shards: &[OurServer]| shards[shard].server.discards()[Discard::TokenUsed];
    let before = refusals(shards);
    let ports: Vec<_> = (0..32).map(|_| replay(minted, shards[0].address())).collect();
    until(&mut &mut *shards, "a replayed token is refused", |shards| refusals(shards) > before);
    assert_eq!(ports.len(), 32);
}

fn replay(minted: &MintedToken, to: std::net::SocketAddr) -> UdpSocket {
    let port = UdpSocket::bind((IPV4, 0)).unwrap();
    port.send_to(&RawClient::new(&minted.token).request(), to).unwrap();
    port
}

#[test]
fn used_token_is_refused_on_every_shard() {
    let mut shards = OurServer::shards(2, 8, |_| {});
    let minted = minted(1, &shards[0]);
    let player = connect(&mut shards, &minted);
    let other = 1 - shard_of(&shards, 1).unwrap();
    replayed_on(&mut shards, other, &minted);
    leave(&mut shards, player, 1);
    replayed_on(&mut shards, other, &minted);
    assert!(
        shards
            .iter()
            .all(|shard| shard.server.connected_count() == 0 && shard.server.totals().stats.challenges_sent <= 1)
    );
}

#[test]
fn player_has_one_connection_across_all_shards() {
    // The player is silent: without takeover, its slot is its own for as long as the test takes.
    let mut shards = OurServer::shards(2, 8, |config| config.takeover_after = None);
    let address = shards[0].address();
    let _player = connect_on(&mut shards, 0, 1);
    let newer = || TokenOrder::new(1, &[address]).mint();
    let mut second = refused_on(&mut shards, 1, Discard::ClientIdConnected, newer);
    let first = shards[0].server.find(1).unwrap();
    assert!(
        shards[0].server.kick(first, "").is_ok() && shards[1].server.kick(first, "").is_err(),
        "a handle is valid on one shard only"
    );
    until(&mut (&mut shards, &mut second), "the next client connects", |(_, second)| {
        second.state() == ClientState::Connected
    });
    assert_eq!(shard_of(&shards, 1), Some(1));
}

#[test]
fn server_is_full_only_when_all_shared_slots_are_used() {
    let mut shards = OurServer::shards(2, 4, |_| {});
    let mut players: Vec<_> = (1..=4).map(|player| connect_on(&mut shards, 0, player)).collect();
    let mut slots: Vec<_> = players.iter().map(|player| player.slot_info().unwrap()).collect();
    slots.sort_unstable();
    assert_eq!(slots, [(0, 4), (1, 4), (2, 4), (3, 4)], "one shard can hold all slots of the server");
    // The kernel chooses the shard of each port: 24 ports are all but never on one shard.
    for player in 5..29 {
        let mut denied = OurClient::connect(&minted(player, &shards[0]));
        until(&mut (&mut shards, &mut denied), "the server is full", |(_, denied)| {
            denied.state() == ClientState::Denied
        });
    }
    let denials = shards.iter().map(|shard| shard.server.totals().stats.denials_sent > 0);
    assert_eq!(denials.collect::<Vec<_>>(), [true, true], "both shards know that the server is full");
    let index = players[2].slot_info().unwrap().0;
    leave(&mut shards, players.remove(2), 3);
    let new_client = connect_on(&mut shards, 1, 29);
    assert_eq!(new_client.slot_info(), Some((index, 4)), "a slot freed on one shard goes to a client of another");
    let handle = shards[1].server.find(29).unwrap();
    assert_eq!((handle.shard(), shards[1].server.client(handle).unwrap().client_index().0), (ShardId(1), index));
    assert_eq!(handle.slot().0, 0, "the first client of its shard");
}

#[test]
fn newer_token_takes_over_a_silent_slot_on_another_shard() {
    let mut shards = OurServer::shards(2, 1, |config| config.takeover_after = Some(GRACE));
    crash([connect_on(&mut shards, 0, 1)]);
    // The server is full, and its only slot is on the other shard.
    let new = connect_elsewhere(&mut shards, 1);
    assert_eq!(shards[0].log().ended.last(), Some(&(1, Some(CloseKind::TakenOver))));
    assert_eq!((shard_of(&shards, 1), new.slot_info()), (Some(1), Some((0, 1))));
}

/// Reconnects a crashed player on shard 1, from ports that lead there.
fn connect_elsewhere(shards: &mut Vec<OurServer>, client_id: u64) -> OurClient {
    for _ in 0..64 {
        let before = shards[1].server.discards()[Discard::ClientIdConnected];
        let mut client = OurClient::connect(&minted(client_id, &shards[0]));
        // Shorter than the silence that a takeover on its own shard needs.
        run_for(&mut (&mut *shards, &mut client), GRACE / 20);
        if shards[1].server.discards()[Discard::ClientIdConnected] > before || shard_of(shards, client_id) == Some(1) {
            until(&mut (&mut *shards, &mut client), "the silent client is taken over", |(_, client)| {
                client.state() == ClientState::Connected
            });
            return client;
        }
        // The request reached the shard of the player itself; once the player is silent there, this is a takeover
        // within a shard.
        assert_eq!(shards[0].server.find(client_id).map(|_| 0), shard_of(shards, client_id));
    }
    panic!("no port of 64 leads to shard 1");
}

#[test]
fn active_player_is_not_taken_over_from_another_shard() {
    let mut shards = OurServer::shards(2, 4, |config| config.takeover_after = Some(GRACE));
    let address = shards[0].address();
    let mut player = connect_on(&mut shards, 0, 1);
    let mut players = Vec::new();
    // The kernel chooses the shard of each port: 64 ports are all but never on one shard.
    while shards[1].server.discards()[Discard::ClientIdConnected] == 0 {
        assert!(players.len() < 64, "{}", shards.describe());
        players.push(OurClient::connect(&TokenOrder::new(1, &[address]).mint()));
        run_for(&mut (&mut shards, &mut player, &mut players), Duration::from_millis(20));
    }
    run_for(&mut (&mut shards, &mut player, &mut players), 2 * GRACE);
    assert_eq!((player.state(), shard_of(&shards, 1)), (ClientState::Connected, Some(0)));
    assert!(players.iter().all(|thief| thief.state() != ClientState::Connected));
}

#[test]
fn slots_are_freed_by_leave_timeout_kick_and_shard_drop() {
    let mut shards = OurServer::shards(2, 4, |_| {});
    let fill = |shards: &mut Vec<OurServer>, first: u64, shard: Option<usize>| -> Vec<OurClient> {
        let players = first..first + 4;
        let admit = |player| match shard {
            Some(shard) => connect_on(shards, shard, player),
            None => {
                let order = TokenOrder { timeout_seconds: 3, ..TokenOrder::new(player, &[shards[0].address()]) };
                connect(shards, &order.mint())
            }
        };
        players.map(admit).collect()
    };
    // Silent until they time out.
    crash(fill(&mut shards, 1, None));
    until(&mut shards, "the silent clients time out", |shards| {
        shards.iter().all(|shard| shard.server.connected_count() == 0)
    });
    // Kicked.
    let players = fill(&mut shards, 11, Some(0));
    for player in 11..15 {
        shards[0].kick(player);
    }
    run_for(&mut (&mut shards, players), Duration::from_millis(20));
    // Their shard is dropped.
    let players = fill(&mut shards, 21, Some(0));
    drop((shards.remove(0), players));
    let players = fill(&mut shards, 31, Some(0));
    assert_eq!((players.len(), shards[0].server.connected_count()), (4, 4), "the last shard can use all slots");
}

#[test]
fn panic_on_one_shard_disconnects_only_its_clients() {
    let mut shards = OurServer::shards(2, 4, |_| {});
    let mut player = connect_on(&mut shards, 1, 1);
    let mut of_the_other = connect_on(&mut shards, 0, 2);
    let shard = shards.remove(0);
    let game = move || {
        let _shard = shard;
        panic!("panic of the test");
    };
    assert!(std::thread::spawn(game).join().is_err());
    until(&mut (&mut shards, &mut of_the_other), "the client learns of the end", |(_, it)| it.end().is_some());
    assert_eq!(of_the_other.end(), Some(CloseKind::DisconnectedByServer), "no client waited for a timeout");
    player.send(b"still here");
    until(&mut (&mut shards, &mut player), "the client of the other shard continues", |(shards, _)| {
        shards[0].log().payloads == [b"still here"]
    });
    // Its id and its slot are free at once.
    let minted = minted(2, &shards[0]);
    let again = connect(&mut shards, &minted);
    assert_eq!((again.state(), shards[0].server.connected_count()), (ClientState::Connected, 2));
}

#[test]
fn clients_of_a_dropped_shard_time_out_and_reconnect() {
    let mut shards = OurServer::shards(3, 16, |_| {});
    let address = shards[0].address();
    let order = |player| TokenOrder { timeout_seconds: 3, ..TokenOrder::new(player, &[address]) };
    let mut players: Vec<_> = (0..12).map(|player| connect(&mut shards, &order(player).mint())).collect();
    drop(shards.remove(0));
    // Both ends know of the end of a connection: a client is connected, or has a reason.
    until(&mut (&mut shards, &mut players), "the clients of the shard time out", |(shards, players)| {
        (0..).zip(players.iter()).all(|(number, player)| {
            let is_connected = player.state() == ClientState::Connected;
            is_connected == shard_of(shards, number).is_some() && is_connected == player.end().is_none()
        })
    });
    assert!(shards.iter().map(|shard| shard.server.connected_count()).sum::<u32>() <= 12);
    for (number, player) in (0..).zip(&mut players) {
        if player.state() != ClientState::Connected {
            *player = connect(&mut shards, &order(number).mint());
            assert!(shard_of(&shards, number).is_some(), "player {number}");
        }
    }
}

#[test]
fn filter_drops_are_reported_per_shard_and_in_total() {
    let shards = OurServer::shards(2, 4, |_| {});
    assert!(shards.iter().all(|shard| shard.server.sockets().filter().is_some()));
    for _ in 0..64 {
        UdpSocket::bind((IPV4, 0)).unwrap().send_to(b"junk", shards[0].address()).unwrap();
    }
    let start = Instant::now();
    let (totals, dropped) = loop {
        let totals: Vec<_> = shards.iter().map(|shard| shard.server.totals()).collect();
        let dropped: Vec<_> = totals.iter().map(|totals| totals.sockets.dropped_by_system.unwrap()).collect();
        if dropped.iter().sum::<u64>() == 64 {
            break (totals, dropped);
        }
        assert!(start.elapsed() < DEADLINE, "{dropped:?}");
    };
    assert!(dropped.iter().all(|count| *count > 0), "{dropped:?}");
    assert_eq!(slipgate_server::counters::ServerTotals::sum(&totals).sockets.dropped_by_system, Some(64));
}

// Threads -------------------------------------------------------------------------------------------------------------

fn start(shards: u16, slots: u32, history: Option<HistoryFile>) -> (Vec<Server>, Clock, std::net::SocketAddr) {
    let sockets = Sockets::bind_shards(&[(IPV4, 0).into()], shards).unwrap();
    let address = sockets[0].local_addresses()[0];
    let mut config = ServerConfig::new(PROTOCOL_ID, slots, &[address]);
    config.token_cutoff = if history.is_some() { TokenCutoff::None } else { TokenCutoff::AtStart };
    let (clock, keys) = (Clock::start(), Key::from(PRIVATE_KEY));
    let servers = match history {
        Some(history) => Server::shards(sockets, config, keys.into(), clock.now(), Some(history)),
        None => Server::shards(sockets, config, keys.into(), clock.now(), None),
    };
    (servers.unwrap(), clock, address)
}

/// Echoes payloads, and panics on request.
fn echo(server: &mut Server, inbox: &mut Inbox) {
    while let Some(event) = inbox.next(server) {
        if let Event::Payload { client, bytes, .. } = event {
            assert_ne!(bytes, b"panic", "panic on request");
            let _ = server.send(client, bytes);
        }
    }
}

fn crowd(address: std::net::SocketAddr, players: std::ops::Range<u64>) -> Vec<OurClient> {
    let mut clients: Vec<_> =
        players.map(|player| OurClient::connect(&TokenOrder::new(player, &[address]).mint())).collect();
    until(&mut clients, "all clients connect", |clients| clients.iter().all(|it| it.state() == ClientState::Connected));
    clients
}

#[test]
fn two_and_four_threads_echo_and_close_all_clients() {
    for count in [2, 4] {
        let (servers, clock, address) = start(count, 48, None);
        let threads = ShardThreads::start(servers, clock, TICK, |_| echo).unwrap();
        let mut clients = crowd(address, 0..48);
        for number in 0..20_u8 {
            clients.iter_mut().for_each(|client| client.send(&[number; 100]));
            until(&mut clients, "all clients get a reply", |clients| {
                clients.iter().all(|client| client.received().len() > number.into())
            });
        }
        assert!(clients.iter().all(|client| client.received().iter().map(|echo| echo[0]).eq(0..20)));
        assert!(threads.is_running());
        until(&mut clients, "the threads report their totals", |_| {
            threads.totals().iter().map(|it| it.connected).sum::<u32>() == 48
        });
        assert!(threads.totals().iter().all(|shard| shard.connected > 0), "{:?}", threads.totals());
        let ended = threads.stop();
        assert_eq!((ended.panicked, ended.shards.len()), (None, count.into()));
        assert_eq!(ended.shards.iter().map(|shard| shard.stats.disconnects).sum::<u64>(), 48);
        until(&mut clients, "all clients learn of the end", |clients| {
            clients.iter().all(|it| it.state() != ClientState::Connected)
        });
        assert!(clients.iter().all(|client| client.end() == Some(CloseKind::DisconnectedByServer)));
    }
}

#[test]
fn panic_of_a_game_is_reported_and_closes_all_clients() {
    let (servers, clock, address) = start(2, 16, None);
    let threads = ShardThreads::start(servers, clock, TICK, |_| echo).unwrap();
    let mut clients = crowd(address, 0..16);
    clients[0].send(b"panic");
    until(&mut clients, "all clients learn of the end", |clients| {
        clients.iter().all(|it| it.state() != ClientState::Connected)
    });
    assert!(!threads.is_running());
    let ended = threads.stop();
    let panicked = ended.panicked.unwrap();
    assert!(panicked.message.contains("panic on request"), "{panicked}");
    assert_eq!(ended.shards.iter().map(|shard| shard.stats.disconnects).sum::<u64>(), 16);
}

#[test]
fn history_file_serves_all_shards_and_later_starts() {
    let path = std::env::temp_dir().join(format!("slipgate-shards-{}.history", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let today = || slipgate_netcode::time::UnixSeconds::from(slipgate_os::clock::wall_clock());
    let history = || Some(HistoryFile::open(&path, today()).unwrap());
    let (servers, clock, address) = start(2, 16, history());
    let threads = ShardThreads::start(servers, clock, TICK, |_| echo).unwrap();
    let minted_tokens: Vec<_> = (0..16).map(|player| TokenOrder::new(player, &[address]).mint()).collect();
    let mut clients: Vec<_> = minted_tokens.iter().map(OurClient::connect).collect();
    until(&mut clients, "all clients connect", |clients| clients.iter().all(|it| it.state() == ClientState::Connected));
    drop(threads);
    assert_eq!(history().unwrap().len(), 16);

    let sockets = Sockets::bind_shards(&[address], 2).unwrap();
    let mut config = ServerConfig::new(PROTOCOL_ID, 16, &[address]);
    config.token_cutoff = TokenCutoff::None;
    let keys = Key::from(PRIVATE_KEY);
    let servers = Server::shards(sockets, config, keys.into(), Clock::start().now(), Some(history().unwrap()));
    let threads = ShardThreads::start(servers.unwrap(), Clock::start(), TICK, |_| echo).unwrap();
    let _ports: Vec<_> = minted_tokens.iter().map(|minted| replay(minted, address)).collect();
    until(&mut Vec::<OurClient>::new(), "all tokens are refused", |_| {
        threads.totals().iter().map(|shard| shard.discards[Discard::TokenUsed]).sum::<u64>() == 16
    });
    assert!(threads.stop().shards.iter().all(|shard| shard.stats.connects == 0));
    for left in [path.clone(), path.with_extension("history.lock")] {
        let _ = std::fs::remove_file(left);
    }
}
