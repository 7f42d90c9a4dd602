//! The game of tag: clients in several languages play on one server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::csharp;
use super::tag_client::Player;
use super::tag_server::Game;
use super::toolchain::{Linkage, compile, folder, has, has_built};

const MAX_TIME: Duration = Duration::from_secs(60);
/// Fields that each player must have been seen on.
const MIN_FIELDS: usize = 4;
/// The lines of the client in C++, at most this multiple of those in Rust.
const MAX_LINES_OF_CPP: f64 = 1.3;

fn example(name: &str) -> PathBuf {
    folder().join("../examples/languages").join(name)
}

/// Returns the commands that run the clients for which there is a compiler, with the names of their players.
fn clients() -> Vec<(&'static str, Command)> {
    let mut found = Vec::new();
    if has("cc") {
        found.push(("Carl", Command::new(compile(&example("tag.c"), Linkage::Static))));
    }
    if has("c++") {
        found.push(("Dora", Command::new(compile(&example("tag.cpp"), Linkage::Shared))));
    }
    if let Some(program) = csharp::compile(example("Tag.cs")) {
        found.push(("Emil", csharp::mono(program)));
    }
    // It has a workspace of its own, with dependencies that take a minute to build.
    let bevy = folder().join("../bindings/bevy/target/debug/examples/tag");
    if has_built("the Bevy client", "cargo build --example tag in bindings/bevy", &bevy) {
        found.push(("Faye", Command::new(bevy)));
    }
    found.extend(more_clients());
    found
}

/// Returns the commands in `SLIPGATE_MORE_PLAYERS`, one in each line: `./check-windows game` sets it to programs that
/// run under Wine.
fn more_clients() -> Vec<(&'static str, Command)> {
    let lines = std::env::var("SLIPGATE_MORE_PLAYERS").unwrap_or_default();
    let commands = lines.lines().map(|line| {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap());
        command.args(words);
        command
    });
    ["Gina", "Hugo", "Ivan"].into_iter().zip(commands).collect()
}

/// Programs that are ended with the test, also when it fails.
struct Programs(Vec<(&'static str, Child)>);

impl Drop for Programs {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn clients_in_all_languages_play_on_one_server() {
    // Compiled first, because a connect token is valid for 30 s only.
    let commands = clients();
    if commands.is_empty() {
        return;
    }
    let mut game = Game::start("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = game.server.sockets().local_addresses()[0];
    let mut player = Player::join(address, 1, "Ann").unwrap();
    let mut programs = Programs(Vec::new());
    for (id, (name, mut command)) in (3..).zip(commands) {
        command.arg(address.to_string()).arg(id.to_string()).arg(name).stdout(Stdio::piped());
        programs.0.push((name, command.spawn().unwrap()));
    }
    let players = programs.0.len() + 1;
    let mut fields: BTreeMap<u64, BTreeSet<_>> = BTreeMap::new();
    let start = Instant::now();
    while fields.len() < players || fields.values().any(|seen| seen.len() < MIN_FIELDS) {
        assert!(start.elapsed() < MAX_TIME, "all of {players} players move: {fields:?}");
        game.turn();
        player.turn();
        player.world.fields.iter().for_each(|(id, field)| _ = fields.entry(*id).or_default().insert(*field));
    }
    game.end();
    for (name, child) in &mut programs.0 {
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let text = text.replace('\r', "");
        assert!(child.wait().unwrap().success(), "{name}: {text}");
        // It has read the news of the others, and why the game ended.
        assert!(text.contains(" has joined\n"), "{name}: {text}");
        assert!(text.ends_with("The game is over. Thank you for playing.\n"), "{name}: {text}");
    }
}

#[test]
fn client_in_cpp_is_about_as_short_as_in_rust() {
    let lines = |path: PathBuf| std::fs::read_to_string(path).unwrap().lines().count() as f64;
    let rust = lines(folder().join("../examples/tag_client.rs")) + lines(folder().join("../examples/tag/mod.rs"));
    let cpp = lines(example("tag.cpp"));
    println!("lines of C++ against Rust: {:.2}, at most {MAX_LINES_OF_CPP}", cpp / rust);
    assert!(cpp / rust <= MAX_LINES_OF_CPP, "{cpp} lines in C++, {rust} in Rust");
}
