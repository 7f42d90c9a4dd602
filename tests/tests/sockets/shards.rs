//! One server on several sockets of one port: what its shards share, and what each has for itself.

use std::net::UdpSocket;
use std::time::Duration;

use slipgate_client::{ClientState, EndReason};
use slipgate_server::{
    Clock, Config, Crew, Discard, DisconnectReason, Event, Fence, HistoryFile, Inbox, Key, Server, ShardId, Sockets,
};
use slipgate_tests::holder::Holder;
use slipgate_tests::live::{
    GameClient, GameServer, IPV4, Order, OurClient, OurServer, PRIVATE_KEY, PROTOCOL_ID, Ticket, Turn, run_for, until,
};

/// Longer than a busy machine keeps a test waiting between two turns.
const GRACE: Duration = Duration::from_millis(1500);
const TICK: Duration = Duration::from_millis(5);

/// A new token for a player.
fn ticket(client_id: u64, server: &impl GameServer) -> Ticket {
    Order::new(client_id, &[server.address()]).mint()
}

/// The shard on which a player is connected.
fn shard_of(shards: &[OurServer], client_id: u64) -> Option<usize> {
    shards.iter().position(|shard| shard.server.find(client_id).is_some())
}

fn connect(shards: &mut Vec<OurServer>, ticket: &Ticket) -> OurClient {
    let mut client = OurClient::connect(ticket);
    until(&mut (shards, &mut client), "a client gets in", |(_, client)| client.state() == ClientState::Connected);
    client
}

fn leave(shards: &mut Vec<OurServer>, mut client: OurClient, client_id: u64) {
    client.leave();
    until(&mut (shards, client), "a client leaves", |(shards, _)| shard_of(shards, client_id).is_none());
}

/// A player on a shard of the test's choice: it comes again from other ports until the system's hash chooses that one.
fn connect_on(shards: &mut Vec<OurServer>, shard: usize, client_id: u64) -> OurClient {
    loop {
        let ticket = ticket(client_id, &shards[0]);
        let client = connect(shards, &ticket);
        if shard_of(shards, client_id) == Some(shard) {
            return client;
        }
        leave(shards, client, client_id);
    }
}

/// Ends games without a word, as a client that is dropped would say.
fn crash(clients: impl IntoIterator<Item = OurClient>) {
    clients.into_iter().for_each(std::mem::forget);
}

/// Presents tokens from other ports until a shard has refused one for a reason.
fn refused_on(shards: &mut Vec<OurServer>, shard: usize, reason: Discard, ticket: impl Fn() -> Ticket) -> OurClient {
    let refusals = |shards: &[OurServer]| shards[shard].server.discards().count(reason);
    let before = refusals(shards);
    for _ in 0..64 {
        let mut client = OurClient::connect(&ticket());
        run_for(&mut (&mut *shards, &mut client), Duration::from_millis(250));
        assert_ne!(client.state(), ClientState::Connected);
        if refusals(shards) > before {
            return client;
        }
    }
    panic!("no port of 64 leads to shard {shard}: {}", shards.describe());
}

/// Replays the request of a token from other ports, as our client does not, until a shard has refused it.
fn replayed_on(shards: &mut Vec<OurServer>, shard: usize, ticket: &Ticket) {
    let refusals = |shards: &[OurServer]| shards[shard].server.discards().count(Discard::TokenUsed);
    let before = refusals(shards);
    let ports: Vec<_> = (0..32).map(|_| replay(ticket, shards[0].address())).collect();
    until(&mut &mut *shards, "a replayed token is refused", |shards| refusals(shards) > before);
    assert_eq!(ports.len(), 32);
}

fn replay(ticket: &Ticket, to: std::net::SocketAddr) -> UdpSocket {
    let port = UdpSocket::bind((IPV4, 0)).unwrap();
    port.send_to(&Holder::of(&ticket.token).request(), to).unwrap();
    port
}

#[test]
fn a_token_used_on_one_shard_is_refused_on_another_now_and_when_its_player_has_left() {
    let mut shards = OurServer::shards(2, 8, |_| {});
    let ticket = ticket(1, &shards[0]);
    let player = connect(&mut shards, &ticket);
    let other = 1 - shard_of(&shards, 1).unwrap();
    replayed_on(&mut shards, other, &ticket);
    leave(&mut shards, player, 1);
    replayed_on(&mut shards, other, &ticket);
    assert!(shards.iter().all(|shard| shard.server.connected() == 0 && shard.server.stats().challenges_sent <= 1));
}

#[test]
fn a_player_is_connected_once_whatever_the_shard_and_gets_in_elsewhere_when_it_has_left() {
    let mut shards = OurServer::shards(2, 8, |_| {});
    let address = shards[0].address();
    let _player = connect_on(&mut shards, 0, 1);
    let newer = || Order::new(1, &[address]).mint();
    let mut second = refused_on(&mut shards, 1, Discard::ClientIdConnected, newer);
    let first = shards[0].server.find(1).unwrap();
    assert!(shards[0].server.disconnect(first) && !shards[1].server.disconnect(first), "a handle is one shard's");
    until(&mut (&mut shards, &mut second), "its successor gets in", |(_, second)| {
        second.state() == ClientState::Connected
    });
    assert_eq!(shard_of(&shards, 1), Some(1));
}

#[test]
fn a_server_is_full_when_all_slots_are_used_and_not_before_whatever_the_shards() {
    let mut shards = OurServer::shards(2, 4, |_| {});
    let mut players: Vec<_> = (1..=4).map(|player| connect_on(&mut shards, 0, player)).collect();
    let mut seats: Vec<_> = players.iter().map(|player| player.seat().unwrap()).collect();
    seats.sort_unstable();
    assert_eq!(seats, [(0, 4), (1, 4), (2, 4), (3, 4)], "one shard holds all slots of the server");
    for player in 5..13 {
        let mut denied = OurClient::connect(&ticket(player, &shards[0]));
        until(&mut (&mut shards, &mut denied), "the server is full", |(_, denied)| {
            denied.state() == ClientState::Denied
        });
    }
    let denials = shards.iter().map(|shard| shard.server.stats().denials_sent > 0);
    assert_eq!(denials.collect::<Vec<_>>(), [true, true], "both shards know that the server is full");
    let index = players[2].seat().unwrap().0;
    leave(&mut shards, players.remove(2), 3);
    let newcomer = connect_on(&mut shards, 1, 13);
    assert_eq!(newcomer.seat(), Some((index, 4)), "the slot that one shard gave back is another's");
    let handle = shards[1].server.find(13).unwrap();
    assert_eq!((handle.shard(), shards[1].server.client(handle).unwrap().index), (ShardId(1), index));
    assert_eq!(handle.slot(), 0, "on its shard it is the first");
}

#[test]
fn a_newer_token_takes_the_slot_of_a_silent_player_over_from_another_shard() {
    let mut shards = OurServer::shards(2, 1, |config| config.takeover_after = Some(GRACE));
    crash([connect_on(&mut shards, 0, 1)]);
    // The server is full, and its only slot is on the other shard.
    let new = connect_elsewhere(&mut shards, 1);
    assert_eq!(shards[0].log().ended.last(), Some(&(1, Some(DisconnectReason::TakenOver))));
    assert_eq!((shard_of(&shards, 1), new.seat()), (Some(1), Some((0, 1))));
}

/// A player who crashed comes back on shard 1, from ports that lead there.
fn connect_elsewhere(shards: &mut Vec<OurServer>, client_id: u64) -> OurClient {
    for _ in 0..64 {
        let before = shards[1].server.discards().count(Discard::ClientIdConnected);
        let mut client = OurClient::connect(&ticket(client_id, &shards[0]));
        // Not for so long that the player is silent enough on its own shard.
        run_for(&mut (&mut *shards, &mut client), GRACE / 20);
        if shards[1].server.discards().count(Discard::ClientIdConnected) > before
            || shard_of(shards, client_id) == Some(1)
        {
            until(&mut (&mut *shards, &mut client), "the silent one is taken over", |(_, client)| {
                client.state() == ClientState::Connected
            });
            return client;
        }
        // It came to the shard of the player itself; once that is silent it takes over there, which is another story.
        assert_eq!(shards[0].server.find(client_id).map(|_| 0), shard_of(shards, client_id));
    }
    panic!("no port of 64 leads to shard 1");
}

#[test]
fn a_player_who_is_heard_is_not_taken_over_from_another_shard() {
    let mut shards = OurServer::shards(2, 4, |config| config.takeover_after = Some(GRACE));
    let address = shards[0].address();
    let mut player = connect_on(&mut shards, 0, 1);
    let mut thieves: Vec<_> = (0..8).map(|_| OurClient::connect(&Order::new(1, &[address]).mint())).collect();
    run_for(&mut (&mut shards, &mut player, &mut thieves), 2 * GRACE);
    assert!(shards[1].server.discards().count(Discard::ClientIdConnected) > 0, "{}", shards.describe());
    assert_eq!((player.state(), shard_of(&shards, 1)), (ClientState::Connected, Some(0)));
    assert!(thieves.iter().all(|thief| thief.state() != ClientState::Connected));
}

#[test]
fn slots_come_back_from_who_leaves_who_is_silent_who_is_kicked_and_a_shard_that_is_gone() {
    let mut shards = OurServer::shards(2, 4, |_| {});
    let fill = |shards: &mut Vec<OurServer>, first: u64, shard: Option<usize>| -> Vec<OurClient> {
        let players = first..first + 4;
        let admit = |player| match shard {
            Some(shard) => connect_on(shards, shard, player),
            None => {
                let order = Order { timeout_seconds: 1, ..Order::new(player, &[shards[0].address()]) };
                connect(shards, &order.mint())
            }
        };
        players.map(admit).collect()
    };
    // Silent until their time is over.
    crash(fill(&mut shards, 1, None));
    until(&mut shards, "the silent time out", |shards| shards.iter().all(|shard| shard.server.connected() == 0));
    // Kicked.
    let players = fill(&mut shards, 11, Some(0));
    for player in 11..15 {
        shards[0].kick(player);
    }
    run_for(&mut (&mut shards, players), Duration::from_millis(20));
    // On a shard that is dropped.
    let players = fill(&mut shards, 21, Some(0));
    drop((shards.remove(0), players));
    let players = fill(&mut shards, 31, Some(0));
    assert_eq!((players.len(), shards[0].server.connected()), (4, 4), "all slots are the last shard's");
}

#[test]
fn clients_of_a_shard_whose_game_panics_hear_of_the_end_and_those_of_the_last_shard_play_on() {
    let mut shards = OurServer::shards(2, 4, |_| {});
    let mut player = connect_on(&mut shards, 1, 1);
    let mut of_the_other = connect_on(&mut shards, 0, 2);
    let shard = shards.remove(0);
    let game = move || {
        let _shard = shard;
        panic!("as the test wants it");
    };
    assert!(std::thread::spawn(game).join().is_err());
    until(&mut (&mut shards, &mut of_the_other), "it hears of the end", |(_, it)| it.end().is_some());
    assert_eq!(of_the_other.end(), Some(EndReason::DisconnectedByServer), "nobody waited for a time-out");
    player.send(b"still here");
    until(&mut (&mut shards, &mut player), "the other plays on", |(shards, _)| {
        shards[0].log().payloads == [b"still here"]
    });
    // Its id and its slot are free at once.
    let ticket = ticket(2, &shards[0]);
    let again = connect(&mut shards, &ticket);
    assert_eq!((again.state(), shards[0].server.connected()), (ClientState::Connected, 2));
}

#[test]
fn of_three_shards_one_is_dropped_and_who_goes_astray_times_out_and_gets_in_again() {
    let mut shards = OurServer::shards(3, 16, |_| {});
    let address = shards[0].address();
    let order = |player| Order { timeout_seconds: 1, ..Order::new(player, &[address]) };
    let mut players: Vec<_> = (0..12).map(|player| connect(&mut shards, &order(player).mint())).collect();
    drop(shards.remove(0));
    run_for(&mut (&mut shards, &mut players), Duration::from_millis(2500));
    assert!(shards.iter().map(|shard| shard.server.connected()).sum::<u32>() <= 12);
    for (number, player) in (0..).zip(&mut players) {
        if player.state() != ClientState::Connected {
            assert!(player.end().is_some(), "it knows that it has lost its server");
            *player = connect(&mut shards, &order(number).mint());
        }
        assert!(shard_of(&shards, number).is_some(), "player {number}");
    }
}

#[test]
fn each_shard_has_a_filter_and_what_it_drops_is_told_by_each_and_summed() {
    let shards = OurServer::shards(2, 4, |_| {});
    assert!(shards.iter().all(|shard| shard.server.has_kernel_filter()));
    for _ in 0..64 {
        UdpSocket::bind((IPV4, 0)).unwrap().send_to(b"junk", shards[0].address()).unwrap();
    }
    let totals: Vec<_> = shards.iter().map(|shard| slipgate_server::Totals::of(&shard.server)).collect();
    let dropped: Vec<_> = totals.iter().map(|totals| totals.sockets.dropped_by_system.unwrap()).collect();
    assert!(dropped.iter().all(|count| *count > 0), "{dropped:?}");
    assert_eq!(slipgate_server::Totals::sum(&totals).sockets.dropped_by_system, Some(64));
}

// On threads ----------------------------------------------------------------------------------------------------------

fn start(shards: u16, slots: u32, history: Option<HistoryFile>) -> (Vec<Server>, Clock, std::net::SocketAddr) {
    let sockets = Sockets::bind_shards(&[(IPV4, 0).into()], shards).unwrap();
    let address = sockets[0].local_addresses()[0];
    let mut config = Config::new(PROTOCOL_ID, slots, vec![address.into()]);
    config.fence = if history.is_some() { Fence::Open } else { Fence::Closed };
    let (clock, keys) = (Clock::start(), Key::from_bytes(PRIVATE_KEY));
    let servers = match history {
        Some(history) => Server::shards_with_history(sockets, config, keys.into(), clock.now(), history),
        None => Server::shards(sockets, config, keys.into(), clock.now()),
    };
    (servers.unwrap(), clock, address)
}

/// Echoes, until it is told to panic.
fn echo(server: &mut Server, inbox: &mut Inbox) {
    while let Some(event) = inbox.next(server) {
        if let Event::Payload { client, bytes, .. } = event {
            assert_ne!(bytes, b"panic", "as it was told");
            let _ = server.send(client, bytes);
        }
    }
}

fn crowd(address: std::net::SocketAddr, players: std::ops::Range<u64>) -> Vec<OurClient> {
    let mut clients: Vec<_> =
        players.map(|player| OurClient::connect(&Order::new(player, &[address]).mint())).collect();
    until(&mut clients, "all get in", |clients| clients.iter().all(|it| it.state() == ClientState::Connected));
    clients
}

#[test]
fn many_clients_are_echoed_by_two_and_by_four_threads_and_all_hear_of_the_end() {
    for count in [2, 4] {
        let (servers, clock, address) = start(count, 48, None);
        let crew = Crew::start(servers, clock, TICK, |_| echo).unwrap();
        let mut clients = crowd(address, 0..48);
        for number in 0..20_u8 {
            clients.iter_mut().for_each(|client| client.send(&[number; 100]));
            until(&mut clients, "all are answered", |clients| {
                clients.iter().all(|client| client.received().len() > number.into())
            });
        }
        assert!(clients.iter().all(|client| client.received().iter().map(|echo| echo[0]).eq(0..20)));
        assert!(crew.is_running());
        until(&mut clients, "the threads tell", |_| crew.totals().iter().map(|it| it.connected).sum::<u32>() == 48);
        assert!(crew.totals().iter().all(|shard| shard.connected > 0), "{:?}", crew.totals());
        let ended = crew.stop();
        assert_eq!((ended.panicked, ended.shards.len()), (None, count.into()));
        assert_eq!(ended.shards.iter().map(|shard| shard.stats.disconnects).sum::<u64>(), 48);
        until(&mut clients, "all hear of the end", |clients| {
            clients.iter().all(|it| it.state() != ClientState::Connected)
        });
        assert!(clients.iter().all(|client| client.end() == Some(EndReason::DisconnectedByServer)));
    }
}

#[test]
fn a_game_that_panics_on_one_shard_is_told_of_and_all_clients_hear_of_the_end() {
    let (servers, clock, address) = start(2, 16, None);
    let crew = Crew::start(servers, clock, TICK, |_| echo).unwrap();
    let mut clients = crowd(address, 0..16);
    clients[0].send(b"panic");
    until(&mut clients, "all hear of the end", |clients| clients.iter().all(|it| it.state() != ClientState::Connected));
    assert!(!crew.is_running());
    let ended = crew.stop();
    let panicked = ended.panicked.unwrap();
    assert!(panicked.message.contains("as it was told"), "{panicked}");
    assert_eq!(ended.shards.iter().map(|shard| shard.stats.disconnects).sum::<u64>(), 16);
}

#[test]
fn a_history_file_is_all_shards_and_their_next_starts() {
    let path = std::env::temp_dir().join(format!("slipgate-shards-{}.history", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let today = || slipgate_os::clock::wall_clock().seconds();
    let history = || Some(HistoryFile::open(&path, today()).unwrap());
    let (servers, clock, address) = start(2, 16, history());
    let crew = Crew::start(servers, clock, TICK, |_| echo).unwrap();
    let tickets: Vec<_> = (0..16).map(|player| Order::new(player, &[address]).mint()).collect();
    let mut clients: Vec<_> = tickets.iter().map(OurClient::connect).collect();
    until(&mut clients, "all get in", |clients| clients.iter().all(|it| it.state() == ClientState::Connected));
    drop(crew);
    assert_eq!(history().unwrap().len(), 16);

    let sockets = Sockets::bind_shards(&[address], 2).unwrap();
    let mut config = Config::new(PROTOCOL_ID, 16, vec![address.into()]);
    config.fence = Fence::Open;
    let keys = Key::from_bytes(PRIVATE_KEY);
    let servers = Server::shards_with_history(sockets, config, keys.into(), Clock::start().now(), history().unwrap());
    let crew = Crew::start(servers.unwrap(), Clock::start(), TICK, |_| echo).unwrap();
    let _ports: Vec<_> = tickets.iter().map(|ticket| replay(ticket, address)).collect();
    until(&mut Vec::<OurClient>::new(), "all tokens are refused", |_| {
        crew.totals().iter().map(|shard| shard.discards.count(Discard::TokenUsed)).sum::<u64>() == 16
    });
    assert!(crew.stop().shards.iter().all(|shard| shard.stats.connects == 0));
    for left in [path.clone(), path.with_extension("history.lock")] {
        let _ = std::fs::remove_file(left);
    }
}
