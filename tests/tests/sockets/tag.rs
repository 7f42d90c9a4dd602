//! The game of tag from the folder `examples`: its server and two of its clients in one thread.

use std::time::{Duration, Instant};

use super::tag_client::Player;
use super::tag_server::Game;

const MAX_TIME: Duration = Duration::from_secs(30);

/// Runs turns until something has happened.
fn run_until(game: &mut Game, players: &mut [Player], what: &str, mut happened: impl FnMut(&[Player]) -> bool) {
    let start = Instant::now();
    while !happened(players) {
        assert!(start.elapsed() < MAX_TIME, "{what}");
        game.turn();
        players.iter_mut().for_each(Player::turn);
    }
}

#[test]
fn two_players_chat_move_and_tag_each_other() {
    let mut game = Game::start("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = game.addresses()[0];
    let mut players = [(1, "Ann"), (2, "Bob")].map(|(id, name)| Player::join(address, id, name).unwrap());
    run_until(&mut game, &mut players, "both see each other", |players| {
        players.iter().all(|player| player.world.players.len() == 2)
    });
    run_until(&mut game, &mut players, "each reads the line of the other", |players| {
        players.iter().all(|player| player.chat.iter().any(|line| line == "hello, all"))
    });
    run_until(&mut game, &mut players, "both have the map", |players| {
        players.iter().all(|player| player.map.as_ref().is_some_and(|map| map.is_free(3, 4) && !map.is_free(4, 4)))
    });
    let first = players[0].world.it;
    assert!([1, 2].contains(&first));
    run_until(&mut game, &mut players, "the other one is tagged", |players| {
        players.iter().all(|player| player.chat.iter().any(|line| line.ends_with(" is it")))
            && players.iter().all(|player| player.ended.is_none())
    });
}
