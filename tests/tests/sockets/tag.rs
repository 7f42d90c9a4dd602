//! The game of tag from the folder `examples`: its server and two of its clients in one thread.

use std::time::{Duration, Instant};

use super::arena_server::arena;
use super::tag_client::Player;
use super::tag_server::{Game, tag};

const MAX_TIME: Duration = Duration::from_secs(60);

/// Starts a game with two players, and runs it until both see each other.
fn start() -> (Game, [Player; 2]) {
    start_with(["Ann", "Bob"])
}

fn start_with(names: [&str; 2]) -> (Game, [Player; 2]) {
    let mut game = Game::start("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = game.server.sockets().local_addresses()[0];
    let mut id = 0;
    let mut players = names.map(|name| {
        id += 1;
        Player::join(address, id, name).unwrap()
    });
    run_until(&mut game, &mut players, "both see each other", |players| {
        players.iter().all(|player| player.world.fields.len() == 2)
    });
    (game, players)
}

/// Runs turns until something has happened.
fn run_until(game: &mut Game, players: &mut [Player], what: &str, mut happened: impl FnMut(&[Player]) -> bool) {
    let start = Instant::now();
    while !happened(players) {
        assert!(start.elapsed() < MAX_TIME, "{what}");
        game.turn();
        players.iter_mut().for_each(Player::turn);
    }
}

/// Returns whether the player has read a line that ends like this.
fn has_read(player: &Player, end: &str) -> bool {
    player.news.iter().any(|line| line.ends_with(end))
}

/// Returns whether the connection has ended with this text.
fn has_ended(player: &Player, text: &str) -> bool {
    player.client.close_reason().is_some_and(|reason| reason.to_string().contains(text))
}

#[test]
fn two_players_move_and_tag_each_other_until_the_game_ends() {
    let (mut game, mut players) = start();
    let first = players[0].world.it;
    assert!([1, 2].contains(&first));
    // The first tag, and the one back, for which both have to leave their fields.
    let (tagged, back) = if first == 1 { ("Bob is it", "Ann is it") } else { ("Ann is it", "Bob is it") };
    run_until(&mut game, &mut players, "the other one is tagged", |players| {
        players.iter().all(|player| has_read(player, tagged) && player.world.it != first)
    });
    run_until(&mut game, &mut players, "both move", |players| {
        players.iter().all(|player| player.world.fields.values().all(|field| field.1 > 0))
    });
    run_until(&mut game, &mut players, "the first one is tagged", |players| {
        players.iter().all(|player| has_read(player, back) && player.world.it == first)
    });
    assert!(players.iter().all(|player| player.client.close_reason().is_none()));
    game.end();
    let start = Instant::now();
    while !players.iter().all(|player| has_ended(player, "The game is over")) {
        assert!(start.elapsed() < MAX_TIME, "both read why the game ended");
        players.iter_mut().for_each(Player::turn);
    }
}

#[test]
fn name_with_control_characters_changes_no_terminal() {
    let (mut game, mut players) = start_with(["Ann", "Ev\u{1b}[31m\nil\u{9b}"]);
    run_until(&mut game, &mut players, "a line with the rest of the name", |players| {
        players.iter().any(|player| has_read(player, "Ev[31mil has joined"))
    });
    assert_eq!(tag::printable("\u{1b}]0;title\u{7}Ann\r"), "]0;titleAnn", "a server that does not filter");
}

#[test]
fn examples_show_warnings_without_a_setting() {
    if std::env::var_os("RUST_LOG").is_some() {
        return;
    }
    assert_eq!(tag::log_filter().to_string(), "warn");
    assert_eq!(arena::log_filter().to_string(), "warn");
}

#[test]
fn player_that_sends_invalid_steps_is_kicked() {
    let (mut game, mut players) = start();
    let steps = players[1].channels.steps;
    players[1].client.send_message(steps, &[7; 100]).unwrap();
    run_until(&mut game, &mut players, "the other player sees that it left", |players| {
        has_ended(&players[1], "Your game sent invalid data") && has_read(&players[0], "Bob has left (kicked)")
    });
    run_until(&mut game, &mut players[..1], "its field is free", |players| players[0].world.fields.len() == 1);
    assert!(players[0].client.close_reason().is_none());
}
